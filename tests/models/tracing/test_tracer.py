"""What a model may do besides calling layers: it is followed exactly, or refused in one line; never lost."""

import functools
import random
import sys
import threading
import warnings
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import airsplit as air
from airsplit.core.errors import InvalidValue
from airsplit.models.tracing.isolation import FunctionCaches
from models.exactness import assert_exact, assert_refused
from models.hard_models import Net

X = torch.randn(3, 8, generator=torch.Generator().manual_seed(1))


# ---- followed ----


def scripted(what: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # torch would rather have it compiled; models still come scripted
        return torch.jit.script(what)


def _swish(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


swish = scripted(_swish)


@functools.lru_cache
def triangle(size: int) -> Tensor:
    return torch.ones(size, size).tril()


class Scripted(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.second(swish(self.first(x)))


class Remembering(Net):
    """Results that are kept for the next time: by a function, and in a dictionary of the model's own."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[int, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        if 8 not in self.kept:
            self.kept[8] = torch.arange(8.0)
        return self.second(self.first(x) @ triangle(8) + self.kept[8])


class DroppedPositions(Net):
    """A layer that draws lots, on something that is not data, used twice."""

    where: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("where", torch.linspace(0, 1, 8))
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        where = self.dropout(self.where)
        return self.second(self.first(x + where) + where)


class OtherWeights(Net):
    def forward(self, x: Tensor) -> Tensor:
        other = {"weight": 2 * self.first.weight, "bias": self.first.bias}
        return self.second(torch.func.functional_call(self.first, other, (x,)).tanh())


class FilledThroughAView(Net):
    def forward(self, x: Tensor) -> Tensor:
        mask = torch.zeros(4)
        mask[0:2].fill_(1)
        return self.second(self.first(x) * 2 if bool(mask.any()) else x)


class KeepsFeatures(Net):
    """Hooks take a layer's output out for later."""

    def __init__(self) -> None:
        super().__init__()
        self.features: list[Tensor] = []
        self.first.register_forward_hook(self.keep)

    def keep(self, module: nn.Module, given: Any, result: Tensor) -> None:
        self.features.append(result)

    def forward(self, x: Tensor) -> Tensor:
        self.features.clear()
        out = self.second(self.first(x).relu())
        return out + self.features[0][:, :3]

    def __deepcopy__(self, memo: dict[int, Any]) -> "KeepsFeatures":
        copied = KeepsFeatures()
        memo[id(self)] = copied
        for name in ("first", "second"):
            for key, tensor in getattr(self, name)._parameters.items():
                getattr(copied, name)._parameters[key] = memo.get(id(tensor), tensor)
        return copied


class Sampling(Net):
    """A variational bottleneck, with torch's distributions."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return self.second(torch.distributions.Normal(h, F.softplus(h)).rsample())


class PooledTwice(nn.Module):
    """Layers that differ in a list only."""

    def __init__(self) -> None:
        super().__init__()
        self.fine, self.coarse, self.head = (
            nn.AdaptiveAvgPool2d([4, 4]),
            nn.AdaptiveAvgPool2d([2, 2]),
            nn.Linear(20, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.cat([self.fine(x).flatten(1), self.coarse(x).flatten(1)], 1))


class OwnNames(nn.Module):
    """Modules with names that a half might have for itself."""

    def __init__(self) -> None:
        super().__init__()
        self.side, self.run = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self.side(x))


class Turned(Net):
    """What crosses does not lie in memory as it is looked at."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x.view(-1, 1, 8).expand(-1, 8, 8)).transpose(1, 2)
        h = F.dropout(h, 0.3, self.training)
        return self.second(h.transpose(1, 2).view(x.shape[0], 64)[:, ::8])


class ByKeyword(Net):
    """Tensors of which only the shape or type is used, given by name."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x) + torch.ones_like(input=x)
        return self.second(h.type_as(other=x))


class PaddedText(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.tokens, self.encoder = nn.Embedding(9, 8), nn.TransformerEncoder(layer, 2)

    def forward(self, ids: Tensor) -> Tensor:
        return self.encoder(self.tokens(ids), src_key_padding_mask=ids == 0)


IDS = torch.tensor([[1, 2, 3, 0], [4, 5, 6, 7], [8, 1, 0, 0]])
FOLLOWED: dict[str, tuple[nn.Module, Tensor]] = {
    "scripted function": (Scripted(), X),
    "caches": (Remembering(), X),
    "random layer": (DroppedPositions(), X),
    "other weights": (OtherWeights(), X),
    "filled through a view": (FilledThroughAView(), X),
    "features by hooks": (KeepsFeatures(), X),
    "distribution": (Sampling(), X),
    "pyramid": (PooledTwice(), torch.randn(3, 1, 8, 8)),
    "own names": (OwnNames(), X),
    "turned": (Turned(), X),
    "by keyword": (ByKeyword(), X),
    "padding": (PaddedText(), IDS),
    "scripted module": (
        nn.Sequential(
            nn.Linear(8, 8), scripted(nn.Sequential(nn.Tanh(), nn.ReLU())), nn.Linear(8, 3)
        ),
        X,
    ),
    "cumulative statistics": (
        nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8, momentum=None), nn.Linear(8, 3)),
        X,
    ),
}


@pytest.mark.parametrize("what", FOLLOWED)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
def test_it_is_followed_exactly(what: str) -> None:
    model, x = FOLLOWED[what]
    torch.set_num_threads(1)
    assert_exact(model, x)


def test_what_is_remembered_while_looking_is_forgotten() -> None:
    triangle.cache_clear()
    model = Remembering()
    air.profile(model, (8,))
    assert model.kept == {}
    assert triangle(8).device.type == "cpu"


def test_what_is_only_left_for_others_to_look_at_is_no_state() -> None:
    class Shows(Net):
        def forward(self, x: Tensor) -> Tensor:
            self.features = self.first(x)
            return self.second(self.features)

    model = Shows()
    assert_exact(model, X)
    assert air.profile(model, (8,)).names == ("first", "second")


def test_buffers_and_lots_of_the_user_stay_as_they_are() -> None:
    class Branching(Net):
        count: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            self.count += 1
            return self.second(x if self.count > 0 else self.first(x))

    model, lots = Branching(), (random.getstate(), torch.get_rng_state())
    with pytest.raises(InvalidValue, match="depends on the values"):
        air.profile(model, (8,))
    assert model.count.item() == 0
    assert random.getstate() == lots[0]
    assert torch.equal(torch.get_rng_state(), lots[1])


def test_other_threads_run_their_models_undisturbed() -> None:
    other, wrong, stop = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), [], threading.Event()

    def work() -> None:
        while not stop.is_set():
            try:
                assert other(torch.ones(1, 4)).shape == (1, 4)
                air.profile(other, (4,))
            except Exception as error:  # collected for the assertion below
                wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        assert len(air.profile(OwnNames(), (8,))) == 2
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.timeout(
    60, method="signal"
)  # by default the limit has a thread of its own, and here only one may run
def test_random_numbers_that_another_thread_drew_are_not_the_models() -> None:
    class DrawsAtFirst(Net):
        times = 0

        def forward(self, x: Tensor) -> Tensor:
            type(self).times += 1
            if type(self).times <= 2:
                random.random()  # noqa: S311 - as if another thread had, in that moment
            return self.second(self.first(x))

    with pytest.raises(InvalidValue, match="draws random numbers"):
        air.profile(DrawsAtFirst(), (8,))
    DrawsAtFirst.times, stop = 0, threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    try:
        assert len(air.profile(DrawsAtFirst(), (8,))) == 2
    finally:
        stop.set()
        other.join()


def test_looking_for_caches_does_not_disturb_tuples_that_other_threads_are_making() -> None:
    wrong, stop, interval = [], threading.Event(), sys.getswitchinterval()

    def work() -> None:
        while not stop.is_set():
            try:
                tuple(number for number in range(50))
            except SystemError as error:  # collected for the assertion below
                wrong.append(error)

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
    assert not wrong


# ---- modes ----


class FrozenStatistics(Net):
    """The usual way to freeze batch normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def train(self, mode: bool = True) -> "FrozenStatistics":
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.norm(self.first(x)))


def test_what_a_model_keeps_frozen_stays_frozen_in_its_halves() -> None:
    model = FrozenStatistics()
    front, back = air.cut(model, "norm", input_shape=(8,))
    front.train()
    back.train()
    assert front.training
    assert not model.norm.training
    assert torch.equal(back(*front(X)), model.train()(X))


def test_parts_may_be_in_another_mode() -> None:
    class Drops(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(x, 0.5, self.training)

    model = nn.Sequential(nn.Linear(8, 8), Drops(), nn.Linear(8, 3)).train()
    model[1].eval()
    front, back = air.cut(model, 2, input_shape=(8,))
    assert torch.equal(back(*front(X)), model(X))


# ---- refused ----


class Halves(Net):
    def forward(self, x: Tensor) -> Tensor:
        h, n = self.first(x), x.shape[0] // 2
        return self.second(torch.cat([2 * h[:n], h[n:]]))


class Portions(Net):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.second(part) for part in self.first(x).split(64)])


class AtMostFour(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x) / min(4, x.shape[0]))


class ReturnsTheBatch(Net):
    def forward(self, x: Tensor) -> Any:
        return self.second(x), {"samples": len(x)}


class ReplacesABuffer(Net):
    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        self.mean = 0.9 * self.mean + 0.1 * h.detach().mean(0)
        return self.second(h - self.mean)


class CarriesOn(Net):
    """State in a plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x) if self.last is None else self.first(x) + self.last.mean(0)
        self.last = h.detach()
        return self.second(h)


class Casts(Net):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.second(self.first(x))


class Adjoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: Any, x: Tensor) -> Tensor:
        return function(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return None, gradient


class GivesAFunction(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.second(Adjoint.apply(lambda h: h * self.first.bias, self.first(x)))


class PythonsLots(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x) if random.random() < 2 else x)  # noqa: S311


class NumpysLots(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x) if np.random.rand() < 2 else x)  # noqa: NPY002


class Reverses(Net):
    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        if h.requires_grad:
            h.register_hook(lambda gradient: -gradient)
        return self.second(h)


class ReturnsAParameter(Net):
    def forward(self, x: Tensor) -> Any:
        return self.second(x), self.first.weight


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            Halves,
            r"a number that depends on the batch size at test_tracer.py:\d+ .*64 for a batch of 129, not 1",
        ),
        (Portions, r"other things for a batch of 2 than for one of 129, at test_tracer.py:\d+"),
        (
            AtMostFour,
            r"a number that depends on the batch size at test_tracer.py:\d+ .*4 for a batch of 129",
        ),
        (
            ReturnsTheBatch,
            r"returns a number that depends on the batch size, 2 for a batch of 2 and 3",
        ),
        (
            ReplacesABuffer,
            r"puts another tensor in the place of its buffer mean; change it in place: mean.copy_",
        ),
        (CarriesOn, "keeps last from one forward pass for the next.*keep it in a buffer"),
        (Casts, r"enters torch.autocast at test_tracer.py:\d+ .*run the halves under it"),
        (
            GivesAFunction,
            r"gives a module or a function of its own to a function at test_tracer.py:\d+",
        ),
        (PythonsLots, "draws random numbers of Python or numpy"),
        (NumpysLots, "draws random numbers of Python or numpy"),
        (Reverses, r"hangs a hook on a tensor at test_tracer.py:\d+"),
        (ReturnsAParameter, "returns its parameter first.weight itself"),
    ],
)
def test_it_is_refused_in_one_line(kind: type[nn.Module], message: str) -> None:
    assert_refused(kind(), message)


def test_scripts_with_parameters_are_refused() -> None:
    with pytest.raises(
        InvalidValue,
        match="its part 1 is TorchScript with parameters; give the module it was made from",
    ):
        air.profile(nn.Sequential(nn.Linear(8, 8), scripted(nn.Linear(8, 8))), (8,))


def test_halves_of_a_model_that_names_a_type_keep_to_it() -> None:
    class Typed(Net):
        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x) + torch.ones(8, dtype=x.dtype))

    front, back = air.cut(Typed(), "first", input_shape=(8,))
    front.double()
    back.double()
    with pytest.raises(InvalidValue, match=r"torch.float32, got torch.float64; cut it again"):
        back(*front(X.double()))


@pytest.mark.parametrize(
    ("given", "got"),
    [
        ((), "nothing"),
        ((X, X), "Tensor, Tensor"),
        (((X,),), "tuple"),
        (([X],), "list"),
        ((None,), "NoneType"),
    ],
)
def test_halves_take_tensors(given: Any, got: str) -> None:
    front, _ = air.cut(OwnNames(), 1, input_shape=(8,))
    with pytest.raises(
        InvalidValue, match=rf"front must be given 1 tensors, got {got}; write front\(\*tensors\)"
    ):
        front(*given)
