"""Operations, gradients and saved tensors against those of a real pass on the CPU."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

import airsplit as air
from airsplit.models.tracing import costs
from airsplit.models.tracing.copied_values import CopiedValues
from airsplit.models.tracing.costs import float32_equivalents
from airsplit.models.zoo.registry import build_registered_model
from airsplit.system.profile import Profile
from models.hard_models import HARD, Checkpointed, CustomGradient, Masked

BUILT_IN = {
    "alexnet32": {"width": 0.1},
    "resnet20": {"layers": 8},
    "vit": {"layers": 1, "width": 24, "heads": 2},
    "gpt": {"layers": 1, "width": 24, "heads": 2},
}


def sample(name: str) -> Tensor:
    return torch.randint(0, 256, (2, 64)) if name == "gpt" else torch.randn(2, 3, 32, 32)


def count_macs(step: Any) -> int:
    with FlopCounterMode(display=False) as counter:
        step()
    # Two samples, two operations a MAC.
    return int(counter.get_total_flops()) // 4


@pytest.mark.parametrize("name", BUILT_IN)
def test_matmul_macs_are_those_of_a_real_pass_forward_and_backward(name: str) -> None:
    model = build_registered_model(name, **BUILT_IN[name])
    profile = air.profile(model)
    x = sample(name)
    # torch's counter does not know the fused kernel of the CPU.
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        forward = count_macs(lambda: model(x))
        both = count_macs(lambda: model(x).sum().backward())
    assert profile.matmul_macs[-1] == forward
    elementwise = profile.macs[-1] - profile.matmul_macs[-1]
    assert both - forward <= profile.backward_macs[-1] <= both - forward + elementwise


def test_backward_macs_equal_those_worked_by_hand() -> None:
    model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5))
    # The first layer needs the gradient of its weights only, the last also that of its input.
    assert air.profile(model, (10,)).backward_macs.tolist() == [200, 220, 420]


def test_frozen_layers_cost_nothing_backward_and_get_no_gradients() -> None:
    model = nn.Sequential(
        nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 5)
    )
    model[0].requires_grad_(False)
    profile = air.profile(model, (10,))
    assert profile.backward_macs.tolist() == [0, 0, 400, 420, 620]
    assert profile.gradient_elements.tolist() == [0, 0, 20, 20, 5]
    assert profile.trainable_parameters.tolist() == [0, 0, 420, 0, 105]
    assert profile.parameters.tolist() == [220, 0, 420, 0, 105]
    assert profile.stored_elements.tolist() == [10, 10, 30, 50, 50]


def test_token_ids_that_cross_have_no_gradient() -> None:
    class Late(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(9, 4)
            self.types = nn.Embedding(2, 4)

        def forward(self, ids: Tensor, types: Tensor) -> Tensor:
            return self.tokens(ids) + self.types(types)

    ids = torch.zeros(1, 6, dtype=torch.int64)
    profile = air.profile(Late(), inputs=(ids, ids))
    assert profile.activation_elements.tolist() == [6 * 4 + 6, 2 * 6 * 4, 6 * 4]
    assert profile.gradient_elements.tolist() == [6 * 4, 2 * 6 * 4, 6 * 4]


def count_saved_elements(model: nn.Module, inputs: tuple[Tensor, ...]) -> int:
    """Return the elements per sample of the inputs, and of what autograd saves in a training pass.

    The model's own tensors do not count.
    """
    own = {
        tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())
    }
    saved = {
        tensor.untyped_storage().data_ptr(): tensor.numel() * float32_equivalents(tensor.dtype)
        for tensor in inputs
    }
    # Another tensor could get the memory of one that is gone.
    alive = []

    def save(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage().data_ptr()
        if storage not in own and tensor.dim() > 0:
            size = tensor.numel() * float32_equivalents(tensor.dtype)
            saved[storage] = max(saved.get(storage, 0), size)
            alive.append(tensor)
        return tensor

    with saved_tensors_hooks(save, lambda tensor: tensor):
        alive.append(model.train()(*inputs))
    return int(sum(saved.values())) // len(inputs[0])


@pytest.mark.parametrize("name", BUILT_IN)
def test_saved_tensors_are_those_that_autograd_saves(name: str) -> None:
    model = build_registered_model(name, **BUILT_IN[name])
    saved = count_saved_elements(model, (sample(name),))
    # Not equal: the layout of the result of attention depends on the kernel.
    assert air.profile(model).stored_elements[-1] == pytest.approx(saved, rel=0.07)


PLAIN = [kind for kind in HARD if kind not in (Checkpointed, CustomGradient, Masked)]


@pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.__name__)
def test_saved_tensors_of_hard_models_are_about_those_of_autograd(kind: type[nn.Module]) -> None:
    profile: Profile = air.profile(kind(), inputs=HARD[kind])
    assert profile.stored_elements[-1] == pytest.approx(
        count_saved_elements(kind(), HARD[kind]), rel=0.15, abs=4
    )


def test_a_model_of_many_equal_blocks_is_measured_like_one(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []

    def count(args: list[Tensor]) -> CopiedValues:
        measured.append(args)
        return CopiedValues(args)

    monkeypatch.setattr(costs, "CopiedValues", count)
    air.profile(build_registered_model("gpt", layers=1, width=16, heads=2))
    first = len(measured)
    air.profile(build_registered_model("gpt", layers=6, width=16, heads=2))
    assert len(measured) <= 2 * first + 4


def test_backward_macs_depend_on_which_parameters_are_frozen() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8))
    model[1].weight.requires_grad_(False)
    model[2].bias.requires_grad_(False)
    # The first layer needs the gradient of its weights, the second of its input, the last both.
    assert air.profile(model, (8,)).backward_macs.tolist() == [64, 128, 256]


def test_detached_tensors_get_no_gradient() -> None:
    class Detached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(8, 8)
            self.second = nn.Linear(8, 8)
            self.third = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.third(self.second(self.first(x)).detach())

    profile = air.profile(Detached(), (8,))
    assert profile.names == ("first", "second", "third")
    assert profile.gradient_elements.tolist() == [0, 0, 8]
    assert profile.backward_macs.tolist() == [0, 0, 64]
    assert profile.stored_elements.tolist() == [8, 8, 16]


@pytest.mark.parametrize("copies", [42, 43, 44])
def test_saved_tensors_are_not_those_measured_with_the_large_batch(
    copies: int,
) -> None:
    """With 43 copies a batch of 3 has as many rows as the large batch of 129 has without copies.

    The large batch is measured without gradients, so its measurements must not be reused.
    """

    class CopiesInTraining(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(8, 8)
            self.last = nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.tanh(self.first(x))
            if self.training:
                h = h + torch.tanh(h.repeat(copies, 1)).view(-1, copies, 8).sum(1)
            return self.last(h)

    # The data, the first tanh, that of the copies, and the input of the last layer.
    assert air.profile(CopiesInTraining(), (8,)).stored_elements[-1] == 8 + 8 + 8 * copies + 8


def test_dropout_by_position_or_keyword_makes_attention_save_its_scores() -> None:
    class Attending(nn.Module):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__()
            self.first = nn.Linear(8, 8)
            self.last = nn.Linear(8, 2)
            self.args = args
            self.kwargs = kwargs

        def forward(self, x: Tensor) -> Tensor:
            h = self.first(x)
            return self.last(
                nn.functional.scaled_dot_product_attention(h, h, h, *self.args, **self.kwargs)
            )

    by_position = air.profile(Attending(None, 0.5), (6, 8))
    by_name = air.profile(Attending(dropout_p=0.5), (6, 8))
    without = air.profile(Attending(), (6, 8))
    assert by_position == by_name
    # All scores, and not one number a query.
    assert by_position.stored_elements[-1] > without.stored_elements[-1] + 6 * 6
