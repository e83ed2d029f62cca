"""The commands report and figures: pages and figures of results."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from airsplit.cli.arguments import AsJson, DataFolder
from airsplit.cli.output import format_json, note, print_parts
from airsplit.core.errors import UnknownName, require_choice, show
from airsplit.paper.sweeps import SCALES


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run or of a comparison.")],
    as_json: AsJson = False,
) -> None:
    """Write report.html of a run or a comparison, and print its path.

    The report is one page that needs neither a network nor scripts: results,
    charts, where each device's time goes, the plan and its bound; or, of a
    comparison, its algorithms side by side. The run may still be going on.

    \b
    Examples:
      airsplit report runs/demo
      airsplit report runs/demo-compared
    """
    from airsplit.report.comparison_page import is_comparison, read_comparison, write_comparison
    from airsplit.report.page import write_report

    if is_comparison(run):
        page = write_comparison(read_comparison(run), run)
    else:
        page = write_report(run)
    if as_json:
        print(format_json({"report": str(page)}))
    else:
        print(page)


def figures(
    numbers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NUMBERS", help="Figures of the paper (default: all that need no GPU)."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for the figures and claims.json.", metavar="DIR")
    ] = Path("figures"),
    scale: Annotated[
        str, typer.Option(help="smoke (quick) or paper (as in the paper).", metavar="SCALE")
    ] = "smoke",
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Draw the paper's figures and check its claims.

    Figures 9, 10 and 14 show accuracy. At the scale of the paper they train
    for an hour on a large GPU, so they are drawn only if named. Trainings are
    recorded in runs.jsonl in the folder, and none is run twice.

    \b
    Examples:
      airsplit figures
      airsplit figures 3 4 11 --out out/figures
      airsplit figures --scale paper
      airsplit figures 9 10 14 --scale paper --data ~/data
    """
    require_choice("--scale", scale, SCALES)
    from airsplit.paper.figures import FIGURES, draw

    # Check all numbers before the first figure is drawn, which may take a while.
    known = {str(number): number for number in FIGURES}
    for number in numbers or []:
        if number not in known:
            raise UnknownName(f"figure {show(number)} is not known. Known: {', '.join(known)}")
    chosen = [known[number] for number in numbers or []]

    claims = draw(chosen or None, out, scale, note, data=data)
    note(f"wrote each figure as .json, .png and .svg, and claims.json, into {out}")
    if as_json:
        print(format_json([asdict(claim) for claim in claims]))
        return

    from airsplit.cli.tables import claims_table

    print_parts(claims_table(claims))
