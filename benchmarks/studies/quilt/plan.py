"""What is run, in which order: the rows that decide come first."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.studies.quilt.problems import ROWS

TUNING_SEED, SEEDS = 100, (1, 2, 3, 4, 5)
MAIN = "composites, 1 of 10"
THREE, SKEWED = "composites, 3 of 10", "composites, 1 of 10, Dirichlet"
SCENES, RADIOGRAPHS = "scenes, 1 of 5", "radiographs, 2 of 6"
DIGITS, SKEWED_DIGITS = "digits, 1 of 5", "digits, 1 of 5, Dirichlet"
CARRIES_OVER = {  # rows that share the rate of another
    "QUILT without guard": "QUILT",
    "QUILT, momentum 0.5": "QUILT",
    "CR, annotators' rows": "CR",
    "CR, server lr 2, annotators' rows": "CR, server lr 2",
}
IDEAS = [row for row in ROWS if row.startswith("QUILT,")]
CANDIDATES = [*IDEAS, "QUILT without guard"]
BEST = "the best candidate"
PAIR = ("FedAvg-PL", "QUILT")
CORE = (*PAIR, "full labels")
RELATIVES = ("CR", "CR, server lr 2", "FedMLP", "FedAvg-PL, server lr 2")
DECIDING = (*CORE, *RELATIVES)
PUBLISHED = ("FedLSM", "FedNoRo")
ABLATION = ("CR, annotators' rows", "CR, server lr 2, annotators' rows", "QUILT without guard")


@dataclass(frozen=True)
class Part:
    """Rows on a problem: rates and ideas on the tuning seed, or all seeds of the final runs."""

    phase: str  # tuning, screening or final
    problem: str
    rows: tuple[str, ...]
    rounds: int | None = None  # None: the problem's
    seeds: tuple[int, ...] = SEEDS  # of final runs


# A seed's rows come before the next seed's, so that what was cut off lacks seeds, not rows. Runs of
# 80 rounds are those of 40 as well, except for methods whose schedules follow the rounds.
PLAN: tuple[Part, ...] = (
    Part("tuning", MAIN, CORE, 24),
    Part("tuning", SCENES, CORE),
    Part("tuning", RADIOGRAPHS, CORE),
    Part("final", MAIN, CORE, seeds=SEEDS[:2]),
    Part("final", SCENES, CORE),
    Part("final", RADIOGRAPHS, CORE),
    Part("tuning", DIGITS, CORE, 20),
    Part("final", DIGITS, CORE, 80),
    Part("final", SKEWED_DIGITS, CORE),
    Part("final", MAIN, CORE, seeds=SEEDS[2:]),
    Part("final", SKEWED, PAIR),
    Part("final", THREE, PAIR),
    Part("tuning", SCENES, RELATIVES),
    Part("tuning", RADIOGRAPHS, RELATIVES),
    Part("final", SCENES, (*RELATIVES, *ABLATION)),
    Part("final", RADIOGRAPHS, (*RELATIVES, *ABLATION)),
    Part("tuning", MAIN, RELATIVES, 24),
    Part("final", MAIN, (*RELATIVES, *ABLATION), 40),
    Part("tuning", DIGITS, RELATIVES, 20),
    Part("final", DIGITS, (*RELATIVES, *ABLATION)),
    Part("screening", MAIN, ("QUILT", *CANDIDATES)),
    Part("final", MAIN, (BEST,)),
    Part("final", THREE, ("full labels",)),
    Part("final", SKEWED, ("full labels",)),
    Part("tuning", MAIN, PUBLISHED, 24),
    Part("final", MAIN, (*PUBLISHED, "QUILT, features"), 40),
    Part("final", THREE, ("FedMLP", BEST)),
    Part("final", SKEWED, ("FedMLP", BEST)),
    Part("final", SCENES, (BEST,)),
    Part("final", RADIOGRAPHS, (BEST,)),
    Part("final", MAIN, (*RELATIVES, *PUBLISHED)),
    Part("tuning", SCENES, PUBLISHED),
    Part("final", SCENES, PUBLISHED),
    Part("tuning", RADIOGRAPHS, PUBLISHED),
    Part("final", RADIOGRAPHS, PUBLISHED),
    Part("tuning", DIGITS, PUBLISHED, 20),
    Part("final", DIGITS, (*PUBLISHED, BEST)),
    Part("final", SKEWED_DIGITS, (*RELATIVES, *PUBLISHED)),
    Part("final", DIGITS, RELATIVES, 80),
)
ON_DIGITS: tuple[Part, ...] = (
    Part("tuning", DIGITS, DECIDING, 20),
    Part("final", DIGITS, CORE, 80),
    Part("final", DIGITS, RELATIVES),
    Part("final", SKEWED_DIGITS, CORE),
    Part("final", DIGITS, ABLATION),
    Part("final", SKEWED_DIGITS, RELATIVES),
    Part("screening", DIGITS, ("QUILT", *CANDIDATES), 20),
    Part("final", DIGITS, (BEST,)),
    Part("tuning", DIGITS, PUBLISHED, 20),
    Part("final", DIGITS, PUBLISHED),
    Part("final", SKEWED_DIGITS, ABLATION),
    Part("final", DIGITS, RELATIVES, 80),
    Part("final", SKEWED_DIGITS, PUBLISHED),
)
