"""FedAvg in Airsplit's simulator."""

from __future__ import annotations

from itertools import islice

from torch import Tensor

from airsplit.scenario.scenario import Scenario
from airsplit.training.coordinator import Training
from airsplit.training.ranks import joined, ranks_of
from peers.workloads import given, tell
from peers.workloads.job import SHAPES, Laps, outcome


def scenario() -> Scenario:
    asked, here = given(), "peers.workloads.job"
    changes = {
        "model.name": f"{here}:model",
        "model.input_shape": list(SHAPES[asked["model"]]),
        "fleet.devices": asked["clients"],
    }
    changes |= {
        "training.algorithm": "fedavg",
        "training.dataset": f"{here}:dealt",
        "training.partition": "given",
    }
    changes |= {
        "training.batch_size": asked["batch"],
        "training.iterations_per_round": asked["steps"],
    }
    changes |= {
        "training.learning_rate": asked["rate"],
        "training.rounds": 10**6,
        "training.evaluate_every": 10**6,
    }
    return Scenario.from_toml('[model]\nname = "alexnet"\n').replace(**changes)


def weights_of(training: Training) -> dict[str, Tensor]:
    return {name.removeprefix("model:"): tensor for name, tensor in training.state.common.items()}


def main() -> None:
    with joined(ranks_of()) as ranks:
        training, laps = Training(scenario(), ranks=ranks), Laps()
        for _ in islice(training.rounds(), given()["rounds"]):
            laps.round(lambda: weights_of(training))
        if ranks.is_first:
            tell(**laps.told(), **outcome(weights_of(training)))


if __name__ == "__main__":
    main()
