"""Sizes of tensors as Python sees them while a module is traced: integers that tell what is compared with them.

The file of a trace has sizes as numbers. Whether it is the file for other sizes, too, depends on what Python made of them on the way: an
`if` that looks at a size, a remainder. Each is noted with its two sides; _shapes.py asks whether it would come out alike.
"""

import contextlib
import math
import threading
from typing import Any, Callable, Iterator, List, Optional, Tuple

import torch

Compared = Tuple[str, Any, Any]  # operator, left and right side
SAME = "same"  # the operator of a number that has to be the same
READ = "read"  # the operator of what may be anything


class _Notes(threading.local):
    compared: Optional[List[Compared]] = None


_notes = _Notes()


@contextlib.contextmanager
def noting() -> Iterator[List[Compared]]:
    """What this thread compares meanwhile goes to the list."""
    before, _notes.compared = _notes.compared, []
    try:
        yield _notes.compared
    finally:
        _notes.compared = before


def _note(sign: str, left: Any, right: Any) -> None:
    if _notes.compared is not None and isinstance(right, (int, float)):
        _notes.compared.append((sign, _plain(left), _plain(right)))


def _plain(number: Any) -> Any:
    return int.__int__(number) if isinstance(number, int) else number


class Size(int):
    """An integer made of sizes. Sums, products and quotients are again; all else that Python may make of one (a key, a text, a fraction) has
    to be the same in a trace for other sizes."""

    def __bool__(self) -> bool:
        _note("!=", self, 0)
        return int.__bool__(self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __reduce__(self) -> Any:
        return int, (int.__int__(self),)


def _compares(name: str, sign: str) -> Callable[[Size, Any], Any]:
    plain = getattr(int, name)

    def compare(self: Size, other: Any) -> Any:
        _note(sign, self, other)
        return plain(self, other)

    return compare


def _computes(name: str) -> Callable[..., Any]:
    plain = getattr(int, name)

    def compute(self: Size, *other: Any) -> Any:
        result = plain(self, *other)
        if type(result) is not int:
            if other and isinstance(other[0], float):  # which computes it, and may be rounded
                _note(SAME, self, 0)
            return result
        if name in ("__floordiv__", "__mod__"):
            _note("%", self, other[0])
        elif name in ("__rfloordiv__", "__rmod__"):
            _note("%", other[0], self)
        return Size(result)

    return compute


def _reads(name: str) -> Callable[..., Any]:
    plain = getattr(int, name)

    def read(self: Size, *other: Any) -> Any:
        _note(SAME, self, 0)
        return plain(self, *other)

    return read


for _name, _sign in (("__lt__", "<"), ("__le__", "<="), ("__gt__", ">"), ("__ge__", ">="), ("__eq__", "=="), ("__ne__", "!=")):
    setattr(Size, _name, _compares(_name, _sign))
for _name in ("add", "sub", "mul", "floordiv", "mod", "radd", "rsub", "rmul", "rfloordiv", "rmod", "neg", "pos", "abs"):
    setattr(Size, f"__{_name}__", _computes(f"__{_name}__"))
for _name in ("hash", "str", "repr", "format", "int", "float", "round", "trunc", "floor", "ceil", "truediv", "rtruediv", "pow", "rpow", "and", "rand",
              "or", "ror", "xor", "rxor", "lshift", "rlshift", "rshift", "rrshift", "invert"):  # fmt: skip
    setattr(Size, f"__{_name}__", _reads(f"__{_name}__"))
for _name in ("bit_length", "bit_count", "to_bytes", "as_integer_ratio"):
    if hasattr(int, _name):
        setattr(Size, _name, _reads(_name))
# Functions of math that read an integer's digits and ask nothing of it.
_DIGITS = ("log", "log2", "log10", "isqrt", "gcd", "lcm", "comb", "perm", "factorial")


def math_patches() -> Iterator[Tuple[Any, str, Any]]:
    """What math has while a module is traced: owner, name, replacement."""

    def patched(function: Callable[..., Any]) -> Callable[..., Any]:
        def read(*numbers: Any) -> Any:
            for number in numbers:
                if isinstance(number, Size):
                    _note(SAME, number, 0)
            return function(*numbers)

        return read

    return ((math, name, patched(getattr(math, name))) for name in _DIGITS)


def sizes(value: Any) -> Any:
    """What a tensor says of its size, with Sizes as integers."""
    return torch.Size([Size(size) for size in value]) if isinstance(value, torch.Size) else Size(value)


def as_plain(value: Any) -> int:
    """For what makes plain integers of Sizes, such as len()."""
    _note(SAME, value, 0)
    plain: int = _plain(value)
    return plain


def read() -> None:
    """Python read contents that depend on sizes: nobody knows what it would read for others."""
    if _notes.compared is not None:
        _notes.compared.append((READ, 0, 0))
