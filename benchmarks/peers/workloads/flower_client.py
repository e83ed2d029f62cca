"""A client of Flower; in a module of its own, which Ray's processes import."""

from __future__ import annotations

from functools import cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from peers.workloads import given
from peers.workloads.job import in_order, model

clients = ClientApp()


@cache
def own_model() -> nn.Module:
    """One for each process of Ray, with the one core that it has."""
    torch.set_num_threads(1)
    return model()


@clients.train()
def train(message: Message, context: Context) -> Message:
    asked, net = given(), own_model()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(net.parameters(), lr=asked["rate"])
    inputs, labels = in_order(
        int(context.node_config["partition-id"]), int(message.content["config"]["server-round"])
    )
    for some, theirs in zip(
        inputs.split(asked["batch"]), labels.split(asked["batch"]), strict=True
    ):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(some), theirs).backward()
        optimizer.step()
    content = {
        "arrays": ArrayRecord(net.state_dict()),
        "metrics": MetricRecord({"num-examples": len(labels)}),
    }
    return Message(content=RecordDict(content), reply_to=message)
