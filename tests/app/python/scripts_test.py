#!/usr/bin/env python3
"""What training scripts do around a model, and models that write their own buffers: losses, buffers and parameters as without Module.

GRADLOOM_LIBRARY names the library. Exits with 77 (skipped) where there is no PyTorch.
"""

import copy
import unittest
import warnings
from unittest import mock

import support
import torch
from gradloom.torch import Module
from support import Case, one_warning, worst
from torch import nn
from torch.nn import functional as F

gradloom = support.gradloom


def run(model, batches, loss=None, optimizer=None, after=None):
    """The losses of a training loop."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for index, batch in enumerate(batches):
        optimizer.zero_grad()
        value = model(*batch).square().mean() if loss is None else loss(model, batch)
        value.backward()
        optimizer.step()
        losses.append(float(value.detach()))
        if after is not None:
            after(model, index)
    return losses


class Scripts(Case):
    def setUp(self):
        torch.manual_seed(2)
        self.batches = [(torch.randn(4, 6, dtype=torch.float64),) for _ in range(8)]

    def assert_trains_alike(self, model, loss=None, batches=None, after=None, tolerance=1e-9, **options):
        """In f64. Returns the wrapped module."""
        batches, model = batches or self.batches, model.double()
        mine = Module(copy.deepcopy(model), **options)
        torch.manual_seed(9)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = run(mine, batches, loss, after=after)
        torch.manual_seed(9)
        wanted = run(model, batches, loss, after=after)
        for step, (a, b) in enumerate(zip(found, wanted)):
            self.assertAlmostEqual(a, b, delta=tolerance * max(1.0, abs(b)), msg=f"step {step}")
        for (name, value), other in zip(mine.state_dict().items(), model.state_dict().values()):
            self.assertLessEqual(worst([value], [other], 1e-2), 20 * tolerance, name)
        return mine


def multiply_data(self, y):
    self.seen.data.mul_(0.9).add_(y.detach().sum(0), alpha=0.1)


def copy_data(self, y):
    self.seen.data.copy_(y.mean(0))


def give_data(self, y):
    self.seen.data = self.seen * 0.9 + y.detach().mean(0) * 0.1


def one_of_data(self, y):
    self.seen.data[1] = y[0, 1]


def copy_detached(self, y):
    self.seen.detach().copy_(y.mean(0))


def add_to_data(self, y):
    self.seen.data += y.detach().sum(0)


def part_under_no_grad(self, y):
    with torch.no_grad():
        self.seen[1:].lerp_(y.mean(0)[1:], 0.1)


def out(self, y):
    torch.add(self.seen, y.detach().sum(0), out=self.seen)


class Writes(nn.Module):
    """A buffer that its forward writes, in one of the ways above, and reads."""

    def __init__(self, write):
        super().__init__()
        self.body, self.write = nn.Linear(6, 3), write
        self.register_buffer("seen", torch.ones(3))

    def forward(self, x):
        y = self.body(x)
        self.write(self, y)
        return y * self.seen


class Quantizer(nn.Module):
    """VQ-VAE whose codebook follows its inputs by averages that move through `.data`."""

    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(6, 4), nn.Linear(4, 6)
        self.register_buffer("codes", torch.randn(4, 8))
        self.register_buffer("counts", torch.zeros(8))
        self.register_buffer("sums", self.codes.clone())

    def forward(self, x):
        z = self.encode(x)
        nearest = (z.pow(2).sum(1, keepdim=True) - 2 * z @ self.codes + self.codes.pow(2).sum(0, keepdim=True)).argmin(1)
        chosen = F.embedding(nearest, self.codes.t())
        if self.training:
            picked = F.one_hot(nearest, 8).type(z.dtype)
            self.counts.data.mul_(0.9).add_(picked.sum(0), alpha=0.1)
            self.sums.data.mul_(0.9).add_((z.t() @ picked).detach(), alpha=0.1)
            self.codes.data.copy_(self.sums / (self.counts + 1e-5))
        return 0.1 * (self.decode(z + (chosen - z).detach()) - x + (chosen.detach() - z).pow(2).mean())


class Buffers(Scripts):
    def test_written_by_any_way(self):
        ways = [multiply_data, copy_data, give_data, one_of_data, copy_detached, add_to_data, part_under_no_grad, out]
        for way in ways:
            if way is part_under_no_grad and torch.__version__ < "2":
                continue
            with self.subTest(way=way.__name__):
                mine = self.assert_trains_alike(Writes(way))
                self.assertGreater(float((mine.seen - 1).abs().max()), 0.01)

    def test_a_codebook(self):
        mine = self.assert_trains_alike(Quantizer())
        self.assertGreater(float(mine.counts.sum()), 0.1)

    def test_parameters_that_a_forward_writes_are_refused(self):
        def halved(self, y):
            self.body.weight.data = self.body.weight.data * 0.5

        with self.assertRaisesRegex(gradloom.UnsupportedError, "changes body.weight in place"):
            Module(Writes(halved).double())(*self.batches[0])
        self.assert_trains_alike(Writes(halved), fallback="torch")

    def test_two_forwards_of_power_iterations_before_a_backward(self):
        def discriminator():
            return nn.Sequential(nn.utils.spectral_norm(nn.Conv2d(3, 4, 3, padding=1)), nn.LeakyReLU(0.125), nn.Flatten(),
                                 nn.utils.spectral_norm(nn.Linear(64, 1)))  # fmt: skip

        batches = [(torch.randn(2, 3, 4, 4).double(), torch.randn(2, 3, 4, 4).double()) for _ in range(6)]
        self.assert_trains_alike(discriminator(), lambda model, b: F.relu(1 - model(b[0])).mean() + F.relu(1 + model(b[1])).mean(), batches)
        parametrized = nn.utils.parametrizations.spectral_norm
        self.assert_trains_alike(nn.Sequential(parametrized(nn.Linear(6, 8)), nn.Tanh(), parametrized(nn.Linear(8, 2))),
                                 lambda model, b: (model(b[0]) - model(-b[0])).square().mean())  # fmt: skip


class Blocks(nn.Module):
    """Called through a name that the script imported, as most are. The first block's input has no gradient."""

    def __init__(self, checkpoint, **how):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Dropout(0.0)) for _ in range(3))
        self.head, self.call = nn.Linear(6, 2), [checkpoint]  # a list: no method
        self.how = how

    def forward(self, x):
        for block in self.blocks:
            x = x + self.call[0](block, x, **self.how)
        return self.head(x)


class Forwards(Scripts):
    def test_checkpoints_by_an_imported_name(self):
        checkpoint = torch.utils.checkpoint.checkpoint
        for how in ({"use_reentrant": True}, {"use_reentrant": False}):
            with self.subTest(how=how):
                model = Blocks(checkpoint, **how)
                run(model.double(), self.batches[:1])
                has_none = model.blocks[0][0].weight.grad is None
                self.assertEqual(has_none, how["use_reentrant"])
                self.assert_trains_alike(model)

    def test_dropout_of_nothing_draws_no_number(self):
        def loss(model, batch):
            return (model(batch[0]) - torch.randn(4, 2).double()).square().mean()  # the script draws too

        layer = nn.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True)
        self.assert_trains_alike(nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.0), layer, nn.AlphaDropout(0.0), nn.Linear(6, 2)), loss)

    def test_lazy_modules(self):
        torch.manual_seed(1)
        mine = Module(nn.Sequential(nn.LazyLinear(5), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(2)).double())
        torch.manual_seed(7)
        mine(*self.batches[0])
        torch.manual_seed(7)
        model = nn.Sequential(nn.LazyLinear(5), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(2)).double()
        model(*self.batches[0])
        self.assert_near([torch.tensor(run(mine, self.batches))], [torch.tensor(run(model, self.batches))])
        self.assertIsNotNone(mine._gradloom._latest)

    def test_orthogonal_weights(self):
        orthogonal = nn.utils.parametrizations.orthogonal
        self.assert_trains_alike(nn.Sequential(orthogonal(nn.Linear(6, 6)), nn.Tanh(), nn.Linear(6, 1)))


def penalty(model, batch):
    """A gradient penalty, as WGAN-GP's."""
    x = batch[0].clone().requires_grad_()
    scores = model(x)
    (slope,) = torch.autograd.grad(scores.sum(), [x], create_graph=True)
    return scores.mean() + 10 * (slope.norm(2, 1) - 1).square().mean()


def of_physics(model, batch):
    """Second derivatives by the arguments, and their gradient by the parameters."""
    x = batch[0].clone().requires_grad_()
    u = model(x)
    (first,) = torch.autograd.grad(u.sum(), [x], create_graph=True)
    (second,) = torch.autograd.grad(first[:, 0].sum(), [x], create_graph=True)
    return (second[:, :1] + u * first[:, 1:2]).square().mean()


class Twice(Scripts):
    def test_they_are_an_error_wherever_they_lead(self):
        model = Module(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).double())
        for loss in (penalty, of_physics):
            with self.assertRaisesRegex(RuntimeError, "first derivatives only"):
                loss(model, self.batches[0]).backward()
        x = self.batches[0][0].clone().requires_grad_()
        (first,) = torch.autograd.grad(model(x).square().sum(), [x], create_graph=True)
        for of in ([x], list(model.parameters())):  # no gradient without a word
            with self.assertRaisesRegex(RuntimeError, "first derivatives only"):
                torch.autograd.grad(first.square().sum(), of, allow_unused=True, retain_graph=True)

    def test_pytorch_computes_them(self):
        smooth = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
        for loss in (penalty, of_physics):
            with self.subTest(loss=loss.__name__):
                self.assert_trains_alike(copy.deepcopy(smooth), loss, fallback="torch")
        self.assert_trains_alike(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)), penalty, fallback="torch")
        model = Module(smooth.double(), fallback="torch")
        with one_warning(self, "gradients of gradients are computed by PyTorch"):
            run(model, self.batches, penalty)
        with mock.patch("gradloom.torch._twice.Again.gradients") as again:
            run(model, self.batches[:1])
        again.assert_not_called()  # the engine's backward where none is asked for

    def test_modes_and_buffers_are_those_of_the_forward(self):
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)).double()
        mine = Module(copy.deepcopy(model), fallback="torch")
        x = self.batches[0][0]
        found = []
        for one in (mine, model):
            one.train()
            y = one(x)
            one.eval()
            slopes = torch.autograd.grad(y.square().sum(), list(one.parameters()), create_graph=True)
            found.append([*slopes, *torch.autograd.grad(sum(s.square().sum() for s in slopes), list(one.parameters()), allow_unused=True)])
            self.assertFalse(any(part.training for part in one.modules()))
        self.assert_near([t for t in found[0] if t is not None], [t for t in found[1] if t is not None], 1e-4)
        self.assert_near(list(mine.buffers()), list(model.buffers()))

    def test_a_result_that_asks_for_its_own_gradient(self):
        class Coordinates(nn.Linear):
            def forward(self, x):
                x = x.clone().detach().requires_grad_()
                return super().forward(x).sin(), x

        def slopes(model, batch):
            y, x = model(batch[0])
            return torch.autograd.grad(y.sum(), [x], create_graph=True)[0].square().mean()

        with self.assertRaisesRegex(gradloom.UnsupportedError, "asks for itself"):
            Module(Coordinates(6, 3).double())(self.batches[0][0])
        self.assert_trains_alike(Coordinates(6, 3), slopes, fallback="torch")


if __name__ == "__main__":
    unittest.main(verbosity=1)
