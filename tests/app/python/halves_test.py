#!/usr/bin/env python3
"""Whole steps in 16 bits: models whose parameters are bf16 or f16, and torch.autocast around steps.

GRADLOOM_LIBRARY names the library, GRADLOOM_PROGRAM the program. Exits with 77 (skipped) where there is no PyTorch.
"""

import copy
import json
import os
import sys
import unittest
import unittest.mock

import support
import torch
from gradloom.torch import TrainStep, _train_step, capture
from job_test import Folder, text_batches, torch_losses, train
from support import Gpt, counted_calls, mlp, worst
from torch import nn
from torch.nn import functional as F

gradloom = support.gradloom


def loss_of(model, batch):
    return F.cross_entropy(model(batch[0]).float(), batch[1])


def plain():
    """Of what every PyTorch computes under autocast."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 3))


class Parameters(Folder):
    def setUp(self):
        super().setUp()
        self.types = [torch.bfloat16, torch.float16]
        try:
            F.linear(torch.ones(1, 1).half(), torch.ones(1, 1).half(), torch.ones(1).half())
        except RuntimeError:
            self.types.pop()  # an older PyTorch, which cannot be traced so

    def test_f16(self):
        if torch.float16 not in self.types:
            self.skipTest("this PyTorch has no f16 on the CPU")
        torch.manual_seed(1)
        exact = mlp()
        model = copy.deepcopy(exact).half()
        batches = [(torch.randn(4, 6), torch.randint(0, 3, (4,))) for _ in range(3)]
        step = TrainStep(model, lambda y, labels: F.cross_entropy(y.float(), labels), torch.optim.SGD(model.parameters(), lr=0.05))
        mine = [step.step(x.half(), y) for x, y in batches * 4]
        best = torch_losses(exact, batches, loss_of, torch.optim.SGD(exact.parameters(), lr=0.05), 12)
        self.assertLess(max(abs(a - b) for a, b in zip(mine, best)), 5e-3)
        step.update_module()
        self.assertEqual({p.dtype for p in model.parameters()}, {torch.float16})
        self.assertLess(worst(list(model.parameters()), list(exact.parameters())), 5e-3)

    def test_a_captured_job(self):
        """With inputs in 16 bits, too; it trains as TrainStep does."""
        for dtype in self.types:
            torch.manual_seed(1)
            model = mlp().to(dtype)
            batches = [(torch.randn(4, 6).to(dtype), torch.randint(0, 3, (4,))) for _ in range(2)]

            def loss(y, labels):
                return F.cross_entropy(y.float(), labels)

            recipe = capture(model, batches, loss, torch.optim.SGD(model.parameters(), lr=0.1), os.path.join(self.folder, str(dtype)), steps=6)
            losses = train(recipe)
            step = TrainStep(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))
            self.assert_curves(losses, [step.step(*batches[i % 2]) for i in range(6)], 1e-6)
            step.close()

    def test_bf16(self):
        """As far from f32 as PyTorch's steps in bf16 are, and no farther."""
        for make in (lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9), lambda p: torch.optim.AdamW(p, lr=0.01)):
            torch.manual_seed(1)
            exact = Gpt()
            low, other = (copy.deepcopy(exact).bfloat16() for _ in range(2))
            batches, loss = text_batches(), lambda m, b: m(**b)["loss"].float()
            optimizer = make(low.parameters())
            step = TrainStep(low, None, optimizer)
            mine = [step.step(**batches[i % 3]) for i in range(20)]
            theirs = torch_losses(other, batches, loss, make(other.parameters()), 20)
            best = torch_losses(exact, batches, loss, make(exact.parameters()), 20)
            distance = [max(abs(a - b) for a, b in zip(losses, best)) for losses in (mine, theirs)]
            self.assertLess(distance[0], 0.05)
            self.assertLess(distance[0], 2 * distance[1] + 0.01)
            self.assertLess(mine[-1], mine[0] - 0.1)
            kept = step.state_dict()["optimizer"]
            self.assertEqual({tensor.dtype for tensor in kept.values()}, {torch.bfloat16})
            self.assertEqual({p.dtype for p in low.parameters()}, {torch.bfloat16})
            self.assertEqual({t.dtype for kept in optimizer.state.values() for key, t in kept.items() if key != "step"}, {torch.bfloat16})
            self.assertLess(worst(list(low.parameters()), list(exact.parameters())), 0.1)


class Autocast(Folder):
    def test_steps_follow_the_state_of_each_call(self):
        """Under autocast, outside, under it again: each as PyTorch's step there; states and parameters are the same ones all the time."""
        torch.manual_seed(1)
        model = plain()
        other, exact = copy.deepcopy(model), copy.deepcopy(model)
        batches = [(torch.randn(4, 6), torch.randint(0, 3, (4,))) for _ in range(12)]

        def make(m):
            return torch.optim.AdamW(m.parameters(), lr=0.02)

        optimizer, step = make(other), TrainStep(model, nn.CrossEntropyLoss(), make(model))
        mine, theirs = [], []
        for index, batch in enumerate(batches):
            low = index % 6 < 3
            with torch.autocast("cpu", torch.bfloat16, enabled=low):
                mine.append(step.step(*batch))
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=low):
                loss = F.cross_entropy(other(batch[0]), batch[1])
            loss.backward()
            optimizer.step()
            theirs.append(float(loss.detach()))
        self.assertEqual((step.steps, step.state_dict()["steps"]), (12, 12))
        self.assertLess(max(abs(a - b) for a, b in zip(mine, theirs)), 5e-3)
        best = torch_losses(exact, batches, loss_of, make(exact), 12)
        self.assertGreater(abs(mine[0] - best[0]), 1e-7)  # it is bf16
        step.update_module()
        with torch.no_grad():
            self.assertLess(worst(list(model.parameters()), list(other.parameters())), 1e-2)

    def test_each_state_has_one_plan_for_each_size(self):
        """Autocast goes on and off between steps, batches have two sizes: two traces, and a plan for each state and size, of which the
        least recently used goes where there are more than `plans`."""
        torch.manual_seed(1)
        model = plain()
        other = copy.deepcopy(model)
        optimizer = torch.optim.AdamW(other.parameters(), lr=0.02)
        step = TrainStep(model, nn.CrossEntropyLoss(), torch.optim.AdamW(model.parameters(), lr=0.02))
        batches = [(torch.randn(rows, 6), torch.randint(0, 3, (rows,))) for rows in (4, 7)]

        def train(index):
            low, batch = index % 2 == 0, batches[index // 2 % 2]
            with torch.autocast("cpu", torch.bfloat16, enabled=low):
                mine = step.step(*batch)
                loss = F.cross_entropy(other(batch[0]), batch[1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            self.assertAlmostEqual(mine, float(loss.detach()), delta=5e-3)

        with counted_calls("job_open_on", "job_sizes") as made, unittest.mock.patch.object(_train_step, "export_step", wraps=_train_step.export_step) as traced:
            for index in range(4):
                train(index)
            self.assertEqual((made["job_open_on"], made["job_sizes"], traced.call_count), (1, 3, 1))
            for index in range(12):
                train(index)
            self.assertEqual((made["job_open_on"], made["job_sizes"], traced.call_count), (1, 3, 1))
            step._most, batches[1] = 2, (torch.randn(9, 6), torch.randint(0, 3, (9,)))
            train(2)
            self.assertEqual(len(step._plans), 3)  # the job's own stays
        self.assertEqual((step.steps, step.state_dict()["steps"]), (17, 17))

    def test_what_a_plan_in_the_other_state_changed_is_seen(self):
        """16-bit copies of weights are made anew: where no step was made between two, these are as if the other had never been."""
        for first in (True, False):
            torch.manual_seed(1)
            batch = (torch.randn(4, 6), torch.randint(0, 3, (4,)))
            model = plain()
            twin = copy.deepcopy(model)
            step = TrainStep(model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.5))
            states = [first, not first, first, not first, not first, first]
            losses = []
            for index, low in enumerate(states):
                with torch.autocast("cpu", torch.bfloat16, enabled=low):
                    losses.append(step.step(*batch))
                # The other begins anew for every step, from what the module has: no plan of it is left from before.
                fresh = TrainStep(twin, nn.CrossEntropyLoss(), torch.optim.SGD(twin.parameters(), lr=0.5))
                with torch.autocast("cpu", torch.bfloat16, enabled=low):
                    self.assertEqual(losses[-1], fresh.step(*batch), (first, index))
                fresh.update_module()
                fresh.close()
                if index == 3:  # written while the other state's plan was the last one
                    with torch.no_grad():
                        for one in (step.update_module(), twin):
                            one[0].weight.mul_(-1.5)
                    step.load_module()

    def test_a_run_of_a_session_is_of_one_precision(self):
        torch.manual_seed(1)
        model, batch, session = plain(), (torch.randn(4, 6), torch.randint(0, 3, (4,))), os.path.join(self.folder, "s.db")
        step = TrainStep(model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1), session=session)
        for low in (True, True, False):
            with torch.autocast("cpu", torch.bfloat16, enabled=low):
                step.step(*batch)
        self.assertEqual(step.steps, 3)
        step.close()
        with gradloom.Session(session) as recorded:
            self.assertEqual([(run["precision"], run["steps"]) for run in recorded.runs()], [("bf16{list=autocast}", 2), ("f32", 1)])

    def test_a_settings_precision_holds_in_both_states(self):
        batch = (torch.randn(4, 6), torch.randint(0, 3, (4,)))
        step = TrainStep(plain(), nn.CrossEntropyLoss(), precision="bf16")
        with counted_calls("job_open_on", "job_sizes") as made:
            for low in (True, False, True):
                with torch.autocast("cpu", torch.bfloat16, enabled=low):
                    step.step(*batch)
            self.assertEqual((made["job_open_on"], made["job_sizes"]), (1, 0))

    def test_capture_takes_it_as_the_precision(self):
        with torch.autocast("cpu", torch.bfloat16):
            recipe = capture(plain(), (torch.randn(4, 6), torch.randint(0, 3, (4,))), nn.CrossEntropyLoss(), folder=self.folder)
        with open(recipe, encoding="utf-8") as file:
            self.assertEqual(json.load(file)["precision"], "bf16{list=autocast}")

    def test_outside_steps_are_in_f32(self):
        """The first step was under autocast: those after it are not."""
        torch.manual_seed(1)
        model = plain()
        other = copy.deepcopy(model)
        batch = (torch.randn(4, 6), torch.randint(0, 3, (4,)))
        step = TrainStep(model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1))
        with torch.autocast("cpu", torch.bfloat16):
            step.step(*batch)
        other.load_state_dict(step.update_module().state_dict())
        mine = [step.step(*batch) for _ in range(5)]
        self.assert_curves(mine, torch_losses(other, [batch], loss_of, torch.optim.SGD(other.parameters(), lr=0.1), 5), 1e-5)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
