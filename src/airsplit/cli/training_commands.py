"""The commands run, compare, export and data: from a data set to a model that can be deployed."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airsplit.cli.arguments import (
    RUNS,
    AsJson,
    DataFolder,
    Out,
    Plain,
    Plot,
    Resume,
    ScenarioName,
    Set,
    TrustRun,
    choose_run_folder,
    load_resumable_scenario,
    parse_keyword_arguments,
    redirect_prints,
)
from airsplit.cli.output import (
    USER_MISTAKE,
    format_json,
    note,
    print_parts,
    save_plot,
    write_reports_on_exit,
)
from airsplit.core.formatting import pluralize
from airsplit.scenario.run_files import PLAN_FILE, RECORDS_FILE, REPORT_FILE

if TYPE_CHECKING:
    from airsplit.training.ranks import Ranks

# A copy of settings.ALGORITHMS, which takes a quarter of a second to import; a test compares them.
ALGORITHMS = "sfl, fedavg, split-learning, splitfed-v1, splitfed-v2"


def run(
    scenario: ScenarioName,
    out: Out = None,
    resume: Resume = False,
    plain: Plain = False,
    data: DataFolder = None,
    set: Set = None,
    trust_run: TrustRun = False,
    as_json: AsJson = False,
) -> None:
    """Train a scenario in virtual time and write a run folder.

    Every round is on disk before the next one starts. Stop the run at any
    time; --resume continues it, bit for bit as if it had never stopped.

    \b
    Examples:
      airsplit run demo
      airsplit run demo --out out/demo --set training.rounds=50
      airsplit run demo --out out/demo --set training.rounds=80 --resume
      airsplit run my.toml --set training.algorithm=fedavg
      airsplit run my.toml --data ~/data --set training.dataset=mnist

    \b
    In four processes that share the devices:
      torchrun --standalone --nproc-per-node 4 -m airsplit run demo
    """
    from airsplit.cli.progress import ProgressReporter
    from airsplit.cli.run_tables import describe_stop, run_notes, run_report
    from airsplit.cli.torchrun import join_ranks
    from airsplit.runs.folder import RunFolder
    from airsplit.runs.metric import get_metric
    from airsplit.runs.summary import summarize_run
    from airsplit.simulation.simulate import simulate_among

    with join_ranks(USER_MISTAKE) as ranks, redirect_prints():
        folder, earlier = _agree_on_folder(ranks, scenario, out, resume)
        settings = set or []
        if plain:
            settings = [*settings, "training.fast_paths=false"]
        with ranks.together():
            chosen, changes = load_resumable_scenario(
                scenario, settings, earlier, folder, trust_run=trust_run
            )

        training = chosen.training
        reporter = ProgressReporter(training.rounds, get_metric(training))
        records = simulate_among(
            ranks, chosen, out=folder, resume=resume, data=data, tell=reporter.on_step
        )

        # Only the first process keeps the run folder; the output of the others is discarded.
        # simulate_among has rejected the folder by now if it contains another run.
        if ranks.is_first:
            RunFolder(folder).write_changes(changes)
            # The notes read the run folder, which may be damaged: fail before anything is printed.
            notes = list(run_notes(folder, chosen))
            _announce(ranks, chosen, folder, resume)
            for text in notes:
                note(f"note: {text}")
        try:
            # Training happens as the records are consumed; each is on disk when it arrives.
            with write_reports_on_exit(folder) if ranks.is_first else nullcontext():
                for _ in reporter.follow(records):
                    pass
        except KeyboardInterrupt:
            note(describe_stop(folder))
            raise

    if not ranks.is_first:
        return
    summary = summarize_run(folder)
    if as_json:
        print(format_json({"folder": str(folder)} | summary))
    else:
        print_parts(run_report(summary, folder))


def _agree_on_folder(
    ranks: Ranks, scenario: str, out: Path | None, resume: bool
) -> tuple[Path, dict[str, Any]]:
    """Return the run folder of all processes, and the changes that it records."""
    from airsplit.runs.folder import RunFolder

    earlier: dict[str, Any] = {}
    with ranks.together():
        # Processes that torchrun starts again continue the run of those that died.
        key = f"folder of {scenario}"
        folder = out or Path(ranks.remembered(key) or choose_run_folder(scenario, resume=resume))
        if ranks.is_first:
            if resume and RunFolder(folder).has_rounds:
                earlier = RunFolder(folder).read_changes()
            ranks.remember(key, str(folder))
    # Only the first process can see the run folder.
    return folder, json.loads(ranks.told(json.dumps(earlier)))


def _announce(ranks: Ranks, scenario: Any, folder: Path, resume: bool) -> None:
    """Print what is trained, where to, and from which round on."""
    from airsplit.runs.folder import RunFolder

    rounds = scenario.training.rounds
    parts = [scenario.training.algorithm, pluralize(rounds, "round")]
    if ranks.size > 1:
        parts.append(f"{ranks.size} processes")
    text = f"{', '.join(parts)}, into {folder}"

    done = len(RunFolder(folder).read_records())
    if done >= rounds:
        text += f"; all rounds are done, --set training.rounds={2 * done} would train more"
    elif done:
        text += f"; continues after round {done}"
    elif resume:
        text += "; it has no checkpoint, so the run starts at round 1"
    note(text)


def compare(
    scenario: ScenarioName,
    seeds: Annotated[
        int, typer.Option(help="Number of seeds, from training.seed on.", metavar="N")
    ] = 3,
    algorithms: Annotated[
        str | None,
        typer.Option(
            help=f"Algorithms, separated by commas (default: {ALGORITHMS}).", metavar="NAMES"
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            help="Target accuracy or metric (default: the best that all reach).", metavar="A"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the runs (default: runs/NAME-compared).", metavar="DIR"),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the runs in that folder.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(help="Runs in parallel (default: one per core).", metavar="N"),
    ] = None,
    data: DataFolder = None,
    set: Set = None,
    trust_run: TrustRun = False,
    as_json: AsJson = False,
) -> None:
    """Train with each algorithm on the same data, seeds and clock.

    Prints the final accuracy (or training.metric), the virtual time to a
    target, bytes, work and, given fleet.joules_per_mac, energy. Plots the
    accuracy over rounds and over time (compared.png and .svg).

    \b
    Examples:
      airsplit compare demo
      airsplit compare demo --seeds 5 --algorithms sfl,fedavg
      airsplit compare my.toml --target 0.95 --out out/compared
    """
    from airsplit.cli.progress import limit_rate
    from airsplit.cli.run_tables import comparison_report
    from airsplit.plots.accuracy import draw_metric
    from airsplit.plots.style import save_picture
    from airsplit.report.comparison_page import write_comparison
    from airsplit.runs.folder import RunFolder
    from airsplit.simulation.compare import compare as compare_algorithms

    folder = out or RUNS / f"{Path(scenario).stem}-compared"
    run_folder = RunFolder(folder)
    earlier: dict[str, Any] = {}
    if resume:
        earlier = run_folder.read_changes()
    chosen, changes = load_resumable_scenario(scenario, set, earlier, folder, trust_run=trust_run)
    # A folder with runs is refused below without --resume; then its changes must stay.
    if resume or not any(folder.glob(f"*/{RECORDS_FILE}")):
        run_folder.write_changes(changes)

    # The default of the library is all algorithms.
    options: dict[str, Any] = {}
    if algorithms is not None:
        options["algorithms"] = split_names(algorithms)
    try:
        with redirect_prints(), write_reports_on_exit(folder, f"*/{PLAN_FILE}"):
            comparison = compare_algorithms(
                chosen,
                out=folder,
                seeds=seeds,
                target=target,
                resume=resume,
                jobs=jobs,
                data=data,
                tell=limit_rate(note),
                **options,
            )
    except KeyboardInterrupt:
        note(f"stopped; the runs are in {folder}, and the same command with --resume continues")
        raise

    write_comparison(comparison, folder)
    # A comparison in which all diverged has no metric to plot.
    if comparison.has_metric:
        caption = comparison.describe("lines are means, bands ranges")
        picture = draw_metric(comparison.finished_trials, comparison.target, caption)
        for suffix in ("png", "svg"):
            save_picture(picture, folder / f"compared.{suffix}")
    # A run that diverges does not end the comparison, so say here why it did.
    for algorithm, divergences in comparison.diverged.items():
        for seed, divergence in divergences.items():
            note(f"{algorithm}, seed {seed}: {divergence.why}")

    if as_json:
        print(format_json({"folder": str(folder)} | comparison.to_dict()))
    else:
        report = folder / REPORT_FILE
        where = f"Report: {report}; plots, runs and comparison.json are next to it"
        print_parts(*comparison_report(comparison), where)


def split_names(text: str) -> list[str]:
    """Return the names in a list that commas separate.

    >>> split_names("sfl, fedavg,")
    ['sfl', 'fedavg']
    """
    return [name.strip() for name in text.split(",") if name.strip()]


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    device: Annotated[
        int | None, typer.Option(help="Export the model of this device, from 0.", metavar="K")
    ] = None,
    average: Annotated[
        bool, typer.Option("--average", help="Export the mean of all devices' models.")
    ] = False,
    front: Annotated[
        Path | None,
        typer.Option(help="Networked runs: folder of the device's checkpoint.", metavar="DIR"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write (default: in the run folder).", metavar="FILE"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a trained model as one safetensors file, for deployment.

    Tensors have the names of the model's own state_dict, and the file's header
    names the model. A scenario starts from it with model.weights.

    \b
    Examples:
      airsplit export runs/demo --average
      airsplit export runs/demo --device 3 --out device3.safetensors
      airsplit export runs/demo --front devices/one
    """
    from airsplit.cli.run_tables import warn_of_little_averaging_in
    from airsplit.runs.folder import RunFolder
    from airsplit.scenario.scenario import Scenario
    from airsplit.training.export import export_model

    written = export_model(run, device=device, average=average, front=front, out=out)
    if average:
        scenario = Scenario.from_toml(RunFolder(run).read_scenario())
        if warn_of_little_averaging_in(run, scenario) is not None:
            note(
                "note: the devices' models share few of their parameters; "
                "their mean may be worse than each of them"
            )
    if as_json:
        print(format_json(asdict(written) | {"file": str(written.file)}))
    else:
        print(
            f"wrote {written.file}: {written.tensors} tensors, {written.parameters:,} numbers, "
            f"after round {written.round}"
        )


def data(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="digits, mnist, fashion-mnist or cifar10 (default: list them).",
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--data",
            help="Folder of the data sets (default: $AIRSPLIT_DATA, else the user's cache).",
            metavar="DIR",
        ),
    ] = None,
    # These repeat settings, whose import --help must not wait for; a test compares the defaults.
    devices: Annotated[
        int | None, typer.Option(help="Number of devices (default 20).", metavar="K")
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
        typer.Option(help="Argument of package.module:function; repeatable.", metavar="KEY=VALUE"),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(
            help="dirichlet: the smaller, the fewer labels per device (default 0.5).",
            metavar="ALPHA",
        ),
    ] = None,
    labels_per_device: Annotated[
        int | None, typer.Option(help="shards: labels of each device (default 2).", metavar="N")
    ] = None,
    samples_per_device: Annotated[
        int | None, typer.Option(help="Samples of each device (default: all).", metavar="N")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed (default 0).", metavar="N")] = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Download a data set, and show which devices hold which labels.

    Files are looked for in the data folder, and missing ones are downloaded
    into it.

    \b
    Examples:
      airsplit data
      airsplit data mnist
      airsplit data cifar10 --data ~/data
      airsplit data digits --partition dirichlet --alpha 0.1
      airsplit data digits --partition shards --devices 10 --plot labels.svg
    """
    from airsplit.cli import data_tables
    from airsplit.data.image_sets import get_image_set
    from airsplit.data.label_counts import count_partition, list_image_sets
    from airsplit.scenario.settings import TrainingSettings

    settings: dict[str, Any] = {
        "partition": partition,
        "alpha": alpha,
        "labels_per_device": labels_per_device,
        "samples_per_device": samples_per_device,
        "seed": seed,
    }
    if partition_arg:
        settings["partition_arguments"] = parse_keyword_arguments("--partition-arg", partition_arg)

    if name is None:
        data_tables.require_data_set(settings | {"devices": devices, "plot": plot})
        data_sets = list_image_sets(folder)
        if as_json:
            print(format_json(data_sets))
        else:
            print_parts(*data_tables.data_sets_report(data_sets, folder))
        return

    # Check all options before a download.
    get_image_set(name)
    training = TrainingSettings(dataset=name, **settings)
    data_tables.download_missing_files(name, folder)
    counts = count_partition(training, folder, devices)
    if plot is not None:
        save_plot(data_tables.plot_labels(counts), plot)
    if as_json:
        print(format_json(counts.to_dict()))
    else:
        print_parts(*data_tables.partition_report(counts))
