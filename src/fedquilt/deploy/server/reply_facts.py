"""What every reply says of itself: which site, study, version, kind and round it is of."""

from __future__ import annotations

from fedquilt.core.update_checks import RefusedUpdate
from fedquilt.core.version import VERSION
from fedquilt.deploy.protocol.messages import Message


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
