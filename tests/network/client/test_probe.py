"""The probe on a clock that is moved by the law itself, and what it must leave alone on a real one."""

from __future__ import annotations

import itertools
import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from airsplit.core.errors import Diverged, FileProblem, InvalidValue
from airsplit.network.client.probe import (
    LEAST_REPETITIONS,
    STEADY,
    ComputeMeasurement,
    SplitTimes,
    cache_key,
    cached_compute,
    measure_compute,
    measure_server,
    spread_splits,
)
from airsplit.system.clock import Clock
from airsplit.system.profile import Profile
from airsplit.training.replica import Replica
from airsplit.training.setup import replica_of
from training import tiny

BATCH = 4


def made(model: str, **arguments: Any) -> tuple[Replica, Profile]:
    return replica_of(tiny.scenario(model, **arguments))


@cache
def mlp() -> tuple[Replica, Profile]:
    """For tests that leave it as it is, as measuring must."""
    return made("mlp")


def counted(profile: Profile) -> Any:
    return Clock(backward_macs_ratio="counted").work(profile)


class LawClock:
    """Each second reading is c (a + X/ε) after the one before, for the c of one split after the other."""

    def __init__(
        self, macs: list[float], a: float, eps: float = math.inf, overhead_s: float = 0.0
    ) -> None:
        self._macs, self._a, self._eps, self._overhead_s = itertools.cycle(macs), a, eps, overhead_s
        self._rng, self.readings, self._time_s = np.random.default_rng(3), 0, 0.0

    def __call__(self) -> float:
        if self.readings % 2:
            self._time_s += (
                next(self._macs) * (self._a + self._rng.exponential() / self._eps)
                + self._overhead_s
            )
        self.readings += 1
        return self._time_s


# ---- the fit -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("ratio", [1.0, 5.0])
def test_the_probe_recovers_the_law_behind_the_clock(ratio: float) -> None:
    replica, profile = mlp()
    splits, a, repetitions = [1, 3, 5], 1e-6, 400
    macs = [BATCH * counted(profile)[split - 1] for split in splits]
    budget_s = (repetitions + 1) * sum(macs) * a * (1 + 1 / ratio)
    found = measure_compute(
        replica,
        profile,
        batch_size=BATCH,
        splits=splits,
        seconds=budget_s,
        now=LawClock(macs, a, ratio / a),
    )
    assert (
        found.samples
        == sum(row.repetitions for row in found.rows)
        == pytest.approx(3 * repetitions, rel=0.1)
    )
    assert found.seconds_per_mac == pytest.approx(a, rel=10 / (found.samples * ratio))
    assert found.fluctuation == pytest.approx(ratio / a, rel=5 / math.sqrt(found.samples))
    assert found.distance < found.yardstick == 1.36 / math.sqrt(found.samples)
    assert [row.split for row in found.rows] == splits
    assert [row.macs for row in found.rows] == macs
    for row, error in zip(found.rows, found.relative_errors, strict=True):
        assert abs(error) < 5 / math.sqrt(row.repetitions)
        assert row.median_s == pytest.approx(row.macs * a * (1 + math.log(2) / ratio), rel=0.2)
    assert found.threads == torch.get_num_threads()


def test_rows_show_where_the_law_does_not_hold() -> None:
    """A step that costs as much again as all MACs: shallow splits take longer than the law says, deep ones less."""
    replica, profile = mlp()
    macs = [BATCH * float(c) for c in counted(profile)[[0, 2, 4]]]
    clock = LawClock(macs, 1e-6, 1e9, overhead_s=macs[-1] * 1e-6)
    found = measure_compute(
        replica, profile, batch_size=BATCH, splits=[1, 3, 5], seconds=0, now=clock
    )
    assert found.relative_errors[0] < -0.1
    assert found.relative_errors[-1] > 0.1


def test_a_device_without_fluctuation_is_steady() -> None:
    replica, profile = mlp()
    macs = [BATCH * float(c) for c in counted(profile)[[2, 4]]]
    found = measure_compute(
        replica, profile, batch_size=BATCH, splits=[3, 5], seconds=0, now=LawClock(macs, 1e-6)
    )
    assert found.seconds_per_mac == pytest.approx(1e-6)
    assert (found.fluctuation, found.distance) == (STEADY / found.seconds_per_mac, 0)
    assert max(map(abs, found.relative_errors)) < 1e-5


def test_work_may_be_what_the_planner_charges() -> None:
    replica, profile = mlp()
    work = Clock().work(profile)
    clock = LawClock([BATCH * float(work[-1])], 1e-6)
    found = measure_compute(
        replica, profile, batch_size=BATCH, splits=[5], seconds=0, work=work, now=clock
    )
    assert found.seconds_per_mac == pytest.approx(1e-6)
    assert found.rows[0].macs == BATCH * work[-1]


def test_the_server_is_charged_for_what_is_behind_the_split() -> None:
    replica, profile = mlp()
    behind = BATCH * (counted(profile)[-1] - counted(profile))
    clock = LawClock([float(behind[0]), float(behind[2])], 3e-9)
    pace = measure_server(
        replica, profile, batch_size=BATCH, splits=[1, 3, 5], seconds=0, now=clock
    )
    assert pace == pytest.approx(3e-9)
    assert clock.readings == 2 * 2 * (LEAST_REPETITIONS + 1)  # nothing is behind split 5


# ---- how often, and where ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("turns", "repetitions"), [(0.0, LEAST_REPETITIONS), (3.5, LEAST_REPETITIONS), (19.5, 19)]
)
def test_it_measures_until_the_time_is_used_and_five_times_at_least(
    turns: float, repetitions: int
) -> None:
    replica, profile = mlp()
    macs = [BATCH * float(c) for c in counted(profile)[[2, 4]]]
    clock = LawClock(macs, 1e-6)
    found = measure_compute(
        replica,
        profile,
        batch_size=BATCH,
        splits=[3, 5],
        seconds=turns * sum(macs) * 1e-6,
        now=clock,
    )
    assert [row.repetitions for row in found.rows] == [repetitions] * 2  # and one each to warm up
    assert clock.readings == 4 * (repetitions + 1)


def test_splits_are_measured_once_each_and_in_the_order_given() -> None:
    replica, profile = mlp()
    found = measure_compute(replica, profile, batch_size=BATCH, splits=[5, 1, 5], seconds=0)
    assert [row.split for row in found.rows] == [5, 1]


def test_splits_without_work_are_left_out() -> None:
    replica, profile = mlp()
    work = np.array([0.0, 0.0, 5.0, 5.0, 9.0])
    found = measure_compute(replica, profile, batch_size=BATCH, splits=[1, 3], seconds=0, work=work)
    assert [row.split for row in found.rows] == [3]
    with pytest.raises(
        InvalidValue, match=r"splits must have one with work to measure, got \[1, 2\]"
    ):
        measure_compute(replica, profile, batch_size=BATCH, splits=[1, 2], seconds=0, work=work)
    with pytest.raises(InvalidValue, match="splits must have one with work"):
        measure_server(replica, profile, batch_size=BATCH, splits=[5], seconds=0)


@pytest.mark.parametrize("most", [1, 3, 6])
def test_splits_are_spread_over_the_work(most: int) -> None:
    work = np.cumsum(np.random.default_rng(0).exponential(size=40)).repeat(2)
    chosen = spread_splits(work, most)
    assert 1 <= len(chosen) <= most
    assert work[chosen[-1] - 1] == work[-1]
    assert len({work[split - 1] for split in chosen}) == len(chosen)
    assert work[chosen[0] - 1] >= work[-1] / most


@pytest.mark.parametrize("model", ["mlp", "cnn", "words", "shortcut", "frozen", "several"])
def test_every_kind_of_model_can_be_measured(model: str) -> None:
    arguments = {"model__arguments": {"named": True}} if model == "several" else {}
    replica, profile = made(
        model,
        data={"cnn": "images", "words": "sequences"}.get(model, "flat"),
        splits=1,
        **arguments,
    )
    found = measure_compute(replica, profile, batch_size=BATCH, seconds=0)
    assert found.seconds_per_mac > 0
    assert measure_server(replica, profile, batch_size=BATCH, seconds=0) > 0


# ---- what is left alone ------------------------------------------------------------------------------------------------------
def everything(replica: Replica) -> dict[str, torch.Tensor]:
    state = {name: tensor.clone() for name, tensor in replica.model.state_dict().items()} | {
        f"tensors {name}": tensor.clone() for name, tensor in replica.tensors.items()
    }
    gradients = {
        f"gradient {name}": p.grad.clone()
        for name, p in replica.model.named_parameters()
        if p.grad is not None
    }
    return state | gradients | {"random": torch.get_rng_state()}


@pytest.mark.parametrize("measure", [measure_compute, measure_server])
@pytest.mark.parametrize("model", ["norm_mlp", "dropout_mlp"])
@pytest.mark.parametrize("stepped", [False, True])
def test_the_replica_is_left_as_it_was(measure: Any, model: str, stepped: bool) -> None:
    arguments = {"model__arguments": {"front": 0.4, "back": 0.4}} if model == "dropout_mlp" else {}
    replica, profile = made(model, momentum=0.9, **arguments)
    if stepped:  # with statistics, momentum and gradients of its own
        replica.step(3, (torch.randn(BATCH, tiny.FEATURES),), torch.tensor([0, 1, 2, 0]))
    before, gradients = everything(replica), [p.grad for p in replica.model.parameters()]
    measure(replica, profile, batch_size=BATCH, seconds=0)
    after = everything(replica)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(
        p.grad is gradient
        for p, gradient in zip(replica.model.parameters(), gradients, strict=True)
    )


def test_the_replica_is_left_as_it_was_when_measuring_fails() -> None:
    replica, profile = made("norm_mlp")
    before, readings = everything(replica), iter([0.0, 1.0, 2.0])
    with pytest.raises(StopIteration):
        measure_compute(replica, profile, batch_size=BATCH, now=lambda: next(readings))
    after = everything(replica)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_it_measures_gradients_where_the_caller_has_none() -> None:
    replica, profile = mlp()
    with torch.no_grad():
        assert measure_server(replica, profile, batch_size=BATCH, seconds=0) > 0


# ---- what is refused ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number >= 1, got 0"),
        ({"seconds": -1}, "seconds must be a finite number >= 0, got -1"),
        ({"seconds": math.inf}, "seconds must be a finite number"),
        ({"splits": [1, 9]}, r"splits\[1\] must be a whole number from 1 to 5, got 9"),
        ({"splits": []}, "splits must have one with work"),
        ({"work": [1.0, 2.0]}, "work must be 5 numbers"),
        (
            {"work": [5.0, 4.0, 3.0, 2.0, 1.0]},
            "work must be 5 numbers, one a split, that do not fall",
        ),
        ({"work": [1.0, 2.0, 3.0, 4.0, math.nan]}, r"work\[4\] must be a finite number"),
    ],
)
@pytest.mark.parametrize("measure", [measure_compute, measure_server])
def test_what_makes_no_sense_is_refused(measure: Any, change: dict[str, Any], message: str) -> None:
    replica, profile = mlp()
    with pytest.raises(InvalidValue, match=message):
        measure(replica, profile, **{"batch_size": BATCH, "seconds": 0} | change)


def test_the_profile_of_another_model_is_refused() -> None:
    replica, _ = mlp()
    with pytest.raises(
        InvalidValue,
        match=r"profile must be that of the replica's model, with 5 splits, got one with 6",
    ):
        measure_compute(replica, made("norm_mlp")[1], batch_size=BATCH)


def test_a_clock_that_stands_still_is_refused() -> None:
    replica, profile = mlp()
    with pytest.raises(
        InvalidValue,
        match=r"seconds\[0\] must be a finite number > 0, got 0.0; is the clock too coarse",
    ):
        measure_compute(replica, profile, batch_size=BATCH, seconds=0, now=lambda: 1.0)


def test_a_model_that_overflows_is_no_measure_of_the_server() -> None:
    replica, profile = made("mlp")
    replica.trained["0.weight"].data.fill_(math.nan)
    with pytest.raises(Diverged, match="the model at split 1 has activations that are not finite"):
        measure_server(replica, profile, batch_size=BATCH, splits=[1], seconds=0)


# ---- as text, and kept -------------------------------------------------------------------------------------------------------
def measurement(**changes: Any) -> ComputeMeasurement:
    rows = (SplitTimes(1, 1e9, 5, 1.2, 1.5), SplitTimes(3, 4e9, 6, 5.0, 5.5))
    usual = {
        "seconds_per_mac": 1e-9,
        "fluctuation": 2.5e9,
        "distance": 0.1,
        "samples": 11,
        "threads": 2,
        "rows": rows,
    }
    return ComputeMeasurement(**usual | changes)


def test_a_measurement_survives_being_written() -> None:
    assert ComputeMeasurement.from_json(measurement().to_json()) == measurement()
    replica, profile = mlp()
    real = measure_compute(replica, profile, batch_size=BATCH, seconds=0)
    assert ComputeMeasurement.from_json(real.to_json()) == real


@pytest.mark.parametrize(
    "text", ["", "{", "nonsense", "[" * 100_000, "[]", "3", "null", "{}", '{"rows": []}']
)
def test_a_text_that_is_no_measurement_is_refused(text: str) -> None:
    with pytest.raises(FileProblem, match=r"probe is not JSON|probe lacks .*seconds_per_mac"):
        ComputeMeasurement.from_json(text)


@pytest.mark.parametrize(
    "name", ["seconds_per_mac", "fluctuation", "distance", "samples", "threads", "rows"]
)
@pytest.mark.parametrize(
    "value",
    ["NaN", "Infinity", "1e999", "-1", '"1"', "true", "null", "{}", "[[]]", "1" + "0" * 400],
)
def test_a_field_that_is_not_what_it_should_be_is_refused(name: str, value: str) -> None:
    data = json.loads(measurement().to_json())
    text = json.dumps(data | {name: "here"}).replace('"here"', value)
    with pytest.raises(
        (FileProblem, InvalidValue), match=rf"probe\.{name}|not finite|beyond 64 bits"
    ):
        ComputeMeasurement.from_json(text)


@pytest.mark.parametrize("name", ["split", "macs", "repetitions", "median_s", "mean_s"])
@pytest.mark.parametrize("value", [math.nan, -1, 0, "1", True, None, []])
def test_a_row_that_is_not_what_it_should_be_is_refused(name: str, value: object) -> None:
    data = json.loads(measurement().to_json())
    data["rows"][1][name] = value
    with pytest.raises((FileProblem, InvalidValue), match=rf"probe\.rows\.{name}|not finite"):
        ComputeMeasurement.from_json(json.dumps(data))


def test_keys_that_are_missing_or_too_many_are_named() -> None:
    data = json.loads(measurement().to_json())
    with pytest.raises(
        InvalidValue, match="probe key 'thread' is not known; did you mean 'threads'"
    ):
        ComputeMeasurement.from_json(json.dumps(data | {"thread": 1}))
    with pytest.raises(InvalidValue, match=r"probe.rows\[0\] key 'x' is not known"):
        ComputeMeasurement.from_json(json.dumps(data | {"rows": [data["rows"][0] | {"x": 1}]}))
    del data["rows"][1]["macs"]
    with pytest.raises(FileProblem, match=r"probe.rows\[1\] lacks macs"):
        ComputeMeasurement.from_json(json.dumps(data))


def test_rows_must_add_up() -> None:
    with pytest.raises(
        InvalidValue, match="samples must be the sum of the repetitions of its rows, got 12"
    ):
        measurement(samples=12)


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    calls = []

    def measure() -> ComputeMeasurement:
        calls.append(1)
        return measurement(threads=len(calls))

    folder = tmp_path / "new"
    assert cached_compute(folder, "one", measure).threads == 1
    assert cached_compute(folder, "one", measure).threads == 1
    assert cached_compute(folder, "two", measure).threads == 2
    assert sorted(file.name for file in folder.iterdir()) == ["probe-one.json", "probe-two.json"]


@pytest.mark.parametrize("text", ["", '{"rows": []}', measurement().to_json().replace("2", "-2")])
def test_a_kept_measurement_that_is_broken_is_an_error_with_a_way_out(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "probe-one.json").write_text(text)
    with pytest.raises(FileProblem, match=r"probe-one.json.*delete it to measure again"):
        cached_compute(tmp_path, "one", measurement)


def test_nothing_is_kept_when_measuring_fails(tmp_path: Path) -> None:
    def measure() -> ComputeMeasurement:
        raise InvalidValue("no")

    with pytest.raises(InvalidValue, match="no"):
        cached_compute(tmp_path, "one", measure)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("key", ["", "../up", "a b", "a/b", "a\n"])
def test_a_key_is_a_name(tmp_path: Path, key: str) -> None:
    with pytest.raises(InvalidValue, match="key must be letters, digits"):
        cached_compute(tmp_path, key, measurement)


def test_the_key_tells_apart_what_measures_differently(tmp_path: Path) -> None:
    one, other = mlp()[1], made("norm_mlp")[1]
    threads = torch.get_num_threads()
    keys = [
        cache_key(one, 4),
        cache_key(other, 4),
        cache_key(one, 8),
        cache_key(one, 4, one.macs),
        cache_key(one, 4, 2.0 * one.macs),
    ]
    try:
        torch.set_num_threads(threads + 1)
        keys.append(cache_key(one, 4))
    finally:
        torch.set_num_threads(threads)
    assert len(set(keys)) == len(keys)
    assert cache_key(one, 4) == keys[0]
    for key in keys:
        cached_compute(tmp_path, key, measurement)
