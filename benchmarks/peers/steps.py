"""A step's round trip beside other transports: a megabyte there and a megabyte back."""

from __future__ import annotations

from network.overhead import BATCH, WIDTH, in_turns
from peers.environments import run, versions
from peers.table import Race, Section, duration, times

BYTES, STEPS = 4 * BATCH * WIDTH, 300
KINDS = ("CoreCell", "Cell")
DRIVERS = ("grpc", "tcp")


def compared(quick: bool = False) -> Section:
    steps = STEPS // 10 if quick else STEPS
    section = Section(
        "Round trip of a step",
        [
            f"{BYTES:,} bytes of float32 to a server in another process on loopback and as many back, no encryption, computing left out. "
            "Airsplit and the bare gRPC echo in turns, medians of 1,200; NVIDIA FLARE's cells, medians of "
            f"{steps} after 20. Airsplit sends a tensor with its labels and gets a tensor, checked and numbered, as in training; FLARE "
            "sends a numpy array by its own serializer, or bytes.",
        ],
        ["way", "what is sent", "a round trip", "times ours"],
        notes=[
            "Flower is left out: between machines its nodes ask for their next message, and where there is none ask again after 3 s, "
            "so that a round trip is a matter of seconds by design; this was not measured here."
        ],
        peers=[versions("nvflare", "nvflare", "grpcio"), f"bare echo: {versions('', 'grpcio')}"],
    )
    bare, ours = in_turns("", None)
    section.rows.append(["Airsplit", "tensor", duration(ours), "1"])
    entry(section, "bare gRPC stream", "bytes", bare, ours)
    for kind in KINDS:
        for driver in DRIVERS:
            name = f"NVIDIA FLARE, {kind}, {driver}"
            outcome = run(
                "nvflare", "cells", {"kind": kind, "driver": driver, "bytes": BYTES, "steps": steps}
            )
            if outcome.failed:
                section.failed(name, outcome.failed)
                continue
            entry(section, name, "numpy array", outcome.found["array_s"], ours)
            entry(section, name, "bytes", outcome.found["bytes_s"], ours)
    return section


def entry(section: Section, name: str, sent: str, theirs: float, ours: float) -> None:
    section.rows.append([name, sent, duration(theirs), times(theirs / ours)])
    section.races.append(
        Race(
            f"a round trip of {BYTES / 2**20:.0f} MiB each way",
            "time",
            ours,
            f"{name} ({sent})",
            theirs,
        )
    )
