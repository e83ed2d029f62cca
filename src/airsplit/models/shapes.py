"""The shape of one sample, without its batch axis.  No torch here."""

from __future__ import annotations

from collections.abc import Sequence

from airsplit.errors import InvalidValue, require_integer, show

Shape = tuple[int, ...]

ALEXNET_INPUT: Shape = (3, 227, 227)
ALEXNET32_INPUT: Shape = (3, 32, 32)
VGG16_INPUT: Shape = (3, 224, 224)


def require_shape(field: str, shape: object) -> Shape:
    """One or more whole numbers >= 1.

    >>> require_shape("input_shape", [3, 32, 32])
    (3, 32, 32)
    """
    if not isinstance(shape, Sequence) or isinstance(shape, str | bytes) or len(shape) == 0:
        raise InvalidValue(f"{field} must be whole numbers, without the batch axis, got {show(shape)}; write e.g. (3, 32, 32)")
    return tuple(require_integer(f"{field}[{axis}]", size, low=1) for axis, size in enumerate(shape))


def require_image_shape(field: str, shape: object) -> tuple[int, int, int]:
    """Channels, height and width.

    >>> require_image_shape("alexnet.input_shape", (3, 227, 227))
    (3, 227, 227)
    """
    sizes = require_shape(field, shape)
    if len(sizes) != 3:
        raise InvalidValue(f"{field} must be channels, height and width, got {show(shape)}; write e.g. (3, 32, 32)")
    return sizes[0], sizes[1], sizes[2]


def shape_text(shape: Sequence[int]) -> str:
    """
    >>> shape_text((3, 32, 32))
    '3x32x32'
    """
    return "x".join(str(size) for size in shape)
