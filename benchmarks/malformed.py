"""Malformed messages: a million for the decoder, ten thousand for a server that is training.

python benchmarks/malformed.py                                       print
python benchmarks/malformed.py --out benchmarks/results/malformed.md also write
"""

from __future__ import annotations

import argparse
import itertools
import logging
import random
import resource
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import TimeoutError as TooLong
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from airsplit.network.wire import airsplit_pb2 as pb
from airsplit.network.wire.codec import DTYPES, NAMES, Malformed, Outgoing, opened
from airsplit.training.compression import VALUES
from machine import describe_machine

# The tests' package of this name, not the benchmarks'.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from network.hostile import IN_A_ROUND, Attacker, Run, mutated, nonsense, running, scenario, strange

HONEST = ("0", "1", "2")
WARM_UP_MESSAGES = 1 << 10
# How often memory is read while a server is attacked.
MEMORY_READINGS = 10
# Offsets and sizes at the edges of integers and of headers.
EDGES = (0, 1, 7, 8, 23, 24, 2**31, 2**32, 2**63, 2**64 - 24, 2**64 - 1)


def valid_frames() -> list[bytes]:
    """Return frames of all kinds of messages with tensors, of every type and coding."""
    place = pb.Place(run="0123456789abcdef", round=3, order=4, step=1)
    messages = [_step(place, coding) for coding in ("none", *VALUES)]

    evaluate = Outgoing(pb.DeviceMessage(evaluate=pb.Evaluate(place=place)))
    for coding in ("none", *VALUES):
        evaluate.put(evaluate.message.evaluate.activations.add(), torch.randn(2, 3, 2), coding)
    messages.append(evaluate)

    tensors = {name: torch.ones(3, 2).to(dtype) for name, dtype in DTYPES.items()}
    finished = Outgoing(pb.DeviceMessage(finished=pb.Finished(place=place)))
    finished.put_named(finished.message.finished.model, tensors)
    messages.append(finished)

    for name, tensor in tensors.items():
        moved = Outgoing(pb.DeviceMessage(moved=pb.Moved(order=1)))
        moved.put_named(moved.message.moved.layers, {name: tensor})
        messages.append(moved)
    return [message.frame() for message in messages]


def _step(place: pb.Place, coding: str) -> Outgoing[pb.DeviceMessage]:
    step = Outgoing(pb.DeviceMessage(step=pb.Step(place=place)))
    step.put(step.message.step.activations.add(), torch.randn(2, 3, 2), coding, wants_gradient=True)
    step.put(step.message.step.labels, torch.arange(2))
    return step


def tensors_of(message: pb.DeviceMessage) -> Iterator[pb.Tensor]:
    """Yield the tensors that the server would decode."""
    for body in (message.step, message.evaluate):
        yield from body.activations
        if body.HasField("labels"):
            yield body.labels
    for named in itertools.chain(message.finished.model, message.moved.layers):
        yield named.tensor


def decode(data: bytes) -> str:
    """Decode bytes, and return which of three things happened.

    Any other error is a mistake of the decoder, and ends the benchmark.
    """
    try:
        incoming = opened(pb.DeviceMessage, data)
    except Malformed:
        return "no message"
    try:
        for header in tensors_of(incoming.message):
            tensor = incoming.tensor(header)
            assert NAMES[tensor.dtype] == header.dtype
            assert list(tensor.shape) == list(header.shape)
    except Malformed:
        return "a tensor refused"
    return "as its headers say"


def corrupt_field(data: bytes, rng: random.Random) -> bytes:
    """Change one field of one tensor in a valid message, and encode it as protobuf does.

    The new value may be valid by chance.
    """
    frame = pb.Frame.FromString(data)
    message = pb.DeviceMessage.FromString(frame.header)
    tensor = rng.choice(list(tensors_of(message)))
    size = len(frame.payload)
    match rng.randrange(7):
        case 0:
            tensor.dtype = rng.choice([*DTYPES, "", "object", "x" * 1000])
        case 1:
            axes = rng.choice((0, 1, 2, 3, 16, 17))
            sizes = (0, 1, 2, 3, 6, 2**16, 2**31, 2**32 - 1)
            tensor.shape[:] = [rng.choice(sizes) for _ in range(axes)]
        case 2:
            tensor.coding = rng.choice([*VALUES, "", "none", "zip"])
        case 3:
            tensor.at = rng.choice((*EDGES, rng.randrange(2 * size), rng.randrange(2**64)))
        case 4:
            tensor.scales_at = rng.choice((*EDGES, rng.randrange(2 * size), rng.randrange(2**64)))
        case 5:
            frame.payload = rng.randbytes(rng.choice((0, 1, size - 1, size, 2 * size)))
        case _:
            tensor.absent = True
    frame.header = message.SerializeToString()
    return frame.SerializeToString()


def random_bytes(_: bytes, rng: random.Random) -> bytes:
    """Return bytes that are no message of ours."""
    return rng.randbytes(rng.randrange(1, 100))


# Each as likely as any other.
CORRUPTIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    mutated,
    mutated,
    corrupt_field,
    corrupt_field,
    random_bytes,
)


def decode_corrupted(messages: int, rng: random.Random) -> Counter[str]:
    """Decode corrupted messages, and count the outcomes."""
    outcomes: Counter[str] = Counter()
    originals = valid_frames()
    for _ in range(messages):
        corrupt = rng.choice(CORRUPTIONS)
        outcomes[decode(corrupt(rng.choice(originals), rng))] += 1
    return outcomes


def attack_decoder(messages: int, seed: int) -> list[str]:
    """Decode corrupted messages, and return the paragraph about it."""
    rng = random.Random(seed)  # noqa: S311
    decode_corrupted(WARM_UP_MESSAGES, rng)
    peak_before_mib = peak_mib()
    start = time.perf_counter()
    outcomes = decode_corrupted(messages, rng)
    took_s = time.perf_counter() - start
    growth_mib = peak_mib() - peak_before_mib
    counts = ", ".join(f"{count:,} {name}" for name, count in outcomes.most_common())
    return [
        f"The decoder, {messages:,} messages, of five two are valid ones with bytes changed, two "
        "with a field of a tensor changed, one is random bytes: "
        f"{counts}; nothing else came out of it. "
        f"{took_s:.0f} s, {1e6 * took_s / messages:.0f} µs each; "
        f"peak memory {peak_before_mib:.0f} MiB before and {growth_mib:+.1f} MiB after.",
    ]


def peak_mib() -> float:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def resident_mib() -> float:
    """Return the memory that this process uses now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


class Attack:
    """Strangers and a registered device that misbehave until enough messages were sent."""

    def __init__(self, run: Run, messages: int, seed: int) -> None:
        self.run = run
        self.messages = messages
        self.left = messages
        self.status_codes = Counter[str]()
        self.without_reason = 0
        self.memory_mib: list[float] = []
        self._next_reading = messages - messages // MEMORY_READINGS
        self._threads = [
            threading.Thread(target=work, args=(random.Random(seed + number),))  # noqa: S311
            for number, work in enumerate((self._attack_as_strangers, self._attack_as_device))
        ]

    def start(self) -> None:
        """Begin to send."""
        for thread in self._threads:
            thread.start()

    def is_running(self) -> bool:
        """Return whether messages are still being sent."""
        return any(thread.is_alive() for thread in self._threads)

    def _attack_as_strangers(self, rng: random.Random) -> None:
        attacker = Attacker(self.run.address)
        while self.left > 0:
            if rng.random() < 0.2:
                messages = [nonsense(rng)]
            else:
                messages = strange(rng, self.run.serving.server.desk.run)
            self._count(len(messages), attacker.say(messages))
        attacker.close()

    def _attack_as_device(self, rng: random.Random) -> None:
        """Join as the last device, break a rule in the middle of a round, and join again."""
        attacker = Attacker(self.run.address)
        violations = list(IN_A_ROUND.values())
        while self.left > 0:
            self._count(3, attacker.misbehave("3", rng.choice(violations)))
        attacker.close()

    def _count(self, messages: int, outcome: Any) -> None:
        self.left -= messages
        self.status_codes[outcome.code.name] += 1
        self.without_reason += not outcome.details
        if self.left <= self._next_reading:
            self._next_reading -= self.messages // MEMORY_READINGS
            self.memory_mib.append(resident_mib())


@dataclass
class TrainingResult:
    """Result of the honest devices, and whether the server stopped when it was asked to."""

    rounds: int
    losses: list[float]
    tensors: dict[str, Tensor]
    stopped: bool


def train(
    folder: Path, splits: list[int], rounds: int, begin: Callable[[Run], Attack] | None = None
) -> tuple[TrainingResult, Attack | None]:
    """Train with three honest devices for some rounds, and until an attack is over."""
    attack = None
    done = 0
    stopped = True
    try:
        with running(scenario(splits, rounds=10**6, evaluate_every=10**6), folder) as run:
            if begin is not None:
                attack = begin(run)
            run.join(*HONEST)
            records = iter(run.serving)
            while done < rounds or (attack is not None and attack.is_running()):
                next(records)
                done += 1
            losses, tensors = run.result()
            run.serving.server.orders.end("")
    except TooLong:
        # Raised when the context ends, after the result was taken.
        stopped = False
    return TrainingResult(done, losses, tensors, stopped), attack


def attack_server(messages: int, seed: int) -> list[str]:
    """Attack a server that trains, and return the paragraph about it."""

    def begin(run: Run) -> Attack:
        attack = Attack(run, messages, seed)
        attack.start()
        return attack

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        # The first run starts threads that stay, such as gRPC's.
        train(folder / "first", [1, 2, 3], 3)
        threads = threading.active_count()
        start = time.perf_counter()
        attacked, attack = train(folder / "attacked", [1, 2, 3, 1], 1, begin)
        took_s = time.perf_counter() - start
        more_threads = threading.active_count() - threads
        undisturbed, _ = train(folder / "alone", [1, 2, 3], attacked.rounds)
    assert attack is not None
    is_same = attacked.losses == undisturbed.losses and all(
        torch.equal(attacked.tensors[name], tensor) for name, tensor in undisturbed.tensors.items()
    )
    codes = ", ".join(f"{count:,} {name}" for name, count in attack.status_codes.most_common())
    memory = ", ".join(f"{mib:.0f}" for mib in attack.memory_mib)
    return [
        f"A live server, {messages:,} messages by strangers and by a registered device, while "
        f"three honest devices trained {attacked.rounds} rounds: streams ended with {codes}; "
        f"{attack.without_reason} of them without a reason. {took_s:.0f} s; memory after each "
        f"tenth of them {memory} MiB; threads {more_threads:+d}. "
        f"The honest devices' weights and losses are {'bit for bit' if is_same else 'NOT'} those "
        "of a run without the attack; "
        f"the server {'stopped' if attacked.stopped else 'did NOT stop'} when it was asked to.",
    ]


def main() -> None:
    """Print both paragraphs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--messages", type=int, default=1_000_000, help="for the decoder (default 1000000)"
    )
    parser.add_argument(
        "--live", type=int, default=10_000, help="messages for the server (default 10000)"
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed (default 0)")
    parser.add_argument("--out", type=Path, help="also write the page to this file")
    options = parser.parse_args()

    # gRPC logs every message that it cannot read.
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    lines = [
        "# Malformed messages",
        "",
        "`python benchmarks/malformed.py --out benchmarks/results/malformed.md` wrote this. "
        f"{describe_machine()}, torch {torch.__version__}, seed {options.seed}.",
        "",
        *attack_decoder(options.messages, options.seed),
        "",
        *attack_server(options.live, options.seed),
        "",
    ]
    text = "\n".join(lines)
    print(text)
    if options.out:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
