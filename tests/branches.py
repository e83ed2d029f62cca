"""Branch coverage of each room: python tests/branches.py out/coverage.json.

Prints a table, then each branch that was not taken as `file:line -> line  code`. Fails if a room
is below its limit.
"""

from __future__ import annotations

import json
import linecache
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PACKAGE = "src/airsplit/"

# The least fraction of branches taken; other rooms are only listed.
LIMITS = {"planning": 0.95, "training": 0.95, "network": 0.85}


@dataclass
class Room:
    """Coverage of one room, with the folders in it."""

    lines: int = 0
    lines_run: int = 0
    branches: int = 0
    branches_taken: int = 0
    missed: list[str] = field(default_factory=list)

    def add(self, path: str, report: dict[str, Any]) -> None:
        """Add a file's entry of the coverage report."""
        summary = report["summary"]
        self.lines += summary["num_statements"]
        self.lines_run += summary["covered_lines"]
        self.branches += summary["num_branches"]
        self.branches_taken += summary["covered_branches"]
        self.missed += [describe_branch(path, *pair) for pair in sorted(report["missing_branches"])]


def describe_branch(path: str, start: int, end: int) -> str:
    """Return a branch and the code at its start; a negative `end` leaves the function."""
    target = end if end > 0 else "exit"
    return f"{path}:{start} -> {target}  {linecache.getline(path, start).strip()}"


def sum_by_room(report: dict[str, Any]) -> dict[str, Room]:
    """Return the rooms by name, those with a limit first; modules in no room are "."."""
    rooms = {name: Room() for name in LIMITS}
    for path, file_report in sorted(report["files"].items()):
        folder, slash, _ = Path(path).as_posix().partition(PACKAGE)[2].partition("/")
        name = folder if slash else "."
        rooms.setdefault(name, Room()).add(path, file_report)
    return rooms


def format_fraction(count: int, total: int) -> str:
    return f"{count} of {total}, {count / total:.1%}" if total else "none"


def format_table(rooms: dict[str, Room]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = ["| room | lines run | branches taken | limit |", "|---|---|---|---|"]
    for name, room in rooms.items():
        lines_run = format_fraction(room.lines_run, room.lines)
        branches_taken = format_fraction(room.branches_taken, room.branches)
        limit = f"{LIMITS[name]:.0%}" if name in LIMITS else ""
        lines.append(f"| {name} | {lines_run} | {branches_taken} | {limit} |")
    return lines


def find_rooms_below_limit(rooms: dict[str, Room]) -> list[str]:
    """Return the rooms with too few branches taken, or without any code that was measured."""
    return [
        name
        for name, limit in LIMITS.items()
        if rooms[name].branches_taken < limit * rooms[name].branches or not rooms[name].lines
    ]


def main(file: str) -> int:
    rooms = sum_by_room(json.loads(Path(file).read_text()))
    print(*format_table(rooms), sep="\n")
    for name, room in rooms.items():
        if room.missed:
            print(f"\n{name}: {len(room.missed)} branches not taken", *room.missed, sep="\n")

    below_limit = find_rooms_below_limit(rooms)
    if below_limit:
        print(f"\nToo few branches taken: {', '.join(below_limit)}", file=sys.stderr)
    return 1 if below_limit else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
