"""gradloom.torch.TrainStep: whole training steps, optimizer inside, from a PyTorch script."""

import ctypes
import tempfile
import threading
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch

from .._library import PARAMETER, STATE, STATISTIC, UsageError, library, pointers
from . import _structure
from ._job import arguments_of, flags, make_job, unwrapped, write_job
from ._plan import DTYPES, NUMBERS
from ._recipe import read_recipe, recipe_words

_MOST_STEPS = 10**12


class _Handle:
    """The engine's job, closed once: by close(), with its TrainStep, or when the interpreter ends."""

    def __init__(self, lock: Any, job: int) -> None:
        self._lock, self.job = lock, job

    def close(self) -> None:
        with self._lock:
            job, self.job = self.job, 0
            if job:
                library().call("job_close", job)


class TrainStep:
    """One object for the step of a training loop: forward, loss, backward and optimizer as one plan.

        step = gradloom.torch.TrainStep(model, loss, torch.optim.AdamW(model.parameters(), lr=1e-3))
        for batch in data:
            print(step.step(*batch))

    Parameters and the optimizer's states are the engine's while it trains: update_module() brings them into the module,
    load_module() the module's into the engine. state_dict() has all of it.

    model, loss, optimizer: as capture() takes them. The first step fixes the structure and shapes of batches.
    Of a torch optimizer the learning rate is read before each step, so that a scheduler over it is followed.
    recipe: passes, rules, planner, precision and threads are taken from it.
    settings: of the recipe: clip_norm=1.0, accumulate=4 (a step then takes so many batches, one after another), memory_budget=..
    """

    def __init__(self, model: torch.nn.Module, loss: Optional[Callable[..., torch.Tensor]] = None, optimizer: Any = "sgd{lr=0.01}",
                 recipe: Any = None, **settings: Any) -> None:  # fmt: skip
        self.model, self._loss, self._optimizer = unwrapped(model), loss, optimizer
        self._recipe, self._settings = read_recipe(recipe), {key: value for key, value in settings.items() if value is not None}
        self._count = int(self._settings.get("accumulate", 1))
        self._handle: Optional[_Handle] = None
        self._lock = threading.RLock()

    def _open(self, batch: Any) -> None:
        job = make_job(self.model, batch, self._loss, self._optimizer)
        self._inputs, self._parameters = job.inputs, job.parameters
        words = {**job.words, **self._settings, "data": "caller", "steps": _MOST_STEPS, "seed": torch.initial_seed() & (2**63 - 1)}
        engine = library()
        with tempfile.TemporaryDirectory() as folder, recipe_words(self._recipe, [key for key in words]) as recipe:
            self._handle = _Handle(self._lock, engine.open_job([write_job(job, folder), *recipe, *flags(words), "--profile", "step"], None))
        weakref.finalize(self, self._handle.close)
        self._values = {kind: {v.name: v for v in engine.values("job", self._begun(), kind)} for kind in (PARAMETER, STATISTIC, STATE)}
        self._signature, self._known_rates = self._shapes(batch), self._rates()

    @staticmethod
    def _tensors(batch: Any) -> List[torch.Tensor]:
        tensors: List[torch.Tensor] = []
        _structure.flatten(arguments_of(batch), tensors, "the batch: ")
        return [t if t.is_contiguous() else t.contiguous() for t in tensors]

    def _shapes(self, batch: Any) -> Any:
        tensors: List[torch.Tensor] = []
        return _structure.flatten(arguments_of(batch), tensors), [(t.shape, t.dtype) for t in tensors]

    def step(self, *batch: Any, **named: Any) -> float:
        """Trains on one batch, given as the model's (and loss's) arguments; with accumulate=K on K batches, each a tuple or dict. The
        loss before the update."""
        batches: Sequence[Any] = batch if self._count > 1 else [named or batch]
        if len(batches) != self._count or (named and batch):
            raise UsageError(f"a step takes {self._count} batches" if self._count > 1 else "a batch is positional or named")
        with library().computing, self._lock:  # in this order: who waits for the end of the interpreter holds no lock
            if self._handle is None:
                self._open(batches[0])
            for one in batches:
                if self._shapes(one) != self._signature:
                    raise UsageError("the batch has another structure, other shapes or types than the first one")
            self._follow_rate()
            return self._run(batches)

    def _rates(self) -> List[float]:
        return [] if isinstance(self._optimizer, str) else [float(group["lr"]) for group in self._optimizer.param_groups]

    def _follow_rate(self) -> None:
        rates = self._rates()
        if rates == self._known_rates:
            return
        if any(abs(rate * self._known_rates[0] - known * rates[0]) > 1e-9 * known * rates[0] for rate, known in zip(rates, self._known_rates)):
            raise UsageError("the learning rates of groups of parameters may change by one factor only")
        library().call("job_set_learning_rate", self._begun(), rates[0])
        self._known_rates = rates

    def _run(self, batches: Sequence[Any]) -> float:
        tensors = [t for one in batches for t in self._tensors(one)]
        loss, given = ctypes.c_double(), pointers([t.data_ptr() for t in tensors])
        library().call("job_step_on", self._begun(), len(tensors), given, ctypes.byref(loss))
        return loss.value

    @property
    def steps(self) -> int:
        """How many steps were made."""
        made = ctypes.c_int64()
        library().call("job_steps", self._begun(), ctypes.byref(made), None)
        return made.value

    def _begun(self) -> int:
        if self._handle is None or not self._handle.job:
            raise UsageError("no step was made yet" if self._handle is None else "the training was closed")
        return self._handle.job

    def _read(self, name: str, to: torch.Tensor) -> None:
        with self._lock:
            library().call("job_read", self._begun(), name.encode(), to.data_ptr(), to.numel() * to.element_size())

    def _write(self, name: str, tensor: torch.Tensor) -> None:
        with self._lock:
            library().call("job_write", self._begun(), name.encode(), tensor.data_ptr(), tensor.numel() * tensor.element_size())

    def _members(self) -> Dict[str, torch.Tensor]:
        known = {**self._values[PARAMETER], **self._values[STATISTIC]}
        return {name: tensor for name, tensor in self._parameters.items() if name in known}

    @torch.no_grad()
    def update_module(self) -> torch.nn.Module:
        """The engine's parameters and running statistics, written into the module; the module."""
        self._begun()
        for name, tensor in self._members().items():
            contents = torch.empty(tensor.shape, dtype=tensor.dtype)
            self._read(name, contents)
            tensor.copy_(contents)
        return self.model

    @torch.no_grad()
    def load_module(self) -> None:
        """The module's parameters and running statistics, written into the engine."""
        self._begun()
        for name, tensor in self._members().items():
            self._write(name, tensor.detach().contiguous())

    def state_dict(self) -> Dict[str, Any]:
        """{"model": the module's state_dict after update_module(), "optimizer": the engine's states by name, "steps": made}"""
        self.update_module()
        states = {}
        for name, value in self._values[STATE].items():
            states[name] = torch.empty(value.shape, dtype=DTYPES[value.dtype])
            self._read(name, states[name])
        return {"model": self.model.state_dict(), "optimizer": states, "steps": self.steps}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """What state_dict() gave. The first step must have been made: it tells what the states are. An optimizer that corrects the bias
        of its moments takes a state of the same number of steps only; other trainings go on from a checkpoint (checkpoint=.., resume=..).
        """
        if state["steps"] != self.steps and any(name.endswith("/v") for name in state["optimizer"]):
            raise UsageError(f"the state is of step {state['steps']} and this training at step {self.steps}, by which the optimizer corrects its moments")
        self.model.load_state_dict(state["model"])
        self.load_module()
        known = self._values[STATE]
        for name, tensor in state["optimizer"].items():
            if name not in known or tuple(tensor.shape) != known[name].shape or NUMBERS[tensor.dtype] != known[name].dtype:
                raise UsageError(f"'{name}' is no state of this training, or has another shape or type")
            self._write(name, tensor.contiguous())

    def close(self) -> None:
        """Ends the training in the engine; the module keeps what update_module() brought."""
        if self._handle is not None:
            self._handle.close()
