"""Data sets as people read them: which are there, and who holds what of one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
from rich.table import Table
from rich.text import Text

from airsplit.cli.render import facts, table
from airsplit.core.arrays import Ints
from airsplit.core.errors import InvalidValue, show
from airsplit.core.formatting import format_percent, format_quantity, pluralize
from airsplit.data.downloads import Progress, download, download_bytes
from airsplit.data.image_files import read_images
from airsplit.data.image_sets import (
    IMAGE_SETS,
    ImageSet,
    find_data_folder,
    find_missing_files,
    get_image_set,
)
from airsplit.data.partition import count_labels, partition_samples
from airsplit.scenario.settings import FleetSettings, TrainingSettings
from airsplit.system.inputs import format_shape

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


# ---- those there are -----------------------------------------------------------------------------------------------------
def require_name(options: Mapping[str, object]) -> None:
    """Raise where a list of all data sets is asked for, and something that only one of them can have."""
    for key, value in options.items():
        if value is not None:
            option = f"--{key.replace('_', '-')}"
            raise InvalidValue(
                f"{option} needs the NAME of a data set before it, got {show(value)} alone; write e.g. airsplit data mnist"
            )


def stored(folder: Path | None) -> list[dict[str, Any]]:
    """The built-in data sets, and whether all their files are there."""
    return [
        _facts(name, known, folder) | {"there": not find_missing_files(name, folder)}
        for name, known in IMAGE_SETS.items()
    ]


def stored_table(found: list[dict[str, Any]], folder: Path | None) -> list[Text | Table]:
    made = table(
        "name",
        "images",
        "classes",
        "train",
        "test",
        "there",
        words=("name", "images"),
        prose=("there",),
    )
    made.columns[-1].justify = "left"
    for each in found:
        size = format_quantity(download_bytes(each["name"]), "B")
        there = "yes" if each["there"] else f"no: airsplit data {each['name']} downloads {size}"
        sizes = [f"{each[key]:,}" for key in ("train_samples", "test_samples")]
        made.add_row(
            each["name"], format_shape(each["image_shape"]), str(each["classes"]), *sizes, there
        )
    return [
        made,
        facts(
            [
                (
                    "data folder",
                    f"{find_data_folder(folder)}; --data DIR or AIRSPLIT_DATA says another",
                )
            ]
        ),
    ]


def _facts(name: str, known: ImageSet, folder: Path | None) -> dict[str, Any]:
    return {
        "name": name,
        "train_samples": known.train,
        "test_samples": known.test,
        "classes": len(known.labels),
        "image_shape": list(known.shape),
        "folder": str(find_data_folder(folder)) if known.files else None,
    }


# ---- one of them ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Held:
    """A data set in a folder, and how many samples of each class each device holds, devices × classes."""

    name: str
    folder: Path | None
    settings: TrainingSettings
    counts: Ints

    @property
    def known(self) -> ImageSet:
        return get_image_set(self.name)

    def to_dict(self) -> dict[str, Any]:
        keys = ("partition", "alpha", "labels_per_device", "samples_per_device", "seed")
        said = {key: value for key, value in self.settings.settings().items() if key in keys}
        held = {
            "devices": len(self.counts),
            "labels": self.known.labels,
            "label_counts": self.counts.tolist(),
        }
        return _facts(self.name, self.known, self.folder) | said | held


def held(
    name: str,
    folder: Path | None,
    devices: int | None,
    chosen: Mapping[str, Any],
    note: Callable[[str], None],
) -> Held:
    """Load a data set, download it first where it is not there, and deal it to the devices.

    chosen  settings of [training], by their names
    """
    classes = len(get_image_set(name).labels)
    settings = TrainingSettings(dataset=name, **chosen)
    if find_missing_files(name, folder):
        note(
            f"downloading {name}, {format_quantity(download_bytes(name), 'B')}, into {find_data_folder(folder)}"
        )
        with progress_on(sys.stderr) as progress:
            download(name, folder, progress)
    labels = read_images(name, folder)[0].labels
    return Held(name, folder, settings, _counts(labels, classes, devices, settings))


def _counts(labels: Ints, classes: int, devices: int | None, settings: TrainingSettings) -> Ints:
    many = FleetSettings.model_fields["devices"].default if devices is None else devices
    return count_labels(labels, partition_samples(settings, labels, many), classes)


def drawn(found: Held) -> Canvas:
    """The picture of who holds which labels."""
    from airsplit.plots.labels import draw_labels

    title = f"{found.known.title}: who holds which labels"
    sizes = found.counts.sum(axis=1)
    caption = f"Partition: {partition_text(found.settings)}; {pluralize(len(found.counts), 'device')} with {_ends(sizes)} samples each"
    return draw_labels(found.counts, found.known.labels, title, caption)


def held_table(found: Held) -> list[Text | Table]:
    known, counts = found.known, found.counts
    pairs = [
        ("samples", f"{known.train:,} to train on, {known.test:,} to test on"),
        ("classes", f"{len(known.labels)}: {', '.join(known.labels)}"),
        ("images", format_shape(known.shape)),
        (
            "folder",
            str(find_data_folder(found.folder))
            if known.files
            else "none: they come with scikit-learn",
        ),
        ("partition", f"{partition_text(found.settings)}; {pluralize(len(counts), 'device')}"),
        ("samples a device", _span(counts.sum(axis=1))),
        ("labels a device", _span((counts > 0).sum(axis=1))),
        ("of its main label", _of_main_label(counts)),
    ]
    return [Text(known.title, style="bold"), facts(pairs)]


def partition_text(settings: TrainingSettings) -> str:
    """
    >>> partition_text(TrainingSettings(partition="dirichlet", alpha=0.1))
    'dirichlet, α = 0.1, seed 0'
    """
    each = settings.labels_per_device
    options = {
        "iid": "",
        "dirichlet": f", α = {settings.alpha}",
        "shards": f", {each} shard{'s' * (each != 1)} a device",
    }
    return f"{settings.partition}{options.get(settings.partition, '')}, seed {settings.seed}"


def _of_main_label(counts: Ints) -> str:
    """How large a part of a device's samples has the label that it holds most of."""
    low, middle, high = (
        format_percent(float(part), 0)
        for part in np.quantile(counts.max(axis=1) / counts.sum(axis=1), [0, 0.5, 1])
    )
    return f"{low} to {high}, median {middle}"


def _span(values: Ints) -> str:
    """
    >>> _span(np.array([3, 3])), _span(np.array([2, 7, 4]))
    ('3', '2 to 7, median 4')
    """
    return _ends(values) + (
        ""
        if np.ptp(values) == 0
        else f", median {np.median(values):,.{0 if np.median(values) % 1 == 0 else 1}f}"
    )


def _ends(values: Ints) -> str:
    """
    >>> _ends(np.array([3, 3])), _ends(np.array([2, 7, 4]))
    ('3', '2 to 7')
    """
    low, high = int(values.min()), int(values.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


@contextmanager
def progress_on(stream: TextIO) -> Iterator[Progress]:
    """Bytes as they come: one line that changes on a terminal, a line for each quarter elsewhere."""
    live, last = stream.isatty(), -1

    def say(done_bytes: int, total_bytes: int) -> None:
        nonlocal last
        now = done_bytes * (100 if live else 4) // max(total_bytes, 1)
        if now != last:
            last = now
            text = f"airsplit: {format_quantity(done_bytes, 'B')} of {format_quantity(total_bytes, 'B')}"
            stream.write(f"\r{text:<40}" if live else f"{text}\n")
            stream.flush()

    try:
        yield say
    finally:
        if live and last >= 0:
            stream.write("\n")
