"""Intercept every call of a layer, of a function of torch and of a custom gradient."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import CheckpointFunction

from airsplit.models.tracing.isolation import tracing_mode

# Called with a function that runs the call, the module, its arguments and keyword arguments.
ModuleHandler = Callable[[Callable[..., Any], nn.Module, tuple[Any, ...], dict[str, Any]], Any]
# Called with a function, its arguments and keyword arguments.
FunctionHandler = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


@contextmanager
def intercept_calls(
    mode: TorchFunctionMode, handle_module: ModuleHandler, handle_function: FunctionHandler
) -> Iterator[None]:
    """Send the calls of this thread to handlers, and functions of torch to a mode.

    A torch function mode does not see calls of modules, of custom gradients and of TorchScript, so
    their classes are patched.
    """
    this_thread = threading.get_ident()
    plain_call = nn.Module.__call__
    plain_apply = vars(torch.autograd.Function)["apply"].__func__
    plain_script = vars(torch.jit.ScriptFunction)["__call__"]

    # A patch holds in the whole process: the calls of other threads must pass through.
    def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != this_thread:
            return plain_call(module, *args, **kwargs)
        # The module is an argument, as its copy may take its place.
        return handle_module(plain_call, module, args, kwargs)

    def apply(function: type, *args: Any, **kwargs: Any) -> Any:
        run: Any = functools.partial(plain_apply, function)
        run = functools.update_wrapper(run, function, updated=())
        if threading.get_ident() != this_thread:
            return run(*args, **kwargs)
        if function is CheckpointFunction:
            # To save memory it runs its first argument again in the backward pass. The second
            # says whether to restore the random number generators for that.
            return args[0](*args[2:])
        return handle_function(run, args, kwargs)

    def script(function: Any, *args: Any, **kwargs: Any) -> Any:
        run = functools.partial(plain_script, function)
        run.__name__ = function.name  # type: ignore[attr-defined]
        if threading.get_ident() != this_thread:
            return run(*args, **kwargs)
        return handle_function(run, args, kwargs)

    # The mode is entered last, so that it sees a function before torch.device("meta") does.
    with (
        patch.object(nn.Module, "__call__", call),
        patch.object(torch.autograd.Function, "apply", classmethod(apply)),
        patch.object(torch.jit.ScriptFunction, "__call__", script),
        tracing_mode(),
        mode,
    ):
        yield
