"""Count the multiply-adds of the built-in models with one tool."""

from __future__ import annotations

import contextlib
import io
import logging
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo  # before ptflops puts its own functions in place of torch's, under which it cannot be imported
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from airsplit.models.zoo.layers import FlatLinear
from airsplit.models.zoo.registry import build_registered_model
from peers.workloads import given, tell

Sample = torch.Tensor
REPEATS, ENOUGH_S = 3, 1.0


def airsplit(model: nn.Module, _: Sample) -> int:
    import airsplit as air

    return int(air.profile(model).matmul_macs[-1])


def reference(model: nn.Module, sample: Sample) -> int:
    """Torch's own counter of matrix products."""
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(sample)
    return int(counter.get_total_flops()) // 2


def fvcore(model: nn.Module, sample: Sample) -> int:
    from fvcore.nn import FlopCountAnalysis

    found = (
        FlopCountAnalysis(model, sample)
        .unsupported_ops_warnings(False)
        .uncalled_modules_warnings(False)
    )
    return int(found.total())


def ptflops(model: nn.Module, sample: Sample, backend: str) -> int:
    from ptflops import get_model_complexity_info

    told = {
        "as_strings": False,
        "print_per_layer_stat": False,
        "verbose": False,
        "backend": backend,
    }
    macs, _ = get_model_complexity_info(
        model, tuple(sample.shape[1:]), input_constructor=lambda _: sample, **told
    )
    if macs is None:
        raise ValueError("it gives no count")
    return int(macs)


def torchinfo(model: nn.Module, sample: Sample) -> int:
    from torchinfo import summary

    return int(summary(model, input_data=sample, verbose=0, device=sample.device).total_mult_adds)


def thop(model: nn.Module, sample: Sample) -> int:
    from thop import profile

    return int(profile(model, inputs=(sample,), verbose=False)[0])


TOOLS: dict[str, Callable[[nn.Module, Sample], int]] = {
    "airsplit": airsplit,
    "reference": reference,
    "fvcore": fvcore,
    "ptflops": lambda model, sample: ptflops(model, sample, "pytorch"),
    "ptflops-aten": lambda model, sample: ptflops(model, sample, "aten"),
    "torchinfo": torchinfo,
    "thop": thop,
}


def plain(model: nn.Module) -> None:
    """Torch's own layers in place of our subclass: some tools know a layer by its exact class."""
    for name, layer in list(model.named_modules()):
        if isinstance(layer, FlatLinear):
            same = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None)
            model.set_submodule(name, nn.Sequential(nn.Flatten(), same))


def specimen(name: str, device: str) -> tuple[nn.Module, Sample]:
    with torch.device(device):
        model = build_registered_model(name).eval()
        spec = model.input_spec
        plain(model)
        sample = torch.zeros(1, *spec.shape, dtype=getattr(torch, spec.dtype or "float32"))
    return model, sample


def counted(tool: str, name: str, device: str) -> dict[str, Any]:
    """The count on a device and the least time that it took; or why there is none."""
    times = []
    try:
        while len(times) < REPEATS and sum(times) < ENOUGH_S:
            model, sample = specimen(name, device)
            start = time.perf_counter()
            macs = TOOLS[tool](model, sample)
            times.append(time.perf_counter() - start)
    except Exception as error:  # whatever a tool raises is what the table says of it
        return {"reason": f"{type(error).__name__}: {' '.join(str(error).split())[:80]}"}
    return (
        {"macs": macs, "seconds": min(times), "device": device}
        if macs > 0
        else {"reason": "it counts nothing"}
    )


def main() -> None:
    asked = given()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    tool, found = asked["tool"], {}
    with (
        contextlib.redirect_stdout(io.StringIO()),
        sdpa_kernel(SDPBackend.MATH),
    ):  # fused attention would be overlooked
        for device in (
            "cpu",
            "meta",
        ):  # first the one where nothing fails: a tool may leave things behind
            counted(tool, "alexnet32", device)  # what is imported at the first use
            found[device] = {name: counted(tool, name, device) for name in asked["models"]}
    tell(**found)


if __name__ == "__main__":
    main()
