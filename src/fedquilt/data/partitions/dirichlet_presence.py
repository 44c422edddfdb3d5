"""FedNCA-ML's skewed mode: a client sees only some classes, in Dirichlet proportions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from fedquilt.core.errors import UserError
from fedquilt.core.seeding import seed_for
from fedquilt.data.annotations.rules import deal_evenly
from fedquilt.data.dataset import LabelView, annotated_positives
from fedquilt.data.partitions.partition import (
    DROPPED,
    Assignment,
    Partition,
    numbered_clients,
    refuse_impossible_count,
    refuse_non_positive,
)
from fedquilt.data.partitions.strata import (
    Indices,
    draw_clients,
    first_accepted,
    label_patterns,
    rarest_positive,
    restricted,
)

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class DirichletPresence(Partition):
    """Each client is dealt a set of classes; an image goes to a client that has all its positives.

    The paper does not say what happens to an image that fits no client, and its generator is not
    published. ``drop`` leaves the image out; ``mask`` gives it to the client that has most of its
    positives, the others un-annotated; ``relax`` gives it to that client with all its labels.
    Images without positives are spread evenly.
    """

    clients: int
    concentration: float  # beta: small is skewed, large is even
    presence_share: float  # gamma: at most this share of the classes is present at a client
    uncovered: Literal["drop", "mask", "relax"] = "drop"  # images that fit no client
    choose_by: Literal["all-positives", "rarest-positive"] = "all-positives"  # whose shares decide
    dealings: int = 200  # class sets to try; the ones that cover most images are kept
    smallest_client: int = 10  # draw again until every client has this many images, one positive
    attempts: int = 100

    def class_budget(self, classes: int) -> int:
        """How many classes a client is dealt: the share of all, a half rounded up."""
        exact = Decimal(str(self.presence_share)) * classes  # 0.71 * 7 classes gives 5
        return int(exact.quantize(Decimal(1), rounding=ROUND_HALF_UP))

    def assign(self, data: LabelView, seed: int) -> Assignment:
        positives = annotated_positives(data)
        self._refuse_impossible(len(positives))
        generator = np.random.default_rng(seed_for(seed, "partition", "dirichlet-presence"))
        has_positive = np.asarray(positives.any(axis=1))
        patterns, pattern_of = label_patterns(positives[has_positive])

        def draw() -> tuple[Indices, Mask]:
            sets = self._deal(patterns, pattern_of, generator)
            client_of = np.empty(len(positives), dtype=np.int64)
            client_of[has_positive] = self._draw_clients(patterns, pattern_of, sets, generator)
            without = generator.permutation(np.flatnonzero(~has_positive))
            client_of[without] = np.arange(len(without)) % self.clients
            return client_of, sets

        (client_of, sets), draws = first_accepted(
            draw,
            lambda drawn: self._is_filled(drawn[0], has_positive),
            attempts=self.attempts,
            wish=f"every client {self.smallest_client} images and a positive one",
        )
        is_covered = np.asarray(_fits(patterns, sets).any(axis=1))
        notes = {
            "draws": draws,
            "uncovered_images": int((~is_covered[pattern_of]).sum()),
            "classes_dealt": [[data.classes[c] for c in np.flatnonzero(row)] for row in sets],
        }
        assignment = Assignment.from_clients(numbered_clients(self.clients), client_of, notes)
        if self.uncovered != "mask":
            return assignment
        return replace(assignment, known=_without_foreign(assignment, positives, sets))

    def _deal(self, patterns: Mask, pattern_of: Indices, generator: np.random.Generator) -> Mask:
        """(K, C) the classes each client may see: the best of several even dealings."""
        dealt = deal_evenly(
            generator,
            clients=self.clients,
            classes=patterns.shape[1],
            each=self.class_budget(patterns.shape[1]),
            dealings=self.dealings,
        )
        images = np.bincount(pattern_of, minlength=len(patterns))
        covered = [images[_fits(patterns, sets).any(axis=1)].sum() for sets in dealt]
        return np.asarray(dealt[np.argmax(covered)])

    def _draw_clients(
        self, patterns: Mask, pattern_of: Indices, sets: Mask, generator: np.random.Generator
    ) -> Indices:
        """The client of each image that has positives."""
        drawn = generator.dirichlet(np.full(self.clients, self.concentration), size=sets.shape[1])
        shares = restricted(drawn, sets.T)  # (C, K)
        images = np.bincount(pattern_of, minlength=len(patterns))
        if self.choose_by == "rarest-positive":
            pull = shares[rarest_positive(patterns, images @ patterns)]  # (U, K)
        else:
            pull = patterns @ shares
        eligible = _fits(patterns, sets)
        if self.uncovered != "drop":
            overlap = patterns.astype(np.int64) @ sets.T
            most = overlap == overlap.max(axis=1, keepdims=True)
            eligible = np.where(eligible.any(axis=1, keepdims=True), eligible, most)
        return draw_clients(restricted(pull, eligible)[pattern_of], generator)

    def _is_filled(self, client_of: Indices, has_positive: Mask) -> bool:
        held = client_of != DROPPED
        sizes = np.bincount(client_of[held], minlength=self.clients)
        positive = np.bincount(client_of[held & has_positive], minlength=self.clients)
        return bool(sizes.min() >= self.smallest_client and positive.min() >= 1)

    def _refuse_impossible(self, images: int) -> None:
        refuse_impossible_count(self.clients, images)
        refuse_non_positive(concentration=self.concentration, dealings=self.dealings)
        if not 0 < self.presence_share <= 1:
            raise UserError(
                f"presence_share must be above 0 and at most 1, found {self.presence_share}"
            )


def _fits(patterns: Mask, sets: Mask) -> Mask:
    """(U, K): all positives of the pattern are among the client's classes."""
    return np.asarray(patterns.astype(np.float32) @ (~sets.T).astype(np.float32) == 0)


def _without_foreign(
    assignment: Assignment, positives: Mask, sets: Mask
) -> tuple[torch.Tensor, ...]:
    """Per client (n, C): everything but the positives of classes it was not dealt."""
    return tuple(
        torch.from_numpy(~(positives[rows.numpy()] & ~own))
        for rows, own in zip(assignment.indices, sets)
    )
