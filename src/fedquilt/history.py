"""history.jsonl: one line a round, appended as the run goes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedquilt.atomic_files import wait_for_disk, write_bytes


class History:
    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, record: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, allow_nan=False) + "\n")

    def make_durable(self) -> None:
        """Wait for the disk, so that no power cut leaves a checkpoint without its history."""
        wait_for_disk(self._path)

    def read(self) -> list[dict[str, Any]]:
        """The whole lines; one that a killed process left unfinished is not a round."""
        if not self._path.exists():
            return []
        records = []
        for line in self._path.read_text(encoding="utf-8").splitlines():
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return records

    def cut_to(self, round_count: int) -> None:
        """Forget rounds that no checkpoint holds: they will be run again."""
        lines = [json.dumps(record) for record in self.read()[:round_count]]
        write_bytes(self._path, "".join(line + "\n" for line in lines).encode())
