"""``kill -9`` at random moments of a run: does every resumed run end with the same bits?

python -m benchmarks.correctness.kill_and_resume
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from support.kill_and_resume import RECIPE, kill_after, outcome, run_to_the_end

from benchmarks.harness.result_csv import write_results


def rounds_saved(out: Path) -> int:
    names = [path.stem for path in (out / "checkpoints").glob("round-*.json")]
    return max((int(name.removeprefix("round-")) for name in names), default=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="random seed of the moments")
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
    print(f"{sum(row['identical_bits'] is True for row in rows)} of {len(rows)} identical")
    write_results("correctness/kill_and_resume", rows)
    sys.exit(not all(row["identical_bits"] for row in rows))


if __name__ == "__main__":
    main()
