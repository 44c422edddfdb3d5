"""The scripts of docs/guides/python.md are complete, short, and run."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest
from support.markdown_pages import blocks

PAGE = "docs/guides/python.md"
MOST_LINES = 25
SCRIPTS = blocks(PAGE, "python")
RUN = re.compile(r'"runs/([\w-]+)"')


def name_of(script: str) -> str:
    return RUN.findall(script)[0]


def test_every_subject_has_a_script():
    assert [name_of(script) for script in SCRIPTS] == [
        *("arrays", "dataset", "files", "two-layers", "entropy", "watched"),
    ]


@pytest.mark.parametrize("script", SCRIPTS, ids=name_of)
def test_script_runs_and_is_short(
    script: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    assert len(script.splitlines()) <= MOST_LINES
    (study,) = blocks("docs/guides/recipes.md", "toml")
    (tmp_path / "study.toml").write_text(study, encoding="utf-8")
    (tmp_path / "my_script.py").write_text(script, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    runpy.run_path("my_script.py", run_name="__main__")
    printed = capsys.readouterr().out.splitlines()
    result = json.loads(Path(f"runs/{name_of(script)}/result.json").read_text(encoding="utf-8"))
    if name_of(script) == "files":
        assert "'image': 'greys/39.png'" in printed[-1]
    elif name_of(script) == "watched":
        assert [line.partition(":")[0] for line in printed[:-1]] == [
            "round 1",
            "round 2",
            "round 3",
        ]
        assert float(printed[-1]) == result["metrics"]["mean error"]
    else:
        assert float(printed[-1]) == result["metrics"]["macro_auc"]
