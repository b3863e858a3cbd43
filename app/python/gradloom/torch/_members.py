"""Parameters and buffers of a module and of all that is in it, and others in their place."""

import contextlib
from typing import Dict, Iterator, List, NamedTuple, Sequence, Tuple

import torch

Slot = Tuple[torch.nn.Module, str]  # whose _parameters or _buffers, under which name


class Tensors(NamedTuple):
    """Parameters or buffers of a module, each once, with all slots that hold it."""

    names: List[str]
    slots: List[List[Slot]]
    tensors: List[torch.Tensor]

    def norms_of(self, index: int) -> List[torch.nn.Module]:
        """Normalizations whose running statistic a buffer is. PyTorch moves those without counting a version."""
        return [owner for owner, name in self.slots[index] if name in ("running_mean", "running_var") and isinstance(owner, _NORM)]


_NORM = torch.nn.modules.batchnorm._NormBase


def members(module: torch.nn.Module, kind: str) -> Tensors:
    """kind: _parameters or _buffers."""
    found: Dict[int, int] = {}
    result = Tensors([], [], [])
    for path, owner in module.named_modules():
        for name, tensor in getattr(owner, kind).items():
            if tensor is None:
                continue
            if id(tensor) not in found:
                found[id(tensor)] = len(result.names)
                result.names.append(f"{path}.{name}" if path else name)
                result.slots.append([])
                result.tensors.append(tensor)
            result.slots[found[id(tensor)]].append((owner, name))
    return result


@contextlib.contextmanager
def exchanged(module: torch.nn.Module, *kinds: Tuple[str, Sequence[List[Slot]], Sequence[torch.Tensor]]) -> Iterator[None]:
    """Others stand in these slots of the module. kinds: _parameters or _buffers, and a tensor for the slots of each."""
    kept = []
    for kind, slots, tensors in kinds:
        for places, tensor in zip(slots, tensors):
            for owner, name in places:
                held = getattr(owner, kind)
                kept.append((held, name, held[name]))
                held[name] = tensor
    recurrent = [m for m in module.modules() if isinstance(m, torch.nn.RNNBase)]
    weights = [m._flat_weights for m in recurrent]
    for m in recurrent:
        m._flat_weights = [getattr(m, name, None) for name in m._flat_weights_names]
    try:
        yield
    finally:
        for held, name, tensor in kept:
            held[name] = tensor
        for m, own in zip(recurrent, weights):
            m._flat_weights = own
