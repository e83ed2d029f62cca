"""AlexNet and VGG16: costs worked by hand, published totals, names and shapes."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import airsplit as air
from airsplit.core.errors import InvalidValue, UnknownName
from airsplit.models.zoo.alexnet import alexnet, alexnet32
from airsplit.models.zoo.layers import FlatLinear
from airsplit.models.zoo.registry import build_registered_model, list_models
from airsplit.models.zoo.vgg import vgg16
from airsplit.system.profile import Profile, load_shipped_profile

ALEXNET_NAMES = (
    "conv1 relu1 norm1 pool1 conv2 relu2 norm2 pool2 conv3 relu3 conv4 relu4 conv5 relu5 pool5 "
    "fc6 relu6 fc7 relu7 fc8"
)
VGG16_NAMES = (
    "conv1_1 relu1_1 conv1_2 relu1_2 pool1 conv2_1 relu2_1 conv2_2 relu2_2 pool2 "
    "conv3_1 relu3_1 conv3_2 relu3_2 conv3_3 relu3_3 pool3 "
    "conv4_1 relu4_1 conv4_2 relu4_2 conv4_3 relu4_3 pool4 "
    "conv5_1 relu5_1 conv5_2 relu5_2 conv5_3 relu5_3 pool5 fc6 relu6 fc7 relu7 fc8"
)

# Kernel², channels in, channels out, side of the output.
ALEXNET_CONVOLUTIONS = {
    "conv1": (11 * 11, 3, 96, 55),
    "conv2": (5 * 5, 96, 256, 27),
    "conv3": (3 * 3, 256, 384, 13),
    "conv4": (3 * 3, 384, 384, 13),
    "conv5": (3 * 3, 384, 256, 13),
}
ALEXNET_FULL = {"fc6": (256 * 6 * 6, 4096), "fc7": (4096, 4096), "fc8": (4096, 1000)}
GROUPED = ("conv2", "conv4", "conv5")


def profile_on_meta(name: str, **arguments: Any) -> Profile:
    with torch.device("meta"):
        return air.profile(build_registered_model(name, **arguments))


def matmul_macs(profile: Profile) -> dict[str, int]:
    return dict(zip(profile.names, np.diff(profile.matmul_macs, prepend=0).tolist(), strict=True))


@pytest.mark.parametrize("groups", [1, 2])
def test_alexnet_has_the_matmul_macs_worked_by_hand(groups: int) -> None:
    macs_by_layer = matmul_macs(profile_on_meta("alexnet", groups=groups))
    for name, (window, channels, filters, side) in ALEXNET_CONVOLUTIONS.items():
        assert macs_by_layer[name] == window * channels * filters * side * side // (
            groups if name in GROUPED else 1
        )
    for name, (inputs, features) in ALEXNET_FULL.items():
        assert macs_by_layer[name] == inputs * features
    assert all(
        macs == 0 for name, macs in macs_by_layer.items() if not name.startswith(("conv", "fc"))
    )


@pytest.mark.parametrize(
    ("groups", "total", "share"), [(1, 1_135_256_096, 0.948), (2, 724_406_816, 0.919)]
)
def test_alexnet_has_the_published_totals(groups: int, total: int, share: float) -> None:
    macs_by_layer = matmul_macs(profile_on_meta("alexnet", groups=groups))
    assert sum(macs_by_layer.values()) == total
    convolutions = sum(macs for name, macs in macs_by_layer.items() if name.startswith("conv"))
    assert convolutions / total == pytest.approx(share, abs=5e-4)


def test_alexnet_has_the_elementwise_operations_worked_by_hand() -> None:
    profile = profile_on_meta("alexnet")
    work = dict(zip(profile.names, profile.layer_macs.tolist(), strict=True))
    assert work["relu1"] == 96 * 55 * 55
    assert work["norm1"] == 5 * 96 * 55 * 55
    assert work["pool1"] == 9 * 96 * 27 * 27
    assert work["relu6"] == 4096
    assert work["conv1"] == matmul_macs(profile)["conv1"]


def test_alexnet_sends_280_kilobytes_at_pool1() -> None:
    profile = profile_on_meta("alexnet")
    assert profile.activation_elements[profile.split_of("pool1") - 1] == 69_984 == 279_936 // 4


def test_alexnet_has_the_parameters_worked_by_hand() -> None:
    profile = profile_on_meta("alexnet")
    by_hand = sum(
        (window * channels + 1) * filters
        for window, channels, filters, _ in ALEXNET_CONVOLUTIONS.values()
    )
    by_hand += sum((inputs + 1) * features for inputs, features in ALEXNET_FULL.values())
    assert profile.parameters.sum() == by_hand == 62_378_344


def test_vgg16_has_the_published_totals() -> None:
    profile = profile_on_meta("vgg16")
    side, channels, by_hand = 224, 3, 0
    for filters, convolutions in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(convolutions):
            by_hand += 9 * channels * filters * side * side
            channels = filters
        side //= 2
    by_hand += 512 * 7 * 7 * 4096 + 4096 * 4096 + 4096 * 1000
    assert profile.matmul_macs[-1] == by_hand == 15_470_264_320
    assert profile.parameters.sum() == 138_357_544
    assert profile.activation_elements[profile.split_of("pool1") - 1] == 802_816


@pytest.mark.parametrize("name", ["alexnet", "alexnet32"])
def test_alexnet_has_the_twenty_layers_of_the_paper(name: str) -> None:
    profile = load_shipped_profile(name)
    assert profile.names == tuple(ALEXNET_NAMES.split())
    assert [profile.names[split - 1] for split in (4, 10, 15)] == ["pool1", "relu3", "pool5"]


@pytest.mark.parametrize("name", ["vgg16", "vgg16-3x32x32"])
def test_vgg16_has_thirty_six_layers(name: str) -> None:
    assert load_shipped_profile(name).names == tuple(VGG16_NAMES.split())
    assert len(load_shipped_profile(name)) == 36


@pytest.mark.parametrize(("channels", "side", "last"), [(3, 32, 3), (1, 28, 2)])
def test_alexnet32_runs_on_small_images(channels: int, side: int, last: int) -> None:
    model = alexnet32((channels, side, side), width=0.1, classes=7)
    images = torch.zeros(2, channels, side, side)
    assert model(images).shape == (2, 7)
    assert model[:15](images).shape[2:] == (last, last)


def test_width_scales_every_inner_layer() -> None:
    with torch.device("meta"):
        quarter = alexnet32(width=0.25)
    assert [quarter.get_submodule(f"conv{i}").out_channels for i in range(1, 6)] == [
        24,
        64,
        96,
        96,
        64,
    ]
    assert [quarter.get_submodule(f"fc{i}").out_features for i in (6, 7, 8)] == [1024, 1024, 10]


def test_local_response_normalization_has_its_original_constants() -> None:
    with torch.device("meta"):
        norm = alexnet().get_submodule("norm1")
    assert isinstance(norm, nn.LocalResponseNorm)
    assert (norm.size, norm.alpha, norm.beta, norm.k) == (5, 1e-4, 0.75, 2.0)


def test_models_are_built_on_the_default_device() -> None:
    for name in list_models():
        with torch.device("meta"):
            assert {p.device.type for p in build_registered_model(name).parameters()} == {"meta"}
    assert {p.device.type for p in alexnet32(width=0.1).parameters()} == {"cpu"}


def test_flat_linear_is_flatten_then_linear() -> None:
    flat = FlatLinear(12, 5)
    x = torch.randn(7, 3, 2, 2)
    assert torch.equal(flat(x), nn.functional.linear(x.flatten(1), flat.weight, flat.bias))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: alexnet((3, 60, 60)),
            r"alexnet\.input_shape must be large enough.*\(3, 60, 60\).*pool5",
        ),
        (lambda: alexnet((3, 5, 5)), r"alexnet\.input_shape must be large enough.*conv1"),
        (lambda: vgg16((3, 31, 32)), r"vgg16\.input_shape must be large enough.*pool5"),
        (lambda: alexnet32((3, 14, 14)), r"alexnet32\.input_shape must be large enough.*pool5"),
        (lambda: alexnet((3, 227)), r"alexnet\.input_shape must be channels, height and width"),
        (lambda: vgg16((3, 0, 224)), r"vgg16\.input_shape\[1\] must be a whole number >= 1, got 0"),
        (lambda: vgg16("3x224x224"), r"vgg16\.input_shape must be whole numbers"),  # type: ignore[arg-type]
        (lambda: alexnet(groups=3), r"alexnet\.groups must divide"),
        (lambda: alexnet(groups=0), r"alexnet\.groups must be a whole number >= 1"),
        (lambda: alexnet(classes=0), r"alexnet\.classes must be a whole number >= 1"),
        (lambda: alexnet32(width=0.0), r"alexnet32\.width must be a finite number > 0"),
        (lambda: alexnet32(channels=0), r"alexnet32\.channels must be a whole number >= 1"),
        (lambda: vgg16(classes=1.5), r"vgg16\.classes must be a whole number >= 1"),  # type: ignore[arg-type]
        (lambda: build_registered_model("alexnet32", widht=0.5), "did you mean 'width'"),
    ],
)
def test_a_network_that_cannot_be_built_says_why(make: Any, message: str) -> None:
    with torch.device("meta"), pytest.raises(InvalidValue, match=message):
        make()


def test_an_unknown_model_offers_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'alexnet'"):
        build_registered_model("alexnett")


def test_activations_of_alexnet32_have_the_elements_of_a_real_pass() -> None:
    model = alexnet32(width=0.1)
    profile = air.profile(model, (3, 32, 32))
    x = torch.zeros(1, 3, 32, 32)
    for module, elements in zip(model, profile.activation_elements, strict=True):
        x = module(x)
        assert x.numel() == elements
