"""The commands run, compare, export and data: training in virtual time, from the data to a model that can be deployed."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from airsplit.cli import arguments as sources
from airsplit.cli.options import RUNS, AsJson, DataFolder, Plot, Scenario, Set, TrustRun
from airsplit.cli.output import USER_MISTAKE, json_text, note, print_parts, reports, save_plot
from airsplit.core.formatting import pluralize

ALGORITHMS = "sfl, fedavg, split-learning, splitfed-v1, splitfed-v2"  # written out: to load the settings takes a quarter of a second


def run(
    scenario: Scenario,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder of the run; else runs/NAME, runs/NAME-2 …", metavar="DIR"),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the last run; begin where there is none.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Switch every fast path off.")] = False,
    data: DataFolder = None,
    set: Set = None,
    trust_run: TrustRun = False,
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
    from airsplit.cli.plan_tables import inputs_sent, little_averaged
    from airsplit.cli.progress import Follower, in_one_voice
    from airsplit.cli.run_tables import (
        averaged_of,
        folder_for,
        inputs_sent_in,
        run_report,
        run_summary,
        stopped,
    )
    from airsplit.data.batches import short_devices_in
    from airsplit.runs.folder import RunFolder
    from airsplit.runs.metric import get_metric
    from airsplit.simulation.simulate import simulate_among

    with in_one_voice(USER_MISTAKE) as ranks, sources.what_is_printed_as_notes():
        with ranks.together():
            chosen_before = ranks.remembered(f"folder of {scenario}")  # by processes that died
            folder = (
                Path(chosen_before or folder_for(scenario, resume=resume)) if out is None else out
            )
            before = (
                RunFolder(folder).read_changes()
                if resume and ranks.is_first and RunFolder(folder).has_rounds
                else {}
            )
            if ranks.is_first:
                ranks.remember(f"folder of {scenario}", str(folder))
        before = json.loads(ranks.told(json.dumps(before)))
        with ranks.together():
            given = [*(set or []), *(["training.fast_paths=false"] if plain else [])]
            chosen, changes = sources.resumable(
                scenario, given, before, folder, trust_run=trust_run
            )
        follower = Follower(chosen.training.rounds, get_metric(chosen.training))
        records = simulate_among(
            ranks, chosen, out=folder, resume=resume, data=data, tell=follower.tell
        )
        if ranks.is_first:
            RunFolder(folder).write_changes(changes)
        shared = f"{ranks.size} processes, " if ranks.size > 1 else ""
        done = len(RunFolder(folder).read_records()) if ranks.is_first else 0
        since = ""
        if done:
            since = f"; goes on after round {done}"
        elif resume:
            since = "; there is no checkpoint in it, so the run begins with round 1"
        if done >= chosen.training.rounds:
            since = f"; it has them all, and --set training.rounds={2 * done} would train more"
        remarks: list[str | None] = []
        if ranks.is_first:
            remarks = [
                little_averaged(chosen, *averaged_of(folder)),
                short_devices_in(RunFolder(folder).read_plan()),
            ]
            if chosen.training.algorithm != "fedavg":  # which cuts nothing
                remarks += inputs_sent(*inputs_sent_in(folder))
        note(
            f"{chosen.training.algorithm}, {pluralize(chosen.training.rounds, 'round')}, {shared}into {folder}{since}"
        )
        for remark in remarks:
            if remark is not None:
                note(f"note: {remark}")
        try:
            with reports(folder) if ranks.is_first else nullcontext():
                for _ in follower.through(records):
                    pass
        except KeyboardInterrupt:
            note(stopped(folder))
            raise
    if not ranks.is_first:
        return
    summary = run_summary(folder)
    if as_json:
        print(json_text({"folder": str(folder)} | summary))
    else:
        print_parts(run_report(summary, folder))


def compare(
    scenario: Scenario,
    seeds: Annotated[int, typer.Option(help="How many, from training.seed on.", metavar="N")] = 3,
    algorithms: Annotated[
        str | None,
        typer.Option(help=f"Some of {ALGORITHMS}, with commas between; else all.", metavar="NAMES"),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(help="Accuracy, or metric, to time; else what all reach.", metavar="A"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder of the runs; else runs/NAME-compared.", metavar="DIR"),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Take up the runs in that folder.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(help="Runs at the same time; else one for each core.", metavar="N")
    ] = None,
    data: DataFolder = None,
    set: Set = None,
    trust_run: TrustRun = False,
    as_json: AsJson = False,
) -> None:
    """Train with each algorithm on the same data, seeds and clock.

    Prints the final accuracy (or training.metric), virtual time to a target,
    bytes, work and, with joules_per_mac, energy; draws it over rounds and over
    time (compared.png and .svg).

    \b
    Examples:
      airsplit compare demo
      airsplit compare demo --seeds 5 --algorithms sfl,fedavg
      airsplit compare my.toml --target 0.95 --out out/compared
    """
    from airsplit.cli.compare_tables import comparison_report
    from airsplit.cli.progress import now_and_then
    from airsplit.plots.accuracy import draw_metric
    from airsplit.plots.style import save_picture
    from airsplit.report.comparison_page import write_comparison
    from airsplit.runs.folder import RunFolder
    from airsplit.simulation.compare import compare as compare_algorithms

    folder = RUNS / f"{Path(scenario).stem}-compared" if out is None else out
    before = RunFolder(folder).read_changes() if resume else {}
    chosen, changes = sources.resumable(scenario, set or [], before, folder, trust_run=trust_run)
    names = (
        {}
        if algorithms is None
        else {"algorithms": [name.strip() for name in algorithms.split(",") if name.strip()]}
    )
    options: dict[str, Any] = names | {
        "seeds": seeds,
        "target": target,
        "resume": resume,
        "jobs": jobs,
        "data": data,
    }
    if resume or not any(
        folder.glob("*/rounds.jsonl")
    ):  # else it is refused, and what another has changed stays
        RunFolder(folder).write_changes(changes)
    try:
        with sources.what_is_printed_as_notes(), reports(folder):
            found = compare_algorithms(chosen, out=folder, tell=now_and_then(note), **options)
    except KeyboardInterrupt:
        note(
            f"stopped; what was trained is in {folder}, and the same command with --resume goes on"
        )
        raise
    write_comparison(found, folder)
    if found.has_metric:
        picture = draw_metric(
            found.finished, found.target, found.describe("lines are means, bands ranges")
        )
        for kind in ("png", "svg"):
            save_picture(picture, folder / f"compared.{kind}")
    for algorithm, ends in found.diverged.items():
        for seed, end in ends.items():
            note(f"{algorithm}, seed {seed}: {end.why}")
    if as_json:
        print(json_text({"folder": str(folder)} | found.to_dict()))
    else:
        where = (
            f"Look at {folder / 'report.html'}; pictures, runs and comparison.json are beside it"
        )
        print_parts(*comparison_report(found), where)


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    device: Annotated[
        int | None, typer.Option(help="The model of this device; the first is 0.", metavar="K")
    ] = None,
    average: Annotated[
        bool, typer.Option("--average", help="The mean of all devices' models.")
    ] = False,
    front: Annotated[
        Path | None,
        typer.Option(help="Networked: the folder that the device keeps.", metavar="DIR"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to; else in the run folder.", metavar="FILE")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a trained model as one safetensors file, to be deployed.

    It has the names of the model's own state_dict, and says in its header
    which model it is; a scenario takes it as model.weights.

    \b
    Examples:
      airsplit export runs/demo --average
      airsplit export runs/demo --device 3 --out device3.safetensors
      airsplit export runs/demo --front devices/one
    """
    from airsplit.cli.plan_tables import little_averaged
    from airsplit.cli.run_tables import averaged_of
    from airsplit.runs.folder import RunFolder
    from airsplit.scenario.scenario import Scenario
    from airsplit.training.export import export_model

    written = export_model(run, device=device, average=average, front=front, out=out)
    if (
        average
        and little_averaged(Scenario.from_toml(RunFolder(run).read_scenario()), *averaged_of(run))
        is not None
    ):
        note(
            "note: the devices' models share few of their parameters; their mean may be worse than each of them"
        )
    if as_json:
        print(json_text(asdict(written) | {"file": str(written.file)}))
    else:
        print(
            f"wrote {written.file}: {written.tensors} tensors, {written.parameters:,} numbers, after round {written.round}"
        )


def data(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="digits, mnist, fashion-mnist or cifar10; none: list them."
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--data", help="The folder that its files are in, or go to.", metavar="DIR"),
    ] = None,
    devices: Annotated[
        int | None, typer.Option(help="How many share the samples; 20 where not said.", metavar="K")
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(
            help="iid, dirichlet, shards or package.module:function (default iid).",
            metavar="KIND",
        ),
    ] = None,
    partition_arg: Annotated[
        list[str] | None,
        typer.Option(
            help="KEY=VALUE for package.module:function; repeat for more.", metavar="KEY=VALUE"
        ),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(help="dirichlet: small for few labels a device.", metavar="ALPHA"),
    ] = None,
    labels_per_device: Annotated[
        int | None, typer.Option(help="shards: how many a device gets.", metavar="N")
    ] = None,
    samples_per_device: Annotated[
        int | None, typer.Option(help="As many for each; else all there are.", metavar="N")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of all that is drawn; 0 where not said.", metavar="N")
    ] = None,
    plot: Plot = None,
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

    chosen: dict[str, Any] = {
        "partition": partition,
        "alpha": alpha,
        "labels_per_device": labels_per_device,
    }
    chosen |= {"samples_per_device": samples_per_device, "seed": seed}
    if partition_arg:
        chosen["partition_arguments"] = sources.keyword_arguments("--partition-arg", partition_arg)
    if name is None:
        data_tables.require_name(chosen | {"devices": devices, "plot": plot})
        found = data_tables.stored(folder)
        if as_json:
            print(json_text(found))
        else:
            print_parts(*data_tables.stored_table(found, folder))
        return
    held = data_tables.held(name, folder, devices, chosen, note)
    if plot is not None:
        save_plot(data_tables.drawn(held), plot)
    if as_json:
        print(json_text(held.to_dict()))
    else:
        print_parts(*data_tables.held_table(held))


COMMANDS = (run, compare, export, data)
