#!/usr/bin/env python3
"""gradloom.torch.profile and `gradloom import`: PyTorch's own steps beside those of the engine, by module and phase.

Exits with 77 (skipped) where there is no PyTorch.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

import support
import numpy as np
import torch
from gradloom.torch import profile
from gradloom.torch._profile import scope_of
from support import gradloom

sys.path.insert(0, os.path.join(support.TESTS, "models"))
import modules  # noqa: E402

PROGRAM = os.environ.get("GRADLOOM_PROGRAM", os.path.join(os.path.dirname(support.TESTS), "build", "release", "gradloom"))
STEPS = 4


def answer(*words):
    done = subprocess.run([PROGRAM, *words, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


class ProfileTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.trace, self.session = os.path.join(self.folder, "t.json"), os.path.join(self.folder, "s.db")

    def train(self, name, make, names, trace, skip=2, **options):
        """PyTorch's steps on the batches of a model of tests/models, profiled."""
        batches = np.load(os.path.join(support.TESTS, "models", name, "batches.npz"))
        torch.manual_seed(0)
        module = make()
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
        with profile(module, trace, steps=STEPS, skip=skip, **options) as made:
            for step in range(20):
                loss, _ = module(*[torch.from_numpy(batches[key][step % len(batches[key])]) for key in names])
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                made.step()
                if made.done:
                    break
        self.assertEqual((made.steps, made.done, step + 1), (STEPS, True, STEPS + skip))
        return made

    def test_steps_phases_and_modules_are_the_models(self):
        before = torch.nn.Module.__call__
        made = self.train("gpt-char", modules.GptChar, ("tokens", "labels"), self.trace)
        self.assertIs(torch.nn.Module.__call__, before)
        model = os.path.join(support.TESTS, "models", "gpt-char", "model.onnx")
        found = made.to_session(self.session, model=model, name="torch")
        self.assertEqual((found.run_id, found.steps, found.recorded_by, found.device), (1, STEPS, "kineto", "cpu"))
        self.assertEqual(found.matched_modules, found.modules)
        run = answer("show", self.session, "--group", "phase")
        self.assertEqual({group["name"] for group in run["groups"]}, {"forward", "backward", "optimizer"})
        self.assertEqual(run["recorded_by"], "kineto")
        scopes = {kernel["scope"] for kernel in run["kernels"]}
        for scope in ("blocks.0/attn/qkv", "blocks.3/fc", "blocks.1/ln2", "wte", "ln_f"):
            self.assertIn(scope, scopes)
        # Every module has a backward, and the products are in it.
        backward = {kernel["scope"] for kernel in run["kernels"] if kernel["phase"] == "backward" and "mm" in kernel["op"]}
        self.assertLessEqual({f"blocks.{i}/{part}" for i in range(4) for part in ("fc", "proj", "attn/qkv", "attn/proj", "attn")}, backward)
        rows = gradloom.Session(self.session).query(
            "SELECT l.step, l.step_ns, l.loss, sum(k.duration_ns) AS kernel_ns FROM loss l JOIN kernel_sample k ON k.run = l.run AND k.step = l.step GROUP BY l.step")
        self.assertEqual(len(rows), STEPS)
        for row in rows:
            self.assertIsNone(row["loss"])
            self.assertLessEqual(row["kernel_ns"], row["step_ns"])
            self.assertGreater(row["kernel_ns"], 0.3 * row["step_ns"])

    def test_compares_by_module_and_phase(self):
        self.train("gpt-char", modules.GptChar, ("tokens", "labels"), self.trace + ".gz")
        folder = os.path.join(support.TESTS, "models", "gpt-char")
        answer("import", self.trace + ".gz", "--session", self.session, "--model", folder + "/model.onnx", "--name", "torch")
        answer("train", folder + "/model.onnx", "--dim", "batch=4", "--loss", "ce:logits,labels", "--optimizer", "adamw{lr=1e-3}",
               "--data", f"npz:{folder}/batches.npz", "--steps", "6", "--profile", "all", "--session", self.session, "--name", "ours")  # fmt: skip
        found = answer("compare", "torch", "ours", "--stored", "--session", self.session)
        self.assertEqual(found["kernels_by"], "scope")
        self.assertIsNone(found["max_loss_difference"])
        both = {(row["name"], row["phase"]) for row in found["kernels"] if row["a_ns"] > 0 and row["b_ns"] > 0}
        for block in range(4):
            for part in ("attn/qkv", "attn/proj", "fc", "proj", "ln1"):
                for phase in ("forward", "backward"):
                    self.assertIn((f"blocks.{block}/{part}", phase), both)
        self.assertNotIn("of different models", found["note"])

    def test_every_reading_command_answers(self):
        self.train("mlp", modules.Mlp, ("x", "labels"), self.trace)
        answer("import", self.trace, "--session", self.session)
        for words in (["runs"], ["show"], ["show", "--group", "scope"], ["trace", "-o", self.folder + "/out.json"],
                      ["report", "-o", self.folder + "/r.html"], ["report", "-o", self.folder + "/r.md"]):  # fmt: skip
            done = subprocess.run([PROGRAM, words[0], self.session, *words[1:]], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn("nan", done.stdout.lower().replace("nanosecond", ""))
        done = subprocess.run([PROGRAM, "export", self.session], capture_output=True, text=True)
        self.assertEqual(done.returncode, 3)
        self.assertIn("was recorded by PyTorch's profiler: there is no recipe", done.stderr)
        # What we write of it can be read again: the same kernels.
        again = answer("import", self.folder + "/out.json", "--session", self.session)
        first = answer("show", self.session, "--run", "1")
        self.assertEqual(again["executions"], sum(kernel["samples"] for kernel in first["kernels"]))

    def test_what_goes_wrong(self):
        module = modules.Mlp()
        before = torch.nn.Module.__call__
        with self.assertRaises(gradloom.UsageError):
            profile(module, self.folder + "/trace.txt")
        for options in ({"steps": 0}, {"skip": -1}):
            with self.assertRaises(gradloom.UsageError):
                profile(module, self.trace, **options)
        with self.assertRaisesRegex(gradloom.UsageError, "no step was profiled: the loop made 1"):
            with profile(module, self.trace, skip=3) as made:
                made.step()
        with self.assertRaisesRegex(RuntimeError, "the loop's own"):
            with profile(module, self.trace, skip=0) as made:
                module(torch.zeros(1, 64))
                raise RuntimeError("the loop's own")
        self.assertIs(torch.nn.Module.__call__, before)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith(".")], [])

    def test_paths_are_spelled_as_scopes(self):
        for path, scope in (("blocks.0.attn.qkv", "blocks.0/attn/qkv"), ("head", "head"), ("body.0", "body.0"), ("a.b.1.2.c", "a/b.1.2/c")):
            self.assertEqual(scope_of(path), scope)


if __name__ == "__main__":
    unittest.main()
