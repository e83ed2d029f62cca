"""The commands presets, report and figures: what is there already, and what came of it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from airsplit.cli import arguments as sources
from airsplit.cli.options import AsJson, DataFolder
from airsplit.cli.output import json_text, note, print_parts
from airsplit.core.errors import UnknownName, require_choice, show

SCALES = ("smoke", "paper")


def presets(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Print this one, as TOML.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the scenarios that come along, or print one as TOML.

    \b
    Examples:
      airsplit presets
      airsplit presets demo > my.toml
    """
    from airsplit.scenario.presets import describe, list_presets, preset

    descriptions = {each: describe(each) for each in ([name] if name else list_presets())}
    if name is None and as_json:
        print(
            json_text([{"name": each, "description": text} for each, text in descriptions.items()])
        )
    elif name is None:
        from airsplit.cli.render import preset_table

        print_parts(preset_table(descriptions))
    elif as_json:
        print(json_text(sources.scenario(name, None, []).model_dump()))
    else:
        print(preset(name), end="")


def report(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run folder, or the folder of a comparison.")
    ],
    as_json: AsJson = False,
) -> None:
    """Write report.html of a run or a comparison; print its path.

    One page that needs neither the network nor scripts: results, charts,
    where each device's time goes, the plan and how good it can be at best;
    of a comparison, its algorithms side by side.  The run need not be over.

    \b
    Examples:
      airsplit report runs/demo
      airsplit report runs/demo-compared
    """
    from airsplit.report.comparison_page import is_comparison, read_comparison, write_comparison
    from airsplit.report.page import write_report

    written = (
        write_comparison(read_comparison(run), run) if is_comparison(run) else write_report(run)
    )
    print(json_text({"report": str(written)}) if as_json else written)


def figures(
    numbers: Annotated[
        list[str] | None,
        typer.Argument(metavar="NUMBERS", help="The paper's figures; none: all that need no GPU."),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="The folder for the figures and claims.json.", metavar="DIR")
    ] = Path("figures"),
    scale: Annotated[
        str, typer.Option(help="smoke: quick; paper: as in the paper.", metavar="SCALE")
    ] = "smoke",
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Draw the paper's figures and check its claims.

    Figures 9, 10 and 14 show accuracy.  At the scale of the paper they train
    for an hour on a large GPU, so they are drawn only when named; each
    training is kept in runs.jsonl in the folder, and none is done twice.

    \b
    Examples:
      airsplit figures
      airsplit figures 3 4 11 --out out/figures
      airsplit figures --scale paper
      airsplit figures 9 10 14 --scale paper --data ~/data
    """
    require_choice("--scale", scale, SCALES)
    from airsplit.paper.figures import FIGURES, draw

    known = {str(number): number for number in FIGURES}
    for number in numbers or []:
        if number not in known:
            raise UnknownName(f"figure {show(number)} is not known. Known: {', '.join(known)}")
    claims = draw(
        [known[number] for number in numbers] if numbers else None, out, scale, note, data=data
    )
    note(f"wrote each figure as .json, .png and .svg, and claims.json, into {out}")
    if as_json:
        print(json_text([asdict(claim) for claim in claims]))
        return
    from airsplit.cli.render import claims_table

    print_parts(claims_table(claims))


COMMANDS = (presets, report, figures)
