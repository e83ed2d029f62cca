"""Figures 7 and 8: parts of a round against its total."""

from __future__ import annotations

import numpy as np
import pytest

from paper.tiny_figures import read_caption, read_numbers, redraw


@pytest.mark.parametrize("number", [7, 8])
def test_the_caption_explains_that_slow_sending_is_on_purpose(folder, number):
    caption = read_caption(redraw(read_numbers(folder, number)))
    assert "those with time to spare send slowly on purpose" in caption


@pytest.mark.parametrize("number", [7, 8])
def test_a_round_takes_longer_than_its_air_time_and_less_than_its_expected_maximum(folder, number):
    for entry in read_numbers(folder, number)["models"]:
        for scheme in ("sfl", "fedavg"):
            total_s = np.array(entry[scheme]["total_s"]["median"])
            assert np.all(np.array(entry[scheme]["air_time_s"]["median"]) < total_s)
            assert np.all(np.array(entry[scheme]["expected_max_s"]["median"]) > total_s)


def test_the_two_input_sizes_of_vgg16_are_two_models(folder):
    data = read_numbers(folder, 7)
    assert [entry["model"] for entry in data["models"]] == ["alexnet", "vgg16", "vgg16-3x32x32"]
    assert len(set(data["settings"]["models"].values())) == 3
