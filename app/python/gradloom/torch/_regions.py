"""torch.autocast inside a forward: where a trace meets it, and the precision that follows.

A trace has the types of a call without autocast: 16 bits are the plan's precision. What autocast makes of a part of the forward stands
in the names of its nodes: a block of it is a scope, "/layers.0/autocast.off/MatMul", and the innermost such scope counts, whatever is around
the call. So one file is for calls under autocast and for those without it, unless Python asks which one this is.
"""

import contextlib
import fnmatch
import functools
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch

from .. import _onnx_file
from .._library import UnsupportedError
from ._devices import AUTOCAST

_OFF = "autocast.off"
_IN_OFF = f"/{_OFF}/"
_LABELS: Dict[Optional[torch.dtype], str] = {None: _OFF, **{dtype: f"autocast.{name}" for dtype, name in AUTOCAST.items()}}
_TYPES = {label: dtype for dtype, label in _LABELS.items()}
SCOPES = tuple(_TYPES)
_Region = Tuple[str, Optional[torch.dtype]]  # the kind of device, and the type of products; None: autocast is off


def without_labels(scope: str) -> str:
    """The path of a node's name, of submodules alone."""
    return "/".join(part for part in scope.split("/") if part not in _TYPES)


class _Block(NamedTuple):
    enabled: bool
    dtype: torch.dtype
    scoped: bool  # as a scope of the trace

    @property
    def cast(self) -> Optional[torch.dtype]:
        return self.dtype if self.enabled else None


class Regions:
    """The blocks of torch.autocast that a trace is in."""

    def __init__(self, kind: str, cast: Optional[torch.dtype]) -> None:
        """kind: of the call's device; cast: the type of the autocast that is around the call."""
        self.kind, self.cast = kind, cast
        self.asked = False  # the forward's Python, for what is around the call
        self.met = self.low = False  # a block was, one of 16 bits was
        self._blocks: List[_Block] = []

    def enter(self, enabled: bool, dtype: torch.dtype) -> None:
        cast, self.met = dtype if enabled else None, True
        self.low = self.low or enabled
        scoped = not self._blocks or self._blocks[-1].cast != cast
        if scoped:
            torch._C._get_tracing_state().push_scope(f"torch.autocast::{_LABELS[cast]}")
        self._blocks.append(_Block(enabled, dtype, scoped))

    def leave(self) -> None:
        if self._blocks.pop().scoped:
            torch._C._get_tracing_state().pop_scope()

    @contextlib.contextmanager
    def without(self) -> Iterator[None]:
        """What autocast leaves in f32."""
        if not self.is_enabled():
            yield
            return
        self.enter(False, torch.float32)
        try:
            yield
        finally:
            self.leave()

    def innermost(self) -> Optional[_Region]:
        """None: there is no block."""
        return (self.kind, self._blocks[-1].cast) if self._blocks else None

    def innermost_type(self) -> Optional[torch.dtype]:
        """Of products where the trace is; None: as they are."""
        return self._blocks[-1].cast if self._blocks else self.cast

    def is_enabled(self) -> bool:
        if self._blocks:
            return self._blocks[-1].enabled
        self.asked = True
        return self.cast is not None

    def dtype(self, unset: Callable[[], torch.dtype]) -> torch.dtype:
        """That a block would have which names none."""
        if self._blocks:
            return self._blocks[-1].dtype
        self.asked = True
        return unset() if self.cast is None else self.cast


_Running = Callable[[], Optional[Regions]]  # those of a trace that runs in this thread


def _made(original: Any, running: _Running) -> Any:
    """__init__ of a block, which asks for the type that is around it also where it needs none."""

    def init(block: Any, device_type: Any, dtype: Any = None, enabled: bool = True, cache_enabled: Any = None) -> None:
        regions = running()
        asked = regions is not None and regions.asked
        original(block, device_type, dtype, enabled, cache_enabled)
        if regions is not None and (dtype is not None or not block._enabled):
            regions.asked = asked

    return init


def _entered(original: Any, running: _Running) -> Any:
    def enter(block: Any) -> Any:
        regions = running()
        if regions is None or block.device != regions.kind:
            return original(block)
        regions.enter(block._enabled, block.fast_dtype)
        return block

    return enter


def _left(original: Any, running: _Running) -> Any:
    def leave(block: Any, *raised: Any) -> Any:
        regions = running()
        if regions is None or block.device != regions.kind:
            return original(block, *raised)
        regions.leave()
        return None

    return leave


def _about(kind: Optional[str], args: Tuple[Any, ...], named: Dict[str, Any]) -> str:
    """The kind of device that a function is about whose name says `kind`, or else its first argument."""
    return kind or next((value for value in (*args[:1], named.get("device_type")) if isinstance(value, str)), "cuda")


def _question(original: Any, kind: Optional[str], is_type: bool, running: _Running) -> Any:
    def ask(*args: Any, **named: Any) -> Any:
        regions = running()
        if regions is None or _about(kind, args, named) != regions.kind:
            return original(*args, **named)
        return regions.dtype(lambda: original(*args, **named)) if is_type else regions.is_enabled()

    return ask


def _order(original: Any, name: str, kind: Optional[str], running: _Running) -> Any:
    def order(*args: Any, **named: Any) -> Any:
        regions = running()
        if regions is not None and _about(kind, args, named) == regions.kind:
            raise UnsupportedError(f"the forward calls torch.{name}, which no trace follows: use a block of torch.autocast")
        return original(*args, **named)

    return order


# Functions of torch about autocast: the kind of device that they are about (None: the first argument tells), and whether about its type.
_ABOUT = (("is_autocast_enabled", None, False), ("is_autocast_cpu_enabled", "cpu", False), ("get_autocast_dtype", None, True),
          ("get_autocast_cpu_dtype", "cpu", True), ("get_autocast_gpu_dtype", "cuda", True))  # fmt: skip
_ORDERS = (("set_autocast_enabled", None), ("set_autocast_cpu_enabled", "cpu"), ("set_autocast_dtype", None), ("set_autocast_cpu_dtype", "cpu"),
           ("set_autocast_gpu_dtype", "cuda"))  # fmt: skip


def autocast_patches(running: _Running) -> Iterator[Tuple[Any, str, Any]]:
    """What torch has while a forward is traced: owner, name, replacement."""
    block: Any = torch.autocast
    yield block, "__init__", _made(block.__init__, running)
    yield block, "__enter__", _entered(block.__enter__, running)
    yield block, "__exit__", _left(block.__exit__, running)
    for name, kind, is_type in _ABOUT:
        if hasattr(torch, name):
            yield torch, name, _question(getattr(torch, name), kind, is_type, running)
    for name, kind in _ORDERS:
        if hasattr(torch, name):
            yield torch, name, _order(getattr(torch, name), name, kind, running)


def in_f32(loss: Callable[..., torch.Tensor], running: _Running) -> Callable[..., torch.Tensor]:
    """A loss that is made of several operators, each of which would follow what it reads: autocast has it in f32 as a whole."""

    @functools.wraps(loss)
    def call(*args: Any, **named: Any) -> torch.Tensor:
        regions = running()
        if regions is None:
            return loss(*args, **named)
        with regions.without():
            return loss(*args, **named)

    return call


def _cast_of(name: str, around: Optional[torch.dtype]) -> Optional[torch.dtype]:
    """The type of autocast for a node, where another is `around` the call."""
    label = next((part for part in reversed(name.split("/")) if part in _TYPES), None)
    return around if label is None else _TYPES[label]


def has_regions(model: bytes) -> bool:
    """Whether parts of a file are under autocast also where none is around the call."""
    return any(_cast_of(name, None) is not None for name, _ in _onnx_file.names(model))


def precision_of(model: bytes, cast: Optional[torch.dtype], all_f64: bool) -> Optional[str]:
    """What a file of a trace is computed in under autocast to `cast` (None: there is none), as a recipe says it; None: in the types that it
    has. all_f64: the numbers that it reads are f64, which autocast leaves as they are. Raises UnsupportedError."""
    if all_f64:
        return "f64"
    casts = {name: _cast_of(name, cast) for name, _ in _onnx_file.names(model)}
    low = {found for found in (*casts.values(), cast) if found is not None}
    if not low:
        return None
    if len(low) > 1:
        raise UnsupportedError("a call has parts under torch.autocast in bf16 and parts in f16: a plan has one type of 16 bits")
    only = low.pop()
    options = ["list=autocast"]
    if cast is None:
        within = f"/{_LABELS[only]}/"
        options.append(f"within=*{within}*")
        casts = {name: found for name, found in casts.items() if within in name}
    full = [name for name, found in casts.items() if found is None]
    if full:
        options.append("full=" + ",".join(_patterns(full, [name for name, found in casts.items() if found is not None])))
    return f"{AUTOCAST[only]}{{{'; '.join(options)}}}"


def _patterns(names: List[str], others: List[str]) -> List[str]:
    """Globs for `names`, all in blocks without autocast, which fit none of the others."""
    if not any(_IN_OFF in other for other in others):
        return [f"*{_IN_OFF}*"]
    blocks = {name: name[: name.rindex(_IN_OFF) + len(_IN_OFF)] for name in names}
    alone = {block for block in set(blocks.values()) if not any(other.startswith(block) for other in others)}
    return list(dict.fromkeys(block + "*" if block in alone else name for name, block in blocks.items()))


def of_file(precision: str, model: bytes, whole: bytes = b"") -> str:
    """A recipe's precision without the blocks of autocast that a file has not: those of the loss, where the recipe is of a whole step. whole: the
    file that this one is a part of: nodes that other parts have are not named here."""
    head, _, rest = precision.partition("{")
    if not whole and not any(label in rest for label in _TYPES):
        return precision
    elsewhere = [name for name, _ in _onnx_file.names(whole)]
    names, options = [name for name, _ in _onnx_file.names(model)], []
    for option in (part.strip() for part in rest.rstrip("} ").split(";")):
        key, _, value = option.partition("=")
        kept = [glob.strip() for glob in value.split(",") if fnmatch.filter(names, glob.strip())
                or not (any(label in glob for label in _TYPES) or fnmatch.filter(elsewhere, glob.strip()))]  # fmt: skip
        if key == "within" and not kept:
            return "f32"
        if kept:
            options.append(f"{key}={','.join(kept)}")
    return f"{head}{{{'; '.join(options)}}}" if options else head
