"""Drawing every figure at a tiny scale: files, numbers, determinism, bad input."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle

from airsplit import __version__
from airsplit.core.errors import FileProblem, InvalidValue
from airsplit.paper import fig10, fig13, fig14, studies
from airsplit.paper.claims import STATEMENTS, judge_claims
from airsplit.paper.figures import FIGURES, Scale, draw, draw_one
from airsplit.plots import style

TINY = Scale("tiny", 2, 1)


def silent(_: str) -> None:
    """Progress that nobody reads."""


ACCURACY = (9, 10, 14)
"""Figures that train."""


def let_training_be_tiny(patch: pytest.MonkeyPatch) -> None:
    small = {
        "model.arguments.width": 0.02,
        "training.rounds": 2,
        "training.iterations_per_round": 1,
        "training.batch_size": 2,
    }
    patch.setattr(studies, "BASE", small | {"training.evaluate_devices": 1})
    patch.setattr(studies, "SEEDS", 2)
    patch.setattr(studies, "JOBS", 1)
    patch.setattr(studies, "SMOKE", replace(studies.SMOKE, devices=(2, 3), limits=(4, 15)))
    for figure in (fig10, fig14):
        patch.setattr(figure, "DEVICES", 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out: Path = tmp_path_factory.mktemp("figures")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fig13, "DISTANCES_M", (100, 400))  # certificates take their time
        let_training_be_tiny(patch)
        for figure in FIGURES.values():
            draw_one(figure, out, TINY, silent)
    return out


def numbers_of(folder: Path, number: int) -> dict[str, Any]:
    return json.loads((folder / f"{FIGURES[number].stem}.json").read_text(encoding="utf-8"))


def drawing_of(data: dict[str, Any]) -> Canvas:
    with style.plot_style():
        figure = FIGURES[data["figure"]].draw(data)
        figure.draw_without_rendering()
    return figure


def caption_of(figure: Canvas) -> str:
    return " ".join(figure.get_supxlabel().split())


def legend_labels(figure: Canvas) -> list[str]:
    legends = [
        *figure.legends,
        *(axes.get_legend() for axes in figure.axes if axes.get_legend() is not None),
    ]
    return [text.get_text() for legend in legends for text in legend.get_texts()]


@pytest.mark.parametrize("number", FIGURES)
def test_nothing_is_cut_off_at_the_edge_of_the_picture(folder, number):
    figure = drawing_of(numbers_of(folder, number))
    used = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert min(used.x0, used.y0) >= 0
    assert used.x1 <= width
    assert used.y1 <= height


@pytest.mark.parametrize("number", FIGURES)
def test_no_bar_stands_on_a_logarithmic_axis(folder, number):
    """Its length would depend on where the axis happens to begin."""
    for axes in drawing_of(numbers_of(folder, number)).axes:
        if axes.get_yscale() == "log":
            assert not [patch for patch in axes.patches if isinstance(patch, Rectangle)]


@pytest.mark.parametrize("number", FIGURES)
def test_every_logarithmic_axis_has_ticks_with_numbers(folder, number):
    for axes in drawing_of(numbers_of(folder, number)).axes:
        for axis in (axes.xaxis, axes.yaxis):
            if axis.get_scale() == "log":
                low, high = axis.get_view_interval()
                assert sum(low <= tick <= high for tick in axis.get_majorticklocs()) >= 2


@pytest.mark.parametrize("number", [4, 5])
def test_rings_are_explained_only_where_they_are_drawn(folder, number):
    data = numbers_of(folder, number)
    for paper, exact in zip(data["curves"][::2], data["curves"][1::2], strict=True):
        paper["mean_latency_s"] = exact["mean_latency_s"]
        paper["mean_split"] = exact["mean_split"]
    same = drawing_of(data)
    assert "ring" not in caption_of(same)
    assert "the paper's algorithm" not in legend_labels(same)

    median = data["curves"][1]["mean_latency_s"]["median"]
    data["curves"][0]["mean_latency_s"] = {"median": [1.1 * value for value in median]}
    apart = drawing_of(data)
    assert "rings: the paper's algorithm" in caption_of(apart)
    assert "the paper's algorithm" in legend_labels(apart)


@pytest.mark.parametrize("number", [4, 5, 6])
def test_solid_and_dotted_lines_are_in_a_legend(folder, number):
    figure = drawing_of(numbers_of(folder, number))
    legends = [
        *figure.legends,
        *(axes.get_legend() for axes in figure.axes if axes.get_legend() is not None),
    ]
    explained = {line.get_linestyle() for legend in legends for line in legend.get_lines()}
    drawn = {line.get_linestyle() for axes in figure.axes for line in axes.lines}
    assert {"-", ":"} <= drawn <= explained


def test_figure_6_has_even_ticks_and_speeds_in_macs_a_second(folder):
    figure = drawing_of(numbers_of(folder, 6))
    for axes in figure.axes:
        assert len(set(np.diff(axes.get_yticks()))) == 1
    assert {axes.get_xlabel() for axes in figure.axes} == {"", "speed 1/a [GMAC/s]"}


@pytest.mark.parametrize("number", [7, 8])
def test_the_caption_says_that_slow_sending_is_on_purpose(folder, number):
    assert "those with time to spare send slowly on purpose" in caption_of(
        drawing_of(numbers_of(folder, number))
    )


@pytest.mark.parametrize(
    ("low", "high"), [(117, 280), (290, 740), (1, 4.9), (600, 8500), (4, 580), (1e-3, 1e3)]
)
def test_a_logarithmic_axis_has_some_round_ticks_and_not_too_many(low, high):
    axes = style.make_figure(1, 1, 2)[1][0, 0]
    axes.plot([0, 1], [low, high])
    style.set_log_scale(axes.yaxis)
    shown = [tick for tick in axes.get_yticks() if low <= tick <= high]
    assert 3 <= len(shown) <= 12
    assert all(float(f"{tick:.2g}") == pytest.approx(tick) for tick in shown)


@pytest.mark.parametrize("number", FIGURES)
def test_a_figure_is_written_as_json_svg_and_png(folder, number):
    stem = folder / FIGURES[number].stem
    data = json.loads(stem.with_suffix(".json").read_text(encoding="utf-8"))
    assert data["figure"] == number
    assert data["scale"] == "tiny"
    assert data["settings"]["airsplit_version"] == __version__
    assert stem.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert ElementTree.fromstring(stem.with_suffix(".svg").read_bytes()).tag.endswith("svg")  # noqa: S314 - our own file


@pytest.mark.parametrize("number", [n for n in FIGURES if n not in (3, *ACCURACY)])
def test_the_settings_say_what_the_numbers_depend_on(folder, number):
    given = numbers_of(folder, number)["settings"]
    assert given["fleets"] == (1 if number == 13 else 2)
    assert given["first_seed"] == 0
    assert given["last_seed"] == given["fleets"] - 1
    assert given["batch_size"] in (30, 32)
    assert all(len(fingerprint) == 16 for fingerprint in given["models"].values())
    assert given["cell"]["noise_dbm"] == -114.0


@pytest.mark.parametrize("number", ACCURACY)
def test_the_settings_say_what_was_trained(folder, number):
    given = numbers_of(folder, number)["settings"]
    assert (given["datasets"], given["rounds"], given["iterations_per_round"]) == (["digits"], 2, 1)
    assert all(len(fingerprint) == 16 for fingerprint in given["models"].values())


def test_what_a_scheme_is_ahead_is_worked_out_seed_by_seed(folder):
    for panel in numbers_of(folder, 9)["panels"]:
        moment = np.mean([times[0] for times in panel["sfl"]["virtual_time_s"]])
        before = [
            max([a for t, a in zip(times, accuracies, strict=True) if t <= moment], default=0.1)
            for times, accuracies in zip(
                panel["fedavg"]["virtual_time_s"], panel["fedavg"]["test_accuracy"], strict=True
            )
        ]
        ahead = np.mean(
            [
                own[0] - other
                for own, other in zip(panel["sfl"]["test_accuracy"], before, strict=True)
            ]
        )
        assert panel["sfl_ahead"][0]["mean"] == pytest.approx(ahead, abs=1e-6)


def test_a_higher_limit_never_makes_a_round_longer_when_all_splits_are_the_limit(folder):
    found = numbers_of(folder, 14)["points"]
    for part in ("iid", "non-iid"):
        points = [
            p
            for p in found
            if (p["mean_distance_m"], p["partition"], p["way"]) == (800, part, "sfl")
        ]
        assert [point["max_split"] for point in points] == [4, 15]
        assert points[0]["round_s"] > points[1]["round_s"]
        assert all(0 <= a <= 1 for point in points for a in point["test_accuracy"])


def test_no_file_is_left_half_written(folder):
    assert sorted({path.suffix for path in folder.iterdir()}) == [".json", ".png", ".svg"]
    assert len(list(folder.iterdir())) == 3 * len(FIGURES)


def test_every_claim_is_carried_by_a_figure_and_judged(folder):
    claims = judge_claims({number: numbers_of(folder, number) for number in FIGURES})
    assert [claim.id for claim in claims] == [statement.id for statement in STATEMENTS]
    for claim in claims:
        assert claim.measured.endswith(".")
        assert "nan" not in claim.measured
        assert isinstance(claim.holds, bool)


@pytest.mark.parametrize("number", [4, 5])
def test_the_exact_latency_is_never_above_the_papers_and_rises_with_distance(folder, number):
    curves = numbers_of(folder, number)["curves"]
    pairs = zip(curves[::2], curves[1::2], strict=True)
    for paper, exact in pairs:
        assert (paper["method"], exact["method"]) == ("paper", "exact")
        assert np.all(
            np.array(exact["mean_latency_s"]["median"])
            <= np.array(paper["mean_latency_s"]["median"]) * (1 + 1e-9)
        )
        assert np.all(np.diff(exact["mean_latency_s"]["median"]) > 0)
        assert (
            exact["fleets_with_falling_split"] == 0
        )  # theory: a device's split depends on τ / κ alone, and τ grows
        assert np.all(
            np.array(exact["expected_latency_s"]["median"])
            >= np.array(exact["mean_latency_s"]["median"])
        )


def test_no_split_is_deeper_than_its_limit_and_none_differs_from_itself(folder):
    for panel in numbers_of(folder, 6)["panels"]:
        for curve in panel["curves"]:
            assert max(curve["mean_split"]["p90"]) <= curve["reachable_split"]
            if curve["max_split"] is None:
                assert max(curve["differs_before_limit"]) == 0
                assert curve["mean_split_over_all"] == curve["unlimited_capped_over_all"]


@pytest.mark.parametrize("number", [7, 8])
def test_a_round_is_compute_and_transmit_time_and_no_shorter_than_its_air_time(folder, number):
    for entry in numbers_of(folder, number)["models"]:
        for scheme in ("sfl", "fedavg"):
            total, air = entry[scheme]["total_s"]["median"], entry[scheme]["air_time_s"]["median"]
            assert np.all(np.array(air) < np.array(total))
            assert np.all(np.array(entry[scheme]["expected_max_s"]["median"]) > np.array(total))


def test_the_two_sizes_of_vgg16_are_told_apart(folder):
    data = numbers_of(folder, 7)
    assert [entry["model"] for entry in data["models"]] == ["alexnet", "vgg16", "vgg16-3x32x32"]
    assert len(set(data["settings"]["models"].values())) == 3


def test_the_best_visited_plan_is_between_the_optimum_and_the_last_one(folder):
    for entry in numbers_of(folder, 12)["models"]:
        for curve in entry["curves"]:
            best, last = (
                np.array(curve[f"{which}_visited_over_exact"]["median"])
                for which in ("best", "last")
            )
            assert np.all(best >= 1)
            assert np.all(last >= best)
            assert (
                0
                <= min(curve["share_of_fleets_that_cycle"])
                <= max(curve["share_of_fleets_that_cycle"])
                <= 1
            )


def test_no_method_is_below_the_certified_bound_and_expected_max_is_the_best(folder):
    for panel in numbers_of(folder, 13)["panels"]:
        above = {
            method: np.array(values["median"]) for method, values in panel["above_bound"].items()
        }
        assert np.all(above["expected-max"] >= 0)
        for method in ("paper", "exact"):
            assert np.all(above["expected-max"] <= above[method] + 1e-9)


@pytest.mark.parametrize("number", [7, 11])
def test_the_same_numbers_give_the_same_files(folder, tmp_path, number):
    draw_one(FIGURES[number], tmp_path, TINY, silent)
    for suffix in (".json", ".svg"):
        name = FIGURES[number].stem + suffix
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_a_drawing_needs_nothing_but_its_json(folder):
    data = numbers_of(folder, 12)
    assert len(FIGURES[12].draw(data).axes) == 4


def test_draw_writes_the_claims_of_what_was_drawn(tmp_path):
    told: list[str] = []
    claims = draw([3, 3], tmp_path / "new" / "folder", "smoke", told.append)
    written = json.loads((tmp_path / "new" / "folder" / "claims.json").read_text(encoding="utf-8"))
    assert [claim.id for claim in claims] == ["C1", "C2"]
    assert all(claim.holds for claim in claims)
    assert [list(entry) for entry in written] == [["id", "claim", "measured", "holds"]] * 2
    assert told == ["figure 3: Work and output size of each AlexNet layer"]


@pytest.mark.parametrize("number", [2, 15, 99, "4", True, 3.5, None])
def test_an_unknown_figure_is_refused_before_any_work(tmp_path, number):
    with pytest.raises(InvalidValue, match=r"figure .* is not known\. Known: 3, 4, 5"):
        draw([3, number], tmp_path / "out", "smoke", silent)
    assert not (tmp_path / "out").exists()


def test_an_unknown_scale_is_refused(tmp_path):
    with pytest.raises(InvalidValue, match="scale 'papre' is not known; did you mean 'paper'"):
        draw([3], tmp_path / "out", "papre", silent)


def test_a_file_in_the_way_is_refused_before_any_work(tmp_path):
    (tmp_path / "out").write_text("in the way")
    told: list[str] = []
    with pytest.raises(FileProblem, match="cannot create the folder"):
        draw(None, tmp_path / "out", "smoke", told.append)
    assert told == []


def test_drawing_leaves_the_users_matplotlib_settings_alone(tmp_path):
    before = dict(matplotlib.rcParams)
    draw([3], tmp_path, "smoke", silent)
    assert dict(matplotlib.rcParams) == before


def test_the_package_loads_no_plotting_library_and_the_figures_no_pyplot():
    code = (
        "import sys, airsplit; assert 'matplotlib' not in sys.modules; "
        "import airsplit.paper.figures; assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
