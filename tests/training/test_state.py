"""State: what exists once and what exists K times; moving the boundary; means."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from airsplit.models.splits import find_splits
from airsplit.scenario.settings import ALGORITHMS
from airsplit.training.coordinator import Training
from airsplit.training.losses import cross_entropy
from airsplit.training.optimizers import Adam, Sgd
from airsplit.training.replica import Replica
from airsplit.training.state import Mean, State
from training import tiny

# weights and biases of the three linear layers of the mlp
LAYERS = {0: 6 * 7 + 7, 2: 7 * 5 + 5, 4: 5 * 3 + 3}


def replica(model: str = "mlp", optimizer: Any = None) -> Replica:
    made = getattr(tiny, model)().train()
    return Replica(
        find_splits(made, (torch.zeros(2, tiny.FEATURES),)), optimizer or Sgd(0.1), cross_entropy
    )


def elements(tensors: dict[str, torch.Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors.values())


@pytest.mark.parametrize(
    ("algorithm", "settings", "copies"),
    [
        ("sfl", {}, 1),
        ("sfl", {"momentum": 0.9}, 2),
        ("sfl", {"optimizer": "adam"}, 3),
        *((name, {"momentum": 0.9}, 2) for name in ALGORITHMS if name != "sfl"),
    ],
)
def test_personal_tensors_exist_for_each_device_and_common_ones_once(
    algorithm: str, settings: dict[str, Any], copies: int
) -> None:
    training = Training(
        tiny.scenario(splits=[1, 2, 3, 1, 2], algorithm=algorithm, rounds=1, **settings)
    )
    for _ in training.rounds():
        pass
    state, counters = training.state, 0
    if settings.get("optimizer") == "adam":  # and one number of steps for each tensor
        counters = 1
    front, back = LAYERS[0] + LAYERS[2] + 4 * counters / copies, LAYERS[4] + 2 * counters / copies
    if algorithm == "sfl":
        assert elements(state.personal) == 5 * copies * front
        assert elements(state.common) == copies * back
        assert {tensor.shape[0] for tensor in state.personal.values()} == {5}
    else:
        assert elements(state.personal) == 0
        assert elements(state.common) == copies * (front + back)
    assert not state.common.keys() & state.personal.keys()
    storages = {
        tensor.untyped_storage().data_ptr()
        for tensor in (*state.common.values(), *state.personal.values())
    }
    assert len(storages) == len(state.common) + len(state.personal)  # none lies in another's memory


def test_every_device_begins_with_the_model_as_it_is() -> None:
    one = replica(optimizer=Sgd(0.1, momentum=0.9))
    state = State.begun(one, 3, range(4))
    for k in range(4):
        of = state.of(k)
        assert of.keys() == one.tensors.keys()
        assert all(torch.equal(tensor, one.tensors[name]) for name, tensor in of.items())
        assert of["momentum:0.weight"].count_nonzero() == 0
    one.tensors["model:0.weight"].add_(1)
    assert not torch.equal(state.of(0)["model:0.weight"], one.tensors["model:0.weight"])


def test_what_a_device_keeps_is_its_own() -> None:
    one = replica()
    state = State.begun(one, 2, range(3))
    state.keep(1, {"model:0.bias": torch.full((7,), 5.0)})
    assert state.own(1)["model:0.bias"].tolist() == [5.0] * 7
    for k in (0, 2):
        assert torch.equal(state.own(k)["model:0.bias"], one.tensors["model:0.bias"])
    assert state.own(1).keys() == {"model:0.bias", "model:0.weight"}


def begun(optimizer: Any) -> tuple[Replica, State]:
    """Four devices, cut at 3, each with tensors of its own."""
    one = replica("norm_mlp", optimizer)
    state = State.begun(one, 4, range(4))
    rng = torch.Generator().manual_seed(0)
    for tensor in state.personal.values():
        if tensor.is_floating_point():
            tensor.copy_(torch.randn(tensor.shape, generator=rng))
        else:
            tensor.copy_(torch.arange(3, 3 + tensor.numel()).reshape(tensor.shape))
    return one, state


@pytest.mark.parametrize("optimizer", [Sgd(0.1, momentum=0.9), Adam(0.1)])
@pytest.mark.parametrize("weights", [[0.25] * 4, [0.1, 0.2, 0.3, 0.4]])
def test_newly_common_layers_are_the_mean_of_the_copies_with_all_that_is_remembered(
    optimizer: Any, weights: list[float]
) -> None:
    one, state = begun(optimizer)
    before = {name: tensor.clone() for name, tensor in state.personal.items()}
    state.move(one, 1, weights)
    assert {name for name in before if name.split(":")[1].startswith("0.")} == set(state.personal)
    assert state.boundary == 1
    for name, copies in before.items():
        if name in state.personal:
            assert torch.equal(state.personal[name], copies)
        elif copies.is_floating_point():
            wanted = sum(weight * copies[k].double() for k, weight in enumerate(weights))
            torch.testing.assert_close(state.common[name].double(), wanted, rtol=1e-6, atol=1e-7)
            assert state.common[name].dtype == copies.dtype
        else:
            assert torch.equal(state.common[name], copies[0])  # whole numbers come from device 0
    assert int(state.common["model:1.num_batches_tracked"]) == 3


def test_newly_personal_layers_are_the_common_value_for_everybody() -> None:
    one, state = begun(Sgd(0.1, momentum=0.9))
    state.common["momentum:5.weight"].fill_(4.0)
    before = {name: tensor.clone() for name, tensor in state.common.items()}
    kept = {name: tensor.clone() for name, tensor in state.personal.items()}
    state.move(one, 6, [0.25] * 4)
    assert state.common == {}
    assert state.boundary == 6
    for name, tensor in before.items():
        assert state.personal[name].shape == (4, *tensor.shape)
        assert all(torch.equal(copy, tensor) for copy in state.personal[name])
    assert all(torch.equal(state.personal[name], tensor) for name, tensor in kept.items())
    state.keep(2, {"momentum:5.weight": torch.zeros(3, 5)})  # four copies, not one seen four times
    assert state.personal["momentum:5.weight"][1].unique().tolist() == [4.0]


def test_moving_to_nothing_personal_and_back_loses_no_tensor() -> None:
    one, state = begun(Sgd(0.1, momentum=0.9))
    state.move(one, 0, [0.25] * 4)
    assert state.personal == {}
    assert state.common.keys() == one.tensors.keys()
    state.move(one, 4, [0.25] * 4)
    assert state.common.keys() | state.personal.keys() == one.tensors.keys()
    assert set(state.personal) == set(one.front_keys(4))


def test_a_mean_is_weighted_and_whole_numbers_come_from_the_first() -> None:
    mean = Mean()
    mean.add({"w": torch.tensor([1.0, 2.0]), "n": torch.tensor(7)}, 0.25)
    mean.add({"w": torch.tensor([5.0, 10.0]), "n": torch.tensor(9)}, 0.75)
    found = mean.result({"w": torch.zeros(2), "n": torch.tensor(0)})
    assert found["w"].tolist() == [4.0, 8.0]
    assert int(found["n"]) == 7


def test_the_mean_of_one_is_itself_bit_for_bit_and_nothing_of_it() -> None:
    tensor = torch.randn(100)
    mean = Mean()
    mean.add({"w": tensor}, 1.0)
    target = {"w": torch.zeros(100)}
    mean.into(target)
    assert torch.equal(target["w"], tensor)
    tensor.add_(1)
    assert not torch.equal(target["w"], tensor)


def test_what_a_mean_is_made_of_stays_as_it_is() -> None:
    """With weight one the product could be the tensor itself."""
    first, second = torch.ones(3), torch.ones(3)
    mean = Mean()
    mean.add({"w": first}, 1.0)
    mean.add({"w": second}, 1.0)
    assert first.tolist() == second.tolist() == [1.0] * 3
    assert mean.result({"w": first})["w"].tolist() == [2.0] * 3
