"""The engine's job of a TrainStep, and what of the script it is of."""

import contextlib
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch

from .._library import Error, library
from ._in_place import InPlace
from ._members import Members


class Trained(NamedTuple):
    """What of the module and the torch optimizer says what a step computes; a job is of one."""

    modes: Tuple[int, ...]  # of all parts: Members.modes
    trained: Dict[int, str]  # the parameters that want a gradient, by their ids: their names in the module
    groups: Optional[List[List[int]]]  # ids of parameters

    @classmethod
    def of(cls, objective: torch.nn.Module, groups: Optional[List[List[int]]]) -> "Trained":
        """objective: the module that holds the model as `model`, and has no say itself."""
        trained = {id(p): name.replace("model.", "", 1) for name, p in objective.named_parameters() if p.requires_grad}
        return cls(Members(objective).modes()[1:], trained, groups)


def asked(parts: Members, groups: Optional[List[List[int]]]) -> Tuple[Any, ...]:
    """What says the same as Trained of an objective with these members, without names: each step asks it."""
    return parts.modes()[1:], [p.requires_grad for p in parts.parameters], groups


class JobHandle:
    """The engine's job, closed once: by close(), with its TrainStep, or when the interpreter ends."""

    def __init__(self, lock: Any, job: int, in_place: InPlace) -> None:
        self._lock, self.job = lock, job
        self.in_place = in_place  # what the job works in stays until it is closed
        self.failure = ""  # of a step, whose error was raised: closing may tell it again

    def close(self) -> None:
        with self._lock:
            job, self.job = self.job, 0
            held, self.in_place = self.in_place, InPlace({}, "f32")
            if not job:
                return
            try:
                # After a step that failed the engine goes back to its last good parameters, for its files: the module keeps its own.
                with held.kept() if self.failure else contextlib.nullcontext():
                    library().call("job_close", job)
            except Error as error:
                if not self.failure or self.failure not in str(error):
                    raise
