"""Gradloom in PyTorch scripts: Module wraps a module, TrainStep is a whole step, capture writes one into a folder."""

from ._capture import capture
from ._module import Module
from ._train_step import TrainStep

__all__ = ["Module", "TrainStep", "capture"]
