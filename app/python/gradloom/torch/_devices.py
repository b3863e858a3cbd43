"""Where the tensors of a call are, in PyTorch's words and in the engine's."""

import contextlib
from typing import Any, ContextManager, Iterable, NamedTuple, Optional

import torch

from .._library import UnsupportedError

AUTOCAST = {torch.bfloat16: "bf16", torch.float16: "f16"}  # types of torch.autocast, as precisions
CPU = "cpu"  # the engine's device for tensors in the host's memory
_GPU = "hip" if getattr(torch.version, "hip", None) else "cuda"


class Place(NamedTuple):
    device: torch.device  # of the tensors
    name: str  # of the engine's device: "cpu", "cuda:0", "hip:1"

    def current(self) -> ContextManager[Any]:
        """Inside, the thread's device is this one: the engine makes it so when it opens it."""
        return torch.cuda.device(self.device) if self.device.type == "cuda" else contextlib.nullcontext()

    def stream(self) -> Optional[int]:
        """What the engine's work is ordered with; None: nothing is queued there."""
        return torch.cuda.current_stream(self.device).cuda_stream if self.device.type == "cuda" else None

    def recorded(self) -> bool:
        return recorded(self.device.type)

    def check_not_recorded(self) -> None:
        """Raises UnsupportedError inside of torch.cuda.graph, for what compiles and allocates."""
        if self.recorded():
            raise UnsupportedError("torch.cuda.graph records calls whose sizes, modes and gradients the module had before, and this is the first of "
                                   "its kind: call it forward and backward before, as PyTorch's warm-up does")  # fmt: skip


def recorded(kind: str) -> bool:
    """Whether torch.cuda.graph records what is called now on devices of this kind."""
    return kind == "cuda" and torch.cuda.is_current_stream_capturing()


def place_of(tensors: Iterable[torch.Tensor]) -> Place:
    """The one device of all. Scalars of the CPU may be among tensors of a GPU in PyTorch; here they may not."""
    found = {tensor.device for tensor in tensors} or {torch.device("cpu")}
    if len(found) > 1:
        raise UnsupportedError(f"its tensors are on {' and '.join(sorted(map(str, found)))}: the engine takes those of one device")
    device = found.pop()
    if device.type == "cpu":
        return Place(device, CPU)
    if device.type != "cuda":
        raise UnsupportedError(f"a tensor is on {device}: the engine computes on the CPU and on GPUs of CUDA and HIP")
    return Place(device, f"{_GPU}:{device.index or 0}")


if hasattr(torch, "get_autocast_dtype"):

    def autocast(kind: str) -> Optional[torch.dtype]:
        """The type of a running torch.autocast for devices of this kind."""
        known = kind in ("cpu", "cuda")  # of others the engine has none
        return torch.get_autocast_dtype(kind) if known and torch.is_autocast_enabled(kind) else None

else:  # before PyTorch 2.4

    def autocast(kind: str) -> Optional[torch.dtype]:
        """The type of a running torch.autocast for devices of this kind."""
        if kind == "cuda":
            return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None
        return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None


def without_autocast(kind: str) -> ContextManager[Any]:
    """Inside, types are as they are: what torch.autocast makes of them is the engine's precision."""
    return torch.autocast(kind, enabled=False) if autocast(kind) is not None else contextlib.nullcontext()
