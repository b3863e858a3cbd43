"""The file for a new shape from those of shapes before, without another trace.

A trace knows sizes as numbers, so its file is for one shape. Files of the same calls for other shapes differ in numbers alone: sizes in
shapes, in bounds of slices, in attributes, and in tables such as positions and masks. A Family has some of them, and writes the next
where each of these numbers can only be one:

- an integer is the same in all files, or k * m, or a * x + b, or m * (i * x + j), where m is a product of the sizes of arguments, x one of
  them, k, a, b fractions and i, j integers. All such forms that all files agree with have to give the same number, a whole one;
- of a table whose sizes differ, all files agree where they overlap, and one of them holds the whole new one;
- what Python compared while it ran (_sizes.py) comes out as in all files;
- the sizes of all tensors, as the engine then knows them, are those that the files' lead to. So a size that halves and is rounded, and was the
  same in all files, is not taken for one that never changes.

Else the shape is traced, which is one file more to tell from: two or three are enough for most networks. Files that have more than numbers
apart are groups; where two groups have a file for a shape, none is taken. Sizes 0 and 1, by which operators broadcast, are never taken for
other sizes.
"""

import contextlib
import functools
import itertools
import math
import operator
from fractions import Fraction
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch

from .._onnx_file import _bytes_header, _fields, _number, _varint
from ._export import Exported
from ._plan import DTYPES
from ._sizes import READ, SAME

_MOST = 6  # traces of a group
_MOST_GROUPS = 4
_DEGREE = 4  # of products of sizes
_MOST_NUMBERS = 64  # of a table whose sizes do not differ

# Which fields of a message hold messages whose numbers may differ, by the message's kind.
_WITHIN: Dict[str, Dict[int, str]] = {
    "model": {7: "graph"},
    "graph": {1: "node", 5: "tensor", 11: "value", 12: "value", 13: "value"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor"},
    "value": {2: "type"},
    "type": {1: "tensor_type"},
    "tensor_type": {2: "shape"},
    "shape": {1: "dim"},
}
_INTEGERS = {("attribute", 3), ("attribute", 8), ("dim", 1)}  # fields that are integers
_COMPARE: Dict[str, Callable[[int, int], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne, "%": operator.mod,
}  # fmt: skip


class Unknown(Exception):
    """The file for a shape does not follow from those that are there."""


class Sizes:
    """The sizes of arguments in all files, and in the call whose file is wanted."""

    def __init__(self, files: Sequence[Sequence[int]], wanted: Sequence[int]) -> None:
        """Raises Unknown where a size, or a product of some, is another for the first time: what is the same in all files may follow it."""
        columns = dict.fromkeys(zip(*files, wanted))
        self._varying = [column for column in columns if len(set(column)) > 1]
        self._products = [self._product(factors) for degree in range(1, _DEGREE + 1)
                          for factors in itertools.combinations_with_replacement(self._varying, degree)]  # fmt: skip
        if any(len(set(product[:-1])) == 1 and product[-1] != product[0] for product in self._products):
            raise Unknown()
        self._known: Dict[Tuple[int, ...], int] = {}

    @staticmethod
    def _product(factors: Iterable[Tuple[int, ...]]) -> Tuple[int, ...]:
        return tuple(functools.reduce(operator.mul, numbers) for numbers in zip(*factors))

    def wanted(self, numbers: Sequence[int]) -> int:
        """The integer that was `numbers` in the files."""
        key = tuple(numbers)
        if len(set(key)) == 1:
            return key[0]
        if key not in self._known:
            found = set(self._forms(key))
            if len(found) != 1:
                raise Unknown()
            number = found.pop()
            if number.denominator != 1 or number in (0, 1):
                raise Unknown()
            self._known[key] = int(number)
        return self._known[key]

    def _forms(self, numbers: Tuple[int, ...]) -> Iterator[Fraction]:
        for product in self._products:
            if all(number * product[0] == numbers[0] * size for number, size in zip(numbers, product)):
                yield Fraction(numbers[0] * product[-1], product[0])
        ones = (1,) * (len(numbers) + 1)
        for product in [ones, *self._products[: len(self._varying) * (len(self._varying) + 3) // 2]]:
            if all(number % size == 0 for number, size in zip(numbers, product)):
                for size in self._varying:
                    yield from self._affine([number // by for number, by in zip(numbers, product)], size, product[-1])

    @staticmethod
    def _affine(numbers: Sequence[int], sizes: Tuple[int, ...], times: int) -> Iterator[Fraction]:
        other = next((k for k in range(1, len(numbers)) if sizes[k] != sizes[0]), None)
        if other is None:
            return
        a = Fraction(numbers[other] - numbers[0], sizes[other] - sizes[0])
        b = numbers[0] - a * sizes[0]
        if times != 1 and (a.denominator != 1 or b.denominator != 1):
            return
        if a != 0 and b != 0 and all(a * size + b == number for size, number in zip(sizes, numbers)):
            yield times * (a * sizes[-1] + b)


def _integers(field: memoryview) -> List[int]:
    """Of an integer or packed integers."""
    key, at = _varint(field, 0)
    if key & 7 == 2:
        _, at = _varint(field, at)
    found = []
    while at < len(field):
        number, at = _varint(field, at)
        found.append(number - (1 << 64) if number >> 63 else number)
    return found


def _write_integers(field: memoryview, numbers: Sequence[int]) -> bytes:
    key, _ = _varint(field, 0)
    contents = b"".join(map(_number, numbers))
    return _bytes_header(key >> 3, len(contents)) + contents if key & 7 == 2 else _number(key) + contents


def _same_length(rows: Sequence[Sequence[Any]]) -> None:
    if len({len(row) for row in rows}) != 1:
        raise Unknown()


class _Table(NamedTuple):
    """A TensorProto."""

    dims: List[int]
    dtype: int
    rest: List[bytes]
    data: Optional[memoryview]

    def tensor(self) -> torch.Tensor:
        if self.data is None or self.dtype not in DTYPES:
            raise Unknown()
        flat = torch.frombuffer(bytearray(self.data), dtype=DTYPES[self.dtype]) if len(self.data) else torch.empty(0, dtype=DTYPES[self.dtype])
        return flat.reshape(self.dims)


def _table(message: memoryview) -> _Table:
    dims: List[int] = []
    rest: List[bytes] = []
    dtype, data = 0, None
    for number, contents, whole in _fields(message):
        if number == 1:
            dims += _integers(whole)
        elif number == 9:
            data = contents
        else:
            if number == 2:
                dtype = _integers(whole)[0]
            rest.append(bytes(whole))
    return _Table(dims, dtype, rest, data)


def _write_table(like: _Table, tensor: torch.Tensor) -> bytes:
    data = bytes(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()) if tensor.numel() else b""
    dims = b"".join(_number(1 << 3) + _number(size) for size in tensor.shape)
    return b"".join([dims, *like.rest, _bytes_header(9, len(data)), data])


class _Same(NamedTuple):
    """Bytes that all files have."""

    contents: bytearray

    def write(self, sizes: Sizes) -> bytearray:
        return self.contents


class _Integers(NamedTuple):
    """A field of integers: its first bytes, and a column of numbers for each."""

    field: memoryview
    columns: List[Tuple[int, ...]]

    def write(self, sizes: Sizes) -> bytes:
        return _write_integers(self.field, [sizes.wanted(column) for column in self.columns])


class _Message(NamedTuple):
    """A field that is a message."""

    number: int
    parts: List[Any]

    def write(self, sizes: Sizes) -> bytes:
        contents = b"".join([part.write(sizes) for part in self.parts])
        return _bytes_header(self.number, len(contents)) + contents


class _Tables(NamedTuple):
    """TensorProtos of equal types: a column for each size, and the contents in each file."""

    like: _Table
    shape: List[Tuple[int, ...]]
    tensors: List[torch.Tensor]
    columns: List[Tuple[int, ...]]  # of the numbers, where the sizes are the same

    def write(self, sizes: Sizes) -> bytes:
        if self.columns:
            numbers = torch.tensor([sizes.wanted(column) for column in self.columns], dtype=self.tensors[0].dtype)
            return _write_table(self.like, numbers.reshape(self.tensors[0].shape))
        shape = [sizes.wanted(column) for column in self.shape]
        for tensor in self.tensors:
            if all(have >= want for have, want in zip(tensor.shape, shape)):
                return _write_table(self.like, tensor[tuple(slice(want) for want in shape)])
        raise Unknown()


def _merge_tables(tables: Sequence[_Table]) -> _Tables:
    if any(table.rest != tables[0].rest for table in tables):
        raise Unknown()
    _same_length([table.dims for table in tables])
    tensors = [table.tensor() for table in tables]
    shape = list(zip(*[table.dims for table in tables]))
    if all(tensor.shape == tensors[0].shape for tensor in tensors):
        if tensors[0].is_floating_point() or tensors[0].numel() > _MOST_NUMBERS:
            raise Unknown()
        return _Tables(tables[0], shape, tensors, list(zip(*[tensor.reshape(-1).tolist() for tensor in tensors])))
    for one, other in itertools.combinations(tensors, 2):
        common = tuple(slice(min(a, b)) for a, b in zip(one.shape, other.shape))
        if not torch.equal(one[common], other[common]):
            raise Unknown()
    return _Tables(tables[0], shape, tensors, [])


def _merge(kind: str, messages: Sequence[memoryview]) -> List[Any]:
    """What the messages have in common, and what differs. Raises Unknown where more than numbers does."""
    if kind == "tensor":
        return [_merge_tables([_table(message) for message in messages])]
    rows = [list(_fields(message)) for message in messages]
    _same_length(rows)
    parts: List[Any] = []
    for fields in zip(*rows):
        number, _, whole = fields[0]
        inner = _WITHIN.get(kind, {}).get(number)
        if all(field[2] == whole for field in fields):
            if parts and isinstance(parts[-1], _Same):
                parts[-1].contents.extend(whole)
            else:
                parts.append(_Same(bytearray(whole)))
        elif any(field[0] != number for field in fields):
            raise Unknown()
        elif (kind, number) in _INTEGERS:
            columns = [_integers(field[2]) for field in fields]
            _same_length(columns)
            parts.append(_Integers(whole, list(zip(*columns))))
        elif inner is not None:
            parts.append(_Message(number, _merge(inner, [field[1] for field in fields])))
        else:
            raise Unknown()
    return parts


class Traced(NamedTuple):
    """A trace for one shape."""

    sizes: Tuple[int, ...]  # of all arguments
    exported: Exported
    extents: Sequence[int]  # ranks and dims of all tensors, by the engine

    def alike(self) -> Any:
        """What has to be the same in all traces of a family."""
        e = self.exported
        moved = [(id(row.running_mean), id(row.running_var), None if row.counter is not None else row.factor, row.later, row.output) for row in e.moved]
        return (e.inputs, e.outputs, e.result, e.places, [(id(buffer), output) for buffer, output in e.written], moved, e.failed, e.counts, e.results,
                e.read, e.random, e.all_f64, [id(tensor) for tensor in e.constants], [c[0] for c in e.compared])  # fmt: skip


class _Group:
    """Traces that have numbers alone apart."""

    def __init__(self, traces: Sequence[Traced]) -> None:
        """Raises Unknown where they have more apart."""
        self.traces = list(traces)
        exports = [trace.exported for trace in traces]
        if any(trace.alike() != traces[0].alike() for trace in traces):
            raise Unknown()
        self._parts = _merge("model", [memoryview(exported.model) for exported in exports])
        _same_length([trace.extents for trace in traces])
        self._extents = [trace.extents for trace in traces]
        # Once each: the operator, and its left and its right side in all traces.
        self._compared = {(rows[0][0], *zip(*[row[1:] for row in rows])) for rows in zip(*[exported.compared for exported in exports])}

    def with_another(self, trace: Traced) -> "_Group":
        """Of too many traces the oldest goes, but not the largest, whose tables hold the others'. Raises Unknown."""
        kept = [other for other in self.traces if other.sizes != trace.sizes]
        if len(kept) == _MOST:
            largest = max(kept, key=lambda other: sum(other.sizes))
            kept.remove(next(other for other in kept if other is not largest))
        return _Group([*kept, trace])

    def exported(self, sizes: Sequence[int]) -> "Followed":
        """Raises Unknown."""
        known = Sizes([trace.sizes for trace in self.traces], sizes)
        for sign, left, right in self._compared:
            _comes_out_alike(sign, left, right, known)
        moved = [rows[0]._replace(sizes=tuple([known.wanted(column) for column in zip(*[row.sizes for row in rows])]))
                 for rows in zip(*[trace.exported.moved for trace in self.traces])]  # fmt: skip
        if any(math.prod(row.sizes) < 2 for row in moved):
            raise Unknown()
        model = b"".join([part.write(known) for part in self._parts])
        return Followed(self.traces[0].exported._replace(model=model, moved=moved), known, self._extents)


class Followed(NamedTuple):
    """The export for a shape that was not traced."""

    exported: Exported
    sizes: Sizes
    extents: List[Sequence[int]]  # of the traces

    def agrees(self, extents: Sequence[int]) -> bool:
        """Whether the tensors of this file, as the engine knows them, have the sizes that those of the traces lead to."""
        if len(extents) != len(self.extents[0]):
            return False
        for column, extent in set(zip(zip(*self.extents), extents)):
            try:
                if self.sizes.wanted(column) != extent:
                    return False
            except Unknown:  # so no number of the file was made of it
                continue
        return True


def _comes_out_alike(sign: str, left: Tuple[Any, ...], right: Tuple[Any, ...], sizes: Sizes) -> None:
    if sign == READ or (sign == SAME and len(set(left)) != 1):
        raise Unknown()
    if sign == SAME:
        return
    sides = []
    for column in (left, right):
        if len(set(column)) != 1 and not all(isinstance(number, int) for number in column):
            raise Unknown()
        sides.append(column[0] if len(set(column)) == 1 else sizes.wanted(column))
    if {_COMPARE[sign](a, b) for a, b in zip(left, right)} != {_COMPARE[sign](*sides)}:
        raise Unknown()


class Family:
    """Traces of calls that differ in sizes alone."""

    def __init__(self) -> None:
        self._groups: List[_Group] = []

    def add(self, sizes: Sequence[int], exported: Exported, extents: Sequence[int]) -> None:
        """One more trace."""
        if exported.calls:
            return
        trace = Traced(tuple(sizes), exported, extents)
        for index, group in enumerate(self._groups):
            with contextlib.suppress(Unknown):
                joined = group.with_another(trace)
                del self._groups[index]
                self._groups.append(joined)
                return
        self._groups = [*self._groups[1 - _MOST_GROUPS :], _Group([trace])]

    def exported(self, sizes: Sequence[int]) -> Optional[Followed]:
        """The export of a call with arguments of these sizes; None: it has to be traced."""
        found: List[Followed] = []
        for group in self._groups:
            with contextlib.suppress(Unknown):
                found.append(group.exported(sizes))
        return found[0] if len(found) == 1 else None
