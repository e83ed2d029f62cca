"""The table of built-in data sets, and the folder with their files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airsplit.core.errors import UnknownName
from airsplit.data.image_sets import IMAGE_SETS, find_data_folder, find_missing_files, get_image_set
from airsplit.scenario.settings import DATASETS
from data.small_sets import published, small_mnist


def test_there_is_an_image_set_for_every_built_in_name_of_the_settings() -> None:
    assert set(IMAGE_SETS) == set(DATASETS)
    with pytest.raises(
        UnknownName, match=r"^training\.dataset 'mnits' is not known; did you mean 'mnist'"
    ):
        get_image_set("mnits")


def test_the_data_folder_is_the_argument_then_the_variable_then_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("AIRSPLIT_DATA", raising=False)
    assert find_data_folder() == Path("/home/me/.cache/airsplit/data")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert find_data_folder() == Path("/cache/airsplit/data")
    monkeypatch.setenv("AIRSPLIT_DATA", "/data")
    assert find_data_folder() == Path("/data")
    assert find_data_folder("~/mine") == Path("/home/me/mine")


def test_a_file_that_was_cut_short_counts_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_mnist(monkeypatch, tmp_path)
    assert find_missing_files("mnist", tmp_path) == []
    path = tmp_path / next(iter(get_image_set("mnist").files))
    path.write_bytes(path.read_bytes()[:-1])
    assert find_missing_files("mnist", tmp_path) == ["MNIST/raw/train-images-idx3-ubyte.gz"]


def test_every_file_is_declared_with_an_md5() -> None:
    for image_set in IMAGE_SETS.values():
        assert all(
            len(bytes.fromhex(file.md5)) == 16 and file.size_bytes > 0
            for file in image_set.files.values()
        )


def test_files_are_looked_for_at_their_declared_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        IMAGE_SETS, "mnist", replace(IMAGE_SETS["mnist"], files={"a/b": published(b"b")})
    )
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b").write_bytes(b"b")
    assert find_missing_files("mnist", tmp_path) == []


def test_every_set_with_files_has_a_url() -> None:
    for image_set in IMAGE_SETS.values():
        assert bool(image_set.files) == bool(image_set.url)
        if image_set.files:
            assert image_set.url.startswith("http")
            assert image_set.url.endswith("/")
