"""The process as one rank of several: what TrainStep(distributed=True) meets the others by."""

import ctypes
import weakref
from typing import Iterable, List, Optional, Tuple

import torch

from .._library import Error, interruptible, library


class _Ranks:
    """Met once in a process, and left when the interpreter ends: after the jobs that were opened since, as finalizers run in reverse order."""

    def __init__(self, limit: float) -> None:
        rank, world, stop = ctypes.c_int(), ctypes.c_int(), ctypes.c_int32()
        failed: List[BaseException] = []

        def meet() -> None:
            try:
                library().compute("ranks_join", limit, ctypes.byref(stop), ctypes.byref(rank), ctypes.byref(world))
            except BaseException as error:
                failed.append(error)

        interruptible(meet, stop)
        if failed:
            raise failed[0]
        self.rank, self.world = rank.value, world.value
        weakref.finalize(self, _leave)


def _leave() -> None:
    try:
        library().call("ranks_leave")
    except Error:
        pass  # whose training failed has raised it


_met: Optional[_Ranks] = None


def join(limit: float) -> Tuple[int, int]:
    """(rank, world) of this process, as its launcher says in the environment; waits for the others."""
    global _met
    if _met is None:
        _met = _Ranks(limit)
    return _met.rank, _met.world


def are_met() -> bool:
    return _met is not None and _met.world > 1


def share(tensors: Iterable[torch.Tensor]) -> None:
    """What rank 0's tensors hold, in those of all ranks."""
    with torch.no_grad():
        for tensor in tensors:
            held = tensor.detach()
            contents = held.contiguous()
            library().call("ranks_share", contents.data_ptr(), contents.numel() * contents.element_size())
            if contents is not held and contents.data_ptr() != held.data_ptr():
                held.copy_(contents)
