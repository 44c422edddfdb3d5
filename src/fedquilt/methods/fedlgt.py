"""FedLGT (Liu et al., AAAI 2024): language-guided transformer for federated multi-label images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.settings import added
from fedquilt.data.client_data import ClientData
from fedquilt.losses.label_states import mask_uncertain
from fedquilt.methods.fedc_tran import FedCTran
from fedquilt.models.class_names.text_vectors import STORED
from fedquilt.models.heads import Setting
from fedquilt.models.spec import ModelSpec
from fedquilt.training.activity import Activity, RunSize
from fedquilt.training.method import Local, State


@dataclass(frozen=True, kw_only=True)
class FedLGT(FedCTran):
    """FedC-Tran with text embeddings of the label names; uncertain labels are kept hidden.

    The embeddings are fixed and equal at all clients. A label that the received model is uncertain
    about, with no label revealed, is hidden: the client then trains on what the global model does
    not know yet.

    Deviations: the paper's embeddings are CLIP's. The default here needs no download, but encodes
    the spelling of the names and not their meaning: choose a text encoder
    (docs/guides/text_embeddings.md). The received model runs without dropout. In the public code,
    the variant ``released``, uncertain labels are hidden in the first image of a batch only, and
    the words for positive and negative are swapped.
    """

    text_encoder: str = "hashed-names"  # or open-clip:MODEL/WEIGHTS, a folder, a file of vectors;
    # "learned": trained embeddings, as in FedC-Tran
    prompt: str = "The photo contains {name}."  # for encoders that read sentences
    finer_names: str | None = added(None)  # in place of class names: a JSON file, or FLAIR's folder
    join: Literal["concat", "average"] = added("concat")  # finer names: one text, or mean vector
    swapped_states: bool = False  # the word "positive" for a negative label, as in the public code
    calibrate: bool = True  # CA-MLE: hide labels that the received model is uncertain about
    threshold: float = 0.5  # tau: the probability of greatest uncertainty
    margin: float = 0.02  # epsilon: labels this close to it are uncertain
    first_sample_only: bool = False  # calibrate the first image of each batch only

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "released": {"first_sample_only": True, "swapped_states": True}
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.threshold <= 1 or self.margin < 0:
            raise UserError(
                "method.threshold must be in 0..1 and method.margin 0 or more, found "
                f"{self.threshold} and {self.margin}"
            )
        if self.text_encoder == STORED:
            raise UserError(
                f"method.text_encoder {STORED!r} means embeddings stored in a trained model; to "
                "train one, choose an encoder (docs/guides/text_embeddings.md)"
            )

    def model_spec(self, wanted: ModelSpec) -> ModelSpec:
        plain = super().model_spec(wanted)
        text: dict[str, Setting] = {
            "text_encoder": self.text_encoder,
            "prompt": self.prompt,
            "swapped_states": self.swapped_states,
        }
        if self.finer_names is not None:
            text |= {"finer_names": self.finer_names, "join": self.join}
        return replace(plain, head_settings={**plain.head_settings, **text})

    def begin(self, local: Local) -> State:
        return {**super().begin(local), "hidden": local.scalar(0.0)}

    def counted(self, local: Local, hidden: Tensor) -> State:
        return {**local.state, "hidden": local.state.get("hidden", 0) + hidden}

    def activity(self, data: ClientData, state: State) -> Activity:
        hidden = {"uncertain labels hidden": int(state.get("hidden", 0))}
        return hidden if self.calibrate else {}

    def why_idle(self, what: str, size: RunSize) -> str:
        return (
            f"no revealed label had a probability within {self.margin:g} of {self.threshold:g}; "
            "raise method.margin"
        )

    def calibrated(self, local: Local, images: Tensor, states: Tensor) -> Tensor:
        if not self.calibrate:
            return states
        count = 1 if self.first_sample_only else len(images)
        logits = local.forward(local.received["weights"], images[:count]).logits  # none revealed
        probabilities = torch.sigmoid(logits.float())
        masked = mask_uncertain(states[:count], probabilities, self.threshold, self.margin)
        return torch.cat([masked, states[count:]])
