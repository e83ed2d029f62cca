"""Figure 13: the certified bound holds for all methods."""

from __future__ import annotations

import numpy as np

from paper.tiny_figures import read_numbers


def test_no_method_is_below_the_certified_bound_and_expected_max_is_the_best(folder):
    for panel in read_numbers(folder, 13)["panels"]:
        above = {
            method: np.array(values["median"]) for method, values in panel["above_bound"].items()
        }
        assert np.all(above["expected-max"] >= 0)
        for method in ("paper", "exact"):
            assert np.all(above["expected-max"] <= above[method] + 1e-9)
