"""SecureAnswers: a site's part in secure sums, as answers to messages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from torch import Tensor

from fedquilt.deploy.protocol.messages import TRAIN, Message
from fedquilt.deploy.secure.facts import (
    KEYS,
    MASKED,
    SHARES,
    SUM,
    UNMASK,
    all_keys_in,
    attempt_in,
    counts_in,
    inbox_in,
    keys_fact,
    names_in,
    sum_facts,
    texts_fact,
)
from fedquilt.deploy.secure.masks import Attempt
from fedquilt.deploy.secure.site_half import RefusedSum, SecureSite, SumRecord, survivors_hash
from fedquilt.deploy.secure.site_key import signers
from fedquilt.deploy.secure.terms import FEWEST
from fedquilt.deploy.study import Study
from fedquilt.privacy.site_policy import SitePolicy
from fedquilt.training.rounds import draw_cohort


@dataclass(frozen=True)
class Answer:
    """What a site replies, and what of it the site's audit log keeps."""

    message: Message
    logged: Mapping[str, Any]


class SecureAnswers:
    """Answers ``keys``, ``shares`` and ``unmask``, and masks what the site would send.

    The vector of a round is kept until the next: an attempt that failed before anything was
    unmasked is repeated with new masks, and without training again.
    """

    def __init__(
        self,
        study: Study,
        site: str,
        key: Ed25519PrivateKey,
        record: SumRecord,
        policy: SitePolicy,
    ) -> None:
        self._study, self._policy = study, policy
        self._half = SecureSite(
            site, key, signers(study), study.hash, record, self._check_survivors
        )
        self._vector: tuple[str, Tensor] | None = None  # by what it is computed from
        self._contributed: list[int] | None = None  # by class, as the server told

    def handlers(self) -> dict[str, Callable[[Message], Answer]]:
        return {KEYS: self._keys, SHARES: self._shares, UNMASK: self._unmask}

    def masked(self, message: Message, of: str, vector: Callable[[], Tensor]) -> Answer:
        """Return the masked vector; ``of`` says what it is computed from.

        A request without an attempt that this site has begun is refused before it is computed.
        """
        summed, attempt = self._attempt_in(message)
        if summed != message.facts["kind"]:
            raise RefusedSum(f"a {message.facts['kind']} cannot be summed as a {summed}")
        self._half.check_ready(attempt)
        inbox = inbox_in(sum_facts(message.facts).get("inboxes"), self._half.name)
        source = f"{attempt.subject} {of}"
        if self._vector is None or self._vector[0] != source:
            self._vector = source, vector()
        hidden = self._half.mask(attempt, self._vector[1], inbox)
        logged = {**_logged(attempt), "numbers": len(hidden)}
        facts = {SUM: {"of": summed, "attempt": attempt.number}}
        return Answer(Message(facts, {MASKED: hidden}), logged)

    def _keys(self, message: Message) -> Answer:
        summed, attempt = self._attempt_in(message)
        self._check_cohort(summed, attempt, message.facts["round"])
        keys = keys_fact(self._half.keys(attempt))
        return _answer(summed, attempt, {"keys": keys}, {"cohort": list(attempt.cohort)})

    def _shares(self, message: Message) -> Answer:
        summed, attempt = self._attempt_in(message)
        keys = all_keys_in(sum_facts(message.facts).get("keys"))
        texts = texts_fact(self._half.shares(attempt, keys))
        return _answer(summed, attempt, {"shares": texts}, {"among": sorted(keys)})

    def _unmask(self, message: Message) -> Answer:
        summed, attempt = self._attempt_in(message)
        facts = sum_facts(message.facts)
        survivors = names_in(facts.get("survivors"))
        counts = counts_in(facts.get("contributed"), len(self._study.classes))
        if summed == TRAIN and counts is None:
            raise RefusedSum("the request does not say how many sites contribute to each class")
        self._contributed = counts
        shares = texts_fact(self._half.unmask(attempt, survivors))
        logged = {"survivors": sorted(survivors), "hash": survivors_hash(survivors)}
        return _answer(summed, attempt, {"shares": shares}, logged)

    def _attempt_in(self, message: Message) -> tuple[str, Attempt]:
        return attempt_in(message.facts, self._study.hash, message.facts["round"])

    def _check_cohort(self, summed: str, attempt: Attempt, round_index: int) -> None:
        """Refuse any other cohort than the recipe's: a small one could expose one site."""
        study = self._study
        drawn = draw_cohort(study.task, study.recipe.cohort_size, round_index)
        expected = drawn if summed == TRAIN else study.site_names
        if sorted(expected) != list(attempt.cohort):
            raise RefusedSum(
                f"the cohort of {attempt.subject} is {', '.join(attempt.cohort)}, and by the "
                f"recipe it is {', '.join(sorted(expected))}"
            )

    def _check_survivors(self, attempt: Attempt, survivors: Collection[str]) -> None:
        """Refuse to unmask a sum in which some numbers would come from too few sites."""
        own, reveals = self._policy.min_contributors, self._study.sum_terms.allows_few
        fewest = max(own or 0, 0 if reveals else FEWEST)
        if len(survivors) < fewest:
            raise RefusedSum(f"{len(survivors)} sites are left, at least {fewest} are asked for")
        thin = self._study.sum_terms.thin_classes(survivors, fewest, self._contributed)
        if thin:
            raise RefusedSum(
                f"the sum would be over fewer than {fewest} annotators of {', '.join(thin)}"
            )


def _answer(
    summed: str, attempt: Attempt, facts: Mapping[str, Any], logged: Mapping[str, Any]
) -> Answer:
    given = {SUM: {"of": summed, "attempt": attempt.number, **facts}}
    return Answer(Message(given, {}), {**_logged(attempt), **logged})


def _logged(attempt: Attempt) -> dict[str, Any]:
    return {"sum": attempt.subject, "attempt": attempt.number}
