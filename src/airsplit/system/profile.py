"""Profile: what a model costs at each split.  Pure numpy; the profiles of the built-in models ship with the package."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from airsplit.core.arrays import Floats, Ints
from airsplit.core.errors import (
    FileProblem,
    InvalidValue,
    UnknownName,
    require_integer,
    show,
    unknown_name,
)
from airsplit.core.parsing import parse_json
from airsplit.core.units import BYTES_PER_FLOAT32
from airsplit.system.inputs import parse_input_spec

COLUMNS = (
    "layer_macs",
    "macs",
    "matmul_macs",
    "backward_macs",
    "activation_elements",
    "gradient_elements",
    "parameters",
    "trainable_parameters",
    "stored_elements",
)
_NEEDED = ("names", "layer_macs", "matmul_macs", "activation_elements", "parameters")
_CUMULATIVE = ("matmul_macs", "backward_macs", "stored_elements")
# What crosses as it is. No part of the fingerprint: a profile counted before these columns existed keeps its own.
_CROSSING = ("raw_inputs", "other_inputs")
RAW_INPUTS = ("refuse", "allow")

RawInputs = str | Sequence[str]


@dataclass(frozen=True, eq=False)
class Profile:
    """One row per legal split, in order; row i is split i + 1.  All columns are per sample.

    names                 the layer after which the model is cut; a split's identity
    layer_macs            work between the previous cut and this one, light operations included
    matmul_macs           cumulative, convolutions and matrix products only: what published figures count
    activation_elements   elements sent at this split
    parameters            parameters between the previous cut and this one
    backward_macs         cumulative: work of the backward pass on the device; layers that are frozen cost none.
                          When not given, twice the work of the forward pass
    gradient_elements     elements that come back at this split: of what was sent and leads to a parameter that is trained.
                          When not given, as many as were sent
    trainable_parameters  those of the parameters that are trained; when not given, all
    stored_elements       cumulative: what the device keeps for the backward pass at this split, its input included; masks and
                          indices count by their size as parts of a float32.  When not given, the sum of all activations so far
    inputs                what one sample is, as `--input` takes it, e.g. "3x32x32" or "128:int64"; none where it is not known
    input_names           the names of the model's inputs, in order; none where they are not known
    raw_inputs            for each split the names of the inputs whose raw data cross it unchanged: floating-point inputs, and
                          integers that an embedding looks up.  When not given, none
    other_inputs          the same of inputs that may travel: labels, masks, and integers that no embedding looks up

    >>> p = Profile(["conv", "fc"], [900, 100], matmul_macs=[800, 900], activation_elements=[50, 10], parameters=[9, 5])
    >>> len(p), p.macs.tolist(), p.split_of("fc")
    (2, [900, 1000], 2)
    """

    names: Sequence[str]
    layer_macs: Ints
    matmul_macs: Ints
    activation_elements: Ints
    parameters: Ints
    stored_elements: Ints = field(default=None)  # type: ignore[arg-type]
    backward_macs: Ints = field(default=None)  # type: ignore[arg-type]
    gradient_elements: Ints = field(default=None)  # type: ignore[arg-type]
    trainable_parameters: Ints = field(default=None)  # type: ignore[arg-type]
    model: str = ""
    inputs: Sequence[str] = ()
    input_names: Sequence[str] = ()
    raw_inputs: Sequence[Sequence[str]] = ()
    other_inputs: Sequence[Sequence[str]] = ()

    def __post_init__(self) -> None:
        names = (
            tuple(self.names)
            if isinstance(self.names, Sequence) and not isinstance(self.names, str)
            else ()
        )
        if not names or not all(isinstance(name, str) and name for name in names):
            raise InvalidValue(
                f"profile.names must be one or more non-empty strings, got {show(self.names)}"
            )
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidValue(f"profile.names must differ from each other, got {twice!r} twice")
        object.__setattr__(self, "names", names)
        if not isinstance(self.inputs, list | tuple):
            raise InvalidValue(
                f'profile.inputs must be texts such as "3x32x32", one an input, got {show(self.inputs)}'
            )
        object.__setattr__(
            self,
            "inputs",
            tuple(str(parse_input_spec(text, "profile.inputs")) for text in self.inputs),
        )
        object.__setattr__(
            self, "input_names", _input_names("profile.input_names", self.input_names)
        )
        for column in _CROSSING:
            object.__setattr__(
                self,
                column,
                _crossing_inputs(f"profile.{column}", getattr(self, column), len(names)),
            )
        for column in (*_NEEDED[1:], *_USUAL):
            values: Any = getattr(self, column)
            if values is None and column in _USUAL:
                values = _USUAL[column](self)
            low = 1 if column == "activation_elements" else 0
            high = (
                2**62 if column in _CUMULATIVE else 2**61 // len(names)
            )  # no sum, nor twice it, leaves 64 bits
            object.__setattr__(
                self, column, _counts(f"profile.{column}", values, len(names), low, high)
            )
        for column in _CUMULATIVE:
            if (np.diff(getattr(self, column)) < 0).any():
                raise InvalidValue(
                    f"profile.{column} must not fall from row to row: it is cumulative"
                )
        for part, whole in (
            ("gradient_elements", "activation_elements"),
            ("trainable_parameters", "parameters"),
        ):
            if (getattr(self, part) > getattr(self, whole)).any():
                raise InvalidValue(
                    f"profile.{part} must not exceed profile.{whole}, of which it is a part"
                )

    def __len__(self) -> int:
        return len(self.names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Profile) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @cached_property
    def macs(self) -> Ints:
        """Cumulative work: what the device computes at this split."""
        macs = np.cumsum(self.layer_macs)
        macs.flags.writeable = False
        return macs

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that change when a split's name or a number does."""
        return hashlib.sha256(json.dumps(self._columns(), sort_keys=True).encode()).hexdigest()[:16]

    def device_memory_bytes(self, batch_size: int, optimizer_slots: int = 0) -> Ints:
        """Memory for training the front at each split, with float32 weights.

        Weights; for those that are trained their gradients and `optimizer_slots` numbers of optimizer state (plain SGD 0, with
        momentum 1, Adam 2); and what is kept for the backward pass.

        >>> p = Profile(["conv", "fc"], [900, 100], matmul_macs=[800, 900], activation_elements=[50, 10], parameters=[9, 5])
        >>> p.device_memory_bytes(batch_size=10).tolist(), p.device_memory_bytes(10, optimizer_slots=2).tolist()
        ([2072, 2512], [2144, 2624])
        """
        trained = (1 + optimizer_slots) * np.cumsum(self.trainable_parameters)
        return BYTES_PER_FLOAT32 * (
            np.cumsum(self.parameters) + trained + batch_size * self.stored_elements
        )

    def averaged_parameters(self, deepest_split: int) -> int:
        """Parameters deeper than a split: those that the server holds for every device."""
        return int(self.parameters[deepest_split:].sum())

    def resolve_max_split(
        self, limit: int | str | None, raw_inputs: RawInputs = "refuse", field: str = "max_split"
    ) -> int:
        """Return the number of the deepest split that a limit allows.

        No limit means `default_max_split`: keeping every parameter on the device must be asked for.

        >>> p = Profile(["a", "b", "c"], [9, 9, 9], [9, 18, 27], [5, 5, 1], [2, 2, 2])
        >>> p.resolve_max_split(None), p.resolve_max_split("c"), p.resolve_max_split(1)
        (2, 3, 1)
        """
        if limit is None:
            return self.default_max_split(raw_inputs)
        return self.split_of(limit, field)

    def default_max_split(self, raw_inputs: RawInputs = "refuse") -> int:
        """Return the deepest split that leaves a parameter to be averaged and is permitted.

        If none of those is permitted, the deepest that leaves a parameter; 1 if none leaves one.
        """
        rows_with_parameters = np.flatnonzero(self.parameters)
        deepest = 1
        if len(rows_with_parameters):
            # Row i is split i + 1, so the split before the last such row has the row's own number.
            deepest = max(int(rows_with_parameters[-1]), 1)

        permitted = np.flatnonzero(self.permitted_splits(raw_inputs)[:deepest])
        if not len(permitted):
            return deepest
        return int(permitted[-1]) + 1

    def deepest_split_in_memory(
        self, memory_bytes: Floats, batch_size: int, optimizer_slots: int = 0
    ) -> Ints:
        """Return the deepest split that each memory can train; 0 if not even the first fits.

        >>> p = Profile(["conv", "fc"], [900, 100], [800, 900], [50, 10], [9, 5])
        >>> p.device_memory_bytes(batch_size=10).tolist()
        [2072, 2512]
        >>> p.deepest_split_in_memory(np.array([2000, 2100, 2512]), batch_size=10).tolist()
        [0, 1, 2]
        """
        needed_bytes = self.device_memory_bytes(batch_size, optimizer_slots)
        # Needs never fall with depth, so the number that fit is the number of the deepest.
        return np.searchsorted(needed_bytes, memory_bytes, side="right")

    def permitted_splits(self, raw_inputs: RawInputs = "refuse") -> NDArray[np.bool_]:
        """Return for each split whether all raw inputs that cross it may travel.

        Args:
            raw_inputs: "refuse", "allow", or the names of the inputs that may travel.

        >>> p = Profile(["a", "b"], [9, 9], [9, 18], [5, 1], [2, 2], raw_inputs=[["context"], []])
        >>> p.permitted_splits().tolist(), p.permitted_splits(["context"]).tolist()
        ([False, True], [True, True])
        """
        require_raw_inputs("raw_inputs", raw_inputs)
        if raw_inputs == "allow":
            return np.ones(len(self), dtype=bool)
        may_travel = set() if raw_inputs == "refuse" else set(raw_inputs)
        known = self._known_inputs()
        for name in sorted(may_travel - known):
            if not known:
                why = "the profile does not name the model's inputs; count the model again"
                raise UnknownName(f"raw_inputs {name!r} is not known: {why}")
            raise unknown_name("raw_inputs", name, known)
        return np.array([may_travel.issuperset(crossing) for crossing in self.raw_inputs])

    def inputs_sent(self, splits: Iterable[int]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the inputs that some of these splits send as they are: raw inputs, and those that may travel.

        >>> p = Profile(["a", "b"], [9, 9], [9, 18], [5, 1], [2, 2], raw_inputs=[["image"], []], other_inputs=[["mask"], ["mask"]])
        >>> p.inputs_sent([2, 2]), p.inputs_sent([2, 1])
        (((), ('mask',)), (('image',), ('mask',)))
        """
        rows = sorted({int(split) - 1 for split in splits})
        raw, other = (
            dict.fromkeys(chain(*(column[row] for row in rows)))
            for column in (self.raw_inputs, self.other_inputs)
        )
        return tuple(raw), tuple(other)

    def _known_inputs(self) -> set[str]:
        """Return the names of all inputs that the profile names anywhere."""
        return {*self.input_names, *chain(*self.raw_inputs), *chain(*self.other_inputs)}

    def split_of(self, split: int | str, field: str = "split") -> int:
        """A split's number from its name or number."""
        if isinstance(split, str):
            if split not in self.names:
                within = [name for name in self.names if name.startswith(f"{split}.")]
                if within:
                    raise UnknownName(
                        f"{field} {split!r} is not the name of a split; the last within it is {within[-1]!r}"
                    )
                raise unknown_name(field, split, self.names)
            return self.names.index(split) + 1
        hint = f"; {self.model or 'the model'} has {len(self)} splits"
        return require_integer(field, split, low=1, high=len(self), hint=hint)

    def to_json(self) -> str:
        """The profile as JSON; keys are the names of the columns."""
        about = {"model": self.model, "inputs": list(self.inputs), "fingerprint": self.fingerprint}
        crossing = {column: getattr(self, column) for column in _CROSSING}
        return json.dumps(
            about | self._columns() | {"input_names": self.input_names} | crossing, indent=1
        )

    @classmethod
    def from_json(cls, text: str) -> Profile:
        """Read what `to_json` wrote.  A changed or truncated text is an error."""
        data = parse_json(text, "profile")
        missing = sorted(set(_NEEDED) - data.keys() if isinstance(data, dict) else _NEEDED)
        if missing:
            raise FileProblem(f"profile lacks {', '.join(missing)}; write it with to_json()")
        known = {"names", "model", "inputs", "input_names", "fingerprint", *COLUMNS, *_CROSSING}
        for key in data.keys() - known:
            raise unknown_name("profile key", key, known)
        profile = cls(**{k: v for k, v in data.items() if k not in ("macs", "fingerprint")})
        if "macs" in data and data["macs"] != profile.macs.tolist():
            raise FileProblem(
                "profile.macs is not the running sum of profile.layer_macs; one of them was changed"
            )
        if data.get("fingerprint", profile.fingerprint) != profile.fingerprint:
            got = show(data["fingerprint"])
            raise FileProblem(
                f"profile.fingerprint must be {profile.fingerprint} for these numbers, got {got}"
            )
        return profile

    def _columns(self) -> dict[str, Any]:
        return {"names": list(self.names)} | {
            column: getattr(self, column).tolist() for column in COLUMNS
        }


_USUAL: dict[str, Callable[[Profile], Ints]] = {
    "backward_macs": lambda profile: 2 * np.cumsum(profile.layer_macs),
    "gradient_elements": lambda profile: profile.activation_elements,
    "trainable_parameters": lambda profile: profile.parameters,
    "stored_elements": lambda profile: np.cumsum(profile.activation_elements),
}
"""The columns that need not be given, and what they are then."""


def _counts(field: str, values: ArrayLike, length: int, low: int, high: int) -> Ints:
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        array = np.asarray(None)
    if array.shape != (length,) or array.dtype.kind not in "iu":
        raise InvalidValue(
            f"{field} must be {length} whole numbers, one a split, got {show(values)}"
        )
    bad = (array < low) | (array > high)
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        raise InvalidValue(
            f"{field}[{at}] must be a whole number from {low} to {high}, got {array[at]}"
        )
    array = array.astype(np.int64)
    array.flags.writeable = False
    return array


def _crossing_inputs(field: str, given: object, splits: int) -> tuple[tuple[str, ...], ...]:
    """Return the names of inputs at each split; nothing given means none at any."""
    if not isinstance(given, list | tuple) or len(given) not in (0, splits):
        raise InvalidValue(
            f"{field} must be {splits} lists of names of inputs, one a split, got {show(given)}"
        )
    if not given:
        return ((),) * splits
    return tuple(_input_names(f"{field}[{at}]", names) for at, names in enumerate(given))


def _input_names(field: str, names: object) -> tuple[str, ...]:
    if not isinstance(names, list | tuple) or not all(
        isinstance(name, str) and name for name in names
    ):
        raise InvalidValue(f"{field} must be a list of names of inputs, got {show(names)}")
    return tuple(names)


def require_raw_inputs(field: str, value: object) -> None:
    """Raise if a policy on raw inputs is neither "refuse" nor "allow" nor a list of names.

    >>> require_raw_inputs("raw_inputs", "refuse"), require_raw_inputs("raw_inputs", ["position_ids"])
    (None, None)
    """
    names = isinstance(value, list | tuple) and all(
        isinstance(name, str) and name for name in value
    )
    if not names and not (isinstance(value, str) and value in RAW_INPUTS):
        example = f", such as [{json.dumps(value)}]" if isinstance(value, str) and value else ""
        rule = '"refuse", "allow" or a list of the inputs that may travel'
        raise InvalidValue(f"{field} must be {rule}{example}, got {show(value)}")


def list_shipped_profiles() -> list[str]:
    """The models whose profiles come with the package."""
    files = resources.files("airsplit.models.zoo").joinpath("profiles").iterdir()
    return sorted(file.name.removesuffix(".json") for file in files if file.name.endswith(".json"))


def load_shipped_profile(name: str) -> Profile:
    """The profile of a built-in model, without importing torch.

    >>> load_shipped_profile("alexnet").names[3]
    'pool1'
    """
    if name not in list_shipped_profiles():
        raise unknown_name("model", name, list_shipped_profiles())
    return Profile.from_json(
        resources.files("airsplit.models.zoo")
        .joinpath("profiles")
        .joinpath(f"{name}.json")
        .read_text(encoding="utf-8")
    )
