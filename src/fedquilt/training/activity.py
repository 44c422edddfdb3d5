"""Activity: counts of what a method's own machinery did, and the size of the run it suits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from torch import Tensor

from fedquilt.core.processes import ONE_PROCESS, Processes
from fedquilt.core.wording import counted

Activity: TypeAlias = Mapping[str, int]  # a count for each thing done, named in the plural
LABELS_FILLED_IN = "labels filled in"
DISTILLED = "missing labels distilled"


class HeldLabels(Protocol):
    """The annotation mask of a client's images."""

    @property
    def known(self) -> Tensor: ...  # (n, C) bool


@dataclass(frozen=True, kw_only=True)
class RunSize:
    """The rounds of a run, and each client's images and unannotated labels."""

    rounds: int
    images: tuple[int, ...]  # by client
    missing: tuple[tuple[int, ...], ...]  # by client and class: images that lack the label

    @classmethod
    def of(cls, clients: Iterable[HeldLabels], rounds: int) -> RunSize:
        masks = [client.known for client in clients]
        return cls(
            rounds=rounds,
            images=tuple(len(mask) for mask in masks),
            missing=tuple(tuple((~mask).sum(0).tolist()) for mask in masks),
        )

    @property
    def gaps(self) -> list[int]:
        """The images that lack a label, for every client and class where there are any."""
        return [count for counts in self.missing for count in counts if count]

    @property
    def missing_per_image(self) -> float:
        """The mean number of unannotated labels of an image."""
        return sum(self.gaps) / max(sum(self.images), 1)

    def sentence(self) -> str:
        least, most = min(self.images), max(self.images)
        images = counted(most, "image") if least == most else f"{least} to {most} images"
        clients = counted(len(self.images), "client")
        return f"{clients} with {images} and {counted(self.rounds, 'round')}"


def distilled(known: Tensor) -> Activity:
    """The activity of a method that distils another model wherever ``known`` is false."""
    return {DISTILLED: int((~known).sum())}


class ActivityTally:
    """Adds up the activity of a round's clients."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def record(self, activity: Activity) -> None:
        for what, count in activity.items():
            self._counts[what] += count  # a count of 0 keeps its name

    def take(self, processes: Processes = ONE_PROCESS) -> dict[str, int]:
        """Return the sums of all processes since the last call."""
        counts, self._counts = dict(self._counts), Counter()
        total = ActivityTally()
        for theirs in processes.share(counts):
            total.record(theirs)
        return dict(total._counts)


def most_in_a_round(rounds: Iterable[Activity]) -> dict[str, int]:
    """Return the largest count of a round for each thing done."""
    largest: dict[str, int] = {}
    for activity in rounds:
        for what, count in activity.items():
            largest[what] = max(largest.get(what, 0), count)
    return largest
