"""Count the operations of a layer or function besides matrix products.

| operation                                    | count                                        |
|----------------------------------------------|----------------------------------------------|
| elementwise, and whatever is not known       | 1 per output element                         |
| pooling                                      | k² per output element                        |
| adaptive pooling                             | input elements per output element            |
| sums and means                               | 1 per input element                          |
| normalization                                | 2 per element                                |
| local response normalization                 | n per element, with n its window             |
| matrix products, views, lookups, copies      | 0                                            |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

from torch import Tensor, nn
from torch.nn.modules import batchnorm, conv, instancenorm, pooling

# These private classes are the only ancestors that layers of all dimensions have in common.
_MATMUL_LAYERS = (conv._ConvNd, nn.Linear, nn.Bilinear)
_VIEW_LAYERS = (nn.Flatten, nn.Unflatten, nn.Identity)
_LOOKUP_LAYERS = (nn.Embedding, nn.EmbeddingBag)
_POOLING_LAYERS = (
    pooling._MaxPoolNd,
    pooling._AvgPoolNd,
    pooling._LPPoolNd,
    nn.FractionalMaxPool2d,
    nn.FractionalMaxPool3d,
)
_ADAPTIVE_LAYERS = (pooling._AdaptiveAvgPoolNd, pooling._AdaptiveMaxPoolNd)
_NORM_LAYERS = (
    batchnorm._BatchNorm,
    instancenorm._InstanceNorm,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
)
_RESPONSE_NORM_LAYERS = (nn.LocalResponseNorm, nn.CrossMapLRN2d)

# Functions by name.
# fmt: off
_MATMUL_FUNCTIONS = {
    "linear", "bilinear", "matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "mv", "dot", "addmm",
    "baddbmm", "einsum", "scaled_dot_product_attention", "conv1d", "conv2d", "conv3d",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
}
_LOOKUP_FUNCTIONS = {
    "embedding", "embedding_bag", "__getitem__", "gather", "index_select", "take",
    "take_along_dim", "one_hot",
}
_COPY_FUNCTIONS = {
    "cat", "concat", "stack", "pad", "contiguous", "reshape", "flatten", "repeat",
    "repeat_interleave", "roll", "clone", "to", "type_as", "float", "half", "bfloat16",
    "new_zeros", "new_ones", "zeros_like", "ones_like", "empty_like", "__setitem__",
}
_NORM_FUNCTIONS = {
    "layer_norm", "batch_norm", "group_norm", "instance_norm", "rms_norm", "normalize",
}
_REDUCTION_FUNCTIONS = {
    "mean", "sum", "amax", "amin", "max", "min", "var", "std", "norm", "prod", "logsumexp",
    "argmax", "argmin",
}
# fmt: on
_POOLING_FUNCTIONS = {
    f"{kind}_pool{d}d" for d in (1, 2, 3) for kind in ("max", "avg", "lp", "fractional_max")
}
_ADAPTIVE_FUNCTIONS = {f"adaptive_{kind}_pool{d}d" for d in (1, 2, 3) for kind in ("max", "avg")}
_FREE_FUNCTIONS = _MATMUL_FUNCTIONS | _LOOKUP_FUNCTIONS | _COPY_FUNCTIONS


def count_layer_operations(
    layer: nn.Module, args: Sequence[Tensor], results: Sequence[Tensor]
) -> int:
    """Return the operations of one layer that are not matrix products.

    >>> import torch
    >>> x, pooled = torch.zeros(1, 2, 9, 9), torch.zeros(1, 2, 3, 3)
    >>> count_layer_operations(nn.MaxPool2d(3), [x], [pooled])
    162
    """
    if not args or not results or isinstance(layer, _MATMUL_LAYERS + _VIEW_LAYERS + _LOOKUP_LAYERS):
        return 0

    if isinstance(layer, _POOLING_LAYERS):
        kernel = cast(int | tuple[int, ...], layer.kernel_size)
        # Only the first result: the positions of the maxima, which may be the second, are free.
        return _window_size(kernel, _pooling_axes(layer)) * results[0].numel()
    if isinstance(layer, _ADAPTIVE_LAYERS):
        return _mean_window_size(args[0], results[0], _pooling_axes(layer)) * results[0].numel()

    # Activations, dropout, softmax, and every layer that is not known here.
    per_element = 1
    if isinstance(layer, _NORM_LAYERS):
        per_element = 2
    elif isinstance(layer, _RESPONSE_NORM_LAYERS):
        per_element = int(layer.size)
    return per_element * sum(tensor.numel() for tensor in results)


def count_function_operations(
    name: str, window: Any, args: Sequence[Tensor], results: Sequence[Tensor]
) -> int:
    """Return the operations of a function of torch that are not matrix products.

    Args:
        window: The window of a pooling or of a response normalization.

    >>> import torch
    >>> x, pooled = torch.zeros(1, 2, 9, 9), torch.zeros(1, 2, 3, 3)
    >>> count_function_operations("max_pool2d", 3, [x], [pooled])
    162
    """
    if not args or not results or name in _FREE_FUNCTIONS:
        return 0
    # A sum has fewer results than operations.
    if name in _REDUCTION_FUNCTIONS:
        return args[0].numel()

    # torch calls max_pool2d(x, 2, return_indices=True) by this other name.
    name = name.removesuffix("_with_indices")
    if name in _POOLING_FUNCTIONS:
        return _window_size(window, _axes_in_name(name)) * results[0].numel()
    if name in _ADAPTIVE_FUNCTIONS:
        return _mean_window_size(args[0], results[0], _axes_in_name(name)) * results[0].numel()

    per_element = 1
    if name == "local_response_norm":
        per_element = int(window)
    elif name in _NORM_FUNCTIONS:
        per_element = 2
    return per_element * sum(tensor.numel() for tensor in results)


def _axes_in_name(name: str) -> int:
    """Return over how many axes a pooling goes; batch and channels may come before them.

    >>> _axes_in_name("max_pool2d"), _axes_in_name("AvgPool1d")
    (2, 1)
    """
    return int(name[-2])


def _pooling_axes(layer: nn.Module) -> int:
    # The class may be the user's own: its nearest ancestor in torch says how many axes.
    for ancestor in type(layer).__mro__:
        if ancestor.__module__ == pooling.__name__ and ancestor.__name__[-2].isdigit():
            return _axes_in_name(ancestor.__name__)
    return 2


def _window_size(kernel: int | Sequence[int], axes: int) -> int:
    """Return the elements in a window.

    >>> _window_size(3, axes=2), _window_size((3, 5), axes=2)
    (9, 15)
    """
    if isinstance(kernel, int):
        return int(kernel**axes)
    return math.prod(kernel)


def _mean_window_size(pooled: Tensor, result: Tensor, axes: int) -> int:
    """Return the elements in the window of an adaptive pooling, rounded up along each axis."""
    sizes = zip(pooled.shape[-axes:], result.shape[-axes:], strict=True)
    return math.prod(math.ceil(size / result_size) for size, result_size in sizes)
