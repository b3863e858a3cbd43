#!/usr/bin/env python3
"""Parts of a module that stay in PyTorch: submodules by fallback="torch", torch.autograd.Functions always.

Values, gradients, buffers and modes are those of the module without Gradloom. Exits with 77 (skipped) where there is no PyTorch.
"""

import copy
import os
import sys
import tempfile
import unittest
import warnings

import support
import torch
from gradloom.torch import Module, TrainStep, capture
from support import Case, worst
from torch import nn
from torch.nn import functional as F

UnsupportedError = support.gradloom.UnsupportedError
FUNCTION = "which alone knows its backward"


class Through(torch.autograd.Function):
    """Rounds; its backward, straight through but for a factor, is not what differentiating its forward gives."""

    @staticmethod
    def forward(ctx, x, steps):
        ctx.steps = steps
        return (x * steps).round() / steps

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (1 + 1 / ctx.steps), None


class Pairs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y, (x > y), x - y

    @staticmethod
    def backward(ctx, product, _, difference):
        x, y = ctx.saved_tensors
        return 2 * product * y + difference, product * x - 3 * difference


class Rounds(nn.Module):
    def __init__(self, width=6, steps=4):
        super().__init__()
        self.linear, self.steps = nn.Linear(width, width), steps

    def forward(self, x):
        return Through.apply(self.linear(x), self.steps)


class Lacks(nn.Module):
    """An operator that exporters lack, parameters, running statistics and Dropout."""

    def __init__(self, width=6):
        super().__init__()
        self.linear, self.norm, self.drop = nn.Linear(width, width), nn.BatchNorm1d(width), nn.Dropout(0.5)

    def forward(self, x):
        return torch.special.i0(self.drop(self.norm(self.linear(x))) * 0.1)


class Reads(nn.Module):
    """Python looks at numbers."""

    def __init__(self, width=6):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x, *, scale=1.0):
        y = self.linear(x) * scale
        return {"y": y * 2 if y.sum() > 0 else y, "more": (x, None, y.argmax(-1))}


class Block(nn.Module):
    """What has all kinds of submodules between operators of its own."""

    def __init__(self, middle, width=6):
        super().__init__()
        self.before, self.middle, self.after = nn.Linear(width, width), middle, nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())

    def forward(self, x):
        y = self.middle(torch.tanh(self.before(x)))
        if isinstance(y, dict):
            y = y["y"] + y["more"][0] + y["more"][2].unsqueeze(-1)
        return x + self.after(y)


class Stack(nn.Module):
    def __init__(self, *middles, width=6):
        super().__init__()
        self.blocks = nn.ModuleList(Block(middle, width) for middle in middles)
        self.norm, self.head = nn.BatchNorm1d(width), nn.Linear(width, 3)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def pair(make, dtype=torch.float64, **options):
    torch.manual_seed(7)
    model = make().to(dtype)
    for part in model.modules():
        if hasattr(part, "eps"):
            part.eps = 2.0**-17  # exporters write it as f32
    return Module(copy.deepcopy(model), **options), model


def parts(module):
    """What the engine runs of each entry: the number of files."""
    return [sum(opened is not None for _, opened in entry.steps._parts) for entry in module._gradloom._entries.values()]


class Both(Case):
    def assert_same(self, mine, theirs, x, tolerance=1e-9):
        """A training step on both, in f64: results, gradients of arguments and parameters, buffers."""
        found = []
        for model in (mine, theirs):
            model.zero_grad(set_to_none=True)
            given = x.double().requires_grad_()
            y = model(given)
            y.square().mean().backward()
            found.append((y, given.grad))
        (a, da), (b, db) = found
        self.assert_near(a, b, tolerance)
        self.assert_near(da, db, tolerance)
        if list(theirs.parameters()):
            self.assert_same_gradients(mine, theirs, tolerance)
        for (name, p), q in zip(mine.named_buffers(), theirs.buffers()):
            self.assertLessEqual(worst([p.double()], [q.double()], 1e-3), tolerance, name)


class Functions(Both):
    def test_a_backward_of_its_own(self):
        mine, theirs = pair(lambda: Stack(Rounds(steps=4), nn.Tanh(), Rounds(steps=8)))
        x = torch.randn(5, 6)
        with support.one_warning(self, FUNCTION):
            self.assert_same(mine, theirs, x)
            self.assert_same(mine, theirs, x)
        self.assertEqual(parts(mine), [3])
        mine.eval(), theirs.eval()
        with torch.no_grad():
            self.assert_near(mine(x.double()), theirs(x.double()), 1e-9)

    def test_several_results(self):
        class Uses(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

            def forward(self, x):
                product, larger, difference = Pairs.apply(self.a(x), self.b(x))
                return torch.where(larger, product, difference * 0.5).exp()

        mine, theirs = pair(Uses)
        with support.one_warning(self, FUNCTION):
            self.assert_same(mine, theirs, torch.randn(3, 4))

    def test_as_the_module_itself(self):
        class Only(nn.Module):
            def forward(self, x):
                return Through.apply(x, 2)

        mine, theirs = pair(Only)
        with support.one_warning(self, FUNCTION):
            self.assert_same(mine, theirs, torch.randn(3, 4))

    def test_of_parameters_and_constants(self):
        class Weights(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.randn(4, 4))
                self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0, 4.0]))

            def forward(self, x):
                product, _, difference = Pairs.apply(self.weight, self.scale.expand(4, 4))
                return F.linear(x, Through.apply(product, 16)) + difference.sum(0)

        mine, theirs = pair(Weights)
        with support.one_warning(self, FUNCTION):
            self.assert_same(mine, theirs, torch.randn(3, 4))
            for model in (mine, theirs):
                model.scale.mul_(2)
            self.assert_same(mine, theirs, torch.randn(3, 4))

    def test_a_second_backward_and_accumulation(self):
        mine, theirs = pair(lambda: Stack(Rounds()))
        x = torch.randn(5, 6, dtype=torch.float64)
        with support.one_warning(self, FUNCTION):
            for model in (mine, theirs):
                a, b = model(x), model(2 * x)
                a.sum().backward(retain_graph=True)
                (a.square().mean() + b.mean()).backward()
        self.assert_same_gradients(mine, theirs, 1e-9)

    def test_a_folder_cannot_hold_them(self):  # a TrainStep calls them: host_test.py
        model = Stack(Rounds())
        x, y = torch.randn(5, 6), torch.randn(5, 3)
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(UnsupportedError, "Through in blocks.0.middle has a backward of its own"):
                capture(model, (x, y), F.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1), os.path.join(folder, "job"))


class Messages(Case):
    def make(self):
        model = Stack(Lacks(), Reads(), nn.Tanh(), nn.Linear(6, 6))
        model.blocks[3].middle.register_full_backward_hook(lambda *_: None)
        return model

    def test_all_that_stands_in_the_way_is_named(self):
        with self.assertRaises(UnsupportedError) as caught:
            Module(self.make())(torch.randn(5, 6))
        text = str(caught.exception)
        for words in ("Stack: ", "blocks.0.middle (Lacks): PyTorch's exporter lacks aten::i0", "blocks.1.middle (Reads): ", "outside_test.py",
                      "needs the numbers of a tensor", "blocks.3.middle (Linear): it has a backward hook", 'fallback="torch" runs these parts'):  # fmt: skip
            self.assertIn(words, text)
        self.assertEqual(text.count("\n"), 0)

    def test_the_same_by_a_warning_once(self):
        module = Module(self.make(), fallback="torch")
        with support.one_warning(self, "blocks.0.middle (Lacks) runs in PyTorch: PyTorch's exporter lacks aten::i0; "):
            for count in (5, 5, 7):
                module(torch.randn(count, 6)).sum().backward()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            Module(self.make(), fallback="torch")(torch.randn(5, 6))
        self.assertEqual([w.filename for w in caught], [__file__])

    def test_what_the_engine_lacks(self):
        class Picks(nn.Module):
            def forward(self, x):
                return x.masked_select(x > 0).sum() + x

        class Outer(nn.Module):
            def __init__(self):
                super().__init__()
                self.picks, self.linear = Picks(), nn.Linear(8, 8)

            def forward(self, x):
                return self.picks(self.linear(x)).abs().sum()

        x = torch.randn(2, 8)
        mine, theirs = pair(Outer, torch.float32)
        with self.assertRaisesRegex(UnsupportedError, r"Outer: picks \(Picks\): only the data tells"):
            mine(x)
        mine = Module(mine.module, fallback="torch")
        with support.one_warning(self, "picks (Picks) runs in PyTorch: only the data tells"):
            self.assert_near(mine(x), theirs(x))
        self.assertEqual(parts(mine), [2])

    def test_the_modules_own_errors_stay_its_own(self):
        class Wrong(nn.Module):
            def forward(self, x):
                return x @ x

        for model in (Stack(Wrong()), Stack(Lacks(), Wrong())):
            with self.assertRaises(RuntimeError) as caught:
                Module(model, fallback="torch")(torch.randn(5, 6))
            self.assertNotIsInstance(caught.exception, support.gradloom.Error)

    def test_a_whole_step_names_all(self):
        model = Stack(Lacks(), Reads())
        with self.assertRaisesRegex(UnsupportedError, r"blocks.0.middle \(Lacks\): .*blocks.1.middle \(Reads\): "):
            TrainStep(model, F.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1)).step(torch.randn(5, 6), torch.randn(5, 3))


class Fallback(Both):
    def test_train_and_eval(self):
        mine, theirs = pair(lambda: Stack(Lacks(), Reads(), nn.Tanh(), Lacks()), fallback="torch")
        for model in (mine, theirs):
            for block in (model.blocks[0], model.blocks[3]):
                block.middle.drop.p = 0.0
        x = torch.randn(5, 6)
        with support.one_warning(self, "runs in PyTorch"):
            for _ in range(3):
                self.assert_same(mine, theirs, x)
            mine.eval(), theirs.eval()
            self.assert_same(mine, theirs, x)
            with torch.no_grad():
                self.assert_near(mine(x.double()), theirs(x.double()), 1e-9)
        self.assertEqual(parts(mine), [4, 4, 4])

    def test_dropout_draws_from_torchs_generator(self):
        mine, theirs = pair(lambda: nn.Sequential(Lacks(), nn.Linear(6, 2)), fallback="torch")
        x, found = torch.randn(5, 6, dtype=torch.float64), []
        with support.one_warning(self, "0 (Lacks) runs in PyTorch"):
            for model in (mine, theirs):
                model(x)
                torch.manual_seed(3)
                found.append(model(x))
        self.assert_near(*found, 1e-9)

    def test_parts_without_a_gradient(self):
        class Detached(nn.Module):
            def __init__(self):
                super().__init__()
                self.frozen, self.trained, self.head = Reads(), Reads(), nn.Linear(6, 2)

            def forward(self, x):
                with torch.no_grad():
                    a = self.frozen(x, scale=0.5)["y"]
                return self.head(a + self.trained(x, scale=3.0)["y"])

        mine, theirs = pair(Detached, fallback="torch")
        with support.one_warning(self, "trained (Reads) runs in PyTorch"):
            self.assert_same(mine, theirs, torch.randn(4, 6))
        self.assertIsNone(mine.frozen.linear.weight.grad)

    def test_one_module_called_twice_and_shared_parameters(self):
        class Shares(nn.Module):
            def __init__(self):
                super().__init__()
                self.reads, self.own = Reads(), nn.Linear(6, 6)
                self.own.weight = self.reads.linear.weight

            def forward(self, x):
                return self.reads(self.own(self.reads(x)["y"]))["y"]

        mine, theirs = pair(Shares, fallback="torch")
        with support.one_warning(self, "reads (Reads) runs in PyTorch"):
            self.assert_same(mine, theirs, torch.randn(4, 6))

    def test_arguments_changed_in_place_take_what_holds_it(self):
        class Adds(nn.Module):
            def forward(self, x):
                x.add_(1.0 if x.sum() > 0 else 2.0)
                return x * 2

        class Holds(nn.Module):
            def __init__(self):
                super().__init__()
                self.below, self.adds = nn.Linear(6, 6), Adds()

            def forward(self, x):
                x = self.below(x)
                return self.adds(x) + x

        mine, theirs = pair(lambda: nn.Sequential(nn.Linear(6, 6), Holds(), nn.Linear(6, 2)), fallback="torch")
        with support.one_warning(self, "1 (Holds) runs in PyTorch: 1.adds changes its arguments in place"):
            self.assert_same(mine, theirs, torch.randn(4, 6))
        self.assertEqual(parts(mine), [2])

    def test_gradients_inside_forward(self):
        class Forces(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(6, 1)

            def forward(self, x):
                with torch.enable_grad():
                    y = x if x.requires_grad else x.clone().requires_grad_()
                    return torch.autograd.grad(torch.tanh(self.linear(y)).sum(), [y], create_graph=True)[0]

        mine, theirs = pair(lambda: Stack(Forces()), fallback="torch")
        with support.one_warning(self, "blocks.0.middle (Forces) runs in PyTorch"):
            self.assert_same(mine, theirs, torch.randn(4, 6))

    def test_backward_hooks_inside_run(self):
        seen = []
        model = Stack(nn.Linear(6, 6))
        model.blocks[0].middle.register_full_backward_hook(lambda module, *_: seen.append(module))
        module = Module(model, fallback="torch")
        with support.one_warning(self, "backward hook"):
            module(torch.randn(4, 6)).sum().backward()
        self.assertEqual(seen, [model.blocks[0].middle])

    def test_shapes_that_differ_are_an_error(self):
        class Picks(nn.Module):
            def forward(self, x):
                return x[x[:, 0] > 0][:, :1].reshape(-1) if x.sum() else x

        class Outer(nn.Module):
            def __init__(self):
                super().__init__()
                self.picks, self.linear = Picks(), nn.Linear(3, 3)

            def forward(self, x):
                return self.picks(self.linear(x)).sum()

        module = Module(Outer(), fallback="torch")
        nn.init.eye_(module.linear.weight), nn.init.zeros_(module.linear.bias)
        with support.one_warning(self, "picks"):
            module(torch.tensor([[1.0, 2, 3], [-1, 2, 3]]))
        with self.assertRaisesRegex(UnsupportedError, r"picks \(Picks\).*other shapes.*wrap its neighbours"):
            module(torch.tensor([[1.0, 2, 3], [1, 2, 3]]))

    def test_autocast(self):
        mine, theirs = pair(lambda: nn.Sequential(nn.Linear(32, 32), nn.GELU(), Block(Reads(32), 32), nn.Linear(32, 4)), torch.float32, fallback="torch")
        x = torch.randn(16, 32)
        with support.one_warning(self, "2.middle (Reads)"), torch.autocast("cpu", dtype=torch.bfloat16):
            low = mine(x)
        exact = theirs(x)
        self.assertTrue(1e-6 < worst([low], [exact]) < 3e-2)
        low.float().square().mean().backward()
        exact.square().mean().backward()
        self.assert_same_gradients(mine, theirs, 6e-2)

    def test_a_recipes_precision_names_nodes_of_any_part(self):
        for options, exact in (("full=/head/*,/norm/*", False), ("full=/*", True), ("within=/head/*; list=autocast", False)):
            mine, theirs = pair(lambda: Stack(Reads()), torch.float32, fallback="torch",
                                recipe={"gradloom_recipe": 1, "passes": [], "precision": f"bf16{{{options}}}"})  # fmt: skip
            x = torch.randn(5, 6)
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                apart = worst([mine(x)], [theirs(x)])
            self.assertTrue(apart < 1e-5 if exact else 1e-5 < apart < 5e-2, (options, apart))
        with self.assertRaisesRegex(support.gradloom.UsageError, "'/haed/\\*' is no operator type and fits no node"):
            pair(lambda: Stack(Reads()), torch.float32, fallback="torch",
                 recipe={"gradloom_recipe": 1, "passes": [], "precision": "bf16{full=/haed/*}"})[0](x)  # fmt: skip

    def test_what_is_made_of_parameters_alone_does_not_cross(self):
        """The transposed weight of the last layer is part of the last file, not a result of the first."""

        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight, self.reads = nn.Parameter(torch.randn(6, 6)), Reads()

            def forward(self, x):
                y = self.reads(x @ self.weight)["y"]
                return y @ self.weight.t().tanh()

        mine, theirs = pair(Tied, fallback="torch")
        with support.one_warning(self, "reads"):
            self.assert_same(mine, theirs, torch.randn(4, 6))
        (entry,) = mine._gradloom._entries.values()
        self.assertEqual([len(part.outputs) for part, _ in entry.steps._parts], [1, 1])


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)
    sys.exit(unittest.main(verbosity=1))
