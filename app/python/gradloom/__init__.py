"""Gradloom for Python: a training engine and profiler of neural networks.

gradloom.torch.Module runs a torch module's forward and backward, gradloom.torch.TrainStep whole training steps,
gradloom.torch.capture writes a script's step into a folder that the command line and the window open. gradloom.Session reads what
was recorded, gradloom.inspect, plan, compare, tune and verify ask what the command line asks, and gradloom.record records a loop of PyTorch. PyTorch is needed by gradloom.torch and gradloom.record only.
"""

from typing import TYPE_CHECKING, Any, Optional

from ._library import Error, UnsupportedError, UsageError, load_ops
from .commands import Answer, compare, inspect, plan, tune, verify
from .session import Session

if TYPE_CHECKING:
    from .torch._record import Recording

__all__ = ["Answer", "Error", "Session", "UnsupportedError", "UsageError", "compare", "inspect", "load_ops", "plan", "record", "tune", "verify"]


def record(path: Any, steps: Optional[int] = 1000, skip: int = 0, profile: str = "sampled", name: str = "",
           optimizers: bool = True) -> "Recording":  # fmt: skip
    """Records a training loop into a session: where the time of its steps goes, inside the engine and outside.

        with gradloom.record("s.db"):
            for batch in loader:
                loss = model(**batch).loss          # model = gradloom.torch.Module(..)
                loss.backward(); optimizer.step(); optimizer.zero_grad()

    `gradloom show s.db` then prints the shares of a step and what a faster engine would gain, `gradloom open s.db` draws them.
    What is recorded is what the thread that calls this does: kernels, forward and backward of each gradloom.torch.Module, its parts
    in PyTorch, other modules, DataLoaders, autograd, optimizers; the rest of a step is Python. A step ends with an
    optimizer's, several of which count once where no module runs, no batch is fetched and no backward begins in between.

    steps: after so many the recording ends by itself, and the loop goes on as if there had been none; None: it does not, and the
    session grows with every step.
    skip: steps before the first that is recorded.
    profile: "sampled" times the kernels of every third step, "all" of all, "step" of none.
    name: of the run.
    optimizers: False: a step ends where the recording's step() is called, and nowhere else.

    Returns the recording: close(), step(), data(batches) for batches that no DataLoader makes, span(name) for what you want to see by
    name. One recording at a time. What the session does not take (a full disk) ends the recording with a warning, not the loop.
    """
    from .torch._record import Recording

    return Recording(path, steps, skip, profile, name, optimizers)
