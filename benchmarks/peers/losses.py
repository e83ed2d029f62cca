"""The races that peers won, and what peers can do that Airsplit cannot."""

from __future__ import annotations

from peers.table import Section

# Written by hand; everything else on the page is measured.
FEATURES = (
    "cvxpy takes any convex problem as it is written down; our planner solves its own problem and "
    "no other.",
    "torchinfo prints a tree of layers with shapes; fvcore and ptflops count by operator and by "
    "module. We list splits.",
    "pfl has differential privacy with its accountants, FedProx, SCAFFOLD, Reptile, federated "
    "gradient-boosted trees and Gaussian mixtures, and takes TensorFlow and MLX models besides "
    "PyTorch's. We have five algorithms without privacy noise, for PyTorch.",
    "Flower has FedAdam, FedYogi, Krum, Bulyan and other strategies, differential privacy, secure "
    "aggregation, and clients in any framework that gives numpy arrays. Its Ray backend spreads "
    "clients over a cluster and shares GPUs by fractions.",
    "NVIDIA FLARE has provisioning of projects, roles and authorization, several jobs at once, "
    "homomorphic encryption, and relays between cells. Our server trains one scenario at a time.",
)


def describe_losses(sections: list[Section]) -> list[str]:
    """Return the last section of the page."""
    races = [race for section in sections for race in section.races]
    lost = [race for race in races if race.is_lost]
    return [
        "## What we lose",
        "",
        f"From the numbers above: of {len(races)} races against peers we lose {len(lost)}.",
        "",
        *(f"- {race.describe_loss()}" for race in lost),
        "",
        "What they can do and Airsplit cannot:",
        "",
        *(f"- {feature}" for feature in FEATURES),
    ]
