"""All benchmarks of the network, one section each, into one page; a section that is run again replaces the one before.

python -m network.run                                       all of them, printed
python -m network.run --out results/network.md              also written
python -m network.run --out results/network.md --only overhead usage
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from machine import describe_machine

TITLE = "# The network, measured\n"


def _module(name: str, *words: str) -> Callable[[], str]:
    """What a script of ours prints."""

    def run() -> str:
        folder = Path(__file__).resolve().parent.parent
        done = subprocess.run(
            [sys.executable, *_where(name), *words],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{name} failed: {done.stderr[-2000:]}")
        return "\n".join(
            line
            for line in done.stdout.splitlines()
            if not line.startswith("# ") and "wrote this." not in line
        ).strip()

    return run


def _where(name: str) -> list[str]:
    return (
        ["-m", f"network.{name}"]
        if (Path(__file__).resolve().parent / f"{name}.py").exists()
        else [f"{name}.py"]
    )


SECTIONS: dict[str, tuple[str, str, Callable[[], str]]] = {
    "shared": (
        "Eight devices on one link",
        "Devices that sleep as long as the law says, from 1 to 6.3 times the fastest's 1e-10 s/MAC; the demo's model (alexnet32 at "
        "width 0.25), batches of 16, 5 iterations a round; one link of 40 Mbit/s each way, shaped by the kernel, that all share. "
        "The server answers at once, so that it is the link and the plan that are measured. Equal shares and FedAvg are paced, too; "
        "FedAvg has its own best shares.",
        _module("shared"),
    ),
    "real": ("Real computing", "", _module("real")),
    "overhead": (
        "A step's overhead",
        "One megabyte each way on loopback, server in another process, computing left out; medians of 1,200 steps, in turns with a "
        "bare gRPC stream that echoes as many bytes.",
        _module("overhead"),
    ),
    "usage": (
        "Use of a shaped uplink",
        "One device, planned for what it has measured of the link, and paced; between the first and the last piece of its messages.",
        _module("usage"),
    ),
    "crowd": ("Two hundred clients", "", _module("crowd")),
    "compression": (
        "Smaller messages",
        "The demo with 8 devices, all cut at pool1, 15 rounds of 5 iterations, three seeds, in the simulator, which compresses as the "
        "network does.",
        _module("compression"),
    ),
    "malformed": ("Malformed messages", "", _module("malformed")),
    "chaos": ("Chaos", "", _module("chaos")),
}


def page(found: dict[str, str], before: str) -> str:
    """The page with these sections; others stay as they were."""
    kept = dict(part.split("\n", 1) for part in before.split("\n## ")[1:])
    for key, text in found.items():
        title, about, _ = SECTIONS[key]
        told = f"{about}\n\n" if about else ""
        command = f"`PYTHONPATH=benchmarks python -m network.run --only {key}`"
        kept[title] = f"\n{told}{text}\n\n{command}. {describe_machine()}\n"
    order = [title for title, _, _ in SECTIONS.values() if title in kept]
    return TITLE + "".join(f"\n## {title}\n{kept[title].rstrip()}\n" for title in order)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", nargs="+", choices=SECTIONS, default=[key for key in SECTIONS if key != "chaos"]
    )
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    for key in chosen.only:
        text = SECTIONS[key][2]()
        print(f"\n## {SECTIONS[key][0]}\n\n{text}", flush=True)
        if chosen.out is not None:
            before = chosen.out.read_text() if chosen.out.exists() else TITLE
            chosen.out.write_text(page({key: text}, before))


if __name__ == "__main__":
    main()
