"""Several runs in processes: one that fails does not stop the others, if asked so."""

from __future__ import annotations

from pathlib import Path

from tiny_runs import tiny_settings

from fedquilt.parallel_runs import run_all
from fedquilt.recipe import recipe_from


def test_a_failed_run_is_told_and_the_others_go_on(tmp_path: Path):
    (tmp_path / "bad").write_text("a file where a folder should be")
    recipe = recipe_from(tiny_settings("fedavg"))
    failed: dict[str, str] = {}
    done: list[tuple[int, int]] = []
    run_all(
        {tmp_path / "bad": recipe, tmp_path / "good": recipe},
        cache=tmp_path,
        workers=1,
        progress=lambda *rounds: done.append(rounds),
        failure=lambda folder, error: failed.update({folder.name: str(error)}),
    )
    assert list(failed) == ["bad"]
    assert "cannot be a run folder" in failed["bad"]
    assert (tmp_path / "good" / "result.json").exists()
    assert done[-1] == (2, 4)
