#!/usr/bin/env python3
"""Session: what a script reads of its runs, draws of them and hands on.

GRADLOOM_LIBRARY names the library, GRADLOOM_PROGRAM the program. Exits with 77 (skipped) where there is no PyTorch.
"""

import contextlib
import json
import math
import os
import pathlib
import re
import sqlite3
import subprocess
import sys
import unittest
from unittest import mock
from xml.etree import ElementTree

import support
import torch
from gradloom import Session, plots
from gradloom.session import Rows
from gradloom.torch import capture
from job_test import PROGRAM, text_batches, train
from support import Folder, Gpt

gradloom = support.gradloom
SVG = {"s": "http://www.w3.org/2000/svg"}


class Sessions(Folder):
    def test_a_recorded_run_is_read(self):
        torch.manual_seed(1)
        recipe = capture(Gpt(), text_batches(), optimizer="adam{lr=0.001}", folder=self.folder + "/job", steps=8)
        path = self.folder + "/s.db"
        losses = train(recipe, "--session", path, "--profile", "all")
        with Session(path) as session:
            (run,) = session.runs()
            self.assertEqual((run["steps"], run["status"]), (8, "done"))
            self.assertAlmostEqual(run["last_loss"], losses[-1], places=6)
            self.assertGreater(run["median_step_ns"], 0)
            kernels = session.kernels()
            self.assertTrue(kernels[0]["total_ns"] >= kernels[-1]["total_ns"] > 0)
            self.assertTrue(any("blocks.1" in (row["scope"] or "") for row in kernels))
            self.assertEqual({row["phase"] for row in session.phases()} >= {"forward", "backward", "optimizer"}, True)
            self.assertEqual([row["loss"] for row in session.losses()], losses)
            self.assertGreater(len(session.passes()), 5)
            self.assertTrue(session.nodes(run["id"]))
            self.assertEqual((list(session.comparisons()), list(session.trials())), ([], []))
            self.assertEqual(json.loads(session.recipe())["steps"], 8)
            with self.assertRaisesRegex(gradloom.Error, "no run 9"):
                session.kernels(9)
        with self.assertRaisesRegex(gradloom.Error, "no such file"):
            Session(self.folder + "/none.db")
        with open(self.folder + "/text.db", "w", encoding="utf-8") as file:
            file.write("no database at all, but long enough to be looked at")
        with self.assertRaisesRegex(gradloom.Error, "no session"):
            Session(self.folder + "/text.db")

    def test_runs_are_told_as_by_the_program(self):
        torch.manual_seed(1)
        recipe = capture(Gpt(), text_batches(), optimizer="adam{lr=0.001}", folder=self.folder + "/job", steps=8)
        path = self.folder + "/s.db"
        train(recipe, "--session", path, "--profile", "step")
        told = json.loads(subprocess.run([PROGRAM, "runs", path, "--json"], capture_output=True, text=True, check=True).stdout)
        with Session(path) as session:
            (run,) = session.runs()
            self.assertEqual((run["median_step_ns"], run["status"]), (told["median_step_ns"], told["status"]))
            self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("s.db")], ["s.db"])  # nothing is made beside it
            with contextlib.closing(sqlite3.connect(path)) as writer, writer:
                writer.execute("UPDATE run SET status = 'running'")
                writer.execute("UPDATE loss SET loss = NULL, loss_text = 'inf' WHERE step = 8")
            (run,) = session.runs()
            self.assertEqual((run["status"], run["last_loss"]), ("interrupted", math.inf))

    def test_scalars_are_those_of_tensorboard(self):
        torch.manual_seed(1)
        recipe = capture(Gpt(), text_batches(), optimizer="adam{lr=0.001}", folder=self.folder + "/job", steps=6)
        path = self.folder + "/s.db"
        train(recipe, "--session", path, "--clip-norm", "1", "--eval-data", "synthetic", "--eval-every", "3")
        subprocess.run([PROGRAM, "export", path, "--tensorboard", self.folder + "/logs"], check=True, capture_output=True)
        (events,) = pathlib.Path(self.folder, "logs").rglob("events.*")
        with Session(path) as session:
            rows = session.scalars()
            self.assertEqual([row["step"] for row in rows], [1, 2, 3, 4, 5, 6])
            names = {name for row in rows for name in row} - {"step"}
            self.assertEqual([row["loss/train"] for row in rows], [row["loss"] for row in session.losses()])
            self.assertEqual([row["step"] for row in rows if "loss/held_out" in row], [3, 6])
        content = events.read_bytes()
        tags = set(re.findall(rb"(?:loss|optimizer|time)/[a-z_]+", content))
        self.assertEqual({name.encode() for name in names}, tags)
        for name in names:  # each as often as there
            there = sum(name in row for row in rows)
            self.assertEqual(len(re.findall(name.encode() + rb"(?![a-z_])", content)), there, name)

    def test_a_run_goes_to_weights_and_biases(self):
        torch.manual_seed(1)
        recipe = capture(Gpt(), text_batches(), optimizer="adam{lr=0.001}", folder=self.folder + "/job", steps=4)
        path = self.folder + "/s.db"
        train(recipe, "--session", path, "--profile", "all")
        logged, fake = [], mock.MagicMock()
        fake.Table = lambda columns, data: (columns, data)
        fake.init.return_value.log = lambda values, step=None: logged.append((step, values))
        fake.init.return_value.summary = {}
        with Session(path) as session, mock.patch.dict(sys.modules, wandb=fake):
            run = session.to_wandb(project="p", config={"team": "a"}, mode="offline")
            self.assertIs(run, fake.init.return_value)
            run.finish.assert_called_once_with()
            told = fake.init.call_args.kwargs
            self.assertEqual((told["project"], told["mode"], told["name"]), ("p", "offline", "s.db run 1"))
            self.assertEqual((told["config"]["steps"], told["config"]["team"], told["config"]["device"]), (4, "a", "cpu"))
            self.assertEqual([step for step, _ in logged], [1, 2, 3, 4, None, None])
            self.assertEqual([values["loss/train"] for _, values in logged[:4]], [row["loss"] for row in session.losses()])
            columns, data = logged[4][1]["kernels"]
            self.assertEqual(len(data), len(session.kernels()))
            self.assertEqual(data[0][columns.index("total_ns")], session.kernels()[0]["total_ns"])
            self.assertEqual(run.summary["kernels"], len(data))
            fake.init.return_value.log = mock.Mock(side_effect=OSError("disk"))
            with self.assertRaisesRegex(OSError, "disk"):
                session.to_wandb()
            self.assertEqual(run.finish.call_count, 2)  # an error leaves no run open
        with Session(path) as session, mock.patch.dict(sys.modules, wandb=None):
            with self.assertRaisesRegex(gradloom.UsageError, "needs the package wandb"):
                session.to_wandb()

    def test_pictures_show_what_was_recorded(self):
        torch.manual_seed(1)
        recipe = capture(Gpt(), text_batches(), optimizer="adam{lr=0.001}", folder=self.folder + "/job", steps=6)
        path = self.folder + "/s.db"
        train(recipe, "--session", path, "--profile", "all")
        sides = ["--a", "passes=none", "--b", "passes=default", "--max-seconds", "1", "--session", path]
        compared = subprocess.run([PROGRAM, "compare", "--recipe", recipe, *sides], capture_output=True, text=True)
        self.assertIn(compared.returncode, (0, 1), compared.stderr)
        with Session(path) as session:
            kernels = session.kernels(1)
            picture = session.plot_kernels(1, most=4)
            root = ElementTree.fromstring(str(picture))
            marks = [float(mark.get("width")) for mark in root.findall("s:g/s:rect", SVG)]
            self.assertEqual(len(marks), 4)
            for mark, kernel in zip(marks, kernels):
                self.assertAlmostEqual(mark / marks[0], kernel["total_ns"] / kernels[0]["total_ns"], delta=0.01)
            words = [text.text for text in root.iter("{%s}text" % SVG["s"])]
            self.assertEqual(words[0], "Run 1: kernels of job, cpu, f32")
            self.assertIn(f"{len(kernels) - 4} other kernels", words)
            picture.save(self.folder + "/k.svg")
            self.assertEqual(ElementTree.parse(self.folder + "/k.svg").getroot().tag, "{%s}svg" % SVG["s"])
            curve = ElementTree.fromstring(session.plot_losses(1)._repr_svg_()).findall("s:path", SVG)[-1].get("d")
            self.assertEqual(len(re.findall("[ML]", curve)), 6)
            (found,) = session.comparisons()
            words = [text.text for text in ElementTree.fromstring(str(session.plot_comparisons())).iter("{%s}text" % SVG["s"])]
            self.assertIn(f"{found['ratio']:.3f}x {found['verdict']}", words)
            rows = ElementTree.fromstring(Rows(kernels[:3])._repr_html_())
            self.assertEqual(len(rows.findall("tbody/tr")), 3)
            self.assertIn(plots.time_text(kernels[0]["median_ns"]), [cell.text for cell in rows.iter("td")])

    def test_rows_as_frames(self):
        rows, fake = Rows([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]), mock.MagicMock()
        with mock.patch.dict(sys.modules, pandas=fake):
            self.assertIs(rows.frame(), fake.DataFrame.return_value)
        (given,) = fake.DataFrame.call_args.args
        self.assertEqual((type(given), given), (list, list(rows)))
        with mock.patch.dict(sys.modules, pandas=None), self.assertRaises(ImportError):
            rows.frame()
        try:
            import pandas
        except ImportError:
            return
        frame = rows.frame()
        self.assertIsInstance(frame, pandas.DataFrame)
        self.assertEqual((list(frame.columns), frame["a"].tolist()), (["a", "b"], [1, 2]))

    def test_pictures_of_little_and_of_strange_names(self):
        self.assertEqual([plots.time_text(ns) for ns in (5, 1234, 999.6e3, 4.5e9)], ["5 ns", "1.23 us", "1 ms", "4.5 s"])
        self.assertEqual(plots.shortened("blocks.11/attention/proj", 12), "blo\u2026ion/proj")
        for low, high in ((0.0, 1.0), (5.66, 5.73), (-3.0, 1e6), (0.99, 1.01)):
            marks = plots.ticks(low, high)
            self.assertTrue(2 <= len(marks) <= 8 and low <= marks[0] + 1e-9 and marks[-1] <= high + 1e-9, marks)
        strange = "<script>&\"'"
        picture = ElementTree.fromstring(str(plots.bars(strange, [(strange, "forward", 1.0, strange)])))
        self.assertEqual([text.text for text in picture.iter("{%s}text" % SVG["s"])][:2], [strange, strange])
        nan = float("nan")
        broken = ElementTree.fromstring(str(plots.curve("loss", [(1, 2.0), (2, nan), (3, 1.0), (4, 1.5)])))
        self.assertEqual(len(broken.findall("s:circle", SVG)), 1)
        self.assertEqual(re.findall("[ML]", broken.findall("s:path", SVG)[-1].get("d")), ["M", "M", "L"])
        self.assertIn("No step", str(plots.curve("loss", [(1, nan)])))
        for one in (plots.curve("loss", [(1, 2.0)]), plots.curve("loss", [(1, 0.0), (2, 0.0)]), plots.intervals("none", []), plots.bars("none", [])):
            ElementTree.fromstring(str(one))


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
