"""Tables of data sets: the built-in ones, and the partition of one among devices."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
from rich.table import Table
from rich.text import Text

from airsplit.cli.output import note
from airsplit.cli.tables import make_list, make_table
from airsplit.core.arrays import Ints
from airsplit.core.errors import InvalidValue, show
from airsplit.core.formatting import format_percent, format_quantity, pluralize
from airsplit.data.downloads import Progress, download, download_bytes
from airsplit.data.image_sets import find_data_folder, find_missing_files
from airsplit.data.label_counts import LabelCounts
from airsplit.scenario.settings import TrainingSettings
from airsplit.system.inputs import format_shape

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def require_data_set(options: Mapping[str, object]) -> None:
    """Reject options about one data set if none is named."""
    # The list of all data sets takes no options; ignoring one would look like an answer.
    for key, value in options.items():
        if value is not None:
            option = f"--{key.replace('_', '-')}"
            raise InvalidValue(
                f"{option} needs the NAME of a data set, got {show(value)} alone; "
                "write e.g. airsplit data mnist"
            )


def data_sets_report(data_sets: list[dict[str, Any]], folder: Path | None) -> list[Table]:
    """Return a row for each built-in data set, and where their files go."""
    table = make_table(
        "name",
        "images",
        "classes",
        "train",
        "test",
        "there",
        words=("name", "images"),
        prose=("there",),
    )
    for entry in data_sets:
        name = entry["name"]
        there = "yes"
        if not entry["there"]:
            size = format_quantity(download_bytes(name), "B")
            there = f"no: airsplit data {name} downloads {size}"
        table.add_row(
            name,
            format_shape(entry["image_shape"]),
            str(entry["classes"]),
            f"{entry['train_samples']:,}",
            f"{entry['test_samples']:,}",
            there,
        )
    where = f"{find_data_folder(folder)}; --data DIR or AIRSPLIT_DATA names another"
    return [table, make_list([("data folder", where)])]


def download_missing_files(name: str, folder: Path | None) -> None:
    """Download a data set with progress on stderr, unless it is there."""
    if not find_missing_files(name, folder):
        return
    size = format_quantity(download_bytes(name), "B")
    note(f"downloading {name}, {size}, into {find_data_folder(folder)}")
    with show_progress(sys.stderr) as progress:
        download(name, folder, progress)


def plot_labels(partition: LabelCounts) -> Figure:
    """Plot which devices hold which labels."""
    from airsplit.plots.label_counts import draw_labels

    devices = pluralize(len(partition.counts), "device")
    caption = (
        f"Partition: {describe_partition(partition.settings)}; {devices} with "
        f"{_format_range(partition.counts.sum(axis=1))} samples each"
    )
    title = f"{partition.image_set.title}: labels by device"
    return draw_labels(partition.counts, partition.image_set.labels, title, caption)


def partition_report(partition: LabelCounts) -> list[Text | Table]:
    """Return the contents of a data set, and its partition."""
    image_set = partition.image_set
    counts = partition.counts
    labels = image_set.labels

    folder = "none: these files come with scikit-learn"
    if image_set.files:
        folder = str(find_data_folder(partition.folder))
    # The fraction of a device's samples that have its most frequent label; 1 if it has no other.
    main_fractions = counts.max(axis=1) / counts.sum(axis=1)
    low, median, high = (
        format_percent(float(value), 0) for value in np.quantile(main_fractions, [0, 0.5, 1])
    )
    devices = pluralize(len(counts), "device")
    pairs = [
        ("samples", f"{image_set.train:,} to train on, {image_set.test:,} to test on"),
        ("classes", f"{len(labels)}: {', '.join(labels)}"),
        ("images", format_shape(image_set.shape)),
        ("folder", folder),
        ("partition", f"{describe_partition(partition.settings)}; {devices}"),
        ("samples per device", _format_spread(counts.sum(axis=1))),
        ("labels per device", _format_spread((counts > 0).sum(axis=1))),
        ("most frequent label", f"{low} to {high} of a device's samples, median {median}"),
    ]
    return [Text(image_set.title, style="bold"), make_list(pairs)]


def describe_partition(settings: TrainingSettings) -> str:
    """Return the kind of a partition, with the settings that this kind has.

    >>> describe_partition(TrainingSettings(partition="dirichlet", alpha=0.1))
    'dirichlet, α = 0.1, seed 0'
    """
    parts = [settings.partition]
    if settings.partition == "dirichlet":
        parts.append(f"α = {settings.alpha}")
    if settings.partition == "shards" and settings.labels_per_device is not None:
        parts.append(f"{pluralize(settings.labels_per_device, 'shard')} per device")
    return ", ".join([*parts, f"seed {settings.seed}"])


def _format_spread(values: Ints) -> str:
    """Return the range of counts, and their median if they differ.

    >>> _format_spread(np.array([3, 3])), _format_spread(np.array([2, 7, 4]))
    ('3', '2 to 7, median 4')
    """
    text = _format_range(values)
    if np.ptp(values) == 0:
        return text
    # Counts have a median that is whole, or halfway between two whole numbers.
    median = np.median(values)
    decimals = 0 if median % 1 == 0 else 1
    return f"{text}, median {median:,.{decimals}f}"


def _format_range(values: Ints) -> str:
    """Return the smallest and the largest of some counts.

    >>> _format_range(np.array([3, 3])), _format_range(np.array([2, 7, 4]))
    ('3', '2 to 7')
    """
    low = int(values.min())
    high = int(values.max())
    if low == high:
        return f"{low:,}"
    return f"{low:,} to {high:,}"


@contextmanager
def show_progress(stream: TextIO) -> Iterator[Progress]:
    """Show the bytes of a download: a live percentage on a terminal, else a line per quarter."""
    is_live = stream.isatty()
    steps = 100 if is_live else 4
    last_step = -1

    def show_bytes(done_bytes: int, total_bytes: int) -> None:
        nonlocal last_step
        step = done_bytes * steps // max(total_bytes, 1)
        if step == last_step:
            return
        last_step = step
        done = format_quantity(done_bytes, "B")
        text = f"airsplit: {done} of {format_quantity(total_bytes, 'B')}"
        # Blanks cover the rest of a longer text before it.
        stream.write(f"\r{text:<40}" if is_live else f"{text}\n")
        stream.flush()

    try:
        yield show_bytes
    finally:
        # End the live line, also if the download fails, so that the error gets its own.
        if is_live and last_step >= 0:
            stream.write("\n")
