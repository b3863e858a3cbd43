"""A file as autograd sees it: a function whose backward is the plan's."""

import threading
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from .._library import UnsupportedError
from ._devices import Place
from ._export import Exported, Moved
from ._plan import Arenas, Plan
from ._recipe import recipe_words
from ._regions import of_file, precision_of
from ._twice import Again, Refused

_PLANS_OF_ONE_FILE = 4  # for different sets of results with gradients


class Unlike(Exception):
    """A call in which the module's forward raises, or catches what one of its parts does."""


class Words(NamedTuple):
    """What every plan of a call is opened with."""

    recipe: Optional[Dict[str, Any]]
    own: List[str]  # over the recipe's
    place: Place
    cast: Optional[torch.dtype]  # of the autocast around the call
    whole: bytes = b""  # the file whose parts are opened

    def open(self, exported: Exported, wants: Sequence[bool], takes: Optional[Sequence[int]], arenas: Arenas) -> Plan:
        said = (self.recipe or {}).get("precision")
        if said is None or self.cast is not None or exported.all_f64:
            precision = precision_of(exported.model, self.cast, exported.all_f64)
        else:
            precision = of_file(said, exported.model, self.whole)
        own = self.own if precision is None else [*self.own, "--precision", precision]
        with recipe_words(self.recipe, [] if precision is None else ["precision"]) as words:
            return Plan(exported, wants, takes, [*words, *own, "--device", self.place.name], arenas, self.place)


class Opened:
    """A file, and its plans by the results whose gradients their backward takes."""

    def __init__(self, exported: Exported, wants: Sequence[bool], words: Words, arenas: Arenas) -> None:
        """wants: of each input, whether it has a gradient."""
        self.exported, self.wants = exported, wants
        self._words, self._arenas = words, arenas
        self.results = exported.results
        # Autograd refuses a backward after an input was written, but for these: what is not read, and running statistics, as in PyTorch.
        watched = exported.read - exported.statistics
        self.saved = [index for index, name in enumerate(exported.inputs) if name in watched]
        self.unsaved = [index for index, name in enumerate(exported.inputs) if name not in watched]
        self.again: Optional[Again] = None  # PyTorch's forward, which gradients of gradients are computed of
        self._plans: Dict[Tuple[int, ...], Plan] = {}
        first = words.open(exported, wants, None, arenas)
        self.types, self.extents, self.notes = first.results, first.extents, first.notes
        self.takes = tuple(first.takes)  # all results with gradients
        self.silent = [index for index in range(self.results) if index not in self.takes]
        self.follows = bool(exported.counters or exported.written or exported.moved) or exported.failed is not None  # something, after a call
        self.read_back = exported.failed is not None or any(row.counter is not None for row in exported.moved)  # by the host, after a call
        self.expected = self.takes
        self._plans[self.takes] = first
        self.lock = threading.Lock()

    def plan(self, takes: Tuple[int, ...]) -> Plan:
        with self.lock:
            found = self._plans.get(takes)
            if found is None:
                if len(self._plans) >= _PLANS_OF_ONE_FILE:
                    self.expected = takes = self.takes
                    return self._plans[takes]
                found = self._plans[takes] = self._words.open(self.exported, self.wants, takes, self._arenas)
            return found

    def run(self, tensors: Sequence[torch.Tensor], seed: int, gradients: bool) -> Sequence[torch.Tensor]:
        """The results of a call."""
        given = [t if t.is_contiguous() else t.contiguous() for t in tensors]
        run = _Run(self, seed)
        if gradients and self.takes:
            results: Sequence[torch.Tensor] = _Function.apply(run, *given)
            return results
        with torch.no_grad():
            return run.forward(given)


class _Run:
    """One call: what its backward needs to know."""

    def __init__(self, opened: Opened, seed: int) -> None:
        self.opened, self.seed = opened, seed
        self.plan = opened.plan(opened.expected)
        self.arena: Optional[torch.Tensor] = None  # of a forward that waits for its backward

    def forward(self, tensors: Sequence[torch.Tensor]) -> List[torch.Tensor]:
        if self.opened.read_back and self.plan.recorded():
            raise UnsupportedError("torch.cuda.graph cannot record a call after which the host reads what it computed: a check of the forward, or a "
                                   "BatchNorm with momentum=None")  # fmt: skip
        outputs, self.arena = self.plan.forward([t.data_ptr() for t in tensors], self.seed)
        if self.opened.follows:
            follow(self.opened.exported, outputs)
        if self.plan.no_grad:
            self.arena = None
        return outputs if len(outputs) == self.opened.results else outputs[: self.opened.results]

    def backward(self, tensors: Sequence[torch.Tensor], gradients: Sequence[Optional[torch.Tensor]]) -> List[Optional[torch.Tensor]]:
        types, takes_any = self.plan.results, self.opened.takes
        given = {}
        for index, gradient in enumerate(gradients):  # in the order of the results
            if gradient is not None and index in takes_any:
                if gradient.dtype != types[index][1] or not gradient.is_contiguous():
                    gradient = gradient.to(types[index][1]).contiguous()
                given[index] = gradient
        if not given:
            return [None] * len(tensors)
        takes = tuple(given)
        addresses = [t.data_ptr() for t in tensors]
        if takes != self.opened.expected:
            self.opened.expected = takes
        arena, self.arena = self.arena, None
        if arena is None or (takes != self.plan.taken and not set(takes) <= set(self.plan.takes)):
            # A second backward, or one by other results than foreseen.
            self.plan = self.opened.plan(takes)
            _, arena = self.plan.forward(addresses, self.seed)
        return self.plan.backward(tensors, addresses, arena, self.seed, given)


def follow(exported: Exported, outputs: Sequence[torch.Tensor]) -> None:
    """The module's buffers after a call. Raises Unlike."""
    if exported.failed is not None and bool(outputs[exported.failed]):
        raise Unlike()
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
        ctx.unsaved = [tensors[index] for index in run.opened.unsaved]
        ctx.save_for_backward(*[tensors[index] for index in run.opened.saved])
        if run.opened.silent:
            ctx.mark_non_differentiable(*[outputs[index] for index in run.opened.silent])
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Optional[torch.Tensor]) -> Any:
        tensors = list(ctx.saved_tensors)
        for index, tensor in zip(ctx.run.opened.unsaved, ctx.unsaved):  # from the first on
            tensors.insert(index, tensor)
        if not torch.is_grad_enabled():
            return (None, *ctx.run.backward(tensors, gradients))
        # create_graph
        if ctx.run.opened.again is not None:
            return (None, *ctx.run.opened.again.gradients(tensors, gradients))
        with torch.no_grad():
            found: List[Optional[torch.Tensor]] = list(ctx.run.backward(tensors, gradients))
        present = [index for index, gradient in enumerate(found) if gradient is not None]
        made_of = [tensor for tensor in (*tensors, *gradients) if tensor is not None and tensor.requires_grad]
        for index, gradient in zip(present, Refused.apply(len(present), *[found[index] for index in present], *made_of)):
            found[index] = gradient
        return (None, *found)
