"""The models of a run: write them as safetensors and JSON, read them and predict."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fedquilt.core.errors import UserError, nearest
from fedquilt.core.tree import Weights
from fedquilt.data.augmentation.views import Preprocessing, Views, normalise
from fedquilt.data.images.bad_image import BadImage
from fedquilt.data.images.decoding import Decoding, decode_image
from fedquilt.metrics.evaluation import predict_logits
from fedquilt.models.grad_cam import grad_cam
from fedquilt.models.heads.ladm import attention_maps
from fedquilt.models.network import Network, Output, write_weights
from fedquilt.runs.assessment import GLOBAL
from fedquilt.runs.model_json import (
    Card,
    Which,
    card_of,
    decoding,
    model_spec,
    read_card,
)
from fedquilt.runs.run_folder import MODELS_AT_SITES, RunFolder
from fedquilt.runs.stopped_run import is_stopped, write_stopped_models
from fedquilt.runs.unlike_training import Kept, UnlikeTraining, read_unlike_training
from fedquilt.training.task import Task

log = logging.getLogger(__name__)

MAPS_AT_ONCE = 32  # images: gradients need the memory of training


def load_weights(folder: RunFolder, card: Card, name: str) -> Weights:
    weights: Weights = load_file(Path(folder.path / card["files"][name]))
    return weights


@dataclass(frozen=True)
class TrainedModels:
    """The global model of a run, or one model per client.

    Only ``model.json`` and the weights are read, so the method need not be installed.
    """

    folder: RunFolder
    which: Which | None = None  # of the best or the last round; None: the one that is served

    @cached_property
    def card(self) -> Card:
        """What the model predicts and expects; see ``runs/model_json.py``."""
        if self.folder.result.exists() and not self.folder.model.exists():
            raise UserError(f"{self.folder.path} is a finished study; {MODELS_AT_SITES}")
        if is_stopped(self.folder):
            log.warning("%s", write_stopped_models(self.folder))
        return card_of(read_card(self.folder), self.which, self.folder.path)

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.card["classes"])

    @property
    def clients(self) -> tuple[str, ...]:
        """The clients that have their own model; empty if there is a global model."""
        return tuple(name for name in self.card["files"] if name != GLOBAL)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        channels, height, width = self.card["image_shape"]
        return channels, height, width

    @property
    def decoding(self) -> Decoding:
        """How to decode an image file as in training."""
        return decoding(self.card)

    def decode(self, paths: Sequence[str | Path]) -> Tensor:
        """Read image files as uint8 (N, channels, height, width)."""
        pixels = []
        for path in map(Path, paths):
            if not path.is_file():
                raise UserError(f"there is no image file {path}")
            try:
                pixels.append(torch.tensor(decode_image(path, self.decoding).pixels))
            except BadImage as bad:
                raise UserError(f"{path} cannot be used: {bad.detail}") from None
        empty = torch.zeros(0, *self.image_shape, dtype=torch.uint8)
        return torch.stack(pixels) if pixels else empty

    def probabilities(self, images: Tensor, client: str | None, device: str = "cpu") -> Tensor:
        """Return (N, C) for uint8 images, by the model of ``client`` or the global model."""
        return torch.sigmoid(self.logits(images, client, device)).cpu()

    def logits(self, images: Tensor, client: str | None, device: str = "cpu") -> Tensor:
        """Return float32 logits (N, C) on ``device``; their sigmoid is the probability."""
        self.check_images(images)
        return self.logits_by(self.network(client, device), images, device)

    def logits_by(self, network: Network, images: Tensor, device: str) -> Tensor:
        """Return the logits of a network that is loaded already, as for many small batches."""
        return self.judged_by(network, images, device)[0]

    def judged_by(
        self, network: Network, images: Tensor, device: str
    ) -> tuple[Tensor, list[str | None]]:
        """Return the logits and, for each image, by what it is unlike the training images.

        That is None for a model that stores nothing to compare with.
        """
        if not len(images):
            return torch.zeros(0, len(self.classes), device=device), []

        def forward(_: Weights, batch: Tensor) -> Output:
            with torch.no_grad():
                output: Output = network(batch)
            return output

        kept = Kept(forward)
        logits = predict_logits(
            kept,
            {},
            images,
            self._task,
            batch_size=self.card["batch_size"],
            device=torch.device(device),
        )
        if self.unlike_training is None:
            return logits, [None] * len(images)
        return logits, [*self.unlike_training.words(kept.features(), images)]

    @cached_property
    def unlike_training(self) -> UnlikeTraining | None:
        return read_unlike_training(self.folder, self.card)

    def features(
        self, images: Tensor, client: str | None, device: str = "cpu"
    ) -> tuple[Tensor, bool]:
        """Return (N, C, d) and True if the head has a feature per class, else (N, d) and False."""

        def of(network: Network, batch: Tensor) -> Tensor:
            with torch.no_grad():
                output: Output = network(batch)
            return output.features if output.per_class is None else output.per_class

        found = self._maps(of, images, client, device)
        return found, found.ndim == 3

    def attention(self, images: Tensor, client: str | None, device: str = "cpu") -> Tensor:
        """Return each class's attention map, (N, C, height, width); see ``attention_maps``."""
        return self._maps(attention_maps, images, client, device)

    def heat_maps(self, images: Tensor, client: str | None, device: str = "cpu") -> Tensor:
        """Return each class's Grad-CAM, (N, C, height, width); see ``grad_cam``."""
        return self._maps(grad_cam, images, client, device)

    def _maps(
        self,
        maps_of: Callable[[Network, Tensor], Tensor],
        images: Tensor,
        client: str | None,
        device: str,
    ) -> Tensor:
        self.check_images(images)
        network = self.network(client, device)
        mean, std = self._task.preprocessing.mean, self._task.preprocessing.std
        batches = images.split(min(self.card["batch_size"], MAPS_AT_ONCE))
        return torch.cat(
            [maps_of(network, normalise(batch.to(device), mean, std)).cpu() for batch in batches]
        )

    def check_images(self, images: Tensor) -> None:
        if images.dtype != torch.uint8 or tuple(images.shape[1:]) != self.image_shape:
            raise UserError(
                f"expected uint8 images of shape (N, {', '.join(map(str, self.image_shape))}), "
                f"found {str(images.dtype).removeprefix('torch.')} of shape {tuple(images.shape)}"
            )

    def model_name(self, client: str | None) -> str:
        """Return the name of the model to use; raise UserError if there is no such model."""
        name = GLOBAL if client is None else client
        if name not in self.card["files"]:
            self._refuse_client(client)
        return name

    def hash_of(self, client: str | None) -> str:
        """Return the SHA-256 of the weights file, which names the model in predictions."""
        path = self.folder.path / self.card["files"][self.model_name(client)]
        with path.open("rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"

    def network(self, client: str | None, device: str = "cpu") -> Network:
        """Build the network, with the weights of ``client``'s model or the global one."""
        name = self.model_name(client)
        network = self._task.build_network().eval()
        try:
            write_weights(network, load_weights(self.folder, self.card, name))
        except (OSError, SafetensorError) as error:
            raise UserError(
                f"the weights {self.folder.path / self.card['files'][name]} cannot be read "
                f"({error}); write them again: fedquilt run --out {self.folder.path} --resume"
            ) from error
        return network.to(device)

    def _refuse_client(self, client: str | None) -> None:
        if not self.clients:
            raise UserError("this run has one global model; leave out client=NAME (--client)")
        if client is None:
            raise UserError(
                "every client of this run has its own model; choose one with client=NAME "
                f"(--client): {', '.join(self.clients)}"
            )
        raise UserError(f"no client {client!r} has a model{nearest(client, self.clients)}")

    @cached_property
    def _task(self) -> Task:
        spec = model_spec(self.card)
        return Task(
            classes=self.classes,
            clients=self.clients,
            image_shape=self.image_shape,
            model=spec,
            preprocessing=Preprocessing(views=Views(), mean=spec.mean, std=spec.std),
            round_count=1,  # no training
            seed=self.card["seed"],
        )


def open_models(path: str | Path, which: Which | None = None) -> TrainedModels:
    """Open the models in a run folder or an exported folder, by default those that are served."""
    folder = RunFolder(Path(path))
    if not folder.path.is_dir():
        raise UserError(f"there is no run folder {path}")
    return TrainedModels(folder, which)
