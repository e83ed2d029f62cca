"""Traces: rates of the moment, and files of them."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airsplit.core.errors import AirsplitError, FileProblem, InvalidValue
from airsplit.system.traces import Trace

TIMES, RATES = [0.0, 10.0, 15.0], [[1e6, 2e6], [3e6, 4e6], [5e6, 6e6]]


def trace(**changes: Any) -> Trace:
    return Trace(**({"time_s": TIMES, "rate_bps": RATES} | changes))


@pytest.mark.parametrize(
    ("time_s", "row"), [(0, 0), (9.999, 0), (10, 1), (14.9, 1), (15, 2), (1e9, 2)]
)
def test_the_latest_moment_counts(time_s: float, row: int) -> None:
    assert trace().at(time_s).tolist() == RATES[row]


def test_before_the_first_moment_its_rates_hold() -> None:
    assert trace(time_s=[5.0, 10.0, 15.0]).at(0.0).tolist() == RATES[0]


@given(st.floats(0, 1e4))
def test_a_looping_trace_starts_over_after_its_last_step(time_s: float) -> None:
    # the last moment lasts as long as the one before it: 5 s, so that a period is 20 s
    phase = math.fmod(time_s, 20.0)
    row = sum(phase >= moment for moment in TIMES[1:])
    assert trace(loop=True).at(time_s).tolist() == RATES[row]


def test_one_moment_holds_for_ever() -> None:
    for loop in (False, True):
        assert Trace(np.array([3.0]), np.array([[7.0]]), loop=loop).at(99.0).tolist() == [7.0]


def test_a_trace_counts_its_devices() -> None:
    assert trace().devices == 2


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"time_s": []}, "time_s"),
        ({"time_s": [0.0, 10.0, 10.0]}, "time_s"),
        ({"time_s": [0.0, 10.0, 5.0]}, "time_s"),
        ({"time_s": [-1.0, 10.0, 15.0]}, "time_s"),
        ({"time_s": [0.0, math.nan, 15.0]}, "time_s"),
        ({"time_s": 3.0}, "time_s"),
        ({"time_s": [0.0, 10.0]}, "rate_bps"),
        ({"rate_bps": [1e6, 2e6, 3e6]}, "rate_bps"),
        ({"rate_bps": [[], [], []]}, "rate_bps"),
        ({"rate_bps": [[1e6], [1e6, 2e6], [1e6]]}, "rate_bps"),
        ({"rate_bps": [[1e6, 0.0], *RATES[1:]]}, "rate_bps"),
        ({"rate_bps": [[1e6, -1.0], *RATES[1:]]}, "rate_bps"),
        ({"rate_bps": [[1e6, math.inf], *RATES[1:]]}, "rate_bps"),
        ({"name": ["only one"]}, "name"),
    ],
)
def test_every_bad_trace_names_its_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidValue, match=rf"^trace\.{field}"):
        trace(**changes)


@pytest.mark.parametrize("time_s", [-1.0, math.nan, math.inf, None])
def test_a_time_is_a_finite_number_from_zero(time_s: Any) -> None:
    with pytest.raises(InvalidValue, match="time_s must be"):
        trace().at(time_s)


def test_a_file_gives_times_rates_and_names(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("time_s, anna ,ben\n0,1e6,2e6\n\n10,3e6,4e6\n")
    read = Trace.read(tmp_path / "t.csv", loop=True)
    assert read.name == ("anna", "ben")
    assert read.loop
    assert read.time_s.tolist() == [0, 10]
    assert read.at(0).tolist() == [1e6, 2e6]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "time_s,a\n",
        "time_s\n0\n",
        "a,time_s\n1e6,0\n",
        "time_s,a,b\n0,1e6\n",
        "time_s,a\n0,fast\n",
        "time_s,a\n0,nan\n",
        "time_s,a\n0,-1\n",
        "time_s,a\n10,1e6\n0,1e6\n",
        'time_s,"a\n0,1e6\n',
    ],
)
def test_every_bad_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(AirsplitError, match=r"trace file .*t\.csv'"):
        Trace.read(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "time_s,a,b\n\n0,1e6,2e6\n\n10,3e6\n",
            "line 5: 2 entries, but the header names 3 columns",
        ),
        ("time_s,a,b\n\n0,1e6,2e6\n\n10,3e6, fast\n", "line 5: b must be a number, got 'fast'"),
        ("time_s;a;b\n0;1e6;2e6\n", r"t\.csv': columns are separated by ';', must be ','"),
        ("time_s\ta\n0\t1e6\n", r"t\.csv': columns are separated by tabs, must be ','"),
        (
            "time_s,a,b,a\n0,1e6,2e6,1e6\n",
            r"t\.csv': columns 2 and 4 must not have the same name, got 'a' twice",
        ),
        (
            'time_s,a\n0,"1,5"\n',
            "line 2: a must be a number, got '1,5'; write it with a decimal point",
        ),
    ],
)
def test_the_error_for_a_bad_line_gives_its_number(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(FileProblem, match=message):
        Trace.read(tmp_path / "t.csv")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match=r"trace file .*t\.csv' does not exist"):
        Trace.read(tmp_path / "t.csv")
