"""Memory that runs out: the round or evaluation is repeated in smaller parts, and comes out as if they had been small at first.

Memory runs out in the models here as it does on a GPU: with an error of torch's own, from inside of the forward pass.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import airsplit as air
from airsplit.core.plugins import wrap_user_code
from airsplit.runs.record import RoundRecord
from airsplit.training import common_batch, evaluation, stacked
from airsplit.training import coordinator as engine
from airsplit.training.accelerator import Accelerator
from airsplit.training.coordinator import Training
from airsplit.training.memory import Halving, OutOfMemory, is_out_of_memory, out_of_memory
from airsplit.training.stacked import STACKED
from training import tiny

HERE = __name__
SPLITS = [2, 4, 2, 4, 2]


class Limited(torch.autograd.Function):
    """The same numbers, of so many samples and, where it is vmapped, of so many models as there is memory for.

    spared  how often there is memory for whatever comes, which then is short
    """

    spared = 0

    @staticmethod
    def forward(x: Tensor, samples: int, models: int) -> Tensor:
        if x.device.type != "meta":  # there a model is only looked at
            Limited.require(len(x) <= samples)
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, samples: int, models: int) -> tuple[Tensor, Any]:
        Limited.require(info.batch_size <= models)
        return x.view_as(x), in_dims[0]

    @classmethod
    def require(cls, room: bool) -> None:
        if not room:
            cls.spared -= 1
            if cls.spared < 0:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


PLENTY = 1000
TRIAL = 1
"""How often the trial before the first round meets the limit: it has six samples, or two models."""


class Tight(nn.Module):
    """A layer that has memory for so many samples in training and in evaluation, and for so many models at once."""

    def __init__(self, training: int, testing: int, models: int) -> None:
        super().__init__()
        self.samples, self.models = {True: training, False: testing}, models

    def forward(self, x: Tensor) -> Tensor:
        return Limited.apply(x, self.samples[self.training], self.models)  # type: ignore[no-untyped-call, no-any-return]


@tiny.fixed_weights
def tight_mlp(
    training: int = PLENTY, testing: int = PLENTY, models: int = PLENTY, spared: int = 0
) -> nn.Module:
    """With statistics in front, which a forward pass changes."""
    Limited.spared = spared
    front = (nn.Linear(tiny.FEATURES, 7), nn.BatchNorm1d(7), nn.Tanh(), nn.Linear(7, 5))
    return nn.Sequential(
        *front, nn.Tanh(), Tight(training, testing, models), nn.Linear(5, tiny.CLASSES)
    )


def scenario(iterations: int = 1, **arguments: Any) -> air.Scenario:
    settings = {"splits": SPLITS, "rounds": 3, "iterations_per_round": iterations, "momentum": 0.9}
    return tiny.scenario(
        "tight_mlp", **settings, model__name=f"{HERE}:tight_mlp", model__arguments=arguments
    )


def trained(iterations: int = 1, **arguments: Any) -> tuple[Training, list[RoundRecord]]:
    training = Training(scenario(iterations, **arguments))
    return training, list(training.rounds())


def assert_equal(
    one: tuple[Training, list[RoundRecord]], other: tuple[Training, list[RoundRecord]]
) -> None:
    """Bit by bit."""
    (found, records), (wanted, others) = one, other
    assert records == others
    for tensors, same in (
        (found.state.common, wanted.state.common),
        (found.state.personal, wanted.state.personal),
    ):
        assert tensors.keys() == same.keys()
        assert all(torch.equal(tensor, same[name]) for name, tensor in tensors.items())


@pytest.fixture
def _as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        engine, "accelerator_of", lambda *_: Accelerator(torch.device("cpu"), stacks=True)
    )


# ---- training ----------------------------------------------------------------------------------------------------------------
def test_a_round_is_repeated_with_half_as_many_devices_and_that_is_said_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four devices with four samples each go at once; with memory for eight samples, two do."""
    said = "^memory ran out in round 1 with 4 devices at once; it was repeated with at most 2, which is the limit from now on$"
    with pytest.warns(UserWarning, match=said) as warned:
        short = trained(training=8)
    assert len(warned) == 1
    monkeypatch.setattr(common_batch, "SAMPLES_AT_ONCE", 8)
    assert_equal(short, trained())


def test_groups_that_were_trained_before_it_happened_are_trained_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first group goes through in the first round, and the second does not: of the first nothing may be left."""
    monkeypatch.setattr(common_batch, "SAMPLES_AT_ONCE", 8)
    with pytest.warns(
        UserWarning,
        match="memory ran out in round 1 with 2 devices at once; it was repeated with at most 1",
    ):
        short = trained(training=4, spared=TRIAL + 1)
    monkeypatch.setattr(common_batch, "SAMPLES_AT_ONCE", 4)
    assert_equal(short, trained())


def test_it_may_happen_later_and_more_than_once() -> None:
    with pytest.warns(
        UserWarning,
        match="memory ran out in round 2 with 4 devices at once; it was repeated with at most 1",
    ) as warned:
        trained(training=4, spared=TRIAL + 1)
    assert len(warned) == 1


@pytest.mark.usefixtures("_as_on_a_gpu")
@pytest.mark.parametrize("spared", [0, 1], ids=["at once", "in the second group"])
@pytest.mark.parametrize("iterations", [1, 2])
def test_stacked_models_are_halved_as_well(
    iterations: int, spared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # with one iteration a round only fronts are stacked, and common layers see the samples of all
    tight = {"training": 4} if iterations == 1 else {"models": 1}
    limits = {"SAMPLES_AT_ONCE": (8, 4), "ON_CPU": (2, 1)}
    for module, name in ((common_batch, "SAMPLES_AT_ONCE"), (stacked, "ON_CPU")):
        monkeypatch.setattr(module, name, limits[name][0])
    with pytest.warns(
        UserWarning,
        match="memory ran out in round 1 with 2 devices at once; it was repeated with at most 1",
    ):
        short = trained(iterations, **tight, spared=TRIAL + spared)
    for module, name in ((common_batch, "SAMPLES_AT_ONCE"), (stacked, "ON_CPU")):
        monkeypatch.setattr(module, name, limits[name][1])
    assert_equal(short, trained(iterations))


@pytest.mark.usefixtures("_as_on_a_gpu")
def test_without_room_for_two_models_one_comes_after_the_other() -> None:
    why = "^the devices are trained one after the other, not at once, because memory has no room for two models$"
    with pytest.warns(UserWarning, match=why):
        short = trained(2, models=1)
    assert STACKED not in short[0]._crew.made


def test_where_one_device_is_too_many_it_is_told_in_one_line() -> None:
    with pytest.raises(
        OutOfMemory,
        match=r"^training stopped at device 0, round 1, iteration 1: memory ran out: OutOfMemoryError: ",
    ) as error:
        trained(training=3)
    assert "lower training.batch_size" in str(error.value)
    assert "\n" not in str(error.value)


# ---- evaluation --------------------------------------------------------------------------------------------------------------
def test_an_evaluation_is_repeated_with_half_as_many_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = len(tiny.parted()[1][1])
    said = f"^memory ran out in the evaluation of round 1 with {count} test samples at once; it was repeated with at most {count // 2}, "
    with pytest.warns(UserWarning, match=said) as warned:
        short = trained(testing=count // 2)
    assert len(warned) == 1
    monkeypatch.setattr(evaluation, "BATCH", count // 2)
    assert_equal(short, trained())


def test_an_evaluation_without_room_for_one_sample_is_told_in_one_line() -> None:
    with pytest.raises(
        OutOfMemory,
        match=r"^evaluation on the test set stopped: memory ran out: OutOfMemoryError: ",
    ):
        trained(testing=0)


# ---- what it is --------------------------------------------------------------------------------------------------------------
def test_what_torch_says_where_there_is_no_memory_is_known() -> None:
    with pytest.raises(RuntimeError) as error:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(error.value)
    assert is_out_of_memory(RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"))
    assert not is_out_of_memory(RuntimeError("CUDA error: device-side assert triggered"))


def test_a_loss_of_the_user_s_that_runs_out_of_memory_does_so_too() -> None:
    def greedy() -> None:
        raise MemoryError("no more")

    with (
        pytest.raises(OutOfMemory, match=r"^round 1: memory ran out: MemoryError: no more; lower"),
        out_of_memory("round 1"),
    ):
        wrap_user_code(greedy, "training.loss 'mine:greedy'")()


def test_other_errors_are_not_tried_again() -> None:
    seen = list[int]()

    def work(parts: Any) -> None:
        seen.append(len(parts))
        raise ValueError("wrong shapes")

    with pytest.raises(ValueError, match="wrong shapes"):
        Halving("things").run(lambda limit: [[1, 2]], work, "a trial", lambda: None)
    assert seen == [1]


def test_a_command_goes_on_with_one_note(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text(scenario(training=8).to_toml())
    code, _, err = run("run", str(file), "--out", str(tmp_path / "run"))
    assert code == 0
    assert err.count("memory ran out") == 1
