#!/usr/bin/env python3
"""capture and TrainStep: what a script hands over is what PyTorch would have trained.

GRADLOOM_LIBRARY names the library, GRADLOOM_PROGRAM the program. Exits with 77 (skipped) where there is no PyTorch.
"""

import collections
import copy
import json
import os
import random
import subprocess
import sys
import unittest
from unittest import mock

import numpy
import support
import torch
from gradloom.torch import Module, TrainStep, _train_step, capture
from support import Bert, Cnn, Folder, Gpt, mlp, worst
from torch import nn
from torch.nn import functional as F

gradloom = support.gradloom
PROGRAM = os.environ.get("GRADLOOM_PROGRAM", "gradloom")


def train(recipe, *words):
    """Losses of the steps, and the folder's session, of `gradloom train --recipe`."""
    done = subprocess.run([PROGRAM, "train", "--recipe", recipe, "--json", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return [row["loss"] for row in rows if "step" in row]


def torch_losses(model, batches, loss_of, optimizer, steps):
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, batches[step % len(batches)])
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


class Globs(unittest.TestCase):
    def test_modules_stand_for_what_is_theirs_alone(self):
        from gradloom.torch._job import globs

        self.assertEqual(globs(["a.x.w", "a.x.b", "a.y.w", "c.w"], ["a.y.b"]), ["a.x.*", "a.y.w", "c.w"])
        self.assertEqual(globs(["0.weight", "0.bias", "10.weight", "10.bias", "w"], ["1.mean"]), ["0.*", "10.*", "w"])
        self.assertEqual(globs(["a.w?", "b*.b", "b*.c", "c\\d"], ["b.b"]), ["a.w\\?", "b\\*.*", "c\\\\d"], "names that look like patterns")


def text_batches(count=3):
    torch.manual_seed(2)
    return [{"tokens": torch.randint(0, 31, (2, 8)), "labels": torch.randint(0, 31, (2, 8))} for _ in range(count)]


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
    "Adam": lambda p: torch.optim.Adam(p, lr=2e-3, betas=(0.8, 0.99)),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=2e-3, weight_decay=0.1),
}


class Captured(Folder):
    def test_a_captured_job_trains_as_the_script(self):
        for name, make in OPTIMIZERS.items():
            with self.subTest(optimizer=name):
                torch.manual_seed(1)
                model = Gpt().double()
                optimizer = make(model.parameters())
                recipe = capture(model, text_batches(), optimizer=optimizer, folder=os.path.join(self.folder, name), steps=12)
                mine = train(recipe)
                theirs = torch_losses(model, text_batches(), lambda m, b: m(**b)["loss"], optimizer, 12)
                self.assert_curves(mine, theirs, 1e-9)

    def test_frozen_parameters_groups_and_a_loss_function(self):
        torch.manual_seed(1)
        model = mlp(dtype=torch.float64)
        model[0].weight.requires_grad_(False)
        optimizer = torch.optim.AdamW([{"params": [model[0].bias, model[3].weight]}, {"params": [model[3].bias], "lr": 0.02, "weight_decay": 0.0}], lr=0.005)
        batches = [(torch.randn(4, 6, dtype=torch.float64), torch.randint(0, 3, (4,))) for _ in range(2)]
        recipe = capture(Module(model), batches, nn.CrossEntropyLoss(), optimizer, self.folder, steps=10)
        mine = train(recipe, "--save-params", self.folder + "/after.npz")
        theirs = torch_losses(model, batches, lambda m, b: F.cross_entropy(m(b[0]), b[1]), optimizer, 10)
        self.assert_curves(mine, theirs, 1e-9)
        after = support.np.load(self.folder + "/after.npz")
        for name, p in model.named_parameters():
            self.assertLessEqual(worst([torch.from_numpy(after[name])], [p]), 1e-8, name)

    def test_an_argument_that_the_loss_does_not_depend_on(self):
        class Scored(nn.Module):
            def __init__(self):
                super().__init__()
                self.line = nn.Linear(6, 3)

            def forward(self, x, mask, labels):
                scores = self.line(x)
                return {"scores": scores * mask[:, None], "loss": F.cross_entropy(scores, labels)}

        torch.manual_seed(1)
        model = Scored()
        other, batches = copy.deepcopy(model), [{"x": torch.randn(n, 6), "mask": torch.ones(n), "labels": torch.randint(0, 3, (n,))} for n in (4, 3, 4)]
        step = TrainStep(model, None, "sgd{lr=0.1}")
        theirs = torch_losses(other, batches, lambda m, b: m(**b)["loss"], torch.optim.SGD(other.parameters(), lr=0.1), 3)
        self.assert_curves([step.step(**batch) for batch in batches], theirs, 1e-6)

    def test_the_recipe_goes_back_into_the_script(self):
        torch.manual_seed(1)
        model = Gpt()
        recipe = capture(model, text_batches()[0], folder=self.folder)
        batch = text_batches()[0]
        self.assertLess(worst([Module(model, recipe=recipe)(**batch)["logits"]], [model(**batch)["logits"]]), 1e-5)
        with open(recipe, encoding="utf-8") as file:
            tuned = json.load(file)
        self.assertGreater(len(tuned["passes"]), 5)
        self.assertEqual((tuned["model"]["path"], tuned["data"]), ("model.onnx", "npz:batches.npz"))
        tuned["precision"] = "bf16"
        error = worst([Module(model, recipe=tuned)(**batch)["logits"]], [model(**batch)["logits"]])
        self.assertTrue(1e-5 < error < 0.1, error)

    def test_inputs_called_after_what_numpy_takes(self):
        class Named(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(6, 3)

            def forward(self, file, allow_pickle):
                return F.mse_loss(self.linear(file), allow_pickle)

        torch.manual_seed(1)
        batch = {"file": torch.randn(4, 6), "allow_pickle": torch.randn(4, 3)}
        capture(Named(), batch, folder=self.folder)
        with support.np.load(os.path.join(self.folder, "batches.npz")) as kept:
            self.assertEqual(sorted(kept.files), ["allow_pickle", "file"])
            for name, tensor in batch.items():
                self.assertTrue((kept[name] == tensor.numpy()[None]).all(), name)

    def test_bert_and_batch_norm(self):
        torch.manual_seed(1)
        model = Bert()
        words = torch.full((2, 8), -100)
        words[0, 2] = 4
        batch = (torch.randint(1, 31, (2, 8)), torch.randint(0, 3, (2,)), words)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        recipe = capture(model, batch, optimizer=optimizer, folder=self.folder + "/bert", steps=10)
        self.assert_curves(train(recipe), torch_losses(model, [batch], lambda m, b: m(*b)[0], optimizer, 10), 1e-3)
        model = Cnn()
        model.body[5].momentum = 0.2
        batch = (torch.randn(4, 3, 8, 8), torch.randint(0, 4, (4,)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        recipe = capture(model, batch, nn.CrossEntropyLoss(), optimizer, self.folder + "/cnn", steps=10)
        mine = train(recipe)
        self.assert_curves(mine, torch_losses(model, [batch], lambda m, b: F.cross_entropy(m(b[0]), b[1]), optimizer, 10), 1e-3)

    def test_refusals(self):
        model, x = mlp(), torch.randn(4, 6)
        with self.assertRaisesRegex(gradloom.Error, "no tensor of one number"):
            capture(model, (x,), folder=self.folder)
        with self.assertRaisesRegex(gradloom.Error, "no optimizer here does what Rprop does"):
            capture(model, (x, x[:, :3]), nn.MSELoss(), torch.optim.Rprop(model.parameters()), self.folder)
        with self.assertRaisesRegex(gradloom.Error, "batch 1 has another structure or other types"):
            capture(model, [(x, x[:, :3]), (x.double(), x[:, :3])], nn.MSELoss(), folder=self.folder)
        for p in model.parameters():
            p.requires_grad_(False)
        with self.assertRaisesRegex(gradloom.Error, "no parameter"):
            capture(model, (x, x[:, :3]), nn.MSELoss(), folder=self.folder)


class Steps(Folder):
    def test_steps_are_those_of_torch(self):
        for name, make in OPTIMIZERS.items():
            with self.subTest(optimizer=name):
                torch.manual_seed(1)
                model = Gpt().double()
                other = copy.deepcopy(model)
                step = TrainStep(model, None, make(model.parameters()))
                batches = text_batches()
                mine = [step.step(**batches[i % 3]) for i in range(20)]
                theirs = torch_losses(other, batches, lambda m, b: m(**b)["loss"], make(other.parameters()), 20)
                self.assert_curves(mine, theirs, 1e-9)
                self.assertIs(step.update_module(), model)
                self.assertLess(worst(list(model.parameters()), list(other.parameters())), 1e-8)
                step.close()

    def test_batches_of_other_sizes(self):
        """The last batch of an epoch is smaller, and texts have other lengths: AdamW's states are the same ones all the time."""
        draw = random.Random(3)
        shapes = [(4, 10), (4, 7), (4, 8), (4, 5), (3, 9), (4, 10), (2, 6), (4, 12), (4, 9), (3, 11), (4, 6), (1, 8), (4, 11), (3, 7)]
        for dtype, tolerance, plans in ((torch.float64, 1e-9, 16), (torch.float32, 1e-4, 2)):
            torch.manual_seed(1)
            model = Gpt().to(dtype)
            other = copy.deepcopy(model)
            batches = [{"tokens": (x := torch.randint(0, 31, shape)), "labels": x.roll(-1, 1)} for shape in shapes]
            order = [draw.randrange(len(batches)) for _ in range(30)]
            step = TrainStep(model, None, torch.optim.AdamW(model.parameters(), lr=0.01), plans=plans)
            with mock.patch.object(_train_step, "export_step", side_effect=_train_step.export_step) as traced:
                mine = [step.step(**batches[i]) for i in order]
            theirs = torch_losses(other, [batches[i] for i in order], lambda m, b: m(**b)["loss"], torch.optim.AdamW(other.parameters(), lr=0.01), 30)
            self.assert_curves(mine, theirs, tolerance)
            step.update_module()
            if dtype == torch.float64:
                self.assertLess(worst(list(model.parameters()), list(other.parameters())), 1e-8)
            if plans == 16:
                self.assertLess(traced.call_count, 8)
            step.close()

    def test_statistics_of_batches_of_other_sizes(self):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).double()
        other = copy.deepcopy(model)
        batches = [(torch.randn(n, 6, dtype=torch.float64), torch.randint(0, 3, (n,))) for n in (8, 8, 5, 8, 5, 7)]
        step = TrainStep(model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
        mine = [step.step(*batch) for batch in batches]
        optimizer = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
        self.assert_curves(mine, torch_losses(other, batches, lambda m, b: F.cross_entropy(m(b[0]), b[1]), optimizer, 6), 1e-9)
        step.update_module()
        for name in ("running_mean", "running_var"):
            self.assertLess(worst([getattr(model[1], name)], [getattr(other[1], name)]), 1e-6, name)  # a file's momentum is f32

    def test_arrays_are_read_once(self):
        """Those of numpy's booleans, which are copied."""

        class Masked(nn.Linear):
            def forward(self, x, mask):
                return super().forward(x) * mask[:, None]

        model = Masked(6, 3)
        step = TrainStep(model, F.mse_loss, "sgd{lr=0.1}")
        batch = torch.randn(4, 6), numpy.array([True, False, True, True]), torch.randn(4, 3)
        expected = F.mse_loss(model(batch[0], torch.from_numpy(batch[1])), batch[2])
        with mock.patch.object(gradloom.torch._structure, "_imported", wraps=gradloom.torch._structure._imported) as read:
            self.assertLess(abs(step.step(*batch) - float(expected.detach())), 1e-6)
            self.assertEqual(read.call_count, 1)
            step.step(*batch)
            self.assertEqual(read.call_count, 2)
            capture(Masked(6, 3), [batch, batch], F.mse_loss, folder=self.folder)
            self.assertEqual(read.call_count, 4)

    def test_statistics_of_instances(self):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Conv1d(4, 6, 1), nn.InstanceNorm1d(6, affine=True, track_running_stats=True), nn.ReLU(), nn.Flatten(), nn.Linear(30, 3))
        model = model.double()
        other = copy.deepcopy(model)
        batches = [(torch.randn(n, 4, 5, dtype=torch.float64), torch.randint(0, 3, (n,))) for n in (8, 8, 5, 8)]
        step, optimizer = (kind(*more) for kind, more in ((TrainStep, (model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1))),
                           (torch.optim.SGD, (other.parameters(), 0.1))))  # fmt: skip
        mine = [step.step(*batch) for batch in batches]
        self.assert_curves(mine, torch_losses(other, batches, lambda m, b: F.cross_entropy(m(b[0]), b[1]), optimizer, 4), 1e-9)
        step.update_module()
        for name in ("running_mean", "running_var"):
            self.assertLess(worst([getattr(model[1], name)], [getattr(other[1], name)]), 1e-6, name)  # a file's momentum is f32

    def test_accumulation_and_clipping(self):
        torch.manual_seed(1)
        model = mlp(dtype=torch.float64)
        other = copy.deepcopy(model)
        batches = [(torch.randn(4, 6, dtype=torch.float64), torch.randint(0, 3, (4,))) for _ in range(2)]
        step = TrainStep(model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1), accumulate=2, clip_norm=0.5)
        mine = [step.step(*batches) for _ in range(6)]
        optimizer, theirs = torch.optim.SGD(other.parameters(), lr=0.1), []
        for _ in range(6):
            optimizer.zero_grad()
            losses = [F.cross_entropy(other(x), y) / 2 for x, y in batches]
            sum(losses).backward()
            nn.utils.clip_grad_norm_(other.parameters(), 0.5)
            optimizer.step()
            theirs.append(float(sum(losses).detach()))
        self.assert_curves(mine, theirs, 1e-6)
        with self.assertRaisesRegex(gradloom.Error, "takes 2 batches"):
            step.step(batches[0])

    def test_padding_is_dropped_where_it_is_named(self):
        torch.manual_seed(1)
        model = Bert().double()
        other = copy.deepcopy(model)
        step = TrainStep(model, None, torch.optim.SGD(model.parameters(), lr=0.1), passes="default,drop-padding")
        optimizer, mine, theirs = torch.optim.SGD(other.parameters(), lr=0.1), [], []
        for seed in range(6):
            longest = 8 if seed < 4 else 11
            tokens, words = torch.randint(1, 31, (4, longest)), torch.full((4, longest), -100)
            for text in range(4):
                length = random.Random(10 * seed + text).randint(2, longest)
                tokens[text, length:] = 0
                words[text, 1] = 5
            batch = (tokens, torch.randint(0, 3, (4,)), words)
            mine.append(step.step(*batch))
            optimizer.zero_grad()
            loss = other(*batch)[0]
            loss.backward()
            optimizer.step()
            theirs.append(float(loss.detach()))
        step.update_module()
        self.assert_curves(mine, theirs, 1e-9)
        self.assertLess(worst(list(model.parameters()), list(other.parameters())), 1e-9)
        capture(model, batch, folder=self.folder, passes="default,drop-padding")
        matched = [row["matched"] for row in gradloom.plan(self.folder).passes if row["pass"] == "drop-padding"]
        self.assertTrue(all(matched) and len(matched) == 2, matched)

    def test_a_scheduler_is_followed(self):
        torch.manual_seed(1)
        model = mlp(dtype=torch.float64)
        other = copy.deepcopy(model)
        batch = (torch.randn(4, 6, dtype=torch.float64), torch.randint(0, 3, (4,)))
        curves = []
        for one in (model, other):
            optimizer = torch.optim.AdamW(one.parameters(), lr=0.05)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
            step, losses = TrainStep(one, nn.CrossEntropyLoss(), optimizer), []
            for _ in range(8):
                if one is model:
                    losses.append(step.step(*batch))
                    optimizer._step_count = 1  # PyTorch warns where optimizer.step() was never called
                else:
                    losses += torch_losses(one, [batch], lambda m, b: F.cross_entropy(m(b[0]), b[1]), optimizer, 1)
                scheduler.step()
            curves.append(losses)
        self.assert_curves(*curves, 1e-9)

    def test_state_dict(self):
        torch.manual_seed(1)
        model = mlp(dtype=torch.float64)
        batches = [(torch.randn(4, 6, dtype=torch.float64), torch.randint(0, 3, (4,))) for _ in range(2)]
        step = TrainStep(model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
        for batch in batches * 2:
            step.step(*batch)
        state = copy.deepcopy(step.state_dict())
        going_on = [step.step(*batch) for batch in batches]
        with torch.no_grad():
            model[0].weight.zero_()
        step.load_state_dict(state)
        self.assert_curves([step.step(*batch) for batch in batches], going_on, 1e-12)
        adam = TrainStep(model, nn.CrossEntropyLoss(), torch.optim.AdamW(model.parameters(), lr=0.01))
        adam.step(*batches[0])
        state_of_adam = adam.state_dict()
        adam.load_state_dict(state_of_adam)
        adam.step(*batches[0])
        with self.assertRaisesRegex(gradloom.Error, "no state of this training"):
            step.load_state_dict({"model": state["model"], "optimizer": {"elsewhere": torch.zeros(1)}, "steps": 6})

    def test_what_changes_between_steps_is_followed(self):
        """Modes, frozen parameters, members of groups: as in PyTorch, which asks anew in each step."""
        batches = [(torch.randn(8, 6, dtype=torch.float64), torch.randint(0, 3, (8,))) for _ in range(2)]
        made = {
            "SGD": lambda m: torch.optim.SGD([{"params": m[0].parameters()}, {"params": m[4].weight, "lr": 0.3}], lr=0.1),
            "momentum": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9),
            "AdamW": lambda m: torch.optim.AdamW(m.parameters(), lr=0.01),
        }
        changes = {
            "eval": lambda m, o: m.eval(),
            "one part": lambda m, o: m[1].eval(),
            "frozen": lambda m, o: m[0].requires_grad_(False).zero_grad(set_to_none=True),
            "joins": lambda m, o: o.param_groups[0]["params"].append(m[4].bias),
            "moves": lambda m, o: o.param_groups[1]["params"].append(o.param_groups[0]["params"].pop()),
        }
        for change, act in changes.items():
            for name, make in made.items():
                if name != "SGD" and change in ("joins", "moves"):
                    continue
                with self.subTest(change=change, optimizer=name):
                    torch.manual_seed(1)
                    mine = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Tanh(), nn.Linear(5, 3)).double()
                    other = copy.deepcopy(mine)
                    optimizers = [make(mine), make(other)]
                    step = TrainStep(mine, nn.CrossEntropyLoss(), optimizers[0])
                    losses, theirs = [], []
                    for half in range(2):
                        losses += [step.step(*batches[i % 2]) for i in range(4)]
                        theirs += torch_losses(other, batches, lambda m, b: F.cross_entropy(m(b[0]), b[1]), optimizers[1], 4)
                        if half == 0:
                            act(mine, optimizers[0])
                            act(other, optimizers[1])
                    self.assertEqual(step.steps, 8)
                    step.close()
                    self.assert_curves(losses, theirs, 1e-7)  # a file has BatchNorm's momentum in f32
                    self.assertLess(worst(list(mine.parameters()), list(other.parameters())), 1e-7)
                    self.assertLess(worst([mine[1].running_var], [other[1].running_var]), 1e-6)

    def test_a_parameter_without_states_cannot_join_those_with_some(self):
        model = mlp()
        model[0].requires_grad_(False)
        step = TrainStep(model, nn.MSELoss(), torch.optim.AdamW(model.parameters(), lr=0.1))
        x = torch.randn(4, 6)
        first = step.step(x, x[:, :3])
        model[0].requires_grad_(True)
        with self.assertRaisesRegex(gradloom.Error, "'0.bias' is trained from now on and has no states of the optimizer, which has made 1 updates"):
            step.step(x, x[:, :3])
        model[0].requires_grad_(False)
        self.assertLess(step.step(x, x[:, :3]), first)

    def test_weights_of_16_bits_come_and_go(self):
        model = mlp()
        step = TrainStep(model, nn.MSELoss(), torch.optim.AdamW(model.parameters(), lr=0.05), precision="bf16{weights=low}")
        x, before = torch.randn(4, 6), model[0].weight.detach().clone()
        losses = [step.step(x, x[:, :3]) for _ in range(3)]
        step.update_module()
        self.assertFalse(torch.equal(model[0].weight, before))
        torch.testing.assert_close(model[0].weight, model[0].weight.bfloat16().float(), rtol=0, atol=0)
        state = copy.deepcopy(step.state_dict())
        going_on = step.step(x, x[:, :3])
        with torch.no_grad():
            model[0].weight.copy_(before)
        step.load_module()
        self.assertGreater(step.step(x, x[:, :3]), going_on)
        step.load_state_dict(state)
        self.assertEqual(step.step(x, x[:, :3]), going_on)
        self.assertLess(going_on, losses[0])

    def test_closing_tells_what_no_step_has_told(self):
        os.mkdir(self.folder + "/gone")
        model = mlp()
        step = TrainStep(model, nn.CrossEntropyLoss(), "sgd{lr=0.1}", save_params=self.folder + "/gone/p.npz")
        x, labels = torch.randn(4, 6), torch.tensor([0, 1, 2, 0])
        step.step(x, labels)
        with self.assertRaisesRegex(gradloom.Error, "target"):
            step.step(x, labels + 7)
        step.step(x, labels)
        os.rmdir(self.folder + "/gone")
        with self.assertRaisesRegex(gradloom.Error, "cannot write"):
            step.close()

    def test_names_that_look_like_patterns(self):
        x = torch.randn(4, 3, dtype=torch.float64)
        for first, second in (("a?", "ab"), ("a*", "abc"), ("a\\b", "ab"), ("a{x", "b"), ("{a}", "c"), ("[a]", "a")):
            for groups in (False, True):
                with self.subTest(names=(first, second), groups=groups):
                    mine = nn.Sequential(collections.OrderedDict([(first, nn.Linear(3, 3)), (second, nn.Linear(3, 3))])).double()
                    other = copy.deepcopy(mine)

                    def optimizer_of(model):
                        one, two = list(model[0].parameters()), list(model[1].parameters())
                        return torch.optim.SGD([{"params": two}, {"params": one, "lr": 0.5, "weight_decay": 0.1}] if groups else one, lr=0.1)

                    step = TrainStep(mine, nn.MSELoss(), optimizer_of(mine))
                    step.step(x, x)
                    step.close()
                    torch_losses(other, [x], lambda m, b: F.mse_loss(m(b), b), optimizer_of(other), 1)
                    self.assertLess(worst(list(mine.parameters()), list(other.parameters())), 1e-9)
        taken = nn.Sequential(collections.OrderedDict([("a{x", nn.Linear(3, 3)), ("aax", nn.Linear(3, 3))])).double()
        groups = [{"params": taken[1].parameters()}, {"params": taken[0].parameters(), "lr": 0.5}]
        with self.assertRaisesRegex(gradloom.UnsupportedError, "cannot be told from 'aax.*braces begin a group's options"):
            TrainStep(taken, nn.MSELoss(), torch.optim.SGD(groups, lr=0.1)).step(x, x)

    def test_refusals(self):
        model = mlp()
        step = TrainStep(model, nn.MSELoss(), "sgd{lr=0.1}")
        with self.assertRaisesRegex(gradloom.Error, "no step was made"):
            step.update_module()
        x = torch.randn(4, 6)
        step.step(x, x[:, :3])
        with self.assertRaisesRegex(gradloom.Error, "another structure or other types"):
            step.step(x[:2].double(), x[:2, :3])
        two = TrainStep(mlp(), nn.MSELoss(), "sgd{lr=0.1}", accumulate=2)
        two.step((x, x[:, :3]), (x, x[:, :3]))
        with self.assertRaisesRegex(gradloom.Error, "batches of one step have different sizes"):
            two.step((x, x[:, :3]), (x[:2], x[:2, :3]))
        with self.assertRaisesRegex(gradloom.Error, "optimizer"):
            TrainStep(model, nn.MSELoss(), "sgdd{lr=0.1}").step(x, x[:, :3])


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
