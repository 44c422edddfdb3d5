"""Text vectors of class names, projected to the width of a model's features."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.core.errors import UserError, nearest
from fedquilt.core.seeding import generator_for
from fedquilt.models.class_names.finer_names import joined, read_finer_names
from fedquilt.models.class_names.text_encoders import OPEN_CLIP, open_clip_vectors, sentence_vectors
from fedquilt.models.class_names.text_files import FILES, read_text_vectors, write_text_vectors
from fedquilt.models.heads import Setting

SETTING, FINER_NAMES = "text_encoder", "finer_names"  # keys in head_settings
HASHED = "hashed-names"  # hashed character n-grams: the spelling, not the meaning
STORED = "stored"  # zeros: loading the weights fills them in
LEARNED = "learned"  # no text: the head trains its vectors
STATES = ("negative", "positive")  # label states, encoded after the class names
PROMPT = "The photo contains {name}."
HASHED_WIDTH = 1024
GRAM_SIZES = (2, 3, 4)


def text_vectors(
    encoder: str,
    class_names: Sequence[str],
    prompt: str,
    width: int,
    finer_names: str = "",
    join: str = "concat",
) -> Tensor:
    """(C + 2, width): a unit vector for each class name, then for each of ``STATES``.

    Args:
        finer_names: where the finer names of the classes are, which then replace their names; see
            :func:`read_finer_names`.
        join: one text of the most frequent finer names ("concat"), or the mean of their vectors.
    """
    if encoder == STORED:
        return torch.zeros(len(class_names) + len(STATES), width)
    if not finer_names:
        return fit_width(encode(encoder, class_names, prompt), width)
    finer = read_finer_names(finer_names, class_names)
    if join == "concat":
        return fit_width(encode(encoder, [joined(names) for names in finer], prompt), width)
    vectors = encode(encoder, [name for names in finer for name in names], prompt)
    *of_classes, states = vectors.split([*map(len, finer), len(STATES)])
    return fit_width(
        torch.cat([*(each.mean(0, keepdim=True) for each in of_classes), states]), width
    )


def save_text_vectors(
    path: str | Path, encoder: str, class_names: Sequence[str], prompt: str = PROMPT
) -> None:
    """Encode once and write a file, for clients that do not have the encoder."""
    names = [*class_names, *STATES]
    write_text_vectors(Path(path), dict(zip(names, encode(encoder, class_names, prompt))))


def encode(encoder: str, class_names: Sequence[str], prompt: str) -> Tensor:
    """Return the encoder's vectors; only sentence encoders use the prompt."""
    if "{name}" not in prompt:
        raise UserError(f"the prompt must contain {{name}} for the class name, found {prompt!r}")
    names = (*class_names, *STATES)
    if encoder == HASHED:
        return torch.stack([hashed_spelling(name) for name in names])
    texts = (*(prompt.replace("{name}", name) for name in class_names), *STATES)
    if encoder.startswith(OPEN_CLIP):
        return open_clip_vectors(encoder, texts)
    path = Path(encoder)
    if path.suffix in FILES:
        return read_text_vectors(path, names)
    if path.is_dir():
        return sentence_vectors(encoder, texts)
    raise UserError(
        f"unknown text encoder {encoder!r}{nearest(encoder, (HASHED, f'{OPEN_CLIP}MODEL/WEIGHTS'))}"
        f"; expected one of these, the folder of a sentence encoder, or a file that ends in "
        f"{' or '.join(FILES)}"
    )


def with_stored_vectors(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """Return the settings for a head whose weights, text vectors included, are loaded next."""
    encoder = settings.get(SETTING, LEARNED)
    kept = {key: value for key, value in settings.items() if key != FINER_NAMES}  # a path
    return kept if encoder == LEARNED else {**kept, SETTING: STORED}


def hashed_spelling(name: str) -> Tensor:
    """(1024,): counts of the name's character n-grams, each at an index given by its hash.

    Names that share n-grams are close to each other; case and spacing do not matter.
    """
    text = f" {' '.join(name.casefold().split())} "
    counts = torch.zeros(HASHED_WIDTH)
    for size in GRAM_SIZES:
        for start in range(len(text) - size + 1):
            gram = text[start : start + size].encode()
            code = int.from_bytes(hashlib.blake2b(gram, digest_size=8).digest(), "big")
            index, sign = divmod(code, 2)  # the sign keeps collisions from adding up
            counts[index % HASHED_WIDTH] += 1.0 if sign else -1.0
    return counts


def fit_width(vectors: Tensor, width: int) -> Tensor:
    """Normalise vectors to length 1 and project them to ``width``, by a fixed orthogonal matrix.

    Angles are kept exactly in more dimensions, approximately in fewer.
    """
    unit = F.normalize(vectors.to(torch.float64), dim=1)
    given = unit.shape[1]
    if given != width:
        draws = torch.randn(
            max(given, width),
            min(given, width),
            generator=generator_for("text vectors", given, width),
            dtype=torch.float64,
        )
        columns, _ = torch.linalg.qr(draws)
        unit = F.normalize(unit @ (columns if given > width else columns.T), dim=1)
    return unit.to(torch.float32)
