"""Parameters and buffers of a module and of all that is in it, and others in their place."""

import contextlib
import itertools
from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch

from ._plain import Plain

Slot = Tuple[torch.nn.Module, str]  # whose _parameters or _buffers, under which name
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")  # the third since PyTorch 2.0


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


@contextlib.contextmanager
def without_effect(module: torch.nn.Module, arguments: Sequence[torch.Tensor] = ()) -> Iterator[None]:
    """Inside, forwards make no gradients, and nothing of them stays: buffers, plain attributes and random numbers are as before."""
    buffers, plain = members(module, "_buffers"), Plain(module.modules()).snapshot()
    all_tensors = itertools.chain(arguments, module.parameters(), buffers.tensors)
    devices = sorted({tensor.device.index or 0 for tensor in all_tensors if tensor.device.type == "cuda"})
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=devices), \
                exchanged(module, ("_buffers", buffers.slots, [tensor.detach().clone() for tensor in buffers.tensors])):  # fmt: skip
            yield
    finally:
        plain.restore()


class Members:
    """What a module was made of when it was last looked at; a call sees at once whether that still holds."""

    def __init__(self, module: torch.nn.Module) -> None:
        modules = list(module.modules())
        self.modules = modules
        self._children = [(m._modules, list(m._modules.values())) for m in modules if m._modules]
        self._parameters = [m._parameters for m in modules if m._parameters]
        self._buffers = [m._buffers for m in modules if m._buffers]
        self._hooks = [hooks for m in modules for hooks in (getattr(m, kind, None) for kind in _HOOKS) if hooks is not None]
        self._identities = _identities(self._parameters), _identities(self._buffers)
        self.parameters = each_once(self._parameters)

    def hold(self) -> bool:
        for members, kept in self._children:
            if list(members.values()) != kept:
                return False
        parameters, buffers = self._identities
        return _identities(self._parameters) == parameters and (not buffers or _identities(self._buffers) == buffers)

    def modes(self) -> Tuple[int, ...]:
        """Train or eval of each part, and the hooks that calls of them run: PyTorch gives each registered one a number of its own."""
        return (*[m.training for m in self.modules], *itertools.chain.from_iterable(self._hooks))


def _identities(members: Iterable[Mapping[str, Optional[torch.Tensor]]]) -> List[int]:
    return list(map(id, itertools.chain.from_iterable([d.values() for d in members])))


def each_once(members: Iterable[Mapping[str, Optional[torch.Tensor]]]) -> List[torch.Tensor]:
    return list({id(tensor): tensor for d in members for tensor in d.values() if tensor is not None}.values())
