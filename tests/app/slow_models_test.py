#!/usr/bin/env python3
"""What `gradloom advise` says first of networks and loops that were made slow: usage: slow_models_test.py GRADLOOM [NAME..]

Each case of slow_models.py, and each loop below, is exported by PyTorch and timed here, on one processor. The cause that was put in is
found in all of them, comes first in nine of ten, and is not found in the same network mended, whose loss is the same wherever
its parameters are. Exits with 77 (skipped) where there is no PyTorch.
"""

import json
import os
import subprocess
import sys
import tempfile
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path[:0] = [HERE, os.path.join(os.path.dirname(os.path.dirname(HERE)), "app", "python")]
try:
    import numpy as np
    import onnx  # noqa: F401
    import torch
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

import slow_models  # noqa: E402
from torch import nn  # noqa: E402

torch.set_num_threads(1)
GRADLOOM = sys.argv[1]
LEAST = 3.0  # per cent of a step: what is worth less is no finding
FEWEST, FIRST, ATTEMPTS = 20, 0.9, 3
os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"  # what processors in bf16 gain is another cause, which comes and goes with the machine
CORES = sorted(os.sched_getaffinity(0))


def on(cores):
    """Where a child process runs: on one core threads are no cause."""
    return lambda: os.sched_setaffinity(0, cores)


def answer(*words, cores=CORES[:1]):
    done = subprocess.run([GRADLOOM, *words], capture_output=True, text=True, preexec_fn=on(cores))
    if done.returncode != 0:
        sys.exit(f"gradloom {' '.join(words)}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def made(make):
    torch.manual_seed(7)
    return make().train()


def loss_of(module, inputs):
    with torch.no_grad():
        return float(module(*inputs.values()))


def same_loss(case):
    """Where both have the same parameters; running statistics change with each forward pass."""
    slow, mended = made(case.slow), made(case.mended or case.slow)
    names = list(slow.state_dict())
    if names != list(mended.state_dict()) or case.rule == "frozen_norms":
        return True
    mended.load_state_dict(slow.state_dict())
    a, b = loss_of(slow, case.inputs), loss_of(mended, case.mended_inputs or case.inputs)
    return abs(a - b) <= 1e-4 * abs(a)


def data_of(case, mended, folder):
    """--data of the case, as it is or mended."""
    path = os.path.join(folder, "data")
    if case.data == "padded":
        mask = np.zeros((4, *case.inputs["mask"].shape), np.int64)
        mask[..., : 64 if mended else 12] = 1
        np.savez(path + ".npz", ids=np.random.RandomState(1).randint(0, 100, mask.shape), mask=mask)
        return ["--data", f"npz:{path}.npz"]
    if case.data == "compressed":
        x = np.random.RandomState(1).randn(4, *case.inputs["x"].shape).astype(np.float32)
        if mended:
            np.savez(path + ".npz", x=x)
            return ["--data", f"npz:{path}.npz"]
        os.mkdir(path)
        for i in range(len(x)):
            np.savez_compressed(os.path.join(path, f"{i}.npz"), x=x[i : i + 1])
        return ["--data", f"npz:{path}"]
    return []


def findings_of(case, mended):
    with tempfile.TemporaryDirectory() as folder:
        model, session = os.path.join(folder, "model.onnx"), os.path.join(folder, "s.db")
        inputs = (case.mended_inputs if mended else None) or case.inputs
        slow_models.export(made((case.mended if mended else None) or case.slow), inputs, model, case.batch)
        flags = case.mended_flags if mended and case.mended_flags is not None else case.flags
        words = [model, "--optimizer", "adam{lr=1e-3}", *flags, *data_of(case, mended, folder), "--json"]
        if case.rule != "waits":
            return answer("advise", *words, "--seconds", "2", "--least", str(LEAST))[:-1]
        # Reading goes on beside the kernels where there is a core for it.
        answer("train", *words, "--steps", "200", "--session", session, "--profile", "all", "--threads", "1", cores=CORES[:2])
        return answer("advise", session, "--json", "--least", str(LEAST))[:-1]


# ---- What needs no advice ----


def work_of(make, inputs, folder):
    """Kernels, FLOPs and bytes of a step."""
    model = os.path.join(folder, "model.onnx")
    slow_models.export(made(make), inputs, model)
    (plan,) = (line for line in answer("plan", model, "--optimizer", "adam{lr=1e-3}", "--json") if "kernels" in line)
    return len(plan["kernels"]), sum(k["flops"] for k in plan["kernels"]), sum(k["bytes"] for k in plan["kernels"])


def uncured(wanted):
    """Names of what passes do not mend."""
    names = []
    for name, slow, mended, inputs in slow_models.CURED:
        if wanted and name not in wanted:
            continue
        with tempfile.TemporaryDirectory() as folder:
            before, after = work_of(slow, inputs, folder), work_of(mended, inputs, folder)
        fits = all(a <= 1.001 * b for a, b in zip(before, after))
        print(f"{name:36} {'mended' if fits else 'NOT MENDED'} by the passes: kernels, FLOPs, bytes {before}, {after}", flush=True)
        if not fits:
            names.append(name)
    return names


# ---- Loops in PyTorch ----


class Net(nn.Module):
    def __init__(self, width=64, depth=2):
        super().__init__()
        self.body = nn.Sequential(*(layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.Tanh())))

    def forward(self, x):
        return self.body(x).pow(2).mean()


class Augmented(torch.utils.data.Dataset):
    """Samples that Python makes one number at a time."""

    def __init__(self, slow):
        self.slow = slow

    def __len__(self):
        return 12

    def __getitem__(self, index):
        if self.slow:
            return torch.tensor([[float((i * j * (index + 1)) % 17) for i in range(64)] for j in range(256)])
        return torch.full((256, 64), 0.1 * index)


def loop_findings(kind, slow, parent):
    import gradloom
    from gradloom.torch import Module, TrainStep

    warnings.simplefilter("ignore")
    torch.manual_seed(7)
    session = os.path.join(tempfile.mkdtemp(dir=parent), "s.db")
    net = Net(depth={"optimizer of many tensors": 48, "samples made in Python": 16}.get(kind, 4))
    whole = nn.Sequential(nn.Sequential(nn.Linear(64, 1024), nn.Tanh(), nn.Linear(1024, 64)), net) if kind == "module outside" else net
    step = None
    if kind == "optimizer of many tensors" and not slow:
        step = TrainStep(net, None, torch.optim.Adam(net.parameters(), lr=1e-3))
    elif kind == "module outside" and slow:
        whole[1] = Module(net)
    else:
        whole = Module(whole)
    make = torch.optim.Adam if kind == "optimizer of many tensors" else torch.optim.SGD
    optimizer = make(whole.parameters(), lr=1e-3)
    with gradloom.record(session, profile="sampled"):
        batches = torch.utils.data.DataLoader(Augmented(slow and kind == "samples made in Python"), batch_size=None)
        for i, batch in enumerate(batches):
            if kind == "optimizer of many tensors":
                batch = batch[:16]
            if kind == "every batch another length" and slow:
                batch = batch[: 64 + 16 * i]
            if step is not None:
                step.step(batch)
                continue
            loss = whole(batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return answer("advise", session, "--json", "--least", str(LEAST))[:-1]


LOOPS = [
    ("samples made in Python", "loop_data", "num_workers"),
    ("optimizer of many tensors", "loop_optimizer", "TrainStep"),
    ("module outside", "loop_module|loop_backward", "wrap the outermost module"),
    ("every batch another length", "loop_compile", "plans="),
]

# ---- All of them ----


def fits(finding, rule, words):
    return finding["finding"] in rule.split("|") and words in " ".join((finding["title"], finding["change"], finding["remedy"]))


def told(findings):
    return "\n".join(f"      {100 * f['gain']:5.1f} %  {f['finding']}: {f['title']}" for f in findings) or "      nothing"


def judge(name, rule, words, find):
    """Whether the cause is found and comes first; prints what was found where it is otherwise. Other processes disturb times: what is not as
    it should be is timed again, three times at most."""
    for _ in range(ATTEMPTS):
        slow, mended = find(True), find(False)
        place = next((i for i, finding in enumerate(slow) if fits(finding, rule, words)), None)
        absent = not any(fits(finding, rule, words) for finding in mended)
        if place == 0 and absent:
            break
    shown = "not found" if place is None else f"place {place + 1} of {len(slow)}, {100 * slow[place]['gain']:.0f} % of a step"
    print(f"{name:36} {rule:25} {shown}{'' if absent else '; FOUND IN THE MENDED ONE'}", flush=True)
    if place != 0:
        print(told(slow))
    if not absent:
        print("   mended:\n" + told(mended))
    if place is not None:
        assert slow[place]["numbers"] and slow[place]["command"], slow[place]
    return place, absent


def main():
    wanted, results = sys.argv[2:], []
    for case in slow_models.CASES:
        if wanted and case.name not in wanted:
            continue
        assert same_loss(case), f"{case.name}: the mended network computes another loss"
        results.append((case.name, *judge(case.name, case.rule, case.words, lambda slow, case=case: findings_of(case, not slow))))
    with tempfile.TemporaryDirectory() as folder:
        for name, rule, words in LOOPS:
            if not wanted or name in wanted:
                results.append((name, *judge(name, rule, words, lambda slow, name=name: loop_findings(name, slow, folder))))
    first = sum(place == 0 for _, place, _ in results)
    if results:
        print(f"the cause comes first in {first} of {len(results)}")
    missing = [name for name, place, _ in results if place is None]
    there = [name for name, _, absent in results if not absent]
    faults = [f"not found: {', '.join(missing)}"] * bool(missing) + [f"found in the mended one: {', '.join(there)}"] * bool(there)
    if left := uncured(wanted):
        faults.append(f"not mended by the passes: {', '.join(left)}")
    if first < FIRST * len(results) or (not wanted and len(results) < FEWEST):
        faults.append("too few come first")
    return "; ".join(faults) or 0


if __name__ == "__main__":
    sys.exit(main())
