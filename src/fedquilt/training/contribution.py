"""Contribution: how much of a part one image makes up, which decides how much noise hides it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from fedquilt.core.payload import Mean, Part


@dataclass(frozen=True)
class Contribution:
    """One image adds a vector of at most this norm to a class, and counts at most once there.

    It holds for the values of a Sum; of a Mean for values times weight, where the weight is the
    number of images.
    """

    norm: float = 1.0
    classes: Literal["annotated", "all"] = "annotated"  # that an image may count in
    first_round: int | None = None  # the part is empty before; None: sent in the survey only

    def sensitivity(self, part: Part, classes: int, images: int) -> float:
        """How far ``images`` images of one unit move the part, which has so many classes.

        Counts are scaled to the norm, so that values and counts get noise of like strength.
        """
        kinds = 2 if isinstance(part, Mean) else 1
        return images * self.norm * math.sqrt(classes * kinds)
