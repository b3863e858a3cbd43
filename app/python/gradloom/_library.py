"""libgradloom.so as Python calls it: the functions of gradloom.h through ctypes, errors as exceptions.

The library is looked for in $GRADLOOM_LIBRARY, beside this package (a wheel's), in the source tree that holds this
package, and where the system's loader looks. It is loaded by the first call that needs it.
"""

import atexit
import ctypes
import os
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

API_MAJOR = 1
_POLL = 0.001  # seconds

INPUT, OUTPUT, PARAMETER, STATISTIC, STATE = range(5)  # kinds of values
NO_GRAD = 1  # flag of a call: forward alone


class Error(RuntimeError):
    """What Gradloom cannot do, in one line; `code` is the exit code that the command line has for the same."""

    def __init__(self, message: str, code: int = 70) -> None:
        super().__init__(message)
        self.code = code


class UsageError(Error):
    """Wrong words, names or arguments."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message, code)


class UnsupportedError(Error):
    """A model that Gradloom cannot run as it is; the message names all that stands in the way."""

    def __init__(self, message: str, code: int = 3) -> None:
        super().__init__(message, code)


_CLASSES = {2: UsageError, 3: UnsupportedError, 6: UnsupportedError}


class _Memory(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t), ("used", ctypes.c_int32))


class _Value(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("bytes", ctypes.c_int64),
        ("gradient", ctypes.c_int32),
        ("used", ctypes.c_int32),
    ]


_POINTERS = ctypes.POINTER(ctypes.c_void_p)


class ModuleCall(ctypes.Structure):
    """gradloom_call. Arrays of addresses are given by their own."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("flags", ctypes.c_int32),
        ("inputs", ctypes.c_void_p),
        ("parameters", ctypes.c_void_p),
        ("statistics", ctypes.c_void_p),
        ("outputs", ctypes.c_void_p),
        ("arena", ctypes.c_void_p),
        ("seed", ctypes.c_uint64),
        ("step", ctypes.c_uint64),
        ("output_gradients", ctypes.c_void_p),
        ("input_gradients", ctypes.c_void_p),
        ("parameter_gradients", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
    ]


TEXT, NOTE, ERROR, JSON = range(4)  # levels of what a job or command says
LOG = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
PROGRESS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_double)


class HostTensor(ctypes.Structure):
    """gradloom_host_tensor."""

    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32), ("dims", ctypes.POINTER(ctypes.c_int64))]


_HOST_TENSORS = ctypes.POINTER(HostTensor)
# gradloom_host_function.
HOST_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_int, _HOST_TENSORS, ctypes.c_int, _HOST_TENSORS)


class Callbacks(ctypes.Structure):
    """gradloom_callbacks."""

    _fields_ = [("size", ctypes.c_size_t), ("user", ctypes.c_void_p), ("log", LOG), ("json", ctypes.c_int32), ("progress", PROGRESS)]


class Value(NamedTuple):
    """A tensor of a module or job; dtype is ONNX's number."""

    name: str
    dtype: int
    shape: Tuple[int, ...]
    bytes: int
    gradient: bool
    used: bool


def places(name: str) -> List[str]:
    """Where the library or the program may be: beside the package, and in the source tree that holds it."""
    here = os.path.dirname(os.path.abspath(__file__))
    tree = os.path.dirname(os.path.dirname(os.path.dirname(here)))
    return [os.path.join(here, name), os.path.join(tree, "build", "release", name)]


def _find() -> str:
    named = os.environ.get("GRADLOOM_LIBRARY")
    if named:
        if not os.path.exists(named):
            raise Error(f"GRADLOOM_LIBRARY names {named}, which does not exist", 5)
        return named
    return next((place for place in places("libgradloom.so") if os.path.exists(place)), "libgradloom.so")


_SIGNATURES: Sequence[Tuple[str, Sequence[Any]]] = (
    ("load_ops", (ctypes.c_char_p,)),
    ("host_function_add", (HOST_FUNCTION, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64))),
    ("host_function_remove", (ctypes.c_int64,)),
    ("command", (ctypes.c_int, ctypes.POINTER(ctypes.c_char_p), ctypes.POINTER(Callbacks), ctypes.POINTER(ctypes.c_int32))),
    ("module_open_bytes", (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p), _POINTERS)),
    ("module_count", (ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_int))),
    ("module_value", (ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.POINTER(_Value))),
    ("module_extents", (ctypes.c_void_p, ctypes.POINTER(ctypes.POINTER(ctypes.c_int64)), ctypes.POINTER(ctypes.c_size_t))),
    ("job_extents", (ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.POINTER(ctypes.c_int64)), ctypes.POINTER(ctypes.c_size_t))),
    ("module_notes", (ctypes.c_void_p, ctypes.POINTER(ctypes.c_char_p))),
    ("module_arena", (ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_int64))),
    ("module_forward", (ctypes.c_void_p, ctypes.POINTER(ModuleCall))),
    ("module_backward", (ctypes.c_void_p, ctypes.POINTER(ModuleCall))),
    ("recorder_open", (ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p), _POINTERS)),
    ("recorder_close", (ctypes.c_void_p, ctypes.c_char_p)),
    ("recorder_watch", (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)),
    ("recorder_span", (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64)),
    ("recorder_begin_step", (ctypes.c_void_p, ctypes.c_int64)),
    ("recorder_end_step", (ctypes.c_void_p, ctypes.c_int64, ctypes.c_double, ctypes.c_double)),
    ("recorder_tell", (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)),
    ("ranks_join", (ctypes.c_double, ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))),
    ("ranks_share", (ctypes.c_void_p, ctypes.c_int64)),
    ("ranks_leave", ()),
    ("job_open_on", (ctypes.c_int, ctypes.POINTER(ctypes.c_char_p), ctypes.POINTER(Callbacks), ctypes.c_int, ctypes.POINTER(_Memory), _POINTERS)),
    ("job_close", (ctypes.c_void_p,)),
    ("job_sizes", (ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p), ctypes.POINTER(ctypes.c_int))),
    ("job_forget_sizes", (ctypes.c_void_p, ctypes.c_int)),
    ("job_notes", (ctypes.c_void_p, ctypes.POINTER(ctypes.c_char_p))),
    ("job_step_sized", (ctypes.c_void_p, ctypes.c_int, ctypes.c_int, _POINTERS, ctypes.POINTER(ctypes.c_double))),
    ("job_count", (ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_int))),
    ("job_value", (ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.POINTER(_Value))),
    ("job_read", (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)),
    ("job_write", (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)),
    ("job_set_option", (ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_double)),
    ("job_steps", (ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_int64))),
)


class _Calls:
    """Calls that compute. When the interpreter ends it waits for those that run, and no other begins: the library must not compute while
    the process's globals are destroyed.

    A Ctrl-C may come between any two operations of the main thread: there is no lock that it could leave taken, and what it leaves of a
    call of that thread is no call that runs when the main thread ends the interpreter.
    """

    def __init__(self) -> None:
        self.running: Dict[object, int] = {}  # by call, the thread
        self.ending: Optional[int] = None  # the thread that ends the interpreter
        atexit.register(self._end)
        os.register_at_fork(after_in_child=self.running.clear)

    def one(self) -> "_Call":
        return _Call(self)

    def begin(self) -> object:
        """A call begins in this thread; what end() takes."""
        call, thread = object(), threading.get_ident()
        self.running[call] = thread
        if self.ending not in (None, thread) and list(self.running.values()).count(thread) == 1:
            del self.running[call]
            while True:  # this is a daemon thread
                time.sleep(1)
        return call

    def end(self, call: object) -> None:
        self.running.pop(call, None)

    def _end(self) -> None:
        self.ending = threading.get_ident()
        while any(thread != self.ending for thread in list(self.running.values())):
            time.sleep(_POLL)


class _Call:
    def __init__(self, calls: _Calls) -> None:
        self._calls, self._call = calls, None  # type: _Calls, object

    def __enter__(self) -> None:
        self._call = self._calls.begin()

    def __exit__(self, *_: Any) -> None:
        self._calls.end(self._call)


class Library:
    """The loaded library. Methods raise Error where the C function returns a code other than 0."""

    def __init__(self, path: str) -> None:
        try:
            self.path, self._dll = path, ctypes.CDLL(path)
        except OSError as error:
            raise Error(f"libgradloom.so cannot be loaded ({error}): set GRADLOOM_LIBRARY to it, or install Gradloom's wheel", 5) from None
        self._dll.gradloom_last_error.restype = ctypes.c_char_p
        self._dll.gradloom_version.restype = ctypes.c_char_p
        api = self._dll.gradloom_api()
        if api // 1000 != API_MAJOR:
            raise Error(f"{path} has interface {api // 1000}, this package needs {API_MAJOR}: install both of one version", 2)
        for name, arguments in _SIGNATURES:
            function = getattr(self._dll, "gradloom_" + name, None)
            if function is None:
                raise Error(f"{path} is older than this package and lacks gradloom_{name}: install both of one version", 2)
            function.argtypes, function.restype = arguments, ctypes.c_int
        self._dll.gradloom_module_close.argtypes, self._dll.gradloom_module_close.restype = (ctypes.c_void_p,), None
        self.close_module = self._dll.gradloom_module_close
        self.module_forward, self.module_backward = self._dll.gradloom_module_forward, self._dll.gradloom_module_backward
        self.calls = _Calls()

    @property
    def version(self) -> str:
        version: bytes = self._dll.gradloom_version()
        return version.decode()

    def check(self, code: int) -> None:
        """Raises the error of the call that returned `code`."""
        if code != 0:
            message = self._dll.gradloom_last_error().decode(errors="replace")
            raise _CLASSES.get(code, Error)(message, code)

    def call(self, name: str, *arguments: Any) -> None:
        self.check(getattr(self._dll, "gradloom_" + name)(*arguments))

    def compute(self, name: str, *arguments: Any) -> None:
        """A call that computes, and may be running in a thread when the interpreter ends."""
        self.run(getattr(self._dll, "gradloom_" + name), *arguments)

    def run(self, function: Any, *arguments: Any) -> None:
        """compute() of a function of the library."""
        call = self.calls.begin()
        try:
            code = function(*arguments)
        finally:
            self.calls.end(call)
        if code != 0:
            self.check(code)

    def open_module(self, model: bytes, words: Sequence[str]) -> int:
        handle = ctypes.c_void_p()
        self.compute("module_open_bytes", model, len(model), len(words), _words(words), ctypes.byref(handle))
        return handle.value or 0

    def open_recorder(self, session: str, words: Sequence[str]) -> int:
        handle = ctypes.c_void_p()
        self.call("recorder_open", os.fsencode(session), len(words), _words(words), ctypes.byref(handle))
        return handle.value or 0

    def values(self, what: str, handle: int, kind: int) -> List[Value]:
        """All values of a kind of a "module" or "job"."""
        count = ctypes.c_int()
        self.call(what + "_count", handle, kind, ctypes.byref(count))
        values, row = [], _Value()
        for index in range(count.value):
            self.call(what + "_value", handle, kind, index, ctypes.byref(row))
            shape = tuple(row.shape[axis] for axis in range(row.rank))
            values.append(Value(row.name.decode(), row.dtype, shape, row.bytes, bool(row.gradient), bool(row.used)))
        return values

    def arena(self, handle: int, flags: int) -> Tuple[int, int]:
        """(bytes, alignment)"""
        size, alignment = ctypes.c_int64(), ctypes.c_int64()
        self.call("module_arena", handle, flags, ctypes.byref(size), ctypes.byref(alignment))
        return size.value, alignment.value

    def extents(self, what: str, *handle: int) -> List[int]:
        """Ranks and dims of all that the nodes of a "module" make, or of a "job" for its sizes."""
        found, count = ctypes.POINTER(ctypes.c_int64)(), ctypes.c_size_t()
        self.call(what + "_extents", *handle, ctypes.byref(found), ctypes.byref(count))
        return found[: count.value]

    def notes(self, what: str, handle: int) -> List[str]:
        """What was noted while a "module" or "job" was read and compiled."""
        text = ctypes.c_char_p()
        self.call(what + "_notes", handle, ctypes.byref(text))
        return (text.value or b"").decode(errors="replace").splitlines()

    def open_job(self, words: Sequence[str], memory: Mapping[str, Tuple[int, int]]) -> Tuple[int, Set[str]]:
        """Its number, and what of `memory`, addresses and bytes by name, the job works in."""
        handle, places = ctypes.c_void_p(), (_Memory * len(memory))()
        for place, (name, (address, size)) in zip(places, memory.items()):
            place.name, place.data, place.bytes = name.encode(), address, size
        self.call("job_open_on", len(words), _words(words), None, len(memory), places, ctypes.byref(handle))
        return handle.value or 0, {place.name.decode() for place in places if place.used}

    def job_sizes(self, job: int, words: Sequence[str]) -> int:
        """A number for batches of other sizes."""
        sizes = ctypes.c_int()
        self.call("job_sizes", job, len(words), _words(words), ctypes.byref(sizes))
        return sizes.value


def _words(words: Sequence[str]) -> Any:
    return (ctypes.c_char_p * len(words))(*[word.encode() for word in words])


def pointers(addresses: Sequence[Optional[int]]) -> Any:
    """An array of void*; None and 0 are null."""
    return (ctypes.c_void_p * len(addresses))(*addresses)


def interruptible(run: Callable[[], None], stop: ctypes.c_int32) -> None:
    """Runs a call that goes on until it is done or `stop` is not 0, which a Ctrl-C makes it."""
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.1)
    except BaseException:
        stop.value = 1
        thread.join()
        raise


_lock = threading.Lock()
_loaded: Optional[Library] = None


def library() -> Library:
    """The library, loaded once."""
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                _loaded = Library(_find())
    return _loaded


def load_ops(path: "os.PathLike[str] | str") -> None:
    """Loads a shared library with operators of your own (gradloom_op.h) for the rest of the process, as --ops does on the command line:
    models whose nodes are of its domain then run here."""
    library().call("load_ops", os.fsencode(path))
