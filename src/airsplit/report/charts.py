"""Charts as inline SVG: lines over an axis, and bars.

Colors are classes of report.css, so that charts follow light and dark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from airsplit.core.arrays import Floats
from airsplit.report.markup import Html, join, tag
from airsplit.report.scales import AxisScale, format_tick, loss_scale, thin

# In pixels; the page scales a chart to its column.
WIDTH = 360
HEIGHT = 216
# Margins: numbers of the vertical axis on the left, half of the last one below on the right.
LEFT = 42
RIGHT = 20
TOP = 8
BOTTOM = 36

# A line with more points has no dots.
MOST_DOTS = 30


@dataclass(frozen=True, eq=False)
class Line:
    """A line of a chart.

    Attributes:
        name: Text of the legend.
        kind: Class in the style sheet.
        values: One for each x of the chart; NaN if there is none.
    """

    name: str
    kind: str
    values: Floats


@dataclass(frozen=True, eq=False)
class Band:
    """A shaded area of a chart, from `low` to `high`."""

    name: str
    kind: str
    low: Floats
    high: Floats


@dataclass(frozen=True, eq=False)
class Axis:
    """A scale, its label, and the format of its ticks."""

    scale: AxisScale
    label: str
    format_tick: Callable[[float], str]


def loss_axis(values: Floats) -> Axis:
    """Return a vertical axis for losses, with a label if it is logarithmic."""
    # Rounds without an evaluation have no loss.
    scale = loss_scale(values[np.isfinite(values)])
    label = "logarithmic" if scale.log else ""
    return Axis(scale, label, format_tick)


def line_chart(
    x: Floats,
    horizontal: Axis,
    vertical: Axis,
    lines: Sequence[Line],
    band: Band | None = None,
    *,
    alt: str,
) -> Html:
    """Return a chart of lines over common x, with ticks and a grid.

    Args:
        x: Place of each value of the lines. Values that are NaN are skipped.
        horizontal: Axis of `x`.
        vertical: Axis of the lines and the band.
        lines: Drawn in this order, later ones on top.
        band: Drawn below the lines.
        alt: The chart in words, for screen readers.
    """
    inside = [*draw_vertical_axis(vertical), *draw_horizontal_axis(horizontal)]
    # Lines lie over the band.
    if band is not None:
        inside.append(draw_band(band, x, horizontal.scale, vertical.scale))
    inside += [draw_line(line, x, horizontal.scale, vertical.scale) for line in lines]
    view = f"0 0 {WIDTH} {HEIGHT}"
    return tag("svg", *inside, viewBox=view, role="img", aria_label=alt, class_="chart")


def legend(entries: Sequence[Line | Band]) -> Html:
    """Return a legend of lines and bands."""
    keys = []
    for entry in entries:
        if isinstance(entry, Line):
            sample = tag("path", d="M0 6H24", class_=f"line {entry.kind}")
        else:
            sample = tag("rect", x=0, y=0, width=24, height=12, class_=f"band {entry.kind}")
        keys.append(_legend_entry(sample, entry.name))
    return tag("p", *keys, class_="legend")


def bar_legend(kinds: dict[str, str]) -> Html:
    """Return a legend of the parts of a bar, from their classes to their names."""
    keys = []
    for kind, text in kinds.items():
        square = tag("rect", x=6, y=0, width=12, height=12, class_=f"fill {kind}")
        keys.append(_legend_entry(square, text))
    return tag("p", *keys, class_="legend")


def _legend_entry(sample: Html, text: str) -> Html:
    # Screen readers read the text and skip the sample, which would have no name.
    key = tag("svg", sample, viewBox="0 0 24 12", class_="key", aria_hidden="true")
    return tag("span", key, " ", text)


def bar(parts: dict[str, float]) -> Html:
    """Return a bar of parts, from their classes to their fractions; the rest stays empty.

    >>> bar({"compute": 0.25, "idle": 0.5}).count("<rect")
    3
    """
    # Thousandths, so that short parts keep their length when rounded to a tenth.
    rects = [tag("rect", x=0, y=0, width=1000, height=10, class_="track")]
    starts = np.cumsum([0.0, *parts.values()])
    for (kind, length), start in zip(parts.items(), starts[:-1], strict=True):
        if length > 0:
            place = {"x": _format(1000 * start), "y": 0, "width": _format(1000 * length)}
            rects.append(tag("rect", **place, height=10, class_=f"fill {kind}"))
    # Stretched to the width of its column, unlike a chart.
    return tag(
        "svg",
        *rects,
        viewBox="0 0 1000 10",
        preserveAspectRatio="none",
        class_="bar",
        aria_hidden="true",
    )


def draw_line(line: Line, x: Floats, horizontal: AxisScale, vertical: AxisScale) -> Html:
    """Return a polyline through the values that are known, with dots if they are few."""
    # Rounds without an evaluation are skipped, not drawn as gaps: their neighbors are connected.
    known = np.isfinite(line.values)
    x = x[known]
    y = line.values[known]
    # Browsers draw long lines slowly, and a page has several.
    rows = thin(y)
    points = _points(x[rows], y[rows], horizontal, vertical)
    dots = []
    if len(points) <= MOST_DOTS:
        dots = [tag("circle", cx=a, cy=b, r=2.2, class_=f"dot {line.kind}") for a, b in points]
    return join(tag("polyline", points=_format_points(points), class_=f"line {line.kind}"), *dots)


def draw_band(band: Band, x: Floats, horizontal: AxisScale, vertical: AxisScale) -> Html:
    """Return a polygon between the two edges of a band."""
    known = np.isfinite(band.low) & np.isfinite(band.high)
    x = x[known]
    low = band.low[known]
    high = band.high[known]
    rows = thin(high)
    # From left to right along the upper edge, and back along the lower one.
    upper = _points(x[rows], high[rows], horizontal, vertical)
    lower = _points(x[rows], low[rows], horizontal, vertical)
    outline = _format_points([*upper, *reversed(lower)])
    return tag("polygon", points=outline, class_=f"band {band.kind}")


def draw_vertical_axis(axis: Axis) -> list[Html]:
    """Return a grid line and a number for each tick."""
    heights = _y_pixels(axis.scale.places(axis.scale.ticks))
    grid = [tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid") for y in heights]
    numbers = [
        tag("text", axis.format_tick(t), x=LEFT - 6, y=y, dy="0.35em", text_anchor="end")
        for t, y in zip(axis.scale.ticks, heights, strict=True)
    ]
    return [*grid, *numbers]


def draw_horizontal_axis(axis: Axis) -> list[Html]:
    """Return the axis itself, a mark and a number for each tick, and the label."""
    bottom = HEIGHT - BOTTOM
    places = _x_pixels(axis.scale.places(axis.scale.ticks))
    ticks = [
        join(
            tag("line", x1=x, x2=x, y1=bottom, y2=bottom + 3, class_="axis"),
            tag("text", axis.format_tick(t), x=x, y=bottom + 14, text_anchor="middle"),
        )
        for t, x in zip(axis.scale.ticks, places, strict=True)
    ]
    middle = (LEFT + WIDTH - RIGHT) / 2
    return [
        tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=bottom, y2=bottom, class_="axis"),
        *ticks,
        tag("text", axis.label, x=middle, y=HEIGHT - 6, text_anchor="middle"),
    ]


def _points(
    x: Floats, y: Floats, horizontal: AxisScale, vertical: AxisScale
) -> list[tuple[str, str]]:
    return list(zip(_x_pixels(horizontal.places(x)), _y_pixels(vertical.places(y)), strict=True))


def _x_pixels(places: Floats) -> list[str]:
    return [_format(LEFT + place * (WIDTH - LEFT - RIGHT)) for place in places.tolist()]


def _y_pixels(places: Floats) -> list[str]:
    # SVG counts from the top.
    height = HEIGHT - BOTTOM - TOP
    return [_format(HEIGHT - BOTTOM - place * height) for place in places.tolist()]


def _format_points(points: Sequence[tuple[str, str]]) -> str:
    return " ".join(f"{x},{y}" for x, y in points)


def _format(pixels: float) -> str:
    """Round to a tenth of a pixel, which keeps pages small.

    >>> _format(12.04), _format(3.25)
    ('12', '3.2')
    """
    return f"{pixels:.1f}".removesuffix(".0")
