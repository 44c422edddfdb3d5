"""The facts of a secure sum in the header of messages: attempt, keys and sealed shares."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from fedquilt.deploy.protocol.message_bounds import BadMessage
from fedquilt.deploy.protocol.messages import SURVEY, TRAIN
from fedquilt.deploy.secure.masks import Attempt, PublicKeys

KEYS, SHARES, UNMASK = "keys", "shares", "unmask"  # kinds of messages beside those
SUM = "sum"  # the name of the facts
MASKED = "masked"  # of the tensor in a reply


def subject_of(summed: str, round_index: int) -> str:
    """The name of what a sum is of; a site unmasks each subject over one set of sites only."""
    return SURVEY if summed == SURVEY else f"{summed} {round_index}"


def attempt_facts(summed: str, attempt: Attempt) -> dict[str, Any]:
    return {"of": summed, "attempt": attempt.number, "cohort": list(attempt.cohort)}


def attempt_in(facts: Mapping[str, Any], study: str, round_index: int) -> tuple[str, Attempt]:
    """Return what a request is about; raise BadMessage if it does not say so."""
    given = sum_facts(facts)
    number, cohort = given.get("attempt"), names_in(given.get("cohort"))
    summed = given.get("of")
    if summed not in (SURVEY, TRAIN) or type(number) is not int:
        raise BadMessage("the request does not say which sum it is for")
    return summed, Attempt(study, subject_of(summed, round_index), number, tuple(cohort))


def sum_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    given = facts.get(SUM)
    if not isinstance(given, dict):
        raise BadMessage("the message has no facts about a sum")
    return given


def keys_fact(keys: PublicKeys) -> list[str]:
    return [_text(each) for each in (keys.sealing, keys.masking, keys.signature)]


def keys_in(fact: object) -> PublicKeys:
    if not isinstance(fact, list) or len(fact) != 3:
        raise BadMessage("a site's keys are not two keys and a signature")
    return PublicKeys(*(_bytes(each) for each in fact))


def all_keys_in(fact: object) -> dict[str, PublicKeys]:
    return {site: keys_in(each) for site, each in _by_site(fact).items()}


def texts_fact(texts: Mapping[str, bytes]) -> dict[str, str]:
    return {site: _text(text) for site, text in texts.items()}


def texts_in(fact: object) -> dict[str, bytes]:
    """Return sealed or opened shares by site."""
    return {site: _bytes(text) for site, text in _by_site(fact).items()}


def inbox_in(fact: object, site: str) -> dict[str, bytes]:
    """Return the sealed shares for one site out of those for all."""
    return texts_in(_by_site(fact).get(site))


def names_in(fact: object) -> list[str]:
    if not isinstance(fact, list) or not all(isinstance(each, str) for each in fact):
        raise BadMessage("the message has no list of sites")
    return fact


def counts_in(fact: object, length: int) -> list[int] | None:
    """Return a number for each class, or None if the message has none."""
    if fact is None:
        return None
    if not isinstance(fact, list) or len(fact) != length or any(type(n) is not int for n in fact):
        raise BadMessage("the message has no whole number for each class")
    return fact


def _by_site(fact: object) -> dict[str, object]:
    if not isinstance(fact, dict):
        raise BadMessage("the message has no table by site")
    return fact


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _bytes(text: object) -> bytes:
    try:
        return base64.b64decode(text if isinstance(text, str) else "!", validate=True)
    except (ValueError, binascii.Error):
        raise BadMessage("a key or share is not base64") from None
