"""All benchmarks of the network on one page, a section each.

A section that is run again replaces the one before.

python -m network.run                                       all but chaos, printed
python -m network.run --out results/network.md              also written
python -m network.run --out results/network.md --only overhead usage
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from machine import describe_machine

TITLE = "# The network, measured\n"
FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Section:
    """One script's part of the page."""

    title: str
    about: str = ""


# By the name of the script.
SECTIONS = {
    "shared": Section(
        "Eight devices on one link",
        "Devices that sleep as long as the law says, from 1 to 6.3 times the fastest's 1e-10 "
        "s/MAC; the demo's model (alexnet32 at width 0.25), batches of 16, 5 iterations a round; "
        "one link of 40 Mbit/s each way, shaped by the kernel, that all share. The server answers "
        "at once, so that it is the link and the plan that are measured. Equal shares and FedAvg "
        "are paced, too; FedAvg has its own best shares.",
    ),
    "real": Section("Real computing"),
    "overhead": Section(
        "A step's overhead",
        "One megabyte each way on loopback, server in another process, computing left out; medians "
        "of 1,200 steps, in turns with a bare gRPC stream that echoes as many bytes.",
    ),
    "usage": Section(
        "Use of a shaped uplink",
        "One device, planned for what it has measured of the link, and paced; between the first "
        "and the last piece of its messages.",
    ),
    "crowd": Section("Two hundred clients"),
    "compression": Section(
        "Smaller messages",
        "The demo with 8 devices, all cut at pool1, 15 rounds of 5 iterations, three seeds, in the "
        "simulator, which compresses as the network does.",
    ),
    "malformed": Section("Malformed messages"),
    "chaos": Section("Chaos"),
}


def run_script(name: str) -> str:
    """Run a script in a new process; return its output without title and provenance."""
    # Some scripts stand beside this folder.
    script = ["-m", f"network.{name}"] if (FOLDER / f"{name}.py").exists() else [f"{name}.py"]
    process = subprocess.run(
        [sys.executable, *script], cwd=FOLDER.parent, capture_output=True, text=True, check=False
    )
    if process.returncode:
        raise RuntimeError(f"{name} failed: {process.stderr[-2000:]}")
    lines = [
        line
        for line in process.stdout.splitlines()
        if not line.startswith("# ") and "wrote this." not in line
    ]
    return "\n".join(lines).strip()


def replace_section(page: str, name: str, text: str) -> str:
    """Return the page with a new text of one section; others stay as they are."""
    bodies = dict(part.split("\n", 1) for part in page.split("\n## ")[1:])
    section = SECTIONS[name]
    about = f"{section.about}\n\n" if section.about else ""
    command = f"`PYTHONPATH=benchmarks python -m network.run --only {name}`"
    bodies[section.title] = f"\n{about}{text}\n\n{command}. {describe_machine()}\n"
    titles = [section.title for section in SECTIONS.values() if section.title in bodies]
    return TITLE + "".join(f"\n## {title}\n{bodies[title].rstrip()}\n" for title in titles)


def main() -> None:
    """Run the chosen scripts, and write each section as it is done."""
    parser = argparse.ArgumentParser(description="Run the benchmarks of the network.")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=SECTIONS,
        default=[name for name in SECTIONS if name != "chaos"],
        help="these sections (default: all but chaos)",
    )
    parser.add_argument("--out", type=Path, help="also write the sections into this page")
    options = parser.parse_args()
    for name in options.only:
        text = run_script(name)
        print(f"\n## {SECTIONS[name].title}\n\n{text}", flush=True)
        if options.out is not None:
            page = options.out.read_text() if options.out.exists() else TITLE
            options.out.write_text(replace_section(page, name, text))


if __name__ == "__main__":
    main()
