"""report.html of a comparison: the algorithms side by side, and the way to the page of each run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from airsplit.core.arrays import Floats
from airsplit.core.errors import FileProblem
from airsplit.core.files import write_text
from airsplit.core.formatting import choose_time_unit, pluralize
from airsplit.core.parsing import read_json
from airsplit.core.plugins import require_choice_or_path
from airsplit.report.charts import Axis, Line, legend, line_chart
from airsplit.report.markup import Html, prose, table, tag, together
from airsplit.report.page import document
from airsplit.report.scales import log_scale, loss_scale, span_scale, tick, value_scale
from airsplit.runs.comparison import AlgorithmSummary, Comparison, load_comparison, name_run_folder
from airsplit.runs.folder import RunFolder
from airsplit.runs.metric import Metric
from airsplit.runs.wording import ALGORITHM_TEXTS, NO_ENERGY, format_algorithm

KINDS = {
    "sfl": "blue",
    "fedavg": "orange",
    "split-learning": "red",
    "splitfed-v1": "purple",
    "splitfed-v2": "green",
}
FAR_APART = 8.0
"""Longest run ÷ shortest: from there on the axis of times is logarithmic."""
FACTS = "comparison.json"


def write_comparison(found: Comparison, folder: Path) -> Path:
    """Write report.html into the folder of a comparison; where it is."""
    file = folder / "report.html"
    write_text(file, document(_title(found), _main(found)))
    return file


def is_comparison(folder: str | os.PathLike[str]) -> bool:
    """Whether `airsplit compare` was at work here: a folder of runs, and not a run itself."""
    return (Path(folder) / FACTS).exists() and not RunFolder(folder).scenario_file.exists()


def read_comparison(folder: str | os.PathLike[str]) -> Comparison:
    """A comparison as its folder tells it; a FileProblem where something is missing in it."""
    algorithms, seeds, target = _facts(Path(folder) / FACTS)
    return load_comparison(folder, None, algorithms, seeds, target)


def _facts(file: Path) -> tuple[list[str], tuple[int, ...], float]:
    """Algorithms, seeds and target of comparison.json."""
    try:
        said: dict[str, Any] = read_json(file, what="comparison")
        algorithms, seeds = (
            [str(row["algorithm"]) for row in said["algorithms"]],
            tuple(map(int, said["seeds"])),
        )
        target = float(said["target"])
    except (ValueError, TypeError, KeyError):
        raise FileProblem(
            f"comparison {str(file)!r} is not one; was it written by airsplit compare?"
        ) from None
    if (
        not seeds
        or not algorithms
        or not all(":" in algorithm or algorithm in KINDS for algorithm in algorithms)
    ):
        raise FileProblem(
            f"comparison {str(file)!r} must name seeds and algorithms: {', '.join(KINDS)} or package.module:NAME"
        )
    for algorithm in algorithms:
        require_choice_or_path(
            f"algorithm of comparison {str(file)!r}", algorithm
        )  # a folder is called by it
    return algorithms, seeds, target


def _title(found: Comparison) -> str:
    names = [format_algorithm(algorithm) for algorithm in found.trials]
    return (
        f"{', '.join(names[:-1])} and {names[-1]} side by side"
        if len(names) > 1
        else f"{names[0]}, {pluralize(len(found.seeds), 'seed')}"
    )


def _main(found: Comparison) -> Html:
    top = tag(
        "header",
        tag("h1", _title(found)),
        tag("p", found.describe(), class_="under"),
        prose(found.headline, "lead"),
    )
    body = [[format_algorithm(row.algorithm), *found.format_row(row)] for row in found.rows]
    numbers = together(
        tag("h2", "In numbers"), table(["algorithm", *found.columns], body, words=("algorithm",))
    )
    energy = "" if found.has_energy else f"Energy is {NO_ENERGY}. "
    foot = f"{energy}Times are virtual: what the devices would have taken, not this computer. Every number is in comparison.json."
    sections = [
        tag("section", inside)
        for inside in (_curves(found), numbers, _algorithms(found), _runs(found))
        if inside
    ]
    return together(tag("main", top, *sections), tag("footer", foot))


def _curves(found: Comparison) -> Html:
    """The metric over time and over rounds, in the mean over seeds."""
    if not found.has_metric:
        return Html()
    curves = {algorithm: trials.curve() for algorithm, trials in found.finished.items()}
    ends = [float(times.mean(axis=0)[-1]) for _, times, _ in curves.values()]
    unit_s, unit = choose_time_unit(max(ends))
    starts = [float(times.mean(axis=0)[0]) / unit_s for _, times, _ in curves.values()]
    log = max(ends) > FAR_APART * min(ends)
    across_time = Axis(
        log_scale(min(starts), max(ends) / unit_s) if log else span_scale(max(ends) / unit_s),
        f"virtual time in {unit}{', logarithmic' if log else ''}",
        tick,
    )
    last = max(float(rounds[-1]) for rounds, _, _ in curves.values())
    panels = [
        (
            "virtual time",
            {a: times.mean(axis=0) / unit_s for a, (_, times, _) in curves.items()},
            across_time,
        ),
        (
            "rounds",
            {a: rounds for a, (rounds, _, _) in curves.items()},
            Axis(span_scale(last, whole=True), "round", tick),
        ),
    ]
    means = {algorithm: values.mean(axis=0) for algorithm, (_, _, values) in curves.items()}
    name = "Accuracy" if found.metric.is_accuracy else found.metric.name
    figures = [
        _panel(f"{name} over {over}", x, means, axis, found.metric) for over, x, axis in panels
    ]
    keys = legend(
        [
            Line(format_algorithm(algorithm), KINDS.get(algorithm, "ink"), np.zeros(0))
            for algorithm in curves
        ]
    )
    return together(tag("h2", "How they learned"), tag("div", *figures, class_="panels"), keys)


def _panel(
    caption: str, x: dict[str, Floats], means: dict[str, Floats], across: Axis, metric: Metric
) -> Html:
    points = np.unique(np.concatenate(list(x.values())))
    lines = []
    for algorithm, values in means.items():
        spread = np.full(len(points), np.nan)
        spread[np.searchsorted(points, x[algorithm])] = values
        lines.append(Line(format_algorithm(algorithm), KINDS.get(algorithm, "ink"), spread))
    alt = f"{caption}. " + " ".join(
        f"{format_algorithm(a)}: {metric.show(float(values[-1]))} at the end."
        for a, values in means.items()
    )
    every = np.concatenate(list(means.values()))
    if metric.is_accuracy:
        up = Axis(value_scale(float(every.max()), ceiling=1.0), "", lambda v: f"{100 * v:g} %")
    else:
        scale = loss_scale(every)
        up = Axis(scale, "logarithmic" if scale.log else "", tick)
    return tag("figure", tag("figcaption", caption), line_chart(points, across, up, lines, alt=alt))


def _algorithms(found: Comparison) -> Html:
    pairs = [
        together(tag("dt", format_algorithm(a)), tag("dd", ALGORITHM_TEXTS[a][1]))
        for a in found.trials
        if a in ALGORITHM_TEXTS
    ]
    return together(tag("h2", "What they do"), tag("dl", *pairs, class_="facts"))


def _runs(found: Comparison) -> Html:
    """Links to the pages of the runs, which lie beside this one."""
    rows = [
        tag("li", format_algorithm(row.algorithm), ": ", *_links(row, found.seeds))
        for row in found.rows
    ]
    return together(tag("h2", "Each run"), tag("ul", *rows))


def _links(row: AlgorithmSummary, seeds: tuple[int, ...]) -> list[Html]:
    found = [
        tag("a", f"seed {seed}", href=f"{name_run_folder(row.algorithm, seed)}/report.html")
        for seed in seeds
    ]
    return [together(each, " ") for each in found]
