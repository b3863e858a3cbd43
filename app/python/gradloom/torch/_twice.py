"""Gradients of gradients: a backward whose own graph is asked for (create_graph=True), as by gradient penalties and equations of physics.

The engine computes first derivatives. With fallback="torch" PyTorch computes such a backward, of a forward that it runs again on the
tensors of the call; without it what follows from the gradients is an error, wherever it leads to.
"""

import contextlib
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import torch

from . import _structure
from ._export import Exported, without_cache
from ._members import exchanged, members
from ._outside import warn

REFUSED = ("the gradient of a gradient was asked of gradloom.torch.Module, which computes first derivatives only: leave the part of the model "
           "that needs second ones unwrapped (fallback=\"torch\" computes them in PyTorch, where the whole forward runs in the engine and has no "
           "random numbers)")  # fmt: skip


class Again:
    """The forward of a call in PyTorch. Its buffers stay as they are."""

    def __init__(self, module: torch.nn.Module, lock: Any, description: Any, exported: Exported, cast: Optional[Tuple[str, torch.dtype]],
                 warned: Set[str]) -> None:  # fmt: skip
        """lock: of those who exchange the module's members. description: of (args, kwargs). cast: device and type of the autocast around the call.
        warned: what the user was told."""
        self._module, self._lock, self._description, self._exported, self._cast, self._warned = module, lock, description, exported, cast, warned
        self._modes = [(part, part.training) for part in module.modules()]

    def gradients(self, tensors: Sequence[torch.Tensor], given: Sequence[Optional[torch.Tensor]]) -> List[Optional[torch.Tensor]]:
        """tensors: of the file's inputs. given: for each output the gradient of the loss by it. Returns those by the inputs, as functions of both."""
        exported, told = self._exported, "gradients of gradients are computed by PyTorch, and the forward for them"
        if told not in self._warned:
            self._warned.add(told)
            warn(f"gradloom: {type(self._module).__name__}: {told}")
        seen = [tensor.view_as(tensor) if tensor.requires_grad else tensor for tensor in tensors]  # an input's gradient is not that by way of another's
        first = exported.arguments
        last = first + len(exported.parameters.names)
        with self._lock, self._as_it_was(seen[first:last], seen[last:]):
            args, kwargs = _structure.unflatten(self._description, iter(seen[:first]))
            result = self._module(*args, **kwargs)
            result = without_cache(result) if self._module.training else result
        results: List[torch.Tensor] = []
        _structure.flatten(result, results, "the module's results: ")
        outputs: Dict[int, torch.Tensor] = dict(zip(reversed(exported.places), reversed(results)))
        of = [(outputs[place], gradient.to(outputs[place].dtype)) for place, gradient in enumerate(given)
              if gradient is not None and place in outputs and outputs[place].requires_grad]  # fmt: skip
        wanted = [tensor for tensor in seen if tensor.requires_grad]
        if not of or not wanted:
            return [None] * len(seen)
        found = iter(torch.autograd.grad([output for output, _ in of], wanted, [gradient for _, gradient in of], create_graph=True, allow_unused=True))
        return [next(found) if tensor.requires_grad else None for tensor in seen]

    @contextlib.contextmanager
    def _as_it_was(self, parameters: Sequence[torch.Tensor], changing: Sequence[torch.Tensor]) -> Iterator[None]:
        buffers = members(self._module, "_buffers")
        then = {id(tensor): value for tensor, value in zip(self._exported.changing, changing)}
        values = [then.get(id(tensor), tensor).detach().clone() for tensor in buffers.tensors]
        now = [part.training for part, _ in self._modes]
        cast = torch.autocast(self._cast[0], self._cast[1]) if self._cast is not None else contextlib.nullcontext()
        try:
            for part, mode in self._modes:
                part.training = mode
            with exchanged(self._module, ("_parameters", self._exported.parameters.slots, parameters), ("_buffers", buffers.slots, values)), cast:
                yield
        finally:
            for (part, _), mode in zip(self._modes, now):
                part.training = mode


class Refused(torch.autograd.Function):
    """Gradients whose own gradient is an error, by whatever tensor they are made of."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        """tensors: the gradients, of which there are `count`, and what they are made of."""
        return tuple([tensor.view_as(tensor) for tensor in tensors[:count]])

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        raise RuntimeError(REFUSED)
