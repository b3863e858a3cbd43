"""torch.autograd.Functions inside a step that is one plan: the engine's nodes HostCall call them back, forward and backward.

What a backward needs is kept here, by the call's number, from its forward on. Arguments are copies: a Function may save them, and the
engine's memory is another tensor's by then.
"""

import ctypes
import itertools
import math
import weakref
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from .._library import HOST_FUNCTION, library
from .._onnx_file import with_host_calls
from ._outside import DOMAIN, Call
from ._plan import DTYPES, NUMBERS


class _Known(NamedTuple):
    """A call, and which of its arguments have a gradient."""

    call: Call
    gradients: List[bool]


_Kept = Tuple[List[torch.Tensor], Dict[int, torch.Tensor]]  # of a forward: arguments, and results by number


def _tensor(given: Any) -> Optional[torch.Tensor]:
    """The engine's memory as a tensor; None: absent."""
    dtype, shape = DTYPES[given.dtype], [given.dims[axis] for axis in range(given.rank)]
    count = math.prod(shape)
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    if not given.data:
        return None
    size = count * torch.empty((), dtype=dtype).element_size()
    return torch.frombuffer((ctypes.c_char * size).from_address(given.data), dtype=dtype).reshape(shape)


class HostCalls:
    """The functions of one training. close() ends what the engine may call."""

    def __init__(self) -> None:
        self._calls: Dict[int, _Known] = {}
        self._kept: Dict[int, _Kept] = {}
        self._numbers = itertools.count(1)
        self._failed: Optional[BaseException] = None
        self._number = 0
        own = weakref.ref(self)

        def called(_: Any, call: int, backward: int, input_count: int, inputs: Any, output_count: int, outputs: Any) -> int:
            calls = own()
            return 1 if calls is None else calls._called(call, bool(backward), inputs[:input_count], outputs[:output_count])

        self._function = HOST_FUNCTION(called)

    def __bool__(self) -> bool:
        return bool(self._calls)

    def file(self, model: bytes, calls: Sequence[Call]) -> bytes:
        """The file of a step with nodes HostCall for what is outside."""
        if not calls:
            return model
        if self._number == 0:
            number = ctypes.c_int64()
            library().call("host_function_add", self._function, None, ctypes.byref(number))
            self._number = number.value
            weakref.finalize(self, library().call, "host_function_remove", self._number)
        nodes = []
        for call in calls:
            number_of_call = next(self._numbers)
            self._calls[number_of_call] = _Known(call._replace(given=[]), [t.requires_grad and call.gradients for t in call.given])
            like = next((t.dtype for t in call.given if t.dtype.is_floating_point), None)
            attributes: Dict[str, Any] = {
                "function": self._number, "call": number_of_call, "name": str(call),
                "dtypes": [-1 if dtype == like else NUMBERS[dtype] for _, dtype, _ in call.outputs],
                "differentiable": [int(gradient and call.gradients) for _, _, gradient in call.outputs],
            }  # fmt: skip
            attributes.update((f"dims_{index}", list(shape)) for index, (shape, _, _) in enumerate(call.outputs))
            nodes.append((call.kind.rpartition(".")[2], attributes))
        return with_host_calls(model, DOMAIN, nodes)

    def error(self) -> Optional[BaseException]:
        """What a function raised since this was asked last."""
        failed, self._failed = self._failed, None
        return failed

    def _called(self, call: int, backward: bool, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
        try:
            given, results = [_tensor(t) for t in inputs], [_tensor(t) for t in outputs]
            with torch.inference_mode(False):
                if backward:
                    self._backward(call, given, results)
                else:
                    self._forward(call, given, results)
            return 0
        except BaseException as error:  # KeyboardInterrupt too: no exception crosses C
            self._failed = self._failed or error
            return 1

    def _forward(self, number: int, given: Sequence[Optional[torch.Tensor]], results: Sequence[Optional[torch.Tensor]]) -> None:
        call, gradients = self._calls[number]
        arguments = []
        for tensor, gradient in zip(given, gradients):
            assert tensor is not None
            arguments.append(tensor.clone().requires_grad_(gradient))
        with torch.set_grad_enabled(any(gradients)):
            made = call.run(arguments)
        for place, tensor in made.items():
            to = results[place]
            if to is not None:
                to.copy_(tensor.detach())
        if any(gradients):
            self._kept[number] = arguments, made

    def _backward(self, number: int, given: Sequence[Optional[torch.Tensor]], results: Sequence[Optional[torch.Tensor]]) -> None:
        arguments, made = self._kept.pop(number)
        roots = [(made[i], g.to(made[i].dtype, copy=True)) for i, g in enumerate(given) if g is not None and made[i].requires_grad]
        wanted = [i for i, to in enumerate(results) if to is not None and i < len(arguments) and arguments[i].requires_grad]
        found: Sequence[Optional[torch.Tensor]] = [None] * len(wanted)
        if roots and wanted:
            found = torch.autograd.grad([root for root, _ in roots], [arguments[i] for i in wanted], [g for _, g in roots], allow_unused=True)
        gradients = dict(zip(wanted, found))
        for i, to in enumerate(results):
            if to is None:
                continue
            gradient = gradients.get(i)
            to.zero_() if gradient is None else to.copy_(gradient)
