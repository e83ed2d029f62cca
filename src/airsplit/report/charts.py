"""Pictures as inline SVG: lines over an axis, and bars.  Colors are classes of the style sheet, so they follow light and dark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from airsplit.core.arrays import Floats
from airsplit.report.markup import Html, tag, together
from airsplit.report.scales import AxisScale, thin

WIDTH, HEIGHT = 360, 216
LEFT, RIGHT, TOP, BOTTOM = 42, 20, 8, 36
MOST_DOTS = 30  # a line with more points than this shows no dots


@dataclass(frozen=True, eq=False)
class Line:
    """One number for each of some points; not finite where there is none.  `kind` is its class in the style sheet."""

    name: str
    kind: str
    values: Floats


@dataclass(frozen=True, eq=False)
class Band:
    """What is shaded, from low to high."""

    name: str
    kind: str
    low: Floats
    high: Floats


@dataclass(frozen=True, eq=False)
class Axis:
    """A scale, what is said under it, and how its ticks are written."""

    scale: AxisScale
    label: str
    form: Callable[[float], str]


def line_chart(
    x: Floats, across: Axis, up: Axis, lines: Sequence[Line], band: Band | None = None, *, alt: str
) -> Html:
    """Lines over common points x, with ticks, a grid and no more ink than needed."""
    shaded = [] if band is None else [_shade(band, x, across.scale, up.scale)]
    drawn = [_line(line, x, across.scale, up.scale) for line in lines]
    inside = [*_rows(up), *_columns(across), *shaded, *drawn]
    return tag(
        "svg", *inside, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=alt, class_="chart"
    )


def legend(entries: Sequence[Line | Band]) -> Html:
    """Which line is which."""
    return tag(
        "p", *(tag("span", _key(entry), " ", entry.name) for entry in entries), class_="legend"
    )


def swatches(kinds: dict[str, str]) -> Html:
    """Which part of a bar is which: class and name."""
    square = {
        kind: _small(tag("rect", x=6, y=0, width=12, height=12, class_=f"fill {kind}"))
        for kind in kinds
    }
    return tag(
        "p",
        *(tag("span", square[kind], " ", word) for kind, word in kinds.items()),
        class_="legend",
    )


def bar(parts: dict[str, float]) -> Html:
    """Parts of one, side by side: class and length.  What they lack to one stays empty.

    >>> bar({"compute": 0.25, "idle": 0.5}).count("<rect")
    3
    """
    starts = np.cumsum([0.0, *parts.values()])
    pieces = [
        tag(
            "rect",
            x=_n(1000 * start),
            y=0,
            width=_n(1000 * length),
            height=10,
            class_=f"fill {kind}",
        )
        for (kind, length), start in zip(parts.items(), starts, strict=False)
        if length > 0
    ]
    track = tag("rect", x=0, y=0, width=1000, height=10, class_="track")
    return tag(
        "svg",
        track,
        *pieces,
        viewBox="0 0 1000 10",
        preserveAspectRatio="none",
        class_="bar",
        aria_hidden="true",
    )


def _key(entry: Line | Band) -> Html:
    if isinstance(entry, Line):
        return _small(tag("path", d="M0 6H24", class_=f"line {entry.kind}"))
    return _small(tag("rect", x=0, y=0, width=24, height=12, class_=f"band {entry.kind}"))


def _small(inside: Html) -> Html:
    return tag("svg", inside, viewBox="0 0 24 12", class_="key", aria_hidden="true")


def _line(line: Line, x: Floats, across: AxisScale, up: AxisScale) -> Html:
    there = np.isfinite(line.values)
    x, y = x[there], line.values[there]
    kept = thin(y)
    points = _points(x[kept], y[kept], across, up)
    dots = (
        [tag("circle", cx=a, cy=b, r=2.2, class_=f"dot {line.kind}") for a, b in points]
        if len(points) <= MOST_DOTS
        else []
    )
    return together(tag("polyline", points=_joined(points), class_=f"line {line.kind}"), *dots)


def _shade(band: Band, x: Floats, across: AxisScale, up: AxisScale) -> Html:
    there = np.isfinite(band.low) & np.isfinite(band.high)
    x, low, high = x[there], band.low[there], band.high[there]
    kept = thin(high)
    outline = [
        *_points(x[kept], high[kept], across, up),
        *reversed(_points(x[kept], low[kept], across, up)),
    ]
    return tag("polygon", points=_joined(outline), class_=f"band {band.kind}")


def _rows(up: Axis) -> list[Html]:
    """A line and a number at each tick of the upright axis."""
    heights = _down(up.scale.places(up.scale.ticks))
    grid = [tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid") for y in heights]
    words = [
        tag("text", up.form(t), x=LEFT - 6, y=y, dy="0.35em", text_anchor="end")
        for t, y in zip(up.scale.ticks, heights, strict=True)
    ]
    return [*grid, *words]


def _columns(across: Axis) -> list[Html]:
    bottom, places = HEIGHT - BOTTOM, _right(across.scale.places(across.scale.ticks))
    axis = tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=bottom, y2=bottom, class_="axis")
    words = [
        together(
            tag("line", x1=x, x2=x, y1=bottom, y2=bottom + 3, class_="axis"),
            tag("text", across.form(t), x=x, y=bottom + 14, text_anchor="middle"),
        )
        for t, x in zip(across.scale.ticks, places, strict=True)
    ]
    return [
        axis,
        *words,
        tag("text", across.label, x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 6, text_anchor="middle"),
    ]


def _points(x: Floats, y: Floats, across: AxisScale, up: AxisScale) -> list[tuple[str, str]]:
    return list(zip(_right(across.places(x)), _down(up.places(y)), strict=True))


def _right(places: Floats) -> list[str]:
    return [_n(LEFT + place * (WIDTH - LEFT - RIGHT)) for place in places.tolist()]


def _down(places: Floats) -> list[str]:
    return [_n(HEIGHT - BOTTOM - place * (HEIGHT - BOTTOM - TOP)) for place in places.tolist()]


def _joined(points: Sequence[tuple[str, str]]) -> str:
    return " ".join(f"{x},{y}" for x, y in points)


def _n(number: float) -> str:
    """A tenth of a pixel is enough.

    >>> _n(12.04), _n(3.25)
    ('12', '3.2')
    """
    return f"{number:.1f}".removesuffix(".0")
