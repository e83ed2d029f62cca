"""Figure 8: a round of SFL and of FedAvg under different computing conditions.  Carries C7 and C8."""

from __future__ import annotations

from airsplit.paper.comparison import Conditions, comparison_figure

PACES_NS = (0.2, 0.4, 0.6, 0.8, 1.0)
DISTANCE_M = 200

FIGURE = comparison_figure(
    8,
    f"SFL against FedAvg under different computing conditions, at {DISTANCE_M} m",
    Conditions(
        "nanoseconds_per_mac",
        f"a [ns/MAC], at {DISTANCE_M} m",
        PACES_NS,
        (DISTANCE_M,) * len(PACES_NS),
        tuple(1e-9 * pace for pace in PACES_NS),
    ),
)
