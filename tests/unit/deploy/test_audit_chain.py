"""Every line of an audit log follows from the lines before it; whatever is altered is found."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedquilt.cli.main import app
from fedquilt.core.errors import UserError
from fedquilt.deploy.audit_chain import append_event, read_events, verify_chain


def _write(path: Path, count: int = 5) -> list[bytes]:
    for number in range(count):
        append_event(path, {"time": "now", "event": "sent", "round": number})
    return path.read_bytes().splitlines(keepends=True)


def test_the_first_hashes_by_hand(tmp_path: Path) -> None:
    first, second, *_ = _write(tmp_path / "a")
    one = hashlib.sha256(b'\n{"time": "now", "event": "sent", "round": 0}').hexdigest()
    assert json.loads(first) == {"time": "now", "event": "sent", "round": 0, "chain": one}
    two = hashlib.sha256(f'{one}\n{{"time": "now", "event": "sent", "round": 1}}'.encode())
    assert json.loads(second)["chain"] == two.hexdigest()


def test_an_untouched_log_is_accepted(tmp_path: Path) -> None:
    lines = _write(tmp_path / "a")
    found = verify_chain(tmp_path / "a")
    assert (found.events, found.unchained, found.damage) == (5, 0, None)
    assert found.last == json.loads(lines[-1])["chain"]


def _altered(lines: list[bytes]) -> list[tuple[str, list[bytes], int]]:
    return [
        ("a number", [*lines[:2], lines[2].replace(b'"round": 2', b'"round": 7'), *lines[3:]], 3),
        ("a blank", [lines[0].replace(b": ", b":  ", 1), *lines[1:]], 1),
        ("removed", [*lines[:2], *lines[3:]], 3),
        ("the first removed", lines[1:], 1),
        ("twice", [*lines[:2], lines[1], *lines[2:]], 3),
        ("moved", [lines[0], lines[2], lines[1], *lines[3:]], 2),
        ("inserted", [lines[0], b'{"event": "sent"}\n', *lines[1:]], 2),
        ("garbage", [*lines[:3], b"\x00\xff\n", *lines[3:]], 4),
    ]


@pytest.mark.parametrize("case", range(8))
def test_every_alteration_is_found_where_it_is(tmp_path: Path, case: int) -> None:
    _, lines, number = _altered(_write(tmp_path / "a"))[case]
    (tmp_path / "a").write_bytes(b"".join(lines))
    damage = verify_chain(tmp_path / "a").damage
    assert damage is not None
    assert damage.startswith(f"line {number} ")


def test_lines_removed_from_the_end_are_found_by_a_noted_hash(tmp_path: Path) -> None:
    path, lines = tmp_path / "a", _write(tmp_path / "a")
    noted = json.loads(lines[3])["chain"]
    assert verify_chain(path, noted).damage is None
    path.write_bytes(b"".join(lines[:3]))
    assert verify_chain(path).damage is None
    assert "lines were removed" in str(verify_chain(path, noted).damage)


def test_a_line_cut_short_by_a_crash_is_kept_and_explained(tmp_path: Path) -> None:
    path, lines = tmp_path / "a", _write(tmp_path / "a")
    path.write_bytes(b"".join(lines)[:-20])
    append_event(path, {"time": "later", "event": "sent"})
    events, _ = read_events(path)
    assert [event["event"] for event in events] == [*["sent"] * 4, "cut short", "sent"]
    found = verify_chain(path)
    assert (found.events, found.damage) == (6, None)
    content = path.read_bytes().split(b"\n")
    content[4] = content[4][:-1]  # the line that was cut short, altered afterwards
    path.write_bytes(b"\n".join(content))
    assert verify_chain(path).damage == "line 5 has no hash"


@pytest.mark.parametrize("end", [b"", b'{"time": "x", "ev'])
def test_a_log_of_an_earlier_version_goes_on(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "a"
    path.write_bytes(b'{"event": "old"}\n{"event": "older"}\n' + end)
    _write(path)
    found = verify_chain(path)
    assert (found.unchained, found.damage) == (3 if end else 2, None)
    path.write_bytes(path.read_bytes().replace(b"older", b"newer", 1))
    assert verify_chain(path).damage is not None


def test_long_lines_and_many_threads(tmp_path: Path) -> None:
    path = tmp_path / "a"
    append_event(path, {"time": "now", "text": "x" * 50_000})
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: append_event(path, {"time": "now", "n": n}), range(40)))
    found = verify_chain(path)
    assert (found.events, found.damage) == (41, None)


def test_new_events_are_read_from_a_position(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert read_events(path) == ([], 0)
    _write(path, 2)
    _, end = read_events(path)
    append_event(path, {"time": "now", "event": "failed"})
    with path.open("ab") as file:
        file.write(b'{"event": "unfin')
    events, _ = read_events(path, end)
    assert [event["event"] for event in events] == ["failed"]


def test_the_command(tmp_path: Path) -> None:
    lines = _write(tmp_path / "audit.jsonl")
    last = json.loads(lines[-1])["chain"]
    run = CliRunner().invoke
    result = run(app, ["audit", "verify", str(tmp_path)])
    assert result.exit_code == 0
    assert f"last hash, to be noted elsewhere: {last}" in result.output
    (tmp_path / "audit.jsonl").write_bytes(b"".join(lines[1:]))
    result = run(app, ["audit", "verify", str(tmp_path), "--json"])
    assert result.exit_code == 1
    assert json.loads(result.output)["ok"] is False
    result = run(app, ["audit", "verify", str(tmp_path / "no-such")])
    assert result.exit_code == 1
    assert "cannot be read" in result.output
    with pytest.raises(UserError):
        verify_chain(tmp_path / "no-such")
