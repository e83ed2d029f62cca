"""Rewrite functions that use the shape, type and device of a tensor, but not its values.

x.new_zeros(5) does not depend on what is in x. As torch.zeros(5, …) it depends on no tensor, so
that both sides of a cut can call it and x need not be sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# A function's name, the function, and its arguments.
FunctionCall = tuple[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]]

_NEW: dict[str, Callable[..., Any]] = {
    "new_zeros": torch.zeros,
    "new_ones": torch.ones,
    "new_empty": torch.empty,
}
_LIKE: dict[str, Callable[..., Any]] = {
    "zeros_like": torch.zeros,
    "ones_like": torch.ones,
    "empty_like": torch.empty,
}
_AS: dict[str, Callable[..., Any]] = {
    "expand_as": Tensor.expand,
    "view_as": Tensor.view,
    "reshape_as": Tensor.reshape,
}


def drop_shape_arguments(
    name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> FunctionCall:
    """Return the same call without tensors of which only shape, type or device is used.

    >>> x = torch.ones(2, 3, dtype=torch.int64)
    >>> name, func, args, kwargs = drop_shape_arguments("zeros_like", torch.zeros_like, (x,), {})
    >>> name, args, kwargs["dtype"], func(*args, **kwargs).sum().item()
    ('zeros', ((2, 3),), torch.int64, 0)
    """
    # zeros_like(input=x) stays as it is: the tensor is sent, which is correct but not needed.
    if not args:
        return name, func, args, kwargs

    if name in _NEW:
        # Both new_zeros(2, 3) and new_zeros((2, 3)) are allowed.
        sizes = args[1] if len(args) == 2 and not isinstance(args[1], int) else args[1:]
        sizes = kwargs.get("size", sizes)
        func = _NEW[name]
        return func.__name__, func, (tuple(sizes),), _options(args[0], kwargs)
    if name == "new_full":
        named = (kwargs[key] for key in ("size", "fill_value") if key in kwargs)
        size, value = (*args[1:], *named)
        return "full", torch.full, (tuple(size), value), _options(args[0], kwargs)
    if name == "new_tensor":
        data = _second_argument(args, kwargs, "data")
        return "tensor", torch.tensor, (data,), _options(args[0], kwargs)

    if name in _LIKE:
        func = _LIKE[name]
        return func.__name__, func, (tuple(args[0].shape),), _options(args[0], kwargs)
    if name == "full_like":
        value = _second_argument(args, kwargs, "fill_value")
        return "full", torch.full, (tuple(args[0].shape), value), _options(args[0], kwargs)

    if name in _AS and len(args) == 2:
        func = _AS[name]
        return func.__name__, func, (args[0], tuple(args[1].shape)), {}
    if name in ("type_as", "to") and len(args) > 1 and isinstance(args[1], Tensor):
        return "to", Tensor.to, (args[0], args[1].device, args[1].dtype), kwargs
    return name, func, args, kwargs


def _second_argument(args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> Any:
    if len(args) > 1:
        return args[1]
    return kwargs[name]


def _options(like: Tensor, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return type and device as given, and otherwise those of a tensor."""
    return {
        "dtype": kwargs.get("dtype") or like.dtype,
        "device": kwargs.get("device") or like.device,
    }
