"""FedNCA-ML's non-IID partition: a client holds only some classes, in Dirichlet shares."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from fedquilt.core.errors import UserError
from fedquilt.core.seeding import seed_for
from fedquilt.data.annotations.rules import assign_evenly
from fedquilt.data.dataset import LabelView, annotated_positives
from fedquilt.data.partitions.fitted_sets import fitted_sets
from fedquilt.data.partitions.partition import (
    DROPPED,
    Assignment,
    Partition,
    check_client_count,
    check_positive,
    numbered_clients,
)
from fedquilt.data.partitions.strata import (
    Indices,
    Shares,
    draw_clients,
    draw_until,
    label_patterns,
    rarest_positive,
    restrict_shares,
)

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class DirichletPresence(Partition):
    """Assigns a set of classes to each client; an image goes to a client with all its positives.

    The paper does not say what happens to an image that fits no client, and its generator is not
    published. ``drop`` leaves the image out; ``mask`` gives it to the client that has most of its
    positives and leaves the other positives unannotated; ``relax`` gives it to that client with
    all its labels. Images without positives are spread evenly.
    """

    clients: int
    concentration: float  # beta: small is skewed, large is even
    presence_share: float  # gamma: the share of the classes that a client may hold
    uncovered: Literal["drop", "mask", "relax"] = (
        "drop"  # what happens to images that fit no client
    )
    choose_by: Literal["all-positives", "rarest-positive", "shares-first"] = "all-positives"
    # the classes whose shares decide about an image's client; shares-first: the rarest positive,
    # and class sets are made to fit the shares, so that a small beta concentrates classes
    dealings: int = 200  # random class sets to try; those that cover most images are used
    smallest_client: int = 10  # draw again until every client has this many images, one positive
    attempts: int = 100

    def class_budget(self, classes: int) -> int:
        """The number of classes per client: ``presence_share`` of all, rounded half up."""
        exact = Decimal(str(self.presence_share)) * classes  # 0.71 * 7 classes gives 5
        return int(exact.quantize(Decimal(1), rounding=ROUND_HALF_UP))

    def assign(self, data: LabelView, seed: int) -> Assignment:
        positives = annotated_positives(data)
        self._check_settings(len(positives))
        generator = np.random.default_rng(seed_for(seed, "partition", "dirichlet-presence"))
        has_positive = np.asarray(positives.any(axis=1))
        patterns, pattern_of = label_patterns(positives[has_positive])

        def draw() -> tuple[Indices, Mask]:
            sets, shares = self._draw_sets_and_shares(patterns, pattern_of, generator)
            client_of = np.empty(len(positives), dtype=np.int64)
            client_of[has_positive] = self._draw_clients(
                patterns, pattern_of, sets, shares, generator
            )
            without = generator.permutation(np.flatnonzero(~has_positive))
            client_of[without] = np.arange(len(without)) % self.clients
            return client_of, sets

        (client_of, sets), draws = draw_until(
            draw,
            lambda drawn: self._is_filled(drawn[0], has_positive),
            attempts=self.attempts,
            goal=f"every client {self.smallest_client} images and a positive",
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
        return replace(assignment, known=_known_within(assignment, positives, sets))

    def _draw_sets_and_shares(
        self, patterns: Mask, pattern_of: Indices, generator: np.random.Generator
    ) -> tuple[Mask, Shares]:
        """(K, C) the classes of each client, and (C, K) its shares of them."""
        classes = patterns.shape[1]
        concentrations = np.full(self.clients, self.concentration)
        if self.choose_by == "shares-first":
            shares = generator.dirichlet(concentrations, size=classes)
            images = np.bincount(pattern_of, minlength=len(patterns))
            main = rarest_positive(patterns, images @ patterns)
            sets = fitted_sets(patterns, images, main, shares, self.class_budget(classes))
        else:
            sets = self._draw_class_sets(patterns, pattern_of, generator)
            shares = generator.dirichlet(concentrations, size=classes)
        return sets, restrict_shares(shares, sets.T)

    def _draw_class_sets(
        self, patterns: Mask, pattern_of: Indices, generator: np.random.Generator
    ) -> Mask:
        """(K, C) the classes of each client; of several draws the one that covers most images."""
        drawn = assign_evenly(
            generator,
            clients=self.clients,
            classes=patterns.shape[1],
            each=self.class_budget(patterns.shape[1]),
            draws=self.dealings,
        )
        images = np.bincount(pattern_of, minlength=len(patterns))
        covered = [images[_fits(patterns, sets).any(axis=1)].sum() for sets in drawn]
        return np.asarray(drawn[np.argmax(covered)])

    def _draw_clients(
        self,
        patterns: Mask,
        pattern_of: Indices,
        sets: Mask,
        shares: Shares,
        generator: np.random.Generator,
    ) -> Indices:
        """Draw a client for each image that has positives."""
        images = np.bincount(pattern_of, minlength=len(patterns))
        if self.choose_by != "all-positives":
            weights = shares[rarest_positive(patterns, images @ patterns)]  # (U, K)
        else:
            weights = patterns @ shares
        eligible = _fits(patterns, sets)
        if self.uncovered != "drop":
            overlap = patterns.astype(np.int64) @ sets.T
            is_best = overlap == overlap.max(axis=1, keepdims=True)
            eligible = np.where(eligible.any(axis=1, keepdims=True), eligible, is_best)
        return draw_clients(restrict_shares(weights, eligible)[pattern_of], generator)

    def _is_filled(self, client_of: Indices, has_positive: Mask) -> bool:
        held = client_of != DROPPED
        sizes = np.bincount(client_of[held], minlength=self.clients)
        positive = np.bincount(client_of[held & has_positive], minlength=self.clients)
        return bool(sizes.min() >= self.smallest_client and positive.min() >= 1)

    def _check_settings(self, images: int) -> None:
        check_client_count(self.clients, images)
        check_positive(concentration=self.concentration, dealings=self.dealings)
        if not 0 < self.presence_share <= 1:
            raise UserError(
                f"presence_share must be above 0 and at most 1, found {self.presence_share}"
            )


def _fits(patterns: Mask, sets: Mask) -> Mask:
    """(U, K): whether all positives of the pattern are among the client's classes."""
    return np.asarray(patterns.astype(np.float32) @ (~sets.T).astype(np.float32) == 0)


def _known_within(assignment: Assignment, positives: Mask, sets: Mask) -> tuple[torch.Tensor, ...]:
    """Per client (n, C): False for positives of classes outside the client's set."""
    return tuple(
        torch.from_numpy(~(positives[indices.numpy()] & ~own))
        for indices, own in zip(assignment.indices, sets)
    )
