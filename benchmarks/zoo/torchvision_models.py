"""The 80 classifiers of torchvision, with the figures that torchvision publishes about them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from zoo.specimen import Case, Published, Specimen

# Smallest images in pixels; 64 for all others. Inception's auxiliary head needs the full image.
SMALLEST = {"inception_v3": 299, "maxvit_t": 224, "vit_h_14": 56}
SMALL = 64
QUICK_BUILD = {"googlenet": {"init_weights": False}, "inception_v3": {"init_weights": False}}


def import_torchvision() -> Any:
    """Import torchvision, even if its compiled operators were built for another torch."""
    try:
        import torchvision
    except RuntimeError:
        # It asks for these two at import; declaring them is enough for classifiers.
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision
    return torchvision


def list_classifiers() -> list[Specimen]:
    """Return all classifiers, by name."""
    models = import_torchvision().models
    return [_make_specimen(models, name) for name in sorted(models.list_models(module=models))]


def count_auxiliary_parameters(model: nn.Module) -> int:
    """Return the parameters of heads that only training uses: GoogLeNet's and Inception's."""
    return sum(p.numel() for name, p in model.named_parameters() if name.lower().startswith("aux"))


def _make_specimen(models: Any, name: str) -> Specimen:
    published = _get_published(models.get_model_weights(name))
    size = published.size
    small = SMALLEST.get(name, SMALL)
    return Specimen(
        name,
        "torchvision",
        whole=lambda: _make_case(_build_without_weights(models, name, size), size),
        small=lambda: _make_case(_build(models, name, small), small),
        published=published,
    )


def _get_published(weights: Any) -> Published:
    """Return the figures for the smallest image, the size that a model is built for by default."""
    entry = min(weights, key=lambda w: w.transforms().crop_size[0])
    return Published(entry.transforms().crop_size[0], entry.meta["_ops"], entry.meta["num_params"])


def _build_without_weights(models: Any, name: str, size: int) -> nn.Module:
    try:
        with torch.device("meta"):
            return _build(models, name, size)
    except NotImplementedError:
        # RegNet's constructor reads numbers out of tensors.
        return _build(models, name, size)


def _build(models: Any, name: str, size: int) -> nn.Module:
    torch.manual_seed(0)
    options: dict[str, Any] = dict(QUICK_BUILD.get(name, {}))
    if name.startswith("vit_"):
        options["image_size"] = size
    model: nn.Module = models.get_model(name, weights=None, **options)
    return model


def _make_case(model: nn.Module, size: int) -> Case:
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))
    return Case(model, {"input_shape": (3, size, size)}, (images,))
