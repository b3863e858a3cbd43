#!/usr/bin/env python3
"""Functions of which PyTorch's exporters drop an argument or write another formula, through gradloom.torch.Module.

Results and gradients are those of torch's autograd in float64 to 1e-9, by the TorchScript exporter and, where there is one, the dynamo exporter. Exits
with 77 (skipped) without PyTorch.
"""

import sys
import unittest

import support
import torch
from gradloom.torch import Module, _dynamo
from support import Case, worst
from torch import nn
from torch.nn import functional as F

UnsupportedError = support.gradloom.UnsupportedError
HAS_DYNAMO = not _dynamo.missing()


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *given):
        return self.function(*given)


def put(*indices):
    """x with y added at indices."""
    return lambda x, y: x.index_put(indices, y, accumulate=True)


def put_into_part(x, y):
    z = x * 1.0
    z[:, 1:3].index_put_((TWICE,), y, accumulate=True)
    return z * x


TWICE = torch.tensor([0, 0, 1])
COLUMNS = torch.tensor([1, 1, 2])
MASK = torch.tensor([[True, False, True], [False, True, True]])
# name: the function, shapes or values of its arguments
PUTS = {
    "rows": (put(TWICE), (2, 4), (3, 4)),
    "rows from the end": (put(torch.tensor([-1, -1, 0])), (2, 4), (3, 4)),
    "one row for all": (put(TWICE), (2, 4), (4,)),
    "a number for each row": (put(TWICE), (2, 4), (3, 1)),
    "one number": (put(TWICE), (2, 4), ()),
    "rows by two dims": (put(torch.tensor([[0, 0], [1, 1]])), (2, 4), (2, 2, 4)),
    "elements": (put(TWICE, COLUMNS), (2, 4), (3,)),
    "indices that broadcast": (put(torch.tensor([[0], [1]]), COLUMNS), (2, 4, 5), (2, 3, 5)),
    "where a mask is true": (put(MASK), (2, 3), (4,)),
    "where a mask is true, one number": (put(MASK), (2, 3), (1,)),
    "rows of a mask": (put(MASK[0]), (3, 4), (2, 4)),
    "rows of a mask, one row": (put(MASK[0]), (3, 4), (1, 4)),
    "a mask and an index": (put(MASK[0], torch.tensor([1, 1])), (3, 4), (2,)),
    "a mask of the data": (lambda x, y: x.index_put((x > 0,), y, accumulate=True), (2, 3), (1,)),
    "in place": (lambda x, y: (x * 1.0).index_put_((TWICE,), y, accumulate=True) * x, (2, 4), (3, 4)),
    "in place, of a part": (put_into_part, (2, 4), (3, 2)),
    "without adding": (lambda x, y: torch.index_put(x, (torch.tensor([1, 0]),), y), (2, 4), (2, 4)),
}


class Exact(Case):
    def check(self, functions, exporter="torchscript"):
        for name, (function, *shapes) in functions.items():
            with self.subTest(function=name):
                torch.manual_seed(1)
                values = [shape.double() if isinstance(shape, torch.Tensor) else torch.randn(shape, dtype=torch.float64) for shape in shapes]
                given = [[t.clone().requires_grad_() for t in values] for _ in range(2)]
                results = [f(*tensors) for f, tensors in zip((Module(Function(function), exporter=exporter), function), given)]
                self.assertEqual(results[0].shape, results[1].shape)
                weights = torch.randn(results[1].shape, dtype=torch.float64)
                for result in results:
                    (result * weights).sum().backward()
                self.assert_near(results[0], results[1], 1e-9)
                for mine, theirs in zip(*given):
                    self.assertLessEqual(worst([mine.grad], [theirs.grad]), 1e-9)

    def assert_refused(self, text, function, *given, exporter="auto"):
        with self.assertRaisesRegex(UnsupportedError, text):
            Module(Function(function), exporter=exporter)(*given)

    def test_an_index_that_comes_twice_adds_twice(self):
        self.check(PUTS)
        at = torch.tensor([1, 1, 0])
        x, y = torch.zeros(2, 1), torch.tensor([[1.0], [2.0], [4.0]])
        mine = Module(Function(lambda x, y, at: x.index_put((at,), y, accumulate=True)))
        for places in (TWICE, at):
            self.assertEqual(mine(x, y, places).tolist(), x.index_put((places,), y, accumulate=True).tolist())

    @unittest.skipUnless(HAS_DYNAMO, "no dynamo exporter")
    def test_an_index_that_comes_twice_by_dynamo(self):
        self.check({name: PUTS[name] for name in ("rows", "in place")}, "dynamo")

    def test_scripted_functions_that_add_are_refused(self):
        @torch.jit.script
        def added(x, y, at):
            # type: (Tensor, Tensor, Tensor) -> Tensor
            return x.index_put([at], y, accumulate=True)

        self.assert_refused("accumulate=True", added, torch.zeros(2), torch.ones(3), TWICE, exporter="torchscript")


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
