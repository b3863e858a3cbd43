"""A module as the engine runs it: one file opened for one set of gradients, and a call's memory."""

import ctypes
import sys
import threading
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from .._library import INPUT, NO_GRAD, OUTPUT, PARAMETER, STATISTIC, Error, ModuleCall, library
from ._devices import Place
from ._export import Exported

# ONNX's numbers of element types.
DTYPES: Dict[int, torch.dtype] = {1: torch.float32, 2: torch.uint8, 3: torch.int8, 5: torch.int16, 6: torch.int32, 7: torch.int64,
                                  9: torch.bool, 10: torch.float16, 11: torch.float64, 16: torch.bfloat16}  # fmt: skip
NUMBERS = {dtype: number for number, dtype in DTYPES.items()}


class _Prepared:
    """A call of the engine with its arrays of addresses, which are of one call at a time."""

    def __init__(self, flags: int, **arrays: int) -> None:
        """arrays: lengths by the fields of ModuleCall."""
        self.arrays = [(ctypes.c_uint64 * length)() for length in arrays.values()]
        places = {field: ctypes.addressof(array) for field, array in zip(arrays, self.arrays)}
        self.call = ModuleCall(size=ctypes.sizeof(ModuleCall), flags=flags, **places)
        self.reference = ctypes.byref(self.call)


def _references(tensors: Sequence[object], index: int) -> int:
    return sys.getrefcount(tensors[index])


_ALONE = _references([object()], 0)  # nobody else has it


class Arenas:
    """Memory of calls: when one is over, which nobody refers to its arena tells, those to come take it. At most two are kept, and none is
    given out that is much too large.

    Nothing is called when a call ends: in a __del__ or a weak reference's callback an exception, such as the KeyboardInterrupt of a Ctrl-C
    at that moment, would be lost."""

    MOST = 2

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._kept: List[torch.Tensor] = []
        self._lock = threading.Lock()

    def _made(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, device=self._device)

    def take(self, size: int, recorded: bool = False) -> torch.Tensor:
        """recorded: replays use it, so no later call may."""
        if recorded:
            return self._made(size)
        with self._lock:
            over = [index for index in range(len(self._kept)) if _references(self._kept, index) == _ALONE]
            for index in over:
                if size <= self._kept[index].numel() <= 2 * size + 65536:
                    return self._kept[index]
            if len(self._kept) == self.MOST and over:
                del self._kept[over[0]]
            arena = self._made(size)
            if len(self._kept) < self.MOST:
                self._kept.append(arena)
            return arena


def _close(close: Callable[[int], None], handle: int, place: Place) -> None:
    with place.current():
        close(handle)


def _free(kept: List[_Prepared]) -> Optional[_Prepared]:
    try:
        return kept.pop()
    except IndexError:
        return None


class Plan:
    """An open module of the engine. Its calls may come from any thread."""

    def __init__(self, exported: Exported, wants: Sequence[bool], takes: Optional[Sequence[int]], words: Sequence[str], arenas: Arenas,
                 place: Place) -> None:  # fmt: skip
        """wants: of each input, whether backward gives its gradient. takes: the outputs whose gradients it takes; None: all that have
        one."""
        wanted = [name for name, gradient in zip(exported.inputs, wants) if gradient and name in exported.read]
        place.check_not_recorded()
        words = [*words, "--mode", "train"]
        if not wanted:
            words += ["--gradients", "off"]
        words += [word for name in wanted for word in ("--input-grad", name)]
        words += [word for index in takes or () for word in ("--output-grad", exported.outputs[index])]
        self._library, self._arenas, self._place = library(), arenas, place
        with place.current():
            self._handle = self._library.open_module(exported.model, words)
        self._closed = weakref.finalize(self, _close, self._library.close_module, self._handle, place)
        self._closed.atexit = False  # the process takes it along, and a thread may be in it
        inputs, outputs = self._values(INPUT), self._values(OUTPUT)
        if self._values(PARAMETER) or self._values(STATISTIC):
            raise Error("the exported file has parameters of its own")
        places = {name: index for index, name in enumerate(exported.inputs)}
        self.order = [places[value.name] for value in inputs]
        self.gives = [(index, place) for index, (place, value) in enumerate(zip(self.order, inputs)) if value.gradient]
        self.takes = [index for index, value in enumerate(outputs) if value.gradient]
        self.reads = {place for place, value in zip(self.order, inputs) if value.used}
        self.results = [(value.shape, DTYPES[value.dtype]) for value in outputs]
        self.taken = tuple(self.takes)
        self.no_grad = not self.takes
        self._flags = flags = NO_GRAD if self.no_grad else 0
        self._forwards: List[_Prepared] = []  # that no call has
        self._backwards: List[_Prepared] = []
        self._on_gpu = place.device.type != "cpu"
        with place.current():
            size, alignment = self._library.arena(self._handle, flags)
        self.bytes, self._alignment = size + alignment, alignment

    def recorded(self) -> bool:
        return self._on_gpu and self._place.recorded()

    def _values(self, kind: int) -> List[Any]:
        return self._library.values("module", self._handle, kind)

    @property
    def extents(self) -> List[int]:
        """Ranks and dims of all that the file's nodes make."""
        return self._library.extents("module", self._handle)

    @property
    def notes(self) -> List[str]:
        return self._library.notes("module", self._handle)

    def _run(self, function: Any, prepared: _Prepared, kept: List[_Prepared], addresses: Sequence[int], arena: torch.Tensor, seed: int) -> None:
        """The first of the arrays is the file's inputs. kept: where the call goes when it is over."""
        call = prepared.call
        prepared.arrays[0][:] = [addresses[place] for place in self.order]
        call.seed, call.arena = seed, -(-arena.data_ptr() // self._alignment) * self._alignment
        if self._on_gpu:
            call.stream = self._place.stream()
        self._library.run(function, self._handle, prepared.reference)
        kept.append(prepared)

    def forward(self, addresses: Sequence[int], seed: int) -> Tuple[List[torch.Tensor], torch.Tensor]:
        """addresses: of the file's inputs, contiguous. All outputs, and the memory that the backward needs."""
        arena = self._arenas.take(self.bytes, self.recorded())
        outputs = [torch.empty(shape, dtype=dtype, device=self._place.device) for shape, dtype in self.results]
        prepared = _free(self._forwards) or _Prepared(self._flags, inputs=len(self.order), outputs=len(outputs))
        prepared.arrays[1][:] = [output.data_ptr() for output in outputs]
        self._run(self._library.module_forward, prepared, self._forwards, addresses, arena, seed)
        return outputs, arena

    def backward(self, tensors: Sequence[torch.Tensor], addresses: Sequence[int], arena: torch.Tensor, seed: int,
                 given: Dict[int, torch.Tensor]) -> List[Optional[torch.Tensor]]:  # fmt: skip
        """tensors: the file's inputs, at these addresses. given: gradients of outputs, contiguous and of their dtype. The gradients of the
        inputs."""
        absent = [index for index in self.takes if index not in given]
        if absent:
            zeros = {index: torch.zeros(self.results[index][0], dtype=self.results[index][1], device=self._place.device) for index in absent}
            given = {**given, **zeros}
        prepared = _free(self._backwards) or _Prepared(self._flags, inputs=len(self.order), output_gradients=len(self.results),
                                                       input_gradients=len(self.order))  # fmt: skip
        _, taken, written = prepared.arrays
        for index in self.takes:
            taken[index] = given[index].data_ptr()
        gradients: List[Optional[torch.Tensor]] = [None] * len(addresses)
        for index, place in self.gives:
            gradients[place] = gradient = torch.empty_like(tensors[place])
            written[index] = gradient.data_ptr()
        self._run(self._library.module_backward, prepared, self._backwards, addresses, arena, seed)
        return gradients
