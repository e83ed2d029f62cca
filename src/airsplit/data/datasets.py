"""What is learned from: a data set by name, fitted to what the model takes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad

from airsplit.core.arrays import Ints
from airsplit.core.errors import InvalidValue, require_choice
from airsplit.data.image_files import Bytes, Images, read_images
from airsplit.data.image_sets import IMAGE_SETS, ImageSet, get_image_set
from airsplit.data.user_data import Pair, own_data
from airsplit.system.inputs import InputSpec, Shape, format_shape

Tensors = tuple[Tensor, ...]

WHITE = 255  # of a byte
_AT_ONCE = 256  # images that are resized together
MOST_CLASSES = 1_000_000


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples as they are stored, and how they become what the model takes.

    inputs   one tensor for each input of the model, each n × …
    labels   n × …: whole numbers, or floats to be fitted
    prepare  stored inputs, of a batch, on any device, to what the model takes
    """

    inputs: Tensors
    labels: Tensor
    prepare: Callable[[Tensors], Tensors]

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> Samples:
        """The same samples on a device."""
        return replace(
            self,
            inputs=tuple(stored.to(device) for stored in self.inputs),
            labels=self.labels.to(device),
        )

    def some(self, rows: Ints) -> Samples:
        """Only these."""
        at = torch.as_tensor(rows, device=self.labels.device)
        return replace(
            self, inputs=tuple(stored[at] for stored in self.inputs), labels=self.labels[at]
        )

    def batch(self, rows: Tensor | slice) -> tuple[Tensors, Tensor]:
        """The inputs of these rows, as the model takes them, and their labels; copies, since a model may change what it is given."""
        return self.prepare(tuple(_copied(stored, rows) for stored in self.inputs)), _copied(
            self.labels, rows
        )


def _copied(stored: Tensor, rows: Tensor | slice) -> Tensor:
    return (
        stored[rows].clone() if isinstance(rows, slice) else stored[rows]
    )  # numbers of rows copy by themselves


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples to train on and to test on.

    classes  how many there are, where a label is one whole number; else None
    given    the rows of `train` that each device holds, where the data came parted; else None
    """

    train: Samples
    test: Samples
    classes: int | None
    given: tuple[Ints, ...] | None


def load_dataset(
    name: str,
    inputs: Sequence[InputSpec],
    *,
    folder: str | os.PathLike[str] | None = None,
    given: bool = False,
) -> Dataset:
    """A built-in data set, or what "package.module:factory" returns, for a model that takes `inputs`.

    Built-in images fit themselves to the model: digits are resized, others get background around them, grey ones are
    repeated in three channels.  They are never cropped, shrunk or robbed of their color.

    A factory is called without arguments and returns (train, test), each a pair (inputs, labels) of tensors or arrays;
    with `given` it returns (devices, test), a pair for each device.  `inputs` is a tuple where the model takes several.

    folder  where the files of built-in data sets lie, see `data_folder`

    >>> digits = load_dataset("digits", [InputSpec((3, 32, 32))])
    >>> (images,), labels = digits.train.batch(slice(0, 5))
    >>> images.shape, images.dtype, labels.tolist(), digits.classes
    (torch.Size([5, 3, 32, 32]), torch.float32, [0, 6, 0, 2, 7], 10)
    """
    if ":" in name:
        return _own(name, inputs, given)
    require_choice("training.dataset", name, IMAGE_SETS)
    if given:
        raise InvalidValue(
            f'training.partition "given" needs a dataset factory, got {name!r}; take another partition'
        )
    known, spec = get_image_set(name), _image_input(name, inputs)
    _require_fit(name, known, spec.shape)
    train, test = (_samples(images, known, spec) for images in read_images(name, folder))
    return Dataset(train, test, len(known.labels), None)


@dataclass(frozen=True)
class Standardize:
    """Stored bytes to what a model takes: background around, the same grey in each channel, mean 0 and variance 1.

    shape      channels, height, width that the model takes
    mean, std  of each channel, where white is 1; before there was background around

    >>> grey = torch.tensor([[[[0, 255]]]], dtype=torch.uint8)
    >>> Standardize((1, 1, 4), (0.5,), (0.25,), torch.float32)((grey,))
    (tensor([[[[-2., -2.,  2., -2.]]]]),)
    """

    shape: Shape
    mean: tuple[float, ...]
    std: tuple[float, ...]
    dtype: torch.dtype

    def __call__(self, inputs: Tensors) -> Tensors:
        (images,) = inputs
        channels, height, width = self.shape
        above, left = (height - images.shape[2]) // 2, (width - images.shape[3]) // 2
        around = (left, width - images.shape[3] - left, above, height - images.shape[2] - above)
        exact = torch.promote_types(self.dtype, torch.float32)
        values = pad(images, around).to(exact)
        mean, std = (
            WHITE * torch.tensor(each, dtype=exact, device=images.device).view(-1, 1, 1)
            for each in (self.mean, self.std)
        )
        return (((values - mean) / std).expand(-1, channels, -1, -1).to(self.dtype).contiguous(),)


def as_it_is(inputs: Tensors) -> Tensors:
    """The `prepare` of data that is stored as the model takes it."""
    return inputs


def _image_input(name: str, inputs: Sequence[InputSpec]) -> InputSpec:
    """The one input of a model that takes images."""
    floating = [spec.dtype == "" or getattr(torch, spec.dtype).is_floating_point for spec in inputs]
    if len(inputs) != 1 or len(inputs[0].shape) != 3 or not all(floating):
        takes = " and ".join(str(spec) for spec in inputs) or "nothing"
        rule = "one input of channels x height x width in a floating type"
        raise InvalidValue(
            f"training.dataset {name!r} needs a model with {rule}, e.g. 3x32x32, got {takes}; take another model or dataset"
        )
    return inputs[0]


def _require_fit(name: str, known: ImageSet, shape: Shape) -> None:
    channels, height, width = known.shape
    if shape[0] not in (channels, 3) or shape[1] < height or shape[2] < width:
        which = str(channels) if channels == 3 else f"{channels} or 3"
        what = f"{which} channels and at least {height}x{width}, e.g. {format_shape((channels, max(height, 32), max(width, 32)))}"
        why = f"its images are {format_shape(known.shape)}, and never cropped, shrunk or made grey"
        raise InvalidValue(
            f"training.dataset {name!r} needs a model that takes {what}, got {format_shape(shape)}: {why}; set model.input_shape"
        )


def _samples(images: Images, known: ImageSet, spec: InputSpec) -> Samples:
    pixels = (
        torch.from_numpy(images.pixels)
        if known.brightest == WHITE
        else _resized(images.pixels, known.brightest, spec.shape[1:])
    )
    dtype = getattr(torch, spec.dtype) if spec.dtype else torch.get_default_dtype()
    return Samples(
        (pixels,),
        torch.from_numpy(images.labels),
        Standardize(spec.shape, known.mean, known.std, dtype),
    )


def _resized(pixels: Bytes, brightest: int, size: Shape) -> Tensor:
    """Small images, enlarged bilinearly, as bytes of which 255 is white."""
    made = torch.empty((len(pixels), pixels.shape[1], *size), dtype=torch.uint8)
    for start in range(0, len(pixels), _AT_ONCE):
        some = torch.from_numpy(pixels[start : start + _AT_ONCE]).to(torch.float32)
        large = interpolate(some, size=size, mode="bilinear", align_corners=False)
        made[start : start + _AT_ONCE] = (large * (WHITE / brightest)).round()
    return made


def _own(name: str, inputs: Sequence[InputSpec], given: bool) -> Dataset:
    parts, test = own_data(name, inputs, given)
    ends = np.cumsum([len(labels) for _, labels in parts])
    rows = tuple(
        np.arange(end - len(labels), end) for end, (_, labels) in zip(ends, parts, strict=True)
    )
    train_labels, test_labels = torch.cat([labels for _, labels in parts]), torch.cat([test[1]])
    classes = None
    if train_labels.ndim == 1 and not train_labels.is_floating_point():
        classes = int(max(train_labels.max(), test_labels.max())) + 1
        if classes > MOST_CLASSES:  # each device's mix of classes is held in memory
            raise InvalidValue(
                f"training.dataset {name!r}: labels that are whole numbers are classes, below {MOST_CLASSES:,}, got {classes - 1:,}; "
                "make them floats where they are quantities"
            )
    train = Samples(_joined(parts), train_labels, as_it_is)
    return Dataset(
        train, Samples(_joined([test]), test_labels, as_it_is), classes, rows if given else None
    )


def _joined(parts: Sequence[Pair]) -> Tensors:
    """Inputs one after the other, in memory of our own: what the factory keeps is neither changed nor followed."""
    return tuple(
        torch.cat(several) for several in zip(*(inputs for inputs, _ in parts), strict=True)
    )
