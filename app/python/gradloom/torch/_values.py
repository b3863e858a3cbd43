"""Values of a trace: what is computed apart from it, and what a value is made of."""

import contextlib
from typing import Any, Iterator, Tuple

import torch

_C: Any = torch._C  # whose private functions have no types


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """What is computed here is a constant of the trace."""
    state = torch._C._get_tracing_state()
    _C._set_tracing_state(None)
    try:
        yield
    finally:
        _C._set_tracing_state(state)


def made_of(tensor: torch.Tensor) -> Tuple[bool, bool]:
    """Whether a tensor of the trace is made of the module's inputs, and of numbers that may be sizes."""
    seen, left, sizes = set(), [_C._get_value_trace(tensor)], False
    while left:
        node = left.pop().node()
        if node.kind() == "prim::Param":
            return True, True
        if node.kind() == "prim::Constant" and node.outputsAt(0).type().kind() == "IntType":
            sizes = sizes or node.outputsAt(0).toIValue() not in (0, 1)
        for source in node.inputs():
            if source.debugName() not in seen:
                seen.add(source.debugName())
                left.append(source)
    return False, sizes
