"""A split step against the unsplit one, written with torch alone: bit for bit, at every split."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from airsplit.models.splits import find_splits
from airsplit.models.zoo.registry import build_registered_model
from airsplit.training.losses import cross_entropy
from airsplit.training.optimizers import Adam, Sgd
from airsplit.training.replica import Replica, state_names
from airsplit.training.step import (
    NonFinite,
    device_backward,
    device_forward,
    sent,
    server_step,
    split_step,
)
from training import tiny

Make = Callable[[], tuple[nn.Module, Tensor, Tensor]]


def flat(name: str, **arguments: Any) -> Make:
    return lambda: (getattr(tiny, name)(**arguments), *tiny.drawn(5, 1, tiny.FEATURES))


def pictures(name: str, **arguments: Any) -> Make:
    def make() -> tuple[nn.Module, Tensor, Tensor]:
        with torch.random.fork_rng():
            torch.manual_seed(3)
            return (
                build_registered_model(name, **arguments),
                torch.randn(3, 3, 32, 32),
                torch.tensor([1, 0, 7]),
            )

    return make


def texts() -> tuple[nn.Module, Tensor, Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = build_registered_model("gpt", (6,), vocabulary=11, width=8, layers=2, heads=2)
    rows = torch.randint(11, (3, 7), generator=torch.Generator().manual_seed(4))
    return model, rows[:, :-1], rows[:, 1:]


def small_pictures(norm: bool) -> Make:
    return lambda: (tiny.cnn(norm=norm), *tiny.drawn(5, 1, 1, 6, 6))


MODELS: dict[str, Make] = {
    "mlp": flat("mlp"),
    "batch norm": flat("norm_mlp"),
    "frozen batch norm": flat("frozen_norm"),
    "dropout": flat("dropout_mlp", front=0.4, back=0.3),
    "cnn": small_pictures(norm=False),
    "cnn with batch norm": small_pictures(norm=True),
    "shortcut": flat("shortcut"),
    "tied": flat("tied"),
    "tied ends": flat("tied_ends"),
    "frozen front": flat("frozen", layer=0),
    "frozen middle": flat("frozen", layer=2),
    "frozen head": flat("frozen", layer=4),
    "a dict comes out": flat("several", named=True),
    "a tuple comes out": flat("several", named=False),
    "mixing": flat("mixing"),
    "unused": flat("unused"),
    "alexnet32": pictures("alexnet32", width=0.1),
    "resnet20": pictures("resnet20", layers=8, width=4),
    "vit": pictures("vit", patch=8, width=16, layers=2, heads=2),
    "vit with dropout": pictures("vit", patch=16, width=8, layers=1, heads=2, dropout=0.2),
    "gpt": texts,
}


def scores(output: Any) -> Tensor:
    """What the loss is of, for the models here."""
    if isinstance(output, dict):
        output = output["logits"]
    return output[0] if isinstance(output, tuple) else output


def unsplit_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, labels: Tensor
) -> float:
    torch.manual_seed(11)
    optimizer.zero_grad()
    loss = F.cross_entropy(scores(model(inputs)).flatten(0, -2), labels.flatten())
    loss.backward()
    optimizer.step()
    return loss.item()


@pytest.mark.parametrize("name", MODELS)
def test_a_split_step_is_the_unsplit_step_bit_for_bit(name: str) -> None:
    model, inputs, labels = MODELS[name]()
    plain = copy.deepcopy(model).train()
    bare = torch.optim.SGD(
        [p for p in plain.parameters() if p.requires_grad], lr=0.1, momentum=0.9, weight_decay=0.01
    )
    losses = [unsplit_step(plain, bare, inputs, labels) for _ in range(2)]
    wanted, gradients = plain.state_dict(), {n: p.grad for n, p in plain.named_parameters()}

    found = find_splits(model.train(), (inputs,))
    replica = Replica(found, Sgd(0.1, momentum=0.9, weight_decay=0.01), cross_entropy)
    begun = {key: tensor.clone() for key, tensor in replica.tensors.items()}
    start = copy.deepcopy(model.state_dict())
    for split in range(1, len(found.splits) + 1):
        model.load_state_dict(start)
        replica.load(begun)
        for loss in losses:
            torch.manual_seed(11)
            assert replica.step(split, (inputs,), labels) == loss, split
        after = model.state_dict()
        assert after.keys() == wanted.keys()
        assert [key for key in wanted if not torch.equal(after[key], wanted[key])] == [], split
        for key, parameter in model.named_parameters():
            gradient = gradients[key]
            assert (parameter.grad is None) == (gradient is None), (split, key)
            assert gradient is None or torch.equal(parameter.grad, gradient), (split, key)  # type: ignore[arg-type]


@pytest.mark.parametrize("decay", [0.0, 0.02])
@pytest.mark.parametrize("kind", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_the_optimizers_are_those_of_torch_bit_for_bit(name: str, kind: str, decay: float) -> None:
    dtype, rng = getattr(torch, kind), torch.Generator().manual_seed(0)
    ours = [torch.randn(4, 3, generator=rng).to(dtype), torch.randn(5, generator=rng).to(dtype)]
    theirs = [nn.Parameter(tensor.clone()) for tensor in ours]
    if name == "adam":
        made: Any = Adam(0.03, decay)
        bare: torch.optim.Optimizer = torch.optim.Adam(theirs, lr=0.03, weight_decay=decay)
    else:
        mu = 0.9 if name == "momentum" else 0.0
        made, bare = (
            Sgd(0.03, mu, decay),
            torch.optim.SGD(theirs, lr=0.03, momentum=mu, weight_decay=decay),
        )
    kept = {
        s: [
            torch.zeros((), dtype=torch.float64) if s in made.counters else torch.zeros_like(t)
            for t in ours
        ]
        for s in made.slots
    }
    for _ in range(6):
        gradients = [torch.randn(t.shape, generator=rng).to(dtype) for t in ours]
        given = [g.clone() for g in gradients]
        made.step(ours, gradients, kept)
        for parameter, gradient in zip(theirs, given, strict=True):
            parameter.grad = gradient.clone()
        bare.step()
        assert all(torch.equal(g, h) for g, h in zip(gradients, given, strict=True)), (
            "the gradients are the caller's"
        )
        for one, other in zip(ours, theirs, strict=True):
            assert torch.equal(one, other.detach())


def test_what_arrives_has_its_own_gradient_and_the_device_gets_it_back() -> None:
    """Worked by hand: y = 3 (2 x), loss = mean y, so that the gradient at the cut is 3 / n and at the weight 3 mean x."""
    front, back = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    front.weight.data.fill_(2.0)
    back.weight.data.fill_(3.0)
    wrapped = nn.Sequential(front)
    x = torch.tensor([[1.0], [5.0]])
    crossing = (wrapped(x),)
    arrived = sent(crossing)
    assert arrived[0].is_leaf
    assert arrived[0].requires_grad
    loss, gradients = server_step(back, lambda y, labels: y.mean(), arrived, torch.zeros(2))
    assert loss == 18.0  # 6 · mean(1, 5)
    assert gradients[0].tolist() == [[1.5], [1.5]]  # type: ignore[union-attr]
    assert front.weight.grad is None
    device_backward(crossing, gradients)
    assert front.weight.grad.tolist() == [[9.0]]
    assert back.weight.grad.tolist() == [[6.0]]


def test_nothing_comes_back_to_a_frozen_front() -> None:
    model, inputs, labels = MODELS["frozen front"]()
    replica = Replica(find_splits(model.train(), (inputs,)), Sgd(0.1), cross_entropy)
    front, back = replica.halves(1)
    crossing = device_forward(front, (inputs,))
    _, gradients = server_step(back, cross_entropy, sent(crossing), labels)
    assert gradients == [None]
    device_backward(crossing, gradients)
    assert all(parameter.grad is None for parameter in front.parameters())


@pytest.mark.parametrize(
    ("value", "seen"), [(math.inf, "activations"), (math.nan, "activations"), (1e38, "loss")]
)
def test_a_number_that_is_not_finite_is_told_by_where_it_is_seen(value: float, seen: str) -> None:
    front, back = nn.Sequential(nn.Identity()), nn.Linear(2, 2)
    with torch.no_grad():
        back.weight.fill_(100.0)
    with pytest.raises(NonFinite, match=seen):
        split_step(
            _OneTensor(front),
            back,
            lambda y, labels: y.sum(),
            (torch.full((1, 2), value),),
            torch.zeros(1),
        )


class _OneTensor(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (self.inner(x),)


# ---- the replica -----------------------------------------------------------------------------------------------------------
def replica_of(model: nn.Module, inputs: Tensor, optimizer: Any = None) -> Replica:
    return Replica(find_splits(model.train(), (inputs,)), optimizer or Sgd(0.1), cross_entropy)


def test_everything_that_a_training_step_changes_is_told_apart_from_what_it_does_not() -> None:
    model, inputs, labels = MODELS["batch norm"]()
    model[0].weight.requires_grad_(False)
    replica = replica_of(model, inputs, Sgd(0.1, momentum=0.9))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    replica.step(2, (inputs,), labels)
    changed = {
        name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])
    }
    assert {f"model:{name}" for name in changed} <= set(replica.tensors)
    assert set(replica.fixed) == {"model:0.weight"}


def test_front_keys_name_what_is_in_the_layers_up_to_a_split_and_what_is_remembered_of_it() -> None:
    model, inputs, _ = MODELS["batch norm"]()
    replica = replica_of(model, inputs, Adam(0.1))
    assert replica.front_keys(0) == []
    first = {
        f"{kind}:0.{name}"
        for kind in ("model", "first", "second", "steps")
        for name in ("weight", "bias")
    }
    assert set(replica.front_keys(1)) == first
    buffers = {f"model:1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}
    learned = {
        f"{kind}:1.{name}"
        for kind in ("model", "first", "second", "steps")
        for name in ("weight", "bias")
    }
    assert set(replica.front_keys(2)) == first | buffers | learned
    assert set(replica.front_keys(6)) == set(replica.tensors)


def test_loading_tensors_makes_the_replica_another_device() -> None:
    model, inputs, _ = MODELS["mlp"]()
    replica = replica_of(model, inputs, Sgd(0.1, momentum=0.5))
    other = {key: torch.randn(tensor.shape) for key, tensor in replica.tensors.items()}
    replica.load(other)
    assert torch.equal(model[0].weight, other["model:0.weight"])
    assert all(torch.equal(replica.tensors[key], tensor) for key, tensor in other.items())
    assert torch.equal(
        replica.taken(["momentum:2.bias"])["momentum:2.bias"], other["momentum:2.bias"]
    )


def test_tied_tensors_are_trained_once_and_named_as_often_as_the_state_dict_does() -> None:
    model = tiny.tied()
    names = state_names(model)
    assert names.keys() == model.state_dict().keys()
    assert names["again.weight"] == "first.weight"
    assert names["last.weight"] == "before.weight"
    assert names["last.bias"] == "last.bias"
