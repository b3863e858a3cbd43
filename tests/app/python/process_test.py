#!/usr/bin/env python3
"""gradloom.torch.Module among threads and processes: data loaders, two threads, ranks, Ctrl-C, the end of the interpreter.

GRADLOOM_LIBRARY names the library. Exits with 77 (skipped) where there is no PyTorch.
"""

import copy
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest

import support
import torch
import torch.utils.data
from gradloom.torch import Module
from support import mlp, worst

HERE = os.path.dirname(os.path.abspath(__file__))


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.full((6,), float(index)), index


def run(script, *arguments, **options):
    """A script of its own process, which finds what the tests find. Where it crashes, stderr tells what each thread was doing."""
    text = f"import sys\nsys.path.insert(0, {HERE!r})\nimport support\nimport torch\nfrom gradloom.torch import Module\n" + textwrap.dedent(script)
    return subprocess.run([sys.executable, "-X", "faulthandler", "-c", text, *arguments], capture_output=True, text=True, timeout=240, **options)


class Plugins(unittest.TestCase):
    def test_a_missing_one_is_named(self):
        """The library is alone in a folder, as the loader sees it."""
        script = """
            from gradloom.torch import TrainStep
            try:
                TrainStep(support.mlp(), torch.nn.MSELoss(), device="cuda:0").step(torch.randn(4, 6), torch.randn(4, 3))
            except support.gradloom.UnsupportedError as error:
                print(error.code, error)
        """
        with tempfile.TemporaryDirectory() as folder:
            library = os.path.join(folder, "libgradloom.so")
            os.symlink(os.path.realpath(support.gradloom._library.library()._dll._name), library)
            environment = {key: value for key, value in os.environ.items() if key != "GRADLOOM_PLUGINS"}
            done = run(script, env={**environment, "GRADLOOM_LIBRARY": library})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^6 Sequential: [^\n]*libgradloom_cuda\.so is not beside the program")


class Threads(unittest.TestCase):
    def test_two_threads_on_one_module_and_on_two(self):
        torch.manual_seed(1)
        shared, plain = mlp(), mlp()
        shared, own = Module(shared), Module(copy.deepcopy(plain))
        failures = []

        def work(seed):
            generator = torch.Generator().manual_seed(seed)
            try:
                for step in range(60):
                    x = torch.randn(3 + step % 3, 6, generator=generator)
                    for module in (shared, own) if seed % 2 else (own, shared):
                        got = torch.autograd.grad(module(x).square().sum(), list(module.parameters()))
                        expected = torch.autograd.grad(plain(x).square().sum(), list(plain.parameters()))
                        assert worst(got, expected) < 1e-5
            except BaseException as error:
                failures.append(repr(error))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.assertEqual(failures, [])

    def test_members_are_the_modules_own_while_another_thread_traces(self):
        traced, looked = threading.Event(), threading.Event()

        class Waiting(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(6, 3)
                self.register_buffer("scale", torch.ones(3))

            def forward(self, x):
                traced.set()
                looked.wait(1)  # in vain, where who looks waits for the trace
                return self.linear(x) * self.scale

        module = Module(Waiting())
        members = lambda: [id(t) for t in (*module.parameters(), *module.buffers(), *module.state_dict(keep_vars=True).values())]
        expected = members()
        other = threading.Thread(target=module, args=(torch.randn(3, 6),))
        other.start()
        self.assertTrue(traced.wait(60))
        seen = members()
        looked.set()
        other.join()
        self.assertEqual(seen, expected)

    def test_workers_of_a_data_loader(self):
        module = Module(mlp())
        module(torch.zeros(4, 6)).sum().backward()  # threads exist before the workers do
        for context in ("fork", "spawn"):
            loader = torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=2, multiprocessing_context=context)
            seen = 0
            for x, index in loader:
                module(x).sum().backward()
                seen += len(index)
            self.assertEqual(seen, 24, context)

    def test_a_forked_child_computes(self):
        module, x = Module(mlp()), torch.randn(4, 6)
        expected = module(x).detach()
        child = os.fork()
        if child == 0:
            ok = False
            try:
                y = module(x)
                y.sum().backward()
                ok = torch.equal(y.detach(), expected)
            finally:
                os._exit(0 if ok else 1)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                self.assertEqual(status, 0)
                return
            time.sleep(0.02)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        self.fail("the child hangs")


class Ends(unittest.TestCase):
    def test_ctrl_c(self):
        script = """
            import os, signal, threading, time
            torch.manual_seed(0)
            module = Module(support.Gpt(width=64, layers=3))
            tokens = torch.randint(0, 31, (8, 12))
            plain = module(tokens, labels=tokens)["loss"].item()
            threading.Thread(target=lambda: (time.sleep(0.5), os.kill(os.getpid(), signal.SIGINT))).start()
            try:
                while True:
                    module(tokens, labels=tokens)["loss"].backward()
            except KeyboardInterrupt:
                pass
            module.zero_grad()
            again = module(tokens, labels=tokens)["loss"]
            again.backward()
            assert again.item() == plain
            print("goes on")
        """
        done = run(script)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "goes on"), done.stderr)

    def test_ctrl_c_that_nobody_catches(self):
        script = """
            import os, signal, threading, time
            module, x = Module(support.mlp()), torch.randn(4, 6)
            module(x)
            threading.Thread(target=lambda: (time.sleep(0.3), os.kill(os.getpid(), signal.SIGINT))).start()
            while True:
                module(x).sum().backward()
        """
        done = run(script)
        self.assertIn(done.returncode, (-signal.SIGINT, 130), done.stderr)
        self.assertIn("KeyboardInterrupt", done.stderr)

    def test_no_ctrl_c_is_lost(self):
        script = """
            import os, random, signal, threading, time
            module, x = Module(support.mlp()), torch.randn(4, 6)
            module(x).sum().backward()
            lost = 0
            for _ in range(1000):
                sent, inside = [], threading.Event()
                def send():
                    inside.wait()  # a Ctrl-C while the thread starts would be nobody's
                    time.sleep(random.random() * 0.003)
                    sent.append(time.monotonic())
                    os.kill(os.getpid(), signal.SIGINT)
                thread = threading.Thread(target=send)
                thread.start()
                try:
                    inside.set()
                    while not sent or time.monotonic() - sent[0] < 5:
                        module(x).sum().backward()
                    lost += 1
                except KeyboardInterrupt:
                    pass
                thread.join()
            print(lost)
        """
        done = run(script)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "0"), done.stderr)

    def test_the_interpreter_ends_while_a_thread_is_in_a_step(self):
        script = """
            import threading, time
            from gradloom.torch import TrainStep
            tokens = torch.randint(0, 31, (8, 12))
            step = TrainStep(support.Gpt(width=64, layers=3))
            step.step(tokens, tokens)
            def work():
                while True:
                    step.step(tokens, tokens)
            threading.Thread(target=work, daemon=True).start()
            time.sleep(0.2)
        """
        for _ in range(3):
            done = run(script)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_interpreter_ends_while_a_thread_is_in_a_module(self):
        """PyTorch's own calls in a daemon thread abort then, every time: Python ends the thread where it takes its lock, in the midst of
        PyTorch's functions. The engine's calls add no crash of another kind."""
        script = """
            import threading, time
            module, x = Module(support.Gpt(width=64, layers=3)), torch.randint(0, 31, (8, 12))
            module(x, labels=x)["loss"].backward()
            def work():
                while True:
                    module(x, labels=x)["loss"].backward()
            threading.Thread(target=work, daemon=True).start()
            time.sleep(0.2)
        """
        done = run(script)
        self.assertIn(done.returncode, (0, -signal.SIGABRT), done.stderr)
        if done.returncode != 0:
            self.assertRegex(done.stderr, "terminate called without an active exception|PyEval_SaveThread: .* the GIL is released")

    def test_a_step_that_was_begun_and_not_ended(self):
        done = run("loss = Module(support.mlp())(torch.randn(4, 6)).sum()\nprint(loss.item() == loss.item())\n")
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "True"), done.stderr)

    def test_no_library(self):
        environment = dict(os.environ, GRADLOOM_LIBRARY="/nowhere/libgradloom.so")
        done = run("Module(support.mlp())(torch.randn(4, 6))\n", env=environment)
        self.assertEqual(done.returncode, 1)
        self.assertIn("GRADLOOM_LIBRARY names /nowhere/libgradloom.so, which does not exist", done.stderr)


def rank_main(rank, file, results):
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo", init_method="file://" + file, rank=rank, world_size=2)
    torch.manual_seed(3)
    model = Module(support.Cnn())
    parallel = DistributedDataParallel(model)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(3):
        parallel.zero_grad()
        parallel(torch.randn(4, 3, 8, 8, generator=generator)).square().sum().backward()
    torch.save([p.grad for p in model.parameters()], f"{results}/{rank}.pt")
    dist.destroy_process_group()


class Ranks(unittest.TestCase):
    def test_distributed_data_parallel(self):
        with tempfile.TemporaryDirectory() as folder:
            script = f"import process_test, sys; process_test.rank_main(int(sys.argv[1]), {folder + '/store'!r}, {folder!r})\n"
            ranks = [threading.Thread(target=lambda r=r: done.append(run(script, str(r)))) for r in range(2)]
            done = []
            [t.start() for t in ranks]
            [t.join() for t in ranks]
            self.assertEqual([d.returncode for d in done], [0, 0], "".join(d.stderr for d in done))
            first, second = (torch.load(f"{folder}/{rank}.pt") for rank in range(2))
        self.assertEqual(worst(first, second), 0.0)
        torch.manual_seed(3)
        plain = support.Cnn()
        generators = [torch.Generator().manual_seed(rank) for rank in range(2)]
        for _ in range(3):
            plain.zero_grad()
            for generator in generators:
                (plain(torch.randn(4, 3, 8, 8, generator=generator)).square().sum() / 2).backward()
        self.assertLess(worst(first, [p.grad for p in plain.parameters()]), 1e-4)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
