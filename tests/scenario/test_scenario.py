"""Scenario: strict TOML in, exact TOML out, one-line errors."""

import dataclasses
import inspect
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import airsplit as air
from airsplit.planning.methods import METHOD_OF
from airsplit.scenario.scenario import Scenario
from airsplit.scenario.settings import (
    CellSettings,
    ClockSettings,
    FleetSettings,
    ModelSettings,
    PlanSettings,
    TrainingSettings,
)
from airsplit.system.inputs import InputSpec

MODEL = '[model]\nname = "alexnet"\n'


def read(text: str) -> Scenario:
    return Scenario.from_toml(MODEL + text)


# ---- defaults ------------------------------------------------------------------------------------------------------------
def test_the_defaults_of_the_cell_are_those_of_cell():
    fields = {field.name: field.default for field in dataclasses.fields(air.Cell)}
    settings = {key: field.default for key, field in CellSettings.model_fields.items()}
    assert settings.keys() == fields.keys()
    # Its default is a table of its own for each, which the next line compares.
    del fields["path_loss_arguments"], settings["path_loss_arguments"]
    assert CellSettings().settings() == {k: v for k, v in vars(air.Cell()).items() if v is not None}
    assert settings | {"noise_dbm": None} == fields


def test_the_defaults_of_the_clock_are_those_of_clock():
    fields = {field.name: field.default for field in dataclasses.fields(air.Clock)}
    settings = {key: field.default for key, field in ClockSettings.model_fields.items()}
    assert settings == {
        key: value for key, value in fields.items() if key != "iterations_per_round"
    }


def test_the_defaults_of_the_fleet_are_those_of_sampling():
    signature = inspect.signature(air.Fleet.sample).parameters
    defaults = {
        key: p.default for key, p in signature.items() if p.default is not p.empty and key != "cell"
    }
    settings = {key: field.default for key, field in FleetSettings.model_fields.items()}
    assert {key: settings[key] for key in defaults} == defaults
    assert set(settings) - set(defaults) == {"devices", "seed", "file", "trace", "redraw_fading"}


def test_the_defaults_of_the_plan_are_those_of_planning():
    signature = inspect.signature(air.plan).parameters
    settings = {
        key: field.get_default(call_default_factory=True)
        for key, field in PlanSettings.model_fields.items()
    }
    assert settings.pop("method_arguments") == {}
    assert settings.pop("optimizer_slots") is None  # those of the training's optimizer
    assert settings.pop("element_bits") is None  # those of the network's compression: none
    assert Scenario.load("demo").element_bits == signature["element_bits"].default
    assert settings == {key: signature[key].default for key in settings}
    elsewhere = {
        "profile",
        "fleet",
        "method_arguments",
        "batch_size",
        "clock",
        "optimizer_slots",
        "element_bits",
        "raw_inputs",
    }
    assert set(signature) - set(settings) == elsewhere
    assert ModelSettings.model_fields["raw_inputs"].default == signature["raw_inputs"].default


def test_the_contracts_example_is_a_scenario_and_its_training_is_the_default():
    text = """
[training]
algorithm = "sfl"
dataset = "digits"
partition = "iid"
rounds = 20
iterations_per_round = 5
batch_size = 32
learning_rate = 0.05
loss = "cross-entropy"
weighting = "uniform"
seed = 0
"""
    assert read(text).training == TrainingSettings()


# ---- what it makes -------------------------------------------------------------------------------------------------------
def test_an_almost_empty_scenario_makes_the_papers_fleet_cell_and_clock():
    scenario = read("")
    fleet, sampled = scenario.make_fleet(), air.Fleet.sample(20, seed=0)
    assert np.array_equal(fleet.seconds_per_mac, sampled.seconds_per_mac)
    assert np.array_equal(fleet.fading, sampled.fading)
    assert scenario.make_cell() == air.Cell()
    assert scenario.make_clock() == air.Clock(iterations_per_round=5)


def test_the_clock_takes_its_iterations_from_the_training():
    scenario = read('[clock]\nbarrier = "round"\n[training]\niterations_per_round = 7\n')
    assert scenario.make_clock() == air.Clock(barrier="round", iterations_per_round=7)


def test_plan_arguments_are_what_plan_takes():
    scenario = read(
        '[plan]\nmethod = "fixed"\nsplit = "pool1"\n[training]\nbatch_size = 4\n[fleet]\ndevices = 3\n'
    )
    plan = air.plan(air.profile("alexnet"), scenario.make_fleet(), **scenario.plan_arguments())
    assert plan.method == "fixed"
    assert plan.splits.tolist() == [4, 4, 4]
    assert plan.batch_size == 4


def test_plan_arguments_for_another_method_leave_out_what_it_does_not_take():
    arguments = read('[plan]\nmethod = "fixed"\nsplit = 4\nmax_split = 8\n').plan_arguments("exact")
    assert "split" not in arguments
    assert (arguments["method"], arguments["max_split"]) == ("exact", 8)


@pytest.mark.parametrize("method", air.METHODS)
@pytest.mark.parametrize("option", METHOD_OF)
def test_scenario_and_plan_agree_on_which_option_belongs_to_which_method(method, option):
    value = {"split": 1}.get(option, 0.9)
    profile = air.Profile(
        ["a", "b"], [8, 8], matmul_macs=[8, 16], activation_elements=[4, 2], parameters=[1, 1]
    )
    fleet = air.Fleet(seconds_per_mac=0.5, fluctuation=2.0, full_band_rate_bps=128.0)

    def accepted(call):
        try:
            call()
        except air.InvalidValue as error:
            return f"{option} belongs" not in str(error)
        return True

    planned = accepted(lambda: air.plan(profile, fleet, method=method, **{option: value}))
    assert accepted(lambda: PlanSettings(method=method, **{option: value})) == planned


def test_a_fleet_file_is_looked_for_beside_the_scenario(tmp_path, monkeypatch):
    fleet = air.Fleet(seconds_per_mac=[1e-9, 2e-9], fluctuation=1e9, full_band_rate_bps=1e7)
    folder = tmp_path / "study"
    fleet.write(folder / "fleet.csv")
    (folder / "mine.toml").write_text(
        MODEL + '[fleet]\nfile = "fleet.csv"\n[cell]\nbandwidth_hz = 1e6\n'
    )
    monkeypatch.chdir(tmp_path)
    scenario = Scenario.load("study/mine.toml")
    monkeypatch.chdir(folder.parent.parent)
    made = scenario.make_fleet()
    assert made.seconds_per_mac.tolist() == [1e-9, 2e-9]
    assert made.cell.bandwidth_hz == 1e6
    assert scenario.fleet.devices is None
    assert Scenario.from_toml(scenario.to_toml()) == scenario


def test_a_missing_fleet_file_is_named(tmp_path):
    scenario = Scenario.from_toml(MODEL + '[fleet]\nfile = "none.csv"\n', folder=tmp_path)
    with pytest.raises(air.FileProblem, match=r"fleet file '.*none\.csv' does not exist"):
        scenario.make_fleet()


def test_a_trace_takes_the_place_of_the_channels(tmp_path):
    (tmp_path / "rates.csv").write_text("time_s,ann,bob\n0,1e6,2e6\n10,3e6,4e6\n")
    scenario = Scenario.from_toml(
        MODEL + '[fleet]\ndevices = 2\ntrace = "rates.csv"\n', folder=tmp_path
    )
    fleet = scenario.make_fleet()
    assert fleet.rate_bps(1.0).tolist() == [1e6, 2e6]
    assert fleet.at(10.0).rate_bps(1.0).tolist() == [3e6, 4e6]
    assert [device.name for device in fleet] == ["ann", "bob"]


def test_a_trace_of_another_number_of_devices_is_refused(tmp_path):
    (tmp_path / "rates.csv").write_text("time_s,ann,bob\n0,1e6,2e6\n")
    with pytest.raises(air.InvalidValue, match=r"2 entries|20 entries|has 2"):
        Scenario.from_toml(MODEL + '[fleet]\ntrace = "rates.csv"\n', folder=tmp_path).make_fleet()


def test_a_trace_of_other_devices_than_the_files_is_refused(tmp_path):
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


# ---- loading -------------------------------------------------------------------------------------------------------------
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
def test_a_scenario_that_is_not_there_offers_the_nearest_preset(name, error, message):
    with pytest.raises(error, match=message):
        Scenario.load(name)


def test_a_scenario_that_may_not_be_looked_for_is_named(tmp_path):
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


# ---- errors --------------------------------------------------------------------------------------------------------------
WRONG = [
    ("[fleet]\ndevices = 0", r"fleet\.devices must be a whole number from 1 .* got 0"),
    ("[fleet]\ndevices = 2.0", r"fleet\.devices must be a whole number, got 2\.0"),
    ("[fleet]\ndevices = true", r"fleet\.devices must be a whole number, got True"),
    (
        "[fleet]\ndevices = 1000000000000",
        r"fleet\.devices must be a whole number from 1 to 100000000",
    ),
    ("[fleet]\ndevice = 3", r"fleet\.device is not a setting; did you mean fleet\.devices\?"),
    (
        "[fleet]\nbandwidth_hz = 1e6",
        r"fleet\.bandwidth_hz is not a setting; it belongs to \[cell\]",
    ),
    ("[flet]\ndevices = 3", r"\[flet\] is not a setting; did you mean fleet\?"),
    ("[fleet]\nself = 3", r"fleet\.self is not a setting"),
    ("[fleet]\nmean_distance_m = inf", r"fleet\.mean_distance_m must be a finite number, got inf"),
    (
        "[fleet]\nmean_distance_m = -1",
        r"fleet\.mean_distance_m must be a finite number > 0, got -1\.0",
    ),
    (
        "[fleet]\ndistance_spread = 1.0",
        r"fleet\.distance_spread must be a finite number >= 0 and < 1",
    ),
    (
        "[fleet]\nseconds_per_mac = [1e-9, 1e-10]",
        r"fleet\.seconds_per_mac must be one number or \(low, high\)",
    ),
    (
        "[fleet]\nseconds_per_mac = nan",
        r"fleet\.seconds_per_mac must be a finite number > 0, got nan",
    ),
    ('[fleet]\nseconds_per_mac = "fast"', r"fleet\.seconds_per_mac must be a number"),
    ("[fleet]\nfading = 1", r"fleet\.fading must be true or false, got 1"),
    ("[fleet]\nseed = -1", r"fleet\.seed must be a whole number >= 0, got -1"),
    (
        '[fleet]\nfile = "a.csv"\ndevices = 20',
        r"fleet\.devices and fleet\.file exclude each other; leave one out",
    ),
    (
        '[fleet]\ntrace = "a.csv"\nfading = true',
        r"fleet\.fading and fleet\.trace exclude each other",
    ),
    (
        "[fleet]\nfading = false\nredraw_fading = true",
        r"fleet\.redraw_fading = true and fleet\.fading = false exclude each other",
    ),
    (
        '[fleet]\nfile = "a.csv"\ntrace = "b.csv"\nredraw_fading = true',
        r"fleet\.redraw_fading = true and fleet\.trace exclude each other",
    ),
    ("[cell]\nbandwidth_hz = 0", r"cell\.bandwidth_hz must be a finite number > 0, got 0\.0"),
    (
        "[cell]\nnoise_dbm = -114\nnoise_dbm_per_hz = -174",
        r"cell\.noise_dbm and cell\.noise_dbm_per_hz exclude",
    ),
    ('[cell]\npath_loss = "papr"', r"cell\.path_loss 'papr' is not known; did you mean 'paper'"),
    (
        "[cell]\nresource_blocks = 0",
        r"cell\.resource_blocks must be a whole number from 1 to 1000000000",
    ),
    ('[plan]\nmethod = "exat"', r"plan\.method 'exat' is not known; did you mean 'exact'"),
    ('[plan]\nmethod = "fixed"', r'plan\.split must be given for method = "fixed"'),
    (
        "[plan]\nsplit = 4",
        r"plan\.split belongs to plan\.method = \"fixed\", but that is 'expected-max'",
    ),
    (
        '[plan]\nmethod = "paper"\nquantile = 0.9',
        r"plan\.quantile belongs to plan\.method = \"expected-max\"",
    ),
    (
        '[plan]\nmethod = "paper"\ndevice_quantile = 0.9',
        r"plan\.device_quantile belongs to plan\.method = \"exact\"",
    ),
    (
        '[plan]\nmethod = "exact"\ndevice_quantile = 1.0',
        r"plan\.device_quantile must be a finite number > 0 and < 1",
    ),
    ("[plan]\nmax_split = 0", r"plan\.max_split must be a split's number, from 1, or its name"),
    ("[plan]\nmax_split = []", r"plan\.max_split must have one split for each device"),
    ("[plan]\nmax_split = [1, true]", r"plan\.max_split must be a split's number"),
    (
        "[plan]\nmin_split = [1, 2]",
        r"plan\.min_split must be a split's number, from 1, or its name, got \(1, 2\)",
    ),
    ("[plan]\nelement_bits = 65", r"plan\.element_bits must be a whole number from 1 to 64"),
    ('[clock]\nbarrier = "rund"', r"clock\.barrier 'rund' is not known; did you mean 'round'"),
    (
        "[clock]\niterations_per_round = 5",
        r"clock\.iterations_per_round is not a setting; it belongs to \[training\]",
    ),
    (
        "[clock]\nbackward_macs_ratio = -1",
        r'clock\.backward_macs_ratio must be a finite number >= 0, got -1\.0; or write "counted"',
    ),
    (
        '[clock]\nbackward_macs_ratio = "count"',
        r"clock\.backward_macs_ratio must be a number, got 'count'; or write \"counted\"",
    ),
    (
        "[clock]\nbackward_macs_ratio = true",
        r"clock\.backward_macs_ratio must be a number, got True",
    ),
    ("[training]\nrounds = 0", r"training\.rounds must be a whole number >= 1, got 0"),
    ("[training]\nlearning_rate = 0", r"training\.learning_rate must be a finite number > 0"),
    (
        '[training]\nalgorithm = "fedavgg"',
        r"training\.algorithm 'fedavgg' is not known; did you mean 'fedavg'",
    ),
    (
        '[training]\ndataset = "minst"',
        r"training\.dataset 'minst' is not known; did you mean 'mnist'",
    ),
    (
        '[training]\ndataset = "a b:c"',
        r"training\.dataset must be a name or \"package\.module:factory\"",
    ),
    ('[training]\nloss = ""', r"training\.loss must be a name"),
    (
        "[training]\nalpha = 0.5",
        r"training\.alpha belongs to training\.partition = \"dirichlet\", but that is 'iid'",
    ),
    (
        '[training]\npartition = "dirichlet"\nalpha = 0',
        r"training\.alpha must be a finite number > 0",
    ),
    (
        '[training]\npartition = "shards"\nlabels_per_device = 0',
        r"training\.labels_per_device must be a whole number",
    ),
    (
        '[training]\npartition = "given"',
        r"training\.partition \"given\" needs a dataset factory, got 'digits'",
    ),
    ('[training]\nweighting = "sample"', r"did you mean 'samples'"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_a_wrong_setting_is_one_line_that_names_field_and_rule(text, message):
    with pytest.raises(air.InvalidValue, match=message) as caught:
        read(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"model\.name must be given; write \[model\]"),
        ("[model]", r"model\.name must be given"),
        ('model = "alexnet"', r"model must be a table, got 'alexnet'; write \[model\]"),
        ("fleet = 3\n" + MODEL, r"fleet must be a table, got 3"),
        ("devices = 3\n" + MODEL, r"\[devices\] is not a setting; it belongs to \[fleet\]"),
        ("[fleet]\ndevice = 3", r"did you mean fleet\.devices\?"),
        ("[model]\nname = 3", r"model\.name must be text in quotes, got 3"),
        ('[model]\nname = ""', r"model\.name must be a name or"),
        (
            '[model]\nname = "a.b:c"\ninput_shape = []',
            r"model\.input_shape must be the shape of one sample",
        ),
        ('[model]\nname = "a"\ninput_shape = []', r"model\.input_shape must be the shape"),
        (
            '[model]\nname = "a"\ninput_shape = [3, 0]',
            r"model\.input_shape\[1\] must be a whole number >= 1, got 0",
        ),
        (
            '[model]\nname = "a"\ninput_shape = [3, 10000000000000000000]',
            r"model\.input_shape must have at most 10+ elements",
        ),
        (
            '[model]\nname = "a"\ninput_shape = [3, "b"]',
            r"model\.input_shape\[1\] must be a whole number, got 'b'",
        ),
        ('[model]\nname = "a"\ninput_shape = 3', r"model\.input_shape must be a list, got 3"),
        ('[model]\nname = "a"\narguments = 3', r"model\.arguments must be a table"),
        (
            '[model]\nname = "a"\narguments = { width = nan }',
            r"model\.arguments\.width must be a finite number",
        ),
        (
            '[model]\nname = "a"\narguments = { a = [{ b = 2020-01-01 }] }',
            r"model\.arguments\.a\[0\]\.b must be",
        ),
        (
            '[model]\nname = "a"\narguments = { input_shape = [1] }',
            r"write model\.input_shape instead",
        ),
        (
            '[model]\nname = "a"\ninput_shape = [8]\ninput_dtype = "int46"',
            r"model\.input_dtype 'int46' is not known; did you mean 'int64'",
        ),
        (
            '[model]\nname = "a"\ninput_dtype = "int64"',
            r"model\.input_dtype needs model\.input_shape beside it, got 'int64' alone",
        ),
        (
            '[model]\nname = "a"\ninput_dtype = 64',
            r"model\.input_dtype must be text in quotes, got 64",
        ),
        (
            '[model]\nname = "a.b:c"\ninputs = []',
            r"model\.inputs must have a text for each input, got an empty list",
        ),
        ('[model]\nname = "a.b:c"\ninputs = "3x8"', r"model\.inputs must be a list, got '3x8'"),
        (
            '[model]\nname = "a.b:c"\ninputs = ["3x8", [8]]',
            r"model\.inputs\[1\] must be text in quotes, got \[8\]",
        ),
        (
            '[model]\nname = "a.b:c"\ninputs = ["3x8", "8x"]',
            r"model\.inputs\[1\] must be the sizes of one sample",
        ),
        (
            '[model]\nname = "a.b:c"\ninputs = ["8:int46"]',
            r"model\.inputs\[0\] type 'int46' is not known; did you mean 'int64'",
        ),
        (
            '[model]\nname = "a"\ninputs = ["8"]\ninput_shape = [8]',
            r"model\.inputs and model\.input_shape exclude each other",
        ),
        (
            '[model]\nname = "a"\ninputs = ["8"]\ninput_dtype = "int8"',
            r"model\.inputs and model\.input_dtype exclude each other",
        ),
        (
            '[model]\nname = "a"\ninput_typ = "int8"',
            r"model\.input_typ is not a setting; did you mean model\.input_dtype\?",
        ),
    ],
)
def test_a_wrong_model_is_one_line_that_names_field_and_rule(text, message):
    with pytest.raises(air.InvalidValue, match=message) as caught:
        Scenario.from_toml(text)
    assert "\n" not in str(caught.value)


def test_the_inputs_of_a_model_are_one_shape_or_several_texts():
    def specs(text):
        return Scenario.from_toml(f'[model]\nname = "a.b:c"\n{text}\n').model.input_specs()

    assert specs("input_shape = [3, 8, 8]") == (InputSpec((3, 8, 8)),)
    assert specs('input_shape = [8]\ninput_dtype = "int64"') == (InputSpec((8,), "int64"),)
    assert specs('inputs = ["3x8x8", "77:int64"]') == (
        InputSpec((3, 8, 8)),
        InputSpec((77,), "int64"),
    )
    assert ModelSettings(name="gpt").input_specs() is None


def test_a_factory_may_have_an_argument_of_the_name_input_shape():
    assert ModelSettings(
        name="a.b:c", input_shape=[8], arguments={"input_shape": [8]}
    ).arguments == {"input_shape": [8]}


def test_a_table_by_itself_raises_the_same_errors():
    with pytest.raises(
        air.InvalidValue, match=r"fleet\.devices must be a whole number, got 'many'"
    ):
        FleetSettings(devices="many")


def test_settings_cannot_be_changed_in_place():
    scenario = read("")
    with pytest.raises(ValueError, match="frozen"):
        scenario.fleet.devices = 3


# ---- variants ------------------------------------------------------------------------------------------------------------
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


def test_replace_drops_what_the_change_makes_moot():
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


def test_a_drawn_setting_does_not_replace_a_fleet_file_silently():
    measured = Scenario.load("paper-alexnet").replace(**{"fleet.file": "a.csv"})
    with pytest.raises(
        air.InvalidValue, match=r"fleet\.devices and fleet\.file exclude each other"
    ):
        measured.replace(**{"fleet.devices": 5})
    assert measured.replace(**{"fleet.file": None, "fleet.devices": 5}).fleet.devices == 5


# ---- there and back ------------------------------------------------------------------------------------------------------
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


@settings(deadline=None)
@given(st.dictionaries(texts.filter(lambda key: key != "input_shape"), values, max_size=4))
def test_whatever_a_factory_takes_round_trips_to_the_last_bit(arguments):
    scenario = Scenario(model=ModelSettings(name="alexnet", arguments=arguments))
    again = Scenario.from_toml(scenario.to_toml())
    assert repr(again.model.arguments) == repr(arguments)


def test_an_integer_that_toml_cannot_hold_is_refused_before_it_is_written():
    with pytest.raises(
        air.InvalidValue,
        match=r"model\.arguments\.a must be an integer of at most 64 bits, got 18446744073709551616",
    ):
        ModelSettings(name="alexnet", arguments={"a": 2**64})


def test_all_settings_that_another_makes_moot_are_named_at_once():
    with pytest.raises(
        air.InvalidValue,
        match=r"fleet\.devices and fleet\.file exclude .*, got 3; likewise fleet\.mean_distance_m$",
    ):
        Scenario.from_toml(
            '[model]\nname = "alexnet"\n[fleet]\nfile = "a.csv"\ndevices = 3\nmean_distance_m = 9.0\n'
        )


# ---- metrics ---------------------------------------------------------------------------------------------------------------
def test_a_metric_of_ones_own_comes_with_arguments_and_a_goal() -> None:
    text = """
    [model]
    name = "alexnet32"
    [training]
    metric = "mine:error"
    metric_goal = "min"
    [training.metric_arguments]
    threshold = 0.5
    """
    found = Scenario.from_toml(text)
    assert (found.training.metric, found.training.metric_goal) == ("mine:error", "min")
    assert found.training.metric_arguments == {"threshold": 0.5}
    assert Scenario.from_toml(found.to_toml()) == found
    changed = found.replace(**{"training.metric_arguments.threshold": 0.25})
    assert changed.training.metric_arguments == {"threshold": 0.25}
    plain = found.replace(
        **{"training.metric": "accuracy"}
    )  # what belonged to the other goes with it
    assert (plain.training.metric_goal, plain.training.metric_arguments) == ("max", {})


@pytest.mark.parametrize(
    ("training", "why"),
    [
        ({"metric": "f1"}, r"training\.metric 'f1' is not known"),
        (
            {"metric": "mine:error", "metric_goal": "lowest"},
            r"training\.metric_goal 'lowest' is not known",
        ),
        ({"metric_goal": "min"}, r"training\.metric_goal is for a metric of your own"),
        ({"metric_arguments": {"k": 1}}, r"training\.metric_arguments is for a metric of your own"),
        (
            {"metric": "mine:error", "metric_arguments": {"k": None}},
            r"training\.metric_arguments\.k must be a finite number",
        ),
    ],
)
def test_a_metric_that_cannot_be_is_refused(training: dict[str, Any], why: str) -> None:
    with pytest.raises(air.AirsplitError, match=why):
        Scenario(model={"name": "alexnet32"}, training=training)


@pytest.mark.parametrize(
    ("table", "key", "built_in", "words"),
    [
        ("cell", "path_loss", "free-space", "a path loss of your own"),
        ("plan", "method", "exact", "a method of your own"),
        ("training", "loss", "cross-entropy", "a loss of your own"),
        ("training", "metric", "accuracy", "a metric of your own"),
        ("training", "partition", "shards", "a partition of your own"),
    ],
)
def test_arguments_go_with_code_by_path_only(
    table: str, key: str, built_in: str, words: str
) -> None:
    name = f"{table}.{key}"
    plain = Scenario.from_toml(MODEL)
    ours = plain.replace(**{name: "mine:code", f"{name}_arguments.level": 0.5})
    assert getattr(getattr(ours, table), f"{key}_arguments") == {"level": 0.5}
    assert Scenario.from_toml(ours.to_toml()) == ours
    assert ours.code_paths() == {name: "mine:code"}

    back = ours.replace(**{name: built_in})
    assert getattr(getattr(back, table), f"{key}_arguments") == {}
    wrong = rf"{table}\.{key}_arguments is for {words}, {table}\.{key} = .package\.module"
    for change in (f"{name}_arguments.level", f"{name}_arguments"):
        value: Any = 0.5 if change.endswith("level") else {"level": 0.5}
        with pytest.raises(air.InvalidValue, match=wrong):
            plain.replace(**{name: built_in, change: value})
    with pytest.raises(air.InvalidValue, match=rf"{key}_arguments\.level must be a finite number"):
        ours.replace(**{f"{name}_arguments.level": float("nan")})


def test_another_method_does_not_get_the_arguments_of_the_scenarios() -> None:
    text = MODEL + '[plan]\nmethod = "mine:method"\nmethod_arguments = { level = 3 }\n'
    scenario = Scenario.from_toml(text)
    assert scenario.plan_arguments()["method_arguments"] == {"level": 3}
    assert "method_arguments" not in scenario.plan_arguments("exact")
    assert "method_arguments" not in scenario.plan_arguments("mine:another")


def test_a_partition_by_path_decides_itself_how_many_samples_a_device_gets() -> None:
    settings = {"partition": "mine:halves", "samples_per_device": 3}
    with pytest.raises(
        air.InvalidValue,
        match=r'training\.samples_per_device does not go with training\.partition = "mine:halves"',
    ):
        TrainingSettings(**settings)


def test_quantiles_go_with_a_method_by_path() -> None:
    text = '[model]\nname = "alexnet"\n[plan]\nmethod = "mine:method"\nquantile = 0.9\ndevice_quantile = 0.8\n'
    arguments = Scenario.from_toml(text).plan_arguments()
    assert (arguments["quantile"], arguments["device_quantile"]) == (0.9, 0.8)
