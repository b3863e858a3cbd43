"""A whole training step as a file: the module with its loss, and a torch optimizer in a recipe's words."""

import os
from collections import Counter
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

import torch
from torch.nn import functional

from .. import _onnx_file
from .._library import UnsupportedError, UsageError
from . import _structure
from ._export import Exported, ExportedJob, export_job
from ._outside import Located, Outside
from ._plan import NUMBERS


class Objective(torch.nn.Module):
    """The loss of a batch. Without a loss function the module's result has it: itself, its first entry, or the one called "loss"; else
    the batch's last entry is what the result of the others is compared with."""

    def __init__(self, model: torch.nn.Module, loss: Optional[Callable[..., torch.Tensor]]) -> None:
        super().__init__()
        self.model, self.loss = model, loss
        name = getattr(loss, "__name__", "")
        self._name = name if getattr(functional, name, None) is loss else ""

    def _loss(self, *compared: Any) -> Any:
        """A function of torch.nn.functional is looked up again: a trace has others there."""
        function: Any = getattr(functional, self._name) if self._name else self.loss
        return function(*compared)

    def forward(self, *batch: Any, **named: Any) -> torch.Tensor:
        if self.loss is None:
            result = self.model(*batch, **named)
            if isinstance(result, dict):
                result = result.get("loss")
            elif isinstance(result, (tuple, list)):
                result = result[0] if result else None
            elif not isinstance(result, torch.Tensor):
                result = getattr(result, "loss", None)
        elif named:
            *others, last = named.items()
            result = self._loss(self.model(*batch, **dict(others)), last[1])
        else:
            result = self._loss(self.model(*batch[:-1]), batch[-1])
        if not isinstance(result, torch.Tensor) or result.numel() != 1:
            raise UsageError("the loss is no tensor of one number: give loss=, or a model that returns it")
        return result.reshape(())


def arguments_of(batch: Any) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    """(positional, named) of a batch: a tuple or list of arguments, a dict of named ones, or the only argument."""
    if isinstance(batch, dict):
        return (), dict(batch)
    return (tuple(batch), {}) if isinstance(batch, (tuple, list)) else ((batch,), {})


def unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    from ._module import Module

    return model.module if isinstance(model, Module) else model


class Job(NamedTuple):
    """The file of a step and the words that say how its parameters are trained."""

    exported: Exported  # parameters and buffers are inputs
    inputs: List[str]
    parameters: Dict[str, torch.Tensor]  # and buffers, by the names in the file
    words: Dict[str, Any]  # settings of a recipe
    counters: List[Tuple[torch.Tensor, int]]  # of ExportedJob


def _array(tensor: torch.Tensor) -> _onnx_file.Array:
    flat = tensor.detach().cpu().contiguous().view(-1)
    if flat.dtype == torch.bfloat16:
        raise UnsupportedError("parameters in bfloat16 cannot be captured")
    numbers: Any = flat.numpy()
    data = memoryview(numbers).cast("B") if flat.numel() else memoryview(b"")
    return _onnx_file.Array(NUMBERS[tensor.dtype], tuple(tensor.shape), data)


class Weights:
    """Parameters and buffers in a file of their own, to which the models of all sizes refer."""

    _ALIGNMENT = 64

    def __init__(self, folder: str, members: Dict[str, torch.Tensor]) -> None:
        self._folder, self._places = folder, {}  # type: str, Dict[str, _onnx_file.External]
        with open(os.path.join(folder, "weights.bin"), "wb") as file:
            for name, tensor in members.items():
                array = _array(tensor)
                file.write(bytes(-file.tell() % self._ALIGNMENT))
                self._places[name] = _onnx_file.External(array.dtype, array.shape, "weights.bin", file.tell(), len(array.data))
                file.write(array.data)

    def write_model(self, model: bytes, name: str) -> str:
        """Writes a file whose inputs have these contents; its path."""
        path = os.path.join(self._folder, name)
        with open(path, "wb") as file:
            file.write(_onnx_file.with_initializers(model, self._places))
        return path


class Source:
    """A model with its loss, whose steps are exported. functions: torch.autograd.Functions may be nodes Outside; fallback: so may the
    smallest submodules around what cannot be traced or has no kernel, which are functions of their parameters then."""

    def __init__(self, model: torch.nn.Module, loss: Optional[Callable[..., torch.Tensor]], functions: bool = False, fallback: bool = False) -> None:
        self.model, self.functions, self.fallback = unwrapped(model), functions, fallback
        self.objective = Objective(self.model, loss)
        self.outside = Outside(self.objective, unnamed="model", owns_parameters=True)

    def leave_out(self, model: bytes, error: UnsupportedError) -> None:
        """The engine refused a file that was exported: without what it names the next one may do, else raises."""
        located = self.outside.located(model, error)
        refusals = located.refusals if isinstance(located, Located) else []
        if not self.fallback or not self.outside.choose(refusals):
            raise self.outside.error(refusals) from None


def export_step(source: Source, batch: Any) -> ExportedJob:
    """The loss on batches like `batch`."""
    source.objective.training = source.model.training
    args, kwargs = arguments_of(batch)
    tensors: List[torch.Tensor] = []
    description = _structure.flatten((args, kwargs), tensors, "the batch: ")
    return export_job(source.objective, description, tensors, source.outside, source.functions, source.fallback)


def globs(names: Sequence[str], others: Iterable[str]) -> List[str]:
    """`names`, with MODULE.* in place of those of a module that has none of `others`: patterns that fit them alone, as short as a person
    would say it."""
    if any(set("*?") & set(name) for name in names):
        return list(names)
    own = Counter(module for name in names for module in _modules(name))
    shared = {module for name in set(others) for module in _modules(name)}
    found: List[str] = []
    covered: Set[str] = set()
    for name in names:
        modules = _modules(name)
        if covered.intersection(modules):
            continue
        whole = next((m for m in modules if own[m] > 1 and m not in shared), None)
        if whole is not None:
            covered.add(whole)
        found.append(name if whole is None else whole + "*")
    return found


def _modules(name: str) -> List[str]:
    """The modules that a name lies in, the outermost first: "a.", "a.b." of "a.b.weight"."""
    parts = name.split(".")
    return [".".join(parts[:depth]) + "." for depth in range(1, len(parts))]


def make_job(source: Source, batch: Any, optimizer: Any) -> Job:
    """The step on batches like `batch`."""
    step = export_step(source, batch)
    members = step.members
    names = {id(tensor): name for name, tensor in members.items()}
    words = optimizer_words(optimizer, names)
    held = None if isinstance(optimizer, str) else {id(p) for group in optimizer.param_groups for p in group["params"]}
    trained, frozen = [], []
    for name, tensor in members.items():
        if isinstance(tensor, torch.nn.Parameter) and tensor.requires_grad and (held is None or id(tensor) in held):
            trained.append(name)
        elif tensor.is_floating_point() and not name.endswith(("running_mean", "running_var")):
            frozen.append(name)
    if not trained:
        raise UsageError("the loss depends on no parameter that is to be trained")
    numbers = {name for name, tensor in members.items() if tensor.is_floating_point()}  # nothing else could be trained
    words["train"] = globs(trained, numbers - set(trained))
    if frozen:
        words["freeze"] = globs(frozen, numbers - set(frozen))
    if all(t.dtype == torch.float64 for t in members.values() if t.is_floating_point()):
        words["precision"] = "f64"
    return Job(step.exported, step.inputs, members, words, step.counters)


# Of torch.optim's classes: the recipe's name, and its options, which are called alike.
_OPTIMIZERS: Dict[str, Tuple[str, Tuple[str, ...]]] = {
    "SGD": ("sgd", ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize")),
    "Adam": ("adam", ("lr", "eps", "weight_decay", "maximize")),
    "AdamW": ("adamw", ("lr", "eps", "weight_decay", "maximize")),
}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(float(value))


def optimizer_words(optimizer: Any, names: Dict[int, str]) -> Dict[str, Any]:
    """The settings `optimizer` and `group` for a text or a torch optimizer over parameters with these names."""
    if isinstance(optimizer, str):
        return {"optimizer": optimizer}
    kind = type(optimizer).__name__
    if not isinstance(optimizer, torch.optim.Optimizer) or kind not in _OPTIMIZERS:
        raise UnsupportedError(f"no optimizer here does what {kind} does: torch.optim.{', '.join(_OPTIMIZERS)}, or a recipe's text")
    word, options = _OPTIMIZERS[kind]
    first, *others = optimizer.param_groups
    if any(group.get("amsgrad") for group in optimizer.param_groups):
        raise UnsupportedError(f"{kind} with amsgrad=True is not supported")
    text = [f"{option}={_text(first[option])}" for option in options if option in first]
    if "betas" in first:
        text += [f"beta1={_text(first['betas'][0])}", f"beta2={_text(first['betas'][1])}"]
    groups = []
    for group in others:
        same = {key: value for key, value in group.items() if key not in ("params", "lr", "weight_decay", "initial_lr")}
        if any(first.get(key) != value for key, value in same.items()):
            raise UnsupportedError(f"groups of {kind} may differ in lr and weight_decay only")
        rates = f"lr={_text(group['lr'])},weight_decay={_text(group['weight_decay'])}"
        own = [names[id(p)] for p in group["params"] if id(p) in names]
        groups += [f"{glob}{{{rates}}}" for glob in globs(own, set(names.values()) - set(own))]
    words: Dict[str, Any] = {"optimizer": f"{word}{{{','.join(text)}}}"}
    if groups:
        words["group"] = groups
    return words


def write_job(job: Job, folder: str) -> str:
    """Writes model.onnx with all its contents into the folder; its path."""
    path = os.path.join(folder, "model.onnx")
    with open(path, "wb") as file:
        file.write(_onnx_file.with_initializers(job.exported.model, {name: _array(tensor) for name, tensor in job.parameters.items()}))
    return path
