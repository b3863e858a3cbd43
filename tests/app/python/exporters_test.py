#!/usr/bin/env python3
"""PyTorch's two exporters behind Module, TrainStep and capture.

GRADLOOM_LIBRARY names the library, GRADLOOM_PROGRAM the program. Exits with 77 (skipped) where there is no PyTorch; where there is no dynamo exporter
(PyTorch before 2.6, no package onnxscript) its tests see what is said then.
"""

import contextlib
import copy
import io
import sys
import unittest
from unittest import mock

import support
import torch
from gradloom.torch import Module, TrainStep, _dynamo, _export, capture
from job_test import Folder, torch_losses, train
from support import Case, worst
from torch import nn
from torch.nn import functional as F

gradloom = support.gradloom
HAS_DYNAMO = not _dynamo.missing()


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, stride=2), nn.Linear(8, 5)

    def forward(self, x):
        x = F.max_pool2d(self.b(F.gelu(self.norm(self.a(x)))), 2)
        return self.head(x.mean((2, 3)))


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.qkv, self.out, self.norm = nn.Embedding(20, 16, padding_idx=3), nn.Linear(16, 48), nn.Linear(16, 20), nn.LayerNorm(16)

    def forward(self, tokens):
        x = self.norm(self.embed(tokens))
        q, k, v = (t.reshape(*tokens.shape, 2, 8).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        return self.out(x + y)


class Stops(nn.Module):
    """What no gradient flows through."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        y = self.a(x)
        with torch.no_grad():
            scale = self.b(y).sigmoid()
        return y * scale + self.b(y.detach()).tanh()


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return 3 * gradient


class OwnBackward(nn.Linear):
    def forward(self, x):
        return Doubled.apply(super().forward(x))


def of(make):
    torch.manual_seed(1)
    return make()


@unittest.skipUnless(HAS_DYNAMO, "no dynamo exporter")
class Dynamo(Case):
    def assert_equal(self, make, *calls, dtype=torch.float32, tolerance=1e-4):
        model = of(make).to(dtype)
        mine, theirs = Module(copy.deepcopy(model), exporter="dynamo"), model
        for args in calls:
            for side in (mine, theirs):
                side.zero_grad()
            found, expected = mine(*args), theirs(*args)
            self.assert_near(found, expected, tolerance)
            for side in (found, expected):
                (side**2).mean().backward()
            self.assert_same_gradients(mine, theirs, tolerance)
        self.assert_near([b.double() for b in mine.buffers()], [b.double() for b in theirs.buffers()], tolerance)
        mine.eval()
        theirs.eval()
        with torch.no_grad():
            self.assert_near(mine(*calls[0]), theirs(*calls[0]), tolerance)
        return mine

    def test_networks(self):
        for dtype, tolerance in ((torch.float32, 1e-4), (torch.float64, 1e-9)):
            self.assert_equal(Convolutions, *[(torch.randn(n, 3, 12, 12, dtype=dtype),) for n in (4, 4, 3)], dtype=dtype, tolerance=tolerance)
            self.assert_equal(Attends, *[(torch.randint(0, 20, (3, length)),) for length in (7, 7, 9)], dtype=dtype, tolerance=tolerance)
            self.assert_equal(lambda: nn.Sequential(nn.InstanceNorm1d(4, affine=True, track_running_stats=True), nn.Conv1d(4, 3, 2)),
                              *[(torch.randn(3, 4, 5, dtype=dtype),)] * 2, dtype=dtype, tolerance=tolerance)  # fmt: skip
            self.assert_equal(Stops, *[(torch.randn(4, 6, dtype=dtype),)] * 2, dtype=dtype, tolerance=tolerance)

    def test_dropout_draws_anew(self):
        mine = Module(of(lambda: nn.Sequential(nn.Linear(6, 600), nn.Dropout(0.3))), exporter="dynamo")
        x = torch.ones(2, 6)
        first, second = mine(x), mine(x)
        for drawn in (first, second):
            self.assertLess(abs(float((drawn == 0).float().mean()) - 0.3), 0.06)
        self.assertFalse(torch.equal(first, second))
        mine.eval()
        self.assertEqual(float((mine(x) == 0).float().mean()), 0.0)

    def test_what_it_loses_is_refused(self):
        x = torch.randn(4, 6)
        with self.assertRaisesRegex(gradloom.UnsupportedError, "it loses the backward of torch.autograd.Function Doubled"):
            Module(OwnBackward(6, 6), exporter="dynamo")(x)
        with torch.autocast("cpu", torch.bfloat16), self.assertRaisesRegex(gradloom.UnsupportedError, "it loses the types of torch.autocast"):
            Module(nn.Linear(6, 6), exporter="dynamo")(x)

    def test_what_only_the_data_tell(self):
        class Asks(nn.Linear):
            def forward(self, x):
                return super().forward(x) if x.sum() > 0 else x

        with contextlib.redirect_stderr(io.StringIO()) as printed, self.assertRaisesRegex(gradloom.UnsupportedError, "PyTorch cannot export it"):
            Module(Asks(6, 6), exporter="dynamo")(torch.randn(4, 6))
        self.assertEqual(printed.getvalue(), "")

    def test_either(self):
        """The other exporter where the first one fails."""
        lacks = torch.onnx.errors.UnsupportedOperatorError("aten::tanh", 17, None)
        with mock.patch.object(_export, "_run_exporter", side_effect=_export.Located([_export.Refusal("", "", _export.reason_of(lacks))])):
            model = of(Stops)
            mine, x = Module(copy.deepcopy(model)), torch.randn(4, 6)
            self.assert_near(mine(x), model(x))
            with self.assertRaisesRegex(gradloom.UnsupportedError, "cannot export it .*; and by the dynamo exporter: it loses the backward of .* Doubled"):
                Module(OwnBackward(6, 6))(x)
            with self.assertRaisesRegex(gradloom.UnsupportedError, "PyTorch cannot export it"):
                Module(Stops(), exporter="torchscript")(x)
        with mock.patch.object(torch.onnx, "register_custom_op_symbolic"):
            del torch.onnx.register_custom_op_symbolic  # as if it were gone
            self.assert_near(Module(copy.deepcopy(model))(x), model(x))


@unittest.skipUnless(HAS_DYNAMO, "no dynamo exporter")
class Steps(Folder):
    def test_steps_and_jobs(self):
        model = of(Attends)
        other, third = copy.deepcopy(model), copy.deepcopy(model)

        def loss(logits, labels):
            return F.cross_entropy(logits.reshape(-1, 20), labels.reshape(-1), label_smoothing=0.1)

        batches = [(torch.randint(0, 20, (3, length)), torch.randint(0, 20, (3, length))) for length in (7, 7, 5)]
        step = TrainStep(model, loss, torch.optim.SGD(model.parameters(), lr=0.1), exporter="dynamo")
        mine = [step.step(*batches[i % 3]) for i in range(9)]
        theirs = torch_losses(other, batches, lambda m, b: loss(m(b[0]), b[1]), torch.optim.SGD(other.parameters(), lr=0.1), 9)
        self.assertLess(max(abs(a - b) / b for a, b in zip(mine, theirs)), 1e-4)
        recipe = capture(third, batches[:2], loss, torch.optim.SGD(third.parameters(), lr=0.1), self.folder, exporter="dynamo", steps=2)
        self.assert_curves(train(recipe), mine[:2], 1e-4)
        with self.assertRaisesRegex(gradloom.UnsupportedError, "no states that a forward writes"):
            capture(nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)), (torch.randn(4, 6), torch.randn(4, 6)), F.mse_loss, folder=self.folder, exporter="dynamo")


class Words(Case):
    def test_wrong_words(self):
        for make in (lambda: Module(nn.Linear(2, 2), exporter="fx"), lambda: TrainStep(nn.Linear(2, 2), F.mse_loss, exporter="fx"),
                     lambda: capture(nn.Linear(2, 2), (torch.ones(1, 2), torch.ones(1, 2)), F.mse_loss, exporter="fx")):  # fmt: skip
            with self.assertRaisesRegex(ValueError, "exporter is one of 'auto', 'torchscript', 'dynamo', not 'fx'"):
                make()

    def test_without_it(self):
        with mock.patch.object(_dynamo, "missing", return_value="the dynamo exporter needs the package onnxscript"):
            with self.assertRaisesRegex(gradloom.UnsupportedError, "the dynamo exporter needs the package onnxscript"):
                Module(nn.Linear(2, 2), exporter="dynamo")(torch.ones(1, 2))
            self.assertEqual(worst([Module(nn.Linear(2, 2))(torch.ones(1, 2))], []), 0.0)  # not asked


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
