"""Numbers as people read them: three digits that count, with a prefix and a unit."""

from __future__ import annotations

import math

_UNITS_OF_TIME = (
    (259_200.0, 86_400.0, "d"),
    (10_800.0, 3600.0, "h"),
    (600.0, 60.0, "min"),
    (0.1, 1.0, "s"),
    (0.0, 1e-3, "ms"),
)
NO_TIME_S = 1e-15
_PREFIXES = {-9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}


def format_quantity(value: float, unit: str) -> str:
    """A number with an SI prefix.

    >>> format_quantity(1_135_256_096, "MAC"), format_quantity(279_936, "B"), format_quantity(999.6, "B"), format_quantity(0, "B")
    ('1.14 GMAC', '280 kB', '1.00 kB', '0 B')
    """
    if value == 0:
        return f"0 {unit}"
    rounded = float(f"{value:.3g}")
    power = 3 * math.floor(math.log10(abs(rounded)) / 3 + 1e-12)
    power = min(max(power, min(_PREFIXES)), max(_PREFIXES))
    return f"{format_digits(rounded / 10.0**power)} {_PREFIXES[power]}{unit}"


def format_seconds(value: float) -> str:
    """A time: seconds from a tenth of one upwards, smaller units below; what rounding left of nothing is nothing.

    >>> format_seconds(0.4543), format_seconds(0.0123), format_seconds(0.0), format_seconds(86_400.0), format_seconds(1e-19)
    ('0.454 s', '12.3 ms', '0 s', '86,400 s', '0 s')
    """
    if abs(value) < NO_TIME_S:
        return "0 s"
    return f"{format_digits(value)} s" if value >= 0.1 else format_quantity(value, "s")


def format_digits(value: float) -> str:
    """Three digits that count, and never an exponent.

    >>> format_digits(0.4543), format_digits(27.0), format_digits(1234.5), format_digits(0.0)
    ('0.454', '27.0', '1,234', '0')
    """
    if value == 0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(abs(float(f"{value:.3g}"))) + 1e-12))
    return f"{value:,.{decimals}f}"


def format_percent(fraction: float, decimals: int = 1) -> str:
    """
    >>> format_percent(0.05), format_percent(0.939712), format_percent(0.00012, 2)
    ('5.0 %', '94.0 %', '0.01 %')
    """
    return f"{100 * fraction:.{decimals}f} %"


def format_percent_bound(fraction: float) -> str:
    """A bound in percent: two digits that count, rounded up, so that the sentence stays true.

    >>> format_percent_bound(0.000301), format_percent_bound(1e-13), format_percent_bound(1.5)
    ('0.031 %', '0.0001 %', '150 %')
    """
    value = max(100 * fraction, 1e-4)
    step = 10.0 ** (math.floor(math.log10(value) + 1e-12) - 1)
    up = math.ceil(value / step - 1e-9) * step
    return (
        f"{up:.{max(0, -round(math.log10(step)))}f}".rstrip("0").rstrip(".") + " %"
        if step < 1
        else f"{up:.0f} %"
    )


def format_bar(fraction: float, width: int = 20) -> str:
    """A bar of text: full at one, and to an eighth of a letter.

    >>> format_bar(0.5, 4), format_bar(0.0, 4), format_bar(0.28, 4)
    ('██', '', '█▏')
    """
    eighths = round(fraction * width * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def pluralize(number: int, thing: str) -> str:
    """
    >>> pluralize(1, "device"), pluralize(12_000, "round")
    ('1 device', '12,000 rounds')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def format_interval(every: int, thing: str) -> str:
    """
    >>> format_interval(1, "round"), format_interval(5, "round")
    ('every round', 'every 5 rounds')
    """
    return f"every {thing}" if every == 1 else f"every {pluralize(every, thing)}"


def choose_time_unit(longest_s: float) -> tuple[float, str]:
    """The unit in which times up to this one are drawn, in seconds, and its name.

    >>> choose_time_unit(59.0), choose_time_unit(7200.0), choose_time_unit(0.02)
    ((1.0, 's'), (60.0, 'min'), (0.001, 'ms'))
    """
    return next((unit_s, word) for least_s, unit_s, word in _UNITS_OF_TIME if longest_s >= least_s)
