"""The terms of a study with secure sums: who has to be in a sum, checked before it begins."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fedquilt.core.errors import UserError

FEWEST = 3  # contributors of a sum: over two, each learns the other
KEY_PREFIX = "ed25519:"  # of a site's public key in study.toml
KEY_BYTES = 32

# What a study does about a class that fewer than FEWEST sites annotate: its row of the sum would
# tell one annotator what the other has sent, and the server what a single one has sent.
FewAnnotators: TypeAlias = Literal["refuse", "noise", "reveal"]


def threshold(sites: int) -> int:
    """So many sites can unmask a sum: two thirds, so that no two sums of one round are."""
    return -(-2 * sites // 3)


def fewest_of(sites: int) -> int:
    """The fewest sites of a cohort of this size whose vectors make a sum."""
    return max(threshold(sites), FEWEST)


@dataclass(frozen=True, kw_only=True)
class SumTerms:
    """What of a study matters to secure sums."""

    annotates: Mapping[str, Collection[str]]  # site -> its classes
    keys: Mapping[str, str | None]  # site -> its public key
    classes: tuple[str, ...]
    cohort: int  # sites of a round
    quorum: int
    few_annotators: FewAnnotators
    clips_to_median: bool
    validates: bool  # rounds, on images of the sites
    all_has_noise: bool  # DP-SGD: a single site's numbers have their noise already

    @property
    def allows_few(self) -> bool:
        """Whether a class may have fewer annotators than a sum hides."""
        if self.few_annotators == "noise":
            return self.all_has_noise
        return self.few_annotators == "reveal"

    def thin_classes(
        self,
        names: Collection[str],
        fewest: int = FEWEST,
        contributed: Collection[int] | None = None,
    ) -> list[str]:
        """Return the classes to which some of these sites contribute, but fewer than ``fewest``.

        ``contributed`` says how many annotators of each class are left, over all sites, after the
        disclosure floor, as the survey's sum told; each annotator that is not among ``names`` is
        one fewer.
        """
        thin = []
        most = [len(self.annotates)] * len(self.classes) if contributed is None else contributed
        for label, left in zip(self.classes, most):
            annotators = [site for site, classes in self.annotates.items() if label in classes]
            here = sum(name in names for name in annotators)
            count = min(here, left - (len(annotators) - here))
            if 0 < count < fewest:
                thin.append(label)
        return thin

    def check(self) -> None:
        """Raise UserError if the study, as it is written, cannot keep what secure sums promise."""
        if len(self.annotates) < FEWEST:
            raise _unfit("a sum over two sites tells each what the other has sent: it needs three")
        without = [site for site, key in self.keys.items() if key is None]
        if without:
            raise _unfit(
                f"`key` is missing in [[sites]] of {', '.join(without)}: a site makes it with "
                "`fedquilt site key NAME` and sends the line that this prints"
            )
        for site, key in self.keys.items():
            key_bytes(str(key), site)
        if len({*self.keys.values()}) < len(self.keys):
            raise _unfit("two sites have the same `key`; each site makes its own")
        if self.cohort < FEWEST or self.quorum < fewest_of(self.cohort):
            raise _unfit(
                f"study.rules.quorum is {self.quorum}; of a cohort of {self.cohort} at least "
                f"{fewest_of(self.cohort)} sites have to answer: two thirds, and three"
            )
        if self.clips_to_median:
            raise _unfit(
                "bounds.beyond = 'clip' compares every update with the median of all, and a masked "
                "update can be compared with nothing; use 'refuse' with bounds.max_norms, which "
                "every site checks itself"
            )
        if self.validates:
            raise _unfit(
                "sites would send what they find on their validation images unmasked; set "
                "recipe.validation.share = 0"
            )
        thin = self.thin_classes(self.annotates)
        if thin and not self.allows_few:
            raise self._too_few(thin)

    def _too_few(self, thin: Collection[str]) -> UserError:
        found = f"fewer than {FEWEST} sites annotate {', '.join(thin)}"
        if self.few_annotators == "noise":
            return _unfit(
                f"{found}, and few_annotators = 'noise' needs noise on every part that leaves; set "
                "recipe.privacy.training = true with an epsilon, leave the classes out, or accept "
                "few_annotators = 'reveal'"
            )
        return _unfit(
            f"{found}, so sums for them show single sites' numbers. Leave the classes out, find "
            "more annotators, add noise to everything (few_annotators = 'noise'), or agree on "
            "few_annotators = 'reveal': the server then learns them"
        )


def key_bytes(text: str, site: str) -> bytes:
    """Return a site's public key as bytes; raise UserError if it is none."""
    try:
        key = base64.b64decode(text.removeprefix(KEY_PREFIX), validate=True)
        if not text.startswith(KEY_PREFIX) or len(key) != KEY_BYTES:
            raise ValueError
    except (ValueError, binascii.Error):
        raise UserError(
            f"study.sites: the key of {site!r} is {text[:60]!r}; expected the line that `fedquilt "
            f"site key {site}` printed at the site, {KEY_PREFIX}... with 44 characters"
        ) from None
    return key


def key_text(key: bytes) -> str:
    return KEY_PREFIX + base64.b64encode(key).decode()


def _unfit(why: str) -> UserError:
    return UserError(f"summation = 'secure': {why}")
