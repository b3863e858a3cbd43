#!/usr/bin/env python3
"""gradloom.load_ops: a torch module with an operator of a library runs its C kernels, forward and backward.

GRADLOOM_LIBRARY names the library. Exits with 77 (skipped) where there is no PyTorch.
"""

import os
import subprocess
import sys
import tempfile
import unittest

import support  # noqa: F401 finds the package
import gradloom
import torch
from gradloom.torch import Module
from torch import nn

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


class ScaledTanh(torch.autograd.Function):
    """As ONNX a node of the library's domain, in PyTorch the same by its operators."""

    @staticmethod
    def symbolic(g, x, scale):
        return g.op("my.domain::ScaledTanh", x, scale_f=scale).setType(x.type())

    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        y = scale * torch.tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return dy * (ctx.scale - y * y / ctx.scale), None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 7), nn.Linear(7, 3)

    def forward(self, x):
        return self.second(ScaledTanh.apply(self.first(x), 1.7))


class LoadOps(unittest.TestCase):
    def test_errors_are_one_line(self):
        with self.assertRaisesRegex(gradloom.Error, "none.so"):
            gradloom.load_ops("none.so")

    def test_module_runs_the_kernels(self):
        with tempfile.TemporaryDirectory() as folder:
            library = os.path.join(folder, "tanh.so")
            subprocess.run(["cc", "-std=c11", "-O2", "-shared", "-fPIC", f"-I{SOURCE}/engine/ops/custom",
                            f"{SOURCE}/app/embed/example/scaled_tanh.c", "-o", library, "-lm"], check=True)
            gradloom.load_ops(library)
            gradloom.load_ops(library)  # a second time changes nothing
        torch.manual_seed(0)
        theirs, x = Net(), torch.randn(4, 5)
        mine = Module(Net())
        mine.load_state_dict(theirs.state_dict())
        for net in (theirs, mine):
            net(x).square().mean().backward()
        self.assertTrue(torch.allclose(mine(x), theirs(x), atol=1e-6))
        for (name, a), b in zip(theirs.named_parameters(), mine.parameters()):
            self.assertTrue(torch.allclose(a.grad, b.grad, atol=1e-6), name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
