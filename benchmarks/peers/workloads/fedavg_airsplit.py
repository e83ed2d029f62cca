"""FedAvg in Airsplit's simulator."""

from __future__ import annotations

from itertools import islice

from torch import Tensor

from airsplit.scenario.scenario import Scenario
from airsplit.training.coordinator import Training
from airsplit.training.ranks import joined, ranks_of
from peers.workloads import get_arguments, report
from peers.workloads.job import SHAPES, Rounds, evaluate


def make_scenario() -> Scenario:
    """Return the job as a scenario."""
    arguments = get_arguments()
    changes = {
        "model.name": "peers.workloads.job:make_model",
        "model.input_shape": list(SHAPES[arguments["model"]]),
        "fleet.devices": arguments["clients"],
        "training.algorithm": "fedavg",
        "training.dataset": "peers.workloads.job:partition",
        "training.partition": "given",
        "training.batch_size": arguments["batch"],
        "training.iterations_per_round": arguments["steps"],
        "training.learning_rate": arguments["rate"],
        "training.rounds": 10**6,
        "training.evaluate_every": 10**6,
    }
    return Scenario.from_toml('[model]\nname = "alexnet"\n').replace(**changes)


def get_weights(training: Training) -> dict[str, Tensor]:
    """Return the global model."""
    return {name.removeprefix("model:"): tensor for name, tensor in training.state.common.items()}


def main() -> None:
    """Train, alone or as one of torchrun's ranks."""
    with joined(ranks_of()) as ranks:
        training = Training(make_scenario(), ranks=ranks)
        rounds = Rounds()
        for _ in islice(training.rounds(), get_arguments()["rounds"]):
            rounds.add(lambda: get_weights(training))
        if ranks.is_first:
            report(**rounds.summarize(), **evaluate(get_weights(training)))


if __name__ == "__main__":
    main()
