"""The operators of a module that is traced, as Python calls them.

Some are made of others. And after one that wrote in place, the tensors that share memory with what it wrote get values that are made
of the written one: in PyTorch what is written through one shows in all, a trace has a value for each, and the exporter follows slices
alone.
"""

import weakref
from typing import Any, Callable, Dict, Iterator, List, Tuple

import torch
from torch.overrides import TorchFunctionMode

from .._library import UnsupportedError
from ._complex import REPLACED, Complex
from ._decompositions import unfold
from ._values import untraced


_REPLACED: Dict[Any, Callable[..., Any]] = {**REPLACED, torch.Tensor.unfold: unfold}


class Operators(TorchFunctionMode):
    """Sees all operators of the module that is traced."""

    def __init__(self) -> None:
        super().__init__()
        self._views: Dict[int, List["weakref.ref[torch.Tensor]"]] = {}  # by the id of what they are views of

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch._C._get_tracing_state() is None:
            return function(*args, **kwargs)
        body = _REPLACED.get(function)
        if body is not None:
            with self:
                return body(*args, **kwargs)
        given = [(tensor, tensor._version) for tensor in _tensors((*args, *kwargs.values()))]
        result = function(*args, **kwargs)
        for tensor in _tensors((result,)):
            if tensor._is_view():
                self._note(tensor)
        written: Dict[int, torch.Tensor] = {}
        for tensor, version in given:
            if tensor._version != version:
                written.setdefault(id(_base(tensor)), tensor)
        for tensor in written.values():
            self._follow(tensor)
        return result

    def _note(self, view: torch.Tensor) -> None:
        live = self._views.setdefault(id(view._base), [])
        live[:] = [other for other in live if other() is not None and other() is not view] + [weakref.ref(view)]

    def _follow(self, tensor: torch.Tensor) -> None:
        """Those that share memory with what was written get its numbers."""
        base = _base(tensor)
        others = [other for other in (base, *[view() for view in self._views.get(id(base), [])])
                  if other is not None and other is not tensor and _base(other) is base]  # fmt: skip
        if not others:
            return
        whole = tensor.reshape(-1) if tensor is base else _with(base, tensor)
        for other in others:
            now = whole.reshape(other.shape) if other is base else _without(whole, base, other)
            torch._C._set_value_trace(other, torch._C._get_value_trace(now))


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, Complex):
            yield from (value.re, value.im)
        elif isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _base(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor._base is None else tensor._base


def _places(base: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    """For each number of the view its place among those of the base."""
    if view.dtype != base.dtype:
        raise UnsupportedError("memory is written in place that is seen as numbers of two types")
    with untraced():
        span = 1 + sum((size - 1) * stride for size, stride in zip(base.shape, base.stride()))
        slots = torch.zeros(span, dtype=torch.int64)
        slots.as_strided(base.shape, base.stride()).copy_(torch.arange(base.numel()).reshape(base.shape))
        return slots.as_strided(view.shape, view.stride(), view.storage_offset() - base.storage_offset()).reshape(-1)


def _with(base: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    """The base's numbers in a row, after its view was written."""
    places, row = _places(base, view), view.reshape(-1)
    with untraced():
        all_of_them, in_order = _covers(places, base.numel())
        back = torch.argsort(places) if all_of_them else places
    if in_order:
        return row
    return row.index_select(0, back) if all_of_them else base.reshape(-1).scatter(0, places, row)


def _without(whole: torch.Tensor, base: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    """The view's numbers, from the base's in a row."""
    places = _places(base, view)
    with untraced():
        _, in_order = _covers(places, base.numel())
    return (whole if in_order else whole.index_select(0, places)).reshape(view.shape)


def _covers(places: torch.Tensor, count: int) -> Tuple[bool, bool]:
    """Whether these are all of `count` places, and in order."""
    in_order = places.numel() == count and bool((places == torch.arange(count)).all())
    return in_order or (places.numel() == count and bool((places.sort()[0] == torch.arange(count)).all())), in_order
