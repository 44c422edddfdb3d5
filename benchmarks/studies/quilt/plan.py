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
DECIDING = (
    "FedAvg-PL",
    "QUILT",
    "full labels",
    "CR",
    "CR, server lr 2",
    "FedMLP",
    "FedAvg-PL, server lr 2",
)
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


# A seed's rows come before the next seed's, so that what was cut off lacks seeds, not rows.
PLAN: tuple[Part, ...] = (
    Part("tuning", MAIN, DECIDING, 40),
    Part("tuning", SCENES, DECIDING),
    Part("tuning", RADIOGRAPHS, DECIDING),
    Part("final", MAIN, DECIDING, seeds=SEEDS[:2]),
    Part("final", SCENES, DECIDING),
    Part("final", RADIOGRAPHS, DECIDING),
    Part("final", MAIN, DECIDING, seeds=SEEDS[2:]),
    Part("screening", MAIN, ("QUILT", *CANDIDATES)),
    Part("final", THREE, ("FedAvg-PL", "QUILT", "full labels", "FedMLP")),
    Part("final", MAIN, (BEST,)),
    Part("final", SKEWED, ("FedAvg-PL", "QUILT", "full labels", "FedMLP")),
    Part("final", MAIN, ABLATION),
    Part("final", SCENES, ("CR, annotators' rows", "QUILT without guard", BEST)),
    Part("tuning", MAIN, PUBLISHED, 40),
    Part("final", MAIN, PUBLISHED),
    Part("final", RADIOGRAPHS, ("CR, annotators' rows", "QUILT without guard", BEST)),
    Part("final", THREE, ("CR", "CR, server lr 2", BEST)),
)
ON_DIGITS: tuple[Part, ...] = (
    Part("tuning", DIGITS, (*DECIDING, *PUBLISHED)),
    Part("final", DIGITS, DECIDING),
    Part("final", SKEWED_DIGITS, DECIDING),
    Part("final", DIGITS, (*PUBLISHED, *ABLATION)),
    Part("final", DIGITS, DECIDING, 80),
    Part("screening", DIGITS, ("QUILT", *CANDIDATES)),
    Part("final", SKEWED_DIGITS, (*PUBLISHED, *ABLATION)),
    Part("final", DIGITS, (BEST,)),
)
