"""Every preset is a sound scenario that plans."""

import tomllib

import pytest

import airsplit as air
from airsplit.models.profiling import get_profile
from airsplit.models.zoo.registry import find_shipped_name, get_input_spec
from airsplit.scenario.presets import describe_preset, list_presets, read_preset
from airsplit.scenario.scenario import Scenario
from airsplit.system.profile import list_shipped_profiles


def test_the_promised_presets_exist():
    assert {"paper-alexnet", "paper-vgg16", "paper-alexnet-no-limit", "physical", "demo"} <= set(
        list_presets()
    )


@pytest.mark.parametrize("name", list_presets())
def test_a_preset_loads_and_is_the_same_from_its_text(name):
    assert Scenario.load(name) == Scenario.from_toml(read_preset(name))


@pytest.mark.parametrize("name", list_presets())
def test_a_preset_begins_with_its_one_line_description(name):
    assert read_preset(name).startswith(f"# {describe_preset(name)}\n")
    assert "\n" not in describe_preset(name)
    assert len(describe_preset(name)) <= 110


@pytest.mark.parametrize("name", list_presets())
def test_a_preset_is_ascii_and_ends_with_one_newline(name):
    assert read_preset(name).isascii()
    assert read_preset(name).endswith("\n")
    assert "\n\n\n" not in read_preset(name)


@pytest.mark.parametrize("name", list_presets())
def test_a_preset_plans(name):
    scenario = Scenario.load(name)
    profile = get_profile(
        scenario.model.name, scenario.model.input_specs(), scenario.model.arguments
    )
    plan = air.plan(profile, scenario.make_fleet(), **scenario.plan_arguments())
    assert len(plan) == scenario.fleet.devices
    assert plan.batch_size == scenario.training.batch_size
    assert plan.averaged_parameters > 0


@pytest.mark.parametrize("name", list_presets())
def test_the_profile_of_a_presets_model_ships(name):
    model = Scenario.load(name).model
    assert (
        find_shipped_name(model.name, model.input_shape, model.arguments) in list_shipped_profiles()
    )


def test_the_demo_is_for_the_built_in_digits():
    model = Scenario.load("demo").model
    assert get_input_spec(model.name, model.input_shape, model.arguments).shape == (1, 32, 32)


def test_the_papers_numbers_are_written_out():
    table = tomllib.loads(read_preset("paper-alexnet"))
    assert table["fleet"] | {"seed": 0} == {
        "devices": 20,
        "mean_distance_m": 200.0,
        "distance_spread": 0.0,
        "seconds_per_mac": [0.2e-9, 1e-9],
        "fluctuation_ratio": 2.0,
        "fading": True,
        "seed": 0,
    }
    assert table["cell"] == {"bandwidth_hz": 20e6, "noise_dbm": -114.0}
    assert table["plan"] == {"method": "exact", "max_split": 8}
    assert tomllib.loads(read_preset("paper-vgg16"))["plan"]["max_split"] == 6


def test_without_a_limit_the_deepest_split_still_averages_something():
    scenario = Scenario.load("paper-alexnet-no-limit")
    assert scenario.plan.max_split is None
    plan = air.plan(air.profile("alexnet"), scenario.make_fleet(), **scenario.plan_arguments())
    assert plan.splits.max() <= 19


def test_the_physical_preset_counts_every_cost():
    scenario = Scenario.load("physical")
    clock = scenario.make_clock()
    assert (clock.downlink, clock.backward_macs_ratio, clock.barrier) == (True, 2.0, "round")
    assert scenario.make_cell().noise_dbm_per_hz == -174.0
    assert scenario.cell.noise_dbm is None


def test_an_unknown_preset_offers_the_nearest():
    with pytest.raises(air.UnknownName, match="did you mean 'paper-alexnet'"):
        read_preset("paper-alexne")
