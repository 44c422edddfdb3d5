"""Scores: the logits of a run's models on its test images, with what is needed to judge them.

The file ``scores/PART.npz`` of a run folder. Every later statistic is computed from it, without
the model and without the images. Reading it needs numpy, not torch.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from fedquilt.core.atomic_files import write_bytes
from fedquilt.core.errors import UserError
from fedquilt.core.parsed_text import UNREADABLE, parse_json

if TYPE_CHECKING:
    from torch import Tensor

    from fedquilt.data.dataset import MultiLabelDataset

FORMAT = "fedquilt-scores-1"
MAX_BYTES = 50_000_000  # of logits in one file; a run writes more only on request
Part: TypeAlias = Literal["test", "validation"]
PARTS: tuple[str, ...] = get_args(Part)
Logits: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False, kw_only=True)
class Scores:
    """Logits of one part of the data; what is not annotated has the label 0 and is not known.

    Logits, not probabilities: float32 probabilities near 0 or 1 have ties that the network did not
    make. The sigmoid of a logit is the probability of its class, with a softmax head too.
    """

    part: Part
    round: int  # the number of rounds after which these models were scored
    classes: tuple[str, ...]
    ids: tuple[str, ...]  # names of the images
    labels: npt.NDArray[np.uint8]  # (N, C), 0 where not known
    known: npt.NDArray[np.bool_]  # (N, C)
    logits: Mapping[str, Logits]  # "global", or each client's own model by its name: (N, C)
    patients: npt.NDArray[np.int64] | None = None  # (N,) numbered in order of appearance
    sites: tuple[str, ...] | None = None  # the site of each image

    def __post_init__(self) -> None:
        shape = (len(self.ids), len(self.classes))
        for name, array in (("labels", self.labels), ("known", self.known), *self.logits.items()):
            if array.shape != shape:
                raise ValueError(f"{name} has the shape {array.shape}, expected {shape}")
        for name, column in (("patients", self.patients), ("sites", self.sites)):
            if column is not None and len(column) != len(self.ids):
                raise ValueError(f"{name} has {len(column)} entries for {len(self.ids)} images")
        if self.part not in PARTS:
            raise ValueError(f"the part is {self.part!r}, expected one of {PARTS}")

    @classmethod
    def of(
        cls, data: MultiLabelDataset, logits: Mapping[str, Tensor], *, part: Part, round_count: int
    ) -> Scores:
        """Collect what is known of the images of a data set, and each model's logits for them."""
        known = data.known.cpu().numpy()
        return cls(
            part=part,
            round=round_count,
            classes=data.classes,
            ids=data.ids,
            labels=np.where(known, data.labels.cpu().numpy(), 0).astype(np.uint8),
            known=known,
            logits={name: each.float().cpu().numpy() for name, each in logits.items()},
            patients=None if data.groups is None else _numbered(data.groups),
            sites=data.sites,
        )

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def hash(self) -> str:
        """Of the images' names, the classes, the labels and the mask, in this order of rows.

        Scores with equal hashes are of the same test, and can be compared image by image.
        """
        digest = hashlib.sha256(_json({"classes": self.classes, "ids": self.ids}).encode())
        for array in (self.labels, self.known):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def with_logits(self, logits: Mapping[str, Logits]) -> Scores:
        return replace(self, logits=logits)


def logits_size(images: int, classes: int, models: int) -> int:
    """The size of a file's logits in bytes."""
    return 4 * images * classes * models


def too_large(run: Path, size: int, part: Part = "test") -> str:
    """Return the notice of a run that does not write its scores unasked."""
    text = (
        f"the scores of the {part} images would take {size / 1e6:,.0f} MB, more than "
        f"{MAX_BYTES / 1e6:,.0f} MB, and are not kept"
    )
    if part != "test":
        return text
    return f"{text}; where you need them: fedquilt evaluate {run} --keep-scores"


def scores_path(run: Path, part: Part = "test") -> Path:
    return run / "scores" / f"{part}.npz"


def write_scores(run: Path, scores: Scores) -> Path:
    """Write the scores below a run folder, and return the file."""
    header = {
        "format": FORMAT,
        "part": scores.part,
        "round": scores.round,
        "classes": scores.classes,
        "models": list(scores.logits),
        "ids": scores.ids,
        "sites": scores.sites,
        "hash": scores.hash,
    }
    arrays: dict[str, Any] = {"labels": scores.labels, "known": scores.known}
    if scores.patients is not None:
        arrays["patients"] = scores.patients
    for place, logits in enumerate(scores.logits.values()):
        arrays[f"logits_{place}"] = np.asarray(logits, dtype=np.float32)
    content = io.BytesIO()
    np.savez(content, header=np.array(_json(header)), **arrays)
    path = scores_path(run, scores.part)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, content.getvalue())
    return path


def read_scores(run: Path, part: Part = "test") -> Scores:
    """Read the scores of a run folder; raise UserError if it has none, or a damaged file."""
    path = scores_path(run, part)
    if not path.exists():
        raise UserError(f"{run} holds no scores per image of its {part} part{_advice(run, part)}")
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            header = parse_json(str(file["header"]))
            scores = _from_arrays(header, {name: file[name] for name in file.files})
    except UNREADABLE as error:
        raise UserError(f"{path} cannot be read ({error}){_advice(run, part)}") from error
    if scores.hash != header["hash"]:
        raise UserError(f"{path} was altered after it was written{_advice(run, part)}")
    return scores


def _advice(run: Path, part: Part) -> str:
    if part != "test":
        return "; they are written while the run trains"
    return f"; write them with its model: fedquilt evaluate {run} --keep-scores"


def _from_arrays(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> Scores:
    if header["format"] != FORMAT:
        raise ValueError(f"its format is {header['format']!r}, expected {FORMAT!r}")
    sites, models = header["sites"], header["models"]
    return Scores(
        part=header["part"],
        round=header["round"],
        classes=tuple(header["classes"]),
        ids=tuple(header["ids"]),
        labels=arrays["labels"],
        known=arrays["known"],
        logits={name: arrays[f"logits_{place}"] for place, name in enumerate(models)},
        patients=arrays.get("patients"),
        sites=None if sites is None else tuple(sites),
    )


def _numbered(groups: Sequence[str]) -> npt.NDArray[np.int64]:
    """Number the patients, so that the file holds no patient's name."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in groups], dtype=np.int64)


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"))
