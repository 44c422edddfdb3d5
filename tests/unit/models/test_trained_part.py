"""Which entries are trained and sent, in what mode the others are, and what a run sends then."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.tiny_runs import make_run, tiny_settings
from torch import Tensor, nn

from fedquilt.core.errors import UserError
from fedquilt.engines.options import EngineName, EngineOptions
from fedquilt.models.network import Network, layout_of, read_weights
from fedquilt.models.spec import ModelSpec
from fedquilt.models.trained_part import last_block
from fedquilt.recipes.recipe import Recipe, recipe_from
from fedquilt.runs.experiment import run
from fedquilt.runs.finished_run import read_run

CLASSES = 3
PARTS = ("head", "last-block", "all")


def build(**settings: object) -> Network:
    spec = ModelSpec(**settings)  # type: ignore[arg-type]
    return spec.build(channels=3, class_count=CLASSES, seed=0)


def modules_of(names: list[str]) -> set[str]:
    return {".".join(name.split(".")[:2]) for name in names}


@pytest.mark.parametrize("backbone", ["small-resnet", "resnet18"])
def test_head_leaves_weights_and_statistics_of_the_backbone_out(backbone: str):
    layout = layout_of(build(backbone=backbone, train="head"), CLASSES)
    assert layout.body == ()
    assert layout.buffers == ()
    assert layout.head == ("head.weight", "head.bias")


def test_last_block_of_the_built_in_network():
    layout = layout_of(build(backbone="small-resnet", train="last-block"), CLASSES)
    assert {name.partition(".blocks.")[2][:1] for name in layout.body} == {"2"}
    assert {name.rpartition(".")[2] for name in layout.buffers} == {"running_mean", "running_var"}
    assert all(name.startswith("backbone.blocks.2.") for name in layout.buffers)


@pytest.mark.parametrize(
    ("backbone", "blocks"),
    [
        ("resnet18", {"layer4.0", "layer4.1"}),
        ("densenet121", {"features.denseblock4", "features.norm5"}),
        ("vit_tiny_patch16_224", {"blocks.11", "norm.weight", "norm.bias"}),
        ("convnext_atto", {"stages.3", "head.norm"}),
        ("swin_tiny_patch4_window7_224", {"layers.3", "norm.weight", "norm.bias"}),
        ("tf_efficientnet_lite0", {"blocks.6", "conv_head.weight", "bn2.weight", "bn2.bias"}),
    ],
)
def test_last_block_of_timm_networks(backbone: str, blocks: set[str]):
    import timm

    with torch.device("meta"):
        network = timm.create_model(backbone, num_classes=0)
    assert modules_of(last_block(network)) == blocks


def test_network_of_one_block_has_no_last_block():
    with pytest.raises(UserError, match="is one block; use 'head' or 'all'"):
        last_block(nn.Sequential(nn.Conv2d(3, 4, 3)))


def test_frozen_statistics_stay_in_evaluation_mode_and_trained_ones_move():
    network = build(backbone="small-resnet", train="last-block").train()
    before = {name: entry.clone() for name, entry in network.state_dict().items()}
    network(torch.rand(4, 3, 16, 16))
    moved = {n for n, entry in network.state_dict().items() if not torch.equal(entry, before[n])}
    assert moved
    assert {name.split(".")[2] for name in moved} == {"2"}
    assert not network.eval().backbone.training
    assert network.train().backbone.blocks[2].training  # type: ignore[index]
    assert not network.backbone.blocks[1].training  # type: ignore[index]


def test_the_start_is_that_of_a_network_trained_as_a_whole():
    whole, part = build(backbone="small-resnet"), build(backbone="small-resnet", train="head")
    assert all(torch.equal(whole.state_dict()[n], entry) for n, entry in part.state_dict().items())


def test_projection_is_trained_with_the_head():
    layout = layout_of(build(projection=8, train="head"), CLASSES)
    assert all(name.startswith("backbone.projection.") for name in layout.body)
    assert len(layout.body) == 4


def test_fixed_head_leaves_nothing_to_train():
    with pytest.raises(UserError, match="leaves nothing to train"):
        build(backbone="small-cnn", head="etf", train="head")


def settings_of(train: str) -> dict[str, object]:
    return {"backbone": "small-resnet", "train": train}


def test_run_sends_the_head_alone_and_keeps_a_whole_model(tmp_path: Path):
    """3 classes x (128 + 1) float32 down to each of 3 clients, and up with the loss part."""
    parts = {
        part: make_run(tmp_path / part, "fedavg-pl", model=settings_of(part)) for part in PARTS
    }
    head = parts["head"]
    assert head.history[0]["bytes_down"] == 3 * 4 * 3 * (128 + 1)
    assert head.history[0]["bytes_up"] < parts["last-block"].history[0]["bytes_up"] / 100
    assert parts["last-block"].history[0]["bytes_up"] < parts["all"].history[0]["bytes_up"]
    images = torch.randint(0, 256, (2, *head.models.image_shape), dtype=torch.uint8)
    trained = head.models.network(None)
    assert trained.trained_parts is None
    start = read_weights(
        replace(head.recipe.model, train="all").build(
            channels=head.models.image_shape[0],
            class_count=CLASSES,
            seed=0,
            class_names=head.classes,
        )
    )
    for name, entry in read_weights(trained).items():
        assert torch.equal(entry, start[name]) == name.startswith("backbone.")
    assert head.predict(images).probabilities.shape == (2, CLASSES)


def final_weights(folder: Path, recipe: Recipe, engine: EngineOptions) -> dict[str, Tensor]:
    run(recipe, folder, engine=engine)
    return read_weights(read_run(folder).models.network(None))


@pytest.mark.parametrize("train", ["head", "last-block"])
def test_engines_agree_to_the_bit(tmp_path: Path, train: str):
    settings = tiny_settings("fedavg-pl", model=settings_of(train))
    settings["method"]["training"]["optimizer"] = "sgd"  # Adam amplifies the last bit
    names: tuple[EngineName, ...] = ("sequential", "threaded", "cuda-graph")
    found = [
        final_weights(
            tmp_path / name,
            recipe_from(settings),
            EngineOptions(name, channels_last=name != "cuda-graph"),
        )
        for name in names
    ]
    for other in found[1:]:
        assert all(torch.equal(entry, other[name]) for name, entry in found[0].items())


def test_unchanged_recipes_keep_their_text():
    assert "train" not in recipe_from(tiny_settings("fedavg")).to_dict()["model"]
    assert (
        recipe_from(tiny_settings("fedavg") | {"model": {"train": "head"}}).to_dict()["model"][
            "train"
        ]
        == "head"
    )


def test_lora_without_peft_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(UserError, match=r"pip install 'fedquilt\[lora\]'"):
        build(backbone="mlp", train="lora")


def test_lora_sends_adapters_and_head_and_keeps_a_plain_model(tmp_path: Path):
    """Rank 2 beside the two layers of the MLP: 2 x (64 + 128) and 2 x (128 + 128) numbers."""
    pytest.importorskip("peft")
    data = {"name": "digits-mosaic", "classes": 3, "train": 30, "test": 40}
    model = {"backbone": "resnet18", "train": "lora", "lora_rank": 2}
    network = ModelSpec(backbone="mlp", train="lora", lora_rank=2).build(
        channels=64, class_count=CLASSES, seed=0
    )
    layout = layout_of(network, CLASSES)
    sizes = {name: entry.numel() for name, entry in network.named_parameters()}
    assert sum(sizes[name] for name in layout.body) == 2 * (64 + 128) + 2 * (128 + 128)
    finished = make_run(tmp_path / "run", "fedavg-pl", model=model, data=data, rounds=1)
    assert finished.history[0]["bytes_down"] < 44_000_000 / 10
    plain = finished.models.network(None)
    assert not [name for name in plain.state_dict() if "lora" in name]
    test = finished.recipe.data.load(tmp_path).test
    kept = torch.tensor(finished.scores.logits["global"])  # of the network with its adapters
    torch.testing.assert_close(finished.predict(test.images).logits, kept, rtol=1e-4, atol=1e-4)
