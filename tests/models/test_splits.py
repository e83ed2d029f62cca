"""Splits of a model: names, costs, and that the user's model is unchanged."""

from collections import OrderedDict
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from airsplit.core.errors import InvalidValue
from airsplit.models.splits import find_splits
from airsplit.system.profile import Profile


def profile_module(module: nn.Module, inputs: Any) -> Profile:
    return find_splits(module, inputs if isinstance(inputs, tuple) else (inputs,)).profile()


def test_splits_of_nested_sequentials_have_dotted_names() -> None:
    block = nn.Sequential(OrderedDict(conv=nn.Conv2d(3, 4, 3), act=nn.ReLU()))
    model = nn.Sequential(
        OrderedDict(body=nn.Sequential(block, nn.Flatten()), head=nn.Linear(4 * 36, 2))
    )
    profile = profile_module(model, torch.empty(1, 3, 8, 8))
    assert profile.names == ("body.0.conv", "body.0.act", "body.1", "head")
    assert profile.layer_macs.tolist() == [9 * 3 * 4 * 36, 144, 0, 288]


def test_tensors_saved_by_several_layers_count_once() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Identity(), nn.Linear(8, 3)
    )
    # conv saves its input, 16; relu its output, 8, which is also the input of the linear layer.
    assert profile_module(model, torch.empty(1, 1, 4, 4)).stored_elements.tolist() == [
        16,
        24,
        24,
        24,
        24,
    ]


class Twice(nn.Sequential):
    """A Sequential that runs all its layers twice."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) + super().forward(input)


def test_a_sequential_with_a_forward_of_its_own_is_traced() -> None:
    profile = profile_module(
        nn.Sequential(nn.Linear(4, 4), Twice(nn.Linear(4, 4), nn.ReLU())), torch.empty(1, 4)
    )
    assert profile.names == ("0", "1.0_1", "1.1_1", "1.add")
    assert profile.matmul_macs.tolist() == [16, 48, 48, 48]
    assert profile.activation_elements.tolist() == [4, 8, 8, 4]


def test_a_layer_without_parameters_may_appear_twice() -> None:
    relu = nn.ReLU()
    profile = profile_module(
        nn.Sequential(nn.Linear(4, 4), relu, nn.Linear(4, 4), relu), torch.empty(1, 4)
    )
    assert profile.names == ("0", "1", "2", "3")
    assert profile.layer_macs.tolist() == [16, 4, 16, 4]


def test_no_split_is_between_layers_that_share_a_parameter() -> None:
    first, last = nn.Linear(4, 4), nn.Linear(4, 4)
    last.weight = first.weight
    model = nn.Sequential(nn.ReLU(), first, nn.ReLU(), last, nn.Linear(4, 2))
    profile = profile_module(model, torch.empty(1, 4))
    assert profile.names == ("0", "3", "4")
    assert profile.layer_macs.tolist() == [4, 16 + 4 + 16, 8]
    assert profile.matmul_macs.tolist() == [0, 32, 40]
    assert profile.parameters.tolist() == [0, 16 + 4 + 4, 10]
    assert profile.activation_elements.tolist() == [4, 4, 2]
    # The input; up to 3 the inputs of two linear layers; with 4 its own.
    assert profile.stored_elements.tolist() == [4, 12, 16]
    assert profile.parameters.sum() == sum(p.numel() for p in model.parameters())


def test_overlapping_uses_of_shared_parameters_leave_one_split() -> None:
    a, b = nn.Linear(4, 4), nn.Linear(4, 4)
    profile = profile_module(nn.Sequential(a, b, a, b), torch.empty(1, 4))
    assert profile.names == ("3",)
    assert (profile.layer_macs.tolist(), profile.parameters.tolist()) == ([64], [40])


def state(module: nn.Module) -> dict[str, Any]:
    return {
        name: (id(t), t.device.type, t.requires_grad, t.data_ptr(), t.clone())
        for name, t in module.state_dict(keep_vars=True).items()
    }


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_not_run_moved_or_changed(training: bool) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(), nn.Flatten(), nn.Linear(4 * 36, 2)
    )
    model.train(training)
    model[4].weight.requires_grad_(False)
    before, generator = state(model), torch.get_rng_state()
    profile = profile_module(model, torch.zeros(16, 3, 8, 8))
    after = state(model)
    assert {name: row[:4] for name, row in after.items()} == {
        name: row[:4] for name, row in before.items()
    }
    assert all(torch.equal(after[name][4], before[name][4]) for name in before)
    assert torch.equal(torch.get_rng_state(), generator)
    assert model.training is training
    assert profile.layer_macs[1] == 2 * 144


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(4), nn.BatchNorm1d(4, track_running_stats=False)])
def test_batch_normalization_of_a_single_sample_is_profiled(norm: nn.Module) -> None:
    module = nn.Sequential(nn.Linear(3, 4), norm).train()
    assert profile_module(module, torch.empty(1, 3)).layer_macs.tolist() == [12, 8]


def test_a_model_larger_than_any_memory_is_profiled() -> None:
    side = 10**6
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(side, side), nn.ReLU())
    assert profile_module(model, torch.empty(1, side, device="meta")).macs.tolist() == [
        side**2,
        side**2 + side,
    ]


def test_profiling_does_not_copy_the_weights() -> None:
    model = nn.Sequential(nn.Linear(1000, 1000, bias=False))
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as record:
        profile_module(model, torch.empty(1, 1000, device="meta"))
    allocated = sum(max(0, event.self_cpu_memory_usage) for event in record.events())
    assert allocated < 1000 * 1000


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_profiles_do_not_depend_on_the_data_type(dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU())
    same = profile_module(model, torch.zeros(2, 8))
    assert profile_module(model.to(dtype), torch.zeros(2, 8, dtype=dtype)) == same


@pytest.mark.parametrize(
    ("module", "inputs", "message"),
    [
        (nn.Sequential(), torch.zeros(1, 3), "at least one layer"),
        (nn.Sequential(nn.Sequential()), torch.zeros(1, 3), "at least one layer"),
        (nn.Sequential(nn.Linear(3, 2)), torch.tensor(1.0), "with a batch axis"),
        (
            nn.Sequential(nn.Linear(3, 2)),
            (torch.zeros(1, 3),) * 2,
            r"model fails .*TypeError.*; "
            r"does it take input_shape \(3,\) of torch.float32 and \(3,\) of torch.float32",
        ),
        (nn.Sequential(nn.Linear(3, 2)), (), "inputs must be one tensor or more"),
        (
            nn.Sequential(nn.Linear(3, 2), nn.Linear(3, 2)),
            torch.zeros(1, 3),
            r"layer '1' \(Linear\) fails",
        ),
        (nn.Sequential(nn.Embedding(9, 2)), torch.zeros(1, 3), r"layer '0' \(Embedding\) fails"),
    ],
)
def test_a_model_that_does_not_suit_its_inputs_is_rejected_in_one_line(
    module: nn.Module, inputs: Any, message: str
) -> None:
    with pytest.raises(InvalidValue, match=message) as caught:
        profile_module(module, inputs)
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_lazy_layers_must_run_once_first() -> None:
    model = nn.Sequential(nn.LazyLinear(4))
    with pytest.raises(InvalidValue, match="run it once on a sample"):
        profile_module(model, torch.zeros(1, 3))
    model(torch.zeros(1, 3))
    assert profile_module(model, torch.zeros(1, 3)).layer_macs.tolist() == [12]


@settings(max_examples=15)
@given(st.lists(st.integers(1, 40), min_size=2, max_size=6), st.integers(0, 9))
def test_a_chain_of_linear_layers_counts_the_macs_worked_by_hand(
    sizes: list[int], batch: int
) -> None:
    model = nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise(sizes)))
    profile = profile_module(model, torch.empty(batch, sizes[0]))
    assert profile.layer_macs.tolist() == [a * b for a, b in pairwise(sizes)]
    assert profile.activation_elements.tolist() == sizes[1:]
    assert profile.parameters.tolist() == [a * b + b for a, b in pairwise(sizes)]
    # A linear layer saves its input.
    assert profile.stored_elements.tolist() == np.cumsum(sizes)[:-1].tolist()
