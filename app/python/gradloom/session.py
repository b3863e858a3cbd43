"""Session files read from Python: gradloom.Session("s.db")."""

import json
import os
import sqlite3
import urllib.parse
from typing import Any, Dict, List, Optional

from . import plots
from ._library import UsageError

_PROFILERS = ("kineto", "onnxruntime", "nsys")  # run.data of traces that gradloom import read


class Rows(List[Dict[str, Any]]):
    """A list of dicts, one per row."""

    def frame(self) -> Any:
        """The rows as a pandas.DataFrame; needs pandas."""
        import pandas

        return pandas.DataFrame(list(self))

    def _repr_html_(self) -> str:
        """What a notebook shows: a table with units."""
        return plots.table(self)


def _is_alive(process: str) -> bool:
    """Whether the process of run.process, "boot id:process id:start time", still runs on this machine."""
    try:
        boot, pid, started = process.split(":")
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            if file.read().strip() != boot:
                return False
        with open(f"/proc/{int(pid)}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()  # from the third on: the name before may hold spaces
        return fields[0] not in "ZX" and fields[19] == started
    except (OSError, ValueError, IndexError):
        return False


class Session:
    """A session file, read-only: its runs, their kernels, and what was compared. Times are nanoseconds, sizes bytes.

    A run that is still being recorded can be read too. docs/sessions.md tells the columns; query() takes any SELECT.
    """

    def __init__(self, path: Any) -> None:
        self.path = os.fspath(path)
        if not os.path.exists(self.path):
            raise UsageError(f"{self.path}: no such file", 5)
        try:
            self._open()
        except sqlite3.DatabaseError as error:
            raise UsageError(f"{self.path}: no session: {error}", 3) from None

    def _stamp(self) -> Optional[List[int]]:
        """Of a file that nobody writes; None: it has a log, which its writer keeps beside it."""
        file = os.path.realpath(self.path)
        if os.path.exists(file + "-wal"):
            return None
        found = os.stat(file)
        return [found.st_ino, found.st_size, found.st_mtime_ns]

    def _open(self) -> None:
        # A file without a log is read as one that does not change: SQLite would make files beside it, and fail where it may not.
        self._still = self._stamp()
        address = "file:" + urllib.parse.quote(os.path.realpath(self.path)) + "?mode=ro" + ("&immutable=1" if self._still else "")
        self._file = sqlite3.connect(address, uri=True)
        self._file.row_factory = sqlite3.Row
        self._file.execute("SELECT id FROM run LIMIT 1")

    def query(self, sql: str, *parameters: Any) -> Rows:
        """The rows of a SELECT statement."""
        if self._still and self._stamp() != self._still:
            self._file.close()
            self._open()
        return Rows(dict(row) for row in self._file.execute(sql, parameters))

    def runs(self) -> Rows:
        """All runs, oldest first, with their number of steps, last loss and median step time, which is that of the program: over the steps
        after the first three that were not timed kernel by kernel, where there are any. A run that is "running" although its process is
        gone is "interrupted"."""
        found = self.query("""
            WITH numbered AS (SELECT run, step, loss, loss_text, step_ns, timed, row_number() OVER (PARTITION BY run ORDER BY step) AS nth FROM loss),
            marked AS (SELECT run, step_ns, nth > 3 AND timed = 0 AS counts, max(nth > 3 AND timed = 0) OVER (PARTITION BY run) AS any FROM numbered),
            ranked AS (SELECT run, step_ns, row_number() OVER (PARTITION BY run ORDER BY step_ns) AS rank, count(*) OVER (PARTITION BY run) AS steps
              FROM marked WHERE counts = any),
            middle AS (SELECT run, CAST(avg(step_ns) AS INTEGER) AS ns FROM ranked WHERE rank IN ((steps + 1) / 2, (steps + 2) / 2) GROUP BY run),
            last AS (SELECT run, max(nth) AS steps, loss, loss_text FROM numbered GROUP BY run)
            SELECT r.id, r.name, r.status, r.started_utc, r.model, r.device, r."precision", r.optimizer, r.loss, r.passes, r.seed,
              coalesce(l.steps, 0) AS steps, l.loss AS last_loss, m.ns AS median_step_ns, r.measured_peak_bytes, l.loss_text, r.process
            FROM run r LEFT JOIN last l ON l.run = r.id LEFT JOIN middle m ON m.run = r.id ORDER BY r.id""")
        for row in found:
            text, process = row.pop("loss_text"), row.pop("process")
            if text is not None:
                row["last_loss"] = float(text)
            if row["status"] == "running" and not _is_alive(process):
                row["status"] = "interrupted"
        return found

    def run(self, run: Optional[int] = None) -> int:
        """The number of a run that exists; None: of the last one."""
        found = self.query("SELECT id FROM run ORDER BY id")
        known = [row["id"] for row in found]
        if not known or (run is not None and run not in known):
            raise UsageError(f"{self.path}: no run {run if run is not None else 'in it'}")
        return known[-1] if run is None else run

    def kernels(self, run: Optional[int] = None) -> Rows:
        """Kernels of a run (the last one), longest first, with the ONNX nodes that they come from."""
        return self.query("SELECT * FROM v_kernels WHERE run = ? ORDER BY total_ns DESC, plan_step", self.run(run))

    def nodes(self, run: Optional[int] = None) -> Rows:
        """Time per ONNX node and phase, longest first."""
        return self.query("SELECT * FROM v_nodes WHERE run = ? ORDER BY total_ns DESC, source", self.run(run))

    def phases(self, run: Optional[int] = None) -> Rows:
        """Time in forward, loss, backward and optimizer."""
        return self.query("SELECT * FROM v_phases WHERE run = ? ORDER BY total_ns DESC", self.run(run))

    def passes(self, run: Optional[int] = None) -> Rows:
        """What each pass matched and saved."""
        return self.query("SELECT * FROM v_passes WHERE run = ? ORDER BY pass", self.run(run))

    def losses(self, run: Optional[int] = None) -> Rows:
        """Steps of a run with loss, learning rate and time."""
        return self.query("SELECT step, loss, loss_text, step_ns, lr, grad_norm FROM loss WHERE run = ? ORDER BY step", self.run(run))

    def loop(self, run: Optional[int] = None) -> Rows:
        """Where the time of a recorded loop goes: by kind and name the own time of its spans per step, and its share; no rows where the
        run is no loop. Of the steps that `gradloom show` tells of: those timed kernel by kernel, if any, after the first three (of another
        profiler's trace: all)."""
        number = self.run(run)
        if self.query("PRAGMA user_version")[0]["user_version"] < 7:
            return Rows()
        found = Rows()
        warmup = 0 if self.query("SELECT data FROM run WHERE id = ?", number)[0]["data"] in _PROFILERS else 3
        for timed, after in ((1, warmup), (1, 0), (0, warmup), (0, 0)):
            found = self.query("""
                WITH steps AS (SELECT step, step_ns FROM loss WHERE run = ?1 AND timed >= ?2 AND step > ?3)
                SELECT kind, name, 1.0 * sum(spans) / (SELECT count(*) FROM steps) AS spans_per_step,
                  1.0 * sum(own_ns) / (SELECT count(*) FROM steps) AS own_ns, 1.0 * sum(own_ns) / (SELECT sum(step_ns) FROM steps) AS share
                FROM v_loop WHERE run = ?1 AND step IN (SELECT step FROM steps)
                GROUP BY kind, name ORDER BY own_ns DESC""", number, timed, after)  # fmt: skip
            if found:
                break
        return found

    def scalars(self, run: Optional[int] = None) -> Rows:
        """What a run has by step, under the names that `gradloom export --tensorboard` gives them: loss/train, loss/held_out,
        optimizer/learning_rate, optimizer/gradient_norm, optimizer/loss_scale, optimizer/skipped_steps, time/step_ms, time/steps_per_second,
        time/evaluation_ms. A row has `step` and what there is; losses that are NaN or infinite are so here."""
        number = self.run(run)
        steps = self.losses(number)
        has_loss = self.query("SELECT recipe FROM run WHERE id = ?", number)[0]["recipe"] or any(row["loss"] is not None for row in steps)
        rows: Dict[int, Dict[str, Any]] = {}

        def put(step: int, name: str, value: Any) -> None:
            rows.setdefault(step, {"step": step})[name] = value

        for row in steps:
            if has_loss:
                put(row["step"], "loss/train", float(row["loss_text"]) if row["loss"] is None else row["loss"])
                put(row["step"], "optimizer/learning_rate", row["lr"])
            if row["grad_norm"] is not None:
                put(row["step"], "optimizer/gradient_norm", row["grad_norm"])
            if row["step_ns"] > 0:
                put(row["step"], "time/step_ms", row["step_ns"] / 1e6)
                put(row["step"], "time/steps_per_second", 1e9 / row["step_ns"])
        tables = {row["name"] for row in self.query("SELECT name FROM sqlite_master")}
        if not {"loss_scale", "evaluation"} <= tables:  # an older file
            return Rows(rows[step] for step in sorted(rows))
        for row in self.query("SELECT step, scale, skipped FROM loss_scale WHERE run = ?", number):
            put(row["step"], "optimizer/loss_scale", row["scale"])
            put(row["step"], "optimizer/skipped_steps", row["skipped"])
        for row in self.query("SELECT step, loss, loss_text, eval_ns FROM evaluation WHERE run = ?", number):
            put(row["step"], "loss/held_out", float(row["loss_text"]) if row["loss"] is None else row["loss"])
            put(row["step"], "time/evaluation_ms", row["eval_ns"] / 1e6)
        return Rows(rows[step] for step in sorted(rows))

    def to_wandb(self, run: Optional[int] = None, **init: Any) -> Any:
        """A run as one of Weights & Biases: its scalars by step, its recipe as the config, peak memory and number of kernels as the
        summary, kernels and passes as tables. Needs the package wandb; `init` goes to wandb.init (project=.., mode="offline", ..).
        Returns the finished run."""
        try:
            import wandb
        except ImportError as error:
            raise UsageError(f"Session.to_wandb needs the package wandb: {error}") from None

        number = self.run(run)
        about = self.query("SELECT * FROM run WHERE id = ?", number)[0]
        recipe = json.loads(about["recipe"]) if about["recipe"] else {}
        init["config"] = {**recipe, "device": about["device"], "model": about["model"], **init.get("config", {})}
        init.setdefault("name", about["name"] or f"{os.path.basename(self.path)} run {number}")
        logged = wandb.init(**init)
        try:
            for row in self.scalars(number):
                logged.log({name: value for name, value in row.items() if name != "step"}, step=row["step"])
            tables = {"kernels": self.kernels(number), "passes": self.passes(number)}
            for name, found in tables.items():
                if found:
                    columns = list(found[0])
                    logged.log({name: wandb.Table(columns=columns, data=[[row[column] for column in columns] for row in found])})
            logged.summary.update({"memory/peak_bytes": about["measured_peak_bytes"], "kernels": len(tables["kernels"])})
        finally:
            logged.finish()
        return logged

    def comparisons(self) -> Rows:
        """What `gradloom compare` found: verdict of b against a, and the ratio of their times with its 95 % interval."""
        return self.query("SELECT id, created_utc, run_a, run_b, a, b, verdict, ratio, ratio_low, ratio_high, max_loss_difference FROM comparison ORDER BY id")

    def trials(self) -> Rows:
        """What `gradloom tune` measured, fastest first."""
        return self.query("SELECT * FROM trial ORDER BY ratio DESC")

    def recipe(self, run: Optional[int] = None) -> str:
        """The recipe of a run (the last one) as JSON text."""
        return str(self.query("SELECT recipe FROM run WHERE id = ?", self.run(run))[0]["recipe"])

    def plot_kernels(self, run: Optional[int] = None, most: int = 15) -> plots.Plot:
        """A picture of the kernels that take the most time, coloured by phase."""
        number = self.run(run)
        return plots.kernel_bars(self.kernels(number), self._title(number, "kernels"), most)

    def plot_losses(self, run: Optional[int] = None) -> plots.Plot:
        """A picture of the loss of each step."""
        number = self.run(run)
        points = [(row["step"], float("nan") if row["loss"] is None else row["loss"]) for row in self.losses(number)]
        return plots.curve(self._title(number, "loss"), points)

    def plot_comparisons(self) -> plots.Plot:
        """A picture of what was compared: ratios of step times with their 95 % intervals."""
        return plots.intervals("Comparisons: how many times as fast as the other side", self.comparisons())

    def _title(self, run: int, what: str) -> str:
        of = self.query("SELECT name, model, device, \"precision\" FROM run WHERE id = ?", run)[0]
        model = os.path.basename(os.path.dirname(of["model"])) if os.path.basename(of["model"]) == "model.onnx" else os.path.basename(of["model"])
        return f"Run {run}: {what} of {', '.join(filter(None, (of['name'] or model or 'a recorded loop', of['device'], of['precision'])))}"

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
