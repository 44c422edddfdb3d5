"""Kill a run of the command line at a given moment, resume it, and read what must not differ."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RECIPE = """
rounds = 30
cohort_size = 4
checkpoint_every = 1
data = {name = "digits-mosaic", train = 300, test = 200}
partition = {name = "iid", clients = 5}
annotation = {name = "missing", missing = 4, one_to_one = true}
views = {weak = "weak"}

[method]
name = "fedmlp"
warmup_rounds = 10
negative_share = 0.05
positive_share = 0.05
training = {lr = 3e-3, keep_optimizer = true}
"""
TIMES = ("seconds",)


def command(recipe: Path, out: Path) -> list[str]:
    program = "from fedquilt.cli.main import main; main()"
    return [sys.executable, "-c", program, "run", str(recipe), "--out", str(out), "--resume"]


def run_to_the_end(recipe: Path, out: Path) -> float:
    """Start or resume the run; return its seconds."""
    began = time.perf_counter()
    subprocess.run(command(recipe, out), check=True, capture_output=True)
    return time.perf_counter() - began


def kill_after(recipe: Path, out: Path, seconds: float) -> bool:
    """Start or resume the run and kill it; return False if it ended before."""
    process = subprocess.Popen(
        command(recipe, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        return True
    return False


def outcome(out: Path) -> dict[str, Any]:
    """Return what must be the same to the bit: the model, the history but its times, metrics."""
    lines = (out / "history.jsonl").read_text().splitlines()
    history = [
        {key: value for key, value in json.loads(line).items() if key not in TIMES}
        for line in lines
    ]
    result = json.loads((out / "result.json").read_text())
    return {
        "model": hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest(),
        "history": history,
        "metrics": result["metrics"],
        "reports": result["reports"],
        "pseudo_labels": result["pseudo_labels"],
    }
