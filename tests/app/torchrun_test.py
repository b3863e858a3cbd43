#!/usr/bin/env python3
"""torchrun starts ranks of the program: usage: torchrun_test.py GRADLOOM MODELS

Two ranks with each of torchrun's ways to meet train, to the bit, as one rank with twice the micro-batches; a rank that is killed ends all with
one line. Exits with 77 (skipped) where there is no PyTorch.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

try:
    import numpy as np
    import torch.distributed.run  # noqa: F401
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

gradloom, models = sys.argv[1:]
# Of a rank that there is not: the default, 0, is an error of PyTorch 1.13 with Python 3.11.
PLAIN_OUTPUT = ["--redirects", "9:1", "--tee", "9:1"]


def free_port():
    """Of two that follow each other: torchrun's own, and the one where our ranks meet."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            try:
                second.bind(("127.0.0.1", first.getsockname()[1] + 1))
            except (OSError, OverflowError):
                continue
            return first.getsockname()[1]


def torchrun(how, words, **more):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--no_python", *PLAIN_OUTPUT, *how]
    return subprocess.Popen([*launcher, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def training(steps):
    return [
        gradloom, "train", f"{models}/mlp/model.onnx", "--dim", "batch=8", "--loss", "ce:logits,labels", "--optimizer", "sgd{lr=0.1,momentum=0.9}",
        "--precision", "f64", "--threads", "1", "--steps", str(steps), "--json",
    ]  # fmt: skip


def losses(text):
    return [line["loss"] for line in map(json.loads, text.splitlines()) if "step" in line and "loss" in line]


def check_equal(work):
    one = subprocess.run([*training(5), "--accumulate", "2", "--save-params", f"{work}/one.npz"], capture_output=True, text=True)
    assert one.returncode == 0, one.stderr
    for name, how in {"static": ["--master_port", str(free_port())], "c10d": ["--standalone"]}.items():
        two = torchrun(how, [*training(5), "--save-params", f"{work}/{name}.npz"])
        out, err = two.communicate(timeout=120)
        assert two.returncode == 0, err
        assert json.loads(out.splitlines()[-1])["summary"]["world"] == 2
        assert losses(out) == losses(one.stdout), (losses(out), losses(one.stdout))
        mine, theirs = np.load(f"{work}/{name}.npz"), np.load(f"{work}/one.npz")
        assert mine.files == theirs.files
        for key in mine.files:
            assert mine[key].tobytes() == theirs[key].tobytes(), key
        print(f"{name}: losses and parameters are the same bits")


def ranks_of(launcher):
    found = {}
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/stat") as file:
                parent = int(file.read().rsplit(")", 1)[1].split()[1])
            with open(f"/proc/{process}/environ", "rb") as file:
                rank = [word for word in file.read().split(b"\0") if word.startswith(b"RANK=")]
        except OSError:
            continue
        if parent == launcher and rank:
            found[int(rank[0][5:])] = int(process)
    return found


def check_killed():
    launched = torchrun(["--master_port", str(free_port())], training(10**6))
    while '"step":2' not in launched.stdout.readline():
        assert launched.poll() is None, launched.stderr.read()
    os.kill(ranks_of(launched.pid)[1], signal.SIGKILL)
    started = time.monotonic()
    _, err = launched.communicate(timeout=120)
    assert launched.returncode != 0
    told = [line for line in err.splitlines() if line.startswith("gradloom: ")]
    assert told == ["gradloom: rank 1 has ended without a word"], err
    print(f"killed: told after {time.monotonic() - started:.1f} s at most")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        check_equal(folder)
    check_killed()
