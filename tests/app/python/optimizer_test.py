#!/usr/bin/env python3
"""A torch optimizer handed over: its states and counts in both directions, and what schedulers change of it from step to step.

GRADLOOM_LIBRARY names the library, GRADLOOM_PROGRAM the program. Exits with 77 (skipped) where there is no PyTorch.
"""

import contextlib
import copy
import json
import math
import os
import sys
import tempfile
import unittest

import support
import torch
from gradloom.torch import TrainStep, capture
from job_test import OPTIMIZERS, Folder, text_batches, torch_losses, train
from support import Gpt, mlp, worst
from torch import nn
from torch.nn import functional as F

gradloom = support.gradloom
MADE = {
    **OPTIMIZERS,
    "Nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05, lr_decay=0.1, weight_decay=0.01, initial_accumulator_value=0.1),
    "Adam with amsgrad": lambda p: torch.optim.Adam(p, lr=0.05, amsgrad=True, weight_decay=0.01),
    "AdamW with amsgrad": lambda p: torch.optim.AdamW(p, lr=0.05, amsgrad=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.9, weight_decay=0.01),
    "RMSprop with all": lambda p: torch.optim.RMSprop(p, lr=0.01, eps=0.01, momentum=0.9, centered=True),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.02, momentum_decay=0.02, weight_decay=0.01, foreach=True),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=0.05, betas=(0.8, 0.9), weight_decay=0.01),
    "Adadelta": lambda p: torch.optim.Adadelta(p, lr=2.0, rho=0.8, weight_decay=0.01),
}  # fmt: skip
ROWS = [(torch.randn(4, 6, dtype=torch.float64), torch.randint(0, 3, (4,))) for _ in range(3)]


@contextlib.contextmanager
def doubles():
    """NAdam's mu_product is of the default type, whatever the parameters are."""
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def loss_of(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])


def states(optimizer):
    """By the number of the parameter."""
    return optimizer.state_dict()["state"]


class States(Folder):
    def assert_states(self, mine, theirs, tolerance=1e-9):
        self.assertEqual(sorted(states(mine)), sorted(states(theirs)))
        for index, kept in states(theirs).items():
            self.assertEqual(sorted(states(mine)[index]), sorted(kept))
            for key, value in kept.items():
                found = states(mine)[index][key]
                if isinstance(value, torch.Tensor):
                    self.assertEqual((found.shape, found.dtype), (value.shape, value.dtype), key)
                    self.assertLessEqual(worst([found], [value]), tolerance, key)
                else:
                    self.assertEqual(found, value, key)

    def test_steps_go_on_from_the_optimizers_states_and_give_them_back(self):
        """5 steps of PyTorch, 6 here, 4 of PyTorch again: as 15 of PyTorch."""
        for name, make in MADE.items():
            with self.subTest(optimizer=name), doubles():
                torch.manual_seed(1)
                model = Gpt().double()
                other = copy.deepcopy(model)
                optimizers = [make(one.parameters()) for one in (model, other)]
                batches, loss = text_batches(), lambda m, b: m(**b)["loss"]
                theirs = torch_losses(other, batches * 5, loss, optimizers[1], 15)
                mine = torch_losses(model, batches, loss, optimizers[0], 5)
                step = TrainStep(model, None, optimizers[0])
                mine += [step.step(**batches[i % 3]) for i in range(5, 11)]
                self.assertEqual(step.steps, 6)
                step.update_module()
                self.assertIs(step.update_optimizer(), optimizers[0])
                step.close()
                mine += torch_losses(model, [batches[i % 3] for i in range(11, 15)], loss, optimizers[0], 4)
                self.assert_curves(mine, theirs, 1e-9)
                self.assert_states(*optimizers)

    def test_they_are_handed_over_once(self):
        """In the file that the job is opened with: nothing is written behind it."""
        for optimizer_of in (lambda p: torch.optim.AdamW(p, lr=0.05), lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9)):
            model = mlp(dtype=torch.float64)
            optimizer = optimizer_of(model.parameters())
            torch_losses(model, ROWS, loss_of, optimizer, 3)
            with support.counted_calls("job_open_on", "job_write") as made:
                TrainStep(model, nn.CrossEntropyLoss(), optimizer).step(*ROWS[0])
            self.assertEqual(made, {"job_open_on": 1, "job_write": 0})

    def test_a_captured_job_goes_on_from_them(self):
        for name, make in MADE.items():
            with self.subTest(optimizer=name), doubles():
                torch.manual_seed(1)
                model = mlp(dtype=torch.float64)
                optimizer = make(model.parameters())
                torch_losses(model, ROWS, loss_of, optimizer, 5)
                recipe = capture(model, ROWS, nn.CrossEntropyLoss(), optimizer, os.path.join(self.folder, name), steps=5)
                for words in ({"epochs": 2}, {"epochs": 2, "steps": 4}, {"epochs": 2, "accumulate": 4}):
                    path = capture(model, ROWS, nn.CrossEntropyLoss(), optimizer, os.path.join(self.folder, name + "2"), **words)
                    self.assertEqual(len(train(path)), {1: 6, 4: 1}[words.get("accumulate", 1)] if "steps" not in words else 4)
                theirs = torch_losses(model, ROWS, loss_of, optimizer, 5)
                self.assert_curves(train(recipe), theirs, 1e-9)
                with open(recipe, encoding="utf-8") as file:
                    self.assertEqual(json.load(file)["load_optimizer"], "optimizer.safetensors")

    def test_a_captured_schedule_that_has_ended_is_told(self):
        model = mlp(dtype=torch.float64)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        torch_losses(model, ROWS, loss_of, optimizer, 5)
        with self.assertWarnsRegex(UserWarning, "ends after 4 updates, and the optimizer has made 5"):
            capture(model, ROWS, nn.CrossEntropyLoss(), optimizer, self.folder, schedule="linear{total=4}", steps=4)

    def test_load_state_dict_of_the_optimizer_is_seen(self):
        """And states that are changed in place, with load_optimizer."""
        model = mlp(dtype=torch.float64)
        other = copy.deepcopy(model)
        optimizers = [torch.optim.Adam(one.parameters(), lr=0.05) for one in (model, other)]
        step = TrainStep(model, nn.CrossEntropyLoss(), optimizers[0])
        kept = [], []
        for index in range(8):
            if index == 3:
                step.update_optimizer()
                kept = [copy.deepcopy(one.state_dict()) for one in optimizers]
            if index == 6:  # three updates, not six
                for optimizer, state in zip(optimizers, kept):
                    optimizer.load_state_dict(state)
            if index == 7:
                step.update_optimizer()
                for optimizer in optimizers:
                    for p in optimizer.param_groups[0]["params"]:
                        optimizer.state[p]["exp_avg"].mul_(-2)
                step.load_optimizer()
            mine, (theirs,) = step.step(*ROWS[index % 3]), torch_losses(other, [ROWS[index % 3]], loss_of, optimizers[1], 1)
            self.assertAlmostEqual(mine, theirs, delta=1e-9)
        self.assertEqual(step.steps, 8)
        step.state_dict()
        self.assert_states(*optimizers)
        self.assertEqual(int(optimizers[0].state[model[0].weight]["step"]), 5)

    def test_state_dict_of_another_step(self):
        """Into a training that has made more steps, one that has made none, and of a text."""
        for optimizer_of in (lambda p: torch.optim.AdamW(p, lr=0.05), lambda p: "adamw{lr=0.05,weight_decay=0.01}"):
            model = mlp(dtype=torch.float64)
            step = TrainStep(model, nn.CrossEntropyLoss(), optimizer_of(model.parameters()))
            for batch in ROWS:
                step.step(*batch)
            kept = copy.deepcopy(step.state_dict())
            self.assertEqual(kept["steps"], 3)
            then = [step.step(*batch) for batch in ROWS]
            step.load_state_dict(kept)
            self.assertEqual(step.state_dict()["steps"], 3)
            self.assertEqual([step.step(*batch) for batch in ROWS], then)
            self.assertEqual(step.steps, 9)
            other = mlp(dtype=torch.float64)
            fresh = TrainStep(other, nn.CrossEntropyLoss(), optimizer_of(other.parameters()))
            fresh.load_state_dict(kept)
            self.assertEqual([fresh.step(*batch) for batch in ROWS], then)
            self.assertEqual(fresh.state_dict()["steps"], 6)
            with self.assertRaisesRegex(gradloom.UsageError, "'0.weight/x' is no state"):
                fresh.load_state_dict({**kept, "optimizer": {"0.weight/x": torch.zeros(1)}})

    def test_state_dict_after_skipped_steps(self):
        """In f16: masks of Dropout and a schedule go by steps, what the optimizer counts by updates."""
        torch.manual_seed(1)
        batches = [(torch.randn(4, 6), torch.randint(0, 3, (4,))) for _ in range(10)]

        def begun(optimizer_of, more):
            model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
            return TrainStep(model, nn.CrossEntropyLoss(), optimizer_of(model.parameters()), precision="f16",
                             loss_scale="dynamic{initial=1e6,interval=2}", **more)  # fmt: skip

        for optimizer_of, more in ((lambda p: torch.optim.Adam(p, lr=0.05), {}), (lambda p: "adam{lr=0.05}", {"schedule": "cosine{warmup=2,total=10}"})):
            step, losses, kept = begun(optimizer_of, more), [], []
            for batch in batches:
                losses.append(step.step(*batch))
                kept.append(copy.deepcopy(step.state_dict()))
            self.assertEqual([state["steps"] + state["skipped"] for state in kept], list(range(1, 11)))
            self.assertGreater(kept[-1]["steps"], 0)
            self.assertGreater(kept[-1]["skipped"], kept[0]["skipped"])
            for at in (2, 5, 8, 9):
                for other in (step, begun(optimizer_of, more)):
                    other.load_state_dict(kept[at - 1])
                    self.assertEqual([other.step(*batch) for batch in batches[at:]], losses[at:])
                    end = other.state_dict()
                    self.assertEqual((end["steps"], end["skipped"]), (kept[-1]["steps"], kept[-1]["skipped"]))
                    for part in ("model", "optimizer"):
                        for name, tensor in kept[-1][part].items():
                            self.assertTrue(torch.equal(end[part][name], tensor), (at, name))

    def test_updates_that_differ_are_refused_by_name(self):
        model = mlp(dtype=torch.float64)
        for make in (torch.optim.Adam, lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9)):
            optimizer = make(model.parameters(), lr=0.1)
            model[0].bias.requires_grad_(False)
            model.zero_grad(set_to_none=True)
            torch_losses(model, ROWS, loss_of, optimizer, 2)
            model[0].bias.requires_grad_(True)
            for call in (lambda: TrainStep(model, nn.CrossEntropyLoss(), optimizer).step(*ROWS[0]),
                         lambda: capture(model, ROWS, nn.CrossEntropyLoss(), optimizer, self.folder)):  # fmt: skip
                with self.assertRaisesRegex(gradloom.UsageError, r"'0\.bias'.*the engine counts"):
                    call()

    def test_a_checkpoint_goes_on_with_a_fresh_optimizer(self):
        def make():
            model = mlp(dtype=torch.float64)
            return model, torch.optim.AdamW(model.parameters(), lr=0.05)

        model, optimizer = make()
        folder = os.path.join(self.folder, "kept")
        step = TrainStep(model, nn.CrossEntropyLoss(), optimizer, checkpoint=folder, checkpoint_every=3)
        for i in range(6):
            step.step(*ROWS[i % 3])
        step.close()
        model, optimizer = make()
        uninterrupted = TrainStep(model, nn.CrossEntropyLoss(), optimizer)
        whole = [uninterrupted.step(*ROWS[i % 3]) for i in range(8)]
        for steps in (0, 1):
            model, optimizer = make()
            again = TrainStep(model, nn.CrossEntropyLoss(), optimizer, resume=folder)
            if steps:
                torch_losses(model, ROWS, loss_of, optimizer, steps)
                with self.assertRaisesRegex(gradloom.UsageError, "goes on from one of them"):
                    again.step(*ROWS[0])
            else:
                again.step(*ROWS[0])
                self.assertEqual(again.state_dict()["steps"], 7)
                self.assertEqual(int(optimizer.state[model[0].weight]["step"]), 7)
                kept = copy.deepcopy(again.state_dict())
                then = again.step(*ROWS[1])
                again.load_state_dict(kept)
                self.assertEqual(again.step(*ROWS[1]), then)
                self.assertEqual(then, whole[7])

    def test_groups_and_frozen_parameters(self):
        model = mlp(dtype=torch.float64)
        model[2].weight.requires_grad_(False)
        other = copy.deepcopy(model)

        def make(m):
            return torch.optim.AdamW([{"params": [m[3].bias, m[0].bias], "weight_decay": 0.0}, {"params": [m[0].weight, m[3].weight], "lr": 0.02}], lr=0.05)

        optimizers = [make(one) for one in (model, other)]
        mine = torch_losses(model, ROWS, loss_of, optimizers[0], 3)
        step = TrainStep(model, nn.CrossEntropyLoss(), optimizers[0])
        mine += [step.step(*batch) for batch in ROWS]
        self.assert_curves(mine, torch_losses(other, ROWS, loss_of, optimizers[1], 6), 1e-9)
        step.state_dict()
        self.assert_states(*optimizers)


def curves(make_optimizer, make_scheduler, steps=12, dtype=torch.float64, **settings):
    """Losses here and in PyTorch, each with a scheduler."""
    found = []
    for mine in (True, False):
        model = mlp(dtype=dtype)
        optimizer = make_optimizer(model)
        scheduler, losses = make_scheduler(optimizer), []
        step = TrainStep(model, nn.CrossEntropyLoss(), optimizer, **settings) if mine else None
        for index in range(steps):
            batch = ROWS[index % 3]
            if step is not None:
                losses.append(step.step(*batch))
                optimizer._step_count = 1  # PyTorch warns where optimizer.step() was never called
                optimizer._opt_called = True
            else:
                losses += torch_losses(model, [batch], loss_of, optimizer, 1)
            scheduler.step()
        found.append(losses)
    return found


def decay_groups(model, make=torch.optim.AdamW, **options):
    """As Hugging Face's recipes have them."""
    named = dict(model.named_parameters())
    return make([{"params": [p for p in named.values() if p.dim() > 1], "weight_decay": 0.1},
                 {"params": [p for p in named.values() if p.dim() < 2], "weight_decay": 0.0}], **options)  # fmt: skip


class Schedules(Folder):
    def test_one_cycle_moves_momentum_and_betas(self):
        scheduler = torch.optim.lr_scheduler.OneCycleLR
        for name, make in {
            "SGD": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9),
            "Adam": lambda m: torch.optim.Adam(m.parameters(), lr=0.1),
            "AdamW": lambda m: decay_groups(m, lr=0.1),
        }.items():
            with self.subTest(optimizer=name):
                self.assert_curves(*curves(make, lambda o: scheduler(o, max_lr=0.1, total_steps=20)), 1e-9)

    def test_warm_up_from_zero_with_groups(self):
        def warm_up(optimizer):
            return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step / 4, 1.0))

        for make in (torch.optim.AdamW, torch.optim.Adam, torch.optim.Adagrad, lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9)):
            self.assert_curves(*curves(lambda m: decay_groups(m, make, lr=0.05), warm_up), 1e-9)

    def test_rates_of_groups_go_their_own_ways(self):
        def make(model):
            return torch.optim.SGD([{"params": model[0].parameters(), "lr": 0.0}, {"params": model[3].parameters(), "lr": 0.1, "momentum": 0.5}],
                                   lr=0.1, momentum=0.9)  # fmt: skip

        def own(optimizer):
            return torch.optim.lr_scheduler.LambdaLR(optimizer, [lambda step: 1.0, lambda step: 0.8**step])

        self.assert_curves(*curves(make, own), 1e-9)

    def test_one_of_two_equal_rates_changes(self):
        def make(model):
            return torch.optim.SGD([{"params": model[0].parameters()}, {"params": model[3].parameters()}], lr=0.1)

        for first in (0, 1):
            rates = [lambda step, k=k: 0.5**step if k == first else 1.0 for k in range(2)]
            self.assert_curves(*curves(make, lambda o, rates=rates: torch.optim.lr_scheduler.LambdaLR(o, rates)), 1e-9)

    def test_groups_that_the_loss_does_not_read(self):
        def make(model):
            others = nn.Parameter(torch.zeros(3, dtype=torch.float64))
            groups = [{"params": [others]}, {"params": model[0].parameters()}, {"params": model[3].parameters(), "lr": 0.02}, {"params": [nn.Parameter(others + 1)]}]
            return torch.optim.AdamW(groups, lr=0.05)

        self.assert_curves(*curves(make, lambda o: torch.optim.lr_scheduler.LambdaLR(o, [lambda step, k=k: 1 / (1 + k * step) for k in range(4)])), 1e-9)

    def test_options_changed_by_hand(self):
        found = []
        for mine in (True, False):
            model = mlp(dtype=torch.float64)
            optimizer, losses = torch.optim.AdamW(model.parameters(), lr=0.05), []
            step = TrainStep(model, nn.CrossEntropyLoss(), optimizer)
            for index, options in enumerate(({}, {"weight_decay": 0.5}, {"betas": (0.7, 0.9)}, {"eps": 0.5}, {"lr": 0.0}, {"lr": 0.01, "weight_decay": 0.0})):
                optimizer.param_groups[0].update(options)
                losses += [step.step(*ROWS[index % 3])] if mine else torch_losses(model, [ROWS[index % 3]], loss_of, optimizer, 1)
            if mine:
                optimizer.param_groups[0]["maximize"] = True
                with self.assertRaisesRegex(gradloom.UsageError, "maximize of AdamW changed after the first step; steps follow .*beta2 and eps alone"):
                    step.step(*ROWS[0])
                optimizer.param_groups[0]["maximize"] = False
                optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
                with self.assertRaisesRegex(gradloom.UsageError, "has 2 groups of parameters, and had 1"):
                    step.step(*ROWS[0])
            found.append(losses)
        self.assert_curves(*found, 1e-9)

    def test_every_option_of_every_group_by_a_scheduler_of_ones_own(self):
        """Each group's options, the first step's too, go their own ways."""

        class Waves:
            """A scheduler over all that an optimizer's steps read."""

            def __init__(self, optimizer):
                self.optimizer, self.steps = optimizer, 0
                self.set()

            def set(self):
                for number, group in enumerate(self.optimizer.param_groups):
                    wave = 0.5 + 0.4 * math.sin(self.steps + 2 * number)
                    group.update(lr=0.05 * wave, weight_decay=0.3 * wave)
                    for option, value in {"eps": 0.2 * wave, "betas": (0.9 * wave, 0.99 * wave), "momentum": 0.9 * wave * (self.steps % 4 != 3)}.items():
                        if option in group:
                            group[option] = value

            def step(self):
                self.steps += 1
                self.set()

        for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad, torch.optim.RMSprop, torch.optim.RAdam,
                     torch.optim.Adadelta):  # fmt: skip
            with self.subTest(optimizer=kind.__name__):

                def make(model, kind=kind):
                    momentum = {"momentum": 0.5} if kind in (torch.optim.SGD, torch.optim.RMSprop) else {}
                    return decay_groups(model, kind, lr=0.1, **momentum)

                self.assert_curves(*curves(make, Waves), 1e-9)

    def test_schedulers_of_torch_that_move_more_than_the_rate(self):
        def cyclic(optimizer):
            return torch.optim.lr_scheduler.CyclicLR(optimizer, base_lr=0.01, max_lr=0.2, step_size_up=3, base_momentum=0.5, max_momentum=0.95)

        self.assert_curves(*curves(lambda m: decay_groups(m, torch.optim.SGD, lr=0.1, momentum=0.9), cyclic), 1e-9)
        one = torch.optim.lr_scheduler.OneCycleLR
        for kind, more in ((torch.optim.SGD, {"momentum": 0.9}), (torch.optim.Adam, {})):
            limits = {"max_lr": [0.1, 0.02], "base_momentum": [0.6, 0.8], "max_momentum": [0.9, 0.95]}
            self.assert_curves(*curves(lambda m: decay_groups(m, kind, lr=0.1, **more), lambda o: one(o, total_steps=20, three_phase=True, **limits)), 1e-9)

    def test_momentum_that_begins_later_is_refused(self):
        model = mlp(dtype=torch.float64)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step = TrainStep(model, nn.CrossEntropyLoss(), optimizer)
        step.step(*ROWS[0])
        optimizer.param_groups[0]["momentum"] = 0.9
        with self.assertRaisesRegex(gradloom.UsageError, "began with momentum=0"):
            step.step(*ROWS[0])

    def test_a_recipes_schedule(self):
        mine, theirs = curves(lambda m: torch.optim.AdamW(m.parameters(), lr=0.05), lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 1.0),
                              schedule="linear{total=20}")  # fmt: skip
        _, theirs = curves(lambda m: torch.optim.AdamW(m.parameters(), lr=0.05),
                           lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 1 - (step + 1) / 20))  # fmt: skip
        self.assert_curves(mine, theirs, 1e-9)
        model = mlp(dtype=torch.float64)
        groups = [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[3].parameters()}]
        with self.assertRaisesRegex(gradloom.UsageError, "a schedule is for groups of one learning rate"):
            TrainStep(model, nn.CrossEntropyLoss(), torch.optim.SGD(groups, lr=0.2), schedule="linear{total=20}")


class Kinds(Folder):
    def test_clip_is_clip_norm(self):
        for settings in ({"clip": 0.05}, {"clip_norm": 0.05}):
            mine, theirs = curves(lambda m: torch.optim.SGD(m.parameters(), lr=0.5), lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 1.0), 6,
                                  **settings)  # fmt: skip
            model, clipped = mlp(dtype=torch.float64), []
            optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
            for index in range(6):
                optimizer.zero_grad()
                loss = loss_of(model, ROWS[index % 3])
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.05)
                optimizer.step()
                clipped.append(float(loss.detach()))
            self.assert_curves(mine, clipped, 1e-6)  # PyTorch divides by the norm + 1e-6
            self.assertGreater(abs(mine[-1] - theirs[-1]), 1e-3)
        recipe = capture(mlp(), (torch.randn(4, 6), ROWS[0][1]), nn.CrossEntropyLoss(), folder=self.folder, clip=0.5)
        with open(recipe, encoding="utf-8") as file:
            self.assertEqual(json.load(file)["clip_norm"], 0.5)
        with self.assertRaisesRegex(gradloom.UsageError, "clip and clip_norm are the same"):
            TrainStep(mlp(), nn.CrossEntropyLoss(), clip=1.0, clip_norm=1.0)

    def assert_handed_over(self, make, tolerance):
        """Three steps in PyTorch, six here, three in PyTorch: as twelve in PyTorch."""
        model = mlp(dtype=torch.float64)
        other = copy.deepcopy(model)
        optimizers = [make(one.parameters()) for one in (model, other)]
        theirs = torch_losses(other, ROWS, loss_of, optimizers[1], 12)
        mine = torch_losses(model, ROWS, loss_of, optimizers[0], 3)
        step = TrainStep(model, nn.CrossEntropyLoss(), optimizers[0])
        mine += [step.step(*ROWS[i % 3]) for i in range(6)]
        step.state_dict()
        mine += torch_losses(model, ROWS, loss_of, optimizers[0], 3)
        self.assert_curves(mine, theirs, tolerance)

    def test_transformers_adafactor(self):
        try:
            from transformers.optimization import Adafactor
        except ImportError:
            self.skipTest("no transformers")
        for options in ({}, {"lr": 0.02, "relative_step": False, "beta1": 0.9, "weight_decay": 0.01, "scale_parameter": False}):
            self.assert_handed_over(lambda p, options=options: Adafactor(p, **options), 1e-6)

    def test_lion_and_lamb_of_timm(self):
        try:
            from timm.optim import Lamb, Lion
        except ImportError:
            self.skipTest("no timm")
        for make in (lambda p: Lion(p, lr=0.01, weight_decay=0.1, betas=(0.8, 0.9)), lambda p: Lamb(p, lr=0.05, max_grad_norm=None, always_adapt=True)):
            self.assert_handed_over(make, 1e-9)
        model = mlp(dtype=torch.float64)
        with self.assertRaisesRegex(gradloom.UnsupportedError, "Lamb is here with max_grad_norm=None only .TrainStep's clip"):
            TrainStep(model, nn.CrossEntropyLoss(), Lamb(model.parameters()))

    def test_decoupled_nadam_and_radam(self):
        for kind in (torch.optim.NAdam, torch.optim.RAdam):
            try:
                kind([nn.Parameter(torch.zeros(1))], decoupled_weight_decay=True, maximize=True)
            except TypeError:
                self.skipTest("an older PyTorch")
            make = lambda m, kind=kind: kind(m.parameters(), lr=0.01, weight_decay=0.5, decoupled_weight_decay=True)  # noqa: E731
            with doubles():
                self.assert_curves(*curves(make, lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 1.0)), 1e-9)

    def test_groups_of_rmsprop_with_momentum_and_without(self):
        def make(model):
            return torch.optim.RMSprop([{"params": model[0].parameters(), "momentum": 0.5}, {"params": model[3].parameters()}], lr=0.01, eps=0.01)

        self.assert_curves(*curves(make, lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 0.9**step)), 1e-9)

        def split(parameters):
            first, *others = parameters
            return torch.optim.RMSprop([{"params": [first]}, {"params": others, "momentum": 0.5}], lr=0.01, eps=0.01)

        self.assert_handed_over(split, 1e-9)

    def test_nadam_follows_no_other_beta1(self):
        model = mlp(dtype=torch.float64)
        optimizer = torch.optim.NAdam(model.parameters(), lr=0.01)
        step = TrainStep(model, nn.CrossEntropyLoss(), optimizer)
        step.step(*ROWS[0])
        optimizer.param_groups[0]["betas"] = (0.8, 0.999)
        with self.assertRaisesRegex(gradloom.UsageError, "beta1 of NAdam changed after the first step; steps follow lr, weight_decay, beta2 and eps alone"):
            step.step(*ROWS[0])
        torch_losses(model, ROWS, loss_of, optimizer, 2)
        optimizer.param_groups[0]["betas"] = (0.5, 0.999)
        with self.assertRaisesRegex(gradloom.UsageError, "NAdam has mu_product=.* after 2 updates"):
            TrainStep(model, nn.CrossEntropyLoss(), optimizer).step(*ROWS[0])

    def test_decoupled_adam(self):
        try:
            torch.optim.Adam([nn.Parameter(torch.zeros(1))], decoupled_weight_decay=True)
        except TypeError:
            self.skipTest("an older PyTorch")
        make = lambda m: torch.optim.Adam(m.parameters(), lr=0.05, weight_decay=0.5, decoupled_weight_decay=True)  # noqa: E731
        self.assert_curves(*curves(make, lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 1.0)), 1e-9)

    def test_refusals(self):
        model = mlp()

        class Own(torch.optim.SGD):
            pass

        parameters = list(model.parameters())
        refused = [
            (torch.optim.Rprop(parameters), "no optimizer here does what Rprop does: torch.optim.SGD"),
            (Own(parameters, lr=0.1), "no optimizer here does what Own does"),
            (torch.optim.Adam([{"params": parameters[:1], "maximize": True}, {"params": parameters[1:]}]),
             "may differ in lr, weight_decay, beta1, beta2 and eps only, not in maximize"),
        ]  # fmt: skip
        for optimizer, why in refused:
            with self.assertRaisesRegex(gradloom.UnsupportedError, why):
                TrainStep(model, nn.CrossEntropyLoss(), optimizer)

    def test_what_groups_of_a_recipe_cannot_say_is_named(self):
        model = mlp()
        parameters, batch = list(model.parameters()), (torch.randn(4, 6), torch.randn(4, 3))
        groups = lambda **options: [{"params": parameters[:1], "lr": 0.1}, {"params": parameters[1:], **options}]  # noqa: E731
        refused = [
            (torch.optim.AdamW(groups(betas=(0.8, 0.9), weight_decay=0.2)), "in lr and weight_decay only, not in beta1, beta2 .TrainStep takes them"),
            (torch.optim.AdamW(groups(eps=1e-3)), "only, not in eps "),
            (torch.optim.SGD(groups(momentum=0.9), lr=0.1), "groups of SGD .* only, not in momentum "),
        ]  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            for optimizer, why in refused:
                with self.assertRaisesRegex(gradloom.UnsupportedError, why):
                    capture(model, batch, nn.functional.mse_loss, optimizer, os.path.join(folder, "refused"))
                self.assertEqual(os.listdir(folder), [])
            self.assertTrue(os.path.exists(capture(model, batch, nn.functional.mse_loss, torch.optim.AdamW(groups(weight_decay=0.2)), folder)))


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
