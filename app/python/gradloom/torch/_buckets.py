"""Few plans for many lengths: inputs are filled up to the next bucket, and results are cut back to the length that was given.

A file does not tell whether a forward ignores what is filled (a mask, -100 in labels). So PyTorch computes the first call of each bucket with and
without the fill, and what differs is an error that names it.
"""

import contextlib
import inspect
import itertools
from collections.abc import Mapping
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple, Union

import torch
from torch.nn import functional

from .._library import UsageError
from . import _structure
from ._devices import autocast, without_autocast
from ._export import without_cache
from ._members import without_effect
from ._outside import warn
from ._trace import lock

_Extents = Union[int, Tuple[int, ...]]  # multiples of a number, or a list of sizes
_IGNORED = -100  # a label that PyTorch's losses leave out, and Hugging Face's
_NORMS = (torch.nn.modules.batchnorm._BatchNorm, torch.nn.modules.instancenorm._InstanceNorm)
# Of the largest number of a result: what other sizes round otherwise, with parts in f32 in f64 too, and with parts in 16 bits.
_NEAR, _ROUGH = 1e-4, 2e-2
_WIDE = (torch.float32, torch.float64)


def _extents(given: Any) -> _Extents:
    if isinstance(given, int) and not isinstance(given, bool) and given >= 1:
        return given
    if isinstance(given, (list, tuple)) and given and all(isinstance(size, int) and size >= 1 for size in given):
        return tuple(sorted(set(given)))
    raise ValueError(f"a bucket is a number, whose multiples are meant, or a list of sizes, not {given!r}")


def _axes(given: Mapping[Any, Any]) -> Dict[int, _Extents]:
    if not all(isinstance(axis, int) and axis >= 0 for axis in given):
        raise ValueError(f"buckets are given by axes, counted from 0, not by {', '.join(map(repr, given))}")
    return {axis: _extents(sizes) for axis, sizes in given.items()}


def _next(extents: _Extents, size: int) -> int:
    """The bucket of a size: itself where it is larger than all."""
    if isinstance(extents, int):
        return -(-size // extents) * extents
    return next((one for one in extents if one >= size), size)


class Buckets:
    """Which axes of which inputs are filled up to which sizes, so that few plans serve all lengths: `buckets=` of Module and TrainStep.

        Module(model, buckets=64)                                   # multiples of 64
        Module(model, buckets=[32, 64, 128])
        Module(model, buckets={1: [32, 64, 128], 0: 8})             # length and batch
        Module(model, buckets={"input_ids": {1: 64}, "attention_mask": {1: 64}, "labels": {1: [16, 32]}})
        Module(model, buckets=Buckets(64, fill={"input_ids": tokenizer.pad_token_id, "position_ids": 1}))

    sizes: a number (its multiples) or a list of sizes; a size above the list's largest stays as it is. Alone, it is for axis 1 of all inputs that
    share the length of the first one of forward's parameters that has such an axis; an input that once had another is left alone from then on. {axis: ..}:
    the same for other axes. {input: {axis: ..}}: of these alone, by the names of forward's parameters ("states.0" inside a tuple; the loss's target in
    TrainStep is "target") or by the tensor's number in the call.
    fill: the number that fills an input, at the end of its axes. Else labels of integers ("label", "labels", "target", "..._labels") are filled with -100,
    "input_ids" and "..._input_ids" with the pad_token_id of the model's config, if it has one, and all others, masks too, with 0.
    check: PyTorch computes the first call of each bucket with and without the fill (without gradients; modules rest as in eval(), but for normalizations by
    batch), and a result that is not the same but for rounding is an error. False: it does so once, to see which axes of results follow which of inputs.

    Right by construction: what is masked, causal attention, losses that leave out -100, all that the script itself computes of results, which have
    the sizes that were given. Not right, and an error of the check: a mean or a maximum over positions inside the model, a loss without an ignored
    label, batch normalization in training, attention in both directions without a mask, the last state of an LSTM. Not seen by the check: a
    forward that leaves out the fill of the bucket's first batch and not that of a later one. Dropout draws other masks than without a fill.
    """

    def __init__(self, sizes: Any, fill: Optional[Mapping[Any, float]] = None, check: bool = True) -> None:
        self.shared: Dict[int, _Extents] = {}
        self.each: Dict[Any, Dict[int, _Extents]] = {}
        self.fill, self.check = dict(fill or {}), check
        if not isinstance(sizes, Mapping):
            self.shared = {1: _extents(sizes)}
        elif all(isinstance(axes, Mapping) for axes in sizes.values()):
            self.each = {key: _axes(axes) for key, axes in sizes.items()}
        else:
            self.shared = _axes(sizes)
        for key in (*self.each, *self.fill):
            if not isinstance(key, (str, int)):
                raise ValueError(f"an input is named by a text or a number, not by {key!r}")


class _Inputs(NamedTuple):
    """The tensors of calls of one structure."""

    names: List[str]
    order: List[int]  # as forward's parameters stand
    each: List[Dict[int, _Extents]]
    fill: List[Optional[float]]  # None: the default


class _Dim(NamedTuple):
    """An axis that is filled."""

    tensor: int  # its number in the call
    axis: int
    extent: int  # that was given
    size: int


class _Follows(NamedTuple):
    """An axis of a result that is as long as a filled one, but for a constant."""

    dim: int  # of Filled
    more: int


_Rules = Dict[str, Dict[int, List[_Follows]]]  # of each result and axis: which filled ones it may follow


class Filled(NamedTuple):
    tensors: List[torch.Tensor]
    dims: List[_Dim]
    rules: _Rules

    def cut(self, result: Any, outputs: Sequence[torch.Tensor]) -> List[torch.Tensor]:
        """The results of a call without what comes of the fill. result: their description."""
        made = []
        for name, output in zip(_structure.paths(result), outputs):
            axes = self.rules.get(name)
            if axes is None and any(dim.size in output.shape for dim in self.dims):
                raise UsageError(f"buckets: the result '{name}' is of training alone, and nothing tells which of its axes are filled: "
                                 "leave its length out of buckets")  # fmt: skip
            for axis, follows in (axes or {}).items():
                output = output.narrow(axis, 0, self.length(follows))
            made.append(output.contiguous() if axes else output)
        return made

    def length(self, follows: Sequence[_Follows]) -> int:
        return self.dims[follows[0].dim].extent + follows[0].more

    def certain(self) -> bool:
        """Whether all that an axis may follow say the same of these lengths."""
        return all(self.length([one]) == self.length(follows) for axes in self.rules.values() for follows in axes.values() for one in follows)


def filled_up(tensor: torch.Tensor, shape: Sequence[int], fill: float) -> torch.Tensor:
    """The tensor at the beginning of a larger one; its gradient is that part's."""
    if list(tensor.shape) == list(shape):
        return tensor
    widths = [width for size, whole in zip(reversed(tensor.shape), reversed(list(shape))) for width in (0, whole - size)]
    return functional.pad(tensor, widths, value=fill)


@contextlib.contextmanager
def at_rest(module: torch.nn.Module) -> Iterator[None]:
    """Inside, forwards draw nothing, move no statistics and make no gradients. Normalizations by batch stay in their modes."""
    training = [(part, part.training) for part in module.modules()]
    try:
        for part, _ in training:
            if not isinstance(part, _NORMS) or isinstance(part, torch.nn.SyncBatchNorm):  # which would wait for the other ranks
                part.training = False
        with without_effect(module):
            yield
    finally:
        for part, mode in training:
            part.training = mode


class Filler:
    """What a Module or a TrainStep does by its Buckets. Its calls come one at a time."""

    def __init__(self, given: Any, module: torch.nn.Module, model: torch.nn.Module, names: Callable[[Any], List[str]]) -> None:
        """module: what is called; model: whose forward, config and mode count; names: of the tensors of a call, by its description."""
        self._buckets = given if isinstance(given, Buckets) else Buckets(given)
        self._module, self._model, self._names = module, model, names
        self._inputs: Dict[Any, _Inputs] = {}
        self._unlike: Set[Tuple[str, int]] = set()  # inputs that once had another length than those that share one
        self.forget()

    def forget(self) -> None:
        """The module has changed."""
        self._rules: Dict[Any, _Rules] = {}
        self._checked: Set[Any] = set()
        self._draws = False  # at rest too: nothing can be compared

    def fill(self, description: Any, tensors: Sequence[torch.Tensor]) -> Optional[Filled]:
        """The call's tensors in their bucket; None: they are as large as it. Raises UsageError where the results are not those of the call."""
        inputs = self._inputs.get(description)
        if inputs is None:
            inputs = self._inputs[description] = self._inputs_of(description)
        dims = self._dims(inputs, tensors)
        if not dims:
            return None
        made = list(tensors)
        for index in {dim.tensor for dim in dims}:
            shape = list(tensors[index].shape)
            for dim in dims:
                if dim.tensor == index:
                    shape[dim.axis] = dim.size
            made[index] = filled_up(tensors[index], shape, self._fill(inputs, index, tensors[index]))
        kind = description, tuple([(dim.tensor, dim.axis) for dim in dims]), self._model.training
        bucket = kind, tuple([(t.shape, t.dtype) for t in made])
        filled = Filled(made, dims, self._rules.get(kind, {}))
        if kind not in self._rules or (self._buckets.check and bucket not in self._checked) or not filled.certain():
            filled = self._looked_at(inputs, description, tensors, filled)
            self._rules[kind] = filled.rules
            self._checked.add(bucket)
        return filled

    def _inputs_of(self, description: Any) -> _Inputs:
        buckets, names = self._buckets, self._names(description)
        try:
            known = [p.name for p in inspect.signature(self._model.forward).parameters.values()]
        except (TypeError, ValueError):
            known = []
        for key in (*buckets.each, *buckets.fill):
            if key not in names and not (isinstance(key, int) and 0 <= key < len(names)) and str(key).split(".")[0] not in [*known, "target"]:
                raise UsageError(f"buckets name '{key}', which is none of the call's tensors: {', '.join(names)}")

        def of(rows: Dict[Any, Any], index: int) -> Any:
            return rows.get(names[index], rows.get(index))

        def place(index: int) -> int:
            root = names[index].split(".")[0]
            return known.index(root) if root in known else len(known)

        indices = range(len(names))
        return _Inputs(names, sorted(indices, key=place), [of(buckets.each, i) or {} for i in indices], [of(buckets.fill, i) for i in indices])

    def _dims(self, inputs: _Inputs, tensors: Sequence[torch.Tensor]) -> List[_Dim]:
        """The axes that are below their bucket."""
        axes = [(index, axis, extents) for index, row in enumerate(inputs.each) for axis, extents in row.items()]
        for axis, extents in self._buckets.shared.items():
            having = [index for index in inputs.order if tensors[index].dim() > axis]
            for index in having:
                key = inputs.names[index], axis
                if tensors[index].shape[axis] != tensors[having[0]].shape[axis]:
                    self._unlike.add(key)
                elif key not in self._unlike:
                    axes.append((index, axis, extents))
        dims = []
        for index, axis, extents in axes:
            if axis >= tensors[index].dim():
                raise UsageError(f"buckets name axis {axis} of '{inputs.names[index]}', which has {tensors[index].dim()}")
            extent = tensors[index].shape[axis]
            size = _next(extents, extent)
            if 0 < extent < size:
                dims.append(_Dim(index, axis, extent, size))
        return dims

    def _fill(self, inputs: _Inputs, index: int, tensor: torch.Tensor) -> float:
        given = inputs.fill[index]
        if given is not None:
            return given
        name = inputs.names[index].split(".")[-1]
        if tensor.is_floating_point() or tensor.dtype == torch.bool:
            return 0
        if name in ("label", "labels", "target") or name.endswith("_labels"):
            return _IGNORED
        padding = getattr(getattr(self._model, "config", None), "pad_token_id", None)
        return padding if name.endswith("input_ids") and isinstance(padding, int) and padding >= 0 else 0

    def _looked_at(self, inputs: _Inputs, description: Any, tensors: Sequence[torch.Tensor], filled: Filled) -> Filled:
        """By what PyTorch makes of the call with and without the fill."""
        dims, training = filled.dims, self._model.training
        words = ", ".join(f"{inputs.names[dim.tensor]} from {dim.extent} to {dim.size} on axis {dim.axis}" for dim in dims)
        with lock, at_rest(self._module):
            plain_of, plain, cast = self._computed(description, tensors, training)
            try:
                full_of, full = self._call(description, filled.tensors, training, cast)
            except Exception as error:
                reason = (str(error).splitlines() or [""])[0]
                raise UsageError(f"buckets: filled up ({words}) the forward raises {type(error).__name__}: {reason}. All inputs that have this length need "
                                 "the same buckets, of which none is longer than what the model takes") from error  # fmt: skip
            if plain_of != full_of:
                raise UsageError(f"buckets: filled up ({words}) the forward returns other numbers or another structure, beside its tensors: what it returns "
                                 "depends on the length")  # fmt: skip
            names = _structure.paths(plain_of)
            filled = filled._replace(rules={name: _axes_that_follow(name, a.shape, b.shape, dims, filled.rules.get(name))
                                            for name, a, b in zip(names, plain, full)})  # fmt: skip
            tolerance = self._tolerance(plain)
            found = _apart(names, filled, plain, full, tolerance) if self._buckets.check and not self._draws else None
            if found is not None:
                again = self._call(description, tensors, training, cast)[1]
                self._draws = any(_distance(a, b) > tolerance for a, b in zip(plain, again))
                if not self._draws:
                    raise UsageError(f"buckets: filled up ({words}) {found}: {self._remedy(inputs)}")
                warn("gradloom: the forward draws random numbers in eval mode too: what buckets fill is not checked")
        return filled

    def _computed(self, description: Any, tensors: Sequence[torch.Tensor], training: bool) -> Tuple[Any, List[torch.Tensor], bool]:
        """Whether that was under a running autocast: where the forward needs it."""
        if autocast(self._device().type) is not None:
            with contextlib.suppress(Exception):
                return (*self._call(description, tensors, training, False), False)
        return (*self._call(description, tensors, training, True), True)

    def _device(self) -> torch.device:
        return next((t.device for t in itertools.chain(self._module.parameters(), self._module.buffers())), torch.device("cpu"))

    def _call(self, description: Any, tensors: Sequence[torch.Tensor], training: bool, cast: bool) -> Tuple[Any, List[torch.Tensor]]:
        """The description of the results, and these. training: what they are for."""
        device, found = self._device(), []  # type: torch.device, List[torch.Tensor]
        with contextlib.nullcontext() if cast else without_autocast(device.type):
            args, kwargs = _structure.unflatten(description, iter([t.detach().clone().to(device) for t in tensors]))
            result = self._module(*args, **kwargs)
        return _structure.flatten(without_cache(result) if training else result, found), found

    def _tolerance(self, results: Sequence[torch.Tensor]) -> float:
        types = {t.dtype for t in itertools.chain(self._module.parameters(), results) if t.is_floating_point()}
        return _NEAR if types <= set(_WIDE) else _ROUGH

    def _remedy(self, inputs: _Inputs) -> str:
        norms = [path for path, part in self._module.named_modules() if isinstance(part, _NORMS) and part.training]
        if norms:
            return f"'{norms[0]}' ({type(self._module.get_submodule(norms[0])).__name__}) takes its statistics of the fill too, which no mask mends: leave this axis out"
        if not any("mask" in name for name in inputs.names):
            return "the call has no mask: pass one (attention_mask) that is 0 where a batch is filled, and labels that the loss ignores there (-100), or give fill="
        return ("something inside does not heed the mask (a mean over positions, a loss without -100): give the numbers that it ignores as "
                "Buckets(.., fill={..}), or leave this axis out")  # fmt: skip


def _axes_that_follow(name: str, plain: Sequence[int], full: Sequence[int], dims: Sequence[_Dim],
                      known: Optional[Dict[int, List[_Follows]]]) -> Dict[int, List[_Follows]]:  # fmt: skip
    """By a result's shapes without and with the fill. known: what other calls told. Raises UsageError where no length explains it."""
    found: Dict[int, List[_Follows]] = {}
    if len(plain) == len(full):
        for axis, (size, whole) in enumerate(zip(plain, full)):
            if size != whole:
                follows = [_Follows(number, size - dim.extent) for number, dim in enumerate(dims) if size - dim.extent == whole - dim.size]
                found[axis] = [one for one in follows if known is None or one in known.get(axis, [])]
        if all(found.values()) and (known is None or list(known) == list(found)):
            return found
    raise UsageError(f"buckets: the result '{name}' is {_shown(plain)}, and {_shown(full)} where its inputs are filled up: which part of it comes of the fill "
                     "is not known (axes that join others, or that are halved, are none of those that can be cut): leave this length out of buckets")  # fmt: skip


def named_sizes(names: Sequence[str], tensors: Sequence[torch.Tensor]) -> str:
    return ", ".join(f"{name} {_shown(tensor.shape)}" for name, tensor in zip(names, tensors))


def _shown(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "a number"


def _apart(names: Sequence[str], filled: Filled, plain: Sequence[torch.Tensor], full: Sequence[torch.Tensor], tolerance: float) -> Optional[str]:
    """The first result that differs."""
    for name, a, b in zip(names, plain, full):
        of = f"the result '{name}'" if len(names) > 1 else "the result"
        if b.is_floating_point() and bool(b.isnan().any()) and not bool(a.isnan().any()):
            return f"{of} has NaN, which the gradients of all would have"
        for axis, follows in filled.rules[name].items():
            b = b.narrow(axis, 0, filled.length(follows))
        distance = _distance(a, b)
        if distance > tolerance:
            return f"{of} differs by {distance:.2g} of its largest number from what it is without the fill"
    return None


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """Measured by the largest number of `a`; infinite where one has an infinity or NaN that the other has not."""
    if torch.equal(a, b) or a.numel() == 0:
        return 0
    if not a.is_floating_point():
        return float("inf")
    a, b = a.double(), b.double()
    finite = a.isfinite()
    if not torch.allclose(a[~finite], b[~finite], rtol=0, atol=0, equal_nan=True) or not bool(b[finite].isfinite().all()):
        return float("inf")
    return float((a[finite] - b[finite]).abs().max()) / (float(a[finite].abs().max()) + 1e-12) if bool(finite.any()) else 0
