"""end_with_parent(): keeps a worker process from outliving the process that started it."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time

POLL_SECONDS = 0.5


def end_with_parent() -> None:
    """Exit this process as soon as its parent has ended, even if the parent was killed."""
    threading.Thread(target=_exit_after_parent, args=(os.getppid(),), daemon=True).start()


def _exit_after_parent(parent_id: int) -> None:
    parent = multiprocessing.parent_process()  # None unless multiprocessing started this process
    if parent is not None:
        parent.join()
    else:
        while os.getppid() == parent_id:  # an orphan is adopted by another process
            time.sleep(POLL_SECONDS)
    os._exit(1)  # without cleaning up: a run or study is resumed from its last saved round
