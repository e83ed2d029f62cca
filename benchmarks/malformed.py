"""Malformed messages: a million for the decoder, ten thousand for a live server that trains meanwhile.

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
from pathlib import Path
from typing import Any

import torch

from airsplit.network.wire import airsplit_pb2 as pb
from airsplit.network.wire.codec import DTYPES, NAMES, Malformed, Outgoing, opened
from airsplit.training.compression import VALUES
from machine import description

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from network.hostile import IN_A_ROUND, Attacker, Run, mutated, nonsense, running, scenario, strange

HONEST = ("0", "1", "2")
AT_ONCE = 1 << 10
LOOKS = 10
"""So often memory is looked at while a live server is attacked."""


# ---- the decoder -----------------------------------------------------------------------------------------------------------------
def valid() -> list[bytes]:
    """Frames of all kinds of messages with tensors in them, of every type and coding."""
    place = pb.Place(run="0123456789abcdef", round=3, order=4, step=1)
    several = [_step(place, coding) for coding in ("none", *VALUES)]
    evaluate = Outgoing(pb.DeviceMessage(evaluate=pb.Evaluate(place=place)))
    for coding in ("none", *VALUES):
        evaluate.put(evaluate.message.evaluate.activations.add(), torch.randn(2, 3, 2), coding)
    plain = {name: torch.ones(3, 2).to(dtype) for name, dtype in DTYPES.items()}
    finished = Outgoing(pb.DeviceMessage(finished=pb.Finished(place=place)))
    finished.put_named(finished.message.finished.model, plain)
    several += [evaluate, finished]
    for name, tensor in plain.items():
        moved = Outgoing(pb.DeviceMessage(moved=pb.Moved(order=1)))
        moved.put_named(moved.message.moved.layers, {name: tensor})
        several.append(moved)
    return [each.frame() for each in several]


def _step(place: pb.Place, coding: str) -> Outgoing[pb.DeviceMessage]:
    sent = Outgoing(pb.DeviceMessage(step=pb.Step(place=place)))
    sent.put(sent.message.step.activations.add(), torch.randn(2, 3, 2), coding, wants_gradient=True)
    sent.put(sent.message.step.labels, torch.arange(2))
    return sent


def tensors_of(message: pb.DeviceMessage) -> Iterator[pb.Tensor]:
    """Those that the server would decode."""
    for body in (message.step, message.evaluate):
        yield from body.activations
        if body.HasField("labels"):
            yield body.labels
    yield from (
        each.tensor for each in itertools.chain(message.finished.model, message.moved.layers)
    )


def outcome(data: bytes) -> str:
    """What comes of some bytes; anything but these three is an error, and ends the benchmark."""
    try:
        incoming = opened(pb.DeviceMessage, data)
    except Malformed:
        return "no message"
    try:
        for each in tensors_of(incoming.message):
            tensor = incoming.tensor(each)
            assert (NAMES[tensor.dtype], list(tensor.shape)) == (each.dtype, list(each.shape))
    except Malformed:
        return "a tensor refused"
    return "as its headers say"


FAR = (0, 1, 7, 8, 23, 24, 2**31, 2**32, 2**63, 2**64 - 24, 2**64 - 1)


def lie(data: bytes, rng: random.Random) -> bytes:
    """A valid message with one field of one tensor changed to what it must not be, or might be; as protobuf writes it."""
    frame = pb.Frame.FromString(data)
    message = pb.DeviceMessage.FromString(frame.header)
    tensor, field = rng.choice(list(tensors_of(message))), rng.randrange(7)
    if field == 0:
        tensor.dtype = rng.choice([*DTYPES, "", "object", "x" * 1000])
    elif field == 1:
        tensor.shape[:] = [
            rng.choice((0, 1, 2, 3, 6, 2**16, 2**31, 2**32 - 1))
            for _ in range(rng.choice((0, 1, 2, 3, 16, 17)))
        ]
    elif field == 2:
        tensor.coding = rng.choice([*VALUES, "", "none", "zip"])
    elif field == 3:
        tensor.at = rng.choice((*FAR, rng.randrange(2 * len(frame.payload)), rng.randrange(2**64)))
    elif field == 4:
        tensor.scales_at = rng.choice(
            (*FAR, rng.randrange(2 * len(frame.payload)), rng.randrange(2**64))
        )
    elif field == 5:
        frame.payload = rng.randbytes(
            rng.choice((0, 1, len(frame.payload) - 1, len(frame.payload), 2 * len(frame.payload)))
        )
    else:
        tensor.absent = True
    frame.header = message.SerializeToString()
    return frame.SerializeToString()


def throw(messages: int, rng: random.Random) -> Counter[str]:
    """Mutations of valid messages, lies about one field, and random bytes."""
    found: Counter[str] = Counter()
    originals = valid()
    ways = (mutated, mutated, lie, lie, lambda _, rng: rng.randbytes(rng.randrange(1, 100)))
    for _ in range(messages):
        found[outcome(rng.choice(ways)(rng.choice(originals), rng))] += 1
    return found


def decoder(messages: int, seed: int) -> list[str]:
    rng = random.Random(seed)  # noqa: S311
    throw(AT_ONCE, rng)
    before, start = peak_mib(), time.perf_counter()
    found = throw(messages, rng)
    took, grown = time.perf_counter() - start, peak_mib() - before
    shares = ", ".join(f"{count:,} {name}" for name, count in found.most_common())
    return [
        f"The decoder, {messages:,} messages, of five two are valid ones with bytes changed, two with a field of a tensor changed, "
        f"one is random bytes: {shares}; "
        f"nothing else came out of it. {took:.0f} s, {1e6 * took / messages:.0f} µs each; "
        f"peak memory {before:.0f} MiB before and {grown:+.1f} MiB after.",
    ]


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def resident_mib() -> float:
    """Memory in use now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


# ---- a live server ---------------------------------------------------------------------------------------------------------------
class Attack:
    """Strangers and a member that misbehave until so many messages were sent."""

    def __init__(self, run: Run, messages: int, seed: int) -> None:
        self.run, self.messages, self.left, self.ends = run, messages, messages, Counter[str]()
        self.silent, self.next_look, self.memory_mib = (
            0,
            messages - messages // LOOKS,
            list[float](),
        )
        works = (self._strangers, self._member)
        self.threads = [
            threading.Thread(target=work, args=(random.Random(seed + at),))  # noqa: S311
            for at, work in enumerate(works)
        ]

    def _strangers(self, rng: random.Random) -> None:
        attacker = Attacker(self.run.address)
        while self.left > 0:
            sent = (
                [nonsense(rng)]
                if rng.random() < 0.2
                else strange(rng, self.run.serving.server.desk.run)
            )
            self._count(len(sent), attacker.say(sent))
        attacker.close()

    def _member(self, rng: random.Random) -> None:
        """The last device of the run: it joins, breaks a rule in the middle of a round, and joins again."""
        attacker, ways = Attacker(self.run.address), list(IN_A_ROUND.values())
        while self.left > 0:
            self._count(3, attacker.misbehave("3", rng.choice(ways)))
        attacker.close()

    def _count(self, sent: int, end: Any) -> None:
        self.left -= sent
        self.ends[end.code.name] += 1
        self.silent += not end.details
        if self.left <= self.next_look:
            self.next_look -= self.messages // LOOKS
            self.memory_mib.append(resident_mib())

    @property
    def going_on(self) -> bool:
        return any(thread.is_alive() for thread in self.threads)


def trained(
    folder: Path, splits: list[int], rounds: int, during: Callable[[Run], Attack | None]
) -> tuple[Any, int, Attack | None, bool]:
    """What honest devices make of it: the result, the rounds, the attack, and whether the server stopped in the end."""
    made = 0
    try:
        with running(scenario(splits, rounds=10**6, evaluate_every=10**6), folder) as run:
            attack = during(run)
            run.join(*HONEST)
            records = iter(run.serving)
            while made < rounds or (attack is not None and attack.going_on):
                next(records)
                made += 1
            result = run.result()
            run.serving.server.orders.end("")
    except TooLong:
        return result, made, attack, False
    return result, made, attack, True


def live(messages: int, seed: int) -> list[str]:
    def begin(run: Run) -> Attack:
        attack = Attack(run, messages, seed)
        for thread in attack.threads:
            thread.start()
        return attack

    with tempfile.TemporaryDirectory() as scratch:
        trained(Path(scratch) / "first", [1, 2, 3], 3, lambda _: None)
        threads, start = threading.active_count(), time.perf_counter()
        (losses, tensors), rounds, attack, stopped = trained(
            Path(scratch) / "attacked", [1, 2, 3, 1], 1, begin
        )
        took, more = time.perf_counter() - start, threading.active_count() - threads
        (wanted_losses, wanted), *_ = trained(
            Path(scratch) / "alone", [1, 2, 3], rounds, lambda _: None
        )
    assert attack is not None
    same = losses == wanted_losses and all(
        torch.equal(tensors[name], tensor) for name, tensor in wanted.items()
    )
    ends = ", ".join(f"{count:,} {name}" for name, count in attack.ends.most_common())
    memory = ", ".join(f"{each:.0f}" for each in attack.memory_mib)
    return [
        f"A live server, {messages:,} messages by strangers and by a member, while three honest devices trained {rounds} rounds: "
        f"streams ended with {ends}; {attack.silent} of them without a reason. "
        f"{took:.0f} s; memory after each tenth of them {memory} MiB; threads {more:+d}. "
        f"The honest devices' weights and losses are {'bit for bit' if same else 'NOT'} those of a run without the attack; "
        f"the server {'stopped' if stopped else 'did NOT stop'} when it was asked to.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--live", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)  # gRPC tells of every message that it cannot read
    torch.set_num_threads(1)
    text = "\n".join([
        "# Malformed messages", "",
        f"`python benchmarks/malformed.py --out benchmarks/results/malformed.md` wrote this.  {description()}, torch {torch.__version__}, "
        f"seed {arguments.seed}.", "",
        *decoder(arguments.messages, arguments.seed), "",
        *live(arguments.live, arguments.seed), "",
    ])  # fmt: skip
    print(text)
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
