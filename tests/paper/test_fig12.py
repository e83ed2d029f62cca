"""Figure 12: the alternation's plans between the optimum and the last one."""

from __future__ import annotations

import numpy as np

from paper.tiny_figures import read_numbers


def test_the_best_visited_plan_is_between_the_optimum_and_the_last_one(folder):
    for entry in read_numbers(folder, 12)["models"]:
        for curve in entry["curves"]:
            best = np.array(curve["best_visited_over_exact"]["median"])
            last = np.array(curve["last_visited_over_exact"]["median"])
            assert np.all(best >= 1)
            assert np.all(last >= best)
            assert min(curve["share_of_fleets_that_cycle"]) >= 0
            assert max(curve["share_of_fleets_that_cycle"]) <= 1
