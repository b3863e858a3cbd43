#!/usr/bin/env python3
"""gradloom.torch.Module behaves as the module that it wraps: training loops, modes, structures, refusals.

GRADLOOM_LIBRARY names the library. Exits with 77 (skipped) where there is no PyTorch.
"""

import collections
import copy
import dataclasses
import pickle
import sys
import unittest
import warnings

import support
import torch
import torch.utils.checkpoint
from gradloom.torch import Module
from support import Bert, Case, Cnn, Gpt, mlp, twins, worst
from torch import nn

gradloom = support.gradloom
Pair = collections.namedtuple("Pair", "sum product")


@dataclasses.dataclass
class Result:
    loss: torch.Tensor
    hidden: tuple
    note: str = "kept"


class Output(collections.OrderedDict):
    """As Hugging Face's ModelOutput: a dict whose entries are attributes."""

    def __getattr__(self, name):
        return self[name]


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, batch, *rest, scale=1.0, kind="tuple", mask=None):
        x = self.a(batch["x"]) * scale
        y = self.b(batch["more"][0]) if batch["more"][1] is None else x
        if mask is not None:
            x = x.masked_fill(mask, 0.0)
        if kind == "tuple":
            return x, [y, None, 3]
        if kind == "dataclass":
            return Result(x.sum(), (x, y))
        if kind == "named":
            return Pair(x + y, x * y)
        return Output(loss=x.mean(), logits=y)


class Structures(Case):
    def test_arguments_and_results(self):
        mine, theirs = twins(Nested)
        x, y = torch.randn(3, 4), torch.randn(3, 4)
        for kind in ("tuple", "dataclass", "named", "output"):
            for mask in (None, torch.rand(3, 4) > 0.5):
                batch = {"x": x, "more": [y, None]}
                a, b = mine(batch, scale=2.5, kind=kind, mask=mask), theirs(batch, scale=2.5, kind=kind, mask=mask)
                self.assertIs(type(a), type(b))
                if kind == "tuple":
                    self.assertEqual(a[1][1:], [None, 3])
                    self.assert_near([a[0], a[1][0]], [b[0], b[1][0]])
                elif kind == "dataclass":
                    self.assertEqual(a.note, "kept")
                    self.assert_near([a.loss, *a.hidden], [b.loss, *b.hidden])
                elif kind == "named":
                    self.assert_near([a.sum, a.product], [b.sum, b.product])
                else:
                    self.assertEqual(list(a), list(b))
                    self.assert_near([a.loss, a.logits], [b.loss, b.logits])

    def test_results_that_are_arguments_stay_themselves(self):
        class Through(nn.Module):
            def forward(self, x):
                return x, x * 2, x

        x = torch.randn(3, requires_grad=True)
        a, b, c = Module(Through())(x)
        self.assertIs(a, x)
        self.assertIs(c, x)
        self.assert_near(b, x * 2)

    def test_detached_and_integer_results_have_no_gradient(self):
        class Mixed(nn.Module):
            def __init__(self):
                super().__init__()
                self.below, self.head = nn.Linear(4, 5), nn.Linear(5, 2)

            def forward(self, x):
                h = self.below(x)
                with torch.no_grad():
                    mean = h.mean(1, keepdim=True)
                with torch.set_grad_enabled(False):
                    scale = h.abs().max()
                with torch.set_grad_enabled(True):
                    y = (h - mean).sum() / scale
                return self.head(h.detach()), y, h.argmax(1), h.detach()

        mine, theirs = twins(Mixed)
        x = torch.randn(3, 4)
        a, b = mine(x), theirs(x)
        self.assertEqual([t.requires_grad for t in a], [t.requires_grad for t in b])
        self.assert_near([t.double() for t in a], [t.double() for t in b])
        for r in (a, b):
            (r[0].sum() + r[1]).backward()
        self.assert_same_gradients(mine, theirs)

    def test_non_contiguous_arguments(self):
        mine, theirs = twins(mlp)
        x = torch.randn(6, 4, requires_grad=True)
        mine(x.t()).sum().backward()
        got, x.grad = x.grad, None
        theirs(x.t()).sum().backward()
        self.assert_near(got, x.grad)

    def test_non_tensor_arguments_are_part_of_the_key(self):
        class Power(nn.Module):
            def forward(self, x, n, flag):
                return x**n if flag else x * n

        module, x = Module(Power()), torch.rand(3) + 0.5
        for n, flag in ((2, True), (3, True), (2, False), (2.0, False), (2, False)):
            self.assert_near(module(x, n, flag), x**n if flag else x * n)


class Loops(Case):
    def run_loop(self, mine, theirs, batches, loss_of, steps=200, tolerance=2e-4, **options):
        curves = []
        for model in (mine, theirs):
            optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
            losses = []
            for step in range(steps):
                optimizer.zero_grad()
                loss = loss_of(model, batches[step % len(batches)])
                loss.backward()
                optimizer.step()
                losses.append(float(loss.detach()))
            curves.append(losses)
        worst_step = max(abs(a - b) / max(abs(b), 1e-3) for a, b in zip(*curves))
        self.assertLess(worst_step, tolerance)
        self.assertLess(curves[0][-1], curves[0][0])
        return curves

    def test_gpt_200_steps_in_f64(self):
        torch.manual_seed(1)
        batches = [(torch.randint(0, 31, (2, 8)), torch.randint(0, 31, (2, 8))) for _ in range(4)]
        mine, theirs = twins(lambda: Gpt().double())
        self.run_loop(mine, theirs, batches, lambda model, batch: model(batch[0], labels=batch[1])["loss"], tolerance=1e-8)

    def test_gpt_200_steps(self):
        torch.manual_seed(1)
        batches = [(torch.randint(0, 31, (2, 8)), torch.randint(0, 31, (2, 8))) for _ in range(4)]
        mine, theirs = twins(Gpt)
        self.run_loop(mine, theirs, batches, lambda model, batch: model(batch[0], labels=batch[1])["loss"], tolerance=2e-2)

    def test_bert_200_steps(self):
        torch.manual_seed(2)
        tokens = torch.randint(1, 31, (3, 2, 8))
        tokens[:, 1, 6:] = 0
        words = torch.where(torch.rand(3, 2, 8) < 0.3, torch.randint(0, 31, (3, 2, 8)), torch.tensor(-100))
        words[:, :, 0] = 5
        batches = [(tokens[i], torch.randint(0, 3, (2,)), words[i]) for i in range(3)]
        mine, theirs = twins(Bert)
        self.run_loop(mine, theirs, batches, lambda model, batch: model(*batch)[0], tolerance=2e-2)
        self.assertEqual(float(mine.words.weight.grad[0].abs().max()), 0.0)  # the row of padding

    def test_batch_norm_statistics(self):
        mine, theirs = twins(Cnn)
        for _ in range(4):
            image = torch.randn(4, 3, 8, 8)
            for model in (mine, theirs):
                model.zero_grad()
                model(image).square().sum().backward()
            self.assert_same_gradients(mine, theirs, 1e-4)
        for (name, a), b in zip(mine.named_buffers(), theirs.buffers()):
            self.assertEqual(a.dtype, b.dtype)
            self.assertLessEqual(worst([a.double()], [b.double()]), 1e-5, name)
        mine.eval(), theirs.eval()
        with torch.no_grad():
            self.assert_near(mine(image), theirs(image), 1e-4)
        mine.train(), theirs.train()
        mine.body[1].eval(), theirs.body[1].eval()  # frozen statistics in a training model
        for _ in range(2):
            self.assert_near(mine(image), theirs(image), 1e-4)
        self.assert_near(mine.body[1].running_mean, theirs.body[1].running_mean)

    def test_buffers_that_forward_changes(self):
        class Average(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(3, 3)
                self.register_buffer("average", torch.zeros(3))
                self.register_buffer("calls", torch.tensor(0))

            def forward(self, x):
                y = self.linear(x)
                self.average.mul_(0.9).add_(0.1 * y.detach().mean(0))
                self.calls += 1
                return y - self.average

        mine, theirs = twins(Average)
        for _ in range(3):
            x = torch.randn(5, 3)
            self.assert_near(mine(x), theirs(x))
        self.assert_near(mine.average, theirs.average)
        self.assertEqual(int(mine.calls), 3)

    def test_buffers_that_the_script_changes(self):
        class Scaled(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("scale", torch.ones(3))

            def forward(self, x):
                return x * self.scale

        module, x = Module(Scaled()), torch.randn(3)
        for value in (1.0, 1.0, 2.0, 3.0, 4.0):
            module.scale.fill_(value)
            self.assert_near(module(x), x * value)
        self.assertLessEqual(len(module._gradloom._entries), 2)


class Autograd(Case):
    def setUp(self):
        self.mine, self.theirs = twins(mlp)
        self.x = torch.randn(4, 6)

    def both(self, use):
        for model in (self.mine, self.theirs):
            model.zero_grad()
            use(model)
        self.assert_same_gradients(self.mine, self.theirs)

    def test_accumulation(self):
        def use(model):
            for i in range(3):
                (model(self.x + i).square().mean() / 3).backward()

        self.both(use)

    def test_two_forwards_before_one_backward(self):
        self.both(lambda model: (model(self.x) * model(self.x + 1)).sum().backward())

    def test_backward_in_another_order(self):
        def use(model):
            losses = [model(self.x + i).square().sum() for i in range(3)]
            for loss in (losses[1], losses[2], losses[0]):
                loss.backward()

        self.both(use)

    def test_two_losses_of_one_forward(self):
        def use(model):
            y = model(self.x)
            y.sum().backward(retain_graph=True)
            y.square().sum().backward()

        self.both(use)

    def test_a_second_backward_is_an_error(self):
        loss = self.mine(self.x).sum()
        loss.backward()
        with self.assertRaisesRegex(RuntimeError, "second time"):
            loss.backward()

    def test_parameters_changed_between_forward_and_backward_are_an_error(self):
        loss = self.mine(self.x).sum()
        with torch.no_grad():
            next(self.mine.parameters()).add_(1)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()

    def test_gradients_by_some_results_only(self):
        def use(model):
            for _ in range(3):
                hidden, y = model(self.x)
                y.sum().backward()
            hidden, y = model(self.x)
            (hidden.square().sum() + y.sum()).backward()
            hidden, y = model(self.x)
            hidden.sum().backward()

        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(6, 5), nn.Linear(5, 2)

            def forward(self, x):
                hidden = torch.tanh(self.a(x))
                return hidden, self.b(hidden)

        self.mine, self.theirs = twins(Two)
        self.both(use)

    def test_no_grad_and_inference(self):
        with torch.no_grad():
            y = self.mine(self.x)
        self.assertFalse(y.requires_grad)
        self.assert_near(y, self.theirs(self.x))
        with torch.inference_mode():
            self.assert_near(self.mine(self.x), self.theirs(self.x))

    def test_frozen_parameters(self):
        for model in (self.mine, self.theirs):
            model[0].weight.requires_grad_(False)
        self.both(lambda model: model(self.x).sum().backward())
        for model in (self.mine, self.theirs):
            model[0].weight.requires_grad_(True)
        self.both(lambda model: model(self.x).sum().backward())

    def test_autograd_grad_by_some_inputs(self):
        x = self.x.clone().requires_grad_()
        got = torch.autograd.grad(self.mine(x).sum(), [x])
        self.assert_near(got, torch.autograd.grad(self.theirs(x).sum(), [x]))

    def test_a_second_derivative_is_refused(self):
        x = self.x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(self.mine(x).sum(), [x], create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "first derivatives only"):
            gradient.square().sum().backward()

    def test_several_wrapped_modules_and_torch_between(self):
        torch.manual_seed(4)
        body, head = nn.Linear(6, 5), nn.Linear(5, 2)
        wrapped = nn.Sequential(Module(copy.deepcopy(body)), nn.Tanh(), Module(copy.deepcopy(head)))
        plain = nn.Sequential(body, nn.Tanh(), head)
        self.assertEqual(list(wrapped.state_dict()), list(plain.state_dict()))
        for model in (wrapped, plain):
            model(self.x).square().sum().backward()
        self.assert_same_gradients(wrapped, plain)

    def test_checkpoint_around_it(self):
        options = {"use_reentrant": False} if int(torch.__version__.split(".")[0]) >= 2 else {}
        x = self.x.clone().requires_grad_()
        self.both(lambda model: torch.utils.checkpoint.checkpoint(model, x, **options).sum().backward())

    def test_hooks_on_parameters_and_results(self):
        seen = []
        self.mine[0].bias.register_hook(lambda gradient: seen.append(gradient.shape))
        y = self.mine(self.x)
        y.register_hook(lambda gradient: 2 * gradient)
        y.sum().backward()
        self.theirs(self.x).sum().mul(2).backward()
        self.assertEqual(seen, [(8,)])
        self.assert_same_gradients(self.mine, self.theirs)

    def test_gradients_stay_what_they_were(self):
        self.mine(self.x).sum().backward()
        first = self.mine[0].weight.grad
        kept = first.clone()
        self.mine.zero_grad(set_to_none=True)
        self.mine(self.x * 2).sum().backward()
        self.assertTrue(torch.equal(first, kept))


class Randomness(Case):
    def test_dropout_follows_torchs_generator(self):
        module = Module(nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5)))
        x = torch.randn(4, 8)
        torch.manual_seed(11)
        a, b = module(x), module(x)
        torch.manual_seed(11)
        c = module(x)
        self.assertTrue(torch.equal(a, c))
        self.assertFalse(torch.equal(a, b))
        self.assertTrue(0.3 < float((a == 0).float().mean()) < 0.7)
        module.eval()
        self.assertTrue(bool((module(x) != 0).all()))

    def test_backward_has_the_masks_of_its_forward(self):
        module = Module(nn.Dropout(0.5))
        x = torch.ones(50, requires_grad=True)
        ys = [module(x) for _ in range(3)]
        for y in (ys[1], ys[0], ys[2]):
            (gradient,) = torch.autograd.grad(y.sum(), [x], retain_graph=True)
            self.assertTrue(torch.equal(gradient, y.detach()))
            (gradient,) = torch.autograd.grad(y.sum(), [x])  # computed anew
            self.assertTrue(torch.equal(gradient, y.detach()))

    def test_checkpoint_repeats_the_masks(self):
        module = Module(nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5)))
        options = {"use_reentrant": False} if int(torch.__version__.split(".")[0]) >= 2 else {}
        x = torch.ones(3, 6, requires_grad=True)
        y = torch.utils.checkpoint.checkpoint(module, x, **options)
        y.sum().backward()
        kept = (y.detach() != 0).float()
        self.assert_near(module[0].bias.grad, 2 * kept.sum(0))


class Precision(Case):
    def test_autocast(self):
        mine, theirs = twins(lambda: nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 8)))
        x = torch.randn(16, 64)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            low = mine(x)
        exact = theirs(x)
        self.assertEqual(low.dtype, torch.bfloat16)
        error = worst([low], [exact])
        self.assertTrue(1e-6 < error < 3e-2, error)
        low.float().square().mean().backward()
        exact.square().mean().backward()
        self.assertEqual(mine[0].weight.grad.dtype, torch.float32)
        self.assert_same_gradients(mine, theirs, 5e-2)
        self.assert_near(mine(x), exact)  # outside: f32 again

    def test_each_state_of_autocast_has_one_plan(self):
        mine, theirs = twins(lambda: nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3)))
        x = torch.randn(5, 6)
        with support.counted_calls("module_open_bytes") as made:
            for index in range(8):
                low = index % 2 == 0
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
                    self.assert_near(mine(x).float(), theirs(x).float(), 3e-2 if low else 1e-5)
        self.assertEqual(made["module_open_bytes"], 2)

    def test_results_under_autocast_have_pytorchs_types(self):
        """Losses stay f32, what products give is bf16, arguments stay themselves; of batches of other sizes, too, and with Dropout and buffers."""

        class Many(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.norm, self.second = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)

            def forward(self, x, labels):
                h = nn.functional.dropout(self.first(x), 0.5, self.training)
                y = self.second(self.norm(h))
                return {"loss": nn.functional.cross_entropy(y, labels), "y": y, "again": (y, y.softmax(-1)), "x": x, "h": h, "most": y.argmax(-1)}

        mine, theirs = twins(Many)
        for training in (True, False):
            for count in (4, 7, 9, 5):
                mine.train(training), theirs.train(training)
                x, labels = torch.randn(count, 6), torch.randint(0, 3, (count,))
                before = [buffer.clone() for buffer in mine.buffers()]
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    state = torch.get_rng_state()
                    result = mine(x, labels)
                    self.assertFalse(training and torch.equal(state, torch.get_rng_state()))
                    results = result, theirs(x, labels)
                types = [[t.dtype for t in (r["loss"], r["y"], *r["again"], r["x"], r["h"], r["most"])] for r in results]
                self.assertEqual(*types)
                self.assertEqual(types[0][:2], [torch.float32, torch.bfloat16])
                self.assertIs(results[0]["x"], x)
                self.assertIs(results[0]["y"], results[0]["again"][0])
                (results[0]["loss"] + results[0]["h"].float().mean()).backward()
                moved = [int((a != b).any()) for a, b in zip(before, mine.buffers())]
                self.assertEqual(moved, [int(training)] * 3)
                self.assertEqual(int(mine.norm.num_batches_tracked), int(theirs.norm.num_batches_tracked))
        with torch.autocast("cpu", dtype=torch.bfloat16):  # the same parameters in PyTorch, in the same block, have gradients
            mine.first.weight.grad = None
            mine(torch.randn(3, 6), torch.zeros(3, dtype=torch.int64))
            mine.module.first(torch.randn(2, 6)).float().sum().backward()
        self.assertGreater(float(mine.first.weight.grad.abs().sum()), 0)

    def test_loss_scaling(self):
        mine, theirs = twins(mlp)
        x = torch.randn(4, 6)
        (mine(x).square().mean() * 1024).backward()
        theirs(x).square().mean().backward()
        for p in mine.parameters():
            p.grad /= 1024
        self.assert_same_gradients(mine, theirs)

    def test_double(self):
        mine, theirs = twins(mlp)
        mine.double(), theirs.double()
        x = torch.randn(4, 6, dtype=torch.float64)
        self.assert_near(mine(x), theirs(x), 1e-9)
        mine.float(), theirs.float()
        self.assert_near(mine(x.float()), theirs(x.float()))


class Budgets(Case):
    def test_a_memory_budget_changes_no_number(self):
        torch.manual_seed(1)
        model, x = Gpt(width=32, layers=4, dropout=0.1), torch.randint(0, 31, (8, 12))

        def trained(**words):
            module = Module(copy.deepcopy(model), **words)
            torch.manual_seed(3)
            loss = module(x, x)["loss"]
            loss.backward()
            (entry,) = module._gradloom._entries.values()
            return [loss.detach(), *(p.grad for p in module.parameters())], entry.steps.plan(entry.steps.expected).bytes

        plain, most = trained()
        sizes = [p.numel() * 4 for p in model.parameters()]
        for keeps in (0.8, 0.5):
            budget = 2 * sum(sizes) + int(keeps * most) + 8 * 12 * 31 * 8
            found, taken = trained(memory_budget=str(budget))
            self.assertLess(taken, most)
            for mine, theirs in zip(found, plain):
                self.assertTrue(torch.equal(mine, theirs))
        recipe = {"gradloom_recipe": 1, "model": {"path": "model.onnx"}, "passes": [], "recompute": ["Erf", "Div", "Mul"]}
        same, without = trained(recipe={**recipe, "recompute": []})
        again, taken = trained(recipe=recipe)
        self.assertLess(taken, without)
        self.assertTrue(all(torch.equal(mine, theirs) for mine, theirs in zip(again, same)))
        with self.assertRaisesRegex(gradloom.Error, "memory budget of 1.00 KiB cannot be met"):
            trained(memory_budget="1KiB")
        with self.assertRaisesRegex(gradloom.Error, "no size of memory"):
            trained(memory_budget="much")
        copied = pickle.loads(pickle.dumps(Module(nn.Linear(2, 2), memory_budget="1GiB")))
        self.assertEqual(copied._gradloom.memory_budget, "1GiB")


class Vocabulary(Case):
    def test_a_loss_alone_of_many_words(self):
        """The logits are no result, and never whole: what makes them and the loss is one operator, whose gradient comes later."""
        class Words(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.head = nn.Embedding(3000, 16), nn.Linear(16, 3000)

            def forward(self, tokens, labels):
                return nn.functional.cross_entropy(self.head(self.words(tokens)).flatten(0, 1), labels.flatten(), ignore_index=-100)

        mine, theirs = twins(Words)
        tokens, labels = torch.randint(3000, (2, 8, 128), generator=torch.Generator().manual_seed(1)).unbind()
        labels[0, 5] = -100
        losses = [3 * model(tokens, labels) for model in (mine, theirs)]
        for loss in losses:
            loss.backward()
        self.assert_near(losses[0].detach(), losses[1].detach())
        self.assert_same_gradients(mine, theirs, 1e-4)


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)
    sys.exit(unittest.main(verbosity=1))
