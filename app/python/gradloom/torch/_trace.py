"""What is different while a module's forward is traced for its file.

A trace records operators, so what Python makes of tensors must be known or refused, and what exporters lose must be said
in operators:

- sizes are numbers, which they are for a call of known shapes; no nodes compute them (what Python compares with them: _sizes.py);
- a tensor's value that reaches Python (`if x.sum() > 0`, `x.item()`) and depends on inputs or parameters is an error, but where its
  other truth would only raise: that is told with each call's results (_checks.py);
- what is written in place shows in the tensors that share its memory (_operators.py);
- detach(), .data and no_grad blocks become Identity nodes that say so;
- training BatchNormalization, and InstanceNormalization that tracks statistics, give their batch's as results of their own, from which the caller
  moves the running ones; the module's buffers stay as they are;
- an embedding's row of padding gets no gradient, and cross entropy has its label smoothing;
- functions that some exporter lacks are written in others (_decompositions.py), complex numbers as two real ones (_complex.py);
- torch.utils.checkpoint inside the module calls its function: what is kept in memory is the plan's business;
- blocks of torch.autocast are scopes of the trace (_regions.py), types that Python gives are nodes (_casts.py);
- submodules, torch.autograd.Functions and the few functions of torch that stay in PyTorch are called as they are (_outside.py).

Patches are process-wide while a trace runs: one runs at a time, and other threads' tensors behave as ever.
"""

import contextlib
import math
import os
import sys
import threading
import traceback
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.utils.checkpoint
from torch.nn import functional

from .._library import UnsupportedError
from ._decompositions import DECOMPOSED_IN_F64, DECOMPOSITIONS, LOSSES, NUMBERS, adaptive_avg_pool, pad_circular, rms_norm, unflatten
from . import _sizes
from ._casts import Casts, cast_patches
from ._checks import failing, passing
from ._exact import refuse_rows_that_change
from ._operators import Operators
from ._outside import Outside, reason_of
from ._regions import Regions, autocast_patches, in_f32
from ._rows import counted, number_of
from ._values import made_of, untraced

_C: Any = torch._C  # whose private functions have no types
_BASE = _C._TensorBase
lock = threading.RLock()  # of those who trace


class BatchStatistics(NamedTuple):
    """Results that move a module's running statistics: mean and biased variance of each channel."""

    mean: torch.Tensor
    variance: torch.Tensor
    sizes: Tuple[int, ...]  # of the batch, but for its channels
    running_mean: torch.Tensor
    running_var: torch.Tensor
    factor: float


class Noted(NamedTuple):
    """What a trace notes besides the operators."""

    statistics: List[BatchStatistics]
    failing: List[torch.Tensor]  # booleans, true where the forward would have raised
    checks: List[str]  # where each of them is in the code


class _Trace(threading.local):
    active = False
    apart = True  # training normalizations give their statistics to what is noted
    noted = Noted([], [], [])
    outside: Optional[Outside] = None
    operators: Optional[Operators] = None


_trace = _Trace()


@contextlib.contextmanager
def _apart() -> Iterator[None]:
    """What runs here is no part of the trace, and as in a training step."""
    _trace.active = False
    try:
        with untraced(), torch.autograd.graph.saved_tensors_hooks(_itself, _itself):
            yield
    finally:
        _trace.active = True


def _itself(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def traces() -> bool:
    """Whether this thread is in a forward that is traced."""
    return _trace.active and _trace.outside is not None and torch._C._get_tracing_state() is not None


def _regions() -> Optional[Regions]:
    return _trace.outside.regions if _trace.outside is not None and traces() else None


def _casts() -> Optional[Casts]:
    return _trace.outside.casts if _trace.outside is not None and traces() else None


def _call(original: Callable[..., Any]) -> Callable[..., Any]:
    """Module.__call__."""

    def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        outside = _trace.outside
        path = outside.paths.get(id(module)) if outside is not None and traces() else None
        if outside is None or path is None:
            return original(module, *args, **kwargs)
        if path in outside.chosen:
            with _own():
                return outside.call(path, module, args, kwargs, _apart)
        with outside.entered(path):
            noted: List[List[Any]] = list(_trace.noted)
            rows = [len(notes) for notes in noted]
            before = dict(vars(module)) if outside.sees_left else {}
            try:
                result = original(module, *args, **kwargs)
                if outside.sees_left:
                    _check_left(module, before)
                return result
            except Exception as error:
                if getattr(error, "gradloom_own", False) or getattr(error, "gradloom_whole", False):
                    raise
                reason = error
        for notes, count in zip(noted, rows):
            del notes[count:]
        if path != "":
            outside.refuse(path, reason_of(reason))
            with _own():
                return outside.call(path, module, args, kwargs, _apart)
        if not isinstance(reason, UnsupportedError):
            with _own(), _apart():
                original(module, *args, **kwargs)
        raise UnsupportedError(reason_of(reason)) from None

    return call


def _check_left(module: torch.nn.Module, before: Dict[str, Any]) -> None:
    """Raises UnsupportedError where a call has left a tensor with a gradient in an attribute, of which a loss may be made; but for the weights that pruning and
    norms make."""
    left = sorted(name for name, value in vars(module).items()
                  if isinstance(value, torch.Tensor) and value is not before.get(name) and value.grad_fn is not None
                  and not any(f"{name}{end}" in module._parameters for end in ("_orig", "_g")))  # fmt: skip
    if left:
        raise UnsupportedError(f"its forward leaves tensors with gradients in its attributes ({', '.join(left)})")


@contextlib.contextmanager
def _own() -> Iterator[None]:
    """An exception here is the module's own, in PyTorch as well."""
    try:
        yield
    except UnsupportedError:
        raise
    except Exception as error:
        error.gradloom_own = True  # type: ignore[attr-defined]
        raise


def _apply(original: Any) -> Any:
    """torch.autograd.Function.apply."""

    def apply(function: Any, *args: Any, **kwargs: Any) -> Any:
        own = original.__get__(None, function)
        outside = _trace.outside
        if outside is None or not traces():
            return own(*args, **kwargs)
        if function is torch.utils.checkpoint.CheckpointFunction:
            run, _, *given = args
            return _reentrant(run, given)
        with _own():
            return outside.call(outside.stack[-1], own, args, kwargs, _apart, function.__name__)

    return classmethod(apply)


def _in_pytorch(name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """A function of torch that neither files nor the engine have."""
    outside = _trace.outside
    assert outside is not None
    with _own():
        return outside.call(outside.stack[-1], function, args, kwargs, _apart, name)


def _text(original: Callable[..., str]) -> Callable[..., str]:
    """Of a tensor, for messages: that of the call that is traced."""

    def text(tensor: torch.Tensor, *args: Any, **named: Any) -> str:
        with untraced():
            return original(tensor, *args, **named)

    return text


def _place() -> str:
    """The line of the user's code that is running."""
    own = (os.path.dirname(__file__), torch.__file__.rsplit("/", 1)[0])
    for frame in reversed(traceback.extract_stack()):
        if not frame.filename.startswith(own):
            return f"{frame.filename}:{frame.lineno}"
    return "the module"


def _of_no_trace(function: Callable[..., Any]) -> Callable[..., Any]:
    def read(*arguments: Any, **named: Any) -> Any:
        if not _trace.active or torch._C._get_tracing_state() is None:
            return function(*arguments, **named)
        if _trace.operators is not None:
            _trace.operators.check_size(arguments[0], _place)
        with untraced():
            found = _sizes.sizes(function(*arguments, **named))
            return counted(arguments[0], found, (*arguments[1:], *named.values()))

    return read


def _value_read(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def read(tensor: torch.Tensor, *arguments: Any, **named: Any) -> Any:
        if not _trace.active or torch._C._get_tracing_state() is None:
            return function(tensor, *arguments, **named)
        inputs, sizes = made_of(tensor)
        if inputs and name in ("__bool__", "item") and tensor.numel() == 1:
            wanted = passing(sys._getframe(1))
            if wanted is not None:
                return _checked(tensor, wanted)
            asked = _trace.operators.chosen.asked(sys._getframe(1), tensor) if name == "__bool__" and _trace.operators is not None else None
            if asked is not None:
                return asked
        if inputs:
            raise UnsupportedError(f"{_place()} needs the numbers of a tensor in Python ({name}), which differ from call to call")
        if sizes:
            _sizes.read()
        with untraced():
            return function(tensor, *arguments, **named)

    return read


class _Fails(Exception):
    """The call that is traced raises, as it does in PyTorch."""


def _checked(tensor: torch.Tensor, wanted: bool) -> bool:
    """The truth of a tensor whose other truth would raise."""
    with untraced():
        found = bool(tensor.detach())
    if found != wanted:
        raise _Fails(f"a check at {_place()} fails")
    _trace.noted.failing.append(failing(tensor, wanted))
    _trace.noted.checks.append(_place())
    return wanted


def _check_all(original: Callable[..., Any], condition: int) -> Callable[..., Any]:
    """torch._check_tensor_all and the like, whose argument `condition` is the tensor."""

    def check(*args: Any, **named: Any) -> Any:
        tensor = args[condition] if len(args) > condition else named.get("cond")
        if not traces() or not isinstance(tensor, torch.Tensor) or not made_of(tensor)[0]:
            return original(*args, **named)
        _checked(tensor.all(), True)

    return check


def _batch_norm(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def batch_norm(input: torch.Tensor, running_mean: Optional[torch.Tensor], running_var: Optional[torch.Tensor],
                   weight: Optional[torch.Tensor] = None, bias: Optional[torch.Tensor] = None, training: bool = False,
                   momentum: float = 0.1, eps: float = 1e-5) -> torch.Tensor:  # fmt: skip
        if not _trace.active or not _trace.apart or not training or running_mean is None or running_var is None:
            return original(input, running_mean, running_var, weight, bias, training, momentum, eps)
        sizes = tuple([int.__int__(size) for axis, size in enumerate(input.shape) if axis != 1])
        if math.prod(sizes) < 2:
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {input.shape}")
        y, mean, variance = torch.native_batch_norm(input, weight, bias, None, None, True, 1.0, eps)
        _trace.noted.statistics.append(BatchStatistics(mean, variance, sizes, running_mean, running_var, momentum))
        return y

    return batch_norm


def _instance_norm(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Its running statistics follow the means of those of the instances, which have their own variance each: so does a BatchNormalization of two
    rows with this mean and variance, whose result is of no use. PyTorch's ATen/native/Normalization.cpp, instance_norm."""

    def instance_norm(input: torch.Tensor, running_mean: Optional[torch.Tensor] = None, running_var: Optional[torch.Tensor] = None,
                      weight: Optional[torch.Tensor] = None, bias: Optional[torch.Tensor] = None, use_input_stats: bool = True,
                      momentum: float = 0.1, eps: float = 1e-5) -> torch.Tensor:  # fmt: skip
        if not _trace.active or not use_input_stats or running_mean is None or running_var is None:
            return original(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)
        y = original(input, None, None, weight, bias, True, momentum, eps)
        x, axes, regions = input.detach(), tuple(range(2, input.dim())), _regions()
        count = math.prod([int.__int__(input.shape[axis]) for axis in axes])
        with contextlib.nullcontext() if regions is None else regions.without():
            mean = x.mean(axes, keepdim=True)
            deviation = ((x - mean).square().mean(axes).mean(0) * (count / (count - 1) / 2)).sqrt()
            center = mean.reshape(mean.shape[:2]).mean(0)
            with untraced():
                signs = torch.tensor([[-1], [1]], dtype=x.dtype, device=x.device)
                scale, shift = torch.ones_like(running_mean), torch.zeros_like(running_mean)  # without which exporters ask for sizes
            moved = functional.batch_norm(center + signs * deviation, running_mean, running_var, scale, shift, True, momentum)
            nothing = 0 * moved.detach().sum()
        return y if _trace.apart else y + nothing  # else it would be dead

    return instance_norm


def _embedding(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def embedding(input: torch.Tensor, weight: torch.Tensor, padding_idx: Optional[int] = None, *rest: Any, **named: Any) -> torch.Tensor:
        if not _trace.active:
            return original(input, weight, padding_idx, *rest, **named)
        given = dict(zip(("max_norm", "norm_type", "scale_grad_by_freq"), rest), **named)
        refuse_rows_that_change("embedding", weight, given.get("max_norm"), given.get("scale_grad_by_freq", False))
        rows = original(input, weight, None, *rest, **named)
        if padding_idx is None:
            return rows
        padding = (input == padding_idx % weight.shape[0]).unsqueeze(-1)
        return torch.where(padding, rows.detach(), rows)

    return embedding


def _cross_entropy(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def cross_entropy(input: torch.Tensor, target: torch.Tensor, weight: Optional[torch.Tensor] = None, size_average: Any = None,
                      ignore_index: int = -100, reduce: Any = None, reduction: str = "mean", label_smoothing: float = 0.0) -> torch.Tensor:  # fmt: skip
        if not _trace.active or label_smoothing == 0.0 or target.is_floating_point():
            return original(input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing)
        axis = 0 if input.dim() == 1 else 1
        logs = functional.log_softmax(input, axis)
        nll = functional.nll_loss(logs, target, weight, ignore_index=ignore_index, reduction=reduction)
        column = [1] * input.dim()
        column[axis] = -1
        smooth = -(logs if weight is None else logs * weight.reshape(column)).sum(axis)
        counted = (target != ignore_index).to(input.dtype)
        smooth = smooth * counted
        if reduction == "mean":
            smooth = smooth.sum() / (counted if weight is None else weight[target.masked_fill(target == ignore_index, 0)] * counted).sum()
        elif reduction == "sum":
            smooth = smooth.sum()
        return (1 - label_smoothing) * nll + label_smoothing / input.shape[axis] * smooth

    return cross_entropy


def _decomposed(original: Callable[..., torch.Tensor], body: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def call(*args: Any, **named: Any) -> torch.Tensor:
        return (body if _trace.active else original)(*args, **named)

    return call


def _decomposed_in_f64(original: Callable[..., torch.Tensor], body: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def call(input: torch.Tensor, inplace: bool = False) -> torch.Tensor:
        if _trace.active and input.dtype == torch.float64:
            return input.copy_(body(input)) if inplace else body(input)
        return original(input, inplace)

    return call


def _of_numbers(original: Callable[..., Any], body: Callable[[float], float]) -> Callable[..., Any]:
    """Code for tracers hands sizes to torch.ceil and the like, as tensors: here they are numbers."""

    def call(input: Any, *args: Any, **named: Any) -> Any:
        return body(input) if _trace.active and isinstance(input, (int, float)) else original(input, *args, **named)

    return call


def _pad(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def pad(input: torch.Tensor, pad: Any, mode: str = "constant", value: Any = None) -> torch.Tensor:
        if _trace.active and mode == "circular":
            return pad_circular(input, pad)
        return original(input, pad, mode, value)

    return pad


def _adaptive_avg_pool(original: Callable[..., torch.Tensor], axes: int) -> Callable[..., torch.Tensor]:
    def pool(input: torch.Tensor, output_size: Any) -> torch.Tensor:
        sizes = [output_size] * axes if isinstance(output_size, int) else list(output_size)
        if _trace.active and any(size is not None and length % size != 0 for size, length in zip(sizes, input.shape[-axes:])):
            return adaptive_avg_pool(input, sizes)
        return original(input, output_size)

    return pool


def _reentrant(function: Callable[..., Any], args: Sequence[Any], named: Optional[Dict[str, Any]] = None) -> Any:
    """torch.utils.checkpoint with use_reentrant=True, its default: where no argument has a gradient there is none, of parameters neither."""
    if any(isinstance(value, torch.Tensor) and value.requires_grad for value in args):
        return function(*args, **(named or {}))
    with torch.no_grad():
        return function(*args, **(named or {}))


def _checkpoint(original: Callable[..., Any]) -> Callable[..., Any]:
    def checkpoint(function: Callable[..., Any], *args: Any, use_reentrant: Any = None, preserve_rng_state: Any = None, **named: Any) -> Any:
        if _trace.active:
            return function(*args, **named) if use_reentrant is False else _reentrant(function, args, named)
        given = {"use_reentrant": use_reentrant, "preserve_rng_state": preserve_rng_state}
        return original(function, *args, **{key: value for key, value in given.items() if value is not None}, **named)

    return checkpoint


def _set_data(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """`tensor.data = value`."""
    if not traces():
        _BASE.data.__set__(tensor, value)
        return
    if value.shape != tensor.shape or value.dtype != tensor.dtype:
        raise UnsupportedError(f"{_place()} gives a tensor .data of another shape or type")
    tensor.detach().copy_(value.detach())


def _set_item(original: Callable[..., None]) -> Callable[..., None]:
    """Of PyTorch before 2.0, which shows no mode what is written by []: into what detach() or .data gave, it is written into the tensor itself."""

    def set_item(tensor: torch.Tensor, index: Any, value: Any) -> None:
        base = getattr(tensor, "gradloom_base", None) if traces() else None
        if _trace.operators is not None and traces():
            _trace.operators.check_write(tensor)
        if base is not None and (base.shape, base.stride()) != (tensor.shape, tensor.stride()):
            raise UnsupportedError(f"{_place()} writes by [] into what detach() or .data gave of a view, which PyTorch before 2.0 does not show")
        operators, target = _trace.operators if traces() else None, tensor if base is None else base
        with contextlib.nullcontext() if operators is None else operators.stopping(target if target.is_floating_point() else None):
            original(target, index, value.detach() if base is not None and isinstance(value, torch.Tensor) else value)

    return set_item


def _dropout(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """What drops nothing draws no number, in PyTorch as well."""

    def dropout(input: torch.Tensor, p: float = 0.5, *rest: Any, **named: Any) -> torch.Tensor:
        return input if _trace.active and p == 0 else original(input, p, *rest, **named)

    return dropout


def _patches() -> List[Tuple[Any, str, Any]]:
    tensor, tensor_len = torch.Tensor, torch.Tensor.__len__
    rows: List[Tuple[Any, str, Any]] = [
        (tensor, "shape", property(_of_no_trace(_BASE.shape.__get__))),
        (tensor, "data", property(lambda t: t.detach() if _trace.active else _BASE.data.__get__(t), _set_data)),
        (tensor, "__len__", lambda t: _sizes.as_plain(number_of(_of_no_trace(tensor_len)(t)))),
        (functional, "batch_norm", _batch_norm(functional.batch_norm)),
        (functional, "instance_norm", _instance_norm(functional.instance_norm)),
        (functional, "embedding", _embedding(functional.embedding)),
        (functional, "pad", _pad(functional.pad)),
        (functional, "cross_entropy", _cross_entropy(functional.cross_entropy)),
        (torch.utils.checkpoint, "checkpoint", _checkpoint(torch.utils.checkpoint.checkpoint)),
    ]
    rows += [(functional, name, _adaptive_avg_pool(getattr(functional, name), axes))
             for axes, name in ((1, "adaptive_avg_pool1d"), (2, "adaptive_avg_pool2d"), (3, "adaptive_avg_pool3d"))]  # fmt: skip
    rows += [(torch, name, _check_all(getattr(torch, name), index))
             for name, index in (("_check_tensor_all", 0), ("_check_tensor_all_with", 1), ("_assert_async", 0)) if hasattr(torch, name)]  # fmt: skip
    rows += [(functional, name, _dropout(getattr(functional, name)))
             for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")]  # fmt: skip
    rows += [(torch, name, _of_numbers(getattr(torch, name), body)) for name, body in NUMBERS.items()]
    if int(torch.__version__.split(".")[0]) < 2:
        rows.append((tensor, "__setitem__", _set_item(tensor.__setitem__)))
    if hasattr(torch, "rms_norm"):
        rows.append((torch, "rms_norm", _decomposed(torch.rms_norm, rms_norm)))
    rows += [(owner, "unflatten", _decomposed(owner.unflatten, unflatten)) for owner in (torch, tensor)]  # PyTorch 1.13's exporter lacks it
    function = torch.autograd.Function
    apply = vars(function).get("apply", vars(torch._C._FunctionBase)["apply"])
    rows += [(torch.nn.Module, "__call__", _call(torch.nn.Module.__call__)), (function, "apply", _apply(apply))]
    rows += [*autocast_patches(_regions), *cast_patches(_casts), *_sizes.math_patches()]
    rows += [(owner, name, _value_read(name, getattr(owner, name))) for owner in (torch, tensor) for name in ("equal", "allclose", "is_nonzero")]
    rows += [(functional, name, _decomposed(getattr(functional, name), body)) for name, body in DECOMPOSITIONS.items()]
    rows += [(functional, name, in_f32(_decomposed(getattr(functional, name), body), _regions)) for name, body in LOSSES.items()]
    rows += [(functional, name, _decomposed_in_f64(getattr(functional, name), body)) for name, body in DECOMPOSED_IN_F64.items()]
    rows += [(tensor, name, _text(getattr(tensor, name))) for name in ("__format__", "__repr__")]
    rows += [(tensor, name, _of_no_trace(getattr(tensor, name))) for name in ("size", "numel", "nelement")]
    rows += [(tensor, name, _value_read(name, getattr(tensor, name)))
             for name in ("__bool__", "__int__", "__float__", "__complex__", "__index__", "item", "tolist", "numpy", "__array__", "__dlpack__",
                          "__contains__")]  # fmt: skip
    rows += [(owner, "to_dlpack", _value_read("to_dlpack", owner.to_dlpack)) for owner in (torch, torch.utils.dlpack) if hasattr(owner, "to_dlpack")]
    return rows


@contextlib.contextmanager
def tracing(outside: Outside, casts: Casts, apart: bool = True) -> Iterator[Noted]:
    """While a module's forward is traced, and `casts` knows where it is. apart: training BatchNormalizations give their statistics to what is
    noted. REQUIRES `lock`."""
    kept: List[Tuple[Any, str, Optional[Any]]] = []
    _trace.active, _trace.apart, _trace.noted, _trace.outside = True, apart, Noted([], [], []), outside
    outside.casts = casts
    try:
        for owner, name, replacement in _patches():
            own: Dict[str, Any] = vars(owner)
            kept.append((owner, name, own.get(name)))
            setattr(owner, name, replacement)
        with Operators(_in_pytorch, outside.fixed, outside.takes_rows, outside.one_batch) as operators:
            _trace.operators = operators
            yield _trace.noted
    finally:
        if _trace.operators is not None:
            guards = _trace.operators.chosen.guards
            outside.rows_refused = guards.refused
            guards.end()
        _trace.active, _trace.outside, _trace.operators = False, None, None
        for owner, name, before in reversed(kept):
            if before is None:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
