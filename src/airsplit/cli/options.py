"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RUNS = Path("runs")
"""Where runs go and are looked for, where no folder is named."""

Scenario = Annotated[
    str, typer.Argument(metavar="SCENARIO", help="A TOML file or the name of a preset.")
]
Set = Annotated[
    list[str] | None,
    typer.Option(help="Change a setting: fleet.devices=5; repeat for more.", metavar="KEY=VALUE"),
]
TrustRun = Annotated[
    bool, typer.Option("--trust-run", help="Use code that only a run folder names.")
]
DataFolder = Annotated[
    Path | None,
    typer.Option(
        help="Where data sets are; else AIRSPLIT_DATA, else the user's cache.", metavar="DIR"
    ),
]


def _picture(file: Path | None) -> Path | None:
    """A name that is none of a picture is refused before anything slow."""
    if file is not None:
        from airsplit.plots.style import get_picture_format

        get_picture_format(file)
    return file


Plot = Annotated[
    Path | None,
    typer.Option(help="Draw it: a .png, .svg or .pdf.", metavar="FILE", callback=_picture),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]

Address = Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where the server listens.")]
Identity = Annotated[
    Path | None, typer.Option(help="The folder with certificate and key.", metavar="DIR")
]
Certificate = Annotated[
    Path | None, typer.Option(help="Own certificate; with --key and --authority.", metavar="PEM")
]
Key = Annotated[Path | None, typer.Option(help="The key of --certificate.", metavar="PEM")]
Authority = Annotated[
    Path | None, typer.Option(help="The authority that signs the other side's.", metavar="PEM")
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Plain text, also outside loopback.")]
