"""A device does what a server may ask of it, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from airsplit.network.client.stream import Lost
from airsplit.network.client.worker import Skipped, Trainee, _gradients, expected_answer
from airsplit.network.events import silent
from airsplit.network.wire import airsplit_pb2 as pb
from airsplit.network.wire.codec import Incoming, Malformed, Outgoing, opened
from network.fleets import scenario

PLACE = pb.Place(run="run", round=1, order=2, step=0)
CROSSING = (torch.zeros(4, 7), torch.zeros(4, 5))


def heard(message: Outgoing[pb.ServerMessage]) -> Incoming[pb.ServerMessage]:
    return opened(pb.ServerMessage, message.frame())


def answer(*gradients: torch.Tensor, place: pb.Place = PLACE) -> Incoming[pb.ServerMessage]:
    """The gradients of a step."""
    message = Outgoing(pb.ServerMessage(gradient=pb.Gradient(place=place)))
    for gradient in gradients:
        message.put(message.message.gradient.gradients.add(), gradient)
    return heard(message)


def test_gradients_are_taken_as_they_were_sent() -> None:
    sent = [torch.randn(4, 7), torch.randn(4, 5)]
    found = _gradients(answer(*sent), PLACE, CROSSING)
    for gradient, wanted in zip(found, sent, strict=True):
        assert gradient is not None
        assert torch.equal(gradient, wanted)


@pytest.mark.parametrize(
    ("given", "place", "told"),
    [
        ([(4, 7), (4, 5)], pb.Place(run="run", round=1, order=2, step=1), "of another step"),
        ([(4, 7), (4, 5)], pb.Place(run="other", round=1, order=2, step=0), "of another step"),
        ([(4, 7)], PLACE, "a gradient for each of 2 tensors, got 1"),
        ([(4, 7), (4, 5), (4, 5)], PLACE, "a gradient for each of 2 tensors, got 3"),
        ([(4, 7), (5, 4)], PLACE, "a gradient"),
    ],
)
def test_gradients_of_something_else_are_not_taken(
    given: list[tuple[int, ...]], place: pb.Place, told: str
) -> None:
    with pytest.raises(Malformed, match=told):
        _gradients(answer(*(torch.zeros(shape) for shape in given), place=place), PLACE, CROSSING)


def test_an_answer_is_what_was_wanted_or_why_there_is_none() -> None:
    def said(**body: Any) -> Incoming[pb.ServerMessage]:
        return heard(Outgoing(pb.ServerMessage(**body)))

    assert expected_answer(said(score=pb.Score(loss=2.0)), "score").loss == 2.0
    with pytest.raises(Skipped, match="too late"):
        expected_answer(said(skip=pb.Skip(why="too late")), "score")
    with pytest.raises(Lost, match="a restart"):
        expected_answer(said(done=pb.Done(why="a restart")), "score")
    with pytest.raises(Malformed, match="must answer with gradient, got 'score'"):
        expected_answer(said(score=pb.Score()), "gradient")
    with pytest.raises(Malformed, match="must answer with done, got None"):
        expected_answer(said(), "done")


@pytest.fixture(scope="module")
def trainee(tmp_path_factory: pytest.TempPathFactory) -> Trainee:
    own = scenario().replace(
        **{"training.dataset": "network.fleets:three_0", "training.partition": "iid"}
    )
    welcome = pb.Welcome(run="run", device=0, devices=3)
    return Trainee(
        own, welcome, Path(tmp_path_factory.mktemp("device")), "network.fleets:three_0", silent
    )


def test_a_device_begins_from_nothing_that_it_does_not_have(trainee: Trainee) -> None:
    with pytest.raises(Malformed, match="a version that the device has, got round 5 at split 2"):
        trainee._begin(5, 2)


def test_a_device_that_was_not_told_so_gives_no_layers_away(trainee: Trainee) -> None:
    before = {name: tensor.clone() for name, tensor in trainee.replica.tensors.items()}
    asked = heard(Outgoing(pb.ServerMessage(move=pb.Move(order=1, from_split=3, split=1))))
    with pytest.raises(Malformed, match="must not move layers that did not say so"):
        trainee.serve(None, asked)  # type: ignore[arg-type]  # nothing may be sent
    assert all(
        torch.equal(tensor, before[name]) for name, tensor in trainee.replica.tensors.items()
    )
