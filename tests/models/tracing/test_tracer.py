"""Models that do more than call layers are traced exactly, or rejected in one line."""

import random
import warnings
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import airsplit as air
from airsplit.core.errors import InvalidValue
from models.exactness import assert_exact, assert_rejected
from models.hard_models import Caching, Net

X = torch.randn(3, 8, generator=torch.Generator().manual_seed(1))


def scripted(function_or_module: Any) -> Any:
    with warnings.catch_warnings():
        # torch recommends torch.compile instead, but users still have scripted models.
        warnings.simplefilter("ignore")
        return torch.jit.script(function_or_module)


def _swish(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


swish = scripted(_swish)


class Scripted(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.second(swish(self.first(x)))


class DroppedPositions(Net):
    """A random layer whose result, on a constant, is used twice."""

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
    """A hook keeps a layer's output for later."""

    def __init__(self) -> None:
        super().__init__()
        self.features: list[Tensor] = []
        self.first.register_forward_hook(self.keep)

    def keep(self, module: nn.Module, args: Any, result: Tensor) -> None:
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
    """Modules with names that a half might use for its own attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.side, self.run = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self.side(x))


class SendsTransposed(Net):
    """Sends a tensor that is not contiguous, and calls view() on it."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x.view(-1, 1, 8).expand(-1, 8, 8)).transpose(1, 2)
        h = F.dropout(h, 0.3, self.training)
        return self.second(h.transpose(1, 2).view(x.shape[0], 64)[:, ::8])


class ByKeyword(Net):
    """Tensors of which only shape or type is used, given by name."""

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
TRACEABLE: dict[str, tuple[nn.Module, Tensor]] = {
    "scripted function": (Scripted(), X),
    "caches": (Caching(), X),
    "random layer": (DroppedPositions(), X),
    "other weights": (OtherWeights(), X),
    "filled through a view": (FilledThroughAView(), X),
    "features by hooks": (KeepsFeatures(), X),
    "distribution": (Sampling(), X),
    "pyramid": (PooledTwice(), torch.randn(3, 1, 8, 8)),
    "own names": (OwnNames(), X),
    "turned": (SendsTransposed(), X),
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


@pytest.mark.parametrize("name", TRACEABLE)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
def test_a_model_is_traced_exactly(name: str) -> None:
    model, x = TRACEABLE[name]
    torch.set_num_threads(1)
    assert_exact(model, x)


def test_an_attribute_that_no_later_pass_reads_is_not_state() -> None:
    class Shows(Net):
        def forward(self, x: Tensor) -> Tensor:
            self.features = self.first(x)
            return self.second(self.features)

    model = Shows()
    assert_exact(model, X)
    assert air.profile(model, (8,)).names == ("first", "second")


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


def test_batch_normalization_that_a_model_freezes_is_frozen_in_its_halves() -> None:
    model = FrozenStatistics()
    front, back = air.cut(model, "norm", input_shape=(8,))
    front.train()
    back.train()
    assert front.training
    assert not model.norm.training
    assert torch.equal(back(*front(X)), model.train()(X))


def test_submodules_may_be_in_another_mode_than_the_model() -> None:
    class Drops(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(x, 0.5, self.training)

    model = nn.Sequential(nn.Linear(8, 8), Drops(), nn.Linear(8, 3)).train()
    model[1].eval()
    front, back = air.cut(model, 2, input_shape=(8,))
    assert torch.equal(back(*front(X)), model(X))


class SplitsTheBatch(Net):
    def forward(self, x: Tensor) -> Tensor:
        h, n = self.first(x), x.shape[0] // 2
        return self.second(torch.cat([2 * h[:n], h[n:]]))


class SplitsLargeBatches(Net):
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


class KeepsState(Net):
    """State in a plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x) if self.last is None else self.first(x) + self.last.mean(0)
        self.last = h.detach()
        return self.second(h)


class EntersAutocast(Net):
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


class DrawsInPython(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x) if random.random() < 2 else x)  # noqa: S311


class DrawsInNumpy(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x) if np.random.rand() < 2 else x)  # noqa: NPY002


class HooksATensor(Net):
    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        if h.requires_grad:
            h.register_hook(lambda gradient: -gradient)
        return self.second(h)


class ReturnsAParameter(Net):
    def forward(self, x: Tensor) -> Any:
        return self.second(x), self.first.weight


class Branches(Net):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x + 1
        return self.second(x)


class PicksByData(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.second(x)[x[:, 0] > 0]


class TakesANumber(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.second(x) * x.max().item()


class BranchesAtRandom(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.second(x if torch.rand([]) < 0.5 else self.first(x))


class LoopsOverSamples(Net):
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.second(sample) for sample in x])


class MultipliesByOneOverBatch(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.second(x) * (1.0 / x.shape[0])


class SquaresTheBatch(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.second(x) / (len(x) * x.shape[0])


class Fails(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.second(x[{"a": 1}["b"]])


class MakesALayer(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.second(nn.BatchNorm1d(8, device=x.device)(x))


class ReturnsNoTensor(Net):
    def forward(self, x: Tensor) -> Any:
        self.second(x)
        return {"done": True}


DEPENDS_ON_DATA = r"depends on the values of its data at test_tracer.py:\d+"
DEPENDS_ON_BATCH = r"a number that depends on the batch size at test_tracer.py:\d+"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            SplitsTheBatch,
            DEPENDS_ON_BATCH + r" .*64 for a batch of 129, not 1",
        ),
        (
            SplitsLargeBatches,
            r"behaves differently for a batch of 2 than for one of 129, at test_tracer.py:\d+",
        ),
        (
            AtMostFour,
            DEPENDS_ON_BATCH + r" .*4 for a batch of 129",
        ),
        (
            ReturnsTheBatch,
            r"returns a number that depends on the batch size, 2 for a batch of 2 and 3",
        ),
        (
            ReplacesABuffer,
            r"replaces its buffer mean by another tensor; change it in place: mean.copy_",
        ),
        (KeepsState, "keeps last from one forward pass to the next.*keep it in a buffer"),
        (EntersAutocast, r"enters torch.autocast at test_tracer.py:\d+ .*run the halves under it"),
        (
            GivesAFunction,
            r"passes a module or a function of its own to a function at test_tracer.py:\d+",
        ),
        (DrawsInPython, "draws random numbers of Python or numpy"),
        (DrawsInNumpy, "draws random numbers of Python or numpy"),
        (HooksATensor, r"registers a hook on a tensor at test_tracer.py:\d+"),
        (ReturnsAParameter, "returns its parameter first.weight itself"),
        (
            Branches,
            DEPENDS_ON_DATA + r" \(if x.sum\(\) > 0:\).*use torch.where",
        ),
        (
            PicksByData,
            DEPENDS_ON_DATA + r" \(return self.second\(x\)\[x\[:, 0\] > 0\]\)",
        ),
        (
            TakesANumber,
            DEPENDS_ON_DATA + r" \(return self.second\(x\) \* x.max",
        ),
        (BranchesAtRandom, r"at test_tracer.py:\d+ .*it draws random numbers"),
        (
            LoopsOverSamples,
            r"behaves differently for a batch of 2 than for one of 3, at test_tracer.py:\d+ "
            r".*without a loop over its samples",
        ),
        (
            MultipliesByOneOverBatch,
            DEPENDS_ON_BATCH + r" .* 0\.5 for a batch of 2.*divide a tensor by",
        ),
        (
            SquaresTheBatch,
            DEPENDS_ON_BATCH + r" .* 16641 for a batch of 129",
        ),
        (Fails, r"model fails at test_tracer.py:\d+ .*with KeyError: 'b'"),
        (MakesALayer, r"at test_tracer.py:\d+ .*(create it in __init__|keep it as a buffer)"),
        (ReturnsNoTensor, "model must return a tensor, or something with tensors in it, got dict"),
    ],
)
def test_a_model_that_cannot_be_traced_is_rejected_in_one_line(
    kind: type[nn.Module], message: str
) -> None:
    assert_rejected(kind(), message)


def test_torchscript_with_parameters_is_rejected() -> None:
    with pytest.raises(
        InvalidValue,
        match="its part 1 is TorchScript with parameters; give the module it was made from",
    ):
        air.profile(nn.Sequential(nn.Linear(8, 8), scripted(nn.Linear(8, 8))), (8,))


def test_halves_of_a_model_that_names_a_dtype_cannot_be_cast() -> None:
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
def test_halves_take_tensors_only(given: Any, got: str) -> None:
    front, _ = air.cut(OwnNames(), 1, input_shape=(8,))
    with pytest.raises(
        InvalidValue, match=rf"front must be given 1 tensors, got {got}; write front\(\*tensors\)"
    ):
        front(*given)


def test_a_model_may_branch_on_constants() -> None:
    class BranchesOnConstants(Net):
        limit: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("limit", torch.tensor(3))

        def forward(self, x: Tensor) -> Tensor:
            mask = torch.ones(8, 8).tril().sum(1)
            for _ in range(int(self.limit)):
                x = self.first(x)
            return self.second(x) if mask.all() and not torch.rand([]) < 0.0 else x

    assert air.profile(BranchesOnConstants(), (8,)).names == ("first_2", "second")


def test_a_model_may_skip_checks_of_its_data_while_it_is_compiled() -> None:
    class ChecksItsData(Net):
        def forward(self, x: Tensor) -> Tensor:
            if not torch.compiler.is_compiling() and bool(x.isnan().any()):
                raise ValueError("not a number")
            return self.second(self.first(x))

    assert air.profile(ChecksItsData(), (8,)).names == ("first", "second")
