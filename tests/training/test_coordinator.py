"""The engine: who takes part, who drops out, re-planning, averaging fronts, and what happens when numbers are not finite."""

from __future__ import annotations

import copy
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from airsplit import AirsplitError, Diverged, InvalidValue
from airsplit.data.batches import Batches
from airsplit.data.datasets import Samples, pass_through
from airsplit.runs.record import RoundRecord
from airsplit.scenario.settings import ALGORITHMS, TrainingSettings
from airsplit.training.coordinator import Training
from airsplit.training.local_steps import Crew, Task
from training import tiny
from training.bare import Copies, Data, names_behind, step, weights_of
from training.test_algorithms import OPTIMIZERS, assert_device

MOVING: dict[str, Any] = {
    "splits": None,
    "plan__method": "exact",
    "plan__max_split": 4,
    "fleet__devices": 5,
    "fleet__redraw_fading": True,
    "fleet__seconds_per_mac": [1e-8, 1e-6],
    "fleet__mean_distance_m": 600.0,
    "replan_every": 1,
    "rounds": 7,
}
"""Channels that are drawn anew every round, and a plan that follows them: the deepest split goes from 1 to 3 and back, several times."""


def run(**settings: Any) -> tuple[Training, list[RoundRecord]]:
    training = Training(tiny.scenario(**{"evaluate_every": 1000} | settings))
    return training, list(training.rounds())


def finishing(record: RoundRecord) -> list[int]:
    return [k for k in record.participants if k not in record.dropped]


# ---- how far a round is ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("fast_paths", [True, False])
@pytest.mark.parametrize("iterations", [1, 4])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_round_tells_how_far_it_is(algorithm: str, iterations: int, fast_paths: bool) -> None:
    told = list[str]()
    settings = {
        "rounds": 2,
        "iterations_per_round": iterations,
        "fast_paths": fast_paths,
        "algorithm": algorithm,
    }
    for _ in Training(tiny.scenario(**settings), tell=told.append).rounds():
        trained = [float(text.split()[4]) for text in told if "tested" not in text]
        tested = [float(text.split()[5]) for text in told if "tested" in text]
        assert trained == sorted(trained)
        assert tested == sorted(tested)
        assert (trained[-1], tested[-1]) == (100, 100)
        assert all(text.startswith("round 1 of 2: ") for text in told) or all(
            text.startswith("round 2 of 2: ") for text in told
        )
        assert (
            told.index(
                "round 1 of 2: 100 % trained"
                if "round 1" in told[0]
                else "round 2 of 2: 100 % trained"
            )
            == len(trained) - 1
        )
        told.clear()


def test_devices_that_drop_out_do_not_make_a_round_more_than_whole() -> None:
    told = list[str]()
    wanted = tiny.scenario(
        rounds=6, iterations_per_round=4, algorithm="splitfed-v2", dropout_probability=0.6
    )
    list(Training(wanted, tell=told.append).rounds())
    assert {float(text.split()[4]) for text in told if "tested" not in text} <= set(range(101))


# ---- absent, dropped ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("optimizer", ["sgd", "both", "adam"])
@pytest.mark.parametrize("algorithm", ["sfl", "fedavg"])
def test_only_who_finishes_is_averaged_and_the_others_keep_their_own_layers(
    algorithm: str, optimizer: str, weighting: str
) -> None:
    settings, make = OPTIMIZERS[optimizer]
    splits = [1, 2, 3, 1, 2]
    settings = settings | {
        "participation": 0.7,
        "dropout_probability": 0.4,
        "weighting": weighting,
        "algorithm": algorithm,
    }
    training, records = run(splits=splits, kind="float64", rounds=6, **settings)
    data, model = Data(tiny.parted()[0]), tiny.mlp(kind="float64")
    copies = Copies(model, make, 5)
    common = names_behind(model, 3 if algorithm == "sfl" else 0)
    for number, record in enumerate(records):
        there = finishing(record)
        weights, loss = weights_of(data, there, weighting == "samples"), 0.0
        for k in there:
            for e in range(2):
                loss += (
                    weights[k]
                    / 2
                    * step(copies.models[k], copies.optimizers[k], *data.batch(k, number * 2 + e))
                )
        if there:
            copies.average(common, weights)
            assert record.train_loss == pytest.approx(loss, rel=1e-12)
        else:
            assert record.train_loss is None
    for k in range(5):
        assert_device(
            training, k, copies.models[k], copies.optimizers[k] if optimizer == "sgd" else None
        )
    assert any(record.dropped for record in records)


@pytest.mark.parametrize(
    ("algorithm", "E"),
    [
        ("sfl", 2),
        ("fedavg", 2),
        ("split-learning", 2),
        ("splitfed-v1", 2),
        ("sfl", 1),
        ("split-learning", 1),
        ("splitfed-v2", 1),
    ],
)
def test_a_round_that_nobody_finishes_changes_nothing(algorithm: str, E: int) -> None:
    settings = {
        "algorithm": algorithm,
        "iterations_per_round": E,
        "dropout_probability": 0.8,
        "rounds": 1,
        "momentum": 0.5,
    }
    for seed in range(30):
        training = Training(tiny.scenario(splits=[1, 2, 3], data="flat", seed=seed, **settings))
        before = {
            name: tensor.clone()
            for name, tensor in (training.state.common | training.state.personal).items()
        }
        (record,) = training.rounds()
        if len(record.dropped) == 3:
            break
    assert record.train_loss is None
    assert record.participants == record.dropped == (0, 1, 2)
    assert all(
        torch.equal(tensor, before[name])
        for name, tensor in (training.state.common | training.state.personal).items()
    )
    assert record.to_json() == RoundRecord.from_json(record.to_json()).to_json()
    assert record.test_accuracy is not None  # the models are there, and are evaluated


def test_in_splitfed_v2_a_round_that_nobody_finishes_moves_the_servers_model_alone() -> None:
    for seed in range(30):
        settings = {
            "dropout_probability": 0.9,
            "iterations_per_round": 4,
            "rounds": 1,
            "seed": seed,
        }
        training = Training(
            tiny.scenario(splits=[1, 2, 3], data="flat", algorithm="splitfed-v2", **settings)
        )
        before = {name: tensor.clone() for name, tensor in training.state.common.items()}
        (record,) = training.rounds()
        moved = {
            name
            for name, tensor in training.state.common.items()
            if not torch.equal(tensor, before[name])
        }
        if len(record.dropped) == 3 and moved:
            break
    assert record.train_loss is None
    assert moved == {f"model:{name}" for name in names_behind(tiny.mlp(), 3)}


def test_in_splitfed_v2_a_device_that_drops_out_has_moved_the_servers_model_until_then() -> None:
    from airsplit.core.randomness import generator

    splits, E = [1, 2, 3, 1, 2], 4
    training = Training(
        tiny.scenario(
            splits=splits,
            kind="float64",
            algorithm="splitfed-v2",
            iterations_per_round=E,
            participation=0.8,
            dropout_probability=0.5,
            rounds=4,
        )
    )
    model, data = tiny.mlp(kind="float64"), Data(tiny.parted()[0])
    behind = names_behind(model, 3)
    fronts = [name for name in model.state_dict() if name not in behind]
    copies = Copies(model, OPTIMIZERS["sgd"][1], 5)
    some_in_between = False
    for number in range(1, 5):
        runs = training._task(number).iterations
        some_in_between = some_in_between or bool(((runs > 0) & (runs < E)).any())
        for e in range(E):
            for k in generator(0, "server order", number, e).permutation(5).tolist():
                if e < runs[k]:
                    step(
                        copies.models[k], copies.optimizers[k], *data.batch(k, (number - 1) * E + e)
                    )
                    copies.average(behind, {k: 1.0})
        there = np.flatnonzero(runs == E).tolist()
        assert there
        copies.average(fronts, weights_of(data, there, False))
    for _ in training.rounds():
        pass
    assert some_in_between
    assert_device(training, 0, copies.models[0])


def test_so_many_devices_take_part_as_were_asked_for() -> None:
    for participation, wanted in ((1.0, 5), (0.8, 4), (0.6, 3), (0.61, 4), (0.2, 1), (0.001, 1)):
        _, records = run(splits=[2] * 5, participation=participation, rounds=3)
        assert {len(r.participants) for r in records} == {wanted}
        assert all(r.participants == tuple(sorted(r.participants)) for r in records)
        assert all(
            r.sent_bytes[k] == 0 for r in records for k in range(5) if k not in r.participants
        )


def test_every_device_gets_its_turn_and_drops_out_as_often_as_said() -> None:
    training = Training(
        tiny.scenario(
            splits=[2] * 5, participation=0.4, dropout_probability=0.25, iterations_per_round=3
        )
    )
    tasks = [training._task(n) for n in range(1, 2001)]
    took = np.array([task.asked for task in tasks])
    assert np.abs(took.mean(axis=0) - 0.4).max() < 4 * np.sqrt(0.24 / 2000)
    ran = np.array([task.iterations for task in tasks])
    lost = (ran < 3)[took]
    assert abs(lost.mean() - 0.25) < 4 * np.sqrt(0.1875 / lost.size)
    assert (
        np.bincount(ran[took & (ran < 3)], minlength=3).min() > 0.25 * lost.sum()
    )  # at any moment before the end
    assert all(task.weights.sum() == pytest.approx(1) for task in tasks if task.finishing)
    assert all((task.weights > 0).nonzero()[0].tolist() == task.finishing for task in tasks)


# ---- re-planning -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("optimizer", ["sgd", "both", "adam"])
def test_when_the_deepest_split_moves_layers_become_common_by_their_mean_and_personal_by_the_common_value(
    optimizer: str, weighting: str
) -> None:
    settings, make = OPTIMIZERS[optimizer]
    training, records = run(kind="float64", weighting=weighting, **MOVING, **settings)
    data, model = Data(tiny.parted()[0]), tiny.mlp(kind="float64")
    copies, boundary = Copies(model, make, 5), 0
    everybody = weights_of(data, range(5), weighting == "samples")
    boundaries = []
    for number, record in enumerate(records):
        boundary = (
            max(record.splits) if record.splits else max(training.plan.splits)
        )  # the first plan is not in a record
        if boundaries and boundary < boundaries[-1]:
            copies.average(names_behind(model, boundary), everybody)
        boundaries.append(boundary)
        for k in range(5):
            for e in range(2):
                step(copies.models[k], copies.optimizers[k], *data.batch(k, number * 2 + e))
        copies.average(names_behind(model, boundary), everybody)
    assert len(set(boundaries)) > 1
    assert any(later > sooner for sooner, later in itertools.pairwise(boundaries))
    assert any(later < sooner for sooner, later in itertools.pairwise(boundaries))
    for k in range(5):
        assert_device(training, k, copies.models[k], copies.optimizers[k])
    assert training.state.boundary == boundaries[-1]


def test_a_plan_holds_until_the_next_one_is_due() -> None:
    _, records = run(**MOVING | {"replan_every": 3, "rounds": 8})
    assert [r.round for r in records if r.splits is not None] == [4, 7]
    assert all((r.splits is None) == (r.shares is None) for r in records)
    _, never = run(**MOVING | {"replan_every": None, "rounds": 4})
    assert all(r.splits is None for r in never)


def test_a_round_is_timed_with_the_channels_of_its_own_round() -> None:
    training, records = run(**MOVING | {"replan_every": None, "rounds": 4})
    fleet = training.fleet
    for record in records:
        rates = fleet.redraw_fading(0, record.round).rate_bps(training.plan.shares)
        elements = np.array([[7, 7, 5, 5, 3][s - 1] for s in training.plan.splits])
        assert record.transmit_s == pytest.approx(
            2 * 4 * 32 * elements / rates, rel=1e-5
        )  # two iterations of four samples
    assert len({r.transmit_s for r in records}) == 4


def test_fedavg_shares_the_band_for_the_channels_that_were_planned_for() -> None:
    """Drawn anew every round, planned for in the first: its shares are the best there, and stay."""
    settings = {"algorithm": "fedavg", "splits": [2] * 5, "fleet__redraw_fading": True, "rounds": 3}
    training, records = run(**settings)
    fleet, bits = training.fleet, 32 * (49 + 40 + 18)
    work = 4 * training.profile.macs[-1]  # of an iteration; there are two
    ends = 2 * work * (fleet.seconds_per_mac + 1 / fleet.fluctuation) + np.array(
        records[0].transmit_s
    )
    assert ends == pytest.approx(np.full(5, ends[0]), rel=1e-5)
    shares = bits / (fleet.redraw_fading(0, 1).rate_bps(1.0) * np.array(records[0].transmit_s))
    for record in records:
        assert record.transmit_s == pytest.approx(
            bits / fleet.redraw_fading(0, record.round).rate_bps(shares), rel=1e-4
        )


def test_rates_are_replayed_from_a_trace_at_the_virtual_time(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("time_s,one,two\n0,1e6,1e6\n0.0005,2e6,4e6\n")
    _, records = run(splits=[2, 2], data="flat", fleet__trace=str(trace), rounds=8)
    before = 0.0
    rates = set()
    for record in records:
        rate = np.array([1e6, 1e6]) if before < 0.0005 else np.array([2e6, 4e6])
        rates.add(tuple(rate))
        assert record.transmit_s[0] == pytest.approx(
            2 * 4 * 7 * 32 / (rate[0] * share_of(records, 0)), rel=1e-3
        )
        before = record.virtual_time_s
    assert len(rates) == 2


def share_of(records: list[RoundRecord], device: int) -> float:
    """From the first round, whose rate is known."""
    return 2 * 4 * 7 * 32 / (1e6 * records[0].transmit_s[device])


def test_virtual_time_is_the_sum_of_the_latencies_and_bytes_are_splits_times_elements() -> None:
    splits = [1, 2, 3, 4, 2]
    _, records = run(splits=splits, rounds=4)
    assert [r.virtual_time_s for r in records] == pytest.approx(
        np.cumsum([r.latency_s for r in records]), rel=1e-12
    )
    elements = [[7, 7, 5, 5, 3][split - 1] for split in splits]
    for record in records:
        assert record.sent_bytes == tuple(
            2 * 4 * each * 4 for each in elements
        )  # E · B · elements · 4 bytes
        assert record.received_bytes == record.sent_bytes
    macs = np.array([2 * 4 * work for work in (42, 42 + 7, 42 + 7 + 35, 42 + 7 + 35 + 5, 42 + 7)])
    assert records[0].macs == tuple(macs.astype(float))


# ---- averaging fronts --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_fronts_are_averaged_among_those_who_hold_a_layer_and_among_those_for_whom_the_server_does(
    optimizer: str, weighting: str
) -> None:
    settings, make = OPTIMIZERS[optimizer]
    splits = [
        1,
        3,
        3,
        1,
        4,
    ]  # layer 2 of the mlp is on devices 1, 2 and 4; the server holds it for 0 and 3
    training, records = run(
        splits=splits,
        kind="float64",
        weighting=weighting,
        average_fronts_every=2,
        rounds=5,
        **settings,
    )
    data, model = Data(tiny.parted()[0]), tiny.mlp(kind="float64")
    copies = Copies(model, make, 5)
    counts = {k: data.sizes[k] if weighting == "samples" else 1 for k in range(5)}

    def mean_among(names: list[str], devices: list[int]) -> None:
        total = sum(counts[k] for k in devices)
        copies.average(names, {k: counts[k] / total for k in devices}, to=devices)

    for number in range(5):
        for k in range(5):
            for e in range(2):
                step(copies.models[k], copies.optimizers[k], *data.batch(k, number * 2 + e))
        mean_among(["4.weight", "4.bias"], [0, 1, 2, 3, 4])
        if (number + 1) % 2 == 0:
            mean_among(["0.weight", "0.bias"], [0, 1, 2, 3, 4])
            mean_among(["2.weight", "2.bias"], [1, 2, 4])
            mean_among(["2.weight", "2.bias"], [0, 3])
    for k in range(5):
        assert_device(training, k, copies.models[k], copies.optimizers[k])
    weights = np.array([6 * 7 + 7, 49 + 40, 49 + 40, 49, 49 + 40]) * 4
    extra = np.array(records[1].sent_bytes) - np.array(records[0].sent_bytes)
    assert extra.tolist() == weights.tolist()
    assert records[2].sent_bytes == records[0].sent_bytes


def test_a_device_that_drops_out_is_left_out_when_fronts_are_averaged() -> None:
    settings = {
        "average_fronts_every": 1,
        "dropout_probability": 0.4,
        "kind": "float64",
        "rounds": 1,
    }
    for seed in range(30):
        training = Training(tiny.scenario(splits=[2] * 5, **settings | {"seed": seed}))
        before = copy.deepcopy(training.state.personal)
        (record,) = training.rounds()
        if 2 <= len(finishing(record)) <= 3:
            break
    own = training.state.personal["model:0.weight"]
    there = finishing(record)
    assert all(torch.equal(own[k], own[there[0]]) for k in there)
    for k in record.dropped:
        assert torch.equal(own[k], before["model:0.weight"][k])


# ---- not finite --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("E", [1, 3])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_learning_rate_that_is_too_high_is_told_with_device_round_and_way_out(
    algorithm: str, E: int
) -> None:
    training = Training(
        tiny.scenario(
            model="linear",
            splits=[1, 2, 3, 1, 2],
            algorithm=algorithm,
            iterations_per_round=E,
            learning_rate=1e30,
            rounds=9,
        )
    )
    with pytest.raises(
        Diverged, match=r"round \d.*(finite|overflow).*lower training\.learning_rate, now 1e\+30"
    ):
        for _ in training.rounds():
            pass


@pytest.mark.parametrize("fast", [True, False])
def test_the_device_that_diverges_is_named(tmp_path: Path, fast: bool) -> None:
    fleet = tmp_path / "fleet.csv"
    fleet.write_text(
        "name,seconds_per_mac,fluctuation,distance_m\nanna,1e-9,2e9,100\nbert,1e-9,2e9,100\n"
    )
    settings = {
        "splits": [3, 3],
        "data": "parted_with_huge",
        "fleet__devices": None,
        "fleet__file": str(fleet),
    }
    training = Training(
        tiny.scenario(**settings, iterations_per_round=1, model="linear", fast_paths=fast)
    )
    with pytest.raises(
        Diverged,
        match=r"device bert, round 1, iteration 1: the (loss is|activations are) not finite; its weights and inputs are finite",
    ):
        next(training.rounds())


def test_data_that_are_not_finite_are_refused_before_any_work() -> None:
    with pytest.raises(InvalidValue, match=r"inputs\[3\]\[2\] must be a finite number"):
        Training(tiny.scenario(data="with_nan", splits=[2, 2]))


def test_inputs_that_are_not_finite_are_named_as_the_cause() -> None:
    """Built-in data and factories are checked; a crew by itself takes what it is given."""
    training = Training(tiny.scenario(splits=[2] * 5))
    inputs, labels = tiny.drawn(8, 0, tiny.FEATURES)
    inputs[5, 1] = math.nan
    samples = Samples((inputs,), labels, pass_through)
    crew = Crew(
        training.replica,
        samples,
        [np.arange(4), np.arange(4, 8)],
        TrainingSettings(batch_size=4),
        ["a", "b"],
    )
    both = np.array([2, 2])
    task = Task(
        number=3,
        splits=both,
        asked=both > 0,
        iterations=both,
        weights=both / 4,
        iterations_per_round=2,
    )
    crew.train(0, task)
    with pytest.raises(
        Diverged,
        match="device b, round 3, iteration 1: the activations are not finite; its inputs are not finite either",
    ):
        crew.train(1, task)


def test_weights_that_are_not_finite_are_not_a_round() -> None:
    """The loss is finite and its gradient is not, so that only the weights tell."""
    training = Training(
        tiny.scenario(
            model="rooted",
            splits=[2] * 5,
            iterations_per_round=1,
            fast_paths=False,
            evaluate_every=100,
            rounds=5,
        )
    )
    with pytest.raises(Diverged):
        next(training.rounds())


# ---- who and what can be trained ---------------------------------------------------------------------------------------------
def test_a_constant_that_changes_after_all_is_told() -> None:
    training = Training(tiny.scenario(model="overlapping", splits=[1, 2, 1, 2, 1]))
    rounds = training.rounds()
    next(rounds)
    training.replica.model.table[7] += 1
    with pytest.raises(
        InvalidValue, match=r"model buffer table must change in every training step or in none"
    ):
        next(rounds)


def test_batches_come_from_the_devices_own_samples() -> None:
    training = Training(tiny.scenario(splits=[2] * 5))
    devices, _ = tiny.parted()
    task = training._task(2)
    for k, (inputs, _) in enumerate(devices):
        (found,), labels = training._crew.batch(k, task, 1)
        rows = Batches([np.arange(len(inputs))], 4, 0)
        assert len(labels) == min(4, len(inputs)) == training._crew.batch_size(k)
        assert all(any(torch.equal(row, held) for held in inputs) for row in found)
        assert rows.size(0) == len(labels)


def test_one_device_one_round_one_iteration() -> None:
    _, records = run(splits=[2], data="flat", rounds=1, iterations_per_round=1)
    assert len(records) == 1


def test_a_batch_larger_than_the_data_uses_all_of_it() -> None:
    training, records = run(splits=[2, 2], data="flat", batch_size=10**6, rounds=2)
    assert training._crew.batch_size(0) == 24
    assert records[-1].train_loss is not None


def test_more_devices_than_samples_are_refused() -> None:
    with pytest.raises(AirsplitError, match="devices"):
        Training(tiny.scenario(data="flat", splits=2, fleet__devices=100))


def test_data_for_another_number_of_devices_are_refused() -> None:
    with pytest.raises(InvalidValue, match="each of 3 devices"):
        Training(tiny.scenario(data="parted", splits=[2, 2, 2]))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_whole_numbers_can_be_learned_from(algorithm: str) -> None:
    _, records = run(
        model="words",
        data="sequences",
        splits=[1, 2, 3],
        algorithm=algorithm,
        rounds=6,
        evaluate_every=1,
    )
    assert records[-1].train_loss < records[0].train_loss
    assert records[-1].test_loss is not None
    assert records[-1].test_accuracy is None or 0 <= records[-1].test_accuracy <= 1


def test_a_model_without_anything_to_train_is_refused() -> None:
    with pytest.raises(InvalidValue, match="must have a parameter to train"):
        Training(tiny.scenario(model="all_frozen", splits=[2], data="flat"))


@pytest.mark.parametrize("algorithm", ["sfl", "splitfed-v2"])
@pytest.mark.parametrize("model", ["overlapping", "unused", "frozen_norm", "several", "tied_ends"])
def test_odd_models_train(model: str, algorithm: str) -> None:
    arguments = {"model__arguments": {"named": True}} if model == "several" else {}
    training, records = run(
        model=model, splits=[1, 2, 1, 2, 1], algorithm=algorithm, rounds=3, **arguments
    )
    assert records[-1].train_loss < records[0].train_loss
    if model == "frozen_norm":
        before = tiny.frozen_norm().state_dict()
        after = training.replica.model.state_dict()
        assert all(
            torch.equal(after[name], before[name])
            for name in ("1.running_mean", "1.running_var", "1.num_batches_tracked")
        )


# ---- seeds -------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_same_seed_is_the_same_run_and_another_seed_another(algorithm: str) -> None:
    settings = {
        "model": "dropout_mlp",
        "algorithm": algorithm,
        "splits": [2] * 5,
        "participation": 0.8,
        "dropout_probability": 0.2,
    }
    settings |= {"model__arguments": {"front": 0.2, "back": 0.2}, "evaluate_every": 1}
    one, first = run(**settings)
    torch.manual_seed(123)
    np.random.seed(5)  # noqa: NPY002 - whatever others do with it
    two, second = run(**settings)
    _, third = run(**settings, seed=1)
    assert [r.to_json() for r in first] == [r.to_json() for r in second]
    for k in range(5):
        assert all(
            torch.equal(tensor, two.state.of(k)[name]) for name, tensor in one.state.of(k).items()
        )
    assert [r.train_loss for r in first] != [r.train_loss for r in third]
    assert [r.latency_s for r in first] != [r.latency_s for r in third]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.filterwarnings("ignore:the devices are trained one after the other")
def test_the_generators_of_torch_numpy_and_python_stay_where_they_are(algorithm: str) -> None:
    import random

    for E in (1, 2):
        before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
        run(
            model="dropout_mlp",
            algorithm=algorithm,
            splits=[2] * 5,
            iterations_per_round=E,
            evaluate_every=1,
            model__arguments={"front": 0.2},
        )
        assert torch.equal(torch.get_rng_state(), before[0])
        assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
        assert random.getstate() == before[2]


def test_every_step_of_every_device_draws_random_numbers_of_its_own() -> None:
    training = Training(tiny.scenario(splits=[2] * 5))
    drawn = set()
    for k, number, e in itertools.product(range(2), (1, 2), range(2)):
        with training._crew.chance(k, training._task(number), e):
            drawn.add(float(torch.rand(())))
    assert len(drawn) == 8


def test_weights_drawn_by_the_factory_depend_on_the_seed_alone() -> None:
    def first(seed: int) -> torch.Tensor:
        torch.manual_seed(seed + 100)
        return Training(tiny.scenario(model="drawn_mlp", splits=[2] * 5, seed=seed)).state.of(0)[
            "model:0.weight"
        ]

    torch.manual_seed(1)
    one = first(0)
    torch.manual_seed(2)
    assert torch.equal(one, first(0))
    assert not torch.equal(one, first(1))


def test_a_data_set_drawn_by_its_factory_depends_on_the_seed_alone_and_leaves_the_generators_alone() -> (
    None
):
    before = torch.get_rng_state()
    one, _ = run(data="drawn_anew", splits=[2, 2])
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(77)
    two, _ = run(data="drawn_anew", splits=[2, 2])
    assert all(
        torch.equal(tensor, two.state.of(0)[name]) for name, tensor in one.state.of(0).items()
    )
