"""Operations of single layers and functions, worked by hand."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import airsplit as air
from airsplit.system.profile import Profile


def profile_layer(module: nn.Module, *shape: int, dtype: torch.dtype = torch.float32) -> Profile:
    x = torch.empty(1, *shape, dtype=dtype, device="meta")
    return air.profile(nn.Sequential(module), inputs=x)


@pytest.mark.parametrize(
    ("module", "shape", "matmul", "elementwise"),
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
def test_each_kind_of_layer_has_the_operations_worked_by_hand(
    module: nn.Module, shape: tuple[int, ...], matmul: int, elementwise: int
) -> None:
    profile = profile_layer(module, *shape)
    assert profile.matmul_macs.tolist() == [matmul]
    assert profile.layer_macs.tolist() == [matmul + elementwise]


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((2.0, 3), {}), ((2.0,), {"kernel_size": 3}), ((), {"norm_type": 2.0, "kernel_size": (3, 3)})],
)
def test_a_pooling_by_a_norm_counts_its_window_and_not_its_exponent(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    class Pooled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return functional.lp_pool2d(x, *args, **kwargs)

    assert profile_layer(Pooled(), 4, 9, 9).layer_macs.tolist() == [3 * 3 * 4 * 9]


class OwnPool(nn.MaxPool2d):
    """A pooling of the user, with another name."""


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: functional.max_pool2d(x, 3),
        lambda x: functional.max_pool2d(x, 3, return_indices=True)[0],
        lambda x: functional.max_pool2d(x.flatten(0, 1), 3),  # as if without a batch axis
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
def test_a_pooling_counts_the_same_however_it_is_called(pool: Callable[[Tensor], Tensor]) -> None:
    class Pooled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return pool(x)

    assert int(profile_layer(Pooled(), 4, 9, 9).macs[-1]) == 3 * 3 * 4 * 9


def test_a_lookup_is_free_and_saves_its_ids() -> None:
    profile = profile_layer(nn.Embedding(100, 8), 5, dtype=torch.int64)
    assert (profile.layer_macs.tolist(), profile.parameters.tolist()) == ([0], [800])
    # Five ids of 64 bits.
    assert profile.stored_elements.tolist() == [2 * 5]


def test_attention_counts_all_its_matrix_products() -> None:
    # Ten tokens of width 64: projections, scores and mixing, feed-forward.
    by_hand = 4 * 10 * 64**2 + 2 * 10**2 * 64 + 2 * 10 * 64 * 128
    profile = profile_layer(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 10, 64)
    assert profile.matmul_macs.tolist() == [by_hand]
    assert profile.layer_macs.tolist() == [by_hand + 640]


def test_a_recurrent_layer_sends_its_output_and_its_state() -> None:
    # Five steps, four gates, (8 + 16) inputs to 16 units each
    profile = profile_layer(nn.LSTM(8, 16, batch_first=True), 5, 8)
    assert profile.matmul_macs.tolist() == [5 * 4 * (8 + 16) * 16]
    assert profile.activation_elements.tolist() == [5 * 16 + 16 + 16]


class Scale(nn.Module):
    """A user's layer: one matrix product, and a tensor that is neither parameter nor buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(6, 6))
        self.offset = torch.ones(6)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.offset


def test_an_unknown_layer_counts_one_operation_for_each_output() -> None:
    profile = profile_layer(Scale(), 6)
    assert profile.matmul_macs.tolist() == [36]
    assert profile.layer_macs.tolist() == [36 + 6]
