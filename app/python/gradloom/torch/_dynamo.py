"""A module's file by torch.export and the exporter that builds on it (torch.onnx.export(dynamo=True)), which needs the package onnxscript.

The forward runs once with tensors that have no numbers, and what it does to them is the graph. What the file would lose of a backward pass is said in
operators (no_grad blocks, an embedding's row of padding, running statistics) or refused (torch.autograd.Function, torch.autocast).
"""

import contextlib
import importlib
import importlib.util
import logging
import warnings
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple

import torch
import torch.utils.checkpoint
from torch.nn import functional

from .. import _onnx_file
from .._library import UnsupportedError
from ._exact import Exact
from ._trace import _checkpoint, _embedding, _trace

EXPORTERS = ("auto", "torchscript", "dynamo")


def checked_exporter(exporter: str) -> str:
    """Raises ValueError."""
    if exporter not in EXPORTERS:
        raise ValueError(f"exporter is one of {', '.join(map(repr, EXPORTERS))}, not {exporter!r}")
    return exporter


def missing() -> str:
    """Why there is no such exporter here; empty: there is."""
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 6):
        return f"the dynamo exporter is used from PyTorch 2.6 on, this is {torch.__version__}"
    return "" if importlib.util.find_spec("onnxscript") else "the dynamo exporter needs the package onnxscript"


def _refused(original: Any) -> Any:
    def apply(function: Any, *args: Any, **named: Any) -> Any:
        if _trace.active:
            raise UnsupportedError(f"it loses the backward of torch.autograd.Function {function.__name__}")
        return original.__get__(None, function)(*args, **named)

    return classmethod(apply)


def _batch_norm(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Running statistics, which the exporter leaves as they are."""

    def batch_norm(input: torch.Tensor, running_mean: Optional[torch.Tensor], running_var: Optional[torch.Tensor],
                   weight: Optional[torch.Tensor] = None, bias: Optional[torch.Tensor] = None, training: bool = False,
                   momentum: float = 0.1, eps: float = 1e-5) -> torch.Tensor:  # fmt: skip
        if not _trace.active or not training or running_mean is None or running_var is None:
            return original(input, running_mean, running_var, weight, bias, training, momentum, eps)
        axes, x = [axis for axis in range(input.dim()) if axis != 1], input.detach()
        _move(running_mean, x.mean(axes), momentum)
        _move(running_var, x.var(axes, unbiased=True), momentum)
        return original(input, None, None, weight, bias, True, momentum, eps)

    return batch_norm


def _instance_norm(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def instance_norm(input: torch.Tensor, running_mean: Optional[torch.Tensor] = None, running_var: Optional[torch.Tensor] = None,
                      weight: Optional[torch.Tensor] = None, bias: Optional[torch.Tensor] = None, use_input_stats: bool = True,
                      momentum: float = 0.1, eps: float = 1e-5) -> torch.Tensor:  # fmt: skip
        if not _trace.active or not use_input_stats or running_mean is None or running_var is None:
            return original(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)
        axes, x = list(range(2, input.dim())), input.detach()
        _move(running_mean, x.mean(axes).mean(0), momentum)
        _move(running_var, x.var(axes, unbiased=True).mean(0), momentum)
        return original(input, None, None, weight, bias, True, momentum, eps)

    return instance_norm


def _move(running: torch.Tensor, batch: torch.Tensor, factor: float) -> None:
    running.add_((batch - running) * torch.tensor(factor, dtype=running.dtype, device=running.device))  # numbers of Python would be f32 in the file


def _patches() -> List[Tuple[Any, str, Any]]:
    function: Any = torch.autograd.Function
    return [(functional, "embedding", _embedding(functional.embedding)), (functional, "batch_norm", _batch_norm(functional.batch_norm)),
            (functional, "instance_norm", _instance_norm(functional.instance_norm)), (torch.utils.checkpoint, "checkpoint", _checkpoint(torch.utils.checkpoint.checkpoint)),
            (function, "apply", _refused(vars(function)["apply"]))]  # fmt: skip


@contextlib.contextmanager
def exporting() -> Iterator[None]:
    """Around the module's forward, for this thread: others find PyTorch as it is. REQUIRES the lock of those who trace."""
    kept: List[Tuple[Any, str, Any]] = []
    try:
        _trace.active = True
        for owner, name, replacement in _patches():
            kept.append((owner, name, vars(owner).get(name)))
            setattr(owner, name, replacement)
        with Exact():
            yield
    finally:
        _trace.active = False
        for owner, name, before in reversed(kept):
            if before is None:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


def _say_blocks(graph: Any) -> None:
    """What no_grad blocks give is detached."""
    for node in list(graph.graph.nodes):
        name = str(node.target)
        if "wrap_with_autocast" in name and node.args[2]:
            raise UnsupportedError("it loses blocks of torch.autocast")
        if "wrap_with_set_grad_enabled" not in name:
            continue
        if node.args[0] or any("set_grad_enabled" in str(inner.target) for inner in getattr(graph, str(node.args[1].target)).graph.nodes):
            raise UnsupportedError("it loses torch.enable_grad inside of no_grad")
        for given in [user for user in node.users if user.meta["val"].is_floating_point()]:
            with graph.graph.inserting_after(given):
                detached = graph.graph.call_function(torch.ops.aten.detach.default, (given,))
            detached.meta.update(given.meta)
            given.replace_all_uses_with(detached, delete_user_cb=lambda user, own=detached: user is not own)
    graph.recompile()


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without the graphs that torch's loggers, and torch.export itself, show where an export fails: the exception tells."""
    tracer: Any = vars(importlib.import_module("torch.export._trace")) if importlib.util.find_spec("torch.export._trace") else {}
    loggers = [logger for name, logger in logging.root.manager.loggerDict.items() if name.split(".")[0] == "torch" and isinstance(logger, logging.Logger)]
    kept = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    tracer["print"] = lambda *_, **__: None
    try:
        yield
    finally:
        del tracer["print"]
        for logger, disabled in zip(loggers, kept):
            logger.disabled = disabled


def exported_file(flat: torch.nn.Module, inputs: Sequence[torch.Tensor], names: Sequence[str], outputs: Optional[List[str]]) -> bytes:
    """The file of a function of tensors, whose constants are nodes. Raises what the exporter does."""
    export: Any = getattr(torch, "export").export
    to_onnx: Any = torch.onnx.export
    with _silent(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = export(flat, tuple(inputs), strict=False)
        _say_blocks(program.graph_module)
        made = to_onnx(program, dynamo=True, input_names=list(names), output_names=outputs, optimize=False, verbose=False)
    model: bytes = made.model_proto.SerializeToString()
    return _onnx_file.with_constants(model)
