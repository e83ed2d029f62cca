"""The five algorithms against training written down a second time (bare.py): whole copies of the model, torch's optimizers, no cut.

With one device everything is bit for bit; with several, models are in float64 and agree to 1e-12, since sums of several
devices may be taken in another order.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from airsplit.scenario.settings import ALGORITHMS
from airsplit.training.coordinator import Training
from training import tiny
from training.bare import (
    Copies,
    Data,
    Make,
    names_behind,
    one_after_the_other,
    one_server,
    side_by_side,
    step,
)

SPLITS = [1, 2, 3, 1, 2]
OPTIMIZERS: dict[str, tuple[dict[str, Any], Make]] = {
    "sgd": ({}, lambda p: torch.optim.SGD(p, lr=0.3)),
    "momentum": ({"momentum": 0.9}, lambda p: torch.optim.SGD(p, lr=0.3, momentum=0.9)),
    "decay": ({"weight_decay": 0.1}, lambda p: torch.optim.SGD(p, lr=0.3, weight_decay=0.1)),
    "both": (
        {"momentum": 0.5, "weight_decay": 0.1},
        lambda p: torch.optim.SGD(p, lr=0.3, momentum=0.5, weight_decay=0.1),
    ),
    "adam": ({"optimizer": "adam", "learning_rate": 0.03}, lambda p: torch.optim.Adam(p, lr=0.03)),
    "adam with decay": (
        {"optimizer": "adam", "learning_rate": 0.03, "weight_decay": 0.1},
        lambda p: torch.optim.Adam(p, lr=0.03, weight_decay=0.1),
    ),
}
SLOTS = {"momentum": "momentum_buffer", "first": "exp_avg", "second": "exp_avg_sq", "steps": "step"}


def run(**settings: Any) -> tuple[Training, list[float | None]]:
    training = Training(tiny.scenario(evaluate_every=1000, **settings))
    return training, [record.train_loss for record in training.rounds()]


def assert_device(
    training: Training,
    device: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    exact: bool = False,
) -> None:
    """A device of a training is what a model and its optimizer are."""
    found, own = (
        training.state.of(device),
        dict(model.named_parameters()) | dict(model.named_buffers()),
    )
    wanted = {f"model:{name}": tensor.detach() for name, tensor in own.items()}
    if optimizer is not None:
        for name, parameter in model.named_parameters():
            for slot, theirs in SLOTS.items():
                if theirs in optimizer.state.get(parameter, {}):
                    wanted[f"{slot}:{name}"] = optimizer.state[parameter][theirs]
        assert found.keys() | training.replica.fixed.keys() == wanted.keys()
    for name, tensor in wanted.items():
        got = training.replica.fixed[name] if name in training.replica.fixed else found[name]
        if exact:
            assert torch.equal(got.to(tensor.dtype), tensor), (device, name)
        else:
            torch.testing.assert_close(
                got.to(tensor.dtype),
                tensor,
                rtol=1e-12,
                atol=1e-13,
                msg=lambda text, n=name: f"{device} {n}: {text}",
            )


# ---- one device ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("E", [1, 3])
@pytest.mark.parametrize("optimizer", ["sgd", "both", "adam"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.filterwarnings("ignore:the devices are trained one after the other")
def test_one_device_is_plain_training_bit_for_bit(algorithm: str, optimizer: str, E: int) -> None:
    settings, make = OPTIMIZERS[optimizer]
    training, losses = run(
        data="flat", splits=[3], algorithm=algorithm, rounds=4, iterations_per_round=E, **settings
    )
    (pair, _) = tiny.flat()
    data, model = Data(training_order(pair, training), kind=torch.float32), tiny.mlp().train()
    bare = make(list(model.parameters()))
    for number in range(4):
        steps = [step(model, bare, *data.batch(0, number * E + e)) for e in range(E)]
        assert losses[number] == sum(steps) / E
    assert_device(training, 0, model, bare, exact=True)


def training_order(pair: Any, training: Training) -> Any:
    """One device holds every sample, in the order of the data set."""
    assert training.sample_counts.tolist() == [len(pair[1])]
    return [pair]


@pytest.mark.parametrize("algorithm", ["sfl", "fedavg", "splitfed-v2"])
@pytest.mark.parametrize(
    "model", ["norm_mlp", "dropout_mlp", "shortcut", "tied", "frozen", "unused"]
)
def test_one_device_is_plain_training_for_every_kind_of_layer(algorithm: str, model: str) -> None:
    # each side of a cut draws random numbers of its own, so that only what is uncut has one stream for the whole model
    arguments = (
        {"front": 0.3} | ({"back": 0.4} if algorithm == "fedavg" else {})
        if model == "dropout_mlp"
        else {}
    )
    made = {"model__arguments": arguments} if arguments else {}
    training, losses = run(
        model=model, data="flat", splits=[2], algorithm=algorithm, rounds=2, **made
    )
    plain, (pair, _) = getattr(tiny, model)(**arguments).train(), tiny.flat()
    data, bare = (
        Data([pair], kind=torch.float32),
        torch.optim.SGD([p for p in plain.parameters() if p.requires_grad], lr=0.3),
    )
    for number in range(2):
        steps = []
        for e in range(2):
            with training._crew.chance(0, _Round(number + 1), e):  # type: ignore[arg-type] - the random numbers of a step are addressed
                steps.append(step(plain, bare, *data.batch(0, 2 * number + e)))
        assert losses[number] == sum(steps) / 2
    assert_device(training, 0, plain, exact=True)


class _Round:
    def __init__(self, number: int) -> None:
        self.number = number


# ---- several devices -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_sfl_averages_what_is_behind_the_deepest_split_and_nothing_else(
    optimizer: str, weighting: str
) -> None:
    settings, make = OPTIMIZERS[optimizer]
    training, losses = run(splits=SPLITS, kind="float64", weighting=weighting, **settings)
    data, model = Data(tiny.parted()[0]), tiny.mlp(kind="float64")
    copies, wanted = side_by_side(
        model, make, data, 3, 2, names_behind(model, max(SPLITS)), weighting == "samples"
    )
    for k in range(5):
        assert_device(training, k, copies.models[k], copies.optimizers[k])
    assert losses == pytest.approx(wanted, rel=1e-12)
    fronts = [training.state.of(k)["model:0.weight"] for k in range(5)]
    assert not any(torch.equal(fronts[0], other) for other in fronts[1:])


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("optimizer", ["sgd", "both", "adam"])
@pytest.mark.parametrize("algorithm", ["fedavg", "splitfed-v1"])
def test_fedavg_and_splitfed_v1_average_everything(
    algorithm: str, optimizer: str, weighting: str
) -> None:
    settings, make = OPTIMIZERS[optimizer]
    training, losses = run(
        splits=SPLITS, kind="float64", algorithm=algorithm, weighting=weighting, **settings
    )
    data, model = Data(tiny.parted()[0]), tiny.mlp(kind="float64")
    copies, wanted = side_by_side(
        model, make, data, 3, 2, list(model.state_dict()), weighting == "samples"
    )
    for k in range(5):
        assert_device(training, k, copies.models[k], copies.optimizers[k])
    assert losses == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("optimizer", ["sgd", "both", "adam"])
def test_split_learning_hands_one_model_from_device_to_device(optimizer: str) -> None:
    settings, make = OPTIMIZERS[optimizer]
    training, _ = run(splits=SPLITS, kind="float64", algorithm="split-learning", **settings)
    model = one_after_the_other(tiny.mlp(kind="float64"), make, Data(tiny.parted()[0]), 3, 2)
    for k in range(5):
        assert_device(training, k, model)


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("optimizer", ["sgd", "both", "adam"])
def test_splitfed_v2_has_one_server_model_that_every_step_moves(
    optimizer: str, weighting: str
) -> None:
    settings, make = OPTIMIZERS[optimizer]
    training, _ = run(
        splits=SPLITS,
        kind="float64",
        algorithm="splitfed-v2",
        weighting=weighting,
        seed=4,
        **settings,
    )
    model = tiny.mlp(kind="float64")
    wanted = one_server(
        model,
        make,
        Data(tiny.parted()[0], seed=4),
        3,
        2,
        names_behind(model, max(SPLITS)),
        weighting == "samples",
        seed=4,
    )
    assert_device(training, 2, wanted)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_statistics_of_batches_are_averaged_with_the_layers_and_counters_come_from_device_zero(
    algorithm: str,
) -> None:
    """BatchNorm on both sides of the deepest split."""
    settings, make = OPTIMIZERS["momentum"]
    training, _ = run(
        model="norm_mlp",
        splits=[1, 2, 3, 1],
        data="parted_evenly",
        kind="float64",
        algorithm=algorithm,
        **settings,
    )
    data, model = Data(tiny.parted_evenly()[0]), tiny.norm_mlp(kind="float64")
    behind = names_behind(model, 3)
    if algorithm == "split-learning":
        assert_device(training, 1, one_after_the_other(model, make, data, 3, 2))
    elif algorithm == "splitfed-v2":
        assert_device(training, 1, one_server(model, make, data, 3, 2, behind, False, 0))
    else:
        copies, _ = side_by_side(
            model, make, data, 3, 2, behind if algorithm == "sfl" else list(model.state_dict())
        )
        for k in range(4):
            assert_device(training, k, copies.models[k], copies.optimizers[k])


def test_a_cnn_with_batch_norm_in_the_personal_part_keeps_each_devices_statistics() -> None:
    arguments = {"norm": True}
    training, _ = run(
        model="cnn",
        data="parted_images",
        splits=[2, 3, 2, 1, 2],
        kind="float64",
        model__arguments=arguments,
    )
    model, make = tiny.cnn(kind="float64", norm=True), OPTIMIZERS["sgd"][1]
    copies, _ = side_by_side(
        model, make, Data(tiny.parted_images()[0]), 3, 2, names_behind(model, 3)
    )
    for k in range(5):
        assert_device(training, k, copies.models[k])


def test_every_layer_personal_is_training_alone() -> None:
    with pytest.warns(UserWarning, match="averaged"):
        training, _ = run(splits=[5, 1, 2, 3, 4], plan__max_split=5, kind="float64")
    model = tiny.mlp(kind="float64")
    copies, _ = side_by_side(model, OPTIMIZERS["sgd"][1], Data(tiny.parted()[0]), 3, 2, [])
    for k in range(5):
        assert_device(training, k, copies.models[k])
    assert training.state.common == {}


@pytest.mark.parametrize(
    "settings", [{}, {"momentum": 0.9}, {"momentum": 0.9, "weight_decay": 0.1}]
)
@pytest.mark.parametrize("E", [1, 3])
def test_splitfed_v1_is_fedavg_bit_for_bit(E: int, settings: dict[str, float]) -> None:
    one, first = run(splits=SPLITS, algorithm="fedavg", iterations_per_round=E, **settings)
    other, second = run(splits=SPLITS, algorithm="splitfed-v1", iterations_per_round=E, **settings)
    assert first == second
    assert one.state.common.keys() == other.state.common.keys() == one.replica.tensors.keys()
    assert all(
        torch.equal(tensor, other.state.common[name]) for name, tensor in one.state.common.items()
    )


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("algorithm", ["sfl", "fedavg", "splitfed-v1"])
def test_one_iteration_is_one_step_on_the_mean_gradient(algorithm: str, fast: bool) -> None:
    """With the same split for all: of the layers that are averaged."""
    training, _ = run(
        splits=[2] * 4,
        data="parted_evenly",
        kind="float64",
        algorithm=algorithm,
        rounds=1,
        iterations_per_round=1,
        fast_paths=fast,
    )
    model, data = tiny.mlp(kind="float64").train(), Data(tiny.parted_evenly()[0])
    batches = [data.batch(k, 0) for k in range(4)]
    together = (
        torch.cat([inputs for inputs, _ in batches]),
        torch.cat([labels for _, labels in batches]),
    )
    step(
        model, torch.optim.SGD(model.parameters(), lr=0.3), *together
    )  # the mean over 16 samples is the mean of the means over 4
    for name in names_behind(model, 2 if algorithm == "sfl" else 0):
        torch.testing.assert_close(
            training.state.common[f"model:{name}"], model.state_dict()[name], rtol=1e-12, atol=1e-14
        )


def test_frozen_layers_are_bit_for_bit_as_they_were() -> None:
    for algorithm in ALGORITHMS:
        training, _ = run(
            model="frozen",
            splits=SPLITS,
            algorithm=algorithm,
            momentum=0.9,
            weight_decay=0.1,
            model__arguments={"layer": 2},
        )
        before = tiny.frozen(layer=2).state_dict()
        after = training.replica.model.state_dict()
        assert torch.equal(after["2.weight"], before["2.weight"])
        assert torch.equal(after["2.bias"], before["2.bias"])
        assert not torch.equal(after["0.weight"], before["0.weight"])


def test_a_layer_that_is_tied_is_averaged_once() -> None:
    training, _ = run(model="tied", splits=[1, 2, 1, 2, 1], kind="float64")
    model = tiny.tied(kind="float64")
    behind = [name for name, _ in model.named_parameters() if not name.startswith("stem")]
    copies, _ = side_by_side(model, OPTIMIZERS["sgd"][1], Data(tiny.parted()[0]), 3, 2, behind)
    for k in range(5):
        for name, parameter in copies.models[k].named_parameters():
            torch.testing.assert_close(
                training.state.of(k)[f"model:{name}"], parameter.detach(), rtol=1e-12, atol=1e-13
            )


def test_what_crosses_a_shortcut_twice_is_split_like_anything_else() -> None:
    training, _ = run(model="shortcut", splits=[2, 3, 4, 1, 6], kind="float64")
    model = tiny.shortcut(kind="float64")
    copies, _ = side_by_side(
        model, OPTIMIZERS["sgd"][1], Data(tiny.parted()[0]), 3, 2, ["head.weight", "head.bias"]
    )
    for k in range(5):
        assert_device(training, k, copies.models[k])


def test_a_model_of_half_the_width_is_averaged_in_float32() -> None:
    """In bfloat16 a running sum would lose the small devices: the mean of many is as near as one rounding."""
    from airsplit.training.state import Mean

    values = [torch.tensor([1.0 + k / 64]).to(torch.bfloat16) for k in range(64)]
    mean = Mean()
    for value in values:
        mean.add({"w": value}, 1 / 64)
    wanted = torch.tensor([sum(float(value) for value in values) / 64]).to(torch.bfloat16)
    assert torch.equal(mean.result({"w": values[0]})["w"], wanted)
    target = {"w": torch.zeros(1, dtype=torch.bfloat16)}
    mean.into(target)
    assert torch.equal(target["w"], wanted)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("kind", ["float64", "bfloat16"])
def test_every_algorithm_trains_models_of_other_types(kind: str, algorithm: str) -> None:
    training, losses = run(
        splits=SPLITS, kind=kind, algorithm=algorithm, rounds=8, momentum=0.5, learning_rate=0.1
    )
    assert {tensor.dtype for tensor in training.state.of(0).values()} == {getattr(torch, kind)}
    assert losses[-1] < losses[0]  # type: ignore[operator]


def test_copies_of_the_oracle_can_differ() -> None:
    """The oracle itself: without averaging, devices part."""
    copies = Copies(tiny.mlp(), OPTIMIZERS["sgd"][1], 2)
    data = Data(tiny.parted()[0][:2], kind=torch.float32)
    for k in range(2):
        step(copies.models[k], copies.optimizers[k], *data.batch(k, 0))
    assert not torch.equal(copies.models[0][0].weight, copies.models[1][0].weight)
    copies.average(["0.weight"], {0: 0.5, 1: 0.5})
    assert torch.equal(copies.models[0][0].weight, copies.models[1][0].weight)
