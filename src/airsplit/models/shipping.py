"""Counts the profiles that ship with the package: `python -m airsplit.models.shipping`."""

from __future__ import annotations

from pathlib import Path

from airsplit.files import write_text
from airsplit.models.profiling import counted
from airsplit.models.registry import default_input_shape, model_names, profile_name
from airsplit.models.shapes import Shape

FOLDER = Path(__file__).parent.parent / "shipped"


def shipped_models() -> list[tuple[str, Shape]]:
    """Every built-in model at its own input size, and VGG16 for small images.

    >>> shipped_models()[-1]
    ('vgg16', (3, 32, 32))
    """
    return [*((name, default_input_shape(name)) for name in model_names()), ("vgg16", (3, 32, 32))]


def write_shipped(folder: Path = FOLDER) -> list[Path]:
    """Count and write them all."""
    files = []
    for name, shape in shipped_models():
        files.append(folder / f"{profile_name(name, shape)}.json")
        write_text(files[-1], counted(name, shape).to_json() + "\n")
    return files


if __name__ == "__main__":
    for file in write_shipped():
        print(file.name)
