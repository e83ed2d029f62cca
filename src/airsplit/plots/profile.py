"""The plot of `airsplit profile`: work and data at each split, and which splits are worth a cut.

Figure 3 of the paper, for any model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import offset_copy
from scipy.optimize import isotonic_regression

from airsplit.core import palette
from airsplit.core.arrays import Floats, Ints
from airsplit.core.formatting import pluralize
from airsplit.core.units import BYTES_PER_FLOAT32
from airsplit.planning.options import pareto_front
from airsplit.plots import style
from airsplit.system.profile import Profile

ON_FRONT = "on the Pareto front: no split has both less work and less data"
DOMINATED = "dominated: another split has no more work and no more data"

# A model with more splits names only a part of its front.
MOST_NAMES = 40
LONGEST_NAME = 30

PALE = "#b9b9b9"
GUIDE = "#d3e3ee"

# Size of a name, distance between names, and length of the line from a name to its split.
_NAME_PT = 6.0
_PITCH_PT = 7.6
_LEADER_PT = 9.0
# How far a name may be from its split, in pitches.
_FARTHEST = 3
# A model of one or two layers is drawn as if it had this many, not stretched over the width.
_FEWEST_PLACES = 8


def draw_profile(profile: Profile) -> Figure:
    """Draw work between splits, work up to each cut, and data sent at each cut, as three panels.

    Splits on the Pareto front are filled, all others pale. All of up to 40 splits have names. A
    larger model names splits of its front, those with the most different data first, as long as
    there is room.
    """
    front = find_front(profile)
    with style.plot_style():
        # Wider for a larger model, up to a limit.
        width_in = float(
            np.interp(len(profile), [20, MOST_NAMES, 300], [style.WIDTH_IN, 5.5, 10.0])
        )
        height_in = 3.5 + 0.2 * width_in
        figure, axes = style.make_figure(3, 1, height_in, sharex=True, height_ratios=(3, 3, 4))
        figure.set_size_inches(width_in, height_in)
        panels = list(axes[:, 0])
        between, total, sent = panels
        draw_work_between_splits(between, profile)
        draw_total_work(total, profile, front)
        draw_data_sent(sent, profile, front)
        number_splits(panels, len(profile))
        figure.align_ylabels(panels)
        handles, labels = sent.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left")

        # Only a drawn figure knows how wide its panels are, and so how many names have room.
        figure.draw_without_rendering()
        named = name_splits(sent, profile, front)
        # Long names make the figure taller, so that its panels keep their height.
        longest = max(text.get_window_extent().height for text in sent.texts)
        figure.set_figheight(figure.get_figheight() + longest / figure.dpi)
        for axis in panels:
            for row in np.intersect1d(named, front):
                axis.axvline(row + 1, color=GUIDE, linewidth=0.6, zorder=0.5)
        style.add_caption(figure, describe_profile(profile, len(named), len(front)))
    return figure


def find_front(profile: Profile) -> Ints:
    """Return the rows that no other row beats or equals in both work and data.

    Of equal rows the first counts.

    >>> macs, data = [9, 1, 5], [50, 50, 10]
    >>> find_front(Profile(["conv", "relu", "fc"], macs, [9, 9, 14], data, [3, 0, 4])).tolist()
    [0, 2]
    """
    costs = np.stack([profile.macs, profile.activation_elements]).astype(np.float64)
    return pareto_front(costs)


def shorten_name(name: str, longest: int = LONGEST_NAME) -> str:
    """Shorten a name: first its inner words except numbers, then letters from its middle.

    >>> shorten_name("layer3.22.conv3")
    'layer3.22.conv3'
    >>> shorten_name("encoder.model.layers.31.mlp.down_proj", 25)
    'encoder…31.mlp.down_proj'
    >>> shorten_name("a" * 9 + "b" * 9, 9)
    'aaaa…bbbb'
    """
    name = "".join(letter if letter.isprintable() else " " for letter in name)
    parts = name.split(".")
    for inner, part in enumerate(parts[1:-1], 1):
        if len(name) > longest and not part.isdigit():
            parts[inner] = "…"
            name = re.sub(r"\.?…[.…]*", "…", ".".join(parts))
    if len(name) <= longest:
        return name
    head = (longest - 1) // 2
    tail = longest // 2
    return f"{name[:head]}…{name[-tail:]}"


def draw_work_between_splits(axis: Axes, profile: Profile) -> None:
    """Draw a square for the work of each row, on a logarithmic axis."""
    work = np.where(profile.layer_macs > 0, profile.layer_macs, np.nan)
    axis.set_ylim(*_set_log_scale(axis, work, "MAC"))
    # Not bars: their length would mean nothing on a logarithmic axis.
    squares: dict[str, Any] = {"linestyle": "none", "marker": "s", "clip_on": False}
    squares |= {"color": palette.INK, "markersize": _marker_size(len(profile)) - 0.5}
    axis.plot(np.arange(1, len(profile) + 1), work, **squares)
    axis.set_ylabel("work between\nsplits")


def draw_total_work(axis: Axes, profile: Profile, front: Ints) -> None:
    """Draw the share of the model's work that a device does if it cuts at each split."""
    # A model may have no work at all.
    share = profile.macs / max(int(profile.macs[-1]), 1)
    _draw_splits(axis, share, front)
    axis.plot(np.arange(1, len(profile) + 1), share, color=PALE, linewidth=0.8, zorder=1.5)
    axis.set_ylim(-0.06, 1.06)
    axis.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
    axis.set_ylabel("share of work\nup to the cut")


def draw_data_sent(axis: Axes, profile: Profile, front: Ints) -> None:
    """Draw the data sent at each split, and the front as a staircase.

    A split above the staircase is dominated by the one at the beginning of the step below it.
    """
    data = BYTES_PER_FLOAT32 * profile.activation_elements.astype(np.float64)
    axis.set_ylim(*_set_log_scale(axis, data, "B"))
    splits = [*(front + 1), len(profile)]
    heights = [*data[front], data[front[-1]]]
    stairs: dict[str, Any] = {"where": "post", "color": palette.BLUE, "linewidth": 0.8}
    axis.step(splits, heights, alpha=0.6, zorder=2.5, **stairs)
    axis.plot(np.arange(1, len(profile) + 1), data, color=PALE, linewidth=0.4, zorder=1)
    _draw_splits(axis, data, front)
    axis.set_ylabel("data sent\nat the cut")


def _draw_splits(axis: Axes, values: Floats, front: Ints) -> None:
    """Draw a dot for each split: filled on the front, pale elsewhere."""
    dominated = np.setdiff1d(np.arange(len(values)), front)
    size = _marker_size(len(values))
    dots: dict[str, Any] = {"linestyle": "none", "marker": "o", "clip_on": False}
    dots |= {"label": ON_FRONT, "color": palette.BLUE, "markersize": size + 0.6, "zorder": 3}
    axis.plot(front + 1, values[front], **dots)
    if len(dominated):
        dots |= {"label": DOMINATED, "color": PALE, "markersize": size - 0.8, "zorder": 2}
        axis.plot(dominated + 1, values[dominated], **dots)


def _marker_size(rows: int) -> float:
    return float(np.interp(rows, [MOST_NAMES, 300, 3000], [3.5, 2.2, 1.6]))


def _set_log_scale(axis: Axes, values: Floats, unit: str) -> tuple[float, float]:
    """Make the y axis logarithmic, and return limits with a margin around the values."""
    low = 1.0
    high = 1.0
    finite = values[np.isfinite(values)]
    # A model without any work has no values.
    if len(finite):
        low = float(finite.min())
        high = float(finite.max())
    decades = np.log10(high / low)

    axis.set_yscale("log")
    # A short axis has too few powers of ten.
    steps = (1.0, 2.0, 5.0) if decades < 1.5 else (1.0,)
    axis.yaxis.set_major_locator(LogLocator(subs=steps, numticks=7))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(EngFormatter(unit))
    margin = 10 ** max(0.07 * decades, 0.3)
    return low / margin, high * margin


def number_splits(axes: Sequence[Axes], rows: int) -> None:
    """Number the splits above the first panel; the room below the last is for their names."""
    top = axes[0]
    # Splits keep their distance in models of a few layers, in the middle of the axis.
    middle = (rows + 1) / 2
    half = 0.51 * max(rows, _FEWEST_PLACES)
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


def name_splits(axis: Axes, profile: Profile, front: Ints) -> Ints:
    """Write names below the last panel, each with a thin line to its split.

    Returns:
        The rows that have names: all of a small model, else some of the front.
    """
    low, high = axis.get_xlim()
    # The distance between names, from points (72 an inch) to splits.
    pitch = (high - low) * _PITCH_PT * axis.figure.dpi / 72 / axis.get_window_extent().width
    few = len(profile) <= MOST_NAMES
    rows: Ints
    if few:
        rows = np.arange(len(profile))
    else:
        rows = choose_names(front, profile.activation_elements, pitch, (low, high))

    transform = axis.get_xaxis_transform()
    below = offset_copy(
        transform,
        axis.figure,  # type: ignore[arg-type]
        y=-_LEADER_PT,
        units="points",
    )
    leader = {
        "arrowstyle": "-",
        "linewidth": 0.4,
        "color": palette.FAINT,
        "shrinkA": 0,
        "shrinkB": 0,
        "relpos": (0.5, 1),
    }
    options: dict[str, Any] = {
        "rotation": 90,
        "ha": "center",
        "va": "top",
        "fontsize": _NAME_PT,
        # A name may have a dollar sign, and is no formula.
        "parse_math": False,
        "xycoords": transform,
        "textcoords": below,
        "annotation_clip": False,
        "arrowprops": leader,
    }
    for row, place in zip(rows, _spread_apart(rows + 1, pitch, (low, high)), strict=True):
        name = shorten_name(profile.names[row])
        if not few:
            name += f"  {row + 1:,}"
        color = palette.FAINT
        if row in front:
            color = palette.BLUE
        axis.annotate(name, (row + 1, 0), (place, 0), color=color, **options)
    return rows


def choose_names(front: Ints, data: Ints, pitch: float, ends: tuple[float, float]) -> Ints:
    """Choose which splits of the front to name.

    The first and the last always have names. The others follow one by one, always the split with
    data that differ most from those chosen, if its name has room.

    Args:
        front: Rows of the front.
        data: Elements sent, of all rows.
        pitch: Distance between names, in splits.
        ends: Limits of the axis.

    >>> data = np.array([800, 790, 100, 90, 10])
    >>> choose_names(np.arange(5), data, 1.0, (0.0, 6.0)).tolist()
    [0, 1, 2, 3, 4]
    """
    # Ratios of data, as on the axis, not differences.
    size = np.log(data[front].astype(np.float64))
    chosen = sorted({0, len(front) - 1})
    distance = np.abs(size[:, None] - size[chosen]).min(axis=1)
    candidates = np.ones(len(front), dtype=bool)
    candidates[chosen] = False
    while candidates.any() and len(chosen) < MOST_NAMES:
        best = int(np.argmax(np.where(candidates, distance, -1)))
        candidates[best] = False
        trial = sorted([*chosen, best])
        splits = front[trial] + 1
        # Names that do not fit anymore would lie far from their splits.
        if np.abs(_spread_apart(splits, pitch, ends) - splits).max() <= _FARTHEST * pitch:
            chosen = trial
            distance = np.minimum(distance, np.abs(size - size[best]))
    return front[chosen]


def _spread_apart(places: Ints, pitch: float, ends: tuple[float, float]) -> Floats:
    """Move places as little as possible, so that they are a pitch apart and between the ends.

    Without the pitches before it, no place may be below the previous one. Least squares under this
    constraint is isotonic regression.

    >>> _spread_apart(np.array([1, 5, 6]), 2.0, (0.0, 9.0)).tolist()
    [1.0, 4.5, 6.5]
    """
    steps = pitch * np.arange(len(places))
    moved = isotonic_regression(places - steps).x
    highest = max(ends[0], ends[1] - steps[-1])
    spread: Floats = np.clip(moved, ends[0], highest) + steps
    return spread


def describe_profile(profile: Profile, named: int, on_front: int) -> str:
    """Return the caption: model, size and units, and how many splits of its front have names."""
    # Three digits; EngFormatter would print all of them.
    macs = float(f"{int(profile.layer_macs.sum()):.3g}")
    parameters = float(f"{int(profile.parameters.sum()):.3g}")
    parts = [
        pluralize(len(profile), "split"),
        EngFormatter("MAC")(macs),
        f"{EngFormatter()(parameters)} parameters",
    ]
    model = shorten_name(style.MODEL_NAMES.get(profile.model, profile.model), 40)
    if model:
        # A dollar sign would begin a formula.
        parts.insert(0, model.replace("$", r"\$"))

    text = f"{', '.join(parts)}; per sample, 32-bit elements"
    if len(profile) > MOST_NAMES:
        text += f"; {on_front:,}\u00a0on\u00a0the\u00a0front"
        if named < on_front:
            text += f", {named} of them named"
    return text
