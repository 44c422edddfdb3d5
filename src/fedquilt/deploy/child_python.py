"""How the Python programs of a study are started: with no code or settings of another's choice.

A program that runs in a folder imports modules from it, and many libraries read settings from
their environment. Both would let an altered kit or a careless shell run code at a hospital.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

NEUTRAL_FOLDER = "/"  # where the programs run: only the system's owner can write there
OWNER_ONLY = 0o077  # the umask: states, decoded images and logs can be read by their owner only
SAFE_PATH = "PYTHONSAFEPATH"  # like -P, for the programs that FLARE starts from ours
# Everything else of the environment is left out, such as PYTHONPATH and LD_PRELOAD.
PASSED_ON = frozenset(
    [
        *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR"),
        *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LD_LIBRARY_PATH"),
        *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
        *("http_proxy", "https_proxy", "grpc_proxy", "no_proxy"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
    ]
)
PASSED_ON_PREFIXES = ("LC_", "FEDQUILT_")


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs an installed module; it imports nothing from its folder."""
    return [sys.executable, "-P", "-u", "-m", module, *arguments]


def clean_environment(**settings: str) -> Mapping[str, str]:
    """Return the part of this process's environment that a program of a study gets."""
    passed_on = {
        name: value
        for name, value in os.environ.items()
        if name in PASSED_ON or name.startswith(PASSED_ON_PREFIXES)
    }
    return passed_on | {SAFE_PATH: "1"} | settings
