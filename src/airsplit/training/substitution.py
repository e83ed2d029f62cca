"""A module called with other tensors in the place of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call

from airsplit.training.step import Tensors


class Substituted:
    """A module, and where in it tensors are that can be replaced.

    torch's own way to follow a tensor with several names leaves a module that has two names with the wrong tensors; so here each
    place is looked up, and each module counts once.
    """

    def __init__(self, module: nn.Module, replaced: Mapping[str, Tensor]) -> None:
        names = {id(tensor): name for name, tensor in replaced.items()}
        self.module, self._places = module, dict[str, str]()
        for path, part in module.named_modules():
            for attribute, tensor in (*part._parameters.items(), *part._buffers.items()):
                if id(tensor) in names:
                    self._places[f"{path}.{attribute}" if path else attribute] = names[id(tensor)]

    def __call__(self, tensors: Mapping[str, Tensor], inputs: Tensors | Sequence[Tensor]) -> Any:
        """What the module returns for these inputs, with these tensors for those of the same names."""
        placed = {place: tensors[name] for place, name in self._places.items() if name in tensors}
        return functional_call(self.module, placed, tuple(inputs), tie_weights=False)
