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

from fedquilt.engines.options import EngineOptions
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
from fedquilt.engines.options import EngineOptions
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
    shares: list[float] = []
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", shares.append)
    ran: list[object] = []
    monkeypatch.setattr(experiment, "run", lambda *given, **options: ran.append(options["device"]))
    recipe = recipe_from(tiny_settings())
    before = torch.get_num_threads()
    places = (tmp_path / "run", tmp_path / "cache")
    parallel._run_one(recipe.to_dict(), *places, device, EngineOptions(), 0.3)
    torch.set_num_threads(before)
    assert ran == [device]
    assert indices == chosen
    assert shares == ([] if device == "cpu" else [0.3])


class NoExecutor:
    """Keeps how it was made and what was submitted."""

    made: dict[str, object]
    submitted: list[tuple[object, ...]]

    def __init__(self, count: int, **options: object):
        type(self).made, type(self).submitted = options, []

    def submit(self, *given: object) -> object:
        self.submitted.append(given)
        return object()


@pytest.mark.parametrize(
    ("devices", "workers", "runs_of_a_process", "shares"),
    [
        (("cpu",), 2, None, [0.45, 0.45]),
        (("cuda:0", "cuda:1"), 2, 4, [1.0, 1.0]),
        (("cuda:0", "cuda:1"), 3, 4, [0.45, 1.0, 0.45]),
    ],
)
def test_processes_share_the_memory_of_a_device(
    devices: tuple[str, ...],
    workers: int,
    runs_of_a_process: int | None,
    shares: list[float],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """What a run left there goes with its process, after some runs."""
    monkeypatch.setattr(parallel, "ProcessPoolExecutor", NoExecutor)
    engine = EngineOptions(slots=2)
    pool = parallel.RunPool(cache=tmp_path, devices=devices, workers=workers, engine=engine)
    for number in range(workers):
        pool.submit(recipe_from(tiny_settings()), tmp_path / str(number))
    assert NoExecutor.made["max_tasks_per_child"] == runs_of_a_process
    assert [given[-2] for given in NoExecutor.submitted] == [engine] * workers
    assert [given[-1] for given in NoExecutor.submitted] == shares


def test_numpy_has_one_thread_in_each_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its libraries would take as many as there are cores, in every process."""
    for name in parallel.ONE_THREAD:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")  # the user's own choice is kept
    monkeypatch.setattr(parallel, "ProcessPoolExecutor", NoExecutor)
    parallel.RunPool(cache=tmp_path)
    found = [os.environ[name] for name in parallel.ONE_THREAD]
    monkeypatch.undo()
    assert found == ["3", "1", "1"]
