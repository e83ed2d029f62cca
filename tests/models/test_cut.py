"""Halves of models compute exactly what the unsplit models do."""

import copy
import weakref
from collections import OrderedDict
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import airsplit as air
from airsplit.core.errors import InvalidValue, UnknownName
from airsplit.models.zoo.registry import build_registered_model
from models.exactness import assert_exact, find_model_splits, run_unsplit_step
from models.hard_models import HARD, AuxiliaryHead, Counting, DropoutByHand, SwapsAxes


@pytest.fixture(autouse=True)
def fix_threads_and_seed() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("name", "shape", "arguments", "count"),
    [
        ("alexnet", (3, 67, 67), {"classes": 10}, 20),
        ("alexnet32", (1, 32, 32), {"width": 0.05}, 20),
        ("vgg16", (3, 32, 32), {"classes": 10}, 36),
    ],
)
def test_every_split_of_a_chain_is_exact(
    name: str, shape: tuple[int, ...], arguments: dict[str, Any], count: int
) -> None:
    model = build_registered_model(name, shape, **arguments)
    # They have neither dropout nor statistics: one mode is enough.
    splits = assert_exact(model, torch.randn(2, *shape), modes=(True,))
    assert len(splits.splits) == count


def test_every_split_of_a_residual_network_is_exact() -> None:
    splits = assert_exact(
        build_registered_model("resnet20", (3, 16, 16), layers=8, width=4),
        torch.randn(3, 3, 16, 16),
    )
    profile = splits.profile()
    # Inside a block the shortcut crosses, too.
    assert {len(splits.evaluation.crossings[split.evaluation]) for split in splits.splits} == {
        1,
        2,
    }
    inside = profile.activation_elements[profile.split_of("stage1.0.conv1") - 1]
    behind = profile.activation_elements[profile.split_of("stage1.0.relu2") - 1]
    assert (inside, behind) == (2 * 4 * 16 * 16, 4 * 16 * 16)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("vit", {"width": 24, "layers": 2, "heads": 2, "dropout": 0.2}),
        ("gpt", {"width": 24, "layers": 2, "heads": 2, "dropout": 0.2}),
        ("gpt", {"width": 24, "layers": 2, "heads": 2, "tied": True}),
    ],
)
def test_every_split_of_a_transformer_is_exact(name: str, arguments: dict[str, Any]) -> None:
    model = build_registered_model(name, **arguments)
    x = torch.randn(3, 3, 32, 32) if name == "vit" else torch.randint(0, 256, (3, 64))
    splits = assert_exact(model, x)
    assert (len(splits.splits) == 1) == arguments.get("tied", False)


def test_no_split_is_between_tied_embeddings() -> None:
    splits = find_model_splits(
        build_registered_model("gpt", tied=True), torch.zeros(1, 64, dtype=torch.int64)
    )
    assert [split.name for split in splits.splits] == ["head"]
    assert {split.reason for split in splits.illegal_splits} == {
        "tokens.weight is used on both sides, by tokens and by head"
    }


@pytest.mark.parametrize("kind", HARD, ids=lambda kind: kind.__name__)
def test_a_hard_model_is_cut_exactly(kind: type[nn.Module]) -> None:
    splits = assert_exact(kind(), *HARD[kind], differs_in_training=kind is AuxiliaryHead)
    assert len(splits.splits) >= 2


@pytest.mark.parametrize(
    "model",
    [
        nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 3, enable_nested_tensor=False
        ),
        nn.Sequential(nn.LSTM(8, 6, batch_first=True), nn.Identity()),
        nn.Sequential(
            nn.Linear(8, 8),
            nn.BatchNorm1d(4, affine=False),
            nn.Dropout(),
            nn.Flatten(),
            nn.Linear(32, 3),
        ),
        nn.Sequential(
            nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)), nn.ReLU(), nn.Linear(8, 3)
        ),
    ],
    ids=["encoder", "lstm", "statistics", "weight norm"],
)
def test_layers_of_torch_are_never_divided(model: nn.Module) -> None:
    splits = assert_exact(model, torch.randn(3, 4, 8))
    assert len(splits.splits) >= 2


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_halves_take_any_batch_size(batch: int) -> None:
    model, x = SwapsAxes(), torch.randn(batch, 5, 8)
    for split in range(1, 4):
        front, back = air.cut(model, split, input_shape=(5, 8))
        assert torch.equal(back(*front(x)), model(x))


def small() -> nn.Sequential:
    return nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(3, 4, 3),
            norm=nn.BatchNorm2d(4),
            act=nn.ReLU(True),
            flat=nn.Flatten(),
            fc=nn.Linear(144, 2),
        )
    )


def test_halves_share_the_weights_of_the_model_under_their_names() -> None:
    model = small()
    front, back = air.cut(model, "norm", input_shape=(3, 8, 8))
    assert list(front.state_dict()) == [
        key for key in model.state_dict() if not key.startswith("fc")
    ]
    assert list(back.state_dict()) == ["fc.weight", "fc.bias"]
    assert back.get_parameter("fc.weight") is model.fc.weight
    with torch.no_grad():
        model.fc.bias.add_(1)
    x = torch.randn(2, 3, 8, 8)
    assert torch.equal(back(*front(x)), model(x))


def test_a_split_may_be_given_by_name_or_number() -> None:
    model, x = small(), torch.randn(2, 3, 8, 8)
    by_name, by_number = (air.cut(model, split, input_shape=(3, 8, 8))[0] for split in ("act", 3))
    assert (
        [tuple(t.shape) for t in by_name(x)]
        == [tuple(t.shape) for t in by_number(x)]
        == [(2, 4, 6, 6)]
    )


def test_at_the_last_split_the_back_is_the_identity() -> None:
    model, x = small(), torch.randn(2, 3, 8, 8)
    front, back = air.cut(model, 5, input_shape=(3, 8, 8))
    (sent,) = front(x)
    assert back(sent) is sent
    assert not list(back.parameters())


def test_a_back_does_not_change_the_tensors_it_is_given() -> None:
    # The activation behind the cut works in place.
    model = small()
    front, back = air.cut(model, "norm", input_shape=(3, 8, 8))
    (sent,) = front(torch.randn(2, 3, 8, 8))
    before = sent.detach().clone()
    back(sent.detach().requires_grad_())
    assert torch.equal(sent, before)


def test_halves_begin_in_the_mode_of_the_model_and_change_it_alone() -> None:
    model = DropoutByHand().eval()
    front, back = air.cut(model, 1, input_shape=(8,))
    assert not front.training
    assert not back.training
    x = torch.randn(4, 8)
    assert torch.equal(back(*front(x)), model(x))
    back.train()
    assert not torch.equal(back(*front(x)), model(x))


def test_halves_can_be_copied_and_cast() -> None:
    model = Counting()
    front, back = air.cut(model, 1, input_shape=(8,))
    other, x = copy.deepcopy(front), torch.randn(2, 8)
    with torch.no_grad():
        other.get_parameter("first.weight").zero_()
    assert not torch.equal(other(x)[0], front(x)[0])
    front.double()
    back.double()
    assert back(*front(x.double())).dtype == torch.float64


def test_halves_work_under_functional_call() -> None:
    model, x = small().eval(), torch.randn(2, 3, 8, 8)
    front, _ = air.cut(model, "conv", input_shape=(3, 8, 8))
    zeros = {name: torch.zeros_like(p) for name, p in front.named_parameters()}
    assert not torch.func.functional_call(front, zeros, (x,))[0].any()


def test_built_in_models_need_no_shape() -> None:
    front, back = air.cut(build_registered_model("alexnet32", width=0.05), "pool1")
    assert back(*front(torch.randn(1, 3, 32, 32))).shape == (1, 10)


@pytest.mark.parametrize(
    ("split", "error", "message"),
    [
        (0, InvalidValue, "split must be a whole number from 1 to 5, got 0"),
        (6, InvalidValue, "split must be a whole number from 1 to 5, got 6"),
        ("cnv", UnknownName, "split 'cnv' is not known; did you mean 'conv'"),
        (1.5, InvalidValue, "split must be a whole number"),
    ],
)
def test_an_unknown_split_is_rejected(split: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        air.cut(small(), split, input_shape=(3, 8, 8))


def test_halves_reject_shapes_that_they_were_not_cut_for() -> None:
    front, back = air.cut(
        build_registered_model("gpt", layers=1, width=16, heads=2), "blocks.0.add"
    )
    with pytest.raises(
        InvalidValue, match=r"sizes that the model was cut for, \(B, 64\), got \(2, 63\)"
    ):
        front(torch.zeros(2, 63, dtype=torch.int64))
    with pytest.raises(InvalidValue, match=r"\(B, 64, 16\), got \(2, 64\)"):
        back(torch.zeros(2, 64))


def test_halves_free_tensors_after_their_last_use() -> None:
    alive = weakref.WeakSet[Tensor]()
    counts = []

    def count(module: nn.Module, args: Any, result: Tensor) -> None:
        alive.add(result)
        counts.append(len(alive))

    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(8)))
    front, back = air.cut(model, 7, input_shape=(4,))
    for layer in model:
        layer.register_forward_hook(count)
    with torch.no_grad():
        back(*front(torch.zeros(2, 4)))
    assert len(counts) == 8
    assert max(counts) == 2


def test_the_name_of_a_model_cannot_be_cut() -> None:
    with pytest.raises(
        InvalidValue,
        match=r"must be a torch\.nn\.Module here, got the name 'alexnet'; build it first",
    ):
        air.cut("alexnet", 4)  # type: ignore[arg-type]


def test_halves_reject_another_number_of_tensors() -> None:
    _, back = air.cut(build_registered_model("resnet20", layers=8, width=4), "stage1.0.conv1")
    with pytest.raises(
        InvalidValue, match=r"back must be given 2 tensors, got Tensor; write back\(\*tensors\)"
    ):
        back(torch.zeros(1, 4, 32, 32))


INSTRUCTIONS = (
    "linear",
    "relu",
    "relu_",
    "dropout",
    "norm",
    "add",
    "mul",
    "iadd",
    "view",
    "again",
    "mean",
    "mask",
    "detach",
)


class Program(nn.Module):
    """A random model: each instruction takes one or two of the tensors made so far."""

    def __init__(self, program: list[tuple[str, int, int]]) -> None:
        super().__init__()
        self.program = program
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in program])
        self.norms = nn.ModuleList([nn.BatchNorm1d(4) for _ in program])
        self.shared = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Any:
        made = [self.layers[0](x)]
        for at, (instruction, i, j) in enumerate(self.program):
            a, b = made[i % len(made)], made[j % len(made)]
            made.append(self.step(instruction, at, a, b))
        return made[-1], made[len(made) // 2].sum(1)

    def step(self, instruction: str, at: int, a: Tensor, b: Tensor) -> Tensor:
        match instruction:
            case "linear":
                return self.layers[at](a)
            case "relu":
                return a.relu()
            case "relu_":
                return F.relu(a, inplace=True)
            case "dropout":
                return F.dropout(a, 0.3, self.training)
            case "norm":
                return self.norms[at](a)
            case "add":
                return a + b
            case "mul":
                return a * b.sigmoid()
            case "iadd":
                a += b.tanh()
                return a
            case "view":
                return a.view(a.shape[0], 2, 2).flatten(1)
            case "again":
                return self.shared(a)
            case "mean":
                return a - b.mean(1, keepdim=True).expand_as(a)
            case "mask":
                return a * torch.arange(4, device=a.device).lt(at)
            case _:
                return a + b.detach()


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from(INSTRUCTIONS), st.integers(0, 20), st.integers(0, 20)),
        min_size=1,
        max_size=9,
    )
)
def test_any_graph_is_cut_exactly(program: list[tuple[str, int, int]]) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, x = Program(program), torch.randn(3, 4)
    try:
        for training in (True, False):
            run_unsplit_step(model.train(training), (x,))
    except RuntimeError as error:
        # A tensor that autograd needs was changed in place: nobody could train this model.
        assume("inplace" not in str(error))
        raise
    assert_exact(model, x)
