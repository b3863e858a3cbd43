"""gradloom.torch.capture: a script's training step as a folder that Gradloom opens, measures and tunes."""

import json
import os
import tempfile
import zipfile
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch

from .._library import UsageError, library
from ..commands import words_of
from ..session import Session
from . import _structure
from ._job import Source, arguments_of, clipped, make_job, write_job
from ._optimizer import Options, States, states_of, write_states
from ._regions import precision_of

_STEPS = 10  # where the settings name none, as in a recipe


def _batches(batch: Any) -> List[Any]:
    """One batch, or a list of batches of one structure."""
    if isinstance(batch, list) and batch and isinstance(batch[0], (tuple, dict, list)):
        return batch
    return [batch]


def _tensors(batch: Any) -> List[torch.Tensor]:
    tensors: List[torch.Tensor] = []
    _structure.flatten(arguments_of(batch), tensors, "the batch: ")
    return tensors


def _array(tensor: torch.Tensor) -> Any:
    """bf16, which archives do not have, as f32."""
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def write_batches(path: str, names: Sequence[str], batches: Sequence[Any]) -> None:
    """An npz archive: arrays called after the inputs, with the batch's number as first axis."""
    import numpy

    columns = [_tensors(batch) for batch in batches]
    for index, column in enumerate(columns):
        if [t.shape for t in column] != [t.shape for t in columns[0]]:
            raise UsageError(f"batch {index} has other shapes than the first")
    arrays = {name: numpy.stack([_array(column[i]) for column in columns]) for i, name in enumerate(names)}
    with zipfile.ZipFile(path, "w") as archive:  # numpy.savez has names of its own, such as "file"
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                numpy.lib.format.write_array(file, array, allow_pickle=False)


def capture(model: torch.nn.Module, batch: Any, loss: Optional[Callable[..., torch.Tensor]] = None, optimizer: Any = "sgd{lr=0.01}",
            folder: Any = "job", clip: Optional[float] = None, **settings: Any) -> str:  # fmt: skip
    """Writes a training step into a folder: model.onnx with the module's parameters, batches.npz, recipe.json.

    `gradloom open FOLDER/model.onnx --recipe FOLDER/recipe.json` shows it, `gradloom train --recipe FOLDER/recipe.json` runs it, and
    `gradloom tune` searches a better recipe for it, which gradloom.torch.Module(model, recipe=..) takes back.

    model: a module or gradloom.torch.Module; it is captured in the mode, train or eval, that its parts are in.
    batch: one batch (a tuple of arguments, a dict of named ones, or the argument), or a list of such batches.
    loss: None: the model returns it; else a function of the model's result and the batch's last entry.
    optimizer: a torch.optim.SGD, Adam, AdamW or Adagrad, transformers' Adafactor, or timm's Lion or Lamb, over the model's parameters, or a
    recipe's text. States that it keeps go along, in optimizer.safetensors: the job goes on with the update that comes next.
    clip: as TrainStep takes it.
    settings: of the recipe, over what follows from the others: steps=200 (from here on), passes=.. (docs/recipe.md).
    Returns the recipe's path.
    """
    batches = _batches(batch)
    options = None if isinstance(optimizer, str) else Options(optimizer)
    source = Source(model, loss)
    job = make_job(source, batches[0], optimizer, options, False)
    precision = precision_of(job.exported.model, source.autocast(), job.exported.all_f64)
    states = States(0, {}) if options is None else states_of(optimizer, job.trained)
    folder = os.path.abspath(os.fspath(folder))
    os.makedirs(folder, exist_ok=True)
    write_batches(os.path.join(folder, "batches.npz"), job.inputs, batches)
    own = {} if precision is None else {"precision": precision}
    words: Dict[str, Any] = {**job.words, **own, "data": "npz:" + os.path.join(folder, "batches.npz"), **clipped(clip, settings)}
    if states.updates:
        words["load_optimizer"] = write_states(states, folder)
        words["steps"] = states.updates + int(settings.get("steps", _STEPS))
    recipe = json.loads(_resolved([write_job(job, folder), *words_of(words)]))
    recipe["model"]["path"], recipe["data"] = "model.onnx", "npz:batches.npz"
    if states.updates:
        recipe["load_optimizer"] = os.path.basename(words["load_optimizer"])
    path = os.path.join(folder, "recipe.json")
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(recipe, file, indent=2)
        file.write("\n")
    os.replace(path + ".part", path)
    return path


def _resolved(words: Sequence[str]) -> str:
    """The recipe that the words become, with all that they leave to defaults; what does not fit the model is an error."""
    with tempfile.TemporaryDirectory() as folder:
        session = os.path.join(folder, "session.db")
        engine = library()
        engine.call("job_close", engine.open_job([*words, "--session", session], None))
        with Session(session) as recorded:
            return recorded.recipe()
