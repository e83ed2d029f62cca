"""State: everything that training changes, and how the copies of many devices become one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from airsplit.learn.replica import Replica, copy_into


@dataclass
class State:
    """Common tensors exist once; of the personal ones, those of the layers up to `boundary`, each device has its own.

    personal  by name, the devices stacked: K × the tensor's shape
    boundary  a split; 0 where nothing is personal
    """

    common: dict[str, Tensor]
    personal: dict[str, Tensor]
    boundary: int

    @classmethod
    def begun(cls, replica: Replica, boundary: int, devices: int) -> State:
        """Every device with the same tensors."""
        state = cls({name: tensor.clone() for name, tensor in replica.tensors.items()}, {}, 0)
        state.move(replica, boundary, [1 / devices] * devices)
        return state

    def of(self, device: int) -> dict[str, Tensor]:
        """Everything of one device; views, not copies."""
        return self.common | self.own(device)

    def own(self, device: int) -> dict[str, Tensor]:
        """The personal tensors of one device."""
        return {name: stacked[device] for name, stacked in self.personal.items()}

    def keep(self, device: int, tensors: Mapping[str, Tensor]) -> None:
        """Remember the personal tensors of a device."""
        copy_into([self.personal[name][device] for name in tensors], list(tensors.values()))

    def keep_common(self, replica: Replica, names: Iterable[str] | None = None) -> None:
        """Remember the common tensors as the replica has them; with `names`, only those."""
        chosen = list(self.common if names is None else names)
        copy_into([self.common[name] for name in chosen], [replica.tensors[name] for name in chosen])

    def move(self, replica: Replica, boundary: int, weights: Sequence[float]) -> None:
        """Move the boundary: newly common layers start from the mean of the copies, newly personal ones from the common value."""
        wanted = set(replica.front_keys(boundary))
        rising = [name for name in self.common if name in wanted]
        falling = [name for name in self.personal if name not in wanted]
        if falling:
            mean = Mean()
            for device, weight in enumerate(weights):
                mean.add({name: self.personal[name][device] for name in falling}, weight)
            self.common |= mean.result({name: self.personal[name][0] for name in falling})
            self.personal = {name: stacked for name, stacked in self.personal.items() if name not in falling}
        for name in rising:
            self.personal[name] = self.common.pop(name).expand(len(weights), *replica.tensors[name].shape).clone()
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
                if not (tensor.is_floating_point() or tensor.is_complex()):
                    self._first.setdefault(name, tensor.clone())
                elif name in self._sums:
                    self._sums[name].add_(tensor, alpha=weight)
                else:
                    self._sums[name] = _wide(tensor) * weight

    def result(self, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The means, in the types of these tensors."""
        return self._first | {name: total.to(like[name].dtype) for name, total in self._sums.items()}

    def into(self, tensors: Mapping[str, Tensor]) -> None:
        """Put the means in the place of these tensors."""
        made = self._first | self._sums
        copy_into([tensors[name] for name in made], list(made.values()))


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
