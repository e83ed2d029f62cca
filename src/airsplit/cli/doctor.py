"""What works on this machine: each part of the package is tried, not only looked for."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from airsplit.core.extras import EXTRAS, find_missing_modules
from airsplit.core.plugins import error_line
from airsplit.data.image_sets import IMAGE_SETS, find_data_folder, find_missing_files
from airsplit.runs.provenance import VERSION, count_cores, name_processor

TRIED_PYTHON = (3, 11)
"""The version that all tests are run with."""


@dataclass(frozen=True)
class Finding:
    """One part of the package.

    state  "works", "absent": it can be had, as `says` tells, or "broken": it should work and does not
    """

    part: str
    state: str
    says: str


def examine(
    data: str | os.PathLike[str] | None = None, runs: str | os.PathLike[str] = "runs"
) -> list[Finding]:
    """Try everything.

    data  the folder with data sets, see `airsplit.data.image_sets.find_data_folder`
    runs  the folder that run folders go to
    """
    parts: dict[str, Callable[[], Finding | str]] = {
        "airsplit": _airsplit,
        "planner": _planner,
        "torch": _torch,
        "GPU": _gpu,
        "network": lambda: _extra("network"),
        "dashboard": lambda: _extra("dashboard"),
        **{name: _data_set(name, data) for name in IMAGE_SETS},
        "data folder": lambda: _folder(
            "data folder", find_data_folder(data), "name another with --data or AIRSPLIT_DATA"
        ),
        "runs": lambda: _folder("runs", Path(runs), "go to another folder, or name one with --out"),
    }
    return [_tried(part, attempt) for part, attempt in parts.items()]


def _tried(part: str, attempt: Callable[[], Finding | str]) -> Finding:
    """What came of it.  A diagnosis must survive whatever is wrong, so every error is a finding."""
    try:
        found = attempt()
    except Exception as error:
        return Finding(part, "broken", error_line(error))
    return found if isinstance(found, Finding) else Finding(part, "works", found)


def _airsplit() -> str:
    version = sys.version_info[:2]
    tried = (
        ""
        if version == TRIED_PYTHON
        else f" (all tests are run with {'.'.join(map(str, TRIED_PYTHON))})"
    )
    return f"{VERSION}, Python {platform.python_version()}{tried}, {name_processor()}, {count_cores()} cores{_memory()}"


def _memory() -> str:
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):
        return ""
    return f", {os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.1f} GiB"


def _planner() -> str:
    from airsplit.models.profiling import profile_scenario
    from airsplit.planning.methods import plan
    from airsplit.scenario.scenario import Scenario

    scenario = Scenario.load("paper-alexnet")
    made = plan(profile_scenario(scenario), scenario.make_fleet(), **scenario.plan_arguments())
    return f"{len(made)} devices planned, {made.objective} within {made.gap:.1e} of the best possible with fixed shares"


def _torch() -> Finding | str:
    import torch
    from torch import nn

    from airsplit.models.cut import cut

    model, images = (
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)),
        torch.ones(2, 1, 8, 8),
    )
    front, back = cut(model, 2, input_shape=(1, 8, 8))
    if not torch.equal(back(*front(images)), model(images)):
        return Finding(
            "torch",
            "broken",
            f"{torch.__version__}: a model that is cut in two differs from the whole",
        )
    return f"{torch.__version__}, {torch.get_num_threads()} threads; a model that is cut in two equals the whole"


def _gpu() -> Finding | str:
    import torch

    if not torch.cuda.is_available():
        why = (
            "this torch is a build without CUDA"
            if torch.version.cuda is None
            else "torch finds none"
        )
        return Finding("GPU", "absent", f"{why}; training runs on the CPU")
    ones = torch.ones(64, 64, device="cuda")
    if float((ones @ ones).sum()) != 64.0**3:
        return Finding("GPU", "broken", "a matrix product on it is wrong")
    found = [torch.cuda.get_device_properties(each) for each in range(torch.cuda.device_count())]
    return "; ".join(f"{each.name}, {each.total_memory / 2**30:.0f} GiB" for each in found)


def _extra(name: str) -> Finding | str:
    """Both extras serve, so that a port is tried, too."""
    missing = find_missing_modules(name)
    if missing:
        return Finding(
            name, "absent", f"{', '.join(missing)} not installed: pip install 'airsplit[{name}]'"
        )
    for module in EXTRAS[name]:
        importlib.import_module(module)
    with socket.create_server(("127.0.0.1", 0)):
        return "installed, and a port on loopback can be listened on"


def _at_home(folder: Path) -> str:
    """A folder as people write it."""
    home = Path.home()
    return f"~/{folder.relative_to(home)}" if folder.is_relative_to(home) else str(folder)


def _data_set(name: str, data: str | os.PathLike[str] | None) -> Callable[[], Finding | str]:
    def look() -> Finding | str:
        if find_missing_files(name, data):
            return Finding(
                name, "absent", f"not in {_at_home(find_data_folder(data))}: airsplit data {name}"
            )
        known = IMAGE_SETS[name]
        return f"{known.train:,} images to train on, {known.test:,} to test on"

    return look


def _folder(part: str, folder: Path, way: str) -> Finding | str:
    """Whether it can be written to, or made."""
    whole = folder.absolute()
    there = next(each for each in (whole, *whole.parents) if each.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            free = shutil.disk_usage(there).free / 2**30
    except OSError as error:
        return Finding(part, "broken", f"{there} cannot be written to ({error.strerror}); {way}")
    return f"{whole} can be {'written to' if there == whole else 'made'}, {free:.0f} GiB free"
