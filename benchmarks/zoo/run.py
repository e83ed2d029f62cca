"""Profile and cut networks that others wrote.

They are every classifier of torchvision, and Hugging Face architectures.

PYTHONPATH=benchmarks python -m zoo.run                                  print
PYTHONPATH=benchmarks python -m zoo.run --out benchmarks/results/zoo.md  also write
PYTHONPATH=benchmarks python -m zoo.run --only resnet18 BertModel        these
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib.metadata import version
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import airsplit as air
from machine import describe_machine
from zoo.cutting import TOLERANCE, Wrong, check_cuts
from zoo.hugging_face import REFUSED, list_architectures
from zoo.specimen import Case, Published, Specimen
from zoo.table import Row, tabulate
from zoo.torchvision_models import count_auxiliary_parameters, list_classifiers

# Cuts of each model.
CUTS = 5
QUICK_CUTS = 3
# Least number of Hugging Face architectures that must be cut.
ARCHITECTURES = 10


def examine(name: str, cuts: int) -> Row:
    """Check one model: its profile against what is known of it, then its cuts."""
    specimen = list_specimens()[name]
    row = Row(specimen.name, specimen.family)
    with row.findings.record_problems("profile"):
        check_profile(specimen, row)
    # Models without a profile are not cut.
    if row.splits:
        with row.findings.record_problems("cuts"):
            case = specimen.small()
            findings = check_cuts(case, air.profile(case.model, **case.sample), cuts)
            findings.problems[:0] = row.findings.problems
            findings.tracebacks[:0] = row.findings.tracebacks
            row.findings = findings
    return row


def check_profile(specimen: Specimen, row: Row) -> None:
    """Profile a model, and compare with its published figures or with torch's counter."""
    case = specimen.whole()
    start = time.perf_counter()
    try:
        profile = air.profile(case.model, **case.sample)
    except air.AirsplitError as error:
        row.refused = str(error)
        raise
    row.seconds = f"{time.perf_counter() - start:.2f} s"
    row.splits = str(len(profile))
    # Published figures have three decimals; the small models need more.
    decimals = 6 if specimen.published is None else 3
    row.matmul = f"{profile.matmul_macs[-1] / 1e9:.{decimals}f}"
    row.parameters = f"{profile.parameters.sum():,}"
    if specimen.published is None:
        compare_counter(case, profile, row)
    else:
        compare_published(specimen.published, case, profile, row)


def compare_counter(case: Case, profile: air.Profile, row: Row) -> None:
    """Compare a profile with torch's own counter, and with the parameters of the model.

    Raises:
        Wrong: They differ.
    """
    # What more samples add: some models also compute things that do not depend on the samples.
    doubled = tuple(torch.cat([tensor, tensor]) for tensor in case.batch)
    added = count_matmul_macs(case.model, doubled) - count_matmul_macs(case.model, case.batch)
    counted = added // len(case.batch[0])
    row.published = f"{counted / 1e9:.6f} (counted)"
    if counted != profile.matmul_macs[-1]:
        raise Wrong(
            f"{profile.matmul_macs[-1]} multiply-adds in matrix products, torch counts {counted}"
        )
    parameters = sum(p.numel() for p in case.model.parameters())
    if parameters != profile.parameters.sum():
        raise Wrong(f"{profile.parameters.sum()} parameters, the model has {parameters}")


def count_matmul_macs(model: torch.nn.Module, batch: tuple[torch.Tensor, ...]) -> int:
    """Return the multiply-adds in matrix products that torch counts."""
    model.eval()
    # On CPUs, torch does not count fused attention.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(*batch)
    model.train()
    return int(counter.get_total_flops()) // 2


def compare_published(published: Published, case: Case, profile: air.Profile, row: Row) -> None:
    """Compare a profile with published figures.

    Raises:
        Wrong: They differ, and not by auxiliary heads.
    """
    counted = int(profile.parameters.sum())
    row.published = f"{published.gmacs:.3f}"
    if counted != published.parameters:
        auxiliary = count_auxiliary_parameters(case.model)
        if abs(counted - published.parameters) != auxiliary:
            raise Wrong(f"{counted} parameters, published are {published.parameters}")
        row.parameters += f" (published {published.parameters:,}: auxiliary heads, {auxiliary:,})"
    if not published.agrees(profile.matmul_macs[-1]):
        raise Wrong(f"{row.matmul} GMAC in matrix products, published are {row.published}")


def heading(arguments: list[str]) -> list[str]:
    """Return the head of the page."""
    versions = ", ".join(
        f"{name} {version(name)}" for name in ("torch", "torchvision", "transformers")
    )
    git = subprocess.run(
        ["git", "status", "--porcelain", "src"], capture_output=True, text=True, check=False
    )
    changes = " and changes since" if git.stdout.strip() else ""
    command = " ".join(["PYTHONPATH=benchmarks python -m zoo.run", *arguments])
    return [
        "# The zoo: networks that others wrote, profiled and cut",
        "",
        f"`{command}` wrote this. {describe_machine()}{changes}; {versions}.",
        "",
        "Profiles: torchvision at its published image size, against its published figures (within "
        "1 % or half a unit of the last digit);",
        "Hugging Face with small random configurations, against a run of torch's counter over the "
        "whole model.",
        "Cuts: two samples on the CPU, 64 × 64 images where the network allows; outputs in "
        "evaluation, and a training step over the cut",
        "against one over the whole, in evaluation and in training mode with the same seed. "
        "Differences are the largest over the cuts,",
        f"relative to the largest element of each tensor; allowed is {TOLERANCE:g}. Where Airsplit "
        "refuses a model, its message is shown.",
        "A model with one split can only be cut behind its last layer, mostly because its first "
        "and last layer share their weights:",
        "such rows show that it is profiled, not that it is cut.",
        "",
    ]


@cache
def list_specimens() -> dict[str, Specimen]:
    """Return the whole zoo, by name."""
    return {specimen.name: specimen for specimen in list_classifiers() + list_architectures()}


def select_names(only: list[str] | None) -> list[str]:
    """Return the models to examine, in the zoo's order."""
    unknown = set(only or ()) - list_specimens().keys()
    if unknown:
        sys.exit(f"Not in the zoo: {', '.join(sorted(unknown))}")
    return [name for name in list_specimens() if only is None or name in only]


def examine_all(names: list[str], cuts: int, jobs: int) -> Iterator[Row]:
    """Yield rows in the order of the names.

    Tracing a model is Python's work, so there are several processes of one thread each.
    """
    with ProcessPoolExecutor(jobs, get_context("spawn"), torch.set_num_threads, (1,)) as workers:
        yield from workers.map(examine, names, repeat(cuts))


def print_progress(rows: Iterable[Row], total: int, tracebacks: Path | None) -> list[Row]:
    """Print the verdict on each model, write tracebacks of failures, and return all rows."""
    done: list[Row] = []
    start = time.perf_counter()
    for row in rows:
        done.append(row)
        verdict = "; ".join(row.findings.problems) or "ok"
        print(
            f"{time.perf_counter() - start:6.1f} s  {len(done)}/{total}  {row.model}: {verdict}",
            file=sys.stderr,
            flush=True,
        )
        if tracebacks is not None and row.findings.tracebacks:
            tracebacks.mkdir(parents=True, exist_ok=True)
            text = "\n".join(row.findings.tracebacks)
            (tracebacks / f"{row.model}.txt").write_text(text, encoding="utf-8")
    return done


def list_failures(rows: list[Row]) -> list[str]:
    """Return all problems; a refusal is one, too, unless it is known."""
    return [
        f"{row.model}: {problem}"
        for row in rows
        if not (row.refused and row.model in REFUSED)
        for problem in row.findings.problems
    ]


def require_architectures(rows: list[Row]) -> list[str]:
    """Return a failure if too few Hugging Face architectures are cut."""
    cut = {row.model.split(",")[0] for row in rows if row.family == "Hugging Face" and row.is_cut}
    if len(cut) >= ARCHITECTURES:
        return []
    return [f"only {len(cut)} Hugging Face models are cut, {ARCHITECTURES} are wanted"]


def main() -> None:
    """Examine the zoo, print the page, and exit with 1 after a failure."""
    parser = argparse.ArgumentParser(description="Profile and cut networks that others wrote.")
    parser.add_argument("--out", type=Path, help="also write the tables to this file")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these models")
    parser.add_argument(
        "--quick", action="store_true", help=f"{QUICK_CUTS} cuts of each model instead of {CUTS}"
    )
    parser.add_argument(
        "--tracebacks", type=Path, metavar="DIR", help="write a file for each model that fails"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="models in parallel (default: one for each core)",
    )
    options = parser.parse_args()
    names = select_names(options.only)
    # Before the work: it takes minutes, in which the tree may change.
    lines = heading(sys.argv[1:])
    rows = print_progress(
        examine_all(names, QUICK_CUTS if options.quick else CUTS, options.jobs),
        len(names),
        options.tracebacks,
    )
    lines += tabulate(rows, "torchvision") + tabulate(rows, "Hugging Face")
    text = "\n".join(lines)
    print(text)
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")
    failures = list_failures(rows)
    if options.only is None:
        failures += require_architectures(rows)
    if failures:
        print(f"{len(failures)} failures", *failures, sep="\n", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
