"""history.jsonl: append, read, and replace."""

from __future__ import annotations

import pytest

from fedquilt.runs.run_folder import History


def test_records_are_read_in_order(tmp_path):
    history = History(tmp_path / "history.jsonl")
    assert history.read() == []
    records = [{"round": number, "metrics": {"auc": 0.1 * number, "ap": None}} for number in (1, 2)]
    for record in records:
        history.append(record)
    assert history.read() == records


def test_one_line_per_record_for_any_name(tmp_path):
    path = tmp_path / "history.jsonl"
    record = {"round": 1, "cohort": ["Süd\nOst", "line\u2028separator", "\x85"]}
    History(path).append(record)
    History(path).append(record)
    assert path.read_text(encoding="utf-8").count("\n") == 2
    assert History(path).read() == [record, record]


def test_nan_is_refused_and_nothing_is_written(tmp_path):
    history = History(tmp_path / "history.jsonl")
    history.append({"round": 1})
    with pytest.raises(ValueError, match="JSON"):
        history.append({"loss": float("nan")})
    assert history.read() == [{"round": 1}]


@pytest.mark.parametrize("cut", range(1, 13))
def test_an_unfinished_line_is_ignored(tmp_path, cut):
    path = tmp_path / "history.jsonl"
    history = History(path)
    history.append({"round": 1})
    history.append({"round": 2})
    path.write_bytes(path.read_bytes()[: -1 - cut])  # a line is 13 bytes with its newline
    assert history.read()[:1] == [{"round": 1}]
    assert len(history.read()) == 1


def test_lines_after_a_damaged_line_are_ignored(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_text('{"round": 1}\n{"roun\n{"round": 3}\n')
    assert History(path).read() == [{"round": 1}]


def test_a_last_line_without_newline_is_not_joined_with_the_next(tmp_path):
    path = tmp_path / "history.jsonl"
    history = History(path)
    history.append({"round": 1})
    path.write_bytes(path.read_bytes()[:-1])
    history.replace(history.read())
    history.append({"round": 2})
    assert history.read() == [{"round": 1}, {"round": 2}]


def test_cutting_keeps_the_first_rounds(tmp_path):
    history = History(tmp_path / "history.jsonl")
    for number in range(1, 6):
        history.append({"round": number, "loss": 0.1 + 0.2})
    history.replace(history.read()[:3])
    assert [record["round"] for record in history.read()] == [1, 2, 3]
    assert history.read()[0]["loss"] == 0.1 + 0.2  # every digit


def test_cutting_to_more_than_there_is_keeps_all(tmp_path):
    history = History(tmp_path / "history.jsonl")
    history.append({"round": 1})
    history.replace(history.read()[:5])
    assert history.read() == [{"round": 1}]


def test_cutting_a_missing_history_creates_an_empty_one(tmp_path):
    history = History(tmp_path / "history.jsonl")
    history.replace(history.read()[:0])
    assert history.read() == []
    assert [path.name for path in tmp_path.iterdir()] == ["history.jsonl"]


@pytest.mark.parametrize("odd", ["[]", "null", "{}", "3", '{"a":' * 3000])
def test_a_line_that_is_no_record_ends_the_history(tmp_path, odd):
    path = tmp_path / "history.jsonl"
    path.write_text(f'{{"round": 1}}\n{odd}\n{{"round": 3}}\n')
    assert History(path).read() == [{"round": 1}]
