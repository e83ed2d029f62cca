"""A live server under attack: every bad stream ends and says why, and honest devices notice nothing."""

from __future__ import annotations

import gc
import queue
import random
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch
from torch import Tensor

from airsplit.network.server import stream as sessions
from airsplit.network.wire import airsplit_pb2 as pb
from airsplit.network.wire.transport import SERVICE, connect
from network.hostile import (
    END,
    IN_A_ROUND,
    LATE,
    PATIENCE_S,
    Attacker,
    Bad,
    Member,
    Outcome,
    Run,
    Told,
    frame,
    hello,
    nonsense,
    running,
    scenario,
    strange,
    wire,
    within,
)

HONEST = ("0", "1", "2")
CLEAR = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}


def assert_clear(outcome: Outcome, name: str = "") -> None:
    """It ended with a code that says whose fault it was, and a sentence."""
    assert outcome.code in CLEAR, (name, outcome)
    assert 10 < len(outcome.details) < 2000, (name, outcome)


def assert_same(
    found: tuple[list[float], dict[str, Tensor]], wanted: tuple[list[float], dict[str, Tensor]]
) -> None:
    assert found[0] == wanted[0]
    assert found[1].keys() == wanted[1].keys()
    assert [
        name for name, tensor in wanted[1].items() if not torch.equal(found[1][name], tensor)
    ] == []


def undisturbed(folder: Path, **changes: Any) -> tuple[list[float], dict[str, Tensor]]:
    """What three honest devices make of it by themselves."""
    with running(scenario([1, 2, 3], **changes), folder) as run:
        run.join(*HONEST)
        assert all(record.dropped == () for record in run.train())
        return run.result()


def attacked(run: Run, streams: int, seed: int) -> Iterator[Outcome]:
    """Strangers, one stream after the other."""
    attacker, rng = Attacker(run.address), random.Random(seed)  # noqa: S311
    for _ in range(streams):
        yield attacker.say(strange(rng, run.serving.server.desk.run))
    attacker.close()


# ---- strangers -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("algorithm", ["sfl", "fedavg"])
def test_strangers_are_told_why_and_change_nothing(tmp_path: Path, algorithm: str) -> None:
    wanted = undisturbed(tmp_path / "alone", algorithm=algorithm)
    outcomes: list[Outcome] = []
    with running(scenario([1, 2, 3], algorithm=algorithm), tmp_path) as run:
        outcomes += attacked(run, 10, 1)
        threads = [
            threading.Thread(target=lambda seed=seed: outcomes.extend(attacked(run, 15, seed)))
            for seed in (2, 3)
        ]
        for thread in threads:
            thread.start()
        run.join(*HONEST)
        dropped = [record.dropped for record in run.train()]
        for thread in threads:
            thread.join()
        found = run.result()
    assert dropped == [()] * 3
    assert_same(found, wanted)
    assert set(run.said.items()) == {(name, "done") for name in HONEST}
    for outcome in outcomes[:10]:
        assert_clear(outcome)
    ends = Counter(outcome.code for outcome in outcomes)
    assert not ends.keys() - CLEAR - {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}, (
        ends
    )  # these where the run was over


def test_neither_memory_nor_threads_grow_with_bad_streams(tmp_path: Path) -> None:
    def held() -> tuple[int, int, int]:
        """Objects, threads, and the most memory there ever was, in MiB."""
        gc.collect()
        return (
            len(gc.get_objects()),
            threading.active_count(),
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        )

    with running(scenario([1, 2, 3]), tmp_path) as run:
        list(attacked(run, 30, 1))
        before = held()
        for outcome in attacked(run, 60, 2):
            assert_clear(outcome)
        grown = [after - once for after, once in zip(held(), before, strict=True)]
        assert (
            grown[0] < 60 or sys.gettrace() is not None
        )  # a tracer keeps something of each thread that there was
        assert grown[1] <= 2
        assert grown[2] < 60
        run.join(*HONEST)
        assert [record.dropped for record in run.train()] == [()] * 3


# ---- a device that should have been honest ---------------------------------------------------------------------------------------
def misbehaving(
    folder: Path, ways: dict[str, Bad], check: Callable[[str, Outcome], None], at_once: int = 6
) -> None:
    """Some devices misbehave in each round, in all ways in turn, beside three that do not; it must come to the same as without them."""
    several = [list(ways)[at : at + at_once] for at in range(0, len(ways), at_once)]
    settings = {"rounds": len(several), "evaluate_every": 1000}
    numbers = tuple(range(3, 3 + at_once))
    wanted = undisturbed(folder / "alone", **settings)
    with (
        running(scenario([1, 2, 3, *[1] * at_once], **settings), folder) as run,
        ThreadPoolExecutor(at_once) as pool,
    ):
        run.join(*HONEST)
        rounds, attacker = iter(run.serving), Attacker(run.address)
        for names in several:
            chosen = [names[at % len(names)] for at in range(at_once)]
            outcomes = [
                pool.submit(attacker.misbehave, str(k), ways[name])
                for k, name in zip(numbers, chosen, strict=True)
            ]
            run.wait_for(*numbers)
            assert within(lambda: next(rounds), PATIENCE_S).dropped == numbers, names
            for name, outcome in zip(chosen, outcomes, strict=True):
                check(name, outcome.result(PATIENCE_S))
        assert within(lambda: list(rounds), PATIENCE_S) == []
        attacker.close()
        found = run.result()
    assert_same(found, wanted)
    assert set(run.said.items()) == {(name, "done") for name in HONEST}


def test_members_that_misbehave_in_every_way_leave_no_trace(tmp_path: Path) -> None:
    def check(name: str, outcome: Outcome) -> None:
        assert outcome.answers[:2] == ["welcome", "round"], name
        assert_clear(outcome, name)

    misbehaving(tmp_path, IN_A_ROUND, check)


def test_what_comes_late_early_or_twice_counts_for_nothing(tmp_path: Path) -> None:
    def check(name: str, outcome: Outcome) -> None:
        assert outcome.answers == ["welcome", "round", *LATE[name][1]], name

    misbehaving(tmp_path, {name: late for name, (late, _) in LATE.items()}, check)


BEFORE_ARRIVING: dict[str, bytes] = {
    "another model": wire(arrived=pb.Arrived(fingerprint="another", samples=1)),
    "no model": wire(arrived=pb.Arrived(samples=1)),
    "a step": wire(step=pb.Step()),
    "ready": wire(ready=pb.Ready()),
    "moved": wire(moved=pb.Moved()),
    "hello again": hello("0"),
    "a probe too large": wire(probe=pb.Probe(answer_bytes=2**32 - 1)),
    "more samples than there are": wire(arrived=pb.Arrived(samples=2**63)),
    "nothing": b"",
    "an empty message": wire(),
}


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A server that waits for its devices."""
    with running(scenario([1, 2, 3]), tmp_path_factory.mktemp("waiting")) as run:
        yield run


@pytest.mark.parametrize("name", list(BEFORE_ARRIVING))
def test_a_device_that_has_not_arrived_may_do_little(waiting: Run, name: str) -> None:
    attacker = Attacker(waiting.address)
    outcome = attacker.say([hello("0"), BEFORE_ARRIVING[name]])
    attacker.close()
    assert_clear(outcome)
    assert outcome.answers == ["welcome"]


def test_a_device_may_probe_the_link_only_so_often(waiting: Run) -> None:
    attacker = Attacker(waiting.address)
    outcome = attacker.say([hello("0"), *[wire(probe=pb.Probe(answer_bytes=1))] * 1000])
    attacker.close()
    assert_clear(outcome)
    assert len(outcome.answers) < 100


def test_a_flood_of_messages_is_stopped(waiting: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MESSAGES_PER_S", 10)
    attacker = Attacker(waiting.address)
    outcome = attacker.say(
        [hello("0"), *[wire(probe=pb.Probe())] * 60]
    )  # which are not too many in themselves
    attacker.close()
    assert (outcome.code, outcome.details) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "a device may send at most 10 messages a second",
    )


def test_who_says_too_much_too_early_is_told(waiting: Run) -> None:
    attacker = Attacker(waiting.address)
    outcome = attacker.say([hello("0"), *[wire(ready=pb.Ready())] * 5000])
    attacker.close()
    assert_clear(outcome)


# ---- bytes that are no message ---------------------------------------------------------------------------------------------------
def test_a_server_that_was_sent_nonsense_says_so_and_still_stops(tmp_path: Path) -> None:
    rng = random.Random(1)  # noqa: S311
    with running(scenario([1, 2, 3]), tmp_path) as run:
        attacker = Attacker(run.address)
        for _ in range(40):
            data = nonsense(rng)
            for sent in ([data], [hello("0"), data]):
                outcome = attacker.say(sent)
                assert_clear(outcome, repr(data))
                assert outcome.code == grpc.StatusCode.INVALID_ARGUMENT
        attacker.close()
        within(run.serving._open.close, 2)


@pytest.mark.parametrize("method", ["Status", "Measure"])
def test_questions_that_are_no_message_are_refused(waiting: Run, method: str) -> None:
    with connect(waiting.address, None) as channel:
        ask = channel.unary_unary(f"/{SERVICE}/{method}")
        for data in (b"\xff" * 10, b"\x0a\xff", b"\x0b" * 1000):
            with pytest.raises(grpc.RpcError) as caught:
                ask(data, timeout=PATIENCE_S)
            assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
            assert "bytes that are no" in caught.value.details()


def test_a_question_for_too_many_bytes_is_refused(waiting: Run) -> None:
    with (
        connect(waiting.address, None) as channel,
        pytest.raises(grpc.RpcError, match="at most") as caught,
    ):
        channel.unary_unary(f"/{SERVICE}/Measure")(
            wire(probe=pb.Probe(answer_bytes=2**32 - 1)), timeout=PATIENCE_S
        )
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


# ---- streams that say nothing ------------------------------------------------------------------------------------------------------
def held_open(attacker: Attacker, said: list[bytes], streams: int) -> list[Any]:
    """Streams that say something, and then nothing more, but stay."""
    calls = []
    for _ in range(streams):
        outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        for each in said:
            outbox.put(each)
        calls.append((attacker._open(iter(outbox.get, None)), outbox))
    return calls


SILENT: dict[str, list[bytes]] = {
    "nothing at all": [],
    "the beginning of a message": [frame(piece=hello("0")[:3])],
}


@pytest.mark.parametrize("name", list(SILENT))
def test_streams_that_say_nothing_do_not_keep_devices_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(sessions, "SILENCE_S", 0.2)
    with running(scenario([1, 2, 3], rounds=1), tmp_path) as run:
        attacker = Attacker(run.address)
        calls = held_open(attacker, SILENT[name], 2 * len(HONEST) + 8)
        try:
            ends = [within(call.code, PATIENCE_S) for call, _ in calls]
            assert set(ends) <= {grpc.StatusCode.CANCELLED, *CLEAR}
            run.join(*HONEST)
            assert [record.dropped for record in run.train()] == [()]
        finally:
            for call, outbox in calls:
                call.cancel()
                outbox.put(None)
            attacker.close()


def test_a_device_that_waits_for_its_turn_is_not_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "SILENCE_S", 0.2)
    with running(scenario([1, 2, 3], rounds=1), tmp_path) as run:
        run.join("0", "1")
        run.wait_for(0, 1)
        time.sleep(0.4)
        run.join("2")
        assert [record.dropped for record in run.train()] == [()]
        assert run.serving.server.round == 1


# ---- members that train, but not as they should ------------------------------------------------------------------------------------
def with_a_member(run: Run, member: Member) -> list[Outcome]:
    """Two honest devices and one that is not: how its stream ended, where it did."""
    outcomes: list[Outcome] = []
    attacker = Attacker(run.address)
    thread = threading.Thread(
        target=lambda: outcomes.append(attacker.converse("2", member)), daemon=True
    )
    thread.start()
    run.join("0", "1")
    run.train()
    for each in (thread, *run.threads):
        each.join(PATIENCE_S)
    attacker.close()
    assert run.said == {"0": "done", "1": "done"}
    return outcomes


def test_federated_averaging_trains_nothing_for_a_device(tmp_path: Path) -> None:
    with running(
        scenario([1, 2, 3], algorithm="fedavg", rounds=1, evaluate_every=1000), tmp_path
    ) as run:
        (outcome,) = with_a_member(
            run, Member(in_round=lambda told, _: [told.step([torch.zeros(4, 7)])])
        )
    assert_clear(outcome)
    assert "trains the model by itself" in outcome.details


def test_federated_averaging_evaluates_nothing_for_a_device(tmp_path: Path) -> None:
    with running(scenario([1, 2, 3], algorithm="fedavg", rounds=1), tmp_path) as run:
        member = Member(assessing=lambda told, _: [told.evaluate([torch.zeros(4, 7)])])
        (outcome,) = with_a_member(run, member)
    assert_clear(outcome)
    assert "evaluates the model by itself" in outcome.details


@pytest.mark.parametrize(
    "times",
    [
        {"compute_s": 1.7e308, "transmit_s": 1.7e308, "server_s": 1.7e308},
        {"step_compute_s": [60.0, 0.1]},
    ],
)
def test_a_device_that_says_it_took_for_ever_does_not_break_the_run(
    tmp_path: Path, times: dict[str, Any]
) -> None:
    member = Member(at_end=lambda told, _: [told.finished(**times)])
    with running(scenario([1, 2, 3], rounds=1, evaluate_every=1000), tmp_path) as run:
        (outcome,) = with_a_member(run, member)
    assert_clear(outcome)
    assert "times must be from 0" in outcome.details


def test_a_device_cannot_have_more_test_samples_than_anybody(waiting: Run) -> None:
    attacker = Attacker(waiting.address)
    outcome = attacker.converse("0", Member(about={"test_samples": 2**63}))
    attacker.close()
    assert_clear(outcome)
    assert "and as many to test on" in outcome.details


def test_a_device_cannot_ask_for_a_year_to_evaluate_its_model(tmp_path: Path) -> None:
    allowed_s: list[float] = []

    def assessing(told: Told, answer: pb.ServerMessage) -> list[Any]:
        work = run.serving.server.members[2].work
        allowed_s.append(work.deadline - time.monotonic() if work is not None else 0.0)
        return [None]

    with running(scenario([1, 2, 3], rounds=1), tmp_path) as run:
        with_a_member(run, Member(assessing=assessing, about={"test_samples": 10**9}))
    assert allowed_s[0] < 1e3


def test_a_device_cannot_evaluate_more_than_it_said_that_it_has(tmp_path: Path) -> None:
    with running(scenario([1, 2, 3], rounds=1), tmp_path) as run:
        member = Member(assessing=lambda told, _: [told.evaluate()] * 3, about={"test_samples": 8})
        (outcome,) = with_a_member(run, member)
    assert outcome.answers[-2:] == ["score", "score"]
    assert_clear(outcome)
    assert "8 test samples sent more" in outcome.details


NO_NUMBERS: dict[str, Callable[[Told], bytes]] = {
    "activations that are none": lambda t: t.evaluate([t.activations() * float("nan")]),
    "labels that do not count": lambda t: t.evaluate(labels=torch.full((4,), -100)),
}


@pytest.mark.parametrize("name", list(NO_NUMBERS))
def test_a_device_whose_evaluation_is_no_number_does_not_end_the_run(
    tmp_path: Path, name: str
) -> None:
    with running(scenario([1, 2, 3], rounds=1), tmp_path) as run:
        with_a_member(run, Member(assessing=lambda told, _: [NO_NUMBERS[name](told), END]))


ODD_TENSORS: dict[str, tuple[Callable[[Told], Any], Tensor]] = {
    "another shape": (lambda t: torch.zeros(4, 6), torch.zeros(4).long()),
    "an axis more": (lambda t: t.activations()[None], torch.zeros(4).long()),
    "another type": (lambda t: t.activations().double(), torch.zeros(4).long()),
    "another type of the same size": (lambda t: t.activations().int(), torch.zeros(4).long()),
    "fewer samples than labels": (lambda t: t.activations()[:3], torch.zeros(4).long()),
    "more samples than labels": (lambda t: t.activations(), torch.zeros(3).long()),
}


@pytest.mark.parametrize("evaluating", [False, True])
def test_what_does_not_fit_the_cut_is_refused_before_anything_is_computed(
    tmp_path: Path, evaluating: bool
) -> None:
    def member(made: Callable[[Told], Any], labels: Tensor) -> Member:
        if evaluating:
            return Member(assessing=lambda told, _: [told.evaluate([made(told)], labels)])
        return Member(in_round=lambda told, _: [told.step([made(told)], labels)])

    with running(scenario([1, 2, 3], rounds=len(ODD_TENSORS)), tmp_path) as run:
        run.join("0", "1")
        rounds, attacker = iter(run.serving), Attacker(run.address)
        for name, odd in ODD_TENSORS.items():
            outcome = attacker.converse_later("2", member(*odd))
            run.wait_for(2)
            assert within(lambda: next(rounds), PATIENCE_S).dropped == (
                () if evaluating else (2,)
            ), name
            assert_clear(outcome.result(PATIENCE_S), name)
            assert "what crosses the cut must be" in outcome.result().details, name
        assert within(lambda: list(rounds), PATIENCE_S) == []
        attacker.close()


# ---- two streams of one device -----------------------------------------------------------------------------------------------------
def test_a_stream_that_was_replaced_can_no_longer_act(tmp_path: Path) -> None:
    """A device trains on its second stream; its first one, which was told of the same order, has nothing more to say."""
    told: list[Told] = []
    replaced = threading.Event()

    def first(one: Told, _: pb.ServerMessage) -> list[Any]:
        """Say nothing until another stream has come, then go on as if nothing were."""
        told.append(one)
        assert replaced.wait(PATIENCE_S)
        return [one.step(), one.step(step=1), one.finished()]

    with (
        running(scenario([1, 2, 3], rounds=2, evaluate_every=1000), tmp_path) as run,
        ThreadPoolExecutor(2) as pool,
    ):
        attacker, other = Attacker(run.address), Attacker(run.address)
        run.join("0", "1")
        old = pool.submit(attacker.converse, "2", Member(in_round=first))
        rounds = iter(run.serving)
        round_1 = pool.submit(next, rounds)
        while not told:
            time.sleep(0.001)
        new = other.converse_later(
            "2", Member(in_round=lambda one, _: (told.append(one), [END])[1])
        )
        assert within(round_1.result, PATIENCE_S).dropped == (2,)
        replaced.set()
        outcome = old.result(PATIENCE_S)
        run.wait_for(2)
        assert within(lambda: next(rounds), PATIENCE_S).dropped == (2,)
        new.result(PATIENCE_S)
        assert within(lambda: list(rounds), PATIENCE_S) == []
        attacker.close()
        other.close()
    assert outcome.answers == ["welcome", "round"]
    assert outcome.code in {grpc.StatusCode.CANCELLED, *CLEAR}
    assert [each.round for each in told] == [1, 2]


SANE = {
    "seconds_per_mac": 1e-9,
    "fluctuation": 1e9,
    "up_bps": 1e6,
    "down_bps": 1e6,
    "round_trip_s": 0.01,
    "distance": 0.1,
}
ABSURD: dict[str, dict[str, float]] = {
    "slower than anything": {"seconds_per_mac": 1e300, "fluctuation": 1e-300},
    "faster than light": {"seconds_per_mac": 1e-300, "fluctuation": 1e300},
    "no rate to speak of": {"up_bps": 1e-300},
    "no end to its rate": {"down_bps": 1e308},
    "a way that is no number": {"round_trip_s": float("nan")},
    "a distance that is no number": {"distance": float("nan")},
    "infinite": {"up_bps": float("inf")},
    "below zero": {"seconds_per_mac": -1e-9},
    "nothing": dict.fromkeys(SANE, 0.0),
}


@pytest.fixture(scope="module")
def measuring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A server that waits for what its devices have measured."""
    with running(
        scenario([1, 2, 3], network__measure=True), tmp_path_factory.mktemp("measuring")
    ) as run:
        yield run


@pytest.mark.parametrize("name", list(ABSURD))
def test_a_device_whose_measurement_is_absurd_is_told_so(measuring: Run, name: str) -> None:
    attacker = Attacker(measuring.address)
    member = Member(about={"measurement": pb.Measurement(**SANE | ABSURD[name])})
    outcome = attacker.converse("0", member, timeout_s=2)
    attacker.close()
    assert_clear(outcome, name)
