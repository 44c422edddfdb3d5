from __future__ import annotations

import csv
import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from fedquilt.core.errors import UserError
from fedquilt.models.backbones import build_backbone
from fedquilt.models.spec import ModelSpec
from fedquilt.models.weights import load_backbone


def stored(channels: int = 1, prefix: str = "", dtype: torch.dtype = torch.float32, **more):
    """The entries of another small-resnet, with names and dtype of a file."""
    state = build_backbone("small-resnet", channels).state_dict()
    entries = {
        prefix + name: tensor.to(dtype) if tensor.is_floating_point() else tensor
        for name, tensor in state.items()
    }
    return entries | more


def saved(folder: Path, entries: dict[str, torch.Tensor]) -> Path:
    path = folder / "weights.safetensors"
    save_file(entries, path)
    return path


@pytest.mark.parametrize("prefix", ["", "backbone.", "module.encoder."])
def test_names_match_with_any_prefix_and_the_files_head_is_ignored(tmp_path, prefix):
    entries = stored(prefix=prefix)
    entries |= {f"{prefix}fc.weight": torch.ones(9, 128), "classifier.bias": torch.ones(9)}
    backbone = build_backbone("small-resnet", 1)
    report = load_backbone(backbone, saved(tmp_path, entries))
    for name, tensor in backbone.state_dict().items():
        assert torch.equal(tensor, entries[prefix + name])
    assert report.unmatched == ()
    assert set(report.unused) == {f"{prefix}fc.weight", "classifier.bias"}
    # 7 convolutions, 3 shortcuts, and 7 batch norms of 4 floating entries: 7 + 3 + 28
    assert str(report).startswith("38 of 38 entries of the backbone read; not used: ")


def test_half_precision_is_read_as_full_precision(tmp_path):
    entries = stored(dtype=torch.float16)
    backbone = build_backbone("small-resnet", 1)
    load_backbone(backbone, saved(tmp_path, entries))
    assert backbone.conv1.weight.dtype == torch.float32
    assert torch.equal(backbone.conv1.weight, entries["conv1.weight"].float())


def test_colour_weights_treat_grey_images_as_repeated_grey(tmp_path):
    path = saved(tmp_path, stored(channels=3))
    colour, grey = (
        build_backbone("small-resnet", 3).eval(),
        build_backbone("small-resnet", 1).eval(),
    )
    load_backbone(colour, path)
    assert load_backbone(grey, path).unmatched == ()
    images = torch.rand(2, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.allclose(grey(images), colour(images.expand(2, 3, 16, 16)), atol=1e-5)


def test_a_few_entries_may_be_missing_and_are_logged(tmp_path, caplog):
    entries = stored()
    del entries["blocks.2.shortcut.weight"]
    path = saved(tmp_path, entries)
    spec = ModelSpec(backbone="small-resnet", weights=str(path))
    with caplog.at_level(logging.WARNING):
        spec.build(channels=1, class_count=2, seed=0)
    assert "37 of 38" in caplog.text
    assert "left random: blocks.2.shortcut.weight" in caplog.text


def test_the_weights_of_another_backbone_are_refused_and_change_nothing(tmp_path):
    backbone = build_backbone("small-resnet", 1)
    before = {name: tensor.clone() for name, tensor in backbone.state_dict().items()}
    entries = {name: tensor for name, tensor in stored().items() if "blocks.0" not in name}
    with pytest.raises(UserError, match=r"27 of 38 entries match .*without a match: blocks\.0\."):
        load_backbone(backbone, saved(tmp_path, entries))
    assert all(torch.equal(tensor, before[name]) for name, tensor in backbone.state_dict().items())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("weights.pth", b"pickle", "can run code .*convert it: .*save_file"),
        ("missing.safetensors", None, "no weights file at"),
        ("broken.safetensors", b"not safetensors", "not a readable .safetensors file"),
        ("imagenet", None, "unknown weights .*expected 'random', 'timm' or the path"),
    ],
)
def test_other_files_are_refused_with_advice(tmp_path, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        load_backbone(build_backbone("small-cnn", 1), path)


def test_values_that_are_not_finite_are_refused(tmp_path):
    entries = stored() | {"bn1.bias": torch.full((32,), torch.inf)}
    with pytest.raises(UserError, match=r"NaN or infinity in bn1.bias"):
        load_backbone(build_backbone("small-resnet", 1), saved(tmp_path, entries))


TINY_IMAGENET = "weights/resnet18_tinyimagenet200_64px.safetensors"


@pytest.mark.shared
def test_every_entry_of_the_shared_resnet_is_read(shared_folder):
    backbone = build_backbone("resnet18", 3, small_stem=True)
    report = load_backbone(backbone, shared_folder / TINY_IMAGENET)
    assert len(report.matched) == 100  # 20 convolutions and 20 batch norms of 4 floating entries
    assert report.unmatched == ()
    assert set(report.unused) == {"fc.weight", "fc.bias"}


@pytest.mark.shared
def test_the_stem_is_the_one_the_shared_resnet_was_trained_with(shared_folder):
    """Another stem would shift the inputs away from the batch norms' running statistics.

    On 40 photographs the inputs of layer 1 are 0.3 running standard deviations from the running
    mean (root mean square over channels); without max pooling they are 0.7 away.
    """
    backbone = build_backbone("resnet18", 3, small_stem=True).eval()
    load_backbone(backbone, shared_folder / TINY_IMAGENET)
    scenes = shared_folder / "data" / "miml_scenes"
    with (scenes / "labels.csv").open() as rows:
        names = [row["image"] for row in csv.DictReader(rows)][::50]
    photographs = [
        np.asarray(Image.open(scenes / "images" / name).convert("RGB").resize((64, 64)))
        for name in names
    ]
    pixels = torch.from_numpy(np.stack(photographs)).permute(0, 3, 1, 2) / 127.5 - 1
    inputs = {}
    norm = backbone.layer1[0].bn2
    norm.register_forward_hook(lambda _module, given, _output: inputs.update(x=given[0]))
    with torch.no_grad():
        backbone(pixels)
    distance = (inputs["x"].mean((0, 2, 3)) - norm.running_mean) / norm.running_var.sqrt()
    assert distance.square().mean().sqrt() < 0.4
