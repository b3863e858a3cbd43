#!/usr/bin/env python3
"""Blocks of torch.autocast inside a forward: off under one that is on, on where none is, and one in another.

GRADLOOM_LIBRARY names the library, GRADLOOM_PROGRAM the program. Exits with 77 (skipped) where there is no PyTorch.
"""

import copy
import json
import sys
import unittest
import warnings

import support
import torch
from gradloom.torch import Module, TrainStep, _regions, capture
from job_test import Folder, torch_losses, train
from support import Case, counted_calls, twins, worst
from torch import nn
from torch.nn import functional as F

gradloom = support.gradloom
LOW = torch.bfloat16
HAS_F16 = hasattr(torch, "get_autocast_dtype")  # autocast of the CPU has it from PyTorch 2.4 on


def off():
    return torch.autocast("cpu", enabled=False)


def on(dtype=LOW):
    return torch.autocast("cpu", dtype)


def is_on():
    return torch.is_autocast_enabled("cpu") if hasattr(torch, "get_autocast_dtype") else torch.is_autocast_cpu_enabled()


class Rotary(nn.Module):
    """As Hugging Face's LlamaRotaryEmbedding up to transformers 4: angles in f32, whatever is around it."""

    def __init__(self, width=16):
        super().__init__()
        self.register_buffer("frequencies", 1.0 / 10000 ** (torch.arange(0, width, 2).float() / width))

    def forward(self, x, places):
        inverse = self.frequencies[None, :, None].float().expand(places.shape[0], -1, 1)
        with off():
            angles = (inverse.float() @ places[:, None, :].float()).transpose(1, 2)
            both = torch.cat((angles, angles), -1)
            cos, sin = both.cos(), both.sin()
        return cos.to(x.dtype), sin.to(x.dtype)


class Attends(nn.Module):
    """Projections as autocast has them, scores in f32 by rotary embeddings, their softmax's product again as autocast has it."""

    def __init__(self, width=16):
        super().__init__()
        self.rotary, self.qkv, self.out = Rotary(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, places):
        cos, sin = self.rotary(x, places)
        q, k, v = self.qkv(x).chunk(3, -1)
        q, k = (t * cos + torch.cat((-t[..., 8:], t[..., :8]), -1) * sin for t in (q, k))
        with off():
            scores = q.float() @ k.float().transpose(-1, -2) / 4
        return self.out(scores.softmax(-1) @ v.float()), scores


class Layers(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(width, width) for _ in range(3))


class Thrice(Layers):
    """A block in a block in a block, and `a` in two of them."""

    def forward(self, x):
        y = self.a(x)
        with off():
            z = self.b(x)
            with on():
                u = self.c(z)
                with off():
                    v = self.b(u.float()) + self.a(x)
        return y, z, u, v, self.a(2 * x)


class Twice(Layers):
    """A submodule with a block of its own, called in f32 and as autocast has it."""

    class Inner(Layers):
        def forward(self, x):
            y = self.a(x)
            with off():
                return self.b(y.float()), y

    def __init__(self):
        super().__init__()
        self.inner = self.Inner()

    def forward(self, x):
        with off():
            exact = self.inner(x)
        return exact + self.inner(x)


class Inner16(Layers):
    """16 bits in one block alone."""

    def forward(self, x):
        before = self.a(x).tanh()
        with on():
            low = self.b(before)
            full = low.softmax(-1)
        return before, low, full.float(), self.c(low.float())


class Parts(Layers):
    """What exporters make one node of crosses the border of a block."""

    def forward(self, x):
        with off():
            product = torch.mm(x, self.a.weight)
        y = product + self.a.bias
        z = torch.mm(x, self.b.weight)
        with off():
            return y, z.float() + self.b.bias


class Asks(Layers):
    def forward(self, x):
        if is_on():
            with off():
                return self.a(x)
        return self.b(x).tanh()


def run(model, low, *args):
    with torch.autocast("cpu", LOW, enabled=low):
        found = model(*args)
    return found if isinstance(found, tuple) else (found,)


class Compared(Case):
    """Each result as PyTorch's: its type, and its numbers as near as that type allows."""

    def assert_results(self, mine, theirs, low, *args, exact):
        """exact: the results that are in f32 from the arguments on; None: all."""
        found, expected = run(mine, low, *args), run(theirs, low, *args)
        self.assertEqual([t.dtype for t in found], [t.dtype for t in expected])
        for index, (a, b) in enumerate(zip(found, expected)):
            self.assertLessEqual(worst([a], [b]), 2e-6 if exact is None or index in exact else 1e-2, (index, low))
        for model, results in ((mine, found), (theirs, expected)):
            model.zero_grad()
            sum((t.float() ** 2).mean() for t in results if t.requires_grad).backward()
        self.assert_same_gradients(mine, theirs, 1e-4 if exact is None else 3e-2)

    @staticmethod
    def entries(module):
        return list(module._gradloom._entries.values())

    def precisions(self, module):
        return [_regions.precision_of(e.exported.model, e.steps._words.cast, e.exported.all_f64) for e in self.entries(module)]


class Results(Compared):
    def test_rotary_embeddings(self):
        x, places = torch.randn(2, 12, 16), torch.arange(3000, 3012).repeat(2, 1)
        mine, theirs = twins(Rotary)
        for low in (True, False):
            for a, b in zip(run(mine, low, x, places), run(theirs, low, x, places)):
                self.assertEqual(a.dtype, b.dtype)
                self.assertLessEqual(worst([a], [b]), 1e-6)  # in bf16 the angles of such places are wrong by whole turns
        mine, theirs = twins(Attends)
        for low in (True, False):
            self.assert_results(mine, theirs, low, x, places, exact=() if low else None)
            names = [name for name, _ in gradloom._onnx_file.names(self.entries(mine)[-1].exported.model)]
            self.assertIn("/rotary/autocast.off/MatMul", names)
        self.assertEqual(self.precisions(mine), ["bf16{list=autocast; full=*/autocast.off/*}", None])

    def test_three_levels(self):
        mine, theirs = twins(Thrice)
        for low in (True, False):
            self.assert_results(mine, theirs, low, torch.randn(6, 32), exact=(1,))
        self.assertEqual(self.precisions(mine), [
            "bf16{list=autocast; full=/autocast.off/b/Gemm,/autocast.off/autocast.bf16/autocast.off/*}",
            "bf16{list=autocast; within=*/autocast.bf16/*; full=/autocast.off/autocast.bf16/autocast.off/*}"])

    def test_a_submodule_called_in_both(self):
        mine, theirs = twins(Twice)
        for low in (True, False):
            self.assert_results(mine, theirs, low, torch.randn(6, 32), exact=(0, 1) if low else None)

    def test_a_block_in_16_bits(self):
        mine, theirs = twins(Inner16)
        for low in (True, False):
            self.assert_results(mine, theirs, low, torch.randn(6, 32), exact=() if low else (0,))
        x = torch.randn(6, 32)
        with torch.no_grad(), support.mock.patch.object(gradloom.torch._export, "_run_exporter", wraps=gradloom.torch._export._run_exporter) as traced:
            before, low, _, after = mine(x)
            self.assertEqual(traced.call_count, 1)
            self.assertEqual((low.dtype, after.dtype), (LOW, torch.float32))
            self.assertGreater(worst([low], [theirs.b(before)]), 1e-4)  # it is bf16
            self.assertLess(worst([after], [theirs.c(low.float())]), 1e-6)

    def test_what_exporters_merge(self):
        mine, theirs = twins(Parts)
        self.assert_results(mine, theirs, True, torch.randn(6, 32), exact=(0,))
        self.assert_results(mine, theirs, False, torch.randn(6, 32), exact=(0, 1))

    def test_blocks_of_one_forward(self):
        """Of one name, and with the same operators."""

        class Apart(Layers):
            def forward(self, x):
                with off():
                    first = x @ self.a.weight
                low = self.b(x)
                with off():
                    second = (x @ self.c.weight).relu()
                with off():
                    third = F.dropout(x @ self.c.weight, 0.0)
                return first, low, second, third

        mine, theirs = twins(Apart)
        for low in (True, False):
            self.assert_results(mine, theirs, low, torch.randn(6, 32), exact=(0, 2, 3))
        names = [name for name, _ in gradloom._onnx_file.names(self.entries(mine)[0].exported.model)]
        self.assertEqual(len(set(names)), len(names))

    def test_decorated_methods_and_older_names(self):
        class Decorated(Layers):
            @torch.autocast("cpu", enabled=False)
            def full(self, x):
                return self.b(x)

            def forward(self, x):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    block = torch.cpu.amp.autocast(enabled=False)
                with block:
                    return self.full(x), self.c(x)

        mine, theirs = twins(Decorated)
        for low in (True, False):
            self.assert_results(mine, theirs, low, torch.randn(6, 32), exact=None)

    def test_python_that_asks(self):
        mine, theirs = twins(Asks)
        for low in (True, False, True):
            self.assertLess(worst(run(mine, low, torch.ones(6, 32)), run(theirs, low, torch.ones(6, 32))), 1e-6)

    def test_f64_stays(self):
        class Low(Layers):
            def forward(self, x):
                with on():
                    y = self.b(self.a(x))
                return y, self.c(y)

        mine, theirs = (copy.deepcopy(model).double() for model in twins(Low))
        for low in (True, False):
            x = torch.randn(6, 32, dtype=torch.float64)
            for a, b in zip(run(mine, low, x), run(theirs, low, x)):
                self.assertEqual((a.dtype, b.dtype), (torch.float64, torch.float64))
                self.assertLess(worst([a], [b]), 1e-12)

    def test_other_sizes_follow(self):
        mine, theirs = twins(Thrice)
        with support.mock.patch.object(gradloom.torch._module, "export", wraps=gradloom.torch._module.export) as traced:
            for rows in (5, 7, 9, 11, 13):
                self.assert_results(mine, theirs, True, torch.randn(rows, 32), exact=(1,))
            self.assertLess(traced.call_count, 5)

    def test_both_types_of_16_bits_are_refused(self):
        if not HAS_F16:
            self.skipTest("autocast of this PyTorch's CPU has bf16 alone")

        class Both(Layers):
            def forward(self, x):
                with on(torch.float16):
                    y = self.a(x)
                with on():
                    return y.float() + self.b(x).float()

        with self.assertRaisesRegex(gradloom.UnsupportedError, "parts under torch.autocast in bf16 and parts in f16"):
            Module(Both())(torch.randn(4, 32))

    def test_setting_it_by_hand_is_refused(self):
        class Sets(Layers):
            def forward(self, x):
                before = torch.is_autocast_cpu_enabled()
                torch.set_autocast_cpu_enabled(False)
                try:
                    return self.a(x)
                finally:
                    torch.set_autocast_cpu_enabled(before)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            with self.assertRaisesRegex(gradloom.UnsupportedError, "set_autocast_cpu_enabled, which no trace follows: use a block of torch.autocast"):
                Module(Sets())(torch.randn(4, 32))
            self.assertFalse(torch.is_autocast_cpu_enabled())


class Reads(nn.Module):
    """Python reads a number: it runs in PyTorch."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(32, 32)

    def forward(self, x):
        return self.lin(x) if float(x.detach().sum()) < 1e9 else x


class Around(Layers):
    """What runs in PyTorch is in a block, and once in none."""

    def __init__(self):
        super().__init__()
        self.reads = Reads()

    def forward(self, x):
        y = self.a(x)
        with off():
            z = self.reads(y.float())
        return self.b(z), z, self.reads(x)


class Outside(Compared):
    def test_parts_in_pytorch(self):
        mine, theirs = twins(Around)
        mine = Module(mine.module, fallback="torch")
        for low in (True, False):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.assert_results(mine, theirs, low, torch.randn(6, 32), exact=() if low else None)
        x = torch.randn(6, 32)
        with torch.no_grad():
            z = run(mine, True, x)[1]
            self.assertLess(worst([z], [theirs.reads.lin(run(theirs.a, True, x)[0].float())]), 1e-6)

    def test_a_step_that_calls_them(self):
        torch.manual_seed(1)
        model = Around()
        other, batches = copy.deepcopy(model), [(torch.randn(6, 32), torch.randn(6, 32)) for _ in range(2)]

        def loss(results, target):
            return F.mse_loss(results[1].float() + results[0].float(), target)

        step = TrainStep(model, loss, torch.optim.SGD(model.parameters(), lr=0.1), fallback="torch")
        optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
        with warnings.catch_warnings(), torch.autocast("cpu", LOW):
            warnings.simplefilter("ignore")
            mine = [step.step(*batches[i % 2]) for i in range(6)]
        theirs = torch_losses(other, batches, under(True, loss), optimizer, 6)
        self.assertLess(max(abs(a - b) for a, b in zip(mine, theirs)), 5e-3)


def of_last(results, target):
    with off():
        return F.mse_loss(results[-1].float(), target)


def under(low, loss):
    """A step's loss under autocast of its own, whose end drops the casts that it keeps of parameters."""

    def of(model, batch):
        with torch.autocast("cpu", LOW, enabled=low):
            return loss(model(batch[0]), batch[1])

    return of


class Steps(Folder):
    def both(self, make, low, count=8):
        """Losses of TrainStep, of PyTorch under the same autocast, and in f32 throughout."""
        torch.manual_seed(1)
        model = make()
        other, exact = copy.deepcopy(model), copy.deepcopy(model)
        batches = [(torch.randn(6, 32), torch.randn(6, 32)) for _ in range(2)]
        step = TrainStep(model, of_last, torch.optim.SGD(model.parameters(), lr=0.1))
        with torch.autocast("cpu", LOW, enabled=low):
            mine = [step.step(*batches[i % 2]) for i in range(count)]
            recipe = capture(exact, batches, of_last, torch.optim.SGD(exact.parameters(), lr=0.1), self.folder, steps=count)
        theirs = torch_losses(other, batches, under(low, of_last), torch.optim.SGD(other.parameters(), lr=0.1), count)
        return mine, theirs, recipe, step

    def test_as_pytorch(self):
        around, alone = "bf16{list=autocast; full=*/autocast.off/*}", "bf16{list=autocast; within=*/autocast.bf16/*}"
        for make, low, tolerance, expected in ((Twice, True, 2e-3, around), (Twice, False, 1e-5, "f32"), (Inner16, True, 2e-3, around),
                                               (Inner16, False, 3e-4, alone)):  # fmt: skip
            mine, theirs, recipe, step = self.both(make, low)
            self.assertLess(max(abs(a - b) / b for a, b in zip(mine, theirs)), tolerance, (make, low))
            with open(recipe, encoding="utf-8") as file:
                said = json.load(file)["precision"]
            self.assertEqual(said, step._precision)
            self.assertEqual((make, low, said), (make, low, expected))
            self.assert_curves(train(recipe), mine, 1e-6)

    def test_losses_are_in_f32(self):
        """Also those that are made of several operators, which follow what they read: 8 bits of a loss would be seen at once."""
        torch.manual_seed(1)
        x, target = torch.randn(64, 32), torch.rand(64, 32)
        for loss in (F.mse_loss, F.l1_loss, nn.SmoothL1Loss(), nn.HuberLoss(), F.binary_cross_entropy_with_logits,
                     lambda y, t: F.kl_div(F.log_softmax(y, -1), t, reduction="batchmean")):  # fmt: skip
            model = Layers().a
            other = copy.deepcopy(model)
            step = TrainStep(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))
            optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
            for low in (True, False, True, True):
                with torch.autocast("cpu", LOW, enabled=low):
                    mine = step.step(x, target)
                (theirs,) = torch_losses(other, [(x, target)], under(low, lambda y, t, loss=loss: loss(y.float(), t)), optimizer, 1)
                self.assertLess(abs(mine - theirs) / theirs, 1e-4 if low else 1e-5, (loss, low))
        with torch.autocast("cpu", LOW), torch.no_grad():
            found = Module(nn.MSELoss())(x.bfloat16(), target)
        self.assertLess(worst([found], [F.mse_loss(x.bfloat16().float(), target)]), 1e-6)

    def test_one_trace_for_both_states(self):
        """The names of a file tell the blocks, and what is around them the precision of the rest."""
        torch.manual_seed(1)
        model, batch = Twice(), (torch.randn(6, 32), torch.randn(6, 32))
        other = copy.deepcopy(model)
        optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
        step = TrainStep(model, of_last, torch.optim.SGD(model.parameters(), lr=0.1))
        exported = gradloom.torch._train_step.export_step
        with support.mock.patch.object(gradloom.torch._train_step, "export_step", wraps=exported) as traced, counted_calls("job_sizes") as made:
            for low in (False, True, False, True):
                with torch.autocast("cpu", LOW, enabled=low):
                    mine = step.step(*batch)
                (theirs,) = torch_losses(other, [batch], under(low, of_last), optimizer, 1)
                self.assertLess(abs(mine - theirs), 3e-3 if low else 1e-3)
            self.assertEqual((traced.call_count, made["job_sizes"]), (0, 1))

    def test_a_trace_for_each_answer(self):
        torch.manual_seed(1)
        model, batch = Asks(), (torch.randn(6, 32), torch.randn(6, 32))
        other = copy.deepcopy(model)

        def loss(result, target):
            return of_last((result,), target)

        optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
        step = TrainStep(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))
        for low in (False, True, False, True):
            with torch.autocast("cpu", LOW, enabled=low):
                mine = step.step(*batch)
            (theirs,) = torch_losses(other, [batch], under(low, loss), optimizer, 1)
            self.assertLess(abs(mine - theirs), 1e-5)

    def test_a_recipe_of_the_job_in_the_script(self):
        """Blocks that only the loss has are none of the module's."""

        def with_a_block(results, target):
            with on():
                return F.mse_loss((results[0] @ results[0].t()).float(), target @ target.t())

        for make, objective in ((Inner16, of_last), (Twice, with_a_block)):
            torch.manual_seed(1)
            model, x = make(), torch.randn(6, 32)
            with open(capture(model, (x, x), objective, folder=self.folder), encoding="utf-8") as file:
                recipe = json.load(file)
            self.assertIn("within=*/autocast.bf16/*", recipe["precision"])
            with torch.no_grad():
                self.assertEqual([t.dtype for t in Module(model, recipe=recipe)(x)], [t.dtype for t in model(x)])
                self.assertEqual(worst(Module(model, recipe=recipe)(x), Module(model)(x)), 0.0)


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)
    sys.exit(unittest.main(verbosity=1))
