"""One Markdown page per method, from the code: ``python -m docs.method_pages FOLDER``.

A page ends with the text of ``docs/method_notes`` on its method, if there is one. Also writes down
what leaves a client, for ``fedquilt list methods --verbose``.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from docs.markdown import MARK, markdown_table, prose, wrapped
from fedquilt.core.atomic_files import write_bytes
from fedquilt.core.payload import Gather, Part
from fedquilt.core.registry import find
from fedquilt.deploy.server.unannotated_rows import what_leaves_a_client
from fedquilt.methods import METHODS
from fedquilt.privacy.sent_parts import EXAMPLE, SentPart, example_data, example_task, sent_parts
from fedquilt.recipes.catalogue import entries
from fedquilt.recipes.source_docs import ClassSource, Field, read_class
from fedquilt.recipes.what_leaves import FILE
from fedquilt.training.method import Method

FACTS = Path(__file__).parents[1] / "src" / "fedquilt" / "recipes" / FILE
NOTES = Path(__file__).parent / "method_notes"
INDEX = "index.md"
PLAIN_RECIPE = "digits-fedavg"  # sets nothing but the training, so any method can take its place
OWN_DATA = "--data images --labels labels.csv --site-column site"

KINDS = {
    "Sum": "the sum over the round's clients",
    "Mean": "the weighted mean over the round's clients, and the summed weight",
    "Gather": "every client's own value, so it cannot be summed securely",
}


def pages() -> dict[str, str]:
    """Every page by its file name."""
    return {f"{name}.md": _page(name, place) for name, place in METHODS.items()} | {INDEX: _index()}


def write_pages(folder: Path) -> None:
    """Write all pages, and remove those of methods that are gone."""
    folder.mkdir(parents=True, exist_ok=True)
    written = pages()
    for name, text in written.items():
        write_bytes(folder / name, text.encode())
    for path in folder.glob("*.md"):
        if path.name not in written and path.read_text(encoding="utf-8").startswith(MARK):
            path.unlink()


def facts() -> str:
    """What leaves a client under each method, as JSON with a line for each."""
    lines = [f"{json.dumps(name)}: {json.dumps(what_leaves_a_client(name))}" for name in METHODS]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _page(name: str, place: str) -> str:
    source = read_class(place)
    module = place.partition(":")[0]
    blocks = [
        MARK,
        f"# {_title(source.module_docstring)}",
        prose(source.module_docstring),
        f"Name in a recipe: `{name}`. Code: `src/{module.replace('.', '/')}.py`.",
        f"## Idea\n\n{prose(source.docstring)}",
        f"## Settings\n\n{_settings_table(source.fields)}",
        *_variants(name, source),
        f"## What leaves a client\n\n{_sent(name, find('method', METHODS, name)())}",
        f"## Run it\n\n{_commands(name, source)}",
        *_notes(name),
    ]
    return "\n\n".join(blocks) + "\n"


def _index() -> str:
    rows = [
        (f"[`{entry.name}`]({entry.name}.md)", entry.idea, entry.about)
        for entry in entries("methods")
        if entry.name in METHODS
    ]
    kinds = [(f"`{kind}`", meaning) for kind, meaning in KINDS.items()]
    groups = {
        field.name: field.fields
        for place in METHODS.values()
        for field in read_class(place).fields
        if field.fields
    }
    blocks = [
        MARK,
        "# Methods",
        markdown_table(("name", "idea", "paper"), rows),
        "\n".join(["```{toctree}", ":hidden:", "", *METHODS, "```"]),
        "## Kinds of parts",
        markdown_table(("kind", "what the server's half of a method is given"), kinds),
        "The engine decides how parts are added up; the sequential engine adds plain numbers.",
        "Settings below and on the pages are written as in TOML; where it says `none`, leave out "
        "the setting.",
        *(f"## Settings of `{name}`\n\n{_settings_table(group)}" for name, group in groups.items()),
    ]
    return "\n\n".join(blocks) + "\n"


def _settings_table(fields: Iterable[Field]) -> str:
    rows = []
    for field in fields:
        shared = f"see [`{field.name}`]({INDEX}#settings-of-{field.name})" if field.fields else ""
        meaning = field.comment or shared
        rows.append((f"`{field.name}`", _type(field.type), _default(field), meaning))
    return markdown_table(("setting", "type", "default", "meaning"), rows)


def _type(text: str) -> str:
    """Choices as values one can write down, everything else as it is in the code."""
    if text.startswith("Literal["):
        choices = ast.literal_eval(text.removeprefix("Literal"))
        return " or ".join(_toml(choice) for choice in choices)
    return " or ".join(f"`{each.replace('None', 'none')}`" for each in text.split(" | "))


def _default(field: Field) -> str:
    """As a recipe has it; what is no plain value, such as a call, as the code has it."""
    if field.default is None:
        return "(needed)"
    try:
        return _toml(ast.literal_eval(field.default))
    except ValueError:
        return f"`{field.default}`"


def _toml(value: Any) -> str:
    return f"`{'none' if value is None else json.dumps(value, ensure_ascii=False)}`"


def _variants(name: str, source: ClassSource) -> list[str]:
    defaults = {field.name: _default(field) for field in source.fields}
    defaults |= {key: _toml(value) for key, value in source.constants.get("fixed", {}).items()}
    found = []
    for variant, settings in source.constants.get("variants", {}).items():
        rows = [(f"`{key}`", defaults[key], _toml(new)) for key, new in settings.items()]
        recipe = f'```toml\n[method]\nname = "{name}"\nvariant = "{variant}"\n```'
        shown = markdown_table(("setting", "default", f"in `{variant}`"), rows)
        found.append(f"## Variant `{variant}`\n\n{shown}\n\n{recipe}")
    return found


def _sent(name: str, method: Method) -> str:
    parts = sent_parts(name)
    columns = ("part", "kind", "shapes", "numbers", "weight sent along", "can be summed securely")
    sentences = [f"The kinds are explained [here]({INDEX}#kinds-of-parts)."]
    if any(part.name == "body" for part in parts):
        sentences.append("A network with batch norm also sends `buffers`, its running statistics.")
    sentences.append(f"Before the first round each client is asked once for {_survey(method)}.")
    shown = markdown_table(columns, map(_sent_row, parts))
    return f"In every round, here for {EXAMPLE}:\n\n{shown}\n\n{wrapped(' '.join(sentences))}"


def _sent_row(part: SentPart) -> tuple[str, ...]:
    return (
        f"`{part.name}`",
        part.kind,
        ", ".join(map(_shape, part.tensors.values())),
        f"{part.numbers:,}",
        "" if part.weight_shape is None else _shape(part.weight_shape),
        "yes" if part.can_be_summed_securely else "no",
    )


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "one number"


def _survey(method: Method) -> str:
    """The parts of the one-off survey."""
    answer = method.survey(example_data(example_task(method)))
    return " and ".join(
        f"`{name}` ({type(part).__name__}, per {_unit(part)})" for name, part in answer.items()
    )


def _unit(part: Part) -> str:
    """What a part of the survey has a number for."""
    return "image" if isinstance(part, Gather) and part.any_length else "class"


def _commands(name: str, source: ClassSource) -> str:
    shipped = [entry.name for entry in entries("recipes") if entry.about.startswith(f"{name} on ")]
    change = "" if shipped else f" --set method.name={name}"
    lines = [f"fedquilt run {recipe}{change}" for recipe in shipped or [PLAIN_RECIPE]]
    if source.constants.get("needs_complete_labels", False):
        rest = "It needs data in which every label is annotated, also those a recipe hides."
    else:
        lines.append(f"fedquilt run {OWN_DATA} --method {name}")
        rest = "The last line is for your own images: see [own data](../own_data.md)."
    return "\n".join(["```", *lines, "```", "", rest])


def _notes(name: str) -> list[str]:
    """What is written by hand, without its title; links are alike from both folders."""
    path = NOTES / f"{name}.txt"
    if not path.exists():
        return []
    return [path.read_text(encoding="utf-8").partition("\n\n")[2].rstrip()]


def _title(module_docstring: str) -> str:
    """The method's name as its paper spells it: what comes before its authors."""
    found = re.match(r"[^(:]+", module_docstring)
    assert found is not None, module_docstring
    return found[0].strip()


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
    write_bytes(FACTS, facts().encode())
