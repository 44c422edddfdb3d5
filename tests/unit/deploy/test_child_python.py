"""Programs of a study import nothing from the folder or the environment they are started in."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fedquilt.deploy.child_python import NEUTRAL_FOLDER, clean_environment, python_command


def test_no_module_is_imported_from_the_folder_or_pythonpath(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "colorsys.py").write_text("print('planted')")  # a module of the standard library
    (tmp_path / "usercustomize.py").write_text("print('planted')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = subprocess.run(
        python_command("colorsys"),
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""


def test_a_program_started_by_the_program_is_protected_too(tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text("print('planted')")
    grandchild = "import subprocess, sys; subprocess.run([sys.executable, '-m', 'planted'])"
    done = subprocess.run(
        [*python_command("x")[:3], "-c", grandchild],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
    assert "No module named planted" in done.stderr


def test_the_environment_is_a_short_list(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "PYTHONSTARTUP", "LD_PRELOAD", "FL_LOG_LEVEL", "PASSWORD"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    found = clean_environment(MALLOC_ARENA_MAX="4")
    assert found["LC_ALL"] == "C.UTF-8"
    assert found["CUDA_VISIBLE_DEVICES"] == "1"
    assert found["MALLOC_ARENA_MAX"] == "4"
    assert found["PYTHONSAFEPATH"] == "1"
    assert (
        not {"PYTHONPATH", "PYTHONSTARTUP", "LD_PRELOAD", "FL_LOG_LEVEL", "PASSWORD"} & found.keys()
    )
    assert NEUTRAL_FOLDER == "/"
