"""Options that several commands share, and what the words of a command line stand for."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from airsplit.core.errors import FileProblem, InvalidValue, show
from airsplit.core.files import read_text
from airsplit.core.parsing import parse_toml
from airsplit.scenario.run_files import SCENARIO_FILE, run_folder_of
from airsplit.system.inputs import InputSpec, parse_input_spec
from airsplit.system.profile import Profile

# The settings are pydantic models that take a quarter of a second to import, which `--help` must
# not wait for: whatever needs them is imported where it is used.
if TYPE_CHECKING:
    from airsplit.models.splits import IllegalSplit
    from airsplit.scenario.scenario import Scenario

# Default folder of all run folders, for commands that write runs and for those that read them.
RUNS = Path("runs")

# Arguments and options that several commands have.
ScenarioName = Annotated[
    str, typer.Argument(metavar="SCENARIO", help="A TOML file, or the name of a preset.")
]
Set = Annotated[
    list[str] | None,
    typer.Option(help="Change a setting, e.g. fleet.devices=5; repeatable.", metavar="KEY=VALUE"),
]
TrustRun = Annotated[
    bool, typer.Option("--trust-run", help="Use code that only a run folder names.")
]
Out = Annotated[
    Path | None, typer.Option(help="Run folder (default: a new runs/NAME).", metavar="DIR")
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the last run, or start one.")]
Plain = Annotated[bool, typer.Option("--plain", help="Disable all fast paths.")]
DataFolder = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the data sets (default: $AIRSPLIT_DATA, else the user's cache).",
        metavar="DIR",
    ),
]


def _check_plot_format(file: Path | None) -> Path | None:
    """Reject file names without an image suffix, before anything slow."""
    if file is not None:
        from airsplit.plots.style import get_picture_format

        get_picture_format(file)
    return file


Plot = Annotated[
    Path | None,
    typer.Option(
        help="Save a plot as .png, .svg or .pdf.", metavar="FILE", callback=_check_plot_format
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
EventsAsJson = Annotated[
    bool, typer.Option("--json", help="Print each event as a line of JSON on stdout.")
]

# Options of the networked system, between TLS and plain text.
Address = Annotated[str, typer.Argument(metavar="HOST:PORT", help="Address of the server.")]
Identity = Annotated[
    Path | None, typer.Option(help="Folder with certificate, key and authority.", metavar="DIR")
]
Certificate = Annotated[
    Path | None, typer.Option(help="Certificate; requires --key and --authority.", metavar="PEM")
]
Key = Annotated[Path | None, typer.Option(help="Private key of --certificate.", metavar="PEM")]
Authority = Annotated[
    Path | None, typer.Option(help="Authority that signed the peer's certificate.", metavar="PEM")
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Allow plain text beyond this machine.")]


def parse_setting(
    text: str, option: str = "--set", example: str = "fleet.devices=5"
) -> tuple[str, Any]:
    """Return a key and its value: TOML if it parses, text otherwise, None if empty.

    >>> parse_setting("plan.split=[1, 2]"), parse_setting("plan.method=equal")
    (('plan.split', [1, 2]), ('plan.method', 'equal'))
    >>> parse_setting("plan.max_split=")
    ('plan.max_split', None)
    """
    key, equals, value = (part.strip() for part in text.partition("="))
    if not key or not equals:
        raise InvalidValue(f"{option} must be key=value, e.g. {example}, got {show(text)}")
    if not value:
        return key, None
    # Text needs no quotes, as shells take them away: plan.method=equal.
    try:
        table = parse_toml(f"value = {value}")
    except FileProblem:
        return key, value

    # A value with a line break could be several TOML lines; then it is text.
    if len(table) > 1:
        return key, value
    return key, table["value"]


def load_scenario(
    name: str, method: str | None, settings: list[str] | None, *, trust_run: bool = False
) -> Scenario:
    """Load a preset or file, and apply the changes of the command line."""
    changes = dict(parse_setting(text) for text in settings or [])
    if method is not None and "plan.method" in changes:
        raise InvalidValue(
            f"--method {method} and --set plan.method={changes['plan.method']} exclude each "
            "other; leave one out"
        )
    if method == "all" and changes.get("plan.split") is not None:
        # A split is a setting of "fixed" alone, which is one of the methods to compare.
        changes["plan.method"] = "fixed"
    elif method not in (None, "all"):
        changes["plan.method"] = method
    return _apply_changes(name, changes, {}, None, trust_run)


def load_resumable_scenario(
    name: str,
    settings: list[str] | None,
    earlier: Mapping[str, Any],
    folder: Path,
    *,
    trust_run: bool,
) -> tuple[Scenario, dict[str, Any]]:
    """Load the scenario of a run that may be resumed, and all changes made to it so far.

    Args:
        earlier: Changes of earlier commands on this run; they hold until they are overridden.
        folder: Folder of the run, which recorded `earlier`.
        trust_run: Whether to use code by path that only the run folder names.
    """
    changes = dict(parse_setting(text) for text in settings or [])
    chosen = _apply_changes(name, changes, earlier, folder, trust_run)
    return chosen, dict(earlier) | changes


def _apply_changes(
    name: str,
    changes: Mapping[str, Any],
    earlier: Mapping[str, Any],
    folder: Path | None,
    trust_run: bool,
) -> Scenario:
    """Load and change a scenario.

    A run folder may come from somebody else, so code by path must be named on the command line
    or in a scenario outside of any run folder.
    """
    from airsplit.core.plugins import find_code_paths
    from airsplit.scenario.scenario import Scenario, require_named_code

    loaded = Scenario.load(name, trust_run=True)
    # Later changes override earlier ones.
    all_changes = dict(earlier) | dict(changes)
    chosen = loaded.replace(**all_changes) if all_changes else loaded

    recorded_in = run_folder_of(name)
    run_folder = recorded_in or folder
    if run_folder is None or trust_run:
        return chosen
    # Earlier changes come from the run folder, so they name no code that may be used.
    named = set(find_code_paths(changes).values())
    if recorded_in is None:
        named |= set(loaded.code_paths().values())
    require_named_code(chosen, named, run_folder)
    return chosen


def choose_run_folder(scenario: str, *, resume: bool) -> Path:
    """Return runs/NAME, runs/NAME-2 …: the first without a run or, to resume, the last with one."""
    from airsplit.runs.folder import RunFolder

    file = Path(scenario)
    # A run's own scenario.toml goes by the name of the run.
    name = file.absolute().parent.name if file.name == SCENARIO_FILE else file.stem

    # A folder without a finished round is left from a run that failed early: use it again.
    last = None
    for number in count(1):
        folder = RUNS / (name if number == 1 else f"{name}-{number}")
        if not RunFolder(folder).has_rounds:
            break
        last = folder
    if resume and last is not None:
        return last
    return folder


def redirect_prints() -> redirect_stdout[TextIO]:
    """Send prints of user code to stderr, as stdout is for results."""
    return redirect_stdout(sys.stderr)


@dataclass(frozen=True)
class ModelArgument:
    """A built-in model, a factory, or a profile that `to_json` wrote; with inputs and arguments."""

    name: str
    inputs: tuple[InputSpec, ...] | None
    arguments: dict[str, Any]

    @property
    def is_file(self) -> bool:
        return self.name.endswith(".json") and ":" not in self.name

    def profile(self) -> Profile:
        """Count the model's costs at each split, or read them from the file."""
        from airsplit.models.profiling import get_profile

        if not self.is_file:
            with redirect_prints():
                return get_profile(self.name, self.inputs, self.arguments)
        if self.inputs:
            raise self._not_for_a_file("--input")
        if self.arguments:
            raise self._not_for_a_file("--model-arg")
        try:
            return Profile.from_json(read_text(self.name, what="profile file"))
        except (FileProblem, InvalidValue) as error:
            # A file that is missing is named in the message, one with wrong contents is not.
            message = str(error)
            if self.name not in message:
                message = f"profile file {self.name!r}: {message}"
            raise type(error)(message) from None

    def explain(self) -> tuple[Profile, list[IllegalSplit]]:
        """Return the profile, and the layers after which the model cannot be cut."""
        from airsplit.models.profiling import explain_model

        if self.is_file:
            raise self._not_for_a_file("--explain")
        with redirect_prints():
            return explain_model(self.name, self.inputs, self.arguments)

    def _not_for_a_file(self, option: str) -> InvalidValue:
        return InvalidValue(
            f"{option} cannot be combined with a profile file, got {self.name!r}; "
            "leave it out, or name the model"
        )


def parse_model(name: str, inputs: Sequence[str], arguments: Sequence[str]) -> ModelArgument:
    """Return the model that a command line names.

    >>> parse_model("gpt", ["32"], ["layers=12"]).arguments
    {'layers': 12}
    """
    specs = tuple(parse_input_spec(text, "--input") for text in inputs)
    return ModelArgument(name, specs or None, parse_keyword_arguments("--model-arg", arguments))


def parse_keyword_arguments(option: str, texts: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of a factory or function, from key=value; an empty value drops one."""
    if not texts:
        return {}

    from airsplit.scenario.rules import require_plain

    arguments: dict[str, Any] = {}
    for text in texts:
        key, value = parse_setting(text, option, "layers=12")
        if value is None:
            arguments.pop(key, None)
        else:
            require_plain(f"{option} {key}", value)
            arguments[key] = value
    return arguments
