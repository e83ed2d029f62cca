"""Every figure at a tiny scale: files, settings, axes, repeatability, bad input."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import matplotlib
import pytest
from matplotlib.patches import Rectangle

from airsplit import __version__
from airsplit.core.errors import FileProblem, InvalidValue
from airsplit.paper.claims import STATEMENTS, judge_claims
from airsplit.paper.figures import FIGURES, draw, draw_one
from paper.tiny_figures import (
    TINY,
    TRAINING_FIGURES,
    ignore_progress,
    list_legends,
    read_numbers,
    redraw,
)


@pytest.mark.parametrize("number", FIGURES)
def test_nothing_is_cut_off_at_the_edge_of_the_picture(folder, number):
    figure = redraw(read_numbers(folder, number))
    used = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert min(used.x0, used.y0) >= 0
    assert used.x1 <= width
    assert used.y1 <= height


@pytest.mark.parametrize("number", FIGURES)
def test_no_bar_stands_on_a_logarithmic_axis(folder, number):
    # Its length would depend on where the axis happens to begin.
    for axes in redraw(read_numbers(folder, number)).axes:
        if axes.get_yscale() == "log":
            assert not [patch for patch in axes.patches if isinstance(patch, Rectangle)]


@pytest.mark.parametrize("number", FIGURES)
def test_every_logarithmic_axis_has_ticks_with_numbers(folder, number):
    for axes in redraw(read_numbers(folder, number)).axes:
        for axis in (axes.xaxis, axes.yaxis):
            if axis.get_scale() == "log":
                low, high = axis.get_view_interval()
                assert sum(low <= tick <= high for tick in axis.get_majorticklocs()) >= 2


@pytest.mark.parametrize("number", [4, 5, 6])
def test_solid_and_dotted_lines_are_in_a_legend(folder, number):
    figure = redraw(read_numbers(folder, number))
    explained = {
        line.get_linestyle() for legend in list_legends(figure) for line in legend.get_lines()
    }
    drawn = {line.get_linestyle() for axes in figure.axes for line in axes.lines}
    assert {"-", ":"} <= drawn <= explained


@pytest.mark.parametrize("number", FIGURES)
def test_a_figure_is_written_as_json_svg_and_png(folder, number):
    stem = folder / FIGURES[number].stem
    data = json.loads(stem.with_suffix(".json").read_text(encoding="utf-8"))
    assert data["figure"] == number
    assert data["scale"] == "tiny"
    assert data["settings"]["airsplit_version"] == __version__
    assert stem.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    svg = ElementTree.fromstring(stem.with_suffix(".svg").read_bytes())  # noqa: S314 - our own file
    assert svg.tag.endswith("svg")


@pytest.mark.parametrize("number", [n for n in FIGURES if n not in (3, *TRAINING_FIGURES)])
def test_the_settings_of_a_figure_of_latency_list_fleets_models_and_cell(folder, number):
    settings = read_numbers(folder, number)["settings"]
    assert settings["fleets"] == (1 if number == 13 else 2)
    assert settings["first_seed"] == 0
    assert settings["last_seed"] == settings["fleets"] - 1
    assert settings["batch_size"] in (30, 32)
    assert all(len(fingerprint) == 16 for fingerprint in settings["models"].values())
    assert settings["cell"]["noise_dbm"] == -114.0


@pytest.mark.parametrize("number", TRAINING_FIGURES)
def test_the_settings_of_a_figure_of_accuracy_list_data_and_rounds(folder, number):
    settings = read_numbers(folder, number)["settings"]
    assert settings["datasets"] == ["digits"]
    assert settings["rounds"] == 2
    assert settings["iterations_per_round"] == 1
    assert all(len(fingerprint) == 16 for fingerprint in settings["models"].values())


def test_no_file_is_left_half_written(folder):
    assert sorted({path.suffix for path in folder.iterdir()}) == [".json", ".png", ".svg"]
    assert len(list(folder.iterdir())) == 3 * len(FIGURES)


def test_every_claim_has_a_figure_and_is_judged(folder):
    claims = judge_claims({number: read_numbers(folder, number) for number in FIGURES})
    assert [claim.id for claim in claims] == [statement.id for statement in STATEMENTS]
    for claim in claims:
        assert claim.measured.endswith(".")
        assert "nan" not in claim.measured
        assert isinstance(claim.holds, bool)


@pytest.mark.parametrize("number", [7, 11])
def test_the_same_numbers_give_the_same_files(folder, tmp_path, number):
    draw_one(FIGURES[number], tmp_path, TINY, ignore_progress)
    for suffix in (".json", ".svg"):
        name = FIGURES[number].stem + suffix
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_drawing_needs_only_the_json(folder):
    data = read_numbers(folder, 12)
    assert len(FIGURES[12].draw(data).axes) == 4


def test_draw_writes_the_claims_of_the_drawn_figures(tmp_path):
    lines: list[str] = []
    claims = draw([3, 3], tmp_path / "new" / "folder", "smoke", lines.append)
    written = json.loads((tmp_path / "new" / "folder" / "claims.json").read_text(encoding="utf-8"))
    assert [claim.id for claim in claims] == ["C1", "C2"]
    assert all(claim.holds for claim in claims)
    assert [list(entry) for entry in written] == [["id", "claim", "measured", "holds"]] * 2
    assert lines == ["figure 3: Work and output size of each AlexNet layer"]


@pytest.mark.parametrize("number", [2, 15, 99, "4", True, 3.5, None])
def test_an_unknown_figure_is_rejected_before_any_work(tmp_path, number):
    with pytest.raises(InvalidValue, match=r"figure .* is not known\. Known: 3, 4, 5"):
        draw([3, number], tmp_path / "out", "smoke", ignore_progress)
    assert not (tmp_path / "out").exists()


def test_an_unknown_scale_is_rejected(tmp_path):
    with pytest.raises(InvalidValue, match="scale 'papre' is not known; did you mean 'paper'"):
        draw([3], tmp_path / "out", "papre", ignore_progress)


def test_a_file_in_place_of_the_folder_is_rejected_before_any_work(tmp_path):
    (tmp_path / "out").write_text("in the way")
    lines: list[str] = []
    with pytest.raises(FileProblem, match="cannot create the folder"):
        draw(None, tmp_path / "out", "smoke", lines.append)
    assert lines == []


def test_drawing_leaves_the_users_matplotlib_settings_alone(tmp_path):
    before = dict(matplotlib.rcParams)
    draw([3], tmp_path, "smoke", ignore_progress)
    assert dict(matplotlib.rcParams) == before


def test_the_package_loads_no_plotting_library_and_the_figures_no_pyplot():
    code = (
        "import sys, airsplit; assert 'matplotlib' not in sys.modules; "
        "import airsplit.paper.figures; assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
