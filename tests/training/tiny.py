"""Models and data sets that train in milliseconds, as factories that a scenario can name; and scenarios made of them.

Weights and samples are the same every time, whatever torch's generators are at.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from airsplit.scenario.scenario import Scenario

FEATURES, CLASSES = 6, 3
SIZES = (13, 8, 4, 2, 9)
"""Samples of each device in `parted`: with batches of four, one device has half a batch."""


def fixed_weights(make: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """A factory whose weights are the same every time; with `kind`, in that floating type."""

    @functools.wraps(make)
    def made(kind: str = "float32", **arguments: Any) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(7)
            return make(**arguments).to(getattr(torch, kind))

    return made


# ---- models ----------------------------------------------------------------------------------------------------------------
@fixed_weights
def mlp(classes: int = CLASSES) -> nn.Module:
    return nn.Sequential(
        nn.Linear(FEATURES, 7), nn.Tanh(), nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, classes)
    )


@fixed_weights
def norm_mlp() -> nn.Module:
    """BatchNorm on both sides of the middle."""
    return nn.Sequential(
        nn.Linear(FEATURES, 7),
        nn.BatchNorm1d(7),
        nn.Tanh(),
        nn.Linear(7, 5),
        nn.BatchNorm1d(5),
        nn.Linear(5, CLASSES),
    )


@fixed_weights
def front_norm_mlp() -> nn.Module:
    """BatchNorm up to split 2 only."""
    return nn.Sequential(
        nn.Linear(FEATURES, 7),
        nn.BatchNorm1d(7),
        nn.Tanh(),
        nn.Linear(7, 5),
        nn.Tanh(),
        nn.Linear(5, CLASSES),
    )


@fixed_weights
def dropout_mlp(front: float = 0.0, back: float = 0.0) -> nn.Module:
    layers = (
        nn.Linear(FEATURES, 7),
        nn.Dropout(front),
        nn.Tanh(),
        nn.Linear(7, 5),
        nn.Tanh(),
        nn.Dropout(back),
        nn.Linear(5, CLASSES),
    )
    return nn.Sequential(*layers)


@fixed_weights
def cnn(norm: bool = False) -> nn.Module:
    between = (nn.BatchNorm2d(3),) if norm else ()
    return nn.Sequential(
        nn.Conv2d(1, 3, 3),
        *between,
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(12, 6),
        nn.ReLU(),
        nn.Linear(6, CLASSES),
    )


class Shortcut(nn.Module):
    """The input of the block goes around it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.one, self.two = nn.Linear(FEATURES, 5), nn.Linear(5, 5), nn.Linear(5, 5)
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.stem(x))
        out: Tensor = self.head(x + self.two(torch.tanh(self.one(x))))
        return out


shortcut = fixed_weights(Shortcut)


class Tied(nn.Module):
    """`first` and `again` are one layer; `last` has the weight of `before` under a name of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(FEATURES, 5)
        self.first = nn.Linear(5, 5)
        self.again = self.first
        self.before = nn.Linear(5, 4)
        self.last = nn.Linear(5, 4)
        self.last.weight = self.before.weight
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.stem(x))
        x = torch.tanh(self.again(torch.tanh(self.first(x))))
        out: Tensor = self.head(torch.tanh(self.before(x)) * torch.tanh(self.last(x)))
        return out


tied = fixed_weights(Tied)


@fixed_weights
def tied_ends() -> nn.Module:
    """The first layer and the last but one share a weight: no cut between them is legal."""
    model = nn.Sequential(
        nn.Linear(FEATURES, FEATURES),
        nn.Tanh(),
        nn.Linear(FEATURES, FEATURES),
        nn.Tanh(),
        nn.Linear(FEATURES, CLASSES),
    )
    model[2].weight = model[0].weight
    return model


@fixed_weights
def frozen(layer: int = 0) -> nn.Module:
    model = mlp()
    model[layer].requires_grad_(False)
    return model


@fixed_weights
def all_frozen() -> nn.Module:
    return mlp().requires_grad_(False)


def drawn_mlp(kind: str = "float32") -> nn.Module:
    """Weights by torch's generator, as most factories have them."""
    return nn.Sequential(
        nn.Linear(FEATURES, 7), nn.Tanh(), nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, CLASSES)
    )


@fixed_weights
def linear() -> nn.Module:
    """Nothing that holds large numbers back."""
    model = nn.Sequential(
        nn.Linear(FEATURES, 7), nn.Linear(7, 7), nn.Linear(7, 7), nn.Linear(7, CLASSES)
    )
    with torch.no_grad():
        model[1].weight.mul_(30)
    return model


class FrozenNorm(nn.Sequential):
    """A BatchNorm that stays in evaluation mode whatever the mode of the model."""

    def train(self, mode: bool = True) -> FrozenNorm:
        super().train(mode)
        self[1].eval()
        return self


@fixed_weights
def frozen_norm() -> nn.Module:
    model = FrozenNorm(nn.Linear(FEATURES, 7), nn.BatchNorm1d(7), nn.Tanh(), nn.Linear(7, CLASSES))
    model[1].running_mean.uniform_(-0.5, 0.5)
    model[1].running_var.uniform_(0.5, 2.0)
    return model


class Several(nn.Module):
    """An output that is more than one tensor: a dict with logits, or a tuple whose first is the scores."""

    def __init__(self, named: bool) -> None:
        super().__init__()
        self.one, self.two, self.named = nn.Linear(FEATURES, 5), nn.Linear(5, CLASSES), named

    def forward(self, x: Tensor) -> Any:
        hidden = torch.tanh(self.one(x))
        scores = self.two(hidden)
        return {"hidden": hidden, "logits": scores} if self.named else (scores, hidden)


several = fixed_weights(Several)


class Mixing(nn.Module):
    """Samples of a batch see each other, without any layer that says so; `zero` begins with a head of zeros."""

    def __init__(self, zero: bool = False) -> None:
        super().__init__()
        self.one, self.two, self.head = (
            nn.Linear(FEATURES, 5),
            nn.Linear(5, 5),
            nn.Linear(5, CLASSES),
        )
        if zero:
            nn.init.zeros_(self.head.weight)
            nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.one(x))
        x = self.two(x - x.mean(dim=0))
        out: Tensor = self.head(x)
        return out


mixing = fixed_weights(Mixing)


class Unused(nn.Module):
    """Parameters that no input reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.aside, self.two = (
            nn.Linear(FEATURES, 5),
            nn.Linear(4, 4),
            nn.Linear(5, CLASSES),
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.two(torch.tanh(self.one(x)))
        return out


unused = fixed_weights(Unused)


@fixed_weights
def line() -> nn.Module:
    """For labels that are numbers."""
    return nn.Sequential(nn.Linear(FEATURES, 4), nn.Tanh(), nn.Linear(4, 1))


@fixed_weights
def squeezed() -> nn.Module:
    """One score a sample, without an axis for it."""
    return nn.Sequential(nn.Linear(FEATURES, 4), nn.Tanh(), nn.Linear(4, 1), nn.Flatten(0))


@fixed_weights
def digits_net() -> nn.Module:
    """For the built-in digits, at their own size."""
    layers = (
        nn.Conv2d(1, 8, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 32),
        nn.ReLU(),
    )
    return nn.Sequential(*layers, nn.Linear(32, 10))


class Words(nn.Module):
    """Whole numbers in: a row of scores for each place of a sequence; `flat` lays the sequences end to end."""

    def __init__(self, flat: bool = False) -> None:
        super().__init__()
        self.table, self.one, self.two, self.flat = (
            nn.Embedding(9, 5),
            nn.Linear(5, 5),
            nn.Linear(5, 9),
            flat,
        )

    def forward(self, words: Tensor) -> Tensor:
        x: Tensor = self.two(torch.tanh(self.one(self.table(words))))
        return x.flatten(0, 1) if self.flat else x


words = fixed_weights(Words)


class Segmenter(nn.Module):
    """A row of scores for each pixel, in torch's layout; `last` puts the classes behind height and width."""

    def __init__(self, classes: int = CLASSES, last: bool = False) -> None:
        super().__init__()
        self.one, self.two, self.last = (
            nn.Conv2d(1, 8, 3, padding=1),
            nn.Conv2d(8, classes, 3, padding=1),
            last,
        )

    def forward(self, image: Tensor) -> Tensor:
        scores: Tensor = self.two(torch.relu(self.one(image)))
        return scores.movedim(1, -1) if self.last else scores


segmenter = fixed_weights(Segmenter)


class Rooted(nn.Module):
    """The loss is finite, its gradient is not: √0² has none."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(FEATURES, 5), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.one(x)
        out: Tensor = self.two(torch.sqrt((x - x) ** 2) + x)
        return out


rooted = fixed_weights(Rooted)


class Judging(nn.Module):
    """One number for a whole batch: what is to be made small."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(FEATURES, 5), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = (self.two(torch.tanh(self.one(x))) ** 2).mean()
        return out


judging = fixed_weights(Judging)


@fixed_weights
def rooted_behind() -> nn.Module:
    """The same behind another layer, so that it is a layer of the server's which has no gradient."""
    return nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.Tanh(), Rooted())


class Overlapping(nn.Module):
    """Buffers that lie in one memory."""

    table: Tensor
    first: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(FEATURES, 5), nn.Linear(5, CLASSES)
        self.register_buffer("table", torch.linspace(0.5, 1.5, 10))
        self.register_buffer("first", self.table[:5])

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.two(torch.tanh(self.one(x)) * self.first + self.table[5:])
        return out


overlapping = fixed_weights(Overlapping)


class Turn(nn.Module):
    """Samples side by side."""

    def forward(self, x: Tensor) -> Tensor:
        return x.t()


@fixed_weights
def sideways() -> nn.Module:
    """In the middle a column is a sample."""
    return nn.Sequential(nn.Linear(FEATURES, 5), Turn(), nn.Tanh(), Turn(), nn.Linear(5, CLASSES))


class Turned(nn.Module):
    """Complex numbers behind the first layer."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(FEATURES, 5, dtype=dtype), nn.Linear(5, CLASSES, dtype=dtype)
        self.phase = nn.Parameter(
            torch.polar(torch.ones(5, dtype=dtype), torch.linspace(0, 1, 5, dtype=dtype))
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.two((torch.tanh(self.one(x)) * self.phase).real)
        return out


def turned(kind: str = "float32") -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return Turned(getattr(torch, kind))


class Scaled(nn.Module):
    """A parameter that is one number, and one that is none, as some models have them."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(FEATURES, 5), nn.Linear(5, CLASSES)
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.nothing = nn.Parameter(torch.zeros(0))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.two(torch.tanh(self.one(x))) * self.scale + self.nothing.sum()
        return out


scaled = fixed_weights(Scaled)


class Expanded(nn.Module):
    """A constant that is one number in memory and five to look at."""

    weights: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(FEATURES, 5), nn.Linear(5, CLASSES)
        self.register_buffer("weights", torch.tensor([1.5]).expand(5))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.two(torch.tanh(self.one(x)) * self.weights)
        return out


expanded = fixed_weights(Expanded)


# ---- losses ----------------------------------------------------------------------------------------------------------------
def squared_error(output: Tensor, labels: Tensor) -> Tensor:
    return ((output.squeeze(-1) - labels) ** 2).mean()


def wide_loss(output: Tensor, labels: Tensor) -> Tensor:
    """In a wider type than the model's."""
    return F.cross_entropy(output.double(), labels)


def loss_of_one_entry(output: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(output, labels).reshape(1)


def flat_loss(output: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(output, labels.flatten())


def as_judged(output: Tensor, labels: Tensor) -> Tensor:
    """By the model itself."""
    return output


def yes_or_no(output: Tensor, labels: Tensor) -> Tensor:
    """One score for two classes."""
    return F.binary_cross_entropy_with_logits(output.squeeze(-1), labels.to(output.dtype))


def part_wrong(output: Tensor, labels: Tensor) -> Tensor:
    """A metric: the part of the answers that is wrong."""
    return (output.argmax(dim=1) != labels).double().mean()


# ---- data ------------------------------------------------------------------------------------------------------------------
def drawn(samples: int, seed: int, *shape: int, classes: int = CLASSES) -> tuple[Tensor, Tensor]:
    """Samples whose class can be learned: each lies about the centre of its class."""
    rng = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (samples,), generator=rng)
    centres = torch.randn(classes, *shape, generator=torch.Generator().manual_seed(1))
    return centres[labels] + 0.5 * torch.randn(samples, *shape, generator=rng), labels


def flat() -> Any:
    return drawn(48, 2, FEATURES), drawn(21, 3, FEATURES)


def two_classes() -> Any:
    return drawn(48, 2, FEATURES, classes=2), drawn(21, 3, FEATURES, classes=2)


def images() -> Any:
    return drawn(48, 2, 1, 6, 6), drawn(21, 3, 1, 6, 6)


def numbers() -> Any:
    (x, _), (z, _) = flat()
    return (x, x.sum(dim=1)), (z, z.sum(dim=1))


def sequences() -> Any:
    rng = torch.Generator().manual_seed(5)
    walks = torch.randint(9, (40, 5), generator=rng)
    return (walks[:30, :-1], walks[:30, 1:]), (walks[30:, :-1], walks[30:, 1:])


def shaded(samples: int, seed: int, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Images with pixels that are dark, grey or bright, which is their class."""
    rng = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (samples, height, width), generator=rng)
    return labels[:, None] - 1 + 0.2 * torch.randn(samples, 1, height, width, generator=rng), labels


def pixels() -> Any:
    return shaded(40, 1, 6, 5), shaded(20, 2, 6, 5)


def one_class_to_test() -> Any:
    train, (inputs, labels) = flat()
    return train, (inputs[labels == 1], labels[labels == 1])


def parted_by_class() -> Any:
    """The second device has a class that nobody is tested on."""
    (x, y), (z, w) = flat()
    return [(x[y < 2], y[y < 2]), (x[y == 2], y[y == 2])], (z[w < 2], w[w < 2])


def drawn_anew() -> Any:
    """By torch's generator."""
    labels = torch.arange(24) % CLASSES
    return (torch.randn(24, FEATURES) + labels[:, None], labels), drawn(21, 3, FEATURES)


def with_nan() -> Any:
    (inputs, labels), test = flat()
    inputs[3, 2] = float("nan")
    return (inputs, labels), test


def parted_with_huge() -> Any:
    """What the second device has is finite, but overflows on its way through a model."""
    (one, other), test = [drawn(8, 10 + k, FEATURES) for k in range(2)], drawn(21, 3, FEATURES)
    return [one, (other[0] / other[0].abs().max() * 3e38, other[1])], test


def parted() -> Any:
    """What each of five devices holds."""
    return [drawn(size, 10 + k, FEATURES) for k, size in enumerate(SIZES)], drawn(21, 3, FEATURES)


def parted_evenly() -> Any:
    return [drawn(8, 10 + k, FEATURES) for k in range(4)], drawn(21, 3, FEATURES)


def parted_images() -> Any:
    return [drawn(size, 10 + k, 1, 6, 6) for k, size in enumerate(SIZES)], drawn(21, 3, 1, 6, 6)


# ---- scenarios -------------------------------------------------------------------------------------------------------------
SHAPES = {"cnn": [1, 6, 6], "segmenter": [1, 6, 5], "words": [4], "digits_net": [1, 8, 8]}


def scenario(
    model: str = "mlp",
    data: str = "parted",
    splits: Any = 2,
    *,
    kind: str = "float32",
    **changes: Any,
) -> Scenario:
    """A scenario of one of the models here on one of the data sets here.

    splits   one for each device
    kind     the floating type of the model
    changes  with two underscores in place of the dot; what has none is of [training]
    """
    devices = (
        len(splits)
        if isinstance(splits, list)
        else {"parted": 5, "parted_images": 5, "parted_evenly": 4}.get(data, 1)
    )  # as many as the data are for
    training = {
        "dataset": f"{__name__}:{data}",
        "rounds": 3,
        "iterations_per_round": 2,
        "batch_size": 4,
        "learning_rate": 0.3,
    }
    if data.startswith("parted"):
        training["partition"] = "given"
    settings: dict[str, dict[str, Any]] = {
        "model": {
            "name": f"{__name__}:{model}",
            "input_shape": SHAPES.get(model, [FEATURES]),
            "arguments": {"kind": kind},
        },
        "fleet": {"devices": devices},
        "plan": {"method": "fixed", "split": splits},
        "training": training,
    }
    settings["model"]["input_dtype"] = "int64" if model == "words" else kind
    for name, value in changes.items():
        table, dot, key = name.rpartition("__")
        settings.setdefault(table if dot else "training", {})[key] = value
    settings["training"] = {
        key: value for key, value in settings["training"].items() if value is not None
    }
    if "model__arguments" in changes:
        settings["model"]["arguments"] = {"kind": kind} | changes["model__arguments"]
    return Scenario(**settings)
