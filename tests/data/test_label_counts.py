"""Label counts: what the command `data` says about a data set and its partition."""

from __future__ import annotations

from pathlib import Path

import pytest

from airsplit.data.image_files import read_images
from airsplit.data.image_sets import IMAGE_SETS
from airsplit.data.label_counts import count_partition, list_image_sets
from airsplit.data.partition import count_labels, partition_samples
from airsplit.scenario.settings import FleetSettings, TrainingSettings
from data.small_sets import small_mnist


def test_counts_are_those_of_the_partition_of_a_training() -> None:
    settings = TrainingSettings(partition="shards", seed=3)
    labels = read_images("digits")[0].labels
    dealt = count_partition(settings, None, 7)
    assert (dealt.counts == count_labels(labels, partition_samples(settings, labels, 7), 10)).all()
    document = dealt.to_dict()
    assert document["label_counts"] == dealt.counts.tolist()
    assert (document["devices"], document["seed"], document["folder"]) == (7, 3, None)


def test_without_a_number_there_are_as_many_devices_as_in_a_default_fleet() -> None:
    default = FleetSettings.model_fields["devices"].default
    assert len(count_partition(TrainingSettings(), None, None).counts) == default


def test_the_list_says_which_files_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_mnist(monkeypatch, tmp_path)
    entries = {entry["name"]: entry for entry in list_image_sets(tmp_path)}
    assert list(entries) == list(IMAGE_SETS)
    assert {name for name, entry in entries.items() if entry["there"]} == {"digits", "mnist"}
    assert (entries["mnist"]["train_samples"], entries["mnist"]["classes"]) == (60, 10)
    assert entries["mnist"]["folder"] == str(tmp_path)
    assert entries["digits"]["folder"] is None
