"""A sample of mutants: small changes of the code, each of which some test should notice.

make mutants                                                      20 mutants in each of four rooms, for half an hour at most
make mutants MUTANTS="planning --count 40 --seed 1"               others, in one room

A room is a folder of the package, and its tests are those of the folder of that name. They run once on the unchanged
code, to see which test runs which line. Then mutants are made at places chosen at random, each place as likely as any
other, and the room's tests that run the mutated line are run on each. A mutant that none of them notices survives, and
its diff is printed. Some survivors are equivalent: the change makes no difference to anyone.

The mutations are mutmut's, except those of strings (most are words for people), and two more: a call on a line of its
own is left out, and a context is not entered. What runs the tests is the environment of --python, not that of mutmut.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators, operator_string

ROOT = Path(__file__).parents[1]
ROOMS = ("planning", "learn", "network", "dashboard")
MOST_TESTS_S = 60.0
"""Of the tests that run a line, the quickest are run that take so long together; a line of everybody's has them all."""


MOST_LINES = 20
"""Of a diff."""


# ---- mutants ---------------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Mutant:
    """A file of the package in which one place is changed."""

    file: str
    line: int
    original: str
    code: str

    @property
    def name(self) -> str:
        """Return file and line, as an editor takes them."""
        return f"{self.file}:{self.line}"

    def diff(self) -> str:
        """Return what is changed, as a unified diff."""
        lines = difflib.unified_diff(
            self.original.splitlines(), self.code.splitlines(), n=2, lineterm=""
        )
        return "\n".join(list(lines)[2:MOST_LINES])


def leave_out_call(node: cst.Expr) -> Iterator[cst.BaseSmallStatement]:
    """Mutate `f(x)` on a line of its own to `pass`."""
    if isinstance(node.value, cst.Call):
        yield cst.Pass()


def enter_no_context(node: cst.With) -> Iterator[cst.BaseCompoundStatement]:
    """Mutate `with lock:` to `if True:`."""
    if all(item.asname is None for item in node.items):
        yield cst.If(test=cst.Name("True"), body=node.body)


OPERATORS = [
    *(pair for pair in mutation_operators if pair[1] is not operator_string),
    (cst.Expr, leave_out_call),
    (cst.With, enter_no_context),
]


class Places(cst.CSTVisitor):
    """Collect the nodes of a module that can be mutated, by line and column, each with what it is mutated to."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[tuple[int, int], list[tuple[cst.CSTNode, cst.CSTNode]]] = {}

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Annotation):
            return False  # nobody evaluates it
        for kind, operator in OPERATORS:
            if isinstance(node, kind):
                start = self.get_metadata(PositionProvider, node).start
                changed = [(node, mutation) for mutation in operator(node)]
                if changed:
                    self.found.setdefault((start.line, start.column), []).extend(changed)
        return True


def sample(room: str, seed: int) -> Iterator[Mutant]:
    """Yield mutants of a room, at places in random order."""
    rng = random.Random(f"{room} {seed}")  # noqa: S311 - a sample
    modules = {}
    places = []
    for path in sorted((ROOT / "src/airsplit" / room).rglob("*.py")):
        if not path.name.endswith("_pb2.py"):  # generated
            wrapper, visitor = (
                MetadataWrapper(cst.parse_module(path.read_text(encoding="utf-8"))),
                Places(),
            )
            wrapper.visit(visitor)
            file = path.relative_to(ROOT).as_posix()
            modules[file] = wrapper.module
            places += [
                (file, line, changes) for (line, _), changes in sorted(visitor.found.items())
            ]
    rng.shuffle(places)
    for file, line, changes in places:
        node, mutation = rng.choice(changes)
        code = modules[file].deep_replace(node, mutation).code  # type: ignore[attr-defined]
        try:
            compile(code, file, "exec")
        except SyntaxError:
            continue
        yield Mutant(file, line, modules[file].code, code)


# ---- tests -----------------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Tests:
    """The tests of a room: how long each takes, and which lines of which file it runs."""

    seconds: dict[str, float]
    by_line: dict[str, dict[int, set[str]]]

    def of(self, mutant: Mutant) -> list[str]:
        """Return the tests that run a mutant's line, the quickest first.

        What runs on import belongs to no test: then it is those of the whole file or, where there are none, of the room.
        """
        lines = self.by_line.get(mutant.file, {})
        tests = lines.get(mutant.line) or set().union(*lines.values()) or set(self.seconds)
        ordered = sorted(tests & self.seconds.keys(), key=lambda test: (self.seconds[test], test))
        chosen: list[str] = []
        while len(chosen) < len(ordered) and self.sum_s(chosen) < MOST_TESTS_S:
            chosen.append(ordered[len(chosen)])
        return chosen

    def sum_s(self, tests: Iterable[str]) -> float:
        """Return how long these tests take together."""
        return sum(self.seconds[test] for test in tests)


def copy_tree(folder: Path) -> Path:
    """Copy the files that git knows, as they are now, so that no mutant comes near them."""
    shutil.rmtree(folder, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def run_python(
    python: Path, tree: Path, *words: str, limit_s: float | None = None
) -> tuple[int | None, str]:
    """Run Python on a copy of the tree; return its exit code, None after `limit_s`, and what it printed."""
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    options = {
        "cwd": tree,
        "env": environment,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
    }
    with subprocess.Popen([python, *words], start_new_session=True, **options) as process:  # type: ignore[call-overload]
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, process.communicate()[0]
    return process.returncode, output


PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider")


def watch_tests(python: Path, tree: Path, room: str) -> Tests:
    """Run the tests of a room on the unchanged code; those that fail are named, and not run again."""
    words = [
        "--cov",
        "--cov-context=test",
        "--cov-report=",
        "--durations=0",
        "--durations-min=0",
        "-vv",
    ]
    code, output = run_python(
        python, tree, *PYTEST, *words, f"tests/{room}", f"src/airsplit/{room}"
    )
    if code not in (0, 1):
        sys.exit(f"the tests of {room} cannot be run:\n{output[-3000:]}")
    seconds: dict[str, float] = {}
    for took, test in re.findall(
        r"^(\d+\.\d+)s (?:setup|call|teardown) +(.+)$", output, flags=re.MULTILINE
    ):
        seconds[test] = seconds.get(test, 0.0) + float(took)
    for test in [
        test for test in seconds if f"FAILED {test}\n" in output or f"FAILED {test} - " in output
    ]:
        print(f"{test} fails on the unchanged code", flush=True)
        del seconds[test]
    run_python(
        python, tree, "-m", "coverage", "json", "-q", "--show-contexts", "-o", "contexts.json"
    )
    by_line = {}
    for file, found in json.loads((tree / "contexts.json").read_text(encoding="utf-8"))[
        "files"
    ].items():
        by_line[file] = {
            int(line): {name.rpartition("|")[0] for name in names} - {""}
            for line, names in found["contexts"].items()
        }
    return Tests(seconds, by_line)


def killer(python: Path, tree: Path, mutant: Mutant, tests: Tests) -> str | None:
    """Return what notices a mutant; None if nothing does.  A test that fails once only has noticed nothing."""
    chosen = tests.of(mutant)
    (tree / mutant.file).write_text(mutant.code, encoding="utf-8")
    try:
        while chosen:
            failed = first_failure(python, tree, chosen, limit_s=60 + 5 * tests.sum_s(chosen))
            if failed is None or failed not in chosen:
                return failed
            if (
                first_failure(python, tree, [failed], limit_s=60 + 5 * tests.seconds[failed])
                is not None
            ):
                return failed
            chosen.remove(failed)
    finally:
        (tree / mutant.file).write_text(mutant.original, encoding="utf-8")
    return None


def first_failure(python: Path, tree: Path, tests: list[str], limit_s: float) -> str | None:
    """Return the first of these tests that fails, or what else goes wrong; None if all pass."""
    code, output = run_python(python, tree, *PYTEST, "-x", *tests, limit_s=limit_s)
    if code == 0:
        return None
    if code is None:
        return "tests that take too long"
    if code == 4 and "ERROR collecting" not in output and "conftest" not in output:
        raise RuntimeError(f"these tests cannot be run: {tests}\n{output[-3000:]}")
    # One name may begin with another.
    failed = [test for test in tests if f"FAILED {test}" in output or f"ERROR {test}" in output]
    return max(failed, key=len, default=f"pytest, which ends with {code}")


# ---- all of it -------------------------------------------------------------------------------------------------------------------
def try_room(room: str, given: argparse.Namespace, end_s: float) -> tuple[int, list[Mutant]]:
    """Try mutants of a room until there are enough or the time is over; return how many, and those that survived."""
    trees = queue.Queue[Path]()
    for job in range(given.jobs):
        trees.put(copy_tree(given.build / f"tree-{job}"))
    first = trees.get()
    tests = watch_tests(given.python, first, room)
    trees.put(first)

    def attempt(mutant: Mutant) -> tuple[Mutant, str | None] | None:
        if time.monotonic() > end_s:
            return None
        tree = trees.get()
        try:
            found = mutant, killer(given.python, tree, mutant, tests)
        finally:
            trees.put(tree)
        print(
            f"{mutant.name}: "
            + ("SURVIVED\n" + mutant.diff() if found[1] is None else f"killed by {found[1]}"),
            flush=True,
        )
        return found

    mutants = [
        mutant for mutant, _ in zip(sample(room, given.seed), range(given.count), strict=False)
    ]
    with ThreadPoolExecutor(given.jobs) as pool:
        tried = [result for result in pool.map(attempt, mutants) if result is not None]
    return len(tried), [mutant for mutant, found in tried if found is None]


def report(found: dict[str, tuple[int, list[Mutant]]], given: argparse.Namespace) -> str:
    """Return the result as Markdown."""
    about = "import machine; print(machine.description())"
    _, described = run_python(
        given.python, ROOT, "-c", f"import sys; sys.path.insert(0, 'benchmarks'); {about}"
    )
    command = " ".join(
        [
            "make mutants",
            f'MUTANTS="{" ".join([*given.rooms, "--count", str(given.count), "--seed", str(given.seed)])}"',
        ]
    )
    lines = [
        "# Mutants",
        "",
        described.strip() + f". Command: `{command}`",
        "",
        "| room | mutants | killed | survived |",
        "|---|---|---|---|",
    ]
    totals = [0, 0]
    for room, (tried, survivors) in found.items():
        totals = [totals[0] + tried, totals[1] + len(survivors)]
        lines.append(_row(room, tried, len(survivors)))
    lines += [_row("**all**", *totals), ""]
    for _, survivors in found.values():
        for mutant in survivors:
            lines += [f"`{mutant.name}`", "", "```diff", mutant.diff(), "```", ""]
    return "\n".join(lines)


def _row(room: str, tried: int, survived: int) -> str:
    share = f"{100 * (tried - survived) / tried:.0f} %" if tried else "-"
    return f"| {room} | {tried} | {tried - survived} ({share}) | {survived} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="Try a sample of mutants.")
    parser.add_argument(
        "rooms",
        nargs="*",
        default=list(ROOMS),
        help=f"folders of the package (default: {', '.join(ROOMS)})",
    )
    parser.add_argument("--count", type=int, default=20, help="mutants in each room (default 20)")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the sample (default 0)")
    parser.add_argument(
        "--minutes",
        type=float,
        default=30.0,
        help="time for all rooms; then no mutant is begun (default 30)",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        help="mutants at the same time (default: one for each core)",
    )
    parser.add_argument(
        "--python",
        type=Path,
        default=ROOT / ".venv/bin/python",
        help="what runs the tests (default: .venv/bin/python)",
    )
    parser.add_argument(
        "--build",
        type=Path,
        default=ROOT / "build/mutants",
        help="folder for copies of the tree (default: build/mutants)",
    )
    parser.add_argument("--out", type=Path, help="file that the result is also written to")
    given = parser.parse_args()
    given.python, given.build = (
        given.python.absolute(),
        given.build.absolute(),
    )  # what runs there runs in another folder
    found = {}
    start_s = time.monotonic()
    for number, room in enumerate(given.rooms, start=1):
        found[room] = try_room(
            room, given, start_s + 60 * given.minutes * number / len(given.rooms)
        )
    text = report(found, given)
    print(f"\n{text}")
    if given.out is not None:
        given.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
