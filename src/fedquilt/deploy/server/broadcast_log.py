"""BroadcastLog: the hashes of what the server has sent, which sites compare with what they saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedquilt.core.atomic_files import write_json
from fedquilt.core.errors import UserError
from fedquilt.deploy.protocol.lineage import UNKNOWN, Lineage, Rollback
from fedquilt.deploy.protocol.messages import EVERY_SITE
from fedquilt.runs.run_folder import RunFolder

BROADCASTS_FILE = "broadcasts.json"  # in the run folder
REPEATED = "a round before it was repeated with the updates of other sites"


class BroadcastLog:
    """One entry per round: the hash that all sites received, or each site's own."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._sent: list[dict[str, str]] = []
        self._rollbacks: list[Rollback] = []
        self.decided = 0  # the coordinator's rollbacks that were carried out
        if path is not None and path.exists():
            self._read(path)

    def lineage(self, site: str, round_index: int) -> Lineage:
        """Return what a site receives with the broadcast of this round."""
        digests = [
            sent.get(site, sent.get(EVERY_SITE, UNKNOWN)) for sent in self._sent[:round_index]
        ]
        return Lineage(tuple(digests), tuple(self._rollbacks))

    def record(self, round_index: int, digests: Mapping[str, str]) -> None:
        """Keep the hashes by site before they are sent.

        A server that lost its last rounds may have to send another network for a round that sites
        have seen. It then tells them that the study went back.
        """
        self._sent += [{} for _ in range(round_index - len(self._sent))]  # of an earlier fedquilt
        if round_index == len(self._sent):
            self._sent.append(dict(digests))
        elif any(self._sent[round_index].get(site, each) != each for site, each in digests.items()):
            self.roll_back(round_index, REPEATED)
            self._sent.append(dict(digests))
        else:
            self._sent[round_index] |= digests
        self._write()

    def roll_back(self, to_round: int, reason: str) -> None:
        del self._sent[to_round:]
        self._rollbacks.append(Rollback(to_round, reason))
        self._write()

    def carry_out(self, decided: Rollback) -> None:
        """Go back as the coordinator decided, and remember that it was done."""
        self.decided += 1
        self.roll_back(decided.to_round, decided.reason)

    def _write(self) -> None:
        if self._path is not None:
            rollbacks = [asdict(each) for each in self._rollbacks]
            content = {"sent": self._sent, "rollbacks": rollbacks, "decided": self.decided}
            write_json(self._path, content)

    def _read(self, path: Path) -> None:
        found: Any = RunFolder(path.parent).read_json(path)
        try:
            self._sent = [dict(each) for each in found["sent"]]
            self._rollbacks = [Rollback(**each) for each in found["rollbacks"]]
            self.decided = int(found["decided"])
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{path} is damaged ({error}): sites compare it with what they have received; "
                "restore it from a backup of the run folder"
            ) from error
