"""A step's round trip beside other transports: a megabyte there and a megabyte back."""

from __future__ import annotations

from network.overhead import BATCH, WIDTH, measure_in_turns
from peers.environments import list_versions, run_workload
from peers.table import Race, Section, format_duration, format_ratio

BYTES = 4 * BATCH * WIDTH
STEPS = 300
KINDS = ("CoreCell", "Cell")
DRIVERS = ("grpc", "tcp")


def compare(quick: bool = False) -> Section:
    """Compare Airsplit with bare gRPC and with NVIDIA FLARE's cells."""
    steps = STEPS // 10 if quick else STEPS
    section = Section(
        "Round trip of a step",
        [
            f"{BYTES:,} bytes of float32 to a server in another process on loopback and as many "
            "back, no encryption, computing left out. Airsplit and the bare gRPC echo in turns, "
            f"medians of 1,200; NVIDIA FLARE's cells, medians of {steps} after 20. Airsplit sends "
            "a tensor with its labels and gets a tensor, checked and numbered, as in training; "
            "FLARE sends a numpy array by its own serializer, or bytes.",
        ],
        ["way", "what is sent", "a round trip", "times ours"],
        notes=[
            "Flower is left out: between machines its nodes ask for their next message, and if "
            "there is none ask again after 3 s, so that a round trip is a matter of seconds by "
            "design; this was not measured here."
        ],
        peers=[
            list_versions("nvflare", "nvflare", "grpcio"),
            f"bare echo: {list_versions('', 'grpcio')}",
        ],
    )
    echo_s, ours_s = measure_in_turns()
    section.rows.append(["Airsplit", "tensor", format_duration(ours_s), "1"])
    add_peer(section, "bare gRPC stream", "bytes", echo_s, ours_s)
    for kind in KINDS:
        for driver in DRIVERS:
            name = f"NVIDIA FLARE, {kind}, {driver}"
            outcome = run_workload(
                "nvflare", "cells", {"kind": kind, "driver": driver, "bytes": BYTES, "steps": steps}
            )
            if outcome.failure:
                section.add_failure(name, outcome.failure)
                continue
            add_peer(section, name, "numpy array", outcome.values["array_s"], ours_s)
            add_peer(section, name, "bytes", outcome.values["bytes_s"], ours_s)
    return section


def add_peer(section: Section, name: str, content: str, theirs_s: float, ours_s: float) -> None:
    """Add the row of a peer, and its race."""
    section.rows.append([name, content, format_duration(theirs_s), format_ratio(theirs_s / ours_s)])
    what = f"a round trip of {BYTES / 2**20:.0f} MiB each way"
    section.races.append(Race(what, "time", ours_s, f"{name} ({content})", theirs_s))
