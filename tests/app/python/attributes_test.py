#!/usr/bin/env python3
"""What Python's code of a forward reads and leaves besides tensors: attributes of modules, random numbers, what surrounds the call.

GRADLOOM_LIBRARY names the library. Exits with 77 (skipped) where there is no PyTorch.
"""

import argparse
import copy
import random
import unittest
import warnings
from unittest import mock

import numpy as np
import support
import torch
from gradloom.torch import Module, TrainStep
from scripts_test import Scripts, run
from support import one_warning
from torch import nn

gradloom = support.gradloom


class Scaled(nn.Linear):
    """Reads numbers, a config and a tensor that are attributes."""

    def __init__(self):
        super().__init__(6, 3)
        self.heat, self.args = 2.0, argparse.Namespace(shift=0.5)
        self.table = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)

    def forward(self, x):
        return super().forward(x) / self.heat + self.args.shift * self.table


class Counting(nn.Linear):
    """Warms up by a count of its own."""

    calls = 0

    def forward(self, x):
        self.calls = self.calls + 1
        return super().forward(x) * min(1.0, self.calls / 4)


class Keeping(nn.Linear):
    """Keeps a size when it first sees one, and a tensor of each call."""

    def __init__(self):
        super().__init__(6, 3)
        self.rows, self.last = None, None

    def forward(self, x):
        if self.rows is None:
            self.rows = int(x.shape[0])
        self.last = super().forward(x)
        return self.last / self.rows


class Dropping(nn.Module):
    """Leaves layers out by chance, as LayerDrop does."""

    def __init__(self, draw, share):
        super().__init__()
        self.head = nn.Linear(6, 2)
        self.layers, self.share = nn.ModuleList(nn.Linear(6, 6) for _ in range(3)), share
        self.draw = [draw]

    def forward(self, x):
        for layer in self.layers:
            if self.training and self.draw[0]() < self.share:
                continue
            x = x + torch.tanh(layer(x))
        return self.head(x)


DRAWS = {"random": lambda: random.random(), "uniform": lambda: random.uniform(0, 1), "numpy": lambda: np.random.uniform(0, 1), "torch": lambda: torch.rand([])}


class Attributes(Scripts):
    def test_what_a_script_changes_between_calls(self):
        def change(model, index):
            if index == 1:
                model.heat = 4.0
            if index == 3:
                model.args.shift = -0.5
            if index == 4:
                model.table.mul_(2)
            if index == 5:
                model.table = torch.ones(3, dtype=torch.float64)
            if index == 6:
                model.heat = 2.0

        self.assert_trains_alike(Scaled(), after=change)
        model = Scaled().double()
        other = copy.deepcopy(model)
        step = TrainStep(model, nn.MSELoss(), torch.optim.SGD(model.parameters(), 0.1))
        wanted = run(other, self.batches, after=change)  # the mean of squares
        for index, batch in enumerate(self.batches):
            self.assertAlmostEqual(step.step(*batch, torch.zeros(4, 3, dtype=torch.float64)), wanted[index], delta=1e-9)
            change(model, index)
        step.close()

    def test_hooks_that_come_and_go_between_calls(self):
        class Doubling:
            def __call__(self, model, index):
                if index == 1:
                    self.handle = model[1].register_forward_hook(lambda part, given, made: made * 2)
                if index == 4:
                    self.handle.remove()

        self.assert_trains_alike(nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)), after=Doubling())
        model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)).double()
        wanted, change = run(copy.deepcopy(model), self.batches, after=Doubling()), Doubling()
        step = TrainStep(model, nn.MSELoss(), torch.optim.SGD(model.parameters(), 0.1))
        for index, batch in enumerate(self.batches):
            self.assertAlmostEqual(step.step(*batch, torch.zeros(4, 3, dtype=torch.float64)), wanted[index], delta=1e-9)
            change(model, index)
        step.close()

    def test_equal_states_have_one_plan(self):
        model, x = Module(Scaled().double()), self.batches[0][0]
        with mock.patch("gradloom.torch._module.export", wraps=gradloom.torch._module.export) as traced:
            for heat in (1.0, 2.0, 1.0, 2.0, float("1.0")):
                model.heat = heat
                model(x).sum().backward()
        self.assertEqual(traced.call_count, 2)

    def test_many_states_are_told(self):
        model, x = Module(Scaled().double()), self.batches[0][0]
        with one_warning(self, "heat: an attribute that differs from call to call is another trace"):
            for index in range(16):
                model.heat = 1.0 + index
                model(x)

    def test_what_a_forward_changes_in_each_call(self):
        model = Module(Counting(6, 3).double())
        model(*self.batches[0])
        self.assertEqual(model.calls, 1)
        with self.assertRaisesRegex(gradloom.UnsupportedError, r"changes its attributes from call to call \(calls\)"):
            model(*self.batches[1])
        self.assertEqual(model.calls, 1)
        mine = self.assert_trains_alike(Counting(6, 3), fallback="torch")
        self.assertEqual(mine.calls, len(self.batches))

    def test_what_a_forward_keeps(self):
        model = Module(Keeping().double())
        with mock.patch("gradloom.torch._module.export", wraps=gradloom.torch._module.export) as traced:
            for batch in self.batches:
                model(*batch).sum().backward()
        self.assertEqual((traced.call_count, model.rows), (1, 4))
        with self.assertRaisesRegex((gradloom.UnsupportedError, RuntimeError), "left behind, in an attribute of the module"):
            model.last.sum().backward()
        self.assert_trains_alike(Keeping(), lambda model, b: model(*b).square().mean() + model.last.abs().mean(), fallback="torch")

    def test_a_failed_trace_leaves_them(self):
        class Fails(Counting):
            def forward(self, x):
                return super().forward(x) + float(x.sum())

        model = Module(Fails(6, 3))
        with self.assertRaises(gradloom.UnsupportedError):
            model(torch.randn(2, 6))
        self.assertEqual(model.calls, 0)


class Steps(Scripts):
    def step_of(self, model, **options):
        return TrainStep(model, nn.MSELoss(), torch.optim.SGD(model.parameters(), 0.1), **options)

    def test_what_a_forward_changes_in_each_step(self):
        model, target = Counting(6, 3).double(), torch.zeros(4, 3, dtype=torch.float64)
        step = self.step_of(model)
        step.step(*self.batches[0], target)
        for _ in range(2):
            with self.assertRaisesRegex(gradloom.UnsupportedError, r"changes its attributes from step to step \(calls\)"):
                step.step(*self.batches[1], target)
        kept = self.step_of(Keeping().double())
        for batch in self.batches[:3]:
            kept.step(*batch, target)
        self.assertEqual(kept.model.rows, 4)

    def test_buffers_that_a_forward_writes(self):
        target = torch.zeros(4, 3, dtype=torch.float64)
        model = nn.Sequential(nn.utils.spectral_norm(nn.Linear(6, 3)), nn.Tanh()).double()
        other = copy.deepcopy(model)
        with self.assertRaisesRegex(gradloom.UnsupportedError, "0 .Linear.: its forward reads buffers that it writes, which a step does not and Module does: 0.weight_u"):
            self.step_of(copy.deepcopy(model)).step(*self.batches[0], target)
        with one_warning(self, "0 (Linear) runs in PyTorch"):
            step = self.step_of(model, fallback="torch")
            found = [step.step(*batch, target) for batch in self.batches]
        self.assert_near([torch.tensor(found)], [torch.tensor(run(other, self.batches))], 1e-9)

    def test_a_loss_without_a_target(self):
        with self.assertRaisesRegex(gradloom.UsageError, "the model's arguments and the loss's target"):
            self.step_of(nn.Linear(6, 3).double()).step(*self.batches[0])


class Draws(Scripts):
    def assert_refused(self, draw):
        with self.assertRaisesRegex(gradloom.UnsupportedError, "from call to call"):
            Module(Dropping(draw, 0.5).double())(*self.batches[0])

    def test_layers_that_are_left_out(self):
        for name, draw in DRAWS.items():
            with self.subTest(draw=name):
                self.assert_refused(draw)
                model = Dropping(draw, 0.5).double()
                found = []
                for one in (Module(copy.deepcopy(model), fallback="torch"), model):
                    random.seed(4), np.random.seed(4), torch.manual_seed(4)
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        found.append(run(one, self.batches))
                self.assert_near([torch.tensor(found[0])], [torch.tensor(found[1])], 1e-9)

    def test_a_share_of_nothing_runs_in_the_engine(self):
        for name, draw in DRAWS.items():
            with self.subTest(draw=name):
                model = Module(Dropping(draw, 0.0))
                before = random.getstate()
                model(torch.randn(2, 6)).sum().backward()
                self.assertIsNotNone(model._gradloom._latest)
                self.assertEqual(random.getstate(), before)

    def test_masks_of_numpy(self):
        class Masked(nn.Linear):
            def forward(self, x):
                return super().forward(x * torch.from_numpy((np.random.rand(6) < 0.5).astype("float64")))

        with self.assertRaisesRegex(gradloom.UnsupportedError, "numpy's"):
            Module(Masked(6, 3).double())(*self.batches[0])


class Surroundings(Scripts):
    def test_wrong_modules(self):
        with self.assertRaisesRegex(TypeError, "torch.jit"):
            Module(torch.jit.script(nn.Linear(6, 3)))

    @unittest.skipUnless(hasattr(torch, "func"), "no torch.func")
    def test_transforms(self):
        model, x = nn.Linear(6, 3), torch.randn(6)
        with self.assertRaisesRegex(gradloom.UnsupportedError, "a transform of torch.func"):
            torch.func.jacrev(Module(model))(x)
        with one_warning(self, "a transform of torch.func"):
            found = torch.func.jacrev(Module(model, fallback="torch"))(x)
        self.assert_near(found, torch.func.jacrev(model)(x))

    @unittest.skipUnless(torch.__version__ < "2", "it gives parameters in another way")
    def test_stateless_calls(self):
        x, call = torch.randn(2, 6), torch.nn.utils.stateless.functional_call
        for model, error in ((nn.Linear(6, 3), gradloom.UsageError), (nn.Sequential(nn.Linear(6, 3), nn.Tanh()), gradloom.UnsupportedError)):
            given = {name: torch.randn_like(p).requires_grad_() for name, p in model.named_parameters()}
            with self.assertRaisesRegex(error, "stateless"):
                call(Module(model), given, (x,))
        with one_warning(self, "stateless"):
            self.assert_near(call(Module(model, fallback="torch"), given, (x,)), call(model, given, (x,)))

    @unittest.skipUnless(hasattr(getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None), "set_code_exec_strategy"), "an older torch.compile")
    def test_compiled_around_it(self):
        class Whole(nn.Module):
            def __init__(self, part):
                super().__init__()
                self.part = part

            def forward(self, x):
                return torch.tanh(self.part(x * 2)) + 1

        part = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)).double()
        mine, theirs = Whole(Module(copy.deepcopy(part))), Whole(part)
        found = run(torch.compile(mine, backend="eager"), self.batches, optimizer=torch.optim.SGD(mine.parameters(), 0.1))
        self.assert_near([torch.tensor(found)], [torch.tensor(run(theirs, self.batches))], 1e-9)
        self.assertIsNotNone(mine.part._gradloom._latest)


if __name__ == "__main__":
    unittest.main(verbosity=1)
