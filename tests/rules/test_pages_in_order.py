"""Every command and program of README and docs, in the order of the pages, in one folder."""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.markdown_pages import PAGES, all_blocks, blocks, page_id
from support.own_study import write_own_study
from typer.testing import CliRunner

from fedquilt.cli.main import app

FIRST_HOUR = (
    *("README.md", "docs/quickstart.md", "docs/reference/first_hour.md", "docs/own_data.md"),
)
GUIDES = (
    *("recipes", "python", "partly_trained", "sweeps", "tracking", "export", "validation"),
    *("reproduce", "report", "privacy"),
)
ALL = (*FIRST_HOUR, *(f"docs/guides/{name}.md" for name in GUIDES))

NOT_HERE = {  # what needs something that a test machine has not
    r"^(pip|make) ": "set-up; CI does both",
    r"^fedquilt (deploy|site|server) ": "several machines: make test-deploy",
    r"^python ": "the program above it on the page, which is run",
    r"--from FOLDER": "a data set as published",
    r"runs/mine/recipe\.json": "a process that has not run the script of the method",
    r"--device cuda": "a GPU",
    r"runs/a runs/b": "names that stand for the reader's own runs",
    r"--client north|scan\.png": "a study's model",
    r"vectors\.safetensors": "a text encoder: make test-text",
    r"--install-completion": "changes the shell of whoever runs the tests",
}
MINUTES = r"^fedquilt (demo|sweep|reproduce|attack|audit)|--seeds"  # left to `make test-slow`
EXIT_1 = (  # as the pages say
    r"--labels (broken|first/filename)\.csv|method\.warmup_rounds=20|--classes zeros"
    r"|method\.training\.lr=fast|--out first/folder\.csv"
)
FILES = {  # what a page tells to save, by the block that holds it
    "study.toml": ("docs/guides/recipes.md", 0),
    "sweep.toml": ("docs/guides/sweeps.md", 0),
    "card.toml": ("docs/guides/report.md", 0),
}


def steps(page: str) -> Iterator[tuple[str, str]]:
    """The programs and commands of a page, in order."""
    for language, code in all_blocks(page):
        if language == "python":
            yield "program", code
        elif language in ("", "console"):
            for line in code.replace("\\\n", " ").splitlines():
                command = line.strip().removeprefix("$ ").partition(" #")[0].strip()
                if line.startswith("$ ") or (language == "" and line.startswith("fedquilt ")):
                    yield "command", command


def reason_not_to_run(command: str) -> str | None:
    found = next((why for what, why in NOT_HERE.items() if re.search(what, command)), None)
    tracker = re.search(r"--track (\w+)", command)
    if found is None and tracker and find_spec(tracker[1]) is None:
        return f"the extra {tracker[1]}"
    return found


def shortened(command: str) -> list[str]:
    """The words of a command; of an option given twice the last counts."""
    words = shlex.split(command)[1:]
    if words[0] == "attack":
        words += ["--set", "rounds=1"]
    if words[0] in ("run", "reproduce"):
        if "--resume" not in words:
            words += ["--rounds", "1"]
        elif "--rounds" in words:
            words += ["--rounds", "2"]
    if words[:2] in (["run", "digits-fedmlp"], ["run", "digits-fedavg"]):
        words += ["--set", "data.train=100"]
    if "--data" in words and words[0] == "run" and "--size" not in words:
        words += ["--size", "16"]
    if words[0] == "reproduce":
        words += ["--seeds", "1"]
    if "--seeds" in words and words[0] in ("run", "demo"):
        words += ["--seeds", "2"]
    return words


def walk(pages: tuple[str, ...], skipped: str | None) -> list[str]:
    """Run every step; return what failed."""
    failures = []
    for page in pages:
        for number, (kind, text) in enumerate(steps(page)):
            if kind == "program":
                Path("program.py").write_text(text, encoding="utf-8")
                try:
                    runpy.run_path("program.py", run_name="__main__")
                except Exception as error:  # reported with all others
                    failures.append(f"{page}, program {number}: {type(error).__name__}: {error}")
            elif reason_not_to_run(text) is None and not (skipped and re.search(skipped, text)):
                result = CliRunner().invoke(app, shortened(text))
                if result.exit_code != (re.search(EXIT_1, text) is not None):
                    failures.append(f"{page}: {text}\n{result.output[-600:]}{result.exception}")
    return failures


@pytest.fixture
def one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_own_study(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in ("new.png", "film.png"):
        shutil.copy("images/003.png", name)
    for name, (page, place) in FILES.items():
        Path(name).write_text(blocks(page, "toml")[place], encoding="utf-8")
    Path("shared").mkdir()


@pytest.mark.usefixtures("one_folder")
def test_first_hour_runs_in_order():
    assert walk(FIRST_HOUR, MINUTES) == []


@pytest.mark.slow
@pytest.mark.usefixtures("one_folder")
def test_all_pages_run_in_order():
    assert walk(ALL, None) == []


def test_every_command_is_in_the_walk_or_has_a_reason():
    others = sorted({page_id(path) for path in PAGES} - set(ALL))
    for page in others:
        if page.startswith("docs/results/"):
            continue  # the commands of studies that took hours; their options are checked elsewhere
        commands = [text for kind, text in steps(page) if kind == "command"]
        assert [text for text in commands if not reason_not_to_run(text)] == [], page
