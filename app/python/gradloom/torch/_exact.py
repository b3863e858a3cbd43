"""Functions of which PyTorch's exporters drop an argument, or write a formula that is another one somewhere: made of others, or refused.

Each body takes its function's arguments and gives NotImplemented where the exporters are right. Results and gradients are those of PyTorch's
eager kernels, also where a distance is 0, a bag is empty or an index comes twice.
"""

import math
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from .._library import UnsupportedError

Tensor = torch.Tensor
_MASKS = (torch.bool, torch.uint8)


def index_put(input: Tensor, indices: Sequence[Tensor], values: Tensor, accumulate: bool = False) -> Any:
    """An index that comes twice adds twice; exporters by TorchScript write ScatterND into zeros, where the last one stays."""
    if not accumulate:
        return NotImplemented
    values = values.to(input.dtype)
    if len(indices) == 1 and indices[0].dtype in _MASKS:
        return _add_where(input, indices[0], values)
    places: List[Tensor] = []
    for index in indices:
        places += index.nonzero().unbind(1) if index.dtype in _MASKS else [index.to(torch.int64)]
    shape = tuple(torch.broadcast_shapes(*[tuple(index.shape) for index in places]))
    sizes, inner = input.shape[: len(places)], input.shape[len(places) :]
    row: Any = 0
    for index, size in zip(places, sizes):
        row = row * size + torch.where(index < 0, index + size, index).expand(shape)
    values = values.expand(*shape, *inner).reshape(math.prod(shape), *inner)
    return input.reshape(math.prod(sizes), *inner).index_add(0, row.reshape(-1), values).reshape(input.shape)


def _add_where(input: Tensor, mask: Tensor, values: Tensor) -> Tensor:
    """Values are in order of the mask's true elements, or one for all of them."""
    inner = input.shape[mask.dim() :]
    mask = mask.to(torch.bool).reshape(*mask.shape, *[1] * len(inner))
    if values.dim() == len(inner) + 1 and values.shape[0] == 1:
        values = values[0]
    if values.dim() <= len(inner):
        return torch.where(mask, input + values, input)
    if len(inner) > 1:
        raise UnsupportedError("index_put with accumulate=True of a mask whose rows have several dims")
    return input + torch.zeros_like(input).masked_scatter(mask, values.expand(values.shape[0], *inner))


def index_put_(input: Tensor, indices: Sequence[Tensor], values: Tensor, accumulate: bool = False) -> Any:
    made = index_put(input, indices, values, accumulate)
    return made if made is NotImplemented else input.copy_(made)


def scatter_reduce(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> Any:
    if reduce not in ("mean", "sum"):
        return NotImplemented
    counts = torch.zeros_like(input).scatter_add(dim, index, torch.ones_like(src))
    start = input if include_self else torch.where(counts > 0, torch.zeros_like(input), input)
    total = start.scatter_add(dim, index, src)
    if reduce == "sum":
        return total
    counts = counts + 1 if include_self else counts.clamp(min=1)
    return total / counts if input.is_floating_point() else torch.div(total, counts, rounding_mode="floor")


def scatter_reduce_(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> Any:
    made = scatter_reduce(input, dim, index, src, reduce, include_self=include_self)
    return made if made is NotImplemented else input.copy_(made)


def _number(value: float, like: Tensor) -> Tensor:
    """Numbers of Python are f32 in the dynamo exporter's files."""
    return torch.tensor(value, dtype=like.dtype, device=like.device)


def _each(value: Any, axes: int) -> List[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * axes if len(values) == 1 else values


def _avg_pool(function: Callable[..., Tensor], axes: int) -> Callable[..., Any]:
    def pool(input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
             divisor_override: Optional[int] = None) -> Any:  # fmt: skip
        if divisor_override is None:
            return NotImplemented
        kernel, pads = _each(kernel_size, axes), _each(padding, axes)
        steps = _each(stride, axes) if stride else kernel
        widths: List[int] = []
        for size, width, step, pad in zip(input.shape[-axes:], kernel, steps, pads):
            last = (size + 2 * pad - width + (step - 1 if ceil_mode else 0)) // step * step  # where the last window begins
            if last >= size + pad:
                last -= step
            widths = [pad, pad + max(0, last + width - size - 2 * pad), *widths]
        padded = functional.pad(input, widths) if any(widths) else input
        return function(padded, kernel, steps) * _number(math.prod(kernel) / divisor_override, input)

    return pool


def refuse_rows_that_change(name: str, weight: Tensor, max_norm: Optional[float], scale_grad_by_freq: bool) -> None:
    if max_norm is not None:
        raise UnsupportedError(f"{name} with max_norm, which changes its weight in place")
    if scale_grad_by_freq and weight.requires_grad:
        raise UnsupportedError(f"{name} with scale_grad_by_freq")


def embedding_bag(input: Tensor, weight: Tensor, offsets: Optional[Tensor] = None, max_norm: Optional[float] = None, norm_type: float = 2,
                  scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, per_sample_weights: Optional[Tensor] = None,
                  include_last_offset: bool = False, padding_idx: Optional[int] = None) -> Any:  # fmt: skip
    """Exporters divide by the rows of a bag that is empty, and lack padding."""
    refuse_rows_that_change("embedding_bag", weight, max_norm, scale_grad_by_freq)
    if offsets is None and padding_idx is None:
        return NotImplemented
    bags = input.shape[0] if offsets is None else offsets.shape[0] - int(include_last_offset)
    flat = input.reshape(-1)
    places = torch.arange(flat.shape[0], device=input.device)
    if offsets is None:
        bag = torch.div(places, input.shape[1], rounding_mode="floor")
    else:  # behind the last offset is no bag
        bag = (places[:, None] >= offsets[None]).to(torch.int64).sum(1) - 1
    counted = torch.ones_like(flat) if padding_idx is None else (flat != padding_idx % weight.shape[0]).to(torch.int64)
    rows = functional.embedding(flat, weight)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.reshape(-1, 1)
    member = (bag[None] == torch.arange(bags, device=input.device)[:, None]) & (counted > 0)[None]  # [bags, rows]
    counts = member.to(weight.dtype).sum(1, keepdim=True)
    if mode == "max":
        largest = torch.where(member[..., None], rows[None], torch.full((), -math.inf, dtype=rows.dtype, device=rows.device)).amax(1)
        return torch.where(counts > 0, largest, torch.zeros_like(largest))
    total = torch.zeros(bags + 1, weight.shape[1], dtype=rows.dtype, device=rows.device).index_add(0, bag, rows * counted.to(rows.dtype)[:, None])[:bags]
    return total if mode == "sum" else total / counts.clamp(min=1)


_ORDERS = (1, math.inf, -math.inf)  # of norms that exporters have, with their gradients at 0
_HAS_2 = int(torch.__version__.partition(".")[0]) >= 2  # from then on also 2


def _norm(input: Tensor, order: float, dim: Any, keepdim: bool) -> Tensor:
    """Its gradient is 0 where the norm is, or the number."""
    if order in _ORDERS:
        made: Tensor = torch.linalg.vector_norm(input, order, dim, keepdim)
        return made
    size, one, zero = input.abs(), _number(1, input), _number(0, input)
    if order == 2:
        powers = input * input
    else:
        powers = torch.where(size == 0, zero, torch.where(size == 0, one, size) ** _number(order, input))
    total = powers.sum(tuple(range(input.dim())) if dim is None else dim, keepdim)
    other = torch.where(total == 0, one, total)
    return torch.where(total == 0, zero, other.sqrt() if order == 2 else other ** _number(1 / order, input))


def _is_other(input: Tensor, order: Any) -> bool:
    return isinstance(order, (int, float)) and order > 0 and order not in (*_ORDERS, *[2] * _HAS_2) and input.is_floating_point()


def vector_norm(x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None) -> Any:
    return _norm(x, ord, dim, keepdim) if _is_other(x, ord) and dtype is None and out is None else NotImplemented


def norm(input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, out: Any = None, dtype: Any = None) -> Any:
    return vector_norm(input, 2 if p == "fro" else p, dim, keepdim, dtype=dtype, out=out)


def normalize(input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Any = None) -> Any:
    return input / _norm(input, p, dim, True).clamp(min=eps) if _is_other(input, p) and out is None else NotImplemented


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: Any = None) -> Tensor:
    difference = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    return (difference != 0).to(difference.dtype).sum(-1) if p == 0 else _norm(difference, p, -1, False)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Any:
    if not (x1.is_floating_point() and x2.is_floating_point()):
        return NotImplemented
    shape = tuple(torch.broadcast_shapes(tuple(x1.shape), tuple(x2.shape)))
    return (_unit(x1.expand(shape), dim, eps) * _unit(x2.expand(shape), dim, eps)).sum(dim)


def _unit(x: Tensor, dim: int, eps: float) -> Tensor:
    length = _norm(x, 2, dim, True)
    return x / (length + (length.clamp(min=eps) - length).detach())  # the gradient passes the bound


def roll(input: Tensor, shifts: Any, dims: Any = ()) -> Any:
    """Exporters write two slices, which know no shift that is longer than its axis, and none that a tensor tells."""
    steps = list(shifts) if isinstance(shifts, (tuple, list)) else [shifts]
    axes = list(dims) if isinstance(dims, (tuple, list)) else [] if dims is None else [dims]
    if not axes and len(steps) == 1:
        return torch.roll(input.reshape(-1), steps[0], 0).reshape(input.shape)
    if len(steps) != len(axes) or all(_is_within(step, input.shape[axis]) for step, axis in zip(steps, axes)):
        return NotImplemented
    for step, axis in zip(steps, axes):
        size = input.shape[axis]
        if isinstance(step, Tensor):
            input = input.index_select(axis, torch.remainder(torch.arange(size, device=input.device) - step.reshape(()), size))
        else:
            input = torch.roll(input, step if _is_within(step, size) else step % size, axis)
    return input


def _is_within(step: Any, size: int) -> bool:
    return not isinstance(step, Tensor) and (size == 0 or -size <= step <= size)


def pad_packed_sequence(data: Tensor, *rest: Any) -> Any:
    """Exporters leave out a pair that packs and pads with nothing between, and with it the zeros behind each sequence."""
    if torch._C._get_tracing_state() is not None and torch._C._get_value_trace(data).node().kind() == "aten::_pack_padded_sequence":  # type: ignore[attr-defined]
        raise UnsupportedError("pad_packed_sequence of a sequence as pack_padded_sequence gave it: masked_fill behind the lengths does the same")
    return NotImplemented


def randint(*args: Any, **kwargs: Any) -> Any:
    """Exporters cut off what is behind the point, which below 0 gives the next number, and miss a lower end that is not given."""
    return _drawn(torch.randint, (), ("low", "high", "size"), args, kwargs)


def randint_like(input: Tensor, *args: Any, **kwargs: Any) -> Any:
    return _drawn(torch.randint_like, (input,), ("low", "high"), args, kwargs)


def _drawn(function: Callable[..., Tensor], like: Tuple[Any, ...], names: Tuple[str, ...], args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
    """names: of arguments by their place, of which the first may be left out."""
    if len(args) + len(kwargs.keys() & {*names}) < len(names):
        names = names[1:]
    given = {**dict(zip([name for name in names if name not in kwargs], args)), **kwargs}
    low = given.pop("low", None)
    if low is not None and low >= 0:
        return NotImplemented
    made = function(*like, low=0, high=given.pop("high") - (low or 0), **given)
    return made + low if low else made


def sinc(input: Tensor) -> Any:
    if not input.is_floating_point():
        return NotImplemented
    one, angle = _number(1, input), input * _number(math.pi, input)
    other = torch.where(input == 0, one, angle)
    return torch.where(input == 0, one, torch.sin(other) / other)


def softplus(input: Tensor, beta: float = 1, threshold: float = 20) -> Any:
    """Above a threshold it is the identity, which exporters lack: from 20 on nobody sees it."""
    if threshold >= 20:
        return NotImplemented
    above = input * _number(beta, input) > threshold
    return torch.where(above, input, functional.softplus(torch.where(above, _number(0, input), input), beta))


def interpolate(input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Optional[bool] = None,
                recompute_scale_factor: Optional[bool] = None, antialias: bool = False) -> Any:  # fmt: skip
    """Of aligned corners, and where PyTorch computes the scale again, sizes are all that counts; exporters take the scale that was given."""
    if scale_factor is None or not (align_corners or recompute_scale_factor or mode == "area"):
        return NotImplemented
    factors = list(scale_factor) if isinstance(scale_factor, (list, tuple)) else [scale_factor] * (input.dim() - 2)
    sizes = [math.floor(float(length) * factor) for length, factor in zip(input.shape[2:], factors)]
    return functional.interpolate(input, sizes, None, mode, align_corners, **({"antialias": True} if antialias else {}))


def grid_sample(input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: Optional[bool] = None) -> Any:
    if mode == "bicubic" and padding_mode == "border":
        raise UnsupportedError("grid_sample with mode='bicubic' and padding_mode='border': ONNX clips coordinates, PyTorch each place that it reads")
    return NotImplemented


EXACT: Dict[Any, Callable[..., Any]] = {
    torch.index_put: index_put, torch.Tensor.index_put: index_put, torch.index_put_: index_put_, torch.Tensor.index_put_: index_put_,
    torch.scatter_reduce: scatter_reduce, torch.Tensor.scatter_reduce: scatter_reduce, torch.Tensor.scatter_reduce_: scatter_reduce_,
    functional.avg_pool2d: _avg_pool(functional.avg_pool2d, 2), functional.avg_pool3d: _avg_pool(functional.avg_pool3d, 3),
    functional.embedding_bag: embedding_bag, functional.interpolate: interpolate, functional.grid_sample: grid_sample,
    torch.cdist: cdist, torch.cosine_similarity: cosine_similarity, torch.sinc: sinc, torch.Tensor.sinc: sinc, torch.special.sinc: sinc,
    torch.linalg.vector_norm: vector_norm, torch.norm: norm, torch.Tensor.norm: norm, functional.normalize: normalize,
    functional.softplus: softplus, torch.roll: roll, torch.Tensor.roll: roll, torch.randint: randint,
    torch.randint_like: randint_like,
    torch._VF._pad_packed_sequence: pad_packed_sequence,  # type: ignore[attr-defined]
}  # fmt: skip


class Exact(TorchFunctionMode):
    """For an exporter that no other mode is around."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        body, made = EXACT.get(function), NotImplemented
        if body is not None:
            with self:
                made = body(*args, **(kwargs or {}))
        return function(*args, **(kwargs or {})) if made is NotImplemented else made
