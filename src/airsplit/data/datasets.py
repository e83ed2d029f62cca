"""Data sets by name, adapted to the inputs of the model."""

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
from airsplit.data.user_data import Pair, get_dtype, load_user_data
from airsplit.system.inputs import InputSpec, Shape, format_shape

Tensors = tuple[Tensor, ...]

# The byte of a white pixel.
WHITE = 255
# Images that are resized in one call, as floats: all of them might not fit into memory.
RESIZE_BATCH = 256
# Each device's mix of classes is held in memory.
MAX_CLASSES = 1_000_000


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples as they are stored, and how they become inputs of the model.

    Attributes:
        inputs: One tensor for each input of the model, with one row per sample.
        labels: One row per sample; whole numbers, or floats for a regression.
        prepare: Turns a batch of stored inputs, on any device, into inputs of the model.
    """

    inputs: Tensors
    labels: Tensor
    prepare: Callable[[Tensors], Tensors]

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> Samples:
        """Copy the samples to a device."""
        inputs = tuple(tensor.to(device) for tensor in self.inputs)
        return replace(self, inputs=inputs, labels=self.labels.to(device))

    def select(self, rows: Ints) -> Samples:
        """Return only these rows."""
        index = torch.as_tensor(rows, device=self.labels.device)
        inputs = tuple(tensor[index] for tensor in self.inputs)
        return replace(self, inputs=inputs, labels=self.labels[index])

    def batch(self, rows: Tensor | slice) -> tuple[Tensors, Tensor]:
        """Return inputs of the model and labels. Copies, since a model may change its inputs."""
        inputs = tuple(_copy_rows(tensor, rows) for tensor in self.inputs)
        return self.prepare(inputs), _copy_rows(self.labels, rows)


def _copy_rows(stored: Tensor, rows: Tensor | slice) -> Tensor:
    # Indexing by a tensor copies; a slice is a view.
    return stored[rows].clone() if isinstance(rows, slice) else stored[rows]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples to train on and to test on.

    Attributes:
        classes: Number of classes if a label is one whole number, else None.
        given: Rows of `train` of each device, if the data came divided among devices, else None.
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
    """Load a data set for a model that takes `inputs`.

    Built-in images are adapted to the model: digits are resized, others get a border of
    background, and grey images are repeated in three channels. They are never cropped, shrunk or
    turned to grey.

    Args:
        name: A built-in data set, or "package.module:factory". A factory is called without
            arguments and returns (train, test), each a pair (inputs, labels) of tensors or arrays.
            Its inputs are a tuple if the model takes several.
        inputs: Inputs of the model.
        folder: Data folder of the built-in data sets; see `find_data_folder`.
        given: Whether the factory returns (devices, test) instead, with a pair for each device.

    >>> digits = load_dataset("digits", [InputSpec((3, 32, 32))])
    >>> (images,), labels = digits.train.batch(slice(0, 5))
    >>> images.shape, images.dtype, labels.tolist(), digits.classes
    (torch.Size([5, 3, 32, 32]), torch.float32, [0, 6, 0, 2, 7], 10)
    """
    if ":" in name:
        return load_user_dataset(name, inputs, given)
    require_choice("training.dataset", name, IMAGE_SETS)
    if given:
        raise InvalidValue(
            f'training.partition "given" needs a dataset factory, got {name!r}; '
            "take another partition"
        )
    image_set = get_image_set(name)
    spec = require_image_input(name, image_set, inputs)
    train, test = (adapt_images(images, image_set, spec) for images in read_images(name, folder))
    return Dataset(train, test, len(image_set.labels), None)


@dataclass(frozen=True)
class Standardize:
    """Turns stored bytes into standardized images with a border of background.

    Attributes:
        shape: Channels, height and width of the model's input. Grey images are repeated in all
            channels.
        mean: Mean of each channel of the stored images, without the border, if white is 1.
        std: Standard deviation of each channel.
        dtype: Type of the model's input.

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
        extra_height = height - images.shape[2]
        extra_width = width - images.shape[3]
        top = extra_height // 2
        left = extra_width // 2
        bordered = pad(images, (left, extra_width - left, top, extra_height - top))

        # In half precision every step would round, so only the result is converted to it.
        exact = torch.promote_types(self.dtype, torch.float32)
        mean, std = (
            WHITE * torch.tensor(values, dtype=exact, device=images.device).view(-1, 1, 1)
            for values in (self.mean, self.std)
        )
        standardized = (bordered.to(exact) - mean) / std
        return (standardized.expand(-1, channels, -1, -1).to(self.dtype).contiguous(),)


def pass_through(inputs: Tensors) -> Tensors:
    """Return stored inputs unchanged: the `prepare` of a user's data."""
    return inputs


def require_image_input(name: str, image_set: ImageSet, inputs: Sequence[InputSpec]) -> InputSpec:
    """Return the only input of the model; raise if the images do not fit into it."""
    is_floating = all(get_dtype(spec).is_floating_point for spec in inputs)
    if len(inputs) != 1 or len(inputs[0].shape) != 3 or not is_floating:
        actual = " and ".join(str(spec) for spec in inputs) or "none"
        raise InvalidValue(
            f"training.dataset {name!r} needs a model with one input of channels x height x width "
            f"in a floating type, e.g. 3x32x32, got {actual}; take another model or dataset"
        )

    # Grey images can be repeated in three channels; color cannot become grey without loss.
    channels, height, width = image_set.shape
    shape = inputs[0].shape
    if shape[0] in (channels, 3) and shape[1] >= height and shape[2] >= width:
        return inputs[0]
    possible_channels = str(channels) if channels == 3 else f"{channels} or 3"
    example = format_shape((channels, max(height, 32), max(width, 32)))
    raise InvalidValue(
        f"training.dataset {name!r} needs a model that takes {possible_channels} channels and at "
        f"least {height}x{width}, e.g. {example}, got {format_shape(shape)}: its images are "
        f"{format_shape(image_set.shape)}, and are never cropped, shrunk or turned to grey; "
        "set model.input_shape"
    )


def adapt_images(images: Images, image_set: ImageSet, spec: InputSpec) -> Samples:
    """Return images for an input of the model."""
    # They stay bytes until a batch is taken: floats would need four times the memory.
    if image_set.white == WHITE:
        pixels = torch.from_numpy(images.pixels)
    else:
        pixels = enlarge_images(images.pixels, image_set.white, spec.shape[1:])
    prepare = Standardize(spec.shape, image_set.mean, image_set.std, get_dtype(spec))
    return Samples((pixels,), torch.from_numpy(images.labels), prepare)


def enlarge_images(pixels: Bytes, white: int, size: Shape) -> Tensor:
    """Enlarge small images bilinearly, and scale them to bytes of which 255 is white."""
    resized = torch.empty((len(pixels), pixels.shape[1], *size), dtype=torch.uint8)
    for start in range(0, len(pixels), RESIZE_BATCH):
        small = torch.from_numpy(pixels[start : start + RESIZE_BATCH]).to(torch.float32)
        large = interpolate(small, size=size, mode="bilinear", align_corners=False)
        resized[start : start + RESIZE_BATCH] = (large * (WHITE / white)).round()
    return resized


def load_user_dataset(name: str, inputs: Sequence[InputSpec], given: bool) -> Dataset:
    """Return the data set of a user's factory, with the rows of each device if it has parts."""
    parts, test = load_user_data(name, inputs, given)
    train = _concatenate(parts)
    test_samples = _concatenate([test])

    classes = None
    if train.labels.ndim == 1 and not train.labels.is_floating_point():
        highest = int(max(train.labels.max(), test_samples.labels.max()))
        if highest >= MAX_CLASSES:
            raise InvalidValue(
                f"training.dataset {name!r}: labels that are whole numbers are classes, which must "
                f"be below {MAX_CLASSES:,}, got {highest:,}; make them floats if they are "
                "quantities"
            )
        classes = highest + 1

    if not given:
        return Dataset(train, test_samples, classes, None)
    # The parts lie one after another in `train`.
    ends = np.cumsum([len(labels) for _, labels in parts])
    rows = tuple(
        np.arange(end - len(labels), end) for end, (_, labels) in zip(ends, parts, strict=True)
    )
    return Dataset(train, test_samples, classes, rows)


def _concatenate(parts: Sequence[Pair]) -> Samples:
    """Return the samples of all parts, in memory that the factory does not share."""
    # torch.cat copies even a single tensor.
    columns = zip(*(inputs for inputs, _ in parts), strict=True)
    inputs = tuple(torch.cat(tensors) for tensors in columns)
    return Samples(inputs, torch.cat([labels for _, labels in parts]), pass_through)
