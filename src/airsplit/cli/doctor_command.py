"""The command doctor."""

from __future__ import annotations

from dataclasses import asdict

import typer

from airsplit.cli.options import AsJson, DataFolder
from airsplit.cli.output import json_text, print_parts

BROKEN = 1
STYLES = {"works": "green", "absent": "yellow", "broken": "bold red"}


def doctor(data: DataFolder = None, as_json: AsJson = False) -> None:
    """Say what works on this machine, and how to get the rest.

    Plans, cuts a small model, looks for a GPU, the extras and data sets, and
    tries to write.  What is absent can be had, as its line says; the exit
    code is 1 where something is broken that should work.

    \b
    Examples:
      airsplit doctor
      airsplit doctor --data ~/data --json
    """
    from rich.text import Text

    from airsplit.cli.doctor import examine
    from airsplit.cli.render import table

    found = examine(data)
    if as_json:
        print(json_text([asdict(finding) for finding in found]))
    else:
        shown = table("part", "state", "says", words=("part", "state"), prose=("says",))
        for finding in found:
            shown.add_row(
                finding.part, Text(finding.state, style=STYLES[finding.state]), finding.says
            )
        print_parts(shown)
    if any(finding.state == "broken" for finding in found):
        raise typer.Exit(BROKEN)
