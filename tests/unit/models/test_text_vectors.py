from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from support.markdown_pages import blocks
from torch import nn, tensor

from fedquilt.core.errors import UserError
from fedquilt.models.class_names.text_encoders import open_clip_vectors, sentence_vectors
from fedquilt.models.class_names.text_vectors import (
    encode,
    fit_width,
    hashed_spelling,
    text_vectors,
)

NAMES = ("cat", "dog")
PROMPT = "The photo contains {name}."
SENTENCES = ["The photo contains cat.", "The photo contains dog.", "negative", "positive"]


@pytest.fixture(autouse=True)
def _forget_encoded_texts() -> None:
    open_clip_vectors.cache_clear()
    sentence_vectors.cache_clear()


def _cosine(one: str, two: str) -> float:
    return torch.cosine_similarity(hashed_spelling(one), hashed_spelling(two), dim=0).item()


def test_spelling_by_hand():
    # " a " has the n-grams " a", "a " and " a ".
    vector = hashed_spelling("a")
    assert vector.shape == (1024,)
    assert sorted(vector.abs().tolist())[-3:] == [1, 1, 1]
    assert vector.abs().sum() == 3
    assert hashed_spelling("").abs().sum() == 1  # two blanks


def test_names_with_similar_spelling_are_close():
    assert _cosine("lung nodule", "lung  Nodule ") == pytest.approx(1.0)
    assert _cosine("lung nodule", "lung nodules") > 0.8
    assert _cosine("lung nodule", "lung mass") > 0.2 > abs(_cosine("lung nodule", "fracture"))


def test_spelling_ignores_prompt_and_seed():
    torch.manual_seed(1)
    first = text_vectors("hashed-names", NAMES, PROMPT, 16)
    torch.manual_seed(2)
    assert torch.equal(text_vectors("hashed-names", NAMES, "a {name}", 16), first)
    assert first.shape == (4, 16)
    torch.testing.assert_close(first.norm(dim=1), torch.ones(4))


def test_vectors_of_the_right_width_are_only_normalised():
    assert fit_width(tensor([[3.0, 4.0]]), 2).tolist()[0] == pytest.approx([0.6, 0.8])


def test_angles_are_kept_in_more_dimensions_and_nearly_in_fewer():
    given = torch.randn(6, 40, generator=torch.Generator().manual_seed(0))
    unit = given / given.norm(dim=1, keepdim=True)
    wide = fit_width(given, 64)
    assert wide.shape == (6, 64)
    torch.testing.assert_close(wide @ wide.T, unit @ unit.T)
    narrow = fit_width(given, 30)
    assert narrow.shape == (6, 30)
    torch.testing.assert_close(narrow.norm(dim=1), torch.ones(6))
    assert torch.equal(fit_width(given, 30), narrow)
    # Cosines of 40 dimensions projected to 30: the error is of the order of 1 / (2 sqrt(30)).
    assert (narrow @ narrow.T - unit @ unit.T).abs().max() < 0.3


class _Clip(nn.Module):
    """Like an open_clip model; a text's vector is its length and its index."""

    def encode_text(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.stack([tokens, torch.arange(len(tokens))], 1).to(torch.float64)


def _open_clip(calls: list[object]) -> ModuleType:
    def create(model: str, **settings: object) -> nn.Module:
        if settings["pretrained"] == "nobody":
            raise RuntimeError("no such weights\nand more lines")
        torch.rand(3)  # random initialisation must not change later draws
        calls.append((model, settings["pretrained"], settings["device"]))
        return _Clip()

    def tokenizer(model: str) -> object:
        return lambda texts: calls.append(texts) or tensor([len(text) for text in texts])

    package = ModuleType("open_clip")
    package.create_model_from_pretrained = create
    package.get_tokenizer = tokenizer
    return package


def test_clip_encodes_the_prompts_once_and_keeps_the_generator(monkeypatch):
    calls: list[object] = []
    monkeypatch.setitem(sys.modules, "open_clip", _open_clip(calls))
    before = torch.get_rng_state()
    vectors = encode("open-clip:ViT-B-16/openai", NAMES, PROMPT)
    assert torch.equal(torch.get_rng_state(), before)
    assert calls == [("ViT-B-16", "openai", "cpu"), SENTENCES]
    assert vectors.tolist() == [[23, 0], [23, 1], [8, 2], [8, 3]]
    assert vectors.dtype == torch.float32
    assert torch.equal(encode("open-clip:ViT-B-16/openai", NAMES, PROMPT), vectors)
    assert len(calls) == 2  # cached
    encode("open-clip:hf-hub:someone/model", NAMES, PROMPT)
    assert calls[2] == ("hf-hub:someone/model", None, "cpu")


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        ("open-clip:ViT-B-16", "names no weights; write open-clip:MODEL/WEIGHTS"),
        ("open-clip:ViT-B-16/nobody", r"cannot be loaded \(RuntimeError: no such weights\)"),
        ("hashed-name", "did you mean 'hashed-names'"),
        ("vectors.npz", "no file of text vectors at vectors.npz"),
    ],
)
def test_unavailable_encoders_are_refused(monkeypatch, encoder: str, message: str):
    monkeypatch.setitem(sys.modules, "open_clip", _open_clip([]))
    with pytest.raises(UserError, match=message):
        encode(encoder, NAMES, PROMPT)


def test_a_missing_package_is_named_with_what_to_install(monkeypatch, tmp_path: Path):
    for package, encoder in (("open_clip", "open-clip:A/b"), ("sentence_transformers", tmp_path)):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(UserError, match=rf"package {package}.*fedquilt\[text\]"):
            encode(str(encoder), NAMES, PROMPT)


def test_a_folder_is_a_sentence_encoder(monkeypatch, tmp_path: Path):
    class Encoder:
        def __init__(self, folder: str, **settings: object) -> None:
            assert settings == {"device": "cpu", "local_files_only": True}
            if not (Path(folder) / "modules.json").exists():
                raise OSError("no modules.json")

        def encode(self, texts: list[str], **settings: object) -> torch.Tensor:
            assert texts == SENTENCES
            with torch.inference_mode():
                return torch.arange(8.0).reshape(4, 2)

    package = SimpleNamespace(SentenceTransformer=Encoder)
    monkeypatch.setitem(sys.modules, "sentence_transformers", package)
    with pytest.raises(UserError, match=r"cannot be loaded \(OSError: no modules.json\)"):
        encode(str(tmp_path), NAMES, PROMPT)
    (tmp_path / "modules.json").touch()
    vectors = encode(str(tmp_path), NAMES, PROMPT)
    assert vectors.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert not vectors.is_inference()


def test_the_program_in_the_documentation_makes_a_file(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "open_clip", _open_clip([]))
    (program,) = blocks("docs/guides/text_embeddings.md", "python")
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    runpy.run_path("program.py")
    names = ("Cardiomegaly", "Edema", "Pleural Effusion")
    made = encode("vectors.safetensors", names, PROMPT)
    assert torch.equal(made, encode("open-clip:ViT-B-16/openai", names, PROMPT))
