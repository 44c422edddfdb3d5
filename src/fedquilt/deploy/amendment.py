"""Amendment: a change of a running study's agreement by which further sites join it.

The coordinator proposes it, every site that takes part signs it, and the kits that are made from it
carry these signatures. Nothing but the list of sites can change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fedquilt.core.atomic_files import write_json
from fedquilt.core.errors import UserError
from fedquilt.core.shown_text import shown
from fedquilt.core.wording import counted
from fedquilt.deploy.protocol.message_bounds import parse_facts
from fedquilt.deploy.study import Study, study_from
from fedquilt.privacy.sent_parts import example_data

MAX_BYTES = 2**24  # of a file


@dataclass(frozen=True)
class Agreement:
    """A site's signature under an amendment, with the certificate that proves it."""

    site: str
    certificate: str
    signature: str


@dataclass(frozen=True)
class Amendment:
    """Two studies that differ in the sites that join."""

    before: Study
    after: Study
    reason: str
    agreements: tuple[Agreement, ...] = ()
    without: tuple[str, ...] = ()  # sites that take no part any more, and need not agree

    @property
    def joining(self) -> tuple[str, ...]:
        return self.after.site_names[len(self.before.sites) :]

    @cached_property
    def text(self) -> str:
        """What the sites sign."""
        facts = {"before": self.before.hash, "after": self.after.hash, "reason": self.reason}
        return json.dumps(facts, sort_keys=True)

    def check(self) -> None:
        """Raise UserError unless sites join, and nothing else changes."""
        before, after = self.before, self.after
        same_sites = after.sites[: len(before.sites)]
        if not self.joining or replace(after, sites=same_sites).hash != before.hash:
            raise UserError(
                f"an amendment can only add [[sites]] at the end of {before.name}: classes, "
                "images, method, rounds and the sites of before have to stay as they were"
            )
        if after.is_secure:
            raise UserError(
                "no site can join a study with secure sums: its sites unmask the sum of the survey "
                "once; start a new study"
            )
        asked = set(after.recipe.method.survey(example_data(after.task))) - {"annotators"}
        if asked:
            raise UserError(
                f"no site can join a study of {type(after.recipe.method).__name__}: it asks all "
                f"sites for {', '.join(sorted(asked))} before the first round, and keeps what "
                "follows from it; start a new study"
            )

    def lines(self) -> list[str]:
        lines = [f"{self.before.name}: {self.reason}"]
        for name in self.joining:
            site = self.after.site(name)
            images = (
                "" if site.images is None else f", with at most {counted(site.images, 'image')}"
            )
            lines.append(
                f"{name} of {site.organisation} joins and annotates "
                f"{', '.join(site.annotates)}{images}"
            )
        return [
            *lines,
            f"the agreement before: {self.before.hash[:16]}",
            f"the agreement after:  {self.after.hash[:16]}",
        ]

    def to_dict(self) -> dict[str, Any]:
        return {
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "reason": self.reason,
            "agreements": [each.__dict__ for each in self.agreements],
            "without": list(self.without),
        }


def read_amendment(path: Path) -> Amendment:
    """Read a proposed amendment and check it."""
    found = amendment_from(_read(path))
    found.check()
    return found


def read_amendments(path: Path) -> list[Amendment]:
    """Read those that a kit was made by, oldest first; none if it has no such file."""
    if not path.exists():
        return []
    found = _read(path)
    if not isinstance(found, list):
        raise UserError(f"{path} is damaged: expected a list of amendments")
    return [amendment_from(each) for each in found]


def write_amendments(path: Path, amendments: list[Amendment]) -> None:
    write_json(path, [each.to_dict() for each in amendments])


def read_agreement(path: Path) -> Agreement:
    return _agreement(_read(path), path)


def amendment_from(settings: Any) -> Amendment:
    if not isinstance(settings, Mapping) or not isinstance(settings.get("agreements"), list):
        raise UserError("the amendment is damaged: expected two studies and a list of agreements")
    before, after = (study_from(settings.get(name) or {}) for name in ("before", "after"))
    return Amendment(
        before,
        after,
        shown(settings.get("reason"), limit=300),
        tuple(_agreement(each, None) for each in settings["agreements"]),
        tuple(map(str, settings.get("without") or ())),
    )


def _agreement(found: Any, path: Path | None) -> Agreement:
    names = ("site", "certificate", "signature")
    if not isinstance(found, Mapping) or not all(
        isinstance(found.get(each), str) for each in names
    ):
        raise UserError(f"{path or 'an agreement'} is not what `fedquilt site agree` writes")
    return Agreement(**{name: found[name] for name in names})


def _read(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            return parse_facts(file.read(MAX_BYTES))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}") from error
