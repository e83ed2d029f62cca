"""The learning algorithms by name: the only registry of them."""

from __future__ import annotations

from airsplit.learn.algorithm import Algorithm
from airsplit.learn.fedavg import FEDAVG
from airsplit.learn.sfl import SFL
from airsplit.learn.split_learning import SPLIT_LEARNING
from airsplit.learn.splitfed import SPLITFED_V1, SPLITFED_V2

ALGORITHMS: dict[str, Algorithm] = {each.name: each for each in (SFL, FEDAVG, SPLIT_LEARNING, SPLITFED_V1, SPLITFED_V2)}
