"""Nested arguments and results as flat lists of tensors.

flatten() appends the tensors of a value to a list and returns a hashable description of the rest; unflatten() puts tensors
back. Lists, tuples (also named ones), dicts and what derives from them, dataclasses and other objects with attributes are
followed; numbers, texts, None, classes and other hashable plain values are part of the description. Arrays of other libraries (numpy's,
cupy's, jax's) are tensors in their own memory, by DLPack.
"""

import dataclasses
import enum
import functools
from typing import Any, Iterator, List, Tuple

import torch

from .._library import UnsupportedError
from ._sizes import Size

TENSOR = "tensor"  # the description of a tensor
_PLAIN = (int, float, complex, bool, str, bytes, type(None), type(Ellipsis), torch.dtype, torch.device, torch.layout, torch.memory_format,
          torch.Size, enum.Enum, type)  # fmt: skip


def _fields(value: Any) -> List[str]:
    return [field.name for field in dataclasses.fields(value)]


def flatten(value: Any, tensors: List[torch.Tensor], where: str = "") -> Any:
    """The description of `value`, whose tensors are appended to `tensors`."""
    kind = type(value)
    if kind is torch.Tensor:
        tensors.append(value)
        return TENSOR
    if kind is tuple or kind is list:
        return kind, tuple([flatten(item, tensors, where) for item in value])
    if kind is dict:
        return kind, tuple([(key, flatten(item, tensors, where)) for key, item in value.items()])
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return TENSOR
    if isinstance(value, slice):
        return "plain", kind, (value.start, value.stop, value.step)
    if kind is Size:
        return "plain", int, int.__int__(value)
    if isinstance(value, _PLAIN):
        return "plain", kind, value
    if isinstance(value, dict):
        return kind, tuple([(key, flatten(item, tensors, where)) for key, item in value.items()])
    if isinstance(value, (tuple, list)):
        return kind, tuple([flatten(item, tensors, where) for item in value])
    if hasattr(kind, "__dlpack__"):
        tensors.append(_imported(value, where))
        return TENSOR
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return kind, tuple([(name, flatten(getattr(value, name), tensors, where)) for name in _fields(value)])
    if hasattr(value, "__dict__") and vars(value) and not callable(value):  # such as Hugging Face's caches
        return kind, tuple([(name, flatten(item, tensors, where)) for name, item in vars(value).items()])
    name = f"{kind.__module__}.{kind.__qualname__}"
    raise UnsupportedError(f"{where}an object of type {name} is neither a tensor nor made of tensors and plain values")


@functools.lru_cache(maxsize=None)
def of_arguments(count: int) -> Any:
    """The description of a call (args, kwargs) with so many tensors by place and nothing else."""
    return tuple, ((tuple, (TENSOR,) * count), (dict, ()))


def _imported(array: Any, where: str) -> torch.Tensor:
    try:
        tensor: torch.Tensor = getattr(torch, "from_dlpack")(array)
        return tensor
    except Exception as error:
        reason = str(error)
    try:
        if hasattr(array, "__array_interface__"):  # numpy's DLPack has no booleans, memory that may not be written, strides below 0: copies
            import numpy

            return torch.from_numpy(numpy.array(array))
    except (TypeError, ValueError) as error:
        reason = str(error)
    kind = type(array)
    raise UnsupportedError(f"{where}an array of type {kind.__module__}.{kind.__qualname__} is no tensor by DLPack: {reason}")


def of_tensors(value: Any) -> Any:
    """The value with tensors for the arrays of other libraries, as PyTorch takes it."""
    kind = type(value)
    if kind is tuple or kind is list:
        return kind([of_tensors(item) for item in value])
    if kind is dict:
        return {key: of_tensors(item) for key, item in value.items()}
    return value if isinstance(value, torch.Tensor) or not hasattr(kind, "__dlpack__") else _imported(value, "")


def unflatten(description: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """The value that `description` describes, with tensors taken from the iterator."""
    if description is TENSOR or description == TENSOR:
        return next(tensors)
    if description[0] == "plain":
        return slice(*description[2]) if description[1] is slice else description[2]
    kind: Any = description[0]
    items = description[1]
    if issubclass(kind, dict):
        members = {key: unflatten(item, tensors) for key, item in items}
        return kind(**members) if hasattr(kind, "__dataclass_fields__") else kind(members)
    if issubclass(kind, (tuple, list)):
        parts = [unflatten(item, tensors) for item in items]
        return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
    result = object.__new__(kind)
    for name, item in items:
        object.__setattr__(result, name, unflatten(item, tensors))
    return result


def paths(description: Any, prefix: str = "") -> List[str]:
    """A name for each tensor of a description: "labels", "batch.mask", "states.0"."""

    def under(name: Any) -> str:
        return f"{prefix}.{name}" if prefix else str(name)

    if description == TENSOR:
        return [prefix or "x"]
    if description[0] == "plain":
        return []
    kind, items = description
    named: List[Tuple[Any, Any]] = list(enumerate(items)) if issubclass(kind, (tuple, list)) else list(items)
    return [path for name, item in named for path in paths(item, under(name))]
