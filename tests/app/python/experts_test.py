#!/usr/bin/env python3
"""Mixtures of experts: tokens sorted by the expert that they are sent to, and products of groups of rows whose sizes the data decide.

GRADLOOM_LIBRARY names the library, GRADLOOM_PROGRAM the program. Exits with 77 (skipped) where there is no PyTorch.
"""

import copy
import json
import os
import subprocess
import tempfile
import unittest

import support
import torch
from gradloom.torch import Module, TrainStep, capture
from support import worst
from torch import nn
from torch.nn import functional as F

PROGRAM = os.environ.get("GRADLOOM_PROGRAM", "gradloom")


def groups_of(ends, rows):
    begin = 0
    for group, end in enumerate(ends.tolist()):
        end = min(max(begin, end), rows)
        yield group, begin, end
        begin = end


def grouped_mm(a, b, ends):
    """What Hugging Face's models call where PyTorch has no grouped_mm for the types at hand; it is theirs once transformers is imported."""
    out = a.new_zeros(a.shape[0], b.shape[2])
    for group, begin, end in groups_of(ends, a.shape[0]):
        out[begin:end] = a[begin:end] @ b[group]
    return out


_operators = torch.library.Library("transformers", "DEF")
_operators.define("grouped_mm_fallback(Tensor input, Tensor weight, Tensor offs) -> Tensor")
_operators.impl("grouped_mm_fallback", grouped_mm, "CPU")


class Experts(nn.Module):
    """Each token goes to `chosen` of the experts; sorted by expert, as models on GPUs compute it. loop: one expert after another."""

    def __init__(self, width=6, hidden=10, experts=4, chosen=2, bias=True):
        super().__init__()
        self.chosen, self.loop = chosen, False
        self.gate = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, hidden, width) * 0.3)
        self.up_bias = nn.Parameter(torch.randn(experts, hidden) * 0.1) if bias else None
        self.down = nn.Parameter(torch.randn(experts, hidden, width) * 0.3)

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        weights, picked = torch.topk(F.softmax(self.gate(tokens), -1), self.chosen, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = self.looped(tokens, weights, picked) if self.loop else self.grouped(tokens, weights, picked)
        return out.reshape(x.shape)

    def grouped(self, tokens, weights, picked):
        ids, order = torch.sort(picked.reshape(-1))
        experts = self.up.shape[0]
        counts = torch.histc(ids.to(tokens.dtype), bins=experts, min=0, max=experts - 1)
        ends = torch.cumsum(counts, 0).to(torch.int32)
        sorted_tokens = tokens[torch.div(order, self.chosen, rounding_mode="floor")]
        up = torch.ops.transformers.grouped_mm_fallback(sorted_tokens, self.up.transpose(-2, -1), ends)
        if self.up_bias is not None:
            up = up + self.up_bias[ids]
        down = torch.ops.transformers.grouped_mm_fallback(F.silu(up), self.down, ends)
        back = torch.argsort(order)
        return ((down * weights.reshape(-1)[order][:, None])[back]).reshape(tokens.shape[0], self.chosen, -1).sum(1)

    def looped(self, tokens, weights, picked):
        out = torch.zeros_like(tokens)
        for expert in range(self.up.shape[0]):
            up = tokens @ self.up[expert].t()
            if self.up_bias is not None:
                up = up + self.up_bias[expert]
            share = (weights * (picked == expert)).sum(-1, keepdim=True)
            out = out + share * (F.silu(up) @ self.down[expert])
        return out


class Mixture(nn.Module):
    def __init__(self, **sizes):
        super().__init__()
        self.words = nn.Embedding(23, 6)
        self.layers = nn.ModuleList(Experts(**sizes) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(6), nn.Linear(6, 23)

    def forward(self, tokens, labels):
        x = self.words(tokens)
        for layer in self.layers:
            x = x + layer(self.norm(x))
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


def looped(model):
    """The same model whose experts are computed one after another, which autograd follows."""
    twin = copy.deepcopy(model)
    for module in twin.modules():
        if isinstance(module, Experts):
            module.loop = True
    return twin


def batch_of(seed, shape=(3, 7)):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(23, shape, generator=generator), torch.randint(23, shape, generator=generator)


class Gradients(support.Case):
    def check(self, dtype, tolerance, **sizes):
        torch.manual_seed(4)
        model = Mixture(**sizes).to(dtype)
        mine, theirs = Module(copy.deepcopy(model)), looped(model)
        for seed, shape in ((1, (3, 7)), (2, (3, 7)), (3, (2, 40))):
            batch = batch_of(seed, shape)
            results = [m(*batch) for m in (mine, theirs)]
            for m, loss in zip((mine, theirs), results):
                m.zero_grad()
                loss.backward()
            self.assert_near(results[0], results[1], tolerance)
            self.assert_same_gradients(mine, theirs, tolerance)

    def test_float64(self):
        self.check(torch.float64, 1e-9)
        self.check(torch.float64, 1e-9, chosen=1, bias=False)
        self.check(torch.float64, 1e-9, experts=9, chosen=3)  # some have no token

    def test_float32(self):
        self.check(torch.float32, 1e-4)

    def test_under_autocast(self):
        torch.manual_seed(4)
        model = Mixture(width=6, hidden=32)
        mine, theirs = Module(copy.deepcopy(model)), looped(model)
        batch = batch_of(1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = mine(*batch)
        loss.backward()
        theirs(*batch).backward()
        for (name, p), q in zip(mine.named_parameters(), theirs.parameters()):
            if "gate" not in name:  # a choice that rounding turns has another gradient
                self.assertLess(worst([p.grad], [q.grad], 1e-2), 0.1, name)


class Counts(support.Case):
    def test_histc(self):
        class Histogram(nn.Module):
            def forward(self, x, weight):
                return torch.histc(x, bins=5, min=-1.5, max=2.25), (x * weight).sum()

        generator = torch.Generator().manual_seed(2)
        x = torch.cat([torch.randn(60, generator=generator) * 2, torch.tensor([-1.5, 2.25, -0.75, 0.0, 1.5])])  # ends of intervals too
        weight = torch.ones(65, requires_grad=True)
        counts, _ = Module(Histogram())(x, weight)
        self.assertEqual(counts.tolist(), torch.histc(x, bins=5, min=-1.5, max=2.25).tolist())

    def test_limits_of_the_data_are_refused(self):
        class Histogram(nn.Module):
            def forward(self, x):
                return x * torch.histc(x.detach(), bins=3).sum()

        with self.assertRaisesRegex(support.gradloom.UnsupportedError, "histc without its limits"):
            Module(Histogram())(torch.rand(4, requires_grad=True))


class Operator(support.Case):
    """torch.nn.functional.grouped_mm itself."""

    def check(self, run, reference, *tensors):
        class Call(nn.Module):
            def forward(self, a, b, ends):
                return run(a, b, ends)

        mine, theirs = ([t.clone().requires_grad_(t.is_floating_point()) for t in tensors] for _ in range(2))
        weight = None
        for given, function in ((mine, Module(Call())), (theirs, reference)):
            result = function(*given)
            weight = torch.randn(result.shape, generator=torch.Generator().manual_seed(9)) if weight is None else weight
            (result * weight).sum().backward()
        self.assert_near([t.grad for t in mine[:2]], [t.grad for t in theirs[:2]])

    @unittest.skipUnless(hasattr(F, "grouped_mm"), "this PyTorch has no grouped_mm")
    def test_forms(self):
        torch.manual_seed(3)
        a, b, ends = torch.randn(16, 8), torch.randn(3, 8, 16), torch.tensor([4, 4, 16], dtype=torch.int32)
        call = lambda a, b, ends: F.grouped_mm(a, b, offs=ends)  # noqa: E731
        self.check(call, grouped_mm, a, b, ends)
        turned = lambda a, b, ends: F.grouped_mm(a, b.transpose(-2, -1), offs=ends)  # noqa: E731
        self.check(turned, lambda a, b, ends: grouped_mm(a, b.transpose(-2, -1), ends), a, torch.randn(3, 16, 8), ends)
        rows = lambda a, b, ends: F.grouped_mm(a.t(), b, offs=ends)  # noqa: E731
        self.check(rows, lambda a, b, ends: torch.stack([a[i:j].t() @ b[i:j] for _, i, j in groups_of(ends, 16)]), a, torch.randn(16, 8), ends)


class Jobs(support.Case):
    def test_train_step_is_the_loop(self):
        torch.manual_seed(4)
        model = Mixture().double()
        theirs = looped(model)
        optimizer = torch.optim.AdamW(theirs.parameters(), lr=1e-2)
        step = TrainStep(model, None, torch.optim.AdamW(model.parameters(), lr=1e-2))
        for seed in range(12):
            batch = batch_of(seed)
            optimizer.zero_grad()
            loss = theirs(*batch)
            loss.backward()
            optimizer.step()
            self.assert_near(torch.tensor(float(step.step(*batch)), dtype=torch.float64), loss.detach(), 1e-9)

    def test_captured(self):
        """The command's passes change nothing, with recompute neither, and its backward graph is one of standard operators."""
        torch.manual_seed(4)
        with tempfile.TemporaryDirectory() as folder:
            recipe = capture(Mixture(), [batch_of(seed) for seed in range(3)], optimizer="adamw{lr=1e-2}", folder=folder, steps=6)

            def run(*words):
                done = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
                return done.stdout

            self.assertIn("EQUAL", run("verify", "--recipe", recipe))
            losses = [[json.loads(line)["loss"] for line in run("train", "--recipe", recipe, "--json", *more).splitlines() if '"step"' in line]
                      for more in ((), ("--recompute", "GroupedMatMul"))]  # fmt: skip
            self.assertEqual(losses[0], losses[1])
            self.assertEqual(len(losses[0]), 6)


if __name__ == "__main__":
    unittest.main()
