"""Plain round records for tests."""

from __future__ import annotations

from airsplit import RoundRecord


def plain_records(*rounds: int) -> list[RoundRecord]:
    """Return one record for each round number, one second apart."""
    return [
        RoundRecord(round=n, virtual_time_s=float(n), latency_s=1.0, train_loss=0.1) for n in rounds
    ]
