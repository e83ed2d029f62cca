"""What a device has measured of itself, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airsplit.cli.render import facts, table
from airsplit.core.formatting import format_percent, format_quantity, format_seconds
from airsplit.system.profile import Profile

if TYPE_CHECKING:
    from airsplit.network.client.probe import ComputeMeasurement


def probe_report(
    measured: ComputeMeasurement, profile: Profile, batch_size: int, link: dict[str, float]
) -> list[Any]:
    """A table of what was timed, and what follows from it."""
    rows = table(
        "split", "layer", "work", "times", "median", "mean", "law is off by", words=("layer",)
    )
    for row, error in zip(measured.rows, measured.relative_errors, strict=True):
        name = profile.names[row.split - 1]
        timed = (
            str(row.repetitions),
            format_seconds(row.median_s),
            format_seconds(row.mean_s),
            f"{error:+.0%}",
        )
        rows.add_row(str(row.split), name, format_quantity(row.macs, "MAC"), *timed)
    rough = "the law is only roughly right, and rounds may take longer or shorter than planned; was the machine busy? --seconds measures longer"
    verdict = "the law fits" if measured.distance < measured.yardstick else rough
    lines = [
        (
            "seconds_per_mac",
            f"{measured.seconds_per_mac:.4g}  (at best {format_quantity(1 / measured.seconds_per_mac, 'MAC/s')})",
        ),
        (
            "fluctuation",
            f"{measured.fluctuation:.4g}  ({format_percent(1 / (measured.fluctuation * measured.seconds_per_mac))} more on average)",
        ),
        (
            "fit",
            f"{measured.samples} times are {measured.distance:.3f} from the law, {measured.yardstick:.3f} by chance alone: {verdict}",
        ),
        ("", f"batches of {batch_size}, forward and backward, {measured.threads} threads"),
    ]
    if link:
        rates = f"{format_quantity(link['up_bps'], 'bit/s')} up, {format_quantity(link['down_bps'], 'bit/s')} down"
        lines.append(("link", f"{rates}, {format_seconds(link['round_trip_s'])} there and back"))
    return [rows, facts(lines)]
