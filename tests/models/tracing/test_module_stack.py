"""Names of calls: those of the running modules, each used once."""

import torch
from torch import nn

from airsplit.models.tracing.graph import NO_GROUP
from airsplit.models.tracing.module_stack import ModuleStack, is_layer
from airsplit.models.zoo.layers import FlatLinear
from airsplit.models.zoo.response_norm import ResponseNorm


class OwnForward(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu()


def test_layers_have_a_forward_of_torch_and_are_no_containers() -> None:
    assert is_layer(nn.Conv2d(1, 1, 1))
    assert is_layer(ResponseNorm(5))
    assert is_layer(nn.TransformerEncoderLayer(4, 2))
    assert not is_layer(nn.ModuleList([nn.ReLU()]))
    assert not is_layer(OwnForward())
    assert not is_layer(FlatLinear(2, 3))


def test_a_numbered_name_skips_a_layer_that_has_it() -> None:
    stack = ModuleStack(nn.Module())
    with stack.enter("relu_1", is_split=True):
        pass

    names = [stack.name_call("relu").name for _ in range(3)]

    assert names == ["relu", "relu_2", "relu_3"]


def test_a_shared_module_takes_its_names_in_turn() -> None:
    shared = nn.ReLU()
    stack = ModuleStack(nn.Sequential(shared, nn.Linear(2, 2), shared))
    assert [stack.next_path(shared) for _ in range(3)] == ["0", "2", "0"]
    assert stack.next_path(nn.ReLU()) is None


def test_calls_inside_a_split_share_its_name_and_group() -> None:
    stack = ModuleStack(nn.Module())
    with stack.enter("block", is_split=True):
        first = stack.name_call("relu")
        with stack.enter("block.inner", is_split=True):
            second = stack.name_call("__add__")

    assert first.name == second.name == "block"
    assert first.group == second.group != NO_GROUP
    assert second.base_name == "block.inner.add"


def test_calls_outside_a_split_are_splits_by_themselves() -> None:
    stack = ModuleStack(nn.Module())
    with stack.enter("stage", is_split=False):
        assert stack.name_call("relu").name == "stage.relu"
        assert stack.name_call("relu").group == NO_GROUP
