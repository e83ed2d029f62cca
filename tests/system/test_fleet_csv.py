"""Fleet files: every column comes back to the last bit, and errors name the line."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airsplit.core.errors import AirsplitError, FileProblem, InvalidValue
from airsplit.system.cell import Cell
from airsplit.system.fleet import Fleet
from airsplit.system.traces import Trace

positive = st.floats(min_value=1e-300, max_value=1e300)


@given(st.data(), st.integers(1, 5))
def test_a_file_gives_every_column_back_to_the_last_bit(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, K: int
) -> None:
    def column(values: st.SearchStrategy[float]) -> list[float]:
        return data.draw(st.lists(values, min_size=K, max_size=K))

    columns: dict[str, Any] = {
        name: column(positive) for name in ("seconds_per_mac", "fluctuation")
    }
    if data.draw(st.booleans()):
        columns |= {name: column(positive) for name in ("distance_m", "fading", "memory_bytes")}
    else:
        columns |= {
            name: column(positive) for name in ("full_band_rate_bps", "full_band_downlink_bps")
        }
        columns |= {
            "joules_per_mac": column(st.floats(0, 1e300)),
            "name": [f'dévice "{k}",' for k in range(K)],
        }
    columns["transmit_power_dbm"] = column(st.floats(-400, 400))
    path = tmp_path_factory.mktemp("fleet") / "fleet.csv"
    Fleet(**columns).write(path)
    again = Fleet.read(path)
    for name, values in columns.items():
        assert list(getattr(again, name)) == values


def test_a_sampled_fleet_survives_its_file(tmp_path: Path) -> None:
    cell = Cell(bandwidth_hz=5e6)
    original = Fleet.sample(20, seed=9, distance_spread=0.9, cell=cell)
    original.write(tmp_path / "f.csv")
    again = Fleet.read(tmp_path / "f.csv", cell=cell)
    assert (again.rate_bps(0.05) == original.rate_bps(0.05)).all()


def test_columns_may_come_in_any_order_with_blank_lines_and_spaces(tmp_path: Path) -> None:
    text = (
        "distance_m, fluctuation ,name,seconds_per_mac\n\n100, 2e9 ,anna,1e-9\n\n200,1e9,ben,2e-9\n"
    )
    (tmp_path / "f.csv").write_text(text)
    read = Fleet.read(tmp_path / "f.csv")
    assert (read.name, read.distance_m.tolist()) == (("anna", "ben"), [100, 200])  # type: ignore[union-attr]


def test_a_file_from_a_spreadsheet_is_read(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_bytes(
        b"\xef\xbb\xbfseconds_per_mac,fluctuation,distance_m\r\n1e-9,2e9,100\r\n"
    )
    assert len(Fleet.read(tmp_path / "f.csv")) == 1


HEADER = "seconds_per_mac,fluctuation,distance_m\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n1,2,3\n", "line 1 is empty; it must name the columns"),
        (HEADER, "no devices"),
        (HEADER + "1e-9,2e9\n", "line 2: 2 entries, but the header names 3 columns"),
        (HEADER + "1e-9,2e9,100\n1e-9,2e9,100,7\n", "line 3: 4 entries"),
        (
            HEADER + "1e-9,2e9,99,5\n",
            "line 2: 4 entries, but the header names 3 columns; "
            "a number must have a decimal point, not a comma",
        ),
        (
            HEADER + '1e-9,2e9,"99,5"\n',
            "line 2: distance_m must be a number, got '99,5'; write it with a decimal point",
        ),
        (
            HEADER.replace(",", ";") + "1e-9;2e9;99,5\n",
            "columns are separated by ';', must be ','; and numbers must",
        ),
        (
            HEADER.replace(",", "\t") + "1e-9\t2e9\t99\n",
            "columns are separated by tabs, must be ','",
        ),
        (
            "sep=;\n" + HEADER.replace(",", ";") + "1e-9;2e9;99\n",
            "columns are separated by ';', must be ','",
        ),
        (
            "name," + HEADER + "pi,1,1,1\n\nno,1,1,1\npi,1,1,1\n",
            "line 5: name must not repeat, got 'pi' as in line 2",
        ),
        ("name," + HEADER + "pi,1,1,1\n ,1,1,1\n", "line 3: name must not be empty"),
        (
            HEADER + "1e-9,2e9,100\n1e-9,fast,100\n",
            "line 3: fluctuation must be a number, got 'fast'",
        ),
        (HEADER + "1e-9,,100\n", "line 2: fluctuation must be a number, got ''"),
        (HEADER + "1e-9,nan,100\n", r"line 2: fluctuation must be a finite number > 0, got nan"),
        (HEADER + "1e-9,-2e9,100\n", r"line 2: fluctuation must be a finite number > 0, got -2"),
        ("fluctuation,distance_m\n2e9,100\n", "no column 'seconds_per_mac'"),
        ("seconds_per_mac,distance_m\n2e9,100\n", "no column 'fluctuation'"),
        (
            "seconds_per_mac,fluctuation\n1e-9,2e9\n",
            "needs distance_m, full_band_rate_bps or a trace",
        ),
        ("seconds_per_mac,fluctuation,distance_m,distance_m\n1,1,1,1\n", "named twice"),
        (
            "seconds_per_mac,fluctuation,distance_m,full_band_rate_bps\n1,1,1,1\n",
            "exclude each other",
        ),
        (
            "seconds_per_mac,fluctuation,distance\n1e-9,2e9,100\n",
            "column 'distance' is not known; .* 'distance_m'",
        ),
        (HEADER.replace("distance_m", '"distance_m') + "1e-9,2e9,100\n", "is not CSV"),
        (f"{'x' * 200_000}\n1\n", "is not CSV"),
    ],
)
def test_every_bad_file_is_named_with_what_is_wrong(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "f.csv").write_text(text)
    with pytest.raises(AirsplitError, match=rf"fleet file .*f\.csv'.*{message}"):
        Fleet.read(tmp_path / "f.csv")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match=r"fleet file .*f\.csv' does not exist"):
        Fleet.read(tmp_path / "f.csv")


def test_a_fleet_with_a_trace_cannot_be_written(tmp_path: Path) -> None:
    trace = Trace(np.array([0.0]), np.array([[1e6]]))
    traced = Fleet(seconds_per_mac=1e-9, fluctuation=2e9, trace=trace)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match=r"fleet\.trace"):
        traced.write(tmp_path / "f.csv")
    assert list(tmp_path.iterdir()) == []
