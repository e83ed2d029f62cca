"""What the words on the command line stand for: models, their inputs and arguments, and settings."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from airsplit.core.errors import FileProblem, InvalidValue, show
from airsplit.core.files import read_text
from airsplit.core.parsing import parse_toml
from airsplit.system.inputs import InputSpec, parse_input_spec
from airsplit.system.profile import Profile

if TYPE_CHECKING:
    from airsplit.models.splits import IllegalSplit
    from airsplit.scenario.scenario import Scenario


def setting(text: str, option: str = "--set", example: str = "fleet.devices=5") -> tuple[str, Any]:
    """A key and its value: TOML where it is TOML, else text; nothing stands for the default.

    >>> setting("plan.split=[1, 2]"), setting("plan.method=equal"), setting("plan.max_split=")
    (('plan.split', [1, 2]), ('plan.method', 'equal'), ('plan.max_split', None))
    """
    key, equals, value = (part.strip() for part in text.partition("="))
    if not key or not equals:
        raise InvalidValue(f"{option} must be key=value, e.g. {example}, got {show(text)}")
    if not value:
        return key, None
    try:
        table = parse_toml(f"value = {value}")
    except FileProblem:
        return key, value
    return key, table["value"] if len(table) == 1 else value


def scenario(
    name: str, method: str | None, settings: list[str], *, trust_run: bool = False
) -> Scenario:
    """The scenario of a command: a preset or file, with what the command line changes."""
    changes = dict(setting(text) for text in settings)
    if method is not None and "plan.method" in changes:
        raise InvalidValue(
            f"--method {method} and --set plan.method={changes['plan.method']} exclude each other; leave one out"
        )
    if method == "all" and changes.get("plan.split") is not None:
        changes["plan.method"] = "fixed"
    elif method not in (None, "all"):
        changes["plan.method"] = method
    return _changed(name, changes, {}, None, trust_run)


def resumable(
    name: str, settings: list[str], before: Mapping[str, Any], folder: Path, *, trust_run: bool
) -> tuple[Scenario, dict[str, Any]]:
    """The scenario of a command that may go on with a run, and what the command line has changed in it.

    before      what it had changed when the run was begun, or last taken up: that holds until it is said anew
    folder      of the run, where `before` was written down
    trust_run   use code by path that only the run folder names
    """
    given = dict(setting(text) for text in settings)
    return _changed(name, given, before, folder, trust_run), dict(before) | given


def _changed(
    name: str,
    given: Mapping[str, Any],
    before: Mapping[str, Any],
    folder: Path | None,
    trust_run: bool,
) -> Scenario:
    """Load a scenario and change it; code by path must be named on the command line or in a scenario that is no run's own."""
    from airsplit.core.plugins import find_code_paths
    from airsplit.scenario.scenario import Scenario, require_named_code, run_folder_of

    loaded = Scenario.load(name, trust_run=True)
    changes = dict(before) | dict(given)
    chosen = loaded.replace(**changes) if changes else loaded
    recorded_in = run_folder_of(name)
    run_folder = recorded_in or folder
    if run_folder is None or trust_run:
        return chosen
    named = set(find_code_paths(given).values())
    if recorded_in is None:
        named |= set(loaded.code_paths().values())
    require_named_code(chosen, named, run_folder)
    return chosen


def what_is_printed_as_notes() -> redirect_stdout[TextIO]:
    """A context in which what a factory prints goes to stderr: it is no result."""
    return redirect_stdout(sys.stderr)


@dataclass(frozen=True)
class Model:
    """What a person names: a built-in model, a factory, or a file that `to_json` wrote; with its inputs and arguments."""

    name: str
    inputs: tuple[InputSpec, ...] | None
    arguments: dict[str, Any]

    @property
    def is_file(self) -> bool:
        return self.name.endswith(".json") and ":" not in self.name

    def profile(self) -> Profile:
        """What it costs at each split."""
        from airsplit.models.profiling import get_profile

        if self.is_file:
            self._require_alone(
                "--input" if self.inputs else "--model-arg" if self.arguments else ""
            )
            return _read_profile(self.name)
        with what_is_printed_as_notes():
            return get_profile(self.name, self.inputs, self.arguments)

    def explain(self) -> tuple[Profile, list[IllegalSplit]]:
        """The same, and after which layers it cannot be cut."""
        from airsplit.models.profiling import explain_model

        if self.is_file:
            self._require_alone("--explain")
        with what_is_printed_as_notes():
            return explain_model(self.name, self.inputs, self.arguments)

    def _require_alone(self, option: str) -> None:
        if option:
            raise InvalidValue(
                f"{option} does not go with a profile file, got it with {self.name!r}; leave it out, or name the model"
            )


def model(name: str, inputs: Sequence[str], arguments: Sequence[str]) -> Model:
    """
    >>> model("gpt", ["32"], ["layers=12"])
    Model(name='gpt', inputs=(InputSpec(shape=(32,), dtype=''),), arguments={'layers': 12})
    """
    return Model(
        name,
        tuple(parse_input_spec(text, "--input") for text in inputs) or None,
        keyword_arguments("--model-arg", arguments),
    )


def keyword_arguments(option: str, texts: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of a factory or function, given as key=value."""
    if not texts:
        return {}
    from airsplit.scenario.settings import require_plain

    given = dict(setting(text, option, "layers=12") for text in texts)
    for key, value in given.items():
        if value is not None:
            require_plain(f"{option} {key}", value)
    return {key: value for key, value in given.items() if value is not None}


def _read_profile(path: str) -> Profile:
    try:
        return Profile.from_json(read_text(path, what="profile file"))
    except (FileProblem, InvalidValue) as error:
        named = str(error) if path in str(error) else f"profile file {path!r}: {error}"
        raise type(error)(named) from None
