"""From a scenario to something that can be trained: the model with its weights, the data, and who holds what."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from airsplit.core.arrays import Ints
from airsplit.core.errors import FileProblem, InvalidValue
from airsplit.data.datasets import Dataset, Samples, Tensors, load_dataset
from airsplit.data.partition import partition_samples
from airsplit.models.example_inputs import make_meta_inputs
from airsplit.models.loading import load_model, resolve_inputs
from airsplit.models.splits import ModelSplits, find_splits
from airsplit.scenario.scenario import Scenario
from airsplit.scenario.settings import ModelSettings, TrainingSettings
from airsplit.system.inputs import InputSpec
from airsplit.system.profile import Profile
from airsplit.training.accelerator import CPU
from airsplit.training.checkpoint import read_tensors
from airsplit.training.evaluation import evaluating
from airsplit.training.losses import (
    cross_entropy,
    logits_of,
    loss_of,
    require_classes,
    require_comparable,
)
from airsplit.training.metrics import load_metric
from airsplit.training.optimizers import optimizer_of
from airsplit.training.replica import Replica
from airsplit.training.seeding import seeded

# Samples with which a metric is tried before the training: a batch may be larger than memory.
MOST_TRIED = 64


def replica_of(scenario: Scenario, device: torch.device = CPU.device) -> tuple[Replica, Profile]:
    """The scenario's model on a device, ready to be trained, and its profile.

    It is made on the CPU wherever it goes, so that it begins with the same weights.
    """
    found = _outlined(scenario.model, scenario.training.seed)
    profile = replace(found.profile(), model=scenario.model.name)
    scenario.require_model(profile)
    found.model.to(device)
    return Replica(
        found,
        optimizer_of(scenario.training),
        loss_of(scenario.training.loss, scenario.training.loss_arguments),
        load_metric(scenario.training),
    ), profile


def inputs_to(scenario: Scenario, model: nn.Module) -> tuple[InputSpec, ...]:
    """What the scenario's model takes, with the type of the weights where none is said."""
    specs = resolve_inputs(scenario.model.name, model, scenario.model.input_specs())
    return tuple(
        replace(spec, dtype=str(made.dtype).removeprefix("torch."))
        for spec, made in zip(specs, make_meta_inputs(specs, model), strict=True)
    )


def _outlined(settings: ModelSettings, seed: int) -> ModelSplits:
    specs = settings.input_specs()
    with seeded(seed, "model"):
        model = load_model(settings.name, inputs=specs, arguments=settings.arguments, device=None)
    if settings.weights is not None:
        load_weights(model, settings.weights)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InvalidValue(
            f"model {settings.name!r} must have a parameter to train, got none that requires a gradient"
        )
    model.train()
    return find_splits(model, make_meta_inputs(resolve_inputs(settings.name, model, specs), model))


def load_weights(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Fill a model from a safetensors file, which must have exactly its tensors."""
    where = f"model.weights {os.fspath(path)!r}"
    tensors = read_tensors(Path(path), "model.weights")
    wanted = model.state_dict()
    if unpaired := sorted(wanted.keys() ^ tensors.keys()):
        place = "the model" if unpaired[0] in wanted else "the file"
        raise FileProblem(
            f"{where} must have the tensors of the model, but {unpaired[0]!r} is only in {place}"
        )
    for name, tensor in tensors.items():
        if tensor.shape != wanted[name].shape:
            raise FileProblem(
                f"{where}: {name} must have shape {tuple(wanted[name].shape)}, got {tuple(tensor.shape)}"
            )
        finite = bool(torch.isfinite(tensor).all())
        if tensor.is_floating_point() != wanted[name].is_floating_point() or not finite:
            got = f"{tensor.dtype}" if finite else "some that are not finite"
            raise FileProblem(
                f"{where}: {name} must be finite numbers of the kind of {wanted[name].dtype}, got {got}"
            )
    model.load_state_dict(tensors)


def dataset_of(
    settings: TrainingSettings, inputs: tuple[InputSpec, ...], folder: str | os.PathLike[str] | None
) -> Dataset:
    """The scenario's data, as the model takes it: the same for every seed."""
    with seeded(0, "data"):
        return load_dataset(
            settings.dataset, inputs, folder=folder, given=settings.partition == "given"
        )


def require_labels(replica: Replica, samples: Samples, dataset: str) -> str | None:
    """Raise where labels do not go with the model's output; a GPU would not say so, and be of no use afterwards.

    Returns what is to be said where two axes of the output could be the classes.
    """
    if replica.loss is not cross_entropy or not len(samples):
        return None
    inputs, labels = samples.batch(slice(0, 2))
    try:
        output = _output_of(replica, inputs)
    except Exception:  # whatever a model cannot do is told where it is trained
        return None
    try:
        axes = require_comparable(output, labels)
        shape = tuple(logits_of(output).shape)
        require_classes(samples.labels, shape[axes[0]])
    except InvalidValue as error:
        raise InvalidValue(f"training.dataset {dataset!r}: {error}") from None
    if len(axes) == 1:
        return None
    return (
        f"the model's output of shape {shape} for labels of shape {tuple(labels.shape)} may have its classes last, "
        "or first behind the batch as torch has them; the last axis is taken, and a loss by its path can take the other"
    )


def require_metric(replica: Replica, samples: Samples, batch_size: int) -> None:
    """Raise where a metric of the user's own fails on a batch, or on the beginning of a large one."""
    if replica.metric is None:
        return
    inputs, labels = samples.batch(slice(0, min(batch_size, MOST_TRIED)))
    try:
        output = _output_of(replica, inputs)
    except Exception:  # whatever a model cannot do is told where it is trained
        return
    with torch.no_grad():
        replica.metric(output, labels)


def _output_of(replica: Replica, inputs: Tensors) -> Any:
    """Return what the model makes of a few samples; the model stays as it was."""
    with torch.no_grad(), evaluating(replica.model), seeded(0, "labels"):
        return replica.model(*inputs)


def parts_of(settings: TrainingSettings, dataset: Dataset, devices: int) -> list[Ints]:
    """Which samples each device holds."""
    if dataset.given is None:
        return partition_samples(settings, dataset.train.labels.numpy(), devices)
    if len(dataset.given) != devices:
        given = f"{settings.dataset} gives it for {len(dataset.given)}; let the fleet have as many"
        raise InvalidValue(
            f'training.partition "given" must have data for each of {devices} devices, but {given}'
        )
    return list(dataset.given)
