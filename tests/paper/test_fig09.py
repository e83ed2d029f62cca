"""Figure 9: the lead of SFL against a count by hand."""

from __future__ import annotations

import numpy as np
import pytest

from paper.tiny_figures import read_numbers


def test_the_lead_of_sfl_is_the_mean_over_seeds_at_its_mean_time(folder):
    for panel in read_numbers(folder, 9)["panels"]:
        moment_s = np.mean([times_s[0] for times_s in panel["sfl"]["virtual_time_s"]])
        fedavg = panel["fedavg"]
        best_before = [
            max([a for t, a in zip(times_s, accuracies, strict=True) if t <= moment_s], default=0.1)
            for times_s, accuracies in zip(
                fedavg["virtual_time_s"], fedavg["test_accuracy"], strict=True
            )
        ]
        leads = [
            accuracies[0] - best
            for accuracies, best in zip(panel["sfl"]["test_accuracy"], best_before, strict=True)
        ]
        assert panel["sfl_ahead"][0]["mean"] == pytest.approx(np.mean(leads), abs=1e-6)
