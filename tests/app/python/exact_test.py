#!/usr/bin/env python3
"""Functions of which PyTorch's exporters drop an argument or write another formula, through gradloom.torch.Module.

Results and gradients are those of torch's autograd in float64 to 1e-9, by the TorchScript exporter and, where there is one, the dynamo exporter. Exits
with 77 (skipped) without PyTorch.
"""

import sys
import unittest

import support
import torch
from gradloom.torch import Module, _dynamo
from support import Case, worst
from torch import nn
from torch.nn import functional as F
from torch.onnx import symbolic_opset9

UnsupportedError = support.gradloom.UnsupportedError
HAS_DYNAMO = not _dynamo.missing()


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *given):
        return self.function(*given)


def of(make):
    torch.manual_seed(1)
    return make()


def put(*indices):
    """x with y added at indices."""
    return lambda x, y: x.index_put(indices, y, accumulate=True)


def put_into_part(x, y):
    z = x * 1.0
    z[:, 1:3].index_put_((TWICE,), y, accumulate=True)
    return z * x


TWICE = torch.tensor([0, 0, 1])
COLUMNS = torch.tensor([1, 1, 2])
MASK = torch.tensor([[True, False, True], [False, True, True]])
# name: the function, shapes or values of its arguments
PUTS = {
    "rows": (put(TWICE), (2, 4), (3, 4)),
    "rows from the end": (put(torch.tensor([-1, -1, 0])), (2, 4), (3, 4)),
    "one row for all": (put(TWICE), (2, 4), (4,)),
    "a number for each row": (put(TWICE), (2, 4), (3, 1)),
    "one number": (put(TWICE), (2, 4), ()),
    "rows by two dims": (put(torch.tensor([[0, 0], [1, 1]])), (2, 4), (2, 2, 4)),
    "elements": (put(TWICE, COLUMNS), (2, 4), (3,)),
    "indices that broadcast": (put(torch.tensor([[0], [1]]), COLUMNS), (2, 4, 5), (2, 3, 5)),
    "where a mask is true": (put(MASK), (2, 3), (4,)),
    "where a mask is true, one number": (put(MASK), (2, 3), (1,)),
    "rows of a mask": (put(MASK[0]), (3, 4), (2, 4)),
    "rows of a mask, one row": (put(MASK[0]), (3, 4), (1, 4)),
    "a mask and an index": (put(MASK[0], torch.tensor([1, 1])), (3, 4), (2,)),
    "a mask of the data": (lambda x, y: x.index_put((x > 0,), y, accumulate=True), (2, 3), (1,)),
    "in place": (lambda x, y: (x * 1.0).index_put_((TWICE,), y, accumulate=True) * x, (2, 4), (3, 4)),
    "in place, of a part": (put_into_part, (2, 4), (3, 2)),
    "without adding": (lambda x, y: torch.index_put(x, (torch.tensor([1, 0]),), y), (2, 4), (2, 4)),
    "one row of a mask's": (put(MASK[:, 0]), (2, 4), (4,)),
}
PLACES = torch.tensor([[0, 0, 1], [2, 2, 2]])
WORDS = torch.tensor([[0, 1, 1], [2, 2, 0]])
ARGUMENTS = {
    **{f"scatter_reduce {reduce}, include_self={own}": (
        lambda x, y, reduce=reduce, own=own: x.scatter_reduce(1, PLACES, y, reduce, include_self=own), (2, 4), (2, 3))
       for reduce in ("mean", "sum") for own in (True, False)},
    "scatter_reduce_": (lambda x, y: (x * 1.0).scatter_reduce_(-1, PLACES, y, "mean") * x, (2, 4), (2, 3)),
    **{f"divisor_override, {axes} axes, {more}": (
        lambda x, pool=pool, axes=axes, more=more: pool(x, (3, 2, 2)[:axes], (2, 3, 2)[:axes], (1, 1, 0)[:axes], divisor_override=3, **more),
        (1, 2, 6, 7, 5)[: axes + 2])
       for axes, pool in ((2, F.avg_pool2d), (3, F.avg_pool3d)) for more in ({}, {"ceil_mode": True}, {"count_include_pad": False})},
    "divisor_override of AvgPool2d": (nn.AvgPool2d(2, divisor_override=3), (1, 2, 6, 7)),
    **{f"embedding_bag, {mode}, offsets, {more}": (
        lambda w, mode=mode, more=more: F.embedding_bag(WORDS.reshape(-1), w, torch.tensor([0, 2, 2, 6][: 4 if more else 3]), mode=mode, **more), (4, 3))
       for mode in ("sum", "mean", "max") for more in ({}, {"include_last_offset": True})},
    **{f"embedding_bag, {mode}, padding": (lambda w, mode=mode: F.embedding_bag(WORDS, w, mode=mode, padding_idx=-4), (4, 3))
       for mode in ("sum", "mean", "max")},
    "embedding_bag, weighted, padding": (
        lambda w, s: F.embedding_bag(WORDS.reshape(-1), w, torch.tensor([0, 3]), mode="sum", per_sample_weights=s.reshape(-1), padding_idx=0), (4, 3), (2, 3)),
    "softplus, threshold": (nn.Softplus(beta=2, threshold=0.5), (2, 6)),
    "softplus": (lambda x: F.softplus(8 * x, beta=4), (2, 6)),
    "embedding_bag of rows": (lambda w: F.embedding_bag(WORDS, w), (4, 3)),
    "roll": (lambda x: x.roll((1, -2), (0, -1)), (3, 4)),
    "roll by more than a length": (lambda x: torch.roll(x, shifts=(7, -9, 1), dims=(0, 1, -1)), (3, 4)),
    "roll by more than the only length": (lambda x: x.roll(-11, 1), (3, 4)),
    "roll by a length": (lambda x: x.roll((3, -4), (0, 1)), (3, 4)),
    "roll of all numbers": (lambda x: x.roll(5), (3, 4)),
    "roll of all numbers by more than there are": (lambda x: x.roll(-17), (3, 4)),
}  # fmt: skip

ROWS = torch.tensor([[0.5, 0.1, -1.0], [0.0, 0.0, 0.0], [0.3, 0.0, 0.7]])
DISTANCES = {
    **{f"cdist, p={p}": (lambda x, y, p=p: torch.cdist(x, y, p=p), (2, 3, 4), (2, 5, 4)) for p in (0.5, 1.0, 2.0, 3.0, float("inf"))},
    **{f"cdist of itself, p={p}": (lambda x, p=p: torch.cdist(x, x, p=p), (3, 4)) for p in (1.0, 2.0, 3.0)},
    **{f"{name} at 0": (lambda x, function=function: function(x), ROWS)
       for name, function in (("vector_norm of 2", lambda x: torch.linalg.vector_norm(x, 2, 1)), ("norm of 2", lambda x: x.norm(dim=1)),
                              ("normalize of 2", lambda x: F.normalize(x)), ("vector_norm", lambda x: torch.linalg.vector_norm(x, 3, 1)),
                              ("norm", lambda x: torch.norm(x, p=1.5, dim=0, keepdim=True)),
                              ("Tensor.norm", lambda x: x.norm(3)), ("normalize", lambda x: F.normalize(x + 1, p=3)))},
    "cosine_similarity at 0": (lambda x, y: F.cosine_similarity(x[:, None], y[None], dim=-1), ROWS, ROWS.flip(1)),
    "CosineSimilarity": (nn.CosineSimilarity(dim=0, eps=1e-3), (3, 4), (3, 4)),
    "sinc": (torch.sinc, torch.tensor([0.0, 1.0, 0.5, -2.3])),
}  # fmt: skip
SCALES = {
    **{f"{mode} by {scale}, {more}": (
        lambda x, mode=mode, scale=scale, more=more: F.interpolate(x, scale_factor=scale, mode=mode, **more), (1, 2, 5, 6, 4)[: 2 + axes])
       for mode, axes in (("linear", 1), ("bilinear", 2), ("bicubic", 2), ("trilinear", 3)) for scale in (0.7, 1.5, 2.3)
       for more in ({"align_corners": True}, {"align_corners": False}, {"align_corners": False, "recompute_scale_factor": True})},
    **{f"{mode} by {scale}": (lambda x, mode=mode, scale=scale: F.interpolate(x, scale_factor=scale, mode=mode), (1, 2, 14, 6))
       for mode in ("nearest", "area") for scale in (0.7, 1.5, 2.3)},
    "nearest, recomputed": (lambda x: F.interpolate(x, scale_factor=(1.3, 0.7), recompute_scale_factor=True), (1, 2, 14, 6)),
    "Upsample": (nn.Upsample(scale_factor=(1.5, 2.3), mode="bilinear", align_corners=True), (1, 2, 5, 6)),
}  # fmt: skip


class Exact(Case):
    def check(self, functions, exporter="torchscript"):
        for name, (function, *shapes) in functions.items():
            with self.subTest(function=name):
                torch.manual_seed(1)
                values = [shape.double() if isinstance(shape, torch.Tensor) else torch.randn(shape, dtype=torch.float64) for shape in shapes]
                given = [[t.clone().requires_grad_() for t in values] for _ in range(2)]
                results = [f(*tensors) for f, tensors in zip((Module(Function(function), exporter=exporter), function), given)]
                self.assertEqual(results[0].shape, results[1].shape)
                weights = torch.randn(results[1].shape, dtype=torch.float64)
                for result in results:
                    (result * weights).sum().backward()
                self.assert_near(results[0], results[1], 1e-9)
                for mine, theirs in zip(*given):
                    self.assertLessEqual(worst([mine.grad], [theirs.grad]), 1e-9)

    def assert_refused(self, text, function, *given, exporter="torchscript"):
        with self.assertRaisesRegex(UnsupportedError, text):
            Module(Function(function), exporter=exporter)(*given)

    def test_an_index_that_comes_twice_adds_twice(self):
        self.check(PUTS)
        at = torch.tensor([1, 1, 0])
        x, y = torch.zeros(2, 1), torch.tensor([[1.0], [2.0], [4.0]])
        mine = Module(Function(lambda x, y, at: x.index_put((at,), y, accumulate=True)))
        for places in (TWICE, at):
            self.assertEqual(mine(x, y, places).tolist(), x.index_put((places,), y, accumulate=True).tolist())

    @unittest.skipUnless(HAS_DYNAMO, "no dynamo exporter")
    def test_an_index_that_comes_twice_by_dynamo(self):
        self.check({name: PUTS[name] for name in ("rows", "in place")}, "dynamo")

    def test_scripted_functions_that_add_are_refused(self):
        @torch.jit.script
        def added(x, y, at):
            # type: (Tensor, Tensor, Tensor) -> Tensor
            return x.index_put([at], y, accumulate=True)

        self.assert_refused("accumulate=True", added, torch.zeros(2), torch.ones(3), TWICE)

    def test_arguments(self):
        self.check(ARGUMENTS)

    @unittest.skipIf(int(torch.__version__.partition(".")[0]) < 2, "PyTorch before 2.0 takes no tensor there")
    def test_a_tensor_tells_how_far_to_roll(self):
        mine = Module(Function(lambda x, n: torch.roll(x, n, 1)))
        for step in (1, 2, -3, 0, 9, -9):
            x, y = (torch.arange(12.0).reshape(3, 4).requires_grad_() for _ in range(2))
            results = mine(x, torch.tensor(step)), y.roll(step, 1)
            for result in results:
                (result * torch.arange(4.0)).sum().backward()
            self.assertEqual(results[0].tolist(), results[1].tolist())
            self.assertEqual(x.grad.tolist(), y.grad.tolist())

    @unittest.skipUnless(HAS_DYNAMO, "no dynamo exporter")
    def test_arguments_by_dynamo(self):
        names = ("scatter_reduce mean, include_self=True", "divisor_override of AvgPool2d", "softplus, threshold", "roll by more than a length")
        self.check({name: ARGUMENTS[name] for name in names}, "dynamo")

    def test_tables_that_a_forward_changes(self):
        for table in (nn.Embedding(4, 3, max_norm=0.5), nn.EmbeddingBag(4, 3, max_norm=0.5)):
            before = table.weight.detach().clone()
            for exporter in ("torchscript", "dynamo")[: 1 + HAS_DYNAMO]:
                with self.assertRaisesRegex(UnsupportedError, "max_norm"):
                    Module(table, exporter=exporter)(WORDS)
            self.assertTrue(torch.equal(table.weight.detach(), before))
        mine, theirs = (of(lambda: nn.Sequential(nn.Embedding(4, 3, max_norm=0.5), nn.Linear(3, 2))) for _ in range(2))
        with support.one_warning(self, "max_norm"):
            found = Module(mine, fallback="torch")(WORDS)
        expected = theirs(WORDS)
        for result in (found, expected):
            result.square().sum().backward()
        self.assert_near(found, expected)
        self.assert_same_gradients(mine, theirs)
        for function in (F.embedding, F.embedding_bag):
            weight = torch.randn(4, 3, requires_grad=True)
            self.assert_refused("scale_grad_by_freq", lambda w, function=function: function(WORDS, w, scale_grad_by_freq=True), weight)

    def test_distances(self):
        self.check(DISTANCES)

    @unittest.skipUnless(HAS_DYNAMO, "no dynamo exporter")
    def test_distances_by_dynamo(self):
        self.check({name: DISTANCES[name] for name in ("cdist of itself, p=2.0", "vector_norm of 2 at 0", "vector_norm at 0", "sinc")}, "dynamo")

    def test_scales(self):
        self.check(SCALES)
        mine = Module(Function(SCALES["Upsample"][0]))
        for size in (5, 7, 9, 11, 13):
            x = torch.randn(1, 2, size, 4)
            self.assert_near(mine(x), SCALES["Upsample"][0](x))

    @unittest.skipUnless(HAS_DYNAMO, "no dynamo exporter")
    def test_scales_by_dynamo(self):
        self.check({"Upsample": SCALES["Upsample"]}, "dynamo")

    @unittest.skipUnless(hasattr(symbolic_opset9, "randint"), "PyTorch's exporter has no randint")
    def test_integers_that_are_drawn(self):
        drawn = {
            "below 0": (lambda x: torch.randint(-3, 2, (4000,)), -3, 2),
            "size by name": (lambda x: torch.randint(-3, 2, size=(4000,), dtype=torch.int32), -3, 2),
            "all by name": (lambda x: torch.randint(low=-3, high=-1, size=(4000,)), -3, -1),
            "no lower end": (lambda x: torch.randint(2, (4000,)), 0, 2),
            "no lower end, by name": (lambda x: torch.randint(high=3, size=(4000,)), 0, 3),
            "from 1": (lambda x: torch.randint(1, 4, (4000,)), 1, 4),
            "like below 0": (lambda x: torch.randint_like(x, -3, 2), -3, 2),
            "like by name": (lambda x: torch.randint_like(x, low=-3, high=2), -3, 2),
            "like without lower end": (lambda x: torch.randint_like(x, 2), 0, 2),
        }
        torch.manual_seed(1)
        x = torch.zeros(4000, dtype=torch.float64)
        for name, (function, low, high) in drawn.items():
            with self.subTest(name):
                values, counts = Module(Function(lambda x, f=function: x + f(x)))(x).unique(return_counts=True)
                self.assertEqual(values.tolist(), list(range(low, high)))
                self.assertLess(float((counts / 4000 - 1 / (high - low)).abs().max()), 0.04)

    def test_sequences_that_are_packed_and_padded_again(self):
        def zeroed(x, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            return nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)[0]

        x, lengths = torch.randn(2, 4, 3), torch.tensor([2, 4])
        self.assert_refused("pad_packed_sequence", zeroed, x, lengths)
        with support.one_warning(self, "pad_packed_sequence"):
            mine = Module(Function(zeroed), fallback="torch")(x, lengths)
        self.assertTrue(torch.equal(mine, zeroed(x, lengths)))

    def test_a_border_of_bicubic_samples(self):
        def sampled(x, grid):
            return F.grid_sample(x, grid, mode="bicubic", padding_mode="border", align_corners=False)

        self.assert_refused("bicubic", sampled, torch.randn(1, 1, 3, 4), torch.randn(1, 2, 2, 2))


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
