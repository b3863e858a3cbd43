"""Values of a trace: what is computed apart from it, and what a value is made of."""

import contextlib
from typing import Any, Iterator, List, Optional, Tuple

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


_DRAWS = {f"aten::{name}" for name in ("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "bernoulli", "bernoulli_", "multinomial",
                                       "normal", "normal_", "uniform_", "random_", "exponential_", "poisson")}  # fmt: skip


def _is_below_zero(node: Any) -> bool:
    """rand() < 0, as of a LayerDrop of 0."""
    inputs = list(node.inputs())
    if node.kind() != "aten::lt" or inputs[0].node().kind() != "aten::rand" or inputs[1].node().kind() != "prim::Constant":
        return False
    return float(inputs[1].node().outputsAt(0).toIValue()) <= 0


def made_of(tensor: torch.Tensor) -> Tuple[bool, bool]:
    """Whether a tensor of the trace is made of the module's inputs or of random numbers, and of numbers that may be sizes."""
    return _made_of(_C._get_value_trace(tensor), None)


def _made_of(value: Any, inputs: Optional[int]) -> Tuple[bool, bool]:
    """inputs: how many of the trace's inputs count; None: all."""
    seen, left, sizes = set(), [value], False
    while left:
        found = left.pop()
        node = found.node()
        if node.kind() == "prim::Param" and inputs is not None and found.offset() >= inputs:
            continue
        if node.kind() == "prim::Param" or node.kind() in _DRAWS:
            return True, True
        if _is_below_zero(node):
            continue
        if node.kind() == "prim::Constant" and node.outputsAt(0).type().kind() == "IntType":
            sizes = sizes or node.outputsAt(0).toIValue() not in (0, 1)
        for source in node.inputs():
            if source.debugName() not in seen:
                seen.add(source.debugName())
                left.append(source)
    return False, sizes


_OF_FIRST = {f"aten::{name}" for name in ("nonzero", "nonzero_numpy", "argwhere", "_unique", "_unique2", "unique_dim", "unique_consecutive",
                                          "unique_dim_consecutive", "bincount")}  # fmt: skip


def _is_tensor(value: Any) -> bool:
    return bool(value.type().kind() == "TensorType")


def _deciding(node: Any) -> Optional[Any]:
    """The argument whose numbers say how many elements an operator's results have; None: none does."""
    kind, given = node.kind(), list(node.inputs())
    if kind in _OF_FIRST or (kind == "aten::where" and len(given) == 1):
        return given[0]
    if kind == "aten::masked_select":
        return given[1]
    if kind == "aten::one_hot" and given[1].node().kind() == "prim::Constant" and given[1].toIValue() == -1:
        return given[0]
    if kind == "aten::repeat_interleave" and given[-1].node().mustBeNone():  # else the size is given
        return next((value for value in reversed(given[:2]) if _is_tensor(value)), None)
    if kind == "aten::index":
        masks = [value for value in given[1].node().inputs() if _is_tensor(value) and value.type().scalarType() in ("Bool", "Byte")]
        return masks[0] if masks else None
    return None


def sized_by_numbers(tensor: torch.Tensor, inputs: int) -> Optional[str]:
    """The operator by which the sizes of a tensor of the trace may follow the numbers of the trace's first `inputs` inputs; None: they do not."""
    state = torch._C._get_tracing_state()
    try:
        left = [_C._get_value_trace(tensor)]
    except RuntimeError:  # none of the trace, which PyTorch leaves for that
        _C._set_tracing_state(state)
        return None
    seen = set()
    while left:
        value = left.pop()
        if value.debugName() in seen or (_is_tensor(value) and value.type().dim() == 0):  # a number has no sizes
            continue
        seen.add(value.debugName())
        node = value.node()
        decides = _deciding(node)
        if decides is not None and _made_of(decides, inputs)[0]:
            return str(node.kind()).rpartition(":")[2]
        left += list(node.inputs())
    return None


def single_axis(value: Any) -> Optional[int]:
    """The axis of a mask along which one element is true at most, since it tells where one number is among those that topk picked; None: nobody
    knows of any."""
    axis, single = _picks(value)
    return axis if single else None


def _picks(value: Any) -> Tuple[Optional[int], bool]:
    """The axis along which a value is topk's distinct numbers (False), or not 0 once at most (True)."""
    node = value.node()
    inputs, kind = list(node.inputs()), node.kind()
    if kind == "aten::topk":
        return (int(inputs[2].toIValue()) % value.type().dim() if value.offset() == 1 else None), False
    axis, single = _picks(inputs[0]) if kind in _OF_PICKS else (None, False)
    if axis is None:
        return None, False
    if kind in ("aten::eq", "aten::one_hot"):
        return (axis if not single and (kind == "aten::one_hot" or _rank(inputs[1]) == 0) else None), True
    if kind in ("aten::ne", "aten::__and__"):
        keeps = single and (_rank(inputs[1]) == 0 if kind == "aten::__and__" else is_zero(inputs[1]))
        return (axis if keeps else None), True
    return _moved(axis, kind, inputs), single


def _moved(axis: int, kind: str, inputs: List[Any]) -> Optional[int]:
    """Where an axis of the first operand is in the result; None: it is gone, or nobody knows."""
    rank = _rank(inputs[0])
    if kind == "aten::to":
        return axis
    if rank is None:
        return None
    if kind in ("aten::select", "aten::squeeze"):
        if len(inputs) < 2 or inputs[1].node().kind() != "prim::Constant":
            return None
        gone = int(inputs[1].toIValue()) % rank
        return None if gone == axis else axis - (gone < axis)
    if kind == "aten::permute":
        order = [source.toIValue() for source in inputs[1].node().inputs()] or list(inputs[1].toIValue() or ())
        return [int(place) % rank for place in order].index(axis) if len(order) == rank else None
    of = list(inputs[1].node().inputs())  # index of the first axis, by one tensor
    return None if axis == 0 or len(of) != 1 or _rank(of[0]) not in (0, 1) else axis - 1 + (_rank(of[0]) or 0)


def _rank(value: Any) -> Optional[int]:
    rank: Optional[int] = value.type().dim() if value.type().kind() == "TensorType" else 0
    return rank


_OF_PICKS = {"aten::eq", "aten::ne", "aten::__and__", "aten::one_hot", "aten::select", "aten::squeeze", "aten::permute", "aten::index", "aten::to"}
# What _key() follows.
_SAME = {"aten::eq", "aten::ne", "aten::ge", "aten::gt", "aten::le", "aten::lt", "aten::select", "aten::any", "aten::view", "aten::reshape",
         "aten::flatten", "aten::slice", "aten::permute", "aten::squeeze", "aten::unsqueeze", "prim::ListConstruct"}  # fmt: skip
_VIEWS = {"aten::view", "aten::reshape", "aten::flatten", "aten::squeeze", "aten::unsqueeze"}


def _key(value: Any) -> Any:
    """Equal for values of the trace that are computed alike of the same ones."""
    node = value.node()
    if node.kind() == "prim::Constant":
        kind = value.type().kind()
        return (kind, str(value.toIValue())) if kind != "TensorType" or value.toIValue().numel() == 1 else value.debugName()
    if node.kind() in _SAME and node.outputsSize() == 1:
        return (node.kind(), *[_key(source) for source in node.inputs()])
    return value.debugName()


def elements_of(value: Any) -> Any:
    """Equal for values that have the same elements in the same order."""
    key = _key(value)
    while isinstance(key, tuple) and key[0] in _VIEWS:
        key = key[1]
    return key


def is_zero(value: Any) -> bool:
    return value.node().kind() == "prim::Constant" and str(value.toIValue()).startswith(("0", "tensor(0")) and float(value.toIValue()) == 0
