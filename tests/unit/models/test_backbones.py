from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from fedquilt.core.errors import UserError
from fedquilt.models.backbones import build_backbone, feature_count


@pytest.mark.parametrize(
    ("name", "channels", "side", "width", "parameters"),
    [
        # 3x3 convolutions: 9*1*16+16 + 9*16*32+32 + 9*32*64+64
        ("small-cnn", 1, 16, 64, 160 + 4640 + 18496),
        ("small-cnn", 3, 17, 64, 448 + 4640 + 18496),  # 9*3*16+16; an odd size works too
        # Stem 288 + 64; blocks 9*w*w' + 9*w'*w' + w*w' + 4*w' for (32,32), (32,64), (64,128)
        ("small-resnet", 1, 28, 128, 352 + 19584 + 57600 + 229888),
        ("mlp", 7, 1, 128, 7 * 128 + 128 + 128 * 128 + 128),
        ("mobilenetv3_small_050", 1, 32, 1024, None),  # timm: its head has a hidden layer
    ],
)
def test_backbone_returns_features_of_its_feature_count(name, channels, side, width, parameters):
    backbone = build_backbone(name, channels).eval()
    assert feature_count(backbone) == width
    assert backbone(torch.rand(2, channels, side, side)).shape == (2, width)
    if parameters is not None:
        assert sum(parameter.numel() for parameter in backbone.parameters()) == parameters


def test_small_cnn_is_translation_invariant():
    backbone = build_backbone("small-cnn", 1)
    images = torch.zeros(2, 1, 32, 32)
    pattern = torch.rand(4, 4, generator=torch.Generator().manual_seed(0))
    images[0, 0, 10:14, 10:14] = pattern
    images[1, 0, 16:20, 12:16] = pattern  # moved by even steps, as the pooling has stride 2
    first, second = backbone(images)
    assert torch.allclose(first, second, atol=1e-6)
    assert first.abs().max() > 0


def test_small_stem_changes_the_stride_and_keeps_the_pooling():
    # 64 px: stride 1, pooling to 32, and three stages that halve it give 4 x 4 instead of 2 x 2.
    images = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        usual = build_backbone("resnet18", 3).eval().forward_features(images)
        small = build_backbone("resnet18", 3, small_stem=True).eval().forward_features(images)
    assert usual.shape[2:] == (2, 2)
    assert small.shape[2:] == (4, 4)


def test_small_stem_supports_a_stem_of_three_convolutions():
    backbone = build_backbone("resnet18d", 1, small_stem=True)
    assert backbone.conv1[0].stride == (1, 1)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("smallcnn", {}, "unknown backbone 'smallcnn'; did you mean 'small-cnn'?"),
        ("resnet81", {}, "did you mean 'resnet18'?"),
        ("qqqq", {}, "known: mlp, small-cnn, small-resnet and those of timm.list_models"),
        ("small-cnn", {"small_stem": True}, "small_stem was requested"),
        ("small-cnn", {"pretrained": True}, "weights 'timm' was requested"),
        ("mobilenetv3_small_050", {"small_stem": True}, "is a MobileNetV3"),
    ],
)
def test_wrong_names_and_settings_say_what_to_do(name, settings, message):
    with pytest.raises(UserError) as caught:
        build_backbone(name, 1, **settings)
    assert message in str(caught.value)


def test_a_failed_download_names_the_alternatives(monkeypatch):
    def offline(*_args, **_settings):
        raise ConnectionError("no route to the hub\nand a second line")

    monkeypatch.setattr("timm.create_model", offline)
    with pytest.raises(UserError, match=r"no route to the hub\); fetch .*safetensors"):
        build_backbone("resnet18", 3, pretrained=True)


def test_an_image_for_the_mlp_is_refused():
    with pytest.raises(UserError, match="found 4 x 4 pixels; use 'small-cnn'"):
        build_backbone("mlp", 1)(torch.rand(2, 1, 4, 4))


def test_built_in_networks_do_not_import_timm():
    code = (
        "import sys; from fedquilt.models.spec import ModelSpec; "
        "ModelSpec().build(channels=1, class_count=2, seed=0); sys.exit('timm' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
