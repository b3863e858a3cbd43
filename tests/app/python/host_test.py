#!/usr/bin/env python3
"""torch.autograd.Functions, and by fallback="torch" submodules, inside TrainStep: the one plan of a step calls them back.

GRADLOOM_LIBRARY names the library. Exits with 77 (skipped) where there is no PyTorch.
"""

import copy
import gc
import os
import tempfile
import unittest
import warnings
import weakref

import support
import torch
from gradloom.torch import TrainStep
from outside_test import Reads
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


class Lacks(nn.Module):
    """An operator that exporters lack, running statistics, and a parameter that is not trained."""

    def __init__(self, width=6):
        super().__init__()
        self.linear, self.norm = nn.Linear(width, width, bias=False), nn.BatchNorm1d(width, eps=2.0**-17)
        self.shift = nn.Parameter(torch.randn(width), requires_grad=False)

    def forward(self, x):
        return torch.special.i0(self.norm(self.linear(x)) * 0.3 + self.shift)


class Mixed(nn.Module):
    """A parameter is read inside and outside; running statistics, too."""

    def __init__(self):
        super().__init__()
        self.first, self.lacks, self.reads = nn.Linear(6, 6), Lacks(), Reads()
        self.norm = nn.BatchNorm1d(6, eps=2.0**-17, momentum=0.125)
        self.lstm, self.last = nn.LSTM(6, 6), nn.Linear(6, 3)
        self.lstm.register_full_backward_hook(lambda *_: None)
        self.reads.linear.weight = self.first.weight

    def forward(self, x):
        x = self.lacks(torch.tanh(self.first(x)))
        found = self.reads(self.norm(x), scale=0.5)
        x = found["y"] + found["more"][0] + found["more"][2].unsqueeze(-1)
        return self.last(self.lstm(x)[0])


class Picks(nn.Module):
    """Exporters take it; the engine does not, for only the data tells how many numbers there are."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(1))

    def forward(self, x):
        return x[x > 0].sum() * self.scale + x


def both(model, loss, batches, dtype=torch.float64, accumulate=1, **settings):
    """(losses of TrainStep, of PyTorch, greatest difference of parameters and buffers, the TrainStep)"""
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
    return mine, other, support.worst(list(model.state_dict().values()), list(theirs.state_dict().values())), step


class Steps(unittest.TestCase):
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


class Functions(Steps):
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


class Submodules(Steps):
    """Those that run in PyTorch inside the plan."""

    WHAT = ("lacks (Lacks) runs in PyTorch: PyTorch's exporter lacks aten::i0", "reads (Reads) runs in PyTorch: ",
            "lstm (LSTM) runs in PyTorch: it has a backward hook")  # fmt: skip

    def train(self, sizes, dtype=torch.float64, tolerance=1e-12, **settings):
        with support.one_warning(self, "runs in PyTorch"):
            found = both(Mixed(), F.mse_loss, self.batches(sizes, dtype), dtype, fallback="torch", **settings)
        self.assert_equal(found, tolerance)
        return found[-1]

    def test_parameters_and_buffers_are_trained_as_in_pytorch(self):
        step = self.train([5] * 20)
        self.assertEqual(step.steps, 20)
        self.assertIn("shift", "".join(step.state_dict()["model"]))
        self.train([5] * 5, torch.float32, 1e-4)

    def test_batches_of_other_sizes(self):
        self.train([5, 5, 7, 4, 7, 3, 5, 9])

    def test_accumulation(self):
        self.train([5] * 12, accumulate=3)

    def test_running_again_to_save_memory(self):
        self.train([5] * 6, recompute=["*"])

    def test_mixed_precision_leaves_them_in_f32(self):
        self.train([5] * 3, torch.float32, 5e-2, precision="bf16")

    def test_what_the_engine_refuses(self):
        with support.one_warning(self, "1 (Picks) runs in PyTorch: only the data tells"):
            found = both(nn.Sequential(nn.Linear(6, 6), Picks(), nn.Linear(6, 3)), F.mse_loss, self.batches([5] * 6), fallback="torch")
        self.assert_equal(found, 1e-12)

    def test_all_is_named_once(self):
        batch = self.batches([5])[0]
        with self.assertRaises(gradloom.UnsupportedError) as refused:
            TrainStep(Mixed().double(), F.mse_loss).step(*batch)
        self.assertIn('(fallback="torch" runs these parts in PyTorch', str(refused.exception))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            step = TrainStep(Mixed().double(), F.mse_loss, fallback="torch")
            for size in (5, 5, 7):
                step.step(*self.batches([size])[0])
        told = [str(w.message) for w in caught if "gradloom" in str(w.message)]
        self.assertEqual(len(told), 1, told)
        for what in self.WHAT:
            self.assertIn(what, told[0])
            self.assertIn(what.replace(" runs in PyTorch", ""), str(refused.exception))
        with self.assertRaisesRegex(ValueError, "fallback is None or 'torch'"):
            TrainStep(Mixed(), F.mse_loss, fallback="numpy")

    def test_the_modules_own_errors_are_raised(self):
        class Fails(nn.Module):
            def forward(self, x):
                if Failing.fail:
                    raise ValueError("of mine")
                return x * 2 if x.sum() > 0 else x

        step = TrainStep(nn.Sequential(nn.Linear(6, 3), Fails()), F.mse_loss, fallback="torch")
        batch = self.batches([5], torch.float32)[0]
        with support.one_warning(self, "1 (Fails) runs in PyTorch"):
            step.step(*batch)
        Failing.fail = True
        with self.assertRaisesRegex(ValueError, "of mine"):
            step.step(*batch)

    def test_kernels_are_told_by_name(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "s.db")
            self.train([5] * 4, session=path, profile="kernels").close()
            with gradloom.Session(path) as session:
                names = {row["kernel"] for row in session.kernels()}
        for name in ("lacks (Lacks)", "lstm (LSTM)"):
            self.assertIn(f"{name} (host)", names)
            self.assertIn(f"{name} backward (host)", names)


if __name__ == "__main__":
    unittest.main()
