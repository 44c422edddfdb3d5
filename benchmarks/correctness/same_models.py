"""Does this code train the models of earlier commits to the bit, and go on with their runs?

python -m benchmarks.correctness.same_models COMMIT...

Every method, variant and some further settings are trained for three rounds on digits by this code
and by each commit, on the CPU. Runs that the commit left killed are resumed by this code; those
that it finished are evaluated, used to predict and compared with ``fedquilt compare`` by both.
Recipes must have the same hashes. For changes that must not change any result. The result file
keeps its rows about other commits.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness.result_csv import Row, read_results, write_results

ROOT = Path(__file__).parents[2]
RESULT = "correctness/same_models"
CHILD = ROOT / "benchmarks" / "harness" / "train_every_method.py"


def done_with(source: Path, mode: str, folder: Path) -> dict[str, Row]:
    """What ``train_every_method`` prints in this mode, by run, with the package in ``source``."""
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    lines = subprocess.run(
        [sys.executable, str(CHILD), mode, str(folder)],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.splitlines()
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    return {row["run"]: row for row in rows}


def includes(now: Any, before: Any) -> bool:
    """Whether all that was said before is still said; more may be said by now."""
    if isinstance(before, dict):
        return all(key in now and includes(now[key], before[key]) for key in before)
    return bool(now == before)


def compared(commit: str, folder: Path, after: dict[str, Row]) -> list[Row]:
    """What became of the runs of an earlier commit; ``after`` is what this code trains."""
    worktree, old = folder / "tree", folder / "old"
    old.mkdir(parents=True)
    subprocess.run(["git", "worktree", "add", "-q", worktree, commit], cwd=ROOT, check=True)
    try:
        before = done_with(worktree / "src", "train", old)
        opened_before = done_with(worktree / "src", "open", old)
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", worktree], cwd=ROOT, check=True)
    opened = done_with(ROOT / "src", "open", old)
    resumed = done_with(ROOT / "src", "resume", old)
    return [
        {
            "run": run,
            "earlier_commit": commit,
            "same_recipe_hash": found["recipe"] == after[run]["recipe"],
            "same_models": found["models"] == after[run]["models"],
            "resumed_to_same_models": found["models"] == resumed[run]["models"],
            "same_when_opened": includes(opened[run], opened_before[run]),
            "models_sha256": found["models"],
        }
        for run, found in before.items()
    ]


def short_name(commit: str) -> str:
    named = ["git", "rev-parse", "--short", commit]
    return subprocess.run(
        named, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def agrees(row: Row) -> bool:
    return all(value for key, value in row.items() if key.startswith(("same", "resumed")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commits", nargs="+", help="earlier commits, such as HEAD~1")
    commits = [short_name(commit) for commit in parser.parse_args().commits]
    differ = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "new").mkdir()
        after = done_with(ROOT / "src", "train", folder / "new")
        for commit in commits:
            rows = compared(commit, folder / commit, after)
            same = [row for row in rows if agrees(row)]
            differ += len(rows) - len(same)
            print(f"{len(same)} of {len(rows)} runs agree with {commit}", flush=True)
            others = [row for row in read_results(RESULT) if row["earlier_commit"] != commit]
            write_results(RESULT, rows, earlier=others)
    sys.exit(bool(differ))


if __name__ == "__main__":
    main()
