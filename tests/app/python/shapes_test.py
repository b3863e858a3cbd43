#!/usr/bin/env python3
"""gradloom.torch.Module with arguments whose sizes differ from call to call: few traces, and the same numbers as PyTorch.

GRADLOOM_LIBRARY names the library. Exits with 77 (skipped) where there is no PyTorch.
"""

import contextlib
import math
import random
import unittest
from unittest import mock

import support  # noqa: F401 finds the package
import torch
from gradloom.torch import Module, _export, _module, _shapes, _structure
from gradloom.torch._outside import Outside
from support import Bert, Case, Cnn, Gpt, twins, worst
from torch import nn
from torch.nn import functional as F

LENGTHS = [(4, 8), (4, 12), (4, 10), (4, 9), (3, 11), (4, 7), (3, 12), (3, 5), (2, 6), (2, 9), (4, 4), (3, 10)]


@contextlib.contextmanager
def counted():
    """How many traces are made."""
    traces = []
    original = _module.export

    def export(*words):
        traces.append(1)
        return original(*words)

    with mock.patch.object(_module, "export", export):
        yield traces


def trace(module, *arguments):
    tensors = []
    description = _structure.flatten((arguments, {}), tensors, "")
    return _export.export(module, description, tensors, set(), Outside(module), None)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.LSTM(5, 6, batch_first=True, bidirectional=True)
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        return self.head(self.cells(x)[0]).mean(1)


class Relative(nn.Module):
    """A table by distances, a mask and a mean, all made of sizes."""

    def __init__(self):
        super().__init__()
        self.bias, self.scale = nn.Embedding(40, 2), nn.Linear(5, 10)

    def forward(self, x):
        n, t, _ = x.shape
        q, k = self.scale(x).chunk(2, -1)
        distances = torch.arange(t)[None, :] - torch.arange(t)[:, None] + 20
        scores = (q @ k.transpose(1, 2))[:, None] + self.bias(distances).permute(2, 0, 1)
        mask = torch.ones(t, t, dtype=torch.bool).tril()
        scores = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        return (scores.reshape(n * 2, t, t) @ x.repeat_interleave(2, 0)).view(n, 2, t, 5)[:, :, 1:].sum(2)


def tokens(n, t):
    return (torch.randint(1, 31, (n, t)),)


def labelled(n, t):
    return torch.randint(1, 31, (n, t)), torch.randint(0, 3, (n,)), torch.randint(0, 31, (n, t))


def features(n, t):
    return (torch.randn(n, t, 5),)


def images(n, t):
    return (torch.randn(n, 3, 2 * t, 4 * t),)


NETWORKS = {"Gpt": (Gpt, tokens), "Bert": (Bert, labelled), "Cnn": (Cnn, images), "Recurrent": (Recurrent, features), "Relative": (Relative, features)}


class Files(Case):
    def test_what_follows_is_what_a_trace_writes(self):
        for name, (make, call) in NETWORKS.items():
            torch.manual_seed(1)
            module, family, followed = make(), _shapes.Family(), 0
            for n, t in LENGTHS:
                arguments = call(n, t)
                sizes = [size for tensor in arguments for size in tensor.shape]
                found, traced = family.exported(sizes), trace(module, *arguments)
                if found is None:
                    family.add(sizes, traced, [])
                else:
                    followed += 1
                    self.assertEqual(found.exported.model, traced.model, f"{name} {n} {t}")
                    self.assertEqual(found.exported.moved, traced.moved, f"{name} {n} {t}")
            self.assertGreaterEqual(followed, 6, name)

    def test_what_several_forms_explain_is_traced(self):
        def wanted(files, sizes, numbers):
            try:
                return _shapes.Sizes(files, sizes).wanted(numbers)
            except _shapes.Unknown:
                return None

        self.assertEqual(wanted([(4, 8), (4, 12)], (4, 10), (8, 12)), 10)
        self.assertEqual(wanted([(4, 8), (4, 12)], (4, 10), (9, 13)), 11)
        self.assertEqual(wanted([(4, 8), (4, 12)], (4, 10), (-8, -12)), -10)
        self.assertEqual(wanted([(4, 8), (4, 12)], (4, 10), (15, 23)), 19)
        self.assertEqual(wanted([(4, 8), (4, 12)], (4, 10), (2, 3)), None, "10 / 4")
        self.assertEqual(wanted([(4, 8), (4, 12)], (4, 10), (64, 144)), None, "t * t, or 20 t - 96")
        self.assertEqual(wanted([(4, 8), (4, 12), (4, 6)], (4, 10), (64, 144, 36)), 100)
        self.assertEqual(wanted([(4, 8), (4, 12)], (3, 10), (8, 12)), None, "the batch has been the same so far")
        self.assertEqual(wanted([(4, 8), (6, 12)], (3, 10), (8, 12)), None, "t, or 2 n")
        self.assertEqual(wanted([(4, 12), (6, 8)], (5, 10), (768, 768)), None, "768, or 16 n t")
        self.assertEqual(wanted([(4, 8), (3, 12), (6, 9)], (5, 10), (64, 72, 108)), 100)
        self.assertEqual(wanted([(4, 8), (3, 12), (6, 9)], (5, 10), (36, 39, 60)), 55, "n (t + 1)")
        self.assertEqual(wanted([(4, 8), (4, 12)], (4, 9), (8, 13)), None, "neither form")
        self.assertEqual(wanted([(4, 8), (4, 12)], (4, 3), (6, 10)), None, "1 broadcasts")


class Calls(Case):
    def agree(self, mine, theirs, arguments, where):
        for module in (mine, theirs):
            module.zero_grad()
        results = []
        for module in (mine, theirs):
            result = module(*arguments)
            result = result["logits"] if isinstance(result, dict) else result
            result = result if isinstance(result, tuple) else (result,)
            sum((r * r).sum() for r in result).backward()
            results.append((result, [p.grad for p in module.parameters()]))
        self.assertLess(worst(results[0][0], results[1][0]), 1e-4, where)
        self.assertLess(worst(results[0][1], results[1][1]), 1e-4, where)

    def test_networks(self):
        for name, (make, call) in NETWORKS.items():
            mine, theirs = twins(make)
            with counted() as traces:
                for n, t in LENGTHS:
                    self.agree(mine, theirs, call(n, t), f"{name} {n} {t}")
            self.assertLessEqual(len(traces), 6, name)
            for a, b in zip(mine.buffers(), theirs.buffers()):
                self.assertLess(worst([a.float()], [b.float()]), 1e-5, name)

    def test_in_f64_and_autocast(self):
        for dtype, cast in ((torch.float64, None), (torch.float32, torch.bfloat16)):
            mine, theirs = twins(lambda: Recurrent().to(dtype))
            with counted() as traces:
                for n, t in LENGTHS:
                    x = torch.randn(n, t, 5, dtype=dtype)
                    with torch.autocast("cpu", cast) if cast else contextlib.nullcontext():
                        found, wanted = mine(x), theirs(x)
                    self.assertLess(worst([found], [wanted]), 1e-12 if cast is None else 3e-2)
            self.assertLessEqual(len(traces), 6)

    def test_many_lengths_with_few_plans(self):
        torch.manual_seed(1)
        mine = Module(Recurrent(), plans=2)
        with counted() as traces:
            for t in (20, 10, 15, 12, 17, 13, 11, 19, 14, 16, 10, 20):
                self.assertEqual(mine(torch.randn(3, t, 5)).shape, (3, 3))
        self.assertLessEqual(len(traces), 3)

    def test_buffers_that_change_and_parameters_that_are_exchanged(self):
        class Shifted(nn.Module):
            def __init__(self):
                super().__init__()
                self.line = nn.Linear(5, 5)
                self.register_buffer("shift", torch.ones(5))

            def forward(self, x):
                return self.line(x) + self.shift

        mine, theirs = twins(Shifted)
        for step, t in enumerate((8, 12, 10, 9, 7, 11)):
            if step == 2:
                for module in (mine, theirs):
                    module.shift.mul_(3)
            if step == 4:
                for module in (mine, theirs):
                    module.line = nn.Linear(5, 5)
                mine.line.load_state_dict(theirs.line.state_dict())
            self.agree(mine, theirs, (torch.randn(3, t, 5),), step)


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.line, self.other = nn.Linear(5, 5), nn.Linear(5, 5)
        self.by_length = {6: 2.0, 9: 3.0}


def above(self, x):
    return self.line(x) * 2 if x.shape[1] > 9 else self.line(x)


def remainder(self, x):
    return self.line(x) * 2 if x.size(1) % 3 == 0 else self.other(x)


def square(self, x):
    return self.line(x) * (3 if x.shape[0] == x.shape[1] else 1)


def half(self, x):
    return self.line(x[:, : x.shape[1] // 2])


def unrolled(self, x):
    total = 0
    for step in range(x.shape[1]):
        total = total + self.line(x[:, step]) * (step % 2)
    return total


def key(self, x):
    return self.line(x) * self.by_length.get(x.shape[1], 1.0)


def text(self, x):
    return self.line(x) * 2 if f"length {x.shape[1]}".endswith("7") else self.other(x)


def root(self, x):
    return self.line(x) / x.shape[1] ** 0.5 + x.numel()


def least(self, x):
    return self.line(x)[:, : min(x.shape[1], 6)]


def listed(self, x):
    return self.line(x) * [1.0, 2.0][x.shape[1] > 8] + (7 if len(x) in (5, 8) else 1)


def as_number(self, x):
    return self.line(x) * (2 if int(x.shape[1]) in (6, 9) else 1)


def of_a_table(self, x):
    return self.line(x) * (2 if torch.arange(x.shape[1]).sum() > 40 else 1)


def tail(self, x):
    return self.line(x)[:, -(x.shape[1] - 2) :].flip(1).roll(x.shape[1] // 3, 1)


def rounded(self, x):
    y = F.avg_pool1d(x.transpose(1, 2), 4, ceil_mode=False)
    return self.line(y.transpose(1, 2)[:, : y.shape[2]])


def a_part(self, x):
    return self.line(x)[:, : max(2, int(0.3 * x.shape[1]))] * round(x.size(1) * 0.25 - 1)


def rounded_up(self, x):
    y = self.line(x)[:, ::2]
    return y[:, : y.shape[1]] * 2


def padded(self, x):
    return self.line(F.pad(x, (0, 0, 0, -x.shape[1] % 4)))


def scanned(self, x):
    """Sums of all before, in rounds of which each reaches twice as far."""
    y = self.line(x)
    for distance in range(math.ceil(math.log2(x.shape[1]))):
        y = y + F.pad(y, (0, 0, 2**distance, 0))[:, : x.shape[1]]
    return y * (x.shape[0] - 1).bit_length()


class Python(Case):
    """What Python makes of sizes is never mistaken for what it makes of others."""

    CASES = (above, remainder, square, half, unrolled, key, text, root, least, listed, as_number, of_a_table, tail, rounded, a_part, rounded_up, padded,
             scanned)  # fmt: skip

    def test_sizes_in_python(self):
        draw = random.Random(7)
        for forward in self.CASES:
            mine, theirs = twins(lambda f=forward: type("Case", (Line,), {"forward": f})())
            for n, t in [*LENGTHS, (4, 13), (4, 14), (4, 15), (4, 16), (4, 17), (4, 18), *[(draw.randint(2, 9), draw.randint(3, 12)) for _ in range(12)]]:
                x = torch.randn(n, t, 5)
                Calls.agree(self, mine, theirs, (x,), f"{forward.__name__} {n} {t}")


def random_forward(draw):
    """A forward of random operators with sizes in them, as a function of (module, x)."""
    steps = [
        lambda m, x: m.line(x),
        lambda m, x: x + torch.arange(x.shape[1], dtype=x.dtype)[:, None],
        lambda m, x: x[:, 1:] if x.shape[1] > 4 else x,
        lambda m, x: x[:, : (x.shape[1] + 1) // 2 + 1],
        lambda m, x: torch.cat([x, x[:, :2]], 1),
        lambda m, x: x.reshape(x.shape[0] * x.shape[1], 5).softmax(0).view(x.shape[0], x.shape[1], 5),
        lambda m, x: (x @ x.transpose(1, 2)).tril() @ x,
        lambda m, x: x.flip(1) * (x.shape[1] % 2 + 1),
        lambda m, x: x / x.size(0),
        lambda m, x: x.mean(1, keepdim=True).expand(-1, x.shape[1], -1) + x,
        lambda m, x: torch.tanh(x.transpose(0, 1).contiguous().transpose(0, 1)),
        lambda m, x: x.unsqueeze(0).squeeze(0) if x.shape[0] >= 3 else -x,
        lambda m, x: x.masked_fill(torch.ones(x.shape[1], 5, dtype=torch.bool).triu(2), 0.5),
    ]
    chosen = [draw.choice(steps) for _ in range(draw.randint(2, 5))]

    def forward(self, x):
        for step in chosen:
            x = step(self, x)
        return self.other(x)

    return forward


class Random(Case):
    def test_random_forwards(self):
        followed = 0
        for seed in range(16):
            draw = random.Random(seed)
            forward = random_forward(draw)
            mine, theirs = twins(lambda f=forward: type("Case", (Line,), {"forward": f})(), seed)
            with counted() as traces:
                calls = [(draw.choice((4, 4, 4, 3, 2)), draw.randint(3, 14)) for _ in range(14)]
                for n, t in calls:
                    Calls.agree(self, mine, theirs, (torch.randn(n, t, 5),), f"seed {seed}: {n} {t}")
            followed += len(set(calls)) - len(traces)
        self.assertGreater(followed, 40)


if __name__ == "__main__":
    unittest.main()
