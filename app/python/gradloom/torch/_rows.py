"""Rows that a mask chooses, such as the tokens of an expert: how many there are differs from call to call, which no file can say.

    for e, expert in enumerate(experts):                          y[flat == e] = expert(x[flat == e])
        row, slot = torch.where(picked == e)
        out.index_add_(0, row, expert(x[row]) * w[row, slot, None])

A trace has all candidates in their place, as many as the mask has elements: those that are chosen first, in order, then the others,
whose numbers mean nothing. A tensor of candidates knows of which mask and along which axis. What is computed of it has to keep the
candidates apart, and is tried with other numbers for that; what gathers them (index_add, x[rows] = ..) takes the chosen ones alone, and
gives the others no gradient. Products read and write as many rows as are chosen (GroupedMatMul of one group); all else costs what
candidates cost.

PyTorch before 2.0 shows no mode what is read and written by []: there the engine refuses such rows.
"""

import sys
from types import FrameType
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch.nn import functional

from .._library import UnsupportedError
from . import _sizes
from ._checks import Region, loop_body, skipped
from ._values import elements_of, is_zero, made_of, single_axis, untraced

_C: Any = torch._C  # whose private functions have no types
_NAME = "gradloom_rows"  # the attribute of tensors of candidates
_SHOWN = int(torch.__version__.partition(".")[0]) >= 2
_NUMBER = "whose number differs from call to call"


class Choice:
    """The elements of a mask that are true, as values of the trace."""

    def __init__(self, mask: torch.Tensor, key: Any, turns: Tuple[object, ...], guards: "Guards") -> None:
        """key: of masks that have the same elements. turns: of guards that hold for the mask."""
        self.key, self.turns, self.guards = key, turns, guards
        self.numbers: List[torch.Tensor] = []  # what torch.where and nonzero gave of a mask with one axis
        axis = single_axis(_C._get_value_trace(mask))
        with untraced():
            shape = tuple(mask.shape)
            if axis is None or len(shape) != 2:
                steps, axis = torch.zeros((), dtype=torch.int64, device=mask.device), None
            else:  # of the mask's elements along it one is a candidate: that which is true
                sizes = [1 if place != axis else -1 for place in range(2)]
                steps = torch.arange(shape[axis], device=mask.device).reshape(sizes) * (shape[1] if axis == 0 else 1)
            self.candidates = mask.numel() if axis is None else shape[1 - axis]
            places = torch.arange(self.candidates, device=mask.device)
        self.flat = flat = mask.reshape(-1) if axis is None else mask.any(axis)
        ends = flat.to(torch.int64).cumsum(0)
        self.count = ends[-1:]  # i64 [1]
        to = torch.where(flat, ends - 1, self.count + places - ends)  # where the list has each candidate
        self.order = torch.zeros_like(to).scatter(0, to, places)  # the elements of the mask
        self.chosen = places < self.count  # of the list
        if axis is not None:
            beside = (mask.to(torch.int64) * steps).sum(axis).index_select(0, self.order)
            self.order = self.order * (shape[1] if axis == 1 else 1) + beside

    def coordinates(self, mask: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        """Of the candidates in a mask that has these elements, i64 [candidates] for each of its axes."""
        with untraced():
            shape = tuple(mask.shape)
        left, found = self.order, []  # type: torch.Tensor, List[torch.Tensor]
        for size in shape[:0:-1]:
            found.append(torch.remainder(left, size))
            left = torch.div(left, size, rounding_mode="floor")
        return tuple(_with(tensor, Rows(self, 0)) for tensor in (left.clone(), *reversed(found)))

    def masked(self, tensor: torch.Tensor, axis: int, other: float) -> torch.Tensor:
        """Candidates that are chosen; `other` in place of the rest."""
        with untraced():
            sizes = [self.candidates if place == axis else 1 for place in range(tensor.dim())]
        return torch.where(self.chosen.reshape(sizes), tensor, torch.full((), other, dtype=tensor.dtype, device=tensor.device))


class Rows(NamedTuple):
    """What a tensor of candidates knows."""

    choice: Choice
    axis: int


def rows_of(value: Any) -> Optional[Rows]:
    found: Optional[Rows] = getattr(value, _NAME, None) if isinstance(value, torch.Tensor) else None
    return found


def _with(tensor: torch.Tensor, rows: Rows) -> torch.Tensor:
    setattr(tensor, _NAME, rows)
    return tensor


def _without(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone() if rows_of(tensor) else tensor


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


def _changed(value: Any, change: Callable[[torch.Tensor], torch.Tensor], count: Optional[int] = None) -> Any:
    """Nested values with other tensors, and `count` as number of the candidates."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, _Count) and count is not None:
        return count
    if isinstance(value, (list, tuple)):
        made = [_changed(item, change, count) for item in value]
        return tuple(made) if isinstance(value, tuple) else made
    if isinstance(value, dict):
        return {key: _changed(item, change, count) for key, item in value.items()}
    return value


def refuse_rows(values: Any, what: str) -> None:
    """Raises UnsupportedError where there is a tensor of candidates."""
    rows = next((rows for rows in map(rows_of, tensors_in(values)) if rows), None)
    if rows is not None:
        rows.choice.guards.refused = True
        raise UnsupportedError(f"{what} rows that a mask chooses, {_NUMBER}")


class _Guard:
    """Code that runs where something holds, which a trace does not ask."""

    def __init__(self, region: Region, key: Any, holds: Callable[[], torch.Tensor]) -> None:
        """key: of a mask that has elements where it holds, and none else; None: of no mask. holds: gives the boolean."""
        self.region, self.key, self.holds, self.turn = region, key, holds, object()


class Guards:
    """Code that runs where a mask chooses rows, and that there is nothing to do for else: `if rows.numel() > 0`, `if mask.any()`,
    `for e in hit.nonzero()`. A trace runs it, and what it writes are rows: of this mask, or of masks that it makes, which choose nothing where the code
    would not run."""

    def __init__(self) -> None:
        self._guards: List[_Guard] = []
        self.refused = False  # something about rows that a mask chooses

    def enter(self, frame: FrameType, key: Any, empty: bool, holds: Callable[[], torch.Tensor], compares: bool = False) -> bool:
        """The answer to a frame's question whose answer is `empty` where there are no rows. key: of the mask."""
        self._begin(frame, skipped(frame, empty, compares), key, holds)
        return not empty

    def turns(self, frame: FrameType, choice: Choice, values: List[torch.Tensor]) -> Iterator[torch.Tensor]:
        """The turns of a frame's loop over what a mask chooses: one for each of its elements."""
        guard = self._begin(frame, loop_body(frame), None, lambda: choice.flat[0])

        def turn(place: int) -> torch.Tensor:
            guard.turn, guard.holds = object(), lambda: choice.flat[place]
            return values[place]

        return map(turn, range(len(values)))

    def _begin(self, frame: FrameType, region: Optional[Region], key: Any, holds: Callable[[], torch.Tensor]) -> _Guard:
        if region is None:
            self.refused = True
            raise UnsupportedError(f"{frame.f_code.co_filename}:{frame.f_lineno} asks what rows a mask chooses, for more than what to write "
                                   f"into their places")  # fmt: skip
        self._guards = [other for other in self._guards if other.region != region] + [_Guard(region, key, holds)]
        return self._guards[-1]

    def of(self, key: Any) -> List[_Guard]:
        """Those of the running code that do not hold by themselves where a mask with this key has elements."""
        return [guard for guard in self._guards if (guard.key is None or guard.key != key) and guard.region.runs()]

    def write(self, choice: Optional[Choice] = None) -> None:
        """Something is written that outlives the code: rows of a mask."""
        if any(choice is None or guard.turn not in choice.turns for guard in self.of(None if choice is None else choice.key)):
            self.refused = True
            raise UnsupportedError("what is written only where a mask chooses rows are other numbers than these rows")

    def end(self) -> None:
        self._guards.clear()


class _Count(_sizes.Size):
    """How many rows there are: for shapes that PyTorch is given, and for Python to ask whether there are any."""

    choice: Choice


def _refuses(count: _Count, *_: Any) -> Any:
    count.choice.guards.refused = True
    raise UnsupportedError("Python computes with the number of rows that a mask chooses, which differs from call to call")


def _asks(empty: bool, limit: Optional[int]) -> Callable[..., bool]:
    def ask(count: _Count, *other: Any) -> bool:
        if limit is not None and (type(other[0]) is not int or other[0] != limit):
            _refuses(count)
        choice = count.choice
        return choice.guards.enter(sys._getframe(1), choice.key, empty, lambda: choice.count[0] > 0, limit is not None)

    return ask


for _name, _empty, _limit in (("bool", False, None), ("eq", True, 0), ("ne", False, 0), ("gt", False, 0), ("ge", False, 1), ("lt", True, 1), ("le", True, 0)):
    setattr(_Count, f"__{_name}__", _asks(_empty, _limit))
for _name in ("add sub mul floordiv mod radd rsub rmul rfloordiv rmod divmod neg pos abs hash str repr format int float round trunc "
              "floor ceil truediv rtruediv pow rpow and rand or ror xor rxor lshift rlshift rshift rrshift invert").split():  # fmt: skip
    setattr(_Count, f"__{_name}__", _refuses)


def counted(tensor: Any, value: Any, args: Tuple[Any, ...]) -> Any:
    """What a tensor says of its sizes, `value`, where these are those of candidates. args: of the question."""
    rows = rows_of(tensor)
    if rows is None:
        return value
    count = _Count(tensor.numel() if not isinstance(value, torch.Size) and not args else rows.choice.candidates)
    count.choice = rows.choice
    if isinstance(value, torch.Size):
        return torch.Size([count if axis == rows.axis else size for axis, size in enumerate(value)])
    return count if not args or args[0] % tensor.dim() == rows.axis else value


def _counts(value: Any) -> Iterator[_Count]:
    if isinstance(value, _Count):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _counts(item)
    elif isinstance(value, dict):
        yield from _counts(list(value.values()))


# Functions that take the number of rows as part of a shape.
_SHAPED = {"view", "reshape", "expand", "zeros", "ones", "empty", "full", "new_zeros", "new_ones", "new_empty", "new_full", "__get__", "size"}


def number_of(size: Any) -> Any:
    """A size that Python makes a plain number of."""
    return _refuses(size) if isinstance(size, _Count) else size


def _product(rows: Rows, a: torch.Tensor, b: torch.Tensor, transposed: bool) -> torch.Tensor:
    made: torch.Tensor = torch.ops.gradloom.first_rows(a, b, rows.choice.count, transposed)
    if a.requires_grad or b.requires_grad:
        made.requires_grad_()
    return _with(made, rows)


def _linear(rows: Rows, input: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor] = None) -> torch.Tensor:
    made = _product(rows, input, weight, True)
    return made if bias is None else _with(made + bias, rows)


_PRODUCTS: Dict[Any, Callable[..., torch.Tensor]] = {functional.linear: _linear}
_PRODUCTS.update({function: lambda rows, a, b: _product(rows, a, b, False)
                  for function in (torch.matmul, torch.mm, torch.Tensor.matmul, torch.Tensor.mm, torch.Tensor.__matmul__)})  # fmt: skip
_ADDS = ("index_add", "index_add_", "scatter_add", "scatter_add_")
_CHOOSES = (torch.where, torch.Tensor.where, torch.nonzero, torch.Tensor.nonzero, torch.argwhere, torch.Tensor.argwhere)
_COMPARES = {"aten::eq": True, "aten::ne": False, "aten::gt": False}  # with 0: the answer where nothing is true
_VIEWED = ("flatten", "squeeze", "view", "reshape", "__getitem__", "select")  # the same numbers in another shape
_FEW = 7  # candidates with which operators are tried
_KEEPS_NO_ORDER = ("dropout", "alpha_dropout", "feature_dropout", "dropout_")  # draws for each place


def writes(function: Any) -> bool:
    """Whether a function writes into its first argument."""
    name = _called(function)
    if name.startswith("__"):
        return name == "__setitem__" or (name.startswith("__i") and name not in ("__index__", "__int__", "__invert__", "__iter__", "__init__"))
    return name.endswith("_") and name not in _OF_NO_NUMBERS


# Of tensors, with a last underscore, but not about their numbers.
_OF_NO_NUMBERS = {"requires_grad_", "detach_", "share_memory_", "rename_", "squeeze_", "unsqueeze_", "transpose_", "t_", "swapaxes_", "swapdims_",
                  "resize_", "resize_as_", "set_", "as_strided_", "retain_grad_"}  # fmt: skip


def _is_mask(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.bool and rows_of(value) is None


def _called(function: Any) -> str:
    return str(getattr(function, "__name__", function))


class Chosen:
    """The rows that masks of one trace choose."""

    def __init__(self, call: Callable[[Any, Tuple[Any, ...], Dict[str, Any]], Any], takes: bool) -> None:
        """call: runs an operator of the trace. takes: False: none."""
        self._call, self.guards = call, Guards()
        self._choices: List[Choice] = []
        self._runs = not takes or not _SHOWN  # what an operator is made of is not looked at

    def run(self, function: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        """An operator; NotImplemented where no rows that a mask chooses are concerned."""
        if self._runs:
            return NotImplemented
        self._runs = True
        try:
            return self._run(function, args, kwargs)
        except UnsupportedError:
            self.guards.refused = True
            raise
        finally:
            self._runs = False

    def _run(self, function: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        name = _called(function)
        count = next(_counts([args, kwargs]), None)
        if count is not None and name not in _SHAPED:
            _refuses(count)
        if function in _CHOOSES:
            made = self._chosen(name, args, kwargs)
            if made is not NotImplemented:
                return made
        given = [rows for rows in map(rows_of, tensors_in([args, kwargs])) if rows is not None]
        masked = name in ("__getitem__", "__setitem__") and type(args[0]) is torch.Tensor and any(map(_is_mask, _indices(args[1])))
        if not given and not (masked and self._selects(name, args)):
            if writes(function):
                self.guards.write()
            return NotImplemented
        if any(rows.choice is not given[0].choice for rows in given):
            raise UnsupportedError(f"{name} of rows that two masks choose")
        if masked:
            args = (args[0], self._places(args[0], args[1]), *args[2:])
        if name == "__setitem__" and rows_of(args[0]) is None:
            return self._put(args[0], _indices(args[1]), args[2])
        if name in _ADDS and rows_of(args[0]) is None:
            return self._add(function, args, kwargs)
        if function is torch.Tensor.unbind and given[0].axis == 0:
            frame = _iterating()
            if frame is not None:
                return self._turns(frame, args[0], given[0].choice)
        body = _PRODUCTS.get(function)
        if body is not None and _is_product(args, kwargs):
            return body(given[0], *args, **kwargs)
        return self._apart(function, name, args, kwargs)

    def _turns(self, frame: FrameType, rows: torch.Tensor, choice: Choice) -> Iterator[torch.Tensor]:
        """Of a loop over the numbers of those that are chosen among several: all of them, in order."""
        if not any(rows is places for places in choice.numbers):
            raise UnsupportedError(f"a loop over rows that a mask chooses, {_NUMBER}")
        with untraced():
            values = [torch.full(tuple(rows.shape)[1:], place, dtype=torch.int64, device=rows.device) for place in range(choice.candidates)]
        return self.guards.turns(frame, choice, values)

    def _chosen(self, name: str, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        """torch.where(mask), nonzero."""
        if len(args) + len(kwargs) - ("as_tuple" in kwargs) != 1 or len(args) != 1 or not self._depends(args[0]):
            return NotImplemented
        choice = self._choice(args[0])
        places = choice.coordinates(args[0])
        made = places if name == "where" or kwargs.get("as_tuple") else _with(torch.stack(places, 1), Rows(choice, 0))
        if len(places) == 1:
            choice.numbers += tensors_in(made)
        return made

    def _depends(self, mask: Any) -> bool:
        return isinstance(mask, torch.Tensor) and rows_of(mask) is None and mask.dim() > 0 and mask.numel() > 0 and made_of(mask)[0]

    def _selects(self, name: str, args: Tuple[Any, ...]) -> bool:
        """Whether masks in [] choose rows; what is filled with one number, files have in another way."""
        if name == "__setitem__" and (not isinstance(args[2], torch.Tensor) or (rows_of(args[2]) is None and args[2].numel() == 1)):
            return False
        return any(_is_mask(index) and self._depends(index) for index in _indices(args[1]))

    def _choice(self, mask: torch.Tensor) -> Choice:
        """Masks that are computed alike choose the same."""
        key = elements_of(_C._get_value_trace(mask))
        guards = self.guards.of(key)
        turns = tuple(guard.turn for guard in guards)
        for choice in self._choices:
            if choice.key == key and choice.turns == turns:
                return choice
        mask = mask if mask.dtype == torch.bool else mask != 0
        for guard in guards:
            mask = mask & guard.holds()
        self._choices.append(Choice(mask, key, turns, self.guards))
        return self._choices[-1]

    def asked(self, frame: FrameType, truth: torch.Tensor) -> Optional[bool]:
        """The answer to `if mask.any()` or `if mask.sum() == 0`; None: the tensor is another."""
        if self._runs:
            return None
        node, empty = _C._get_value_trace(truth).node(), False
        if node.kind() in _COMPARES and is_zero(list(node.inputs())[1]):
            empty, node = _COMPARES[node.kind()], next(node.inputs()).node()
        of = list(node.inputs())[:1]
        counts = node.kind() == "aten::any" or (node.kind() == "aten::sum" and of[0].type().scalarType() == "Bool")
        if not counts or node.output().type().dim() != 0:
            return None
        return self.guards.enter(frame, elements_of(of[0]), empty, lambda: ~_truth(truth) if empty else _truth(truth))

    def _places(self, tensor: torch.Tensor, index: Any) -> Tuple[Any, ...]:
        """An index with the places of what a mask chooses instead of the mask."""
        found: List[Any] = []
        for part in _indices(index):
            found += self._choice(part).coordinates(part) if _is_mask(part) else [part]
        return tuple(found)

    def _add(self, function: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> torch.Tensor:
        """index_add, scatter_add: of those that are chosen."""
        named = dict(zip(("input", "dim", "index", "source"), args), **kwargs)
        source = named.pop("src", None) if "src" in named else named.pop("source")
        of_index, of_source = rows_of(named["index"]), rows_of(source)
        name = _called(function)
        if of_index is None or of_source is None or of_source.axis != named["dim"] % named["input"].dim() or set(named) - {"input", "dim", "index", "alpha"}:
            raise UnsupportedError(f"{name} of rows that a mask chooses, elsewhere than in their places")
        if name.endswith("_"):
            self.guards.write(of_source.choice)
        values = of_source.choice.masked(source, of_source.axis, 0)
        more = {"alpha": named["alpha"]} if "alpha" in named else {}
        made: torch.Tensor = self._call(function, (named["input"], named["dim"], _without(named["index"]), values), more)
        return made

    def _put(self, tensor: torch.Tensor, index: Tuple[Any, ...], value: Any) -> None:
        """tensor[places] = value, of those that are chosen."""
        places = [part for part in index if isinstance(part, torch.Tensor)]
        rest = index[len(places) :]
        if any(rows_of(part) is None or part.dim() != 1 for part in index[: len(places)]) or any(part not in (Ellipsis, slice(None)) for part in rest):
            raise UnsupportedError("rows that a mask chooses are written elsewhere than in whole rows of their places")
        rows = rows_of(places[0])
        assert rows is not None
        self.guards.write(rows.choice)
        with untraced():
            sizes = tuple(tensor.shape)
            inner, count = sizes[len(places) :], 1
            for size in sizes[: len(places)]:
                count *= size
        row = _without(places[0])
        for part, size in zip(places[1:], sizes[1:]):
            row = row * size + part
        value = value.to(tensor.dtype) if isinstance(value, torch.Tensor) else torch.full((), value, dtype=tensor.dtype, device=tensor.device)
        values = rows.choice.masked(_without(value).expand(rows.choice.candidates, *inner), 0, 0)
        zeros = torch.zeros((count, *inner), dtype=tensor.dtype, device=tensor.device)
        ones = rows.choice.chosen.to(torch.float32)
        hit = torch.zeros(count, dtype=torch.float32, device=tensor.device).index_add(0, row, ones) > 0
        now = torch.where(hit.reshape(count, *[1] * len(inner)), zeros.index_add(0, row, values), tensor.reshape(count, *inner))
        self._call(torch.Tensor.copy_, (tensor, now.reshape(sizes)), {})

    def _apart(self, function: Any, name: str, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        """An operator that computes each candidate by itself."""
        given = [tensor for tensor in tensors_in([args, kwargs]) if rows_of(tensor)]
        tried = None if name == "__get__" else _Tried(function, name, args, kwargs)
        result = self._call(function, args, kwargs)
        tensors = list(tensors_in(result))
        if not tensors:
            if not isinstance(result, (int, str, type(None), torch.dtype, torch.device, torch.layout, torch.Size)):
                raise UnsupportedError(f"{name} of rows that a mask chooses, {_NUMBER}")
            return result
        if tried is None:
            tried = _Tried(function, name, args, kwargs)
        elif writes(function) and not rows_of(args[0]):
            raise UnsupportedError(f"{name} writes rows that a mask chooses elsewhere than in their places")
        choice = rows_of(given[0]).choice  # type: ignore[union-attr]
        gathers = not any(tensor.is_floating_point() for tensor in given)
        axes = tried.axes(tensors)
        if len(axes) != len(tensors):
            raise UnsupportedError(f"{name} of rows that a mask chooses does not keep them apart")
        made = iter([_with(choice.masked(tensor, axis, 1) if gathers and tensor.is_floating_point() else tensor, Rows(choice, axis))
                     for tensor, axis in zip(tensors, axes)])  # fmt: skip
        if name in _VIEWED and any(args[0] is places for places in choice.numbers):
            choice.numbers += tensors
        return _changed(result, lambda _: next(made)) if type(result) in (torch.Tensor, tuple, list) else result


def _indices(index: Any) -> Tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def _is_product(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> bool:
    """Of rows and one matrix."""
    if len(args) < 2 or rows_of(args[0]) is None or any(rows_of(other) for other in tensors_in([args[1:], kwargs])):
        return False
    return args[0].dim() == 2 and args[1].dim() == 2 and rows_of(args[0]).axis == 0 and set(kwargs) <= {"bias"}  # type: ignore[union-attr]


def _truth(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.dtype == torch.bool else tensor != 0


def _iterating() -> Optional[FrameType]:
    """The frame of a `for` over a tensor that asks now for its parts."""
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None and frame.f_code is not torch.Tensor.__iter__.__code__:
        frame = frame.f_back
    return None if frame is None else frame.f_back


class _Tried:
    """An operator with other numbers in some places of the candidates, and with candidates that change places: what it gives of the others must
    stay, and follow."""

    def __init__(self, function: Any, name: str, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
        self._function, self._given, self._keeps_order = function, (args, kwargs), name not in _KEEPS_NO_ORDER
        rows = next(rows for rows in map(rows_of, tensors_in([args, kwargs])) if rows is not None)
        self._axis, self._all = rows.axis, rows.choice.candidates
        with untraced(), torch.random.fork_rng(devices=[]):
            try:
                self._results = self._of(min(self._all, _FEW))
            except Exception:  # such as a tensor that has as many rows, made of their number
                self._results = self._of(self._all)

    def _of(self, count: int) -> List[List[torch.Tensor]]:
        """The results for the first `count` candidates: as they are, with others in either half, and in another order."""
        self._count, self._first, self._some = count, torch.arange(count), torch.arange(count) % 2 == 0
        torch.manual_seed(1)
        self._moved = torch.randperm(count)
        return [list(tensors_in(self._run(change))) for change in (None, self._others(self._some), self._others(~self._some), self._move)]

    def _run(self, change: Optional[Callable[[torch.Tensor, int], torch.Tensor]]) -> Any:
        def changed(tensor: torch.Tensor) -> torch.Tensor:
            rows, plain = rows_of(tensor), tensor.detach()
            if rows is None:
                return plain.clone() if writes(self._function) else plain
            few = plain.index_select(rows.axis, self._first.to(plain.device))
            return few if change is None else change(few, rows.axis)

        args, kwargs = _changed(self._given, changed, self._count)
        torch.manual_seed(2)
        with torch.no_grad():
            return self._function(*args, **kwargs)

    def _others(self, where: torch.Tensor) -> Callable[[torch.Tensor, int], torch.Tensor]:
        def change(tensor: torch.Tensor, axis: int) -> torch.Tensor:
            other = torch.rand_like(tensor) + 0.5 if tensor.is_floating_point() else tensor.roll(1, axis)
            sizes = [self._count if place == axis else 1 for place in range(tensor.dim())]
            return torch.where(where.to(tensor.device).reshape(sizes), other, tensor)

        return change

    def _move(self, tensor: torch.Tensor, axis: int) -> torch.Tensor:
        return tensor.index_select(axis, self._moved.to(tensor.device))

    def axes(self, results: Sequence[torch.Tensor]) -> List[int]:
        """Of the candidates in the operator's results; fewer than there are results: they are not kept apart."""
        with untraced():
            found: List[int] = []
            for result, *tried in zip(results, *self._results):
                axes = sorted(range(result.dim()), key=lambda axis: axis != self._axis)
                axis = next((axis for axis in axes if self._follows(axis, tuple(result.shape), *tried)), None)
                if axis is None:
                    break
                found.append(axis)
            return found

    def _follows(self, axis: int, whole: Tuple[int, ...], first: torch.Tensor, some: torch.Tensor, rest: torch.Tensor, moved: torch.Tensor) -> bool:
        if whole[axis] != self._all or tuple(first.shape) != (*whole[:axis], self._count, *whole[axis + 1 :]):
            return False
        if not first.shape == some.shape == rest.shape == moved.shape:
            return False
        pairs = [(first, some, (~self._some).nonzero()[:, 0]), (first, rest, self._some.nonzero()[:, 0])]
        if self._keeps_order:
            pairs.append((self._move(first, axis), moved, self._first))
        return all(_near(a.index_select(axis, at.to(a.device)), b.index_select(axis, at.to(a.device))) for a, b, at in pairs)


def _near(a: torch.Tensor, b: torch.Tensor) -> bool:
    if not a.is_floating_point():
        return torch.equal(a, b)
    return torch.allclose(a.double(), b.double(), 1e-2 if a.dtype in (torch.float16, torch.bfloat16) else 1e-4, 1e-6, equal_nan=True)
