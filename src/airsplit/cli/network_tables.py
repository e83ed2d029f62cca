"""Tables of the networked system: what a probe measured, and the state of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from airsplit.cli.tables import make_list, make_table
from airsplit.core.formatting import format_percent, format_quantity, format_seconds
from airsplit.system.profile import Profile

if TYPE_CHECKING:
    from airsplit.network.client.probe import ComputeMeasurement


def probe_report(
    measured: ComputeMeasurement, profile: Profile, batch_size: int, link: dict[str, float]
) -> list[Table]:
    """Return a table of what was timed, and the parameters that follow from it."""
    timings = make_table(
        "split", "layer", "work", "runs", "median", "mean", "error of fit", words=("layer",)
    )
    for row, error in zip(measured.rows, measured.relative_errors, strict=True):
        timings.add_row(
            str(row.split),
            profile.names[row.split - 1],
            format_quantity(row.macs, "MAC"),
            str(row.repetitions),
            format_seconds(row.median_s),
            format_seconds(row.mean_s),
            f"{error:+.0%}",
        )

    # The yardstick is the 5 % critical value of the Kolmogorov-Smirnov test.
    if measured.distance < measured.yardstick:
        verdict = "the model fits"
    else:
        verdict = (
            "the model fits only roughly, and rounds may take longer or shorter than planned; "
            "was the machine busy? --seconds measures longer"
        )
    best_rate = format_quantity(1 / measured.seconds_per_mac, "MAC/s")
    # The mean time per MAC is a + 1/ε, so fluctuation adds the fraction 1/(a ε) on average.
    mean_excess = format_percent(1 / (measured.fluctuation * measured.seconds_per_mac))
    lines = [
        ("seconds_per_mac", f"{measured.seconds_per_mac:.4g}  (at best {best_rate})"),
        ("fluctuation", f"{measured.fluctuation:.4g}  ({mean_excess} slower on average)"),
        (
            "fit",
            f"distance {measured.distance:.3f} over {measured.samples} timings, "
            f"{measured.yardstick:.3f} by chance alone: {verdict}",
        ),
        (
            "",
            f"batches of {batch_size}, forward and backward, {measured.threads} threads",
        ),
    ]
    if link:
        up = format_quantity(link["up_bps"], "bit/s")
        down = format_quantity(link["down_bps"], "bit/s")
        round_trip = format_seconds(link["round_trip_s"])
        lines.append(("link", f"{up} up, {down} down, round trip {round_trip}"))
    return [timings, make_list(lines)]


def state_table(state: dict[str, Any]) -> list[Text | Table]:
    """Return the progress of a server, and a row for each device."""
    rows = make_table(
        "device",
        "name",
        "state",
        "step",
        "samples",
        "checkpoint",
        "last seen",
        words=("name", "state"),
    )
    for device in state["devices"]:
        checkpoint = ""
        if device["version"]:
            checkpoint = f"round {device['version']}"
        last_seen = ""
        if device["last_seen_s"] is not None:
            last_seen = f"{device['last_seen_s']:.0f} s ago"
        # A place that no device has taken yet has no name.
        rows.add_row(
            str(device["number"]),
            device["name"] or "-",
            device["state"],
            str(device["step"]),
            str(device["samples"]),
            checkpoint,
            last_seen,
        )

    time_s = format_seconds(state["time_s"])
    progress = f"round {state['round']} of {state['rounds']} done, {time_s} of training"
    # None until all devices have been measured, so before the first plan.
    planned_s = state.get("planned_latency_s")
    if planned_s is not None:
        progress += f", {format_seconds(planned_s)} planned for each"
    return [Text(progress), rows]
