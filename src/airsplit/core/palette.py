"""The colors of every picture: figures, reports and the dashboard.

Plain data without a plotting library, so that each of them can read it. Figures use the colors as
they are; pages declare them as CSS variables, for light and dark.
"""

from __future__ import annotations

from collections.abc import Mapping

# Okabe and Ito's palette, which people with any kind of color vision can tell apart, without its
# yellow, which is too pale for a line on white paper.
BLUE = "#0072B2"
ORANGE = "#E69F00"
GREEN = "#009E73"
RED = "#D55E00"
PURPLE = "#CC79A7"
SKY = "#56B4E9"

INK = "#222222"
FAINT = "#6b6b6b"

# Petroff's ten colors, for classes: as many as any color vision can tell apart (arXiv:2107.02270).
CLASSES = (
    "#3f90da",
    "#ffa90e",
    "#bd1f01",
    "#94a4a2",
    "#832db6",
    "#a96b59",
    "#e76300",
    "#b9ac70",
    "#717581",
    "#92dadd",
)

# The ways in which devices spend their time, in figures.
TIMES = {
    "compute": BLUE,
    "transmit": ORANGE,
    "server": GREEN,
    "idle": "#cdd2d6",
    "absent": "#f1f2f3",
}

# The same on pages, and the two sides of a cut, by the names of colors in LIGHT and DARK.
ROLES = {
    "compute": "blue",
    "transmit": "orange",
    "server": "green",
    "idle": "grey",
    "absent": "track",
    "device-side": "blue",
    "server-side": "track",
}

# Algorithms, by the same names, in figures, reports and the dashboard. A user's own has no color.
ALGORITHMS = {
    "sfl": "blue",
    "fedavg": "orange",
    "split-learning": "green",
    "splitfed-v1": "purple",
    "splitfed-v2": "red",
}

# A report. Orange and purple are darker than in figures, since a page also writes with them.
LIGHT = {
    "paper": "#ffffff",
    "card": "#f6f7f8",
    "ink": INK,
    "faint": "#5f6368",
    "rule": "#dfe2e5",
    "blue": BLUE,
    "orange": "#c17d00",
    "green": GREEN,
    "red": RED,
    "purple": "#a3568a",
    "grey": "#c3c8cd",
    "track": "#eceef0",
}
DARK = {
    "paper": "#16191c",
    "card": "#1f2327",
    "ink": "#e6e8ea",
    "faint": "#a2a9b0",
    "rule": "#363c42",
    "blue": SKY,
    "orange": ORANGE,
    "green": "#2fc39a",
    "red": "#ff8a4a",
    "purple": "#d99bc4",
    "grey": "#5c646c",
    "track": "#262b30",
}

# The dashboard has small text on cards and errors in red, which need more contrast; borders of
# controls; and one more line color, since it draws up to eight runs.
DASHBOARD_LIGHT = LIGHT | {
    "faint": "#5a5f64",
    "green": "#007a58",
    "red": "#b94a00",
    "teal": "#2f7f86",
    "track": "#e7eaed",
    "border": "#868d94",
}
DASHBOARD_DARK = DARK | {
    "faint": "#a9b0b7",
    "teal": "#7fd0d6",
    "track": "#2b3036",
    "border": "#7b838b",
}

# The lines of runs side by side, in the order in which they are chosen.
RUNS = ("blue", "orange", "green", "red", "purple", "faint", "ink", "teal")
DASHBOARD_ROLES = ROLES | ALGORITHMS | {f"run-{number}": name for number, name in enumerate(RUNS)}


def get_algorithm_color(algorithm: str) -> str:
    """Return the color of an algorithm in figures; ink for a user's own.

    >>> get_algorithm_color("sfl") == BLUE, get_algorithm_color("package.module:NAME") == INK
    (True, True)
    """
    # Not those of LIGHT, since figures have the brighter orange and purple.
    colors = {"blue": BLUE, "orange": ORANGE, "green": GREEN, "red": RED, "purple": PURPLE}
    if algorithm not in ALGORITHMS:
        return INK
    return colors[ALGORITHMS[algorithm]]


def format_css(
    light: Mapping[str, str], dark: Mapping[str, str], roles: Mapping[str, str] = ROLES
) -> str:
    """Return CSS that declares colors as variables: dark on dark screens, light elsewhere.

    >>> print(format_css({"ink": "#222222"}, {"ink": "#e6e8ea"}, {"line": "ink"}))
    :root {
      color-scheme: light dark;
      --ink: #222222;
      --line: var(--ink);
    }
    @media screen and (prefers-color-scheme: dark) { :root {
      --ink: #e6e8ea;
    } }
    <BLANKLINE>
    """
    named = {role: f"var(--{name})" for role, name in roles.items()}
    declared = "color-scheme: light dark;\n" + _declare(light) + _declare(named)
    screen = "@media screen and (prefers-color-scheme: dark)"
    return f":root {{\n  {declared}}}\n{screen} {{ :root {{\n{_declare(dark)}}} }}\n"


def _declare(values: Mapping[str, str]) -> str:
    return "".join(f"  --{name}: {value};\n" for name, value in values.items())
