"""A sample of mutants: small changes of the code, each of which some test should notice.

make mutants                                          20 mutants in each of four rooms, half an hour
make mutants MUTANTS="planning --count 40 --seed 1"   others, in one room

A room is a folder of the package, and its tests are those of the folder of that name. They run
once on the unchanged code, to learn which test runs which line. Then places are drawn at random,
each as likely as any other; a mutant changes one of them, and the room's tests that run the mutated
line are run on it. A mutant that no test notices survives, and its diff is printed. Some survivors
are equivalent: the change makes no difference to anyone.

The mutations are mutmut's, except those of strings, which are mostly text for people, and two more:
a call on a line of its own is left out, and a context is not entered. The tests run in the
environment of --python, not in that of mutmut.
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
from itertools import islice
from pathlib import Path

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators, operator_string

ROOT = Path(__file__).parents[1]
ROOMS = ("planning", "training", "network", "dashboard")
# Of the tests that run a line, only the quickest are run: those that together take so long. Most
# tests of a room run its central lines.
TESTS_LIMIT_S = 60.0
# Longest diff that is printed.
DIFF_LINES = 20


@dataclass(frozen=True)
class Mutant:
    """A file of the package in which one place is changed."""

    file: str
    line: int
    original: str
    code: str

    @property
    def place(self) -> str:
        """File and line, in the form that editors open."""
        return f"{self.file}:{self.line}"

    def diff(self) -> str:
        """Return the change as a unified diff."""
        lines = difflib.unified_diff(
            self.original.splitlines(), self.code.splitlines(), n=2, lineterm=""
        )
        # Without the two lines that name the files.
        return "\n".join(list(lines)[2:DIFF_LINES])


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
    """Collect the nodes of a module that can be mutated.

    Attributes:
        mutations: By line and column, pairs of a node and its replacement.
    """

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        super().__init__()
        self.mutations: dict[tuple[int, int], list[tuple[cst.CSTNode, cst.CSTNode]]] = {}

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Collect the mutations of a node; return whether to visit its children."""
        if isinstance(node, cst.Annotation):
            # Annotations are not evaluated, so no test can notice.
            return False
        for kind, operator in OPERATORS:
            if isinstance(node, kind):
                start = self.get_metadata(PositionProvider, node).start
                changed = [(node, mutation) for mutation in operator(node)]
                if changed:
                    self.mutations.setdefault((start.line, start.column), []).extend(changed)
        return True


def draw_mutants(room: str, seed: int) -> Iterator[Mutant]:
    """Yield mutants of a room, at places in random order."""
    rng = random.Random(f"{room} {seed}")  # noqa: S311
    modules = {}
    places = []
    for path in sorted((ROOT / "src/airsplit" / room).rglob("*.py")):
        if path.name.endswith("_pb2.py"):
            continue  # generated
        wrapper = MetadataWrapper(cst.parse_module(path.read_text(encoding="utf-8")))
        visitor = Places()
        wrapper.visit(visitor)
        file = path.relative_to(ROOT).as_posix()
        modules[file] = wrapper.module
        places += [(file, line, pairs) for (line, _), pairs in sorted(visitor.mutations.items())]

    rng.shuffle(places)
    for file, line, pairs in places:
        node, mutation = rng.choice(pairs)
        code = modules[file].deep_replace(node, mutation).code  # type: ignore[attr-defined]
        try:
            compile(code, file, "exec")
        except SyntaxError:
            continue
        yield Mutant(file, line, modules[file].code, code)


@dataclass(frozen=True)
class Tests:
    """The tests of a room.

    Attributes:
        seconds: Time of each test.
        by_line: By file and line, the tests that run it.
    """

    seconds: dict[str, float]
    by_line: dict[str, dict[int, set[str]]]

    def select(self, mutant: Mutant) -> list[str]:
        """Return the tests that run a mutant's line, the quickest first.

        A line that runs on import belongs to no test. Then it is the tests of the whole file or, if
        there are none, of the room.
        """
        lines = self.by_line.get(mutant.file, {})
        tests = lines.get(mutant.line) or set().union(*lines.values()) or set(self.seconds)
        ordered = sorted(tests & self.seconds.keys(), key=lambda test: (self.seconds[test], test))
        selected: list[str] = []
        while len(selected) < len(ordered) and self.sum_s(selected) < TESTS_LIMIT_S:
            selected.append(ordered[len(selected)])
        return selected

    def sum_s(self, tests: Iterable[str]) -> float:
        """Return the time of these tests together."""
        return sum(self.seconds[test] for test in tests)


def copy_tree(folder: Path) -> Path:
    """Copy the files that git knows, as they are now, so that mutants stay out of this tree."""
    shutil.rmtree(folder, ignore_errors=True)
    process = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, process.stdout.split("\0")):
        # Git still knows files that are deleted but not committed.
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def run_python(
    python: Path, tree: Path, *arguments: str, limit_s: float | None = None
) -> tuple[int | None, str]:
    """Run Python on a copy of the tree; return its exit code, None after `limit_s`, and output."""
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        [python, *arguments],
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A session of its own, so that killpg also ends what the tests have started.
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, process.communicate()[0]
    return process.returncode, output


PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
WITH_CONTEXTS = (
    "--cov",
    "--cov-context=test",
    "--cov-report=",
    "--durations=0",
    "--durations-min=0",
    "-vv",
)


def learn_tests(python: Path, tree: Path, room: str) -> Tests:
    """Run the tests of a room on the unchanged code, and return what they run.

    Tests that fail there are printed, and not used.
    """
    code, output = run_python(
        python, tree, *PYTEST, *WITH_CONTEXTS, f"tests/{room}", f"src/airsplit/{room}"
    )
    if code not in (0, 1):
        sys.exit(f"the tests of {room} cannot be run:\n{output[-3000:]}")

    seconds: dict[str, float] = {}
    for duration, test in re.findall(
        r"^(\d+\.\d+)s (?:setup|call|teardown) +(.+)$", output, flags=re.MULTILINE
    ):
        seconds[test] = seconds.get(test, 0.0) + float(duration)
    for test in list(seconds):
        if f"FAILED {test}\n" in output or f"FAILED {test} - " in output:
            print(f"{test} fails on the unchanged code", flush=True)
            del seconds[test]

    run_python(
        python, tree, "-m", "coverage", "json", "-q", "--show-contexts", "-o", "contexts.json"
    )
    report = json.loads((tree / "contexts.json").read_text(encoding="utf-8"))
    by_line = {}
    for file, entry in report["files"].items():
        # A context is "test|phase", or empty for what runs on import.
        by_line[file] = {
            int(line): {context.rpartition("|")[0] for context in contexts} - {""}
            for line, contexts in entry["contexts"].items()
        }
    return Tests(seconds, by_line)


def find_killer(python: Path, tree: Path, mutant: Mutant, tests: Tests) -> str | None:
    """Return the test that notices a mutant, or None.

    A test counts only if it fails twice: some fail by chance on a busy machine.
    """
    selected = tests.select(mutant)
    (tree / mutant.file).write_text(mutant.code, encoding="utf-8")
    try:
        while selected:
            limit_s = 60 + 5 * tests.sum_s(selected)
            failed = find_failure(python, tree, selected, limit_s)
            if failed is None or failed not in selected:
                return failed
            if find_failure(python, tree, [failed], 60 + 5 * tests.seconds[failed]) is not None:
                return failed
            selected.remove(failed)
    finally:
        (tree / mutant.file).write_text(mutant.original, encoding="utf-8")
    return None


def find_failure(python: Path, tree: Path, tests: list[str], limit_s: float) -> str | None:
    """Return the first of these tests that fails, or another reason; None if all pass."""
    code, output = run_python(python, tree, *PYTEST, "-x", *tests, limit_s=limit_s)
    if code == 0:
        return None
    if code is None:
        return "tests that take too long"
    # Exit code 4 is a wrong command line, unless the mutant prevents that tests are collected.
    if code == 4 and "ERROR collecting" not in output and "conftest" not in output:
        raise RuntimeError(f"these tests cannot be run: {tests}\n{output[-3000:]}")
    failed = [test for test in tests if f"FAILED {test}" in output or f"ERROR {test}" in output]
    # The name of one test may begin with that of another.
    return max(failed, key=len, default=f"pytest, which ends with {code}")


@dataclass(frozen=True)
class Result:
    """The mutants of a room that were tried."""

    count: int
    survivors: list[Mutant]


def try_room(room: str, options: argparse.Namespace, end_s: float) -> Result:
    """Try mutants of a room until there are enough or the time is over."""
    trees = queue.Queue[Path]()
    for job in range(options.jobs):
        trees.put(copy_tree(options.build / f"tree-{job}"))
    first = trees.get()
    tests = learn_tests(options.python, first, room)
    trees.put(first)

    def try_mutant(mutant: Mutant) -> bool | None:
        """Return whether a mutant survives; None if the time is over."""
        if time.monotonic() > end_s:
            return None
        tree = trees.get()
        try:
            killer = find_killer(options.python, tree, mutant, tests)
        finally:
            trees.put(tree)
        if killer is None:
            print(f"{mutant.place}: SURVIVED\n{mutant.diff()}", flush=True)
        else:
            print(f"{mutant.place}: killed by {killer}", flush=True)
        return killer is None

    mutants = list(islice(draw_mutants(room, options.seed), options.count))
    with ThreadPoolExecutor(options.jobs) as pool:
        survives = list(pool.map(try_mutant, mutants))
    return Result(
        count=sum(survived is not None for survived in survives),
        survivors=[mutant for mutant, survived in zip(mutants, survives, strict=True) if survived],
    )


def format_report(results: dict[str, Result], options: argparse.Namespace) -> str:
    """Return the results as Markdown."""
    # mutmut's environment has no airsplit, which describes the machine.
    code = (
        "import sys; sys.path.insert(0, 'benchmarks'); "
        "import machine; print(machine.describe_machine())"
    )
    _, machine = run_python(options.python, ROOT, "-c", code)
    arguments = f"{' '.join(options.rooms)} --count {options.count} --seed {options.seed}"
    lines = [
        "# Mutants",
        "",
        f'{machine.strip()}. Command: `make mutants MUTANTS="{arguments}"`',
        "",
        "| room | mutants | killed | survived |",
        "|---|---|---|---|",
    ]
    lines += [_row(room, result.count, len(result.survivors)) for room, result in results.items()]
    count = sum(result.count for result in results.values())
    survivors = [mutant for result in results.values() for mutant in result.survivors]
    lines += [_row("**all**", count, len(survivors)), ""]
    for mutant in survivors:
        lines += [f"`{mutant.place}`", "", "```diff", mutant.diff(), "```", ""]
    return "\n".join(lines)


def _row(room: str, count: int, survived: int) -> str:
    killed = count - survived
    percent = f"{100 * killed / count:.0f} %" if count else "-"
    return f"| {room} | {count} | {killed} ({percent}) | {survived} |"


def main() -> None:
    """Try mutants of each room, and print the report."""
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
        help="time for all rooms, after which no mutant is begun (default 30)",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        help="mutants in parallel (default: one for each core)",
    )
    parser.add_argument(
        "--python",
        type=Path,
        default=ROOT / ".venv/bin/python",
        help="Python that runs the tests (default: .venv/bin/python)",
    )
    parser.add_argument(
        "--build",
        type=Path,
        default=ROOT / "build/mutants",
        help="folder for copies of the tree (default: build/mutants)",
    )
    parser.add_argument("--out", type=Path, help="also write the report to this file")
    options = parser.parse_args()
    # Processes run in other folders.
    options.python = options.python.absolute()
    options.build = options.build.absolute()

    results = {}
    start_s = time.monotonic()
    for number, room in enumerate(options.rooms, start=1):
        # Time that a room leaves goes to the next ones.
        end_s = start_s + 60 * options.minutes * number / len(options.rooms)
        results[room] = try_room(room, options, end_s)
    text = format_report(results, options)
    print(f"\n{text}")
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
