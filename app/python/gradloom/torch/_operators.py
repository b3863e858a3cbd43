"""The operators of a module that is traced, as Python calls them.

Some are made of others, or computed by PyTorch. And after one that wrote in place, the tensors that share memory with what it wrote get values that are made
of the written one: in PyTorch what is written through one shows in all, a trace has a value for each, and the exporter follows slices
alone. PyTorch before 2.0 shows no mode what is read and written by [], so slices are not followed there. What detach() and .data give are views here, as they are in memory: `gradloom_base` says of which tensor.
"""

import contextlib
import functools
import inspect
import weakref
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from .._library import UnsupportedError
from ._complex import REPLACED, Complex
from ._decompositions import masked_scatter, solve_triangular, unfold
from ._exact import EXACT
from ._outside import whole
from ._rows import Chosen, writes
from ._values import made_of, sized_by_numbers, untraced

_C: Any = torch._C  # whose private functions have no types


def _dot(input: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    return (input * tensor).sum()


def _adjoint(input: torch.Tensor) -> torch.Tensor:
    return input.mH if isinstance(input, Complex) else input.transpose(-2, -1)


_ADJOINTS = [torch.adjoint, torch.Tensor.adjoint, *[getattr(torch.Tensor, name).__get__ for name in ("H", "mH", "mT")]]
_REPLACED: Dict[Any, Callable[..., Any]] = {
    **EXACT, **REPLACED, **{getattr(owner, name): _dot for owner in (torch, torch.Tensor) for name in ("dot", "vdot")}, **dict.fromkeys(_ADJOINTS, _adjoint),
    torch.Tensor.__deepcopy__: lambda input, memo: input.detach().clone(), torch.Tensor.unfold: unfold, torch.linalg.solve_triangular: solve_triangular,
    torch.masked_scatter: masked_scatter, torch.Tensor.masked_scatter: masked_scatter,
    **({torch._is_all_true: torch.all, torch._is_any_true: torch.any} if hasattr(torch, "_is_all_true") else {}),
}  # fmt: skip


def _diagonal(input: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tuple[Any, ...]:
    return input, offset, dim1 % input.dim(), dim2 % input.dim()


# Arguments as exporters take them: axes counted from the first.
_ARGUMENTS: Dict[Any, Callable[..., Tuple[Any, ...]]] = {torch.diagonal: _diagonal, torch.Tensor.diagonal: _diagonal}


# What neither files nor the engine have: PyTorch computes it, and its gradient, between parts of the plan.
_ALGEBRA = ("cholesky", "eigh", "eigvalsh", "householder_product", "inv", "lu_factor", "matrix_exp", "pinv", "qr", "slogdet", "solve", "svd", "svdvals")
_IN_PYTORCH: Dict[Any, str] = {getattr(torch.linalg, name): f"torch.linalg.{name}" for name in _ALGEBRA}
_OLDER = ("cholesky", "cholesky_solve", "cholesky_inverse", "inverse", "logdet", "matrix_exp", "pinverse", "qr", "slogdet", "svd")
_IN_PYTORCH.update({getattr(owner, name): f"torch.{name}" for owner in (torch, torch.Tensor) for name in _OLDER})
_GAMMAS = ("lgamma", "digamma", "erfinv")
_IN_PYTORCH.update({getattr(owner, name): f"torch.{name}" for owner in (torch, torch.Tensor) for name in _GAMMAS})
_IN_PYTORCH.update({getattr(torch.special, name): f"torch.special.{name}" for name in ("gammaln", "psi", "digamma", "erfinv")})
_IN_PYTORCH.update({functional.ctc_loss: "torch.nn.functional.ctc_loss", torch.ctc_loss: "torch.ctc_loss"})


_HOOKS = (torch.Tensor.register_hook, torch.Tensor.retain_grad)


class Selected(torch.Tensor):
    """masked_select of integers, such as labels: how many there are differs from call to call, so what PyTorch computes of it selects."""

    of: torch.Tensor
    mask: torch.Tensor

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunction():
            return function(*[_selected(value) for value in args], **{name: _selected(value) for name, value in (kwargs or {}).items()})


def _select(input: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    with untraced():
        made = torch.masked_select(input.detach(), mask.detach()).as_subclass(Selected)
    made.of, made.mask = input, mask
    return made


def _selected(value: Any) -> Any:
    return torch.masked_select(value.of, value.mask) if isinstance(value, Selected) else value


class _Selecting(NamedTuple):
    """A function that is given values and their mask in the place of each argument that is Selected."""

    function: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        def plain(value: Any) -> Any:
            return torch.masked_select(*value[1:]) if isinstance(value, tuple) and len(value) == 3 and value[0] == "selected" else value

        return self.function(*map(plain, args), **{name: plain(value) for name, value in kwargs.items()})


def _given(value: Any) -> Any:
    return ("selected", value.of, value.mask) if isinstance(value, Selected) else value


@functools.lru_cache(maxsize=None)
def _place_of_inplace(function: Any) -> Optional[int]:
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # of C++
        return None
    return names.index("inplace") if "inplace" in names else None


def _in_place(function: Any, args: Any, kwargs: Any) -> bool:
    """Whether this is a function of torch.nn.functional with inplace=True."""
    if getattr(function, "__module__", "") != "torch.nn.functional":
        return False
    place = _place_of_inplace(function)
    return place is not None and bool(args[place] if place < len(args) else kwargs.get("inplace", False))


class Operators(TorchFunctionMode):
    """Sees all operators of the module that is traced."""

    def __init__(self, in_pytorch: Callable[..., Any], fixed: Dict[int, str], takes_rows: bool = True, one_batch: bool = False) -> None:
        """in_pytorch: of the name of a function of torch, what calls it, its arguments and named arguments. fixed: names, by id, of tensors that are the
        user's own and may not be written. takes_rows: what masks choose is in all places of the masks. one_batch: the data are the same in each call."""
        super().__init__()
        self._one_batch, self._sized = one_batch, False  # some tensors have as many elements as data say
        self._fixed = fixed
        self._in_pytorch = in_pytorch
        self._views: Dict[int, List["weakref.ref[torch.Tensor]"]] = {}  # by the id of what they are views of
        self._seen: Dict[int, "weakref.ref[torch.Tensor]"] = {}  # what is no view, by id: it has a value in the trace
        self.chosen = Chosen(self._call, takes_rows)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch._C._get_tracing_state() is None:
            return function(*args, **kwargs)
        if torch.is_grad_enabled():
            return self._run(function, args, kwargs)
        with self.stopping(_target(function, args, kwargs)):
            made = self._run(function, args, kwargs)
        return made if torch.is_grad_enabled() else self._stopped(made, set(map(id, _tensors((*args, *kwargs.values())))))

    def _run(self, function: Any, args: Any, kwargs: Any) -> Any:
        made = self.chosen.run(function, args, kwargs)
        return self._call(function, args, kwargs) if made is NotImplemented else made

    @contextlib.contextmanager
    def stopping(self, target: Optional[torch.Tensor]) -> Iterator[None]:
        """Around what writes into a tensor inside no_grad: of the numbers nobody takes a gradient, and that of the tensor stays what it was."""
        if target is None or torch.is_grad_enabled():
            yield
            return
        with torch.enable_grad():
            nothing = target - target.detach() if target.requires_grad else None
        yield
        with torch.enable_grad():
            now = target.detach()
            _take(target, now if nothing is None else now + nothing)
            self._follow(target)

    def _stopped(self, made: Any, given: Set[int]) -> Any:
        """What an operator makes inside no_grad: no gradient flows through it, but through arguments that it gives back."""
        if isinstance(made, torch.Tensor):
            own = id(made) in given or not (made.is_floating_point() or made.is_complex())
            return made if own else self._run(_C._TensorBase.detach, (made,), {})
        if not isinstance(made, (tuple, list)) or not any(isinstance(part, torch.Tensor) for part in made):
            return made
        parts = [self._stopped(part, given) for part in made]
        return type(made)(*parts) if hasattr(made, "_fields") else type(made)(parts)

    def _call(self, function: Any, args: Any, kwargs: Any) -> Any:
        if function in _HOOKS:
            raise UnsupportedError(f"it asks for the gradient of a tensor inside its forward ({function.__name__}), which a plan keeps to itself")
        if args and isinstance(args[0], torch.Tensor) and (writes(function) or _in_place(function, args, kwargs)):
            self.check_write(args[0])
        if isinstance(kwargs.get("out"), torch.Tensor):
            return self._into(kwargs["out"], function, args, {name: value for name, value in kwargs.items() if name != "out"})
        body = _REPLACED.get(function)
        if body is not None:
            with self:
                made = body(*args, **kwargs)
            if made is not NotImplemented:
                return made
        if function in _IN_PYTORCH:
            named = {name: _given(value) for name, value in kwargs.items()}
            return self._in_pytorch(_IN_PYTORCH[function], _Selecting(function), tuple(map(_given, args)), named)
        if function in (torch.masked_select, torch.Tensor.masked_select) and not args[0].is_floating_point():
            return _select(*args, **kwargs)
        if function in _ARGUMENTS and not any(isinstance(value, Complex) for value in args):
            args, kwargs = _ARGUMENTS[function](*args, **kwargs), {}
        if getattr(function, "__name__", "") == "__setitem__" and type(args[0]) is torch.Tensor and _many_slices(args[1]):
            fills = not isinstance(args[2], torch.Tensor)
            self._write(torch.Tensor.fill_ if fills else torch.Tensor.copy_, (args[0][args[1]], args[2]), {})
            return None
        if args and writes(function) and type(args[0]) is torch.Tensor and _is_view(args[0]):
            return self._write(function, args, kwargs)
        for tensor in _tensors((*args, *kwargs.values())):
            self._see(tensor)
        given = [(tensor, tensor._version) for tensor in _tensors((*args, *kwargs.values()))]
        result = function(*args, **kwargs)
        if getattr(function, "__name__", "") == "detach" and type(result) is torch.Tensor:
            result.gradloom_base = _base(args[0])  # type: ignore[attr-defined]
        for tensor in _tensors((result,)):
            self._see(tensor)
            if _is_view(tensor):
                self._note(tensor)
        written: Dict[int, torch.Tensor] = {}
        for tensor, version in given:
            if tensor._version != version:
                written.setdefault(id(_base(tensor)), tensor)
        for tensor in written.values():
            self._follow(tensor)
        if _counts_numbers(function, args, kwargs):
            self.note_sizes(result)
        return result

    def note_sizes(self, made: Any) -> None:
        """Of what a function gives that counts numbers."""
        self._sized = self._sized or any(sized_by_numbers(tensor, len(self._fixed)) is not None for tensor in _tensors((made,)))

    def check_size(self, tensor: Any, place: Callable[[], str]) -> None:
        """Raises UnsupportedError where Python asks for sizes that the data decide. place: the line of code."""
        if self._one_batch or not isinstance(tensor, torch.Tensor) or tensor.dim() == 0:
            return
        if isinstance(tensor, Selected):
            name = "masked_select" if made_of(tensor.mask)[0] else None
        else:
            name = sized_by_numbers(tensor, len(self._fixed)) if self._sized and not isinstance(tensor, Complex) else None
        if name is not None:
            self._sized = False  # no file comes of this trace
            raise UnsupportedError(f"{place()} needs in Python how many elements {_PYTHON_NAMES.get(name, name)} gives, which differs from call to call")

    def check_write(self, tensor: torch.Tensor) -> None:
        """Raises UnsupportedError, before it happens."""
        name = self._fixed.get(id(_base(tensor)))
        if name is not None:
            raise whole(UnsupportedError(f"the module's forward changes {name} in place"))

    def _into(self, out: torch.Tensor, function: Any, args: Any, kwargs: Any) -> torch.Tensor:
        """What a function computes with `out=`, of which files know nothing."""
        made = self._call(function, args, kwargs)
        if made.shape != out.shape:
            raise UnsupportedError("a function's out= is a tensor of another shape than its result")
        self._call(torch.Tensor.copy_, (out, made), {})
        return out

    def _write(self, function: Any, args: Any, kwargs: Any) -> Any:
        """What a function writes into a view: into a copy, as an exporter has ideas of its own about views."""
        view, copy = args[0], args[0].clone()
        result = function(copy, *args[1:], **kwargs)
        with untraced(), torch.no_grad():
            view.copy_(copy)
        _take(view, copy)
        self._note(view)
        self._follow(view)
        return view if result is copy else result

    def _see(self, tensor: torch.Tensor) -> None:
        if not _is_view(tensor):
            self._seen[id(tensor)] = weakref.ref(tensor)

    def _is_seen(self, base: torch.Tensor) -> bool:
        found = self._seen.get(id(base))
        return found is not None and found() is base

    def _note(self, view: torch.Tensor) -> None:
        base = _base(view)
        if not self._is_seen(base) and view.dtype == base.dtype and view.numel() == base.numel():
            whole = _whole(base, view)  # of what an operator made inside, such as einsum, and returned as seen from another side
            if whole is not None:
                _take(base, whole.reshape(base.shape))
                self._see(base)
        live = self._views.setdefault(id(base), [])
        live[:] = [other for other in live if other() is not None and other() is not view] + [weakref.ref(view)]

    def _follow(self, tensor: torch.Tensor) -> None:
        """Those that share memory with what was written get its numbers."""
        base = _base(tensor)
        others = [other for other in (*[base] * self._is_seen(base), *[view() for view in self._views.get(id(base), [])])
                  if other is not None and other is not tensor and _base(other) is base]  # fmt: skip
        if not others:
            return
        if not self._is_seen(base):
            raise UnsupportedError("a part of an operator's result is written in place while others are seen")
        whole = tensor.reshape(-1) if tensor is base else _with(base, tensor)
        for other in others:
            now = whole.reshape(other.shape) if other is base else _without(whole, base, other)
            if _detached(other) is not _detached(tensor):
                now = now.detach() + (other - other.detach()) if other.requires_grad else now.detach()
            _take(other, now)


_PYTHON_NAMES = {"_unique2": "unique", "unique_dim": "unique", "nonzero_numpy": "nonzero", "index": "[] of a mask"}
_COUNT = {"nonzero", "argwhere", "masked_select", "unique", "unique_consecutive", "repeat_interleave", "bincount", "one_hot"}


def _counts_numbers(function: Any, args: Any, kwargs: Any) -> bool:
    """Whether a function may give as many elements as the numbers of an argument say."""
    name = getattr(function, "__name__", "")
    return name in _COUNT or (name == "where" and len(args) + len(kwargs) == 1) or (name == "__getitem__" and _has_masks(args[1]))


def _has_masks(index: Any) -> bool:
    return any(isinstance(part, torch.Tensor) and part.dtype in (torch.bool, torch.uint8) for part in (index if isinstance(index, tuple) else (index,)))


def _many_slices(index: Any) -> bool:
    """Whether an exporter fails at what is written there."""
    return isinstance(index, tuple) and sum(isinstance(part, slice) for part in index) > 2 and not any(isinstance(part, (torch.Tensor, list)) for part in index)


def _take(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """A tensor is in the trace, from here on, what another is."""
    _C._set_value_trace(tensor, _C._get_value_trace(value))


def _target(function: Any, args: Any, kwargs: Any) -> Optional[torch.Tensor]:
    """The tensor of numbers that a function writes into."""
    target = kwargs.get("out")
    if target is None and args and (writes(function) or _in_place(function, args, kwargs)):
        target = args[0]
    is_plain = isinstance(target, torch.Tensor) and not isinstance(target, Complex) and target.is_floating_point()
    return target if is_plain else None


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, Complex):
            yield from (value.re, value.im)
        elif isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _base(tensor: torch.Tensor) -> torch.Tensor:
    base: torch.Tensor = tensor if tensor._base is None else tensor._base
    return getattr(base, "gradloom_base", base)


def _detached(tensor: torch.Tensor) -> Optional[torch.Tensor]:
    """What detach() or .data gave of which a tensor is all or a part: no gradient passes between it and what it was given of."""
    whole: torch.Tensor = tensor if tensor._base is None else tensor._base
    return whole if hasattr(whole, "gradloom_base") else None


def _is_view(tensor: torch.Tensor) -> bool:
    return tensor._is_view() or hasattr(tensor, "gradloom_base")


def _places(base: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    """For each number of the view its place among those of the base."""
    if view.dtype != base.dtype:
        raise UnsupportedError("memory is written in place that is seen as numbers of two types")
    with untraced():
        span = 1 + sum((size - 1) * stride for size, stride in zip(base.shape, base.stride()))
        slots = torch.zeros(span, dtype=torch.int64)
        slots.as_strided(base.shape, base.stride()).copy_(torch.arange(base.numel()).reshape(base.shape))
        return slots.as_strided(view.shape, view.stride(), view.storage_offset() - base.storage_offset()).reshape(-1).to(base.device)


def _whole(base: torch.Tensor, view: torch.Tensor) -> Optional[torch.Tensor]:
    """The base's numbers in a row, made of a view; None: it has not all."""
    places = _places(base, view)
    with untraced():
        all_of_them, in_order = _covers(places, base.numel())
        back = torch.argsort(places) if all_of_them else places
    if not all_of_them:
        return None
    return view.reshape(-1) if in_order else view.reshape(-1).index_select(0, back)


def _with(base: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    """The base's numbers in a row, after its view was written."""
    whole = _whole(base, view)
    return base.reshape(-1).scatter(0, _places(base, view), view.reshape(-1)) if whole is None else whole


def _without(whole: torch.Tensor, base: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    """The view's numbers, from the base's in a row."""
    places = _places(base, view)
    with untraced():
        _, in_order = _covers(places, base.numel())
    return (whole if in_order else whole.index_select(0, places)).reshape(view.shape)


def _covers(places: torch.Tensor, count: int) -> Tuple[bool, bool]:
    """Whether these are all of `count` places, and in order."""
    in_order = places.numel() == count and bool((places == torch.arange(count, device=places.device)).all())
    return in_order or (places.numel() == count and bool((places.sort()[0] == torch.arange(count, device=places.device)).all())), in_order
