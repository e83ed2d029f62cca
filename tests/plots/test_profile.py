"""Plots of profiles: the front is marked, names are readable at any size, and files repeat."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from airsplit.core.errors import InvalidValue
from airsplit.plots.profile import (
    DOMINATED,
    LONGEST_NAME,
    MOST_NAMES,
    ON_FRONT,
    draw_profile,
    find_front,
    shorten_name,
)
from airsplit.plots.style import save_picture
from airsplit.system.profile import Profile

KINDS = {
    "conv1": 1.25,
    "bn1": 1.25,
    "relu1": 1.25,
    "conv2": 1.25,
    "conv3": 2.0,
    "bn3": 2.0,
    "add": 1.0,
    "relu": 1.0,
}


def resnet_like(rows: int) -> Profile:
    """Return a profile whose data vary within a block and fall from stage to stage."""
    kinds = [(list(KINDS)[row % len(KINDS)], 4 * row // rows) for row in range(rows)]
    data = [int((800_000 >> stage) * KINDS[kind]) for kind, stage in kinds]
    work = [
        0 if kind == "add" else 10**8 if "conv" in kind else size
        for (kind, _), size in zip(kinds, data, strict=True)
    ]
    names = [
        f"model.layer{stage + 1}.{row // len(KINDS)}.{kind}"
        for row, (kind, stage) in enumerate(kinds)
    ]
    return Profile(names, work, np.cumsum(work), data, [100] * rows, model="resnet-like")


def falling(rows: int) -> Profile:
    """Return a profile with every split on the front, and long names."""
    names = [f"encoder.model.blocks.{row}.attention.output.dense" for row in range(rows)]
    data = [10**9 // (row + 1) for row in range(rows)]
    return Profile(names, [10**6] * rows, np.arange(rows) + 1, data, [1] * rows, model="falling")


SIZES = {resnet_like: (1, 20, 60, 300, 3000), falling: (40, 300)}
MODELS = {
    f"{make.__name__}, {rows}": (make, rows) for make, sizes in SIZES.items() for rows in sizes
}


@cache
def draw(model: str) -> tuple[Profile, Figure]:
    make, rows = MODELS[model]
    profile = make(rows)
    figure = draw_profile(profile)
    figure.draw_without_rendering()
    return profile, figure


def brute_force_front(profile: Profile) -> list[int]:
    pairs = list(zip(profile.macs.tolist(), profile.activation_elements.tolist(), strict=True))
    dominated = [any(a <= x and b <= y and (a, b) != (x, y) for a, b in pairs) for x, y in pairs]
    # Of equal rows the first counts.
    return [row for row, pair in enumerate(pairs) if not dominated[row] and pair not in pairs[:row]]


def marks(figure: Figure, panel: int) -> tuple[list[int], list[int]]:
    """Return the splits drawn as on the front, and those drawn as dominated."""
    lines = {
        line.get_label(): [int(x) for x in line.get_xdata()] for line in figure.axes[panel].lines
    }
    return lines[ON_FRONT], lines.get(DOMINATED, [])


@pytest.mark.parametrize("seed", range(20))
def test_the_front_equals_a_brute_force_search_with_ties_and_free_rows(seed):
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(1, 25))
    work = rng.integers(0, 3, rows)
    profile = Profile(
        [f"row{i}" for i in range(rows)],
        work,
        np.cumsum(work),
        rng.integers(1, 9, rows),
        [0] * rows,
    )
    assert find_front(profile).tolist() == brute_force_front(profile)


@pytest.mark.parametrize("model", [m for m in MODELS if "3000" not in m])
def test_every_split_is_marked_once_as_on_the_front_or_dominated(model):
    profile, figure = draw(model)
    front = [row + 1 for row in brute_force_front(profile)]
    for panel in (1, 2):
        assert marks(figure, panel)[0] == front
        assert sorted(front + marks(figure, panel)[1]) == list(range(1, len(profile) + 1))


@pytest.mark.parametrize("model", MODELS)
def test_everything_is_inside_the_figure_and_no_names_or_numbers_overlap(model):
    _, figure = draw(model)
    used = figure.get_tightbbox()
    page = figure.bbox_inches
    assert min(used.x0, used.y0, page.x1 - used.x1, page.y1 - used.y1) >= -1e-6
    for labels in (figure.axes[2].texts, figure.axes[0].get_xticklabels()):
        boxes = sorted((Text.get_window_extent(label) for label in labels), key=lambda box: box.x0)
        assert boxes
        assert all(left.x1 <= right.x0 for left, right in pairwise(boxes))
        assert all(
            min(box.x0, box.y0) >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
            for box in boxes
        )


@pytest.mark.parametrize("model", MODELS)
def test_each_row_with_work_is_a_point_on_a_logarithmic_axis(model):
    profile, figure = draw(model)
    work = figure.axes[0]
    points = work.lines[0]
    assert work.get_yscale() == "log"
    assert not work.patches
    assert points.get_linestyle() == "None"
    shown = np.isfinite(np.asarray(points.get_ydata(), dtype=float))
    assert shown.tolist() == (profile.layer_macs > 0).tolist()


@pytest.mark.parametrize("model", MODELS)
def test_no_panel_is_squeezed_by_names(model):
    _, figure = draw(model)
    assert min(axes.get_window_extent().height for axes in figure.axes) / figure.dpi > 0.7
    assert figure.get_figwidth() <= 10


@pytest.mark.parametrize("model", MODELS)
def test_a_small_model_shows_all_names_and_a_large_one_names_of_its_front(model):
    profile, figure = draw(model)
    written = [text.get_text() for text in figure.axes[2].texts]
    if len(profile) <= MOST_NAMES:
        assert written == [shorten_name(name) for name in profile.names]
    else:
        front = [f"{shorten_name(profile.names[row])}  {row + 1:,}" for row in find_front(profile)]
        assert set(written) <= set(front)
        assert {front[0], front[-1]} <= set(written)
        assert len(written) >= min(len(front), 9)


def test_the_split_with_the_largest_drop_in_data_is_named():
    data = [1000 - row for row in range(200)] + [10 - row // 40 for row in range(200)]
    profile = Profile([f"row{i}" for i in range(400)], [1] * 400, [0] * 400, data, [0] * 400)
    assert "row200  201" in [text.get_text() for text in draw_profile(profile).axes[2].texts]


def test_the_caption_describes_the_profile():
    assert (
        draw("resnet_like, 1")[1].get_supxlabel()
        == "resnet-like, 1 split, 100 MMAC, 100 parameters; per sample, 32-bit elements"
    )
    many = " ".join(draw("falling, 300")[1].get_supxlabel().split())
    assert many.startswith(
        "falling, 300 splits, 300 MMAC, 300 parameters; per sample, 32-bit elements; "
        "300 on the front, 40 of"
    )


@pytest.mark.parametrize("name", ["layer3.22.conv3", "model.layers.31.mlp.down_proj"])
def test_a_usual_name_is_not_shortened(name):
    assert shorten_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["a.b" * 40, "x" * 500, "1." * 60 + "fc", "bert.encoder.layer.11.attention.self.query.weight"],
)
def test_a_long_name_loses_its_middle(name):
    shortened = shorten_name(name)
    assert len(shortened) <= LONGEST_NAME
    assert (shortened[0], shortened[-1]) == (name[0], name[-1])
    assert "…" in shortened
    assert ".11" not in name or "…11" in shortened


@pytest.mark.parametrize(
    ("work", "name"), [([0, 0, 0], "new/a.png"), ([0, 7, 0], "a.SVG"), ([2**58, 0, 1], "a.pdf")]
)
def test_rows_without_work_and_names_with_special_characters_are_drawn(tmp_path, work, name):
    profile = Profile(
        ["a$b$", "\n", r"\alpha_{$"], work, [0, 0, 0], [1, 2**58, 1], [0, 0, 0], model="$x^$"
    )
    save_picture(draw_profile(profile), tmp_path / name)
    heads = {".png": b"\x89PNG", ".SVG": b"<?xml", ".pdf": b"%PDF"}
    assert (tmp_path / name).read_bytes().startswith(heads[(tmp_path / name).suffix])


@pytest.mark.parametrize("kind", ["svg", "pdf"])
def test_equal_profiles_give_equal_files_for_any_user_settings(tmp_path, kind):
    save_picture(draw_profile(resnet_like(50)), tmp_path / f"first.{kind}")
    with matplotlib.rc_context(
        {
            "font.size": 20,
            "svg.hashsalt": "other",
            "axes.grid": False,
            "font.family": "serif",
            "figure.dpi": 50,
        }
    ):
        before = dict(matplotlib.rcParams)
        save_picture(draw_profile(resnet_like(50)), tmp_path / f"second.{kind}")
        assert dict(matplotlib.rcParams) == before
    assert (tmp_path / f"first.{kind}").read_bytes() == (tmp_path / f"second.{kind}").read_bytes()


@pytest.mark.parametrize("name", ["a.jpg", "a", "png", ".svg", "a.png.gz", ""])
def test_another_file_format_is_rejected_and_nothing_is_written(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        InvalidValue,
        match=r"must end in \.png, \.svg or \.pdf; give it a name such as 'profile\.png'",
    ):
        save_picture(Figure(), name)
    assert list(tmp_path.iterdir()) == []
