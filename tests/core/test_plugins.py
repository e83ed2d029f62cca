"""Errors of user code: one line with file and line, and a traceback on request."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import airsplit as air
import airsplit.models.zoo.alexnet
from airsplit.cli.app import main
from airsplit.core.errors import AirsplitError, InvalidValue, UserCodeError
from airsplit.core.plugins import locate_in_user_code, note_place, user_code, wrap_user_code

MODULE = """
import dataclasses

import torch
from torch import nn

from airsplit.training.algorithms.sfl import SFL


def fail():
    raise KeyError("on purpose")  # line 11


def method(problem):
    fail()


def loss(output, labels):
    fail()


def loss_of_one(output):
    return output.sum()  # line 23, never reached


def data():
    fail()


def model():
    fail()


class Net(nn.Module):
    input_spec = "1x32x32"

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(1024, 8), nn.ReLU(), nn.Linear(8, 10))

    def forward(self, image):
        scores = self.layers(image)
        return scores if self.training or scores.is_meta else fail()


def one_round(crew, state, task):
    fail()


ALGORITHM = dataclasses.replace(SFL, round=one_round)


def boundary(splits):
    fail()


BOUNDARY = dataclasses.replace(SFL, boundary=boundary)


def charges(terms):
    fail()


CHARGES = dataclasses.replace(SFL, charges=charges)
"""

SMALL = [
    "--set",
    "fleet.devices=2",
    "--set",
    "training.rounds=1",
    "--set",
    "training.evaluate_samples=20",
]
ALGORITHM = "training.algorithm=failing:"
PLACE = "KeyError: 'on purpose' (failing.py:11)"


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the module into an empty folder, and run commands there."""
    (tmp_path / "failing.py").write_text(MODULE)
    monkeypatch.delitem(sys.modules, "failing", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["plan", "demo", "--method", "failing:method"], "method 'failing:method' failed: "),
        (["profile", "failing:model", "--input", "8"], "model 'failing:model' failed: "),
        (
            ["run", "demo", "--set", "training.loss=failing:loss"],
            "training stopped at device 0, round 1, iteration 1: "
            "training.loss 'failing:loss' failed: ",
        ),
        (
            ["run", "demo", "--set", "training.dataset=failing:data"],
            "training.dataset 'failing:data' failed: ",
        ),
        (
            ["run", "demo", "--set", "model.name=failing:model", "--set", "model.arguments="],
            "model 'failing:model' failed: ",
        ),
        (
            [
                "run",
                "demo",
                "--set",
                "model.name=failing:Net",
                "--set",
                "model.arguments=",
                "--set",
                "plan.max_split=",
            ],
            "evaluation on the test set stopped: the model or the loss failed: ",
        ),
        (
            ["run", "demo", "--set", f"{ALGORITHM}ALGORITHM"],
            "training.algorithm 'failing:ALGORITHM' failed: ",
        ),
        (
            ["run", "demo", "--set", f"{ALGORITHM}BOUNDARY"],
            "training.algorithm 'failing:BOUNDARY' failed: ",
        ),
        (
            ["clock", "demo", "--set", f"{ALGORITHM}CHARGES"],
            "training.algorithm 'failing:CHARGES' failed: ",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_error_of_user_code_is_one_line_with_its_place(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    small = SMALL if words[0] in ("run", "clock") else []
    assert main([*words, *small]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert (
        err.splitlines()[-1] == f"airsplit: {message}{PLACE}; add --traceback to see the traceback"
    )
    assert "Traceback" not in err


def test_a_call_with_wrong_arguments_names_the_place_of_the_function(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "demo", "--set", "training.loss=failing:loss_of_one", *SMALL]) == 2
    assert (
        "training.loss 'failing:loss_of_one' failed: TypeError: loss_of_one() takes 1 positional "
        "argument but 2 were given (failing.py:22)"
    ) in capsys.readouterr().err


@pytest.mark.parametrize("place", [0, 1, 3])
def test_the_traceback_is_shown_on_request(place: int, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "demo", "--method=failing:method"]
    words.insert(place, "--traceback")
    assert main(words) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert any(line.strip().startswith('raise KeyError("on purpose")') for line in lines)
    assert lines[-1] == f"airsplit: method 'failing:method' failed: {PLACE}"


def test_a_mistake_outside_user_code_has_no_traceback_hint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan", "dem"]) == 2
    assert main(["plan", "demo", "--method", "fialing:method"]) == 2
    assert main(["plan"]) == 2
    err = capsys.readouterr().err
    assert "did you mean 'failing'?" in err
    assert "--traceback" not in err


def test_an_unexpected_error_of_the_package_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        sys.modules, "airsplit.cli.scenario_plans", None
    )  # an installation without one of its files
    assert main(["plan", "demo"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "airsplit: unexpected ModuleNotFoundError: import of airsplit.cli.scenario_plans halted"
    )
    assert line.endswith("; please report it as a bug; add --traceback to see the traceback")


def test_the_original_exception_is_chained() -> None:
    with pytest.raises(UserCodeError, match="method 'failing:method' failed") as caught:
        air.plan(air.profile("alexnet"), air.Fleet.sample(2, seed=0), method="failing:method")
    assert isinstance(caught.value.__cause__, KeyError)
    scenario = air.Scenario.load("demo").replace(
        **{"fleet.devices": 2, "training.loss": "failing:loss"}
    )
    with pytest.raises(UserCodeError, match="training stopped at device 0") as caught:
        list(air.simulate(scenario))
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def loss(:\n", r"SyntaxError: invalid syntax \(other\.py:1\)$"),
        (
            "\nimport no_such_package\n",
            r"ModuleNotFoundError: No module named 'no_such_package' \(other\.py:2\)$",
        ),
        ("import sys\nsys.exit('no')\n", r"SystemExit: no \(other\.py:2\)$"),
    ],
)
def test_a_module_that_fails_on_import_is_not_reported_as_missing(
    workplace: Path, text: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workplace / "other.py").write_text(text)
    monkeypatch.delitem(sys.modules, "other", raising=False)
    with pytest.raises(UserCodeError, match=rf"^method 'other:loss' cannot be imported: {message}"):
        air.plan(air.profile("alexnet"), air.Fleet.sample(2, seed=0), method="other:loss")


def fail_in(folder: Path) -> Callable[[], None]:
    """Return a function of a module in this folder that raises in the module's third line."""
    folder.mkdir(parents=True)
    code = "def inner():\n    # so\n    raise ValueError('wrong')\n\ndef outer():\n    inner()\n"
    names: dict[str, Callable[[], None]] = {}
    exec(compile(code, str(folder / "losses.py"), "exec"), names)  # noqa: S102
    return names["outer"]


def test_an_installed_package_of_the_user_is_user_code(tmp_path: Path) -> None:
    folder = tmp_path / "lib" / "site-packages" / "mine"
    with pytest.raises(
        UserCodeError,
        match=r"^the loss failed: ValueError: wrong \(lib/site-packages/mine/losses\.py:3\)$",
    ):
        wrap_user_code(fail_in(folder), "the loss")()


def test_the_line_named_is_the_users_and_not_the_librarys(tmp_path: Path) -> None:
    library = fail_in(tmp_path / "site-packages" / "library")
    with pytest.raises(
        UserCodeError, match=r"^the loss failed: ValueError: wrong \(.*test_plugins\.py:\d+\)$"
    ):
        wrap_user_code(lambda: library(), "the loss")()


def test_a_context_adds_the_step_and_lets_other_errors_pass() -> None:
    with (
        pytest.raises(UserCodeError, match=r"^round 3: the model failed: ValueError: no"),
        user_code("the model", at="round 3"),
    ):
        raise ValueError("no")
    with (
        pytest.raises(UserCodeError, match=r"^round 3: the loss failed: ValueError: no"),
        user_code("the model", at="round 3"),
    ):
        wrap_user_code(_raise, "the loss")()
    with pytest.raises(InvalidValue, match=r"^ours$"), user_code("the model", at="round 3"):
        raise InvalidValue("ours")
    with (
        pytest.raises(LookupError, match=r"^theirs$"),
        user_code("the model", passing=(LookupError,)),
    ):
        raise LookupError("theirs")


def test_a_string_that_user_code_compiles_is_not_a_file() -> None:
    with (
        pytest.raises(
            UserCodeError, match=r"SyntaxError: invalid syntax \(.*test_plugins\.py:\d+\)$"
        ),
        user_code("the model"),
    ):
        compile("1 +* 2", "<string>", "eval")


def test_a_line_of_a_built_in_model_is_not_user_code() -> None:
    replayed = RuntimeError("index -1 is out of bounds")
    note_place(replayed, airsplit.models.zoo.alexnet.__file__, 3)
    assert locate_in_user_code(replayed) == ""
    note_place(replayed, "nets.py", 3)
    assert locate_in_user_code(replayed) == "nets.py:3"


class Speechless(Exception):
    """An exception whose text cannot be read."""

    def __str__(self) -> str:
        raise TypeError("cannot be shown")


def test_an_exception_without_a_text_is_named_by_its_type() -> None:
    with (
        pytest.raises(
            UserCodeError, match=r"^the model failed: Speechless \(.*test_plugins\.py:\d+\)$"
        ),
        user_code("the model"),
    ):
        raise Speechless


def _raise() -> None:
    raise ValueError("no")


def test_a_user_code_error_is_an_invalid_value() -> None:
    assert issubclass(UserCodeError, InvalidValue)
    assert issubclass(UserCodeError, AirsplitError)
