"""Figure 5: split point and expected latency against the mean distance, VGG16 with L̂ = 6.  Carries C3, C4, C5."""

from __future__ import annotations

from airsplit.paper.distances import distance_figure

FIGURE = distance_figure(5, "vgg16", max_split=6)
