"""gradloom.torch.capture: a script's training step as a folder that Gradloom opens, measures and tunes."""

import json
import os
import re
import tempfile
import zipfile
from collections import Counter
from collections.abc import Mapping
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from .._library import UsageError, library
from ..commands import words_of
from ..session import Session
from . import _structure
from ._buckets import at_rest, filled_up
from ._devices import AUTOCAST
from ._export import batch_names, distinct
from ._job import Batch, Source, clipped, flat_batch, make_job, write_job
from ._optimizer import Options, States, states_of, write_states
from ._outside import warn
from ._regions import precision_of

_STEPS = 10  # where the settings name none, as in a recipe
_Sizes = Tuple[torch.Size, ...]  # of a batch's tensors


def _batches(batch: Any) -> List[Any]:
    """One batch, or a list of batches of one structure."""
    if isinstance(batch, list) and batch and isinstance(batch[0], (tuple, list, Mapping)):
        return batch
    return [batch]


def _array(tensor: torch.Tensor) -> Any:
    """bf16, which archives do not have, as f32."""
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def _of_one_size(source: Source, batches: Sequence[Batch], pad: Optional[Mapping[str, float]]) -> Sequence[Batch]:
    """Batches as a file has them: filled up to the longest where `pad` says with what, else those of the most frequent sizes."""
    columns, structure = [batch.tensors for batch in batches], batches[0].structure
    for index, (batch, column) in enumerate(zip(batches, columns)):
        if batch.structure != structure or [t.dtype for t in column] != [t.dtype for t in columns[0]]:
            raise UsageError(f"batch {index} has another structure or other types than the first")
    names, sizes = distinct(batch_names(source.objective, structure), set()), [tuple([t.shape for t in column]) for column in columns]
    unknown = sorted(set(pad or {}) - set(names))
    if unknown:
        raise UsageError(f"pad names '{unknown[0]}', which is none of the batch's tensors: {', '.join(names)}")
    if len(set(sizes)) == 1:
        return batches
    if pad is not None:
        return _padded(source, batches, dict(zip(names, zip(*columns))), pad)
    counts = Counter(sizes)
    kept = max(counts, key=lambda some: (counts[some], sum(shape.numel() for shape in some)))
    shown = ", ".join(f"{name} {_shown(shape)}" for name, shape in zip(names, kept))
    warn(f"gradloom: capture keeps {counts[kept]} of {len(batches)} batches, those of the most frequent sizes ({shown}): a job's file is for one. "
         "pad={NAME: number} fills all up to the longest, where the loss ignores what is filled")  # fmt: skip
    return [batch for batch, some in zip(batches, sizes) if some == kept]


def _shown(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "a number"


def _padded(source: Source, batches: Sequence[Batch], columns: Dict[str, Sequence[torch.Tensor]], pad: Mapping[str, float]) -> List[Batch]:
    """columns: the tensors of each name. Raises UsageError where the loss does not ignore the fill."""
    filled: List[List[torch.Tensor]] = []
    for name, tensors in columns.items():
        if len({t.dim() for t in tensors}) > 1:
            raise UsageError(f"'{name}' has more axes in one batch than in another: nothing fills it up")
        longest = [max(extents) for extents in zip(*[t.shape for t in tensors])]
        if name not in pad and any(list(t.shape) != longest for t in tensors):
            raise UsageError(f"'{name}' has other sizes in other batches, and pad says nothing to fill it with")
        filled.append([filled_up(t, longest, pad.get(name, 0)) for t in tensors])
    made = []
    for row in zip(*filled):
        args, kwargs = _structure.unflatten(batches[0].structure, iter(row))
        made.append(Batch(kwargs or args, batches[0].structure, list(row)))
    index = min(range(len(batches)), key=lambda i: sum(tensors[i].numel() for tensors in columns.values()))
    plain, full = _loss_at_rest(source, batches[index]), _loss_at_rest(source, made[index])
    rounds = source.autocast() is not None or any(p.dtype in AUTOCAST for p in source.objective.parameters())
    if not abs(full - plain) <= (2e-2 if rounds else 1e-3) * abs(plain) + 1e-6:
        raise UsageError(f"batch {index} has the loss {plain:.6g}, and {full:.6g} filled up as pad says: the loss does not ignore the fill (a mask does, and "
                         "-100 in labels)")  # fmt: skip
    return made


def _loss_at_rest(source: Source, batch: Batch) -> float:
    """As PyTorch computes it, drawing nothing and moving no statistics."""
    args, kwargs = _structure.unflatten(batch.structure, iter(batch.tensors))
    with at_rest(source.objective):
        return float(source.objective(*args, **kwargs))


def write_batches(path: str, names: Sequence[str], batches: Sequence[Batch]) -> None:
    """An npz archive of batches of one size: arrays called after the inputs, with the batch's number as first axis."""
    import numpy

    arrays = {name: numpy.stack([_array(batch.tensors[i]) for batch in batches]) for i, name in enumerate(names)}
    with zipfile.ZipFile(path, "w") as archive:  # numpy.savez has names of its own, such as "file"
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                numpy.lib.format.write_array(file, array, allow_pickle=False)


def capture(model: torch.nn.Module, batch: Any, loss: Optional[Callable[..., torch.Tensor]] = None, optimizer: Any = "sgd{lr=0.01}",
            folder: Any = "job", clip: Optional[float] = None, pad: Optional[Mapping[str, float]] = None, exporter: str = "auto",
            **settings: Any) -> str:  # fmt: skip
    """Writes a training step into a folder: model.onnx with the module's parameters, batches.npz, recipe.json.

    `gradloom open FOLDER/model.onnx --recipe FOLDER/recipe.json` shows it, `gradloom train --recipe FOLDER/recipe.json` runs it, and
    `gradloom tune` searches a better recipe for it, which gradloom.torch.Module(model, recipe=..) takes back.

    model: a module or gradloom.torch.Module; it is captured in the mode, train or eval, that its parts are in.
    batch: one batch (a tuple of arguments, a dict of named ones, or the argument), or a list of such batches. A job's file is for one size: of
    batches padded to their longest text, those of the most frequent size are kept, and a warning says how many.
    pad: keeps all, filled up to the longest at the end of each axis: {"input_ids": 0, "attention_mask": 0, "labels": -100}; the loss's own target is
    "target". The loss has to ignore the fill: that of the shortest batch is computed with and without it, at rest as in eval mode (normalizations by
    batch stay in theirs), and a difference is an error.
    loss: None: the model returns it; else a function of the model's result and the batch's last entry.
    optimizer: a torch.optim.SGD, Adam, AdamW, RMSprop, NAdam, RAdam, Adadelta or Adagrad, transformers' Adafactor, or timm's Lion or Lamb, over the model's parameters, or a
    recipe's text. States that it keeps go along, in optimizer.safetensors: the job goes on with the update that comes next.
    clip, exporter: as TrainStep and Module take them.
    settings: of the recipe, over what follows from the others: steps=200 (from here on), passes=.. (docs/recipe.md).
    Returns the recipe's path.
    """
    options = None if isinstance(optimizer, str) else Options(optimizer)
    source = Source(model, loss, exporter=exporter)
    batches = _of_one_size(source, [flat_batch(one) for one in _batches(batch)], pad)
    job = make_job(source, batches[0], optimizer, options, False)
    precision = precision_of(job.exported.model, source.autocast(), job.exported.all_f64)
    states = States(0, {}) if options is None else states_of(optimizer, job.trained)
    folder = os.path.abspath(os.fspath(folder))
    os.makedirs(folder, exist_ok=True)
    own = {} if precision is None else {"precision": precision}
    words: Dict[str, Any] = {**job.words, **own, "data": "npz:" + os.path.join(folder, "batches.npz"), **clipped(clip, settings)}
    if states.updates:
        words["load_optimizer"] = write_states(states, folder)
        batches = _go_on(words, settings, states.updates, list(batches))
    write_batches(os.path.join(folder, "batches.npz"), job.inputs, batches)
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


def _go_on(words: Dict[str, Any], settings: Mapping[str, Any], updates: int, batches: List[Batch]) -> List[Batch]:
    """The words and batches of a job that begins after so many updates: it counts steps, and the batches that they took, from the first update on."""
    each, count = int(settings.get("accumulate", 1)), len(batches)
    steps = [int(settings["steps"])] if "steps" in settings else []
    if int(words.pop("epochs", 0)):
        steps.append(max(1, int(settings["epochs"]) * count // each))
    words["steps"] = updates + min(steps or [_STEPS])
    ends = re.search(r"\btotal=(\d+)", str(settings.get("schedule", "")))
    if ends and 0 < int(ends.group(1)) <= updates:
        warn(f"gradloom: capture: the schedule {settings['schedule']} ends after {ends.group(1)} updates, and the optimizer has made {updates}: "
             "steps count from its first")  # fmt: skip
    taken = updates * each % count
    return batches[count - taken :] + batches[: count - taken]


def _resolved(words: Sequence[str]) -> str:
    """The recipe that the words become, with all that they leave to defaults; what does not fit the model is an error."""
    with tempfile.TemporaryDirectory() as folder:
        session = os.path.join(folder, "session.db")
        engine = library()
        engine.call("job_close", engine.open_job([*words, "--session", session], {})[0])
        with Session(session) as recorded:
            return recorded.recipe()
