"""Numbers for people: three significant digits, an SI prefix and a unit."""

from __future__ import annotations

import math

# Shortest duration that is drawn in a unit, the unit in seconds, and its symbol; longest first.
_TIME_UNITS = (
    (259_200.0, 86_400.0, "d"),
    (10_800.0, 3600.0, "h"),
    (600.0, 60.0, "min"),
    (0.1, 1.0, "s"),
    (0.0, 1e-3, "ms"),
)

# Shorter durations are rounding errors of a zero.
NEGLIGIBLE_S = 1e-15

_PREFIXES = {-9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}

# Keeps the logarithm of an exact power of ten from falling below its integer.
_LOG_TOLERANCE = 1e-12


def format_quantity(value: float, unit: str) -> str:
    """Format a quantity with an SI prefix.

    >>> format_quantity(1_135_256_096, "MAC"), format_quantity(279_936, "B")
    ('1.14 GMAC', '280 kB')
    >>> format_quantity(999.6, "B"), format_quantity(0, "B")
    ('1.00 kB', '0 B')
    """
    if value == 0:
        return f"0 {unit}"

    # Round first: 999.6 has three digits only as 1.00 k.
    rounded = float(f"{value:.3g}")
    power = 3 * math.floor(math.log10(abs(rounded)) / 3 + _LOG_TOLERANCE)
    power = min(max(power, min(_PREFIXES)), max(_PREFIXES))
    return f"{format_digits(rounded / 10.0**power)} {_PREFIXES[power]}{unit}"


def format_seconds(value: float) -> str:
    """Format a duration: in seconds from 0.1 s on, in smaller units below.

    >>> format_seconds(0.4543), format_seconds(0.0123), format_seconds(86_400.0)
    ('0.454 s', '12.3 ms', '86,400 s')
    >>> format_seconds(0.0), format_seconds(1e-19)
    ('0 s', '0 s')
    """
    if abs(value) < NEGLIGIBLE_S:
        return "0 s"
    if value >= 0.1:
        return f"{format_digits(value)} s"
    return format_quantity(value, "s")


def format_digits(value: float) -> str:
    """Format a number to three significant digits, never with an exponent.

    >>> format_digits(0.4543), format_digits(27.0), format_digits(1234.5), format_digits(0.0)
    ('0.454', '27.0', '1,234', '0')
    """
    if value == 0:
        return "0"
    # Round before taking the logarithm: 999.6 becomes 1,000 and needs no decimals.
    magnitude = math.floor(math.log10(abs(float(f"{value:.3g}"))) + _LOG_TOLERANCE)
    return f"{value:,.{max(0, 2 - magnitude)}f}"


def format_percent(fraction: float, decimals: int = 1) -> str:
    """Format a fraction in percent.

    >>> format_percent(0.05), format_percent(0.939712), format_percent(0.00012, 2)
    ('5.0 %', '94.0 %', '0.01 %')
    """
    return f"{100 * fraction:.{decimals}f} %"


def format_percent_bound(fraction: float) -> str:
    """Format an upper bound in percent, to two significant digits.

    It is rounded up, so that the bound holds as printed.

    >>> format_percent_bound(0.000301), format_percent_bound(1e-13), format_percent_bound(1.5)
    ('0.031 %', '0.0001 %', '150 %')
    """
    # Never print 0 %: floating point proves no bound that well.
    value = max(100 * fraction, 1e-4)
    step = 10.0 ** (math.floor(math.log10(value) + _LOG_TOLERANCE) - 1)
    # Without the tolerance, a bound of exactly 0.31 could be printed as 0.32.
    rounded = math.ceil(value / step - 1e-9) * step
    if step >= 1:
        return f"{rounded:.0f} %"

    decimals = max(0, -round(math.log10(step)))
    return f"{rounded:.{decimals}f}".rstrip("0").rstrip(".") + " %"


def format_bar(fraction: float, width: int = 20) -> str:
    """Draw a fraction as a bar of block characters, to an eighth of a character.

    >>> format_bar(0.5, 4), format_bar(0.0, 4), format_bar(0.28, 4)
    ('██', '', '█▏')
    """
    # Unicode has blocks of one to seven eighths; the space stands for none, and is stripped.
    eighths = round(fraction * width * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def pluralize(number: int, noun: str) -> str:
    """Return a count with its noun.

    >>> pluralize(1, "device"), pluralize(12_000, "round")
    ('1 device', '12,000 rounds')
    """
    ending = "" if number == 1 else "s"
    return f"{number:,} {noun}{ending}"


def format_interval(period: int, noun: str) -> str:
    """Return how often something happens.

    >>> format_interval(1, "round"), format_interval(5, "round")
    ('every round', 'every 5 rounds')
    """
    if period == 1:
        return f"every {noun}"
    return f"every {pluralize(period, noun)}"


def choose_time_unit(longest_s: float) -> tuple[float, str]:
    """Return the unit for an axis of durations: its length in seconds, and its symbol.

    >>> choose_time_unit(59.0), choose_time_unit(7200.0), choose_time_unit(0.02)
    ((1.0, 's'), (60.0, 'min'), (0.001, 'ms'))
    """
    return next(
        (unit_s, symbol) for shortest_s, unit_s, symbol in _TIME_UNITS if longest_s >= shortest_s
    )
