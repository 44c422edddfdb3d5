"""Answers: which networks a site has answered, so that it answers no round twice for two of them.

Whoever controls the server could otherwise ask one round for many crafted networks, and learn from
the differences what single patients look like.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fedquilt.core.atomic_files import write_json
from fedquilt.core.errors import UserError
from fedquilt.core.wording import counted
from fedquilt.deploy.protocol.lineage import Lineage, Rollback
from fedquilt.deploy.protocol.messages import TRAIN, VALIDATE

ANSWERS_FILE = "answers.json"  # beside the site's states
EXTRA_ANSWERS = 10  # beyond one for each round, for rounds that a study repeats


class RefusedRequest(ValueError):
    """Raised for a request that the site refuses; the reason is sent to the server."""


@dataclass(frozen=True)
class Answered:
    """What a site has received and answered in a study."""

    history: tuple[str, ...] = ()  # the broadcasts of all rounds, as received or told
    rollbacks: tuple[Rollback, ...] = ()
    rounds: tuple[int, ...] = ()  # answered since the study last went back to before them
    count: int = 0  # all rounds answered, repeated ones for another network included
    judged: tuple[int, ...] = ()  # validated since the study last went back to before them
    judged_count: int = 0  # all validations, those of another network after the same round included
    survey: str | None = None  # the data that the survey was answered for
    norm: float | None = None  # of the weights received last
    asked_once: tuple[tuple[str, str], ...] = ()  # kinds of request, each with what it asked


class Answers:
    """The record on the site's disk; it is written before a round is answered."""

    def __init__(self, folder: Path, rounds: int, budget: int | None = None) -> None:
        self._path = folder / ANSWERS_FILE
        self._budget = rounds + EXTRA_ANSWERS if budget is None else budget
        self.so_far = self._read()

    def survey(self, data: str) -> None:
        """Record a survey, or raise RefusedRequest if it was answered for other data."""
        if self.so_far.survey not in (None, data):
            raise RefusedRequest(
                "the survey was answered before this site's data changed; the difference of two "
                "answers would tell about single patients"
            )
        self._write(replace(self.so_far, survey=data))

    def once(self, kind: str, digest: str) -> None:
        """Record what a request asks; raise RefusedRequest if its kind asked something else before.

        The same patients under another network or threshold are differences that add up.
        """
        asked = dict(self.so_far.asked_once)
        if asked.setdefault(kind, digest) != digest:
            raise RefusedRequest(
                f"this site answers {kind!r} once, and did so for another model or other thresholds"
            )
        self._write(replace(self.so_far, asked_once=tuple(sorted(asked.items()))))

    def admit(self, lineage: Lineage, round_index: int, digest: str) -> tuple[Rollback, ...]:
        """Raise RefusedRequest unless a broadcast follows from those before; return new rollbacks.

        Nothing is recorded yet.
        """
        self._next(lineage, round_index, digest)
        return lineage.rollbacks[len(self.so_far.rollbacks) :]

    def record(
        self, lineage: Lineage, round_index: int, digest: str, norm: float, *, kind: str
    ) -> None:
        """Record a broadcast before it is answered; raise RefusedRequest as ``admit`` does.

        Training and validation are each answered for as many networks as the policy allows.
        """
        new = replace(self._next(lineage, round_index, digest), norm=norm)
        if kind == TRAIN and round_index not in new.rounds:
            self._check_budget(new.count, "answered")
            new = replace(new, rounds=(*new.rounds, round_index), count=new.count + 1)
        elif kind == VALIDATE and round_index not in new.judged:
            self._check_budget(new.judged_count, "validated")
            new = replace(new, judged=(*new.judged, round_index), judged_count=new.judged_count + 1)
        self._write(new)

    def _check_budget(self, count: int, done: str) -> None:
        if count >= self._budget:
            raise RefusedRequest(
                f"this site has {done} {counted(count, 'round')} of this study, as many as its "
                "policy allows (max_answers)"
            )

    def _next(self, lineage: Lineage, round_index: int, digest: str) -> Answered:
        before = self.so_far
        known = len(before.rollbacks)
        if lineage.rollbacks[:known] != before.rollbacks:
            raise RefusedRequest("the request contradicts the earlier broadcasts to this site")
        history, rounds, judged = before.history, before.rounds, before.judged
        for each in lineage.rollbacks[known:]:
            history = history[: each.to_round]
            rounds = tuple(index for index in rounds if index < each.to_round)
            judged = tuple(index for index in judged if index < each.to_round)
        if len(lineage.digests) != round_index:
            raise RefusedRequest("the request does not name one broadcast for each round before")
        told = (*lineage.digests, digest)
        for index, (seen, claimed) in enumerate(zip(history, told)):
            if seen != claimed:
                raise RefusedRequest(
                    f"this site has received another network in round {index + 1}: a round is "
                    "answered once, and the study has not said that it went back"
                    if index == round_index
                    else f"the network does not descend from the one this site saw in round "
                    f"{index + 1}"
                )
        longer = told if len(told) > len(history) else history
        return replace(
            before, history=longer, rollbacks=lineage.rollbacks, rounds=rounds, judged=judged
        )

    def _write(self, new: Answered) -> None:
        content = asdict(new)
        if new != self.so_far:
            write_json(self._path, content | {"digest": _digest(content)})
        self.so_far = new

    def _read(self) -> Answered:
        try:
            content: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
            digest = content.pop("digest")
            if digest != _digest(content):
                raise ValueError("it was altered")
            rollbacks = tuple(Rollback(**each) for each in content.pop("rollbacks"))
            content.pop("left", None)  # of an earlier fedquilt
            for name in {"history", "rounds", "judged"} & content.keys():
                content[name] = tuple(content[name])
            asked = tuple((kind, asked) for kind, asked in content.pop("asked_once", ()))
            return Answered(**content | {"rollbacks": rollbacks, "asked_once": asked})
        except FileNotFoundError:
            return Answered()
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(
                f"{self._path} is damaged ({error}): it says which rounds this site has answered. "
                "Restore it from a backup; without it the site would answer rounds again"
            ) from error


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
