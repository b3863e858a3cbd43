"""A torch module as a model file: what flows in and out of one call, in torch's words and in the file's.

All that a call reads is an input of the file: the tensors among its arguments, the module's parameters under their own names
(once, however many modules share one), and those buffers whose numbers change from call to call. So no exporter can merge,
fold, copy or drop a parameter, and none is written. Other buffers are constants of the file, good as long as they are what
they were; running statistics that a forward reads are inputs, as PyTorch moves them unseen.
"""

import contextlib
import functools
import inspect
import io
import math
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple, TypeVar

import torch

from .._library import UnsupportedError
from .. import _onnx_file
from . import _draws, _dynamo, _sizes, _structure
from ._casts import LABELS, Casts, Told, noting
from ._complex import Complex, dft_symbolic
from ._exporter import passing_refused, quiet
from ._members import Tensors, exchanged, members, without_effect
from ._outside import DOMAIN, Call, Located, Outside, Refusal, operators_refused, outside_symbolic, reason_of, warn
from ._regions import SCOPES, Regions
from ._rows import refuse_rows
from ._trace import Noted, lock, traces, tracing
from ._values import untraced

_Made = TypeVar("_Made")
RANDOM = {"Dropout", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}


class Moved(NamedTuple):
    """Running statistics that follow a batch: running += factor * (the batch's - running)."""

    running_mean: torch.Tensor
    running_var: torch.Tensor
    sizes: Tuple[int, ...]  # of the batch, but for its channels
    factor: float  # where there is no counter
    counter: Optional[torch.Tensor]  # the factor is 1 / (counter - later), which makes the mean over all batches
    later: int  # how often the statistics are moved after this time in a call
    output: int  # mean; the next is the variance

    @property
    def unbias(self) -> float:
        """Biased variance -> unbiased."""
        numbers = math.prod(self.sizes)
        return numbers / (numbers - 1)


class Exported(NamedTuple):
    """A file and how a call maps to it."""

    model: bytes
    inputs: List[str]  # arguments' tensors, then parameters, then buffers that change
    arguments: int
    parameters: Tensors
    changing: List[torch.Tensor]  # buffers that are inputs
    constants: List[torch.Tensor]  # buffers that are part of the file
    outputs: List[str]
    result: Any  # description of the results
    places: List[int]  # for each tensor of the results its output, or -1 - i for input i itself
    written: List[Tuple[torch.Tensor, int]]  # buffers that a call gives new contents: their output
    moved: List[Moved]
    failed: Optional[int]  # output that is true where the forward would have raised; None: it checks nothing
    counters: List[torch.Tensor]  # num_batches_tracked
    counts: List[int]  # how many each call makes of them
    results: int  # outputs that are the module's results; the others are about its buffers, and have no gradient
    read: Set[str]  # those of the inputs that something reads
    random: bool
    all_f64: bool
    calls: List[Call]  # outside, in the order in which they run
    compared: List[_sizes.Compared]  # what Python asked of sizes
    statistics: Set[str]  # inputs that are running statistics of normalizations
    asked_autocast: bool  # Python did, whether it is around the call: other calls have other files


class _Notes(Dict[str, Any]):
    """What a forward that is traced leaves behind: torch.export gives attributes that are plain dicts back what they were."""


class _Flat(torch.nn.Module):
    """The module as a function of all that it reads. Its parameters are no attributes of this one: they are inputs."""

    source: torch.nn.Module

    def __init__(self, module: torch.nn.Module, description: Any, arguments: int, parameters: Tensors, buffers: Tensors,
                 changing: Sequence[int], outside: Outside, cast: Optional[torch.dtype], states: bool = False,
                 told: Optional[Told] = None, dynamo: bool = False) -> None:  # fmt: skip
        """cast: of the autocast around the call. states: running statistics are the file's own states, moved by its BatchNormalizations; the
        first result is all. told: of types, where they are not those of the trace.
        dynamo: for the exporter of _dynamo.py, to which all buffers are inputs."""
        super().__init__()
        self.__dict__["source"] = module
        self.description, self.arguments = description, arguments
        self.given, self.held, self.changing = parameters, buffers, list(changing)
        self.outside, self.cast, self.states, self.told, self.dynamo = outside, cast, states, told or Told(), dynamo
        self.dtype = torch.get_default_dtype()
        self.input_names: Sequence[str] = ()
        self.trace = _Notes()

    def forward(self, *inputs: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        count = len(self.given.names)
        arguments, rest = inputs[: self.arguments], inputs[self.arguments :]
        with untraced():
            buffers = [] if self.dynamo else [tensor.detach().clone() for tensor in self.held.tensors]
        buffers = buffers or list(rest[count:])
        for index, tensor in zip(self.changing, rest[count:]):
            buffers[index] = tensor if self.states and not self.dynamo else tensor.clone()
        with untraced():
            counted = {i: int(buffers[i]) for i, slots in enumerate(self.held.slots) if slots[0][1] == "num_batches_tracked" and not self.dynamo}
        versions = [tensor._version for tensor in buffers]
        given_versions = [tensor._version for tensor in inputs]
        self._name_scopes()
        self.outside.begin()
        fixed = len(inputs) - len(self.changing) * self.states
        self.outside.fixed = {id(tensor): name for tensor, name in zip(inputs[:fixed], self.input_names)}
        casts = Casts(Regions(next((tensor.device.type for tensor in inputs), "cpu"), self.cast), self.told)
        with self._noting(casts) as noted, _default_dtype(self.dtype), _sizes.noting() as compared, _draws.noted() as drew, \
                exchanged(self.source, ("_parameters", self.given.slots, rest[:count]), ("_buffers", self.held.slots, buffers)):  # fmt: skip
            args, kwargs = _structure.unflatten(self.description, iter(arguments))
            result = without_cache(self.source(*args, **kwargs)) if self.source.training else self.source(*args, **kwargs)
            after = [places[0][0]._buffers[places[0][1]] for places in self.held.slots]
            if self.dynamo:
                _sizes.read()  # it may have, and nobody noted it
        for tensor, before, name in zip(inputs[:fixed], given_versions, self.input_names):
            if tensor._version != before:
                raise UnsupportedError(f"the module's forward changes {name} in place")
        tensors: List[torch.Tensor] = []
        description = _structure.flatten(result, tensors, "the module's results: ")
        refuse_rows(tensors, "the module's results are")
        if not self.states and any(map(_asks_itself, [tensor for tensor in tensors if all(tensor is not other for other in inputs)])):
            raise UnsupportedError("the module's forward returns a tensor whose gradient it asks for itself (requires_grad_): make it an argument")
        if any(isinstance(tensor, Complex) for tensor in tensors):
            raise UnsupportedError("the module's results are complex numbers: give torch.view_as_real of them")
        tensors = [casts.source(tensor) for tensor in tensors]
        if casts.regions.low and not self.told.results and not self.states:
            with untraced():
                self.told = told_types(self.source, self.description, arguments)
        if len(self.told.results) == len(tensors):
            tensors = _of_types(tensors, self.told.results)
        owned = self.outside.owns()
        elsewhere = {i for i, slots in enumerate(self.held.slots) if all(id(owner) in owned for owner, _ in slots)}
        changed = [i for i, (a, b, v) in enumerate(zip(after, buffers, versions)) if (a is not b or a._version != v) and i not in elsewhere]
        self.trace.update(result=description, tensors=tensors, changed=changed, buffers=buffers, after=after, statistics=list(noted.statistics),
                          failing=list(noted.failing), checks=list(noted.checks), inputs=inputs, elsewhere=elsewhere, compared=compared,
                          counted=counted, drew=drew[-1], asked_autocast=casts.regions.asked or self.dynamo)  # fmt: skip
        if self.dynamo and self.states and changed:
            raise UnsupportedError("it has no states that a forward writes, such as running statistics")
        return (tensors[0],) if self.states else self._outputs()

    @contextlib.contextmanager
    def _noting(self, casts: Casts) -> Iterator[Noted]:
        if self.dynamo:
            with _dynamo.exporting():
                yield Noted([], [], [])
            return
        with tracing(self.outside, casts, not self.states) as noted:
            yield noted

    def _name_scopes(self) -> None:
        """Nodes are named after the submodules that make them."""
        scopes = getattr(torch.jit._trace, "_trace_module_map", None)
        create = getattr(torch._C, "_jit_onnx_create_full_scope_name", None)
        if scopes is None or create is None:
            return
        for path, module in self.source.named_modules():
            label = self.outside.label(path)
            if label:
                scopes[module] = create(torch.typename(type(module)), label)

    def _outputs(self) -> Tuple[torch.Tensor, ...]:
        """The file's outputs: distinct results that are no inputs, buffers' new contents, statistics."""
        t = self.trace
        known = {id(tensor): -1 - i for i, tensor in enumerate(t["inputs"])}
        outputs: List[torch.Tensor] = []
        places: List[int] = []
        for tensor in t["tensors"]:
            if id(tensor) not in known:
                known[id(tensor)] = len(outputs)
                outputs.append(tensor)
            places.append(known[id(tensor)])
        t["places"] = places
        counted = {id(tensor): i for i, tensor in enumerate(t["buffers"])}
        if any(id(tensor) not in counted for row in t["statistics"] for tensor in (row.running_mean, row.running_var)):
            raise UnsupportedError("the module normalizes batches with running statistics that are none of its buffers")
        t["moved"] = [(counted[id(row.running_mean)], counted[id(row.running_var)], row) for row in t["statistics"]]
        t["counters"] = [i for i in t["changed"] if i in t["counted"]]
        t["written"] = [i for i in t["changed"] if i not in t["counters"]]
        t["first"] = len(outputs)
        outputs += [t["after"][i].detach() for i in t["written"]]
        for row in t["statistics"]:
            outputs += [row.mean.detach(), row.variance.detach()]
        if t["failing"]:
            outputs.append(functools.reduce(torch.logical_or, t["failing"]))
        return tuple(outputs)


def _asks_itself(tensor: torch.Tensor) -> bool:
    """Whether a tensor that is no argument wants a gradient of its own."""
    return tensor.is_leaf and tensor.requires_grad and not hasattr(tensor, "gradloom_outside")


def _of_types(tensors: Sequence[torch.Tensor], types: Sequence[torch.dtype]) -> List[torch.Tensor]:
    """The same one again where it is among them again."""
    made = {(id(tensor), dtype): tensor for tensor, dtype in zip(tensors, types) if tensor.dtype == dtype}
    for tensor, dtype in zip(tensors, types):
        if (id(tensor), dtype) not in made:
            made[id(tensor), dtype] = tensor.to(dtype)
    return [made[id(tensor), dtype] for tensor, dtype in zip(tensors, types)]


def told_types(module: torch.nn.Module, description: Any, arguments: Sequence[torch.Tensor]) -> Told:
    """Types of a call in PyTorch, which may depend on torch.autocast: by such a call, of which nothing stays. None where it fails."""
    tensors: List[torch.Tensor] = []
    told = Told()
    caches = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)  # casts of parameters that are made here have no gradient
    try:
        with lock, noting(told), without_effect(module, arguments):
            args, kwargs = _structure.unflatten(description, iter([tensor.detach().clone() for tensor in arguments]))
            result = module(*args, **kwargs)
            _structure.flatten(without_cache(result) if module.training else result, tensors)
    except Exception:  # the call itself tells
        return Told()
    finally:
        torch.set_autocast_cache_enabled(caches)
    told.results = [tensor.dtype for tensor in tensors]
    return told


def without_cache(result: Any) -> Any:
    """Hugging Face's results without the keys and values that generation would go on with: training does not."""
    if isinstance(result, dict) and not isinstance(result.get("past_key_values"), (torch.Tensor, tuple, type(None))):
        return type(result)(**{key: value for key, value in result.items() if key != "past_key_values"})
    return result


def _register(opset: int) -> None:
    def detach(g: Any, x: Any) -> Any:
        return g.op(f"{DOMAIN}::StopGradient", x).setType(x.type())

    def native_batch_norm(g: Any, x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: Any, momentum: Any, eps: Any) -> Any:
        width = next(g.original_node.inputs()).type().sizes()[1]
        like = {"Float": torch.float32, "Double": torch.float64}.get(x.type().scalarType(), torch.float32)
        ones, zeros = torch.ones(width, dtype=like), torch.zeros(width, dtype=like)
        scale = g.op("Constant", value_t=ones) if weight.node().mustBeNone() else weight
        shift = g.op("Constant", value_t=zeros) if bias.node().mustBeNone() else bias
        rest = [g.op("Constant", value_t=zeros), g.op("Constant", value_t=ones)]
        factor = torch.onnx.symbolic_helper._get_const(eps, "f", "eps")
        y, new_mean, new_var = g.op("BatchNormalization", x, scale, shift, *rest, epsilon_f=factor, momentum_f=0.0, training_mode_i=1, outputs=3)
        y.setType(x.type())
        new_mean.setType(scale.type())
        new_var.setType(scale.type())
        return y, new_mean, new_var

    def alias(g: Any, x: Any) -> Any:
        return g.op(f"{DOMAIN}::Typed", x).setType(x.type())

    def copy(g: Any, x: Any, source: Any, non_blocking: Any) -> Any:
        """Tensor.copy_ of a whole tensor: the source in its shape and type."""
        made = g.original_node.output().type()
        kind, sizes = made.scalarType(), made.sizes()
        if kind != source.type().scalarType():
            source = g.op("Cast", source, to_i=torch.onnx.symbolic_helper.cast_pytorch_to_onnx[kind])
        if sizes != source.type().sizes():
            source = g.op("Expand", source, g.op("Constant", value_t=torch.tensor(sizes, dtype=torch.int64)))
        return source.setType(made)

    from ._symbolics import SYMBOLICS  # of the exporter by TorchScript alone

    register: Callable[..., None] = getattr(torch.onnx, "register_custom_op_symbolic")
    register("aten::detach", detach, opset)
    register("aten::native_batch_norm", native_batch_norm, opset)
    register("aten::alias", alias, opset)
    register("aten::copy", copy, opset)
    register(f"{DOMAIN}::outside", outside_symbolic, opset)
    register(f"{DOMAIN}::dft", dft_symbolic, opset)
    for name, symbolic in SYMBOLICS.items():
        register(name, symbolic, opset)


def _opset() -> int:
    return 17


def _drop(tensor: torch.Tensor) -> None:
    """Of what autograd would keep: nothing, no backward follows a trace."""


def _nothing(kept: None) -> torch.Tensor:
    if traces():
        raise UnsupportedError("the module's forward computes gradients of its own")
    raise UnsupportedError("the loss reads a tensor that a forward left behind, in an attribute of the module or by a forward hook, which is none of a call: "
                           "return it as a result")  # fmt: skip


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _all_f64(tensors: Sequence[torch.Tensor]) -> bool:
    floats = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
    return bool(floats) and all(dtype == torch.float64 for dtype in floats)


def _may_change(tensor: torch.Tensor) -> torch.Tensor:
    """For a trace: of no inference mode, and with the gradient that the tensor wants."""
    plain = tensor.clone() if tensor.is_inference() else tensor.detach()
    return plain.requires_grad_(tensor.requires_grad)


def _run_exporter(flat: _Flat, inputs: Sequence[torch.Tensor], names: Sequence[str], outputs: Optional[List[str]] = None) -> bytes:
    opset, outside = _opset(), flat.outside
    _register(opset)
    flat.input_names = list(names)
    flat.trace.clear()
    outside.begin()
    to_onnx: Callable[..., Any] = torch.onnx.export  # whose types say nothing of writing into memory
    legacy = {"dynamo": False} if "dynamo" in inspect.signature(to_onnx).parameters else {}

    # The exporter makes scalars of PyTorch's default type, also where they meet f64 alone.
    width = torch.float64 if _all_f64(inputs) else torch.get_default_dtype()

    def export() -> bytes:
        file = io.BytesIO()
        with quiet(), _default_dtype(width), torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad(), \
                torch.autograd.graph.saved_tensors_hooks(_drop, _nothing):  # fmt: skip
            to_onnx(flat, tuple(_may_change(tensor) for tensor in inputs), file, input_names=list(names), output_names=outputs,
                    training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False, opset_version=opset, **legacy)  # fmt: skip
        return file.getvalue()

    failed: Optional[Exception] = None
    with lock, passing_refused(outside) as missing:
        try:
            written = export()
            if flat.trace["drew"] and not (missing or outside.found) and any(_with_others(export, share) != written for share in (0.0, 0.999)):
                raise UnsupportedError(_draws.REFUSED)
            model = _onnx_file.with_scopes(written, [*SCOPES, *LABELS])
            model = _onnx_file.with_detached(_onnx_file.with_labels(model, DOMAIN, LABELS), DOMAIN)
        except Exception as error:
            if getattr(error, "gradloom_own", False):
                raise
            failed = error
    for path, reason in operators_refused(missing).items():
        outside.refuse(path, reason)
    refusals = outside.found
    if flat.states and outside.rows_refused and outside.takes_rows:
        outside.takes_rows = False  # data that are the same in every batch tell how many there are
        return _run_exporter(flat, inputs, names, outputs)
    if isinstance(failed, UnsupportedError) or (failed is not None and not refusals):
        refusals = [*refusals, Refusal("", "", _whole(failed))]
    if refusals:
        raise Located(refusals)
    return model


def _with_others(export: Callable[[], bytes], share: float) -> bytes:
    """What a trace writes that draws other numbers."""
    with _draws.extreme(share):
        return export()


def _whole(error: Exception) -> str:
    """Why a trace ended early."""
    if "Tensor that requires grad as a constant" in str(error):
        return "the module reads a tensor that requires a gradient and is none of its parameters or arguments"
    return reason_of(error)


def _by_dynamo(flat: _Flat, inputs: Sequence[torch.Tensor], names: Sequence[str], outputs: Optional[List[str]] = None) -> bytes:
    """Raises Located."""
    flat.input_names = list(names)
    flat.trace.clear()
    flat.outside.begin()
    reason = _dynamo.missing() or ("it loses the types of torch.autocast" if flat.cast is not None else "")
    if reason:
        raise Located([Refusal("", "", reason)])
    width = torch.float64 if _all_f64(inputs) else torch.get_default_dtype()
    try:
        with lock, quiet(), _default_dtype(width), torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad():
            return _dynamo.exported_file(flat, [_may_change(tensor) for tensor in inputs], names, outputs)
    except Exception as error:
        raise Located([Refusal("", "", reason_of(error))]) from None


def _by_either(exporter: str, outside: Outside, by_torchscript: Callable[[], _Made], by_dynamo: Callable[[], _Made]) -> _Made:
    """exporter: of Module. The dynamo exporter is asked where the other one cannot export what is none of the module's own doing, and nothing is outside.
    Raises Located, which says what both lack."""
    if exporter == "dynamo" or (exporter == "auto" and not hasattr(torch.onnx, "register_custom_op_symbolic")):
        return by_dynamo()
    try:
        return by_torchscript()
    except Located as error:
        first, *others = error.refusals
        if exporter != "auto" or outside.chosen or _dynamo.missing() or not any(refusal.reason.startswith("PyTorch") for refusal in error.refusals):
            raise
    try:
        return by_dynamo()
    except Located as error:
        raise Located([first._replace(reason=f"{first.reason}; and by the dynamo exporter: {error}"), *others]) from None


def argument_names(module: torch.nn.Module, description: Any) -> List[str]:
    """Names for the tensors of (args, kwargs): those of forward's parameters."""
    (_, (positional, named)) = description
    try:
        known = [p.name for p in inspect.signature(module.forward).parameters.values() if p.kind <= p.POSITIONAL_OR_KEYWORD]
    except (TypeError, ValueError):
        known = []
    names: List[str] = []
    for index, item in enumerate(positional[1]):
        names += _structure.paths(item, known[index] if index < len(known) else f"args.{index}")
    return names + _structure.paths(named)


def distinct(names: Sequence[str], taken: Set[str]) -> List[str]:
    result = []
    for name in names:
        free, number = name, 1
        while free in taken:
            number += 1
            free = f"{name}.{number}"
        taken.add(free)
        result.append(free)
    return result


def export(module: torch.nn.Module, description: Any, arguments: Sequence[torch.Tensor], changing: Set[int], outside: Outside,
           cast: Optional[torch.dtype], told: Optional[Told] = None, exporter: str = "auto") -> Exported:  # fmt: skip
    """The file for calls with such arguments. changing: ids of buffers whose numbers are known to change. cast: the type of the autocast that is
    around them, though not around this. told: by told_types. exporter: "auto", "torchscript", "dynamo".

    Raises Located, or what the module's own forward raises.
    """
    parameters, buffers = members(module, "_parameters"), members(module, "_buffers")
    taken = set(parameters.names) | set(buffers.names)
    own = distinct(argument_names(module, description), taken) + parameters.names

    def exported(inputs_of: Sequence[int], dynamo: bool) -> Tuple[Exported, List[int]]:
        """With these buffers as inputs; those that it writes."""
        names = own + [buffers.names[i] for i in inputs_of]
        flat = _Flat(module, description, len(arguments), parameters, buffers, inputs_of, outside, cast, told=told, dynamo=dynamo)
        given = [*arguments, *parameters.tensors, *[buffers.tensors[i] for i in inputs_of]]
        model = (_by_dynamo if dynamo else _run_exporter)(flat, given, names)
        return _exported(model, names, flat, given), flat.trace["written"]

    def by_torchscript() -> Exported:
        inputs_of = [i for i, tensor in enumerate(buffers.tensors) if id(tensor) in changing or any(not norm.training for norm in buffers.norms_of(i))]
        while True:
            made, written = exported(inputs_of, False)
            later = sorted(set(inputs_of) | set(written))
            if later == inputs_of:
                return made
            inputs_of = later

    return _by_either(exporter, outside, by_torchscript, lambda: exported(range(len(buffers.names)), True)[0])


class ExportedJob(NamedTuple):
    """A module that returns a loss, as a file whose parameters and buffers are inputs called after the module's."""

    exported: Exported
    inputs: List[str]
    members: Dict[str, torch.Tensor]  # that are read
    counters: List[Tuple[torch.Tensor, int]]  # num_batches_tracked, and by how many a batch moves it


def batch_names(objective: torch.nn.Module, description: Any) -> List[str]:
    """Names for the tensors of a batch: those of the arguments of the model's forward, and "target"."""
    found = argument_names(objective.get_submodule("model"), description)
    if objective.loss is not None and not description[1][1][1]:
        found[-1] = "target"
    return found


def export_job(objective: torch.nn.Module, description: Any, arguments: Sequence[torch.Tensor], outside: Outside,
               cast: Optional[torch.dtype], functions: bool, fallback: bool, told: Told,
               exporter: str) -> ExportedJob:  # fmt: skip
    """The file whose output "loss" is what `objective`, whose part `model` gives the names, returns. told, exporter: as of export.

    functions, fallback: torch.autograd.Functions, and what cannot be traced, may be outside; else Located for all that stands in the way.
    """
    outside.one_batch = not functions
    parameters, buffers = members(objective, "_parameters"), members(objective, "_buffers")
    own = [outside.title(name) for name in parameters.names + buffers.names]
    taken = set(own) | {"loss"}
    inputs = distinct(batch_names(objective, description), taken)
    given = [*arguments, *parameters.tensors, *[tensor.detach().clone() for tensor in buffers.tensors]]

    def flat_of(dynamo: bool) -> _Flat:
        return _Flat(objective, description, len(arguments), parameters, buffers, range(len(buffers.names)), outside, cast, True, told, dynamo)

    def by_torchscript() -> Tuple[_Flat, bytes]:
        flat = flat_of(False)
        return flat, _onnx_file.with_unbiased(_run_exporter(flat, given, inputs + own, ["loss"]))

    def by_dynamo() -> Tuple[_Flat, bytes]:
        flat = flat_of(True)
        return flat, _by_dynamo(flat, given, inputs + own, ["loss"])

    def by_either() -> Tuple[_Flat, bytes]:
        flat, model = _by_either(exporter, outside, by_torchscript, by_dynamo)
        written: Dict[int, List[str]] = {}
        reads = _onnx_file.read_names(model)
        for i in [] if flat.dynamo else flat.trace["changed"]:
            if i not in flat.trace["counted"] and not buffers.norms_of(i) and outside.title(buffers.names[i]) in reads:
                written.setdefault(id(buffers.slots[i][0][0]), []).append(outside.title(buffers.names[i]))
        if written and functions:
            paths = {outside.paths[owner]: ", ".join(names) for owner, names in written.items()}
            raise Located([Refusal(path, type(outside.modules[path]).__name__, f"its forward reads buffers that it writes, which a step does not and Module does: {names}")
                           for path, names in paths.items()])  # fmt: skip
        if written:
            warn("gradloom: buffers that the forward writes and reads stay in the job as they are now: " + ", ".join(sum(written.values(), [])))
        return flat, model

    flat, model = _tried_job(outside, by_either, functions, fallback)
    read = _onnx_file.read_names(model)
    if flat.trace["checks"]:
        warn("gradloom: steps go on where the model would raise, but for the first: " + ", ".join(dict.fromkeys(flat.trace["checks"])))
    members_read = {name: tensor for name, tensor in zip(own, parameters.tensors + buffers.tensors) if name in read}
    exported = Exported(model=model, inputs=inputs + own, arguments=len(arguments), parameters=parameters, changing=[], constants=[],
                        outputs=["loss"], result=None, places=[0], written=[], moved=[], failed=None, counters=[], counts=[], results=1, read=read,
                        random=False, all_f64=_all_f64(list(members_read.values())), calls=outside.calls,
                        compared=flat.trace["compared"], statistics=set(), asked_autocast=flat.trace["asked_autocast"])  # fmt: skip
    counters = [(buffers.tensors[i], int(flat.trace["after"][i]) - before) for i, before in flat.trace["counted"].items()
                if i in flat.trace["changed"]]  # fmt: skip
    return ExportedJob(exported, inputs, members_read, counters)


def _tried_job(outside: Outside, make: Callable[[], _Made], functions: bool, fallback: bool) -> _Made:
    made = outside.tried(make)
    refusals = list(outside.chosen.values())
    if not functions:
        names_of = sorted({str(call) for call in outside.calls if not call.is_module})
        refusals += [Refusal("", "", f"{name} has a backward of its own, which no file holds (TrainStep calls it)") for name in names_of]
    if made is None or (refusals and not fallback):
        outside.give_up()
        raise outside.error(refusals)
    return made


def _moved(flat: _Flat, output: int) -> List[Moved]:
    buffers, found = flat.held, []
    rows = flat.trace["moved"]
    for index, (mean, var, row) in enumerate(rows):
        owner = buffers.slots[mean][0][0]
        counter = getattr(owner, "num_batches_tracked", None) if getattr(owner, "momentum", 0.0) is None else None
        later = sum(after == mean for after, _, _ in rows[index + 1 :])
        found.append(Moved(buffers.tensors[mean], buffers.tensors[var], row.sizes, row.factor, counter, later, output + 2 * index))
    return found


def _exported(model: bytes, names: List[str], flat: _Flat, given: Sequence[torch.Tensor]) -> Exported:
    t, buffers = flat.trace, flat.held
    first = t["first"]
    after = first + len(t["written"])
    used = set(flat.changing) | t["elsewhere"] | {i for mean, var, _ in t["moved"] for i in (mean, var)} | set(t["counters"])
    return Exported(
        model=model,
        inputs=names,
        arguments=flat.arguments,
        parameters=flat.given,
        changing=[buffers.tensors[i] for i in flat.changing],
        constants=[tensor for i, tensor in enumerate(buffers.tensors) if i not in used],
        outputs=_onnx_file.outputs(model),
        result=t["result"],
        places=t["places"],
        written=[(buffers.tensors[i], first + n) for n, i in enumerate(t["written"])],
        moved=_moved(flat, after),
        failed=after + 2 * len(t["moved"]) if t["failing"] else None,
        counters=[buffers.tensors[i] for i in t["counters"]],
        counts=[int(t["after"][i]) - t["counted"][i] for i in t["counters"]],
        results=first,
        read=_onnx_file.read_names(model),
        random=bool(RANDOM & _onnx_file.operators(model)),
        all_f64=_all_f64(given),
        calls=flat.outside.calls,
        compared=t["compared"],
        statistics={buffers.names[i] for i in flat.changing if buffers.norms_of(i)},
        asked_autocast=t["asked_autocast"],
    )
