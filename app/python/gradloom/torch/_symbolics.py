"""Operators that PyTorch's TorchScript exporter lacks, as nodes of the engine's own or of ONNX."""

import importlib
from typing import Any, Callable, Dict

import torch

from .._library import UnsupportedError
from ._outside import DOMAIN, OPERATORS

_TYPES = torch.onnx.TensorProtoDataType
# By PyTorch's names in graphs.
_FLOATS = {"Float": (torch.float32, _TYPES.FLOAT), "Double": (torch.float64, _TYPES.DOUBLE), "Half": (torch.float16, _TYPES.FLOAT16),
           "BFloat16": (torch.bfloat16, _TYPES.BFLOAT16)}  # fmt: skip


def grouped_mm(g: Any, a: Any, b: Any, ends: Any, *rest: Any) -> Any:
    """torch.nn.functional.grouped_mm: rows of `a` in groups, each times a matrix of `b`; or, of two matrices, groups of what they are
    summed over. `rest`: a bias, which PyTorch does not take yet, and the type of the result."""
    ranks = [value.type().dim() for value in list(g.original_node.inputs())[:2]]
    if ends is None or ends.node().mustBeNone():
        return g.op("MatMul", a, b)
    if any(not value.node().mustBeNone() for value in rest[:1]):
        raise UnsupportedError("grouped_mm with a bias")
    places = g.op("Cast", ends, to_i=_TYPES.INT64)
    if ranks == [2, 3]:
        made = b.node()  # of weights that lie the other way the engine takes each as it is
        transposed = made.kind() == "onnx::Transpose" and getattr(made, "is")("perm") == [0, 2, 1]
        matrices = next(made.inputs()) if transposed else b
        return g.op(f"{DOMAIN}::GroupedMatMul", a, matrices, places, transposed_i=int(transposed)).setType(g.original_node.output().type())
    if ranks == [2, 2]:
        turned = g.op("Transpose", a, perm_i=[1, 0])
        return g.op(f"{DOMAIN}::GroupedContraction", turned, b, places).setType(g.original_node.output().type())
    raise UnsupportedError(f"grouped_mm of tensors with {ranks[0]} and {ranks[1]} dims")


def histc(g: Any, x: Any, bins: Any, low: Any, high: Any) -> Any:
    """How many elements are in each of `bins` equal intervals of [low, high]; the last one has its upper end, others are not counted."""
    helper = torch.onnx.symbolic_helper
    count, first, last = (helper._get_const(value, kind, name) for value, kind, name in ((bins, "i", "bins"), (low, "f", "min"), (high, "f", "max")))
    if not first < last:
        raise UnsupportedError("histc without its limits, which are then those of the data")
    kind = x.type().scalarType()
    like, code = _FLOATS.get(kind, _FLOATS["Double" if kind == "Long" else "Float"])
    result = g.original_node.output().type()
    counts_code = helper.cast_pytorch_to_onnx[result.scalarType() or kind]
    x = x if kind in _FLOATS else g.op("Cast", x, to_i=code)

    def number(value: float) -> Any:
        return g.op("Constant", value_t=torch.tensor(value, dtype=like))

    flat = g.op("Reshape", x, g.op("Constant", value_t=torch.tensor([-1, 1])))
    place = g.op("Floor", g.op("Div", g.op("Mul", g.op("Sub", flat, number(first)), number(count)), number(last - first)))
    place = g.op("Where", g.op("Greater", flat, number(last)), number(-1), g.op("Min", place, number(count - 1)))
    equal = g.op("Equal", place, g.op("Constant", value_t=torch.arange(count, dtype=like)[None]))
    counts = g.op("ReduceSum", g.op("Cast", equal, to_i=counts_code),
                  g.op("Constant", value_t=torch.tensor([0])), keepdims_i=0)  # fmt: skip
    return counts.setType(result)


def index_add(g: Any, x: Any, dim: Any, index: Any, source: Any, alpha: Any = None) -> Any:
    """Tensor.index_add, also of an index that has a place twice."""
    helper = torch.onnx.symbolic_helper
    factor = 1 if alpha is None or alpha.node().mustBeNone() else helper._get_const(alpha, "f", "alpha")
    result, rank = g.original_node.output().type(), x.type().dim()
    axis = helper._get_const(dim, "i", "dim") % rank
    order = [axis, *[other for other in range(rank) if other != axis]]
    if factor != 1:
        source = g.op("Mul", source, g.op("Constant", value_t=torch.tensor(factor, dtype=_FLOATS[source.type().scalarType()][0])))
    if axis:
        x, source = (g.op("Transpose", value, perm_i=order) for value in (x, source))
    places = g.op("Unsqueeze", g.op("Cast", index, to_i=_TYPES.INT64), g.op("Constant", value_t=torch.tensor([1])))
    made = g.op("ScatterND", x, places, source, reduction_s="add")
    return (g.op("Transpose", made, perm_i=[order.index(other) for other in range(rank)]) if axis else made).setType(result)


def index_put(g: Any, x: Any, indices: Any, values: Any, accumulate: Any = None) -> Any:
    """What adds is made of others where a module calls it (_exact.py); what calls it elsewhere, such as a scripted function, is refused."""
    if accumulate is not None and torch.onnx.symbolic_helper._maybe_get_const(accumulate, "b"):
        raise UnsupportedError("index_put with accumulate=True of a scripted function or torch.ops")
    return importlib.import_module("torch.onnx.symbolic_opset11").index_put(g, x, indices, values)


# Rows [n, k] times a matrix [k, m], or [m, k] that is transposed; zeros behind the first `count` rows (_rows.py).
OPERATORS.define("first_rows(Tensor rows, Tensor matrix, Tensor count, bool transposed) -> Tensor")
OPERATORS.impl("first_rows", lambda rows, matrix, count, transposed: rows.detach() @ (matrix.t() if transposed else matrix).detach(),
               "CompositeExplicitAutograd")  # fmt: skip


def first_rows(g: Any, rows: Any, matrix: Any, count: Any, transposed: Any) -> Any:
    matrices = g.op("Unsqueeze", matrix, g.op("Constant", value_t=torch.tensor([0])))
    flag = torch.onnx.symbolic_helper._maybe_get_const(transposed, "b")
    return g.op(f"{DOMAIN}::GroupedMatMul", rows, matrices, count, transposed_i=int(flag)).setType(g.original_node.output().type())


SYMBOLICS: Dict[str, Callable[..., Any]] = {
    "aten::_grouped_mm": grouped_mm,
    "aten::histc": histc,
    "aten::index_add": index_add,
    "aten::index_put": index_put,
    f"{DOMAIN}::first_rows": first_rows,
    "transformers::grouped_mm_fallback": grouped_mm,  # where PyTorch has none for the types at hand
}
