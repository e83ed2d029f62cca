"""A trained model as one file."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from airsplit.runs.folder import RunFolder
from airsplit.scenario.scenario import Scenario
from airsplit.training.checkpoint import device_of, trained_model, write_tensors


@dataclass(frozen=True)
class Exported:
    """What was written: the file, how many tensors and numbers it has, and after which round."""

    file: Path
    tensors: int
    parameters: int
    round: int


def export_model(
    run_folder: str | os.PathLike[str],
    *,
    device: int | None = None,
    average: bool = False,
    front: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
) -> Exported:
    """Write the model of a device, or the mean of all, as safetensors; its header says which model it is.

    front   of a networked run: the folder in which the device keeps its layers, which says which device it is

    Load it with model.load_state_dict(safetensors.torch.load_file(file)), or name it as model.weights in a scenario.
    """
    if device is None and front is not None and not average:
        device = device_of(front)
    state, progress = trained_model(run_folder, device=device, average=average, front=front)
    folder = RunFolder(run_folder)
    model = Scenario.from_toml(folder.read_scenario()).model
    about = {
        "model": model.name,
        "arguments": json.dumps(model.arguments),
        "fingerprint": progress.fingerprint,
    }
    about |= {
        "device": "average" if device is None else str(device),
        "round": str(progress.round),
        "made_by": "airsplit",
    }
    file = Path(out) if out is not None else folder.path / f"model-{about['device']}.safetensors"
    write_tensors(file, state, about)
    return Exported(
        file, len(state), sum(tensor.numel() for tensor in state.values()), progress.round
    )
