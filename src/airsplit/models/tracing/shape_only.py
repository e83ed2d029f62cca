"""Functions that look at a tensor's shape, type and device, but not at its values.

x.new_zeros(5) does not depend on what is in x.  Written as torch.zeros(5, …), it can be made wherever it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Written = tuple[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]]
"""A function's name, the function, and what it is given."""

Makers = dict[str, Callable[..., Any]]
_NEW: Makers = {"new_zeros": torch.zeros, "new_ones": torch.ones, "new_empty": torch.empty}
_LIKE: Makers = {"zeros_like": torch.zeros, "ones_like": torch.ones, "empty_like": torch.empty}
_AS: Makers = {"expand_as": Tensor.expand, "view_as": Tensor.view, "reshape_as": Tensor.reshape}


def without_values(
    name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Written:
    """The same call without the tensors of which only the shape, type or device is used.

    >>> name, func, args, kwargs = without_values("zeros_like", torch.zeros_like, (torch.ones(2, 3, dtype=torch.int64),), {})
    >>> name, args, kwargs["dtype"], func(*args, **kwargs).sum().item()
    ('zeros', ((2, 3),), torch.int64, 0)
    """
    if not args:  # zeros_like(input=x)
        return name, func, args, kwargs
    if name in _NEW:
        sizes = args[1] if len(args) == 2 and not isinstance(args[1], int) else args[1:]
        sizes = kwargs.get("size", sizes)
        return _NEW[name].__name__, _NEW[name], (tuple(sizes),), _options(args[0], kwargs)
    if name == "new_full":
        size, value = (*args[1:], *(kwargs[key] for key in ("size", "fill_value") if key in kwargs))
        return "full", torch.full, (tuple(size), value), _options(args[0], kwargs)
    if name == "new_tensor":
        return (
            "tensor",
            torch.tensor,
            (args[1] if len(args) > 1 else kwargs["data"],),
            _options(args[0], kwargs),
        )
    if name in _LIKE:
        return _LIKE[name].__name__, _LIKE[name], (tuple(args[0].shape),), _options(args[0], kwargs)
    if name == "full_like":
        value = args[1] if len(args) > 1 else kwargs["fill_value"]
        return "full", torch.full, (tuple(args[0].shape), value), _options(args[0], kwargs)
    if name in _AS and len(args) == 2:
        return _AS[name].__name__, _AS[name], (args[0], tuple(args[1].shape)), {}
    if name in ("type_as", "to") and len(args) > 1 and isinstance(args[1], Tensor):
        return "to", Tensor.to, (args[0], args[1].device, args[1].dtype), kwargs
    return name, func, args, kwargs


def _options(like: Tensor, given: dict[str, Any]) -> dict[str, Any]:
    """Type and device as given, else those of the tensor."""
    return {"dtype": given.get("dtype") or like.dtype, "device": given.get("device") or like.device}
