"""The command doctor: try each part of the package on this machine."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import typer

from airsplit.cli.arguments import RUNS, AsJson, DataFolder
from airsplit.cli.output import format_json, print_parts
from airsplit.core.optional_dependencies import EXTRAS, find_missing_modules
from airsplit.core.plugins import error_line
from airsplit.data.image_sets import IMAGE_SETS, find_data_folder, find_missing_files
from airsplit.runs.provenance import VERSION, count_cores, name_processor

# The Python version that all tests are run with.
TESTED_PYTHON = (3, 11)

# Exit code if a part is broken.
BROKEN = 1

STYLES = {"works": "green", "absent": "yellow", "broken": "bold red"}


def doctor(data: DataFolder = None, as_json: AsJson = False) -> None:
    """Check this installation, and say how to complete it.

    Plans a scenario, cuts a small model, looks for a GPU, the extras and data
    sets, and tries to write. "absent" means that a part can be installed, as
    its line says; the exit code is 1 if a part is broken.

    \b
    Examples:
      airsplit doctor
      airsplit doctor --data ~/data --json
    """
    findings = examine(data)
    if as_json:
        print(format_json([asdict(finding) for finding in findings]))
    else:
        from rich.text import Text

        from airsplit.cli.tables import make_table

        table = make_table("part", "state", "says", words=("part", "state"), prose=("says",))
        for finding in findings:
            state = Text(finding.state, style=STYLES[finding.state])
            table.add_row(finding.part, state, finding.says)
        print_parts(table)

    if any(finding.state == "broken" for finding in findings):
        raise typer.Exit(BROKEN)


@dataclass(frozen=True)
class Finding:
    """The state of one part of the package.

    Attributes:
        state: "works", "absent" (it can be installed, as `says` tells) or "broken".
    """

    part: str
    state: str
    says: str


def examine(
    data: str | os.PathLike[str] | None = None, runs: str | os.PathLike[str] = RUNS
) -> list[Finding]:
    """Try every part.

    Args:
        data: Folder of the data sets, as `airsplit.data.image_sets.find_data_folder` takes it.
        runs: Folder of the run folders.
    """
    checks: dict[str, Callable[[], Finding | str]] = {
        "airsplit": check_versions,
        "planner": check_planner,
        "torch": check_torch,
        "GPU": check_gpu,
        "network": partial(check_extra, "network"),
        "dashboard": partial(check_extra, "dashboard"),
    }
    for name in IMAGE_SETS:
        checks[name] = partial(check_data_set, name, data)
    # Find the data folder inside the check, as even that can fail.
    checks["data folder"] = lambda: check_folder(
        "data folder", find_data_folder(data), "choose another with --data or AIRSPLIT_DATA"
    )
    checks["runs"] = lambda: check_folder(
        "runs", Path(runs), "change to another folder, or choose one with --out"
    )

    findings = []
    for part, check in checks.items():
        try:
            finding = check()
        # A broken installation may raise anything, and a diagnosis must survive it.
        except Exception as error:
            finding = Finding(part, "broken", error_line(error))
        # A check that returns a sentence has passed.
        if isinstance(finding, str):
            finding = Finding(part, "works", finding)
        findings.append(finding)
    return findings


def check_versions() -> str:
    """Report the versions, the processor and the memory."""
    version = f"Python {platform.python_version()}"
    if sys.version_info[:2] != TESTED_PYTHON:
        version += f" (tested with {'.'.join(map(str, TESTED_PYTHON))})"
    parts = [VERSION, version, name_processor(), f"{count_cores()} cores"]
    # Not every system has this name; the others get no memory size.
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        parts.append(f"{memory_bytes / 2**30:.1f} GiB")
    return ", ".join(parts)


def check_planner() -> str:
    """Plan a preset."""
    from airsplit.cli.scenario_plans import plan_scenario
    from airsplit.scenario.scenario import Scenario

    plan = plan_scenario(Scenario.load("paper-alexnet")).plan
    return (
        f"planned {len(plan)} devices, {plan.objective} within {plan.gap:.1e} of the best "
        "possible with fixed shares"
    )


def check_torch() -> Finding | str:
    """Cut a small model, and compare it with the uncut one."""
    import torch
    from torch import nn

    from airsplit.models.cut import cut

    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))
    images = torch.ones(2, 1, 8, 8)
    # The promise that everything else rests on: a cut changes no result, not even in its last bit.
    front, back = cut(model, 2, input_shape=(1, 8, 8))
    if not torch.equal(back(*front(images)), model(images)):
        return Finding(
            "torch", "broken", f"{torch.__version__}: a cut model differs from the uncut one"
        )
    threads = torch.get_num_threads()
    return f"{torch.__version__}, {threads} threads; a cut model equals the uncut one"


def check_gpu() -> Finding | str:
    """Compute something on the GPU, if there is one."""
    import torch

    if not torch.cuda.is_available():
        reason = "torch finds none"
        if torch.version.cuda is None:
            reason = "this torch is built without CUDA"
        return Finding("GPU", "absent", f"{reason}; training runs on the CPU")

    # Only computing reveals a driver that does not match torch.
    # A sum of 64³ ones is exact, even with TF32, so it needs no tolerance.
    ones = torch.ones(64, 64, device="cuda")
    if float((ones @ ones).sum()) != 64.0**3:
        return Finding("GPU", "broken", "it computes a wrong matrix product")
    devices = [torch.cuda.get_device_properties(k) for k in range(torch.cuda.device_count())]
    return "; ".join(f"{gpu.name}, {gpu.total_memory / 2**30:.0f} GiB" for gpu in devices)


def check_extra(name: str) -> Finding | str:
    """Import an extra's modules and open a port, as both extras serve."""
    missing = find_missing_modules(name)
    if missing:
        return Finding(
            name, "absent", f"{', '.join(missing)} not installed: pip install 'airsplit[{name}]'"
        )
    # A module that can be located may still fail to import, e.g. for a missing shared library.
    for module in EXTRAS[name]:
        importlib.import_module(module)
    with socket.create_server(("127.0.0.1", 0)):
        return "installed, and can listen on a loopback port"


def check_data_set(name: str, data: str | os.PathLike[str] | None) -> Finding | str:
    """Look for the files of a data set."""
    if find_missing_files(name, data):
        folder = find_data_folder(data)
        shown = str(folder)
        # The user's cache is the default; "~" keeps its path short.
        if folder.is_relative_to(Path.home()):
            shown = f"~/{folder.relative_to(Path.home())}"
        return Finding(name, "absent", f"not in {shown}: airsplit data {name}")
    image_set = IMAGE_SETS[name]
    return f"{image_set.train:,} images to train on, {image_set.test:,} to test on"


def check_folder(part: str, folder: Path, remedy: str) -> Finding | str:
    """Check that a folder can be written to, or created."""
    target = folder.absolute()
    # A folder that does not exist yet is created inside its nearest parent.
    existing = next(path for path in (target, *target.parents) if path.exists())
    # Write a file: permission bits know neither of read-only mounts nor of root's rights.
    try:
        with tempfile.TemporaryFile(dir=existing):
            free_gib = shutil.disk_usage(existing).free / 2**30
    except OSError as error:
        return Finding(part, "broken", f"{existing} is not writable ({error.strerror}); {remedy}")
    state = "is writable" if existing == target else "can be created"
    return f"{target} {state}, {free_gib:.0f} GiB free"
