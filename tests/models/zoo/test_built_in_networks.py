"""ResNet, ViT and GPT: shapes and sizes worked by hand, dependencies, and that they learn."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from airsplit.core.errors import InvalidValue
from airsplit.models.zoo.gpt import gpt
from airsplit.models.zoo.resnet import BasicBlock, resnet20
from airsplit.models.zoo.transformer import Attention, Block
from airsplit.models.zoo.vit import vit

Make = Callable[..., nn.Module]

SMALL: dict[str, tuple[Make, dict[str, Any]]] = {
    "resnet20": (resnet20, {"input_shape": (3, 16, 16), "width": 4}),
    "vit": (vit, {"input_shape": (3, 16, 16), "width": 24, "layers": 2}),
    "gpt": (gpt, {"input_shape": (8,), "vocabulary": 10, "width": 24, "layers": 2}),
    "gpt-tied": (
        gpt,
        {"input_shape": (8,), "vocabulary": 10, "width": 24, "layers": 2, "tied": True},
    ),
}
names = pytest.mark.parametrize("name", SMALL)


@pytest.fixture(autouse=True)
def _same_weights_every_time() -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        yield


def small(name: str, **arguments: Any) -> nn.Module:
    make, sizes = SMALL[name]
    return make(**{**sizes, **arguments})


def sample(name: str, batch: int = 8) -> Tensor:
    return (
        torch.randint(10, (batch, 8)) if name.startswith("gpt") else torch.randn(batch, 3, 16, 16)
    )


def on_meta(make: Make, **arguments: Any) -> nn.Module:
    with torch.device("meta"):
        return make(**arguments)


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 8, 12)])
@pytest.mark.parametrize("make", [resnet20, vit])
def test_images_become_one_logit_a_class(make: Make, shape: tuple[int, ...]) -> None:
    model = make(input_shape=shape, classes=7, width=12)
    assert model(torch.randn(2, *shape)).shape == (2, 7)


@pytest.mark.parametrize("time", [1, 5, 64])
def test_token_ids_become_logits_over_the_vocabulary_up_to_the_full_context(time: int) -> None:
    assert gpt(width=12, vocabulary=31)(torch.randint(31, (2, time))).shape == (2, time, 31)


def test_a_resnet_halves_the_image_and_doubles_the_width_twice() -> None:
    x, shapes = torch.randn(2, 3, 32, 32), {}
    for name, layer in resnet20().named_children():
        x = layer(x)
        shapes[name] = tuple(x.shape[1:])
    assert shapes == {
        **dict.fromkeys(("conv1", "bn1", "relu", "stage1"), (16, 32, 32)),
        "stage2": (32, 16, 16),
        "stage3": (64, 8, 8),
        "pool": (64, 1, 1),
        "flatten": (64,),
        "fc": (10,),
    }


@names
def test_on_meta_a_model_has_the_same_weights_by_name_and_shape(name: str) -> None:
    make, sizes = SMALL[name]
    meta_model = on_meta(make, **sizes)
    assert all(tensor.is_meta for tensor in meta_model.state_dict().values())
    assert {key: w.shape for key, w in meta_model.state_dict().items()} == {
        key: w.shape for key, w in small(name).state_dict().items()
    }


def basic_block(channels: int, filters: int) -> int:
    """Count two convolutions without bias, two normalizations, and the projection of a step."""
    projection = channels * filters + 2 * filters if channels != filters else 0
    return 9 * channels * filters + 9 * filters * filters + 4 * filters + projection


@pytest.mark.parametrize(("layers", "blocks"), [(8, 1), (20, 3), (56, 9)])
def test_resnet_has_the_parameters_worked_by_hand(layers: int, blocks: int) -> None:
    stem = 9 * 3 * 16 + 2 * 16
    steps = basic_block(16, 16) + basic_block(16, 32) + basic_block(32, 64)
    rest = (blocks - 1) * (basic_block(16, 16) + basic_block(32, 32) + basic_block(64, 64))
    assert parameters(on_meta(resnet20, layers=layers)) == stem + steps + rest + 64 * 10 + 10


def test_resnet20_is_the_papers_269_722_parameters_and_two_projections() -> None:
    assert parameters(on_meta(resnet20)) == 269_722 + (16 * 32 + 2 * 32) + (32 * 64 + 2 * 64)


@pytest.mark.parametrize("layers", [8, 20, 56, 110])
def test_a_resnet_has_as_many_weighted_layers_as_it_says(layers: int) -> None:
    kinds = [
        m
        for m in on_meta(resnet20, layers=layers).modules()
        if isinstance(m, nn.Conv2d | nn.Linear)
    ]
    assert len([m for m in kinds if isinstance(m, nn.Linear) or m.kernel_size == (3, 3)]) == layers


def block(width: int) -> int:
    """Count qkv, projection and MLP, 12 w² weights and 9 w biases, and two normalizations."""
    return 12 * width**2 + 9 * width + 2 * 2 * width


def test_vit_has_the_parameters_worked_by_hand() -> None:
    w = 192
    patches, class_token, positions = 3 * 4 * 4 * w + w, w, (1 + 8 * 8) * w
    assert (
        parameters(on_meta(vit))
        == patches + class_token + positions + 6 * block(w) + 2 * w + w * 10 + 10
    )


GPT2_SMALL = {"input_shape": (1024,), "vocabulary": 50257, "width": 768, "layers": 12, "heads": 12}


def test_gpt2_small_has_its_124_439_808_parameters() -> None:
    embeddings = (50257 + 1024) * 768
    assert embeddings + 12 * block(768) + 2 * 768 == 124_439_808
    assert parameters(on_meta(gpt, **GPT2_SMALL, tied=True)) == 124_439_808


def test_an_untied_head_is_one_more_embedding() -> None:
    assert parameters(on_meta(gpt, **GPT2_SMALL)) == 124_439_808 + 50257 * 768


def test_gpt3_is_built_although_no_memory_could_hold_it() -> None:
    model = on_meta(
        gpt, input_shape=(2048,), vocabulary=50257, width=12288, layers=96, heads=96, tied=True
    )
    assert parameters(model) == (50257 + 2048) * 12288 + 96 * block(12288) + 2 * 12288


def test_the_shortcut_is_the_identity_if_shapes_agree_and_a_projection_otherwise() -> None:
    x, same, step = torch.rand(2, 4, 6, 6), BasicBlock(4, 4), BasicBlock(4, 8, stride=2)
    nn.init.zeros_(same.bn2.weight)
    nn.init.zeros_(step.bn2.weight)
    torch.testing.assert_close(same(x), x)
    torch.testing.assert_close(step(x), step.shortcut(x).relu())


def test_attention_is_the_softmax_of_its_products() -> None:
    attention, x = Attention(width=12, heads=3), torch.randn(2, 5, 12)
    q, k, v = (part.view(2, 5, 3, 4) for part in attention.qkv(x).split(12, dim=-1))
    weights = (torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(4)).softmax(-1)
    by_hand = attention.projection(torch.einsum("bhij,bjhd->bihd", weights, v).reshape(2, 5, 12))
    torch.testing.assert_close(attention(x), by_hand)


@pytest.mark.parametrize("causal", [False, True])
def test_a_block_is_torchs_own_pre_norm_encoder_layer(causal: bool) -> None:
    ours = Block(width=12, heads=3, causal=causal)
    theirs = nn.TransformerEncoderLayer(
        12, 3, 48, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    names_in_torch = {
        "attention.qkv.": "self_attn.in_proj_",
        "attention.projection": "self_attn.out_proj",
        "mlp.0": "linear1",
        "mlp.2": "linear2",
    }
    pattern = re.compile("|".join(map(re.escape, names_in_torch)))
    theirs.load_state_dict(
        {
            pattern.sub(lambda match: names_in_torch[match[0]], key): weight
            for key, weight in ours.state_dict().items()
        }
    )
    x = torch.randn(2, 5, 12)
    mask = nn.Transformer.generate_square_subsequent_mask(5) if causal else None
    torch.testing.assert_close(ours(x), theirs(x, src_mask=mask, is_causal=causal))


def test_a_later_token_does_not_change_earlier_logits() -> None:
    model = small("gpt")
    ids = sample("gpt")
    changed = ids.clone()
    changed[:, 5] = (ids[:, 5] + 1) % 10
    before, after = model(ids), model(changed)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert ((before - after)[:, 5:].abs().amax(-1) > 1e-6).all()


def test_a_shorter_text_has_the_logits_of_the_longer_ones_beginning() -> None:
    model, ids = small("gpt"), sample("gpt")
    torch.testing.assert_close(model(ids)[:, :3], model(ids[:, :3]))


def test_the_order_of_the_patches_matters_only_through_their_positions() -> None:
    model, images = vit((3, 16, 16), width=24, layers=2), sample("vit")
    order = torch.tensor([2, 0, 3, 1])  # rows of patches
    moved = images.view(-1, 3, 4, 4, 16)[:, :, order].flatten(2, 3)
    before = model(images)
    assert not torch.allclose(model(moved), before, atol=1e-4)
    with torch.no_grad():
        model.positions[:, 1:] = model.positions[:, 1:].view(-1, 4, 4, 24)[:, order].flatten(1, 2)
    torch.testing.assert_close(model(moved), before)


def test_a_tied_head_is_the_token_embedding() -> None:
    tied = gpt(tied=True)
    untied = gpt()
    assert tied.head.weight is tied.tokens.weight
    assert untied.head.weight is not untied.tokens.weight


@pytest.mark.parametrize("tied", [False, True])
def test_a_fresh_gpt_finds_all_tokens_about_equally_likely(tied: bool) -> None:
    ids = torch.randint(256, (8, 65))
    loss = F.cross_entropy(gpt(tied=tied)(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    assert loss.item() == pytest.approx(math.log(256), abs=0.3)


@pytest.mark.parametrize("name", ["vit", "gpt"])
def test_dropout_acts_in_training_alone(name: str) -> None:
    model, x = small(name, dropout=0.5), sample(name)
    assert not torch.allclose(model(x), model(x))
    model.eval()
    torch.testing.assert_close(model(x), model(x))


def test_dropout_reaches_the_weights_of_attention_too() -> None:
    attention, x = Attention(width=12, heads=3, dropout=0.5), torch.randn(2, 5, 12)
    assert not torch.allclose(attention(x), attention(x))
    attention.eval()
    torch.testing.assert_close(attention(x), attention(x))


@pytest.mark.parametrize("name", ["vit", "gpt"])
def test_without_dropout_training_and_evaluation_agree(name: str) -> None:
    model, x = small(name), sample(name)
    torch.testing.assert_close(model.train()(x), model.eval()(x))


def test_a_resnet_evaluates_each_image_on_its_own() -> None:
    model, images = small("resnet20"), sample("resnet20")
    assert not torch.allclose(model(images)[:2], model(images[:2]), atol=1e-4)
    model.eval()
    torch.testing.assert_close(model(images)[:2], model(images[:2]), atol=1e-4, rtol=1e-4)


@names
def test_every_parameter_has_a_gradient(name: str) -> None:
    model = small(name)
    weights = dict(model.named_parameters())
    gradients = torch.autograd.grad(model(sample(name)).square().mean(), list(weights.values()))
    assert [
        key for key, gradient in zip(weights, gradients, strict=True) if not gradient.any()
    ] == []


@names
def test_a_few_steps_of_sgd_lower_the_loss(name: str) -> None:
    model, x = small(name), sample(name)
    labels = torch.randint(10, x.shape if name.startswith("gpt") else (8,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(12):
        loss = F.cross_entropy(model(x).flatten(0, -2), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]


REJECTED: list[tuple[Make, dict[str, Any], str]] = [
    (resnet20, {"layers": 21}, "resnet20.layers must be 6n + 2, got 21; take e.g. 20 or 26"),
    (resnet20, {"layers": 2}, "resnet20.layers must be a whole number >= 8, got 2"),
    (resnet20, {"width": 0}, "resnet20.width must be a whole number >= 1, got 0"),
    (resnet20, {"classes": True}, "resnet20.classes must be a whole number >= 1, got True"),
    (
        resnet20,
        {"input_shape": (32, 32)},
        "resnet20.input_shape must be channels, height and width, got (32, 32); "
        "write e.g. 3x32x32, in Python (3, 32, 32)",
    ),
    (
        vit,
        {"patch": 5},
        "vit.patch must divide both sides of the image, 32 and 32, got 5; take e.g. 1",
    ),
    (
        vit,
        {"input_shape": (3, 32, 28), "patch": 8},
        "vit.patch must divide both sides of the image, 32 and 28, got 8; take e.g. 4",
    ),
    (vit, {"patch": 0}, "vit.patch must be a whole number >= 1, got 0"),
    (vit, {"heads": 9}, "vit.heads must divide vit.width, 192, got 9; take e.g. 3"),
    (vit, {"layers": 0}, "vit.layers must be a whole number >= 1, got 0"),
    (vit, {"classes": 0}, "vit.classes must be a whole number >= 1, got 0"),
    (
        vit,
        {"input_shape": 32},
        "vit.input_shape must be whole numbers, without the batch axis, got 32; "
        "write e.g. (3, 32, 32)",
    ),
    (vit, {"dropout": -0.1}, "vit.dropout must be a finite number >= 0 and < 1, got -0.1"),
    (
        gpt,
        {"input_shape": (3, 32, 32)},
        "gpt.input_shape must be the longest context alone, got (3, 32, 32); write e.g. (64,)",
    ),
    (gpt, {"input_shape": (0,)}, "gpt.input_shape[0] must be a whole number >= 1, got 0"),
    (gpt, {"vocabulary": 0}, "gpt.vocabulary must be a whole number >= 1, got 0"),
    (gpt, {"width": 12.5}, "gpt.width must be a whole number >= 1, got 12.5"),
    (gpt, {"width": 100, "heads": 8}, "gpt.heads must divide gpt.width, 100, got 8; take e.g. 4"),
    (gpt, {"heads": 0}, "gpt.heads must be a whole number >= 1, got 0"),
    (gpt, {"layers": "4"}, "gpt.layers must be a whole number >= 1, got '4'"),
    (gpt, {"dropout": 1.0}, "gpt.dropout must be a finite number >= 0 and < 1, got 1.0"),
    (gpt, {"tied": "no"}, "gpt.tied must be True or False, got 'no'"),
]


@pytest.mark.parametrize(("make", "arguments", "message"), REJECTED)
def test_a_bad_argument_is_rejected_by_name(
    make: Make, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidValue, match=f"^{re.escape(message)}$"):
        make(**arguments)
