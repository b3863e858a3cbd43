"""A file with calls outside: its parts as functions of the engine, and PyTorch between them.

What crosses is torch's tensors, so autograd joins the parts and the calls: a value that several of them read gets the sum of their
gradients.
"""

from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from .._onnx_parts import Part, cut
from ._export import RANDOM, Exported
from ._opened import Opened, Words, follow
from ._outside import DOMAIN, Call
from ._plan import NUMBERS, Arenas


class _Outside:
    """A call between two parts."""

    def __init__(self, call: Call, reads: Sequence[str], makes: Dict[int, str], constant: Any) -> None:
        self.call, self.makes = call, makes
        self.reads: List[Tuple[str, Optional[torch.Tensor]]] = [
            (name, tensor.detach().clone() if name in constant else None) for name, tensor in zip(reads, call.given)
        ]

    def run(self, values: Dict[str, torch.Tensor], gradients: bool) -> None:
        call, given = self.call, [values[name] if known is None else known for name, known in self.reads]
        with torch.set_grad_enabled(gradients and call.gradients):
            made = call.run(given)
        for place, name in self.makes.items():
            dtype = call.outputs[place][1]
            values[name] = made[place] if made[place].dtype == dtype else made[place].to(dtype)  # autocast


class Cut:
    """The same as Opened, in parts."""

    def __init__(self, exported: Exported, wants: Sequence[bool], words: Words, arenas: Arenas) -> None:
        self._exported, words = exported, words._replace(whole=exported.model)
        parts, reads, makes, constant = cut(exported.model, DOMAIN, len(exported.calls), RANDOM)
        self._calls = [_Outside(call, names, made, constant) if names else None for call, names, made in zip(exported.calls, reads, makes)]
        self._parts: List[Tuple[Part, Optional[Opened]]] = []
        types: Dict[str, Tuple[int, Sequence[int]]] = {}
        gradients = dict(zip(exported.inputs, wants))
        for index, part in enumerate(parts):
            opened = None
            if part.outputs:
                own = exported._replace(model=part.file(types), inputs=part.inputs, outputs=part.outputs, results=len(part.outputs),
                                        read=set(part.inputs), written=[], moved=[], failed=None, counters=[], counts=[])  # fmt: skip
                opened = Opened(own, [gradients[name] for name in part.inputs], words, arenas)
                for place, (name, (shape, dtype)) in enumerate(zip(part.outputs, opened.types)):
                    types[name], gradients[name] = (NUMBERS[dtype], shape), place in opened.takes
            self._parts.append((part, opened))
            if index < len(makes):
                for place, name in makes[index].items():
                    shape, dtype, gradient = exported.calls[index].outputs[place]
                    types[name], gradients[name] = (NUMBERS[dtype], shape), gradient
        exported.calls[:] = [call._replace(given=[]) for call in exported.calls]

    @property
    def notes(self) -> List[str]:
        found = [opened.notes for _, opened in self._parts if opened is not None]
        return [note for note in found[0] if all(note in notes for notes in found)] if found else []  # what holds for the whole

    def run(self, tensors: Sequence[torch.Tensor], seed: int, gradients: bool) -> Sequence[torch.Tensor]:
        """The results of a call."""
        values = dict(zip(self._exported.inputs, tensors))
        for (part, opened), call in zip(self._parts, [*self._calls, None]):
            if opened is not None:
                values.update(zip(part.outputs, opened.run([values[name] for name in part.inputs], seed, gradients)))
            if call is not None:
                call.run(values, gradients)
        outputs = [values[name] for name in self._exported.outputs]
        follow(self._exported, outputs)
        return outputs[: self._exported.results]
