"""RunFolder: one process at a time, and one recipe per folder."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE

import pytest
import torch

from fedquilt.core.errors import UserError
from fedquilt.data.allocation import Allocation, Holding
from fedquilt.recipes.recipe import Recipe, recipe_from
from fedquilt.runs.run_folder import RunFolder

RUNNING = """
import sys
from pathlib import Path
from fedquilt.runs.run_folder import RunFolder
folder = RunFolder(Path(sys.argv[1]))
with folder.begin(folder.read_recipe(), resume=True):
    print("claimed", flush=True)
    sys.stdin.read()
"""


def recipe() -> Recipe:
    return recipe_from(
        {
            "data": {"name": "digits-mosaic"},
            "partition": {"name": "iid", "clients": 3},
            "annotation": {"name": "missing", "missing": 2},
            "method": {"name": "fedmlp"},
        }
    )


def allocation(image: int = 0) -> Allocation:
    return Allocation((Holding("a", torch.tensor([image]), torch.ones(1, 1).bool()),), ("x",))


def started(path: Path) -> RunFolder:
    """Return the folder of a run that was started and stopped."""
    folder = RunFolder(path)
    with folder.begin(recipe(), resume=False):
        folder.keep(recipe(), allocation())
    return folder


def test_a_new_folder_holds_the_resolved_recipe(tmp_path):
    folder = started(tmp_path / "deep" / "run")
    assert folder.read_recipe() == recipe()
    assert json.loads(folder.recipe.read_text())["method"]["warmup_rounds"] == 50


def test_a_run_is_not_overwritten(tmp_path):
    folder = started(tmp_path)
    with pytest.raises(UserError, match=r"already holds a run; continue it with --resume.*--out"):
        folder.begin(recipe(), resume=False)


def test_the_same_recipe_may_resume(tmp_path):
    folder = started(tmp_path)
    folder.begin(recipe(), resume=True).close()


def test_another_recipe_is_refused_and_the_differences_are_named(tmp_path):
    folder = started(tmp_path)
    before = folder.recipe.read_bytes()
    method = replace(recipe().method, training=replace(recipe().method.training, lr=0.5))
    changed = replace(recipe(), method=method, seed=3)
    with pytest.raises(UserError, match=r"differs in method\.training\.lr, seed\. Resume with"):
        folder.begin(changed, resume=True)
    assert folder.recipe.read_bytes() == before


def test_another_method_is_refused(tmp_path):
    folder = started(tmp_path)
    other = recipe_from(recipe().to_dict() | {"method": {"name": "fedavg"}})
    with pytest.raises(UserError, match=r"differs in .*method\.name"):
        folder.begin(other, resume=True)


def test_a_running_process_locks_the_folder_and_a_killed_one_does_not(tmp_path):
    folder = started(tmp_path)
    command = [sys.executable, "-c", RUNNING, str(tmp_path)]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as other:
        assert other.stdout.readline() == "claimed\n"
        with pytest.raises(UserError, match=r"another process is running in.*another --out"):
            folder.begin(recipe(), resume=True)
        other.kill()
    folder.begin(recipe(), resume=True).close()


def test_a_refused_process_does_not_touch_the_recipe(tmp_path):
    folder = started(tmp_path)
    with folder.begin(recipe(), resume=True):
        before = folder.recipe.stat().st_mtime_ns
        with pytest.raises(UserError, match=r"wait for it, or give another --out"):
            folder.begin(recipe(), resume=True)
        assert folder.recipe.stat().st_mtime_ns == before


def test_a_run_without_data_does_not_occupy_the_folder(tmp_path):
    folder = RunFolder(tmp_path)
    folder.begin(recipe(), resume=False).close()  # e.g. because of a wrong path to the data
    folder.begin(replace(recipe(), seed=3), resume=False).close()


def test_other_data_are_refused(tmp_path):
    folder = started(tmp_path)
    with pytest.raises(UserError, match=r"data have changed.*restore the data"):
        folder.keep(recipe(), allocation(image=1))
    folder.keep(recipe(), allocation())


@pytest.mark.parametrize("content", [b"{", b"", b"\xff\xfe{}"])
def test_a_damaged_recipe_is_a_user_error(tmp_path, content):
    folder = RunFolder(tmp_path)
    folder.recipe.write_bytes(content)
    with pytest.raises(UserError, match=r"recipe\.json is damaged"):
        folder.read_recipe()


def test_a_folder_without_a_run(tmp_path):
    with pytest.raises(UserError, match=r"holds no recipe\.json: it is not a run folder"):
        RunFolder(tmp_path).read_recipe()
    folder = RunFolder(tmp_path)
    with pytest.raises(UserError, match=r"holds no result\.json.*the run has not written it yet"):
        folder.read_json(folder.result)


def test_a_file_in_place_of_the_folder_is_a_user_error(tmp_path):
    (tmp_path / "run").touch()
    with pytest.raises(UserError, match="run"):
        RunFolder(tmp_path / "run").begin(recipe(), resume=False)
