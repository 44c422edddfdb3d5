"""Parallel runs: one run fails, or the parent process is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from support.tiny_runs import tiny_settings

from fedquilt.recipes.recipe import recipe_from
from fedquilt.runs import experiment, parallel
from fedquilt.runs.parallel import run_all


def test_a_failed_run_is_reported_and_the_others_continue(tmp_path: Path):
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


ENDLESS = """
import sys
from pathlib import Path
from support.tiny_runs import tiny_settings
from fedquilt.runs.parallel import run_all
from fedquilt.recipes.recipe import recipe_from

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    endless = recipe_from(tiny_settings("fedavg") | {"rounds": 10**6})
    run_all({folder / "run": endless}, cache=folder, workers=1)
"""


def test_workers_end_when_their_parent_is_killed(tmp_path: Path):
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    paths = os.pathsep.join(path for path in sys.path if path)
    parent = psutil.Popen(
        [sys.executable, str(script), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": paths},
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 120
        while not (tmp_path / "run" / "history.jsonl").exists():
            assert parent.poll() is None, "it ended by itself"
            assert time.monotonic() < deadline, "it did not start"
            time.sleep(0.1)
        children = parent.children(recursive=True)
        assert children
    finally:
        parent.kill()
        parent.wait()
    _, alive = psutil.wait_procs(children, timeout=30)
    for process in alive:
        process.kill()
    assert not alive


@pytest.mark.parametrize(("device", "chosen"), [("cpu", []), ("cuda", []), ("cuda:1", [1])])
def test_a_process_computes_on_its_device(
    device: str, chosen: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """torch refuses to choose "cuda", which names no device of several."""
    indices: list[int] = []
    monkeypatch.setattr(torch._C, "_cuda_setDevice", indices.append, raising=False)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    ran: list[object] = []
    monkeypatch.setattr(experiment, "run", lambda *given, **options: ran.append(options["device"]))
    recipe = recipe_from(tiny_settings())
    before = torch.get_num_threads()
    parallel._run_one(recipe.to_dict(), tmp_path / "run", tmp_path / "cache", device)
    torch.set_num_threads(before)
    assert ran == [device]
    assert indices == chosen


@pytest.mark.parametrize(("devices", "limit"), [(("cpu",), None), (("cuda:0", "cuda:1"), 4)])
def test_processes_are_replaced_after_some_runs_on_a_device(
    devices: tuple[str, ...], limit: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What a run left in the memory of a device goes with its process."""
    limits: list[int | None] = []

    class Executor:
        def __init__(self, count: int, *, max_tasks_per_child: int | None, **others: object):
            limits.append(max_tasks_per_child)

    monkeypatch.setattr(parallel, "ProcessPoolExecutor", Executor)
    parallel.RunPool(cache=tmp_path, devices=devices)
    assert limits == [limit]
