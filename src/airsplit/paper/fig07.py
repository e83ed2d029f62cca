"""Figure 7: a round of SFL and of FedAvg under different channel conditions.  Carries C7 and C8."""

from __future__ import annotations

from airsplit.paper.comparison import Conditions, comparison_figure
from airsplit.paper.sweeps import UNIFORM_PACE

DISTANCES_M = (50, 100, 200, 300, 400)

FIGURE = comparison_figure(
    7,
    "SFL against FedAvg under different channel conditions",
    Conditions(
        "mean_distance_m",
        "mean distance [m]",
        DISTANCES_M,
        DISTANCES_M,
        (UNIFORM_PACE,) * len(DISTANCES_M),
    ),
)
