"""The inputs that cuts send unchanged: those of the profile against those that fronts send."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from airsplit import METHODS, AirsplitError, Fleet, plan, profile
from airsplit.models.cut import cut_in_halves
from airsplit.models.splits import ModelSplits, find_splits
from airsplit.system.profile import Profile

WIDTH, BATCH = 6, 3
FLEET = Fleet(seconds_per_mac=[1e-9, 3e-9], fluctuation=1e9, full_band_rate_bps=[1e6, 2e6])


class RandomTwoInputs(nn.Module):
    """A random program over two inputs, with branches, residuals, moves and concatenations.

    Its last layer reads all tensors that nothing else reads.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        self.layers = nn.ModuleList()
        self.steps: list[tuple[str, list[int]]] = []
        made = 2
        for _ in range(int(rng.integers(4, 11))):
            kind = str(rng.choice(["layer", "layer", "residual", "concatenation", "slice", "move"]))
            count = 2 if kind in ("residual", "concatenation") else 1
            self.steps.append((kind, rng.integers(0, made, count).tolist()))
            width = {"concatenation": 2 * WIDTH, "slice": WIDTH // 2}.get(kind, WIDTH)
            self.layers.append(
                nn.Identity() if kind in ("residual", "move") else nn.Linear(width, WIDTH)
            )
            made += 1
        used = {source for _, sources in self.steps for source in sources}
        self.ends = [number for number in range(made) if number not in used]
        self.head = nn.Linear(WIDTH * len(self.ends), 2)

    def forward(self, image: Tensor, context: Tensor) -> Any:
        made = [image, context]
        for (kind, sources), layer in zip(self.steps, self.layers, strict=True):
            first = made[sources[0]]
            if kind == "residual":
                made.append(first * 1.5 + made[sources[1]].tanh())
            elif kind == "concatenation":
                made.append(layer(torch.cat([first, made[sources[1]]], 1)).tanh())
            elif kind == "slice":
                made.append(layer(first[:, : WIDTH // 2]).tanh())
            elif kind == "move":
                made.append(first.view(-1, 2, WIDTH // 2).mT.flatten(1).double().flip(1).float())
            else:
                made.append(layer(first).tanh())
        return self.head(torch.cat([made[number] for number in self.ends], 1))


def find_sent_inputs(splits: ModelSplits, inputs: dict[str, Tensor]) -> list[set[str]]:
    """Run every front, and find the inputs whose numbers are among those that it sends."""
    numbers = {name: set(tensor.double().flatten().tolist()) for name, tensor in inputs.items()}
    sent_inputs = []
    for split in range(1, len(splits.splits) + 1):
        front, _ = cut_in_halves(splits, split)
        sent = {
            number
            for tensor in front(*inputs.values())
            for number in tensor.double().flatten().tolist()
        }
        sent_inputs.append({name for name in inputs if not sent.isdisjoint(numbers[name])})
    return sent_inputs


@pytest.mark.filterwarnings("ignore:.*nothing is averaged")
@pytest.mark.parametrize("seed", range(20))
def test_a_profile_names_the_inputs_that_fronts_send_and_no_plan_sends_them(
    seed: int,
) -> None:
    torch.manual_seed(seed)
    inputs = {name: torch.randn(BATCH, WIDTH) for name in ("image", "context")}
    splits = find_splits(RandomTwoInputs(seed), tuple(inputs.values()))
    profiled = splits.profile()
    sent_inputs = find_sent_inputs(splits, inputs)
    assert [set(names) for names in profiled.raw_inputs] == sent_inputs
    assert not any(profiled.other_inputs)

    for method in METHODS:
        if method != "fixed":
            planned = plan(profiled, FLEET, method=method, max_split=len(profiled)).splits
            assert not any(sent_inputs[split - 1] for split in planned)
    for split, names in enumerate(sent_inputs, 1):
        if names:
            with pytest.raises(AirsplitError, match=min(names)):
                plan(profiled, FLEET, method="fixed", split=split, max_split=len(profiled))


def test_the_random_models_have_splits_of_every_kind() -> None:
    seen = set[tuple[str, ...]]()
    for seed in range(20):
        seen |= set(
            profile(
                RandomTwoInputs(seed), inputs=(torch.empty(1, WIDTH), torch.empty(1, WIDTH))
            ).raw_inputs
        )
    assert seen == {(), ("image",), ("context",), ("image", "context")}


class Beside(nn.Module):
    """One input goes through two layers; something made of the other crosses beside them."""

    def __init__(self, make: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.second, self.make = nn.Linear(4, 4), nn.Linear(4, 2), make

    def forward(self, image: Tensor, context: Tensor) -> Tensor:
        beside = self.make(context)
        return self.second(self.first(image)).sum(1) + beside.flatten(1).to(image.dtype).sum(1)


def crossing_behind_the_first_layer(
    make: Callable[[Tensor], Tensor], context: Tensor | None = None
) -> Profile:
    return profile(
        Beside(make),
        inputs=(torch.empty(1, 4), torch.empty(1, 2, 6) if context is None else context),
    )


def raw_behind_the_first_layer(
    make: Callable[[Tensor], Tensor], context: Tensor | None = None
) -> tuple[str, ...]:
    profiled = crossing_behind_the_first_layer(make, context)
    return tuple(profiled.raw_inputs[profiled.names.index("first")])


def written_into_zeros(x: Tensor) -> Tensor:
    out = torch.zeros(x.shape[0], 3, 6)
    out[:, 1:] = x
    return out


def written_through_a_view(x: Tensor) -> Tensor:
    out = x.new_zeros(x.shape[0], 12)
    out.view(-1, 2, 6)[:, 0].copy_(x[:, 1])
    return out


class Through(torch.autograd.Function):
    """The identity, with its gradient reversed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return -gradient


MOVED: dict[str, Callable[[Tensor], Tensor]] = {
    "as it is": lambda x: x,
    "view": lambda x: x.view(-1, 3, 4),
    "slice": lambda x: x[:, :1],
    "every other": lambda x: x[..., ::2],
    "permuted": lambda x: x.permute(0, 2, 1),
    "cast": lambda x: x.half(),
    "double cast": lambda x: x.double().float(),
    "copied": lambda x: x.clone().detach(),
    "with itself": lambda x: torch.cat([x, torch.ones_like(x)], 1),
    "stacked": lambda x: torch.stack([x, x]).movedim(0, 1),
    "chunk": lambda x: x.chunk(2, 1)[1],
    "unbound": lambda x: x.unbind(1)[0],
    "padded": lambda x: F.pad(x, (1, 1)),
    "padded in circles": lambda x: F.pad(x, (1, 1), mode="circular"),
    "flipped": lambda x: x.flip(1),
    "rolled": lambda x: x.roll(1, 2),
    "sorted": lambda x: x.sort(2)[0],
    "repeated": lambda x: x.repeat_interleave(2, 1),
    "in part": lambda x: x.masked_fill(torch.ones(2, 6).tril() == 0, 0.0),
    "selected": lambda x: torch.where(torch.ones(2, 6).tril() == 0, 0.0, x),
    "gathered": lambda x: x[:, torch.tensor([1, 0])],
    "larger": lambda x: F.interpolate(x, scale_factor=2),
    "larger, exactly": lambda x: F.interpolate(x, scale_factor=2, mode="nearest-exact"),
    "packed": lambda x: nn.utils.rnn.pad_sequence(list(x.unbind(1)), batch_first=False),
    "a function with a gradient of its own": lambda x: Through.apply(x),
    "real and imaginary": lambda x: torch.complex(x, x).imag,
    "patches": lambda x: F.unfold(x[:, None], 2),
    "written into zeros": written_into_zeros,
    "written through a view": written_through_a_view,
    "an identity": nn.Identity(),
    "dropout": nn.Dropout(0.5),
    "flatten": nn.Flatten(),
}
COMPUTED: dict[str, Callable[[Tensor], Tensor]] = {
    "arithmetic": lambda x: x / 255,
    "a function": lambda x: x.sigmoid(),
    "in place": lambda x: x.clone().mul_(2),
    "pooled": lambda x: F.max_pool1d(x, 2),
    "summed": lambda x: x.cumsum(1),
    "places": lambda x: x.sort(2)[1],
    "compared": lambda x: x > 0,
    "a product": lambda x: x @ torch.ones(6, 6),
}


@pytest.mark.parametrize("name", MOVED)
def test_numbers_that_are_only_moved_are_raw(name: str) -> None:
    assert raw_behind_the_first_layer(MOVED[name]) == ("context",)


def scripted(x: Tensor) -> Tensor:
    return x.flatten(1)[:, 1:]


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
def test_numbers_that_torchscript_moves_are_raw() -> None:
    function = torch.jit.script(scripted)
    assert raw_behind_the_first_layer(lambda x: function(x)) == ("context",)


@pytest.mark.parametrize("name", COMPUTED)
def test_computed_numbers_are_not_raw(name: str) -> None:
    assert raw_behind_the_first_layer(COMPUTED[name]) == ()


def test_complex_numbers_are_raw_data() -> None:
    assert raw_behind_the_first_layer(
        torch.view_as_real, torch.empty(1, 3, dtype=torch.complex64)
    ) == ("context",)


class Text(nn.Module):
    """Token ids, position ids that index a table by hand, a mask, and lengths."""

    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.tokens, self.head = nn.Linear(8, 8), nn.Embedding(50, 8), nn.Linear(8, 3)
        self.register_buffer("table", torch.randn(30, 8))

    def forward(
        self, image: Tensor, ids: Tensor, position_ids: Tensor, mask: Tensor, lengths: Tensor
    ) -> Tensor:
        h = self.first(image)[:, None]
        h = h + self.tokens(ids.clamp(min=0)) + self.table[position_ids + 1]
        h = torch.where(mask[..., None], h, 0.0)
        return self.head(h[torch.arange(len(h)), lengths])


def test_integers_that_look_up_a_table_are_raw_data() -> None:
    ids, mask = torch.zeros(1, 5, dtype=torch.int64), torch.ones(1, 5, dtype=torch.bool)
    profiled = profile(
        Text(), inputs=(torch.empty(1, 8), ids, ids, mask, torch.zeros(1, dtype=torch.int64))
    )
    behind = profiled.names.index("first")
    assert profiled.raw_inputs[behind] == ("ids", "position_ids")
    # Lengths look up the data, not a table.
    assert profiled.other_inputs[behind] == ("mask", "lengths")
    assert set(profiled.raw_inputs[profiled.names.index("head")]) == set()
    assert profiled.permitted_splits(["ids", "position_ids"])[behind]
    assert not profiled.permitted_splits(["position_ids"])[behind]


def test_tokens_that_are_shifted_before_a_lookup_are_raw_data() -> None:
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.tokens, self.head = (
                nn.Linear(8, 8),
                nn.Embedding(50, 8),
                nn.Linear(8, 3),
            )

        def forward(self, image: Tensor, ids: Tensor) -> Tensor:
            h = self.first(image)[:, None]
            shifted = ids.new_zeros(ids.shape)
            shifted[:, 1:] = ids[:, :-1]
            return self.head(h + self.tokens(shifted))

    profiled = profile(Shifted(), inputs=(torch.empty(1, 8), torch.zeros(1, 5, dtype=torch.int64)))
    assert profiled.raw_inputs[0] == ("ids",)
    assert not any(profiled.other_inputs)


def test_a_loop_over_time_sends_the_remaining_steps() -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells, self.head = (
                nn.ModuleList(nn.RNNCell(4, 4) for _ in range(3)),
                nn.Linear(4, 2),
            )

        def forward(self, series: Tensor) -> Tensor:
            state = torch.zeros(len(series), 4)
            for cell, step in zip(self.cells, series.unbind(1), strict=True):
                state = cell(step, state)
            return self.head(state)

    assert profile(Loop(), (3, 4)).raw_inputs == (("series",), ("series",), (), ())


def test_an_input_that_the_model_returns_crosses_every_cut() -> None:
    class Returned(nn.Sequential):
        def forward(self, x: Tensor) -> Any:
            return super().forward(x), x

    profiled = profile(Returned(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), (4,))
    assert profiled.raw_inputs == (("x",),) * 3
    with pytest.raises(
        AirsplitError, match="every split within the limits, 1 to 2, would send the input 'x'"
    ):
        plan(profiled, FLEET)


def test_layers_before_any_parameter_send_raw_data() -> None:
    profiled = profile(nn.Sequential(nn.Flatten(), nn.Linear(12, 3), nn.Linear(3, 2)), (3, 4))
    assert profiled.raw_inputs == (("input",), (), ())
    assert plan(profiled, FLEET).splits.tolist() == [2, 2]


def test_inputs_that_are_sent_only_in_training_count() -> None:
    class Auxiliary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            h = self.first(x)
            return self.second(h + x if self.training else h)

    assert profile(Auxiliary(), (4,)).raw_inputs == (("x",), ())


def test_inputs_without_names_are_numbered() -> None:
    class Any2(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(8, 2)

        def forward(self, *inputs: Tensor) -> Tensor:
            return self.second(torch.cat([self.first(inputs[0]), inputs[1]], 1))

    profiled = profile(Any2(), inputs=(torch.empty(1, 4), torch.empty(1, 4)))
    assert profiled.input_names == ("input_1", "input_2")
    assert profiled.raw_inputs == (("input_2",), ())
