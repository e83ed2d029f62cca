"""Counts the profiles that ship with the package: `python -m airsplit.models.zoo.shipping`."""

from __future__ import annotations

from pathlib import Path

from airsplit.core.files import write_text
from airsplit.models.loading import count_profile
from airsplit.models.zoo.registry import SHIPPED, input_of, profile_name

FOLDER = Path(__file__).parent / "profiles"


def write_shipped(folder: Path = FOLDER) -> list[Path]:
    """Count and write them all."""
    files = []
    for name, shape, arguments in SHIPPED:
        files.append(folder / f"{profile_name(name, shape, arguments)}.json")
        write_text(
            files[-1], count_profile(name, (input_of(name, shape),), arguments).to_json() + "\n"
        )
    return files


if __name__ == "__main__":
    for file in write_shipped():
        print(file.name)
