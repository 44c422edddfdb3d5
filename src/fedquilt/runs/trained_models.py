"""The models of a run: write them as safetensors and JSON, read them and predict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from fedquilt.core.atomic_files import write_bytes, write_json
from fedquilt.core.errors import UserError, nearest
from fedquilt.core.settings import plain, read
from fedquilt.core.tree import Weights
from fedquilt.data.augmentation.views import Preprocessing, normalise
from fedquilt.data.images.bad_image import BadImage
from fedquilt.data.images.decoding import Decoding, decode_image
from fedquilt.metrics.evaluation import predict_logits
from fedquilt.models.heads.ladm import attention_maps
from fedquilt.models.network import Network, Output, write_weights
from fedquilt.models.spec import ModelSpec
from fedquilt.recipes.recipe import Recipe
from fedquilt.runs.assessment import GLOBAL
from fedquilt.runs.run_folder import MODELS_AT_SITES, RunFolder
from fedquilt.training.task import Task


def save_models(
    folder: RunFolder, recipe: Recipe, task: Task, models: Mapping[str, Weights]
) -> None:
    """Write the weights of the global model or of each client's, and the model card."""
    files = {}
    for place, (name, weights) in enumerate(models.items()):
        file = "model.safetensors" if name == GLOBAL else f"models/client-{place:04d}.safetensors"
        files[name] = file
        path = folder.path / file
        path.parent.mkdir(exist_ok=True)
        write_bytes(path, save({key: value.cpu().contiguous() for key, value in weights.items()}))
    write_json(
        folder.model,
        {
            "classes": list(task.classes),
            "image_shape": list(task.image_shape),
            "model": plain(task.model.for_loading(), {}),
            "threshold": recipe.evaluation.threshold,
            "files": files,
        },
    )


def load_weights(folder: RunFolder, card: Mapping[str, Any], name: str) -> Weights:
    weights: Weights = load_file(Path(folder.path / card["files"][name]))
    return weights


@dataclass(frozen=True)
class TrainedModels:
    """The global model of a run, or one model per client."""

    folder: RunFolder
    recipe: Recipe

    @cached_property
    def card(self) -> dict[str, Any]:
        """The model card: classes, image shape, network and threshold."""
        if self.folder.result.exists() and not self.folder.model.exists():
            raise UserError(f"{self.folder.path} is a finished study; {MODELS_AT_SITES}")
        card: dict[str, Any] = self.folder.read_json(self.folder.model)
        return card

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
        channels, height, width = self.image_shape
        decoding = getattr(self.recipe.data, "decoding", None)  # of a source with image files
        if isinstance(decoding, Decoding):
            return decoding
        if height == width and channels == 1:
            return Decoding(size=height, channels=1)
        if height == width and channels == 3:
            return Decoding(size=height, channels=3)
        raise UserError(
            f"this run was trained on data of shape {channels} x {height} x {width}, which cannot "
            "be read from an image file; use Python and pass a uint8 tensor of that shape"
        )

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
        self._check_images(images)
        network = self._network(client).to(device)
        if not len(images):
            return torch.zeros(0, self._task.class_count, device=device)

        def forward(_: Weights, batch: Tensor) -> Output:
            with torch.no_grad():
                output: Output = network(batch)
            return output

        return predict_logits(
            forward,
            {},
            images,
            self._task,
            batch_size=self.recipe.evaluation.batch_size,
            device=torch.device(device),
        )

    def attention(self, images: Tensor, client: str | None, device: str = "cpu") -> Tensor:
        """Return each class's attention map, (N, C, height, width); see ``attention_maps``."""
        self._check_images(images)
        network = self._network(client).to(device)
        preprocessing = self._task.preprocessing
        maps = [
            attention_maps(
                network, normalise(batch.to(device), preprocessing.mean, preprocessing.std)
            ).cpu()
            for batch in images.split(self.recipe.evaluation.batch_size)
        ]
        return torch.cat(maps)

    def _check_images(self, images: Tensor) -> None:
        if images.dtype != torch.uint8 or tuple(images.shape[1:]) != self.image_shape:
            raise UserError(
                f"expected uint8 images of shape (N, {', '.join(map(str, self.image_shape))}), "
                f"found {str(images.dtype).removeprefix('torch.')} of shape {tuple(images.shape)}"
            )

    def _network(self, client: str | None) -> Network:
        name = GLOBAL if client is None else client
        if name not in self.card["files"]:
            self._refuse_client(client)
        network = self._task.build_network().eval()
        try:
            write_weights(network, load_weights(self.folder, self.card, name))
        except (OSError, SafetensorError) as error:
            raise UserError(
                f"the weights {self.folder.path / self.card['files'][name]} cannot be read "
                f"({error}); write them again: fedquilt run --out {self.folder.path} --resume"
            ) from error
        return network

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
        spec: ModelSpec = read(ModelSpec, self.card["model"], "model", {})
        return Task(
            classes=tuple(self.card["classes"]),
            clients=self.clients,
            image_shape=self.image_shape,
            model=spec,
            preprocessing=Preprocessing(views=self.recipe.views, mean=spec.mean, std=spec.std),
            round_count=self.recipe.rounds,
            seed=self.recipe.seed,
        )
