"""Functions of which PyTorch's exporters drop an argument, or write a formula that is another one somewhere: made of others, or refused.

Each body takes its function's arguments and gives NotImplemented where the exporters are right. Results and gradients are those of PyTorch's
eager kernels, also where a distance is 0, a bag is empty or an index comes twice.
"""

import math
from typing import Any, Callable, Dict, List, Sequence

import torch
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


EXACT: Dict[Any, Callable[..., Any]] = {
    torch.index_put: index_put, torch.Tensor.index_put: index_put, torch.index_put_: index_put_, torch.Tensor.index_put_: index_put_,
}  # fmt: skip


class Exact(TorchFunctionMode):
    """For an exporter that no other mode is around."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        body, made = EXACT.get(function), NotImplemented
        if body is not None:
            with self:
                made = body(*args, **(kwargs or {}))
        return function(*args, **(kwargs or {})) if made is NotImplemented else made
