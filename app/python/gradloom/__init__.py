"""Gradloom for Python: a training engine and profiler of neural networks.

gradloom.torch.Module runs a torch module's forward and backward, gradloom.torch.TrainStep whole training steps,
gradloom.torch.capture writes a script's step into a folder that the command line and the window open. gradloom.Session reads what
was recorded. PyTorch is needed by gradloom.torch only.
"""

from ._library import Error, UnsupportedError, UsageError
from .session import Session

__all__ = ["Error", "Session", "UnsupportedError", "UsageError"]
