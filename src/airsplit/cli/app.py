"""The commands.  Each parses, calls the library, renders: results on stdout, progress and notes on stderr."""

from __future__ import annotations

import io
import json
import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from airsplit.cli import network_commands, sources
from airsplit.cli.dashboard_command import dashboard
from airsplit.cli.doctor_command import doctor
from airsplit.cli.identity_commands import identity_app
from airsplit.cli.options import RUNS, AsJson, DataFolder, Scenario, Set
from airsplit.cli.output import json_text, note, print_parts
from airsplit.errors import AirsplitError, InvalidValue, UnknownName, require_choice, require_integer, show
from airsplit.files import write_text
from airsplit.models.registry import model_names
from airsplit.planning.methods import METHODS
from airsplit.references import require_choice_or_path

USER_MISTAKE, INTERRUPTED, PIPE_CLOSED = 2, 130, 141
SCALES = ("smoke", "paper")
ALGORITHMS = "sfl, fedavg, split-learning, splitfed-v1, splitfed-v2"  # written out: to load the settings takes a quarter of a second

app = typer.Typer(name="airsplit", add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


class NotShared(InvalidValue):
    """A command that torchrun was asked to start several times."""


def _one_of(names: Iterable[str]) -> str:
    return ", ".join(names)


def _print_version(wanted: bool) -> None:
    if wanted:
        from airsplit import __version__

        print(f"airsplit {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    _version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Where to cut a neural network for each of many wireless devices, and how to share the radio.

    \b
    Start here:
      airsplit presets                   the scenarios that come with airsplit
      airsplit plan paper-alexnet        splits, shares, latencies, and a bound
      airsplit clock paper-alexnet       how long rounds take, and who is waited for
      airsplit profile alexnet           what each layer computes and sends
      airsplit run demo                  train it in virtual time
      airsplit serve demo --devices 2    train it with real devices, each of
      airsplit join HOST:PORT            which joins
      airsplit doctor                    what works on this machine

    \b
    Your own scenario:
      airsplit presets demo > my.toml    edit it, then
      airsplit plan my.toml
      airsplit run my.toml
    """
    if context.invoked_subcommand is None:
        print(context.get_help())
    elif context.invoked_subcommand != "run" and _one_of_several() is not None:
        way = "airsplit run does; start this one without torchrun"
        raise NotShared(f"airsplit {context.invoked_subcommand} does not share its work among processes, only {way}")


def _one_of_several() -> int | None:
    """Which of the processes on this machine it is, where torchrun has started several together; None where it is alone."""
    if "RANK" not in os.environ:
        return None  # without a look at torch, which takes seconds to load
    from airsplit.learn.ranks import ranks_of

    ranks = ranks_of()
    return ranks.local if ranks.size > 1 else None


@app.command()
def profile(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=f"{_one_of(model_names())}; package.module:factory; or a JSON profile.")],
    input: Annotated[list[str] | None, typer.Option(help="One sample's sizes and type; repeat for more inputs.", metavar="SPEC")] = None,
    model_arg: Annotated[list[str] | None, typer.Option(help="An argument of the model; repeat for more.", metavar="KEY=VALUE")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say which cuts are left out, and why.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw it: a .png, .svg or .pdf.", metavar="FILE")] = None,
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
    if plot is not None:
        from airsplit.figures.profile_picture import picture_format

        picture_format(plot)  # before anything slow
    found, refused = named.explained() if explain else (named.profile(), [])
    if plot is not None:
        from airsplit.figures.profile_picture import draw_profile, save_picture

        save_picture(draw_profile(found), plot)
        note(f"wrote {plot}")
    if as_json:
        reasons = [asdict(refusal) for refusal in refused]
        print(json_text({"profile": json.loads(found.to_json()), "refused": reasons}) if explain else found.to_json())
        return
    from airsplit.cli.profile_tables import explanation, profile_table
    from airsplit.cli.render import screen

    print_parts(*profile_table(found, screen().width), *(explanation(found, refused) if explain else []))


@app.command()
def plan(
    scenario: Scenario,
    method: Annotated[
        str | None, typer.Option(help=f"{_one_of(METHODS)}; your own, package.module:function; or all.", metavar="METHOD")
    ] = None,
    set: Set = None,
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
        require_choice_or_path("--method", method, (*METHODS, "all"))
    from airsplit.cli.planned import plan_once, plan_with_each

    chosen = sources.scenario(scenario, method, set or [])
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


@app.command()
def clock(
    scenario: Scenario,
    rounds: Annotated[int | None, typer.Option(help="How many; else training.rounds.", metavar="N")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it: a .png, .svg or .pdf.", metavar="FILE")] = None,
    set: Set = None,
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
    if plot is not None:
        from airsplit.figures.profile_picture import picture_format

        picture_format(plot)  # before anything slow
    from airsplit.cli import clock_tables
    from airsplit.cli.progress import now_and_then
    from airsplit.what_if import clock_run

    chosen, tell = sources.scenario(scenario, None, set or []), clock_tables.after_a_while(now_and_then(note))
    with sources.what_is_printed_as_notes():
        found = clock_run(chosen, rounds=rounds, tell=tell)
    if plot is not None:
        clock_tables.draw(found, plot)
        note(f"wrote {plot}")
    if as_json:
        print(json_text(found.to_dict()))
    else:
        print_parts(*clock_tables.clock_report(found))


@app.command()
def run(
    scenario: Scenario,
    out: Annotated[Path | None, typer.Option(help="The folder of the run; else runs/NAME.", metavar="DIR")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in that folder.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Switch every fast path off.")] = False,
    data: DataFolder = None,
    set: Set = None,
    as_json: AsJson = False,
) -> None:
    """Train a scenario in virtual time and write a run folder.

    Every round is on the disk before the next begins.  Stop it whenever you
    like; --resume goes on, bit for bit as if it had never stopped.

    \b
    Examples:
      airsplit run demo
      airsplit run demo --out out/demo --set training.rounds=50
      airsplit run demo --out out/demo --set training.rounds=80 --resume
      airsplit run my.toml --set training.algorithm=fedavg
      airsplit run my.toml --data ~/data --set training.dataset=mnist

    \b
    In four processes, each with its share of the devices:
      torchrun --standalone --nproc-per-node 4 -m airsplit run demo
    """
    from airsplit.cli.progress import followed, in_one_voice
    from airsplit.cli.run_tables import folder_for, run_report, run_summary
    from airsplit.results import RunFolder
    from airsplit.simulation import simulate_among

    with in_one_voice(USER_MISTAKE) as ranks, sources.what_is_printed_as_notes():
        with ranks.together():
            chosen = sources.scenario(scenario, None, [*(set or []), *(["training.fast_paths=false"] if plain else [])])
            chosen_before = ranks.remembered(f"folder of {scenario}")  # by processes that died
            folder = Path(chosen_before or folder_for(scenario, resume=resume)) if out is None else out
            if ranks.is_first:
                ranks.remember(f"folder of {scenario}", str(folder))
        records = simulate_among(ranks, chosen, out=folder, resume=resume, data=data)
        shared = f"{ranks.size} processes, " if ranks.size > 1 else ""
        done = len(RunFolder(folder).records()) if ranks.is_first else 0
        since = f"; goes on after round {done}" if done else "; there is no run in it yet, so one begins" if resume else ""
        note(f"{chosen.training.algorithm}, {chosen.training.rounds} rounds, {shared}into {folder}{since}")
        try:
            for _ in followed(records, chosen.training.rounds):
                pass
        except KeyboardInterrupt:
            note(f"stopped; what was trained is in {folder}, and --resume goes on from there")
            raise
    if not ranks.is_first:
        return
    summary = run_summary(RunFolder(folder).records())
    if as_json:
        print(json_text({"folder": str(folder)} | summary))
    else:
        print_parts(run_report(summary, folder))


@app.command()
def compare(
    scenario: Scenario,
    seeds: Annotated[int, typer.Option(help="How many, from training.seed on.", metavar="N")] = 3,
    algorithms: Annotated[str | None, typer.Option(help=f"Some of {ALGORITHMS}, with commas between; else all.", metavar="NAMES")] = None,
    target: Annotated[float | None, typer.Option(help="Accuracy whose time is compared; else what all reach.", metavar="A")] = None,
    out: Annotated[Path | None, typer.Option(help="The folder of the runs; else runs/NAME-compared.", metavar="DIR")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Take up the runs in that folder.")] = False,
    jobs: Annotated[int | None, typer.Option(help="Runs at the same time; else one for each core.", metavar="N")] = None,
    data: DataFolder = None,
    set: Set = None,
    as_json: AsJson = False,
) -> None:
    """Train with each algorithm on the same data, seeds and clock.

    Prints accuracy, virtual time to a target, bytes, work and energy, and
    draws accuracy over rounds and over time (compared.png and .svg).

    \b
    Examples:
      airsplit compare demo
      airsplit compare demo --seeds 5 --algorithms sfl,fedavg
      airsplit compare my.toml --target 0.95 --out out/compared
    """
    from airsplit.cli.compare_tables import comparison_table
    from airsplit.cli.progress import now_and_then
    from airsplit.comparison import compare as compare_algorithms
    from airsplit.figures.accuracy_picture import draw_accuracy
    from airsplit.figures.profile_picture import save_picture

    chosen = sources.scenario(scenario, None, set or [])
    folder = RUNS / f"{Path(scenario).stem}-compared" if out is None else out
    names = {} if algorithms is None else {"algorithms": [name.strip() for name in algorithms.split(",") if name.strip()]}
    options: dict[str, Any] = names | {"seeds": seeds, "target": target, "resume": resume, "jobs": jobs, "data": data}
    try:
        with sources.what_is_printed_as_notes():
            found = compare_algorithms(chosen, out=folder, tell=now_and_then(note), **options)
    except KeyboardInterrupt:
        note(f"stopped; what was trained is in {folder}, and --resume takes it up")
        raise
    if found.has_accuracy:
        picture = draw_accuracy(found.trials, found.target, found.about("lines are means, bands ranges"))
        for kind in ("png", "svg"):
            save_picture(picture, folder / f"compared.{kind}")
    if as_json:
        print(json_text({"folder": str(folder)} | found.to_dict()))
    else:
        told = f"{found.about()} Time is virtual; sent, work and energy are of all devices and rounds."
        print_parts(comparison_table(found), told, f"Look at {folder / 'report.html'}; pictures, runs and comparison.json are beside it")


@app.command()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    device: Annotated[int | None, typer.Option(help="The model of this device; the first is 0.", metavar="K")] = None,
    average: Annotated[bool, typer.Option("--average", help="The mean of all devices' models.")] = False,
    front: Annotated[Path | None, typer.Option(help="Networked: the folder that the device keeps.", metavar="DIR")] = None,
    out: Annotated[Path | None, typer.Option(help="Where to; else in the run folder.", metavar="FILE")] = None,
    as_json: AsJson = False,
) -> None:
    """Write a trained model as one safetensors file, to be deployed.

    It has the names of the model's own state_dict, and says in its header
    which model it is; a scenario takes it as model.weights.

    \b
    Examples:
      airsplit export runs/demo --average
      airsplit export runs/demo --device 3 --out device3.safetensors
      airsplit export runs/demo --device 0 --front devices/one
    """
    from airsplit.learn.exporting import export_model

    written = export_model(run, device=device, average=average, front=front, out=out)
    if as_json:
        print(json_text(asdict(written) | {"file": str(written.file)}))
    else:
        print(f"wrote {written.file}: {written.tensors} tensors, {written.parameters:,} numbers, after round {written.round}")


@app.command()
def presets(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Print this one, as TOML.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the scenarios that come along, or print one as TOML.

    \b
    Examples:
      airsplit presets
      airsplit presets demo > my.toml
    """
    from airsplit.presets import describe, preset, preset_names

    descriptions = {each: describe(each) for each in ([name] if name else preset_names())}
    if name is None and as_json:
        print(json_text([{"name": each, "description": text} for each, text in descriptions.items()]))
    elif name is None:
        from airsplit.cli.render import preset_table

        print_parts(preset_table(descriptions))
    elif as_json:
        print(json_text(sources.scenario(name, None, []).model_dump()))
    else:
        print(preset(name), end="")


@app.command()
def data(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="digits, mnist, fashion-mnist or cifar10; none: list them.")] = None,
    folder: Annotated[Path | None, typer.Option("--data", help="The folder that its files are in, or go to.", metavar="DIR")] = None,
    devices: Annotated[int | None, typer.Option(help="How many share the samples; 20 where not said.", metavar="K")] = None,
    partition: Annotated[str | None, typer.Option(help="iid, dirichlet or shards; iid where not said.", metavar="KIND")] = None,
    alpha: Annotated[float | None, typer.Option(help="dirichlet: small for few labels a device.", metavar="ALPHA")] = None,
    labels_per_device: Annotated[int | None, typer.Option(help="shards: how many a device gets.", metavar="N")] = None,
    samples_per_device: Annotated[int | None, typer.Option(help="As many for each; else all there are.", metavar="N")] = None,
    seed: Annotated[int | None, typer.Option(help="Of all that is drawn; 0 where not said.", metavar="N")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw who holds which labels: a .png, .svg or .pdf.", metavar="FILE")] = None,
    as_json: AsJson = False,
) -> None:
    """Fetch a data set, and show which devices hold which labels.

    Files that are not there are downloaded into the data folder: --data, else
    what AIRSPLIT_DATA says, else a folder in the user's cache.

    \b
    Examples:
      airsplit data
      airsplit data mnist
      airsplit data cifar10 --data ~/data
      airsplit data digits --partition dirichlet --alpha 0.1
      airsplit data digits --partition shards --devices 10 --plot who.svg
    """
    from airsplit.cli import data_tables

    chosen = {"partition": partition, "alpha": alpha, "labels_per_device": labels_per_device}
    chosen |= {"samples_per_device": samples_per_device, "seed": seed}
    if name is None:
        data_tables.require_name(chosen | {"devices": devices, "plot": plot})
        found = data_tables.stored(folder)
        if as_json:
            print(json_text(found))
        else:
            print_parts(*data_tables.stored_table(found, folder))
        return
    if plot is not None:
        from airsplit.figures.profile_picture import picture_format

        picture_format(plot)  # before anything slow
    held = data_tables.held(name, folder, devices, chosen, note)
    if plot is not None:
        data_tables.draw(held, plot)
        note(f"wrote {plot}")
    if as_json:
        print(json_text(held.to_dict()))
    else:
        print_parts(*data_tables.held_table(held))


@app.command()
def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or the folder of a comparison.")], as_json: AsJson = False
) -> None:
    """Write report.html of a run or a comparison; print its path.

    One page that needs neither the network nor scripts: results, charts,
    where each device's time goes, the plan and how good it can be at best;
    of a comparison, its algorithms side by side.  The run need not be over.

    \b
    Examples:
      airsplit report runs/demo
      airsplit report runs/demo-compared
    """
    from airsplit.report.page import write_report
    from airsplit.report.side_by_side import is_comparison, read_comparison, write_comparison

    written = write_comparison(read_comparison(run), run) if is_comparison(run) else write_report(run)
    print(json_text({"report": str(written)}) if as_json else written)


@app.command()
def figures(
    numbers: Annotated[list[str] | None, typer.Argument(metavar="NUMBERS", help="The paper's figures; none: all that need no GPU.")] = None,
    out: Annotated[Path, typer.Option(help="The folder for the figures and claims.json.", metavar="DIR")] = Path("figures"),
    scale: Annotated[str, typer.Option(help="smoke: quick; paper: as in the paper.", metavar="SCALE")] = "smoke",
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Draw the paper's figures and check its claims.

    Figures 9, 10 and 14 show accuracy.  At the scale of the paper they train
    for an hour on a large GPU, so they are drawn only when named; each
    training is kept in runs.jsonl in the folder, and none is done twice.

    \b
    Examples:
      airsplit figures
      airsplit figures 3 4 11 --out out/figures
      airsplit figures --scale paper
      airsplit figures 9 10 14 --scale paper --data ~/data
    """
    require_choice("--scale", scale, SCALES)
    from airsplit.figures import FIGURES, draw

    known = {str(number): number for number in FIGURES}
    for number in numbers or []:
        if number not in known:
            raise UnknownName(f"figure {show(number)} is not known. Known: {', '.join(known)}")
    claims = draw([known[number] for number in numbers] if numbers else None, out, scale, note, data=data)
    if as_json:
        print(json_text([asdict(claim) for claim in claims]))
        return
    from airsplit.cli.render import claims_table

    print_parts(claims_table(claims))


for command in (dashboard, *network_commands.COMMANDS, doctor):
    app.command()(command)
app.add_typer(identity_app, name="identity")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit code.  A user's mistake is one line on stderr and 2."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = lambda message, *_, **__: note(f"note: {message}")
        try:
            _forgive_encoding()
            code = typer.main.get_command(app).main(args=argv, prog_name="airsplit", standalone_mode=False)
            sys.stdout.flush()
        except (AirsplitError, typer.TyperException) as error:
            if isinstance(error, typer.TyperException | NotShared) and _one_of_several():  # the first one here says the same
                from airsplit.cli.progress import linger

                linger()
            else:
                note(_usage(error) if isinstance(error, typer.TyperException) else error)
            return USER_MISTAKE
        except KeyboardInterrupt:
            return INTERRUPTED
        except (BrokenPipeError, SystemExit):  # typer exits by itself when a pipe closes, and only then
            return _pipe_closed()
    return code if isinstance(code, int) else 0


def _usage(error: typer.TyperException) -> str:
    """What was wrong with the words on the command line, and where to read about them."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "airsplit"
    return f"{error.format_message().rstrip('.')} (see {command} --help)"


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
