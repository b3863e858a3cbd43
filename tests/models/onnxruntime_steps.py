#!/usr/bin/env python3
"""Runs exported training graphs in ONNX Runtime and compares them with gradloom train, step by step.

    python3 tests/models/onnxruntime_steps.py [--program build/release/gradloom] [--steps 5] [MODEL ...]

By hand: it needs onnx, numpy and onnxruntime (not in Debian 12). Each model of tests/models is exported as one step
(gradloom plan --export-graph), without passes and with the default ones, and both programs take the same steps on
batches.npz: losses within 1e-5 (relative), with SGD also the parameters afterwards, within 1e-5 of their
largest. (Adam
divides gradients by their size: one that is 0 but for rounding moves its parameter as far as any other.)
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

HERE = pathlib.Path(__file__).resolve().parent
JOBS = {"mlp": [], "cnn-digits": [], "bert-tiny": [], "gpt-char": ["--loss", "ce:logits,labels"]}
OPTIMIZERS = {"sgd": ("sgd{lr=0.01,momentum=0.9}", 0.01), "adamw": ("adamw{lr=0.001}", 0.001)}


def uniforms(count, step, key):
    """Philox4x32-10 as in kernels/philox.h: four numbers for each counter (index / 4, step)."""
    index = np.arange((count + 3) // 4, dtype=np.uint64)
    mask = np.uint64(0xFFFFFFFF)
    c = [index & mask, index >> np.uint64(32), np.full_like(index, step & 0xFFFFFFFF), np.full_like(index, step >> 32)]
    k = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(b >> np.uint64(32)) ^ c[1] ^ np.uint64(k[0]), b & mask, (a >> np.uint64(32)) ^ c[3] ^ np.uint64(k[1]), a & mask]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    bits = np.stack(c, axis=1).reshape(-1)[:count]
    return (bits >> np.uint64(8)).astype(np.float64) / (1 << 24)


def feeds_of(model, batch, state, step, seed, lr):
    fed = dict(state)
    for value in model.graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        if value.name in fed:
            continue
        if value.name == "gradloom/lr":
            fed[value.name] = np.array(lr, np.float64)
        elif value.name == "gradloom/step":
            fed[value.name] = np.array(step, np.int64)
        elif value.name.startswith("gradloom/keep/"):
            key, ratio = int(value.name.rsplit("/", 1)[1], 16), float(value.doc_string.rsplit(" ", 1)[1])
            drawn = uniforms(int(np.prod(shape)), step, seed ^ key)
            fed[value.name] = (drawn.astype(np.float32) >= np.float32(ratio)).reshape(shape)
        else:
            fed[value.name] = batch[value.name]
    return fed


def compare(name, passes, optimizer, program, steps, folder):
    spec, lr = OPTIMIZERS[optimizer]
    path, seed = HERE / name / "model.onnx", 0
    batches = dict(np.load(HERE / name / "batches.npz"))
    size = next(iter(batches.values())).shape[1]
    job = [str(path), "--dim", f"batch={size}", "--optimizer", spec, "--passes", passes,
           "--data", f"npz:{HERE / name / 'batches.npz'}", "--seed", str(seed)] + JOBS[name]
    file, saved = folder / "step.onnx", folder / "params.npz"
    subprocess.run([program, "plan", *job, "--export-graph", str(file)], check=True, capture_output=True)
    ran = subprocess.run([program, "train", *job, "--steps", str(steps), "--json", "--save-params", str(saved)],
                         check=True, capture_output=True, text=True).stdout
    losses = [line["loss"] for line in map(json.loads, ran.splitlines()) if "loss" in line]

    model = onnx.load(str(file))
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    initial = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    inputs = {i.name for i in model.graph.input}
    outputs = [o.name for o in model.graph.output]
    changed = [n for n in initial if n in inputs]
    order = {p.key: p.value for p in model.metadata_props}
    state = {n: initial[n] for n in changed}
    worst = 0.0
    for step in range(1, steps + 1):
        batch = {k: v[(step - 1) % len(v)] for k, v in batches.items()}
        results = dict(zip(outputs, session.run(None, feeds_of(model, batch, state, step, seed, lr))))
        loss = float(results[outputs[0]])
        worst = max(worst, abs(loss - losses[step - 1]) / abs(losses[step - 1]))
        state = {n: results[order["next of " + n]] for n in changed}
    after = dict(np.load(saved))
    largest = max(float(np.abs(v).max()) for v in after.values())
    off = max(float(np.abs(state[n] - v).max()) / max(float(np.abs(v).max()), 1e-4 * largest)
              for n, v in after.items() if n in state)
    fine = worst < 1e-5 and (optimizer != "sgd" or off < 1e-5)
    print(f"{'ok  ' if fine else 'FAIL'} {name:11} {optimizer:6} passes {passes:24} loss off by {worst:.1e}, parameters by {off:.1e}")
    return fine


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(JOBS))
    parser.add_argument("--program", default="build/release/gradloom")
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()
    fine = True
    with tempfile.TemporaryDirectory() as folder:
        for name in args.models or JOBS:
            for passes in ("none", "default,-block-channels"):
                for optimizer in OPTIMIZERS:
                    fine = compare(name, passes, optimizer, args.program, args.steps, pathlib.Path(folder)) and fine
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
