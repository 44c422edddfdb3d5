"""Odd files and a full disk are errors with a sentence, never a traceback."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import numpy as np
import pytest
from support.tiny_runs import write_recipe
from typer.testing import CliRunner

from fedquilt.cli.main import app

DEEP = {
    ".json": '{"a":' * 3000 + "1" + "}" * 3000,
    ".toml": "a = " + "[" * 3000 + "]" * 3000,
}
ODD = [
    *((".json", text) for text in ("[]", "3", "null", '"x"', "{", DEEP[".json"], "[" * 90_000)),
    *((".toml", text) for text in ("", "3", DEEP[".toml"], ".".join("a" * 3000) + " = 1")),
    *((".json", f'{{"a": {"9" * 5000}}}'), (".toml", "a = " + "9" * 5000), (".toml", "\0")),
]
READERS = (
    ("run", "FILE", "--out", "OUT"),
    ("deploy", "provision", "FILE", "--out", "OUT"),
    ("sweep", "FILE", "--out", "OUT"),
)


def said(*words: str | Path) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code == 1
    assert "error: " in result.output
    return " ".join(result.output.split())


@pytest.mark.parametrize("command", READERS, ids=lambda each: each[0])
@pytest.mark.parametrize("number", range(len(ODD)))
def test_settings(command: tuple[str, ...], number: int, tmp_path: Path) -> None:
    suffix, text = ODD[number]
    path = tmp_path / f"odd{suffix}"
    path.write_text(text)
    given = {"FILE": str(path), "OUT": str(tmp_path / "out")}
    assert len(said(*(given.get(word, word) for word in command))) < 3000
    assert not (tmp_path / "out").exists()


def test_the_settings_of_a_site(tmp_path: Path) -> None:
    from fedquilt.core.errors import UserError
    from fedquilt.deploy.site.settings import read_site_settings

    path = tmp_path / "site.toml"
    for suffix, text in ODD:
        if suffix == ".toml":
            path.write_text(text)
            with pytest.raises(UserError):
                read_site_settings(path)


def test_a_partition(tmp_path: Path) -> None:
    from fedquilt.core.errors import UserError
    from fedquilt.data.allocation import FORMAT, Allocation

    path = tmp_path / "partition.npz"
    whole = {"format": FORMAT, "names": ["a"], "sizes": [1], "classes": ["x"], "protocol": {}}
    headers = [
        *("[]", "3", "{}", DEEP[".json"], "[" * 90_000, json.dumps(whole | {"sizes": "ab"})),
        *(json.dumps(whole | change) for change in ({"sizes": [-1]}, {"names": 3}, {"sizes": [2]})),
        *(json.dumps(whole | change) for change in ({"classes": None}, {"protocol": []})),
        json.dumps(whole),
    ]
    known = np.zeros((1, 1), bool)
    for header in headers:
        arrays = {"indices": np.zeros(1, int), "known": known}
        np.savez(path, header=np.array(header), hash=np.array("x"), **arrays)
        with pytest.raises(UserError, match=r"partition\.npz"):
            Allocation.load(path)
    np.savez(path, header=np.array({}, dtype=object), hash=np.array("x"))
    with pytest.raises(UserError, match=r"partition\.npz"):
        Allocation.load(path)


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = write_recipe(tmp_path / "recipe.json", "fedavg")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "history.jsonl")

    monkeypatch.setattr("fedquilt.runs.run_folder.History.append", full)
    found = said("run", recipe, "--out", tmp_path / "run")
    assert "the disk is full (history.jsonl); make room" in found


@pytest.mark.parametrize("text", ["[]", "null", "{}", '{"method": "fedavg"}', DEEP[".json"]])
def test_a_result(text: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "recipe.json").write_text("{}")
    (folder / "result.json").write_text(text)
    assert "result.json is damaged" in said("report", folder)
