#!/usr/bin/env python3
"""Types that a forward gives its tensors outside of blocks of torch.autocast: x.float(), x.to(y.dtype), x.half().

GRADLOOM_LIBRARY names the library, GRADLOOM_PROGRAM the program. Exits with 77 (skipped) where there is no PyTorch.
"""

import copy
import sys
import unittest
import warnings

import support
import torch
from autocast_test import LOW, Compared, Layers, run, under
from gradloom.torch import Module, TrainStep, capture
from job_test import Folder, torch_losses
from support import twins, worst
from torch import nn
from torch.nn import functional as F

gradloom = support.gradloom


class Island(Layers):
    """What Python gives a type outside of any block: the tensor that it is of, and what is made of it."""

    def __init__(self, of):
        super().__init__()
        self.of = of

    def forward(self, x):
        y = self.a(x)
        return y, self.of(y)


class LlamaNorm(nn.Module):
    """As LlamaRMSNorm, also of Mistral, Qwen and T5's kin."""

    def __init__(self, width=32):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        dtype = x.dtype
        x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * x.to(dtype)


class T5Norm(LlamaNorm):
    def forward(self, x):
        x = x * torch.rsqrt(x.to(torch.float32).pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * (x.to(self.weight.dtype) if self.weight.dtype in (torch.float16, LOW) else x)


class GemmaNorm(LlamaNorm):
    def forward(self, x):
        found = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
        return (found * (1.0 + self.weight.float())).type_as(x)


class ByHandNorm(LlamaNorm):
    """A norm whose mean and differences are in f32 for .float() alone."""

    def forward(self, x):
        x = x.float()
        x = x - x.mean(-1, keepdim=True)
        return x / (x * x).mean(-1, keepdim=True).add(1e-6).sqrt() * self.weight


class Normed(Layers):
    def __init__(self, norm):
        super().__init__()
        self.norm = norm()

    def forward(self, x):
        y = self.a(x)
        z = self.norm(y)
        return y, z, self.b(z)


def softcap(y):
    return 30 * torch.tanh(y.float() / 30)


class Typed(Compared):
    """x.float(), x.to(..), x.half() outside of blocks."""

    # Each is the same in f32 throughout: what is made of 16 bits has 8.
    ISLANDS = (softcap, lambda y: y.to(torch.float32).mean(-1), lambda y: (y.float() - y.float().mean(-1, keepdim=True)).abs(),
               lambda y: y.type(torch.float32).sigmoid(), lambda y: F.silu(y.to(dtype=torch.float32)) * y,
               lambda y: y.float().reshape(3, 2, 32).transpose(0, 1).contiguous().view(2, 96).tanh(), lambda y: torch.relu(y).float().tanh(),
               lambda y: F.gelu(y.type_as(torch.ones(()))), lambda y: y.to(torch.ones(())).tanh(), lambda y: y.to("cpu", torch.float32).tanh())  # fmt: skip

    def test_islands_in_f32(self):
        for index, of in enumerate(self.ISLANDS):
            mine, theirs = twins(lambda of=of: Island(of))
            for low in (True, False):
                x = torch.randn(6, 32)
                self.assert_results(mine, theirs, low, x, exact=() if low else None)
                y, z = run(mine, low, x)
                self.assertEqual((y.dtype, z.dtype), (LOW if low else torch.float32, torch.float32))
                self.assertLessEqual(worst([z], [of(y)]), 1e-6, (index, low))  # of the same y

    def test_norms(self):
        for norm in (LlamaNorm, T5Norm, GemmaNorm, ByHandNorm):
            mine, theirs = twins(lambda norm=norm: Normed(norm))
            for low in (True, False):
                x = torch.randn(6, 32)
                self.assert_results(mine, theirs, low, x, exact=() if low else None)
                y, z, _ = run(mine, low, x)
                with torch.no_grad():
                    expected = run(theirs.norm, low, y)[0]
                self.assertEqual(z.dtype, expected.dtype)
                self.assertLessEqual(worst([z], [expected]), 4e-3 if low and norm is GemmaNorm else 2e-6, (norm, low))  # whose result has 8 bits

    def test_back_to_16_bits(self):
        """The type that another tensor has, which a trace does not know."""
        mine, theirs = twins(lambda: Island(lambda y: F.relu(y.float().tanh().to(y.dtype)) * 2))
        for low in (True, False):
            x = torch.randn(6, 32)
            self.assert_results(mine, theirs, low, x, exact=() if low else None)
            (entry,) = [e for e in self.entries(mine) if (e.steps._words.cast is not None) == low]
            names = " ".join(name for name, _ in gradloom._onnx_file.names(entry.exported.model))
            self.assertEqual("/Relu@low" in names, low, names)
            y, z = run(mine, low, x)
            self.assertEqual(z.dtype, y.dtype)
            self.assertLessEqual(worst([z], [theirs.of(y)]), 4e-3 if low else 1e-6)
        # There and back: what 16 bits lose is lost.
        mine, theirs = twins(lambda: Island(lambda y: y.float().tanh().to(y.dtype).float() * 3))
        for low in (True, False):
            y, z = run(mine, low, torch.randn(6, 32))
            self.assertLessEqual(worst([z], [theirs.of(y)]), 1e-6)

    def test_16_bits_by_name(self):
        class Low(Layers):
            def forward(self, x):
                return self.b(self.a(x).float().tanh().bfloat16()), self.c(x.to(LOW))

        mine, theirs = twins(Low)
        self.assert_results(mine, theirs, True, torch.randn(6, 32), exact=())

    def test_memory_is_shared_as_in_pytorch(self):
        def written(y):
            z = y.float()
            z += 1
            return z * y

        mine, theirs = twins(lambda: Island(written))
        for low in (True, False):  # a copy, and the tensor itself
            x = torch.randn(6, 32)
            with torch.no_grad():
                for a, b in zip(run(mine, low, x), run(theirs, low, x)):
                    self.assertEqual(a.dtype, b.dtype)
                    self.assertLessEqual(worst([a], [b]), 1e-2 if low else 1e-6)

        class Same(Layers):
            def forward(self, x):
                return x.float(), self.a(x)

        x = torch.randn(6, 32)
        self.assertIs(Module(Same())(x)[0], x)

    def test_a_precision_of_a_recipe(self):
        for precision in ("bf16", "bf16{list=autocast}"):
            torch.manual_seed(5)
            mine = Module(Island(softcap), recipe={"gradloom_recipe": 1, "passes": [], "precision": precision})
            y, z = mine(torch.randn(6, 32))
            self.assertEqual(worst([y], [y.to(LOW)]), 0.0)  # it is bf16
            self.assertLessEqual(worst([z], [softcap(y)]), 1e-6, precision)


class Steps(Folder):
    def test_types_that_python_gives(self):
        """Of the model and of the loss, in a step, in a captured job, and where the state changes."""

        def loss(results, target):
            return (softcap(8 * results[1].float()) - softcap(target)).to(results[0].dtype).float().square().mean()

        torch.manual_seed(1)
        model = Normed(LlamaNorm)
        other, batches = copy.deepcopy(model), [(torch.randn(6, 32), torch.randn(6, 32)) for _ in range(2)]
        step, optimizer = (make(m.parameters()) for make, m in ((lambda p: TrainStep(model, loss, torch.optim.SGD(p, lr=0.1)), model),
                           (lambda p: torch.optim.SGD(p, lr=0.1), other)))  # fmt: skip
        for low in (False, True, True, False):
            other.load_state_dict(model.state_dict())  # processors round bf16 in more than one way
            with torch.autocast("cpu", LOW, enabled=low):
                mine = step.step(*batches[low])
                if low:
                    recipe = capture(model, batches, loss, "sgd{lr=0.1}", folder=self.folder)
            (theirs,) = torch_losses(other, [batches[low]], under(low, loss), optimizer, 1)
            self.assertLess(abs(mine - theirs) / theirs, 2e-3 if low else 1e-5)
        with open(recipe.replace("recipe.json", "model.onnx"), "rb") as file:
            names = [name for name, _ in gradloom._onnx_file.names(file.read())]
        self.assertTrue(any(name.startswith("/norm/") and name.endswith("@f32") for name in names), names)


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)
    sys.exit(unittest.main(verbosity=1))
