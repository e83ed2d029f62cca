"""Raw inputs stay on the devices: the server plans no cut that sends one, and a device takes part in none unless it agreed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from airsplit.core.errors import AirsplitError, InvalidValue
from airsplit.network.client.worker import Trainee
from airsplit.network.events import silent
from airsplit.network.server.forecast import (
    least_device_bytes,
    message_limit,
    possible_splits,
    require_plannable,
)
from airsplit.network.wire import airsplit_pb2 as pb
from airsplit.network.wire.codec import Malformed, Outgoing, opened
from airsplit.planning.methods import plan
from airsplit.scenario.scenario import Scenario
from airsplit.training.setup import replica_of
from network import fleets
from training import tiny

WIDE = 400


class Beside(nn.Module):
    """The first layers see one input; the other, which is wide, is needed behind them."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(tiny.FEATURES, 5), nn.Linear(5, 5)
        self.aside, self.three, self.head = (
            nn.Linear(WIDE, 5),
            nn.Linear(10, 4),
            nn.Linear(4, tiny.CLASSES),
        )

    def forward(self, image: Tensor, context: Tensor) -> Tensor:
        hidden = torch.tanh(self.two(self.one(image)))
        both = torch.cat([hidden, self.aside(context)], 1)
        out: Tensor = self.head(torch.tanh(self.three(both)))
        return out


beside = tiny.fixed_weights(Beside)


def pairs() -> Any:
    inputs, labels = tiny.drawn(12, 10, tiny.FEATURES)
    return ((inputs, torch.randn(12, WIDE)), labels), (
        (inputs[:3], torch.randn(3, WIDE)),
        labels[:3],
    )


def scenario(**changes: Any) -> Scenario:
    model = {
        "model.name": f"{__name__}:beside",
        "model.input_shape": None,
        "model.inputs": [str(tiny.FEATURES), str(WIDE)],
    }
    mine = {
        "training.dataset": f"{__name__}:pairs",
        "training.partition": "iid",
        "plan.method": "exact",
        "plan.split": None,
    }
    return fleets.scenario().replace(**model | mine | changes)


def trainee(folder: Path, server_allows: Any, **mine: Any) -> Trainee:
    welcome = pb.Welcome(run="run", device=0, devices=3)
    return Trainee(
        scenario(**{"model.raw_inputs": server_allows}),
        welcome,
        folder,
        f"{__name__}:pairs",
        silent,
        **mine,
    )


def test_the_server_considers_no_split_that_sends_a_raw_input() -> None:
    replica, profile = replica_of(scenario())
    assert profile.raw_inputs[:4] == (("context",), ("context",), ("context",), ())
    assert possible_splits(scenario(), profile).tolist() == [4, 5, 6]
    allowed = scenario(**{"model.raw_inputs": ["context"]})
    assert possible_splits(allowed, profile).tolist() == [1, 2, 3, 4, 5, 6]
    assert possible_splits(
        scenario(**{"plan.min_split": 2, "plan.max_split": 5}), profile
    ).tolist() == [4, 5]
    # A device needs memory, and a message room, for what may really be planned.
    assert least_device_bytes(scenario(), profile, 0) == profile.device_memory_bytes(4)[3]
    assert least_device_bytes(allowed, profile, 0) == profile.device_memory_bytes(4)[0]
    wide = {"training.batch_size": 10**4}
    less = message_limit(allowed.replace(**wide), replica, profile) - message_limit(
        scenario(**wide), replica, profile
    )
    sent = profile.activation_elements
    assert less == 10**4 * 4 * (int(sent.max()) - int(sent[3:].max())) > 0


def test_a_scenario_that_cannot_but_send_a_raw_input_is_refused_before_devices_are_waited_for() -> (
    None
):
    given = scenario(**{"plan.max_split": 3})
    _, profile = replica_of(given)
    with pytest.raises(
        AirsplitError, match="every split within the limits, 1 to 3, would send the input 'context'"
    ):
        require_plannable(given, profile, given.make_fleet(), given.make_clock())


def test_a_plan_of_the_scenario_keeps_raw_inputs() -> None:
    _, profile = replica_of(scenario())
    fleet = scenario().make_fleet()
    assert plan(profile, fleet, **scenario().plan_arguments()).splits.min() >= 4
    assert (
        scenario().resolve(profile).plan.max_split == profile.names[profile.default_max_split() - 1]
    )


@pytest.mark.parametrize("server_allows", ["allow", ["context"]])
def test_a_device_joins_no_training_that_may_send_its_raw_inputs(
    tmp_path: Path, server_allows: Any
) -> None:
    told = r"the input 'context' of the model leave this device unchanged \(model.raw_inputs\); join with --raw-inputs context"
    with pytest.raises(InvalidValue, match=told):
        trainee(tmp_path, server_allows)
    for agreed in ("allow", ["context"]):
        device = trainee(tmp_path, server_allows, raw_inputs=agreed)
        device._require_split(1)
        assert device.inputs_that_may_leave() == ["context"]
    assert trainee(tmp_path, "refuse", raw_inputs="allow").inputs_that_may_leave() == []


def test_a_device_is_not_asked_where_nothing_is_cut(tmp_path: Path) -> None:
    welcome = pb.Welcome(run="run", device=0, devices=3)
    given = scenario(**{"model.raw_inputs": "allow", "training.algorithm": "fedavg"})
    assert Trainee(given, welcome, tmp_path, f"{__name__}:pairs", silent).samples == 12


def test_a_server_that_orders_such_a_cut_nevertheless_gets_nothing(tmp_path: Path) -> None:
    device = trainee(tmp_path, "refuse")
    device._require_split(4)
    order = pb.Round(number=1, order=1, split=2, up_bps=1e9)
    asked = opened(pb.ServerMessage, Outgoing(pb.ServerMessage(round=order)).frame())
    with pytest.raises(
        Malformed,
        match="must not cut the model at split 2, which would send the input 'context' unchanged",
    ):
        device.serve(SilentStream(), asked)  # type: ignore[arg-type]


class SilentStream:
    """A stream on which nothing may be sent."""

    def pace(self, bits_per_second: float) -> None:
        pass


def test_a_device_may_name_only_inputs_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(
        AirsplitError, match="raw_inputs 'contxt' is not known; did you mean 'context'"
    ):
        trainee(tmp_path, "refuse", raw_inputs=["contxt"])


@pytest.mark.parametrize(
    ("raw_inputs", "splits"), [("refuse", (4, 5, 6)), (["context"], (1, 2, 3))]
)
def test_devices_that_agree_train_over_a_network(
    run: Any, tmp_path: Path, raw_inputs: Any, splits: tuple[int, ...]
) -> None:
    fixed = {"model.raw_inputs": raw_inputs, "plan.method": "fixed", "plan.split": list(splits)}
    with fleets.party(scenario(**fixed), tmp_path) as made:
        agreed = [] if raw_inputs == "refuse" else ["--raw-inputs", ",".join(raw_inputs)]
        code_and_data = ["--model", f"{__name__}:beside", "--data", f"{__name__}:pairs"]
        if agreed:
            code, out, err = run(
                "join", made.address, "--name", "0", "--out", tmp_path / "not", *code_and_data
            )
            assert (code, out) == (2, "")
            assert "join with --raw-inputs context to agree" in err
        made.join("1", "2", data=f"{__name__}:pairs", raw_inputs=raw_inputs)
        trained = threading.Thread(target=made.train, daemon=True)
        trained.start()
        code, out, err = run(
            "join", made.address, "--name", "0", "--out", tmp_path / "0", *code_and_data, *agreed
        )
        trained.join(fleets.PATIENCE_S)
        made.leave()
    assert (code, out) == (0, ""), err
    assert "round 2 done" in err
    assert (
        "note: the input 'context' of the model may be sent to the server unchanged" in err
    ) is bool(agreed)
