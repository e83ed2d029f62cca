"""The commands presets, profile, plan and clock: everything before a training."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airsplit.cli.arguments import (
    AsJson,
    Plot,
    ScenarioName,
    Set,
    TrustRun,
    load_scenario,
    parse_model,
    redirect_prints,
)
from airsplit.cli.output import format_json, note, print_parts, save_plot
from airsplit.core.errors import require_integer
from airsplit.core.files import write_text
from airsplit.core.plugins import require_choice_or_path
from airsplit.models.zoo.registry import list_models
from airsplit.planning.methods import METHODS

if TYPE_CHECKING:
    from airsplit.models.splits import IllegalSplit

# Progress is reported only if a simulation takes longer than this, in seconds.
QUIET_S = 2.0


def presets(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Print this preset as TOML.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the bundled scenarios, or print one as TOML.

    \b
    Examples:
      airsplit presets
      airsplit presets demo > my.toml
    """
    from airsplit.scenario.presets import describe_preset, list_presets, read_preset

    if name is not None:
        # Reject an unknown name before anything is printed.
        describe_preset(name)
        if as_json:
            print(format_json(load_scenario(name, None, []).model_dump()))
        else:
            print(read_preset(name), end="")
        return

    descriptions = {preset_name: describe_preset(preset_name) for preset_name in list_presets()}
    if as_json:
        entries = [{"name": key, "description": text} for key, text in descriptions.items()]
        print(format_json(entries))
    else:
        from airsplit.cli.tables import make_list

        print_parts(make_list(descriptions.items(), style="bold"))


def profile(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help=f"{', '.join(list_models())}; package.module:factory; or a JSON profile.",
        ),
    ],
    input: Annotated[
        list[str] | None,
        typer.Option(help="Shape and type of an input; repeat for more inputs.", metavar="SPEC"),
    ] = None,
    model_arg: Annotated[
        list[str] | None,
        typer.Option(help="Argument of the model; repeatable.", metavar="KEY=VALUE"),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="List the cuts that are left out, and why.")
    ] = False,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Show what a model costs at every split.

    SPEC is the shape of one sample without the batch axis, and a type unless
    it is that of the weights: 3x224x224, 128:int64. Built-in models have a
    default.

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
    argument = parse_model(model, input or [], model_arg or [])
    illegal_splits: list[IllegalSplit] = []
    if explain:
        counted, illegal_splits = argument.explain()
    else:
        counted = argument.profile()

    if plot is not None:
        from airsplit.plots.profile import draw_profile

        save_plot(draw_profile(counted), plot)
    if as_json and explain:
        reasons = [asdict(split) for split in illegal_splits]
        print(format_json({"profile": json.loads(counted.to_json()), "refused": reasons}))
        return
    if as_json:
        print(counted.to_json())
        return

    from airsplit.cli.profile_tables import cuts_report, profile_report
    from airsplit.cli.tables import make_console

    parts = profile_report(counted, make_console().width)
    if explain:
        parts += cuts_report(counted, illegal_splits)
    print_parts(*parts)


def plan(
    scenario: ScenarioName,
    method: Annotated[
        str | None,
        typer.Option(
            help=f"{', '.join(METHODS)}; package.module:function; or all.", metavar="METHOD"
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

    Prints latencies, and a bound on how far the plan is from the best possible
    one.

    \b
    Examples:
      airsplit plan paper-alexnet
      airsplit plan paper-alexnet --method all
      airsplit plan paper-alexnet --method fixed --set plan.split=pool1
      airsplit plan my.toml --set fleet.devices=100 --out plan.json
      airsplit plan my.toml --set plan.max_split=     restore the default
    """
    if method is not None:
        require_choice_or_path("--method", method, (*METHODS, "all"))
    from airsplit.cli.scenario_plans import plan_scenario, plan_with_every_method

    chosen = load_scenario(scenario, method, set, trust_run=trust_run)
    if method == "all":
        plans = plan_with_every_method(chosen, note)
    else:
        plans = [plan_scenario(chosen)]

    if as_json or out is not None:
        document: Any = plans[0].plan.to_dict()
        if method == "all":
            document = [
                planned.plan.to_dict() | {"planning_s": planned.planning_s} for planned in plans
            ]
        text = format_json(document)
    # Write before anything is printed: if that fails, stdout stays empty.
    if out is not None:
        write_text(out, text + "\n")
    if as_json:
        print(text)
        return

    from airsplit.cli.plan_tables import method_comparison, plan_report

    if method == "all":
        print_parts(*method_comparison(plans))
    else:
        print_parts(*plan_report(plans[0]))


def clock(
    scenario: ScenarioName,
    rounds: Annotated[
        int | None, typer.Option(help="Number of rounds (default: training.rounds).", metavar="N")
    ] = None,
    plot: Plot = None,
    set: Set = None,
    trust_run: TrustRun = False,
    as_json: AsJson = False,
) -> None:
    """Show how long the rounds of a run take, without training.

    Draws the same random numbers as a run and waits for the same devices, so
    the latencies are the same. It needs neither data nor weights and is fast:
    try many rounds, or a million devices.

    \b
    Examples:
      airsplit clock paper-alexnet
      airsplit clock paper-alexnet --rounds 1000 --plot clock.png
      airsplit clock demo --set training.algorithm=fedavg
      airsplit clock my.toml --set training.dropout_probability=0.1
      airsplit clock paper-alexnet --set fleet.devices=1000000
    """
    # Before the imports below: they take longer than to see this mistake.
    if rounds is not None:
        require_integer("--rounds", rounds, low=1)
    from airsplit.cli.clock_tables import clock_report, plot_clock, warn_of_short_devices
    from airsplit.cli.progress import limit_rate, skip_at_first
    from airsplit.simulation.clock_simulation import clock_run

    chosen = load_scenario(scenario, None, set, trust_run=trust_run)
    report_progress = skip_at_first(limit_rate(note), QUIET_S)
    with redirect_prints():
        simulated = clock_run(chosen, rounds=rounds, tell=report_progress)
    warning = warn_of_short_devices(simulated)
    if warning is not None:
        note(f"note: {warning}")
    if plot is not None:
        save_plot(plot_clock(simulated), plot)
    if as_json:
        print(format_json(simulated.to_dict()))
    else:
        print_parts(*clock_report(simulated))
