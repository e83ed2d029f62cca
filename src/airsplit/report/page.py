"""report.html of a run folder: one self-contained page, without scripts and without the network."""

from __future__ import annotations

import os
from functools import cache
from importlib import resources
from pathlib import Path

from airsplit.core import palette
from airsplit.core.errors import FileProblem
from airsplit.core.files import write_text
from airsplit.report.devices import participation, time_spent
from airsplit.report.learning import learning
from airsplit.report.markup import Html, tag, together
from airsplit.report.overview import result, setup, title
from airsplit.report.plan_section import measured, new_plans, the_plan
from airsplit.runs.folder import RunFolder
from airsplit.runs.history import History
from airsplit.runs.provenance import VERSION

# nothing is loaded and nothing runs: should a name ever slip through the escaping, it is still only text
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def write_report(run_folder: str | os.PathLike[str]) -> Path:
    """Write report.html of a run, finished or not, into its folder; where it is.

    The same folder gives the same bytes.  A FileProblem says what is missing in a folder that is not a run's.
    """
    folder = RunFolder(run_folder)
    if not folder.scenario_file.exists():
        way = "name a folder that airsplit run, serve or compare wrote"
        raise FileProblem(
            f"scenario of the run {str(folder.scenario_file)!r} does not exist; {way}"
        )
    write_text(folder.report_file, page(History(folder)))
    return folder.report_file


def page(run: History) -> str:
    """The whole page."""
    return document(title(run), _main(run, VERSION))


def document(name: str, body: Html) -> str:
    """A page of this name, with all that it needs in it."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{name} · Airsplit"),
        tag("link", rel="icon", href="data:,"),
        tag("style", Html(read_style_sheet())),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', body), lang='en')}\n"


@cache
def read_style_sheet() -> str:
    """Return the CSS of every page: the colors, then report.css."""
    css = resources.files("airsplit.report").joinpath("report.css").read_text(encoding="utf-8")
    return palette.format_css(palette.LIGHT, palette.DARK) + css


def _main(run: History, version: str) -> Html:
    training = run.scenario.training
    under = f"{training.dataset} · {training.partition} · {len(run.records):,} of {training.rounds:,} rounds"
    if run.divergence is not None:
        under += f", diverged in round {run.divergence.round:,}"
    top = tag("header", tag("h1", title(run)), tag("p", under, class_="under"), result(run))
    sections = (
        setup(run, version),
        learning(run),
        time_spent(run),
        the_plan(run),
        measured(run),
        participation(run),
        new_plans(run),
    )
    virtual = "Times are virtual: what the devices would have taken, not this computer."
    times = (
        virtual
        if run.time_name == "virtual time"
        else "Times are those of the training over the network, evaluations left out."
    )
    foot = f"{times} Every number is in rounds.jsonl or plan.json."
    return together(
        tag("main", top, *(tag("section", inside) for inside in sections if inside)),
        tag("footer", foot),
    )
