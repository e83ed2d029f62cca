"""The server's checkpoint: what is read is what was written, or it is told what is wrong; and who may go on from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from airsplit.core.errors import FileProblem, InvalidValue
from airsplit.network.server.assignments import Unattended
from airsplit.network.server.back_ends import BackEnds
from airsplit.network.server.checkpoint import Who, read_kept, write_kept
from airsplit.network.server.server import Server
from airsplit.training.checkpoint import Progress
from airsplit.training.replica import state_names
from network.fleets import assert_same_tensors, scenario

SPLITS = [1, 3, 2]
WHO = Who("0123abcd", ["a", "b", "c"], [13, 2, 9], [1, 0, 1], 4, 1e-9)


@pytest.fixture(scope="module")
def server() -> Server:
    return Server(scenario(), devices=3)


@pytest.fixture
def kept(server: Server, tmp_path: Path) -> Path:
    """A checkpoint after the first round."""
    names = state_names(server.replica.model)
    progress = Progress(
        1, 2.5, max(SPLITS), SPLITS, [0.2, 0.3, 0.5], 1, 0.0, server.profile.fingerprint, names
    )
    write_kept(tmp_path, BackEnds.begun(server.replica, SPLITS), progress, WHO)
    return tmp_path


def test_what_is_read_is_what_was_written(server: Server, kept: Path) -> None:
    found = read_kept(kept, server.replica, server.profile.fingerprint)
    assert found is not None
    ends, progress, who = found
    assert (ends.splits, progress.round, progress.virtual_time_s, who) == (SPLITS, 1, 2.5, WHO)
    assert_same_tensors(ends.common, BackEnds.begun(server.replica, SPLITS).common)


def test_where_nothing_was_kept_there_is_nothing_to_go_on_from(
    server: Server, tmp_path: Path
) -> None:
    assert read_kept(tmp_path, server.replica, server.profile.fingerprint) is None
    assert not server.restore(tmp_path, None)


@pytest.mark.parametrize(
    "changes",
    [
        {"run": ""},
        {"run": 5},
        {"names": ["a", "b"]},
        {"names": "abc"},
        {"names": ["a", "b", "no name"]},
        {"samples": [13, 2, -1]},
        {"samples": 24},
        {"versions": [1, 0]},
        {"order": "x"},
        {"server_seconds_per_mac": -1.0},
        {"server_seconds_per_mac": "slow"},
        {"more": 1},
    ],
    ids=str,
)
def test_a_checkpoint_whose_devices_make_no_sense_is_told(
    server: Server, kept: Path, changes: dict[str, Any]
) -> None:
    altered(kept, network=json.loads((kept / "checkpoint.json").read_text())["network"] | changes)
    with pytest.raises(FileProblem, match="is not that of a server"):
        read_kept(kept, server.replica, server.profile.fingerprint)


def test_a_simulated_runs_checkpoint_is_not_a_servers(server: Server, kept: Path) -> None:
    altered(kept, network=None)
    with pytest.raises(FileProblem, match="is not that of a server"):
        read_kept(kept, server.replica, server.profile.fingerprint)


@pytest.mark.parametrize("changes", [{"splits": [1, 3, 9]}, {"boundary": 9}])
def test_splits_that_the_model_does_not_have_are_told(
    server: Server, kept: Path, changes: dict[str, Any]
) -> None:
    altered(kept, **changes)
    with pytest.raises(FileProblem, match="does not fit the model, which has 5 splits"):
        read_kept(kept, server.replica, server.profile.fingerprint)


@pytest.mark.parametrize(
    "name", ["round-000001-4.safetensors", "checkpoint.json", "fixed.safetensors"]
)
def test_a_damaged_checkpoint_is_refused_and_no_other_is_gone_back_to(
    server: Server, kept: Path, name: str
) -> None:
    # a copy, as a simulated run keeps one: devices have only the layers that belong to the newest
    kept.joinpath("round-000000-3.json").write_bytes(
        kept.joinpath("checkpoint.json").read_bytes().replace(b"000001-4", b"000000-3")
    )
    kept.joinpath("round-000000-3.safetensors").write_bytes(
        kept.joinpath("round-000001-4.safetensors").read_bytes()
    )
    altered(kept, "round-000000-3.json")
    content = bytearray(kept.joinpath(name).read_bytes())
    content[-3] ^= 1
    kept.joinpath(name).write_bytes(content)
    with pytest.raises(FileProblem, match=f"{name}' .*begin anew in another folder"):
        read_kept(kept, server.replica, server.profile.fingerprint)


def test_a_checkpoint_of_another_model_is_told(server: Server, kept: Path) -> None:
    altered(kept, fingerprint="0123456789abcdef")
    with pytest.raises(FileProblem, match="is of a model with fingerprint '0123456789abcdef'"):
        server.restore(kept, None)


def altered(folder: Path, name: str = "checkpoint.json", **changes: Any) -> None:
    file = folder / name
    data = json.loads(file.read_text()) | changes
    del data["checksum"]  # as older versions wrote it: none is there to be wrong
    file.write_text(json.dumps(data))


# ---- going on ------------------------------------------------------------------------------------------------------------------
def test_a_server_goes_on_with_the_fleet_that_was_planned_for(kept: Path) -> None:
    server = Server(scenario(), devices=3)
    slower = scenario().make_fleet().replace(seconds_per_mac=np.array([1e-8, 2e-8, 3e-8]))
    assert server.restore(kept, slower)
    assert (server.round, server.time_s, server.orders.last, server.desk.run) == (
        1,
        2.5,
        4,
        WHO.run,
    )
    assert [(member.name, member.samples, member.version) for member in server.members] == [
        ("a", 13, 1),
        ("b", 2, 0),
        ("c", 9, 1),
    ]
    assert server.forecast is not None
    assert server.forecast.fleet is slower


def test_a_run_of_other_devices_cannot_be_gone_on_with(kept: Path) -> None:
    server = Server(scenario(splits=(1, 2)), devices=2)
    with pytest.raises(FileProblem, match="the run has 3 devices, got --devices 2"):
        server.restore(kept, None)


def test_a_fleet_that_is_given_is_for_as_many_devices_as_it_has() -> None:
    with pytest.raises(
        InvalidValue,
        match=r"devices must be as many as the fleet has, 3, with network.measure = false, got 2",
    ):
        Server(scenario(), devices=2)


def test_before_devices_have_come_there_is_nothing_to_keep(tmp_path: Path) -> None:
    server = Server(scenario(), devices=3)
    with pytest.raises(Unattended, match="there is no plan yet"):
        server.save(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert server.state()["planned_latency_s"] is None
