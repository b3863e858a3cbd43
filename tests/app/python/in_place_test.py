#!/usr/bin/env python3
"""TrainStep in the module's own memory: after a step the module's parameters and running statistics are the trained ones.

GRADLOOM_LIBRARY names the library. Exits with 77 (skipped) where there is no PyTorch.
"""

import copy
import gc
import os
import subprocess
import sys
import unittest

import support
import torch
from gradloom.torch import TrainStep
from job_test import Folder, torch_losses
from support import Cnn, mlp, worst
from torch import nn
from torch.nn import functional as F

gradloom = support.gradloom
ROWS = [(torch.randn(4, 6), torch.randint(0, 3, (4,))) for _ in range(3)]


def rows(dtype):
    return [(x.to(dtype), y) for x, y in ROWS]


def loss_of(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=0.02)


class InPlace(Folder):
    def assert_same(self, model, other, tolerance):
        mine, theirs = model.state_dict(), other.state_dict()
        self.assertEqual(list(mine), list(theirs))
        self.assertLessEqual(worst(list(mine.values()), list(theirs.values())), tolerance)

    def test_after_each_step_the_module_has_what_pytorch_would_have(self):
        for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-4)):
            with self.subTest(dtype=dtype):
                model = mlp(dtype=dtype)
                other = copy.deepcopy(model)
                step, optimizer = TrainStep(model, nn.CrossEntropyLoss(), adamw(model)), adamw(other)
                places = [p.data_ptr() for p in model.parameters()]
                for index in range(6):
                    batch = rows(dtype)[index % 3]
                    mine, (theirs,) = step.step(*batch), torch_losses(other, [batch], loss_of, optimizer, 1)
                    self.assertAlmostEqual(mine, theirs, delta=tolerance)
                    self.assert_same(model, other, tolerance)
                    self.assertAlmostEqual(float(loss_of(model, batch)), float(loss_of(other, batch)), delta=10 * tolerance)
                self.assertEqual([p.data_ptr() for p in model.parameters()], places)
                with support.counted_calls("job_read", "job_write") as made:
                    step.update_module()
                self.assertEqual(made, {"job_read": 0, "job_write": 0})

    def test_running_statistics_and_their_counters(self):
        model = Cnn().double()
        model.body[1].momentum = model.body[5].momentum = 0.125  # as ONNX's f32 attribute has it
        other, batch = copy.deepcopy(model), (torch.randn(4, 3, 8, 8, dtype=torch.float64), torch.randint(0, 4, (4,)))
        step = TrainStep(model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1))
        optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
        for _ in range(4):
            step.step(*batch)
            torch_losses(other, [batch], loss_of, optimizer, 1)
            self.assert_same(model, other, 1e-9)

    def test_what_is_written_between_steps_counts(self):
        """In f32, and in bf16, whose 16-bit copies follow."""
        for precision, tolerance in (("f32", 1e-4), ("bf16", 0.05)):
            losses = []
            for told in (False, True):
                torch.manual_seed(3)
                model = mlp()
                step = TrainStep(model, nn.CrossEntropyLoss(), adamw(model), precision=precision)
                losses.append([])
                for index in range(6):
                    if index in (2, 4):
                        with torch.no_grad():
                            model[3].weight.mul_(-0.5)
                        if told:
                            step.load_module()
                    losses[-1].append(step.step(*ROWS[index % 3]))
            self.assertEqual(*losses, precision)
            torch.manual_seed(3)
            other = mlp()
            optimizer, theirs = adamw(other), []
            for index in range(6):
                if index in (2, 4):
                    with torch.no_grad():
                        other[3].weight.mul_(-0.5)
                theirs += torch_losses(other, [ROWS[index % 3]], loss_of, optimizer, 1)
            self.assert_curves(losses[0], theirs, tolerance)

    def test_a_parameter_with_other_memory_is_followed(self):
        model = mlp(dtype=torch.float64)
        other = copy.deepcopy(model)
        step, optimizer = TrainStep(model, nn.CrossEntropyLoss(), adamw(model)), adamw(other)
        for index in range(6):
            if index == 3:
                for one in (model, other):
                    one[0].weight.data = one[0].weight.data.clone() * 2
                gc.collect()
            batch = rows(torch.float64)[index % 3]
            mine, (theirs,) = step.step(*batch), torch_losses(other, [batch], loss_of, optimizer, 1)
            self.assertAlmostEqual(mine, theirs, delta=1e-9)
            self.assert_same(model, other, 1e-9)
        self.assertEqual(step.steps, 6)

    def test_parameters_that_cannot_be_trained_where_they_lie(self):
        """Not dense, or another's memory: update_module brings them."""

        class Odd(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(5)
                both = torch.randn(2, 6, 3, dtype=torch.float64)
                self.turned = nn.Parameter(both[0].t())
                self.one = nn.Parameter(torch.randn(3, dtype=torch.float64))

            def forward(self, x):
                return x @ self.turned.t() + self.one

        model, other = Odd(), Odd()
        step, optimizer = TrainStep(model, nn.CrossEntropyLoss(), adamw(model)), adamw(other)
        for batch in rows(torch.float64):
            step.step(*batch)
            torch_losses(other, [batch], loss_of, optimizer, 1)
            self.assertLessEqual(worst([model.one], [other.one]), 1e-9)
        self.assertGreater(worst([model.turned], [other.turned]), 1e-3)
        step.update_module()
        self.assert_same(model, other, 1e-9)

    def test_a_checkpoint_is_read_into_the_module(self):
        folder = os.path.join(self.folder, "kept")
        model = mlp(dtype=torch.float64)
        start = copy.deepcopy(model)
        step = TrainStep(model, nn.CrossEntropyLoss(), adamw(model), checkpoint=folder, checkpoint_every=2)
        for index in range(5):
            step.step(*rows(torch.float64)[index % 3])
        step.close()
        again = TrainStep(start, nn.CrossEntropyLoss(), adamw(start), resume=folder)
        again.step(*rows(torch.float64)[2])
        model = copy.deepcopy(model)
        self.assertEqual(again.steps, 6)
        again.close()
        del again
        gc.collect()
        self.assertGreater(worst(list(model.parameters()), list(start.parameters())), 0)
        self.assertTrue(all(p.isfinite().all() for p in start.parameters()))

    def test_the_module_outlives_the_training(self):
        model = mlp()
        step = TrainStep(model, nn.CrossEntropyLoss(), adamw(model))
        step.step(*ROWS[0])
        kept = copy.deepcopy(model)
        del step
        gc.collect()
        self.assert_same(model, kept, 0)
        torch_losses(model, ROWS, loss_of, adamw(model), 3)

    @unittest.skipUnless(hasattr(torch.autograd.graph, "increment_version"), "PyTorch lets nobody count versions")
    def test_a_backward_over_trained_parameters_is_an_error(self):
        model = mlp()
        step = TrainStep(model, nn.CrossEntropyLoss(), adamw(model))
        step.step(*ROWS[0])
        loss = loss_of(model, ROWS[1])
        step.step(*ROWS[1])
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()

    def test_parameters_are_once_in_memory(self):
        """200 MB of them, frozen, and 50 MB that are trained: resident memory grows by the gradients and what the export holds."""
        script = """
import sys, os
sys.path[:0] = [p for p in os.environ["GRADLOOM_PATHS"].split(":")]
import ctypes, gc, torch
from torch import nn
from gradloom.torch import TrainStep
def rss():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(next(line for line in open("/proc/self/status") if line.startswith("RssAnon")).split()[1]) / 1024
class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept, self.trained = nn.Linear(5120, 10240, bias=False), nn.Linear(10240, 1280, bias=False)
        self.kept.weight.requires_grad_(False)
    def forward(self, x):
        return self.trained(self.kept(x))
small = nn.Linear(4, 4)
TrainStep(small, nn.MSELoss(), "sgd{lr=0.1}").step(torch.zeros(2, 4), torch.zeros(2, 4))
model = Wide()
before = rss()
step = TrainStep(model, nn.MSELoss(), "sgd{lr=0.1}")
for _ in range(3):
    step.step(torch.ones(2, 5120), torch.zeros(2, 1280))
print(rss() - before)
"""
        paths = os.pathsep.join(sys.path[:4])
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, "GRADLOOM_PATHS": paths})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLess(float(done.stdout), 50 + 60, "MB: not the 250 of a second copy")


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
