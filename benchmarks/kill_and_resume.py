"""``kill -9`` at random moments of a run: does every resumed run end with the same bits?"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.recording import write_results

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
    began = time.perf_counter()
    subprocess.run(command(recipe, out), check=True, capture_output=True)
    return time.perf_counter() - began


def kill_after(recipe: Path, out: Path, seconds: float) -> bool:
    """Whether the run was still alive to be killed."""
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
    """What must be the same to the bit: the model, every number of the history, the metrics."""
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


def rounds_saved(out: Path) -> int:
    names = [path.stem for path in (out / "checkpoints").glob("round-*.json")]
    return max((int(name.removeprefix("round-")) for name in names), default=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    options = parser.parse_args()
    moments = random.Random(options.seed)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recipe = folder / "recipe.toml"
        recipe.write_text(RECIPE)
        duration = run_to_the_end(recipe, folder / "undisturbed")
        expected = outcome(folder / "undisturbed")
        for number in range(options.kills):
            out = folder / f"killed-{number}"
            moment = moments.uniform(0.0, duration)
            was_killed = kill_after(recipe, out, moment)
            saved = rounds_saved(out) if was_killed else ""
            run_to_the_end(recipe, out)
            identical = outcome(out) == expected
            rows.append(
                {
                    "kill": number,
                    "moment_seconds": round(moment, 2),
                    "undisturbed_seconds": round(duration, 2),
                    "was_alive": was_killed,
                    "rounds_saved_when_killed": saved,
                    "identical_bits": identical,
                }
            )
            print(f"killed after {moment:5.2f} s, {saved} rounds saved: identical = {identical}")
    print(f"{sum(row['identical_bits'] for row in rows)} of {len(rows)} identical")
    write_results("kill_and_resume", rows)
    sys.exit(not all(row["identical_bits"] for row in rows))


if __name__ == "__main__":
    main()
