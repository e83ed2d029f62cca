"""FedAvg in Flower's simulator, with Ray."""

from __future__ import annotations

import logging
import os
from typing import Any

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from peers.workloads import given, tell
from peers.workloads.flower_client import clients
from peers.workloads.job import Laps, model, outcome

server = ServerApp()
found: dict[str, Any] = {}


class Timed(FedAvg):
    """FedAvg that notes when rounds end."""

    def __init__(self, laps: Laps, **settings: Any) -> None:
        super().__init__(**settings)
        self.laps = laps

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        answers = list(replies)
        lost = [answer.error.reason for answer in answers if answer.has_error()]
        if lost:
            raise RuntimeError(f"{len(lost)} clients failed: {lost[0]}")
        kept = super().aggregate_train(server_round, answers)
        self.laps.round(lambda: dict(kept[0].to_torch_state_dict()))
        return kept


@server.main()
def main_of_server(grid: Grid, _: Context) -> None:
    asked, laps = given(), Laps()
    strategy = Timed(
        laps,
        fraction_evaluate=0.0,
        min_train_nodes=asked["clients"],
        min_available_nodes=asked["clients"],
    )
    done = strategy.start(grid, ArrayRecord(model().state_dict()), num_rounds=asked["rounds"])
    found.update(laps.told(), **outcome(done.arrays.to_torch_state_dict()))


def main() -> None:
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    logging.disable(logging.INFO)
    config = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, clients, given()["clients"], backend_config=config)
    tell(**found)


if __name__ == "__main__":
    main()
