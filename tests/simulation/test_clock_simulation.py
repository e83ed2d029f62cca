"""A run without training: the same latencies, and what they come to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from airsplit import InvalidValue
from airsplit.runs.record import PER_DEVICE
from airsplit.scenario.scenario import Scenario
from airsplit.scenario.settings import ALGORITHMS
from airsplit.simulation.clock_simulation import PLAIN, QUANTILES, ClockRun, clock_run
from airsplit.training.coordinator import Training
from training import tiny

MOVING: dict[str, Any] = {
    "splits": None,
    "plan__method": "exact",
    "plan__max_split": 4,
    "fleet__devices": 5,
    "fleet__redraw_fading": True,
    "fleet__seconds_per_mac": [1e-8, 1e-6],
    "fleet__mean_distance_m": 600.0,
    "replan_every": 2,
    "participation": 0.6,
    "dropout_probability": 0.3,
}
STAYING: dict[str, Any] = {
    "splits": [1, 2, 3, 1, 2],
    "clock__barrier": "round",
    "clock__downlink": True,
    "clock__backward_macs_ratio": 1.0,
    "clock__server_seconds_per_mac": 1e-7,
    "fleet__joules_per_mac": 1e-9,
    "participation": 0.8,
}


def assert_same_as_trained(wanted: Scenario) -> ClockRun:
    """Latencies to the last bit; what is of each device to the digits of a record."""
    records = list(Training(wanted).rounds())
    found = clock_run(wanted)
    assert found.latency_s.tolist() == [record.latency_s for record in records]
    assert found.virtual_time_s == records[-1].virtual_time_s
    for name in PER_DEVICE:
        total = np.sum([getattr(record, name) for record in records], axis=0)
        assert getattr(found.devices, name) == pytest.approx(
            total, rel=1e-5, abs=1e-5 * found.virtual_time_s
        ), name
    assert (
        found.devices.sent_bytes.tolist()
        == np.sum([record.sent_bytes for record in records], axis=0).tolist()
    )
    return found


def demo(**settings: Any) -> Scenario:
    return Scenario.load("demo").replace(
        **{name.replace("__", "."): value for name, value in settings.items()}
    )


# ---- as trained --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("settings", [MOVING, STAYING], ids=["moving", "staying"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_latencies_are_those_of_a_training(algorithm: str, settings: dict[str, Any]) -> None:
    assert_same_as_trained(
        tiny.scenario(algorithm=algorithm, rounds=5, evaluate_every=1000, **settings)
    )


@pytest.mark.parametrize("settings", [MOVING, STAYING], ids=["moving", "staying"])
def test_latencies_are_those_of_a_training_that_averages_fronts(settings: dict[str, Any]) -> None:
    found = assert_same_as_trained(
        tiny.scenario(average_fronts_every=2, rounds=4, evaluate_every=1000, **settings)
    )
    assert found.schedule.charges(2).up_once_bits.any()


def test_latencies_are_those_of_a_training_over_replayed_rates(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("time_s,one,two\n0,1e6,1e6\n0.0005,2e6,4e6\n")
    settings = {
        "splits": [2, 2],
        "data": "flat",
        "fleet__trace": str(trace),
        "rounds": 6,
        "replan_every": 4,
        "evaluate_every": 1000,
    }
    assert_same_as_trained(
        tiny.scenario(**settings, iterations_per_round=9, clock__barrier="iteration")
    )


# ---- what it comes to --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("barrier", ["iteration", "round"])
def test_in_the_long_run_a_round_takes_what_was_planned(barrier: str) -> None:
    found = clock_run(demo(clock__barrier=barrier), rounds=2000)
    mean_s, expected_s = found.planned_mean_latency_s, found.planned_expected_latency_s
    assert mean_s == pytest.approx(5 * found.schedule.plan.mean_latency_s, rel=1e-12)
    assert expected_s == pytest.approx(5 * found.schedule.plan.expected_latency_s, rel=1e-12)
    assert abs(found.latency_mean_s - expected_s) < 4 * found.latency_spread_s / np.sqrt(2000)
    assert found.steps == (10_000 if barrier == "iteration" else 2000)


def test_only_what_was_planned_is_compared_with_the_plan() -> None:
    for algorithm in ALGORITHMS:
        found = clock_run(demo(training__algorithm=algorithm), rounds=1)
        says = (found.planned_mean_latency_s, found.planned_expected_latency_s)
        assert (None in says) == (algorithm != "sfl")


def test_with_several_plans_what_was_planned_is_their_mean() -> None:
    moving = {"fleet__redraw_fading": True, "fleet__devices": 4}
    found = clock_run(demo(training__replan_every=1, **moving), rounds=2)
    first = clock_run(demo(**moving), rounds=1)
    assert first.planned_expected_latency_s is not None
    assert found.planned_expected_latency_s is not None
    assert found.planned_expected_latency_s != first.planned_expected_latency_s
    second = clock_run(demo(training__replan_every=1, **moving), rounds=1)
    assert second.planned_expected_latency_s == first.planned_expected_latency_s


def test_the_distribution_is_that_of_the_latencies() -> None:
    found = clock_run(demo(), rounds=101)
    ordered = np.sort(found.latency_s)
    assert found.latency_quantiles_s == pytest.approx(
        {level: ordered[round(100 * level)] for level in QUANTILES}
    )
    assert (found.latency_min_s, found.latency_max_s) == (ordered[0], ordered[-1])
    assert found.latency_spread_s == pytest.approx(
        np.sqrt(np.mean((ordered - ordered.mean()) ** 2))
    )
    assert found.rounds == 101


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_device_is_busy_waiting_or_away_all_the_time(algorithm: str) -> None:
    wanted = demo(
        training__algorithm=algorithm,
        training__participation=0.5,
        clock__server_seconds_per_mac=1e-11,
    )
    found = clock_run(wanted, rounds=20)
    assert sum(found.time_shares.values()) == pytest.approx(np.ones(20), rel=1e-12)
    assert sum(found.mean_time_shares.values()) == pytest.approx(1)
    assert 0.4 < found.mean_time_shares["absent"] < 0.6
    everybody = clock_run(demo(training__algorithm=algorithm), rounds=3)
    assert everybody.time_shares["absent"] == pytest.approx(np.zeros(20), abs=1e-12)
    assert everybody.totals["idle_s"] == pytest.approx(
        everybody.mean_time_shares["idle"] * 20 * everybody.virtual_time_s
    )


def test_the_one_that_everybody_waits_for_is_found(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.csv"
    rows = [f"device-{k},{1e-6 if k == 3 else 1e-9},{1e12},1e9" for k in range(6)]
    fleet.write_text("\n".join(["name,seconds_per_mac,fluctuation,full_band_rate_bps", *rows]))
    for barrier, times in (("iteration", 20), ("round", 4)):
        wanted = demo(
            fleet__devices=None,
            fleet__seed=None,
            fleet__file=str(fleet),
            clock__barrier=barrier,
            plan__method="equal",
        )
        found = clock_run(wanted, rounds=4)
        assert found.devices.last.tolist() == [0, 0, 0, times, 0, 0]
        assert found.devices.idle_s.argmin() == 3


def test_rounds_in_which_nobody_does_anything_take_no_time() -> None:
    always_lost = {
        "training__dropout_probability": 0.999999,
        "training__iterations_per_round": 1,
        "fleet__devices": 2,
    }
    found = clock_run(demo(**always_lost), rounds=3)
    assert found.latency_s.tolist() == [0.0, 0.0, 0.0]
    assert found.steps == 0
    assert found.mean_time_shares == {
        "compute": 0,
        "transmit": 0,
        "server": 0,
        "idle": 0,
        "absent": 1,
    }


def test_it_is_all_plain_numbers_under_the_names_of_the_attributes() -> None:
    found = clock_run(demo(), rounds=2)
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert list(document) == [*PLAIN, "latency_s", "devices"]
    assert document["latency_s"] == found.latency_s.tolist()
    assert document["latency_quantiles_s"]["0.5"] == found.latency_quantiles_s[0.5]
    assert (
        document["totals"]["sent_bytes"]
        == sum(document["devices"]["sent_bytes"])
        == int(found.devices.sent_bytes.sum())
    )
    assert document["devices"]["name"] == [str(k) for k in range(20)]
    assert set(document["devices"]) == {"name", *PER_DEVICE, "last"}


def test_as_many_rounds_as_the_scenario_says_and_a_word_after_each() -> None:
    told: list[str] = []
    assert clock_run(demo(training__rounds=3), tell=told.append).rounds == 3
    assert [text.split(",")[0] for text in told] == ["round 1 of 3", "round 2 of 3", "round 3 of 3"]


# ---- a million, and nothing heavy --------------------------------------------------------------------------------------------
def test_a_million_devices_are_no_trouble() -> None:
    found = clock_run(
        Scenario.load("paper-alexnet").replace(
            **{"fleet.devices": 10**6, "clock.barrier": "round"}
        ),
        rounds=2,
    )
    assert len(found.devices) == 10**6
    assert found.planned_mean_latency_s is not None
    assert found.planned_expected_latency_s is not None
    assert found.latency_mean_s > found.planned_mean_latency_s
    assert found.latency_mean_s == pytest.approx(found.planned_expected_latency_s, rel=1e-3)
    assert found.steps == 2


def test_neither_torch_nor_a_plotting_library_is_loaded() -> None:
    code = (
        "import sys; from airsplit.cli.app import main; code = main(['clock', 'demo', '--rounds', '2', '--json'])\n"
        "print(*sorted({'torch', 'matplotlib', 'grpc', 'sklearn'} & set(sys.modules)), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, "")
    assert json.loads(done.stdout)["rounds"] == 2


# ---- mistakes ----------------------------------------------------------------------------------------------------------------
def test_mistakes_are_named() -> None:
    for rounds in (0, -1, 2.5, True):
        with pytest.raises(InvalidValue, match="rounds must be"):
            clock_run(demo(), rounds=rounds)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="scenario must be"):
        clock_run("demo")  # type: ignore[arg-type]
