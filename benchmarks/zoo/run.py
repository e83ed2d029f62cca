"""Profile and cut networks that others wrote: every classifier of torchvision, and Hugging Face architectures.

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
from zoo.cutting import TOLERANCE, Findings, Wrong, check_cuts
from zoo.hugging_face import REFUSED, architectures
from zoo.specimen import Case, Specimen
from zoo.table import Row, table
from zoo.torchvision_models import auxiliary_parameters, classifiers

CUTS, QUICK_CUTS = 5, 3
ARCHITECTURES = 10


def examine(name: str, cuts: int) -> Row:
    """One model: its profile against what is known of it, then its cuts."""
    specimen = everything()[name]
    row = Row(specimen.name, specimen.family, findings=Findings())
    with row.findings.attempt("profile"):
        compare_profile(specimen, row)
    if row.splits:
        with row.findings.attempt("cuts"):
            compare_cuts(specimen, row, cuts)
    return row


def compare_profile(specimen: Specimen, row: Row) -> None:
    case = specimen.whole()
    start = time.perf_counter()
    try:
        profile = air.profile(case.model, **case.sample)
    except air.AirsplitError as error:
        row.refused = str(error)
        raise
    row.seconds = f"{time.perf_counter() - start:.2f} s"
    row.splits, row.matmul = (
        str(len(profile)),
        f"{profile.matmul_macs[-1] / 1e9:.{3 if specimen.published else 6}f}",
    )
    row.parameters = f"{profile.parameters.sum():,}"
    if specimen.published is None:
        compare_counter(case, profile, row)
    else:
        compare_published(specimen, case, profile, row)


def compare_counter(case: Case, profile: air.Profile, row: Row) -> None:
    """Where nothing is published: what torch's own counter sees of one more sample, and the parameters of the model."""
    doubled = tuple(torch.cat([tensor, tensor]) for tensor in case.batch)
    counted = (matmul_macs(case.model, doubled) - matmul_macs(case.model, case.batch)) // len(
        case.batch[0]
    )
    row.published = f"{counted / 1e9:.6f} (counted)"
    if counted != profile.matmul_macs[-1]:
        raise Wrong(
            f"{profile.matmul_macs[-1]} multiply-adds in matrix products, torch counts {counted}"
        )
    held = sum(p.numel() for p in case.model.parameters())
    if held != profile.parameters.sum():
        raise Wrong(f"{profile.parameters.sum()} parameters, the model has {held}")


def matmul_macs(model: torch.nn.Module, batch: tuple[torch.Tensor, ...]) -> int:
    model.eval()
    with (
        sdpa_kernel(SDPBackend.MATH),
        FlopCounterMode(display=False) as counter,
    ):  # fused attention is not counted on CPUs
        model(*batch)
    model.train()
    return int(counter.get_total_flops()) // 2


def compare_published(specimen: Specimen, case: Case, profile: air.Profile, row: Row) -> None:
    published, counted = specimen.published, int(profile.parameters.sum())
    row.published = f"{published.gmacs:.3f}"
    if counted != published.parameters:
        auxiliary = auxiliary_parameters(case.model)
        if abs(counted - published.parameters) != auxiliary:
            raise Wrong(f"{counted} parameters, published are {published.parameters}")
        row.parameters += f" (published {published.parameters:,}: auxiliary heads, {auxiliary:,})"
    if not published.agrees(profile.matmul_macs[-1]):
        raise Wrong(f"{row.matmul} GMAC in matrix products, published are {row.published}")


def compare_cuts(specimen: Specimen, row: Row, cuts: int) -> None:
    case = specimen.small()
    found = check_cuts(case, air.profile(case.model, **case.sample), cuts)
    found.problems[:0], found.tracebacks[:0] = row.findings.problems, row.findings.tracebacks
    row.findings = found


def heading(arguments: list[str]) -> list[str]:
    versions = ", ".join(
        f"{name} {version(name)}" for name in ("torch", "torchvision", "transformers")
    )
    changed = subprocess.run(
        ["git", "status", "--porcelain", "src"], capture_output=True, text=True, check=False
    ).stdout.strip()
    command = " ".join(["PYTHONPATH=benchmarks python -m zoo.run", *arguments])
    return [
        "# The zoo: networks that others wrote, profiled and cut",
        "",
        f"`{command}` wrote this.  {describe_machine()}{' and changes since' if changed else ''}; {versions}.",
        "",
        "Profiles: torchvision at its published image size, against its published figures (within 1 % or half a unit of the last digit);",
        "Hugging Face with small random configurations, against a run of torch's counter over the whole model.",
        "Cuts: two samples on the CPU, 64 × 64 images where the network allows; outputs in evaluation, and a training step over the cut",
        "against one over the whole, in evaluation and in training mode with the same seed.  Differences are the largest over the cuts,",
        f"relative to the largest element of each tensor; allowed is {TOLERANCE:g}.  Where Airsplit refuses a model, its message is shown.",
        "A model with one split can only be cut behind its last layer, mostly because its first and last layer share their weights:",
        "such rows show that it is profiled, not that it is cut.",
        "",
    ]


@cache
def everything() -> dict[str, Specimen]:
    return {specimen.name: specimen for specimen in classifiers() + architectures()}


def chosen(only: list[str] | None) -> list[str]:
    unknown = set(only or ()) - everything().keys()
    if unknown:
        sys.exit(f"Not in the zoo: {', '.join(sorted(unknown))}")
    return [name for name in everything() if only is None or name in only]


def examine_all(names: list[str], cuts: int, jobs: int) -> Iterator[Row]:
    """Rows in the order of the names, from several processes of one thread each: recording a model is Python's work."""
    with ProcessPoolExecutor(jobs, get_context("spawn"), torch.set_num_threads, (1,)) as workers:
        yield from workers.map(examine, names, repeat(cuts))


def report(rows: Iterable[Row], total: int, tracebacks: Path | None) -> list[Row]:
    """Say on stderr how each one went, and keep what explains a failure."""
    done, start = [], time.perf_counter()
    for row in rows:
        done.append(row)
        verdict = "; ".join(row.problems) or "ok"
        print(
            f"{time.perf_counter() - start:6.1f} s  {len(done)}/{total}  {row.model}: {verdict}",
            file=sys.stderr,
            flush=True,
        )
        if tracebacks is not None and row.findings.tracebacks:
            tracebacks.mkdir(parents=True, exist_ok=True)
            (tracebacks / f"{row.model}.txt").write_text(
                "\n".join(row.findings.tracebacks), encoding="utf-8"
            )
    return done


def failures(rows: list[Row]) -> list[str]:
    """What went wrong.  A refusal is a failure too, unless it is known and the table explains it."""
    return [
        f"{row.model}: {problem}"
        for row in rows
        if not (row.refused and row.model in REFUSED)
        for problem in row.problems
    ]


def too_few(rows: list[Row]) -> list[str]:
    good = {row.model.split(",")[0] for row in rows if row.family == "Hugging Face" and row.is_cut}
    return (
        []
        if len(good) >= ARCHITECTURES
        else [f"only {len(good)} Hugging Face models are cut, {ARCHITECTURES} are wanted"]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="also write the tables to this file")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these models")
    parser.add_argument(
        "--quick", action="store_true", help=f"{QUICK_CUTS} cuts of each model instead of {CUTS}"
    )
    parser.add_argument(
        "--tracebacks", type=Path, metavar="DIR", help="a file for each model that failed"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="models at a time; default: one for each core",
    )
    options = parser.parse_args()
    names = chosen(options.only)
    head = heading(sys.argv[1:])  # what is run now, whatever is edited meanwhile
    rows = report(
        examine_all(names, QUICK_CUTS if options.quick else CUTS, options.jobs),
        len(names),
        options.tracebacks,
    )
    text = "\n".join([*head, *table(rows, "torchvision"), *table(rows, "Hugging Face")])
    print(text)
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")
    failed = failures(rows) + ([] if options.only else too_few(rows))
    if failed:
        print(f"{len(failed)} failures", *failed, sep="\n", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
