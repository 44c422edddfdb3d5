"""The shell completes verbs, options, methods, recipes and trackers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["pre"], {"predict"}),
        (["run", "digits-fedm"], {"digits-fedmlp"}),
        (["run", "--method", "fednc"], {"fednca-ml"}),
        (["run", "--track", "ten"], {"tensorboard"}),
        (["run", "--seed"], {"--seed", "--seeds"}),
    ],
)
def test_words_are_completed(words: list[str], found: set[str]):
    asked = {
        "_FEDQUILT_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["fedquilt", *words]),
        "COMP_CWORD": str(len(words)),
    }
    program = "import sys; sys.argv[0] = 'fedquilt'; from fedquilt.cli.main import app; "
    program += "app(prog_name='fedquilt')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | asked,
        capture_output=True,
        text=True,
        check=False,
    )
    assert set(done.stdout.split()) == found
