"""The walk of docs/guides/deployment.md, command by command, as the page has them.

Only what belongs to one machine and to a short test differs: the server's address, and the number
of rounds. The second site has files of its own.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from support.markdown_pages import ROOT

from fedquilt.deploy.nvflare.demo_files import FEDQUILT, end_processes, free_port
from fedquilt.runs.finished_run import read_run

STAYS = {"server start": "listens on", "site start": "has joined"}  # until it says so
PATIENTS = 24  # two images each


def walk() -> str:
    page = (ROOT / "docs" / "guides" / "deployment.md").read_text(encoding="utf-8")
    return page.partition("## 1. ")[2].partition("## Decisions")[0]


def blocks(kind: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", walk(), re.MULTILINE | re.DOTALL)
    return [text for each, text in found if each == kind]


def commands() -> list[str]:
    return [line for block in blocks("") for line in block.splitlines()]


class Walk:
    """A folder in which the page's commands are run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.said: dict[str, str] = {}

    def do(self, line: str) -> None:
        program, *words = shlex.split(line, comments=True)
        assert program == "fedquilt"
        sign = STAYS.get(" ".join(words[:2]))
        if sign is None:
            done = subprocess.run(
                [*FEDQUILT, *words],
                cwd=self.folder,
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            self.said[line] = done.stdout + done.stderr
            assert done.returncode == 0, (line, self.said[line])
        else:
            self._begin(line, words, sign)

    def _begin(self, line: str, words: list[str], sign: str) -> None:
        path = self.folder / f"{len(self.processes)}.out"
        with path.open("wb") as out:
            self.processes[line] = subprocess.Popen(
                [*FEDQUILT, *words],
                cwd=self.folder,
                env=self.environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + 120
        while sign not in path.read_text(errors="replace"):
            assert self.processes[line].poll() is None, path.read_text(errors="replace")
            assert time.monotonic() < deadline, path.read_text(errors="replace")
            time.sleep(0.1)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Walk]:
    found = Walk(tmp_path)
    try:
        yield found
    finally:
        end_processes(list(found.processes.values()))


def write_files(folder: Path) -> None:
    """The page's files, with labels and images for both sites."""
    study, recipe, site, names = blocks("toml")
    for given, here in (
        ('host = "fl.example.org"', 'host = "localhost"'),
        ("port = 8002", f"port = {free_port()}"),
        ('bind = "10.0.0.5"', 'bind = "127.0.0.1"'),
    ):
        assert study.count(given) == 1
        study = study.replace(given, here)
    assert "rounds = 30\n" in recipe
    assert "warmup_rounds = 15\n" in recipe
    recipe = recipe.replace("rounds = 30\n", "rounds = 3\n").replace("= 15\n", "= 2\n")
    south = site.replace('"work"', '"work-south"').replace("labels.csv", "south.csv")
    south = re.sub(r"label_names.*\n", "", south)
    for name, text in (
        ("study.toml", study),
        ("recipe.toml", recipe),
        ("site.toml", site),
        ("names.toml", names),
        ("south.toml", south),
    ):
        (folder / name).write_text(text, encoding="utf-8")
    (table,) = blocks("csv")
    write_labels(folder, "labels.csv", table)
    write_labels(folder, "south.csv", "image,patient,age,Edema,Nodule\n")


def write_labels(folder: Path, name: str, table: str) -> None:
    """Go on with the table where it ends; a third of the second class is blank."""
    (folder / "images").mkdir(exist_ok=True)
    lines = table.splitlines()
    for number in range(len(lines), 2 * PATIENTS + 1):
        patient, bright = (number + 1) // 2, (number // 2) % 2
        second = "" if number % 3 == 0 else str(patient % 2)
        lines.append(f"{number:03d}.png,p{patient},61,{bright},{second}")
    for number in range(1, 2 * PATIENTS + 1):
        grey = Image.new("L", (64, 64), 40 + 150 * ((number // 2) % 2))
        grey.save(folder / "images" / f"{number:03d}.png")
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    grey.save(folder / "scan.png")


def test_every_command_of_the_walk(here: Walk) -> None:
    write_files(here.folder)
    lines = commands()
    starts = [line for line in lines if line.startswith("fedquilt site start")]
    assert len(starts) == 1
    for line in lines:
        here.do(line)
        if line in starts:
            here.do("fedquilt site start kits/south south.toml")
    said = {" ".join(line.split()[1:3]): text for line, text in here.said.items()}
    fingerprint = r"(?:[0-9a-f]{4} ){9}[0-9a-f]{4}"
    for each in ("request", "approve", "accept"):
        assert re.search(fingerprint, said[f"{'deploy' if each == 'approve' else 'site'} {each}"])
    for part in ("images to train on", "What would leave north", "prototypes", "peak memory"):
        assert part in said["site check"]
    assert [f"round {n} of 3" in said["deploy submit"] for n in (1, 2, 3)] == [True] * 3
    assert "round 3 of 3" in said["deploy status"]
    for name in ("Effusion", "Edema", "Nodule"):
        assert name in said["predict model"]
    run = read_run(here.folder / "runs" / "effusion")
    assert [sorted(record["cohort"]) for record in run.history] == [["north", "south"]] * 3
    assert run.annotators["Edema"] == ["north", "south"]
