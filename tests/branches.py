"""What of the code the tests ran, room by room: python tests/branches.py out/coverage.json, after a run with coverage.

Prints a table, then each branch that was not taken as `file:line -> line  code`; fails where a room is below its limit.
"""

from __future__ import annotations

import json
import linecache
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PACKAGE = "src/airsplit/"
LIMITS = {"planning": 0.95, "training": 0.95, "network": 0.85}
"""The least part of the branches; the other rooms are only listed."""


@dataclass
class Room:
    """What one folder has, and what was run of it."""

    lines: int = 0
    lines_run: int = 0
    branches: int = 0
    branches_taken: int = 0
    missed: list[str] = field(default_factory=list)

    def add(self, path: str, found: dict[str, Any]) -> None:
        summary = found["summary"]
        self.lines += summary["num_statements"]
        self.lines_run += summary["covered_lines"]
        self.branches += summary["num_branches"]
        self.branches_taken += summary["covered_branches"]
        self.missed += [branch(path, *pair) for pair in sorted(found["missing_branches"])]


def branch(path: str, start: int, end: int) -> str:
    """Where a branch begins and ends; `end` is negative where it leaves the function."""
    return (
        f"{path}:{start} -> {end if end > 0 else 'exit'}  {linecache.getline(path, start).strip()}"
    )


def rooms_in(report: dict[str, Any]) -> dict[str, Room]:
    """By name, those with a limit first; modules that are in no folder are one room, "."."""
    rooms = {name: Room() for name in LIMITS}
    for path, found in sorted(report["files"].items()):
        inside = Path(path).as_posix().partition(PACKAGE)[2]
        rooms.setdefault(inside.rpartition("/")[0] or ".", Room()).add(path, found)
    return rooms


def part(some: int, all: int) -> str:
    return f"{some} of {all}, {some / all:.1%}" if all else "none"


def table(rooms: dict[str, Room]) -> list[str]:
    rows = [
        f"| {name} | {part(room.lines_run, room.lines)} | {part(room.branches_taken, room.branches)} | "
        f"{f'{LIMITS[name]:.0%}' if name in LIMITS else ''} |"
        for name, room in rooms.items()
    ]
    return ["| room | lines run | branches taken | limit |", "|---|---|---|---|", *rows]


def too_low(rooms: dict[str, Room]) -> list[str]:
    return [
        name
        for name, limit in LIMITS.items()
        if rooms[name].branches_taken < limit * rooms[name].branches or not rooms[name].lines
    ]


def main(file: str) -> int:
    rooms = rooms_in(json.loads(Path(file).read_text()))
    print(*table(rooms), sep="\n")
    for name, room in rooms.items():
        if room.missed:
            print(f"\n{name}: {len(room.missed)} branches not taken", *room.missed, sep="\n")
    low = too_low(rooms)
    if low:
        print(f"\nToo few branches taken: {', '.join(low)}", file=sys.stderr)
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
