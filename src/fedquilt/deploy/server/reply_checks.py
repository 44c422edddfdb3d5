"""What every reply is checked for: whose it is, of what, how large, and with how many records.

How large it may be follows from what the study's method sends, not from the sender.
"""

from __future__ import annotations

import math

from fedquilt.core.payload import Gather, Update, update_bytes
from fedquilt.core.tree import leaves
from fedquilt.core.update_checks import RefusedUpdate
from fedquilt.core.version import VERSION
from fedquilt.deploy.protocol.messages import Message
from fedquilt.deploy.study_rules import Rules

REPLY_FACTOR = 2  # times the bytes of the update that is expected
SPARE_BYTES = 2**20  # for the header, the names of tensors and an error's text


class SiteFailed(ValueError):
    """Raised when a site sent an error instead of an answer."""


def check_reply_facts(message: Message, study: str, site: str, kind: str, round_index: int) -> None:
    """Raise RefusedUpdate if a reply is not the one asked for, SiteFailed if it is an error."""
    expected = {
        "site": site,
        "version": VERSION,
        "study": study,
        "kind": kind,
        "round": round_index,
    }
    is_error = "error" in message.facts  # perhaps because it could not read the request
    for name in ("site", "version") if is_error else expected:
        if message.facts.get(name) != expected[name]:
            raise RefusedUpdate(
                f"its {name} is {message.facts.get(name)!r}, expected {expected[name]!r}"
                + (" (the reply belongs to another round)" if name == "round" else "")
            )
    if is_error:
        raise SiteFailed(f"{message.facts['error']}: {message.facts.get('text', '')}"[:300])


def largest_reply(expected: Update, rules: Rules) -> int:
    """Return the bytes of the largest reply that can be right."""
    records = sum(
        rules.max_records * leaf.element_size() * math.prod(leaf.shape[1:])
        for part in expected.values()
        if isinstance(part, Gather) and part.any_length
        for _, leaf in leaves(part.value)
    )
    needed = REPLY_FACTOR * update_bytes(expected) + records + SPARE_BYTES
    return min(needed, rules.max_message_bytes)


def check_reply_size(size: int, expected: Update, rules: Rules) -> None:
    largest = largest_reply(expected, rules)
    if size > largest:
        raise RefusedUpdate(f"the reply has {size} bytes, the study allows at most {largest}")


def check_records(update: Update, site: str, rules: Rules, images: int | None) -> None:
    """Raise RefusedUpdate if a part that is sent record by record has more than agreed."""
    most = rules.max_records if images is None else min(images, rules.max_records)
    for name, part in update.items():
        if not isinstance(part, Gather) or not part.any_length:
            continue
        found = max((len(leaf) for _, leaf in leaves(part.value) if leaf.ndim), default=0)
        if found > most:
            raise RefusedUpdate(
                f"client {site!r}, part {name!r}: {found:,} records, at most {most:,} were agreed"
            )
