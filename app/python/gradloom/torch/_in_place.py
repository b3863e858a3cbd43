"""A module's parameters and running statistics where the engine trains them: in the module's own memory."""

import contextlib
from typing import Callable, Dict, Iterator, List, Mapping, Set, Tuple

import torch

_increment_version = getattr(torch.autograd.graph, "increment_version", None)  # of newer PyTorch


def _is_fit(name: str, tensor: torch.Tensor, precision: str) -> bool:
    """Whether the engine keeps a value in the form in which the module does."""
    if not isinstance(tensor, torch.nn.Parameter) and not name.endswith(("running_mean", "running_var")):
        return False
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or not tensor.is_contiguous() or tensor.is_inference():
        return False
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.numel() == 0 or "weights=low" in precision:
        return False
    return tensor.dtype == (torch.float64 if precision == "f64" else torch.float32)


def _apart(tensors: Mapping[str, torch.Tensor]) -> Dict[str, torch.Tensor]:
    """Those that share no memory with one before them."""
    found: Dict[str, torch.Tensor] = {}
    end = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].data_ptr()):
        if tensor.data_ptr() >= end:
            found[name] = tensor
            end = tensor.data_ptr() + tensor.numel() * tensor.element_size()
    return found


class InPlace:
    """Tensors that a job works in, by its names. They stay in memory as long as this does."""

    def __init__(self, members: Mapping[str, torch.Tensor], precision: str) -> None:
        self.tensors = _apart({name: tensor for name, tensor in members.items() if _is_fit(name, tensor, precision)})
        self._held: List[torch.Tensor] = []
        self._seen: List[Tuple[int, int]] = []

    def addresses(self) -> Dict[str, Tuple[int, int]]:
        return {name: (tensor.data_ptr(), tensor.numel() * tensor.element_size()) for name, tensor in self.tensors.items()}

    def keep(self, used: Set[str]) -> None:
        """Of what was offered."""
        self.tensors = {name: tensor for name, tensor in self.tensors.items() if name in used}
        self._held = [tensor.detach() for tensor in self.tensors.values()]  # also when the module's tensor gets other memory
        self._seen = self._now()

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Around what writes there: afterwards they are as they were."""
        before = [tensor.clone() for tensor in self._held]
        try:
            yield
        finally:
            with torch.no_grad():
                for tensor, contents in zip(self._held, before):
                    tensor.copy_(contents)

    def _now(self) -> List[Tuple[int, int]]:
        return [(tensor.data_ptr(), tensor._version) for tensor in self.tensors.values()]

    def follow(self, tell: Callable[[str, torch.Tensor], None]) -> bool:
        """Tells of tensors that somebody else has changed since the last step. False: the module has one elsewhere now (`p.data = other`)."""
        now = self._now()
        if now == self._seen:
            return True
        if any(address != then for (address, _), (then, _) in zip(now, self._seen)):
            return False
        for (name, tensor), one, seen in zip(self.tensors.items(), now, self._seen):
            if one != seen:
                tell(name, tensor)
        self._seen = now
        return True

    def changed(self) -> None:
        """By a step: what autograd saved of them is no more."""
        if _increment_version is not None:
            for tensor in self.tensors.values():
                _increment_version(tensor)
        self._seen = self._now()
