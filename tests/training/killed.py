"""Train a scenario in processes that are killed at random moments, until one of them comes to the end: python -m training.killed FOLDER SEED.

Processes are forked from one that has torch in memory and has trained nothing, so that each costs a few milliseconds.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time

import torch

import airsplit as air
from airsplit.scenario.scenario import Scenario
from training import tiny

MOST_KILLS = 6


def scenario() -> Scenario:
    return tiny.scenario(
        splits=None,
        plan__method="exact",
        plan__max_split=4,
        fleet__devices=5,
        fleet__redraw_fading=True,
        fleet__seconds_per_mac=[1e-8, 1e-6],
        fleet__mean_distance_m=600.0,
        replan_every=3,
        rounds=24,
        momentum=0.9,
        participation=0.8,
        dropout_probability=0.2,
        checkpoint_every=3,
    )


def train(folder: str) -> None:
    for _ in air.simulate(scenario(), out=folder, resume=True):
        pass


def finished(process: int, seconds: float) -> bool:
    """Whether a process ends by itself within so long; killed where it does not."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            if status:
                sys.exit(f"a process failed with status {status}")
            return True
        time.sleep(0.001)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return False


def main(folder: str, seed: int) -> None:
    torch.set_num_threads(1)
    rng, kills = random.Random(seed), 0  # noqa: S311
    while True:
        process = os.fork()
        if process == 0:
            train(folder)
            os._exit(0)
        if finished(process, rng.uniform(0.1, 0.4) if kills < MOST_KILLS else 60.0):
            break
        kills += 1
    print(kills)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
