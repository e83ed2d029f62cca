"""What a model takes: the shape and type of each of its inputs, for one sample.  No torch here."""

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
MOST_ELEMENTS = 10**15  # far beyond any memory, and far from what torch cannot count


@dataclass(frozen=True)
class InputSpec:
    """One input of a model, for one sample: its sizes without the batch axis, and its type.

    dtype  "" for the floating type of the model's weights

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
    """An input as people write it; `field` says in an error where it was written.

    >>> parse_input_spec("3x224x224"), parse_input_spec("16x8:bfloat16")
    (InputSpec(shape=(3, 224, 224), dtype=''), InputSpec(shape=(16, 8), dtype='bfloat16'))
    """
    sizes, colon, dtype = text.lower().partition(":") if isinstance(text, str) else ("", "", "")
    if not all(
        size.isascii() and size.isdigit() and len(size) < 99 and int(size) > 0
        for size in sizes.split("x")
    ):
        rule = "the sizes of one sample, without the batch axis, and a type where it is not that of the weights"
        raise InvalidValue(
            f"{field} must be {rule}, got {show(text)}; write e.g. 3x224x224 or 128:int64"
        )
    if colon:
        require_choice(f"{field} type", dtype, DTYPES)
    return InputSpec(require_shape(field, [int(size) for size in sizes.split("x")]), dtype)


def require_shape(field: str, shape: object) -> Shape:
    """One or more whole numbers >= 1.

    >>> require_shape("input_shape", [3, 32, 32])
    (3, 32, 32)
    """
    if not isinstance(shape, Sequence) or isinstance(shape, str | bytes) or len(shape) == 0:
        raise InvalidValue(
            f"{field} must be whole numbers, without the batch axis, got {show(shape)}; write e.g. (3, 32, 32)"
        )
    sizes = tuple(
        require_integer(f"{field}[{axis}]", size, low=1) for axis, size in enumerate(shape)
    )
    if math.prod(sizes) > MOST_ELEMENTS:
        raise InvalidValue(
            f"{field} must have at most {MOST_ELEMENTS} elements a sample, got {show(sizes)}; give smaller sizes"
        )
    return sizes


def format_shape(shape: Sequence[int]) -> str:
    """
    >>> format_shape((3, 32, 32))
    '3x32x32'
    """
    return "x".join(str(size) for size in shape)
