"""The commands profile, plan and clock: what a model costs, who cuts it where, and how long that takes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from airsplit.cli import arguments as sources
from airsplit.cli.options import AsJson, Plot, Scenario, Set, TrustRun
from airsplit.cli.output import json_text, note, print_parts, save_plot
from airsplit.core.errors import require_integer
from airsplit.core.files import write_text
from airsplit.core.plugins import require_choice_or_path
from airsplit.models.zoo.registry import list_models
from airsplit.planning.methods import METHODS


def _one_of(names: Iterable[str]) -> str:
    return ", ".join(names)


def profile(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help=f"{_one_of(list_models())}; package.module:factory; or a JSON profile.",
        ),
    ],
    input: Annotated[
        list[str] | None,
        typer.Option(help="One sample's sizes and type; repeat for more inputs.", metavar="SPEC"),
    ] = None,
    model_arg: Annotated[
        list[str] | None,
        typer.Option(help="An argument of the model; repeat for more.", metavar="KEY=VALUE"),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say which cuts are left out, and why.")
    ] = False,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Show what a model costs at every split.

    SPEC is sizes without the batch axis, and a type where it is not that of
    the weights: 3x224x224, 128:int64.  Built-in models know theirs.

    \b
    Examples:
      airsplit profile alexnet
      airsplit profile vgg16 --input 3x32x32
      airsplit profile gpt --model-arg layers=12 --explain
      airsplit profile torchvision.models:resnet50 --input 3x224x224
      airsplit profile mypackage.nets:make --input 128:int64
      airsplit profile mypackage.nets:two --input 3x32x32 --input 77:int64
      airsplit profile vgg16 --plot vgg16.svg --json > vgg16.json
    """
    named = sources.model(model, input or [], model_arg or [])
    found, refused = named.explain() if explain else (named.profile(), [])
    if plot is not None:
        from airsplit.plots.profile import draw_profile

        save_plot(draw_profile(found), plot)
    if as_json:
        reasons = [asdict(refusal) for refusal in refused]
        print(
            json_text({"profile": json.loads(found.to_json()), "refused": reasons})
            if explain
            else found.to_json()
        )
        return
    from airsplit.cli.profile_tables import explanation, profile_table
    from airsplit.cli.render import screen

    print_parts(
        *profile_table(found, screen().width), *(explanation(found, refused) if explain else [])
    )


def plan(
    scenario: Scenario,
    method: Annotated[
        str | None,
        typer.Option(
            help=f"{_one_of(METHODS)}; your own, package.module:function; or all.", metavar="METHOD"
        ),
    ] = None,
    set: Set = None,
    trust_run: TrustRun = False,
    out: Annotated[
        Path | None, typer.Option(help="Also write the plan to this file, as JSON.", metavar="FILE")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Choose every device's split and share of the band.

    Prints the latencies, and a bound: how far from the best possible it is.

    \b
    Examples:
      airsplit plan paper-alexnet
      airsplit plan paper-alexnet --method all
      airsplit plan paper-alexnet --method fixed --set plan.split=pool1
      airsplit plan my.toml --set fleet.devices=100 --out plan.json
      airsplit plan my.toml --set plan.max_split=     nothing: the default
    """
    if method is not None:
        require_choice_or_path("--method", method, (*METHODS, "all"))
    from airsplit.cli.planned import plan_once, plan_with_each

    chosen = sources.scenario(scenario, method, set or [], trust_run=trust_run)
    planned = plan_with_each(chosen, note) if method == "all" else [plan_once(chosen)]
    if as_json or out is not None:
        several = [each.plan.to_dict() | {"planning_s": each.planning_s} for each in planned]
        text = json_text(several if method == "all" else planned[0].plan.to_dict())
    if out is not None:
        write_text(out, text + "\n")  # before anything is printed: where this fails, nothing is
    if as_json:
        print(text)
        return
    from airsplit.cli.plan_tables import comparison, plan_report

    print_parts(*(comparison(planned) if method == "all" else plan_report(planned[0])))


def clock(
    scenario: Scenario,
    rounds: Annotated[
        int | None, typer.Option(help="How many; else training.rounds.", metavar="N")
    ] = None,
    plot: Plot = None,
    set: Set = None,
    trust_run: TrustRun = False,
    as_json: AsJson = False,
) -> None:
    """Show how long the rounds of a run take, without training it.

    Draws what a run would draw and waits when it would wait: the latencies
    are the same.  Needs neither data nor weights, and takes a moment, so ask
    for many rounds, or for a million devices.

    \b
    Examples:
      airsplit clock paper-alexnet
      airsplit clock paper-alexnet --rounds 1000 --plot clock.png
      airsplit clock demo --set training.algorithm=fedavg
      airsplit clock my.toml --set training.dropout_probability=0.1
      airsplit clock paper-alexnet --set fleet.devices=1000000
    """
    if rounds is not None:
        require_integer("--rounds", rounds, low=1)
    from airsplit.cli import clock_tables
    from airsplit.cli.progress import now_and_then
    from airsplit.simulation.clock_simulation import clock_run

    chosen = sources.scenario(scenario, None, set or [], trust_run=trust_run)
    tell = clock_tables.after_a_while(now_and_then(note))
    with sources.what_is_printed_as_notes():
        found = clock_run(chosen, rounds=rounds, tell=tell)
    short = clock_tables.short_devices(found)
    if short is not None:
        note(f"note: {short}")
    if plot is not None:
        save_plot(clock_tables.drawn(found), plot)
    if as_json:
        print(json_text(found.to_dict()))
    else:
        print_parts(*clock_tables.clock_report(found))


COMMANDS = (profile, plan, clock)
