"""gradloom.torch.TrainStep: whole training steps, optimizer inside, from a PyTorch script."""

import collections
import ctypes
import logging
import shutil
import tempfile
import threading
import weakref
import zlib
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple, TypeVar, Union

import torch

from .._library import PARAMETER, STATE, STATISTIC, Error, UnsupportedError, UsageError, library, pointers
from ..commands import words_of
from . import _ranks
from ._buckets import Filler, named_sizes
from ._devices import place_of
from ._export import ExportedJob, batch_names
from ._host import HostCalls
from ._in_place import InPlace
from ._job import Batch, Job, Source, Weights, clipped, export_step, flat_batch, make_job
from ._members import Members
from ._optimizer import Options, States, is_in_file, put_states, states_of, write_states
from ._outside import Located, refused, warn
from ._plan import DTYPES, NUMBERS
from ._recipe import about_recipe, read_recipe, recipe_words
from ._regions import of_file, precision_of
from ._shapes import Family
from ._step_job import JobHandle, Trained, asked
from ._tensors import contents

_MOST_STEPS = 10**12
_LOG = logging.getLogger("gradloom")  # tells each plan that is made
_Step = TypeVar("_Step", Job, ExportedJob)
_Cast = Optional[torch.dtype]  # of a running torch.autocast
_Signature = Tuple[Any, Tuple[Tuple[torch.Size, torch.dtype], ...]]  # of a batch: its structure, and its tensors


def _signature(batch: Batch) -> _Signature:
    return batch.structure, tuple([(t.shape, t.dtype) for t in batch.tensors])


def _kind_of(signature: _Signature) -> Any:
    """What all batches have in common."""
    structure, tensors = signature
    return structure, [(len(shape), dtype) for shape, dtype in tensors]


def _sizes_of(signature: _Signature) -> List[int]:
    return [size for shape, _ in signature[1] for size in shape]


def _reads(step: Union[Job, ExportedJob]) -> List[int]:
    """Which of a batch's tensors the loss depends on."""
    return [index for index, name in enumerate(step.inputs) if name in step.exported.read]


class _Anew(Exception):
    """The precision that autocast asks for now is for another job: it keeps other states (of loss scaling), or the run of a session, which is
    of one precision, ends."""


class TrainStep:
    """One object for the step of a training loop: forward, loss, backward and optimizer as one plan.

        step = gradloom.torch.TrainStep(model, loss, torch.optim.AdamW(model.parameters(), lr=1e-3))
        for batch in data:
            print(step.step(*batch))

    On the CPU parameters and running statistics of f32 (in precision f64 those of f64) are trained where the module has them: after
    step() they are the trained ones, and what is written into them between steps is what the next one begins with. Others, and all of a module on a
    GPU, are the engine's while it trains: update_module() brings them into the module, load_module() the module's into the engine. The
    optimizer's states are the engine's: update_optimizer() and load_optimizer() do the same with those of a torch optimizer, with which the
    first step goes on, too. state_dict() has all of it.

    model, loss, optimizer: as capture() takes them. The first step fixes the structure of batches; those of other sizes (the last of
    an epoch, texts of another length) get plans of their own, which work in the same memory; `plans` of them are kept.
    Of a torch optimizer each group's learning rate, weight decay, momentum, betas and eps are read before each step, so that a scheduler over
    them is followed; an error names what else of it has changed.
    Parts that change between train() and eval(), parameters that are frozen or join or leave a group, are another job that goes on with the
    parameters and states of this one.
    A running torch.autocast holds for the step, as it does in PyTorch; one that begins or ends between steps is another plan over the same
    parameters and states, which is kept as those of other sizes are.
    recipe: passes, rules, planner, precision and threads are taken from it.
    fallback: "torch": the smallest submodules around what cannot be exported or has no kernel run in PyTorch, called back by the one plan;
    their parameters are trained by the engine, with the others; their buffers are the module's own. A warning names them once.
    distributed: the process is one rank of several, which torchrun, mpirun, srun or plain RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
    have started; the ranks meet here, each waiting `rank_timeout` seconds for the others. Each steps on batches of its own; the engine averages
    their gradients, as DistributedDataParallel does, and step() returns the mean of the losses. All begin with rank 0's parameters, buffers and seed.
    torch.distributed is not needed. Without a launcher the process is the only rank. `rank`, `world`: which of how many it is.
    accumulate: a step takes so many batches, one after another.
    clip: the largest norm of all gradients together, as torch.nn.utils.clip_grad_norm_ makes it (the recipe's clip_norm).
    exporter, buckets: as Module takes them; the target of `loss` is called "target", and all that comes of a step is its loss, which has to ignore the fill.
    settings: of the recipe: clip_value=0.5, memory_budget=..
    """

    def __init__(self, model: torch.nn.Module, loss: Optional[Callable[..., torch.Tensor]] = None, optimizer: Any = "sgd{lr=0.01}",
                 recipe: Any = None, plans: int = 16, fallback: Optional[str] = None, distributed: bool = False, rank_timeout: float = 600.0,
                 accumulate: int = 1, clip: Optional[float] = None, exporter: str = "auto", buckets: Any = None,
                 **settings: Any) -> None:  # fmt: skip
        if fallback not in (None, "torch"):
            raise ValueError(f"fallback is None or 'torch', not {fallback!r}")
        self._source = Source(model, loss, functions=True, fallback=fallback == "torch", exporter=exporter)
        self.model, self._optimizer = self._source.model, optimizer
        self._filler = None if buckets is None else Filler(buckets, self._source.objective, self.model, self._names)
        self._options = None if isinstance(optimizer, str) else Options(optimizer)
        given = {**clipped(clip, settings), "accumulate": accumulate}
        self._recipe, self._settings = read_recipe(recipe), {key: value for key, value in given.items() if value is not None}
        if self._options is not None and "schedule" in self._settings and len({group["lr"] for group in self._options.groups}) > 1:
            raise UsageError("a schedule is for groups of one learning rate; a torch scheduler over the optimizer is followed")
        self._count = int(accumulate)
        self._handle: Optional[JobHandle] = None
        self._in_place = InPlace({}, "f32")
        self._plain = self._source.outside.plain  # a job is of one state of the modules' attributes
        self._moves = False  # the trace changed such attributes: the next one tells whether each does
        self._waiting: Optional[States] = None  # with which the next job begins; None: the torch optimizer's
        self._kept: Any = None  # the torch optimizer's state, as it was when the engine's was last the same
        self._plans_made = 0
        self._before, self._updates = 0, 0  # steps of jobs that were closed; those that the engine counts before this job's
        # Numbers of sizes by the type of autocast and a batch's signature; what was traced.
        self._plans: "collections.OrderedDict[Tuple[_Cast, _Signature], int]" = collections.OrderedDict()
        self._traced: "collections.OrderedDict[Tuple[_Cast, _Signature], ExportedJob]" = collections.OrderedDict()
        self._families: Dict[Any, Family] = {}  # by which sizes are 0 or 1, by which operators broadcast
        self._asks_autocast = False  # the forward's Python, whether it is around the step: then traces are for one answer
        self._most = plans
        self._calls, self._told, self._notes = HostCalls(), set(), []  # type: HostCalls, Set[str], List[str]
        if not distributed and _ranks.are_met():
            raise UsageError("this process is one rank of several: every TrainStep of it needs distributed=True")
        self.rank, self.world = _ranks.join(rank_timeout) if distributed else (0, 1)
        self._lock = threading.RLock()
        self._refused: Optional[Error] = None  # options that the device does not take: each step says so

    def _names(self, structure: Any) -> List[str]:
        return batch_names(self._source.objective, structure)

    def _in_bucket(self, batch: Batch) -> Batch:
        filled = None if self._filler is None else self._filler.fill(batch.structure, batch.tensors)
        return batch if filled is None else batch._replace(tensors=filled.tensors)

    def _tell_plan(self, batch: Batch) -> None:
        self._plans_made += 1
        _LOG.info("%s: plan %d: %s", type(self.model).__name__, self._plans_made, named_sizes(self._names(batch.structure), batch.tensors))

    def _groups(self) -> Optional[List[List[int]]]:
        return None if self._options is None else [list(map(id, group["params"])) for group in self._optimizer.param_groups]

    def _follow_module(self) -> None:
        """Where the module or the optimizer says that a step computes something else, the next one opens another job. Other groups are told later."""
        groups, before = self._groups(), self._began_with
        if self._parts.hold() and asked(self._parts, groups) == self._seen:
            return
        now = Trained.of(self._source.objective, groups)
        if now != before and len(now.groups or []) == len(before.groups or []):
            states = self._states_for(now)
            self.update_module()
            self._begin_anew(states)

    def _states_for(self, now: Trained) -> States:
        """The engine's states, of the parameters that train on. Raises UsageError where others have to begin with states they do not have."""
        kept, before = self._all_states(), self._began_with

        def members(which: Trained) -> Set[int]:
            grouped = None if which.groups is None else {p for group in which.groups for p in group}
            return {p for p in which.trained if grouped is None or p in grouped}

        old, new = members(before), members(now)
        for p in old - new:
            name = self._trained.get(p)
            for state in [state for state in kept.tensors if state.rpartition("/")[0] == name]:
                del kept.tensors[state]
        begin = sorted(now.trained[p] for p in new - old)
        if begin and any(map(is_in_file, self._values[STATE])):
            raise UsageError(f"'{begin[0]}' is trained from now on and has no states of the optimizer, which has made {kept.updates} updates of others: "
                             "the engine counts those of all parameters together")  # fmt: skip
        return kept

    def _open(self, batch: Batch) -> None:
        engine, folder = library(), tempfile.mkdtemp()
        self._options = None if self._options is None else Options(self._optimizer)
        self._began_with, self._parts = Trained.of(self._source.objective, self._groups()), Members(self._source.objective)
        self._seen, states = asked(self._parts, self._groups()), States(0, {})
        self._forget_folder = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        seed = torch.tensor(torch.initial_seed() & (2**63 - 1))
        if self.world > 1:
            _ranks.share([seed, *self.model.parameters(), *self.model.buffers()])

        def open_job(job: Job, model: bytes) -> int:
            nonlocal states
            self._all_f64, self._precision = job.exported.all_f64, self._precision_of(model, job.exported.all_f64)
            words = {**job.words, "device": place_of(job.parameters.values()).name, **self._settings, "precision": self._precision, "data": "caller", "steps": _MOST_STEPS, "seed": int(seed)}
            if "group" in job.words and "group" in self._settings:
                own = self._settings["group"]
                words["group"] = [*job.words["group"], *([own] if isinstance(own, str) else own)]
            states = self._states(job.trained)
            if self._precision.partition("{")[0] != "f16":
                states = states._replace(skipped=0)  # the engine counts updates alone
            if self.world > 1:
                self._same_on_all_ranks(states)
            if states.steps and "resume" in self._settings:
                raise UsageError("the optimizer has states and the checkpoint of resume has others: a training goes on from one of them")
            if states.steps:
                words["load_optimizer"] = write_states(states, folder)
            self._weights = Weights(folder, job.parameters)
            path = self._weights.write_model(model, "model.onnx")
            with recipe_words(self._recipe, [key for key in words]) as recipe:
                self._in_place = InPlace(job.parameters if words["device"] == "cpu" else {}, self._precision)
                number, used = engine.open_job([path, *recipe, *words_of(words), "--profile", "step"], self._in_place.addresses())
            self._in_place.keep(used)
            self._notes = about_recipe(engine.notes("job", number))
            return number

        before = self._plain.snapshot()
        job, handle = self._made(lambda: make_job(self._source, batch, self._optimizer, self._options, True), open_job)
        changed = self._plain.follow(before)
        moves, self._moves = self._moves, any(changed.values())
        if moves and self._moves:
            self._refused = UnsupportedError(f"the forward changes its attributes from step to step ({', '.join(sorted(changed))}), which a plan does not")
        self._inputs, self._parameters, self._counters, self._trained = job.inputs, job.parameters, job.counters, job.trained
        self._reads = _reads(job)
        self._handle = JobHandle(self._lock, handle, self._in_place)
        weakref.finalize(self, self._handle.close)
        self._values = {kind: {v.name: v for v in engine.values("job", self._begun(), kind)} for kind in (PARAMETER, STATISTIC, STATE)}
        signature = _signature(batch)
        self._kind, self._asks_autocast = _kind_of(signature), job.exported.asked_autocast
        self._plans[self._cast(), signature] = 0
        self._family(signature).add(_sizes_of(signature), job.exported, engine.extents("job", self._begun(), 0))
        self._keep_trace(signature, ExportedJob(job.exported, job.inputs, job.parameters, job.counters))
        self._tell_plan(batch)
        self._updates, self._waiting = states.steps, None
        for name, tensor in states.tensors.items():
            held = states.steps and is_in_file(name)
            if not held and name in self._values[STATE] and self._is_like(name, tensor):
                self._write(name, tensor.contiguous())
        self._counted = self._before
        try:
            self._set_all_options()
        except Error as error:  # on a GPU some options cannot be set: no step is made with others
            self._refused = error
            raise

    def _states(self, trained: Dict[int, str]) -> States:
        """With which a job begins."""
        if self._options is not None:
            self._kept = self._optimizer.state
        if self._waiting is not None:
            return self._waiting
        return States(0, {}) if self._options is None else states_of(self._optimizer, trained)

    def _same_on_all_ranks(self, states: States) -> None:
        digest = 0
        for name in sorted(states.tensors):
            digest = zlib.crc32(contents(states.tensors[name]), zlib.crc32(name.encode(), digest))
        mine = torch.tensor([states.updates, states.skipped, digest])
        first = mine.clone()
        _ranks.share([first])
        if not torch.equal(mine, first):
            raise UsageError(f"the optimizer's states of rank {self.rank} are not those of rank 0: load the same into all")

    def _set_all_options(self) -> None:
        """Where groups differ from what the words say."""
        if self._options is None:
            return
        same_rate = len({group["lr"] for group in self._options.groups}) == 1
        said = {key: value for key, value in self._options.text.items() if key != "weight_decay" and (key != "lr" or same_rate)}
        groups = self._options.followed()
        weight_decay = [group.get("weight_decay") for group in groups]
        self._set_options([{**said, "weight_decay": decay} for decay in weight_decay], groups)

    def _set_options(self, before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, float]]) -> None:
        for number, (known, group) in enumerate(zip(before, now)):
            if not any(id(p) in self._trained for p in self._optimizer.param_groups[number]["params"]):
                continue  # the plan has none of it
            for option, value in group.items():
                if known.get(option) != value:
                    library().call("job_set_option", self._begun(), number, option.encode(), value)

    def _made(self, export: Callable[[], _Step], begin: Callable[[_Step, bytes], int]) -> Tuple[_Step, int]:
        """A step that the engine takes, and its number: by `fallback` what one export or the engine refuses is outside in the next."""
        source, name = self._source, type(self.model).__name__
        try:
            while True:
                step = export()
                model = self._calls.file(step.exported.model, step.exported.calls)
                try:
                    number = begin(step, model)
                    break
                except UnsupportedError as error:
                    source.leave_out(model, error)
        except Located as error:
            raise error if source.fallback else refused(name, error, whole=False) from None
        told = "; ".join(source.outside.told())
        for one in [told, *self._notes]:
            if one and one not in self._told:
                self._told.add(one)
                warn(f"gradloom: {name}: {one}")
        return step, number

    def _family(self, signature: _Signature) -> Family:
        return self._families.setdefault((self._cast_of_traces(), tuple([min(size, 2) for size in _sizes_of(signature)])), Family())

    def _cast(self) -> _Cast:
        """The type of a running torch.autocast, which says what a step is computed in where nothing else does."""
        said = "precision" in self._settings or self._all_f64
        return None if said and not self._asks_autocast else self._source.autocast()

    def _cast_of_traces(self) -> _Cast:
        return self._source.autocast() if self._asks_autocast else None

    def _precision_of(self, model: bytes, all_f64: bool) -> str:
        """What a step is computed in, as a recipe says it: by a running torch.autocast, but for what the settings say."""
        cast, recipe = self._source.autocast(), (self._recipe or {}).get("precision")
        if "precision" in self._settings:
            return str(self._settings["precision"])
        if recipe is not None and cast is None and not all_f64:
            return of_file(str(recipe), model)
        return precision_of(model, cast, all_f64) or "f32"

    def _plan(self, batch: Batch) -> int:
        """The number of the batch's sizes in the precision of now."""
        signature = _signature(batch)
        key = self._cast(), signature
        known = self._plans.get(key)
        if known is not None:
            self._plans.move_to_end(key)
            return known
        if _kind_of(signature) != self._kind:
            raise UsageError("the batch has another structure or other types than the first one")
        number = self._follow(signature) or self._trace(signature, batch)
        self._tell_plan(batch)
        self._plans[self._cast(), signature] = number  # a trace tells whether the forward asks for autocast
        others = [other for other, plan in self._plans.items() if plan != 0]
        for other in others[: max(0, len(others) - self._most)]:
            library().call("job_forget_sizes", self._begun(), self._plans.pop(other))
        return number

    def _open_sizes(self, model: bytes) -> int:
        precision = self._precision_of(model, self._all_f64)
        words = [] if precision == self._precision else ["--precision", precision]
        if words and "session" in self._settings:
            raise _Anew()
        try:
            return library().job_sizes(self._begun(), [self._weights.write_model(model, "other.onnx"), *words])
        except UsageError:
            if words:
                raise _Anew() from None
            raise

    def _follow(self, signature: _Signature) -> int:
        """A number for sizes whose file the traces tell, else 0."""
        followed = None if (self._cast_of_traces(), signature) in self._traced else self._family(signature).exported(_sizes_of(signature))
        if followed is None:
            return 0
        try:
            number = self._open_sizes(followed.exported.model)
        except Error:  # a trace tells more
            return 0
        if followed.agrees(library().extents("job", self._begun(), number)):
            return number
        library().call("job_forget_sizes", self._begun(), number)
        return 0

    def _trace(self, signature: _Signature, batch: Batch) -> int:
        """A number for sizes that were traced in another precision, or are now."""
        key = self._cast_of_traces(), signature
        known = self._traced.get(key)
        step, number = self._made(lambda: self._traced.pop(key, None) or export_step(self._source, batch), lambda _, model: self._open_sizes(model))
        self._asks_autocast = self._asks_autocast or step.exported.asked_autocast
        if step.inputs != self._inputs or _reads(step) != self._reads or list(step.members) != list(self._parameters):
            library().call("job_forget_sizes", self._begun(), number)
            raise UsageError("the loss of a batch of these sizes reads other parameters or inputs than that of the first one")
        if step is not known:
            self._family(signature).add(_sizes_of(signature), step.exported, library().extents("job", self._begun(), number))
        self._keep_trace(signature, step)
        return number

    def _keep_trace(self, signature: _Signature, step: ExportedJob) -> None:
        """For other precisions; one with calls outside would keep what it was traced with, tensors and all."""
        if step.exported.calls:
            return
        self._traced[self._cast_of_traces(), signature] = step
        if len(self._traced) > self._most:
            self._traced.popitem(last=False)

    def step(self, *batch: Any, **named: Any) -> float:
        """Trains on one batch, given as the model's (and loss's) arguments; with accumulate=K on K batches, each a tuple or dict. The
        loss before the update."""
        given: Sequence[Any] = batch if self._count > 1 else [named or batch]
        if len(given) != self._count or (named and batch):
            raise UsageError(f"a step takes {self._count} batches" if self._count > 1 else "a batch is positional or named")
        batches = [flat_batch(one) for one in given]
        with library().calls.one(), self._lock:  # in this order: who waits for the end of the interpreter holds no lock
            if self._refused is not None:
                raise self._refused
            batches = [self._in_bucket(one) for one in batches]
            if self._handle is not None and self._options is not None and self._optimizer.state is not self._kept:
                self.load_optimizer()  # its load_state_dict() was called
            if self._handle is not None and (self._moves or self._plain.changed() or not self._in_place.follow(self._write)):
                self.update_module()
                self._begin_anew(self._all_states())
            if self._handle is not None and self._handle.job:
                self._follow_module()
            if self._handle is None:
                self._open(batches[0])
                if self._refused is not None:
                    raise self._refused
            try:
                plans = {self._plan(one) for one in batches}
            except _Anew:
                self.update_module()
                self._begin_anew(self._all_states())
                self._open(batches[0])
                plans = {self._plan(one) for one in batches}
            if len(plans) > 1:
                raise UsageError("the batches of one step have different sizes")
            if self._options is not None:
                before = self._options.groups
                now = self._options.changed()
                if now is not None:
                    try:
                        self._set_options(before, now)
                    except Error:  # the next step tries again
                        self._options.groups = before
                        raise
            return self._run(plans.pop(), batches)

    def _run(self, plan: int, batches: Sequence[Batch]) -> float:
        tensors = [one.tensors[index].cpu().contiguous() for one in batches for index in self._reads]  # the same where nothing is to do
        loss, given = ctypes.c_double(), pointers([t.data_ptr() for t in tensors])
        try:
            library().call("job_step_sized", self._begun(), plan, len(tensors), given, ctypes.byref(loss))
        except Error as error:
            assert self._handle is not None
            self._handle.failure = str(error)
            raised = self._calls.error()
            if raised is not None:
                raise raised
            raise
        finally:
            self._in_place.changed()
        if self._in_place.tensors:
            self._count_batches()
        return loss.value

    @property
    def steps(self) -> int:
        """How many steps were made."""
        if self._rests():
            return self._before
        made = ctypes.c_int64()
        library().call("job_steps", self._begun(), ctypes.byref(made), None)
        return self._before + made.value - self._updates

    def _rests(self) -> bool:
        """Whether the next step begins the training anew: the module has the parameters."""
        return self._handle is None and (self._before > 0 or self._waiting is not None)

    def _updates_made(self) -> int:
        """That the optimizer counts: with those before this training, without those that loss scaling skipped."""
        scaled = self._values[STATE].get("gradloom/made_steps")
        if scaled is None:
            return self._updates + self.steps - self._before
        made = torch.zeros((), dtype=torch.int64)
        self._read(scaled.name, made)
        return int(made)

    def _skipped(self) -> int:
        """Steps beside those."""
        return self._updates + self.steps - self._before - self._updates_made()

    def _is_like(self, name: str, tensor: torch.Tensor) -> bool:
        known = self._values[STATE].get(name)
        return known is not None and tuple(tensor.shape) == known.shape and NUMBERS[tensor.dtype] == known.dtype

    def _read_state(self, name: str) -> Optional[torch.Tensor]:
        value = self._values[STATE].get(name)
        if value is None:
            return None
        state = torch.empty(value.shape, dtype=DTYPES[value.dtype])
        self._read(name, state)
        return state

    def _all_states(self) -> States:
        read = ((name, self._read_state(name)) for name in self._values[STATE])
        return States(self._updates_made(), {name: tensor for name, tensor in read if tensor is not None}, self._skipped())

    def _begin_anew(self, states: Optional[States]) -> None:
        """The next step opens a job that goes on from these states and the module's parameters; None: the torch optimizer's states."""
        if self._handle is not None:
            self._before, handle, self._handle = self.steps, self._handle, None
            handle.close()
            self._forget_folder()
        self._waiting = states
        self._settings.pop("resume", None)
        for kept in (self._plans, self._traced, self._families):
            kept.clear()

    @torch.no_grad()
    def update_optimizer(self) -> Any:
        """The engine's states and the count of updates, written into the torch optimizer; the optimizer."""
        self._begun()
        if self._options is None:
            raise UsageError("the optimizer is a recipe's text: state_dict() has its states")
        if any(value.dtype == NUMBERS[torch.uint8] for value in self._values[STATE].values()):
            raise UsageError("the optimizer's states are of 8 bits (eight_bit_states), which torch optimizers do not have: state_dict() has them")
        put_states(self._optimizer, self._trained, self._updates_made(), self._read_state)
        self._kept = self._optimizer.state
        return self._optimizer

    @torch.no_grad()
    def load_optimizer(self) -> None:
        """The torch optimizer's states, written into the engine. The first step begins with them by itself, and so does the one after the
        optimizer's load_state_dict(): this is for states that were changed in place."""
        if self._options is None:
            raise UsageError("the optimizer is a recipe's text, and has no states of its own")
        if self._handle is None:
            self._waiting = None
            return
        states = states_of(self._optimizer, self._trained)
        self._kept = self._optimizer.state
        if states.updates != self._updates_made() and (states.updates == 0 or self._options.rule.counts):
            self.update_module()
            return self._begin_anew(None)
        for name, tensor in states.tensors.items():
            self._write(name, tensor.to(DTYPES[self._values[STATE][name].dtype]).contiguous())

    def _begun(self) -> int:
        if self._handle is None or not self._handle.job:
            raise UsageError("no step was made yet" if self._handle is None else "the training was closed")
        return self._handle.job

    def _read(self, name: str, to: torch.Tensor) -> None:
        held = to if to.device.type == "cpu" else torch.empty(to.shape, dtype=to.dtype)
        with self._lock:
            library().call("job_read", self._begun(), name.encode(), held.data_ptr(), held.numel() * held.element_size())
        if held is not to:
            to.copy_(held)

    def _write(self, name: str, tensor: torch.Tensor) -> None:
        tensor = tensor.cpu()
        with self._lock:
            library().call("job_write", self._begun(), name.encode(), tensor.data_ptr(), tensor.numel() * tensor.element_size())

    def _members(self) -> Dict[str, torch.Tensor]:
        known = {**self._values[PARAMETER], **self._values[STATISTIC]}
        return {name: tensor for name, tensor in self._parameters.items() if name in known}

    def _type_of(self, name: str) -> torch.dtype:
        """Of a parameter or statistic in the engine, which trains some in 16 bits."""
        known = self._values[PARAMETER].get(name) or self._values[STATISTIC][name]
        return DTYPES[known.dtype]

    @torch.no_grad()
    def update_module(self) -> torch.nn.Module:
        """The engine's parameters and running statistics, written into the module; the module."""
        if self._rests():
            return self.model
        self._begun()
        for name, tensor in self._members().items():
            if name in self._in_place.tensors:
                continue
            contents = torch.empty(tensor.shape, dtype=self._type_of(name))
            self._read(name, contents)
            tensor.copy_(contents)
        self._count_batches()
        return self.model

    def _count_batches(self) -> None:
        """What BatchNorm counts."""
        if self._counters:
            made = self.steps
            new, self._counted = made - self._counted, made
            for tensor, each in self._counters:
                tensor += new * each * self._count

    @torch.no_grad()
    def load_module(self) -> None:
        """The module's parameters and running statistics, written into the engine."""
        if self._rests():
            return
        self._begun()
        for name, tensor in self._members().items():
            self._write(name, tensor.detach().to(self._type_of(name)).contiguous())
        self._counted = self.steps

    def state_dict(self) -> Dict[str, Any]:
        """{"model": the module's state_dict after update_module(), "optimizer": the engine's states by name, "steps": updates that were made,
        "skipped": steps beside them, by loss scaling}. A torch optimizer has its states, too, afterwards."""
        self.update_module()
        kept = self._all_states() if self._handle is not None else self._waiting or states_of(self._optimizer, self._trained)
        if self._handle is not None and self._options is not None and not any(tensor.dtype == torch.uint8 for tensor in kept.tensors.values()):
            self.update_optimizer()
        return {"model": self.model.state_dict(), "optimizer": dict(kept.tensors), "steps": kept.updates, "skipped": kept.skipped}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """What state_dict() gave, of any step: where this training is at another one, or at none, the next step begins it anew there."""
        begun = self._handle is not None
        for name, tensor in state["optimizer"].items():
            if begun and not self._is_like(name, tensor):
                raise UsageError(f"'{name}' is no state of this training, or has another shape or type")
        if begun and state["steps"] == self._updates_made() and state.get("skipped", self._skipped()) == self._skipped():
            self.model.load_state_dict(state["model"])
            self.load_module()
            for name, tensor in state["optimizer"].items():
                self._write(name, tensor.contiguous())
            return
        if any(tensor.dtype == torch.uint8 for tensor in state["optimizer"].values()):
            raise UsageError(f"states of 8 bits, of step {state['steps']}, go on from a checkpoint alone (checkpoint=.., resume=..)")
        if begun:
            self.update_module()
        self._begin_anew(States(state["steps"], {name: tensor.detach().clone() for name, tensor in state["optimizer"].items()}, state.get("skipped", 0)))
        self.model.load_state_dict(state["model"])  # not before: the closed job wrote its files from the module

    def close(self) -> None:
        """Ends the training in the engine, whose files hold what the module does now; of parameters that are the engine's the module keeps
        what update_module() brought."""
        if self._handle is not None:
            self._handle.close()
