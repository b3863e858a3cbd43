"""PyTorch's exporter by TorchScript while it writes a file: what it refuses passes and is noted, and it says nothing."""

import contextlib
import logging
import sys
import threading
import warnings
from typing import Any, Callable, Dict, Iterator, Optional, Sequence

import torch

from ._outside import Outside, reason_of


@contextlib.contextmanager
def passing_refused(outside: Outside) -> Iterator[Dict[str, Dict[str, Optional[str]]]]:
    """Lets operators that PyTorch's exporter refuses pass, and notes them: what is wrong by submodule and operator, None where it lacks
    the operator."""
    missing: Dict[str, Dict[str, Optional[str]]] = {}
    own = threading.get_ident()

    def passing(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(graph: Any, block: Any, node: Any, *rest: Any) -> Any:
            try:
                return original(graph, block, node, *rest)
            except Exception as error:
                if threading.get_ident() != own:
                    raise
                if _complete(node, rest[0]):
                    with contextlib.suppress(Exception):
                        return original(graph, block, node, *rest)
                labels = [atom.rpartition("::")[2] for atom in node.scopeName().split("/")]
                lacks = type(error).__name__ == "UnsupportedOperatorError"
                path = outside.path_of("/".join(label for label in labels if label))
                missing.setdefault(path, {}).setdefault(node.kind(), None if lacks else reason_of(error))
                return None  # the node stays as it is

        return run

    # By the first name the exporter, in C++, asks for an operator. The second adds functions of onnxscript, of which there are none here,
    # and would need the package onnx, the third prints the graph of what fails. The others merge nodes, also of two regions of autocast, in which they
    # are computed in two types.
    changes: Dict[str, Callable[[Any], Any]] = {
        "_run_symbolic_function": passing, "_add_onnxscript_fn": lambda _: lambda model, *_: model, "_jit_onnx_log": lambda _: lambda *_: None,
        **dict.fromkeys(("_jit_pass_cse", "_jit_pass_fuse_addmm"), lambda merge: lambda graph: not outside.regions.met and merge(graph)),
    }  # fmt: skip
    kept = [(owner, name, vars(owner)[name]) for owner in map(sys.modules.get, _EXPORTER) if owner is not None for name in changes if name in vars(owner)]
    for owner, name, function in kept:
        setattr(owner, name, changes[name](function))
    try:
        yield missing
    finally:
        for owner, name, function in kept:
            setattr(owner, name, function)


def _complete(node: Any, values: Sequence[Any]) -> bool:
    """Gives the values that an operator's symbolic reads the shapes that the trace saw: the exporter loses those behind operators of other domains.
    Whether there were any."""
    lost = [(value, source.type()) for value, source in zip(values, node.inputs())
            if isinstance(value, torch._C.Value) and source.isCompleteTensor() and not value.isCompleteTensor()
            and getattr(value.type(), "scalarType", lambda: None)() in (None, source.type().scalarType())]  # fmt: skip
    for value, known in lost:
        value.setType(known)
    return bool(lost)


# Where PyTorch's exporter lives, by its version.
_EXPORTER = ("torch._C", "torch.onnx", "torch.onnx.utils", "torch.onnx._internal.onnx_proto_utils", "torch.onnx._internal.torchscript_exporter.utils",
             "torch.onnx._internal.torchscript_exporter.onnx_proto_utils")  # fmt: skip


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    prints = torch._C._jit_is_onnx_log_enabled()  # which PyTorch 2's leaves on
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch._C._jit_set_onnx_log_enabled(prints)
        logger.setLevel(level)
