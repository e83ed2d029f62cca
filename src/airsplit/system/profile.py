"""Profile: work, data, parameters and memory of a model at each split.

The profiles of the built-in models come with the package, so that planning needs no torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from importlib.resources.abc import Traversable
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
# Inputs that cross a cut unchanged. They are no part of the fingerprint, so that a profile counted
# before these columns existed keeps its own.
_CROSSING = ("raw_inputs", "other_inputs")
RAW_INPUTS = ("refuse", "allow")

RawInputs = str | Sequence[str]


@dataclass(frozen=True, eq=False)
class Profile:
    """Costs of a model at each legal split, in order: row i is split i + 1.

    All columns are per sample; planning multiplies by batch size and bits per element. "Cumulative"
    columns sum layers 1..ℓ, the others count what lies between the previous cut and this one.

    Attributes:
        names: Name of the layer after which the model is cut; a split's identity.
        layer_macs: Work of these layers in MAC, light operations included; its running sum is
            `macs`, the paper's c_ℓ.
        matmul_macs: Cumulative work of convolutions and matrix products only, which is what
            published figures count.
        activation_elements: D_ℓ, elements sent at this split.
        parameters: Parameters of these layers.
        stored_elements: Cumulative: elements that the device keeps for the backward pass, its
            input included; masks and indices count by their size as parts of a float32. By default
            the sum of all activations so far.
        backward_macs: Cumulative work of the backward pass on the device, in which frozen layers
            cost nothing. By default twice that of the forward pass.
        gradient_elements: Elements that come back at this split: those of the elements sent that
            lead to a trained parameter. By default all of them.
        trainable_parameters: Those of the parameters that are trained. By default all of them.
        model: Name of the model, for people.
        inputs: Inputs of one sample as `--input` takes them, e.g. "3x32x32" or "128:int64"; empty
            if unknown.
        input_names: Names of the model's inputs, in order; empty if unknown.
        raw_inputs: For each split, the names of inputs whose raw data cross it unchanged:
            floating-point inputs, and integers that an embedding looks up. By default none.
        other_inputs: For each split, the names of other inputs that cross it and may do so: labels,
            masks, and integers that no embedding looks up. By default none.

    A convolution of 900 MACs that leaves 50 elements, then a layer of 100 MACs that leaves 10:

    >>> p = Profile(["conv", "fc"], layer_macs=[900, 100], matmul_macs=[800, 900],
    ...             activation_elements=[50, 10], parameters=[9, 5])
    >>> p.macs.tolist(), p.backward_macs.tolist(), p.stored_elements.tolist()
    ([900, 1000], [1800, 2000], [50, 60])
    >>> len(p), p.split_of("fc"), p.averaged_parameters(1)
    (2, 2, 5)
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
        splits = len(self._set_names())
        self._set_inputs(splits)

        for column in (*_NEEDED[1:], *_DEFAULTS):
            values: Any = getattr(self, column)
            if values is None and column in _DEFAULTS:
                values = _DEFAULTS[column](self)
            low = 1 if column == "activation_elements" else 0
            # With these limits no sum over splits, nor twice it, leaves 64 bits.
            high = 2**62 if column in _CUMULATIVE else 2**61 // splits
            counts = _convert_counts(f"profile.{column}", values, splits, low, high)
            object.__setattr__(self, column, counts)

        for column in _CUMULATIVE:
            if (np.diff(getattr(self, column)) < 0).any():
                raise InvalidValue(
                    f"profile.{column} must not fall from row to row: it is cumulative"
                )
        for column, total in (
            ("gradient_elements", "activation_elements"),
            ("trainable_parameters", "parameters"),
        ):
            if (getattr(self, column) > getattr(self, total)).any():
                raise InvalidValue(
                    f"profile.{column} must not exceed profile.{total}, of which it is a part"
                )

    def _set_names(self) -> tuple[str, ...]:
        names: tuple[str, ...] = ()
        if isinstance(self.names, Sequence) and not isinstance(self.names, str):
            names = tuple(self.names)
        if not names or not all(isinstance(name, str) and name for name in names):
            raise InvalidValue(
                f"profile.names must be one or more non-empty strings, got {show(self.names)}"
            )
        if len(set(names)) != len(names):
            repeated = next(name for name in names if names.count(name) > 1)
            raise InvalidValue(f"profile.names must differ from each other, got {repeated!r} twice")
        object.__setattr__(self, "names", names)
        return names

    def _set_inputs(self, splits: int) -> None:
        if not isinstance(self.inputs, list | tuple):
            raise InvalidValue(
                'profile.inputs must be texts such as "3x32x32", one for each input, '
                f"got {show(self.inputs)}"
            )
        # Parsing checks a text, and formatting gives each input one spelling.
        inputs = tuple(str(parse_input_spec(text, "profile.inputs")) for text in self.inputs)
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(
            self, "input_names", _convert_input_names("profile.input_names", self.input_names)
        )
        for column in _CROSSING:
            names = _convert_crossing(f"profile.{column}", getattr(self, column), splits)
            object.__setattr__(self, column, names)

    def __len__(self) -> int:
        return len(self.names)

    # Profiles of two countings are one if they say the same; the model's name is no part of that.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Profile) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @cached_property
    def macs(self) -> Ints:
        """c_ℓ, the work of the first ℓ layers in MAC: what the device computes at each split."""
        macs = np.cumsum(self.layer_macs)
        # Cached and shared, so nobody may write to it.
        macs.flags.writeable = False
        return macs

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that change when a split's name or a number does."""
        text = json.dumps(self._columns(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def device_memory_bytes(self, batch_size: int, optimizer_slots: int = 0) -> Ints:
        """Return the memory for training the front at each split, with float32 numbers.

        It holds all weights; for those that are trained their gradients and the optimizer's state;
        and what is kept for the backward pass.

        Args:
            batch_size: Samples of an iteration.
            optimizer_slots: Numbers of optimizer state for each trained parameter: 0 for plain
                SGD, 1 with momentum, 2 for Adam.

        One parameter takes 4 bytes and its gradient 4 more: 9 · 8 + 10 · 50 · 4 = 2072.

        >>> p = Profile(["conv", "fc"], [900, 100], [800, 900], [50, 10], [9, 5])
        >>> p.device_memory_bytes(batch_size=10).tolist()
        [2072, 2512]
        >>> p.device_memory_bytes(batch_size=10, optimizer_slots=2).tolist()
        [2144, 2624]
        """
        trained = (1 + optimizer_slots) * np.cumsum(self.trainable_parameters)
        return BYTES_PER_FLOAT32 * (
            np.cumsum(self.parameters) + trained + batch_size * self.stored_elements
        )

    def averaged_parameters(self, deepest_split: int) -> int:
        """Return the number of parameters deeper than a split, which the server averages."""
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

        The two splits of this model need 2072 and 2512 bytes:

        >>> p = Profile(["conv", "fc"], [900, 100], [800, 900], [50, 10], [9, 5])
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
        # Unknown names are errors, because a misspelled permission would permit nothing in silence.
        may_travel = set() if raw_inputs == "refuse" else set(raw_inputs)
        known = {*self.input_names, *chain(*self.raw_inputs), *chain(*self.other_inputs)}
        for name in sorted(may_travel - known):
            if not known:
                raise UnknownName(
                    f"raw_inputs {name!r} is not known: the profile does not name the model's "
                    "inputs; count the model again"
                )
            raise unknown_name("raw_inputs", name, known)
        return np.array([may_travel.issuperset(crossing) for crossing in self.raw_inputs])

    def inputs_sent(self, splits: Iterable[int]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the raw inputs that some of these splits send unchanged, and the other inputs.

        >>> p = Profile(["a", "b"], [9, 9], [9, 18], [5, 1], [2, 2],
        ...             raw_inputs=[["image"], []], other_inputs=[["mask"], ["mask"]])
        >>> p.inputs_sent([2, 2]), p.inputs_sent([2, 1])
        (((), ('mask',)), (('image',), ('mask',)))
        """
        rows = sorted({int(split) - 1 for split in splits})
        # A dict keeps the order of the splits, and each name once.
        raw = dict.fromkeys(chain(*(self.raw_inputs[row] for row in rows)))
        other = dict.fromkeys(chain(*(self.other_inputs[row] for row in rows)))
        return tuple(raw), tuple(other)

    def split_of(self, split: int | str, field: str = "split") -> int:
        """Return the number of a split from its name or number.

        Args:
            split: A name, or a number counted from one.
            field: Name for errors.
        """
        if not isinstance(split, str):
            hint = f"; {self.model or 'the model'} has {len(self)} splits"
            return require_integer(field, split, low=1, high=len(self), hint=hint)
        if split in self.names:
            return self.names.index(split) + 1

        # People name the module; the splits are named after the layers within it.
        within = [name for name in self.names if name.startswith(f"{split}.")]
        if within:
            raise UnknownName(
                f"{field} {split!r} is not the name of a split; "
                f"the last within it is {within[-1]!r}"
            )
        raise unknown_name(field, split, self.names)

    def to_json(self) -> str:
        """Return the profile as JSON; keys are the names of the columns."""
        header = {"model": self.model, "inputs": list(self.inputs), "fingerprint": self.fingerprint}
        crossing = {column: getattr(self, column) for column in _CROSSING}
        return json.dumps(
            header | self._columns() | {"input_names": self.input_names} | crossing, indent=1
        )

    @classmethod
    def from_json(cls, text: str) -> Profile:
        """Return the profile that `to_json` wrote; raise if the text was changed or cut short."""
        data = parse_json(text, "profile")
        missing = sorted(set(_NEEDED) - data.keys() if isinstance(data, dict) else _NEEDED)
        if missing:
            raise FileProblem(f"profile lacks {', '.join(missing)}; write it with to_json()")
        known = {"names", "model", "inputs", "input_names", "fingerprint", *COLUMNS, *_CROSSING}
        for key in data.keys() - known:
            raise unknown_name("profile key", key, known)

        derived = ("macs", "fingerprint")
        # Both follow from the columns: compute them, and compare with what the text claims.
        profile = cls(**{key: value for key, value in data.items() if key not in derived})
        if "macs" in data and data["macs"] != profile.macs.tolist():
            raise FileProblem(
                "profile.macs is not the running sum of profile.layer_macs; one of them was changed"
            )
        if data.get("fingerprint", profile.fingerprint) != profile.fingerprint:
            raise FileProblem(
                f"profile.fingerprint must be {profile.fingerprint} for these numbers, "
                f"got {show(data['fingerprint'])}"
            )
        return profile

    def _columns(self) -> dict[str, Any]:
        return {"names": list(self.names)} | {
            column: getattr(self, column).tolist() for column in COLUMNS
        }


# The columns that need not be given, and their values then.
_DEFAULTS: dict[str, Callable[[Profile], Ints]] = {
    "backward_macs": lambda profile: 2 * np.cumsum(profile.layer_macs),
    "gradient_elements": lambda profile: profile.activation_elements,
    "trainable_parameters": lambda profile: profile.parameters,
    "stored_elements": lambda profile: np.cumsum(profile.activation_elements),
}


def _convert_counts(field: str, values: ArrayLike, length: int, low: int, high: int) -> Ints:
    """Return a column of whole numbers within a range, as a read-only array."""
    try:
        array = np.asarray(values)
    except ValueError:
        # Rows of different lengths are no array, and fail the next check.
        array = np.asarray(None)
    if array.shape != (length,) or array.dtype.kind not in "iu":
        raise InvalidValue(
            f"{field} must be {length} whole numbers, one for each split, got {show(values)}"
        )
    bad = (array < low) | (array > high)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise InvalidValue(
            f"{field}[{row}] must be a whole number from {low} to {high}, got {array[row]}"
        )
    array = array.astype(np.int64)
    array.flags.writeable = False
    return array


def _convert_crossing(field: str, value: object, splits: int) -> tuple[tuple[str, ...], ...]:
    """Return the names of inputs at each split; an empty list means none at any."""
    if not isinstance(value, list | tuple) or len(value) not in (0, splits):
        raise InvalidValue(
            f"{field} must be {splits} lists of names of inputs, one for each split, "
            f"got {show(value)}"
        )
    if not value:
        return ((),) * splits
    return tuple(_convert_input_names(f"{field}[{row}]", names) for row, names in enumerate(value))


def _convert_input_names(field: str, names: object) -> tuple[str, ...]:
    if not isinstance(names, list | tuple) or not all(
        isinstance(name, str) and name for name in names
    ):
        raise InvalidValue(f"{field} must be a list of names of inputs, got {show(names)}")
    return tuple(names)


def require_raw_inputs(field: str, value: object) -> None:
    """Raise if a policy on raw inputs is neither "refuse" nor "allow" nor a list of names.

    >>> require_raw_inputs("raw_inputs", ["position_ids"])
    """
    if isinstance(value, str) and value in RAW_INPUTS:
        return
    if isinstance(value, list | tuple) and all(isinstance(name, str) and name for name in value):
        return
    # A name alone is meant as a list of one.
    example = f", such as [{json.dumps(value)}]" if isinstance(value, str) and value else ""
    raise InvalidValue(
        f'{field} must be "refuse", "allow" or a list of the inputs that may travel{example}, '
        f"got {show(value)}"
    )


def list_shipped_profiles() -> list[str]:
    """Return the names of the models whose profiles come with the package."""
    files = _shipped_profiles().iterdir()
    return sorted(file.name.removesuffix(".json") for file in files if file.name.endswith(".json"))


def load_shipped_profile(name: str) -> Profile:
    """Return the profile of a built-in model.

    >>> load_shipped_profile("alexnet").names[3]
    'pool1'
    """
    if name not in list_shipped_profiles():
        raise unknown_name("model", name, list_shipped_profiles())
    file = _shipped_profiles().joinpath(f"{name}.json")
    return Profile.from_json(file.read_text(encoding="utf-8"))


def _shipped_profiles() -> Traversable:
    # This package imports none of its models, and so no torch.
    return resources.files("airsplit.models.zoo").joinpath("profiles")
