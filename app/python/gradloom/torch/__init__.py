"""Gradloom in PyTorch scripts: Module wraps a module, TrainStep is a whole step, capture writes one into a folder, profile traces
PyTorch's own, backend is for torch.compile, Buckets tells how few plans serve many lengths."""

import torch as _torch

if tuple(int(word) for word in _torch.__version__.split(".")[:2]) < (1, 13):
    raise ImportError(f"gradloom.torch works with PyTorch 1.13 and newer, and this is {_torch.__version__}: pip install --upgrade torch")

from ._buckets import Buckets
from ._capture import capture
from ._compile import backend
from ._module import Module
from ._profile import profile
from ._train_step import TrainStep

__all__ = ["Buckets", "Module", "TrainStep", "backend", "capture", "profile"]
