#!/usr/bin/env python3
"""torch.compile(backend=gradloom.torch.backend): results, gradients and buffers are eager PyTorch's.

GRADLOOM_LIBRARY names the library. Exits with 77 (skipped) where PyTorch has no torch.compile.
"""

import copy
import gc
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings
import weakref

import support
import torch
from autocast_test import Twice, run
from gradloom.torch import backend
from support import Cnn, Gpt, mlp
from torch import nn

if not hasattr(torch, "compile") or sys.version_info >= (3, 11) and tuple(int(word) for word in torch.__version__.split(".")[:2]) < (2, 1):
    print("skipped: PyTorch", torch.__version__, "has no torch.compile")
    sys.exit(77)


class Counting:
    """The backend, and what it was handed over."""

    def __init__(self, **options):
        self.graphs, self.options = [], options

    def __call__(self, graph, examples):
        self.graphs.append(graph)
        return backend(graph, examples, options=self.options)


class Compiled(support.Case):
    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(2)

    def pair(self, model, **options):
        """The compiled model, its eager twin, and the backend that counts."""
        counting = Counting(**options)
        theirs = copy.deepcopy(model)
        return torch.compile(model, backend=counting), theirs, counting

    def step(self, mine, theirs, *batch, loss_of=lambda result: result, tolerance=1e-5):
        losses = [loss_of(model(*batch)) for model in (mine, theirs)]
        for model, loss in zip((mine, theirs), losses):
            model.zero_grad()
            loss.backward()
        self.assert_near(losses[0].detach(), losses[1].detach(), tolerance)
        self.assert_same_gradients(mine, theirs, tolerance * 10)

    def test_gradients_and_training(self):
        mine, theirs, counting = self.pair(Gpt())
        optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-2) for model in (mine, theirs)]
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # nothing runs elsewhere
            for seed in range(4):
                tokens = torch.randint(31, (3, 9), generator=torch.Generator().manual_seed(seed))
                self.step(mine, theirs, tokens, tokens, loss_of=lambda result: result["loss"], tolerance=1e-4)
                for optimizer in optimizers:
                    optimizer.step()
        self.assertEqual(len(counting.graphs), 1)

    def test_buffers(self):
        mine, theirs, _ = self.pair(Cnn())
        for seed in range(3):
            image = torch.randn(2, 3, 9, 9, generator=torch.Generator().manual_seed(seed))
            self.step(mine, theirs, image, loss_of=lambda result: result.square().mean())
        for (name, a), b in zip(mine.named_buffers(), theirs.buffers()):
            self.assertEqual(a.dtype, b.dtype, name)
            self.assert_near(a.double(), b.double())
        mine.eval(), theirs.eval()
        self.step(mine, theirs, torch.randn(2, 3, 9, 9), loss_of=lambda result: result.square().mean())

    def test_python_decides_on_data(self):
        class Branches(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.small, self.large = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)

            def forward(self, x):
                x = torch.tanh(self.first(x))
                return (self.large(x) if x.sum() > 0 else self.small(x)).square().sum()

        model = Branches()
        mine, theirs, counting = self.pair(model)
        taken = set()
        for seed in range(6):
            x = torch.randn(4, 6, generator=torch.Generator().manual_seed(seed))
            taken.add(bool(torch.tanh(model.first(x)).sum() > 0))
            self.step(mine, theirs, x)
        self.assertEqual(taken, {True, False})
        self.assertGreater(len(counting.graphs), 1)

    def test_sizes(self):
        mine, theirs, counting = self.pair(Gpt())
        for length in (4, 7, 9, 11, 5):
            tokens = torch.randint(31, (3, length), generator=torch.Generator().manual_seed(length))
            self.step(mine, theirs, tokens, tokens, loss_of=lambda result: result["loss"])
        self.assertLessEqual(len(counting.graphs), 3, "the second size makes sizes symbolic")

    def test_blocks_of_one_class(self):
        class Tower(nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = nn.ModuleList(mlp() for _ in range(3))
                self.back = nn.ModuleList(nn.Linear(3, 6) for _ in range(3))

            def forward(self, x):
                for block, back in zip(self.blocks, self.back):
                    x = x + back(block(x))
                return x.square().mean()

        model = Tower()
        theirs, counting = copy.deepcopy(model), Counting()
        with torch.no_grad():
            for i, (block, other) in enumerate(zip(model.blocks, theirs.blocks)):
                for p, q in zip(block.parameters(), other.parameters()):
                    q.copy_(p.mul_(1 + i))
        for block in model.blocks:
            block.compile(backend=counting)
        self.step(model, theirs, torch.randn(5, 6))

    def test_members_of_one_name(self):
        """Of two modules in one function, in a list, and as this package names its own."""
        class Named(nn.Module):
            def __init__(self):
                super().__init__()
                self._graph, self._sizes, self.forward_ = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
                self.listed = [nn.Linear(4, 4), nn.Linear(4, 4)]

            def forward(self, x):
                for layer in (self._graph, self._sizes, self.forward_, *self.listed):
                    x = torch.tanh(layer(x))
                return x

        first, second, named = nn.Linear(4, 4), nn.Linear(4, 4), Named()

        def function(x):
            return second(torch.relu(first(x)))

        x = torch.randn(3, 4)
        for whole, members in ((function, [*first.parameters(), *second.parameters()]),
                               (named, [*named.parameters(), *named.listed[0].parameters(), *named.listed[1].parameters()])):  # fmt: skip
            gradients = []
            for call in (torch.compile(whole, backend=Counting()), whole):
                for p in members:
                    p.grad = None
                result = call(x)
                result.square().sum().backward()
                gradients.append([result.detach(), *[p.grad.clone() for p in members]])
            self.assert_near(*gradients)

    def test_under_autocast(self):
        mine, theirs, _ = self.pair(mlp())
        x = torch.randn(5, 6)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.step(mine, theirs, x, loss_of=lambda result: result.float().square().mean(), tolerance=5e-2)

    def test_blocks_of_autocast_inside(self):
        """TorchDynamo makes calls of them."""
        mine, theirs, _ = self.pair(Twice())
        for low in (True, False):
            x = torch.randn(6, 32)
            results = [run(model, low, x) for model in (mine, theirs)]
            self.assertEqual([t.dtype for t in results[0]], [t.dtype for t in results[1]])
            self.assert_near(results[0][0], results[1][0], 2e-6)
            self.assert_near(results[0][2:], results[1][2:], 1e-2 if low else 2e-6)

    def test_recipe_and_budget(self):
        mine, theirs, _ = self.pair(Gpt(), recipe={"gradloom_recipe": 1, "passes": []}, memory_budget="1GiB")
        tokens = torch.randint(31, (3, 9))
        self.step(mine, theirs, tokens, tokens, loss_of=lambda result: result["loss"])

    def test_what_the_engine_lacks(self):
        class Values(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 4)

            def forward(self, x):
                return torch.special.i0(self.layer(x)).sum()

        mine, theirs, _ = self.pair(Values())
        x = torch.randn(4, 4)
        with support.one_warning(self, "i0"):
            self.step(mine, theirs, x, tolerance=1e-4)
            self.step(mine, theirs, x, tolerance=1e-4)
        torch._dynamo.reset()
        mine, _, _ = self.pair(Values(), fallback=None)
        with self.assertRaisesRegex(Exception, "i0"):
            mine(x)

    def test_bad_options(self):
        graph = torch.fx.symbolic_trace(nn.Identity())
        with self.assertRaisesRegex(ValueError, "not speed"):
            backend(graph, [], options={"speed": 2})
        with self.assertRaisesRegex(ValueError, "Inductor"):
            backend(graph, [], mode="max-autotune")

    def test_by_name(self):
        """The wheel's entry point is how PyTorch knows the name."""
        import make_wheel

        with tempfile.TemporaryDirectory() as folder:
            info = pathlib.Path(folder, "gradloom-0.dist-info")
            info.mkdir()
            (info / "METADATA").write_text(make_wheel.METADATA.format(version="0"))
            (info / "entry_points.txt").write_text(make_wheel.ENTRY_POINTS)
            program = (
                f"import sys; sys.path[:0] = {[folder, *sys.path[:3]]!r}\n"
                "import torch\n"
                "model = torch.nn.Linear(3, 2)\n"
                "x = torch.ones(2, 3)\n"
                "print('gradloom' in torch._dynamo.list_backends(), torch.allclose(torch.compile(model, backend='gradloom')(x), model(x)))\n"
            )
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        self.assertEqual(done.stdout.strip(), "True True", done.stderr)

    def test_nothing_is_kept(self):
        mine, _, _ = self.pair(Gpt())
        kept = weakref.ref(next(mine.parameters()))
        tokens = torch.randint(31, (3, 9))
        mine(tokens, tokens)["loss"].backward()
        del mine
        torch._dynamo.reset()
        gc.collect()
        self.assertIsNone(kept())


if __name__ == "__main__":
    unittest.main()
