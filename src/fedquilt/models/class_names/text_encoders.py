"""Text encoders of other packages: imported on use, run once in a process, on the CPU."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from fedquilt.core.errors import UserError

OPEN_CLIP = "open-clip:"  # then MODEL/WEIGHTS, as open_clip calls them
WHOLE_NAMES = ("hf-hub:", "local-dir:")  # names of open_clip that stand for model and weights


@lru_cache(maxsize=8)
def open_clip_vectors(encoder: str, texts: tuple[str, ...]) -> Tensor:
    """By the text half of a CLIP model."""
    package = _package("open_clip", encoder)
    name = encoder.removeprefix(OPEN_CLIP)
    model, weights = (name, "") if name.startswith(WHOLE_NAMES) else _model_and_weights(name)
    with torch.random.fork_rng(devices=()), torch.no_grad():
        try:
            network = package.create_model_from_pretrained(
                model, pretrained=weights or None, return_transform=False, device="cpu"
            )
            tokens = package.get_tokenizer(model)(list(texts))
        except Exception as error:  # whatever the network, the hub or open_clip raises
            raise _undelivered(encoder, error) from error
        vectors: Tensor = network.eval().encode_text(tokens)
    return vectors.float()


@lru_cache(maxsize=8)
def sentence_vectors(folder: str, texts: tuple[str, ...]) -> Tensor:
    """By a sentence encoder that lies in a folder."""
    package = _package("sentence_transformers", folder)
    with torch.random.fork_rng(devices=()):
        try:
            model = package.SentenceTransformer(folder, device="cpu", local_files_only=True)
        except Exception as error:  # whatever is wrong with the folder
            raise _undelivered(folder, error) from error
        vectors: Tensor = model.encode(list(texts), convert_to_tensor=True, show_progress_bar=False)
    return vectors.detach().float().clone()  # what is made in inference mode cannot be trained on


def _model_and_weights(name: str) -> tuple[str, str]:
    model, _, weights = name.partition("/")
    if not model or not weights:
        raise UserError(
            f"text encoder '{OPEN_CLIP}{name}' does not say which weights; write "
            f"{OPEN_CLIP}MODEL/WEIGHTS, for example {OPEN_CLIP}ViT-B-16/openai"
        )
    return model, weights


def _package(name: str, encoder: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise UserError(
            f"text encoder {encoder!r} needs the package {name}, which cannot be imported "
            f"({error}); install it with pip install 'fedquilt[text]', or name a file of vectors "
            "that was made elsewhere (docs/text_embeddings.md)"
        ) from error


def _undelivered(encoder: str, error: Exception) -> UserError:
    first_line = str(error).partition("\n")[0]
    return UserError(
        f"text encoder {encoder!r} cannot be loaded ({type(error).__name__}: {first_line}); "
        "check its name, or make a file of vectors where it can be (docs/text_embeddings.md)"
    )
