"""What we lose: every race that a peer won, and what peers can do that Airsplit cannot."""

from __future__ import annotations

from peers.table import Section

FEATURES = (
    "cvxpy takes any convex problem as it is written down; our planner solves its own problem and no other.",
    "torchinfo prints a tree of layers with shapes; fvcore and ptflops count by operator and by module. We list splits.",
    "pfl has differential privacy with its accountants, FedProx, SCAFFOLD, Reptile, federated gradient-boosted trees and Gaussian "
    "mixtures, and takes TensorFlow and MLX models besides PyTorch's. We have five algorithms without privacy noise, for PyTorch.",
    "Flower has FedAdam, FedYogi, Krum, Bulyan and other strategies, differential privacy, secure aggregation, and clients in any "
    "framework that gives numpy arrays. Its Ray backend spreads clients over a cluster and shares GPUs by fractions.",
    "NVIDIA FLARE has provisioning of projects, roles and authorisation, several jobs at once, homomorphic encryption, and relays between "
    "cells. Our server trains one scenario at a time.",
)
"""By hand; everything else on the page is measured."""


def losses(sections: list[Section]) -> list[str]:
    lost = [race for section in sections for race in section.races if race.lost]
    held = sum(len(section.races) for section in sections)
    return [
        "## What we lose",
        "",
        f"From the numbers above: of {held} races against peers we lose {len(lost)}.",
        "",
        *(f"- {race.told()}" for race in lost),
        "",
        "What they can do and Airsplit cannot:",
        "",
        *(f"- {feature}" for feature in FEATURES),
    ]
