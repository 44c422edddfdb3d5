"""SitePolicy: what a site allows to leave; a study can only make it stricter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from fedquilt.core.errors import UserError, nearest
from fedquilt.core.fixed_point import Summation
from fedquilt.core.payload import Update, update_bytes
from fedquilt.core.settings import plain
from fedquilt.data.client_data import ClientData
from fedquilt.methods import all_methods
from fedquilt.privacy.disclosure_floor import DEFAULT_MIN_CELL, DisclosureFloor
from fedquilt.training.method import Method, State
from fedquilt.training.privacy_settings import Privacy

Limit = TypeVar("Limit")

STRICTNESS: tuple[Summation, ...] = ("plain", "ring", "secure")
LEAST_CONTRIBUTORS = 3


@dataclass(frozen=True, kw_only=True)
class SitePolicy:
    """A payload transform: applies the disclosure floor, then checks what is left."""

    min_cell: int = DEFAULT_MIN_CELL  # patients a value must be computed from; 0 and 1: no floor
    min_cell_errors: int = 0  # patients of each count of right and wrong decisions, if it has any
    max_message_bytes: int | None = None  # of one message; None: any size
    accepted_methods: tuple[str, ...] | None = None  # None: any
    may_leave: tuple[str, ...] | None = None  # parts of survey and rounds; None: all
    max_answers: int | None = None  # rounds answered in one study; None: its rounds and 10 more
    summation: Summation = "plain"  # "secure": refuse a study whose server sees this site's update
    min_contributors: int | None = None  # of a secure sum and of each class in it; None: the study
    max_epsilon: float | None = None  # of the noise of all studies together; None: the study's

    def __post_init__(self) -> None:
        DisclosureFloor(self.min_cell)
        if self.min_cell_errors < 0:
            raise UserError(
                f"policy.min_cell_errors must be 0 or more, found {self.min_cell_errors}"
            )
        if self.max_message_bytes is not None and self.max_message_bytes < 1:
            raise UserError(
                f"policy.max_message_bytes must be positive, found {self.max_message_bytes}"
            )
        if self.max_answers is not None and self.max_answers < 1:
            raise UserError(f"policy.max_answers must be positive, found {self.max_answers}")
        if self.min_contributors is not None and self.min_contributors < LEAST_CONTRIBUTORS:
            raise UserError(
                f"policy.min_contributors is {self.min_contributors}; expected "
                f"{LEAST_CONTRIBUTORS} or more: over two, each learns the other's numbers"
            )
        if self.max_epsilon is not None and not self.max_epsilon > 0:
            raise UserError(f"policy.max_epsilon must be positive, found {self.max_epsilon:g}")
        for name in self.accepted_methods or ():
            if name not in all_methods():
                raise UserError(
                    f"policy.accepted_methods names {name!r}, which is not a method"
                    f"{nearest(name, all_methods())}"
                )

    def tightened(self, other: SitePolicy) -> SitePolicy:
        """Return the stricter of both, setting by setting."""
        return SitePolicy(
            min_cell=max(self.min_cell, other.min_cell),
            min_cell_errors=max(self.min_cell_errors, other.min_cell_errors),
            max_message_bytes=_stricter(self.max_message_bytes, other.max_message_bytes, min),
            accepted_methods=_stricter(self.accepted_methods, other.accepted_methods, _in_both),
            may_leave=_stricter(self.may_leave, other.may_leave, _in_both),
            max_answers=_stricter(self.max_answers, other.max_answers, min),
            summation=max(self.summation, other.summation, key=STRICTNESS.index),
            min_contributors=_stricter(self.min_contributors, other.min_contributors, max),
            max_epsilon=_stricter(self.max_epsilon, other.max_epsilon, min),
        )

    def on_client(self, method: Method, data: ClientData, state: State, update: Update) -> Update:
        floored = DisclosureFloor(self.min_cell).on_client(method, data, state, update)
        self.check(method, floored)
        return floored

    def on_survey(self, method: Method, data: ClientData, answer: Update) -> Update:
        return self.on_client(method, data, {}, answer)

    def check(self, method: Method, update: Update) -> None:
        """Raise UserError if the method, a part or the size is against the policy."""
        refusal = self.refuses_method(method)
        for part in update:
            refusal = refusal or self.refuses_part(part)
        if refusal:
            raise UserError(refusal)
        size, limit = update_bytes(update), self.max_message_bytes
        if limit is not None and size > limit:
            largest = max(update, key=lambda part: update_bytes({part: update[part]}))
            raise UserError(
                f"the message has {size:,} bytes, most of them in part {largest!r}, and this "
                f"site's policy allows {limit:,}; raise policy.max_message_bytes, or agree on a "
                "smaller network"
            )

    def refuses_method(self, method: Method) -> str | None:
        """Return why the method is not accepted, or None if it is."""
        name, accepted = method_name(method), self.accepted_methods
        if accepted is None or name in accepted:
            return None
        return (
            f"this site's policy does not accept the method {name!r}, only "
            f"{', '.join(accepted) or 'none'}; add it to policy.accepted_methods, or do not join"
        )

    def refuses_summation(self, agreed: Summation) -> str | None:
        """Return why a study with this summation is not accepted, or None if it is."""
        if STRICTNESS.index(agreed) >= STRICTNESS.index(self.summation):
            return None
        return (
            f"this site's policy asks for summation = {self.summation!r}, and the study agreed on "
            f"{agreed!r}; change policy.summation, or do not join"
        )

    def refuses_privacy(self, agreed: Privacy) -> str | None:
        """Return why a study with this noise is not accepted, or None if it is."""
        if self.max_epsilon is None or agreed.adds_noise:
            return None
        return (
            f"this site's policy asks for noise (max_epsilon = {self.max_epsilon:g}), and the "
            "study adds none; agree on recipe.privacy, or remove policy.max_epsilon"
        )

    def refuses_part(self, part: str) -> str | None:
        """Return why the part may not leave, or None if it may."""
        if self.may_leave is None or part in self.may_leave:
            return None
        return (
            f"this site's policy does not let part {part!r} leave, only "
            f"{', '.join(self.may_leave) or 'none'}; add it to policy.may_leave, or do not join"
        )


def method_name(method: Method) -> str:
    """Return the method's name in recipes."""
    name: str = plain(method, {Method: ("method", all_methods())})["name"]
    return name


def _stricter(
    one: Limit | None, two: Limit | None, of_both: Callable[[Limit, Limit], Limit]
) -> Limit | None:
    if one is None or two is None:
        return two if one is None else one
    return of_both(one, two)


def _in_both(one: tuple[str, ...], two: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in one if name in two)
