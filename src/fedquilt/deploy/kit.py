"""Kit: the folder that each participant of a study receives."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.core.errors import UserError
from fedquilt.core.version import VERSION

if TYPE_CHECKING:  # it imports torch, which FLARE's processes at a site do without
    from fedquilt.deploy.study import Study

SERVER, COORDINATOR, AUTHORITY = "server", "coordinator", "authority"


@dataclass(frozen=True)
class Kit:
    """A kit's folder and the paths in it. It holds data only, no code and no settings of FLARE."""

    folder: Path

    @property
    def startup(self) -> Path:
        return self.folder / "startup"

    @property
    def study_file(self) -> Path:
        return self.startup / "study.json"

    @property
    def card(self) -> Path:
        return self.startup / "kit.json"

    @property
    def amendments(self) -> Path:
        """The changes of the agreement that the kit was made by; missing if there are none."""
        return self.startup / "amendments.json"

    @property
    def seal(self) -> Path:
        return self.startup / "seal.json"

    @property
    def work(self) -> Path:
        """The folder that a running server or coordinator writes to; a site has its own."""
        return self.folder / "fedquilt"

    @property
    def certificate(self) -> Path:
        found = self.startup / "server.crt"
        return found if found.exists() else self.startup / "client.crt"

    @property
    def key(self) -> Path:
        return self.certificate.with_suffix(".key")

    @property
    def authority(self) -> Path:
        return self.startup / "rootCA.pem"

    def run_folder(self, study: Study) -> Path:
        """The server's run folder of the study."""
        return self.work / "runs" / study.name

    def study(self) -> Study:
        from fedquilt.deploy.study import read_study

        return read_study(self.study_file)

    def role(self) -> str:
        return str(self._read_card()["role"])

    def is_of_a_site(self) -> bool:
        return self.role() not in (SERVER, COORDINATOR)

    def require(self, role: str | None = None) -> None:
        """Raise UserError unless the kit has this role (default: any site) and this version."""
        card = self._read_card()
        expected = role or "site"
        fits = card["role"] == role if role else self.is_of_a_site()
        if not fits:
            raise UserError(f"{self.folder} is the kit of {card['role']}; expected a {expected}'s")
        if card["fedquilt"] != VERSION:
            raise UserError(
                f"the kit {self.folder} was made by fedquilt {card['fedquilt']}, this is "
                f"{VERSION}; install the coordinator's version"
            )

    def _read_card(self) -> dict[str, Any]:
        try:
            card: dict[str, Any] = json.loads(self.card.read_text(encoding="utf-8"))
            card["role"], card["fedquilt"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise UserError(
                f"{self.folder} is not a complete kit ({error}); ask the coordinator for a new one"
            ) from error
        return card
