"""Illegal splits, each with the reason why the model cannot be cut there."""

import torch
from torch import Tensor, nn

import airsplit as air
from airsplit.models.profiling import explain
from models.exactness import assert_exact, find_model_splits
from models.hard_models import Net


def illegal_splits(model: nn.Module, *shape: int) -> dict[str, str]:
    return {split.name: split.reason for split in explain(model, shape)[1]}


class CalledTwice(Net):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.act(self.first(self.act(self.first(x)))))


def test_no_cut_has_a_layer_on_both_sides() -> None:
    splits = assert_exact(CalledTwice(), torch.randn(2, 8))
    assert [split.name for split in splits.splits] == ["first_1", "act_1", "second"]
    why = "first.weight is used on both sides, by first and by first_1"
    assert illegal_splits(CalledTwice(), 8) == {"first": why, "act": why}


class SameMemory(Net):
    """Two parameters in the same memory."""

    def __init__(self) -> None:
        super().__init__()
        self.third = nn.Linear(8, 8)
        self.third.weight = nn.Parameter(self.first.weight.data)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.third(self.first(x).relu()))


def test_parameters_in_the_same_memory_are_on_one_side() -> None:
    profile = air.profile(SameMemory(), (8,))
    assert profile.names == ("third", "second")
    assert profile.parameters.tolist() == [2 * 72, 27]


class SharedStatistics(Net):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8, affine=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.norm(self.first(self.norm(x))))


def test_running_statistics_are_on_one_side() -> None:
    assert_exact(SharedStatistics(), torch.randn(5, 8))
    assert illegal_splits(SharedStatistics(), 8).keys() == {"norm", "first"}


class ChangedThroughAView(Net):
    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        view = h.view(-1, 2, 4)
        out = self.second(x)
        h.mul_(2.0)
        return out + view.sum((1, 2))[:, None]


def test_no_cut_separates_a_view_from_a_change_in_place_behind_it() -> None:
    assert_exact(ChangedThroughAView(), torch.randn(2, 8))
    assert list(illegal_splits(ChangedThroughAView(), 8)) == ["second"]
    assert "mul changes a tensor in place" in illegal_splits(ChangedThroughAView(), 8)["second"]
    assert "test_legality.py:" in illegal_splits(ChangedThroughAView(), 8)["second"]


class BatchMean(Net):
    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        mean = h.mean(0, keepdim=True)
        return self.second(h) - mean[:, :3]


class Similarity(Net):
    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return self.second((h @ h.T).softmax(1) @ h)


def test_tensors_made_from_data_without_a_batch_axis_are_not_sent() -> None:
    assert_exact(BatchMean(), torch.randn(3, 8))
    assert illegal_splits(BatchMean(), 8).keys() == {"mean", "second", "getitem"}
    assert "no batch axis" in illegal_splits(BatchMean(), 8)["mean"]


def test_matrices_of_samples_by_samples_are_not_sent() -> None:
    assert_exact(Similarity(), torch.randn(3, 8))
    assert illegal_splits(Similarity(), 8) == {
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


def test_the_data_is_not_sent_before_a_parameter_is_used() -> None:
    assert set(illegal_splits(Comparison(), 8)) == {"abs", "gt"}
    assert set(illegal_splits(Comparison(), 8).values()) == {
        "it would send the data itself, untouched by any parameter"
    }
    # Behind the first layer a shortcut may send the data: the profile's raw_inputs name it.
    assert find_model_splits(RawFirst(), torch.zeros(1, 8)).splits[0].name == "first"


class OnlyWhenEvaluated(Net):
    def __init__(self) -> None:
        super().__init__()
        self.smooth = nn.Softmax(1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        h = h if self.training else self.smooth(h)
        return self.second(h)


def test_a_cut_must_exist_in_both_modes() -> None:
    assert illegal_splits(OnlyWhenEvaluated(), 8) == {"smooth": "it does not run in training mode"}
    assert_exact(OnlyWhenEvaluated(), torch.randn(2, 8))


def test_masks_and_positions_are_never_sent() -> None:
    profile = air.profile("gpt")
    assert profile.activation_elements[profile.split_of("blocks.2.add_1") - 1] == 64 * 128


def test_halves_compute_sizes_that_grow_with_the_batch() -> None:
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


def test_inputs_without_a_batch_axis_are_not_sent() -> None:
    class Weighted(Net):
        def forward(self, x: Tensor, weights: Tensor, scale: Tensor) -> Tensor:
            return self.second(self.first(x * weights) * scale)

    inputs = torch.randn(3, 8), torch.randn(8), torch.tensor(2.0)
    splits = assert_exact(Weighted(), *inputs)
    assert [split.name for split in splits.splits] == ["mul_1", "second"]
    assert (
        "input 3 changes from batch to batch"
        in {split.name: split.reason for split in splits.illegal_splits}["first"]
    )
