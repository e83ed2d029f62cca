"""The commands.  Each parses, calls the library, renders: results on stdout, progress and notes on stderr."""

from __future__ import annotations

import io
import json
import os
import sys
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airsplit.cli import sources
from airsplit.errors import AirsplitError, Infeasible, require_choice, unknown_name
from airsplit.planning.methods import METHODS

if TYPE_CHECKING:
    from airsplit.cli.plan_tables import Planned
    from airsplit.fleet import Fleet
    from airsplit.profiles import Profile
    from airsplit.scenario import Scenario

USER_MISTAKE, INTERRUPTED, PIPE_CLOSED = 2, 130, 141
COMPARED = ("paper", "exact", "expected-max", "equal", "random")
SCALES = ("smoke", "paper")

app = typer.Typer(name="airsplit", add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def _one_of(names: Iterable[str]) -> str:
    return ", ".join(names)


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


def _version(wanted: bool) -> None:
    if wanted:
        from airsplit import __version__

        print(f"airsplit {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Where to cut a neural network for each of many wireless devices, and how to share the radio.

    \b
    Start here:
      airsplit presets                   the scenarios that come with airsplit
      airsplit plan paper-alexnet        splits, shares, latencies, and a bound
      airsplit profile alexnet           what each layer computes and sends

    \b
    Your own scenario:
      airsplit presets demo > my.toml    edit it, then
      airsplit plan my.toml
    """
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def profile(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A built-in name, package.module:factory, or a JSON profile.")
    ],
    input: Annotated[str | None, typer.Option(help="The shape of one sample, e.g. 3x224x224.", metavar="SHAPE")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a model costs at every split.

    \b
    Examples:
      airsplit profile alexnet
      airsplit profile vgg16 --input 3x32x32
      airsplit profile mypackage.nets:make --input 3x32x32
      airsplit profile alexnet --json > alexnet.json
    """
    found = sources.profile_of(model, None if input is None else sources.shape(input))
    if as_json:
        print(found.to_json())
        return
    from airsplit.cli.render import profile_table

    _show(*profile_table(found))


@app.command()
def plan(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="A TOML file or the name of a preset.")],
    method: Annotated[
        str | None, typer.Option(help=f"{_one_of(METHODS)}; or all, to compare them.", metavar="METHOD")
    ] = None,
    set: Annotated[
        list[str] | None, typer.Option(help="Change a setting; repeat for more.", metavar="KEY=VALUE")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Also write the plan to this file, as JSON.", metavar="FILE")] = None,
    as_json: AsJson = False,
) -> None:
    """Choose every device's split and share of the band.

    Prints the latencies, and a bound: how much faster any plan could be.

    \b
    Examples:
      airsplit plan paper-alexnet
      airsplit plan paper-alexnet --method all
      airsplit plan paper-alexnet --method fixed --set plan.split=pool1
      airsplit plan my.toml --set fleet.devices=100 --out plan.json
      airsplit plan my.toml --set plan.max_split=     nothing: the default
    """
    if method is not None:
        require_choice("--method", method, (*METHODS, "all"))
    chosen = sources.scenario(scenario, method, set or [])
    planned = _planned(chosen, compare=method == "all")
    document = (
        [p.plan.to_dict() | {"planning_s": p.planning_s} for p in planned]
        if method == "all"
        else planned[0].plan.to_dict()
    )
    if out is not None:
        from airsplit.files import write_text

        write_text(out, _json(document) + "\n")
    if as_json:
        print(_json(document))
        return
    from airsplit.cli.plan_tables import comparison, plan_report

    _show(*(comparison(planned) if method == "all" else plan_report(planned[0])))


def _planned(scenario: Scenario, *, compare: bool) -> list[Planned]:
    """The scenario's plan, or to compare, one for each method that can plan it."""
    found, fleet = sources.profile_of_settings(scenario.model), scenario.make_fleet()
    if not compare:
        return [_plan_with(scenario.plan.method, scenario, found, fleet)]
    planned = []
    for method in (*COMPARED, *(["fixed"] if scenario.plan.split is not None else [])):
        try:
            planned.append(_plan_with(method, scenario, found, fleet))
        except Infeasible as error:
            _note(f"{method} is left out: {error}")
    if not planned:
        raise Infeasible("no method can plan this scenario; see the notes above")
    return planned


def _plan_with(method: str, scenario: Scenario, profile: Profile, fleet: Fleet) -> Planned:
    from airsplit.cli.plan_tables import Planned
    from airsplit.planning.methods import plan

    start = time.perf_counter()
    made = plan(profile, fleet, **scenario.plan_arguments(method))
    return Planned(scenario, profile, fleet, made, time.perf_counter() - start)


@app.command()
def presets(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Print this one, as TOML.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the scenarios that come with airsplit, or print one as TOML.

    \b
    Examples:
      airsplit presets
      airsplit presets demo > my.toml
    """
    from airsplit.presets import describe, preset, preset_names

    descriptions = {each: describe(each) for each in ([name] if name else preset_names())}
    if name is None and as_json:
        print(_json([{"name": each, "description": text} for each, text in descriptions.items()]))
    elif name is None:
        from airsplit.cli.render import preset_table

        _show(preset_table(descriptions))
    elif as_json:
        print(_json(sources.scenario(name, None, []).model_dump()))
    else:
        print(preset(name), end="")


@app.command()
def figures(
    numbers: Annotated[
        list[int] | None, typer.Argument(metavar="NUMBERS", help="Figures of the paper; none: all.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder for the figures and claims.json.", metavar="DIR")] = Path(
        "figures"
    ),
    scale: Annotated[str, typer.Option(help="smoke: quick; paper: as in the paper.", metavar="SCALE")] = "smoke",
    as_json: AsJson = False,
) -> None:
    """Draw the paper's figures and check its claims.

    \b
    Examples:
      airsplit figures
      airsplit figures 3 4 11 --out out/figures
      airsplit figures --scale paper
    """
    require_choice("--scale", scale, SCALES)
    from airsplit.figures import FIGURES, draw

    for number in numbers or []:
        if number not in FIGURES:
            raise unknown_name("figure", str(number), [str(known) for known in FIGURES])
    claims = draw(numbers or None, out, scale, _note)
    if as_json:
        print(_json([asdict(claim) for claim in claims]))
        return
    from airsplit.cli.render import claims_table

    _show(claims_table(claims))


def _show(*parts: Any) -> None:
    from airsplit.cli.render import screen

    console = screen()
    with console.capture() as captured:
        console.print(*parts, sep="\n")
    lines = captured.get().splitlines()
    print("\n".join(line.rstrip() for line in lines))


def _json(document: Any) -> str:
    """JSON with one line for each key, or for each entry of a list.

    >>> print(_json({"splits": [1, 2], "gap": 0.5}))
    {
     "splits": [1, 2],
     "gap": 0.5
    }
    """
    if isinstance(document, list):
        return "[\n " + ",\n ".join(json.dumps(entry, allow_nan=False) for entry in document) + "\n]"
    pairs = (f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in document.items())
    return "{\n " + ",\n ".join(pairs) + "\n}"


def _note(text: object) -> None:
    """One line on stderr."""
    print("airsplit:", " ".join(str(text).split()), file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit code.  A user's mistake is one line on stderr and 2."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = lambda message, *_, **__: _note(f"note: {message}")
        try:
            _forgive_encoding()
            code = typer.main.get_command(app).main(args=argv, prog_name="airsplit", standalone_mode=False)
            sys.stdout.flush()
        except (AirsplitError, typer.TyperException) as error:
            _note(error.format_message() if isinstance(error, typer.TyperException) else error)
            return USER_MISTAKE
        except KeyboardInterrupt:
            return INTERRUPTED
        except (BrokenPipeError, SystemExit):  # typer exits by itself when a pipe closes, and only then
            return _pipe_closed()
    return code if isinstance(code, int) else 0


def _forgive_encoding() -> None:
    """Where stdout cannot show a letter, a question mark is better than no answer."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _pipe_closed() -> int:
    """The reader went away, as `head` does: end quietly, also when Python flushes on its way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return PIPE_CLOSED


if __name__ == "__main__":
    sys.exit(main())
