"""State: everything that training changes, and how the copies of many devices become one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from airsplit.training.ranks import ALONE, Ranks
from airsplit.training.replica import Replica, copy_into


@dataclass
class State:
    """Common tensors exist once; of the personal ones, those of the layers up to `boundary`, each device has its own.

    personal  by name, the devices stacked: as many as are held × the tensor's shape
    boundary  a split; 0 where nothing is personal
    held      the devices whose personal tensors are here: all, or this process's share of them
    """

    common: dict[str, Tensor]
    personal: dict[str, Tensor]
    boundary: int
    held: range

    @classmethod
    def begun(cls, replica: Replica, boundary: int, held: range) -> State:
        """Every device with the same tensors."""
        state = cls({name: tensor.clone() for name, tensor in replica.tensors.items()}, {}, 0, held)
        state.move(replica, boundary, [])
        return state

    @classmethod
    def dealt(
        cls, whole: State | None, replica: Replica, boundary: int, devices: int, ranks: Ranks
    ) -> State:
        """The share of this process in a state that the first process has, of all devices."""
        state, personal = (
            cls({}, {}, boundary, ranks.share(devices)),
            set(replica.front_keys(boundary)),
        )
        for name, like in replica.tensors.items():
            if name in personal:
                state.personal[name] = ranks.scattered(
                    whole.personal[name] if whole else None, like, devices
                )
            else:
                state.common[name] = (
                    whole.common[name].to(like.device) if whole else torch.zeros_like(like)
                )
        ranks.spread(list(state.common.values()))
        return state

    def of(self, device: int) -> dict[str, Tensor]:
        """Everything of one device; views, not copies."""
        return self.common | self.own(device)

    def own(self, device: int) -> dict[str, Tensor]:
        """The personal tensors of one device."""
        return {name: stacked[self.held.index(device)] for name, stacked in self.personal.items()}

    def rows(self, devices: Sequence[int]) -> dict[str, Tensor]:
        """The personal tensors of several devices, stacked; copies."""
        return {
            name: stacked.index_select(0, self._places(devices, stacked))
            for name, stacked in self.personal.items()
        }

    def keep_rows(self, devices: Sequence[int], tensors: Mapping[str, Tensor]) -> None:
        """Remember the personal tensors of several devices."""
        for name, stacked in tensors.items():
            self.personal[name].index_copy_(0, self._places(devices, stacked), stacked)

    def _places(self, devices: Sequence[int], like: Tensor) -> Tensor:
        return torch.tensor([self.held.index(k) for k in devices], device=like.device)

    def keep(self, device: int, tensors: Mapping[str, Tensor]) -> None:
        """Remember the personal tensors of a device."""
        at = self.held.index(device)
        copy_into([self.personal[name][at] for name in tensors], list(tensors.values()))

    def keep_common(self, replica: Replica, names: Iterable[str] | None = None) -> None:
        """Remember the common tensors as the replica has them; with `names`, only those."""
        chosen = list(self.common if names is None else names)
        copy_into(
            [self.common[name] for name in chosen], [replica.tensors[name] for name in chosen]
        )

    def move(
        self, replica: Replica, boundary: int, weights: Sequence[float], ranks: Ranks = ALONE
    ) -> None:
        """Move the boundary: newly common layers start from the mean of the copies, newly personal ones from the common value.

        weights   of all devices in that mean
        """
        wanted = set(replica.front_keys(boundary))
        rising = [name for name in self.common if name in wanted]
        falling = [name for name in self.personal if name not in wanted]
        if falling:
            mean = Mean()
            for device in self.held:
                own = self.own(device)
                mean.add({name: own[name] for name in falling}, weights[device])
            mean.add_up(
                {name: replica.tensors[name] for name in falling},
                ranks,
                ranks.holder(0, len(weights)),
            )
            self.common |= mean.result(replica.tensors)
            self.personal = {
                name: stacked for name, stacked in self.personal.items() if name not in falling
            }
        for name in rising:
            self.personal[name] = (
                self.common.pop(name).expand(len(self.held), *replica.tensors[name].shape).clone()
            )
        self.boundary = boundary


class Mean:
    """A weighted mean of devices' tensors, one device at a time, in the order in which they come.

    Floating-point tensors are averaged, in float32 at least; whole numbers come from the first device.

    >>> mean = Mean()
    >>> mean.add({"w": torch.tensor([1.0])}, 0.5)
    >>> mean.add({"w": torch.tensor([4.0])}, 0.5)
    >>> mean.result({"w": torch.zeros(1)})
    {'w': tensor([2.5000])}
    """

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._first: dict[str, Tensor] = {}

    def add(self, tensors: Mapping[str, Tensor], weight: float) -> None:
        with torch.no_grad():
            for name, tensor in tensors.items():
                if not _is_averaged(tensor):
                    self._first.setdefault(name, tensor.clone())
                elif name in self._sums:
                    self._sums[name].add_(tensor, alpha=weight)
                else:
                    self._sums[name] = _wide(tensor) * weight

    def add_up(self, like: Mapping[str, Tensor], ranks: Ranks, first: int) -> None:
        """Add what other processes have, who have the same names; whole numbers come from process `first`, which has the first device."""
        if ranks.size == 1:
            return
        for name, tensor in like.items():
            if _is_averaged(tensor):
                self._sums.setdefault(name, torch.zeros_like(_wide(tensor)))
            else:
                self._first.setdefault(name, torch.zeros_like(tensor))
        ranks.add_up([self._sums[name] for name in like if name in self._sums])
        ranks.spread([self._first[name] for name in like if name in self._first], first)

    def result(self, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The means, in the types of these tensors."""
        return self._first | {
            name: total.to(like[name].dtype) for name, total in self._sums.items()
        }

    def into(self, tensors: Mapping[str, Tensor]) -> None:
        """Put the means in the place of these tensors."""
        made = self._first | self._sums
        copy_into([tensors[name] for name in made], list(made.values()))


def _is_averaged(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
