"""The 80 classifiers of torchvision, with the figures that torchvision publishes about them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from zoo.specimen import Case, Published, Specimen

# 64 x 64 is enough for all but these; the auxiliary head of Inception needs its full image
SMALLEST = {"inception_v3": 299, "maxvit_t": 224, "vit_h_14": 56}
QUICK_BUILD = {"googlenet": {"init_weights": False}, "inception_v3": {"init_weights": False}}


def import_torchvision() -> Any:
    """torchvision next to a torch whose compiled operators it does not find: declaring the two that it asks for is enough."""
    try:
        import torchvision
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision
    return torchvision


def classifiers() -> list[Specimen]:
    """All classifiers, by name."""
    models = import_torchvision().models
    return [_specimen(models, name) for name in sorted(models.list_models(module=models))]


def auxiliary_parameters(model: nn.Module) -> int:
    """Parameters of heads that only training uses: GoogLeNet's and Inception's."""
    return sum(p.numel() for name, p in model.named_parameters() if name.lower().startswith("aux"))


def _specimen(models: Any, name: str) -> Specimen:
    published = _published(models.get_model_weights(name))
    return Specimen(
        name,
        "torchvision",
        whole=lambda: _without_weights(models, name, published.size),
        small=lambda: _case(_build(models, name, SMALLEST.get(name, 64)), SMALLEST.get(name, 64)),
        published=published,
    )


def _published(weights: Any) -> Published:
    """Of several weights, those for the smallest image: the size that a model is built for unless told otherwise."""
    entry = min(weights, key=lambda w: w.transforms().crop_size[0])
    return Published(entry.transforms().crop_size[0], entry.meta["_ops"], entry.meta["num_params"])


def _without_weights(models: Any, name: str, size: int) -> Case:
    try:
        with torch.device("meta"):
            model = _build(models, name, size)
    except NotImplementedError:  # RegNet's constructor reads numbers out of tensors
        model = _build(models, name, size)
    return _case(model, size)


def _build(models: Any, name: str, size: int) -> nn.Module:
    torch.manual_seed(0)
    sized = {"image_size": size} if name.startswith("vit_") else {}
    return models.get_model(name, weights=None, **sized, **QUICK_BUILD.get(name, {}))


def _case(model: nn.Module, size: int) -> Case:
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))
    return Case(model, {"input_shape": (3, size, size)}, (images,))
