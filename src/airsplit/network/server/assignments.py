"""What the server orders devices to do, and how long it waits for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from airsplit.core.errors import AirsplitError
from airsplit.network.server.back_ends import BackEnd, OneCopy, SharingBackEnd
from airsplit.network.server.device_registry import ASSESSING, MOVING, Member, Work
from airsplit.network.server.forecast import Forecast
from airsplit.network.server.replanning import Moving
from airsplit.network.server.service import Desk
from airsplit.network.wire import airsplit_pb2 as pb
from airsplit.network.wire.codec import Outgoing
from airsplit.network.wire.pacing import TokenBucket, burst_bytes

LOOK_S = 0.2
"""How often the server looks at its clock while it waits for devices."""


PATIENCE = 20
"""An evaluation may take so many times as long as a device has for a round."""


class Stopped(Exception):
    """The server was asked to stop."""


class Unattended(AirsplitError):
    """Devices that were waited for did not come, or did not finish."""


class Orders:
    """Orders to devices.  Each has a number; what devices answer to an older one is recognized by it.

    stopping   why the server is to stop; empty while it is not
    """

    def __init__(self, desk: Desk) -> None:
        self._desk, self._tell = desk, desk.tell
        self._network, self._fedavg = (
            desk.scenario.network,
            desk.scenario.training.algorithm == "fedavg",
        )
        self.last, self.stopping = 0, ""

    def split_of(self, member: Member) -> int:
        """Where a device is cut; 0 where nothing is."""
        splits = self._desk.back_ends.splits
        return splits[member.number] if splits else 0

    def begin_from(self, member: Member) -> int:
        """The round after which a device's front is to begin."""
        found = member.begin_from(self.split_of(member))
        if found != member.version and self._desk.back_ends.splits:
            self._tell("begins anew", device=member.name, number=member.number, lost=member.version)
        return found

    # ---- orders ----------------------------------------------------------------------------------------------------------------
    def train(
        self, member: Member, number: int, forecast: Forecast, one_copy: OneCopy | None
    ) -> None:
        """A round; the caller has the lock, and the device is here."""
        ends, work = self._desk.back_ends, self._work(member, number, forecast)
        order = Outgoing(
            pb.ServerMessage(
                round=pb.Round(number=number, order=self.last, begin_from=self.begin_from(member))
            )
        )
        message, k = order.message.round, member.number
        if self._fedavg:
            if member.has_model != number - 1:
                order.put_named(message.model, ends.common)
                member.has_model = number - 1
        else:
            message.split = ends.splits[k]
            if one_copy is not None:
                work.back, work.one_copy = (
                    SharingBackEnd(self._desk.replica, ends.splits[k], ends.common, ends.own[k]),
                    one_copy,
                )
            else:
                work.back = BackEnd(self._desk.replica, ends.splits[k], ends.of(k))
        if self._network.pacing:
            message.up_bps = float(forecast.up_bps[k])
            self._pace(member, float(forecast.down_bps[k]))
        self._give(member, order)

    def assess(self, member: Member, number: int, forecast: Forecast) -> None:
        """An evaluation; the caller has the lock, and the device is here."""
        work = self._work(member, number, forecast) if member.work is None else member.work
        work.allowed_s = forecast.allowed_s(
            member.number, self._network
        )  # again with every message, but not for ever
        work.assess_until = time.monotonic() + PATIENCE * work.allowed_s
        work.state, work.deadline, work.order, work.round = (
            ASSESSING,
            time.monotonic() + work.allowed_s,
            self.last,
            number,
        )
        order = Outgoing(
            pb.ServerMessage(
                assess=pb.Assess(round=number, order=self.last, begin_from=self.begin_from(member))
            )
        )
        if self._fedavg:
            order.put_named(order.message.assess.model, self._desk.back_ends.common)
            member.has_model = number
        else:
            order.message.assess.split = self._desk.back_ends.splits[member.number]
        self._give(member, order)

    def move(self, member: Member, number: int, forecast: Forecast, move: Moving) -> int:
        """Layers that change sides; the caller has the lock, and the device is here.  The version of the front that is changed."""
        work = self._work(member, number, forecast)
        work.state, work.received = (
            MOVING,
            dict.fromkeys(move.wanted, torch.empty(0)),
        )  # what it is to bring
        version, own = self.begin_from(member), self._desk.back_ends.of(member.number)
        message = pb.Move(
            order=self.last, from_split=move.from_split, split=move.split, begin_from=version
        )
        order = Outgoing(pb.ServerMessage(move=message))
        order.put_named(order.message.move.layers, {name: own[name] for name in move.given})
        self._give(member, order)
        return version

    def end(self, why: str) -> None:
        """Tell every device that it is over; with a reason, it is told to come back."""
        with self._desk.changed:
            for member in self._desk.members:
                if member.session is not None:
                    self._give(
                        member,
                        Outgoing(
                            pb.ServerMessage(done=pb.Done(why=why, begin_from=member.version))
                        ),
                    )

    def _work(self, member: Member, number: int, forecast: Forecast) -> Work:
        now = time.monotonic()
        member.work = Work(
            self.last, number, now + forecast.allowed_s(member.number, self._network), began=now
        )
        return member.work

    def _pace(self, member: Member, down_bps: float) -> None:
        if member.session is not None and member.session.bucket.rate_bps != down_bps:
            member.session.bucket = TokenBucket(down_bps, burst_bytes(down_bps))

    def _give(self, member: Member, order: Outgoing[pb.ServerMessage]) -> None:
        if member.session is not None:
            member.session.give(order.sealed())

    # ---- waiting ---------------------------------------------------------------------------------------------------------------
    def wait(self, until: Callable[[], bool], seconds: float) -> bool:
        """Wait until something holds: whether it does; raises where the server is asked to stop."""
        end = time.monotonic() + seconds
        with self._desk.changed:
            while not until():
                self._require_running()
                if time.monotonic() > end:
                    return False
                self._desk.changed.wait(LOOK_S)
        return True

    def wait_for_work(self, members: Sequence[Member], state: str) -> None:
        """Wait until nobody is in a state any more; who is past the deadline is dropped."""
        with self._desk.changed:
            while busy := [
                member
                for member in members
                if member.work is not None and member.work.state == state
            ]:
                self._require_running()
                now = time.monotonic()
                for member in busy:
                    if member.work is not None and now > member.work.deadline:
                        member.work.drop(f"it was not done after {now - member.work.began:.1f} s")
                        member.has_model = -1  # it may never read the order that carried it
                        self._tell(
                            "dropped",
                            device=member.name,
                            number=member.number,
                            round=member.work.round,
                            why=member.work.why,
                        )
                self._desk.changed.wait(LOOK_S)

    def _require_running(self) -> None:
        if self.stopping:
            raise Stopped(self.stopping)
