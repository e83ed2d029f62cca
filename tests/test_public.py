"""What `import airsplit` offers, and what it does not load."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import airsplit

HEAVY = ["torch", "grpc", "scipy", "matplotlib", "pydantic", "rich", "typer", "pandas"]


def in_a_fresh_interpreter(code: str) -> str:
    location = str(Path(airsplit.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": location}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout.strip()


def test_all_is_sorted_constants_first_then_classes_then_functions() -> None:
    # ruff's order (RUF022): SCREAMING_CASE, then CamelCase, then the rest
    def order(name: str) -> tuple[int, str]:
        kind = 0 if name.isupper() else 1 if name[0].isupper() else 2
        return kind, name

    assert airsplit.__all__ == sorted(airsplit.__all__, key=order)
    assert len(set(airsplit.__all__)) == len(airsplit.__all__)


@pytest.mark.parametrize("name", airsplit.__all__)
def test_every_public_name_resolves_and_says_what_it_is(name: str) -> None:
    thing = getattr(airsplit, name)
    assert thing is not None
    if inspect.isclass(thing) or inspect.isfunction(thing):
        assert thing.__doc__
        assert thing.__module__.startswith("airsplit")


def test_the_contract_s_names_are_public() -> None:
    promised = {"profile", "Profile", "Cell", "Fleet", "Clock", "plan", "Plan", "stopping_table", "split_limit",
                "paper_convergence_expression", "Scenario", "AirsplitError"}  # fmt: skip
    assert promised <= set(airsplit.__all__)
    assert set(dir(airsplit)) >= promised


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'airsplit' has no attribute 'plam'"):
        airsplit.plam  # noqa: B018


def test_importing_loads_nothing_heavy() -> None:
    code = f"import sys, airsplit; print([m for m in {HEAVY} if m in sys.modules])"
    assert in_a_fresh_interpreter(code) == "[]"


def test_planning_loads_neither_torch_nor_a_plotting_library() -> None:
    code = (
        "import sys, airsplit as air\n"
        "from airsplit.system.profile import shipped_profile\n"
        "fleet = air.Fleet.sample(3, seed=0)\n"
        "for method in ('exact', 'paper', 'expected-max'):\n"
        "    air.plan(shipped_profile('alexnet'), fleet, method=method, max_split=8).to_dict()\n"
        "print([m for m in ('torch', 'grpc', 'matplotlib', 'pydantic', 'rich', 'scipy') if m in sys.modules])"
    )
    assert in_a_fresh_interpreter(code) == "[]"


def test_the_errors_form_one_tree() -> None:
    for error in (
        airsplit.InvalidValue,
        airsplit.UnknownName,
        airsplit.FileProblem,
        airsplit.Infeasible,
    ):
        assert issubclass(error, airsplit.AirsplitError)
    assert issubclass(airsplit.InvalidValue, ValueError)
    assert issubclass(airsplit.UnknownName, airsplit.InvalidValue)


def test_the_version_is_that_of_the_package() -> None:
    assert airsplit.__version__.count(".") == 2
    assert all(part.isdigit() for part in airsplit.__version__.split("."))
