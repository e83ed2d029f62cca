"""Scenario: loading, variants, exact TOML, and the objects it makes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import airsplit as air
from airsplit.scenario.scenario import Scenario
from airsplit.scenario.settings import ModelSettings

MODEL = '[model]\nname = "alexnet"\n'


def read(text: str) -> Scenario:
    return Scenario.from_toml(MODEL + text)


def test_a_scenario_of_a_model_alone_has_the_papers_fleet_cell_and_clock():
    scenario = read("")
    fleet = scenario.make_fleet()
    sampled = air.Fleet.sample(20, seed=0)
    assert np.array_equal(fleet.seconds_per_mac, sampled.seconds_per_mac)
    assert np.array_equal(fleet.fading, sampled.fading)
    assert scenario.make_cell() == air.Cell()
    assert scenario.make_clock() == air.Clock(iterations_per_round=5)


def test_the_clock_takes_its_iterations_from_the_training():
    scenario = read('[clock]\nbarrier = "round"\n[training]\niterations_per_round = 7\n')
    assert scenario.make_clock() == air.Clock(barrier="round", iterations_per_round=7)


def test_plan_accepts_the_plan_arguments():
    scenario = read(
        '[plan]\nmethod = "fixed"\nsplit = "pool1"\n'
        "[training]\nbatch_size = 4\n[fleet]\ndevices = 3\n"
    )
    plan = air.plan(air.profile("alexnet"), scenario.make_fleet(), **scenario.plan_arguments())
    assert plan.method == "fixed"
    assert plan.splits.tolist() == [4, 4, 4]
    assert plan.batch_size == 4


def test_plan_arguments_for_another_method_leave_out_its_foreign_options():
    arguments = read('[plan]\nmethod = "fixed"\nsplit = 4\nmax_split = 8\n').plan_arguments("exact")
    assert "split" not in arguments
    assert (arguments["method"], arguments["max_split"]) == ("exact", 8)


def test_the_path_of_a_fleet_file_is_relative_to_the_scenario(tmp_path, monkeypatch):
    fleet = air.Fleet(seconds_per_mac=[1e-9, 2e-9], fluctuation=1e9, full_band_rate_bps=1e7)
    folder = tmp_path / "study"
    fleet.write(folder / "fleet.csv")
    (folder / "mine.toml").write_text(
        MODEL + '[fleet]\nfile = "fleet.csv"\n[cell]\nbandwidth_hz = 1e6\n'
    )
    monkeypatch.chdir(tmp_path)
    scenario = Scenario.load("study/mine.toml")
    monkeypatch.chdir(folder.parent.parent)
    fleet = scenario.make_fleet()
    assert fleet.seconds_per_mac.tolist() == [1e-9, 2e-9]
    assert fleet.cell.bandwidth_hz == 1e6
    assert scenario.fleet.devices is None
    assert Scenario.from_toml(scenario.to_toml()) == scenario


def test_a_missing_fleet_file_is_named(tmp_path):
    scenario = Scenario.from_toml(MODEL + '[fleet]\nfile = "none.csv"\n', folder=tmp_path)
    with pytest.raises(air.FileProblem, match=r"fleet file '.*none\.csv' does not exist"):
        scenario.make_fleet()


def test_a_trace_replaces_the_channels(tmp_path):
    (tmp_path / "rates.csv").write_text("time_s,ann,bob\n0,1e6,2e6\n10,3e6,4e6\n")
    scenario = Scenario.from_toml(
        MODEL + '[fleet]\ndevices = 2\ntrace = "rates.csv"\n', folder=tmp_path
    )
    fleet = scenario.make_fleet()
    assert fleet.rate_bps(1.0).tolist() == [1e6, 2e6]
    assert fleet.at(10.0).rate_bps(1.0).tolist() == [3e6, 4e6]
    assert [device.name for device in fleet] == ["ann", "bob"]


def test_a_trace_of_another_number_of_devices_is_rejected(tmp_path):
    (tmp_path / "rates.csv").write_text("time_s,ann,bob\n0,1e6,2e6\n")
    with pytest.raises(air.InvalidValue, match=r"2 entries|20 entries|has 2"):
        Scenario.from_toml(MODEL + '[fleet]\ntrace = "rates.csv"\n', folder=tmp_path).make_fleet()


def test_a_trace_of_other_devices_than_the_fleet_file_is_rejected(tmp_path):
    fleet = air.Fleet(
        seconds_per_mac=1e-9, fluctuation=1e9, full_band_rate_bps=1e7, name=["ann", "bob"]
    )
    fleet.write(tmp_path / "fleet.csv")
    (tmp_path / "rates.csv").write_text("time_s,bob,ann\n0,1e6,2e6\n")
    scenario = Scenario.from_toml(
        MODEL + '[fleet]\nfile = "fleet.csv"\ntrace = "rates.csv"\n', folder=tmp_path
    )
    with pytest.raises(air.InvalidValue, match="in their order"):
        scenario.make_fleet()


def test_plan_arguments_for_another_method_leave_out_the_methods_own_arguments() -> None:
    text = MODEL + '[plan]\nmethod = "mine:method"\nmethod_arguments = { level = 3 }\n'
    scenario = Scenario.from_toml(text)
    assert scenario.plan_arguments()["method_arguments"] == {"level": 3}
    assert "method_arguments" not in scenario.plan_arguments("exact")
    assert "method_arguments" not in scenario.plan_arguments("mine:another")


def test_a_method_by_path_takes_both_quantiles() -> None:
    text = '[plan]\nmethod = "mine:method"\nquantile = 0.9\ndevice_quantile = 0.8\n'
    arguments = read(text).plan_arguments()
    assert (arguments["quantile"], arguments["device_quantile"]) == (0.9, 0.8)


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("paper-alexnt", air.UnknownName, "did you mean 'paper-alexnet'"),
        ("zzz", air.UnknownName, "Known: demo"),
        (
            "demo.toml",
            air.FileProblem,
            "'demo.toml' does not exist; did you mean the preset 'demo'",
        ),
        ("no/such.toml", air.FileProblem, "'no/such.toml' does not exist"),
    ],
)
def test_a_missing_scenario_offers_the_nearest_preset(name, error, message):
    with pytest.raises(error, match=message):
        Scenario.load(name)


def test_a_scenario_with_an_impossible_path_is_named(tmp_path):
    with pytest.raises(air.FileProblem, match=r"^scenario file .*xx' "):
        Scenario.load(tmp_path / ("x" * 300))  # longer than file systems allow


def test_a_folder_is_not_a_scenario(tmp_path):
    with pytest.raises(air.FileProblem, match="cannot be read"):
        Scenario.load(tmp_path)


def test_a_syntax_error_names_file_and_line(tmp_path):
    (tmp_path / "bad.toml").write_text('[model]\nname = "alexnet"\n[fleet\n')
    with pytest.raises(air.FileProblem, match=r"bad\.toml'.*line 3"):
        Scenario.load(tmp_path / "bad.toml")


def test_a_wrong_value_in_a_file_names_the_file(tmp_path):
    (tmp_path / "bad.toml").write_text(MODEL + "[fleet]\ndevices = 0\n")
    with pytest.raises(
        air.InvalidValue, match=r"bad\.toml': fleet\.devices must be a whole number"
    ):
        Scenario.load(tmp_path / "bad.toml")


def test_replace_changes_dotted_keys_and_leaves_the_original():
    before = read("")
    after = before.replace(
        **{"training.rounds": 3, "plan.max_split": "pool1", "model.arguments.groups": 2}
    )
    assert (after.training.rounds, after.plan.max_split, after.model.arguments) == (
        3,
        "pool1",
        {"groups": 2},
    )
    assert (before.training.rounds, before.model.arguments) == (20, {})


def test_replace_by_none_restores_the_default():
    scenario = Scenario.load("paper-alexnet").replace(
        **{"plan.max_split": None, "fleet.devices": None}
    )
    assert (scenario.plan.max_split, scenario.fleet.devices) == (None, 20)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"training.round": 3},
            r"training\.round is not a setting; did you mean training\.rounds\?",
        ),
        ({"trainin.rounds": 3}, r"\[trainin\] is not a setting; did you mean training\?"),
        ({"fleet": 3}, r"must name a setting of its table"),
        ({"rounds": 3}, r"it belongs to \[training\]"),
        ({"fleet.devices.x": 3}, r"fleet\.devices\.x is not a setting"),
        ({"training.rounds": 0}, r"training\.rounds must be a whole number >= 1"),
        ({"plan.split": 4}, r"plan\.split belongs to"),
        ({"plan.method": "equal", "plan.split": 4}, r"plan\.split belongs to"),
        ({"fleet.file": "a.csv", "fleet.devices": 3}, r"exclude each other"),
    ],
)
def test_replace_is_as_strict_as_reading(changes, message):
    with pytest.raises(air.InvalidValue, match=message):
        Scenario.load("paper-alexnet").replace(**changes)


def test_replace_drops_settings_that_no_longer_apply():
    paper = Scenario.load("paper-alexnet")
    density = paper.replace(**{"cell.noise_dbm_per_hz": -174.0})
    assert (density.cell.noise_dbm, density.cell.noise_dbm_per_hz) == (None, -174.0)
    assert density.replace(**{"cell.noise_dbm": -114.0}) == paper
    fixed = paper.replace(**{"plan.method": "fixed", "plan.split": [4] * 20})
    assert fixed.plan.split == (4,) * 20
    assert fixed.replace(**{"plan.method": "exact"}) == paper
    assert paper.replace(**{"fleet.file": "a.csv"}).fleet.devices is None
    one = paper.replace(
        **{"model.name": "a.b:c", "model.input_shape": [8], "model.input_dtype": "int64"}
    )
    several = one.replace(**{"model.inputs": ["8:int64", "3"]})
    assert (several.model.input_shape, several.model.input_dtype) == (None, None)
    assert several.replace(**{"model.input_shape": [8], "model.input_dtype": "int64"}) == one


def test_a_setting_of_a_drawn_fleet_does_not_silently_replace_a_fleet_file():
    measured = Scenario.load("paper-alexnet").replace(**{"fleet.file": "a.csv"})
    with pytest.raises(
        air.InvalidValue, match=r"fleet\.devices and fleet\.file exclude each other"
    ):
        measured.replace(**{"fleet.devices": 5})
    assert measured.replace(**{"fleet.file": None, "fleet.devices": 5}).fleet.devices == 5


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"plan.method": "fixed", "plan.split": [1, "pool1"], "fleet.devices": 2},
        {"plan.method": "expected-max", "plan.quantile": 0.1 + 0.2},
        {"cell.noise_dbm_per_hz": -174.0, "cell.resource_blocks": 100},
        {"training.partition": "dirichlet", "training.alpha": 1 / 3},
        {"fleet.seconds_per_mac": 1e-9 / 3},
        {"fleet.file": 'odd "name"\\ with ünïcode.csv'},
        {"model.name": "a.b:c", "model.input_shape": [3, 8, 8], "model.weights": "w.safetensors"},
        {
            "model.name": "gpt",
            "model.arguments": {},
            "model.input_shape": [32],
            "model.input_dtype": "int64",
        },
        {"model.name": "a.b:c", "model.inputs": ["3x8x8", "77:int64"]},
    ],
)
def test_toml_round_trips_to_an_equal_scenario(changes):
    scenario = Scenario.load("demo").replace(**changes)
    assert Scenario.from_toml(scenario.to_toml()) == scenario
    assert Scenario.from_toml(scenario.to_toml()).to_toml() == scenario.to_toml()


scalars = (
    st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    scalars | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
)


@given(st.dictionaries(texts.filter(lambda key: key != "input_shape"), values, max_size=4))
def test_arguments_of_a_factory_round_trip_to_the_last_bit(arguments):
    scenario = Scenario(model=ModelSettings(name="alexnet", arguments=arguments))
    again = Scenario.from_toml(scenario.to_toml())
    assert repr(again.model.arguments) == repr(arguments)
