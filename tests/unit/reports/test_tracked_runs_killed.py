"""With the trackers themselves: a run is killed, resumed, resumed once more; no point is twice."""

from __future__ import annotations

import json
import os
import sqlite3
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.tiny_runs import write_recipe

ROUNDS = 40
STEPS = "select step from metrics where key = ? order by step"
pytestmark = pytest.mark.slow


def command(folder: Path, name: str, *arguments: str) -> list[str]:
    main = "from fedquilt.cli.main import main; main()"
    options = ["--out", str(folder / "run"), "--track", name]
    return [sys.executable, "-c", main, "run", *arguments, *options]


@pytest.fixture
def killed_and_resumed(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Kill a run after five rounds, resume it, and resume it again when it is finished."""
    name = request.param
    pytest.importorskip(name, reason=f"needs the extra {name}")
    place = {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db", "WANDB_MODE": "offline"}
    options: dict[str, Any] = {"env": os.environ | place, "cwd": tmp_path}
    recipe = write_recipe(tmp_path / "recipe.json", "fedavg-pl", rounds=ROUNDS)
    history = tmp_path / "run" / "history.jsonl"
    with (tmp_path / "printed.txt").open("w") as file:
        begun = psutil.Popen(
            command(tmp_path, name, str(recipe)), stdout=file, stderr=file, **options
        )
    deadline = time.monotonic() + 300
    while not history.exists() or history.read_bytes().count(b"\n") < 5:
        assert time.monotonic() < deadline, (tmp_path / "printed.txt").read_text()
        time.sleep(0.02)
    begun.kill()
    begun.wait()
    assert history.read_bytes().count(b"\n") < ROUNDS
    for _ in range(2):
        subprocess.run(command(tmp_path, name, "--resume"), check=True, **options)
    return tmp_path


@pytest.mark.parametrize("killed_and_resumed", ["tensorboard"], indirect=True)
def test_tensorboard(killed_and_resumed: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(killed_and_resumed / "run" / "tensorboard"))
    events.Reload()
    assert [each.step for each in events.Scalars("loss")] == [*range(1, ROUNDS + 1)]
    assert [each.step for each in events.Scalars("result/macro_auc")] == [ROUNDS]


@pytest.mark.parametrize("killed_and_resumed", ["mlflow"], indirect=True)
def test_mlflow(killed_and_resumed: Path):
    # Its client would raise: warnings are errors in tests, and packages that it needs give some.
    database = sqlite3.connect(killed_and_resumed / "mlflow.db")

    def steps(name: str) -> list[int]:
        return [step for (step,) in database.execute(STEPS, (name,))]

    assert steps("loss") == [*range(1, ROUNDS + 1)]
    assert steps("result/macro_auc") == [ROUNDS]
    assert database.execute("select status from runs").fetchall() == [("FINISHED",)]
    database.close()


def records(path: Path) -> Iterator[bytes]:
    """The records of wandb's log, which is LevelDB's after a header of 7 bytes."""
    content, place, record = path.read_bytes(), 7, b""
    while place + 7 <= len(content):
        if (left := 32768 - place % 32768) < 7:  # the end of a block is left empty
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or its last part
            yield record
            record = b""


@pytest.mark.parametrize("killed_and_resumed", ["wandb"], indirect=True)
def test_wandb_offline(killed_and_resumed: Path):
    from wandb.proto.wandb_internal_pb2 import Record

    logged: Counter[tuple[str, int]] = Counter()
    (log,) = (killed_and_resumed / "run" / "wandb").glob("offline-run-*/*.wandb")
    for content in records(log):
        record = Record.FromString(content)
        found = {
            item.key or ".".join(item.nested_key): json.loads(item.value_json)
            for item in record.history.item
        }
        logged.update(
            (name, found["round"]) for name in ("loss", "result/macro_auc") if name in found
        )
    expected = [("loss", number) for number in range(1, ROUNDS + 1)]
    assert logged == Counter([*expected, ("result/macro_auc", ROUNDS)])
