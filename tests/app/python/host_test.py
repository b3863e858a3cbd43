#!/usr/bin/env python3
"""torch.autograd.Functions inside TrainStep: the one plan of a step calls them back, forward and backward.

GRADLOOM_LIBRARY names the library. Exits with 77 (skipped) where there is no PyTorch.
"""

import copy
import gc
import os
import tempfile
import unittest
import weakref

import support
import torch
from gradloom.torch import TrainStep
from torch import nn
from torch.nn import functional as F

gradloom = support.gradloom


class Steep(torch.autograd.Function):
    """Its backward is not its forward's derivative, so whoever differentiates the forward is found out."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * torch.sigmoid(scale * x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(ctx.scale * x)
        return 2 * gradient * (s + ctx.scale * x * s * (1 - s)), None


class Product(torch.autograd.Function):
    """Reads a parameter, and has a result without gradient."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        best = x.argmax(-1)
        ctx.mark_non_differentiable(best)
        return x @ w, best

    @staticmethod
    def backward(ctx, gradient, _):
        x, w = ctx.saved_tensors
        return gradient @ w.t(), x.t() @ gradient


class Linear(torch.autograd.Function):
    """Its backward reads nothing of the engine's but the gradient: only the plan keeps it behind the forward."""

    @staticmethod
    def forward(ctx, x):
        ctx.seen = x.sum()
        return 3 * x

    @staticmethod
    def backward(ctx, gradient):
        assert ctx.seen is not None
        return 3 * gradient


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        self.w = nn.Parameter(torch.randn(8, 8) / 3)

    def forward(self, x):
        y, best = Product.apply(Steep.apply(self.first(x), 1.5), self.w)
        return self.last(Steep.apply(y, 0.5)) + best.unsqueeze(-1).to(x.dtype)


class Sum(nn.Module):
    """The loss is a sum: gradients are there before anything runs."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)

    def forward(self, x):
        return Linear.apply(self.first(x)).sum()


class Failing(torch.autograd.Function):
    fail = None  # "forward" or "backward"
    error = ValueError

    @staticmethod
    def forward(ctx, x):
        if Failing.fail == "forward":
            raise Failing.error("forward of mine")
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if Failing.fail == "backward":
            raise Failing.error("backward of mine")
        return gradient


class MayFail(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 2)

    def forward(self, x):
        return Failing.apply(self.first(x)).square().mean()


def both(model, loss, batches, dtype=torch.float64, accumulate=1, **settings):
    """(losses of TrainStep, of PyTorch, greatest difference of parameters, the TrainStep)"""
    model = model.to(dtype)
    theirs = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=1e-2)
    step = TrainStep(model, loss, torch.optim.AdamW(model.parameters(), lr=1e-2), accumulate=accumulate, **settings)
    mine, other = [], []
    for at in range(0, len(batches), accumulate):
        part = batches[at : at + accumulate]
        mine.append(step.step(*part) if accumulate > 1 else step.step(*part[0]))
        optimizer.zero_grad()
        losses = [(loss(theirs(*b[:-1]), b[-1]) if loss else theirs(*b)) / accumulate for b in part]
        for one in losses:
            one.backward()
        optimizer.step()
        other.append(float(sum(losses).detach()))
    step.update_module()
    return mine, other, support.worst(list(model.parameters()), list(theirs.parameters())), step


class Functions(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        Failing.fail = None

    def batches(self, sizes, dtype=torch.float64):
        return [(torch.randn(n, 6, dtype=dtype), torch.randn(n, 3, dtype=dtype)) for n in sizes]

    def assert_equal(self, result, tolerance):
        mine, other, worst, _ = result
        for a, b in zip(mine, other):
            self.assertLess(abs(a - b), tolerance * max(1, abs(b)))
        self.assertLess(worst, tolerance)

    def test_backwards_are_the_functions_own(self):
        self.assert_equal(both(Net(), F.mse_loss, self.batches([5] * 20)), 1e-12)
        self.assert_equal(both(Net(), F.mse_loss, self.batches([5] * 5, torch.float32), torch.float32), 1e-5)

    def test_batches_of_other_sizes(self):
        self.assert_equal(both(Net(), F.mse_loss, self.batches([5, 5, 7, 4, 7, 1, 5, 9])), 1e-12)

    def test_accumulation(self):
        self.assert_equal(both(Net(), F.mse_loss, self.batches([5] * 12), accumulate=3), 1e-12)

    def test_running_again_to_save_memory(self):
        self.assert_equal(both(Net(), F.mse_loss, self.batches([5] * 6), recompute=["*"]), 1e-12)

    def test_mixed_precision_leaves_them_in_f32(self):
        self.assert_equal(both(Net(), F.mse_loss, self.batches([5] * 3, torch.float32), torch.float32, precision="bf16"), 5e-2)

    def test_a_backward_follows_its_forward(self):
        self.assert_equal(both(Sum(), None, [(torch.randn(3, 4, dtype=torch.float64),) for _ in range(5)]), 1e-12)

    def test_what_a_function_raises_is_raised(self):
        for place in ("forward", "backward"):
            for error in (ValueError, KeyboardInterrupt):
                Failing.error, Failing.fail = error, None
                step = TrainStep(MayFail(), None, "sgd{lr=0.1}")
                x = torch.randn(3, 4)
                step.step(x)
                Failing.fail = place
                with self.assertRaisesRegex(error, f"{place} of mine"):
                    step.step(x)
                Failing.fail = None
                self.assertEqual(step.steps, 1)
                step.update_module()  # what was trained is not lost
                with self.assertRaisesRegex(gradloom.Error, "Failing"):
                    step.step(x)
                step.close()

    def test_kernels_are_told_by_name(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "s.db")
            *_, step = both(Net(), F.mse_loss, self.batches([5] * 4), session=path, profile="kernels")
            step.close()
            with gradloom.Session(path) as session:
                names = {row["kernel"] for row in session.kernels()}
        self.assertIn("torch.autograd.Function Steep (host)", names)
        self.assertIn("torch.autograd.Function Steep backward (host)", names)

    def test_nothing_is_kept(self):
        *_, step = both(Net(), F.mse_loss, self.batches([5] * 3))
        calls = weakref.ref(step._calls)
        step.close()
        del step, _
        gc.collect()
        self.assertIsNone(calls())


if __name__ == "__main__":
    unittest.main()
