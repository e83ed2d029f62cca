"""A model's profile as a picture: work and data at each split, and which splits are worth a cut.  Figure 3 for any model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import offset_copy
from scipy.optimize import isotonic_regression

from airsplit.core import palette
from airsplit.core.arrays import Floats, Ints
from airsplit.core.units import BYTES_PER_FLOAT32
from airsplit.planning.pruning import pareto_front
from airsplit.plots import style
from airsplit.system.profile import Profile

ON_FRONT = "on the Pareto front: no split has both less work and less data"
DOMINATED = "dominated: another split has no more work and no more data"
MOST_NAMES = 40  # a model with more splits than this names only some of its front
LONGEST_NAME = 30  # letters
PALE, GUIDE = "#b9b9b9", "#d3e3ee"

_NAME_PT, _PITCH_PT, _LEADER_PT = 6.0, 7.6, 9.0
_FARTHEST = 3  # pitches that a name may be moved from its split
_FEWEST_PLACES = 8  # a model of one or two layers is not drawn as wide as the page


def draw_profile(profile: Profile) -> Canvas:
    """Three panels over the splits: the work between splits, that up to the cut, the data sent at the cut.

    Splits on the Pareto front are filled, all others pale.  Up to 40 splits are all named; of a larger model those of the
    front whose data differ most from one another are, as far as there is room.
    """
    front = find_front(profile)
    with style.plot_style():
        width_in, height_in = _size_in(len(profile))
        figure, axes = style.make_figure(3, 1, height_in, sharex=True, height_ratios=(3, 3, 4))
        figure.set_size_inches(width_in, height_in)
        each, total, sent = panels = list(axes[:, 0])
        _draw_each(each, profile)
        _draw_total(total, profile, front)
        _draw_sent(sent, profile, front)
        _number_splits(panels, len(profile))
        figure.align_ylabels(panels)
        handles, labels = sent.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left")
        figure.draw_without_rendering()  # how wide the panels are decides which names have room
        named = _name_splits(sent, profile, front)
        _make_room(figure, sent)
        for axis in panels:
            for row in np.intersect1d(named, front):
                axis.axvline(row + 1, color=GUIDE, linewidth=0.6, zorder=0.5)
        _say(figure, profile, len(named), len(front))
    return figure


def find_front(profile: Profile) -> Ints:
    """Rows whose split no other beats or equals in both work and data; of equal ones the first.

    >>> find_front(Profile(["conv", "relu", "fc"], [9, 1, 5], [9, 9, 14], [50, 50, 10], [3, 0, 4])).tolist()
    [0, 2]
    """
    costs = np.stack([profile.macs, profile.activation_elements]).astype(np.float64)
    return pareto_front(costs, always=np.ones(len(profile), dtype=bool))


def shorten_name(name: str, longest: int = LONGEST_NAME) -> str:
    """A name of bounded length: without its inner words as far as needed, its numbers kept; else letters out of the middle.

    >>> shorten_name("layer3.22.conv3"), shorten_name("encoder.model.layers.31.mlp.down_proj", 25), shorten_name("a" * 9 + "b" * 9, 9)
    ('layer3.22.conv3', 'encoder…31.mlp.down_proj', 'aaaa…bbbb')
    """
    name = "".join(letter if letter.isprintable() else " " for letter in name)
    parts = name.split(".")
    for inner, part in enumerate(parts[1:-1], 1):
        if len(name) > longest and not part.isdigit():
            parts[inner] = "…"
            name = re.sub(r"\.?…[.…]*", "…", ".".join(parts))
    head, tail = (longest - 1) // 2, longest // 2
    return name if len(name) <= longest else f"{name[:head]}…{name[-tail:]}"


def _size_in(rows: int) -> tuple[float, float]:
    """Width and height without the names: they grow with the model, to a limit."""
    width = float(np.interp(rows, [20, MOST_NAMES, 300], [style.WIDTH_IN, 5.5, 10.0]))
    return width, 3.5 + 0.2 * width


def _draw_each(axis: Axes, profile: Profile) -> None:
    """Draw a square for each row that has work.  On a logarithmic axis the length of a bar would mean nothing."""
    work = np.where(profile.layer_macs > 0, profile.layer_macs, np.nan)
    axis.set_ylim(*_log_range(axis, work, "MAC"))
    squares: dict[str, Any] = {
        "linestyle": "none",
        "marker": "s",
        "color": palette.INK,
        "clip_on": False,
    }
    axis.plot(
        np.arange(1, len(profile) + 1), work, markersize=_marker_size(len(profile)) - 0.5, **squares
    )
    axis.set_ylabel("work between\nsplits")


def _draw_total(axis: Axes, profile: Profile, front: Ints) -> None:
    share = profile.macs / max(int(profile.macs[-1]), 1)
    _draw_splits(axis, share, front)
    axis.plot(np.arange(1, len(profile) + 1), share, color=PALE, linewidth=0.8, zorder=1.5)
    axis.set_ylim(-0.06, 1.06)
    axis.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
    axis.set_ylabel("share of work\nup to the cut")


def _draw_sent(axis: Axes, profile: Profile, front: Ints) -> None:
    """The front as a staircase: a split above it is beaten by the step that it stands on."""
    data = BYTES_PER_FLOAT32 * profile.activation_elements.astype(np.float64)
    axis.set_ylim(*_log_range(axis, data, "B"))
    splits = [*(front + 1), len(profile)]
    axis.step(
        splits,
        [*data[front], data[front[-1]]],
        where="post",
        color=palette.BLUE,
        linewidth=0.8,
        alpha=0.6,
        zorder=2.5,
    )
    axis.plot(np.arange(1, len(profile) + 1), data, color=PALE, linewidth=0.4, zorder=1)
    _draw_splits(axis, data, front)
    axis.set_ylabel("data sent\nat the cut")


def _draw_splits(axis: Axes, values: Floats, front: Ints) -> None:
    others = np.setdiff1d(np.arange(len(values)), front)
    dots: dict[str, Any] = {"linestyle": "none", "marker": "o", "clip_on": False}
    size = _marker_size(len(values))
    axis.plot(
        front + 1,
        values[front],
        label=ON_FRONT,
        color=palette.BLUE,
        markersize=size + 0.6,
        zorder=3,
        **dots,
    )
    if len(others):
        axis.plot(
            others + 1,
            values[others],
            label=DOMINATED,
            color=PALE,
            markersize=size - 0.8,
            zorder=2,
            **dots,
        )


def _marker_size(rows: int) -> float:
    return float(np.interp(rows, [MOST_NAMES, 300, 3000], [3.5, 2.2, 1.6]))


def _log_range(axis: Axes, values: Floats, unit: str) -> tuple[float, float]:
    """Make the y axis logarithmic and return limits with air around the values; there need not be any."""
    there = values[np.isfinite(values)]
    low, high = (float(there.min()), float(there.max())) if len(there) else (1.0, 1.0)
    axis.set_yscale("log")
    decades = np.log10(high / low)
    axis.yaxis.set_major_locator(
        LogLocator(subs=(1.0, 2.0, 5.0) if decades < 1.5 else (1.0,), numticks=7)
    )
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(EngFormatter(unit))
    air = 10 ** max(0.07 * decades, 0.3)
    return low / air, high * air


def _number_splits(axes: Sequence[Axes], rows: int) -> None:
    top = axes[0]
    middle, half = (rows + 1) / 2, 0.51 * max(rows, _FEWEST_PLACES)
    top.set_xlim(middle - half, middle + half)
    ticks = MaxNLocator(10, integer=True, steps=[1, 5, 10]).tick_values(1, max(rows, 2))
    top.set_xticks([1, *(tick for tick in ticks if 1 < tick <= rows)])
    top.xaxis.set_major_formatter(FuncFormatter(style.format_plain))
    for axis in axes:
        axis.tick_params(axis="x", bottom=False, labelbottom=False)
        axis.grid(visible=False, axis="x")
    top.tick_params(axis="x", top=True, labeltop=True)
    top.spines["top"].set_visible(True)
    top.xaxis.set_label_position("top")
    top.set_xlabel("split: the model is cut after this layer")


def _name_splits(axis: Axes, profile: Profile, front: Ints) -> Ints:
    """Write names under the last panel, beside each other, and a thin line from each to its split; returns the rows named."""
    low, high = axis.get_xlim()
    pitch = (high - low) * _PITCH_PT * axis.figure.dpi / 72 / axis.get_window_extent().width
    few = len(profile) <= MOST_NAMES
    rows = (
        np.arange(len(profile))
        if few
        else _telling(front, profile.activation_elements, pitch, (low, high))
    )
    below = offset_copy(axis.get_xaxis_transform(), axis.figure, y=-_LEADER_PT, units="points")  # type: ignore[arg-type]
    line = {
        "arrowstyle": "-",
        "linewidth": 0.4,
        "color": palette.FAINT,
        "shrinkA": 0,
        "shrinkB": 0,
        "relpos": (0.5, 1),
    }
    for row, place in zip(rows, _side_by_side(rows + 1, pitch, (low, high)), strict=True):
        name = shorten_name(profile.names[row]) + ("" if few else f"  {row + 1:,}")
        text: dict[str, Any] = {
            "rotation": 90,
            "ha": "center",
            "va": "top",
            "fontsize": _NAME_PT,
            "parse_math": False,
        }
        text["color"] = palette.BLUE if row in front else palette.FAINT
        where: dict[str, Any] = {
            "xycoords": axis.get_xaxis_transform(),
            "textcoords": below,
            "annotation_clip": False,
        }
        axis.annotate(name, (row + 1, 0), (place, 0), arrowprops=line, **where, **text)
    return rows


def _telling(front: Ints, data: Ints, pitch: float, ends: tuple[float, float]) -> Ints:
    """The first and the last of the front, then whichever differs most in data from those taken, if it has room."""
    size = np.log(data[front].astype(np.float64))
    taken = sorted({0, len(front) - 1})
    apart = np.abs(size[:, None] - size[taken]).min(axis=1)
    waiting = np.ones(len(front), dtype=bool)
    waiting[taken] = False
    while waiting.any() and len(taken) < MOST_NAMES:
        best = int(np.argmax(np.where(waiting, apart, -1)))
        waiting[best] = False
        trial = sorted([*taken, best])
        splits = front[trial] + 1
        if np.abs(_side_by_side(splits, pitch, ends) - splits).max() <= _FARTHEST * pitch:
            taken = trial
            apart = np.minimum(apart, np.abs(size - size[best]))
    return front[taken]


def _side_by_side(places: Ints, pitch: float, ends: tuple[float, float]) -> Floats:
    """The least moved places that are a pitch apart and between the ends, where there is room for that.

    >>> _side_by_side(np.array([1, 5, 6]), 2.0, (0.0, 9.0)).tolist()
    [1.0, 4.5, 6.5]
    """
    steps = pitch * np.arange(len(places))
    kept: Floats = (
        np.clip(isotonic_regression(places - steps).x, ends[0], max(ends[0], ends[1] - steps[-1]))
        + steps
    )
    return kept


def _make_room(figure: Canvas, axis: Axes) -> None:
    """Long names make the picture taller, not its panels flatter."""
    longest = max(text.get_window_extent().height for text in axis.texts)
    figure.set_figheight(figure.get_figheight() + longest / figure.dpi)


def _say(figure: Canvas, profile: Profile, named: int, front: int) -> None:
    work, parameters = (
        float(f"{int(column.sum()):.3g}") for column in (profile.layer_macs, profile.parameters)
    )
    model = shorten_name(style.MODEL_NAMES.get(profile.model, profile.model), 40).replace(
        "$", r"\$"
    )  # no formula
    size = f"{len(profile):,} split{'s' * (len(profile) > 1)}, {EngFormatter('MAC')(work)}, {EngFormatter()(parameters)} parameters"
    some = f"; {front:,}\u00a0on\u00a0the\u00a0front" if len(profile) > MOST_NAMES else ""
    some += f", {named} of them named" if some and named < front else ""
    style.add_caption(
        figure, f"{model}{', ' * bool(model)}{size}; per sample, 32-bit elements{some}"
    )
