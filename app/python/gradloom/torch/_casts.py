"""Types that a forward's Python gives to its tensors: x.float(), x.half(), x.to(y.dtype).

A trace has f32 wherever torch.autocast decides, so most of these do nothing in it, and what reads their results would follow the 16 bits around
it. So each is a node of its own in the trace, in a scope that says the type. The file has the nodes that read it called so, "/norm/Mul@f32" or
"/act/Relu@low", which the engine's precision reads (passes/precision.h), and rounds what others read (_onnx_file.with_labels). What `y.dtype` is under autocast a call in PyTorch tells (Told).
"""

import contextlib
import os
import sys
import threading
from collections import Counter
from types import FrameType
from typing import Any, Callable, Counter as Counts, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch

from .. import _onnx_file
from ._regions import Regions
from ._rows import rows_of
from ._values import untraced

# By scopes of the trace.
LABELS = {"cast.f32": _onnx_file.Label("@f32"), "cast.bf16": _onnx_file.Label("@low", 16), "cast.f16": _onnx_file.Label("@low", 10)}
_F32 = torch.float32
_SCOPES = {_F32: "cast.f32", torch.bfloat16: "cast.bf16", torch.float16: "cast.f16"}
_METHODS = ("to", "type", "type_as", "float", "half", "bfloat16", "double")
_OWN = os.path.dirname(__file__)
_Place = Tuple[Any, int, int]  # the code, its instruction, the object whose method it is


class _Cast(NamedTuple):
    dtype: torch.dtype
    same: bool  # it gave the tensor itself


class Told:
    """What a call in PyTorch tells of its types, those of its results and those that Python gave, by place and in order."""

    def __init__(self) -> None:
        self.results: List[torch.dtype] = []
        self.casts: Dict[_Place, List[_Cast]] = {}


class Casts:
    """The types that Python gives while a forward is traced."""

    def __init__(self, regions: Regions, told: Told) -> None:
        self.regions, self._told = regions, told
        self._met: Counts[_Place] = Counter()
        self._same: Dict[int, Tuple[torch.Tensor, torch.Tensor]] = {}  # by id of what stands for a tensor that has the type: both

    def run(self, name: str, convert: Callable[[torch.Tensor], torch.Tensor], tensor: torch.Tensor, frame: FrameType) -> torch.Tensor:
        """What the method `name`, which is `convert`, gives of a tensor of floats."""
        with untraced():
            given = tensor.detach()
            made = convert(given)
        if made.device != tensor.device:
            return convert(tensor)
        found, cast = self._take(frame) or _Cast(made.dtype, made is given), self.regions.innermost_type()
        if name != "float":
            self.regions.asked = True  # of another answer, or a conversion where autocast is not
        if found.same and not torch.is_grad_enabled():
            return convert(tensor)  # itself, with its gradient
        if tensor.dtype != _F32:
            return self._typed(convert(tensor), _F32, False) if made.dtype == _F32 else convert(tensor)
        if found.dtype == _F32:
            return self._typed(tensor, _F32, found.same)
        if found.dtype != cast:
            return convert(tensor)
        return tensor if found.same else self._typed(tensor, cast, False)

    def _take(self, frame: FrameType) -> Optional[_Cast]:
        place = _place(frame)
        known, index = self._told.casts.get(place, ()), self._met[place]
        self._met[place] += 1
        return known[index] if index < len(known) else None

    def _typed(self, tensor: torch.Tensor, dtype: torch.dtype, same: bool) -> torch.Tensor:
        """The tensor by another name; same: in its memory."""
        state = torch._C._get_tracing_state()
        state.push_scope(f"torch.autocast::{_SCOPES[dtype]}")
        try:
            made = tensor[...]  # aten::alias
        finally:
            state.pop_scope()
        if not same:
            return made.clone()
        self._same[id(made)] = made, tensor
        return made

    def source(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor that PyTorch would have given in this one's place."""
        while id(tensor) in self._same:
            tensor = self._same[id(tensor)][1]
        return tensor


def _place(frame: FrameType) -> _Place:
    return frame.f_code, frame.f_lasti, id(frame.f_locals.get("self"))


def _is_typed(name: str, tensor: Any, args: Tuple[Any, ...], named: Dict[str, Any]) -> bool:
    """Whether a method gives a type to a tensor of floats."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or not tensor.is_floating_point():
        return False
    if name == "to":
        return any(isinstance(value, (torch.dtype, torch.Tensor)) for value in (*args, *named.values()))
    return name != "type" or bool(args or named)


def cast_patches(running: Callable[[], Optional[Casts]]) -> Iterator[Tuple[Any, str, Any]]:
    """What torch.Tensor has while a forward is traced: owner, name, replacement."""

    def patched(name: str, original: Any) -> Any:
        def call(tensor: Any, *args: Any, **named: Any) -> Any:
            casts, frame = running(), sys._getframe(1)
            if casts is None or rows_of(tensor) or not _is_typed(name, tensor, args, named) or frame.f_code.co_filename.startswith(_OWN):
                return original(tensor, *args, **named)
            return casts.run(name, lambda given: original(given, *args, **named), tensor, frame)

        call.__name__ = name  # by which what is no plain tensor knows it
        return call

    for name in _METHODS:
        yield torch.Tensor, name, patched(name, getattr(torch.Tensor, name))


@contextlib.contextmanager
def noting(told: Told) -> Iterator[None]:
    """While a call in PyTorch runs in this thread. REQUIRES the lock of those who trace."""
    own = threading.get_ident()

    def noted(name: str, original: Any) -> Any:
        def call(tensor: Any, *args: Any, **named: Any) -> Any:
            result = original(tensor, *args, **named)
            if threading.get_ident() == own and _is_typed(name, tensor, args, named):
                told.casts.setdefault(_place(sys._getframe(1)), []).append(_Cast(result.dtype, result is tensor))
            return result

        return call

    kept = {name: vars(torch.Tensor).get(name) for name in _METHODS}
    for name in _METHODS:
        setattr(torch.Tensor, name, noted(name, getattr(torch.Tensor, name)))
    try:
        yield
    finally:
        for name, before in kept.items():
            if before is None:
                delattr(torch.Tensor, name)
            else:
                setattr(torch.Tensor, name, before)
