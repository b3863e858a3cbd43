"""What of a module stays in PyTorch while the rest of it is traced.

A call that is outside (a submodule, or a torch.autograd.Function, whose backward no trace shows) runs as it is during the trace,
and the file gets nodes that read its tensors and give its results. The file is then cut there (_onnx_parts.py), and each call of
the whole runs what lies between.

What a trace cannot take is located on the way: an exception belongs to the innermost submodule that was running, an operator
without ONNX to the submodule that its node names, and so do the nodes that the engine refuses. The trace goes on behind each,
so that one pass finds all; with these outside the next trace is whole.
"""

import contextlib
import os
import re
import sys
import warnings
from typing import Any, Callable, ContextManager, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple, TypeVar

import torch

from .._library import UnsupportedError
from .. import _onnx_file
from . import _structure
from ._casts import Casts, Told
from ._members import exchanged, members
from ._plain import Plain, Snapshot
from ._regions import Regions, without_labels
from ._rows import refuse_rows

_Made = TypeVar("_Made")
DOMAIN = "gradloom"  # of what passes PyTorch's exporter in words of ours


class Refusal(NamedTuple):
    """Why a submodule cannot be traced; path "" is the module itself."""

    path: str
    kind: str  # its type
    reason: str

    def __str__(self) -> str:
        return f"{self.path} ({self.kind}): {self.reason}" if self.path else self.reason


class Call(NamedTuple):
    """One call outside, as the trace saw it."""

    path: str
    kind: str  # the type of the submodule, the Function, or the name of a function of torch
    function: Callable[..., Any]
    is_module: bool
    gradients: bool  # False: inside no_grad
    region: Optional[Tuple[str, Optional[torch.dtype]]]  # of torch.autocast inside the forward: Regions.innermost
    arguments: Any  # description of (args, kwargs)
    given: List[torch.Tensor]  # the arguments' tensors during the trace: good where they are constants
    result: Any
    places: List[int]  # for each tensor of the result its output, or -1 - i for argument i itself
    outputs: List[Tuple[Tuple[int, ...], torch.dtype, bool]]  # shape, dtype, whether it has a gradient

    def __str__(self) -> str:
        if self.is_module:
            return f"{self.path} ({self.kind})"
        name = _title(self.kind)
        return f"{name} in {self.path}" if self.path else name

    def run(self, given: Sequence[torch.Tensor]) -> Dict[int, torch.Tensor]:
        """Its results by the numbers of the outputs, which are as in the trace, else UnsupportedError."""
        args, kwargs = _structure.unflatten(self.arguments, iter(given))
        with self._autocast():
            result = self.function(*args, **kwargs)
        tensors: List[torch.Tensor] = []
        description = _structure.flatten(result, tensors, f"the results of {self}: ")
        if description != self.result or len(tensors) != len(self.places):
            raise self._differs()
        made = {place: tensor for place, tensor in zip(self.places, tensors) if place >= 0}
        for place, tensor in made.items():
            shape, _, gradient = self.outputs[place]
            if tuple(tensor.shape) != shape or (tensor.requires_grad and not gradient):
                raise self._differs()
        return made

    def _autocast(self) -> ContextManager[Any]:
        if self.region is None:
            return contextlib.nullcontext()
        kind, cast = self.region
        return torch.autocast(kind, cast, enabled=cast is not None)

    def _differs(self) -> UnsupportedError:
        return UnsupportedError(f"the results of {self}, which runs in PyTorch, have another structure or other shapes than in an earlier call: "
                                f"wrap its neighbours in gradloom.torch.Module, not what holds it")  # fmt: skip


def _title(kind: str) -> str:
    """How its user knows a function that is outside."""
    return kind if kind.startswith("torch.") else f"torch.autograd.Function {kind}"


class Submodule:
    """A submodule as a function of its parameters and arguments."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module, self._slots = module, members(module, "_parameters").slots

    def parameters(self) -> List[torch.Tensor]:
        """What stands in its slots now."""
        return [places[0][0]._parameters[places[0][1]] for places in self._slots]  # type: ignore[misc]

    def __call__(self, parameters: Sequence[torch.Tensor], *args: Any, **kwargs: Any) -> Any:
        with exchanged(self._module, ("_parameters", self._slots, parameters)):
            return self._module(*args, **kwargs)


class Located(UnsupportedError):
    """Refusals that were found together."""

    def __init__(self, refusals: Sequence[Refusal], code: int = 3) -> None:
        super().__init__("; ".join(map(str, refusals)), code)
        self.refusals = list(refusals)


def whole(error: UnsupportedError) -> UnsupportedError:
    """One of the whole module, wherever it is raised."""
    error.gradloom_whole = True  # type: ignore[attr-defined]
    return error


class Outside:
    """The parts of `module` that are outside, and what was found while it was traced."""

    def __init__(self, module: torch.nn.Module, unnamed: str = "", owns_parameters: bool = False, sees_left: bool = False) -> None:
        """unnamed: a path that names do not show, besides the module's own. owns_parameters: those of submodules outside are arguments of
        their calls: the training is the engine's. sees_left: a submodule that leaves a tensor in an attribute is outside, so that it is there after each call."""
        self.owns_parameters, self.sees_left = owns_parameters, sees_left
        self.paths = {id(part): path for path, part in module.named_modules()}
        self.modules = dict(module.named_modules())
        self.chosen: Dict[str, Refusal] = {}  # of earlier traces, by path
        self.calls: List[Call] = []
        self.found: List[Refusal] = []
        self.stack: List[str] = []
        self.casts = Casts(Regions("cpu", None), Told())  # of the trace that runs
        self.takes_rows, self.rows_refused = True, False  # that masks choose (_rows.py): by the next trace, by the last one
        self.one_batch = False  # what is traced will be given the same data in each call
        self.plain = Plain(self.modules.values())
        self._found_as = Snapshot([], [])  # by tried()
        self.fixed: Dict[int, str] = {}  # tensors of the call that a trace may not write, by id
        self._unnamed = ("", unnamed)
        self._scopes: Dict[str, str] = {"": ""}

    @property
    def regions(self) -> Regions:
        return self.casts.regions

    def begin(self) -> None:
        """Another trace begins, of modules as the first one found them."""
        self._found_as.restore()
        self.calls, self.found, self.stack = [], [], []

    def owns(self) -> Set[int]:
        """ids of the submodules that are outside, with all that is in them."""
        return {id(part) for path in self.chosen for part in self.modules[path].modules()}

    def title(self, path: str) -> str:
        """How its user knows a submodule or parameter."""
        unnamed = self._unnamed[1]
        return path[len(unnamed) + 1 :] if unnamed and path.startswith(unnamed + ".") else path

    def label(self, path: str) -> str:
        """How names of nodes show a submodule: its name, with the list that holds it."""
        if path in self._unnamed:
            return ""
        atoms = path.split(".")
        last = next((i for i in reversed(range(len(atoms))) if not atoms[i].isnumeric()), 0)
        return ".".join(atoms[last:])

    @contextlib.contextmanager
    def entered(self, path: str) -> Iterator[None]:
        self.stack.append(path)
        labels = [label for label in map(self.label, self.stack) if label]
        self._scopes.setdefault("/".join(labels), path)
        try:
            yield
        finally:
            self.stack.pop()

    def path_of(self, scope: str) -> str:
        """The submodule of a node whose name begins with the labels of the running ones."""
        scope = without_labels(scope)
        while scope not in self._scopes:
            scope = scope.rpartition("/")[0]
        return self._scopes[scope]

    def refuse(self, path: str, reason: str) -> None:
        if not any(other.path == path or (other.path and path.startswith(other.path + ".")) for other in self.found):
            self.found.append(Refusal(path, type(self.modules[path]).__name__, reason))

    def in_order(self, refusals: Sequence[Refusal]) -> List[Refusal]:
        """In the order of the submodules; the module itself comes last."""
        order = {path: index if path else len(self.modules) for index, path in enumerate(self.modules)}
        return sorted(refusals, key=lambda refusal: order.get(refusal.path, len(order)))

    def located(self, model: bytes, error: UnsupportedError) -> UnsupportedError:
        """The engine's refusal of a file, with the submodules whose nodes it names."""
        text, places = str(error), {}  # type: Tuple[str, Dict[str, List[str]]]
        words = set(re.split(r"[\s(),;'\"]+", text))
        for name, operator in _onnx_file.names(model):
            if name in words:
                places.setdefault(self.path_of(name.rpartition("/")[0].strip("/")), []).append(operator)
        many = len(places) > 1
        return Located([Refusal(path, type(self.modules[path]).__name__, f"the engine lacks {', '.join(sorted(set(operators)))}" if many else text)
                        for path, operators in places.items()] or [Refusal("", "", text)], error.code)  # fmt: skip

    def error(self, refusals: Sequence[Refusal], code: int = 3) -> Located:
        """Refusals for the user."""
        return Located([refusal._replace(path=self.title(refusal.path)) for refusal in self.in_order(refusals)], code)

    def told(self) -> List[str]:
        """What runs in PyTorch, and why, a line each."""
        lines = [f"{self.title(r.path)} ({r.kind}) runs in PyTorch: {r.reason}" for r in self.in_order(list(self.chosen.values()))]
        lines += [f"{call} runs in PyTorch, which alone knows its backward" for call in self.calls if not call.is_module]
        return list(dict.fromkeys(lines))

    def give_up(self) -> None:
        """No trace was made."""
        self._found_as.restore()

    def hooked(self) -> List[Refusal]:
        """Hooks on gradients inside the module would never be called."""
        return [Refusal(path, type(part).__name__, "it has a backward hook") for path, part in self.modules.items()
                if path not in self._unnamed and (part._backward_hooks or getattr(part, "_backward_pre_hooks", None))]  # fmt: skip

    def tried(self, make: Callable[[], _Made]) -> Optional[_Made]:
        """What `make` makes of a trace, of which ever more is outside; None: the whole stands in the way."""
        self._found_as = self.plain.snapshot()
        self.choose(self.hooked())
        while "" not in self.chosen:
            try:
                return make()
            except Located as error:
                if not self.choose(error.refusals):
                    break
            except Exception:
                self.give_up()
                raise
        return None

    def choose(self, refusals: Sequence[Refusal]) -> bool:
        """Takes the refused submodules outside; whether anything is left that a trace may try."""
        news = [refusal for refusal in refusals if refusal.path not in self.chosen]
        for refusal in news:
            self.chosen[refusal.path] = refusal
        return bool(news) and "" not in self.chosen

    def call(self, path: str, function: Callable[..., Any], args: Any, kwargs: Any, apart: Callable[[], Any], kind: str = "") -> Any:
        """kind: the name of what is no submodule. Runs `function` as it is, within `apart()`, and makes its results values of the trace. Raises UnsupportedError where a call
        between parts of a plan could not be the same."""
        is_module = isinstance(function, torch.nn.Module)
        given: List[torch.Tensor] = []
        kind = kind or type(function).__name__
        shown = self.title(path) if is_module or path not in self._unnamed else ""
        what = shown if is_module else _title(kind)
        if isinstance(function, torch.nn.Module) and self.owns_parameters:
            function = Submodule(function)
            args = (function.parameters(), *args)
        arguments = _structure.flatten((args, kwargs), given, f"{what}: ")
        refuse_rows(given, f"{what} runs in PyTorch on")
        versions = [tensor._version for tensor in given]
        with apart():
            result = function(*args, **kwargs)
            after: List[torch.Tensor] = []
            same = _structure.flatten((args, kwargs), after, "") == arguments and [id(t) for t in after] == [id(t) for t in given]
            if not same or [tensor._version for tensor in given] != versions:
                raise UnsupportedError(f"{what} changes its arguments in place")
            tensors: List[torch.Tensor] = []
            description = _structure.flatten(result, tensors, f"the results of {what}: ")
            known = {id(tensor): -1 - index for index, tensor in enumerate(given)}
            if all(id(tensor) in known for tensor in tensors):  # something must stand for the call
                known.clear()
            outputs: List[torch.Tensor] = []
            for tensor in tensors:
                if id(tensor) not in known:
                    known[id(tensor)] = len(outputs)
                    outputs.append(tensor)
            values = [tensor.detach() for tensor in outputs]
        if not tensors:
            raise UnsupportedError(f"{what} returns no tensor")
        places = [known[id(tensor)] for tensor in tensors]
        types = [(tuple(t.shape), t.dtype, t.requires_grad) for t in outputs]
        self.calls.append(Call(shown, kind, function, is_module, torch.is_grad_enabled(), self.regions.innermost(), arguments, list(given),
                               description, places, types))  # fmt: skip
        read = list(given) or [torch.zeros(())]
        _values.append(values)
        try:
            traced = [torch.ops.gradloom.outside(len(self.calls) - 1, index, read) for index in range(len(outputs))]
        finally:
            _values.pop()
        for tensor, (_, _, gradient) in zip(traced, types):
            if gradient and not tensor.requires_grad:
                tensor.requires_grad_().gradloom_outside = True
        return _structure.unflatten(description, iter([traced[place] if place >= 0 else given[-1 - place] for place in places]))


_values: List[List[torch.Tensor]] = []  # results of the call that is being made part of a trace, which holds the lock
OPERATORS = torch.library.Library(DOMAIN, "DEF")
OPERATORS.define("outside(int call, int result, Tensor[] read) -> Tensor")
OPERATORS.impl("outside", lambda call, result, read: _values[-1][result].detach(), "CompositeExplicitAutograd")


def outside_symbolic(g: Any, call: Any, result: Any, read: Any) -> Any:
    helper = torch.onnx.symbolic_helper
    numbers = {"call_i": helper._maybe_get_const(call, "i"), "result_i": helper._maybe_get_const(result, "i")}
    return g.op(f"{DOMAIN}::Outside", *helper._unpack_list(read), **numbers).setType(g.original_node.output().type())


def warn(text: str) -> None:
    """A warning at the caller's line."""
    ours = (os.path.dirname(__file__), os.path.dirname(torch.__file__))
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(ours):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)


def refused(name: str, error: UnsupportedError, whole: bool = True) -> UnsupportedError:
    """What cannot run, with the remedy. whole: the module as a whole may run in PyTorch."""
    remedy = ' (fallback="torch" runs these parts in PyTorch and the rest in the engine)'
    if not isinstance(error, Located) or any(not refusal.path for refusal in error.refusals):
        remedy = ' (fallback="torch" runs it in PyTorch)' if whole else ""
    return UnsupportedError(f"{name}: {error}{remedy}", error.code)


def reason_of(error: Exception) -> str:
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason given")
    return first if isinstance(error, UnsupportedError) else f"PyTorch cannot export it ({type(error).__name__}: {first})"


def operators_refused(missing: Dict[str, Dict[str, Optional[str]]]) -> Dict[str, str]:
    """A reason for each path. missing: for each path the operators, with what was wrong where the exporter knows them."""
    reasons = {}
    for path, operators in missing.items():
        named = {name: why for name, why in operators.items() if not name.startswith("prim::")} or operators
        lacking = sorted(name for name, why in named.items() if why is None)
        parts = [f"PyTorch's exporter lacks {', '.join(lacking)}"] if lacking else []
        parts += [f"PyTorch's exporter cannot write {name} ({why})" for name, why in sorted(named.items()) if why is not None]
        reasons[path] = ", ".join(parts)
    return reasons
