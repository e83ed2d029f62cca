"""The shape of one sample, without its batch axis.  No torch here."""

from __future__ import annotations

from airsplit.core.errors import InvalidValue, show
from airsplit.system.inputs import Shape, require_shape

ALEXNET_INPUT: Shape = (3, 227, 227)
ALEXNET32_INPUT: Shape = (3, 32, 32)
GPT_INPUT: Shape = (64,)
RESNET20_INPUT: Shape = (3, 32, 32)
VGG16_INPUT: Shape = (3, 224, 224)
VIT_INPUT: Shape = (3, 32, 32)


def require_image_shape(field: str, shape: object) -> tuple[int, int, int]:
    """Channels, height and width.

    >>> require_image_shape("alexnet.input_shape", (3, 227, 227))
    (3, 227, 227)
    """
    sizes = require_shape(field, shape)
    if len(sizes) != 3:
        raise InvalidValue(
            f"{field} must be channels, height and width, got {show(shape)}; write e.g. 3x32x32, in Python (3, 32, 32)"
        )
    return sizes[0], sizes[1], sizes[2]
