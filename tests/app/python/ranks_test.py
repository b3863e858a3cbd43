#!/usr/bin/env python3
"""Ranks that torchrun starts: TrainStep(distributed=True), and Module in DistributedDataParallel, train as PyTorch's DistributedDataParallel (gloo).

GRADLOOM_LIBRARY names the library. Exits with 77 (skipped) where there is no PyTorch. As a rank: ranks_test.py WHAT FOLDER.
"""

import copy
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import support
import torch
from gradloom.torch import Module, TrainStep
from support import Cnn, Gpt, mlp
from torch import nn
from torch.nn import functional as F

STEPS = 6


def class_batch(step, rank):
    generator = torch.Generator().manual_seed(10 * step + rank)
    return torch.randn(4, 6, generator=generator, dtype=torch.float64), torch.randint(0, 3, (4,), generator=generator)


def text_batch(step, rank):
    generator = torch.Generator().manual_seed(10 * step + rank)
    length = 8 if step % 3 else 5  # a plan for each
    return {key: torch.randint(0, 31, (2, length), generator=generator) for key in ("tokens", "labels")}


def image_batch(step, rank):
    generator = torch.Generator().manual_seed(10 * step + rank)
    return torch.randn(4, 3, 8, 8, generator=generator, dtype=torch.float64), torch.randint(0, 3, (4,), generator=generator)


def with_states(parameters):
    """As after three updates, the same on every rank."""
    parameters, generator = list(parameters), torch.Generator().manual_seed(4)
    optimizer = torch.optim.AdamW(parameters, lr=2e-3)
    for p in parameters:
        drawn = 0.1 * torch.randn(p.shape, generator=generator, dtype=p.dtype)
        optimizer.state[p] = {"step": torch.tensor(3.0), "exp_avg": drawn, "exp_avg_sq": drawn.square() + 1e-4}
    return optimizer


CASES = {
    "continued": (lambda: nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)), F.cross_entropy, class_batch, with_states),
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)), F.cross_entropy, class_batch, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    "gpt": (Gpt, None, text_batch, lambda p: torch.optim.AdamW(p, lr=2e-3, weight_decay=0.1)),
}


def make(build, seed):
    torch.manual_seed(seed)
    return build().double()


def wide_mlp():
    """Whose weights ranks cut: they have more than 8192 elements."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 128), nn.Tanh(), nn.Linear(128, 160), nn.Tanh(), nn.Linear(160, 3))


def wide_batch(step, rank):
    x, labels = class_batch(step, rank)
    return x.float(), labels


def loss_of(model, loss, batch):
    if isinstance(batch, dict):
        return model(**batch)["loss"]
    return loss(model(*batch[:-1]), batch[-1])


def data_parallel(model):
    # Masks of truth values, which gloo cannot send, are the same on every rank.
    parallel = nn.parallel.DistributedDataParallel
    parallel._set_params_and_buffers_to_ignore_for_model(model, [name for name, buffer in model.named_buffers() if buffer.dtype == torch.bool])
    return parallel(model)


def by_torch(model, loss, batch_of, optimizer, rank, world):
    """Losses (means over the ranks) and the trained state."""
    parallel = data_parallel(model)
    optimizer, losses = optimizer(model.parameters()), []
    for step in range(STEPS):
        optimizer.zero_grad()
        made = loss_of(parallel, loss, batch_of(step, rank))
        made.backward()
        optimizer.step()
        mean = made.detach().clone()
        torch.distributed.all_reduce(mean)
        losses.append(mean.item() / world)
    return losses, copy.deepcopy(model.state_dict())


def run_steps(step, model, batch_of, rank):
    losses = []
    for number in range(STEPS):
        batch = batch_of(number, rank)
        losses.append(step.step(**batch) if isinstance(batch, dict) else step.step(*batch))
    step.update_module()
    step.close()
    return losses, copy.deepcopy(model.state_dict())


def train(model, loss, batch_of, optimizer, rank, **settings):
    return run_steps(TrainStep(model, loss, optimizer(model.parameters()), distributed=True, **settings), model, batch_of, rank)


def against_torch(folder):
    torch.distributed.init_process_group("gloo")
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    results = {}
    for name, (build, loss, batch_of, optimizer) in CASES.items():
        theirs = by_torch(make(build, 3), loss, batch_of, optimizer, rank, world)
        model = make(build, 3 + rank)  # rank 0's parameters are those of all
        step = TrainStep(model, loss, optimizer(model.parameters()), distributed=True)
        assert (step.rank, step.world) == (rank, world)
        results[name] = theirs, run_steps(step, model, batch_of, rank)
        for passes in ("default,zero", "default,zero{stage=2}"):
            results[f"{name} {passes}"] = results[name][1], train(make(build, 3), loss, batch_of, optimizer, rank, passes=passes)
    halves = {
        passes: train(wide_mlp(), F.cross_entropy, wide_batch, lambda p: torch.optim.AdamW(p, lr=2e-3), rank, precision="bf16", passes=passes)
        for passes in ("default", "default,zero", "default,zero{stage=2}")
    }
    for passes in list(halves)[1:]:  # the module gets whole parameters of f32
        results[f"wide in bf16 {passes}"] = halves["default"], halves[passes]
    results["Module"] = wrapped_module(rank, world)
    torch.save(results, f"{folder}/{rank}.pt")
    try:
        TrainStep(model)
    except support.gradloom.UsageError as error:
        assert "distributed=True" in str(error)
    else:
        raise AssertionError("a step of one rank among several")


def unlike(folder):
    """Rank 1's states are others."""
    model = make(CASES["mlp"][0], 3)
    optimizer = with_states(model.parameters())
    step = TrainStep(model, F.cross_entropy, optimizer, distributed=True)
    if step.rank == 1:
        optimizer.state[model[0].weight]["exp_avg"][0, 0] += 1
    try:
        step.step(*class_batch(0, step.rank))
    except Exception as error:
        with open(f"{folder}/{step.rank}", "w") as file:
            file.write(f"{type(error).__name__} {error}")
        raise


def wrapped_module(rank, world):
    def optimizer(parameters):
        return torch.optim.AdamW(parameters, lr=2e-3, weight_decay=0.1)

    theirs = by_torch(make(Cnn, 3), F.cross_entropy, image_batch, optimizer, rank, world)
    ours = by_torch(Module(make(Cnn, 3)), F.cross_entropy, image_batch, optimizer, rank, world)
    return theirs, ours


def failing(folder):
    """Rank 1's third batch raises in the model."""

    class Check(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            if x.isnan().any():
                raise ValueError("a bad batch")
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    class Checked(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(6, 3)

        def forward(self, x):
            return Check.apply(self.inner(x))

    step = TrainStep(Checked().double(), F.cross_entropy, "sgd{lr=0.1}", distributed=True)
    try:
        for number in range(5):
            inputs, labels = class_batch(number, step.rank)
            step.step(inputs * float("nan") if (step.rank, number) == (1, 2) else inputs, labels)
    except Exception as error:
        with open(f"{folder}/{step.rank}", "w") as file:
            file.write(f"{number} {type(error).__name__} {error}")
        raise


def free_port():
    """Of two that follow each other."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            try:
                second.bind(("127.0.0.1", first.getsockname()[1] + 1))
            except (OSError, OverflowError):
                continue
            return first.getsockname()[1]


def torchrun(what, folder, ranks):
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(ranks), "--master_port", str(free_port())]
    words += ["--redirects", "9:1", "--tee", "9:1"]  # of a rank that there is not: the default, 0, is an error of PyTorch 1.13 with Python 3.11
    return subprocess.run([*words, os.path.abspath(__file__), what, folder], capture_output=True, text=True, timeout=240)


class Ranks(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.folder = self._folder.name

    def tearDown(self):
        self._folder.cleanup()

    def test_they_train_as_distributed_data_parallel(self):
        ranks = 2
        done = torchrun("against_torch", self.folder, ranks)
        self.assertEqual(done.returncode, 0, done.stderr)
        results = [torch.load(f"{self.folder}/{rank}.pt") for rank in range(ranks)]
        for name, (theirs, ours) in results[0].items():
            with self.subTest(model=name):
                for mine, other in zip(ours[0], theirs[0]):
                    self.assertLess(abs(mine - other) / abs(other), 1e-9)
                self.assertEqual(len(ours[0]), STEPS)
                state = {key.removeprefix("module."): value for key, value in ours[1].items()}
                for key, value in theirs[1].items():
                    self.assertLess((state[key].double() - value.double()).abs().max().item(), 1e-9, key)
                if "zero" in name:  # states and gradients that ranks keep apart: not a bit changes
                    self.assertEqual(ours[0], theirs[0])
                    for key, value in ours[1].items():
                        self.assertTrue(torch.equal(value, theirs[1][key]), key)
                for other in results[1:]:
                    self.assertEqual(other[name][1][0], ours[0], "losses are of all")
                    for key, value in ours[1].items():
                        if "running" not in key:
                            self.assertTrue(torch.equal(value, other[name][1][1][key]), f"{key} is the same on every rank")

    def test_a_rank_that_fails_ends_all(self):
        done = torchrun("failing", self.folder, 2)
        self.assertNotEqual(done.returncode, 0)
        with open(f"{self.folder}/1") as file:
            self.assertEqual(file.read(), "2 ValueError a bad batch")
        with open(f"{self.folder}/0") as file:
            self.assertRegex(file.read(), "^2 .*Error rank 1: ")

    def test_states_of_optimizers_that_differ_are_refused(self):
        self.assertNotEqual(torchrun("unlike", self.folder, 2).returncode, 0)
        with open(f"{self.folder}/1") as file:
            self.assertRegex(file.read(), "^UsageError the optimizer's states of rank 1 are not those of rank 0")

    def test_one_rank_without_a_launcher(self):
        step = TrainStep(mlp(), F.mse_loss, "sgd{lr=0.1}", distributed=True)
        self.assertEqual((step.rank, step.world), (0, 1))
        self.assertGreater(step.step(torch.randn(4, 6), torch.randn(4, mlp()[-1].out_features)), 0)
        step.close()

    def run_alone(self, script, **variables):
        here = os.path.dirname(os.path.abspath(__file__))
        text = f"import sys; sys.path.insert(0, {here!r}); import support; from gradloom.torch import TrainStep\n" + script
        environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), **variables}
        return subprocess.Popen([sys.executable, "-c", text], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def test_a_rank_that_does_not_come(self):
        script = "try:\n  TrainStep(support.mlp(), distributed=True, rank_timeout=0.3)\nexcept support.gradloom.Error as e:\n  print(e.code, e)\n"
        out, err = self.run_alone(script).communicate(timeout=60)
        self.assertRegex(out, r"^6 rank 1 did not come to 127\.0\.0\.1 port \d+ within 0\.3 s\n$", err)

    def test_control_c_ends_the_meeting(self):
        process = self.run_alone("print('meets', flush=True)\nTrainStep(support.mlp(), distributed=True)\n")
        self.assertEqual(process.stdout.readline(), "meets\n")
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertIn("KeyboardInterrupt", err)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in ("against_torch", "failing", "unlike"):
        sys.exit(globals()[sys.argv[1]](sys.argv[2]))
    sys.exit(unittest.main(verbosity=1))
