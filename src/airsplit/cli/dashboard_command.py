"""The command dashboard."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from airsplit.cli.arguments import RUNS
from airsplit.cli.output import note
from airsplit.core.errors import FileProblem


def dashboard(
    runs: Annotated[Path, typer.Argument(metavar="RUNS", help="Folder of the run folders.")] = RUNS,
    host: Annotated[str, typer.Option(help="Address to listen on.", metavar="HOST")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port; 0 for any free one.", metavar="PORT", min=0, max=65535)
    ] = 8080,
    name: Annotated[
        list[str] | None,
        typer.Option(help="Host name of the server; repeatable.", metavar="NAME"),
    ] = None,
    browse: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Serve a web page: plan with sliders, and watch your runs.

    In the playground, splits, shares and latencies follow the sliders. The
    runs page follows all runs in a folder, simulated or networked. Needs the
    extra [dashboard].

    It listens on loopback. On other addresses it asks for a token, which is
    part of the address that it prints. HTTP is not encrypted, so use a tunnel,
    such as ssh -L, on networks that you do not trust.

    \b
    Examples:
      airsplit dashboard
      airsplit dashboard experiments --port 9000 --open
      airsplit dashboard --host 0.0.0.0 --name lab.example.org
    """
    from airsplit.dashboard.server import Dashboard

    # Create only the default folder: a typing error in another name must not create one.
    if runs == RUNS:
        try:
            runs.mkdir(exist_ok=True)
        except FileExistsError:
            # A file by that name: the dashboard rejects it.
            pass
        except OSError as error:
            raise FileProblem(
                f"folder {str(runs)!r} cannot be created here: {error.strerror}; "
                "name the folder of your runs"
            ) from None

    server = Dashboard(runs, host=host, port=port, names=tuple(name or ()))
    # The server already listens, so the browser's first request waits for it.
    if browse:
        webbrowser.open(server.address)

    def announce() -> None:
        note(f"the dashboard is at {server.address}")
        note(f"it shows the runs in {runs}; stop it with Ctrl-C")

    server.run(on_ready=announce)
