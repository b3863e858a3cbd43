#!/usr/bin/env python3
"""gradloom.torch.Module is its module's double, takes no more memory than it must, and says what it cannot do.

GRADLOOM_LIBRARY names the library. Exits with 77 (skipped) where there is no PyTorch.
"""

import copy
import gc
import importlib
import inspect
import json
import os
import pickle
import sys
import tempfile
import types
import unittest
import warnings
import weakref
from unittest import mock

import support
import torch
from gradloom.torch import Module, TrainStep
from gradloom.torch._plan import Arenas
from support import Case, Cnn, Gpt, mlp, twins, worst
from torch import nn

UnsupportedError = support.gradloom.UnsupportedError


class Pass(Case):
    """Members of the module pass through."""

    def test_trainers_find_the_forward_by_the_class(self):
        class Answers(nn.Linear):
            def forward(self, x, labels=None, *, scale=1.0):
                return super().forward(x) * scale

        mine, theirs = twins(lambda: Answers(3, 2))
        for of in (lambda m: type(m).forward, lambda m: m.forward):
            self.assertEqual(inspect.signature(of(mine)), inspect.signature(of(theirs)))
        self.assertIn("Answers", type(mine).__name__)
        self.assertIsInstance(mine, Module)
        x, outer, before = torch.randn(4, 3), [], mine.forward

        def around(self, *args, **kwargs):  # as Accelerate does for mixed precision
            outer.append(1)
            return before.__func__(self, *args, **kwargs)

        mine.forward = types.MethodType(around, mine)
        self.assert_near(mine(x, scale=2.0), theirs(x, scale=2.0))
        self.assertEqual((outer, len(mine._gradloom._entries)), ([1], 1))
        self.assertNotIn("forward", vars(mine.module))
        again = pickle.loads(pickle.dumps(Module(mlp())))  # of no class that pickle could find
        self.assertIs(type(again), type(Module(mlp())))
        del mine.forward
        self.assert_near(mine(x), theirs(x))
        self.assertEqual(outer, [1])

    def test_members(self):
        mine, theirs = twins(Cnn)
        self.assertEqual(list(mine.state_dict()), list(theirs.state_dict()))
        self.assertEqual([n for n, _ in mine.named_parameters()], [n for n, _ in theirs.named_parameters()])
        self.assertEqual([n for n, _ in mine.named_buffers()], [n for n, _ in theirs.named_buffers()])
        self.assertEqual([n for n, _ in mine.named_modules()], [n for n, _ in theirs.named_modules()])
        self.assertIs(mine.head, mine.module.head)
        mine.note = "here"
        self.assertEqual(mine.module.note, "here")
        mine.eval()
        self.assertFalse(mine.module.training or mine.training or mine.head.training)
        mine.train()
        self.assertTrue(mine.module.training and mine.body[1].training)
        self.assertIn("Cnn", repr(mine))

    def test_state_dict_both_ways(self):
        mine, theirs = twins(mlp)
        other = Module(mlp())
        x = torch.randn(4, 6)
        other(x)
        with torch.no_grad():
            theirs[0].weight.mul_(2)
        self.assertEqual(str(other.load_state_dict(theirs.state_dict())), "<All keys matched successfully>")
        self.assert_near(other(x), theirs(x))
        theirs.load_state_dict(mine.state_dict())
        self.assert_near(mine(x), theirs(x))

    def test_copies(self):
        mine, theirs = twins(mlp)
        x = torch.randn(4, 6)
        mine(x)
        for other in (copy.deepcopy(mine), pickle.loads(pickle.dumps(mine))):
            self.assertIsInstance(other, Module)
            with torch.no_grad():
                other[0].weight.add_(1)
            self.assert_near(mine(x), theirs(x))
            self.assertGreater(worst([other(x)], [theirs(x)]), 1e-3)

    def test_changed_members(self):
        mine, theirs = twins(mlp)
        x = torch.randn(4, 6)
        mine(x)
        torch.manual_seed(8)
        mine.module[3] = nn.Linear(8, 2)
        torch.manual_seed(8)
        theirs[3] = nn.Linear(8, 2)
        self.assert_near(mine(x), theirs(x))
        theirs[3].weight = mine.module[3].weight = nn.Parameter(torch.randn(2, 8))
        self.assert_near(mine(x), theirs(x))

    def test_members_that_are_set_and_deleted_by_index(self):
        mine, theirs = twins(mlp)
        x = torch.randn(4, 6)
        mine(x)
        theirs[2] = nn.Linear(8, 8)
        mine[2] = copy.deepcopy(theirs[2])
        self.assert_near(mine(x), theirs(x))
        del mine[2:], theirs[2:]
        self.assert_near(mine(x), theirs(x))
        with self.assertRaises(IndexError):
            mine[5] = nn.Tanh()
        with self.assertRaises(TypeError):
            Module(Cnn())[0] = nn.Tanh()

    def test_tied_parameters(self):
        mine, theirs = twins(Gpt)
        tokens = torch.randint(0, 31, (2, 8))
        for model in (mine, theirs):
            model(tokens, labels=tokens)["loss"].backward()
        self.assertIs(mine.head.weight, mine.words.weight)
        self.assert_same_gradients(mine, theirs)

    def test_plans_are_bounded_and_cached(self):
        module = Module(mlp(), plans=3)
        for rows in (1, 2, 3, 4, 5, 4, 5):
            x = torch.randn(rows, 6)
            self.assert_near(module(x), module.module(x))
        self.assertEqual(len(module._gradloom._entries), 3)
        before = list(module._gradloom._entries.values())
        module(x)
        self.assertEqual(list(module._gradloom._entries.values()), before)


class Statistics(Case):
    """Running statistics, which PyTorch moves without a trace of it."""

    def make(self, *more):
        return twins(lambda: nn.Sequential(nn.Conv1d(4, 6, 1), nn.BatchNorm1d(6), nn.ReLU(), *more))

    def assert_as_at_rest(self, mine, theirs):
        mine.eval()
        theirs.eval()
        x = torch.randn(3, 4, 5)
        self.assert_near(mine(x), theirs(x), 1e-5)

    def test_pytorch_trains_what_the_engine_evaluates(self):
        model = self.make(nn.InstanceNorm1d(6, affine=True, track_running_stats=True))[1]
        mine = Module(model)
        for _ in range(4):
            model.train()
            for _ in range(3):
                model(2 * torch.randn(8, 4, 5) + 1)
            self.assert_as_at_rest(mine, model)
        self.assertEqual(len(mine._gradloom._entries), 1)

    def test_instance_norms_that_track_statistics(self):
        """Running statistics are means over the instances, whose variances are each its own."""
        for make in (lambda: nn.InstanceNorm1d(6, affine=True, track_running_stats=True),
                     lambda: nn.Sequential(nn.InstanceNorm1d(6, track_running_stats=True, momentum=0.3), nn.Linear(5, 5),
                                           nn.InstanceNorm1d(6, affine=True, track_running_stats=True, eps=1e-3))):  # fmt: skip
            mine, theirs = self.make(make())
            for _ in range(3):
                x = torch.randn(8, 1, 1) + torch.rand(8, 4, 1) * torch.randn(8, 4, 5)
                for model in (mine, theirs):
                    model.zero_grad()
                    (model(x) ** 3).sum().backward()
                self.assert_near(mine(x), theirs(x))
                self.assert_same_gradients(mine, theirs, 1e-4)
                self.assert_near([b.float() for b in mine.buffers()], [b.float() for b in theirs.buffers()])
            self.assert_as_at_rest(mine, theirs)

    def test_two_forwards_before_a_backward_after_an_evaluation(self):
        mine, theirs = self.make()
        for rows in (8, 8, 6):
            for model in (mine, theirs):
                model.train()
                model(torch.ones(rows, 4, 5) * 3)
            self.assert_as_at_rest(mine, theirs)
        x, y = torch.randn(7, 4, 5), torch.randn(7, 4, 5)
        for model in (mine, theirs):
            model.train()
            (model(x).square().sum() + model(y).pow(3).sum()).backward()
        self.assert_same_gradients(mine, theirs, 1e-4)
        self.assert_as_at_rest(mine, theirs)

    def test_an_evaluation_before_a_training_one_with_one_backward(self):
        """As in PyTorch, the first one's backward reads what the second has made of the statistics."""
        mine, theirs = twins(lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6)))
        x, y = torch.randn(7, 4), torch.randn(7, 4)
        for model in (mine, theirs):
            model.eval()
            loss = model(x).square().sum()
            model.train()
            (loss + model(y).pow(3).sum()).backward()
        self.assert_same_gradients(mine, theirs, 1e-4)

    def test_buffers_written_behind_autograd(self):
        """Through .data, and through numpy's view of the memory."""

        class Scales(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("scale", torch.ones(4))

            def forward(self, x):
                return x * self.scale

        mine, theirs = twins(Scales)
        x = torch.randn(2, 4)
        for write in (lambda m: m.scale.data.mul_(2), lambda m: m.scale.numpy().fill(3), lambda m: m.scale.mul_(2), lambda m: m.scale.data.add_(1)):
            self.assert_near(mine(x), theirs(x), 0.0)
            for model in (mine, theirs):
                write(model)
        self.assert_near(mine(x), theirs(x), 0.0)

    def test_what_is_written_in_place_is_still_seen(self):
        mine, x = Module(nn.Linear(4, 3)), torch.randn(2, 4)
        loss = mine(x).square().sum()
        with torch.no_grad():
            mine.weight.mul_(2)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()


class Refusals(Case):
    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            y = self.linear(x)
            return y * 2 if y.sum() > 0 else y

    def test_values_in_python(self):
        module = Module(self.Reads())
        for _ in range(2):
            with self.assertRaisesRegex(UnsupportedError, r"Reads: .*members_test.py:\d+ needs the numbers of a tensor"):
                module(torch.randn(2, 3))

    def test_comparisons_in_python(self):
        class Compares(nn.Module):
            def forward(self, x):
                return x + 1 if torch.equal(x, x * 2) else x

        with self.assertRaisesRegex(UnsupportedError, "needs the numbers of a tensor in Python .equal"):
            Module(Compares())(torch.zeros(2))

    def test_values_of_buffers_are_known(self):
        class Knows(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("power", torch.tensor(2))

            def forward(self, x):
                return x ** int(self.power) if self.power > 1 else x

        module, x = Module(Knows()), torch.randn(3)
        self.assert_near(module(x), x**2)
        module.power.fill_(3)
        with self.assertRaisesRegex(UnsupportedError, "needs the numbers"):  # it changes: an argument now
            module(x)

    def test_fallback_warns_once(self):
        module = Module(self.Reads(), fallback="torch")
        x = torch.randn(2, 3)
        with support.one_warning(self, "runs in PyTorch"):
            for _ in range(3):
                self.assert_near(module(x), module.module(x))
        module(x).sum().backward()
        self.assertIsNotNone(module.linear.weight.grad)

    def test_what_has_no_kernel_is_named(self):
        class Lacks(nn.Module):
            def forward(self, x):
                return torch.special.i0(x) + torch.special.i1(x)

        with self.assertRaisesRegex(UnsupportedError, "aten::i0, aten::special_i1"):
            Module(Lacks())(torch.eye(3))

    def test_arguments_changed_in_place(self):
        class Changes(nn.Module):
            def forward(self, x):
                return x.add_(1) * 2

        with self.assertRaisesRegex(UnsupportedError, "changes x in place"):
            Module(Changes())(torch.zeros(3))

    def test_other_objects(self):
        with self.assertRaisesRegex(UnsupportedError, "arguments.*object of type"):
            Module(nn.Identity())(object())

    def test_wrong_use(self):
        with self.assertRaises(TypeError):
            Module(lambda x: x)
        with self.assertRaises(ValueError):
            Module(nn.Linear(2, 2), fallback="numpy")
        with self.assertRaises(RuntimeError):  # PyTorch's own words for shapes that do not fit
            Module(nn.Linear(2, 2))(torch.randn(3, 5))
        with self.assertRaises(RuntimeError):  # and for types
            Module(nn.Linear(2, 2))(torch.zeros(3, 2, dtype=torch.int64))
        with self.assertRaisesRegex(support.gradloom.Error, "missing.json"):
            Module(nn.Linear(2, 2), recipe="missing.json")
        with self.assertRaisesRegex(support.gradloom.Error, "gradloom_recipe"):
            Module(nn.Linear(2, 2), recipe={"passes": []})

    def test_an_old_library(self):
        library = support.gradloom._library
        newer = [*library._SIGNATURES, ("no_such_call", ())]
        with mock.patch.object(library, "_SIGNATURES", newer), self.assertRaisesRegex(support.gradloom.Error, "lacks gradloom_no_such_call: install both"):
            library.Library(library.library()._dll._name)

    def test_an_old_torch(self):
        with mock.patch.object(torch, "__version__", "1.12.1+cpu"), self.assertRaisesRegex(ImportError, "1.13 and newer.*1.12.1"):
            importlib.reload(support.gradloom.torch)

    def test_a_backward_hook_inside(self):
        model = mlp()
        model[0].register_full_backward_hook(lambda *_: None)
        with self.assertRaisesRegex(UnsupportedError, "backward hook"):
            Module(model)(torch.randn(2, 6))

    def test_another_device(self):
        with self.assertRaisesRegex(UnsupportedError, "on cpu and meta"):
            Module(nn.Linear(2, 2))(torch.empty(1, 2, device="meta"))

    def test_recipes(self):
        recipe = {"gradloom_recipe": 1, "model": {"path": "elsewhere.onnx"}, "passes": [], "precision": "f32", "steps": 3}
        model = mlp()
        x = torch.randn(4, 6)
        self.assert_near(Module(model, recipe=recipe)(x), model(x))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tuned.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(recipe, file)
            module = Module(model, recipe=path)
        self.assert_near(module(x), model(x))  # the file is gone: it was read
        with self.assertRaisesRegex(support.gradloom.Error, "tuned.json: No such file"):
            Module(model, recipe=path)
        for field, value, why in (("precisoin", "bf16", "the recipe: /precisoin: unknown key; did you mean precision"),
                                  ("planner", 3, "the recipe: /planner: must be of type string"),
                                  ("passes", [{"nam": "dce"}], "/passes/0: key \"name\" is missing")):  # fmt: skip
            for make in (Module, lambda m, recipe: TrainStep(m, recipe=recipe)):
                with self.assertRaisesRegex(support.gradloom.UsageError, why):
                    make(model, recipe={**recipe, field: value})
        recipe["passes"] = [{"name": "no-such-pass"}]
        with self.assertRaisesRegex(support.gradloom.Error, "no-such-pass"):
            Module(model, recipe=recipe)(x)


    def test_notes_of_a_recipe_are_warnings(self):
        recipe = {"gradloom_recipe": 1, "model": {"path": "m.onnx"}, "passes": [], "recompute": ["Constant"]}
        x = torch.randn(4, 6)
        with support.one_warning(self, "Sequential: recompute: nothing that it names"):
            module = Module(mlp(), recipe=recipe)
            module(x), module(x[:2])
        with support.one_warning(self, "Sequential: recompute: nothing that it names"):
            step = TrainStep(mlp(), nn.MSELoss(), recipe=recipe)
            step.step(x, x[:, :3]), step.step(x[:2], x[:2, :3])


class Traced(Case):
    """What a file would hold inexactly or not at all is computed by operators that it has."""

    def check(self, module, x, tolerance=1e-9):
        mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        results = [Module(module)(mine), module(theirs)]
        self.assertEqual(results[0].shape, results[1].shape)
        weights = torch.randn_like(results[1])
        for result in results:
            (result * weights).sum().backward()
        self.assert_near(*results, tolerance)
        self.assert_near(mine.grad, theirs.grad, tolerance)

    def test_adaptive_averages_of_overlapping_cells(self):
        x = torch.randn(2, 3, 7, 10, dtype=torch.float64)
        self.check(nn.AdaptiveAvgPool1d(4), x[0])
        self.check(nn.AdaptiveAvgPool2d((3, 4)), x)
        self.check(nn.AdaptiveAvgPool2d((None, 4)), x)
        self.check(nn.AdaptiveAvgPool2d((9, 5)), x)  # more cells than numbers
        self.check(nn.AdaptiveAvgPool2d((7, 5)), x.float(), 1e-5)  # divides: the exporter's own
        self.check(nn.AdaptiveAvgPool3d((2, 3, 4)), torch.randn(1, 2, 5, 4, 6, dtype=torch.float64))

    def test_torchs_rms_norm(self):
        if not hasattr(torch, "rms_norm"):
            self.skipTest("this torch has no rms_norm")

        class Norm(nn.Module):
            def forward(self, x):
                return torch.rms_norm(x, (6,), torch.linspace(1, 2, 6, dtype=x.dtype), 1e-5)

        self.check(Norm(), torch.randn(4, 6, dtype=torch.float64))

    def test_units_in_place(self):
        class Units(nn.Module):
            def forward(self, x):
                y = x * 3
                z = nn.functional.selu(y, inplace=True)
                return z + y

        self.check(Units(), torch.randn(4, 6, dtype=torch.float64))


class Memory(Case):
    def test_nothing_is_kept(self):
        module = Module(mlp())
        x = torch.randn(4, 6)
        module(x).sum().backward()
        plans = [weakref.ref(plan) for entry in module._gradloom._entries.values() for plan in entry.steps._plans.values()]
        parameter = weakref.ref(module[0].weight)
        self.assertTrue(plans)
        del module
        gc.collect()
        self.assertEqual([plan() for plan in plans], [None] * len(plans))
        self.assertIsNone(parameter())

    def test_1000_steps_do_not_grow(self):
        mine, _ = twins(Gpt)
        tokens = torch.randint(0, 31, (2, 8))
        optimizer = torch.optim.SGD(mine.parameters(), lr=1e-3)

        def steps(count):
            for _ in range(count):
                optimizer.zero_grad()
                mine(tokens, labels=tokens)["loss"].backward()
                optimizer.step()

        def resident():
            with open("/proc/self/statm", encoding="ascii") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        steps(50)
        before = resident()
        steps(1000)
        self.assertLess(resident() - before, 4 << 20)

    def test_parameters_are_in_memory_once(self):
        """128 MiB of weights, in parts that malloc gives back: what a step leaves is gradients and an arena, no second copy of the weights."""

        def resident():
            with open("/proc/self/statm", encoding="ascii") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        width = 4096
        model = nn.Sequential(nn.Linear(width, width, bias=False), nn.ReLU(), nn.Linear(width, width, bias=False))
        size = sum(p.numel() * 4 for p in model.parameters())
        module, x = Module(model), torch.randn(2, width)
        before = resident()
        for _ in range(2):
            module.zero_grad(set_to_none=True)
            module(x).sum().backward()
        gc.collect()
        self.assertLess(resident() - before, 1.5 * size)  # gradients are 1

    def test_arenas_come_back(self):
        module, x = Module(mlp()), torch.randn(4, 6)
        for _ in range(3):
            module(x)  # no backward follows
        for _ in range(3):
            module(x).sum().backward()
        (arenas,) = module._gradloom._arenas.values()
        self.assertLessEqual(len(arenas._kept), arenas.MOST)
        size = arenas._kept[-1].numel()
        self.assertIn(arenas.take(size).data_ptr(), [arena.data_ptr() for arena in arenas._kept])

    def test_an_arena_is_given_to_one_call_at_a_time(self):
        arenas = Arenas(torch.device("cpu"))
        held = [arenas.take(1000) for _ in range(4)]
        places = [arena.data_ptr() for arena in held]
        self.assertEqual(len(set(places)), 4)
        del held[0]
        self.assertEqual(arenas.take(990).data_ptr(), places[0])
        larger = arenas.take(200000)  # in the place of the one that nobody has
        again = larger.data_ptr()
        del larger
        self.assertNotEqual(arenas.take(500).data_ptr(), again)  # much too large
        self.assertEqual([arena.data_ptr() for arena in held], places[1:])


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)
    sys.exit(unittest.main(verbosity=1))
