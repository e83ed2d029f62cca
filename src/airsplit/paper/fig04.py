"""Figure 4: split point and expected latency against the mean distance, AlexNet with L̂ = 8.  Carries C3, C4, C5."""

from __future__ import annotations

from airsplit.paper.distances import distance_figure

FIGURE = distance_figure(4, "alexnet", max_split=8)
