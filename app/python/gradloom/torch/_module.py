"""gradloom.torch.Module: a torch module whose forward and backward Gradloom computes."""

import collections
import contextlib
import functools
import itertools
import logging
import os
import threading
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple, Type, Union

import torch

from .._library import Error, UnsupportedError, UsageError
from . import _structure
from ._buckets import Filler, named_sizes
from ._cut import Cut
from ._devices import Place, autocast, place_of, recorded, without_autocast
from ._dynamo import checked_exporter
from ._export import Exported, argument_names, export, told_types
from ._members import Members, each_once
from ._opened import Opened, Unlike, Words
from ._outside import Outside, refused, warn
from ._plain import Plain, Snapshot
from ._plan import Arenas
from ._recipe import about_recipe, read_recipe
from ._regions import has_regions
from ._shapes import Family
from ._twice import Again

_LOG = logging.getLogger("gradloom")  # tells each plan that is made


class _Members(Members):
    """With what else makes a call one of another kind."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__(module)
        self.buffers = each_once(self._buffers)
        self.floating = {p.dtype for p in self.parameters if p.is_floating_point()}
        self.plain = Plain(self.modules)
        self.kind = next((t.device.type for t in (*self.parameters, *self.buffers)), "cpu")


class _Constant:
    """A buffer that a file holds: the same as long as nobody wrote to it, or what was written was the same. What is written through `.data` or
    numpy counts no version: small buffers are compared in each call."""

    SMALL = 4096  # bytes

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.contents = tensor, tensor.detach().clone()
        self.small = tensor.device.type == "cpu" and tensor.numel() * tensor.element_size() <= self.SMALL
        self.state = tensor.data_ptr(), tensor._version

    def holds(self) -> bool:
        state = self.tensor.data_ptr(), self.tensor._version
        if state == self.state and not self.small:
            return True
        now = self.tensor
        if now.shape != self.contents.shape or now.dtype != self.contents.dtype or not _equal(now, self.contents):
            return False
        self.state = state
        return True


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a, b) or (a.is_floating_point() and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True))


class _Entry:
    """Calls of one structure."""

    def __init__(self, members: _Members, exported: Exported, steps: Union[Opened, Cut], constants: List[_Constant]) -> None:
        self.members, self.exported, self.steps, self.constants = members, exported, steps, constants
        written = {id(buffer) for buffer, _ in exported.written}
        self.written = [id(buffer) in written for buffer in exported.changing]
        self._types = [(t.shape, t.dtype, t.device) for t in exported.parameters.tensors]
        self._addresses: List[int] = []

    def as_they_are(self) -> List[torch.Tensor]:
        """The buffers that change, of which a backward may read what they are now."""
        return [buffer.clone() if written else buffer for buffer, written in zip(self.exported.changing, self.written)]

    def fits(self) -> bool:
        """Whether the parameters have the types that they had. What has not moved has."""
        addresses = [p.data_ptr() for p in self.members.parameters]
        if addresses != self._addresses:
            if [(p.shape, p.dtype, p.device) for p in self.members.parameters] != self._types:
                return False
            self._addresses = addresses
        return True


class _Shapes:
    """Calls that differ in sizes alone: the traces that tell the next file, and the buffers that are part of all."""

    def __init__(self) -> None:
        self.family, self.constants = Family(), []  # type: Family, List[_Constant]

    def add(self, sizes: Sequence[int], entry: _Entry) -> None:
        self.family.add(sizes, entry.exported, getattr(entry.steps, "extents", ()))
        if [id(c.tensor) for c in self.constants] == [id(tensor) for tensor in entry.exported.constants]:
            entry.constants = self.constants
        self.constants = entry.constants


@functools.lru_cache(maxsize=None)
def _class_like(kind: Type[torch.nn.Module]) -> "Type[Module]":
    """A class whose name and forward's signature are those of the module's: trainers look at them, and find labels by them."""

    @functools.wraps(kind.forward)
    def forward(self: "Module", *args: Any, **kwargs: Any) -> Any:
        return self._gradloom(args, kwargs)

    return type(f"Module of {kind.__name__}", (Module,), {"forward": forward, "__module__": __name__, "_like": kind})


def _again(kind: "Type[Module]", state: Dict[str, Any]) -> "Module":
    return kind(**state)


class Module(torch.nn.Module):
    """A torch module whose forward and backward Gradloom computes; the training loop stays as it is.

        model = gradloom.torch.Module(model)

    It is the module's double: parameters(), state_dict(), to(), train() and all other members are those of `module`, with the
    same names. On the first call with arguments of new structure, types or mode the module is exported and compiled; later
    calls run what was made then. Other sizes are compiled anew, and exported only until the exports tell the next. Parameters,
    gradients, arguments and results are torch's own memory.

    module: may be part of a larger model. Its forward must do the same operators for all arguments of equal shapes. A
    torch.autograd.Function inside is called between parts of the plan.
    recipe: a recipe file, its text or its dict: passes, rules, planner, precision, threads, recompute and memory budget are taken from it.
    memory_budget: "2GiB": what the module may take, with parameters, their gradients, arguments, results and what a forward keeps: where
    it would take more, forward values are computed again in the backward pass, which changes no number.
    fallback: "torch": the smallest submodules around what cannot be exported or has no kernel run in PyTorch, the rest in the
    engine, and a warning names them once; None: all of it is one UnsupportedError.
    plans: how many exported files are kept; the least recently used goes first.
    exporter: "torchscript" or "dynamo", of PyTorch's two; "auto": the first, and the other where it fails or is gone.
    buckets: lengths are filled up to the next of a few sizes, and results cut back, so that few plans serve all: 64 (its multiples), [32, 64, 128],
    {"input_ids": {1: 64}, ..}, or a gradloom.torch.Buckets, which tells what fills, what is right so and what is checked. Python's
    logger "gradloom" tells each plan that is made (INFO).
    """

    _gradloom: "_Engine"

    def __init__(self, module: torch.nn.Module, recipe: Any = None, fallback: Optional[str] = None, plans: int = 16,
                 memory_budget: Optional[str] = None, exporter: str = "auto", buckets: Any = None) -> None:  # fmt: skip
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"gradloom.torch.Module wraps a torch.nn.Module, not {type(module).__name__}")
        if isinstance(module, torch.jit.ScriptModule):
            raise TypeError("gradloom.torch.Module wraps the module itself, not what torch.jit made of it")
        if fallback not in (None, "torch"):
            raise ValueError(f"fallback is None or 'torch', not {fallback!r}")
        if plans < 1:
            raise ValueError("plans is at least 1")
        self.__dict__["_gradloom"] = _Engine(module, recipe, fallback, plans, memory_budget, checked_exporter(exporter), buckets)
        super().__init__()
        self._share()
        if type(self) is Module:
            kind: Any = type(module)
            self.__class__ = _class_like(kind)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._gradloom(args, kwargs)

    def _share(self) -> None:
        source = self._gradloom.module
        for members in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
            self.__dict__[members] = getattr(source, members)

    @property
    def module(self) -> torch.nn.Module:
        """The wrapped module."""
        return self._gradloom.module

    @property
    def training(self) -> bool:
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
        if name not in (_SHARDED, _STATELESS) and (name in Module.__dict__ or name.startswith("_")):
            super().__setattr__(name, value)
        else:
            setattr(self._gradloom.module, name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__:  # a forward that was put around this one
            object.__delattr__(self, name)
        else:
            delattr(self._gradloom.module, name)

    def _apply(self, *args: Any, **kwargs: Any) -> "Module":
        self._gradloom.module._apply(*args, **kwargs)
        self._share()
        return self

    def train(self, mode: bool = True) -> "Module":
        self._gradloom.module.train(mode)
        return self

    # Another thread's trace exchanges the members for its time.
    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[Tuple[str, torch.nn.Parameter]]:
        with self._gradloom.lock:
            return iter(list(super().named_parameters(*args, **kwargs)))

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[Tuple[str, torch.Tensor]]:
        with self._gradloom.lock:
            return iter(list(super().named_buffers(*args, **kwargs)))

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        with self._gradloom.lock:
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
        return {"module": engine.module, "recipe": engine.recipe, "fallback": engine.fallback, "plans": engine.most, "memory_budget": engine.memory_budget,
                "exporter": engine.exporter, "buckets": engine.buckets}  # fmt: skip

    def __reduce_ex__(self, protocol: Any) -> Any:
        kind = type(self)
        return _again, (Module if "_like" in kind.__dict__ else kind, self.__getstate__())

    def __getitem__(self, index: Any) -> Any:
        module: Any = self._gradloom.module
        return module[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        module: Any = self._gradloom.module
        module[index] = value

    def __delitem__(self, index: Any) -> None:
        module: Any = self._gradloom.module
        del module[index]

    def __len__(self) -> int:
        module: Any = self._gradloom.module
        return len(module)

    def __iter__(self) -> Iterator[Any]:
        module: Any = self._gradloom.module
        return iter(module)

    def __contains__(self, item: Any) -> bool:
        module: Any = self._gradloom.module
        return item in module

    def __bool__(self) -> bool:
        return True

    def __dir__(self) -> List[str]:
        return sorted({*object.__dir__(self), *dir(self._gradloom.module)})


class _Engine:
    """What a Module has besides the module: its entries by the structure of calls."""

    def __init__(self, module: torch.nn.Module, recipe: Any, fallback: Optional[str], most: int, memory_budget: Optional[str],
                 exporter: str, buckets: Any) -> None:  # fmt: skip
        self.module, self.recipe, self.fallback, self.most, self.memory_budget = module, read_recipe(recipe), fallback, most, memory_budget
        self.exporter, self.buckets = exporter, buckets
        self._filler = None if buckets is None else Filler(buckets, module, module, functools.partial(argument_names, module))
        self._made = 0  # plans
        self._members: Optional[_Members] = None
        self._entries: "collections.OrderedDict[Any, Optional[_Entry]]" = collections.OrderedDict()
        self._latest: Tuple[Any, Optional[_Entry]] = None, None  # the last of them, and its key: what is compared needs no hash
        self._shapes: "collections.OrderedDict[Any, _Shapes]" = collections.OrderedDict()
        self._changing: Set[int] = set()
        self._changed: Set[Any] = set()  # kinds of calls whose trace changed attributes of the module
        self._moving: Dict[Any, str] = {}  # those that did it again
        self._refusals: "collections.Counter[Any]" = collections.Counter()
        self._arenas: Dict[Place, Arenas] = {}
        self.lock = threading.RLock()
        self._warned: Set[str] = set()

    def __call__(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        if torch._C._get_tracing_state() is not None:
            return self.module(*args, **kwargs)
        try:
            if _TRANSFORMS is not None and _TRANSFORMS() is not None:
                raise self._refuse(UnsupportedError("the call is inside a transform of torch.func"))
            return self._call(args, kwargs)
        except (_InTorch, Unlike):
            return self.module(*_structure.of_tensors(args), **_structure.of_tensors(kwargs))

    def _call(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        tensors: List[torch.Tensor] = []
        if not kwargs and all([type(argument) is torch.Tensor for argument in args]):
            description = _structure.of_arguments(len(args))
            tensors.extend(args)
        else:
            try:
                description = _structure.flatten((args, kwargs), tensors, "the module's arguments: ")
            except UnsupportedError as error:
                raise self._refuse(error) from None
        gradients, filled = torch.is_grad_enabled(), None
        with self.lock:  # a trace exchanges the module's parameters
            members = self._current()
            if self._filler is not None:
                filled = self._filler.fill(description, tensors)
                tensors = tensors if filled is None else filled.tensors
            entry = self._entry(members, description, tensors, gradients)
            originals = (*tensors, *entry.members.parameters, *entry.exported.changing)
        seed = int(torch.empty((), dtype=torch.int64).random_()) if entry.exported.random else 0
        # A forward writes these buffers, and the next one may come before its backward.
        given = (*originals[: -len(entry.written)], *entry.as_they_are()) if gradients and any(entry.written) else originals
        outputs = entry.steps.run(given, seed, gradients)
        results = [outputs[place] if place >= 0 else originals[-1 - place] for place in entry.exported.places]
        if filled is not None:
            results = filled.cut(entry.exported.result, results)
        return _structure.unflatten(entry.exported.result, iter(results))

    def _current(self) -> _Members:
        members = self._members
        if members is None or not members.hold():
            if any(map(torch.nn.parameter.is_lazy, itertools.chain(self.module.parameters(), self.module.buffers()))):
                raise _InTorch()  # a call makes them
            members = self._members = _Members(self.module)
            self._forget()
            if self._filler is not None:
                self._filler.forget()
        return members

    def _entry(self, members: _Members, description: Any, tensors: Sequence[torch.Tensor], gradients: bool) -> _Entry:
        """The entry of a call, which is made when there is none. REQUIRES the lock."""
        kind = tensors[0].device.type if tensors else members.kind
        key = (description, tuple([(t.shape, t.dtype, t.requires_grad, t.device) for t in tensors]), members.modes(), gradients,
               gradients and tuple([p.requires_grad for p in members.parameters]), autocast(kind), members.plain.number())  # fmt: skip
        latest, known = self._latest
        if known is None or key != latest:
            known = self._entries.get(key)
        if known is not None and not known.fits():
            self._forget()
        elif known is not None:
            # A replay reads a buffer that changes meanwhile: none is a constant of a recorded call's file.
            lost = [c.tensor for c in known.constants if recorded(kind) or not c.holds()]
            if not lost:
                if known is not self._latest[1]:
                    self._entries.move_to_end(key)
                    self._latest = key, known
                return known
            self._changing.update(id(tensor) for tensor in lost)
            self._shapes.clear()
        elif key in self._entries:
            raise _InTorch()
        kind_of_call = key[:-1]
        if kind_of_call in self._moving:
            raise self._refuse(UnsupportedError(self._moving[kind_of_call]))
        if self._refusals[kind_of_call] >= _REFUSALS:
            raise _InTorch()
        if members.plain.count == _MANY_STATES:
            self._tell(f"{', '.join(members.plain.differing)}: an attribute that differs from call to call is another trace for each value; a buffer or an "
                       "argument is not")  # fmt: skip
        before = members.plain.snapshot()
        try:
            made: Optional[_Entry] = self._make(key, tensors, members)
            if self._follow(members.plain, before, kind_of_call):
                key = (*kind_of_call, members.plain.number())
        except UnsupportedError as error:
            refusal = self._refuse(error)
            if not isinstance(refusal, _InTorch):
                raise refusal from None
            made = None
            self._refusals[kind_of_call] += 1
        if made is not None and isinstance(made.steps, Opened) and gradients and self.fallback is not None and not made.exported.random:
            cast = autocast(kind)
            made.steps.again = Again(self.module, self.lock, description, made.exported, None if cast is None else (kind, cast), self._warned)
        self._entries[key] = made
        self._latest = key, made
        while len(self._entries) > self.most:
            self._entries.popitem(last=False)
        if made is None:
            raise _InTorch()
        self._made += 1
        _LOG.info("%s: plan %d: %s", type(self.module).__name__, self._made, named_sizes(argument_names(self.module, description), tensors))
        return made

    def _follow(self, plain: Plain, before: Snapshot, call: Any) -> bool:
        """What a trace has changed of the module's attributes, which had these values. True: it only set some that were None, as the next one would not.
        Raises UnsupportedError where each would change them again."""
        changed = plain.follow(before)
        if not any(changed.values()):
            return bool(changed)
        if call not in self._changed:
            self._changed.add(call)
            return False
        before.restore()
        self._moving[call] = f"its forward changes its attributes from call to call ({', '.join(sorted(changed))}), which a plan does not"
        raise UnsupportedError(self._moving[call])

    def _forget(self) -> None:
        self._changed.clear()
        self._moving.clear()
        self._refusals.clear()
        self._latest = None, None
        self._entries.clear()
        self._shapes.clear()

    def _make(self, key: Any, tensors: Sequence[torch.Tensor], members: _Members) -> _Entry:
        """The entry of a call that has none: from the traces of other shapes where they tell it, else by a trace."""
        place = place_of((*tensors, *members.parameters, *members.buffers))
        place.check_not_recorded()
        if any(getattr(m, _SHARDED, False) for m in members.modules):
            raise UnsupportedError("FSDP shards its parameters, which the engine needs whole: use DistributedDataParallel, or DeepSpeed's ZeRO 1 or 2")
        if any(_STATELESS in vars(m) for m in members.modules):  # of the outermost only its double has the parameters
            refusal: Type[Error] = UsageError if _STATELESS in vars(self.module) else UnsupportedError
            raise refusal("the call is inside functional_call of torch.nn.utils.stateless, whose parameters no trace sees: it takes the module itself")
        description, arguments, modes, gradients, *rest = key
        # Sizes of 0 and 1 broadcast: another graph.
        kinds = tuple([(tuple([min(size, 2) for size in shape]), *kind) for shape, *kind in arguments])
        kind = (description, kinds, modes, gradients, *rest)
        shapes = self._shapes.setdefault(kind, _Shapes())
        self._shapes.move_to_end(kind)
        while len(self._shapes) > self.most:
            self._shapes.popitem(last=False)
        sizes = [size for shape, *_ in arguments for size in shape]
        followed = shapes.family.exported(sizes) if all(constant.holds() for constant in shapes.constants) else None
        if followed is not None:
            with contextlib.suppress(Error):  # a trace tells more
                steps = self._steps(followed.exported, tensors, gradients, autocast(place.device.type), place)
                if isinstance(steps, Opened) and followed.agrees(steps.extents):
                    return _Entry(members, followed.exported, steps, shapes.constants)
        entry = self._open(description, tensors, members, gradients, place)
        shapes.add(sizes, entry)
        return entry

    def _open(self, description: Any, tensors: Sequence[torch.Tensor], members: _Members, gradients: bool, place: Place) -> _Entry:
        outside, cast = Outside(self.module, sees_left=self.fallback is not None), autocast(place.device.type)
        entry = outside.tried(lambda: self._try(description, tensors, members, gradients, outside, cast, place))
        if entry is None or (outside.chosen and self.fallback is None):
            outside.give_up()
            raise outside.error(list(outside.chosen.values()))
        self._tell("; ".join(outside.told()))
        for note in about_recipe(entry.steps.notes):
            self._tell(note)
        return entry

    def _try(self, description: Any, tensors: Sequence[torch.Tensor], members: _Members, gradients: bool, outside: Outside,
             cast: Optional[torch.dtype], place: Place) -> _Entry:  # fmt: skip
        told = None if cast is None else told_types(self.module, description, tensors)
        with without_autocast(place.device.type):
            exported = export(self.module, description, tensors, self._changing, outside, cast, told, self.exporter)
            if cast is None and exported.asked_autocast and has_regions(exported.model):  # where Python gives types that a trace does not know
                told = told_types(self.module, description, tensors)
                exported = export(self.module, description, tensors, self._changing, outside, cast, told, self.exporter)
        try:
            steps = self._steps(exported, tensors, gradients, cast, place)
        except UnsupportedError as error:
            raise outside.located(exported.model, error) from None
        return _Entry(members, exported, steps, [_Constant(tensor) for tensor in exported.constants])

    def _steps(self, exported: Exported, tensors: Sequence[torch.Tensor], gradients: bool, cast: Optional[torch.dtype],
               place: Place) -> Union[Opened, Cut]:  # fmt: skip
        """The file of a call, opened by the engine."""
        words = Words(self.recipe, [] if self.memory_budget is None else ["--memory-budget", self.memory_budget], place, cast)
        wants = [gradients and t.requires_grad for t in (*tensors, *exported.parameters.tensors, *exported.changing)]
        return (Cut if exported.calls else Opened)(exported, wants, words, self._arenas.setdefault(place, Arenas(place.device)))

    def _tell(self, told: str) -> None:
        """What does not run in the engine, once."""
        if told and told not in self._warned:
            self._warned.add(told)
            warn(f"gradloom: {type(self.module).__name__}: {told}")

    def _refuse(self, error: UnsupportedError) -> Exception:
        """What is raised for what Gradloom cannot run."""
        name = type(self.module).__name__
        if self.fallback is None:
            return refused(name, error)
        if str(error) not in self._warned:
            self._warned.add(str(error))
            warn(f"gradloom: {name} runs in PyTorch: {error}")
        return _InTorch()


_FRAMES: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
if hasattr(_FRAMES, "set_code_exec_strategy"):  # a torch.compile around the module does not look into its call
    _SKIP = _FRAMES._FrameAction.SKIP
    _FRAMES.set_code_exec_strategy(_Engine.__call__.__code__, _FRAMES._FrameExecStrategy(_SKIP, _SKIP))
    _Engine.__call__._torchdynamo_disable = True  # type: ignore[attr-defined]
    _Engine.__call__._torchdynamo_disable_msg = "gradloom.torch.Module has plans of its own"  # type: ignore[attr-defined]

# The transform of torch.func that runs; None: PyTorch has none.
_TRANSFORMS = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", None)
_REFUSALS = 3  # of a kind of call, after which no state of the module's attributes is tried
_MANY_STATES = 12  # of a module's attributes: a warning says so

# What FullyShardedDataParallel and fully_shard set in each module that they manage.
_SHARDED = "_is_fsdp_managed_module"
_STATELESS = "_orig_class"  # what functional_call of PyTorch before 2.0 sets in each


class _InTorch(Exception):
    """The call runs in PyTorch."""
