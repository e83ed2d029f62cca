"""A user's own model and data, in files, that train in an instant."""

from __future__ import annotations

from pathlib import Path

NET = """
import torch
from torch import nn

def mlp():
    return nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 3))

def mlp_with_frozen_bias():
    net = mlp()
    net[4].bias.requires_grad_(False)
    return net

def blobs():
    labels = torch.arange(30) % 3
    inputs = torch.eye(3)[labels].repeat(1, 2) + 0.1 * torch.sin(torch.arange(180.0)).reshape(30, 6)
    return (inputs[:24], labels[:24]), (inputs[24:], labels[24:])

def error(outputs, labels, scale=1.0):
    right = outputs.softmax(dim=1)[torch.arange(len(labels)), labels]
    return scale * float((1 - right).mean())

def broken(outputs, labels):
    return 1 / 0
"""

SCENARIO = """
[model]
name = "small_net:mlp"
input_shape = [6]

[fleet]
devices = 3

[plan]
method = "fixed"
split = [1, 3, 1]

[training]
dataset = "small_net:blobs"
rounds = 3
iterations_per_round = 2
batch_size = 4
"""


def write_small_net(folder: Path, net: str = NET, scenario: str = SCENARIO) -> Path:
    """Write small_net.py and small.toml into a folder; return the scenario's path."""
    (folder / "small_net.py").write_text(net)
    (folder / "small.toml").write_text(scenario)
    return folder / "small.toml"
