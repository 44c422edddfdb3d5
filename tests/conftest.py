"""What several test folders share."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch comes: as the Makefile has it
# A shell ignores Ctrl-C for what it starts in the background; tests that send it would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def shared_folder() -> Path:
    """The developers' shared data; tests that use it are marked ``shared``."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("FEDQUILT_SHARED", beside))
    if not folder.is_dir():
        pytest.skip("no shared data here: set FEDQUILT_SHARED to the folder that holds data/")
    return folder
