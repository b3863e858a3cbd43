#!/usr/bin/env python3
"""Module on a GPU: the host's executor of the same kernels stands in for one, whose memory is then the host's.

GRADLOOM_LIBRARY names the library. Exits with 77 (skipped) where there is no PyTorch, or the plugin host-gpu is not built.
"""

import copy
import gc
import sys
import unittest
from unittest import mock

import support
import torch
from gradloom.torch import Module, TrainStep, _decompositions, _devices, _module, _plan
from support import Bert, Cnn, Gpt, mlp, twins
from torch import nn

with mock.patch.object(_devices, "CPU", "host-gpu"):
    try:
        Module(nn.Linear(2, 2))(torch.ones(1, 2))
    except support.gradloom.Error as error:
        print("skipped:", error)
        sys.exit(77)


class OnHostGpu(support.Case):
    def setUp(self):
        patch = mock.patch.object(_devices, "CPU", "host-gpu")
        patch.start()
        self.addCleanup(patch.stop)

    def check(self, make, *batches, loss_of=lambda result: result, tolerance=1e-4):
        mine, theirs = twins(make)
        for batch in batches:
            losses = [loss_of(model(*batch)) for model in (mine, theirs)]
            for model, loss in zip((mine, theirs), losses):
                model.zero_grad()
                loss.backward()
            self.assert_near(losses[0].detach(), losses[1].detach(), tolerance)
            self.assert_same_gradients(mine, theirs, 10 * tolerance)
        for (name, a), b in zip(mine.named_buffers(), theirs.buffers()):
            self.assert_near(a.double(), b.double(), tolerance)
        return mine, theirs

    def test_networks(self):
        torch.manual_seed(1)
        tokens = torch.randint(1, 31, (2, 7))
        self.check(mlp, (torch.randn(5, 6),), (torch.randn(3, 6),), loss_of=lambda result: result.square().mean())
        self.check(Gpt, (tokens, tokens), loss_of=lambda result: result["loss"])
        self.check(Bert, (tokens, torch.tensor([0, 2]), tokens), loss_of=lambda result: result[0])
        image = torch.randn(2, 3, 9, 9)
        mine, theirs = self.check(Cnn, (image,), (2 * image,), loss_of=lambda result: result.square().mean())
        mine.eval(), theirs.eval()
        with torch.no_grad():
            self.assert_near(mine(image), theirs(image), 1e-4)

    def test_forwards_wait_for_their_backwards(self):
        mine, theirs = twins(mlp)
        losses = [[model(torch.full((2, 6), float(i))).square().sum() for i in range(3)] for model in (mine, theirs)]
        for i in (1, 2, 0):
            for each in losses:
                each[i].backward()
        self.assert_same_gradients(mine, theirs, 1e-3)

    def test_dropout(self):
        torch.manual_seed(1)
        mine = Module(nn.Sequential(nn.Linear(40, 40), nn.Dropout(0.5)))
        x, results = torch.randn(8, 40), []
        for seed in (3, 3, 4):
            torch.manual_seed(seed)
            mine.zero_grad()
            y = mine(x)
            y.sum().backward()
            results.append((y.detach(), mine[0].weight.grad.clone()))
        self.assertTrue(torch.equal(results[0][0], results[1][0]) and torch.equal(results[0][1], results[1][1]))
        self.assertFalse(torch.equal(results[0][0], results[2][0]))
        self.assertGreater(int((results[0][0] == 0).sum()), 80)

    def test_under_autocast(self):
        mine, theirs = twins(mlp)
        x = torch.randn(5, 6)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = mine(x).float().square().mean()
        loss.backward()
        theirs(x).square().mean().backward()
        self.assert_same_gradients(mine, theirs, 0.1)

    def test_modules_share_the_device_and_leave_it(self):
        modules = [Module(copy.deepcopy(mlp())) for _ in range(3)]
        for module in modules:
            module(torch.randn(2, 6)).sum().backward()
        del modules, module
        gc.collect()
        self.check(mlp, (torch.randn(5, 6),), loss_of=lambda result: result.square().mean())


    def test_options_of_an_optimizer(self):
        """Rates are followed; what else changes is an error of each step until it is as before, and no step is made."""
        torch.manual_seed(1)
        theirs = mlp()
        model = copy.deepcopy(theirs)
        own, optimizer = (torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (theirs, model))
        step = TrainStep(model, nn.functional.mse_loss, optimizer)
        batch = torch.randn(5, 6), torch.randn(5, 3)
        for number in range(6):
            for each in (own, optimizer):
                each.param_groups[0]["lr"] = 1e-2 / (1 + number)
            own.zero_grad()
            loss = nn.functional.mse_loss(theirs(batch[0]), batch[1])
            loss.backward()
            own.step()
            self.assert_near(torch.tensor(step.step(*batch)), loss.detach(), 1e-4)
            for option, name, value in (("betas", "beta1", (0.5, 0.999)), ("eps", "eps", 1e-3), ("weight_decay", "weight_decay", 0.5)):
                before = optimizer.param_groups[0][option]
                optimizer.param_groups[0][option] = value
                for _ in range(2):
                    with self.assertRaisesRegex(support.gradloom.UsageError, f"{name} cannot change on a GPU, lr can"):
                        step.step(*batch)
                optimizer.param_groups[0][option] = before
        self.assertEqual(step.steps, 6)


class Places(support.Case):
    def test_tensors_elsewhere(self):
        with self.assertRaisesRegex(support.gradloom.UnsupportedError, "a tensor is on meta"):
            Module(nn.Linear(2, 2).to("meta"))(torch.ones(1, 2, device="meta"))
        with self.assertRaisesRegex(support.gradloom.UnsupportedError, "on cpu and meta"):
            Module(nn.Linear(2, 2))(torch.ones(1, 2, device="meta"))

    def test_names(self):
        self.assertEqual(_devices.place_of([torch.ones(1)]).name, "cpu")
        self.assertEqual(_devices.place_of([]).name, "cpu")
        for device, index in (("cuda", 0), ("cuda:1", 1)):
            tensor = mock.Mock(device=torch.device(device))
            self.assertIn(_devices.place_of([tensor]).name, (f"cuda:{index}", f"hip:{index}"))

    def test_the_stream_is_the_callers_of_now(self):
        """Each call hands over the one that is current then; on the CPU nothing is asked."""
        self.assertIsNone(_devices.place_of([torch.ones(1)]).stream())
        place = _devices.Place(torch.device("cuda", 1), "cuda:1")
        streams = [mock.Mock(cuda_stream=7), mock.Mock(cuda_stream=9)]
        with mock.patch.object(torch.cuda, "current_stream", side_effect=streams) as current:
            self.assertEqual([place.stream(), place.stream()], [7, 9])
            current.assert_called_with(place.device)

    def test_recordings(self):
        """What torch.cuda.graph records is a call of a plan that is there, in memory that no other call gets."""
        self.assertFalse(_devices.place_of([torch.ones(1)]).recorded())
        place, module = _devices.Place(torch.device("cuda", 1), "cuda:1"), Module(nn.Linear(2, 2))
        module(torch.ones(3, 2)).sum().backward()
        with mock.patch.object(torch.cuda, "is_current_stream_capturing", return_value=True), mock.patch.object(
            _module, "place_of", return_value=place
        ):
            self.assertTrue(place.recorded())
            module(torch.ones(3, 2))
            with self.assertRaisesRegex(support.gradloom.UnsupportedError, "this is the first of its kind: call it forward and backward before"):
                module(torch.ones(4, 2))
        arenas = _plan.Arenas(torch.device("cpu"))
        recorded = arenas.take(64, True)
        self.assertIsNot(arenas.take(64, False), recorded)
        del recorded
        called = arenas.take(64, False)
        self.assertIsNot(arenas.take(64, True), called)

    def test_decompositions_stay_where_their_arguments_are(self):
        """Tensors of two devices do not meet: on `meta` nothing is computed, but that is checked."""
        def meta(*shape):
            return torch.empty(shape, device="meta")

        grid = meta(1, 2, 3)
        calls = {
            "affine_grid": lambda f: f(grid, [1, 1, 4, 5], align_corners=False),
            "fold": lambda f: f(meta(1, 8, 12), (4, 5), (2, 2)),
            "scaled_dot_product_attention": lambda f: f(meta(1, 2, 5, 4), meta(1, 2, 5, 4), meta(1, 2, 5, 4), is_causal=True),
            "gelu": lambda f: f(meta(3), "tanh"),
            "rms_norm": lambda f: f(meta(2, 4), (4,), meta(4)),
            "huber_loss": lambda f: f(meta(3), meta(3)),
        }  # fmt: skip
        bodies = {**_decompositions.DECOMPOSITIONS, **_decompositions.LOSSES}
        for name, call in calls.items():
            if name in bodies:
                with self.subTest(function=name):
                    self.assertEqual(call(bodies[name]).device.type, "meta")
        self.assertEqual(_decompositions.adaptive_avg_pool(meta(1, 2, 7, 7), (3, 3)).device.type, "meta")


if __name__ == "__main__":
    unittest.main()
