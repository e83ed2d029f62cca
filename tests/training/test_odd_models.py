"""Models, losses and settings that go wrong, or draw lots where one would not expect it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import airsplit as air
from airsplit.core.errors import FileProblem, InvalidValue
from airsplit.data.batches import Batches
from airsplit.models.zoo.registry import build_registered_model
from airsplit.training.coordinator import Training
from airsplit.training.parallel import attempt_all, in_parallel
from airsplit.training.setup import load_weights
from airsplit.training.virtual_time import Terms, whole_charges
from training import tiny

HERE = __name__


class Restless(nn.Sequential):
    """Drops out in evaluation, too."""

    def forward(self, x: Tensor) -> Tensor:
        return self[2](F.dropout(self[1](self[0](x)), 0.5, training=True))


def restless(kind: str = "float32") -> nn.Module:
    return Restless(nn.Linear(tiny.FEATURES, 7), nn.Tanh(), nn.Linear(7, tiny.CLASSES)).to(
        getattr(torch, kind)
    )


def noisy_loss(output: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(output + 0.1 * torch.randn_like(output), labels)


def loss_without_graph(output: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(output.detach(), labels)


def loss_of_each(output: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(output, labels, reduction="none")


def failing_loss(output: Tensor, labels: Tensor) -> Tensor:
    raise KeyError("no such thing")


def loss_of_four(output: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(output, {4: labels}[len(labels)])


def records(wanted: Any) -> list[air.RoundRecord]:
    return list(Training(wanted).rounds())


def test_a_loss_that_draws_random_numbers_is_the_same_every_time_and_on_both_paths() -> None:
    settings: dict[str, Any] = {
        "loss": f"{HERE}:noisy_loss",
        "iterations_per_round": 1,
        "splits": [2] * 5,
    }
    with pytest.warns(UserWarning, match="the loss draws random numbers"):
        one = records(tiny.scenario(**settings))
    with pytest.warns(UserWarning, match="the loss draws random numbers"):
        again = records(tiny.scenario(**settings))
    assert one == again == records(tiny.scenario(fast_paths=False, **settings))


def test_a_model_that_draws_random_numbers_in_evaluation_is_the_same_every_time() -> None:
    wanted = tiny.scenario(splits=[1] * 5).replace(**{"model.name": f"{HERE}:restless"})
    one = records(wanted)
    torch.rand(7)
    assert records(wanted) == one


@pytest.mark.parametrize("kind", ["float64", "bfloat16"])
@pytest.mark.parametrize(("model", "data"), [("mlp", "parted"), ("digits_net", "digits")])
def test_inputs_are_of_the_type_of_the_weights_where_none_is_said(
    kind: str, model: str, data: str
) -> None:
    own = {} if data == "parted" else {"dataset": "digits", "samples_per_device": 8}
    settings: dict[str, Any] = {
        "model": model,
        "data": data,
        "splits": [1] * 5,
        "kind": kind,
        **own,
    }
    assert records(tiny.scenario(**settings, model__input_dtype=None)) == records(
        tiny.scenario(**settings)
    )


@pytest.mark.parametrize("iterations", [1, 2])
@pytest.mark.parametrize(
    ("loss", "told"),
    [
        ("loss_without_graph", "must return one number|does not require grad"),
        ("loss_of_each", "must return one number|invalid for input of size"),
        ("failing_loss", "device 0, round 1, iteration 1.*KeyError"),
    ],
)
def test_a_loss_that_cannot_be_trained_with_is_one_line(
    loss: str, told: str, iterations: int
) -> None:
    with pytest.raises(InvalidValue, match=told):
        records(
            tiny.scenario(loss=f"{HERE}:{loss}", splits=[2] * 5, iterations_per_round=iterations)
        )


def test_a_loss_that_fails_on_the_test_set_only_is_one_line() -> None:
    with pytest.raises(
        InvalidValue,
        match=r"evaluation on the test set stopped: training.loss '.*:loss_of_four' failed: KeyError",
    ):
        records(tiny.scenario(loss=f"{HERE}:loss_of_four", data="flat", splits=[2]))


@pytest.mark.parametrize("iterations", [1, 2])
def test_labels_beyond_the_models_classes_are_told_on_both_paths(iterations: int) -> None:
    with pytest.raises(InvalidValue, match="labels must be below the number of classes"):
        records(
            tiny.scenario(
                model__arguments={"classes": 2},
                splits=[2] * 4,
                data="parted_evenly",
                iterations_per_round=iterations,
            )
        )


def test_a_run_that_failed_in_its_first_round_can_be_begun_anew(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="KeyError"):
        list(
            air.simulate(
                tiny.scenario(loss=f"{HERE}:failing_loss", splits=[2] * 5), out=tmp_path / "run"
            )
        )
    found = list(air.simulate(tiny.scenario(splits=[2] * 5), out=tmp_path / "run"))
    assert [record.round for record in found] == [1, 2, 3]
    assert "failing_loss" not in (tmp_path / "run" / "scenario.toml").read_text()


def test_what_a_run_left_that_never_finished_a_round_is_not_taken_for_the_next_ones(
    tmp_path: Path,
) -> None:
    stale = tmp_path / "run" / "checkpoint" / "fixed.safetensors"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"of another model")
    list(air.simulate(tiny.scenario(splits=[2] * 5), out=tmp_path / "run"))
    assert air.load_state(tmp_path / "run", device=0).keys() == tiny.mlp().state_dict().keys()


def test_fading_cannot_be_both_off_and_drawn_anew() -> None:
    with pytest.raises(
        InvalidValue,
        match=r"fleet\.redraw_fading = true and fleet\.fading = false exclude each other",
    ):
        tiny.scenario(fleet__fading=False, fleet__redraw_fading=True)


def test_only_the_epoch_that_a_device_is_in_is_remembered() -> None:
    import numpy as np

    batches = Batches([np.arange(6), np.arange(6, 10)], batch_size=2, seed=0)
    first = [batches.rows(k, i).tolist() for i in range(30) for k in (0, 1)]
    assert len(batches._permutations) == 2
    assert [batches.rows(k, i).tolist() for i in range(30) for k in (0, 1)] == first


def test_weights_that_are_not_finite_or_not_of_the_kind_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    model = build_registered_model("alexnet32", width=0.02, channels=1)
    changes = {
        "some that are not finite": lambda t: t * float("nan"),
        r"torch\.int32": lambda t: t.to(torch.int32),
    }
    for got, change in changes.items():
        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        state["conv1.weight"] = change(state["conv1.weight"])
        save_file(state, tmp_path / "x.safetensors")
        with pytest.raises(
            FileProblem,
            match=rf"conv1\.weight must be finite numbers of the kind of torch\.float32, got {got}$",
        ):
            load_weights(model, tmp_path / "x.safetensors")


def test_fedavg_in_very_many_blocks_is_as_good_as_a_band_that_divides_at_will() -> None:
    import numpy as np

    profile = air.Profile(["a"], [8], matmul_macs=[8], activation_elements=[4], parameters=[100])

    def finish(blocks: int | None) -> float:
        cell = air.Cell(resource_blocks=blocks)
        fleet = air.Fleet(
            seconds_per_mac=[1e-3, 2e-3, 3e-3],
            fluctuation=1e3,
            full_band_rate_bps=[1e3, 2e3, 9e3],
            cell=cell,
        )
        charges = whole_charges(
            Terms(profile, fleet, air.Clock(), np.ones(3, dtype=int), np.ones(3) / 3, 1, 32)
        )
        return float(
            (
                charges.work * (fleet.seconds_per_mac + 1 / fleet.fluctuation)
                + charges.up_once_bits / fleet.rate_bps(charges.shares)
            ).max()
        )

    assert finish(None) <= finish(10**9) * (1 + 1e-9)
    assert finish(10**9) == pytest.approx(finish(None), rel=1e-7)
    assert finish(10) >= finish(None)


def killed(piece: int) -> int:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)
    return piece


def fatal(piece: int) -> int:
    """Ends its process with an odd piece, and raises with one above ten."""
    if piece > 10:
        raise ValueError("too many")
    return killed(piece) if piece % 2 else piece


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_a_piece_of_work_that_fails_ends_no_other() -> None:
    (*_, outcomes) = attempt_all(fatal, [1, 2, 12, 4], jobs=2)
    assert (outcomes[1], outcomes[3]) == (2, 4)
    assert str(outcomes[0]).startswith("a training process was killed, probably for memory")
    assert str(outcomes[2]) == "ValueError: too many"


def talkative(piece: int) -> int:
    print("what a factory prints")
    return piece


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_a_process_that_is_killed_is_told_and_what_one_prints_is_no_result(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(air.AirsplitError, match="a training process was killed"):
        list(in_parallel(killed, [1, 2], jobs=2))
    (*_, done) = in_parallel(talkative, [1, 2], jobs=2)
    assert done == {0: 1, 1: 2}
    assert capfd.readouterr().out == ""
