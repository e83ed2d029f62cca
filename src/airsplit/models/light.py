"""Light operations: what a layer does besides matrix products, and whether its output needs memory.

elementwise layers, and any that are not known   1 per output element
pooling                                          k² per output element
adaptive pooling                                 input elements per output element
normalisation                                    2 per element
local response normalisation                     n per element, with n its window
matrix products; views and look-ups              0
"""

from __future__ import annotations

import math
from typing import cast

from torch import Tensor, nn
from torch.nn.modules import batchnorm, conv, instancenorm, pooling

# the private ancestors are the only types that all dimensions of a layer have in common
_PRODUCTS = (conv._ConvNd, nn.Linear, nn.Bilinear)
_VIEWS = (nn.Flatten, nn.Unflatten, nn.Identity)
_LOOK_UPS = (nn.Embedding, nn.EmbeddingBag)
_POOLING = (pooling._MaxPoolNd, pooling._AvgPoolNd, pooling._LPPoolNd, nn.FractionalMaxPool2d, nn.FractionalMaxPool3d)
_ADAPTIVE = (pooling._AdaptiveAvgPoolNd, pooling._AdaptiveMaxPoolNd)
_NORMS = (batchnorm._BatchNorm, instancenorm._InstanceNorm, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
_RESPONSE_NORMS = (nn.LocalResponseNorm, nn.CrossMapLRN2d)


def stores_nothing(layer: nn.Module) -> bool:
    """Whether the output is a view of the input.

    >>> stores_nothing(nn.Flatten()), stores_nothing(nn.ReLU())
    (True, False)
    """
    return isinstance(layer, _VIEWS)


def light_operations(layer: nn.Module, given: list[Tensor], result: list[Tensor]) -> int:
    """Operations of one layer that are not matrix products.

    >>> import torch
    >>> light_operations(nn.MaxPool2d(3), [torch.zeros(1, 2, 9, 9)], [torch.zeros(1, 2, 3, 3)])
    162
    """
    if isinstance(layer, _PRODUCTS + _VIEWS + _LOOK_UPS):
        return 0
    return _per_element(layer, given[0], result[0]) * sum(tensor.numel() for tensor in result)


def _per_element(layer: nn.Module, given: Tensor, result: Tensor) -> int:
    if isinstance(layer, _POOLING):
        return _window(cast(int | tuple[int, ...], layer.kernel_size), result.dim() - 2)
    if isinstance(layer, _ADAPTIVE):
        return math.prod(math.ceil(i / o) for i, o in zip(given.shape[2:], result.shape[2:], strict=True))
    if isinstance(layer, _NORMS):
        return 2
    return layer.size if isinstance(layer, _RESPONSE_NORMS) else 1


def _window(kernel: int | tuple[int, ...], axes: int) -> int:
    """
    >>> _window(3, axes=2), _window((3, 5), axes=2)
    (9, 15)
    """
    return kernel**axes if isinstance(kernel, int) else math.prod(kernel)
