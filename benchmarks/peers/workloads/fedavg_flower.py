"""FedAvg in Flower's simulator, with Ray."""

from __future__ import annotations

import logging
import os
from typing import Any

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from peers.workloads import get_arguments, report
from peers.workloads.flower_client import clients
from peers.workloads.job import Rounds, evaluate, make_model

server = ServerApp()
# Filled by the server, which runs in a thread of this process.
results: dict[str, Any] = {}


class TimedFedAvg(FedAvg):
    """FedAvg that records the end of each round."""

    def __init__(self, rounds: Rounds, **settings: Any) -> None:
        super().__init__(**settings)
        self.rounds = rounds

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        """Aggregate, and record the weights; fail if a client has failed."""
        answers = list(replies)
        errors = [answer.error.reason for answer in answers if answer.has_error()]
        if errors:
            raise RuntimeError(f"{len(errors)} clients failed: {errors[0]}")
        aggregate = super().aggregate_train(server_round, answers)
        self.rounds.add(lambda: dict(aggregate[0].to_torch_state_dict()))
        return aggregate


@server.main()
def run_server(grid: Grid, _: Context) -> None:
    """Train all rounds with all clients."""
    arguments = get_arguments()
    rounds = Rounds()
    strategy = TimedFedAvg(
        rounds,
        fraction_evaluate=0.0,
        min_train_nodes=arguments["clients"],
        min_available_nodes=arguments["clients"],
    )
    initial = ArrayRecord(make_model().state_dict())
    result = strategy.start(grid, initial, num_rounds=arguments["rounds"])
    results.update(rounds.summarize(), **evaluate(result.arrays.to_torch_state_dict()))


def main() -> None:
    """Simulate with one core for each client."""
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    logging.disable(logging.INFO)
    config = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, clients, get_arguments()["clients"], backend_config=config)
    report(**results)


if __name__ == "__main__":
    main()
