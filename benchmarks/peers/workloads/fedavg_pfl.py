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

from peers.workloads import given, tell
from peers.workloads.job import Laps, in_order, model, outcome


class Net(nn.Module):
    """A module as pfl wants it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def loss(self, inputs: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.inner(inputs), labels)

    def metrics(self, *_: Tensor) -> dict[str, Any]:
        return {}


class Clock(TrainingProcessCallback):
    def __init__(self, laps: Laps, net: Net) -> None:
        self.laps, self.net = laps, net

    def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Metrics]:
        self.laps.round(self.net.inner.state_dict)
        return False, Metrics()


class Training(FederatedAveraging):
    """Without the pass over the validation clients that pfl makes in its first round."""

    def get_next_central_contexts(self, *arguments: Any, **more: Any) -> Any:
        contexts, made, metrics = super().get_next_central_contexts(*arguments, **more)
        return (None if contexts is None else contexts[:1]), made, metrics


def main() -> None:
    asked, laps, turns = given(), Laps(), Counter[int]()
    logging.disable(logging.WARNING)

    def data_of(client: int) -> PyTorchTensorDataset:
        turns[client] += 1
        return PyTorchTensorDataset(in_order(client, turns[client]), user_id=str(client))

    net = Net(model())
    trained = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    clients = FederatedDataset(data_of, MinimizeReuseUserSampler(list(range(asked["clients"]))))
    params = NNAlgorithmParams(
        central_num_iterations=asked["rounds"],
        evaluation_frequency=10**6,
        train_cohort_size=asked["clients"],
        val_cohort_size=0,
    )
    local = NNTrainHyperParams(
        local_num_epochs=1, local_learning_rate=asked["rate"], local_batch_size=asked["batch"]
    )
    Training().run(
        params,
        SimulatedBackend(clients, clients),
        trained,
        local,
        callbacks=[Clock(laps, net)],
        send_metrics_to_platform=False,
    )
    if get_framework_module().distributed.global_rank == 0:
        tell(**laps.told(), **outcome(net.inner.state_dict()))
    if torch.distributed.is_initialized():  # leave together
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
