"""What is run, in which order: the rows that decide come first."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.studies.quilt.problems import ROWS

TUNING_SEED, SEEDS = 100, (1, 2, 3, 4, 5)
MAIN = "composites, 1 of 10"
THREE, SKEWED = "composites, 3 of 10", "composites, 1 of 10, Dirichlet"
SCENES, RADIOGRAPHS = "scenes, 1 of 5", "radiographs, 2 of 6"
DIGITS, SKEWED_DIGITS = "digits, 1 of 5", "digits, 1 of 5, Dirichlet"
IDEAS = [row for row in ROWS if row.startswith("QUILT,")]
CANDIDATES = [*IDEAS, "QUILT without guard"]
BEST = "the best candidate"
PAIR = ("FedAvg-PL", "QUILT")
CORE = (*PAIR, "full labels")
RELATIVES = ("CR", "CR, server lr 2", "FedMLP", "FedAvg-PL, server lr 2")
DECIDING = (*CORE, *RELATIVES)
PUBLISHED = ("FedLSM", "FedNoRo")
ABLATION = ("CR, annotators' rows", "CR, server lr 2, annotators' rows", "QUILT without guard")
REGULARISED = [row for row in ROWS if row.endswith(("view", "views", "MixUp")) and row not in IDEAS]
SURVIVORS = ("QUILT, both views", BEST)
CARRIES_OVER = {  # rows that share the rate of another
    "CR, annotators' rows": "CR",
    "CR, server lr 2, annotators' rows": "CR, server lr 2",
    **dict.fromkeys(CANDIDATES, "QUILT"),
    **{row: row.partition(",")[0] for row in REGULARISED},
}


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
    Part("tuning", MAIN, ("QUILT", "FedAvg-PL", "full labels"), 40),
    Part("tuning", MAIN, ("CR, server lr 2", "CR", *PUBLISHED), 40),
    Part("screening", MAIN, (*CORE, *CANDIDATES, *REGULARISED)),
    Part("tuning", MAIN, ("FedAvg-PL, server lr 2", "FedMLP"), 40),
    Part("final", MAIN, (*PUBLISHED, "QUILT, features"), 40),
    Part("final", MAIN, CORE),
    Part("final", MAIN, (*SURVIVORS, "FedAvg-PL, both views")),
    Part("final", RADIOGRAPHS, SURVIVORS),
    Part("final", SCENES, SURVIVORS),
    Part("tuning", RADIOGRAPHS, PUBLISHED),
    Part("tuning", SCENES, PUBLISHED),
    Part("final", RADIOGRAPHS, PUBLISHED),
    Part("final", SCENES, PUBLISHED),
    Part("final", SKEWED, (*PAIR, *SURVIVORS)),
    Part("final", THREE, (*PAIR, *SURVIVORS)),
    Part("final", MAIN, (*RELATIVES, *ABLATION), 40),
    Part("final", MAIN, ("full labels, both views",)),
    Part("final", SKEWED, ("full labels",)),
    Part("final", THREE, ("full labels",)),
    Part("final", SCENES, (*RELATIVES, *ABLATION)),
    Part("final", THREE, (*PUBLISHED, *RELATIVES)),
    Part("final", SKEWED, (*PUBLISHED, *RELATIVES)),
    Part("tuning", SCENES, (*CORE, *RELATIVES)),
    Part("tuning", RADIOGRAPHS, (*CORE, *RELATIVES)),
    Part("final", SCENES, CORE),
    Part("final", RADIOGRAPHS, (*CORE, *RELATIVES, *ABLATION)),
)
ON_DIGITS: tuple[Part, ...] = (
    Part("tuning", DIGITS, (*DECIDING, *PUBLISHED), 20),
    Part("final", DIGITS, CORE, 80),
    Part("final", DIGITS, (*PUBLISHED, *RELATIVES)),
    Part("final", SKEWED_DIGITS, (*CORE, *PUBLISHED)),
    Part("final", DIGITS, ABLATION),
    Part("final", SKEWED_DIGITS, RELATIVES),
    Part("final", SKEWED_DIGITS, ABLATION),
    Part("final", DIGITS, ("QUILT, both views", "FedAvg-PL, both views")),
    Part("final", SKEWED_DIGITS, ("QUILT, both views", "FedAvg-PL, both views")),
)
