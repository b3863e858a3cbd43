"""gradloom.torch.Module: a torch module whose forward and backward Gradloom computes."""

import collections
import contextlib
import functools
import threading
import warnings
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

import torch

from .._library import UnsupportedError
from . import _structure
from ._export import Exported, Moved, export
from ._recipe import read_recipe, recipe_words
from ._plan import Arenas, Held, Plan

_TWICE = ("the gradient of a gradient was asked of gradloom.torch.Module, which computes first derivatives only: leave the part of the model "
          "that needs second ones unwrapped")  # fmt: skip
_PLANS_OF_ONE_FILE = 4  # for different sets of results with gradients


class _Members:
    """What the module was made of when it was last looked at; a call sees at once whether that still holds."""

    def __init__(self, module: torch.nn.Module) -> None:
        modules = list(module.modules())
        self.modules = modules
        self._children = [(m._modules, list(m._modules.values())) for m in modules if m._modules]
        self._parameters = [m._parameters for m in modules if m._parameters]
        self._buffers = [m._buffers for m in modules if m._buffers]
        self._identities = [id(p) for d in self._parameters for p in d.values()], [id(b) for d in self._buffers for b in d.values()]
        self.parameters = _each_once(self._parameters)
        self.buffers = _each_once(self._buffers)
        self.floating = {p.dtype for p in self.parameters if p.is_floating_point()}

    def hold(self) -> bool:
        for members, kept in self._children:
            if list(members.values()) != kept:
                return False
        parameters, buffers = self._identities
        return [id(p) for d in self._parameters for p in d.values()] == parameters and [id(b) for d in self._buffers for b in d.values()] == buffers

    def modes(self) -> Tuple[bool, ...]:
        return tuple([m.training for m in self.modules])


def _each_once(members: Iterable[Dict[str, Optional[torch.Tensor]]]) -> List[torch.Tensor]:
    return list({id(tensor): tensor for d in members for tensor in d.values() if tensor is not None}.values())


class _Constant:
    """A buffer that a file holds: the same as long as nobody wrote to it, or what was written was the same."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.contents = tensor, tensor.detach().clone()
        self.state = tensor.data_ptr(), tensor._version

    def holds(self) -> bool:
        state = self.tensor.data_ptr(), self.tensor._version
        if state == self.state:
            return True
        now = self.tensor
        if now.shape != self.contents.shape or now.dtype != self.contents.dtype or not torch.equal(now, self.contents):
            return False
        self.state = state
        return True


class _Words(NamedTuple):
    """What every plan of an entry is opened with."""

    recipe: Optional[Dict[str, Any]]
    own: List[str]  # over the recipe's

    def open(self, exported: Exported, wants: Sequence[bool], takes: Optional[Sequence[int]], arenas: Arenas) -> Plan:
        with recipe_words(self.recipe, ["precision"] if "--precision" in self.own else []) as words:
            return Plan(exported, wants, takes, [*words, *self.own], arenas)


class _Entry:
    """Calls of one structure: their file, and its plans by the results whose gradients their backward takes."""

    def __init__(self, members: _Members, exported: Exported, wants: Sequence[bool], words: _Words, arenas: Arenas) -> None:
        self.members, self.exported, self.wants = members, exported, wants
        self._words, self._arenas = words, arenas
        self.constants = [_Constant(tensor) for tensor in exported.constants]
        self.results = exported.results
        self._types = [(t.shape, t.dtype) for t in exported.parameters.tensors]
        self._addresses: List[int] = []
        self._plans: Dict[Tuple[int, ...], Plan] = {}
        first = words.open(exported, wants, None, arenas)
        self.takes = tuple(first.takes)  # all results with gradients
        self.silent = [index for index in range(self.results) if index not in self.takes]
        self.expected = self.takes
        self._plans[self.takes] = first
        self.lock = threading.Lock()

    def fits(self) -> bool:
        """Whether the parameters have the types that they had. What has not moved has."""
        addresses = [p.data_ptr() for p in self.members.parameters]
        if addresses != self._addresses:
            if [(p.shape, p.dtype) for p in self.members.parameters] != self._types:
                return False
            self._addresses = addresses
        return True

    def plan(self, takes: Tuple[int, ...]) -> Plan:
        with self.lock:
            found = self._plans.get(takes)
            if found is None:
                if len(self._plans) >= _PLANS_OF_ONE_FILE:
                    self.expected = takes = self.takes
                    return self._plans[takes]
                found = self._plans[takes] = self._words.open(self.exported, self.wants, takes, self._arenas)
            return found


class _Run:
    """One call: what its backward needs to know."""

    def __init__(self, entry: _Entry, seed: int) -> None:
        self.entry, self.seed = entry, seed
        self.plan = entry.plan(entry.expected)
        self.held: Optional[Held] = None

    def forward(self, tensors: Sequence[torch.Tensor]) -> List[torch.Tensor]:
        outputs, self.held = self.plan.forward([t.data_ptr() for t in tensors], self.seed)
        _follow(self.entry.exported, outputs)
        if self.plan.no_grad:
            self.held = None
        return outputs[: self.entry.results]

    def backward(self, tensors: Sequence[torch.Tensor], gradients: Sequence[Optional[torch.Tensor]]) -> List[Optional[torch.Tensor]]:
        given = {index: gradient.to(self.plan.results[index][1]).contiguous()
                 for index, gradient in enumerate(gradients) if gradient is not None and index in self.entry.takes}  # fmt: skip
        if not given:
            return [None] * len(tensors)
        takes = tuple(sorted(given))
        addresses = [t.data_ptr() for t in tensors]
        if takes != self.entry.expected:
            self.entry.expected = takes
        held, self.held = self.held, None
        if held is None or not set(takes) <= set(self.plan.takes):  # a second backward, or one by other results than foreseen
            self.plan = self.entry.plan(takes)
            _, held = self.plan.forward(addresses, self.seed)
        shapes = [(tuple(t.shape), t.dtype) for t in tensors]
        return self.plan.backward(addresses, held, self.seed, given, shapes)


def _follow(exported: Exported, outputs: Sequence[torch.Tensor]) -> None:
    """The module's buffers after a call."""
    with torch.no_grad():
        if exported.counters:
            torch._foreach_add_(exported.counters, exported.counts)
        for buffer, output in exported.written:
            buffer.copy_(outputs[output])
        if exported.moved:
            _move(exported.moved, outputs)


def _move(rows: Sequence[Moved], outputs: Sequence[torch.Tensor]) -> None:
    variances = [outputs[row.output + 1] for row in rows]
    torch._foreach_mul_(variances, [row.unbias for row in rows])
    running = [buffer for row in rows for buffer in (row.running_mean, row.running_var)]
    batch = [statistic for row, variance in zip(rows, variances) for statistic in (outputs[row.output], variance)]
    factor = rows[0].factor
    if all(row.factor == factor and row.counter is None and row.later == 0 for row in rows):
        torch._foreach_mul_(running, 1 - factor)
        torch._foreach_add_(running, batch, alpha=factor)
        return
    for index, row in enumerate(rows):
        factor = row.factor if row.counter is None else 1.0 / (float(row.counter) - row.later)
        for buffer, statistic in zip(running[2 * index : 2 * index + 2], batch[2 * index : 2 * index + 2]):
            buffer.lerp_(statistic, factor)


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, run: _Run, *tensors: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        outputs = run.forward(tensors)
        ctx.run = run
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        ctx.mark_non_differentiable(*[outputs[index] for index in run.entry.silent])
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Optional[torch.Tensor]) -> Any:
        tensors = ctx.saved_tensors
        with torch.no_grad():
            found: Sequence[Any] = ctx.run.backward(tensors, gradients)
        if torch.is_grad_enabled():  # create_graph
            present = [index for index, gradient in enumerate(found) if gradient is not None]
            leaves = [found[index].requires_grad_() for index in present]
            late = torch._C._functions.DelayedError(_TWICE.encode(), len(leaves))(*leaves)
            late = late if isinstance(late, tuple) else (late,)
            found = [None] * len(found)
            for index, gradient in zip(present, late):
                found[index] = gradient
        return (None, *found)


if hasattr(torch, "get_autocast_dtype"):

    def _autocast() -> Optional[torch.dtype]:
        """The type of a running torch.autocast for the CPU."""
        return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None

else:  # before PyTorch 2.4

    def _autocast() -> Optional[torch.dtype]:
        """The type of a running torch.autocast for the CPU."""
        return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None


def _forward_like(module: torch.nn.Module, engine: "_Engine") -> Callable[..., Any]:
    """A forward with the signature of the module's: trainers look at it."""

    @functools.wraps(module.forward)
    def forward(*args: Any, **kwargs: Any) -> Any:
        return engine(args, kwargs)

    return forward


class Module(torch.nn.Module):
    """A torch module whose forward and backward Gradloom computes; the training loop stays as it is.

        model = gradloom.torch.Module(model)

    It is the module's double: parameters(), state_dict(), to(), train() and all other members are those of `module`, with the
    same names. On the first call with arguments of new structure, shapes, types or mode the module is exported and compiled;
    later calls run what was made then. Parameters, gradients, arguments and results are torch's own memory.

    module: may be part of a larger model. Its forward must do the same operators for all arguments of equal shapes.
    recipe: a recipe file, its text or its dict: passes, rules, planner, precision and threads are taken from it.
    fallback: "torch": what cannot be exported or has no kernel runs in PyTorch, and a warning names it once; None: it is an
    UnsupportedError.
    plans: how many exported files are kept; the least recently used goes first.
    """

    def __init__(self, module: torch.nn.Module, recipe: Any = None, fallback: Optional[str] = None, plans: int = 16) -> None:
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"gradloom.torch.Module wraps a torch.nn.Module, not {type(module).__name__}")
        if fallback not in (None, "torch"):
            raise ValueError(f"fallback is None or 'torch', not {fallback!r}")
        if plans < 1:
            raise ValueError("plans is at least 1")
        self.__dict__["_gradloom"] = _Engine(module, recipe, fallback, plans)
        super().__init__()
        self._share()
        self.__dict__["forward"] = _forward_like(module, self._gradloom)

    def _share(self) -> None:
        source = self._gradloom.module
        for members in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
            self.__dict__[members] = getattr(source, members)

    @property
    def module(self) -> torch.nn.Module:
        """The wrapped module."""
        return self._gradloom.module

    @property
    def training(self) -> bool:  # type: ignore[override]
        return self._gradloom.module.training

    @training.setter
    def training(self, mode: bool) -> None:
        if "_parameters" in self.__dict__:  # not by nn.Module's own constructor
            self._gradloom.module.training = mode

    def __getattr__(self, name: str) -> Any:
        engine = self.__dict__.get("_gradloom")
        if engine is None:
            raise AttributeError(name)
        return getattr(engine.module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in type(self).__dict__ or name.startswith("_"):
            super().__setattr__(name, value)
        else:
            setattr(self._gradloom.module, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._gradloom.module, name)

    def _apply(self, *args: Any, **kwargs: Any) -> "Module":
        self._gradloom.module._apply(*args, **kwargs)
        self._share()
        return self

    def train(self, mode: bool = True) -> "Module":
        self._gradloom.module.train(mode)
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self._gradloom.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self._gradloom.module.load_state_dict(*args, **kwargs)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._gradloom.module._load_from_state_dict(*args, **kwargs)

    def extra_repr(self) -> str:
        return self._gradloom.module.extra_repr()

    def _get_name(self) -> str:
        return f"gradloom.torch.Module of {self._gradloom.module._get_name()}"

    def __getstate__(self) -> Dict[str, Any]:
        engine = self._gradloom
        return {"module": engine.module, "recipe": engine.recipe, "fallback": engine.fallback, "plans": engine.most}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __getitem__(self, index: Any) -> Any:
        return self._gradloom.module[index]

    def __len__(self) -> int:
        return len(self._gradloom.module)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._gradloom.module)

    def __contains__(self, item: Any) -> bool:
        return item in self._gradloom.module

    def __bool__(self) -> bool:
        return True

    def __dir__(self) -> List[str]:
        return sorted({*super().__dir__(), *dir(self._gradloom.module)})


class _Engine:
    """What a Module has besides the module: its entries by the structure of calls."""

    def __init__(self, module: torch.nn.Module, recipe: Any, fallback: Optional[str], most: int) -> None:
        self.module, self.recipe, self.fallback, self.most = module, read_recipe(recipe), fallback, most
        self._members: Optional[_Members] = None
        self._entries: "collections.OrderedDict[Any, Optional[_Entry]]" = collections.OrderedDict()
        self._changing: Set[int] = set()
        self._arenas = Arenas()
        self._lock = threading.RLock()
        self._warned: Set[str] = set()

    def __call__(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        if torch._C._get_tracing_state() is not None:
            return self.module(*args, **kwargs)
        try:
            return self._call(args, kwargs)
        except _InTorch:
            return self.module(*args, **kwargs)

    def _call(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        tensors: List[torch.Tensor] = []
        try:
            description = _structure.flatten((args, kwargs), tensors, "the module's arguments: ")
        except UnsupportedError as error:
            raise self._refuse(error) from None
        gradients = torch.is_grad_enabled()
        with self._lock:  # a trace exchanges the module's parameters
            entry = self._entry(description, tensors, gradients)
            originals = (*tensors, *entry.members.parameters, *entry.exported.changing)
        given = [t if t.is_contiguous() else t.contiguous() for t in originals]
        seed = int(torch.empty((), dtype=torch.int64).random_()) if entry.exported.random else 0
        run = _Run(entry, seed)
        if gradients and entry.takes:
            outputs: Sequence[torch.Tensor] = _Function.apply(run, *given)
        else:
            with torch.no_grad():
                outputs = run.forward(given)
        results = [outputs[place] if place >= 0 else originals[-1 - place] for place in entry.exported.places]
        return _structure.unflatten(entry.exported.result, iter(results))

    def _entry(self, description: Any, tensors: Sequence[torch.Tensor], gradients: bool) -> _Entry:
        """The entry of a call, which is made when there is none. REQUIRES the lock."""
        members = self._members
        if members is None or not members.hold():
            members = self._members = _Members(self.module)
            self._entries.clear()
        key = (description, tuple([(t.shape, t.dtype, t.requires_grad) for t in tensors]), members.modes(), gradients,
               gradients and tuple([p.requires_grad for p in members.parameters]), _autocast())  # fmt: skip
        known = self._entries.get(key)
        if known is not None and not known.fits():
            self._entries.clear()
        elif known is not None:
            lost = [c.tensor for c in known.constants if not c.holds()]
            if not lost:
                self._entries.move_to_end(key)
                return known
            self._changing.update(id(tensor) for tensor in lost)
        elif key in self._entries:
            raise _InTorch()
        try:
            made: Optional[_Entry] = self._open(description, tensors, members, gradients)
        except UnsupportedError as error:
            refusal = self._refuse(error)
            if not isinstance(refusal, _InTorch):
                raise refusal from None
            made = None
        self._entries[key] = made
        while len(self._entries) > self.most:
            self._entries.popitem(last=False)
        if made is None:
            raise _InTorch()
        return made

    def _open(self, description: Any, tensors: Sequence[torch.Tensor], members: _Members, gradients: bool) -> _Entry:
        elsewhere = [t.device for t in (*tensors, *members.parameters, *members.buffers) if t.device.type != "cpu"]
        if elsewhere:
            raise UnsupportedError(f"a tensor is on {elsewhere[0]}: gradloom.torch.Module computes on the CPU")
        _refuse_hooks(members.modules)
        cast = _autocast()
        words: List[str] = []
        with torch.autocast("cpu", enabled=False) if cast is not None else contextlib.nullcontext():
            exported = export(self.module, description, tensors, self._changing)
        if cast is not None:
            words += ["--precision", f"{_SHORT[cast]}{{list=autocast}}"]
        elif exported.all_f64:
            words += ["--precision", "f64"]
        inputs = (*tensors, *exported.parameters.tensors, *exported.changing)
        wants = [gradients and t.requires_grad for t in inputs]
        return _Entry(members, exported, wants, _Words(self.recipe, words), self._arenas)

    def _refuse(self, error: UnsupportedError) -> Exception:
        """What is raised for what Gradloom cannot run."""
        name = type(self.module).__name__
        if self.fallback is None:
            return UnsupportedError(f"{name}: {error} (fallback=\"torch\" runs it in PyTorch)", error.code)
        if str(error) not in self._warned:
            self._warned.add(str(error))
            warnings.warn(f"gradloom: {name} runs in PyTorch: {error}", stacklevel=5)
        return _InTorch()


_SHORT = {torch.bfloat16: "bf16", torch.float16: "f16"}


class _InTorch(Exception):
    """The call runs in PyTorch."""


def _refuse_hooks(modules: Sequence[torch.nn.Module]) -> None:
    """Hooks on gradients inside the module would never be called."""
    for module in modules[1:]:
        if module._backward_hooks or getattr(module, "_backward_pre_hooks", None):
            raise UnsupportedError(f"a submodule of type {type(module).__name__} has a backward hook")
