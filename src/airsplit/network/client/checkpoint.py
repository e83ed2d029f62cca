"""The device's checkpoint: its front after the last round that the server has kept, and after the one that it may keep next.

Which of the two counts is the server's to say when a round begins: it may have lost the round, or gone on without the device.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from airsplit.core.errors import FileProblem, require_integer
from airsplit.core.files import write_text
from airsplit.core.parsing import read_json
from airsplit.training.checkpoint import FRONT_FILE, front_file, read_tensors, write_tensors
from airsplit.training.integrity import seal, unseal
from airsplit.training.step import are_finite


class Fronts:
    """Versions of a device's front, of one run: each by the round after which it was so, and the split up to which it goes.

    There are two splits of one round while the server moves layers, until it says which of them counts.
    """

    def __init__(self, folder: Path, run: str, device: int) -> None:
        self._folder, self._run, self._device = folder, run, device
        self.versions: list[tuple[int, int]] = (
            _read(folder)["versions"] if self.stored(folder) == (run, device) else []
        )

    @staticmethod
    def stored(folder: Path) -> tuple[str, int]:
        """The run of the checkpoint in a folder, and the device's number in it; none where there is none."""
        if not (folder / FRONT_FILE).exists():
            return "", -1
        about = _read(folder)
        return about["run"], about["device"]

    def keep(self, version: int, split: int, tensors: Mapping[str, Tensor]) -> None:
        """Add a version; it is on the disk when this returns."""
        write_tensors(self._file(version, split), tensors)
        self.versions = sorted({*self.versions, (version, split)})
        self._write()

    def load(self, version: int, split: int, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A version's tensors, which must be those of `like`."""
        file = self._file(version, split)
        found = read_tensors(file, "front")
        if not are_finite(found.values()):
            raise FileProblem(
                f"front {str(file)!r} is damaged: it has numbers that are not finite; delete the folder to begin anew"
            )
        wrong = [
            name
            for name, tensor in like.items()
            if name not in found or not _is_alike(found[name], tensor)
        ]
        if wrong or found.keys() != like.keys():
            raise FileProblem(
                f"front {str(file)!r} does not fit the model: {wrong[0] if wrong else 'it has other tensors'}"
            )
        return found

    def keep_only(self, version: int, split: int) -> None:
        """Drop all other versions: the server begins from this one."""
        if set(self.versions) - {(version, split)}:
            self.versions = [each for each in self.versions if each == (version, split)]
            self._write()

    def _write(self) -> None:
        about = seal({"run": self._run, "device": self._device, "versions": self.versions})
        write_text(self._folder / FRONT_FILE, json.dumps(about) + "\n")
        wanted = {self._file(*each) for each in self.versions}
        for old in (*self._folder.glob("front-*.safetensors"), *self._folder.glob(".front-*")):
            if old not in wanted:
                old.unlink(missing_ok=True)

    def _file(self, version: int, split: int) -> Path:
        return front_file(self._folder, version, split)


def _is_alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype


def _read(folder: Path) -> dict[str, Any]:
    where = f"device's checkpoint {str(folder / FRONT_FILE)!r}"
    try:
        about = unseal(read_json(folder / FRONT_FILE, what="device's checkpoint"), where)
        versions = [
            (require_integer("round", number, low=0), require_integer("split", split, low=1))
            for number, split in about["versions"]
        ]
        return {
            "run": str(about["run"]),
            "device": require_integer("device", about["device"], low=0),
            "versions": versions,
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise FileProblem(
            f"{where} is not whole: {error}; delete the folder to begin anew"
        ) from None
