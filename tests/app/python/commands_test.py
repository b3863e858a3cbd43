#!/usr/bin/env python3
"""gradloom.inspect, plan, compare, tune and verify: what the command line answers, as objects. No PyTorch is needed.

GRADLOOM_LIBRARY names the library, GRADLOOM_PROGRAM the program.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from xml.etree import ElementTree

TESTS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(os.path.dirname(TESTS), "app", "python"))
sys.dont_write_bytecode = True

import gradloom  # noqa: E402
from gradloom import commands, plots  # noqa: E402

MODEL = os.path.join(TESTS, "models", "mlp", "model.onnx")
BATCH = {"batch": 8}
SVG = {"s": "http://www.w3.org/2000/svg"}


def program(*words):
    done = subprocess.run([os.environ.get("GRADLOOM_PROGRAM", "gradloom"), *words, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def texts(plot):
    return [node.text for node in ElementTree.fromstring(str(plot)).iterfind(".//s:text", SVG)]


class Commands(unittest.TestCase):
    def test_plan_is_that_of_the_command(self):
        mine, theirs = gradloom.plan(MODEL, dim=BATCH, passes="default,-fuse-optimizer"), program("plan", MODEL, "--dim", "batch=8", "--passes", "default,-fuse-optimizer")
        for key in ("plan_hash", "plan_peak_bytes", "kernels_per_step", "planner"):
            self.assertEqual(mine[key], theirs[key])
        self.assertEqual(list(mine.kernels), theirs["kernels"])
        self.assertEqual(mine.plan_peak_bytes, mine["plan_peak_bytes"])
        with self.assertRaisesRegex(AttributeError, "no_such.*plan_hash"):
            mine.no_such  # noqa: B018
        page = mine._repr_html_()
        self.assertIn(plots.bytes_text(mine.plan_peak_bytes), page)
        self.assertIn(f"{len(mine.kernels)} rows", page)
        found = texts(mine.plot())
        self.assertIn(plots.bytes_text(mine.live_at_peak[0]["bytes"]), found)

    def test_inspect_and_recipe(self):
        self.assertEqual(gradloom.inspect(MODEL).parameters, 13098)
        with tempfile.TemporaryDirectory() as folder:
            recipe = os.path.join(folder, "recipe.json")
            with open(recipe, "w", encoding="utf-8") as file:
                json.dump({"gradloom_recipe": 1, "model": {"path": MODEL}, "dims": BATCH, "passes": []}, file)
            self.assertEqual(gradloom.plan(folder).plan_hash, gradloom.plan(MODEL, dim=BATCH, passes="none").plan_hash)
            self.assertEqual(gradloom.plan(recipe, passes="default").plan_hash, gradloom.plan(MODEL, dim=BATCH).plan_hash)

    def test_compare(self):
        with tempfile.TemporaryDirectory() as folder:
            session = os.path.join(folder, "s.db")
            found = gradloom.compare(MODEL, dim=BATCH, max_seconds=1, session=session)
            self.assertIn(found.verdict, ("FASTER", "SAME", "UNSURE", "SLOWER"))
            self.assertLessEqual(found.ratio_low, found.ratio)
            self.assertEqual(found.max_loss_difference, 0)
            self.assertEqual(len(gradloom.Session(session).comparisons()), 1)
            self.assertIn(f"{found.ratio:.3f}x {found.verdict}", texts(found.plot()))

    def test_tune(self):
        told = []
        found = gradloom.tune(MODEL, seconds=2, dim=BATCH, on_trial=told.append)
        self.assertGreater(len(told), 0)
        self.assertEqual({trial.changes for trial in told}, {row["changes"] for row in found.measured})
        ratios = [row["ratio"] for row in found.measured]
        self.assertEqual(ratios, sorted(ratios, reverse=True))
        self.assertIn("times as fast as the job", texts(found.plot()))

    def test_verify(self):
        found = gradloom.verify(MODEL, dim=BATCH)
        self.assertTrue(found.verified)
        self.assertTrue(all(row["agrees"] for row in found.tensors))
        self.assertEqual(found.steps, 3)
        self.assertEqual(gradloom.verify(MODEL, dim=BATCH, steps=2).steps, 2)

    def test_errors(self):
        with self.assertRaisesRegex(gradloom.UsageError, "dims are not bound: batch") as caught:
            gradloom.plan(MODEL)
        self.assertEqual(caught.exception.code, 2)
        with self.assertRaisesRegex(gradloom.UsageError, "--no-such"):
            gradloom.plan(MODEL, no_such=3)
        with self.assertRaises(gradloom.Error) as caught:
            gradloom.inspect("no/such.onnx")
        self.assertEqual(caught.exception.code, 5)
        with self.assertRaisesRegex(gradloom.UsageError, "'pla'.*plan"):
            commands._run(["pla"])
        with self.assertRaisesRegex(gradloom.UsageError, "no command 'open'|unknown command 'open'"):
            commands._run(["open"])

    def test_what_ends_it(self):
        def end(_):
            raise KeyboardInterrupt

        begin = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            gradloom.tune(MODEL, seconds=600, dim=BATCH, on_trial=end)
        self.assertLess(time.monotonic() - begin, 300)
        self.assertTrue(gradloom.plan(MODEL, dim=BATCH).plan_hash, "and the library goes on")

    def test_two_threads(self):
        found = []
        threads = [threading.Thread(target=lambda: found.append(gradloom.plan(MODEL, dim=BATCH).plan_hash)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, [found[0]] * 4)

    def test_front(self):
        rows = [{"changes": "fast", "ratio": 1.3, "peak_bytes": 4 << 20}, {"changes": "small", "ratio": 0.8, "peak_bytes": 2 << 20},
                {"changes": "neither", "ratio": 0.7, "peak_bytes": 3 << 20}]  # fmt: skip
        found = texts(plots.front("Front", rows))
        self.assertIn("fast", found)
        self.assertIn("small", found)
        self.assertNotIn("neither", found)
        self.assertIn("Nothing was measured.", texts(plots.front("Front", [])))


if __name__ == "__main__":
    unittest.main()
