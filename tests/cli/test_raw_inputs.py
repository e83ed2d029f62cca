"""Inputs that cross a cut unchanged, as profile, plan and run report them."""

import json
import sys

import pytest

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.side = nn.Linear(6, 5), nn.Linear(5, 5), nn.Linear(4, 5)
        self.three, self.head = nn.Linear(10, 4), nn.Linear(4, 3)

    def forward(self, image, context, mask):
        hidden = torch.cat([self.two(self.one(image)), self.side(context)], 1)
        return self.head(torch.where(mask, self.three(hidden), 0.0))

def data():
    def some(count):
        mask = torch.ones(count, 4, dtype=torch.bool)
        inputs = torch.randn(count, 6), torch.randn(count, 4), mask
        return inputs, torch.arange(count) % 3
    return some(24), some(6)
"""

SCENARIO = """
[model]
name = "sending_net:Net"
inputs = ["6", "4", "4:bool"]

[fleet]
devices = 2

[training]
dataset = "sending_net:data"
rounds = 1
iterations_per_round = 1
batch_size = 4
"""

INPUTS = ("--input", "6", "--input", "4", "--input", "4:bool")


@pytest.fixture
def scenario(tmp_path, monkeypatch):
    (tmp_path / "sending_net.py").write_text(NET)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "sending_net", raising=False)
    file = tmp_path / "sending.toml"
    file.write_text(SCENARIO)
    return file


def test_a_profile_shows_and_explains_sent_inputs(scenario, run, document):
    code, out, err = run("profile", "sending_net:Net", *INPUTS, "--explain")
    assert (code, err) == (0, "")
    assert "raw inputs" in out
    assert "No cut is left out" not in out
    assert (
        "2 of 6 splits would send a raw input unchanged, so plans leave them out by default, "
        "those after\n  one, two   sends context" in out
    )
    assert "mask crosses some cuts unchanged, which plans allow" in out
    result = document("profile", "sending_net:Net", *INPUTS)
    assert result["input_names"] == ["image", "context", "mask"]
    assert result["raw_inputs"] == [["context"], ["context"], [], [], [], []]
    assert result["other_inputs"] == [["mask"], ["mask"], ["mask"], ["mask"], [], []]


def test_a_plan_keeps_raw_inputs_on_the_devices(scenario, run, document):
    code, out, _ = run("plan", scenario)
    assert code == 0
    assert (
        "2 of 6 splits are left out: they would send the input 'context' of the model to the "
        "server unchanged" in out
    )
    plan = document("plan", scenario)
    assert min(plan["splits"]) > 2
    assert plan["raw_inputs"] == []
    assert plan["bound"].startswith("any splits and fixed shares within the limits")


def test_a_plan_may_send_raw_inputs_that_are_allowed(scenario, run, document):
    allowed = ("--set", 'model.raw_inputs=["context"]', "--set", "plan.max_split=2")
    plan = document("plan", scenario, *allowed)
    assert (plan["raw_inputs"], plan["other_inputs"]) == (["context"], ["mask"])
    assert plan["bound"].startswith("any splits and fixed shares")
    text = " ".join(run("plan", scenario, *allowed)[1].split())
    assert (
        "devices send the input 'context' of the model to the server unchanged, "
        "as model.raw_inputs allows" in text
    )
    assert (
        "devices send the input 'mask' of the model to the server unchanged: "
        "neither floating-point numbers" in text
    )
    assert "left out" not in text


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            ["plan.max_split=2"],
            "every split within the limits, 1 to 2, would send the input 'context'",
        ),
        (
            ["plan.method=fixed", "plan.split=two"],
            "2 (two), would send the input 'context' of the model to the server unchanged",
        ),
        (
            ['model.raw_inputs=["contxt"]'],
            "raw_inputs 'contxt' is not known; did you mean 'context'?",
        ),
        (
            ["model.raw_inputs=context"],
            'model.raw_inputs must be "refuse", "allow" or a list of the inputs',
        ),
    ],
)
def test_an_impossible_plan_is_one_line(scenario, run, changes, text):
    code, out, err = run(
        "plan", scenario, *(word for change in changes for word in ("--set", change))
    )
    assert (code, out) == (2, "")
    assert text in err
    assert err.count("\n") == 1


def test_a_run_notes_the_inputs_that_are_sent(scenario, run, tmp_path):
    notes = {}
    for name, changes in (
        ("refused", []),
        ("allowed", ["--set", "model.raw_inputs=allow", "--set", "plan.max_split=2"]),
    ):
        code, _, notes[name] = run("run", scenario, "--out", tmp_path / name, *changes)
        assert code == 0
        plan = json.loads((tmp_path / name / "plan.json").read_text())
        assert plan["raw_inputs"] == (["context"] if name == "allowed" else [])
    assert (
        "note: devices send the input 'context' of the model to the server unchanged"
        in notes["allowed"]
    )
    assert "context" not in notes["refused"]
