"""Scores per image: what a run keeps of its test images, and how the file is read back."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.tiny_runs import CLIENTS, make_run

from fedquilt.core.errors import UserError
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.runs import run_end
from fedquilt.runs.finished_run import Run
from fedquilt.runs.scores import Scores, logits_size, read_scores, scores_path, write_scores

LOGITS = torch.tensor([[16.7, -2.0], [17.9, 0.5], [-0.25, 3.0]])


def images(**changes) -> MultiLabelDataset:
    """Two images of one patient and one of another; the second label of the first is blank."""
    content = {
        "images": torch.zeros(3, 1, 4, 4, dtype=torch.uint8),
        "labels": torch.tensor([[1, 7], [0, 1], [1, 0]], dtype=torch.uint8),
        "known": torch.tensor([[True, False], [True, True], [True, True]]),
        "classes": ("mass", "<b>cyst"),
        "ids": ("a.png", "b.png", "c.png"),
        "groups": ("Ann Smith", "Bo Li", "Ann Smith"),
        "sites": ("East", "East", "West"),
    }
    return MultiLabelDataset(**(content | changes))


def scores(**changes) -> Scores:
    return Scores.of(images(**changes), {"global": LOGITS}, part="test", round_count=5)


def test_everything_comes_back(tmp_path: Path):
    write_scores(tmp_path, scores())
    read = read_scores(tmp_path)
    assert (read.part, read.round, len(read)) == ("test", 5, 3)
    assert (read.classes, read.ids) == (("mass", "<b>cyst"), ("a.png", "b.png", "c.png"))
    assert read.labels.tolist() == [[1, 0], [0, 1], [1, 0]]  # the blank entry is 0, not 7
    assert read.known.tolist() == images().known.tolist()
    assert read.patients is not None
    assert read.patients.tolist() == [0, 1, 0]
    assert read.sites == ("East", "East", "West")
    assert list(read.logits) == ["global"]
    assert read.logits["global"].dtype == np.float32
    # Probabilities would be equal here: the sigmoid of either is 1.0 in float32.
    assert torch.sigmoid(LOGITS[:2, 0]).unique().tolist() == [1.0]
    assert read.logits["global"][:2, 0].tolist() == LOGITS[:2, 0].tolist()


def test_no_name_of_a_patient_is_in_the_file(tmp_path: Path):
    content = write_scores(tmp_path, scores()).read_bytes()
    assert b"Smith" not in content
    assert b"b.png".hex() in content.hex() or "b.png".encode("utf-32-le") in content


def test_data_without_patients_and_sites(tmp_path: Path):
    write_scores(tmp_path, scores(groups=None, sites=None))
    assert read_scores(tmp_path).patients is None
    assert read_scores(tmp_path).sites is None


def test_the_hash_is_of_ids_labels_and_mask_only():
    reference = scores().hash
    garbage = torch.tensor([[1, 0], [0, 1], [1, 0]], dtype=torch.uint8)
    assert scores(labels=garbage).hash == reference  # differs under the mask only
    assert replace(scores(), logits={}).hash == reference
    assert scores(groups=None).hash == reference
    flipped = torch.tensor([[1, 0], [0, 1], [0, 0]], dtype=torch.uint8)
    complete = torch.ones(3, 2, dtype=torch.bool)
    for other in ({"labels": flipped}, {"known": complete}, {"ids": ("a.png", "b.png", "d.png")}):
        assert scores(**other).hash != reference


def test_the_same_scores_give_the_same_bytes(tmp_path: Path):
    one = write_scores(tmp_path / "one", scores()).read_bytes()
    assert write_scores(tmp_path / "two", scores()).read_bytes() == one


def test_a_folder_without_scores_says_how_to_get_them(tmp_path: Path):
    with pytest.raises(UserError, match=r"no scores per image .* --keep-scores"):
        read_scores(tmp_path)
    with pytest.raises(UserError, match="validation part; they are written while the run trains"):
        read_scores(tmp_path, "validation")


def test_a_damaged_file_is_refused(tmp_path: Path):
    path = write_scores(tmp_path, scores())
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"cannot be read .* --keep-scores"):
        read_scores(tmp_path)


def test_an_altered_file_is_refused(tmp_path: Path):
    path = write_scores(tmp_path, scores())
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    arrays["labels"] = 1 - arrays["labels"]
    np.savez(path, **arrays)
    with pytest.raises(UserError, match="was altered"):
        read_scores(tmp_path)


def test_reading_needs_no_torch(tmp_path: Path):
    write_scores(tmp_path, scores())
    code = (
        "import sys; from pathlib import Path; from fedquilt.runs.scores import read_scores; "
        f"read_scores(Path({str(tmp_path)!r})); print('torch' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"


def test_the_size_that_is_stated():
    assert logits_size(20_000, 1_628, 1) == 130_240_000


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("runs") / "fedmlp")


def test_a_run_keeps_its_test_scores(finished: Run):
    test = finished.recipe.data.load(Path("unused")).test
    kept = finished.scores
    assert (kept.ids, kept.classes, kept.round) == (test.ids, test.classes, 2)
    again = torch.sigmoid(torch.tensor(kept.logits["global"]))
    assert torch.equal(again, finished.predict(test.images).probabilities)


def test_a_run_keeps_each_clients_scores(tmp_path: Path):
    kept = make_run(tmp_path / "local", "local-only").scores
    assert tuple(kept.logits) == CLIENTS
    assert not np.array_equal(kept.logits["client-0"], kept.logits["client-1"])


def test_large_scores_are_written_on_request_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run_end, "MAX_BYTES", 4 * 40 * 3 - 1)  # a byte less than they take
    run = make_run(tmp_path / "run")
    assert not scores_path(run.path).exists()
    with pytest.raises(UserError, match="--keep-scores"):
        _ = run.scores
    test = run.recipe.data.load(Path("unused")).test
    assert run.keep_scores(test) == scores_path(run.path)
    assert read_scores(run.path).ids == test.ids
