"""Where a model must not be cut and why, and what cannot be followed at all: the error names the line of the model."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import airsplit as air
from airsplit.core.errors import InvalidValue
from airsplit.models.profiling import explain
from models.exactness import assert_exact, assert_refused, look_at
from models.hard_models import Net


def refused(model: nn.Module, *shape: int) -> dict[str, str]:
    return {refusal.name: refusal.reason for refusal in explain(model, shape)[1]}


# ---- cuts that are left out ----


class CalledTwice(Net):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.act(self.first(self.act(self.first(x)))))


def test_a_layer_called_on_both_sides_is_not_torn_apart() -> None:
    found = assert_exact(CalledTwice(), torch.randn(2, 8))
    assert [row.name for row in found.splits] == ["first_1", "act_1", "second"]
    why = "first.weight is used on both sides, by first and by first_1"
    assert refused(CalledTwice(), 8) == {"first": why, "act": why}


class SameMemory(Net):
    """Two parameters that are not one object, but lie in the same memory."""

    def __init__(self) -> None:
        super().__init__()
        self.third = nn.Linear(8, 8)
        self.third.weight = nn.Parameter(self.first.weight.data)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.third(self.first(x).relu()))


def test_parameters_in_the_same_memory_stay_together() -> None:
    profile = air.profile(SameMemory(), (8,))
    assert profile.names == ("third", "second")
    assert profile.parameters.tolist() == [2 * 72, 27]


class SharedStatistics(Net):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8, affine=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.norm(self.first(self.norm(x))))


def test_statistics_belong_to_one_side() -> None:
    assert_exact(SharedStatistics(), torch.randn(5, 8))
    assert refused(SharedStatistics(), 8).keys() == {"norm", "first"}


class ChangedThroughAView(Net):
    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        view = h.view(-1, 2, 4)
        out = self.second(x)
        h.mul_(2.0)
        return out + view.sum((1, 2))[:, None]


def test_no_cut_between_a_tensor_and_a_change_of_it_that_others_would_see() -> None:
    assert_exact(ChangedThroughAView(), torch.randn(2, 8))
    assert list(refused(ChangedThroughAView(), 8)) == ["second"]
    assert "mul changes a tensor in place" in refused(ChangedThroughAView(), 8)["second"]
    assert "test_legality.py:" in refused(ChangedThroughAView(), 8)["second"]


class BatchMean(Net):
    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        mean = h.mean(0, keepdim=True)
        return self.second(h) - mean[:, :3]


class Similarity(Net):
    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return self.second((h @ h.T).softmax(1) @ h)


def test_what_has_no_batch_axis_but_depends_on_the_data_is_not_sent() -> None:
    assert_exact(BatchMean(), torch.randn(3, 8))
    assert refused(BatchMean(), 8).keys() == {"mean", "second", "getitem"}
    assert "no batch axis" in refused(BatchMean(), 8)["mean"]


def test_a_matrix_of_samples_by_samples_is_not_sent() -> None:
    assert_exact(Similarity(), torch.randn(3, 8))
    assert refused(Similarity(), 8) == {
        name: f"what {name} returns grows with the batch, but not sample by sample"
        for name in ("matmul", "softmax")
    }


class RawFirst(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x) + x) * (x.abs() > 1)[:, :3]


class Comparison(Net):
    def forward(self, x: Tensor) -> Tensor:
        outside = x.abs() > 1
        return self.second(self.first(x)) * outside[:, :3]


def test_the_data_itself_does_not_leave_before_a_parameter_has_touched_it() -> None:
    assert set(refused(Comparison(), 8)) == {"abs", "gt"}
    assert set(refused(Comparison(), 8).values()) == {
        "it would send the data itself, untouched by any parameter"
    }
    # behind the first layer a shortcut may carry the data on: that is the model's way
    assert look_at(RawFirst(), torch.zeros(1, 8)).splits[0].name == "first"


class OnlyWhenEvaluated(Net):
    def __init__(self) -> None:
        super().__init__()
        self.smooth = nn.Softmax(1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        h = h if self.training else self.smooth(h)
        return self.second(h)


def test_a_cut_must_exist_in_both_modes() -> None:
    assert refused(OnlyWhenEvaluated(), 8) == {"smooth": "it does not run in training mode"}
    assert_exact(OnlyWhenEvaluated(), torch.randn(2, 8))


def test_masks_and_positions_are_made_on_both_sides_and_never_sent() -> None:
    profile = air.profile("gpt")
    assert profile.activation_elements[profile.split_of("blocks.2.add_1") - 1] == 64 * 128


def test_numbers_that_grow_with_the_batch_are_worked_out_anew() -> None:
    class Folded(Net):
        def forward(self, x: Tensor) -> Tensor:
            b, t, c = x.shape
            h = self.first(x.reshape(b * t, c))
            return (
                self.second(torch.cat([h, h[:1]])[: b * t + 1]).narrow(0, 0, b * t).view(b, t, -1)
            )

    model, x = Folded(), torch.randn(6, 5, 8)
    front, back = air.cut(model, "first", input_shape=(5, 8))
    assert torch.equal(back(*front(x)), model(x))


def test_an_input_may_be_without_a_batch_axis() -> None:
    class Weighted(Net):
        def forward(self, x: Tensor, weights: Tensor, scale: Tensor) -> Tensor:
            return self.second(self.first(x * weights) * scale)

    inputs = torch.randn(3, 8), torch.randn(8), torch.tensor(2.0)
    found = assert_exact(Weighted(), *inputs)
    assert [row.name for row in found.splits] == ["mul_1", "second"]
    assert (
        "input 3 changes from batch to batch"
        in {each.name: each.reason for each in found.illegal_splits}["first"]
    )


# ---- models that cannot be followed ----


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


class DrawsLots(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.second(x if torch.rand([]) < 0.5 else self.first(x))


class LoopsOverSamples(Net):
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.second(sample) for sample in x])


class Shares(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.second(x) * (1.0 / x.shape[0])


class Squares(Net):
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


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            Branches,
            r"depends on the values of its data at test_legality.py:\d+ \(if x.sum\(\) > 0:\).*use torch.where",
        ),
        (
            PicksByData,
            r"depends on the values of its data at test_legality.py:\d+ \(return self.second\(x\)\[x\[:, 0\] > 0\]\)",
        ),
        (
            TakesANumber,
            r"depends on the values of its data at test_legality.py:\d+ \(return self.second\(x\) \* x.max",
        ),
        (DrawsLots, r"at test_legality.py:\d+ .*it draws random numbers"),
        (
            LoopsOverSamples,
            r"other things for a batch of 2 than for one of 3, at test_legality.py:\d+ .*without a loop over its samples",
        ),
        (
            Shares,
            r"a number that depends on the batch size at test_legality.py:\d+ .* 0\.5 for a batch of 2.*divide a tensor by",
        ),
        (
            Squares,
            r"a number that depends on the batch size at test_legality.py:\d+ .* 16641 for a batch of 129",
        ),
        (Fails, r"model fails at test_legality.py:\d+ .*with KeyError: 'b'"),
        (MakesALayer, r"at test_legality.py:\d+ .*(make it in __init__|keep it as a buffer)"),
        (ReturnsNoTensor, "model must return a tensor, or something with tensors in it, got dict"),
    ],
)
def test_what_cannot_be_followed_is_one_line_that_names_the_place(
    kind: type[nn.Module], message: str
) -> None:
    assert_refused(kind(), message)


def test_constants_may_be_looked_at() -> None:
    class LooksAtConstants(Net):
        limit: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("limit", torch.tensor(3))

        def forward(self, x: Tensor) -> Tensor:
            mask = torch.ones(8, 8).tril().sum(1)
            for _ in range(int(self.limit)):
                x = self.first(x)
            return self.second(x) if mask.all() and not torch.rand([]) < 0.0 else x

    assert air.profile(LooksAtConstants(), (8,)).names == ("first_2", "second")


def test_models_may_have_a_branch_for_those_who_look_without_data() -> None:
    class Warns(Net):
        def forward(self, x: Tensor) -> Tensor:
            if not torch.compiler.is_compiling() and bool(x.isnan().any()):
                raise ValueError("not a number")
            return self.second(self.first(x))

    assert air.profile(Warns(), (8,)).names == ("first", "second")


# ---- the user's model is left alone ----


class Remembers(Net):
    def forward(self, x: Tensor) -> Tensor:
        self.last = self.first(x)
        if x.shape[1] != 8:
            raise RuntimeError("no")
        return self.second(self.last)


@pytest.mark.parametrize("shape", [(8,), (8, 8)])
def test_nothing_is_left_behind_even_after_an_error(shape: tuple[int, ...]) -> None:
    model, call, apply = Remembers().eval(), nn.Module.__call__, torch.autograd.Function.apply
    seen = dict(vars(model))
    if shape == (8,):
        air.profile(model, shape)
    else:
        with pytest.raises(InvalidValue):
            air.profile(model, (7,))
    assert vars(model) == seen
    assert not model.training
    assert nn.Module.__call__ is call
    assert torch.autograd.Function.apply == apply
    assert torch.empty(1).device.type == "cpu"
    assert torch.is_grad_enabled()
