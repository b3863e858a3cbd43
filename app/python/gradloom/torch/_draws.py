"""Numbers that a forward draws from Python's random or numpy's, of which a trace holds what they decided: a layer that is left out, a mask."""

import contextlib
import random
import sys
from typing import Any, Callable, Iterator, List, Tuple
from unittest import mock

REFUSED = "its forward draws from Python's random or numpy's, and what it draws differs from call to call (torch.rand in tensors is drawn anew in each)"


def _numpy() -> Any:
    numpy = sys.modules.get("numpy")
    return getattr(numpy, "random", None)


@contextlib.contextmanager
def noted() -> Iterator[List[bool]]:
    """Appends to the list, afterwards, whether something was drawn. The generators are then as before."""
    numpy, drew = _numpy(), []  # type: Any, List[bool]
    python, own = random.getstate(), numpy.get_state() if numpy else ()
    try:
        yield drew
    finally:
        drew.append(random.getstate() != python or (numpy is not None and not _equal(numpy.get_state(), own)))
        if drew[-1]:
            random.setstate(python)
            if numpy:
                numpy.set_state(own)


def _equal(a: Tuple[Any, ...], b: Tuple[Any, ...]) -> bool:
    return a[0] == b[0] and bool((a[1] == b[1]).all()) and a[2:] == b[2:]


@contextlib.contextmanager
def extreme(share: float) -> Iterator[None]:
    """What is drawn from a range lies at this share of it, all else is of another seed."""

    def uniform(low: float = 0.0, high: float = 1.0, size: Any = None) -> Any:
        value = low + share * (high - low)
        return value if size is None else _numpy().Generator(_numpy().PCG64(0)).uniform(value, value, size)

    def shaped(*sizes: int) -> Any:
        return uniform(size=sizes or None)

    def sized(size: Any = None) -> Any:
        return uniform(size=size)

    with contextlib.ExitStack() as stack:
        replaced: List[Tuple[Any, str, Callable[..., Any]]] = [(random, "random", uniform), (random, "uniform", uniform)]
        if _numpy():
            replaced += [(_numpy(), "rand", shaped), (_numpy(), "uniform", uniform), (_numpy(), "random", sized), (_numpy(), "random_sample", sized)]
        for owner, name, body in replaced:
            stack.enter_context(mock.patch.object(owner, name, body))
        stack.enter_context(noted())
        random.seed(int(1000 * share))
        if _numpy():
            _numpy().seed(int(1000 * share))
        yield
