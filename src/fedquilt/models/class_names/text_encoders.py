"""Text encoders of optional packages: imported on use, run on the CPU, results cached."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from fedquilt.core.errors import UserError

OPEN_CLIP = "open-clip:"  # followed by MODEL/WEIGHTS, named as in open_clip
WHOLE_NAMES = ("hf-hub:", "local-dir:")  # open_clip names of a model with its weights


@lru_cache(maxsize=8)
def open_clip_vectors(encoder: str, texts: tuple[str, ...]) -> Tensor:
    """Encode texts with the text tower of a CLIP model."""
    package = _package("open_clip", encoder)
    name = encoder.removeprefix(OPEN_CLIP)
    model, weights = (name, "") if name.startswith(WHOLE_NAMES) else _model_and_weights(name)
    with torch.random.fork_rng(devices=()), torch.no_grad():
        try:
            network = package.create_model_from_pretrained(
                model, pretrained=weights or None, return_transform=False, device="cpu"
            )
            tokens = package.get_tokenizer(model)(list(texts))
        except Exception as error:  # the network, the hub and open_clip raise many kinds
            raise _loading_error(encoder, error) from error
        vectors: Tensor = network.eval().encode_text(tokens)
    return vectors.float()


@lru_cache(maxsize=8)
def sentence_vectors(folder: str, texts: tuple[str, ...]) -> Tensor:
    """Encode texts with a sentence encoder stored in a folder."""
    package = _package("sentence_transformers", folder)
    with torch.random.fork_rng(devices=()):
        try:
            model = package.SentenceTransformer(folder, device="cpu", local_files_only=True)
        except Exception as error:  # a faulty folder raises many kinds
            raise _loading_error(folder, error) from error
        vectors: Tensor = model.encode(list(texts), convert_to_tensor=True, show_progress_bar=False)
    return vectors.detach().float().clone()  # tensors of inference mode cannot be trained with


def _model_and_weights(name: str) -> tuple[str, str]:
    model, _, weights = name.partition("/")
    if not model or not weights:
        raise UserError(
            f"text encoder '{OPEN_CLIP}{name}' names no weights; write "
            f"{OPEN_CLIP}MODEL/WEIGHTS, for example {OPEN_CLIP}ViT-B-16/openai"
        )
    return model, weights


def _package(name: str, encoder: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise UserError(
            f"text encoder {encoder!r} needs the package {name}, which cannot be imported "
            f"({error}); install it with pip install 'fedquilt[text]', or give a file of vectors "
            "made elsewhere (docs/guides/text_embeddings.md)"
        ) from error


def _loading_error(encoder: str, error: Exception) -> UserError:
    first_line = str(error).partition("\n")[0]
    return UserError(
        f"text encoder {encoder!r} cannot be loaded ({type(error).__name__}: {first_line}); "
        "check its name, or give a file of vectors made elsewhere (docs/guides/text_embeddings.md)"
    )
