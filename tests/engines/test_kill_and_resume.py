"""A run that is killed and resumed ends with the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.kill_and_resume import RECIPE, kill_after, outcome, run_to_the_end


@pytest.mark.slow
def test_killed_three_times_and_resumed(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE)
    duration = run_to_the_end(recipe, tmp_path / "undisturbed")
    out = tmp_path / "killed"
    for share in (0.5, 0.6, 0.8):  # the first half of a short run is spent on imports
        kill_after(recipe, out, share * duration)
    run_to_the_end(recipe, out)
    assert outcome(out) == outcome(tmp_path / "undisturbed")
