"""A run of several processes: one of them is killed, another number goes on, to the same bits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.kill_and_resume import RECIPE, outcome

from fedquilt.core.errors import UserError
from fedquilt.core.processes import OneProcess
from fedquilt.recipes.recipe import recipe_from
from fedquilt.runs.experiment import run

# Sums of integers: the model does not depend on how many processes there are.
SHORT = RECIPE.replace("rounds = 30", 'rounds = 4\nsummation = "ring"').replace("= 10", "= 1")
SECONDS = 120


def _run(recipe: Path, out: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "fedquilt", "run", str(recipe), "--out", str(out), *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def _children(process: int) -> list[int]:
    found = subprocess.run(["ps", "--ppid", str(process), "-o", "pid="], capture_output=True)
    return [int(line) for line in found.stdout.split()]


def test_a_killed_process_ends_the_run_and_another_number_goes_on(tmp_path: Path) -> None:
    recipe, cut, whole = tmp_path / "recipe.toml", tmp_path / "cut", tmp_path / "whole"
    recipe.write_text(SHORT)
    first = _run(recipe, cut, "--processes", "2")
    end = time.monotonic() + SECONDS
    while not any((cut / "checkpoints").glob("round-00000*.json")):
        assert first.poll() is None, first.communicate()[1]
        assert time.monotonic() < end
        time.sleep(0.02)
    for child in _children(first.pid):
        os.kill(child, signal.SIGKILL)
    said = first.communicate(timeout=SECONDS)[1]
    assert first.returncode == 1
    assert "another process of this run ended without a word" in said

    for out, options in ((cut, ["--resume"]), (whole, [])):
        process = _run(recipe, out, *options)
        said = process.communicate(timeout=SECONDS)[1]
        assert process.returncode == 0, said
    assert outcome(cut) == outcome(whole)


class Six(OneProcess):
    count = 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "6 processes share 5 clients: each needs at least one; use fewer processes"),
        ({"robust": {"rule": "krum"}}, "compares all updates of a round in one process"),
    ],
)
def test_what_cannot_be_shared_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    recipe = recipe_from(tomllib.loads(RECIPE) | changes)
    with pytest.raises(UserError, match=message):
        run(recipe, tmp_path / "out", cache=tmp_path / "cache", processes=Six())
    assert not (tmp_path / "out").exists()
