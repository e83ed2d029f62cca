"""The server: rounds as a generator, while devices come, train, go and come back on streams of their own."""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import torch
from google.protobuf.message import Message

from airsplit.errors import AirsplitError, Diverged, FileProblem, InvalidValue
from airsplit.fleet import Fleet
from airsplit.learn.checkpoint import Progress
from airsplit.learn.preparation import replica_of
from airsplit.learn.replica import state_names
from airsplit.network import airsplit_pb2 as pb
from airsplit.network.backends import BackEnd, BackEnds, Named, OneCopy, SharingBackEnd, one_copy_is_enough
from airsplit.network.codec import Malformed, Outgoing, parsed
from airsplit.network.desk import Desk, Tell
from airsplit.network.forecast import Forecast, expected, forecast, measured_fleet, message_limit, real_clock, require_memory
from airsplit.network.identity import Admission, Refused
from airsplit.network.keeping import Who, read_kept, write_kept
from airsplit.network.members import ASSESSED, ASSESSING, MOVED, MOVING, TRAINED, TRAINING, Member, Work
from airsplit.network.pacing import TokenBucket, burst_bytes
from airsplit.network.probe import measure_server
from airsplit.network.replanning import Moving, Watch, moving
from airsplit.network.sessions import Session
from airsplit.network.timekeeping import round_record
from airsplit.randomness import generator
from airsplit.results import RoundRecord
from airsplit.scenario import Scenario
from airsplit.units import Floats

ALGORITHMS = ("sfl", "fedavg")
ATTEMPTS = 5
"""So often a round is tried in which not enough devices finish, before the training is given up."""

LOOK_S = 0.2
"""How often the server looks at its clock while it waits for devices."""


def silent(event: str, **facts: Any) -> None:
    """Tell nobody."""


class Stopped(Exception):
    """The server was asked to stop."""


class Server:
    """A training over the network: everything is loaded and checked when it is made; `rounds` trains.

    devices    how many take part
    wait_s     how long the server waits for all of them at the beginning, and later for enough of them
    tell       is told what happens: the name of an event, and facts about it
    """

    def __init__(
        self, scenario: Scenario, *, devices: int, wait_s: float = 3600.0, admission: Admission | None = None, tell: Tell = silent
    ) -> None:
        _require_networkable(scenario, devices)
        self.settings, self.network = scenario.training, scenario.network
        self.replica, self.profile = replica_of(scenario)
        self.scenario = scenario.resolved(self.profile)
        self.needed_bytes = require_memory(self.scenario, self.replica, self.profile, devices)
        self.round, self.time_s = 0, 0.0
        self.forecast: Forecast | None = None
        self.desk = Desk(self.scenario, self.replica, self.profile, devices, admission, tell)
        self.desk.run, self.desk.limit_bytes = secrets.token_hex(8), message_limit(self.scenario, self.replica, self.profile)
        self.members, self._tell, self._wait_s = self.desk.members, tell, wait_s
        self._order, self._server_pace, self._stopping = 0, 0.0, ""
        self._replanned = False
        self._one_copy: OneCopy | None = None
        self._watch, self._moving_from = Watch(devices), dict[int, int]()
        self.keep: Callable[[], None] = lambda: None  # called when what must not be lost has changed between two rounds
        if not scenario.network.measure:
            self._fleet = self._given_fleet(devices)
            self.desk.preferred = {self._fleet.device_name(k): k for k in range(devices)}

    def _given_fleet(self, devices: int) -> Fleet:
        fleet = self.scenario.make_fleet()
        if len(fleet) != devices:
            raise InvalidValue(
                f"--devices must be as many as the fleet has, {len(fleet)}, with network.measure = false, got {devices}; change one of them"
            )
        return fleet

    # ---- what the transport calls ----------------------------------------------------------------------------------------------
    def join(self, arriving: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """One device's stream."""
        return Session(self.desk, context).converse(arriving)

    def status(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        """How far the training is and who is here, as JSON, for one who is admitted."""
        return self._answered(context, lambda: (parsed(pb.StatusRequest, data), pb.StatusReply(json=json.dumps(self.state())))[1])

    def measure(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        """Answer a measurement of the link, for one who is admitted."""
        return self._answered(context, lambda: self.desk.probed(parsed(pb.Probe, data)))

    def _answered(self, context: grpc.ServicerContext, answer: Callable[[], Message]) -> bytes:
        try:
            self.desk.require_admitted(context)
            return answer().SerializeToString()
        except Refused as error:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        except Malformed as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        raise AssertionError("abort raises")

    def state(self) -> dict[str, Any]:
        """How far the training is, and who is here."""
        now = time.monotonic()
        with self.desk.changed:
            devices = [_member_status(member, now) for member in self.members]
        about = {"run": self.desk.run, "round": self.round, "rounds": self.settings.rounds, "time_s": self.time_s}
        return about | {"algorithm": self.settings.algorithm, "planned_latency_s": self._planned_s(), "devices": devices}

    def _planned_s(self) -> float | None:
        return None if self.forecast is None else self.forecast.latency_s

    def stop(self, why: str) -> None:
        """Ask `rounds` to end: it raises Stopped, and the checkpoint of the last round stays."""
        self._stopping = why

    # ---- rounds ------------------------------------------------------------------------------------------------------------------
    def prepare(self) -> None:
        """Wait for all devices, then plan with what they have measured; not where a run is taken up."""
        if self.forecast is not None:
            self._wait_a_little()
            return
        self._wait(lambda: all(member.present for member in self.members), self._wait_s, self._missing)
        if self.network.measure:
            names = [member.name for member in self.members]
            self._fleet = measured_fleet(self.scenario, names, [member.measurement for member in self.members])
            self._server_pace = measure_server(self.replica, self.profile, batch_size=self.settings.batch_size)
        self.forecast = forecast(self.scenario, self.profile, self._fleet, self._clock())
        self._cut([] if self.settings.algorithm == "fedavg" else self.forecast.splits.tolist())
        self._tell("planned", splits=self.forecast.splits.tolist(), shares=self.forecast.shares.tolist(), latency_s=self.forecast.latency_s)

    def _wait_a_little(self) -> None:
        """Let the devices come back of a run that is taken up: a round without them would be theirs to lose."""
        end = time.monotonic() + self.network.grace_s
        with self.desk.changed:
            while time.monotonic() < end and not all(member.present for member in self.members):
                self._require_running()
                self.desk.changed.wait(LOOK_S)

    def _clock(self) -> Any:
        return real_clock(self.scenario, self._server_pace) if self.network.measure else self.scenario.make_clock()

    def _cut(self, splits: Sequence[int]) -> None:
        self.desk.back_ends = BackEnds.begun(self.replica, splits)

    def rounds(self) -> Iterator[RoundRecord]:
        """Train the rounds that are left.  A record comes when its round is over; `save` keeps it."""
        self.prepare()
        while self.round < self.settings.rounds:
            yield self._advance(self.round + 1)

    def _advance(self, number: int) -> RoundRecord:
        self._replanned = self.network.replan and number > 1 and self._replan()
        asked = self._asked(number)
        for _ in range(ATTEMPTS):
            began = time.monotonic()
            trained = self._train(number, asked)
            if len(trained) >= self._needed(asked):
                break
            self._require_finite(number, asked)
            self._tell("repeated", round=number, finished=len(trained), needed=self._needed(asked))
        else:
            raise Diverged(f"training stopped: round {number} was tried {ATTEMPTS} times, but {self._reasons(asked)}")
        latency = max(member.work.ended for member in trained if member.work) - began
        loss = self._average(trained)
        self._compare(number, trained, latency)
        self._evaluate(number, trained)
        self.round, self.time_s = number, self.time_s + latency
        return self._record(number, asked, trained, latency, loss)

    def _needed(self, asked: list[Member]) -> int:
        return min(self.network.min_devices, len(asked))

    def _require_finite(self, number: int, asked: list[Member]) -> None:
        """Raise where it is the training that went wrong, and not the devices."""
        for member in asked:
            if member.work is not None and member.work.diverged:
                rate = f"lower training.learning_rate, now {self.settings.learning_rate:g}"
                raise Diverged(f"training stopped at device {member.name}, round {number}: {member.work.why}; {rate}")

    def _reasons(self, asked: list[Member]) -> str:
        reasons = {member.work.why for member in asked if member.work is not None and member.work.why}
        return "; ".join(sorted(reasons)) or "devices did not finish"

    # ---- one round -----------------------------------------------------------------------------------------------------------------
    def _asked(self, number: int) -> list[Member]:
        """Who is to take part: as in the simulator."""
        K = len(self.members)
        wanted = max(1, math.ceil(self.settings.participation * K - 1e-9))
        chosen = generator(self.settings.seed, "participation", number).permutation(K)[:wanted]
        return [self.members[k] for k in sorted(chosen.tolist())]

    def _train(self, number: int, asked: list[Member]) -> list[Member]:
        """Let the devices that are here train: those that finished."""
        needed = self._needed(asked)
        self._wait(lambda: sum(member.present for member in asked) >= needed, self._wait_s, lambda: f"only {self._here(asked)} are here")
        self._order += 1
        with self.desk.changed:
            one_copy = self._one_copy = self._one_copy_if_enough()
            for member in self.members:
                member.work = None
            for member in asked:
                if member.present:
                    self._send_round(member, number, one_copy)
        self._wait_for_work(asked, TRAINING)
        return [member for member in asked if member.work is not None and member.work.state == TRAINED]

    def _split_of(self, member: Member) -> int:
        splits = self.desk.back_ends.splits
        return splits[member.number] if splits else 0

    def _begin_from(self, member: Member) -> int:
        """The round after which a device's front is to begin."""
        found = member.begin_from(self._split_of(member))
        if found != member.version and self.desk.back_ends.splits:
            self._tell("begins anew", device=member.name, number=member.number, lost=member.version)
        return found

    def _one_copy_if_enough(self) -> OneCopy | None:
        ends = self.desk.back_ends
        return OneCopy() if ends.splits and one_copy_is_enough(self.replica, list(ends.common), self.settings) else None

    def _send_round(self, member: Member, number: int, one_copy: OneCopy | None) -> None:
        assert self.forecast is not None  # noqa: S101 - rounds come after planning
        assert member.session is not None  # noqa: S101 - the caller has seen to it
        k, ends, now = member.number, self.desk.back_ends, time.monotonic()
        work = member.work = Work(self._order, number, now + self.forecast.allowed_s(k, self.network), began=now)
        order = Outgoing(pb.ServerMessage(round=pb.Round(number=number, order=self._order, begin_from=self._begin_from(member))))
        message = order.message.round
        if self.settings.algorithm == "fedavg":
            if member.has_model != self.round:
                order.put_named(message.model, self.desk.back_ends.common)
                member.has_model = self.round
        else:
            message.split = ends.splits[k]
            if one_copy is not None:
                work.back, work.one_copy = SharingBackEnd(self.replica, ends.splits[k], ends.common, ends.own[k]), one_copy
            else:
                work.back = BackEnd(self.replica, ends.splits[k], ends.of(k))
        if self.network.pacing:
            message.up_bps = float(self.forecast.up_bps[k])
            down = float(self.forecast.down_bps[k])
            if member.session.bucket.rate_bps != down:
                member.session.bucket = TokenBucket(down, burst_bytes(down))
        member.session.orders.put(order.sealed())

    def _average(self, trained: list[Member]) -> float:
        """Keep what the devices have trained, and average what is common: the mean loss."""
        weights = np.array([self.desk.weight(member) for member in trained])
        weights = weights / weights.sum()
        loss, results = 0.0, {}
        for member, weight in zip(trained, weights.tolist(), strict=True):
            work = member.work
            assert work is not None  # noqa: S101 - it has trained
            loss += weight * (sum(work.losses) / len(work.losses))
            results[member.number] = work.received if work.back is None else work.back.trained()
            work.back, work.kept, work.received = None, True, {}
        with self.desk.compute:
            self.desk.back_ends.merge(results, weights.tolist(), [member.number for member in trained])
            if self._one_copy is not None:
                self._one_copy.descend(self.replica, self.desk.back_ends.common)
        return loss

    # ---- evaluation ------------------------------------------------------------------------------------------------------------------
    def _evaluate(self, number: int, trained: list[Member]) -> None:
        """Let devices evaluate their models, where that is due."""
        for member in trained:
            member.version = number
            member.versions |= {(number, self._split_of(member))}
            member.has_model = -1
        if number % self.settings.evaluate_every and number != self.settings.rounds:
            return
        chosen = self._evaluated()
        with self.desk.changed:
            some = [member for member in self.members if member.number in chosen and _free(member)]
            for member in some:
                self._send_assess(member, number)
        self._wait_for_work(some, ASSESSING)
        self._require_finite(number, some)

    def _evaluated(self) -> set[int]:
        K, wanted = len(self.members), self.settings.evaluate_devices
        if wanted is None or wanted >= K:
            return set(range(K))
        return set(generator(self.settings.seed, "evaluated devices").permutation(K)[:wanted].tolist())

    def _send_assess(self, member: Member, number: int) -> None:
        assert self.forecast is not None  # noqa: S101 - rounds come after planning
        assert member.session is not None  # noqa: S101 - the caller has seen to it
        deadline = time.monotonic() + self.forecast.allowed_s(member.number, self.network)
        order = Outgoing(pb.ServerMessage(assess=pb.Assess(round=number, order=self._order, begin_from=self._begin_from(member))))
        message = order.message.assess
        if member.work is None:
            member.work = Work(self._order, number, deadline)
        member.work.allowed_s = self.forecast.allowed_s(member.number, self.network)  # again with every message
        member.work.state, member.work.deadline, member.work.order, member.work.round = ASSESSING, deadline, self._order, number
        if self.settings.algorithm == "fedavg":
            order.put_named(message.model, self.desk.back_ends.common)
            member.has_model = number
        else:
            message.split = self.desk.back_ends.splits[member.number]
        member.session.orders.put(order.sealed())

    # ---- planning anew ---------------------------------------------------------------------------------------------------------------
    def _compare(self, number: int, trained: list[Member], latency_s: float) -> None:
        """Hold what was predicted against what was measured."""
        assert self.forecast is not None  # noqa: S101 - rounds come after planning
        work = self._work_of_a_step()
        for member in trained:
            self._watch.look(member, float(work[member.number]), self.forecast)
        self._tell("compared", round=number, planned_s=self.forecast.latency_s, measured_s=latency_s)

    def _replan(self) -> bool:
        """Cut elsewhere where that promises to be worth it, and all devices are here: whether that was done."""
        assert self.forecast is not None  # noqa: S101 - rounds come after planning
        before = self.forecast
        if self.settings.algorithm == "fedavg" or not all(_free(member) for member in self.members):
            return False
        fleet = self._watch.refitted(before.fleet)
        now = expected(self.scenario, self.profile, fleet, before.clock, before.splits, before.shares)
        new = forecast(self.scenario, self.profile, fleet, before.clock)
        gain = 1 - new.latency_s / now.latency_s
        if gain < self.network.replan_gain:
            self._tell("stayed", gain=gain, latency_s=now.latency_s)
            return False
        splits = self._moved(new.splits.tolist())
        self._fleet, self.forecast = fleet, new
        if splits != new.splits.tolist():  # not every device could be moved
            self.forecast = expected(self.scenario, self.profile, fleet, before.clock, np.array(splits), new.shares)
        self._tell("replanned", gain=gain, latency_s=self.forecast.latency_s, splits=splits, shares=new.shares.tolist())
        self.keep()
        return True

    def _moved(self, splits: list[int]) -> list[int]:
        """Move layers between server and devices: the splits that hold afterwards."""
        ends = self.desk.back_ends
        moves = moving(self.replica, ends.splits, splits)
        self._order += 1
        some = [self.members[k] for k in moves]
        with self.desk.changed:
            for member in some:
                self._send_move(member, moves[member.number])
        self._wait_for_work(some, MOVING)
        arrived: list[Named] = [{} for _ in self.members]
        after = list(splits)
        for member in some:
            k, work = member.number, member.work
            if work is not None and work.state == MOVED:
                arrived[k] = work.received
                member.version = self._moving_from[k]
                member.versions |= {(member.version, splits[k])}
            else:
                after[k] = ends.splits[k]
            member.work = None
        weights = np.array([self.desk.weight(member) for member in self.members])
        ends.move(after, arrived, (weights / weights.sum()).tolist())
        return after

    def _send_move(self, member: Member, move: Moving) -> None:
        assert self.forecast is not None  # noqa: S101 - rounds come after planning
        assert member.session is not None  # noqa: S101 - the caller has seen to it
        k, now = member.number, time.monotonic()
        member.work = Work(self._order, self.round, now + self.forecast.allowed_s(k, self.network), state=MOVING, began=now)
        member.work.received = dict.fromkeys(move.wanted, torch.empty(0))  # what it is to bring
        self._moving_from[k] = self._begin_from(member)
        message = pb.Move(order=self._order, from_split=move.from_split, split=move.split, begin_from=self._moving_from[k])
        message.wanted.extend(move.wanted)
        order, own = Outgoing(pb.ServerMessage(move=message)), self.desk.back_ends.of(k)
        order.put_named(order.message.move.layers, {name: own[name] for name in move.given})
        member.session.orders.put(order.sealed())

    # ---- waiting -------------------------------------------------------------------------------------------------------------------
    def _wait(self, until: Callable[[], bool], seconds: float, missing: Callable[[], str]) -> None:
        """Wait until something holds; raises where that takes too long, or the server is asked to stop."""
        end = time.monotonic() + seconds
        with self.desk.changed:
            while not until():
                self._require_running()
                if time.monotonic() > end:
                    raise Unattended(f"after {seconds:g} s {missing()}; start the devices, or wait longer with --wait")
                self.desk.changed.wait(LOOK_S)

    def _wait_for_work(self, members: Sequence[Member], state: str) -> None:
        """Wait until nobody is in a state any more; who is past the deadline is dropped."""
        with self.desk.changed:
            while busy := [member for member in members if member.work is not None and member.work.state == state]:
                self._require_running()
                now = time.monotonic()
                for member in busy:
                    if member.work is not None and now > member.work.deadline:
                        member.work.drop(f"it was not done after {now - member.work.began:.1f} s")
                        self._tell("dropped", device=member.name, number=member.number, round=member.work.round, why=member.work.why)
                self.desk.changed.wait(LOOK_S)

    def _require_running(self) -> None:
        if self._stopping:
            raise Stopped(self._stopping)

    def _missing(self) -> str:
        here = [member.name for member in self.members if member.present]
        return f"{len(here)} of {len(self.members)} devices are here{': ' + ', '.join(here) if here else ''}"

    def _here(self, members: Sequence[Member]) -> str:
        return f"{sum(member.present for member in members)} of {len(members)} devices"

    # ---- what is left behind ---------------------------------------------------------------------------------------------------------
    def _record(self, number: int, asked: list[Member], trained: list[Member], latency_s: float, loss: float) -> RoundRecord:
        assert self.forecast is not None  # noqa: S101 - a round has been trained
        numbers = {member.number for member in trained}
        return round_record(
            number,
            time_s=self.time_s,
            latency_s=latency_s,
            loss=loss,
            asked=[member.number for member in asked],
            dropped=[member.number for member in asked if member.number not in numbers],
            members=self.members,
            work=self._work_of_a_step(),
            fleet=self.forecast.fleet,
            replanned=self.forecast if self._replanned else None,
            iterations=self.settings.iterations_per_round,
        )

    def _work_of_a_step(self) -> Floats:
        """MACs of each device in one iteration."""
        assert self.forecast is not None  # noqa: S101 - a round has been trained
        work = self.settings.batch_size * self.forecast.clock.work(self.profile)
        return np.full(len(self.members), work[-1]) if self.settings.algorithm == "fedavg" else work[self.forecast.splits - 1]

    def save(self, folder: Path) -> None:
        """Replace the checkpoint in a folder."""
        assert self.forecast is not None  # noqa: S101 - a round has been trained
        progress = Progress(
            round=self.round,
            virtual_time_s=self.time_s,
            boundary=self.desk.back_ends.boundary,
            splits=self.forecast.splits.tolist(),
            shares=self.forecast.shares.tolist(),
            planned_round=1,
            planned_time_s=0.0,
            fingerprint=self.profile.fingerprint,
            names=state_names(self.replica.model),
        )
        write_kept(folder, self.desk.back_ends, progress, self._who())

    def _who(self) -> Who:
        columns = ([member.name for member in self.members], [member.samples for member in self.members])
        return Who(self.desk.run, *columns, [member.version for member in self.members], self._order, self._server_pace)

    def restore(self, folder: Path, fleet: Fleet | None) -> bool:
        """Go on from the checkpoint in a folder, with the fleet that was planned for; False where there is no checkpoint."""
        kept = read_kept(folder, self.replica)
        if kept is None:
            return False
        back_ends, progress, who = kept
        if len(who.names) != len(self.members):
            raise FileProblem(f"the run has {len(who.names)} devices, got --devices {len(self.members)}; leave it out when resuming")
        self.round, self.time_s = progress.round, progress.virtual_time_s
        self._order, self._server_pace = who.order, who.server_seconds_per_mac
        self.desk.run, self.desk.back_ends = who.run, back_ends
        for member, name, samples, version in zip(self.members, who.names, who.samples, who.versions, strict=True):
            member.name, member.samples, member.version = name, samples, version
        if fleet is not None:
            self._fleet = fleet
        splits, shares = np.array(progress.splits), np.array(progress.shares)
        self.forecast = expected(self.scenario, self.profile, self._fleet, self._clock(), splits, shares)
        return True

    def end(self, why: str = "") -> None:
        """Tell every device that it is over; with a reason, it is told to come back."""
        with self.desk.changed:
            for member in self.members:
                if member.session is not None:
                    member.session.orders.put(Outgoing(pb.ServerMessage(done=pb.Done(why=why, begin_from=member.version))))

    def plan_document(self) -> dict[str, Any]:
        """What the run folder keeps of the plan."""
        assert self.forecast is not None  # noqa: S101 - it is planned
        about = {"device_names": [member.name for member in self.members], "all_split_names": list(self.profile.names)}
        return ({} if self.forecast.plan is None else self.forecast.plan.to_dict()) | about


class Unattended(AirsplitError):
    """Devices that were waited for did not come."""


def _free(member: Member) -> bool:
    """Whether a device waits for an order, or is about to."""
    if not member.present or member.session is None:
        return False
    return member.session.idle or (member.work is not None and member.work.state in (TRAINED, ASSESSED, MOVED))


def _member_status(member: Member, now: float) -> dict[str, Any]:
    state = "absent" if not member.present else member.work.state if member.work is not None else "waiting"
    seen = None if not member.last_seen else round(now - member.last_seen, 1)
    step = 0 if member.work is None else member.work.step
    about = {"number": member.number, "name": member.name, "state": state, "step": step, "last_seen_s": seen}
    return about | {"samples": member.samples, "version": member.version}


def _require_networkable(scenario: Scenario, devices: int) -> None:
    """Raise where a scenario asks for what only the simulator does."""
    settings, way = scenario.training, "airsplit run simulates it"
    if settings.algorithm not in ALGORITHMS:
        raise InvalidValue(f"training.algorithm must be one of {', '.join(ALGORITHMS)} over a network, got {settings.algorithm!r}; {way}")
    if settings.average_fronts_every is not None:
        raise InvalidValue(f"training.average_fronts_every would send front weights to the server, which devices never do; {way}")
    if settings.dropout_probability:
        raise InvalidValue(f"training.dropout_probability is for the simulator; real devices drop out by themselves; {way}")
    if settings.replan_every is not None:
        raise InvalidValue("training.replan_every is for the simulator; network.replan, or --replan, plans anew when that is worth it")
    if scenario.network.min_devices > devices:
        raise InvalidValue(f"network.min_devices must be at most the {devices} devices that take part, got {scenario.network.min_devices}")
    if scenario.fleet.trace is not None or scenario.fleet.redraw_fading:
        raise InvalidValue(f"fleet.trace and fleet.redraw_fading are for the simulator; {way}")
