"""Tables of the networked system."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from airsplit.cli.network_tables import state_table


def rows_of(devices: list[dict[str, Any]]) -> list[list[str]]:
    """Return the cells of a server's table, one list for each device."""
    state = {"round": 1, "rounds": 8, "time_s": 2.0, "devices": devices}
    console = Console(width=100, color_system=None)
    with console.capture() as captured:
        console.print(*state_table(state))
    lines = [line.split() for line in captured.get().splitlines()]
    return [cells for cells in lines if cells and cells[0].isdigit()]


def test_a_device_without_a_name_is_in_the_table() -> None:
    device = {
        "number": 0,
        "name": "pi",
        "state": "training",
        "step": 3,
        "samples": 9,
        "version": 1,
        "last_seen_s": 1.4,
    }
    free_place = {
        "number": 1,
        "name": "",
        "state": "absent",
        "step": 0,
        "samples": 0,
        "version": 0,
        "last_seen_s": None,
    }
    rows = rows_of([device, free_place])
    assert rows == [
        ["0", "pi", "training", "3", "9", "round", "1", "1", "s", "ago"],
        ["1", "-", "absent", "0", "0"],
    ]
