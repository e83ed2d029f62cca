"""The built-in data sets, and the samples of each class that each device holds of one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airsplit.core.arrays import Ints
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

# Settings of [training] that decide who holds what.
PARTITION_SETTINGS = ("partition", "alpha", "labels_per_device", "samples_per_device", "seed")


@dataclass(frozen=True, eq=False)
class LabelCounts:
    """A data set, partitioned among devices.

    Attributes:
        settings: Its partition, among the other settings of [training].
        counts: Samples, devices × classes.
    """

    name: str
    folder: Path | None
    settings: TrainingSettings
    counts: Ints

    @property
    def image_set(self) -> ImageSet:
        return get_image_set(self.name)

    def to_dict(self) -> dict[str, Any]:
        """Return a document for JSON."""
        settings = self.settings.settings()
        return (
            _describe_image_set(self.name, self.folder)
            | {key: value for key, value in settings.items() if key in PARTITION_SETTINGS}
            | {
                "devices": len(self.counts),
                "labels": self.image_set.labels,
                "label_counts": self.counts.tolist(),
            }
        )


def count_partition(
    settings: TrainingSettings, folder: Path | None, devices: int | None
) -> LabelCounts:
    """Partition the data set of the settings among devices, and count labels.

    Args:
        devices: Number of devices; None for the default size of a fleet.
    """
    name = settings.dataset
    classes = len(get_image_set(name).labels)
    if devices is None:
        devices = FleetSettings.model_fields["devices"].default
    labels = read_images(name, folder)[0].labels
    counts = count_labels(labels, partition_samples(settings, labels, devices), classes)
    return LabelCounts(name, folder, settings, counts)


def list_image_sets(folder: Path | None) -> list[dict[str, Any]]:
    """Describe the built-in data sets, and say whether all their files are there."""
    return [
        _describe_image_set(name, folder) | {"there": not find_missing_files(name, folder)}
        for name in IMAGE_SETS
    ]


def _describe_image_set(name: str, folder: Path | None) -> dict[str, Any]:
    image_set = IMAGE_SETS[name]
    return {
        "name": name,
        "train_samples": image_set.train,
        "test_samples": image_set.test,
        "classes": len(image_set.labels),
        "image_shape": list(image_set.shape),
        # What comes with a package needs no data folder.
        "folder": str(find_data_folder(folder)) if image_set.files else None,
    }
