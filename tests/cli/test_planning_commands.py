"""The commands presets, profile and plan: results on stdout, notes on stderr."""

import json
import subprocess
import sys

import numpy as np
import pytest

import airsplit as air
from airsplit.cli.scenario_plans import COMPARED_METHODS
from airsplit.scenario.presets import list_presets, read_preset


def flat(text):
    return " ".join(text.split())


def test_presets_lists_them_with_a_line_each(run):
    code, out, err = run("presets")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == list_presets()


def test_presets_prints_one_as_toml_verbatim(run):
    assert run("presets", "paper-alexnet") == (0, read_preset("paper-alexnet"), "")


def test_a_printed_preset_is_a_scenario_file(run, tmp_path, document):
    (tmp_path / "mine.toml").write_text(run("presets", "paper-vgg16")[1])
    assert document("plan", tmp_path / "mine.toml") == document("plan", "paper-vgg16")


def test_presets_as_json(document):
    assert [entry["name"] for entry in document("presets")] == list_presets()
    scenario = document("presets", "demo")
    assert scenario["model"]["arguments"] == {"width": 0.25, "channels": 1}
    assert scenario["fleet"]["devices"] == 20


def test_profile_prints_a_row_for_every_split(run):
    code, out, err = run("profile", "alexnet")
    assert (code, err) == (0, "")
    assert all(name in out for name in air.profile("alexnet").names)
    assert "62,378,344 parameters" in out
    assert "280 kB" in out


def test_profile_as_json_is_the_profile(run):
    _, out, _ = run("profile", "alexnet", "--json")
    assert air.Profile.from_json(out) == air.profile("alexnet")


def test_profile_takes_another_input_shape(document):
    assert document("profile", "vgg16", "--input", "3x32x32")["macs"][-1] < 1e9


def test_profile_reads_a_profile_file(run, tmp_path):
    (tmp_path / "mine.json").write_text(air.profile("vgg16").to_json())
    assert run("profile", tmp_path / "mine.json") == run("profile", "vgg16")


def test_profile_counts_the_model_of_a_factory_in_the_current_folder(module, document):
    module(
        "tiny_net",
        "from torch import nn\n\n"
        "def make():\n    return nn.Sequential(nn.Linear(8, 4), nn.ReLU())\n",
    )
    result = document("profile", "tiny_net:make", "--input", "8")
    assert (result["model"], result["macs"]) == ("tiny_net:make", [32, 36])


def test_profile_gives_the_model_its_arguments_as_toml_or_text(module, document):
    text = """
from torch import nn

def make(sizes, act="ReLU", bias=True, scale=1.0):
    assert (act, bias, scale) == ("GELU", False, 0.5)
    layers = (nn.Linear(a, b, bias=bias) for a, b in zip(sizes, sizes[1:]))
    return nn.Sequential(*layers, getattr(nn, act)())
"""
    module("argued_net", text)
    arguments = ("sizes=[8, 4, 2]", "act=GELU", "bias=false", "scale=0.5")
    words = [word for argument in arguments for word in ("--model-arg", argument)]
    result = document("profile", "argued_net:make", "--input", "8", *words)
    assert (result["macs"], result["parameters"]) == ([32, 40, 42], [32, 8, 0])


def test_profile_of_a_built_in_model_takes_arguments_and_knows_its_input(document):
    assert (
        document("profile", "alexnet32", "--model-arg", "channels=1")["layer_macs"][0]
        == 25 * 96 * 32 * 32
    )
    deep = document("profile", "gpt", "--model-arg", "layers=5")
    usual = document("profile", "gpt")
    assert len(deep["names"]) > len(usual["names"])
    assert document("profile", "gpt", "--model-arg", "layers=") == usual


def test_profile_takes_token_ids_and_several_inputs(module, document):
    text = """
from torch import nn

class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.words, self.head = nn.Linear(12, 5), nn.Embedding(100, 5), nn.Linear(5, 2)

    def forward(self, image, ids):
        return self.head(self.image(image.flatten(1)) + self.words(ids).mean(1))
"""
    module("both_net", text)
    result = document("profile", "both_net:Both", "--input", "3x2x2", "--input", "7:int64")
    assert result["matmul_macs"][-1] == 12 * 5 + 5 * 2
    assert sum(result["parameters"]) == 65 + 500 + 12


def test_a_model_with_an_input_spec_needs_no_input_option(module, document):
    text = "from torch import nn\n\ndef make():\n    model = nn.Sequential(nn.Linear(8, 4))\n"
    module("spec_net", text + "    model.input_spec = '8'\n    return model\n")
    assert document("profile", "spec_net:make")["macs"] == [32]


def test_prints_of_a_factory_go_to_stderr(run, module, tmp_path):
    text = (
        "from torch import nn\n\ndef make():\n    print('reading weights')\n"
        "    return nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 2))\n"
    )
    module("loud_net", text)
    (tmp_path / "loud.toml").write_text('[model]\nname = "loud_net:make"\ninput_shape = [8]\n')
    for words in (("profile", "loud_net:make", "--input", "8"), ("plan", "loud.toml")):
        code, out, err = run(*words, "--json")
        assert (code, err) == (0, "reading weights\n")
        json.loads(out)


def test_profile_explains_which_cuts_are_left_out(run, document):
    code, out, err = run("profile", "gpt", "--model-arg", "tied=true", "--explain")
    assert (code, err) == (0, "")
    text = out[out.index("cuts are left out, those after") :]
    assert "tokens … norm (" in text
    assert text.count("tokens.weight is used on both sides") == 1
    result = document("profile", "gpt", "--model-arg", "tied=true", "--explain")
    assert result.keys() == {"profile", "refused"}
    assert air.Profile.from_json(json.dumps(result["profile"])).model == "gpt"
    assert all(refusal.keys() == {"name", "reason"} for refusal in result["refused"])
    assert result["refused"][0]["name"] == "tokens"
    total = len(result["profile"]["names"]) + len(result["refused"])
    assert f"{len(result['refused'])} of {total} cuts are left out" in out


def test_profile_says_if_no_cut_is_left_out(run, document):
    words = ("profile", "alexnet32", "--model-arg", "width=0.1")
    assert (
        run(*words, "--explain")[1]
        == run(*words)[1] + "No cut is left out: the model can be cut after every layer\n"
    )
    result = document(*words, "--explain")
    assert result["refused"] == []
    assert result["profile"] == document(*words)


@pytest.mark.parametrize("file", ["out.svg", "deep/out.png"])
def test_profile_saves_a_plot_and_says_where(run, tmp_path, monkeypatch, file):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("profile", "alexnet", "--plot", file, "--json")
    assert (code, err) == (0, f"airsplit: wrote {file}\n")
    assert json.loads(out)["model"] == "alexnet"
    assert (tmp_path / file).stat().st_size > 1000


def test_an_unknown_plot_format_is_rejected_before_the_model_is_built(run, module):
    module("slow_net", "raise RuntimeError('too late')\n")
    code, out, err = run("profile", "slow_net:make", "--input", "8", "--plot", "out.xyz")
    assert (code, out) == (2, "")
    assert "must end in .png, .svg or .pdf" in err


def test_plan_names_everything_that_was_planned(run):
    code, out, err = run("plan", "paper-alexnet")
    assert (code, err) == (0, "")
    title = out.splitlines()[0]
    for part in (
        "alexnet",
        "20 devices",
        "20 MHz",
        "-114 dBm",
        "splits up to 8 (pool2)",
        "batch of 32",
        "iteration",
    ):
        assert part in title
    assert "s for an iteration of 32 samples" in out
    assert "largest mean, " in out
    assert "at most 0.0001 % longer than the best possible plan, in this objective" in out
    assert "any splits and fixed shares within the limits; exact search" in out
    assert "of 62,378,344 parameters" in out


def test_plan_has_a_row_for_each_device_of_a_small_fleet(run):
    rows = [
        line.split()
        for line in run("plan", "paper-alexnet", "--set", "fleet.devices=40")[1].splitlines()
    ]
    assert [row[0] for row in rows if row and row[0].isdigit()] == [str(k) for k in range(40)]


def test_plan_summarizes_a_large_fleet(run):
    _, out, _ = run("plan", "paper-alexnet", "--set", "fleet.devices=41")
    assert all(word in out for word in ("min", "10 %", "median", "90 %", "max", "of the fleet"))
    assert len(out.splitlines()) < 30


def test_plan_warns_if_hardly_anything_is_averaged(run):
    little = "so each device trains nearly a model of its own; a lower plan.max_split averages more"
    words = ["plan", "paper-alexnet-no-limit", "--method", "fixed", "--set", "plan.split=19"]
    assert little in flat(run(*words)[1])
    for other in ("training.algorithm=fedavg", "training.average_fronts_every=5", "plan.split=8"):
        assert little not in flat(run(*words, "--set", other)[1])


def test_plan_names_devices_whose_memory_limits_their_split(run, tmp_path):
    (tmp_path / "fleet.csv").write_text(
        "name,seconds_per_mac,fluctuation,distance_m,memory_bytes\n"
        + "large,1e-9,1e9,120,4e9\n"
        + "".join(f"small{k},2e-10,1e9,300,100e6\n" for k in range(7))
    )
    preset = run("presets", "paper-alexnet")[1]
    without_fleet = (
        preset[: preset.index("[fleet]")] + preset[preset.index("\n\n", preset.index("[fleet]")) :]
    )
    (tmp_path / "my.toml").write_text(without_fleet + '\n[fleet]\nfile = "fleet.csv"\n')
    text = flat(run("plan", tmp_path / "my.toml")[1])
    assert "memory limits the splits of small0 up to relu1, small1 up to relu1" in text
    assert "and 2 more devices" in text
    assert "large up to" not in text
    assert (
        "limits the splits" not in run("plan", tmp_path / "my.toml", "--set", "plan.max_split=1")[1]
    )


def test_plan_shows_the_server_only_if_it_takes_time(run):
    assert "server" not in run("plan", "paper-alexnet")[1]
    assert (
        "server" in run("plan", "paper-alexnet", "--set", "clock.server_seconds_per_mac=1e-12")[1]
    )


def test_output_to_a_pipe_is_plain_and_has_no_trailing_blanks(run):
    for words in (("plan", "paper-alexnet"), ("profile", "vgg16"), ("presets",)):
        out = run(*words)[1]
        assert "\x1b" not in out
        assert all(line == line.rstrip() for line in out.splitlines())


def test_plan_as_json_has_the_attributes_of_plan(document):
    result = document("plan", "paper-alexnet")
    scenario = air.Scenario.load("paper-alexnet")
    plan = air.plan(air.profile("alexnet"), scenario.make_fleet(), **scenario.plan_arguments())
    for key, value in result.items():
        assert np.array_equal(np.asarray(value), np.asarray(getattr(plan, key))), key
    promised = {
        "splits",
        "split_names",
        "shares",
        "compute_s",
        "transmit_s",
        "mean_latency_s",
        "expected_latency_s",
    }
    more = {
        "objective",
        "bound",
        "objective_s",
        "lower_bound_s",
        "gap",
        "averaged_parameters",
        "method",
        "status",
        "iterations",
        "history",
    }
    assert promised | more <= result.keys()


def test_set_changes_any_setting(document):
    result = document(
        "plan", "paper-alexnet", "--set", "fleet.devices=3", "--set", "plan.max_split=pool1"
    )
    assert len(result["splits"]) == 3
    assert max(result["splits"]) <= 4


def test_an_empty_setting_restores_the_default(document):
    free = document("plan", "paper-alexnet-no-limit")
    assert document("plan", "paper-alexnet", "--set", "plan.max_split=") == free


def test_a_method_on_the_command_line_replaces_that_of_the_scenario(document):
    result = document("plan", "paper-alexnet", "--method", "fixed", "--set", "plan.split=pool1")
    assert (result["method"], set(result["splits"])) == ("fixed", {4})


def test_plan_reports_a_quantile_that_is_set(run):
    _, out, _ = run("plan", "paper-alexnet", "--set", "plan.device_quantile=0.9")
    assert "90 % quantile" in out
    assert "largest 0.9 quantile, " in out
    assert "longer than the best possible plan, in this objective" in out


def test_plan_counts_a_built_in_model_with_other_arguments(document):
    result = document("plan", "demo")
    assert len(result["splits"]) == 20
    assert result["averaged_parameters"] < 2_000_000
    colored = document("plan", "demo", "--set", "model.arguments.channels=3")
    assert colored["profile_fingerprint"] != result["profile_fingerprint"]


def test_plan_takes_a_factory_with_arguments(module, document, tmp_path):
    text = (
        "from torch import nn\n\ndef make(size):\n"
        "    return nn.Sequential(nn.Linear(8, size), nn.Linear(size, 2))\n"
    )
    name = module("sized_net", text)
    model = f'[model]\nname = "{name}:make"\ninput_shape = [8]\narguments = {{ size = 4 }}\n'
    (tmp_path / "sized.toml").write_text(model + "[fleet]\ndevices = 2\n")
    assert document("plan", "sized.toml")["split_names"] == ["0", "0"]


def test_plan_takes_a_model_with_token_ids_or_with_several_inputs(module, document, tmp_path):
    text = """
from torch import nn

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(100, 5), nn.Linear(5, 2)

    def forward(self, ids, scale=None):
        words = self.words(ids).mean(1)
        return self.head(words if scale is None else words * scale)
"""
    module("words_net", text)
    fleet = "[fleet]\ndevices = 2\n"
    for inputs in ('input_shape = [7]\ninput_dtype = "int64"', 'inputs = ["7:int64", "5"]'):
        (tmp_path / "words.toml").write_text(
            f'[model]\nname = "words_net:Words"\n{inputs}\n{fleet}'
        )
        assert len(document("plan", "words.toml")["splits"]) == 2


def test_plan_takes_a_built_in_model_of_any_kind(document):
    for name in ("gpt", "resnet20", "vit"):
        words = ("--set", f"model.name={name}", "--set", "fleet.devices=2")
        assert len(document("plan", "paper-alexnet", *words)["splits"]) == 2


def test_comparing_all_methods_has_a_row_for_each(run):
    _, out, _ = run("plan", "paper-alexnet", "--method", "all")
    firsts = [line.split()[0] for line in out.splitlines() if line.strip()]
    assert [word for word in firsts if word in air.METHODS] == list(COMPARED_METHODS)
    assert "Latencies of an iteration of 32 samples" in out


def test_comparing_all_methods_includes_fixed_if_a_split_is_given(document):
    changes = ("--set", "plan.split=4", "--set", "fleet.devices=5")
    result = document("plan", "paper-alexnet", "--method", "all", *changes)
    assert [plan["method"] for plan in result] == [*COMPARED_METHODS, "fixed"]
    best = min(plan["mean_latency_s"] for plan in result)
    assert result[1]["mean_latency_s"] == pytest.approx(best, rel=1e-9)
    assert all(plan["planning_s"] > 0 for plan in result)


def test_a_plan_file_equals_the_printed_json(run, document, tmp_path):
    result = document("plan", "paper-alexnet", "--out", tmp_path / "deep" / "plan.json")
    assert json.loads((tmp_path / "deep" / "plan.json").read_text()) == result
    code, out, _ = run("plan", "paper-alexnet", "--out", tmp_path / "plan.json")
    assert code == 0
    assert "longer than the best possible plan, in this objective" in out
    assert json.loads((tmp_path / "plan.json").read_text()) == result


def test_a_warning_of_the_planner_is_one_line_printed_once(run):
    for words in ((), ("--method", "all")):
        code, out, err = run(
            "plan", "paper-alexnet", "--set", "plan.max_split=20", "--json", *words
        )
        assert code == 0
        json.loads(out)
        assert err.startswith("airsplit: note: max_split 20 lets devices keep every parameter")
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"names": ["a"]}', '{"names": [], "layer_macs": []}']
)
def test_a_broken_profile_file_is_named(mistake, tmp_path, content):
    (tmp_path / "mine.json").write_text(content)
    assert "mine.json" in mistake("profile", tmp_path / "mine.json")


def test_an_input_shape_is_rejected_with_a_profile_file(run, tmp_path):
    (tmp_path / "mine.json").write_text(air.profile("vgg16").to_json())
    assert run("profile", tmp_path / "mine.json", "--input", "3x32x32")[0] == 2


def test_a_factory_that_fails_is_one_line(mistake, module):
    module(
        "bad_net", "import sys\n\ndef stop():\n    sys.exit(3)\n\ndef word():\n    return 'net'\n"
    )
    for name, message in (
        ("stop", "failed: SystemExit: 3"),
        ("word", "must return a torch.nn.Module, got 'net'"),
    ):
        assert message in mistake("profile", f"bad_net:{name}", "--input", "8")


def test_a_code_path_with_a_dot_for_its_colon_gets_a_hint(run):
    code, _, err = run("plan", "demo", "--method", "mine.best")
    assert (code, err.count("\n")) == (2, 1)
    assert "--method 'mine.best' is not known; write code as mine:best. Known: all," in err


def test_a_fleet_file_is_not_a_scenario(run, tmp_path):
    (tmp_path / "f.csv").write_text("seconds_per_mac,fluctuation,distance_m\n1e-9,2e9,100\n")
    code, _, err = run("plan", tmp_path / "f.csv")
    assert (code, err.count("\n")) == (2, 1)
    assert 'must be TOML, got a CSV; a scenario names it under [fleet]: file = "f.csv"' in err


def test_a_module_that_cannot_be_imported_is_one_line(run, module):
    module("broken_net", "def make(:\n")
    code, out, err = run("profile", "broken_net:make", "--input", "8")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "cannot be imported: SyntaxError" in err


def test_a_file_that_cannot_be_written_leaves_nothing_behind(run, tmp_path):
    (tmp_path / "file").write_text("here first")
    for target in (tmp_path / "file" / "plan.json", tmp_path):
        code, out, err = run("plan", "paper-alexnet", "--json", "--out", target)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "cannot be written" in err
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    assert list(tmp_path.parent.glob(f".{tmp_path.name}.*")) == []


def test_a_mistake_leaves_an_older_plan_file_as_it_was(run, tmp_path):
    (tmp_path / "plan.json").write_text("older")
    file = tmp_path / "plan.json"
    assert run("plan", "paper-alexnet", "--set", "plan.max_split=99", "--out", file)[0] == 2
    assert file.read_text() == "older"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(("preset", "devices"), [("paper-alexnet", 20), ("demo", 20)])
def test_planning_a_shipped_model_imports_neither_torch_nor_matplotlib(preset, devices):
    code = (
        "import sys; from airsplit.cli.app import main\n"
        f"code = main(['plan', '{preset}', '--json'])\n"
        "heavy = {'torch', 'matplotlib', 'grpc', 'scipy', 'rich'} & set(sys.modules)\n"
        "print(*sorted(heavy), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, "")
    assert len(json.loads(done.stdout)["splits"]) == devices


def test_residual_and_token_models_are_planned_with_their_backward_pass(document, tmp_path):
    clock = '[clock]\ndownlink = true\nbackward_macs_ratio = "counted"\n'
    deep = (
        '[model]\nname = "airsplit.models.zoo.resnet:resnet20"\ninput_shape = [3, 32, 32]\n'
        "arguments = { layers = 50 }\n"
    )
    tokens = '[model]\nname = "gpt"\narguments = { layers = 2 }\n'
    for number, model in enumerate((deep, tokens)):
        (tmp_path / f"{number}.toml").write_text(model + clock)
        file = tmp_path / f"{number}.toml"
        plan = document("plan", file)
        changes = ("--set", "clock.downlink=false", "--set", "clock.backward_macs_ratio=0.0")
        plain = document("plan", file, *changes)
        assert plan["mean_latency_s"] > plain["mean_latency_s"] > 0
        assert len(plan["split_names"]) == 20


MISTAKES = [
    (["presets", "dem"], "preset 'dem' is not known; did you mean 'demo'"),
    (["plan"], "Missing argument 'SCENARIO'"),
    (["plan", "demo", "--jsn"], "No such option: --jsn"),
    (["plan", "paper-alexnt"], "did you mean 'paper-alexnet'?"),
    (["plan", "none.toml"], "scenario file 'none.toml' does not exist"),
    (
        ["plan", "paper-alexnet", "--method", "exat"],
        "--method 'exat' is not known; did you mean 'exact'?",
    ),
    (["plan", "paper-alexnet", "--method", "fixed"], "plan.split must be given"),
    (
        ["plan", "paper-alexnet", "--method", "paper", "--set", "plan.method=exact"],
        "exclude each other",
    ),
    (
        ["plan", "paper-alexnet", "--method", "paper", "--set", "plan.split=4"],
        "plan.split belongs to",
    ),
    (["plan", "paper-alexnet", "--set", "fleet.devices"], "--set must be key=value"),
    (["plan", "paper-alexnet", "--set", "=3"], "--set must be key=value"),
    (["plan", "paper-alexnet", "--set", "fleet.device=3"], "did you mean fleet.devices?"),
    (
        ["plan", "paper-alexnet", "--set", "fleet.devices=2O"],
        "fleet.devices must be a whole number, got '2O'",
    ),
    (
        ["plan", "paper-alexnet", "--set", "plan.max_split=21"],
        "max_split must be a whole number from 1 to 20, got 21",
    ),
    (
        ["plan", "paper-alexnet", "--set", "plan.max_split=pool"],
        "max_split 'pool' is not known; did you mean 'pool",
    ),
    (["plan", "paper-alexnet", "--set", "plan.max_split=[1,2]"], "2 entries for 20 devices"),
    (
        ["plan", "paper-alexnet", "--set", "model.name=alexnt"],
        "model 'alexnt' is not known; did you mean 'alexnet'",
    ),
    (["plan", "paper-alexnet", "--set", "fleet.file=none.csv"], "none.csv' does not exist"),
    (
        ["plan", "paper-alexnet", "--set", "cell.resource_blocks=3"],
        "cell.resource_blocks must be at least",
    ),
    (
        ["plan", "paper-alexnet", "--method", "all", "--set", "cell.resource_blocks=3"],
        "must be at least the number",
    ),
    (
        ["plan", "paper-alexnet", "--method", "all", "--set", "plan.split=9"],
        "split of device 0 must be from 1 to 8",
    ),
    (
        ["plan", "demo", "--set", "model.arguments.with=2"],
        "alexnet32 argument 'with' is not known; did you mean 'width'",
    ),
    (["profile", "alexnt"], "model 'alexnt' is not known; did you mean 'alexnet'"),
    (["profile", "vgg16", "--input", "3x-2"], "--input must be the sizes of one sample"),
    (["profile", "vgg16", "--input", "3x32"], "channels, height and width"),
    (
        ["profile", "vgg16", "--input", "3x32x32", "--input", "8"],
        "vgg16 takes one input, e.g. 3x224x224, got 2; give one",
    ),
    (
        ["profile", "gpt", "--input", "8:int46"],
        "--input type 'int46' is not known; did you mean 'int64'",
    ),
    (
        ["profile", "gpt", "--model-arg", "layers"],
        "--model-arg must be key=value, e.g. layers=12, got 'layers'",
    ),
    (
        ["profile", "gpt", "--model-arg", "layer=3"],
        "gpt argument 'layer' is not known; did you mean 'layers'",
    ),
    (["profile", "gpt", "--model-arg", "layers=nan"], "--model-arg layers must be a finite number"),
    (
        ["profile", "gpt", "--model-arg", "layers=2020-01-01"],
        "--model-arg layers must be a finite number, text",
    ),
    (
        ["profile", "gpt", "--model-arg", "input_shape=[3]"],
        "gpt argument input_shape repeats the input of the model; give that",
    ),
    (
        ["profile", "none.json", "--model-arg", "layers=3"],
        "--model-arg cannot be combined with a profile file, got 'none.json'",
    ),
    (["profile", "none.json", "--explain"], "--explain cannot be combined with a profile file"),
    (["profile", "alexnet", "--plot", "alexnet"], "must end in .png, .svg or .pdf"),
    (["profile", "none.json"], "profile file 'none.json' does not exist"),
    (["profile", "no_such_package.nets:make", "--input", "8"], "No module named 'no_such_package'"),
    (["profile", "json:dump", "--input", "8"], "model 'json:dump' failed: TypeError"),
    (["profile", "json:lods", "--input", "8"], "json has no 'lods'; did you mean 'loads'?"),
    (["profile", "json:__name__", "--input", "8"], "must be a function or class"),
    (["profile", "json:", "--input", "8"], "package.module:factory"),
    (
        ["profile", "torch.nn:ReLU"],
        "model 'torch.nn:ReLU' must be given its input, the sizes of one sample; give --input",
    ),
]


@pytest.mark.parametrize(
    ("words", "message"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES]
)
def test_a_mistake_is_one_line_and_writes_nothing(mistake, words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in mistake(*words)
    assert list(tmp_path.iterdir()) == []
