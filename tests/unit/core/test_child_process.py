"""A worker process ends when its parent is killed, however it was started."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

CHILD = """
import time
from fedquilt.core.child_process import end_with_parent

def work(path):
    end_with_parent()
    open(path, "w").close()
    time.sleep(60)
"""
SUBPROCESS = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import sys, child; child.work(sys.argv[1])", sys.argv[1]])
time.sleep(60)
"""
MULTIPROCESSING = """
import multiprocessing, sys
import child

if __name__ == "__main__":
    multiprocessing.get_context("spawn").Process(target=child.work, args=sys.argv[1:]).start()
"""


@pytest.mark.parametrize("parent", [SUBPROCESS, MULTIPROCESSING])
def test_it_ends_when_its_parent_is_killed(parent: str, tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(CHILD)
    (tmp_path / "parent.py").write_text(parent)
    started = tmp_path / "started"
    process = subprocess.Popen(
        [sys.executable, "parent.py", str(started)], cwd=tmp_path, stdout=subprocess.PIPE
    )
    while not started.exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    # The child inherited the pipe, which closes only when the child has ended too.
    process.communicate(timeout=20)
