"""Checkpoints: everything that a run needs to go on, as safetensors and JSON; nothing is ever unpickled.

A checkpoint is a file of tensors, and checkpoint.json, which names it.  The JSON is replaced last and at once, so that a
run that is killed at any moment has either the old checkpoint or the new one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from airsplit.errors import FileProblem, InvalidValue, require_integer, require_number, require_numbers, show
from airsplit.files import beside, put_in_place, write_text
from airsplit.learn.replica import MODEL, Replica, key
from airsplit.learn.state import State
from airsplit.parsing import read_json
from airsplit.results import RunFolder

NETWORK = "network"
"""The part of a checkpoint that only a server writes."""

ABOUT_FILE = "checkpoint.json"
FRONT_FILE = "device.json"
"""In the folder of a networked run's device: whose layers are beside it."""

COMMON, PERSONAL, OWN = "common/", "personal/", "own/"
"""What tensors are called: common; personal, the devices stacked; and, on a server, what it has of one device: own/3/…"""


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    boundary                        the split up to which layers are personal
    splits, shares                  of each device, by the plan in force
    planned_round, planned_time_s   when that was made
    fingerprint                     of the model's profile
    names                           the names of the model's state_dict, and under which each is trained
    """

    round: int
    virtual_time_s: float
    boundary: int
    splits: list[int]
    shares: list[float]
    planned_round: int
    planned_time_s: float
    fingerprint: str
    names: Mapping[str, str]


def save(folder: Path, state: State, replica: Replica, progress: Progress) -> None:
    """Replace the checkpoint; the one before it is there until the new one is whole."""
    fixed = folder / "fixed.safetensors"
    if not fixed.exists():
        write_tensors(fixed, {f"{COMMON}{name}": tensor for name, tensor in replica.fixed.items()})
    tensors = {f"{COMMON}{name}": tensor for name, tensor in state.common.items()}
    tensors |= {f"{PERSONAL}{name}": tensor for name, tensor in state.personal.items()}
    replace_checkpoint(folder, tensors, asdict(progress), f"round-{progress.round:06d}")


def replace_checkpoint(folder: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any], name: str) -> None:
    """Write tensors, then the JSON that names them, then drop what was there before.

    name   of the file of tensors, without its suffix; begins with "round-", and is not that of the checkpoint before
    """
    file = folder / f"{name}.safetensors"
    write_tensors(file, tensors)
    write_text(folder / ABOUT_FILE, json.dumps({"tensors": file.name} | dict(about), allow_nan=False) + "\n")
    for old in (*folder.glob("round-*.safetensors"), *folder.glob(".*")):  # also what a process that was killed left half-written
        if old != file and old.is_file():
            old.unlink(missing_ok=True)


def write_tensors(file: Path, tensors: Mapping[str, Tensor], about: dict[str, str] | None = None) -> None:
    """A file of tensors: written beside the target, to the disk, then renamed, so that it is there whole or not at all."""
    with beside(file) as new:
        try:
            save_file(_apart(tensors), new, about)
        except (OSError, SafetensorError) as error:
            raise FileProblem(f"{str(file)!r} cannot be written: {' '.join(str(error).split())}") from None
        put_in_place(new, file)


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as a file takes them: in one piece each, on the CPU, and no two in the same memory."""
    seen: set[int] = set()
    whole = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage().data_ptr()
        whole[name] = (tensor.clone() if storage in seen else tensor).contiguous().cpu()
        seen.add(storage)
    return whole


def progress_of(folder: Path) -> Progress | None:
    """How far a run is; None where it has no checkpoint yet."""
    return _progress_in(_about(folder)) if (folder / ABOUT_FILE).exists() else None


def _about(folder: Path) -> dict[str, Any]:
    """What a checkpoint says of itself."""
    file = folder / ABOUT_FILE
    try:
        about = read_json(file, what="checkpoint")
        _progress_in(about)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise FileProblem(f"checkpoint {str(file)!r} is not whole: {type(error).__name__}: {error}") from None
    found: dict[str, Any] = about
    return found


def _progress_in(about: Mapping[str, Any]) -> Progress:
    progress = Progress(**{name: value for name, value in about.items() if name not in ("tensors", NETWORK)})
    _check(progress)
    return progress


def _check(progress: Progress) -> None:
    """Raise where a number is none, or out of its range."""
    for name, low in (("round", 1), ("boundary", 0), ("planned_round", 1)):
        require_integer(name, getattr(progress, name), low=low)
    for name in ("virtual_time_s", "planned_time_s"):
        require_number(name, getattr(progress, name), low=0)
    for k, split in enumerate(progress.splits if isinstance(progress.splits, list) else [None]):
        require_integer(f"splits[{k}]", split, low=1)
    shares = require_numbers("shares", progress.shares, low=0, high=1)
    if shares.shape != (len(progress.splits),):
        raise InvalidValue(f"shares must be {len(progress.splits)} numbers, one for each split, got {show(progress.shares)}")
    names = progress.names.items()
    if not names or not all(isinstance(one, str) and isinstance(other, str) for one, other in names):
        raise InvalidValue(f"names must be a table of names, got {show(progress.names)}")


def tensors_of(folder: Path) -> dict[str, Tensor]:
    """Every tensor of a checkpoint, those that training never changes included."""
    return read_whole(folder)[1]


def read_whole(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What a checkpoint says, and its tensors.  One that is replaced while it is read is read again."""
    about = _about(folder)
    while True:
        name = about.get("tensors", "")
        if not isinstance(name, str) or Path(name).name != name:
            raise FileProblem(f"checkpoint {str(folder)!r} must name a file in its own folder, got {name!r}")
        try:
            return about, _read(folder / "fixed.safetensors") | _read(folder / name)
        except FileProblem:
            about = _about(folder)
            if about.get("tensors") == name:
                raise


def _read(file: Path) -> dict[str, Tensor]:
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise FileProblem(f"checkpoint {str(file)!r} cannot be read: {' '.join(str(error).split())}") from None


def restore(folder: Path, replica: Replica, progress: Progress) -> State:
    """The state of a checkpoint, for a replica of the same model and optimiser; what training never changes goes into the replica."""
    tensors, deepest = tensors_of(folder), len(replica.outline.splits)
    for split in (progress.boundary, *progress.splits):
        if split > deepest:
            raise FileProblem(f"checkpoint {str(folder)!r} does not fit the model, which has {deepest} splits: it has split {split}")
    for name, like in replica.fixed.items():
        stored = fitting(folder, tensors, COMMON + name, tuple(like.shape), like.dtype).to(like.device)
        if not torch.equal(like, stored):
            like.copy_(stored)
    personal = set(replica.front_keys(progress.boundary))
    state = State({}, {}, progress.boundary, range(len(progress.splits)))
    for name, like in replica.tensors.items():
        if name in personal:
            state.personal[name] = fitting(folder, tensors, PERSONAL + name, (len(progress.splits), *like.shape), like.dtype)
        else:
            state.common[name] = fitting(folder, tensors, COMMON + name, tuple(like.shape), like.dtype)
    return state


def fitting(folder: Path, tensors: Mapping[str, Tensor], name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A stored tensor of this shape and type."""
    stored = tensors.get(name)
    if stored is None or tuple(stored.shape) != shape or stored.dtype != dtype:
        got = "nothing" if stored is None else f"{tuple(stored.shape)} of {stored.dtype}"
        raise FileProblem(f"checkpoint {str(folder)!r} does not fit the model: {name} must be {shape} of {dtype}, got {got}")
    return stored


def load_state(
    run_folder: str | os.PathLike[str],
    *,
    device: int | None = None,
    average: bool = False,
    front: str | os.PathLike[str] | None = None,
) -> dict[str, Tensor]:
    """The whole model of a device after the last round: personal and common layers, under the names of the model's own state_dict.

    average   instead of one device's, the mean of all devices' personal layers
    front     the folder in which a device of a networked run keeps its layers, which the server never has; it says which device it is of
    """
    chosen = device_of(front) if device is None and front is not None and not average else device
    return trained_model(run_folder, device=chosen, average=average, front=front)[0]


def device_of(front: str | os.PathLike[str]) -> int:
    """Whose layers a device's folder has."""
    device = _owner_of(Path(front) / FRONT_FILE)[1]
    return require_integer(f"front {os.fspath(front)!r}: device", device, low=0)


def trained_model(
    run_folder: str | os.PathLike[str], *, device: int | None, average: bool, front: str | os.PathLike[str] | None
) -> tuple[dict[str, Tensor], Progress]:
    """The same, and how far the run was: of one checkpoint, also where the run goes on meanwhile."""
    folder = RunFolder(run_folder).checkpoint
    progress = progress_of(folder)
    if progress is None:
        raise FileProblem(f"run folder {str(run_folder)!r} has no checkpoint yet; is it a run folder, and is its first round over?")
    if (device is None) != average:
        raise InvalidValue(
            "give either device (--device), a number from 0, or average (--average); of a networked run front (--front) alone will do"
        )
    if device is not None:
        require_integer("device", device, low=0, high=len(progress.splits) - 1)
    about, tensors = read_whole(folder)
    progress = _progress_in(about)
    if device is not None and _is_networked(about):
        tensors |= _own_tensors(tensors, device)
        tensors |= {} if front is None else _front_of(Path(front), about, progress, device)

    def whole(name: str) -> Tensor:
        stacked = tensors.get(PERSONAL + key(MODEL, name))
        if stacked is None:
            return tensors[COMMON + key(MODEL, name)].clone()
        if device is not None:
            return stacked[device].clone()
        floating = stacked.is_floating_point() or stacked.is_complex()
        return (
            stacked.to(torch.promote_types(stacked.dtype, torch.float32)).mean(dim=0).to(stacked.dtype) if floating else stacked[0].clone()
        )

    try:
        return {name: whole(trained) for name, trained in progress.names.items()}, progress
    except KeyError as missing:
        if _is_networked(about):
            way = (
                "give front (--front), that device's folder"
                if device is not None
                else "each device has layers of its own: take front (--front), one device's folder, instead of average"
            )
            raise InvalidValue(f"layers up to a device's split are on the device, not in {str(run_folder)!r}; {way}") from None
        raise FileProblem(f"checkpoint {str(folder)!r} is not whole: there is no tensor {missing}") from None


def _is_networked(about: Mapping[str, Any]) -> bool:
    return isinstance(about.get(NETWORK), dict)


def _own_tensors(tensors: Mapping[str, Tensor], device: int) -> dict[str, Tensor]:
    """What a server has of one device alone, as if it were common."""
    prefix = f"{OWN}{device}/"
    return {COMMON + name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _front_of(folder: Path, about: Mapping[str, Any], progress: Progress, device: int) -> dict[str, Tensor]:
    """The layers that a device has, in the version that the server has the others for."""
    versions = about[NETWORK].get("versions")
    version = versions[device] if isinstance(versions, list) and len(versions) > device else 0
    file = front_file(folder, version, progress.splits[device])
    run, owner = _owner_of(folder / FRONT_FILE)
    if (run, owner) != (about[NETWORK].get("run"), device):
        which = "this" if run == about[NETWORK].get("run") else "another"
        raise FileProblem(f"front {str(folder)!r} is not that of device {device} in this run, but of device {show(owner)} in {which} run")
    if not file.exists():
        raise FileProblem(f"front {str(folder)!r} is not that of device {device} after round {version}: there is no {file.name}")
    return {COMMON + name: tensor for name, tensor in _read(file).items()}


def _owner_of(file: Path) -> tuple[object, object]:
    """The run and the device whose layers are beside a file that says so."""
    try:
        about = read_json(file, what="front")
        return about["run"], about["device"]
    except (ValueError, TypeError, KeyError) as error:
        raise FileProblem(f"front {str(file)!r} is not whole: {type(error).__name__}: {error}") from None


def front_file(folder: Path, version: int, split: int) -> Path:
    """Where a device of a networked run keeps its layers after a round."""
    return folder / f"front-{version:06d}-{split}.safetensors"
