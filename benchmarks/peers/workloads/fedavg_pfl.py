"""FedAvg in Apple's pfl."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import MinimizeReuseUserSampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.internal.ops.selector import get_framework_module
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from peers.workloads import get_arguments, report
from peers.workloads.job import Rounds, evaluate, make_model, round_batch


class Net(nn.Module):
    """A module with the loss and the metrics that pfl asks for."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def loss(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross-entropy."""
        return nn.functional.cross_entropy(self.inner(inputs), labels)

    def metrics(self, *_: Tensor) -> dict[str, Any]:
        """Return no metrics: the job has no evaluation."""
        return {}


class RecordRounds(TrainingProcessCallback):
    """Record the end of each round."""

    def __init__(self, rounds: Rounds, net: Net) -> None:
        self.rounds = rounds
        self.net = net

    def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Metrics]:
        """Record the weights; return False to continue."""
        self.rounds.add(self.net.inner.state_dict)
        return False, Metrics()


class UnvalidatedFedAvg(FederatedAveraging):
    """FedAvg without the pass over the validation clients that pfl makes in its first round."""

    def get_next_central_contexts(self, *arguments: Any, **options: Any) -> Any:
        """Return the training context only."""
        contexts, model, metrics = super().get_next_central_contexts(*arguments, **options)
        return (None if contexts is None else contexts[:1]), model, metrics


def main() -> None:
    """Train, alone or as one of torchrun's ranks."""
    arguments = get_arguments()
    rounds = Rounds()
    turns = Counter[int]()
    logging.disable(logging.WARNING)

    def load_data(client: int) -> PyTorchTensorDataset:
        # Every client trains in every round, so the turn of a client is the round.
        turns[client] += 1
        return PyTorchTensorDataset(round_batch(client, turns[client]), user_id=str(client))

    net = Net(make_model())
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    clients = FederatedDataset(
        load_data, MinimizeReuseUserSampler(list(range(arguments["clients"])))
    )
    params = NNAlgorithmParams(
        central_num_iterations=arguments["rounds"],
        evaluation_frequency=10**6,
        train_cohort_size=arguments["clients"],
        val_cohort_size=0,
    )
    local_params = NNTrainHyperParams(
        local_num_epochs=1,
        local_learning_rate=arguments["rate"],
        local_batch_size=arguments["batch"],
    )
    UnvalidatedFedAvg().run(
        params,
        SimulatedBackend(clients, clients),
        model,
        local_params,
        callbacks=[RecordRounds(rounds, net)],
        send_metrics_to_platform=False,
    )
    if get_framework_module().distributed.global_rank == 0:
        report(**rounds.summarize(), **evaluate(net.inner.state_dict()))
    if torch.distributed.is_initialized():
        # A rank that leaves first would break the others.
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
