"""Light operations: what a layer or function does besides matrix products.

elementwise, and whatever is not known           1 per output element
pooling                                          k² per output element; that it also says where a maximum was costs nothing
adaptive pooling                                 input elements per output element
sums and means                                   1 per input element
normalization                                    2 per element
local response normalization                     n per element, with n its window
matrix products; views and look-ups              0
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

from torch import Tensor, nn
from torch.nn.modules import batchnorm, conv, instancenorm, pooling

# the private ancestors are the only types that all dimensions of a layer have in common
_PRODUCTS = (conv._ConvNd, nn.Linear, nn.Bilinear)
_VIEWS = (nn.Flatten, nn.Unflatten, nn.Identity)
_LOOK_UPS = (nn.Embedding, nn.EmbeddingBag)
_POOLING = (
    pooling._MaxPoolNd,
    pooling._AvgPoolNd,
    pooling._LPPoolNd,
    nn.FractionalMaxPool2d,
    nn.FractionalMaxPool3d,
)
_ADAPTIVE = (pooling._AdaptiveAvgPoolNd, pooling._AdaptiveMaxPoolNd)
_NORMS = (batchnorm._BatchNorm, instancenorm._InstanceNorm, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
_RESPONSE_NORMS = (nn.LocalResponseNorm, nn.CrossMapLRN2d)

_PRODUCT_NAMES = {
    "linear",
    "bilinear",
    "matmul",
    "__matmul__",
    "__rmatmul__",
    "mm",
    "bmm",
    "mv",
    "dot",
    "addmm",
    "baddbmm",
    "einsum",
}
_PRODUCT_NAMES |= {
    f"conv{transposed}{d}d" for d in (1, 2, 3) for transposed in ("", "_transpose")
} | {"scaled_dot_product_attention"}
_LOOK_UP_NAMES = {
    "embedding",
    "embedding_bag",
    "__getitem__",
    "gather",
    "index_select",
    "take",
    "take_along_dim",
    "one_hot",
}
_MOVE_NAMES = {
    "cat",
    "concat",
    "stack",
    "pad",
    "contiguous",
    "reshape",
    "flatten",
    "repeat",
    "repeat_interleave",
    "roll",
    "clone",
    "to",
}
_MOVE_NAMES |= {
    "type_as",
    "float",
    "half",
    "bfloat16",
    "new_zeros",
    "new_ones",
    "zeros_like",
    "ones_like",
    "empty_like",
    "__setitem__",
}
_NORM_NAMES = {"layer_norm", "batch_norm", "group_norm", "instance_norm", "rms_norm", "normalize"}
_REDUCTION_NAMES = {
    "mean",
    "sum",
    "amax",
    "amin",
    "max",
    "min",
    "var",
    "std",
    "norm",
    "prod",
    "logsumexp",
    "argmax",
    "argmin",
}
_POOL_NAMES = {
    f"{kind}_pool{d}d" for d in (1, 2, 3) for kind in ("max", "avg", "lp", "fractional_max")
}
_ADAPTIVE_NAMES = {f"adaptive_{kind}_pool{d}d" for d in (1, 2, 3) for kind in ("max", "avg")}
_FREE = _PRODUCT_NAMES | _LOOK_UP_NAMES | _MOVE_NAMES


def light_operations_of_layer(
    layer: nn.Module, given: Sequence[Tensor], returned: Sequence[Tensor]
) -> int:
    """Operations of one layer that are not matrix products.

    >>> import torch
    >>> light_operations_of_layer(nn.MaxPool2d(3), [torch.zeros(1, 2, 9, 9)], [torch.zeros(1, 2, 3, 3)])
    162
    """
    if isinstance(layer, _PRODUCTS + _VIEWS + _LOOK_UPS) or not given or not returned:
        return 0
    if isinstance(layer, _POOLING + _ADAPTIVE):
        returned = returned[:1]
    return _per_element(layer, given[0], returned[0]) * _elements(returned)


def light_operations_of_function(
    name: str, window: Any, given: Sequence[Tensor], returned: Sequence[Tensor]
) -> int:
    """Operations of a function of torch that are not matrix products; `window` is that of a pooling or of a response normalization.

    >>> import torch
    >>> light_operations_of_function("max_pool2d", 3, [torch.zeros(1, 2, 9, 9)], [torch.zeros(1, 2, 3, 3)])
    162
    """
    if name in _FREE or not given or not returned:
        return 0
    if name in _REDUCTION_NAMES:
        return given[0].numel()
    name = name.removesuffix("_with_indices")
    if name in _POOL_NAMES | _ADAPTIVE_NAMES:
        returned = returned[:1]
    return _function_per_element(name, window, given[0], returned[0]) * _elements(returned)


def _function_per_element(name: str, window: Any, given: Tensor, returned: Tensor) -> int:
    if name in _POOL_NAMES:
        return _window(window, _axes(name))
    if name in _ADAPTIVE_NAMES:
        return _shrinkage(given, returned, _axes(name))
    if name == "local_response_norm":
        return int(window)
    return 2 if name in _NORM_NAMES else 1


def _per_element(layer: nn.Module, given: Tensor, result: Tensor) -> int:
    if isinstance(layer, _POOLING):
        return _window(cast(int | tuple[int, ...], layer.kernel_size), _axes_of(layer))
    if isinstance(layer, _ADAPTIVE):
        return _shrinkage(given, result, _axes_of(layer))
    if isinstance(layer, _NORMS):
        return 2
    return layer.size if isinstance(layer, _RESPONSE_NORMS) else 1


def _axes(name: str) -> int:
    """Over how many axes a pooling goes; there may be one or two before them.

    >>> _axes("max_pool2d"), _axes("AvgPool1d")
    (2, 1)
    """
    return int(name[-2])


def _axes_of(layer: nn.Module) -> int:
    """Of a layer, also where it is of a class of somebody's own."""
    names = (kind.__name__ for kind in type(layer).__mro__ if kind.__module__ == pooling.__name__)
    return next((_axes(name) for name in names if name[-2].isdigit()), 2)


def _shrinkage(given: Tensor, result: Tensor, axes: int) -> int:
    return math.prod(
        math.ceil(i / o) for i, o in zip(given.shape[-axes:], result.shape[-axes:], strict=True)
    )


def _elements(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)


def _window(kernel: int | Sequence[int], axes: int) -> int:
    """
    >>> _window(3, axes=2), _window((3, 5), axes=2)
    (9, 15)
    """
    return kernel**axes if isinstance(kernel, int) else math.prod(kernel)
