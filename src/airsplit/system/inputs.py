"""InputSpec: shape and type of a model's input for one sample, as people write it. No torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from airsplit.core.errors import InvalidValue, require_choice, require_integer, show

Shape = tuple[int, ...]

DTYPES = (
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "bool",
)

# Far beyond any memory, and far below what torch counts in 64 bits.
MOST_ELEMENTS = 10**15


@dataclass(frozen=True)
class InputSpec:
    """One input of a model, for one sample.

    Attributes:
        shape: Sizes without the batch axis.
        dtype: One of `DTYPES`; "" for the floating type of the model's weights.

    >>> InputSpec((3, 224, 224)), str(InputSpec((128,), "int64"))
    (InputSpec(shape=(3, 224, 224), dtype=''), '128:int64')
    """

    shape: Shape
    dtype: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", require_shape("input.shape", self.shape))
        if self.dtype != "":
            require_choice("input.dtype", self.dtype, DTYPES)

    def __str__(self) -> str:
        return format_shape(self.shape) + (f":{self.dtype}" if self.dtype else "")


def parse_input_spec(text: object, field: str = "input") -> InputSpec:
    """Convert a text such as "3x224x224" or "128:int64".

    Args:
        text: Sizes, and after a colon the type if it is not that of the weights.
        field: Name for errors.

    >>> parse_input_spec("3x224x224"), parse_input_spec("16x8:bfloat16")
    (InputSpec(shape=(3, 224, 224), dtype=''), InputSpec(shape=(16, 8), dtype='bfloat16'))
    """
    sizes = colon = dtype = ""
    if isinstance(text, str):
        sizes, colon, dtype = text.lower().partition(":")
    # `isdigit` alone takes digits of all scripts, and Python converts no number of 5,000 digits.
    if not all(
        size.isascii() and size.isdigit() and len(size) < 99 and int(size) > 0
        for size in sizes.split("x")
    ):
        raise InvalidValue(
            f"{field} must be the sizes of one sample, without the batch axis, and a type if it is "
            f"not that of the weights, got {show(text)}; write e.g. 3x224x224 or 128:int64"
        )
    if colon:
        require_choice(f"{field} type", dtype, DTYPES)
    return InputSpec(require_shape(field, [int(size) for size in sizes.split("x")]), dtype)


def require_shape(field: str, shape: object) -> Shape:
    """Return one or more whole numbers >= 1 as a shape.

    >>> require_shape("input_shape", [3, 32, 32])
    (3, 32, 32)
    """
    # A text is a sequence, too, but "32" is not the shape (3, 2).
    if not isinstance(shape, Sequence) or isinstance(shape, str | bytes) or len(shape) == 0:
        raise InvalidValue(
            f"{field} must be whole numbers, without the batch axis, got {show(shape)}; "
            "write e.g. (3, 32, 32)"
        )
    sizes = tuple(
        require_integer(f"{field}[{axis}]", size, low=1) for axis, size in enumerate(shape)
    )
    if math.prod(sizes) > MOST_ELEMENTS:
        raise InvalidValue(
            f"{field} must have at most {MOST_ELEMENTS} elements a sample, got {show(sizes)}; "
            "give smaller sizes"
        )
    return sizes


def format_shape(shape: Sequence[int]) -> str:
    """Return a shape as people write it.

    >>> format_shape((3, 32, 32))
    '3x32x32'
    """
    return "x".join(str(size) for size in shape)
