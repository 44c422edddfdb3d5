"""RunFiles: what a run folder says, read without torch; a file that is not there is empty."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.core.errors import UserError
from fedquilt.core.parsed_text import UNREADABLE, parse_json, parse_records
from fedquilt.runs.audit_tables import AUDITS
from fedquilt.runs.other_evaluations import EVALUATIONS
from fedquilt.runs.result_tables import read_result

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CARD_FILE = "card.json"


@dataclass(frozen=True)
class RunFiles:
    """The files of a run folder, of a simulation or of a study."""

    path: Path

    @cached_property
    def recipe(self) -> dict[str, Any]:
        return self._required("recipe.json", "it is not a run folder")

    @cached_property
    def result(self) -> dict[str, Any]:
        _ = self.recipe  # first: another folder lacks it too, and has nothing to finish
        again = f"finish it with: fedquilt run --out {self.path} --resume"
        stored = self._required("result.json", f"the run is not finished; {again}")
        return read_result(stored, self.path)

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """One record per round, up to the first damaged line."""
        return _json_lines(self.path / "history.jsonl", "round")

    @cached_property
    def audit_log(self) -> list[dict[str, Any]]:
        """What the server of a study sent, received and refused; empty for a simulation."""
        return _json_lines(self.path / "audit.jsonl")

    @cached_property
    def model(self) -> dict[str, Any]:
        return self._optional("model.json")

    @cached_property
    def data(self) -> dict[str, Any]:
        """Counts of the data, written at the end of a simulation."""
        return self._optional("data.json")

    @cached_property
    def card(self) -> dict[str, Any]:
        return self._optional(CARD_FILE)

    @cached_property
    def audits(self) -> list[dict[str, Any]]:
        """Tables of attacks and privacy audits, if any were made."""
        return self._tables(AUDITS)

    @cached_property
    def evaluations(self) -> list[dict[str, Any]]:
        """Evaluations of the model on other people's data, if any were made."""
        return self._tables(EVALUATIONS)

    def _tables(self, folder: str) -> list[dict[str, Any]]:
        names = sorted(path.name for path in (self.path / folder).glob("*.json"))
        return [self._optional(f"{folder}/{name}") for name in names]

    @property
    def is_study(self) -> bool:
        return "study" in self.result

    @cached_property
    def _partition(self) -> dict[str, Any]:
        """Who annotates what, read from partition.npz."""
        import numpy as np

        from fedquilt.data.client_arrays import read_client_arrays

        path = self.path / "partition.npz"
        try:
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                header = parse_json(str(file["header"]))
                parts = read_client_arrays(file.zip, "known", header["sizes"])
                annotated = np.stack([known.any(axis=0) for known in parts])
            return {
                "classes": header["classes"],
                "annotated": dict(zip(header["names"], annotated, strict=True)),
            }
        except UNREADABLE as error:
            raise UserError(f"{path} cannot be read ({error}); {self._again}") from error

    @property
    def classes(self) -> list[str]:
        return list(self._partition["classes"])

    @property
    def annotated(self) -> dict[str, NDArray[np.bool_]]:
        """For every site, whether it annotated each class in at least one image."""
        found: dict[str, NDArray[np.bool_]] = self._partition["annotated"]
        return found

    @cached_property
    def annotators(self) -> dict[str, list[str]]:
        """For every class, the sites that annotated it in at least one image."""
        import numpy as np

        from fedquilt.data.client_arrays import names_by_class

        annotated = np.stack([*self.annotated.values()])
        return names_by_class([*self.annotated], self.classes, annotated)

    @property
    def _again(self) -> str:
        return f"write it again with: fedquilt run --out {self.path} --resume"

    def _required(self, name: str, why: str) -> dict[str, Any]:
        if not self.path.is_dir():
            raise UserError(f"there is no run folder {self.path}")
        if not (self.path / name).exists():
            raise UserError(f"{self.path} holds no {name}: {why}")
        return self._optional(name)

    def _optional(self, name: str) -> dict[str, Any]:
        path = self.path / name
        if not path.exists():
            return {}
        try:
            content = parse_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:  # not JSON, or not text
            raise UserError(f"{path} is damaged ({error}); {self._again}") from error
        if not isinstance(content, dict):
            raise UserError(f"{path} is damaged: it holds no table; {self._again}")
        return content


def _json_lines(path: Path, *needed: str) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return parse_records(path.read_text(encoding="utf-8", errors="replace"), *needed)
