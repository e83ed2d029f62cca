"""Checkpoints: everything that a run needs to go on, as safetensors and JSON; nothing is ever unpickled.

A checkpoint is a file of tensors, and a JSON beside it, which names it and says what its checksum must be.  checkpoint.json is
the newest of these.  It is replaced last and at once, so that a run that is killed at any moment has either the old checkpoint
or the new one.  Where the newest is damaged, the one before is used.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from airsplit.core.errors import (
    FileProblem,
    InvalidValue,
    require_integer,
    require_number,
    require_numbers,
    show,
)
from airsplit.core.files import replace_file, temporary_file_beside, write_text
from airsplit.core.parsing import read_json
from airsplit.runs.folder import RunFolder
from airsplit.scenario.scenario import Scenario
from airsplit.training.integrity import (
    checksum_of_tensors,
    require_checksum,
    require_fingerprint,
    seal,
    unseal,
)
from airsplit.training.replica import MODEL, Replica, key
from airsplit.training.state import State
from airsplit.training.step import are_finite

NETWORK = "network"
"""The part of a checkpoint that only a server writes."""

CHECKSUMS = "checksums"
"""The part of a checkpoint that says what its files of tensors must be."""

HEADER_CHECKSUM = "airsplit_checksum"
"""Under this name in the header of a file of tensors."""

ABOUT_FILE = "checkpoint.json"
FIXED_FILE = "fixed.safetensors"
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


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint: what it says, how far the run was, and every tensor, those that training never changes included."""

    about: Mapping[str, Any]
    progress: Progress
    tensors: dict[str, Tensor]


def save(folder: Path, state: State, replica: Replica, progress: Progress, kept: int) -> None:
    """Write a checkpoint, and keep this many of the newest; the one before it is there until the new one is whole."""
    tensors = {f"{COMMON}{name}": tensor for name, tensor in state.common.items()}
    tensors |= {f"{PERSONAL}{name}": tensor for name, tensor in state.personal.items()}
    write_checkpoint(
        folder, tensors, replica.fixed, asdict(progress), f"round-{progress.round:06d}", kept
    )


def write_checkpoint(
    folder: Path,
    tensors: Mapping[str, Tensor],
    fixed: Mapping[str, Tensor],
    about: Mapping[str, Any],
    name: str,
    kept: int,
) -> None:
    """Write tensors, then the JSON that names them, then drop what is no longer wanted.

    fixed  what training never changes, written once
    name   of the files, without a suffix: "round-" and the round; not that of the checkpoint before
    kept   how many checkpoints stay, this one included
    """
    checksums = {}
    fixed_file = folder / FIXED_FILE
    if fixed_file.exists():
        checksum = _stored_checksum(fixed_file)
    else:
        checksum = write_tensors(
            fixed_file, {f"{COMMON}{each}": tensor for each, tensor in fixed.items()}
        )
    if checksum is not None:
        checksums[FIXED_FILE] = checksum
    file = folder / f"{name}.safetensors"
    checksums[file.name] = write_tensors(file, tensors)
    text = (
        json.dumps(
            seal({"tensors": file.name, CHECKSUMS: checksums} | dict(about)), allow_nan=False
        )
        + "\n"
    )
    if kept > 1:
        write_text(
            folder / f"{name}.json", text
        )  # what is gone back to where checkpoint.json or what it names is damaged
    write_text(folder / ABOUT_FILE, text)
    _drop_old(folder, name, kept)


def _drop_old(folder: Path, newest: str, kept: int) -> None:
    """Delete all but the newest checkpoint and some before it, and what a process that was killed left half-written."""
    before = [file.stem for file in _older(folder) if _round_of(file) < _round_of(folder / newest)]
    wanted = {newest, *before[: kept - 1]}
    for old in (
        *folder.glob("round-*.safetensors"),
        *folder.glob("round-*.json"),
        *folder.glob(".*"),
    ):
        if old.stem not in wanted and old.is_file():
            old.unlink(missing_ok=True)


def _older(folder: Path) -> list[Path]:
    """Return the JSON of each checkpoint that is kept, newest first."""
    return sorted(folder.glob("round-*.json"), key=_round_of, reverse=True)


def _round_of(file: Path) -> int:
    digits = file.name.removeprefix("round-")[:18].partition(".")[0]
    return int(digits) if digits.isdecimal() else -1


def write_tensors(
    file: Path, tensors: Mapping[str, Tensor], about: Mapping[str, str] | None = None
) -> str:
    """Write a file of tensors with their checksum in its header; return the checksum.

    It is written beside the target, to the disk, then renamed, so that it is there whole or not at all.
    """
    whole = _apart(tensors)
    checksum = checksum_of_tensors(whole)
    with temporary_file_beside(file) as new:
        try:
            save_file(whole, new, dict(about or {}) | {HEADER_CHECKSUM: checksum})
        except (OSError, SafetensorError) as error:
            raise FileProblem(
                f"{str(file)!r} cannot be written: {' '.join(str(error).split())}"
            ) from None
        replace_file(new, file)
    return checksum


def read_tensors(file: Path, what: str, checksum: str | None = None) -> dict[str, Tensor]:
    """Return the tensors of a file, which must be what was written.

    what      says in an error which file was wanted
    checksum  what it must be; None: what the header says, and nothing where that says none, as in files of others
    """
    where = f"{what} {str(file)!r}"
    try:
        with safe_open(file, framework="pt") as stored:
            written = checksum or (stored.metadata() or {}).get(HEADER_CHECKSUM)
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - it is no mapping
    except (OSError, SafetensorError, AttributeError, KeyError, RuntimeError, ValueError) as error:
        raise FileProblem(
            f"{where} cannot be read as safetensors: {' '.join(str(error).split())}"
        ) from None
    if written is not None:
        require_checksum(checksum_of_tensors(tensors), written, where)
    return tensors


def _stored_checksum(file: Path) -> str | None:
    """Return the checksum in a file's header; None where an older version wrote it, or it is damaged."""
    try:
        with safe_open(file, framework="pt") as stored:
            found: str | None = (stored.metadata() or {}).get(HEADER_CHECKSUM)
            return found
    except (OSError, SafetensorError):
        return None


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
    return _progress_in(_about(folder / ABOUT_FILE)) if (folder / ABOUT_FILE).exists() else None


def _about(file: Path) -> dict[str, Any]:
    """What a checkpoint says of itself."""
    try:
        about = unseal(read_json(file, what="checkpoint"), f"checkpoint {str(file)!r}")
        _progress_in(about)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise FileProblem(
            f"checkpoint {str(file)!r} is not whole: {type(error).__name__}: {error}"
        ) from None
    return about


def _progress_in(about: Mapping[str, Any]) -> Progress:
    progress = Progress(
        **{
            name: value
            for name, value in about.items()
            if name not in ("tensors", CHECKSUMS, NETWORK)
        }
    )
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
        raise InvalidValue(
            f"shares must be {len(progress.splits)} numbers, one for each split, got {show(progress.shares)}"
        )
    names = progress.names.items()
    if not names or not all(
        isinstance(one, str) and isinstance(other, str) for one, other in names
    ):
        raise InvalidValue(f"names must be a table of names, got {show(progress.names)}")


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """Return the newest checkpoint that is whole; None where there is none yet.

    Where the newest is damaged, it is the one before, with a warning that says so. A server's is never gone back behind: its
    devices keep the layers that belong to the newest alone.
    """
    newest = folder / ABOUT_FILE
    damage: FileProblem | None = None
    for file in (*([newest] if newest.exists() else []), *_older(folder)):
        try:
            found = _read_whole(folder, file)
        except FileProblem as error:
            damage = damage or error
            continue
        if damage is None and file != newest:
            damage = FileProblem(f"checkpoint {str(newest)!r} is gone")
        if damage is not None:
            if is_networked(found.about):
                break
            warnings.warn(
                f"{damage}; the checkpoint of round {found.progress.round} is used", stacklevel=2
            )
        return found
    if damage is None:
        return None
    raise FileProblem(
        f"{damage}; no other checkpoint can take its place: begin anew in another folder"
    )


def _read_whole(folder: Path, file: Path) -> Checkpoint:
    """Read a checkpoint by its JSON.  One that is replaced while it is read is read again."""
    about = _about(file)
    while True:
        name = about.get("tensors", "")
        if not isinstance(name, str) or not name or Path(name).name != name:
            raise FileProblem(
                f"checkpoint {str(folder)!r} must name a file in its own folder, got {show(name)}"
            )
        checksums = about.get(CHECKSUMS, {})
        if not isinstance(checksums, dict):
            raise FileProblem(
                f"checkpoint {str(file)!r}: {CHECKSUMS} must be a table, got {show(checksums)}"
            )
        try:
            fixed = read_tensors(folder / FIXED_FILE, "checkpoint", checksums.get(FIXED_FILE))
            trained = read_tensors(folder / name, "checkpoint", checksums.get(name))
        except FileProblem:
            about = _about(file)
            if about.get("tensors") == name:
                raise
            continue
        if not are_finite(trained.values()):
            raise FileProblem(
                f"checkpoint {str(folder / name)!r} is damaged: it has numbers that are not finite"
            )
        return Checkpoint(about, _progress_in(about), fixed | trained)


def restore(folder: Path, found: Checkpoint, replica: Replica, fingerprint: str) -> State:
    """The state of a checkpoint, for a replica of the same model and optimizer; what training never changes goes into the replica.

    fingerprint   of the model's profile
    """
    progress, tensors = found.progress, found.tensors
    require_fingerprint(progress.fingerprint, fingerprint, f"checkpoint {str(folder)!r}")
    deepest = len(replica.outline.splits)
    for split in (progress.boundary, *progress.splits):
        if split > deepest:
            raise FileProblem(
                f"checkpoint {str(folder)!r} does not fit the model, which has {deepest} splits: it has split {split}"
            )
    for name, like in replica.fixed.items():
        stored = fitting(folder, tensors, COMMON + name, tuple(like.shape), like.dtype).to(
            like.device
        )
        if not torch.equal(like, stored):
            like.copy_(stored)
    personal = set(replica.front_keys(progress.boundary))
    state = State({}, {}, progress.boundary, range(len(progress.splits)))
    for name, like in replica.tensors.items():
        if name in personal:
            state.personal[name] = fitting(
                folder, tensors, PERSONAL + name, (len(progress.splits), *like.shape), like.dtype
            )
        else:
            state.common[name] = fitting(
                folder, tensors, COMMON + name, tuple(like.shape), like.dtype
            )
    return state


def fitting(
    folder: Path,
    tensors: Mapping[str, Tensor],
    name: str,
    shape: tuple[int, ...],
    dtype: torch.dtype,
) -> Tensor:
    """A stored tensor of this shape and type."""
    stored = tensors.get(name)
    if stored is None or tuple(stored.shape) != shape or stored.dtype != dtype:
        got = "nothing" if stored is None else f"{tuple(stored.shape)} of {stored.dtype}"
        raise FileProblem(
            f"checkpoint {str(folder)!r} does not fit the model: {name} must be {shape} of {dtype}, got {got}"
        )
    return stored


def load_state(
    run_folder: str | os.PathLike[str],
    *,
    device: int | None = None,
    average: bool = False,
    front: str | os.PathLike[str] | None = None,
) -> dict[str, Tensor]:
    """Return the whole model of a device after the last round.

    Personal and common layers are under the names of the model's own state_dict.

    Args:
        run_folder: Folder of a run.
        device: Number of the device, from zero.
        average: Return the mean of all devices' personal layers instead.
        front: Folder of a networked device, which keeps the layers that the server never has. It
            also says which device it belongs to.
    """
    chosen = device_of(front) if device is None and front is not None and not average else device
    return trained_model(run_folder, device=chosen, average=average, front=front)[0]


def device_of(front: str | os.PathLike[str]) -> int:
    """Whose layers a device's folder has."""
    device = _owner_of(Path(front) / FRONT_FILE)[1]
    return require_integer(f"front {os.fspath(front)!r}: device", device, low=0)


def trained_model(
    run_folder: str | os.PathLike[str],
    *,
    device: int | None,
    average: bool,
    front: str | os.PathLike[str] | None,
) -> tuple[dict[str, Tensor], Progress]:
    """The same, and how far the run was: of one checkpoint, also where the run goes on meanwhile."""
    folder = RunFolder(run_folder).checkpoint
    found = read_checkpoint(folder)
    if found is None:
        raise FileProblem(
            f"run folder {str(run_folder)!r} has no checkpoint yet; is it a run folder, and is its first round over?"
        )
    about, progress, tensors = found.about, found.progress, found.tensors
    if (device is None) != average:
        raise InvalidValue(
            "give either device (--device), a number from 0, or average (--average); of a networked run front (--front) alone will do"
        )
    if device is not None:
        require_integer("device", device, low=0, high=len(progress.splits) - 1)
    _require_model_of(RunFolder(run_folder), progress)
    if device is not None and is_networked(about):
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
            stacked.to(torch.promote_types(stacked.dtype, torch.float32))
            .mean(dim=0)
            .to(stacked.dtype)
            if floating
            else stacked[0].clone()
        )

    try:
        return {name: whole(trained) for name, trained in progress.names.items()}, progress
    except KeyError as missing:
        if is_networked(about):
            way = (
                "give front (--front), that device's folder"
                if device is not None
                else "each device has layers of its own: take front (--front), one device's folder, instead of average"
            )
            raise InvalidValue(
                f"layers up to a device's split are on the device, not in {str(run_folder)!r}; {way}"
            ) from None
        raise FileProblem(
            f"checkpoint {str(folder)!r} is not whole: there is no tensor {missing}"
        ) from None


def is_networked(about: Mapping[str, Any]) -> bool:
    return isinstance(about.get(NETWORK), dict)


def _require_model_of(folder: RunFolder, progress: Progress) -> None:
    """Raise where a checkpoint is not of the model that its run folder was written for."""
    if folder.scenario_file.exists():
        wanted = Scenario.from_toml(folder.read_scenario()).model.fingerprint
        if wanted is not None:
            require_fingerprint(
                progress.fingerprint, wanted, f"checkpoint {str(folder.checkpoint)!r}"
            )


def _own_tensors(tensors: Mapping[str, Tensor], device: int) -> dict[str, Tensor]:
    """What a server has of one device alone, as if it were common."""
    prefix = f"{OWN}{device}/"
    return {
        COMMON + name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def _front_of(
    folder: Path, about: Mapping[str, Any], progress: Progress, device: int
) -> dict[str, Tensor]:
    """The layers that a device has, in the version that the server has the others for."""
    versions = about[NETWORK].get("versions")
    version = versions[device] if isinstance(versions, list) and len(versions) > device else 0
    file = front_file(folder, version, progress.splits[device])
    run, owner = _owner_of(folder / FRONT_FILE)
    if (run, owner) != (about[NETWORK].get("run"), device):
        which = "this" if run == about[NETWORK].get("run") else "another"
        raise FileProblem(
            f"front {str(folder)!r} is not that of device {device} in this run, but of device {show(owner)} in {which} run"
        )
    if not file.exists():
        raise FileProblem(
            f"front {str(folder)!r} is not that of device {device} after round {version}: there is no {file.name}"
        )
    return {COMMON + name: tensor for name, tensor in read_tensors(file, "front").items()}


def _owner_of(file: Path) -> tuple[object, object]:
    """The run and the device whose layers are beside a file that says so."""
    try:
        about = unseal(read_json(file, what="front"), f"front {str(file)!r}")
        return about["run"], about["device"]
    except (ValueError, TypeError, KeyError) as error:
        raise FileProblem(
            f"front {str(file)!r} is not whole: {type(error).__name__}: {error}"
        ) from None


def front_file(folder: Path, version: int, split: int) -> Path:
    """Where a device of a networked run keeps its layers after a round."""
    return folder / f"front-{version:06d}-{split}.safetensors"
