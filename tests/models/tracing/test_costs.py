"""Work, gradients and kept tensors against what torch does when the model really runs."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

import airsplit as air
from airsplit.models.tracing import costs
from airsplit.models.tracing.costs import float32_equivalents
from airsplit.models.tracing.movement import Movement
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


def counted(step: Any) -> int:
    with FlopCounterMode(display=False) as counter:
        step()
    return int(counter.get_total_flops()) // 4  # two samples, two operations a MAC


@pytest.mark.parametrize("name", BUILT_IN)
def test_products_are_those_of_a_real_pass_forward_and_backward(name: str) -> None:
    model = build_registered_model(name, **BUILT_IN[name])
    profile, x = air.profile(model), sample(name)
    with torch.nn.attention.sdpa_kernel(
        torch.nn.attention.SDPBackend.MATH
    ):  # the counter does not know the fused kernel of the CPU
        forward = counted(lambda: model(x))
        both = counted(lambda: model(x).sum().backward())
    assert profile.matmul_macs[-1] == forward
    light = profile.macs[-1] - profile.matmul_macs[-1]
    assert both - forward <= profile.backward_macs[-1] <= both - forward + light


def test_backward_work_by_hand() -> None:
    model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5))
    # the first layer needs no gradient of the data; the last needs one of its input and one of its weights
    assert air.profile(model, (10,)).backward_macs.tolist() == [200, 220, 420]


def test_frozen_layers_cost_nothing_backward_and_nothing_comes_back_to_them() -> None:
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


def test_ids_that_cross_have_no_gradient() -> None:
    class Late(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.types = nn.Embedding(9, 4), nn.Embedding(2, 4)

        def forward(self, ids: Tensor, types: Tensor) -> Tensor:
            return self.tokens(ids) + self.types(types)

    profile = air.profile(
        Late(), inputs=(torch.zeros(1, 6, dtype=torch.int64), torch.zeros(1, 6, dtype=torch.int64))
    )
    assert profile.activation_elements.tolist() == [6 * 4 + 6, 2 * 6 * 4, 6 * 4]
    assert profile.gradient_elements.tolist() == [6 * 4, 2 * 6 * 4, 6 * 4]


def really_kept(model: nn.Module, inputs: tuple[Tensor, ...]) -> int:
    """What autograd keeps in a training pass, in elements per sample, with the inputs; the model's own tensors are not counted."""
    own = {
        tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())
    }
    kept = {
        tensor.untyped_storage().data_ptr(): tensor.numel() * float32_equivalents(tensor.dtype)
        for tensor in inputs
    }
    alive = []

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage().data_ptr()
        if storage not in own and tensor.dim() > 0:
            kept[storage] = max(
                kept.get(storage, 0), tensor.numel() * float32_equivalents(tensor.dtype)
            )
            alive.append(tensor)
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        alive.append(model.train()(*inputs))
    return int(sum(kept.values())) // len(inputs[0])


@pytest.mark.parametrize("name", BUILT_IN)
def test_kept_tensors_are_those_that_autograd_keeps(name: str) -> None:
    model = build_registered_model(name, **BUILT_IN[name])
    assert air.profile(model).stored_elements[-1] == pytest.approx(
        really_kept(model, (sample(name),)), rel=0.07
    )  # attention's result may be laid out otherwise


PLAIN = [kind for kind in HARD if kind not in (Checkpointed, CustomGradient, Masked)]


@pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.__name__)
def test_kept_tensors_of_hard_models(kind: type[nn.Module]) -> None:
    profile: Profile = air.profile(kind(), inputs=HARD[kind])
    assert profile.stored_elements[-1] == pytest.approx(
        really_kept(kind(), HARD[kind]), rel=0.15, abs=4
    )


def test_a_model_of_many_equal_blocks_is_measured_like_one(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []

    def count(args: list[Tensor]) -> Movement:
        measured.append(args)
        return Movement(args)

    monkeypatch.setattr(costs, "Movement", count)
    air.profile(build_registered_model("gpt", layers=1, width=16, heads=2))
    first = len(measured)
    air.profile(build_registered_model("gpt", layers=6, width=16, heads=2))
    assert len(measured) <= 2 * first + 4


def test_which_parameters_are_frozen_matters_not_only_how_many() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8))
    model[1].weight.requires_grad_(False)
    model[2].bias.requires_grad_(False)
    # the first needs its weights' gradient, the second its input's, the last both
    assert air.profile(model, (8,)).backward_macs.tolist() == [64, 128, 256]


def test_nothing_comes_back_through_what_is_detached() -> None:
    class Detached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.third = (nn.Linear(8, 8) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            return self.third(self.second(self.first(x)).detach())

    profile = air.profile(Detached(), (8,))
    assert profile.names == ("first", "second", "third")
    assert profile.gradient_elements.tolist() == [0, 0, 8]
    assert profile.backward_macs.tolist() == [0, 0, 64]
    assert profile.stored_elements.tolist() == [8, 8, 16]


@pytest.mark.parametrize("copies", [42, 43, 44])
def test_what_training_keeps_does_not_depend_on_what_the_large_batch_looked_like(
    copies: int,
) -> None:
    """With 43 copies a batch of 3 has as many rows as the large batch, which is measured without gradients, has without copies."""

    class CopiesInTraining(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.tanh(self.first(x))
            if self.training:
                h = h + torch.tanh(h.repeat(copies, 1)).view(-1, copies, 8).sum(1)
            return self.last(h)

    # the data, the first tanh, that of the copies, and what the last layer is given
    assert air.profile(CopiesInTraining(), (8,)).stored_elements[-1] == 8 + 8 + 8 * copies + 8


def test_attention_keeps_what_its_dropout_needs_however_that_is_given() -> None:
    class Attending(nn.Module):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__()
            self.first, self.last, self.given, self.named = (
                nn.Linear(8, 8),
                nn.Linear(8, 2),
                given,
                named,
            )

        def forward(self, x: Tensor) -> Tensor:
            h = self.first(x)
            return self.last(
                nn.functional.scaled_dot_product_attention(h, h, h, *self.given, **self.named)
            )

    by_place, by_name, without = (
        air.profile(model, (6, 8))
        for model in (Attending(None, 0.5), Attending(dropout_p=0.5), Attending())
    )
    assert by_place == by_name
    assert (
        by_place.stored_elements[-1] > without.stored_elements[-1] + 6 * 6
    )  # all scores, and not one number a query
