"""Numbers of figures, small enough to judge by eye."""

from __future__ import annotations

from typing import Any

LAYERS = {
    3: {
        "layers": ["conv1", "pool1", "fc2"],
        "matmul_macs": [950, 950, 1000],
        "layer_macs": [950, 5, 50],
        "activation_elements": [90, 30, 10],
    }
}

TRAINING_SETTINGS = {
    "model": "alexnet32",
    "arguments": {"width": 0.25},
    "datasets": ["digits"],
    "rounds": 2,
    "iterations_per_round": 5,
    "devices": [5, 20],
}

# Differences of accuracy: with its interval above, around and below zero.
SURE, UNSURE, AGAINST = (
    {"mean": mean, "half_width": 0.1, "least": mean, "seeds": 3} for mean in (0.3, 0.05, -0.3)
)


def flat_band(values: list[float]) -> dict[str, list[float]]:
    """Return a band of no width."""
    return {"median": values, "p10": values, "p90": values}


def distance_curve(pace: Any, splits: list[float], seconds: list[float]) -> dict[str, Any]:
    """Return a curve of figure 4."""
    return {
        "seconds_per_mac": pace,
        "method": "exact",
        "mean_split": flat_band(splits),
        "slowest_quarter_mean_split_over_all": splits,
        "fastest_quarter_mean_split_over_all": [split + 1 for split in splits],
        "fleets_with_falling_split": 0,
        "mean_latency_s": flat_band(seconds),
        "expected_latency_s": flat_band(seconds),
    }


def distances() -> dict[int, dict[str, Any]]:
    """Return a figure 4 that satisfies its claims."""
    settings = {"model": "alexnet", "max_split": 8, "fleets": 5, "methods": ["exact"]}
    curves = [
        distance_curve(2e-10, [4, 8], [1, 3]),
        distance_curve(1e-9, [4, 4], [2, 4]),
        distance_curve([2e-10, 1e-9], [4, 6], [1.5, 3.5]),
    ]
    return {4: {"settings": settings, "mean_distances_m": [50, 400], "curves": curves}}


def limits(affected: float) -> dict[int, dict[str, Any]]:
    """Return a figure 6 in which L̂ = 8 affects some devices early, at 4 GMAC/s."""
    curves = [
        {"max_split": 8, "differs_before_limit": [0.0, affected]},
        {"max_split": None, "differs_before_limit": [0.0, 0.0]},
    ]
    panel = {"model": "alexnet", "method": "exact", "curves": curves}
    return {
        6: {"settings": {"mean_distance_m": 300}, "macs_per_second": [1e9, 4e9], "panels": [panel]}
    }


def comparison(model: str, **changes: list[float]) -> dict[str, Any]:
    """Return one model's entry in figure 7; it satisfies its claim."""
    entry = {
        "compute_ratio": [0.1, 0.1],
        "air_time_ratio": [1.5, 1.2] if model == "alexnet" else [0.6, 0.6],
        "transmit_ratio": [0.5, 0.5],
        "saving": [0.8, 0.8],
        "expected_max_saving": [0.7, 0.7],
    } | changes
    return {"model": model} | {key: flat_band(values) for key, values in entry.items()}


def rounds(*models: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Return a figure 7 with these models."""
    return {7: {"condition": "mean_distance_m", "values": [50, 400], "models": list(models)}}


def split_latencies(worst: float) -> dict[int, dict[str, Any]]:
    """Return a figure 11 with a best latency of 1 s, and 0.1 s at the last split."""
    total = {"mean_distance_m": 50, "total_s": flat_band([worst, 1.0, 1.5, 0.1])}
    return {
        11: {"models": [{"model": "alexnet", "layers": ["a", "b", "c", "d"], "curves": [total]}]}
    }


def accuracies(
    ahead: list[dict[str, float]], gains: dict[str, dict[str, float]]
) -> dict[int, dict[str, Any]]:
    """Return a figure 9 in which SFL is this far ahead, and fewer devices gain this much."""
    curve = {"seeds": 3, "virtual_time_s": [[1.0, 2.0]], "test_accuracy": [[0.5, 0.6]]}
    panel = {"dataset": "digits", "sfl_ahead": ahead, "sfl": curve, "fedavg": curve}
    return {
        9: {
            "settings": TRAINING_SETTINGS,
            "panels": [{"devices": devices} | panel for devices in (5, 20)],
            "fewer_devices_gains": [{"dataset": "digits"} | gains],
        }
    }
