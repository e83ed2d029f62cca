"""The public names of `import airsplit`, and the packages that it must not load."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import airsplit

HEAVY = ["torch", "grpc", "scipy", "matplotlib", "pydantic", "rich", "typer", "pandas"]


def run_in_new_interpreter(code: str) -> str:
    location = str(Path(airsplit.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": location}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    return result.stdout.strip()


def test_all_is_sorted_constants_first_then_classes_then_functions() -> None:
    # The order of ruff's rule RUF022.
    def order(name: str) -> tuple[int, str]:
        if name.isupper():
            return 0, name
        if name[0].isupper():
            return 1, name
        return 2, name

    assert airsplit.__all__ == sorted(airsplit.__all__, key=order)
    assert len(set(airsplit.__all__)) == len(airsplit.__all__)


@pytest.mark.parametrize("name", airsplit.__all__)
def test_every_public_name_resolves_and_has_a_docstring(name: str) -> None:
    thing = getattr(airsplit, name)
    assert thing is not None
    if inspect.isclass(thing) or inspect.isfunction(thing):
        assert thing.__doc__
        assert thing.__module__.startswith("airsplit")


def test_promised_names_are_public() -> None:
    promised = {
        "AirsplitError",
        "Cell",
        "Clock",
        "Fleet",
        "Plan",
        "Profile",
        "Scenario",
        "paper_convergence_expression",
        "plan",
        "profile",
        "split_limit",
        "stopping_table",
    }
    assert promised <= set(airsplit.__all__)
    assert set(dir(airsplit)) >= promised


def test_no_room_shares_its_name_with_a_public_name() -> None:
    # Importing the room would replace the name in the package.
    rooms = {path.name for path in Path(airsplit.__file__).parent.iterdir() if path.is_dir()}
    assert "planning" in rooms
    assert not rooms & set(airsplit.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'airsplit' has no attribute 'plam'"):
        airsplit.plam  # noqa: B018


def test_importing_loads_nothing_heavy() -> None:
    code = f"import sys, airsplit; print([name for name in {HEAVY} if name in sys.modules])"
    assert run_in_new_interpreter(code) == "[]"


def test_planning_loads_neither_torch_nor_a_plotting_library() -> None:
    code = (
        "import sys, airsplit as air\n"
        "from airsplit.system.profile import load_shipped_profile\n"
        "fleet = air.Fleet.sample(3, seed=0)\n"
        "for method in ('exact', 'paper', 'expected-max'):\n"
        "    profile = load_shipped_profile('alexnet')\n"
        "    air.plan(profile, fleet, method=method, max_split=8).to_dict()\n"
        "heavy = ('torch', 'grpc', 'matplotlib', 'pydantic', 'rich', 'scipy')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    assert run_in_new_interpreter(code) == "[]"


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
