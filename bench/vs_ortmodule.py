#!/usr/bin/env python3
"""Times the training loop of a PyTorch script: as it is, and with the module wrapped or the step handed over.

    /usr/bin/python3 bench/vs_ortmodule.py [--models gpt-char,mlp] [--rounds 8] [--variants eager,compile,module,step]
                                            [--precision bf16]

    gpt-char f32 2 threads: module 1.31x [1.27, 1.36] eager (6.1 ms against 8.0 ms)

Variants: eager; compile (torch.compile, where PyTorch has it); ort (onnxruntime.training.ORTModule, where it is installed); module
(gradloom.torch.Module); step (gradloom.torch.TrainStep). The loop is zero_grad(set_to_none=True), forward with the labels, backward,
AdamW in the fastest form that PyTorch has; all variants but `step` have that same optimizer. Each variant is a resident process, as in
vs_torch.py, whose workloads, settings of PyTorch and protocol these are. A round runs all variants there and back; printed is the median
over the rounds of the ratio of times per step, with its 95 % bootstrap interval. Workloads: gpt-char, mlp, gpt2-124m, bert-base, resnet50,
gpt-4x256 (4 layers of width 256, batch 8 of 128 tokens), gpt2-4x256 (GPT-2 124M, batch 4 of 256 tokens) and, where transformers is
installed, mixtral (4 layers of width 256, eight experts, batch 8 of 128 tokens).

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
# Sizes and batch of decoders that vs_torch.py has not.
DECODERS = {
    "gpt-4x256": ({"layers": 4, "width": 256, "heads": 4, "context": 128, "vocabulary": 5000}, 8),
    "gpt2-4x256": ({**vs_torch.twins.GPT2_124M, "context": 256}, 4),
}  # fmt: skip


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
    if name not in DECODERS:
        return vs_torch.make_workload(name, vs_torch.WORKLOADS[name]["batch"])
    sizes, batch = DECODERS[name]
    modules = vs_torch.load_modules()
    torch.manual_seed(1)
    shape = (batch, sizes["context"])
    return modules.GptChar(**sizes), torch.randint(sizes["vocabulary"], shape), torch.randint(sizes["vocabulary"], shape)


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


def worker(name, options):
    import torch

    if not vs_torch.has_fast_blas():
        sys.exit("PyTorch runs on the reference BLAS: install libopenblas0-openmp or libopenblas0-pthread")
    sys.path.insert(0, os.path.join(ROOT, "app", "python"))
    torch.set_num_threads(options.threads)
    model, *inputs = workload(name)
    model.train()
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


def available(variants):
    """Those that this Python can run."""
    import importlib.util

    import torch

    has = {"compile": hasattr(torch, "compile"), "ort": importlib.util.find_spec("onnxruntime.training") is not None if
           importlib.util.find_spec("onnxruntime") else False}  # fmt: skip
    return [variant for variant in variants if has.get(variant, True)]


def bench(name, options):
    environment = vs_torch.torch_environment(options.threads, vs_torch.PASSIVE)
    sides = {}
    try:
        for variant in options.variants:
            command = [sys.executable, os.path.abspath(__file__), "--worker", name, "--variants", variant,
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
    parser.add_argument("--precision", choices=("f32", "bf16"), default="f32", help="bf16: under torch.autocast (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--leg", type=float, default=0.25, help="least seconds of a variant at a time (default: %(default)s)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker(options.worker, options)
    options.variants = available(options.variants.split(","))
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
