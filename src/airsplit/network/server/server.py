"""The server: rounds as a generator, while devices come, train, go and come back on streams of their own."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from airsplit.core.arrays import Floats
from airsplit.core.errors import Diverged, FileProblem, InvalidValue, UserCodeError
from airsplit.data.batches import describe_short_devices
from airsplit.network.client.probe import measure_server
from airsplit.network.events import Tell, silent
from airsplit.network.identity.admission import Admission, Refused
from airsplit.network.server.assignments import Orders, Unattended
from airsplit.network.server.back_ends import BackEnds, Named, OneCopy, one_copy_is_enough
from airsplit.network.server.checkpoint import Who, read_kept, write_kept
from airsplit.network.server.device_registry import (
    ASSESSED,
    ASSESSING,
    MOVED,
    MOVING,
    TRAINED,
    TRAINING,
    Member,
)
from airsplit.network.server.forecast import (
    Forecast,
    expected,
    forecast,
    measured_fleet,
    message_limit,
    real_clock,
    require_memory,
    require_plannable,
)
from airsplit.network.server.replanning import Watch, moving
from airsplit.network.server.round_record import round_record
from airsplit.network.server.service import Desk
from airsplit.network.server.stream import Session
from airsplit.network.wire import airsplit_pb2 as pb
from airsplit.network.wire.codec import Malformed, opened, parsed
from airsplit.runs.metric import get_metric
from airsplit.runs.record import ENERGY_INCLUDES_COMPUTING, RoundRecord
from airsplit.scenario.scenario import Scenario
from airsplit.system.fleet import Fleet
from airsplit.training.checkpoint import Progress
from airsplit.training.participation import evaluated_devices, is_evaluated, participants
from airsplit.training.replica import state_names
from airsplit.training.setup import replica_of

ALGORITHMS = ("sfl", "fedavg")
ATTEMPTS = 5
"""So often a round is tried in which not enough devices finish, before the training is given up."""


class Server:
    """A training over the network: everything is loaded and checked when it is made; `rounds` trains.

    devices    how many take part
    wait_s     how long the server waits for all of them at the beginning, and later for enough of them
    admission  who is let in; None: everybody, under the name that it gives
    tell       is told what happens: the name of an event, and facts about it
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        devices: int,
        wait_s: float = 3600.0,
        admission: Admission | None = None,
        tell: Tell = silent,
    ) -> None:
        _require_networkable(scenario, devices)
        self.settings, self.network = scenario.training, scenario.network
        self.replica, self.profile = replica_of(scenario)
        self.scenario = scenario.resolve(self.profile)
        require_memory(self.scenario, self.replica, self.profile, devices)
        self.round, self.time_s = 0, 0.0
        self.forecast: Forecast | None = None
        self.desk = Desk(self.scenario, self.replica, self.profile, devices, admission, tell)
        self.desk.run, self.desk.limit_bytes = (
            secrets.token_hex(8),
            message_limit(self.scenario, self.replica, self.profile),
        )
        self.members, self._tell, self._wait_s = self.desk.members, tell, wait_s
        self.orders, self._server_pace = Orders(self.desk), 0.0
        self._replanned = False
        self._one_copy: OneCopy | None = None
        self._watch = Watch(devices)
        self.keep: Callable[[], None] = lambda: (
            None
        )  # called when what must not be lost has changed between two rounds
        self._fleet = _stand_in(devices)
        if not scenario.network.measure:
            self._fleet = self._given_fleet(devices)
            self.desk.preferred = {self._fleet.device_name(k): k for k in range(devices)}
        require_plannable(self.scenario, self.profile, self._fleet, self._clock())

    def _given_fleet(self, devices: int) -> Fleet:
        fleet = self.scenario.make_fleet()
        if len(fleet) != devices:
            raise InvalidValue(
                f"devices must be as many as the fleet has, {len(fleet)}, with network.measure = false, got {devices}"
            )
        return fleet

    # ---- what the transport calls ----------------------------------------------------------------------------------------------
    def join(self, arriving: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """One device's stream."""
        return Session(self.desk, context).converse(arriving)

    def status(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        """How far the training is and who is here, as JSON, for one who is admitted."""
        return self._answered(context, lambda: self._told(parsed(pb.StatusRequest, data)))

    def _told(self, _: pb.StatusRequest) -> bytes:
        return pb.StatusReply(json=json.dumps(self.state())).SerializeToString()

    def measure(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        """Answer a measurement of the link, for one who is admitted."""
        limit = self.desk.header_limit
        return self._answered(
            context,
            lambda: self.desk.probed(opened(pb.DeviceMessage, data, limit).message.probe).frame(),
        )

    def _answered(self, context: grpc.ServicerContext, answer: Callable[[], bytes]) -> bytes:
        try:
            self.desk.require_admitted(context)
            return answer()
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
        about = {
            "run": self.desk.run,
            "round": self.round,
            "rounds": self.settings.rounds,
            "time_s": self.time_s,
        }
        return about | {
            "algorithm": self.settings.algorithm,
            "planned_latency_s": self.forecast and self.forecast.latency_s,
            "devices": devices,
        }

    @property
    def _planned(self) -> Forecast:
        """The forecast in force; there is one once devices have come."""
        if self.forecast is None:
            raise Unattended("there is no plan yet: devices have not come")
        return self.forecast

    def stop(self, why: str) -> None:
        """Ask `rounds` to end: it raises Stopped, and the checkpoint of the last round stays."""
        self.orders.stopping = why

    # ---- rounds ------------------------------------------------------------------------------------------------------------------
    def prepare(self) -> None:
        """Wait for all devices, then plan with what they have measured; not where a run is taken up."""
        if self.forecast is not None:
            return
        self._wait_for(self.all_here, self._missing)
        held = np.array([member.samples for member in self.members])
        short = describe_short_devices(
            held, self.settings.batch_size, lambda k: self.members[k].name, "the plan counts"
        )
        if short is not None:
            self._tell("short of samples", note=short)
        if self.network.measure:
            names = [member.name for member in self.members]
            self._fleet = measured_fleet(
                self.scenario, names, [member.measurement for member in self.members]
            )
            self._server_pace = measure_server(
                self.replica, self.profile, batch_size=self.settings.batch_size
            )
        self.forecast = forecast(self.scenario, self.profile, self._fleet, self._clock())
        self._cut([] if self.settings.algorithm == "fedavg" else self.forecast.splits.tolist())
        self._tell(
            "planned",
            splits=self.forecast.splits.tolist(),
            shares=self.forecast.shares.tolist(),
            latency_s=self.forecast.latency_s,
        )

    def _clock(self) -> Any:
        return (
            real_clock(self.scenario, self._server_pace)
            if self.network.measure
            else self.scenario.make_clock()
        )

    def _cut(self, splits: Sequence[int]) -> None:
        self.desk.back_ends = BackEnds.begun(self.replica, splits)

    def rounds(self) -> Iterator[RoundRecord]:
        """Train the rounds that are left.  A record comes when its round is over; `save` keeps it."""
        self.prepare()
        if (
            0 < self.round < self.settings.rounds
        ):  # taken up: a round without those who are on their way would be theirs to lose
            self.orders.wait(self.all_here, self.network.grace_s)
        while self.round < self.settings.rounds:
            yield self._advance(self.round + 1)

    def _advance(self, number: int) -> RoundRecord:
        self._replanned = self.network.replan and number > 1 and self._replan()
        asked = [self.members[k] for k in participants(self.settings, number, len(self.members))]
        for _ in range(ATTEMPTS):
            trained = self._train(number, asked)
            if len(trained) >= self._needed(asked):
                break
            if not trained:
                self._require_sound(number, asked)
            self._tell("repeated", round=number, finished=len(trained), needed=self._needed(asked))
        else:
            raise Unattended(
                f"training stopped: round {number} was tried {ATTEMPTS} times, but {self._reasons(asked)}"
            )
        works = [member.work for member in trained if member.work is not None]
        latency = max(work.ended for work in works) - min(work.began for work in works)
        loss = self._average(trained)
        self._compare(number, trained, latency)
        self._evaluate(number, trained)
        self.round, self.time_s = number, self.time_s + latency
        return self._record(number, asked, trained, latency, loss)

    def _needed(self, asked: list[Member]) -> int:
        return min(self.network.min_devices, len(asked))

    def _require_sound(self, number: int, asked: list[Member]) -> None:
        """Raise where it is the training that went wrong, and not the devices."""
        for member in asked:
            if member.work is not None and member.work.diverged:
                rate = f"lower training.learning_rate, now {self.settings.learning_rate:g}"
                raise Diverged(
                    f"training stopped at device {member.name}, round {number}: {member.work.why}; {rate}"
                )
        failures = [
            member.work.failure
            for member in asked
            if member.work is not None and member.work.failure is not None
        ]
        # one device may send data that the user's code cannot take, but not all of them
        if failures and len(failures) == len(asked):
            raise UserCodeError(f"training stopped in round {number}: {failures[0]}") from failures[
                0
            ].__cause__

    def _reasons(self, asked: list[Member]) -> str:
        reasons = {
            member.work.why for member in asked if member.work is not None and member.work.why
        }
        return "; ".join(sorted(reasons)) or "devices did not finish"

    # ---- one round -----------------------------------------------------------------------------------------------------------------
    def _train(self, number: int, asked: list[Member]) -> list[Member]:
        """Let the devices that are here train: those that finished."""
        needed = self._needed(asked)
        self._wait_for(
            lambda: sum(member.present for member in asked) >= needed,
            lambda: f"only {self._here(asked)} are here",
        )
        self.orders.last += 1
        with self.desk.changed:
            one_copy = self._one_copy = self._one_copy_if_enough()
            for member in self.members:
                member.work = None
            for member in asked:
                if member.present:
                    self.orders.train(member, number, self._planned, one_copy)
        self.orders.wait_for_work(asked, TRAINING)
        return [
            member for member in asked if member.work is not None and member.work.state == TRAINED
        ]

    def _one_copy_if_enough(self) -> OneCopy | None:
        ends = self.desk.back_ends
        return (
            OneCopy()
            if ends.splits and one_copy_is_enough(self.replica, list(ends.common), self.settings)
            else None
        )

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
            work.back, work.received = None, {}
        with self.desk.compute:
            self.desk.back_ends.merge(
                results, weights.tolist(), [member.number for member in trained]
            )
            if self._one_copy is not None:
                self._one_copy.descend(self.replica, self.desk.back_ends.common)
        return loss

    # ---- evaluation ------------------------------------------------------------------------------------------------------------------
    def _evaluate(self, number: int, trained: list[Member]) -> None:
        """Let devices evaluate their models, where that is due."""
        for member in trained:
            member.version = number
            member.has_model = -1
        if not is_evaluated(self.settings, number):
            return
        chosen = [
            self.members[k] for k in evaluated_devices(self.settings, len(self.members), number)
        ]
        with self.desk.changed:
            some = [member for member in chosen if _free(member)]
            for member in some:
                self.orders.assess(member, number, self._planned)
        self.orders.wait_for_work(some, ASSESSING)
        if not any(
            member.work is not None and member.work.assessed for member in some
        ):  # one of them does not speak for all
            self._require_sound(number, some)

    # ---- planning anew ---------------------------------------------------------------------------------------------------------------
    def _compare(self, number: int, trained: list[Member], latency_s: float) -> None:
        """Hold what was predicted against what was measured."""
        work = self._work_of_a_step()
        for member in trained:
            self._watch.look(member, float(work[member.number]), self._planned)
        self._tell(
            "compared", round=number, planned_s=self._planned.latency_s, measured_s=latency_s
        )

    def _replan(self) -> bool:
        """Cut elsewhere where that promises to be worth it, and all devices are here: whether that was done."""
        before = self._planned
        if self.settings.algorithm == "fedavg" or not all(_free(member) for member in self.members):
            return False
        fleet = self._watch.refitted(before.fleet)
        now = expected(
            self.scenario, self.profile, fleet, before.clock, before.splits, before.shares
        )
        new = forecast(self.scenario, self.profile, fleet, before.clock)
        gain = 1 - new.latency_s / now.latency_s
        if gain < self.network.replan_gain:
            self._tell("stayed", gain=gain, latency_s=now.latency_s)
            return False
        splits = self._moved(new.splits.tolist())
        self._fleet, self.forecast = fleet, new
        self._watch.forget_links()
        if splits != new.splits.tolist():  # not every device could be moved
            self.forecast = expected(
                self.scenario, self.profile, fleet, before.clock, np.array(splits), new.shares
            )
        self._tell(
            "replanned",
            gain=gain,
            latency_s=self.forecast.latency_s,
            splits=splits,
            shares=new.shares.tolist(),
        )
        self.keep()
        return True

    def _moved(self, splits: list[int]) -> list[int]:
        """Move layers between server and devices: the splits that hold afterwards."""
        ends = self.desk.back_ends
        moves = moving(self.replica, ends.splits, splits)
        self.orders.last += 1
        some = [self.members[k] for k in moves]
        with self.desk.changed:
            for member in some:
                member.work = None
            here = [
                member for member in some if _free(member)
            ]  # planning takes a while: some may have left
            versions = {
                member.number: self.orders.move(
                    member, self.round, self._planned, moves[member.number]
                )
                for member in here
            }
        self.orders.wait_for_work(some, MOVING)
        arrived: list[Named] = [{} for _ in self.members]
        after = list(splits)
        for member in some:
            k, work = member.number, member.work
            if work is not None and work.state == MOVED:
                arrived[k] = work.received
                member.version = versions[k]
                member.versions |= {(member.version, splits[k])}
            else:
                after[k] = ends.splits[k]
            member.work = None
        weights = np.array([self.desk.weight(member) for member in self.members])
        ends.move(after, arrived, (weights / weights.sum()).tolist())
        return after

    def all_here(self) -> bool:
        """Whether all devices are connected."""
        return all(member.present for member in self.members)

    def _wait_for(self, until: Callable[[], bool], missing: Callable[[], str]) -> None:
        """Wait for devices; an error where they do not come."""
        if not self.orders.wait(until, self._wait_s):
            raise Unattended(
                f"after {self._wait_s:g} s {missing()}; start the devices, or wait longer with --wait"
            )

    def _missing(self) -> str:
        here = [member.name for member in self.members if member.present]
        return f"{len(here)} of {len(self.members)} devices are here{': ' + ', '.join(here) if here else ''}"

    def _here(self, members: Sequence[Member]) -> str:
        return f"{sum(member.present for member in members)} of {len(members)} devices"

    # ---- what is left behind ---------------------------------------------------------------------------------------------------------
    def _record(
        self, number: int, asked: list[Member], trained: list[Member], latency_s: float, loss: float
    ) -> RoundRecord:
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
            fleet=self._planned.fleet,
            replanned=self._planned if self._replanned else None,
            iterations=self.settings.iterations_per_round,
            measured=self.network.measure,
            metric=get_metric(self.settings),
        )

    def _work_of_a_step(self) -> Floats:
        """MACs of each device in one iteration."""
        work = self.settings.batch_size * self._planned.clock.work(self.profile)
        return (
            np.full(len(self.members), work[-1])
            if self.settings.algorithm == "fedavg"
            else work[self._planned.splits - 1]
        )

    def save(self, folder: Path) -> None:
        """Replace the checkpoint in a folder."""
        progress = Progress(
            round=self.round,
            virtual_time_s=self.time_s,
            boundary=self.desk.back_ends.boundary,
            splits=self._planned.splits.tolist(),
            shares=self._planned.shares.tolist(),
            planned_round=1,
            planned_time_s=0.0,
            fingerprint=self.profile.fingerprint,
            names=state_names(self.replica.model),
        )
        write_kept(folder, self.desk.back_ends, progress, self._who())

    def _who(self) -> Who:
        columns = (
            [member.name for member in self.members],
            [member.samples for member in self.members],
        )
        return Who(
            self.desk.run,
            *columns,
            [member.version for member in self.members],
            self.orders.last,
            self._server_pace,
        )

    def restore(self, folder: Path, fleet: Fleet | None) -> bool:
        """Go on from the checkpoint in a folder, with the fleet that was planned for; False where there is no checkpoint."""
        kept = read_kept(folder, self.replica, self.profile.fingerprint)
        if kept is None:
            return False
        back_ends, progress, who = kept
        if len(who.names) != len(self.members):
            raise FileProblem(
                f"the run has {len(who.names)} devices, got --devices {len(self.members)}; leave it out when resuming"
            )
        self.round, self.time_s = progress.round, progress.virtual_time_s
        self.orders.last, self._server_pace = who.order, who.server_seconds_per_mac
        self.desk.run, self.desk.back_ends = who.run, back_ends
        for member, name, samples, version in zip(
            self.members, who.names, who.samples, who.versions, strict=True
        ):
            member.name, member.samples, member.version = name, samples, version
        if fleet is not None:
            self._fleet = fleet
        splits, shares = np.array(progress.splits), np.array(progress.shares)
        self.forecast = expected(
            self.scenario, self.profile, self._fleet, self._clock(), splits, shares
        )
        return True

    def plan_document(self) -> dict[str, Any]:
        """What the run folder keeps of the plan."""
        about = {
            "device_names": [member.name for member in self.members],
            "all_split_names": list(self.profile.names),
            "networked": True,
        }
        about[ENERGY_INCLUDES_COMPUTING] = self._planned.fleet.joules_per_mac is not None
        return ({} if self._planned.plan is None else self._planned.plan.to_dict()) | about


def _stand_in(devices: int) -> Fleet:
    """A fleet of as many devices, before anything is known of them."""
    return Fleet(
        seconds_per_mac=np.full(devices, 1e-9),
        fluctuation=np.full(devices, 2e9),
        full_band_rate_bps=np.full(devices, 1e7),
    )


def _free(member: Member) -> bool:
    """Whether a device waits for an order, or is about to."""
    if not member.present or member.session is None:
        return False
    return member.session.idle or (
        member.work is not None and member.work.state in (TRAINED, ASSESSED, MOVED)
    )


def _member_status(member: Member, now: float) -> dict[str, Any]:
    state = "absent" if member.session is None else "measuring" if not member.arrived else "waiting"
    if member.present and member.work is not None:
        state = member.work.state
    seen = None if not member.last_seen else round(now - member.last_seen, 1)
    step = 0 if member.work is None else member.work.step
    about = {
        "number": member.number,
        "name": member.name,
        "state": state,
        "step": step,
        "last_seen_s": seen,
    }
    return about | {"samples": member.samples, "version": member.version}


def _require_networkable(scenario: Scenario, devices: int) -> None:
    """Raise where a scenario asks for what only the simulator does."""
    settings, way = scenario.training, "airsplit run simulates it"
    if settings.algorithm not in ALGORITHMS:
        raise InvalidValue(
            f"training.algorithm must be one of {', '.join(ALGORITHMS)} over a network, got {settings.algorithm!r}; {way}"
        )
    if settings.average_fronts_every is not None:
        raise InvalidValue(
            f"training.average_fronts_every would send front weights to the server, which devices never do; {way}"
        )
    if settings.dropout_probability:
        raise InvalidValue(
            f"training.dropout_probability is for the simulator; real devices drop out by themselves; {way}"
        )
    if settings.replan_every is not None:
        raise InvalidValue(
            "training.replan_every is for the simulator; network.replan, or --replan, plans anew when that is worth it"
        )
    if scenario.network.min_devices > devices:
        raise InvalidValue(
            f"network.min_devices must be at most the {devices} devices that take part, got {scenario.network.min_devices}"
        )
    if scenario.fleet.trace is not None or scenario.fleet.redraw_fading:
        raise InvalidValue(f"fleet.trace and fleet.redraw_fading are for the simulator; {way}")
