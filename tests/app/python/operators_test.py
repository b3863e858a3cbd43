#!/usr/bin/env python3
"""What PyTorch's exporter lacks or writes wrong, through gradloom.torch.Module: Fourier transforms and complex numbers, writes through
views, windows, triangles; checks that raise; functions that stay in PyTorch.

Results and gradients are those of torch's autograd, in float64 to 1e-9 and in float32 to 1e-4. Exits with 77 (skipped) without PyTorch.
"""

import copy
import sys
import tempfile
import unittest
import warnings
from functools import partial

import support
import torch
from gradloom.torch import Module, TrainStep, capture
from support import Case, one_warning, worst
from torch import nn
from torch.nn import functional as F

UnsupportedError = support.gradloom.UnsupportedError
NEWER = int(torch.__version__.split(".")[0]) >= 2


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *given):
        return self.function(*given)


def correlation(q, k):
    """Autoformer's."""
    return torch.fft.irfft(torch.fft.rfft(q, n=16) * torch.conj(torch.fft.rfft(k, n=16)), n=16)[..., :8]


def global_filter(x, weight):
    """GFNet's."""
    spectrum = torch.fft.rfft2(x, dim=(1, 2), norm="ortho")
    return torch.fft.irfft2(spectrum * torch.view_as_complex(weight), s=x.shape[1:3], dim=(1, 2), norm="ortho")


def fourier_blocks(x, weight):
    """AFNO's."""
    batch, rows, columns, width = x.shape
    z = torch.fft.rfft2(x, dim=(1, 2), norm="ortho").reshape(batch, rows, columns // 2 + 1, 2, width // 2)
    re = F.relu(torch.einsum("...bi,bio->...bo", z.real, weight[0]) - torch.einsum("...bi,bio->...bo", z.imag, weight[1]))
    im = F.relu(torch.einsum("...bi,bio->...bo", z.imag, weight[0]) + torch.einsum("...bi,bio->...bo", z.real, weight[1]))
    z = torch.view_as_complex(F.softshrink(torch.stack([re, im], -1), 2.0**-7)).reshape(batch, rows, columns // 2 + 1, width)
    return torch.fft.irfft2(z, s=(rows, columns), dim=(1, 2), norm="ortho")


def rotary(x):
    """Llama 4's positions."""
    angles = torch.outer(torch.arange(x.shape[1], dtype=x.dtype), 0.5 ** torch.arange(x.shape[2] // 2, dtype=x.dtype))
    turns = torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * turns).flatten(2)


def complex_arithmetic(x, y):
    a, b = torch.fft.fft(x), torch.fft.fft(y)
    quotient = (a - 2j) / (b + 3) - b * 0.5 + (1 - a) / 2
    product = torch.exp(0.125 * a) @ b.transpose(-1, -2) + torch.einsum("ij,kj->ik", b, a)
    joined = torch.cat([a, b.conj()], 1).sum(0)
    return sum(torch.view_as_real(z).square().sum() for z in (quotient, product, joined, -a[0])) + (a + b).abs().sum() + a.mean().imag


def written(write):
    """A function whose result shows what was written into y, made of x, by `write`."""

    def function(x):
        y = x * 1.0
        seen = (y.transpose(0, 1), y[1:], y.view(-1)[2:9]) if NEWER else (y.transpose(0, 1), y.narrow(0, 1, 2))
        write(y, x)
        return (y * x).sum() + sum((part * part).sum() for part in seen)

    return function


def write_in_turns(y, x):
    y[0] = x[1] * 2
    y[:, 1:3] *= 3
    rows = y.view(2, -1)
    rows[1].sub_(x.view(2, -1)[0])
    y.t().sub_(0.25)
    y[1:].masked_fill_(x[1:] > 1, 0.25)
    y[:, 2:].index_add_(0, torch.tensor([2]), x[:1, :2])
    part = y[:, 1]
    part[part > 0] = 0.75
    part.clamp_(-1, 0.5)
    y[2:].scatter_(1, torch.tensor([[1], [3]]), 0.125)
    torch.add(y[0], x[2], out=y[3]) if not x.requires_grad else y[3].copy_(y[0] + x[2])
    y += rows.sum()
    y.t()[1].fill_(0.5)


def copied(x):
    state = torch.zeros(3, 4, dtype=x.dtype)
    state.copy_(x[0] * 2)
    return state * x


def einsum_written(x, y):
    """Funnel's: einsum returns its result as seen from another side."""
    z = torch.einsum("bnd,jnd->bnj", x, y)
    part = z[:, 1:, :2]
    part *= 2
    return z * part.sum()


def filled(x):
    mask = torch.zeros(x.shape, dtype=x.dtype)
    for index, (first, last) in enumerate(((0, 1), (1, 2), (2, 3))):
        mask[first:last, 0:index, 0:1] = index
        mask[first:last, index:, 1:2] = x[0, index:, 1:]
    return mask


def no_grad(function, *given):
    with torch.no_grad():
        return function(*given)


def several(x):
    largest, (variance, _) = no_grad(torch.topk, x, 4)[0], no_grad(torch.var_mean, x, 1)
    return x * largest + x * variance.unsqueeze(1) + x * torch.cat(no_grad(torch.chunk, x, 2, 1), 1)


def switched_off(x):
    torch.set_grad_enabled(False)
    y = x.exp()
    torch.set_grad_enabled(True)
    return x * y


def turned(z):
    return z.T, z.mT @ z, z.H, torch.adjoint(z) + z.mH


def behind(write):
    """A function of what is written into y behind autograd's back: its gradient stays what it was."""

    def function(x):
        y = x.sin()
        part = y.narrow(0, 1, 2)
        write(y)
        return (y * y + 3 * y).sum() + part.exp().sum()

    return function


def signs(x):
    """As of binarized networks: the gradient passes the sign."""
    y = x.sin()
    y.data = y.data.sign()
    return y * y + 3 * y


def smoothed(x):
    weight = torch.tensor([0.5, 1.0, 2.0]).to(x.dtype)
    return F.cross_entropy(x, torch.tensor([0, 255, 2, 1]), weight, ignore_index=255, label_smoothing=0.125)


def averaged(x):
    """A tensor without gradient that follows one with a gradient."""
    average, mean = torch.ones(4, dtype=x.dtype), x.mean(0)
    with torch.no_grad():
        average.mul_(0.5).add_(mean, alpha=0.5)
        average[1:] = mean[1:]
    return average * x


LOWER = torch.arange(25.0).reshape(5, 5).remainder(7) / 8 + 2 * torch.eye(5)


def triangle(upper, left, unit=False):
    return lambda a, b: torch.linalg.solve_triangular(0.25 * a + LOWER.to(a.dtype), b, upper=upper, left=left, unitriangular=unit)


# name: the function, shapes of its arguments
FUNCTIONS = {
    "fft": (lambda x: torch.view_as_real(torch.fft.fft(x)), (2, 7)),
    "fft of a length": (lambda x: torch.view_as_real(torch.fft.fft(x, n=9, norm="forward")), (2, 7)),
    "fftn, held": (lambda x, fftn=partial(torch.fft.fftn, dim=(1, 2)): fftn(x).real, (2, 5, 6)),
    "ifft": (lambda x, y: torch.view_as_real(torch.fft.ifft(torch.complex(x, y), dim=0, norm="ortho")), (4, 3), (4, 3)),
    "rfft": (lambda x: torch.fft.rfft(x, dim=1).abs(), (2, 6, 3)),
    "rfftn": (lambda x: torch.fft.rfftn(x, s=(4, 5), norm="forward").imag, (2, 6, 3)),
    "irfft": (lambda x: torch.fft.irfft(torch.view_as_complex(x), norm="forward"), (2, 5, 2)),
    "irfft of an odd length": (lambda x: torch.fft.irfft(torch.view_as_complex(x), n=7), (2, 4, 2)),
    "ifft2": (lambda x: torch.view_as_real(torch.fft.ifft2(x)), (2, 3, 4)),
    "fftshift": (lambda x: torch.fft.ifftshift(torch.fft.fftshift(torch.fft.fft2(x), dim=-1)).abs() + torch.fft.fftfreq(5), (2, 4, 5)),
    "correlation": (correlation, (2, 3, 8), (2, 3, 8)),
    "global filter": (global_filter, (2, 4, 6, 3), (4, 4, 3, 2)),
    "Fourier blocks": (fourier_blocks, (2, 4, 6, 4), (2, 2, 2, 2)),
    "rotary": (rotary, (2, 3, 8)),
    "complex arithmetic": (complex_arithmetic, (3, 4), (3, 4)),
    "no_grad of a transform": (lambda x: x * no_grad(torch.fft.rfft, x).abs()[:, :1], (2, 6)),
    "turned complex numbers": (lambda x: sum(torch.view_as_real(z.resolve_conj()).exp().sum() for z in turned(torch.fft.fft(x))), (4, 4)),
    "mT": (lambda x: x.mT @ x, (2, 3, 4)),
    "no_grad of several results": (several, (3, 4)),
    **({"no_grad of a part": (lambda x: x * no_grad(lambda y: y[0], x), (3, 4))} if NEWER else {}),  # [] is seen by no mode before
    "gradients switched off": (switched_off, (3, 4)),
    "gradients inside no_grad": (lambda x: x * no_grad(torch.enable_grad()(torch.exp), x), (3, 4)),
    "no_grad of a write": (behind(lambda y: no_grad(y.clamp_, -0.5, 0.5)), (3, 4)),
    "no_grad of a write into a part": (behind(lambda y: no_grad(y.__setitem__, (slice(None), 0), 0.5)), (3, 4)),
    "no_grad of a write where a mask is": (behind(lambda y: no_grad(y.__setitem__, y > 0, 0.5)), (3, 4)),
    "no_grad of out": (behind(lambda y: no_grad(lambda: torch.mul(y, 3, out=y))), (3, 4)),
    "no_grad of a write of what has a gradient": (averaged, (3, 4)),
    "a write into detach()": (behind(lambda y: y.detach().mul_(3)), (3, 4)),
    ".data of other numbers": (signs, (3, 4)),
    "a smoothed loss that leaves a label out": (smoothed, (4, 3)),
    "a copy": (lambda x: x * copy.deepcopy(x.detach().exp()), (3, 4)),
    "unfold": (lambda x: x.unfold(-2, 3, 2) * x.unfold(1, 3, 2).sum(), (2, 8, 3)),
    "unfold without overlap": (lambda x: x.unfold(1, 2, 2).unfold(-2, 2, 1), (2, 8, 3)),
    "diagonal": (lambda x: torch.diagonal(x, 1, -2, -1) * x.diagonal(-1, -1, 0).square().sum(), (3, 4, 5)),
    "lower triangle": (triangle(False, True), (2, 5, 5), (2, 5, 3)),
    "upper triangle": (triangle(True, False), (2, 5, 5), (2, 3, 5)),
    "unit triangle": (triangle(False, True, True), (2, 5, 5), (2, 5, 3)),
    "masked_scatter": (lambda x, y: x.masked_scatter(torch.arange(24).reshape(2, 3, 4) % 5 == 1, y) * 2, (2, 3, 4), (3, 3)),
    "masked_scatter of rows": (lambda x, y: x.masked_scatter((torch.arange(6) % 3 == 0).reshape(2, 3, 1), y), (2, 3, 4), (3, 4)),
    "copy_": (copied, (3, 4)),
    "through view()": (written(lambda y, x: y.view(-1).add_(1)), (3, 4)),
    "through transpose()": (written(lambda y, x: y.transpose(0, 1).mul_(2)), (3, 4)),
    "through a slice of a view": (written(lambda y, x: y.view(6, 2)[1:3].copy_(x[:2, :2])), (3, 4)),
    "setitem of a view": (written(lambda y, x: y.view(6, 2).__setitem__(slice(1, 3), 0.0)), (3, 4)),
    "the base": (written(lambda y, x: y.mul_(2)), (3, 4)),
    "what einsum made": (einsum_written, (2, 3, 4), (5, 3, 4)),
    "three slices": (written(lambda y, x: y.view(2, 2, 3).__setitem__((slice(0, 1), slice(1, 2), slice(1, 3)), x[0, 2:])), (3, 4)),
    "three slices of a tensor": (lambda x: x * filled(x), (3, 4, 2)),
    "in turns": (written(write_in_turns), (4, 4)),
}  # fmt: skip
if NEWER:  # whose exporter has atan2
    FUNCTIONS["angle"] = (lambda x: torch.angle(torch.fft.rfft(x))[..., 1:2], (2, 6))
else:  # modes do not see []
    for name in ("setitem of a view", "three slices", "three slices of a tensor", "what einsum made", "in turns"):
        del FUNCTIONS[name]


class Functions(Case):
    def check(self, dtype, tolerance):
        for name, (function, *shapes) in FUNCTIONS.items():
            with self.subTest(function=name):
                torch.manual_seed(1)
                given = [[torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]]
                given.append([t.detach().clone().requires_grad_() for t in given[0]])
                results = [f(*tensors) for f, tensors in zip((Module(Function(function)), function), given)]
                weights = torch.randn(results[1].shape, dtype=dtype)
                for result in results:
                    (result * weights).sum().backward()
                self.assertEqual(results[0].dtype, results[1].dtype)
                self.assert_near(results[0], results[1], tolerance)
                for mine, theirs in zip(*given):
                    self.assertLessEqual(worst([mine.grad], [theirs.grad]), tolerance)

    def test_float64(self):
        self.check(torch.float64, 1e-9)

    def test_float32(self):
        self.check(torch.float32, 1e-4)

    def test_other_lengths(self):
        """Transforms of other lengths: from traces, and without."""
        mine = Module(Function(lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=1), dim=1).abs() * torch.fft.fft(x, dim=1).real))
        for length in (4, 6, 10, 8, 12, 14):
            x = torch.randn(2, length, 3)
            self.assert_near(mine(x), torch.fft.irfft(torch.fft.rfft(x, dim=1), dim=1).abs() * torch.fft.fft(x, dim=1).real)

    def test_a_buffer_is_written_through_a_view(self):
        class Keeps(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("last", torch.zeros(2, 3))

            def forward(self, x):
                self.last.view(-1)[:3].mul_(0.5).add_(x.detach().sum(0))
                return self.last * x

        mine, theirs = support.twins(Keeps)
        for _ in range(3):
            x = torch.randn(2, 3)
            self.assert_near(mine(x), theirs(x))
            self.assert_near(mine.last, theirs.last)

    def test_what_is_not_known_of_complex_numbers(self):
        for function, text in ((lambda x: torch.view_as_real(torch.tan(torch.fft.fft(x))), "torch's tan of complex numbers"),
                               (lambda x: torch.fft.fft(x), "view_as_real")):  # fmt: skip
            with self.assertRaisesRegex(UnsupportedError, text):
                Module(Function(function))(torch.randn(2, 4))


class Checked(nn.Module):
    """Goes on or raises, as the data tell."""

    def __init__(self, words=5):
        super().__init__()
        self.linear, self.words = nn.Linear(4, 2), words
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x, labels):
        if labels.max() >= self.words:
            raise ValueError(f"a label of {labels.max().item()}")
        assert (labels >= 0).all(), "negative"
        if not self.finite(x) or (labels == 3).any().item():
            raise RuntimeError("not finite")
        self.seen.add_(1)
        return self.linear(x).sum(1) * labels

    def finite(self, x):
        return bool(torch.isfinite(x).all())


class Catches(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Checked()

    def forward(self, x, labels):
        try:
            return self.inner(x, labels)
        except ValueError:
            return 2 * x.sum(1)


class Checks(Case):
    GOOD = torch.tensor([0, 1, 4])
    BAD = (([0, 5, 1], ValueError, "a label of 5"), ([-1, 1, 1], AssertionError, "negative"), ([3, 1, 1], RuntimeError, "not finite"))

    def test_raises_as_the_module_does(self):
        mine, theirs = support.twins(Checked)
        x = torch.randn(3, 4)
        for _ in range(2):
            for labels, kind, text in self.BAD:
                with self.assertRaisesRegex(kind, text):
                    mine(x, torch.tensor(labels))
            self.assert_near(mine(x, self.GOOD), theirs(x, self.GOOD))
            self.assertEqual(mine.seen, theirs.seen)
        with self.assertRaisesRegex(RuntimeError, "not finite"):
            mine(x * float("inf"), self.GOOD)

    def test_the_first_call_raises(self):
        mine = Module(Checked())
        with self.assertRaisesRegex(ValueError, "a label of 9"):
            mine(torch.randn(3, 4), torch.tensor([9, 1, 1]))
        mine(torch.randn(3, 4), self.GOOD)

    def test_what_is_caught_is_pytorchs(self):
        mine, theirs = support.twins(Catches)
        x = torch.randn(3, 4, requires_grad=True)
        self.assert_near(mine(x, self.GOOD), theirs(x, self.GOOD))
        self.assert_near(mine(x, torch.tensor([0, 7, 1])), theirs(x, torch.tensor([0, 7, 1])))

    def test_a_branch_is_refused(self):
        for function in (lambda x: x * 2 if x.sum() > 0 else x * 3, lambda x: [x, -x][int(x.sum() > 0)]):
            with self.assertRaisesRegex(UnsupportedError, "needs the numbers of a tensor in Python"):
                Module(Function(function))(torch.randn(3))

    def test_sizes_that_the_data_decide_are_refused(self):
        """A file would hold those of the first call."""
        functions = {
            "masked_select": lambda x, n: x / x.masked_select(x > 0).numel(),
            "unique": lambda x, n: x / len(torch.unique(n)),
            "repeat_interleave": lambda x, n: x / x.repeat_interleave(n, 0).shape[0],
            "one_hot": lambda x, n: x / F.one_hot(n).size(-1),
        }
        if not NEWER:  # else rows that a mask chooses are known
            functions["nonzero"] = lambda x, n: x / (x > 0).nonzero().shape[0]
        for name, function in functions.items():
            with self.assertRaisesRegex(UnsupportedError, rf"operators_test.py:\d+ needs in Python how many elements {name} gives"):
                Module(Function(function))(torch.randn(3, 4), torch.tensor([2, 1, 3]))
        mask = torch.tensor([True, False, True])
        known = Function(lambda x, n: x.masked_select(mask).sum() / x.masked_select(mask).numel() * x)
        x = torch.randn(3)
        self.assert_near(Module(known)(x, x), known(x, x))

    def test_gradients_that_forward_asks_for_are_refused(self):
        def turned_back(x):
            y = x * 2
            y.register_hook(torch.neg)
            return y.sin()

        def kept(x):
            y = x * 2
            y.retain_grad()
            return y.sin()

        for function, name in ((turned_back, "register_hook"), (kept, "retain_grad")):
            with self.assertRaisesRegex(UnsupportedError, rf"asks for the gradient of a tensor inside its forward \({name}\).*fallback"):
                Module(Function(function))(torch.randn(3, requires_grad=True))
        given = [torch.ones(3, requires_grad=True) for _ in range(2)]
        for run, x in zip((Module(Function(turned_back), fallback="torch"), turned_back), given):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                run(x).sum().backward()
        self.assert_near(given[0].grad, given[1].grad)

    def test_numbers_that_leave_the_trace_are_refused(self):
        for function in (lambda x: x * torch.from_dlpack(torch.utils.dlpack.to_dlpack(x.detach())), lambda x: x * complex(x.detach()[0]).real):
            with self.assertRaisesRegex(UnsupportedError, "needs the numbers of a tensor in Python"):
                Module(Function(function))(torch.randn(3))

    def test_a_step_says_that_it_goes_on(self):
        model = Checked()
        step = TrainStep(model, lambda y, target: F.mse_loss(y, target), torch.optim.SGD(model.parameters(), lr=0.1))
        with one_warning(self, "steps go on where the model would raise"):
            step.step(torch.randn(3, 4), self.GOOD, torch.randn(3))

    def test_texts_of_tensors(self):
        """They are for messages, also of functions that check."""
        def checked(x):
            if x.sum() > 100:
                raise ValueError(f"too large: {x.sum():.1f} of {x}")
            return 2 * x

        self.assert_near(Module(Function(checked))(torch.ones(3)), 2 * torch.ones(3))
        self.assert_near(Module(Function(lambda x: x * len(f"{x.sum():.1f} {x}"[:1])))(torch.ones(3)), torch.ones(3))

    def test_a_raise_that_is_caught_is_a_way_on(self):
        def tried(x):
            try:
                if x.sum() > 100:
                    raise ValueError
            except ValueError:
                return 3 * x
            return 2 * x

        with self.assertRaisesRegex(UnsupportedError, "needs the numbers of a tensor"):
            Module(Function(tried))(torch.ones(3))


class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 5)

    def forward(self, x, labels):
        logs = self.linear(x).log_softmax(-1).transpose(0, 1)
        known = labels >= 0
        lengths = torch.full((x.shape[0],), x.shape[1])
        return F.ctc_loss(logs, labels.masked_select(known), lengths, known.sum(-1), blank=0)


class InPyTorch(Case):
    LABELS = torch.tensor([[1, 2, -100], [3, 4, 1]])

    def test_ctc(self):
        mine, theirs = support.twins(Speech)
        with one_warning(self, "torch.nn.functional.ctc_loss runs in PyTorch"):
            for labels in (self.LABELS, torch.tensor([[1, -100, -100], [2, 2, -100]])):
                x = torch.randn(2, 7, 6)
                losses = [m(x, labels) for m in (mine, theirs)]
                for loss in losses:
                    loss.backward()
                self.assert_near(*losses)
        self.assert_same_gradients(mine, theirs)

    def test_ctc_in_a_step(self):
        torch.manual_seed(2)
        theirs = Speech()
        mine = copy.deepcopy(theirs)
        step = TrainStep(mine, None, torch.optim.SGD(mine.parameters(), lr=0.1))
        optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
        for _ in range(3):
            x = torch.randn(2, 7, 6)
            optimizer.zero_grad()
            loss = theirs(x, self.LABELS)
            loss.backward()
            optimizer.step()
            self.assertAlmostEqual(float(step.step(x, self.LABELS)), float(loss.detach()), places=5)

    def test_capture_refuses(self):
        model = Speech()
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(UnsupportedError, "ctc_loss has a backward of its own"):
            capture(model, (torch.randn(2, 7, 6), self.LABELS), None, torch.optim.SGD(model.parameters(), lr=0.1), folder)

    def test_algebra(self):
        def function(x):
            square = x @ x.transpose(-1, -2) + 2 * torch.eye(4, dtype=x.dtype)
            values, vectors = torch.linalg.eigh(square)
            return torch.linalg.inv(square) @ x + (vectors.abs() * values.unsqueeze(-2)) @ x + torch.lgamma(x.abs() + 1)

        given = [torch.randn(2, 4, 3, dtype=torch.float64).requires_grad_()]
        given.append(given[0].detach().clone().requires_grad_())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = [f(t) for f, t in zip((Module(Function(function)), function), given)]
        for result in results:
            result.square().sum().backward()
        self.assert_near(*results, 1e-9)
        self.assert_near(given[0].grad, given[1].grad, 1e-9)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
