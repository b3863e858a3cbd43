"""A whole training step as a file: the module with its loss, and the words that say how it is trained."""

import os
from collections.abc import Mapping
from typing import Any, Callable, ContextManager, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch.nn import functional

from .. import _onnx_file
from .._library import UnsupportedError, UsageError
from . import _structure
from ._casts import Told
from ._devices import autocast, without_autocast
from ._dynamo import checked_exporter
from ._export import Exported, ExportedJob, export_job, told_types
from ._optimizer import Options, globs, optimizer_words
from ._outside import Located, Outside
from ._plan import NUMBERS
from ._tensors import contents


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
            if len(batch) < 2:
                raise UsageError("a batch is the model's arguments and the loss's target: where there is no target the model returns the loss, and loss= is not given")
            result = self._loss(self.model(*batch[:-1]), batch[-1])
        if not isinstance(result, torch.Tensor) or result.numel() != 1:
            raise UsageError("the loss is no tensor of one number: give loss=, or a model that returns it")
        return result.reshape(())


def arguments_of(batch: Any) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    """(positional, named) of a batch: a tuple or list of arguments, a dict of named ones, or the only argument."""
    if isinstance(batch, Mapping):  # also Hugging Face's BatchEncoding
        return (), dict(batch)
    return (tuple(batch), {}) if isinstance(batch, (tuple, list)) else ((batch,), {})


class Batch(NamedTuple):
    """What a step is given, and as a list of tensors."""

    given: Any
    structure: Any  # of arguments_of
    tensors: List[torch.Tensor]


def flat_batch(given: Any) -> Batch:
    tensors: List[torch.Tensor] = []
    return Batch(given, _structure.flatten(arguments_of(given), tensors, "the batch: "), tensors)


def unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    from ._module import Module

    return model.module if isinstance(model, Module) else model


class Job(NamedTuple):
    """The file of a step and the words that say how its parameters are trained."""

    exported: Exported  # parameters and buffers are inputs
    inputs: List[str]
    parameters: Dict[str, torch.Tensor]  # and buffers, by the names in the file
    words: Dict[str, Any]  # settings of a recipe, but for the precision
    counters: List[Tuple[torch.Tensor, int]]  # of ExportedJob
    trained: Dict[int, str]  # names of the parameters that are, by their ids


def _array(tensor: torch.Tensor) -> _onnx_file.Array:
    return _onnx_file.Array(NUMBERS[tensor.dtype], tuple(tensor.shape), contents(tensor))


def clipped(clip: Optional[float], settings: Dict[str, Any]) -> Dict[str, Any]:
    """The settings with `clip` under the recipe's name."""
    if clip is None:
        return settings
    if settings.get("clip_norm") is not None:
        raise UsageError("clip and clip_norm are the same: give one of them")
    return {**settings, "clip_norm": float(clip)}


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
    smallest submodules around what cannot be traced or has no kernel, which are functions of their parameters then. exporter: as of Module."""

    def __init__(self, model: torch.nn.Module, loss: Optional[Callable[..., torch.Tensor]], functions: bool = False, fallback: bool = False,
                 exporter: str = "auto") -> None:  # fmt: skip
        self.model, self.functions, self.fallback = unwrapped(model), functions, fallback
        self.exporter = checked_exporter(exporter)
        self.objective = Objective(self.model, loss)
        self.outside = Outside(self.objective, unnamed="model", owns_parameters=True)

    def autocast(self) -> Optional[torch.dtype]:
        """The type of a running torch.autocast for the model's device."""
        return autocast(self._kind())

    def _kind(self) -> str:
        return next((tensor.device.type for tensor in self.model.parameters()), "cpu")

    def without_autocast(self) -> ContextManager[Any]:
        return without_autocast(self._kind())

    def leave_out(self, model: bytes, error: UnsupportedError) -> None:
        """The engine refused a file that was exported: without what it names the next one may do, else raises."""
        located = self.outside.located(model, error)
        refusals = located.refusals if isinstance(located, Located) else []
        if not self.fallback or not self.outside.choose(refusals):
            raise self.outside.error(refusals, error.code) from None


def export_step(source: Source, batch: Batch) -> ExportedJob:
    """The loss on batches like `batch`."""
    source.objective.training = source.model.training
    _, description, tensors = batch
    cast = source.autocast()
    told = Told() if cast is None else told_types(source.objective, description, tensors)
    told.results = []  # the loss is in f32
    with source.without_autocast():
        return export_job(source.objective, description, tensors, source.outside, cast, source.functions, source.fallback, told,
                          source.exporter)  # fmt: skip


def make_job(source: Source, batch: Batch, optimizer: Any, options: Optional[Options], numbered: bool) -> Job:
    """The step on batches like `batch`. options: of a torch optimizer, which is no text; numbered: as optimizer_words."""
    step = export_step(source, batch)
    members = step.members
    names = {id(tensor): name for name, tensor in members.items()}
    words = {"optimizer": optimizer} if options is None else optimizer_words(options, names, optimizer.param_groups, numbered)
    held = None if options is None else {id(p) for group in optimizer.param_groups for p in group["params"]}
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
    return Job(step.exported, step.inputs, members, words, step.counters, {id(members[name]): name for name in trained})


def write_job(job: Job, folder: str) -> str:
    """Writes model.onnx with all its contents into the folder; its path."""
    path = os.path.join(folder, "model.onnx")
    with open(path, "wb") as file:
        file.write(_onnx_file.with_initializers(job.exported.model, {name: _array(tensor) for name, tensor in job.parameters.items()}))
    return path
