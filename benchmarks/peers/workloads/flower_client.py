"""A client of Flower, in a module that Ray's processes can import."""

from __future__ import annotations

from functools import cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from peers.workloads import get_arguments
from peers.workloads.job import make_model, round_batch

clients = ClientApp()


@cache
def get_model() -> nn.Module:
    """Return the model of this process, which Ray gives one core."""
    torch.set_num_threads(1)
    return make_model()


@clients.train()
def train(message: Message, context: Context) -> Message:
    """Train one client for a round."""
    arguments = get_arguments()
    model = get_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments["rate"])
    client = int(context.node_config["partition-id"])
    inputs, labels = round_batch(client, int(message.content["config"]["server-round"]))
    size = arguments["batch"]
    for batch, batch_labels in zip(inputs.split(size), labels.split(size), strict=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch), batch_labels).backward()
        optimizer.step()
    content = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": len(labels)}),
    }
    return Message(content=RecordDict(content), reply_to=message)
