"""The command dashboard."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from airsplit.cli.options import RUNS
from airsplit.cli.output import note
from airsplit.core.errors import FileProblem


def dashboard(
    runs: Annotated[
        Path, typer.Argument(metavar="RUNS", help="The folder that run folders are in.")
    ] = RUNS,
    host: Annotated[
        str, typer.Option(help="The address to listen on.", metavar="HOST")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="The port; 0: any that is free.", metavar="PORT", min=0, max=65535)
    ] = 8080,
    name: Annotated[
        list[str] | None,
        typer.Option(help="A name that the server goes by; repeat for more.", metavar="NAME"),
    ] = None,
    browse: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Serve a web page: plan with sliders, and watch your runs.

    The playground shows splits, shares and latencies change as the sliders
    move; the runs page follows all runs in a folder, simulated or networked.
    Needs the extra [dashboard].

    It listens on loopback.  Elsewhere it asks for a token, which is in the
    address that is printed once; plain HTTP can be read on the way, so use a
    tunnel, as ssh -L, outside a network that you trust.

    \b
    Examples:
      airsplit dashboard
      airsplit dashboard experiments --port 9000 --open
      airsplit dashboard --host 0.0.0.0 --name lab.example.org
    """
    from airsplit.dashboard.server import Dashboard

    if runs == RUNS:
        _make_folder(runs)
    made = Dashboard(runs, host=host, port=port, names=tuple(name or ()))
    if browse:
        webbrowser.open(made.address)  # it listens already

    def say_where() -> None:
        note(f"the dashboard is at {made.address}")
        note(f"runs are looked for in {runs}; Ctrl-C stops it")

    made.run(on_ready=say_where)


def _make_folder(runs: Path) -> None:
    """Make the usual folder where it is missing: who looks before the first run is to see that run come."""
    try:
        runs.mkdir(exist_ok=True)
    except FileExistsError:
        pass  # a file, which the dashboard refuses
    except OSError as error:
        raise FileProblem(
            f"folder {str(runs)!r} cannot be made here: {error.strerror}; name the folder that runs are in"
        ) from None
