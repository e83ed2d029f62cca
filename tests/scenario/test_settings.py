"""The tables of a scenario: defaults, rules, and settings that exclude each other."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

import airsplit as air
from airsplit.planning.methods import METHOD_OF
from airsplit.scenario.scenario import Scenario
from airsplit.scenario.section import SECTIONS
from airsplit.scenario.settings import (
    CellSettings,
    ClockSettings,
    FleetSettings,
    ModelSettings,
    PlanSettings,
    TrainingSettings,
    list_settings,
)
from airsplit.system.inputs import InputSpec

MODEL = '[model]\nname = "alexnet"\n'


def read(text: str) -> Scenario:
    return Scenario.from_toml(MODEL + text)


def test_every_setting_has_a_rule_and_a_help_of_one_line() -> None:
    names = []
    for name, setting in list_settings():
        names.append(name)
        assert setting.rule is not None, name
        assert setting.help.endswith("."), name
        assert "\n" not in setting.help
    assert names[0] == "model.name"
    assert len(names) == sum(len(section.model_fields) for section in SECTIONS.values())


@pytest.mark.parametrize("name", [name for name, _ in list_settings()])
def test_every_default_obeys_its_own_rule(name: str) -> None:
    setting = dict(list_settings())[name]
    if name != "model.name":
        setting.check(name, setting.default)


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


def test_the_contracts_example_states_the_defaults_of_a_training():
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
            r"model\.input_dtype needs model\.input_shape as well, got 'int64' alone",
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


def test_the_inputs_of_a_model_are_one_shape_or_a_list_of_texts():
    def specs(text):
        return Scenario.from_toml(f'[model]\nname = "a.b:c"\n{text}\n').model.input_specs()

    assert specs("input_shape = [3, 8, 8]") == (InputSpec((3, 8, 8)),)
    assert specs('input_shape = [8]\ninput_dtype = "int64"') == (InputSpec((8,), "int64"),)
    assert specs('inputs = ["3x8x8", "77:int64"]') == (
        InputSpec((3, 8, 8)),
        InputSpec((77,), "int64"),
    )
    assert ModelSettings(name="gpt").input_specs() is None


def test_a_factory_may_have_an_argument_named_input_shape():
    assert ModelSettings(
        name="a.b:c", input_shape=[8], arguments={"input_shape": [8]}
    ).arguments == {"input_shape": [8]}


def test_a_metric_by_path_has_arguments_and_a_goal() -> None:
    text = """
    [model]
    name = "alexnet32"
    [training]
    metric = "mine:error"
    metric_goal = "min"
    [training.metric_arguments]
    threshold = 0.5
    """
    scenario = Scenario.from_toml(text)
    assert (scenario.training.metric, scenario.training.metric_goal) == ("mine:error", "min")
    assert scenario.training.metric_arguments == {"threshold": 0.5}
    assert Scenario.from_toml(scenario.to_toml()) == scenario
    changed = scenario.replace(**{"training.metric_arguments.threshold": 0.25})
    assert changed.training.metric_arguments == {"threshold": 0.25}
    # Settings of the user's metric go with it.
    plain = scenario.replace(**{"training.metric": "accuracy"})
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
def test_an_invalid_metric_is_rejected(training: dict[str, Any], why: str) -> None:
    with pytest.raises(air.AirsplitError, match=why):
        Scenario(model={"name": "alexnet32"}, training=training)


def test_a_partition_by_path_has_no_samples_per_device() -> None:
    settings = {"partition": "mine:halves", "samples_per_device": 3}
    with pytest.raises(
        air.InvalidValue,
        match=r'training\.samples_per_device does not apply to training\.partition = "mine:halves"',
    ):
        TrainingSettings(**settings)
