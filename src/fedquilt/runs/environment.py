"""Versions and kind of hardware for a run's result file, without machine names."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

import torch

from fedquilt.core.version import VERSION

PACKAGES = ("torch", "torchvision", "timm", "numpy", "scikit-learn")


def environment(device: str) -> dict[str, str | int]:
    return {
        "fedquilt": VERSION,
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else device,
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
