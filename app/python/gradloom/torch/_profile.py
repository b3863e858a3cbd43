"""gradloom.torch.profile: steps of a PyTorch loop under PyTorch's own profiler, whose trace names the modules.

Around each module's forward lies a range with the module's path, spelled as scopes of ONNX models are ("blocks.0/attn"). Nothing of
PyTorch is changed before the profile begins and after it ends.
"""

import functools
import os
import threading
import weakref
from typing import Any, Callable, Optional

import torch

from .._library import UsageError
from ..commands import Answer, ask, words_of
from ._record import _Replaced


def scope_of(path: str) -> str:
    """A module's path as the scope of its nodes: "blocks.0.attn" -> "blocks.0/attn". A number belongs to the list before it."""
    scope = ""
    for part in filter(None, path.split(".")):
        scope += ("" if not scope else "." if part.isdigit() else "/") + part
    return scope


class Profile:
    """What gradloom.torch.profile() returns: `step()` ends a step of the loop."""

    def __init__(self, model: torch.nn.Module, path: Any, steps: int, skip: int, memory: bool) -> None:
        if steps < 1:
            raise UsageError(f"steps is at least 1, not {steps}")
        if skip < 0:
            raise UsageError(f"skip is at least 0, not {skip}")
        self.path = os.fspath(path)
        if not self.path.endswith((".json", ".json.gz")):
            raise UsageError(f"the trace's name ends in .json or .json.gz, not as {self.path}")
        self._skip, self._most, self._made = skip, steps, 0
        self._thread = threading.get_ident()
        self._replaced = _Replaced()
        self._scopes: "weakref.WeakKeyDictionary[torch.nn.Module, str]" = weakref.WeakKeyDictionary()
        for name, module in model.named_modules():
            if name:
                self._scopes[module] = scope_of(name)
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        schedule = torch.profiler.schedule(wait=max(skip - 1, 0), warmup=min(skip, 1), active=steps, repeat=1)
        self._profiler = torch.profiler.profile(activities=activities, schedule=schedule, record_shapes=True,
                                                profile_memory=memory, on_trace_ready=self._write)  # fmt: skip

    @property
    def steps(self) -> int:
        """How many steps are in the trace, or will be."""
        return max(0, min(self._made - self._skip, self._most))

    @property
    def done(self) -> bool:
        """All steps were made, and the trace is written."""
        return self._made >= self._skip + self._most

    def step(self) -> None:
        """A step of the loop ends here."""
        if self.done:
            return
        self._made += 1
        self._profiler.step()
        if self.done:
            self._replaced.undo()

    def to_session(self, session: Any, model: Any = None, name: Optional[str] = None) -> Answer:
        """Reads the trace into a session, as `gradloom import` does. model: the ONNX file whose modules these are."""
        settings = {"session": os.fspath(session), "model": model and os.fspath(model), "name": name}
        return ask("import", [self.path, *words_of(settings)])[0]

    def __enter__(self) -> "Profile":
        self._replaced.put(torch.nn.Module, "__call__", self._forward)
        try:
            self._profiler.__enter__()
        except BaseException:
            self._replaced.undo()
            raise
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._replaced.undo()
        self._profiler.__exit__(kind, error, trace)
        if kind is None and self.steps == 0:
            raise UsageError(f"no step was profiled: the loop made {self._made}, of which the first {self._skip} are left out (skip=)")

    def _write(self, profiler: Any) -> None:
        folder, name = os.path.split(self.path)
        hidden = os.path.join(folder, "." + name)
        try:
            profiler.export_chrome_trace(hidden)
            os.replace(hidden, self.path)
        finally:
            if os.path.exists(hidden):
                os.unlink(hidden)

    def _forward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        scopes, record_function = self._scopes, torch.profiler.record_function

        @functools.wraps(function)
        def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            scope = scopes.get(module)
            if scope is None or torch._C._get_tracing_state() is not None:
                return function(module, *args, **kwargs)
            with record_function(scope):
                return function(module, *args, **kwargs)

        return call


def profile(model: torch.nn.Module, path: Any, steps: int = 10, skip: int = 3, memory: bool = False) -> Profile:
    """Traces steps of a training loop with PyTorch's profiler, each operator with the module that called it.

        with gradloom.torch.profile(model, "torch.json.gz") as profile:
            for batch in loader:
                loss = model(**batch).loss
                loss.backward(); optimizer.step(); optimizer.zero_grad()
                profile.step()
                if profile.done:
                    break
        profile.to_session("s.db", model="job/model.onnx")

    `gradloom compare 1 2 --stored --session s.db` then lays these steps beside those of `gradloom train`, by module and phase.

    path: the trace, .json or .json.gz; it opens in Perfetto too.
    steps: after so many it is written, and the loop goes on as if there had been no profile.
    skip: steps before the first that is traced.
    memory: also what PyTorch's allocator holds (slower).
    """
    return Profile(model, path, steps, skip, memory)
