"""Finer names in place of class names: joined into a text, or the mean of their vectors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from support.published_folders import write_flair
from torch import tensor

from fedquilt.core.errors import UserError
from fedquilt.data.sources.flair.labels import finer_labels
from fedquilt.data.sources.flair.load import Flair
from fedquilt.models.class_names import text_vectors as module
from fedquilt.models.class_names.finer_names import joined, read_finer_names
from fedquilt.models.class_names.text_vectors import hashed_spelling, text_vectors
from fedquilt.models.heads.c_tran import build_c_tran
from fedquilt.models.spec import ModelSpec

FINER = {"animal": ["dog", "cat"], "food": ["bread"], "plant": ["oak"]}
CLASSES = ("food", "animal")
PROMPT = "The photo contains {name}."


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "finer.json"
    path.write_text(json.dumps(FINER))
    return str(path)


def test_names_are_read_in_the_order_of_the_classes(file: str) -> None:
    assert read_finer_names(file, CLASSES) == [("bread",), ("dog", "cat")]


def test_twenty_names_at_most_are_joined() -> None:
    assert joined(("dog", "cat")) == "dog,cat"
    assert joined([str(number) for number in range(30)]).split(",")[-1] == "19"


def test_joined_names_are_one_text_of_the_prompt(file: str, monkeypatch) -> None:
    seen: list[tuple[str, ...]] = []

    def remember(encoder: str, texts: tuple[str, ...]) -> torch.Tensor:
        seen.append(texts)
        return torch.eye(4)

    monkeypatch.setattr(module, "open_clip_vectors", remember)
    vectors = text_vectors("open-clip:A/b", CLASSES, PROMPT, 4, file)
    assert seen == [
        ("The photo contains bread.", "The photo contains dog,cat.", "negative", "positive")
    ]
    assert torch.equal(vectors, torch.eye(4))


def test_averaged_names_are_the_mean_of_vectors_that_are_not_scaled_first(
    file: str, monkeypatch
) -> None:
    # bread, dog, cat, negative, positive; the mean of (0, 4) and (4, 0) weighs both alike, and
    # (0, 8) with (4, 0) leans to the first.
    made = tensor([[2.0, 0.0], [0.0, 8.0], [4.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    monkeypatch.setattr(module, "open_clip_vectors", lambda encoder, texts: made)
    vectors = text_vectors("open-clip:A/b", CLASSES, PROMPT, 2, file, "average")
    lean = F.normalize(tensor([[2.0, 4.0]]))[0]
    torch.testing.assert_close(
        vectors, torch.stack([tensor([1.0, 0.0]), lean, tensor([1.0, 0.0]), tensor([0.0, 1.0])])
    )


def test_the_spelling_is_that_of_the_finer_names(file: str) -> None:
    vectors = text_vectors("hashed-names", CLASSES, PROMPT, 1024, file)
    torch.testing.assert_close(vectors[1], F.normalize(hashed_spelling("dog,cat"), dim=0))
    plain = text_vectors("hashed-names", CLASSES, PROMPT, 1024)
    assert not torch.equal(vectors[:2], plain[:2])
    assert torch.equal(vectors[2:], plain[2:])  # the states


def test_flairs_folder_gives_its_fine_classes_by_frequency(tmp_path: Path) -> None:
    root = write_flair(tmp_path / "flair")
    lines = ["cat -> animal", "dog -> animal", "waffle -> food", "bread -> food"]
    (root / "label_relationship.txt").write_text("\n".join([*lines, "structure -> structure", ""]))
    found = read_finer_names(str(root), ("animal", "food", "structure"))
    # In the six images: bread, cat and dog 2 each, waffle 1; of equals the last by name is first.
    assert found == [("dog", "cat"), ("bread", "waffle"), ("structure",)]


def test_a_damaged_relationship_is_explained(tmp_path: Path) -> None:
    root = write_flair(tmp_path / "flair")
    with pytest.raises(UserError, match=r"holds no label_relationship\.txt"):
        finer_labels(Flair.origin, root)
    (root / "label_relationship.txt").write_text("cat animal\n")
    with pytest.raises(UserError, match=r"has the line 'cat animal'; expected lines such as"):
        finer_labels(Flair.origin, root)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ("{", "cannot be read"),
        ('["dog"]', "must hold a list of names for each class"),
        ('{"food": "bread"}', "must hold a list of names for each class"),
        ('{"foods": ["bread"]}', "no finer names of class 'food'; did you mean 'foods'"),
        ('{"food": []}', "no finer names of class 'food'"),
    ],
)
def test_a_file_without_the_names_is_explained(
    tmp_path: Path, content: str | None, message: str
) -> None:
    path = tmp_path / f"{abs(hash(content))}.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=message):
        read_finer_names(str(path), CLASSES)


def test_a_stored_model_names_no_file(file: str) -> None:
    settings = {"text_encoder": "hashed-names", "finer_names": file, "join": "average"}
    spec = ModelSpec(backbone="small-cnn", head="c-tran", head_settings=settings).for_loading()
    assert spec.head_settings == {"text_encoder": "stored", "join": "average"}
    head = build_c_tran(64, 2, 0, class_names=CLASSES, **settings)
    expected = text_vectors("hashed-names", CLASSES, PROMPT, 64, file, "average")
    assert torch.equal(head.labels, expected[:2])
