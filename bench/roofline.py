#!/usr/bin/python3
"""What training steps are expected to take on a GPU before one has run them: writes bench/h200-plan.md.

    /usr/bin/python3 bench/roofline.py [--on h200] [--gradloom PROGRAM] [-o bench/h200-plan.md]

Each workload is planned for a CUDA device, which need not be here, and `gradloom plan --roofline --on` gives every kernel's FLOPs, bytes,
the roof over it and the time that is expected under it. Nothing is measured: the file says so, and the first run on such a card is to be
held against it. GPT-2 and BERT-large come from bench/twins, ResNet-50 is exported by this Python's PyTorch with random weights.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "bench"))
sys.dont_write_bytecode = True
import twins  # noqa: E402

# Model, its batch, what a step consumes, and the goal for a step and its peak where there is one: the peak is the plan's memory budget too.
WORKLOADS = [
    ("gpt2-124m", 64, 64 * 1024, "tokens", {"ms": 104, "gb": 20}),
    ("gpt2-124m", 4, 4 * 1024, "tokens", {"ms": 8.8}),
    ("bert-large", 256, 256, "sequences", {}),
    ("resnet50", 256, 256, "images", {}),
]
MOST_ROWS = 40


def export(name, folder):
    """The path of a model, made in the folder."""
    if name != "resnet50":
        return twins.fill(name, folder)
    import torch
    import vs_torch

    modules = vs_torch.load_modules()
    import export as exporter

    torch.manual_seed(1)
    path = os.path.join(folder, name + ".onnx")
    images = torch.rand(2, 3, 224, 224)
    exporter.export_onnx(vs_torch.make_resnet50(modules), {"x": images}, torch.randint(1000, (2,)), path, opset=17)
    return path


def roofline(gradloom, model, batch, on, budget_gb=None):
    command = [gradloom, "plan", model, "--dim", f"batch={batch}", "--device", "cuda:0", "--precision", "bf16", "--optimizer",
               "adamw", "--roofline", "--on", on, "--json"]  # fmt: skip
    if budget_gb is not None:
        command += ["--memory-budget", f"{budget_gb}GB"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr.strip() or f"{' '.join(command)} ended with {done.returncode}")
    return json.loads(done.stdout)["roofline"]


def same_work(kernels):
    """Launches that do the same, as one row: what takes longest first."""
    groups = {}
    for k in kernels:
        key = (k["op"], k["phase"], k["roof"], round(k["flops"] / k["launches"]), round(k["bytes"] / k["launches"]))
        group = groups.setdefault(key, {**k, "launches": 0, "flops": 0, "bytes": 0, "expected_ns": 0, "least_ns": 0})
        for field in ("launches", "flops", "bytes", "expected_ns", "least_ns"):
            group[field] += k[field]
    return sorted(groups.values(), key=lambda g: -g["expected_ns"])


def result_of(types):
    first = types.split("]")[0]
    return first + "]" if first else ""


def counted(kernels):
    """3 LayerNormalization, 1 Gelu"""
    launches = {}
    for k in kernels:
        launches[k["op"]] = launches.get(k["op"], 0) + k["launches"]
    return ", ".join(f"{count:.0f} {op}" for op, count in sorted(launches.items(), key=lambda item: -item[1]))


def budget_lines(goal, kept, r):
    """What the budget costs: `kept` is the plan without one, which keeps all that the backward pass reads."""
    again = [k for k in r["kernels"] if "/again" in k["node"]]
    plain = f"Without a budget a step is expected to take {kept['expected_ns'] / 1e6:.1f} ms with a peak of {kept['plan_peak_bytes'] / 1e9:.2f} GB"
    if not again:
        return [plain + f": `--memory-budget {goal['gb']}GB` changes nothing."]
    ns = sum(k["expected_ns"] for k in again)
    return [
        plain + ", which is what the backward",
        f"pass reads of the forward pass, and the optimizer's states. The plan below is that of `--memory-budget {goal['gb']}GB`: {counted(again)} run again",
        f"in the backward pass, {ns / 1e6:.1f} ms, in place of what they give being kept; losses and gradients are the same to the bit.",
    ]


def section(name, batch, items, what, goal, r, kept):
    ms = r["expected_ns"] / 1e6
    lines = [f"## {name}, batch {batch}, bf16", ""]
    reached = f"goal {goal['ms']} ms: {'met' if ms <= goal['ms'] else 'missed'} on paper" if "ms" in goal else "no goal"
    lines.append(f"A step: **{ms:.1f} ms** expected ({items / ms * 1e3:,.0f} {what}/s), {r['least_ns'] / 1e6:.1f} ms under the bare roofs; {reached}.")
    peak = r["plan_peak_bytes"] / 1e9
    if "gb" in goal:
        peak_text = f"goal {goal['gb']} GB: {'met' if peak <= goal['gb'] else 'missed'}"
    else:
        peak_text = f"of {r['memory_bytes'] / 1e9:.0f} GB"
    lines.append(f"Peak {peak:.2f} GB ({peak_text}), {sum(k['launches'] for k in r['kernels']):.0f} launches of {len(r['kernels'])} operators, {r['flops'] / 1e12:.2f} TFLOP, {r['bytes'] / 1e9:.1f} GB moved.")
    if "gb" in goal:
        lines += [""] + budget_lines(goal, kept, r)
    roofs = sorted(r["roofs"].items(), key=lambda item: -item[1]["expected_ns"])
    lines += ["", "| roof | time | share |", "|---|---|---|"]
    lines += [f"| {roof} | {of['expected_ns'] / 1e6:.2f} ms | {100 * of['expected_ns'] / r['expected_ns']:.1f} % |" for roof, of in roofs]
    rows = same_work(r["kernels"])
    lines += ["", "| kernels | phase | result | launches | GFLOP | MB | roof | at least | expected | share |", "|---|---|---|---|---|---|---|---|---|---|"]
    for g in rows[:MOST_ROWS]:
        lines.append(
            f"| {g['op']} | {g['phase']} | {result_of(g['types'])} | {g['launches']:.0f} | {g['flops'] / 1e9:.2f} | {g['bytes'] / 1e6:.1f} | "
            f"{g['roof']} | {g['least_ns'] / 1e3:.1f} us | {g['expected_ns'] / 1e3:.1f} us | {100 * g['expected_ns'] / r['expected_ns']:.1f} % |"
        )
    rest = rows[MOST_ROWS:]
    if rest:
        lines.append(f"| {len(rest)} more | | | {sum(g['launches'] for g in rest):.0f} | | | | | {sum(g['expected_ns'] for g in rest) / 1e3:.1f} us | {100 * sum(g['expected_ns'] for g in rest) / r['expected_ns']:.1f} % |")
    return lines + [""]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", default="h200")
    parser.add_argument("--gradloom", default=os.path.join(ROOT, "build", "release", "gradloom"))
    parser.add_argument("-o", "--output", default=os.path.join(ROOT, "bench", "h200-plan.md"))
    options = parser.parse_args()
    parts, hardware = [], {}
    with tempfile.TemporaryDirectory() as folder:
        models = {}
        for name, batch, items, what, goal in WORKLOADS:
            models.setdefault(name, None)
            models[name] = models[name] or export(name, folder)
            kept = hardware = roofline(options.gradloom, models[name], batch, options.on)
            if "gb" in goal:
                hardware = roofline(options.gradloom, models[name], batch, options.on, goal["gb"])
            parts += section(name, batch, items, what, goal, hardware, kept)
    head = [
        f"# Expected on an {hardware['hardware']}: a prediction, not a measurement",
        "",
        "Made by `bench/roofline.py`; no kernel of these plans has run on the card. Each kernel's FLOPs and bytes are counted by its operator, and",
        "its time is that of `profiler/roofline.h`: the longer of its arithmetic and its memory traffic at the parts of the data sheet's roofs",
        "that well-tuned kernels reach there (`profiler/hardware.cpp`), products by the tiles that fill the card, and 2 us for a launch in a",
        "recorded graph. An operator that is a sequence of kernels takes what they take one after another: its launches, FLOPs and bytes are",
        "those that its kernel asks of a launcher that writes them down (`engine/plan/launches.h`). Kernels that miss what is assumed of them here are what the first run on a card should look for.",
        "",
    ]
    with open(options.output, "w", encoding="utf-8") as file:
        file.write("\n".join(head + parts).rstrip() + "\n")


if __name__ == "__main__":
    main()
