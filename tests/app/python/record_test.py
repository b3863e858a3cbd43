#!/usr/bin/env python3
"""gradloom.record: where the time of a loop's steps goes, and that nothing is left of it afterwards.

Exits with 77 (skipped) where there is no PyTorch.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
import warnings

import support
import torch
from gradloom.torch import Module, TrainStep
from support import gradloom
from torch import nn
from torch.utils.data import DataLoader, Dataset

PROGRAM = os.environ.get("GRADLOOM_PROGRAM", os.path.join(os.path.dirname(support.TESTS), "build", "release", "gradloom"))
NAP = 0.004
slept = {}  # the longest of each: a busy machine sleeps longer than it was told to


def sleep(what, seconds):
    start = time.perf_counter()
    time.sleep(seconds)
    slept[what] = max(slept.get(what, 0.0), time.perf_counter() - start)


class Slow(torch.autograd.Function):
    """Sleeps, backward twice as long as forward."""

    @staticmethod
    def forward(ctx, x):
        sleep("forward", NAP)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        sleep("backward", 2 * NAP)
        return gradient * 2


class Net(nn.Module):
    def __init__(self, slow=False, width=32):
        super().__init__()
        self.up, self.down, self.slow = nn.Linear(width, 4 * width), nn.Linear(4 * width, 1), slow

    def forward(self, x):
        x = torch.tanh(self.up(x))
        return self.down(Slow.apply(x) if self.slow else x).pow(2).mean()


class Unexportable(nn.Module):
    """A submodule that stays in PyTorch."""

    def __init__(self, width=32):
        super().__init__()
        self.first, self.odd, self.last = nn.Linear(width, width), Odd(), nn.Linear(width, 1)

    def forward(self, x):
        return self.last(self.odd(self.first(x))).pow(2).mean()


class Odd(nn.Module):
    def forward(self, x):
        sleep("odd", NAP)
        return torch.special.i0(x * 0.1)


class Batches(Dataset):
    def __init__(self, count, nap=0.0):
        self.count, self.nap = count, nap

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index >= self.count:
            raise IndexError
        sleep("data", self.nap)
        return torch.randn(8, 32)


def quiet(function, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **kwargs)


class RecordTest(unittest.TestCase):
    def setUp(self):
        slept.clear()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "s.db")

    def train(self, model, batches=10, nap=0.0, body=lambda: None, optimizer=None, **options):
        optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.125)
        with gradloom.record(self.path, **options) as recording:
            for batch in DataLoader(Batches(batches, nap), batch_size=None):
                loss = quiet(model, batch)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                body()
        return recording

    def session(self):
        session = gradloom.Session(self.path)
        self.addCleanup(session.close)
        return session

    def part(self, kind, name=None):
        """Own time per step in seconds."""
        return sum(row["own_ns"] for row in self.session().loop() if row["kind"] == kind and name in (None, row["name"])) * 1e-9

    def show(self, *words):
        return subprocess.run([PROGRAM, *words], capture_output=True, text=True)

    def test_spans_add_up_to_steps_and_kernels_lie_in_the_engine(self):
        self.train(Module(Net(slow=True)), batches=9, nap=0.001, profile="all")
        session = self.session()
        run = session.runs()[0]
        self.assertEqual((run["status"], run["steps"]), ("done", 9))
        sums = session.query("SELECT step, sum(own_ns) AS own_ns, (SELECT step_ns FROM loss WHERE run = 1 AND step = v.step) AS step_ns "
                             "FROM v_loop v WHERE run = 1 GROUP BY step ORDER BY step")  # fmt: skip
        self.assertEqual([row["step"] for row in sums], list(range(1, 10)))
        self.assertEqual([row["own_ns"] for row in sums], [row["step_ns"] for row in sums])
        steps = session.query("SELECT start_ns, start_ns + duration_ns AS end_ns FROM host_span WHERE kind = 'step' ORDER BY step")
        self.assertEqual([row["end_ns"] for row in steps][:-1], [row["start_ns"] for row in steps][1:])
        outside = session.query("SELECT count(*) AS n FROM kernel_sample k WHERE NOT EXISTS (SELECT 1 FROM host_span s WHERE s.run = k.run AND s.step = k.step "
                                "AND s.kind = 'engine' AND k.start_ns >= s.start_ns AND k.start_ns + k.duration_ns <= s.start_ns + s.duration_ns)")  # fmt: skip
        self.assertEqual(outside[0]["n"], 0)
        kernels = session.query("SELECT count(DISTINCT step) AS steps, count(*) AS n FROM kernel_sample")[0]
        self.assertEqual(kernels["steps"], 9)
        self.assertGreater(kernels["n"], 9 * 8)
        self.assertAlmostEqual(sum(row["share"] for row in session.loop()), 1.0, places=6)

    def test_time_is_where_it_is_spent(self):
        self.train(Module(Net()), batches=12, nap=2 * NAP, body=lambda: sleep("step", 3 * NAP))
        self.assertGreater(self.part("data", "Batches"), 2 * NAP)
        self.assertLess(self.part("data"), slept["data"] + 3 * NAP)
        self.assertGreater(self.part("step"), 3 * NAP)
        self.assertLess(self.part("step"), slept["step"] + 2 * NAP)
        for kind in ("engine", "gradloom", "optimizer", "backward"):
            self.assertGreater(self.part(kind), 0, kind)
        self.assertEqual(self.part("outside"), 0)
        self.assertEqual({row["name"] for row in self.session().loop() if row["kind"] == "engine"}, {"Net forward", "Net backward"})

    def test_functions_are_host_kernels_forward_and_backward(self):
        self.train(Module(Net(slow=True)), batches=8, profile="all")
        forward, backward = self.part("outside", "Slow"), self.part("outside", "Slow backward")
        self.assertGreater(forward, NAP)
        self.assertLess(forward, slept["forward"] + 2 * NAP)
        self.assertGreater(backward, 2 * NAP)
        self.assertLess(backward, slept["backward"] + NAP)
        self.assertLess(self.part("backward"), 2 * NAP, "what the function takes is not autograd's")

    def test_the_window_has_them_beside_the_kernels(self):
        self.train(Module(Net(slow=True)), batches=9, profile="all")
        script = os.path.join(os.path.dirname(self.path), "script")
        with open(script, "w") as file:
            file.write('wait idle\nexpect loop.outside "* %"\nexpect bar.Slow\nexpect "bar.Slow backward"\n')
        environment = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "WAYLAND_DISPLAY")}
        done = subprocess.run([PROGRAM, "open", self.path, "--headless", "--script", script], capture_output=True, text=True, env=environment)
        if "this build has no window" in done.stderr:
            self.skipTest(done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)
        (slow, backward) = (self.session().query("SELECT avg(duration_ns) AS ns FROM host_span WHERE kind = 'outside' AND name = ?", name)[0]["ns"]
                            for name in ("Slow", "Slow backward"))  # fmt: skip
        self.assertGreater(slow, NAP * 1e9)
        self.assertGreater(backward, 2 * NAP * 1e9)

    def test_submodules_in_pytorch_have_their_path(self):
        self.train(Module(Unexportable(), fallback="torch"), batches=8, profile="all")
        self.assertGreater(self.part("outside", "odd (Odd)"), NAP)
        self.assertGreater(self.part("outside", "odd (Odd) backward"), 0)
        self.assertLess(self.part("outside", "odd (Odd) backward"), NAP)
        self.assertEqual(self.part("module"), 0)

    def test_a_module_that_runs_in_pytorch_whole_is_outside(self):
        class Changes(nn.Module):
            def __init__(self):
                super().__init__()
                self.line = nn.Linear(32, 1)

            def forward(self, x):
                return (self.line(x) if torch.special.i0(x).sum() > -1 else x).mean()

        self.train(Module(Changes(), fallback="torch"), batches=8)
        self.assertGreater(self.part("outside", "Changes"), 0)
        self.assertEqual(self.part("engine"), 0)
        shown = self.show("show", self.path)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertIn("the engine computes 0.0 % of a step", shown.stdout)

    def test_other_modules_and_marked_spans(self):
        class Sleeps(nn.Linear):
            def forward(self, x):
                time.sleep(NAP)
                return super().forward(x)

        front, model = nn.Sequential(Sleeps(32, 32)), Module(Net())
        optimizer = torch.optim.AdamW([*front.parameters(), *model.parameters()], lr=1e-3)
        with gradloom.record(self.path, profile="all") as recording:
            for batch in recording.data(torch.randn(8, 8, 32)):
                with recording.span("tokenize"):
                    time.sleep(NAP)
                quiet(model, front(batch)).backward()
                optimizer.step()
                optimizer.zero_grad()
        self.assertGreater(self.part("module", "Sequential"), NAP)
        self.assertGreater(self.part("python", "tokenize"), NAP)
        self.assertGreater(self.part("optimizer", "AdamW"), 0)
        self.assertGreater(self.part("data", "Tensor"), 0)
        environment = {row["name"]: row["value"] for row in self.session().query("SELECT name, value FROM environment")}
        self.assertEqual(environment["loop.optimizer"], "AdamW")
        self.assertEqual(environment["loop.torch"], torch.__version__)

    def test_a_loop_without_the_engine(self):
        self.train(Net(slow=True), batches=8)
        self.assertGreater(self.part("module", "Net"), NAP)
        self.assertGreater(self.part("backward"), 2 * NAP)
        self.assertEqual(self.part("engine"), 0)
        loop = json.loads(self.show("show", self.path, "--json").stdout)["loop"]
        self.assertAlmostEqual(loop["torch_share"], sum(row["share"] for row in self.session().loop() if row["kind"] in ("module", "backward")), places=6)
        self.assertRegex(self.show("show", self.path).stdout, r"the engine computes 0\.0 % of a step: .* 1\.00x; PyTorch computes \d+\.\d % in modules and autograd")
        self.assertEqual(self.show("trace", self.path, "-o", self.path + ".json").returncode, 0)

    def test_losses_rates_and_plans(self):
        model, seen = Module(Net()), []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        with gradloom.record(self.path, name="two shapes"):
            for step in range(8):
                loss = quiet(model, torch.randn(8 if step % 2 else 4, 32))
                loss.backward()
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                seen.append(float(loss.detach()))
        session = self.session()
        self.assertEqual([row["loss"] for row in session.losses()], seen)
        self.assertEqual([row["lr"] for row in session.losses()], [0.5 ** (1 + step) for step in range(8)])
        self.assertEqual(session.runs()[0]["name"], "two shapes")
        self.assertEqual({row["node"].split("/")[0] for row in session.kernels()}, {"Net", "Net#2"})
        self.assertEqual(len(session.query("SELECT * FROM plan")), 2)
        for row in session.kernels():
            self.assertEqual(row["samples"] > 0, True, row)

    def test_gradients_that_add_up_are_one_step_and_calls_are_told_apart(self):
        model = Module(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with gradloom.record(self.path, profile="all") as recording:
            for _ in range(5):
                for _ in range(3):
                    quiet(model, torch.randn(8, 32)).backward()
                optimizer.step()
                optimizer.zero_grad()
        self.assertEqual(recording.steps, 5)
        calls = self.session().query("SELECT step, plan_step, count(*) AS n, count(DISTINCT micro) AS micros FROM kernel_sample GROUP BY step, plan_step")
        self.assertTrue(calls)
        self.assertEqual({(row["n"], row["micros"]) for row in calls if row["step"] > 1}, {(3, 3)})

    def test_optimizers_that_follow_each_other_end_one_step(self):
        model = Module(Net())
        parameters = list(model.parameters())
        pair = [torch.optim.SGD(parameters[:2], lr=0.1), torch.optim.AdamW(parameters[2:], lr=0.01)]
        with gradloom.record(self.path) as recording:
            for _ in range(4):
                quiet(model, torch.randn(8, 32)).backward()
                for optimizer in pair:
                    optimizer.step()
        self.assertEqual(recording.steps, 4)

    def test_steps_that_the_program_ends(self):
        model = Module(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with gradloom.record(self.path, optimizers=False) as recording:
            for step in range(4):
                for _ in range(2):
                    quiet(model, torch.randn(8, 32)).backward()
                    optimizer.step()
                recording.step(loss=step)
        self.assertEqual([row["loss"] for row in self.session().losses()], [0, 1, 2, 3])
        self.assertEqual(recording.steps, 4)

    def test_first_steps_are_skipped_and_the_last_ends_the_recording(self):
        before = torch.autograd.backward
        recording = self.train(Module(Net()), batches=12, skip=2, steps=5)
        self.assertEqual(recording.steps, 5)
        self.assertIs(torch.autograd.backward, before)
        session = self.session()
        self.assertEqual([row["step"] for row in session.losses()], [1, 2, 3, 4, 5])
        self.assertEqual(session.runs()[0]["status"], "done")
        self.assertEqual(session.query("SELECT count(*) AS n FROM host_span WHERE kind = 'compile'")[0]["n"], 0)

    def test_tracing_and_compiling_is_a_part(self):
        self.train(Module(Net()), batches=2, profile="step")
        rows = self.session().query("SELECT step, own_ns FROM v_loop WHERE kind = 'compile'")
        self.assertEqual({row["step"] for row in rows} - {2}, {1})
        self.assertGreater(sum(row["own_ns"] for row in rows), 1_000_000)
        self.assertEqual(self.session().query("SELECT count(*) AS n FROM v_loop WHERE kind IN ('module', 'outside')")[0]["n"], 0)

    def test_whole_steps_of_the_engine(self):
        step = TrainStep(Net(), None, "sgd{lr=0.1}")
        with gradloom.record(self.path) as recording:
            losses = [step.step(torch.randn(8 if number < 4 else 4, 32)) for number in range(5)]
        self.assertEqual(recording.steps, 5)
        compiled = self.session().query("SELECT DISTINCT step FROM v_loop WHERE kind = 'compile' ORDER BY step")
        self.assertEqual([row["step"] for row in compiled], [1, 5])
        self.assertEqual(self.session().query("SELECT count(*) AS n FROM host_span WHERE kind IN ('module', 'outside')")[0]["n"], 0)
        self.assertEqual([row["loss"] for row in self.session().losses()], losses)
        self.assertGreater(self.part("engine", "TrainStep"), 0)

    def test_nothing_is_left_afterwards(self):
        from gradloom.torch import _cut, _module, _opened, _plan
        from torch.optim import optimizer as optimizers
        from torch.utils.data import dataloader

        def state():
            hooks = [len(getattr(optimizers, name, ())) for name in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")]
            places = [(nn.Module, "__call__"), (torch.autograd, "backward"), (torch.autograd, "grad"), (torch.autograd.profiler, "record_function"), (_plan.Plan, "forward"),
                      (_plan.Plan, "backward"), (_opened._Run, "backward"), (_opened.Words, "open"), (_cut._Outside, "run"), (_module._Engine, "_make"),
                      (dataloader._BaseDataLoaderIter, "__next__"), (dataloader.DataLoader, "__iter__")]  # fmt: skip
            return hooks, [owner.__dict__[name] for owner, name in places]

        before = state()
        recording = gradloom.record(self.path)
        self.assertNotEqual(state(), before)
        recording.close()
        self.assertEqual(state(), before)
        recording.close()
        model = Module(Net())
        with self.assertRaises(KeyError), gradloom.record(self.path):
            quiet(model, torch.randn(8, 32)).backward()
            raise KeyError("no such word")
        self.assertEqual(state(), before)
        runs = self.session().runs()
        self.assertEqual([run["status"] for run in runs], ["done", "failed"])
        self.assertIn("KeyError", self.session().query("SELECT message FROM run WHERE id = 2")[0]["message"])
        self.assertIn("no such word", self.show("show", self.path).stdout)
        self.train(model, batches=4)
        self.assertEqual(self.session().runs()[2]["steps"], 4)

    def test_an_exception_in_a_forward_costs_its_span_alone(self):
        class Fails(nn.Module):
            def forward(self, x):
                if x.shape[0] == 3:
                    raise RuntimeError("three")
                return x

        front, model = Fails(), Module(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with gradloom.record(self.path, profile="all"):
            for step in range(6):
                try:
                    quiet(model, front(torch.randn(3 if step == 1 else 8, 32))).backward()
                except RuntimeError:
                    continue
                optimizer.step()
        rows = self.session().query("SELECT step, spans FROM v_loop WHERE kind = 'module' ORDER BY step")
        self.assertEqual([row["step"] for row in rows], [1, 2, 3, 4, 5])

    def test_errors_are_one_line(self):
        with gradloom.record(self.path):
            with self.assertRaises(gradloom.UsageError) as caught:
                gradloom.record(self.path + "2")
            self.assertIn("one at a time", str(caught.exception))
        self.assertFalse(os.path.exists(self.path + "2"))
        with self.assertRaises(gradloom.Error) as caught:
            gradloom.record(os.path.join(self.path, "no", "s.db"))
        self.assertEqual(caught.exception.code, 5)
        self.assertIn("cannot write", str(caught.exception))
        for words in ({"steps": 0}, {"skip": -1}, {"profile": "everything"}):
            with self.assertRaises(gradloom.UsageError):
                gradloom.record(self.path, **words)
        with gradloom.record(self.path):  # a refused one leaves none behind
            pass

    def test_a_session_that_goes_away_ends_the_recording_and_not_the_loop(self):
        model = Module(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        recording = gradloom.record(self.path)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for step in range(80):
                if step == 3:
                    for end in ("", "-wal", "-shm"):
                        os.remove(self.path + end)
                model(torch.randn(8, 32)).backward()
                optimizer.step()
        self.assertEqual([str(w.message) for w in told if "recording ends" in str(w.message)],
                         [f"gradloom: the recording ends: {self.path}: the session file was removed or replaced while it was written"])  # fmt: skip
        recording.close()

    def test_commands_know_loops(self):
        self.train(Module(Net(slow=True)), batches=10)
        shown = self.show("show", self.path)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        for text in ("the engine computes", "engine: kernels", "Slow backward", "Python and the rest", "calls per step"):
            self.assertIn(text, shown.stdout)
        loop = json.loads(self.show("show", self.path, "--json").stdout)["loop"]
        self.assertAlmostEqual(sum(row["share"] for row in loop["rows"]), 1.0, places=6)
        self.assertLessEqual(loop["kernel_ns"], sum(part["own_ns"] for part in loop["parts"] if part["kind"] == "engine"))
        share = loop["engine_share"]
        self.assertAlmostEqual(loop["speedup_if_engine_twice_as_fast"], 1 / (1 - share / 2), places=9)
        by_name = {(row["kind"], row["name"]): row["own_ns"] for row in self.session().loop()}
        for part in loop["parts"]:
            self.assertAlmostEqual(part["own_ns"], by_name[part["kind"], part["name"]], places=3)
        trace = os.path.join(os.path.dirname(self.path), "t.json")
        self.assertEqual(self.show("trace", self.path, "-o", trace).returncode, 0)
        with open(trace) as file:
            events = json.load(file)["traceEvents"]
        self.assertIn("Slow backward", {event["name"] for event in events if event.get("cat") == "host"})
        self.assertIn("recorded loop", self.show("export", self.path).stderr)
        self.assertEqual(self.show("export", self.path).returncode, 3)
        self.train(Module(Net()), batches=10)
        self.assertIn("recorded loop", self.show("compare", "1", "2", "--session", self.path).stderr)
        self.assertEqual(self.show("compare", "1", "2", "--session", self.path, "--stored").returncode, 0)
        self.assertEqual(self.show("runs", self.path).returncode, 0)

    def test_children_do_not_record(self):
        class Asks(Batches):
            def __getitem__(self, index):
                nn.Linear(2, 2)(torch.zeros(1, 2))
                return super().__getitem__(index)

        model = Module(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with gradloom.record(self.path, profile="all"):
            for batch in DataLoader(Asks(12), batch_size=None, num_workers=2):
                quiet(model, batch).backward()
                optimizer.step()
        self.assertEqual(self.part("module"), 0)
        self.assertGreater(self.part("data", "Asks"), 0)
        self.assertEqual(self.show("show", self.path).returncode, 0)

    def test_results_are_the_same_as_without(self):
        def trained(record):
            torch.manual_seed(3)
            model = Module(Net(slow=True))
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
            with gradloom.record(self.path) if record else warnings.catch_warnings():
                for _ in range(4):
                    quiet(model, torch.randn(8, 32)).backward()
                    optimizer.step()
                    optimizer.zero_grad()
            return list(model.parameters())

        for one, other in zip(trained(False), trained(True)):
            self.assertTrue(torch.equal(one, other))


if __name__ == "__main__":
    unittest.main()
