"""Counts worked from first principles, the shape of the built-in networks, and that the user's module is left alone."""

import math
from collections import OrderedDict
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from airsplit.core.errors import InvalidValue, UnknownName
from airsplit.models.splits import find_splits
from airsplit.models.zoo.alexnet import alexnet, alexnet32
from airsplit.models.zoo.layers import FlatLinear
from airsplit.models.zoo.registry import MODELS, build_registered_model, list_models
from airsplit.models.zoo.vgg import vgg16
from airsplit.system.profile import Profile, load_shipped_profile

ALEXNET_NAMES = "conv1 relu1 norm1 pool1 conv2 relu2 norm2 pool2 conv3 relu3 conv4 relu4 conv5 relu5 pool5 fc6 relu6 fc7 relu7 fc8"
VGG16_NAMES = (
    "conv1_1 relu1_1 conv1_2 relu1_2 pool1 conv2_1 relu2_1 conv2_2 relu2_2 pool2 "
    "conv3_1 relu3_1 conv3_2 relu3_2 conv3_3 relu3_3 pool3 conv4_1 relu4_1 conv4_2 relu4_2 conv4_3 relu4_3 pool4 "
    "conv5_1 relu5_1 conv5_2 relu5_2 conv5_3 relu5_3 pool5 fc6 relu6 fc7 relu7 fc8"
)


def count(module: nn.Module, inputs: Any) -> Profile:
    return find_splits(module, inputs if isinstance(inputs, tuple) else (inputs,)).profile()


def on_meta(name: str, **arguments: Any) -> Profile:
    with torch.device("meta"):
        module = build_registered_model(name, **arguments)
    return count(module, torch.empty(1, *MODELS[name].input_shape, device="meta"))


def layer(module: nn.Module, *shape: int, dtype: torch.dtype = torch.float32) -> Profile:
    return count(nn.Sequential(module), torch.empty(1, *shape, dtype=dtype, device="meta"))


# ---- AlexNet by hand: (kernel², channels in, channels out, side of the output) ----

ALEXNET_CONVOLUTIONS = {
    "conv1": (11 * 11, 3, 96, 55),
    "conv2": (5 * 5, 96, 256, 27),
    "conv3": (3 * 3, 256, 384, 13),
    "conv4": (3 * 3, 384, 384, 13),
    "conv5": (3 * 3, 384, 256, 13),
}
ALEXNET_FULL = {"fc6": (256 * 6 * 6, 4096), "fc7": (4096, 4096), "fc8": (4096, 1000)}
GROUPED = ("conv2", "conv4", "conv5")


def products(profile: Profile) -> dict[str, int]:
    return dict(zip(profile.names, np.diff(profile.matmul_macs, prepend=0).tolist(), strict=True))


@pytest.mark.parametrize("groups", [1, 2])
def test_alexnets_products_are_those_worked_by_hand(groups: int) -> None:
    found = products(on_meta("alexnet", groups=groups))
    for name, (window, channels, filters, side) in ALEXNET_CONVOLUTIONS.items():
        assert found[name] == window * channels * filters * side * side // (
            groups if name in GROUPED else 1
        )
    for name, (inputs, features) in ALEXNET_FULL.items():
        assert found[name] == inputs * features
    assert all(macs == 0 for name, macs in found.items() if not name.startswith(("conv", "fc")))


@pytest.mark.parametrize(
    ("groups", "total", "share"), [(1, 1_135_256_096, 0.948), (2, 724_406_816, 0.919)]
)
def test_alexnets_totals_are_the_published_ones(groups: int, total: int, share: float) -> None:
    found = products(on_meta("alexnet", groups=groups))
    assert sum(found.values()) == total
    convolutions = sum(macs for name, macs in found.items() if name.startswith("conv"))
    assert convolutions / total == pytest.approx(share, abs=5e-4)


def test_alexnets_light_operations_are_those_worked_by_hand() -> None:
    profile = on_meta("alexnet")
    work = dict(zip(profile.names, profile.layer_macs.tolist(), strict=True))
    assert work["relu1"] == 96 * 55 * 55
    assert work["norm1"] == 5 * 96 * 55 * 55
    assert work["pool1"] == 9 * 96 * 27 * 27
    assert work["relu6"] == 4096
    assert work["conv1"] == products(profile)["conv1"]


def test_alexnet_sends_280_kilobytes_at_pool1() -> None:
    profile = on_meta("alexnet")
    assert profile.activation_elements[profile.split_of("pool1") - 1] == 69_984 == 279_936 // 4


def test_alexnets_parameters_are_weights_and_biases() -> None:
    profile = on_meta("alexnet")
    by_hand = sum(
        (window * channels + 1) * filters
        for window, channels, filters, _ in ALEXNET_CONVOLUTIONS.values()
    )
    by_hand += sum((inputs + 1) * features for inputs, features in ALEXNET_FULL.values())
    assert profile.parameters.sum() == by_hand == 62_378_344


def test_vgg16_has_the_published_totals() -> None:
    profile = on_meta("vgg16")
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


# ---- names and shapes of the built-in networks ----


@pytest.mark.parametrize("name", ["alexnet", "alexnet32"])
def test_alexnet_has_the_papers_twenty_layers(name: str) -> None:
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


def test_the_constants_of_local_response_normalization_are_the_originals() -> None:
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


# ---- layers by hand ----


@pytest.mark.parametrize(
    ("module", "shape", "matmul", "light"),
    [
        (nn.Linear(8, 4), (8,), 32, 0),
        (nn.Linear(8, 4), (5, 8), 5 * 32, 0),
        (nn.Conv1d(2, 3, 5, padding=2), (2, 10), 5 * 2 * 3 * 10, 0),
        (nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), (4, 8, 8), 9 * 2 * 6 * 16, 0),
        (nn.Conv3d(1, 2, 2), (1, 3, 3, 3), 8 * 2 * 8, 0),
        (nn.ConvTranspose2d(2, 3, 2, stride=2), (2, 4, 4), 4 * 2 * 3 * 16, 0),
        (nn.ReLU(), (6, 5), 0, 30),
        (nn.GELU(), (30,), 0, 30),
        (nn.Softmax(1), (30,), 0, 30),
        (nn.PReLU(6), (6, 5), 0, 30),
        (nn.GLU(1), (30,), 0, 15),
        (nn.Dropout(0.5), (30,), 0, 30),
        (nn.MaxPool2d(3, 2), (4, 9, 9), 0, 9 * 4 * 16),
        (nn.MaxPool1d(2), (4, 8), 0, 2 * 16),
        (nn.AvgPool2d((2, 3)), (4, 6, 6), 0, 6 * 4 * 3 * 2),
        (nn.AvgPool3d(2), (1, 4, 4, 4), 0, 8 * 8),
        (nn.LPPool2d(2, 2), (1, 4, 4), 0, 4 * 4),
        (nn.AdaptiveAvgPool2d(1), (4, 7, 7), 0, 4 * 49),
        (nn.AdaptiveMaxPool2d(3), (4, 6, 6), 0, 4 * 36),
        (nn.AdaptiveAvgPool2d(7), (4, 1, 1), 0, 4 * 49),
        (nn.BatchNorm1d(6), (6, 5), 0, 2 * 30),
        (nn.BatchNorm2d(4), (4, 3, 3), 0, 2 * 36),
        (nn.InstanceNorm2d(4), (4, 3, 3), 0, 2 * 36),
        (nn.GroupNorm(2, 4), (4, 3, 3), 0, 2 * 36),
        (nn.LayerNorm(6), (5, 6), 0, 2 * 30),
        (nn.RMSNorm(6), (5, 6), 0, 2 * 30),
        (nn.LocalResponseNorm(3), (4, 3, 3), 0, 3 * 36),
        (nn.Flatten(), (4, 3), 0, 0),
        (nn.Unflatten(1, (2, 3)), (6,), 0, 0),
        (nn.Identity(), (6,), 0, 0),
        (nn.PixelShuffle(2), (4, 3, 3), 0, 36),
    ],
)
def test_every_kind_of_layer_counts_as_worked_by_hand(
    module: nn.Module, shape: tuple[int, ...], matmul: int, light: int
) -> None:
    profile = layer(module, *shape)
    assert profile.matmul_macs.tolist() == [matmul]
    assert profile.layer_macs.tolist() == [matmul + light]


@pytest.mark.parametrize(
    "options",
    [((2.0, 3), {}), ((2.0,), {"kernel_size": 3}), ((), {"norm_type": 2.0, "kernel_size": (3, 3)})],
)
def test_a_function_that_pools_by_a_norm_counts_its_window_not_its_exponent(
    options: tuple[tuple[Any, ...], dict[str, Any]],
) -> None:
    class Pooled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return functional.lp_pool2d(x, *options[0], **options[1])

    assert layer(Pooled(), 4, 9, 9).layer_macs.tolist() == [3 * 3 * 4 * 9]


class OwnPool(nn.MaxPool2d):
    """A pooling of the user's own, with a name that says nothing."""


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: functional.max_pool2d(x, 3),
        lambda x: functional.max_pool2d(x, 3, return_indices=True)[0],
        lambda x: functional.max_pool2d(x.flatten(0, 1), 3),  # no batch axis, as far as it knows
        lambda x: nn.MaxPool2d(3, return_indices=True)(x)[0],
        lambda x: OwnPool(3)(x),
        lambda x: nn.MaxPool2d(3)(x.flatten(0, 1)),
        lambda x: functional.adaptive_max_pool2d(x, 3),
        lambda x: functional.adaptive_max_pool2d(x, 3, return_indices=True)[0],
        lambda x: nn.AdaptiveMaxPool2d(3, return_indices=True)(x)[0],
        lambda x: functional.adaptive_avg_pool2d(x.flatten(0, 1), 3),
        lambda x: nn.AdaptiveAvgPool2d(3)(x.flatten(0, 1)),
        lambda x: functional.fractional_max_pool2d(
            x, 3, output_size=3, _random_samples=torch.zeros(len(x), 4, 2, device=x.device)
        ),
    ],
)
def test_a_pooling_is_the_same_work_however_it_is_called(pool: Callable[[Tensor], Tensor]) -> None:
    class Pooled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return pool(x)

    assert int(layer(Pooled(), 4, 9, 9).macs[-1]) == 3 * 3 * 4 * 9


def test_a_look_up_is_free_and_keeps_the_ids_that_it_was_given() -> None:
    profile = layer(nn.Embedding(100, 8), 5, dtype=torch.int64)
    assert (profile.layer_macs.tolist(), profile.parameters.tolist()) == ([0], [800])
    assert profile.stored_elements.tolist() == [2 * 5]  # five ids of 64 bits


def test_attention_is_counted_whole() -> None:
    # ten tokens of width 64: projections 4 · 10 · 64², scores and mixing 2 · 10² · 64, feed-forward 2 · 10 · 64 · 128
    by_hand = 4 * 10 * 64**2 + 2 * 10**2 * 64 + 2 * 10 * 64 * 128
    profile = layer(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 10, 64)
    assert profile.matmul_macs.tolist() == [by_hand]
    assert profile.layer_macs.tolist() == [by_hand + 640]


def test_a_recurrent_layer_sends_its_output_and_its_state() -> None:
    # five steps, four gates, (8 + 16) inputs to 16 units each
    profile = layer(nn.LSTM(8, 16, batch_first=True), 5, 8)
    assert profile.matmul_macs.tolist() == [5 * 4 * (8 + 16) * 16]
    assert profile.activation_elements.tolist() == [5 * 16 + 16 + 16]


class Scale(nn.Module):
    """A layer of the user's own: one product, one plain tensor that is neither parameter nor buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(6, 6))
        self.offset = torch.ones(6)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.offset


def test_an_unknown_layer_counts_its_products_and_one_operation_an_output() -> None:
    profile = layer(Scale(), 6)
    assert profile.matmul_macs.tolist() == [36]
    assert profile.layer_macs.tolist() == [36 + 6]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=2, max_size=6), st.integers(0, 9))
def test_a_chain_of_linear_layers_is_the_sum_of_its_products(sizes: list[int], batch: int) -> None:
    model = nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise(sizes)))
    profile = count(model, torch.empty(batch, sizes[0]))
    assert profile.layer_macs.tolist() == [a * b for a, b in pairwise(sizes)]
    assert profile.activation_elements.tolist() == sizes[1:]
    assert profile.parameters.tolist() == [a * b + b for a, b in pairwise(sizes)]
    assert (
        profile.stored_elements.tolist() == np.cumsum(sizes)[:-1].tolist()
    )  # a linear layer keeps what it is given


# ---- rows ----


def test_nested_sequentials_are_counted_layer_by_layer_under_dotted_names() -> None:
    block = nn.Sequential(OrderedDict(conv=nn.Conv2d(3, 4, 3), act=nn.ReLU()))
    model = nn.Sequential(
        OrderedDict(body=nn.Sequential(block, nn.Flatten()), head=nn.Linear(4 * 36, 2))
    )
    profile = count(model, torch.empty(1, 3, 8, 8))
    assert profile.names == ("body.0.conv", "body.0.act", "body.1", "head")
    assert profile.layer_macs.tolist() == [9 * 3 * 4 * 36, 144, 0, 288]


def test_a_layer_keeps_what_its_backward_pass_needs_and_nothing_twice() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Identity(), nn.Linear(8, 3)
    )
    # conv keeps its input, 16; relu its output, 8, which is also what the linear layer is given
    assert count(model, torch.empty(1, 1, 4, 4)).stored_elements.tolist() == [16, 24, 24, 24, 24]


class Twice(nn.Sequential):
    """A Sequential that does not run its layers one after the other, and uses its weights twice."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) + super().forward(input)


def test_a_sequential_with_a_forward_of_its_own_is_followed() -> None:
    profile = count(
        nn.Sequential(nn.Linear(4, 4), Twice(nn.Linear(4, 4), nn.ReLU())), torch.empty(1, 4)
    )
    assert profile.names == ("0", "1.0_1", "1.1_1", "1.add")
    assert profile.matmul_macs.tolist() == [16, 48, 48, 48]
    assert profile.activation_elements.tolist() == [4, 8, 8, 4]


def test_a_layer_without_parameters_may_appear_twice() -> None:
    relu = nn.ReLU()
    profile = count(nn.Sequential(nn.Linear(4, 4), relu, nn.Linear(4, 4), relu), torch.empty(1, 4))
    assert profile.names == ("0", "1", "2", "3")
    assert profile.layer_macs.tolist() == [16, 4, 16, 4]


def test_no_cut_tears_a_shared_parameter_apart() -> None:
    first, last = nn.Linear(4, 4), nn.Linear(4, 4)
    last.weight = first.weight
    model = nn.Sequential(nn.ReLU(), first, nn.ReLU(), last, nn.Linear(4, 2))
    profile = count(model, torch.empty(1, 4))
    assert profile.names == ("0", "3", "4")
    assert profile.layer_macs.tolist() == [4, 16 + 4 + 16, 8]
    assert profile.matmul_macs.tolist() == [0, 32, 40]
    assert profile.parameters.tolist() == [0, 16 + 4 + 4, 10]
    assert profile.activation_elements.tolist() == [4, 4, 2]
    # the input; with the three layers up to 3, what each linear layer is given; with 4, its own
    assert profile.stored_elements.tolist() == [4, 12, 16]
    assert profile.parameters.sum() == sum(p.numel() for p in model.parameters())


def test_overlapping_shared_parameters_leave_out_every_cut_between_them() -> None:
    a, b = nn.Linear(4, 4), nn.Linear(4, 4)
    profile = count(nn.Sequential(a, b, a, b), torch.empty(1, 4))
    assert profile.names == ("3",)
    assert (profile.layer_macs.tolist(), profile.parameters.tolist()) == ([64], [40])


# ---- the user's module ----


def state(module: nn.Module) -> dict[str, Any]:
    return {
        name: (id(t), t.device.type, t.requires_grad, t.data_ptr(), t.clone())
        for name, t in module.state_dict(keep_vars=True).items()
    }


@pytest.mark.parametrize("training", [True, False])
def test_the_module_is_neither_run_nor_moved_nor_changed(training: bool) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(), nn.Flatten(), nn.Linear(4 * 36, 2)
    )
    model.train(training)
    model[4].weight.requires_grad_(False)
    before, generator = state(model), torch.get_rng_state()
    profile = count(model, torch.zeros(16, 3, 8, 8))
    after = state(model)
    assert {name: row[:4] for name, row in after.items()} == {
        name: row[:4] for name, row in before.items()
    }
    assert all(torch.equal(after[name][4], before[name][4]) for name in before)
    assert torch.equal(torch.get_rng_state(), generator)
    assert model.training is training
    assert profile.layer_macs[1] == 2 * 144


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(4), nn.BatchNorm1d(4, track_running_stats=False)])
def test_batch_statistics_of_a_single_sample_are_no_obstacle(norm: nn.Module) -> None:
    module = nn.Sequential(nn.Linear(3, 4), norm).train()
    assert count(module, torch.empty(1, 3)).layer_macs.tolist() == [12, 8]


def test_a_model_beyond_all_memory_is_counted() -> None:
    side = 10**6
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(side, side), nn.ReLU())
    assert count(model, torch.empty(1, side, device="meta")).macs.tolist() == [
        side**2,
        side**2 + side,
    ]


def test_counting_allocates_no_second_copy_of_the_weights() -> None:
    model = nn.Sequential(nn.Linear(1000, 1000, bias=False))
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as record:
        count(model, torch.empty(1, 1000, device="meta"))
    allocated = sum(max(0, event.self_cpu_memory_usage) for event in record.events())
    assert allocated < 1000 * 1000


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_columns_do_not_depend_on_the_data_type(dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU())
    same = count(model, torch.zeros(2, 8))
    assert count(model.to(dtype), torch.zeros(2, 8, dtype=dtype)) == same


@pytest.mark.parametrize(
    ("module", "inputs", "message"),
    [
        (nn.Sequential(), torch.zeros(1, 3), "at least one layer"),
        (nn.Sequential(nn.Sequential()), torch.zeros(1, 3), "at least one layer"),
        (nn.Sequential(nn.Linear(3, 2)), torch.tensor(1.0), "with a batch axis"),
        (
            nn.Sequential(nn.Linear(3, 2)),
            (torch.zeros(1, 3),) * 2,
            r"model fails .*TypeError.*; does it take input_shape \(3,\) of torch.float32 and \(3,\) of torch.float32",
        ),
        (nn.Sequential(nn.Linear(3, 2)), (), "inputs must be one tensor or more"),
        (
            nn.Sequential(nn.Linear(3, 2), nn.Linear(3, 2)),
            torch.zeros(1, 3),
            r"layer '1' \(Linear\) says",
        ),
        (nn.Sequential(nn.Embedding(9, 2)), torch.zeros(1, 3), r"layer '0' \(Embedding\) says"),
    ],
)
def test_what_cannot_be_counted_says_why(module: nn.Module, inputs: Any, message: str) -> None:
    with pytest.raises(InvalidValue, match=message) as caught:
        count(module, inputs)
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_lazy_layers_must_run_once_first() -> None:
    model = nn.Sequential(nn.LazyLinear(4))
    with pytest.raises(InvalidValue, match="run it once on a sample"):
        count(model, torch.zeros(1, 3))
    model(torch.zeros(1, 3))
    assert count(model, torch.zeros(1, 3)).layer_macs.tolist() == [12]


def test_shapes_the_paper_relies_on_are_those_of_a_real_pass() -> None:
    model = alexnet32(width=0.1)
    profile, flowing = count(model, torch.zeros(1, 3, 32, 32)), torch.zeros(1, 3, 32, 32)
    for module, elements in zip(model, profile.activation_elements, strict=True):
        flowing = module(flowing)
        assert math.prod(flowing.shape) == elements
