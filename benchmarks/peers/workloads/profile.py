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

# Before ptflops replaces functions of torch with its own, under which this cannot be imported.
import torch._dynamo
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from airsplit.models.zoo.layers import FlatLinear
from airsplit.models.zoo.registry import build_registered_model
from peers.workloads import get_arguments, report

REPEATS = 3
ENOUGH_S = 1.0


def count_by_airsplit(model: nn.Module, _: Tensor) -> int:
    """Count with our own profile."""
    import airsplit as air

    return int(air.profile(model).matmul_macs[-1])


def count_by_torch(model: nn.Module, sample: Tensor) -> int:
    """Count with torch's own counter of matrix products: the reference."""
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(sample)
    return int(counter.get_total_flops()) // 2


def count_by_fvcore(model: nn.Module, sample: Tensor) -> int:
    """Count with fvcore, whose flop is one multiply-add."""
    from fvcore.nn import FlopCountAnalysis

    analysis = FlopCountAnalysis(model, sample)
    analysis = analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
    return int(analysis.total())


def count_by_ptflops(model: nn.Module, sample: Tensor, backend: str) -> int:
    """Count with ptflops, by modules ("pytorch") or by operators ("aten")."""
    from ptflops import get_model_complexity_info

    macs, _ = get_model_complexity_info(
        model,
        tuple(sample.shape[1:]),
        input_constructor=lambda _: sample,
        as_strings=False,
        print_per_layer_stat=False,
        verbose=False,
        backend=backend,
    )
    if macs is None:
        raise ValueError("it gives no count")
    return int(macs)


def count_by_torchinfo(model: nn.Module, sample: Tensor) -> int:
    """Count with torchinfo."""
    from torchinfo import summary

    return int(summary(model, input_data=sample, verbose=0, device=sample.device).total_mult_adds)


def count_by_thop(model: nn.Module, sample: Tensor) -> int:
    """Count with thop."""
    from thop import profile

    return int(profile(model, inputs=(sample,), verbose=False)[0])


TOOLS: dict[str, Callable[[nn.Module, Tensor], int]] = {
    "airsplit": count_by_airsplit,
    "reference": count_by_torch,
    "fvcore": count_by_fvcore,
    "ptflops": lambda model, sample: count_by_ptflops(model, sample, "pytorch"),
    "ptflops-aten": lambda model, sample: count_by_ptflops(model, sample, "aten"),
    "torchinfo": count_by_torchinfo,
    "thop": count_by_thop,
}


def use_torch_layers(model: nn.Module) -> None:
    """Replace our subclass of a layer by torch's: some tools know a layer by its exact class."""
    for name, layer in list(model.named_modules()):
        if isinstance(layer, FlatLinear):
            linear = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None)
            model.set_submodule(name, nn.Sequential(nn.Flatten(), linear))


def make_model(name: str, device: str) -> tuple[nn.Module, Tensor]:
    """Return a built-in model and one sample."""
    with torch.device(device):
        model = build_registered_model(name).eval()
        spec: Any = model.input_spec
        use_torch_layers(model)
        sample = torch.zeros(1, *spec.shape, dtype=getattr(torch, spec.dtype or "float32"))
    return model, sample


def count_macs(tool: str, name: str, device: str) -> dict[str, Any]:
    """Return the count on a device with the least time it takes, or the reason for none."""
    times: list[float] = []
    try:
        while len(times) < REPEATS and sum(times) < ENOUGH_S:
            # A new model each time: some tools leave hooks behind.
            model, sample = make_model(name, device)
            start = time.perf_counter()
            macs = TOOLS[tool](model, sample)
            times.append(time.perf_counter() - start)
    except Exception as error:
        # A tool may raise anything; the table shows it.
        return {"reason": f"{type(error).__name__}: {' '.join(str(error).split())[:80]}"}
    if macs <= 0:
        return {"reason": "it counts nothing"}
    return {"macs": macs, "seconds": min(times), "device": device}


def main() -> None:
    """Count on both devices."""
    arguments = get_arguments()
    tool = arguments["tool"]
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    results = {}
    # Tools print, and overlook fused attention.
    with contextlib.redirect_stdout(io.StringIO()), sdpa_kernel(SDPBackend.MATH):
        # The CPU first, where nothing fails: a tool that fails may leave things behind.
        for device in ("cpu", "meta"):
            # Not counted: imports on first use.
            count_macs(tool, "alexnet32", device)
            results[device] = {name: count_macs(tool, name, device) for name in arguments["models"]}
    report(**results)


if __name__ == "__main__":
    main()
