"""The playground: settings in, a plan in words out, and no setting names a file or code."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import airsplit as air
from airsplit.core.errors import AirsplitError, InvalidValue
from airsplit.dashboard import plan_request, playground
from airsplit.dashboard.plan_request import METHODS, MODELS, SETTINGS, BadRow
from airsplit.dashboard.playground import answer_request, list_choices
from airsplit.scenario.scenario import Scenario
from airsplit.system.profile import list_shipped_profiles, load_shipped_profile

CSV = "name,seconds_per_mac,fluctuation,distance_m\n" + "".join(
    f"d{k},{k + 1}e-10,1e10,{100 + k}\n" for k in range(4)
)


def make_request(**settings: Any) -> dict[str, Any]:
    """Return a request with settings under their dotted names: `fleet__devices`."""
    return {
        "model": "alexnet",
        "settings": {key.replace("__", "."): value for key, value in settings.items()},
    }


def test_all_models_with_a_shipped_profile_can_be_chosen() -> None:
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


def test_the_plan_is_that_of_the_planner() -> None:
    answer = answer_request(
        make_request(
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
    assert answer["devices"]["splits"] == plan.splits.tolist()
    assert answer["devices"]["shares"] == plan.shares.tolist()
    assert answer["plan"]["expected_latency_s"] == plan.expected_latency_s
    assert answer["layers"]["limit"] == 8
    json.dumps(answer, allow_nan=False)


def test_the_exported_scenario_gives_the_same_plan() -> None:
    request = make_request(
        fleet__devices=5,
        fleet__seed=3,
        cell__bandwidth_hz=5e6,
        plan__method="paper",
        plan__max_split=6,
    )
    answer = answer_request(request | {"model": "vgg16-3x32x32"})
    scenario = Scenario.from_toml(answer["export"]["toml"])
    profile = air.profile(scenario.model.name, scenario.model.input_shape)
    again = air.plan(profile, scenario.make_fleet(), **scenario.plan_arguments())
    assert again.splits.tolist() == answer["devices"]["splits"]


def test_every_method_and_every_setting_is_known_to_the_planner() -> None:
    for method in METHODS:
        assert (
            answer_request(make_request(plan__method=method, fleet__devices=4))["plan"]["method"]
            == method
        )
    known = Scenario.from_toml('[model]\nname = "alexnet"\n').settings()
    assert all(
        key in known[table].settings() or hasattr(known[table], key)
        for table, key in (setting.split(".") for setting in SETTINGS)
    )


@pytest.mark.parametrize("method", METHODS)
def test_each_method_plans_once_per_request(method: str, count_calls: Any) -> None:
    calls = count_calls(playground, "plan")
    answer = answer_request(make_request(fleet__devices=4, plan__method=method) | {"device": 2})
    assert len(calls) == len(METHODS)
    assert answer["round_s"].keys() == {*METHODS, "fedavg"}


def test_headline_bars_and_bound_are_the_mean_of_the_largest_for_every_method() -> None:
    for method in METHODS:
        answer = answer_request(
            make_request(fleet__devices=200, plan__method=method, training__iterations_per_round=10)
        )
        best, iteration_s = answer["best_possible"], answer["plan"]["expected_latency_s"]
        assert best["objective"] == "mean of the largest"
        assert answer["round_s"][method] == pytest.approx(10 * iteration_s)
        assert min(answer["round_s"].values()) >= 10 * best["lower_bound_s"]
        assert best["gap"] == pytest.approx(iteration_s / best["lower_bound_s"] - 1)
        assert (
            f"at most {best['at_most']} longer than the best possible plan (mean of the largest)"
            in answer["sentences"]["bound"]
        )
        assert "any splits and fixed shares" in answer["sentences"]["bound"]


def test_the_default_method_is_expected_max() -> None:
    answer = answer_request(make_request(fleet__devices=3))
    assert (answer["plan"]["method"], answer["plan"]["objective"]) == (
        "expected-max",
        "mean of the largest",
    )


def test_the_sentences_compare_with_equal_shares_and_fedavg() -> None:
    answer = answer_request(make_request(plan__method="exact", training__iterations_per_round=10))
    assert "times as long" in answer["sentences"]["gain"]
    assert "longer than the best possible plan" in answer["sentences"]["bound"]
    assert answer["round_s"]["exact"] == pytest.approx(10 * answer["plan"]["expected_latency_s"])
    assert answer["round_s"]["exact"] <= answer["round_s"]["equal"]


@pytest.mark.parametrize(
    ("change", "complaint"),
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
def test_invalid_requests_are_rejected_with_a_reason(
    change: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(AirsplitError, match=complaint):
        answer_request(make_request(fleet__devices=20) | change)


@pytest.mark.parametrize(
    ("limit", "most", "change", "complaint"),
    [
        ("MAX_LAYERS", 20, {}, "profiles of up to 19 splits, this one has 20"),
        ("MAX_DEVICES", 4, {"csv": CSV}, "up to 3 devices, got 4"),
        ("MAX_DEVICES", 4, make_request(fleet__devices=4), "from 1 to 3"),
    ],
)
def test_requests_too_large_for_a_slider_are_rejected(
    monkeypatch: pytest.MonkeyPatch, limit: str, most: int, change: dict[str, Any], complaint: str
) -> None:
    monkeypatch.setattr(plan_request, limit, most)
    answer_request(make_request(fleet__devices=4) | change)
    monkeypatch.setattr(plan_request, limit, most - 1)
    with pytest.raises(InvalidValue, match=complaint):
        answer_request(make_request(fleet__devices=4) | change)


def test_a_csv_gives_the_fleet() -> None:
    answer = answer_request(make_request(fleet__devices=20) | {"csv": CSV})
    assert answer["devices"]["names"] == ["d0", "d1", "d2", "d3"]
    # A path relative to the scenario, not one of the server's folders.
    assert 'file = "fleet.csv"' in answer["export"]["toml"]
    assert "fleet.csv" in answer["export"]["note"]


@pytest.mark.parametrize(
    ("bad", "line"),
    [
        (("2e-10", "fast"), 3),
        (("2e-10", "-2e-10"), 3),
        (("d3,", "d3,d3,"), 5),
        (("d1,2e-10", "\nd1,0"), 4),
    ],
)
def test_the_line_of_a_bad_row_is_named(bad: tuple[str, str], line: int) -> None:
    with pytest.raises(BadRow) as error:
        answer_request(make_request() | {"csv": CSV.replace(*bad)})
    assert error.value.line == line


def test_an_empty_csv_is_an_error_without_a_line() -> None:
    with pytest.raises(AirsplitError, match="no devices") as error:
        answer_request(make_request() | {"csv": CSV.splitlines()[0]})
    assert not isinstance(error.value, BadRow)


def test_an_own_profile_is_used_for_planning() -> None:
    text = load_shipped_profile("resnet20").to_json()
    answer = answer_request(make_request() | {"profile": text})
    assert answer["layers"]["names"] == list(load_shipped_profile("resnet20").names)
    assert answer["export"]["toml"] == ""


def test_splits_that_send_raw_inputs_are_neither_planned_nor_recommended() -> None:
    alexnet = load_shipped_profile("alexnet")
    pools = [name.startswith("pool") for name in alexnet.names]
    raw = replace(alexnet, raw_inputs=[["context"] if pool else [] for pool in pools])
    everywhere = answer_request(
        make_request(fleet__devices=6, plan__method="equal") | {"profile": alexnet.to_json()}
    )
    assert any(pools[split - 1] for split in everywhere["devices"]["splits"])
    for device in range(6):
        answer = answer_request(
            make_request(fleet__devices=6, plan__method="equal")
            | {"profile": raw.to_json(), "device": device}
        )
        assert not any(pools[split - 1] for split in answer["devices"]["splits"])
        assert (
            "With this share, no other permitted cut is faster." in answer["device"]["explanation"]
        )


def test_the_cut_of_a_device_is_explained() -> None:
    request = make_request(fleet__devices=6, plan__max_split="pool2")
    plan = answer_request(request | {"device": 2})
    answer = plan["device"]
    assert answer_request(request)["device"] is None
    split = answer["split"]
    assert split == plan["devices"]["splits"][2]
    rows = answer["rows"]
    assert len(rows["names"]) == 8
    assert rows["compute_s"][split - 1] == pytest.approx(plan["devices"]["compute_s"][2])
    assert rows["transmit_s"][split - 1] == pytest.approx(plan["devices"]["transmit_s"][2])
    assert np.argmin(np.add(rows["compute_s"], rows["transmit_s"])) == split - 1
    assert "no other permitted cut is faster" in answer["explanation"]
    json.dumps(answer, allow_nan=False)


@pytest.mark.parametrize("number", [-1, 6, True, "2"])
def test_a_device_number_out_of_range_is_rejected(number: Any) -> None:
    with pytest.raises(InvalidValue, match="device"):
        answer_request(make_request(fleet__devices=6) | {"device": number})
