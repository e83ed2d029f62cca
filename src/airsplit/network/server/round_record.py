"""What a round over the network took: a record as the simulator writes it, with measured seconds and bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from airsplit.core.arrays import Floats
from airsplit.core.units import dbm_to_watts
from airsplit.network.server.device_registry import Member
from airsplit.network.server.forecast import Forecast
from airsplit.runs.metric import Metric
from airsplit.runs.record import RoundRecord, round_digits
from airsplit.system.fleet import Fleet
from airsplit.training.evaluation import summary


def round_record(
    number: int,
    *,
    time_s: float,
    latency_s: float,
    loss: float,
    asked: Sequence[int],
    dropped: Sequence[int],
    members: Sequence[Member],
    work: Floats,
    fleet: Fleet,
    replanned: Forecast | None,
    iterations: int,
    measured: bool,
    metric: Metric,
) -> RoundRecord:
    """The record of a round: `virtual_time_s` is the time that was really spent training.

    measured   whether the fleet is what devices said of themselves: then nobody knows what they transmit with
    """
    took = [_took(member, latency_s) for member in members]
    columns: dict[str, Any] = {
        name: tuple(round_digits(each[name]) for each in took)
        for name in ("compute_s", "transmit_s", "server_s", "idle_s")
    }
    steps = np.array(
        [
            0 if member.work is None else iterations if member.work.finished else member.work.step
            for member in members
        ]
    )
    macs = work * steps
    air = np.array([each["transmit_s"] for each in took])
    energy = np.zeros(len(members)) if measured else dbm_to_watts(fleet.transmit_power_dbm) * air
    if fleet.joules_per_mac is not None:
        energy = energy + fleet.joules_per_mac * macs
    return RoundRecord(
        round=number,
        virtual_time_s=time_s,
        latency_s=latency_s,
        train_loss=loss,
        participants=tuple(asked),
        dropped=tuple(dropped),
        splits=None if replanned is None else tuple(replanned.splits.tolist()),
        shares=None if replanned is None else tuple(replanned.shares.tolist()),
        sent_bytes=tuple(
            0 if member.work is None else member.work.sent_bytes for member in members
        ),
        received_bytes=tuple(
            0 if member.work is None else member.work.received_bytes for member in members
        ),
        macs=tuple(round_digits(value) for value in macs.tolist()),
        energy_j=tuple(round_digits(value) for value in energy.tolist()),
        **columns,
        **_scores(members, metric),
    )


def _took(member: Member, latency_s: float) -> dict[str, float]:
    """Where a device's time went."""
    done = None if member.work is None else member.work.finished
    if done is None:
        return dict.fromkeys(("compute_s", "transmit_s", "server_s", "idle_s"), 0.0)
    idle = max(0.0, latency_s - done.compute_s - done.transmit_s - done.server_s)
    return {
        "compute_s": done.compute_s,
        "transmit_s": done.transmit_s,
        "server_s": done.server_s,
        "idle_s": idle,
    }


def _scores(members: Sequence[Member], metric: Metric) -> dict[str, Any]:
    """How good the models are that were evaluated."""
    found = [
        member.work.assessed
        for member in members
        if member.work is not None and member.work.assessed is not None
    ]
    if not found:
        return {}
    fields: dict[str, Any] = {"test_loss": float(np.mean([each.test_loss for each in found]))}
    for name in ("test_accuracy", "own_accuracy"):
        fields |= summary(name, [getattr(each, name) for each in found if each.HasField(name)])
    return fields | _metrics(members, metric)


def _metrics(members: Sequence[Member], metric: Metric) -> dict[str, float]:
    """Return the fields of the run's own metric: the mean counts a device by its test samples, since they may differ."""
    found = [
        (member.test_samples, member.work.assessed.test_metric)
        for member in members
        if member.work is not None
        and member.work.assessed is not None
        and member.work.assessed.HasField("test_metric")
    ]
    if not found:
        return {}
    samples, values = map(np.array, zip(*found, strict=True))
    return summary("test_metric", values.tolist(), metric.worst) | {
        "test_metric": float(np.average(values, weights=samples))
    }
