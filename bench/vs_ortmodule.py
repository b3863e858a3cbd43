#!/usr/bin/env python3
"""Times the training loop of a PyTorch script: as it is, and with the module wrapped or the step handed over.

    /usr/bin/python3 bench/vs_ortmodule.py [--models gpt-char,mlp] [--rounds 8] [--variants eager,compile,module,step]
                                            [--precision bf16] [--python ort=/path/to/bin/python]

    gpt-char f32 2 threads: module 1.31x [1.27, 1.36] eager (6.1 ms against 8.0 ms)

Variants: eager; compile (torch.compile, where PyTorch has it); ort (onnxruntime.training.ORTModule, where it is installed; --python gives
it, or any other, a Python with packages of its own); module
(gradloom.torch.Module); step (gradloom.torch.TrainStep). The loop is zero_grad(set_to_none=True), forward with the labels, backward,
AdamW in the fastest form that PyTorch has; all variants but `step` have that same optimizer. Each variant is a resident process, as in
vs_torch.py, whose workloads, settings of PyTorch and protocol these are. A round runs all variants there and back; printed is the median
over the rounds of the ratio of times per step, with its 95 % bootstrap interval. Workloads: gpt-char, mlp, gpt2-124m, bert-base, resnet50,
gpt-4x256 (4 layers of width 256, batch 8 of 128 tokens), gpt2-4x256 (GPT-2 124M, batch 4 of 256 tokens) and, where transformers is
installed, mixtral (4 layers of width 256, eight experts, batch 8 of 128 tokens).

--costs: what Module takes beside the engine, in two lines for each workload:

    bert-base f32 2 threads: forward and backward 1.004x [1.001, 1.009] gradloom train's (1650.1 ms against 1643.5 ms); 0.31 ms outside of the engine
    bert-base f32 2 threads: a batch of other sizes: 140 ms until its plan is there (120 to 151, of which no file was traced)

First, interleaved: zero_grad, Module's forward and backward without an optimizer, against a step of `gradloom train` on the captured job
without the kernels of its optimizer. Second: Module's first call with each of six smaller batches, without the time of the call after it.

GRADLOOM_LIBRARY names libgradloom.so; the one of build/release is found without.
"""

import argparse
import json
import os
import statistics
import sys
import time

import vs_torch

ROOT = vs_torch.ROOT


def mixtral():
    """Hugging Face's, each token by two of its experts."""
    import torch
    import transformers

    class Mixtral(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = transformers.MixtralForCausalLM(transformers.MixtralConfig(
                vocab_size=5000, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
                max_position_embeddings=128))  # fmt: skip

        def forward(self, tokens, labels):
            return self.net(input_ids=tokens, labels=labels).loss

    return Mixtral()


def workload(name):
    import torch

    if name == "mixtral":
        torch.manual_seed(1)
        return mixtral(), torch.randint(5000, (8, 128)), torch.randint(5000, (8, 128))
    return vs_torch.make_workload(name, vs_torch.WORKLOADS[name]["batch"])


def wrapped(model, variant):
    import torch

    if variant == "compile":
        return torch.compile(model)
    if variant == "ort":
        from onnxruntime.training import ORTModule

        return ORTModule(model)
    if variant == "module":
        from gradloom.torch import Module

        return Module(model)
    return model


def timed(step, count):
    start = time.perf_counter_ns()
    for _ in range(count):
        step()
    return time.perf_counter_ns() - start


def loop(model, variant, inputs, precision):
    """A step of the script's loop, with the fastest AdamW; bf16: the forward pass under autocast, as PyTorch's pages have it."""
    import torch

    forward = wrapped(model, variant)

    def step_of(optimizer):
        def step():
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
                result = forward(*inputs)
            (result if torch.is_tensor(result) else result[0]).backward()
            optimizer.step()

        return step

    steps = []
    for options in ({"foreach": False}, {"foreach": True}, {"fused": True}):
        try:
            steps.append(step_of(torch.optim.AdamW(model.parameters(), lr=1e-3, **options)))
        except (TypeError, RuntimeError):
            pass  # an older PyTorch

    def judged(step):
        """Time of a step behind the first, of one that is slow by one."""
        count = 1 if timed(step, 1) > 1e9 else 3
        return timed(step, count) / count

    return min(steps, key=judged)


def half_loop(model, inputs):
    """Module's forward and backward, and nanoseconds inside of the engine's calls so far."""
    from gradloom import _library

    library, forward, inside = _library.library(), wrapped(model, "module"), [0]

    def watched(function):
        def call(*arguments):
            start = time.perf_counter_ns()
            code = function(*arguments)
            inside[0] += time.perf_counter_ns() - start
            return code

        return call

    library.module_forward, library.module_backward = watched(library.module_forward), watched(library.module_backward)

    def step():
        for p in model.parameters():
            p.grad = None
        result = forward(*inputs)
        (result if hasattr(result, "backward") else result[0]).backward()

    return step, inside


def tell_sizes(model, inputs):
    """How long plans for batches that are smaller take, those with and without a trace."""
    from unittest import mock

    from gradloom.torch import _module

    forward, found = wrapped(model, "module"), {"traced": [], "followed": []}
    for count in range(len(inputs[0]), max(len(inputs[0]) - 7, 1), -1):
        batch = [x[:count] for x in inputs]
        with mock.patch.object(_module, "export", side_effect=_module.export) as export:
            taken = [timed(lambda: forward(*batch), 1) for _ in range(2)]  # noqa: B023
        found["traced" if export.called else "followed"].append((taken[0] - taken[1]) / 1e6)
    print(json.dumps(found))


def costs_worker(model, inputs, options):
    from gradloom.torch import capture

    if options.variants == "capture":
        capture(model, tuple(inputs), None, "sgd{lr=0.001}", options.folder, steps=10**9, threads=options.threads)
        return None
    if options.variants == "sizes":
        return tell_sizes(model, inputs)
    step, inside = half_loop(model, inputs)
    for line in sys.stdin:
        before = inside[0]
        elapsed = timed(step, int(line))
        print(json.dumps({"paced": int(line), "elapsed_ns": elapsed, "inside_ns": (inside[0] - before) / int(line)}), flush=True)
    return None


def costs(name, options, environment):
    """The two lines of --costs."""
    import subprocess
    import tempfile

    sys.path.insert(0, os.path.join(ROOT, "app", "python"))
    from gradloom import Session

    program = os.environ.get("GRADLOOM_PROGRAM", os.path.join(ROOT, "build", "release", "gradloom"))
    worker_of = lambda variant, *more: [sys.executable, os.path.abspath(__file__), "--costs", "--worker", name, "--variants", variant,  # noqa: E731
                                        "--threads", str(options.threads), *more]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(worker_of("capture", "--folder", folder), check=True, env=environment, stdout=subprocess.DEVNULL)
        train = [program, "train", "--recipe", os.path.join(folder, "recipe.json")]
        session = os.path.join(folder, "s.db")
        subprocess.run([*train, "--steps", "6", "--profile", "all", "--session", session], check=True, env=environment, stdout=subprocess.DEVNULL)
        with Session(session) as recorded:
            (optimizer,) = [row["median_ns"] for row in recorded.phases() if row["phase"] == "optimizer"]
        sides = {}
        try:
            sides["module"] = vs_torch.Side("module", worker_of("half"), environment)
            own = {key: value for key, value in environment.items() if not key.startswith(("OMP_", "GOMP_"))}
            sides["train"] = vs_torch.Side("gradloom", [*train, "--paced", "--json"], own)
            counts = {side: vs_torch.steps_per_leg(one, options.leg) for side, one in sides.items()}
            rows = []
            for _ in range(options.rounds):
                times = dict.fromkeys(sides, 0.0)
                for side in ("module", "train", "train", "module"):
                    times[side] += sides[side].run(counts[side]) / 2
                outside = times["module"] - sides["module"].facts["inside_ns"]
                rows.append((times["module"], times["train"] - optimizer, outside))
        finally:
            for side in sides.values():
                side.close()
    ratios = [mine / theirs for mine, theirs, _ in rows]
    low, high = vs_torch.bootstrap_interval(ratios)
    mine, theirs, outside = (statistics.median(column) / 1e6 for column in zip(*rows))
    title = f"{name} f32 {options.threads} threads:"
    print(f"{title} forward and backward {statistics.median(ratios):.3f}x [{low:.3f}, {high:.3f}] gradloom train's ({mine:.1f} ms against {theirs:.1f} ms); "
          f"{outside:.2f} ms outside of the engine", flush=True)  # fmt: skip
    done = subprocess.run(worker_of("sizes"), check=True, env=environment, capture_output=True, text=True)
    followed = json.loads(done.stdout.splitlines()[-1])["followed"]
    if followed:
        print(f"{title} a batch of other sizes: {statistics.median(followed):.0f} ms until its plan is there ({min(followed):.0f} to {max(followed):.0f}, "
              "of which no file was traced)", flush=True)  # fmt: skip


def worker(name, options):
    import torch

    if not vs_torch.has_fast_blas():
        sys.exit("PyTorch runs on the reference BLAS: install libopenblas0-openmp or libopenblas0-pthread")
    sys.path.insert(0, os.path.join(ROOT, "app", "python"))
    torch.set_num_threads(options.threads)
    model, *inputs = workload(name)
    model.train()
    if options.costs:
        return costs_worker(model, inputs, options)
    if options.variants == "step":
        from gradloom.torch import TrainStep

        whole = TrainStep(model, None, torch.optim.AdamW(model.parameters(), lr=1e-3), precision=options.precision)

        def step():
            whole.step(*inputs)
    else:
        step = loop(model, options.variants, inputs, options.precision)
    for line in sys.stdin:
        count = int(line)
        print(json.dumps({"paced": count, "elapsed_ns": timed(step, count)}), flush=True)


def available(variants, pythons):
    """Those that this Python can run, or that have one of their own."""
    import importlib.util

    import torch

    has = {"compile": hasattr(torch, "compile"), "ort": importlib.util.find_spec("onnxruntime.training") is not None if
           importlib.util.find_spec("onnxruntime") else False}  # fmt: skip
    return [variant for variant in variants if variant in pythons or has.get(variant, True)]


def bench(name, options):
    environment = vs_torch.torch_environment(options.threads, vs_torch.PASSIVE)
    sides = {}
    try:
        for variant in options.variants:
            command = [options.python.get(variant, sys.executable), os.path.abspath(__file__), "--worker", name, "--variants", variant,
                       "--threads", str(options.threads), "--precision", options.precision]  # fmt: skip
            sides[variant] = vs_torch.Side(variant, command, environment)
        counts = {variant: vs_torch.steps_per_leg(side, options.leg) for variant, side in sides.items()}
        rounds = []
        for _ in range(options.rounds):
            order = list(sides) + list(sides)[::-1]
            sums = dict.fromkeys(sides, 0.0)
            for variant in order:
                time.sleep(0.005)
                sums[variant] += sides[variant].run(counts[variant]) / 2
            rounds.append(sums)
        return rounds
    finally:
        for side in sides.values():
            side.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gpt-char,mlp")
    parser.add_argument("--variants", default="eager,compile,ort,module,step", help="default: %(default)s, as far as they are there")
    parser.add_argument("--python", action="append", default=[], metavar="VARIANT=PYTHON", help="the Python of a variant, e.g. ort=/venv/bin/python")
    parser.add_argument("--precision", choices=("f32", "bf16"), default="f32", help="bf16: under torch.autocast (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--leg", type=float, default=0.25, help="least seconds of a variant at a time (default: %(default)s)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--costs", action="store_true", help="what Module takes beside the engine")
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.python = dict(each.split("=", 1) for each in options.python)
    if options.worker:
        return worker(options.worker, options)
    if options.costs:
        for name in options.models.split(","):
            costs(name, options, vs_torch.torch_environment(options.threads, vs_torch.PASSIVE))
        return 0
    options.variants = available(options.variants.split(","), options.python)
    first = options.variants[0]
    for name in options.models.split(","):
        rounds = bench(name, options)
        for variant in options.variants[1:]:
            ratios = [times[first] / times[variant] for times in rounds]
            low, high = vs_torch.bootstrap_interval(ratios)
            mine, base = (statistics.median(times[v] for times in rounds) / 1e6 for v in (variant, first))
            row = {"model": name, "precision": options.precision, "variant": variant, "against": first, "ratio": statistics.median(ratios), "low": low, "high": high,
                   "ms": mine, "base_ms": base}  # fmt: skip
            print(json.dumps(row) if options.json else f"{name} {options.precision} {options.threads} threads: {variant} {row['ratio']:.2f}x [{low:.2f}, {high:.2f}] "
                  f"{first} ({mine:.2f} ms against {base:.2f} ms)", flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except vs_torch.BenchError as error:
        sys.exit(f"vs_ortmodule.py: {error}")
