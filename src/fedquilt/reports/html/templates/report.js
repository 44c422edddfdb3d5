"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      const sign = up ? 1 : -1;
      for (const each of heads) each.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const text = (row) => row.cells[place].textContent.trim();
      const value = (row) => parseFloat(text(row).replace(/,/g, ""));
      const isNumber = head.classList.contains("n");
      const rows = [...table.tBodies[0].rows];
      rows.sort((one, other) => {
        if (!isNumber) return sign * text(one).localeCompare(text(other), "en", { numeric: true });
        const a = value(one), b = value(other);
        if (isNaN(a) || isNaN(b)) return isNaN(a) - isNaN(b);
        return sign * (a - b);
      });
      table.tBodies[0].append(...rows);
    });
  });
}
for (const controls of document.querySelectorAll(".controls")) {
  const input = controls.querySelector("input");
  const status = controls.querySelector("output");
  const items = [...document.getElementById(input.getAttribute("aria-controls")).children];
  const names = items.map((item) => item.querySelector(".name").textContent.toLowerCase());
  controls.hidden = false;
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    let shown = 0;
    items.forEach((item, place) => {
      item.hidden = !names[place].includes(wanted);
      shown += !item.hidden;
    });
    status.textContent = shown + " of " + items.length;
  });
}
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  if (opened.length > 150) opened = [];
  for (const each of opened) each.open = true;
});
addEventListener("afterprint", () => {
  for (const each of opened) each.open = false;
});
