"""gradloom.record: what a training loop does, written into a session while it runs.

Nothing of PyTorch or of this package is changed before a recording begins and after it ends; in between hooks and replaced
functions tell it what happens. Spans are told when they end and lie inside one another by their times, so an exception loses
one and never mixes up others. Kernels are timed by the engine.
"""

import atexit
import contextlib
import ctypes
import functools
import math
import os
import shlex
import sys
import threading
import time
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

import torch
import torch.utils.data.dataloader as dataloader
from torch.optim import optimizer as optimizers

from .._library import Error, UsageError, library
from . import _buckets, _cut, _module, _opened, _outside, _plan, _train_step
from ._module import Module

_clock = time.monotonic_ns
_MOST_NODES = 10_000  # of autograd's graph, in one part


class _Replaced:
    """Attributes of classes and modules that are others for a while."""

    def __init__(self) -> None:
        self._before: List[Tuple[Any, str, Any]] = []
        self._handles: List[Any] = []

    def put(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """make: the new one from the one that is there."""
        self._before.append((owner, name, owner.__dict__[name]))
        setattr(owner, name, make(getattr(owner, name)))

    def hook(self, handle: Any) -> None:
        self._handles.append(handle)

    def undo(self) -> None:
        for handle in self._handles:
            handle.remove()
        for owner, name, before in reversed(self._before):
            setattr(owner, name, before)
        self._before, self._handles = [], []


class _Backward:
    """The backward of a part that runs in PyTorch: from its first gradient to the last of its nodes."""

    def __init__(self, recording: "Recording", name: str) -> None:
        self._recording, self._name = recording, name
        self._start = self._end = 0

    def watch(self, results: Iterable[Any], arguments: Iterable[Any]) -> None:
        start = _clock()
        self._hook(results, arguments)
        self._recording._span("record", "", start, _clock())

    def _hook(self, results: Iterable[Any], arguments: Iterable[Any]) -> None:
        outputs = [t for t in results if isinstance(t, torch.Tensor) and t.grad_fn is not None]
        ends = {t.grad_fn for t in arguments if isinstance(t, torch.Tensor) and t.grad_fn is not None}
        nodes: Dict[Any, List[Any]] = {}  # of the part, each with those that follow it
        waiting = [t.grad_fn for t in outputs]
        while waiting and len(nodes) < _MOST_NODES:
            node = waiting.pop()
            if node is None or node in nodes or node in ends:
                continue
            nodes[node] = [after for after, _ in node.next_functions]
            waiting += nodes[node]
        for node, after in nodes.items():
            if not any(other in nodes for other in after):  # the last one is one of these
                node.register_hook(self._node_done)
        for tensor in outputs:
            if tensor.grad_fn in nodes:
                tensor.register_hook(self._begins)

    def _begins(self, _gradient: torch.Tensor) -> None:
        if not self._start:
            self._start = _clock()
            self._recording._parts.append(self)

    def _node_done(self, *_: Any) -> None:
        self._end = _clock()

    def tell(self) -> None:
        if self._start and self._end:
            self._recording._span("outside", self._name + " backward", self._start, self._end)
        self._start = self._end = 0


def _tensors_in(value: Any, found: List[torch.Tensor]) -> List[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, dict):
        _tensors_in(list(value.values()), found)
    elif isinstance(value, (list, tuple)):
        for one in value:
            _tensors_in(one, found)
    return found


class Recording:
    """What gradloom.record() returns: a recording that goes on until close(), the end of a `with` block, or its last step."""

    def __init__(self, path: Any, steps: Optional[int], skip: int, profile: str, name: str, optimizers: bool) -> None:
        global _current
        if steps is not None and steps < 1:
            raise UsageError(f"steps is at least 1, or None, not {steps}")
        if skip < 0:
            raise UsageError(f"skip is at least 0, not {skip}")
        self.path = os.fspath(path)
        self._engine, self._replaced = library(), _Replaced()
        self._thread, self._most, self._skip = threading.get_ident(), steps, skip
        self._by_optimizer = optimizers
        self._made, self._loss, self._rate = 0, math.nan, math.nan
        self._pending: Optional[Tuple[int, float]] = None  # the end of an optimizer's step, which may be the loop's
        self._optimizer_start = 0
        self._compiling = 0
        self._modules: List[torch.nn.Module] = []  # whose forwards run
        self._label = "module"
        self._labels: "weakref.WeakKeyDictionary[Any, str]" = weakref.WeakKeyDictionary()  # of plans that are watched
        self._paths: "weakref.WeakKeyDictionary[Any, Dict[int, str]]" = weakref.WeakKeyDictionary()
        self._parts: List[_Backward] = []  # of the backward that runs
        self._optimizers: Dict[str, None] = {}
        words = ["--profile", profile, "--name", name, "--command", _command(), "--source", _script_folder()]
        words += ["--steps", str(steps)] if steps is not None else []
        with _lock:
            if _current is not None:
                raise UsageError(f"a recording into {_current.path} goes on: one at a time, close() it first")
            self._handle: Optional[int] = self._engine.open_recorder(self.path, words)
            _current = self
        self._hook()
        atexit.register(self.close)

    # What the user calls.

    @property
    def steps(self) -> int:
        """How many steps are recorded."""
        return self._made

    def step(self, loss: Optional[float] = None) -> None:
        """A step of the loop ends here. From the first call on an optimizer's step ends none."""
        if self._active():
            self._by_optimizer, self._pending = False, None
            if loss is not None:
                self._loss = float(loss)
            self._end_step(_clock(), self._rate)

    @contextlib.contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Marks what the `with` block does, by name."""
        start = _clock()
        try:
            yield
        finally:
            self._span("python", name, start, _clock())

    def data(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The batches; the time of making each is recorded as data. A torch DataLoader needs no such help."""
        source, name = iter(batches), type(batches).__name__
        while True:
            start = self._begin()
            try:
                batch = next(source)
            except StopIteration:
                return
            finally:
                self._span("data", name, start, _clock())
            yield batch

    def close(self) -> None:
        """Ends the recording; the session is whole."""
        if self._pending is not None and self._active():
            self._end_pending()
        self._end("")

    def __enter__(self) -> "Recording":
        return self

    def __exit__(self, kind: Any, error: Any, _trace: Any) -> None:
        if kind is None or issubclass(kind, GeneratorExit):
            return self.close()
        first = next(iter(str(error).splitlines()), "")
        self._end(f"{kind.__name__}: {first}" if first else kind.__name__)

    # The end of steps and of the recording.

    def _active(self) -> bool:
        return self._handle is not None and threading.get_ident() == self._thread

    def _begin(self) -> int:
        """Something begins that no step ends with."""
        if self._pending is not None and self._active():
            self._end_pending()
        return _clock()

    def _end_pending(self) -> None:
        (end, rate), self._pending = self._pending or (0, math.nan), None
        self._end_step(end, rate)

    def _end_step(self, end: int, rate: float) -> None:
        loss, self._loss = self._loss, math.nan
        if self._skip > 0:
            self._skip -= 1
            return self._call("recorder_begin_step", end)
        self._call("recorder_end_step", end, loss, rate)
        if self._handle is None:
            return
        self._made += 1
        if self._made == self._most:
            self._end("")

    def _end(self, failure: str) -> None:
        global _current
        for name in self._optimizers:
            self._call("recorder_tell", b"optimizer", name.encode())
        self._call("recorder_tell", b"torch", torch.__version__.encode())
        with _lock:
            handle, self._handle = self._handle, None
            if _current is self:
                _current = None
        self._replaced.undo()
        atexit.unregister(self.close)
        if handle is not None:
            self._engine.call("recorder_close", handle, failure.encode() or None)

    def _forget(self) -> None:
        """In a child process: what is recorded is the parent's."""
        self._handle = None
        self._replaced.undo()

    def _call(self, function: str, *arguments: Any) -> None:
        """What the session does not take ends the recording, not the loop."""
        if self._handle is None:
            return
        try:
            self._engine.call(function, self._handle, *arguments)
        except Error as error:
            handle, self._handle = self._handle, None
            with contextlib.suppress(Error):
                self._engine.call("recorder_close", handle, None)
            self._end("")
            _outside.warn(f"gradloom: the recording ends: {error}")

    def _span(self, kind: str, name: str, start: int, end: int) -> None:
        if self._skip == 0 and self._active():
            self._call("recorder_span", kind.encode(), name.encode(), start, end)

    # What tells of the loop.

    def _timed(self, kind: str, name: Callable[..., str], begins: bool = False) -> Callable[[Any], Any]:
        """For _Replaced.put: the function, whose calls are spans."""

        def make(function: Any) -> Any:
            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                if not self._active():
                    return function(*args, **kwargs)
                start = self._begin() if begins else _clock()
                try:
                    return function(*args, **kwargs)
                finally:
                    self._span(kind, name(*args), start, _clock())

            return call

        return make

    def _hook(self) -> None:
        put = self._replaced.put
        loader = self._timed("data", _data_set, True)
        put(dataloader._BaseDataLoaderIter, "__next__", loader)
        put(dataloader.DataLoader, "__iter__", loader)
        put(torch.autograd, "backward", functools.partial(self._backward, True))
        put(torch.autograd, "grad", functools.partial(self._backward, False))
        put(torch.nn.Module, "__call__", self._forward)
        if hasattr(optimizers, "register_optimizer_step_pre_hook"):
            self._replaced.hook(optimizers.register_optimizer_step_pre_hook(lambda optimizer, *_: self._optimizer_begins()))
            self._replaced.hook(optimizers.register_optimizer_step_post_hook(lambda optimizer, *_: self._optimizer_ends(optimizer)))
        else:  # before PyTorch 2.1
            put(torch.autograd.profiler, "record_function", self._named_ranges)
        put(_module._Engine, "_make", self._compile(lambda engine, *_: type(engine.module).__name__))
        put(_buckets.Filler, "_looked_at", self._compile(lambda filler, *_: type(filler._model).__name__))
        put(_opened.Words, "open", self._compile(lambda *_: self._current_label()))
        put(_plan.Plan, "forward", self._watched)
        put(_plan.Plan, "backward", self._watched)
        put(_opened._Run, "backward", self._engine_backward)
        put(_cut._Outside, "run", self._function_outside)
        put(_train_step.TrainStep, "step", self._whole_step)
        put(_train_step.TrainStep, "_open", self._compile(lambda *_: "TrainStep"))
        put(_train_step.TrainStep, "_follow", self._compile(lambda *_: "TrainStep"))
        put(_train_step.TrainStep, "_trace", self._compile(lambda *_: "TrainStep"))
        put(_train_step.TrainStep, "_run", self._timed("engine", lambda *_: "TrainStep"))

    def _compile(self, name: Callable[..., str]) -> Callable[[Any], Any]:
        timed = self._timed("compile", name)

        def make(function: Any) -> Any:
            inner = timed(function)

            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                self._compiling += 1  # forwards that run now are traces
                try:
                    return inner(*args, **kwargs)
                finally:
                    self._compiling -= 1

            return call

        return make

    def _backward(self, of_loss: bool, function: Any) -> Any:
        timed = self._timed("backward", lambda *_: "", True)(function)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return timed(*args, **kwargs)
            finally:
                if self._active():
                    self._parts, parts = [], self._parts
                    for part in parts:
                        part.tell()
                    roots = _tensors_in(args[0] if args else kwargs.get("tensors"), [])
                    if of_loss and len(roots) == 1 and roots[0].numel() == 1:
                        self._loss = float(roots[0].detach())

        return call

    def _forward(self, function: Any) -> Any:
        @functools.wraps(function)
        def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if not self._active() or self._compiling or torch._C._get_tracing_state() is not None:
                return function(module, *args, **kwargs)
            around = self._modules[-1] if self._modules else None
            start = self._begin() if around is None else _clock()
            self._modules.append(module)
            try:
                result = function(module, *args, **kwargs)
            finally:
                self._modules.pop()
            if isinstance(module, Module):
                self._span("gradloom", self._name_of(module), start, _clock())
            elif around is None:
                self._span("module", type(module).__name__, start, _clock())
            elif isinstance(around, Module):
                name = self._path_of(around, module)
                self._span("outside", name, start, _clock())
                _Backward(self, name).watch(_tensors_in(result, []), _tensors_in([args, kwargs], []))
            return result

        return call

    def _name_of(self, module: Module) -> str:
        return type(module.module).__name__

    def _current_label(self) -> str:
        """The name of the Module whose forward, or else whose backward, runs."""
        inside = [module for module in self._modules if isinstance(module, Module)]
        return self._name_of(inside[-1]) if inside else self._label

    def _path_of(self, around: Module, module: torch.nn.Module) -> str:
        """What a submodule that runs in PyTorch is called."""
        paths = self._paths.get(around)
        if paths is None or id(module) not in paths:
            paths = self._paths[around] = {id(part): path for path, part in around.module.named_modules()}
        path, kind = paths.get(id(module), ""), type(module).__name__
        return f"{path} ({kind})" if path else kind

    def _watched(self, function: Any) -> Any:
        @functools.wraps(function)
        def call(plan: Any, *args: Any, **kwargs: Any) -> Any:
            if self._active() and plan not in self._labels:
                label = self._current_label()
                self._labels[plan] = label
                self._call("recorder_watch", plan._handle, label.encode())
            return function(plan, *args, **kwargs)

        return call

    def _engine_backward(self, function: Any) -> Any:
        timed = self._timed("gradloom", lambda *_: self._label + " backward")(function)

        @functools.wraps(function)
        def call(run: Any, *args: Any, **kwargs: Any) -> Any:
            if self._active():
                self._label = self._labels.get(run.plan, self._label)
            return timed(run, *args, **kwargs)

        return call

    def _function_outside(self, function: Any) -> Any:
        """torch.autograd.Functions between parts of a plan; submodules there are told by their own hooks."""

        @functools.wraps(function)
        def run(outside: Any, values: Dict[str, torch.Tensor], gradients: bool) -> None:
            if outside.call.is_module or not self._active():
                function(outside, values, gradients)
                return
            given = [values[name] for name, known in outside.reads if known is None]
            start = _clock()
            function(outside, values, gradients)
            name = outside.call.kind
            self._span("outside", name, start, _clock())
            _Backward(self, name).watch([values[made] for made in outside.makes.values()], given)

        return run

    def _whole_step(self, function: Any) -> Any:
        timed = self._timed("gradloom", lambda *_: "TrainStep", True)(function)

        @functools.wraps(function)
        def step(*args: Any, **kwargs: Any) -> Any:
            result = timed(*args, **kwargs)
            if self._active():
                self._loss = float(result)
                if self._by_optimizer:
                    self._pending = _clock(), math.nan
            return result

        return step

    def _optimizer_begins(self) -> None:
        if self._active():
            self._optimizer_start = _clock()

    def _optimizer_ends(self, optimizer: Any) -> None:
        if not self._active() or not self._optimizer_start:
            return
        start, self._optimizer_start, end = self._optimizer_start, 0, _clock()
        name = type(optimizer).__name__
        self._optimizers[name] = None
        self._span("optimizer", name, start, end)
        self._rate = float(optimizer.param_groups[0]["lr"]) if optimizer.param_groups else math.nan
        if self._by_optimizer:
            self._pending = _clock(), self._rate

    def _named_ranges(self, record_function: Any) -> Any:
        """Each optimizer of an older PyTorch runs its step in a range of the profiler's."""
        recording = self

        class Range(record_function):  # type: ignore[misc]
            def __enter__(self) -> Any:
                if self.name.startswith("Optimizer.step#"):
                    self._stepping = sys._getframe(1).f_locals["args"][0]
                    recording._optimizer_begins()
                return super().__enter__()

            def __exit__(self, *error: Any) -> None:
                super().__exit__(*error)
                if hasattr(self, "_stepping"):
                    recording._optimizer_ends(self._stepping)

        return Range


def _data_set(loader: Any) -> str:
    return type(loader.dataset if isinstance(loader, dataloader.DataLoader) else loader._dataset).__name__


def _command() -> str:
    words = [sys.executable or "python", *(getattr(sys, "orig_argv", None) or [sys.executable, *sys.argv])[1:]]
    return " ".join(shlex.quote(word) for word in words)[:4000]


def _script_folder() -> str:
    script = getattr(sys.modules.get("__main__"), "__file__", None)  # an interactive Python has none
    return os.path.dirname(os.path.abspath(script)) if script else os.getcwd()


_lock = threading.Lock()
_current: Optional[Recording] = None


def _in_child() -> None:
    global _lock, _current
    _lock, recording, _current = threading.Lock(), _current, None
    if recording is not None:
        recording._forget()


os.register_at_fork(after_in_child=_in_child)
