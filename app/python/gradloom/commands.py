"""The command line's questions from Python: gradloom.inspect, plan, compare, tune, verify.

    job = "job/"                                    # what capture() wrote; or a model.onnx with settings
    gradloom.plan(job).plan_peak_bytes
    gradloom.compare(job, a="passes=none", b="passes=default").ratio

Settings are the flags of the command (`gradloom help plan`) as keywords: batches of 8 are dim={"batch": 8}, --memory-budget is
memory_budget="2GiB", what may be repeated is a list, and True stands for a flag without a value. What is printed there with --json
is an Answer here.
"""

import ctypes
import json
import os
import tempfile
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from . import plots
from ._library import JSON, LOG, NOTE, PROGRESS, Callbacks, interruptible, library
from .session import Rows


class Answer(Dict[str, Any]):
    """What a command found: its JSON as a dict whose entries are attributes, too; lists of dicts are Rows. A notebook shows its numbers."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"{name}: there are {', '.join(self)}") from None

    def __dir__(self) -> List[str]:
        return [*super().__dir__(), *self]

    def _repr_html_(self) -> str:
        rows = []
        for key, value in self.items():
            if isinstance(value, Rows):
                rows.append({"": key, "is": f"{len(value)} rows"})
            elif not isinstance(value, (dict, list)):
                rows.append({"": key, "is": plots.shown(key, value)})
        return plots.table(rows)

    def plot(self) -> plots.Plot:
        """A picture of it: of a plan what lies in memory at its peak, of a comparison its interval, of a search time against memory."""
        if "live_at_peak" in self:
            title = f"The largest of what lies in memory at the peak of {plots.bytes_text(self['plan_peak_bytes'])}"
            values = [(row["value"], "", float(row["bytes"]), plots.bytes_text(row["bytes"])) for row in self["live_at_peak"]]
            return plots.bars(title, values)
        if "verdict" in self and "ratio" in self:
            return plots.intervals("How many times as fast as the other side", [self])
        if "measured" in self:
            return plots.front("Configurations: speed and memory", self["measured"])
        raise AttributeError("there is no picture of this")


def _answer(value: Any) -> Any:
    """JSON as an Answer: numbers that JSON lacks are there as texts."""
    if isinstance(value, dict):
        return Answer({key: _answer(entry) for key, entry in value.items()})
    if isinstance(value, list):
        return Rows(value) if value and all(isinstance(entry, dict) for entry in value) else [_answer(entry) for entry in value]
    return float(value.replace("Infinity", "inf")) if value in ("NaN", "Infinity", "-Infinity") else value


def words_of(settings: Mapping[str, Any]) -> List[str]:
    """Settings as flags of the command line."""
    words: List[str] = []
    for key, value in settings.items():
        flag = "--" + key.replace("_", "-")
        if isinstance(value, Mapping):
            value = [f"{name}={entry}" for name, entry in value.items()]
        for entry in value if isinstance(value, (list, tuple)) else [value]:
            if entry is True:
                words.append(flag)
            elif entry is not None and entry is not False:
                words += [flag, str(entry)]
    return words


def _job(model: Any, settings: Mapping[str, Any]) -> List[str]:
    """The words for a model file, for a recipe, or for a folder that holds a recipe or a model."""
    path = os.fspath(model)
    if os.path.isdir(path):
        recipe = os.path.join(path, "recipe.json")
        path = recipe if os.path.exists(recipe) else os.path.join(path, "model.onnx")
    return [*(["--recipe", path] if path.endswith(".json") else [path]), *words_of(settings)]


def _run(words: Sequence[str], hear: Optional[Callable[[Dict[str, Any]], None]] = None) -> Tuple[List[Dict[str, Any]], List[str]]:
    """JSON objects and notes of a command. It runs in a thread of its own, so that Ctrl-C reaches Python and ends it."""
    objects: List[Dict[str, Any]] = []
    notes: List[str] = []
    failed: List[BaseException] = []
    stop = ctypes.c_int32()

    def log(_: Any, level: int, line: bytes) -> None:
        try:
            if level == NOTE:
                notes.append(line.decode(errors="replace"))
            elif level == JSON:
                objects.append(json.loads(line))
                if hear is not None:
                    hear(objects[-1])
        except BaseException as error:  # none may pass through C
            failed.append(error)
            stop.value = 1

    def run() -> None:
        given = (ctypes.c_char_p * len(words))(*[word.encode() for word in words])
        callbacks = Callbacks(ctypes.sizeof(Callbacks), None, LOG(log), 1, PROGRESS())
        try:
            library().compute("command", len(words), given, ctypes.byref(callbacks), ctypes.byref(stop))
        except BaseException as error:
            failed.append(error)

    interruptible(run, stop)
    answered = bool(objects) and "error" not in objects[-1]
    if failed and not (answered and getattr(failed[0], "code", 0) == 1):
        raise failed[0]
    return objects, notes


def ask(command: str, words: Sequence[str], hear: Optional[Callable[[Dict[str, Any]], None]] = None) -> Tuple[Answer, List[Dict[str, Any]]]:
    """What a command ends with, and all that it said."""
    objects, notes = _run([command, *words], hear)
    answer = _answer(objects[-1] if objects else {})
    answer.setdefault("notes", notes)
    return answer, objects


def inspect(model: Any, **settings: Any) -> Answer:
    """Operators, parameters (trained or frozen, and why), dims and FLOPs of a model, and all that prevents its training."""
    return ask("inspect", _job(model, settings))[0]


def plan(model: Any, **settings: Any) -> Answer:
    """What the passes do, the kernels of a step and the planned memory, without running."""
    return ask("plan", _job(model, settings))[0]


def compare(model: Any, a: str = "passes=none", b: str = "passes=default", **settings: Any) -> Answer:
    """Measures two configurations of a job interleaved: verdict, ratio (how many times as fast b is) with its 95 % interval, differences of
    losses, and times by phase, scope and kernel. a, b: settings of each side, "passes=default,-fuse-gelu;precision=bf16"."""
    return ask("compare", [*_job(model, settings), "--a", a, "--b", b])[0]


def tune(model: Any, seconds: float = 60, on_trial: Optional[Callable[[Answer], None]] = None, **settings: Any) -> Answer:
    """Searches the fastest configuration of a job: `best` with its changes, `measured` with all trials, fastest first.
    on_trial: called with each as it comes. session=.. keeps them, and a search in the same session goes on; output=.. writes the recipe.
    """

    def hear(line: Dict[str, Any]) -> None:
        if on_trial is not None and "trial" in line:
            on_trial(_answer(line["trial"]))

    with tempfile.TemporaryDirectory() as folder:
        kept = {"session": os.path.join(folder, "trials.db"), **settings}
        answer, objects = ask("tune", [*_job(model, kept), "--seconds", str(seconds)], hear)
    last = {line["trial"]["changes"]: line["trial"] for line in objects if "trial" in line}  # of each configuration
    answer["measured"] = Rows(sorted(last.values(), key=lambda trial: -trial["ratio"]))
    return answer


def verify(model: Any, **settings: Any) -> Answer:
    """Whether passes and planner keep loss, gradients and, after three steps or steps=N, updates: `tensors` has each with its error and the
    bound, and where one differs the answer names the pass and the instance."""
    answer, objects = ask("verify", _job(model, settings))
    answer["tensors"] = Rows(line["tensor"] for line in objects if "tensor" in line)
    return answer
