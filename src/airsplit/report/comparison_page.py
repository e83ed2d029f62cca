"""report.html of a comparison: algorithms side by side, with links to the pages of their runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from airsplit.core import palette
from airsplit.core.arrays import Floats
from airsplit.core.errors import FileProblem
from airsplit.core.files import write_text
from airsplit.core.formatting import choose_time_unit, pluralize
from airsplit.core.parsing import read_json
from airsplit.core.plugins import require_choice_or_path
from airsplit.report.charts import Axis, Line, legend, line_chart, loss_axis
from airsplit.report.markup import Html, join, paragraph, table, tag
from airsplit.report.page import format_document
from airsplit.report.scales import format_tick, log_scale, span_scale, value_scale
from airsplit.runs.comparison import Comparison, load_comparison, name_run_folder
from airsplit.runs.folder import RunFolder
from airsplit.runs.metric import Metric
from airsplit.runs.wording import ALGORITHM_TEXTS, NO_ENERGY, format_algorithm
from airsplit.scenario.run_files import REPORT_FILE
from airsplit.scenario.settings import ALGORITHMS

# Longest run ÷ shortest, from which the axis of times is logarithmic.
FAR_APART = 8.0
COMPARISON_FILE = "comparison.json"


def write_comparison(comparison: Comparison, folder: Path) -> Path:
    """Write report.html into the folder of a comparison, and return its path."""
    file = folder / REPORT_FILE
    write_text(file, format_document(_title(comparison), _body(comparison)))
    return file


def is_comparison(folder: str | os.PathLike[str]) -> bool:
    """Return whether `airsplit compare` wrote a folder: one of runs, and not a run itself."""
    has_file = (Path(folder) / COMPARISON_FILE).exists()
    return has_file and not RunFolder(folder).scenario_file.exists()


def read_comparison(folder: str | os.PathLike[str]) -> Comparison:
    """Read a comparison from its folder.

    Raises:
        FileProblem: A file is missing or invalid.
    """
    file = Path(folder) / COMPARISON_FILE
    try:
        content: dict[str, Any] = read_json(file, what="comparison")
        algorithms = [str(row["algorithm"]) for row in content["algorithms"]]
        seeds = tuple(map(int, content["seeds"]))
        target = float(content["target"])
    except (ValueError, TypeError, KeyError):
        raise FileProblem(
            f"comparison {str(file)!r} is not one; was it written by airsplit compare?"
        ) from None

    are_known = all(":" in algorithm or algorithm in ALGORITHMS for algorithm in algorithms)
    if not seeds or not algorithms or not are_known:
        raise FileProblem(
            f"comparison {str(file)!r} must name seeds and algorithms: "
            f"{', '.join(ALGORITHMS)} or package.module:NAME"
        )
    for algorithm in algorithms:
        # An algorithm names folders, so it must not lead out of this one.
        require_choice_or_path(f"algorithm of comparison {str(file)!r}", algorithm)
    # Only these are read from the file; results come from the folders of the runs.
    return load_comparison(folder, None, algorithms, seeds, target)


def _title(comparison: Comparison) -> str:
    names = [format_algorithm(algorithm) for algorithm in comparison.trials]
    if len(names) == 1:
        return f"{names[0]}, {pluralize(len(comparison.seeds), 'seed')}"
    return f"{', '.join(names[:-1])} and {names[-1]} side by side"


def _body(comparison: Comparison) -> Html:
    header = tag(
        "header",
        tag("h1", _title(comparison)),
        tag("p", comparison.describe(), class_="under"),
        paragraph(comparison.headline, "lead"),
    )
    sections = (
        curves_section(comparison),
        results_section(comparison),
        algorithms_section(comparison),
        runs_section(comparison),
    )
    shown = [tag("section", section) for section in sections if section]
    footer = (
        "Times are virtual: those of the devices, not of this computer. "
        "All numbers are in comparison.json."
    )
    if not comparison.has_energy:
        footer = f"Energy is {NO_ENERGY}. {footer}"
    return join(tag("main", header, *shown), tag("footer", footer))


def curves_section(comparison: Comparison) -> Html:
    """Return the metric over time and over rounds, as means over seeds; empty without a metric."""
    if not comparison.has_metric:
        return Html()

    rounds = {}
    times = {}
    means = {}
    # An algorithm has no curve if all its runs diverged.
    for algorithm, trials in comparison.finished_trials.items():
        rounds[algorithm], times_s, values = trials.curve()
        times[algorithm] = times_s.mean(axis=0)
        means[algorithm] = values.mean(axis=0)

    ends = [float(column[-1]) for column in times.values()]
    # One unit for all: the slowest algorithm's, since its time sets the end of the axis.
    unit_s, unit = choose_time_unit(max(ends))
    times = {algorithm: column / unit_s for algorithm, column in times.items()}
    if max(ends) > FAR_APART * min(ends):
        start = min(float(column[0]) for column in times.values())
        scale = log_scale(start, max(ends) / unit_s)
        over_time = Axis(scale, f"virtual time in {unit}, logarithmic", format_tick)
    else:
        over_time = Axis(span_scale(max(ends) / unit_s), f"virtual time in {unit}", format_tick)

    last = max(float(column[-1]) for column in rounds.values())
    over_rounds = Axis(span_scale(last, whole=True), "round", format_tick)

    metric = comparison.metric
    name = "Accuracy" if metric.is_accuracy else metric.name
    panels = [
        _panel(f"{name} over virtual time", times, means, over_time, metric),
        _panel(f"{name} over rounds", rounds, means, over_rounds, metric),
    ]
    # One legend for both panels; it needs no values.
    keys = legend([_line(algorithm, np.zeros(0)) for algorithm in rounds])
    return join(tag("h2", "Learning curves"), tag("div", *panels, class_="panels"), keys)


def _line(algorithm: str, values: Floats) -> Line:
    # Classes of report.css; an algorithm of the user's own is drawn in ink.
    kind = palette.ALGORITHMS.get(algorithm, "ink")
    return Line(format_algorithm(algorithm), kind, values)


def _panel(
    caption: str, x: dict[str, Floats], means: dict[str, Floats], horizontal: Axis, metric: Metric
) -> Html:
    # A chart has common x, so each line gets the points of all, with gaps.
    points = np.unique(np.concatenate(list(x.values())))
    lines = []
    for algorithm, values in means.items():
        padded = np.full(len(points), np.nan)
        padded[np.searchsorted(points, x[algorithm])] = values
        lines.append(_line(algorithm, padded))

    all_values = np.concatenate(list(means.values()))
    if metric.is_accuracy:
        scale = value_scale(float(all_values.max()), ceiling=1.0)
        vertical = Axis(scale, "", lambda v: f"{100 * v:g} %")
    else:
        vertical = loss_axis(all_values)
    ends = [
        f"{format_algorithm(algorithm)}: {metric.show(float(values[-1]))} at the end."
        for algorithm, values in means.items()
    ]
    alt = f"{caption}. {' '.join(ends)}"
    chart = line_chart(points, horizontal, vertical, lines, alt=alt)
    return tag("figure", tag("figcaption", caption), chart)


def results_section(comparison: Comparison) -> Html:
    """Return the table of results, a row for each algorithm."""
    rows = [
        [format_algorithm(row.algorithm), *comparison.format_row(row)] for row in comparison.rows
    ]
    numbers = table(["algorithm", *comparison.columns], rows, words=("algorithm",))
    return join(tag("h2", "Results"), numbers)


def algorithms_section(comparison: Comparison) -> Html:
    """Return what each built-in algorithm does."""
    pairs = []
    for algorithm in comparison.trials:
        if algorithm in ALGORITHM_TEXTS:
            title, text = ALGORITHM_TEXTS[algorithm]
            pairs.append(join(tag("dt", title), tag("dd", text)))
    return join(tag("h2", "Algorithms"), tag("dl", *pairs, class_="facts"))


def runs_section(comparison: Comparison) -> Html:
    """Return links to the pages of the runs, which are in folders next to this page."""
    rows = []
    for row in comparison.rows:
        links = []
        for seed in comparison.seeds:
            address = f"{name_run_folder(row.algorithm, seed)}/{REPORT_FILE}"
            links.append(join(tag("a", f"seed {seed}", href=address), " "))
        rows.append(tag("li", format_algorithm(row.algorithm), ": ", *links))
    return join(tag("h2", "Runs"), tag("ul", *rows))
