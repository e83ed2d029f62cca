"""Tracing leaves nothing behind: no cached tensors, random numbers, attributes or patches."""

import random
import sys
import threading

import pytest
import torch
from torch import Tensor, nn

import airsplit as air
from airsplit.core.errors import InvalidValue
from airsplit.models.tracing.isolation import FunctionCaches
from models.hard_models import Caching, Net, triangle


def test_tensors_cached_while_tracing_are_dropped() -> None:
    triangle.cache_clear()
    model = Caching()
    air.profile(model, (8,))
    assert model.kept == {}
    assert triangle(8).device.type == "cpu"


def test_buffers_and_random_state_of_the_user_are_unchanged() -> None:
    class Branching(Net):
        count: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            self.count += 1
            return self.second(x if self.count > 0 else self.first(x))

    model = Branching()
    python_state = random.getstate()
    torch_state = torch.get_rng_state()
    with pytest.raises(InvalidValue, match="depends on the values"):
        air.profile(model, (8,))
    assert model.count.item() == 0
    assert random.getstate() == python_state
    assert torch.equal(torch.get_rng_state(), torch_state)


class KeepsItsFeatures(Net):
    def forward(self, x: Tensor) -> Tensor:
        self.last = self.first(x)
        if x.shape[1] != 8:
            raise RuntimeError("no")
        return self.second(self.last)


@pytest.mark.parametrize("shape", [(8,), (8, 8)])
def test_nothing_is_left_behind_after_a_trace_or_an_error(shape: tuple[int, ...]) -> None:
    model = KeepsItsFeatures().eval()
    plain_call = nn.Module.__call__
    plain_apply = torch.autograd.Function.apply
    attributes = dict(vars(model))
    if shape == (8,):
        air.profile(model, shape)
    else:
        with pytest.raises(InvalidValue):
            air.profile(model, (7,))
    assert vars(model) == attributes
    assert not model.training
    assert nn.Module.__call__ is plain_call
    assert torch.autograd.Function.apply == plain_apply
    assert torch.empty(1).device.type == "cpu"
    assert torch.is_grad_enabled()


def test_other_threads_run_and_profile_models_at_the_same_time() -> None:
    other = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3))
    errors = []
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            try:
                assert other(torch.ones(1, 4)).shape == (1, 4)
                air.profile(other, (4,))
            except Exception as error:  # collected for the assertion below
                errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        assert len(air.profile(model, (8,))) == 2
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors


# By default the limit has a thread of its own, and here only one may run.
@pytest.mark.timeout(60, method="signal")
def test_random_numbers_of_another_thread_are_not_those_of_the_model() -> None:
    class DrawsAtFirst(Net):
        times = 0

        def forward(self, x: Tensor) -> Tensor:
            type(self).times += 1
            if type(self).times <= 2:
                random.random()  # noqa: S311 - as if another thread had, in that moment
            return self.second(self.first(x))

    with pytest.raises(InvalidValue, match="draws random numbers"):
        air.profile(DrawsAtFirst(), (8,))
    DrawsAtFirst.times = 0
    stop = threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    try:
        assert len(air.profile(DrawsAtFirst(), (8,))) == 2
    finally:
        stop.set()
        other.join()


def test_finding_caches_does_not_disturb_tuples_that_other_threads_create() -> None:
    errors = []
    stop = threading.Event()
    interval = sys.getswitchinterval()

    def work() -> None:
        while not stop.is_set():
            try:
                tuple(number for number in range(50))
            except SystemError as error:  # collected for the assertion below
                errors.append(error)

    sys.setswitchinterval(1e-5)
    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(30):
            FunctionCaches()
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert not errors
