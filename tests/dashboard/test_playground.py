"""The playground: settings in, a plan and sentences out; nothing that names files or code."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import airsplit as air
from airsplit.core.errors import AirsplitError, InvalidValue
from airsplit.dashboard import playground
from airsplit.dashboard.playground import (
    METHODS,
    MODELS,
    SLIDERS,
    BadRow,
    list_choices,
    plan_request,
)
from airsplit.scenario.scenario import Scenario
from airsplit.system.profile import list_shipped_profiles, load_shipped_profile

CSV = "name,seconds_per_mac,fluctuation,distance_m\n" + "".join(
    f"d{k},{k + 1}e-10,1e10,{100 + k}\n" for k in range(4)
)


def asked(**settings: Any) -> dict[str, Any]:
    """A request with settings under their dotted names: `fleet__devices`."""
    return {
        "model": "alexnet",
        "settings": {key.replace("__", "."): value for key, value in settings.items()},
    }


def test_all_models_are_offered_whose_profiles_ship() -> None:
    assert set(MODELS) == set(list_shipped_profiles())
    for entry in list_choices()["models"]:
        scenario = Scenario.from_toml('[model]\nname = "alexnet"\n').replace(
            **MODELS[entry["id"]][1]
        )
        assert (
            air.profile(scenario.model.name, scenario.model.input_shape).names[0]
            == entry["names"][0]
            or scenario.model.arguments
        )


def test_a_plan_is_that_of_the_planner() -> None:
    found = plan_request(
        asked(
            fleet__devices=7,
            fleet__mean_distance_m=300.0,
            plan__max_split="pool2",
            training__batch_size=16,
        )
    )
    plan = air.plan(
        load_shipped_profile("alexnet"),
        air.Fleet.sample(7, seed=0, mean_distance_m=300.0),
        max_split="pool2",
        batch_size=16,
    )
    assert found["devices"]["splits"] == plan.splits.tolist()
    assert found["devices"]["shares"] == plan.shares.tolist()
    assert found["plan"]["expected_latency_s"] == plan.expected_latency_s
    assert found["layers"]["limit"] == 8
    json.dumps(found, allow_nan=False)


def test_what_is_exported_plans_the_same() -> None:
    request = asked(
        fleet__devices=5,
        fleet__seed=3,
        cell__bandwidth_hz=5e6,
        plan__method="paper",
        plan__max_split=6,
    )
    found = plan_request(request | {"model": "vgg16-3x32x32"})
    scenario = Scenario.from_toml(found["export"]["toml"])
    profile = air.profile(scenario.model.name, scenario.model.input_shape)
    again = air.plan(profile, scenario.make_fleet(), **scenario.plan_arguments())
    assert again.splits.tolist() == found["devices"]["splits"]


def test_every_method_and_every_slider_is_known_to_the_planner() -> None:
    for method in METHODS:
        assert (
            plan_request(asked(plan__method=method, fleet__devices=4))["plan"]["method"] == method
        )
    known = Scenario.from_toml('[model]\nname = "alexnet"\n').settings()
    assert all(
        key in known[table].settings() or hasattr(known[table], key)
        for table, key in (each.split(".") for each in SLIDERS)
    )


@pytest.mark.parametrize("method", METHODS)
def test_a_slider_makes_each_plan_once(method: str, count_calls: Any) -> None:
    made = count_calls(playground, "plan")
    found = plan_request(asked(fleet__devices=4, plan__method=method) | {"device": 2})
    assert len(made) == len(METHODS)
    assert found["round_s"].keys() == {*METHODS, "fedavg"}


def test_headline_bars_and_best_possible_are_the_mean_of_the_largest_whatever_the_method() -> None:
    for method in METHODS:
        found = plan_request(
            asked(fleet__devices=200, plan__method=method, training__iterations_per_round=10)
        )
        best, iteration_s = found["best_possible"], found["plan"]["expected_latency_s"]
        assert best["objective"] == "mean of the largest"
        assert found["round_s"][method] == pytest.approx(10 * iteration_s)
        assert min(found["round_s"].values()) >= 10 * best["lower_bound_s"]
        assert best["gap"] == pytest.approx(iteration_s / best["lower_bound_s"] - 1)
        assert (
            f"at most {best['at_most']} longer than the best possible plan (mean of the largest)"
            in found["said"]["bound"]
        )
        assert "any splits and fixed shares" in found["said"]["bound"]


def test_the_default_method_is_expected_max() -> None:
    found = plan_request(asked(fleet__devices=3))
    assert (found["plan"]["method"], found["plan"]["objective"]) == (
        "expected-max",
        "mean of the largest",
    )


def test_sentences_compare_with_equal_shares_and_fedavg() -> None:
    found = plan_request(asked(plan__method="exact", training__iterations_per_round=10))
    assert "times as long" in found["said"]["gain"]
    assert "longer than the best possible plan" in found["said"]["bound"]
    assert found["round_s"]["exact"] == pytest.approx(10 * found["plan"]["expected_latency_s"])
    assert found["round_s"]["exact"] <= found["round_s"]["equal"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"settings": {"fleet.file": "/etc/passwd"}}, "fleet.file"),
        ({"settings": {"model.name": "os:system"}}, "model.name"),
        ({"settings": {"fleet.devices": 10**6}}, "fleet.devices"),
        ({"settings": {"fleet.devices": True}}, "fleet.devices"),
        ({"settings": {"fleet.seconds_per_mac": [1e-9, "x"]}}, "seconds_per_mac"),
        ({"settings": {"plan.max_split": 99}}, "max_split"),
        ({"settings": {"plan.method": "exhaustive"}}, "plan.method"),
        ({"settings": []}, "settings"),
        ({"model": "os:system"}, "model"),
        ({"model": ["alexnet"]}, "model"),
        ({"profile": 3}, "profile"),
        ({"profile": "{"}, "JSON"),
        ({"csv": 3}, "csv"),
        ({"other": 3}, "other"),
    ],
)
def test_bad_requests_are_refused_in_words(change: dict[str, Any], said: str) -> None:
    with pytest.raises(AirsplitError, match=said):
        plan_request(asked(fleet__devices=20) | change)


@pytest.mark.parametrize(
    ("limit", "most", "change", "said"),
    [
        ("MOST_LAYERS", 20, {}, "profiles of up to 19 splits, this one has 20"),
        ("MOST_DEVICES", 4, {"csv": CSV}, "up to 3 devices, got 4"),
        ("MOST_DEVICES", 4, asked(fleet__devices=4), "from 1 to 3"),
    ],
)
def test_what_is_too_large_for_a_slider_is_refused(
    monkeypatch: pytest.MonkeyPatch, limit: str, most: int, change: dict[str, Any], said: str
) -> None:
    monkeypatch.setattr(playground, limit, most)
    plan_request(asked(fleet__devices=4) | change)
    monkeypatch.setattr(playground, limit, most - 1)
    with pytest.raises(InvalidValue, match=said):
        plan_request(asked(fleet__devices=4) | change)


# ---- a CSV, and a profile ------------------------------------------------------------------------------------------------------
def test_a_csv_is_planned_for() -> None:
    found = plan_request(asked(fleet__devices=20) | {"csv": CSV})
    assert found["devices"]["names"] == ["d0", "d1", "d2", "d3"]
    assert 'file = "' in found["export"]["toml"]
    assert "fleet.csv" in found["export"]["note"]


@pytest.mark.parametrize(
    ("bad", "line"),
    [
        (("2e-10", "fast"), 3),
        (("2e-10", "-2e-10"), 3),
        (("d3,", "d3,d3,"), 5),
        (("d1,2e-10", "\nd1,0"), 4),
    ],
)
def test_a_bad_row_is_named(bad: tuple[str, str], line: int) -> None:
    with pytest.raises(BadRow) as error:
        plan_request(asked() | {"csv": CSV.replace(*bad)})
    assert error.value.line == line


def test_a_csv_without_devices_is_an_error_of_no_line() -> None:
    with pytest.raises(AirsplitError, match="no devices") as error:
        plan_request(asked() | {"csv": CSV.splitlines()[0]})
    assert not isinstance(error.value, BadRow)


def test_a_profile_of_ones_own_is_planned_with() -> None:
    text = load_shipped_profile("resnet20").to_json()
    found = plan_request(asked() | {"profile": text})
    assert found["layers"]["names"] == list(load_shipped_profile("resnet20").names)
    assert found["export"]["toml"] == ""


def test_splits_that_send_a_raw_input_are_neither_planned_nor_recommended() -> None:
    alexnet = load_shipped_profile("alexnet")
    pools = [name.startswith("pool") for name in alexnet.names]
    raw = replace(alexnet, raw_inputs=[["context"] if pool else [] for pool in pools])
    everywhere = plan_request(
        asked(fleet__devices=6, plan__method="equal") | {"profile": alexnet.to_json()}
    )
    assert any(pools[split - 1] for split in everywhere["devices"]["splits"])
    for device in range(6):
        found = plan_request(
            asked(fleet__devices=6, plan__method="equal")
            | {"profile": raw.to_json(), "device": device}
        )
        assert not any(pools[split - 1] for split in found["devices"]["splits"])
        assert (
            "No other cut that is allowed would let it finish sooner with this share."
            in found["device"]["said"]
        )


# ---- one device ----------------------------------------------------------------------------------------------------------------
def test_a_device_is_told_why() -> None:
    request = asked(fleet__devices=6, plan__max_split="pool2")
    plan = plan_request(request | {"device": 2})
    found = plan["device"]
    assert plan_request(request)["device"] is None
    split = found["split"]
    assert split == plan["devices"]["splits"][2]
    rows = found["rows"]
    assert len(rows["names"]) == 8
    assert rows["compute_s"][split - 1] == pytest.approx(plan["devices"]["compute_s"][2])
    assert rows["transmit_s"][split - 1] == pytest.approx(plan["devices"]["transmit_s"][2])
    assert np.argmin(np.add(rows["compute_s"], rows["transmit_s"])) == split - 1
    assert "No other cut" in found["said"]
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("number", [-1, 6, True, "2"])
def test_a_device_that_is_not_there_is_refused(number: Any) -> None:
    with pytest.raises(InvalidValue, match="device"):
        plan_request(asked(fleet__devices=6) | {"device": number})
