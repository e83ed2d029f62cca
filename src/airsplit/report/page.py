"""report.html of a run folder: one self-contained page, without scripts and without the network."""

from __future__ import annotations

import os
from functools import cache
from importlib import resources
from pathlib import Path

from airsplit.core import palette
from airsplit.core.errors import FileProblem
from airsplit.core.files import write_text
from airsplit.report.devices import device_times, participation
from airsplit.report.learning import learning_curves
from airsplit.report.markup import Html, join, tag
from airsplit.report.overview import result, setup, title
from airsplit.report.plan_section import initial_plan, measured_times, replanning
from airsplit.runs.folder import RunFolder
from airsplit.runs.history import History
from airsplit.runs.provenance import VERSION

# A page loads nothing and runs nothing, so a name that slipped through the escaping would still
# be only text.
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)


def write_report(run_folder: str | os.PathLike[str]) -> Path:
    """Write report.html of a run, finished or not, into its folder, and return its path.

    The same folder gives the same bytes.

    Raises:
        FileProblem: A file of the run is missing or invalid.
    """
    folder = RunFolder(run_folder)
    if not folder.scenario_file.exists():
        raise FileProblem(
            f"scenario of the run {str(folder.scenario_file)!r} does not exist; "
            "name a folder that airsplit run, serve or compare wrote"
        )
    write_text(folder.report_file, format_page(History(folder)))
    return folder.report_file


def format_page(run: History) -> str:
    """Return the page of a run."""
    return format_document(title(run), _body(run))


def format_document(name: str, body: Html) -> str:
    """Return a page with a title, and with everything in it that it needs."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{name} · Airsplit"),
        # An empty icon; browsers would ask the server for one.
        tag("link", rel="icon", href="data:,"),
        tag("style", Html(read_style_sheet())),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', body), lang='en')}\n"


@cache
def read_style_sheet() -> str:
    """Return the CSS of every page: the colors, then report.css."""
    css = resources.files("airsplit.report").joinpath("report.css").read_text(encoding="utf-8")
    return palette.format_css(palette.LIGHT, palette.DARK) + css


def _body(run: History) -> Html:
    training = run.scenario.training
    subtitle = f"{training.dataset} · {training.partition} · "
    subtitle += f"{len(run.records):,} of {training.rounds:,} rounds"
    if run.divergence is not None:
        subtitle += f", diverged in round {run.divergence.round:,}"
    header = tag("header", tag("h1", title(run)), tag("p", subtitle, class_="under"), result(run))

    sections = (
        setup(run, VERSION),
        learning_curves(run),
        device_times(run),
        initial_plan(run),
        measured_times(run),
        participation(run),
        replanning(run),
    )
    # A section that has nothing to show is empty.
    shown = [tag("section", section) for section in sections if section]

    if run.is_networked:
        times = "Times were measured in training over the network, without evaluations."
    else:
        times = "Times are virtual: those of the devices, not of this computer."
    footer = tag("footer", f"{times} All numbers are in rounds.jsonl and plan.json.")
    return join(tag("main", header, *shown), footer)
