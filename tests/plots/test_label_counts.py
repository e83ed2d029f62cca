"""Plots of label distributions: all samples are drawn, colors differ, nothing is cut off."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from airsplit.core.arrays import Ints
from airsplit.core.palette import CLASSES
from airsplit.data.image_sets import CLOTHES, DIGITS, THINGS
from airsplit.data.partition import KINDS, count_labels, partition
from airsplit.plots import style
from airsplit.plots.label_counts import MOST_BARS, MOST_COLUMNS, draw_labels
from airsplit.plots.style import save_picture

LABELS = np.random.default_rng(0).integers(0, 10, 3000)


def counts_of(devices: int, kind: str = "dirichlet") -> Ints:
    return count_labels(
        LABELS, partition(kind, LABELS, devices, seed=0, alpha=0.1, labels_per_device=1), 10
    )


@cache
def draw(devices: int, names: tuple[str, ...] = CLOTHES) -> Figure:
    figure = draw_labels(
        counts_of(devices),
        names,
        "Data set: labels of each device",
        "Partition: dirichlet, α = 0.1, seed 0",
    )
    figure.draw_without_rendering()
    return figure


def bars(figure: Figure) -> list[Rectangle]:
    return [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]


@pytest.mark.parametrize("devices", [1, 10, 20, MOST_BARS])
def test_stacked_bars_are_the_counts(devices: int) -> None:
    counts = counts_of(devices)
    rectangles = bars(draw(devices))
    widths = np.array([bar.get_width() for bar in rectangles]).reshape(10, devices).T
    starts = np.array([bar.get_x() for bar in rectangles]).reshape(10, devices).T
    assert (widths == counts).all()
    assert (starts == np.cumsum(counts, axis=1) - counts).all()


@pytest.mark.parametrize("devices", [MOST_BARS + 1, 200])
def test_a_heat_map_shows_the_shares_of_every_device(devices: int) -> None:
    (image,) = draw(devices).axes[0].images
    shares = np.asarray(image.get_array()).T
    counts = counts_of(devices)
    assert sorted(map(tuple, shares.round(9))) == sorted(
        map(tuple, (counts / counts.sum(axis=1, keepdims=True)).round(9))
    )
    assert (np.diff(shares.argmax(axis=1)) >= 0).all()


def test_neighbors_are_averaged_if_there_are_more_devices_than_columns() -> None:
    (image,) = draw(3000).axes[0].images
    shares = np.asarray(image.get_array()).T
    assert shares.shape == (MOST_COLUMNS, 10)
    assert shares.sum(axis=1) == pytest.approx(1)
    assert shares.mean(axis=0) == pytest.approx(np.bincount(LABELS) / 3000)


@pytest.mark.parametrize("names", [CLOTHES, THINGS, DIGITS])
@pytest.mark.parametrize("devices", [1, 20, 200])
def test_every_class_is_named_and_no_text_is_cut_off_or_overlaps(
    devices: int, names: tuple[str, ...]
) -> None:
    figure = draw(devices, names)
    axis = figure.axes[0]
    page = figure.bbox
    legend = axis.get_legend()
    texts: list[Any] = legend.get_texts() if legend is not None else axis.get_yticklabels()
    assert sorted(text.get_text() for text in texts) == sorted(names)
    boxes = [text.get_window_extent() for text in texts]
    boxes += [
        figure._suptitle.get_window_extent(),
        figure._supxlabel.get_window_extent(),
        axis.xaxis.label.get_window_extent(),
    ]
    for at, box in enumerate(boxes):
        assert page.x0 <= box.x0 < box.x1 <= page.x1 + 1
        assert page.y0 <= box.y0 < box.y1 <= page.y1 + 1
        assert not any(box.overlaps(later) for later in boxes[at + 1 :])


def test_a_legend_reads_row_by_row() -> None:
    legend = draw(20).axes[0].get_legend()
    assert legend is not None
    boxes = [(text.get_text(), text.get_window_extent()) for text in legend.get_texts()]
    # From top to bottom, and from left to right.
    in_order = sorted(boxes, key=lambda entry: (-round(entry[1].y0), entry[1].x0))
    assert tuple(name for name, _ in in_order) == CLOTHES


def test_more_classes_than_colors_are_a_heat_map() -> None:
    counts = np.eye(12, dtype=np.int64)
    figure = draw_labels(counts, [f"class {at}" for at in range(12)], "many", "classes")
    assert len(figure.axes[0].images) == 1
    hundred = draw_labels(
        np.ones((5, 100), np.int64), [str(at) for at in range(100)], "many", "classes"
    )
    assert hundred.axes[0].get_ylabel() == "label"


def test_the_ten_colors_differ_from_one_another_and_from_white() -> None:
    points = np.array([to_rgb(color) for color in (*CLASSES, "white")])
    distances = np.linalg.norm(points[:, None] - points, axis=2) + np.eye(len(points))
    assert len(CLASSES) == 10
    assert distances.min() > 0.2


@pytest.mark.parametrize("kind", KINDS)
def test_equal_plots_give_equal_files(kind: str, tmp_path: Any) -> None:
    for name in ("a.svg", "b.svg"):
        save_picture(draw_labels(counts_of(8, kind), DIGITS, "title", "caption"), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_a_plot_is_as_wide_as_a_column() -> None:
    assert {draw(devices).get_figwidth() for devices in (1, 20, 200)} == {style.WIDTH_IN}
