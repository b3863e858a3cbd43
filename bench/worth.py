#!/usr/bin/env python3
"""What each pass is worth on GPT-2 124M, in time and in memory, as a table of a Markdown page.

    ./dev bench worth [--batch 1] [--tokens 256] [--precision f32] [--seconds 900] [--threads 2] [-o worth.md]

    | pass | among the others | peak | alone against none | peak |

`gradloom tune --worth` measures: the job with AdamW and all passes against itself without each of them, then the job without passes
against each pass alone. The two sides of a measurement take steps in turns in one process, so a busy machine hits both and widens
the interval. The ratio is the time without the pass over the time with it (above 1: the pass makes the step faster), with its 95 %
interval, to which the machine's own noise is added where time was up after less than four groups of blocks; the peak is the plan's, with
the pass less without it. A pass whose interval holds 1 and which changes no peak is told as such, and so are passes with which the step
does the same work as without them.

With --tokens 1024 the model is the one of bench/twins, and PyTorch is not needed; for other lengths it exports one. --folder FOLDER keeps
the model and the measurements: another call goes on from them.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile

import ranks
import twins
import vs_torch

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NAME = "gpt2-124m"


def model_file(folder, tokens):
    """The model with random weights, for so many tokens."""
    path = os.path.join(folder, f"{NAME}.onnx")
    if os.path.exists(path):
        return path
    if tokens == twins.GPT2_124M["context"]:
        return twins.fill(NAME, folder)
    import torch

    torch.manual_seed(1)
    modules = vs_torch.load_modules()
    import export  # where load_modules found the modules

    model = modules.GptChar(**twins.GPT2_124M)
    batch = torch.randint(twins.GPT2_124M["vocabulary"], (1, tokens))
    export.export_onnx(model, {"tokens": batch}, batch, path, opset=17)
    return path


def version(options):
    return subprocess.run([options.gradloom, "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[0]


def size_text(saved):
    """What a pass saves of the peak, as it changes it."""
    mib = round(abs(saved) / 2**20)
    return "" if mib == 0 else f"{'-' if saved > 0 else '+'}{mib:,} MiB"


def cells(side):
    if side is None:
        return ["not measured", ""]
    if side["same_work"]:
        return ["the same", ""]
    noise = side["low"] <= 1 <= side["high"]
    ratio = f"{side['ratio']:.3f}x [{side['low']:.3f}, {side['high']:.3f}]"
    return [ratio + (", noise" if noise else ""), size_text(side["peak_saved_bytes"])]


def tells(side):
    """Whether something is known of the pass there beyond noise."""
    if side is None or side["same_work"]:
        return False
    return not side["low"] <= 1 <= side["high"] or size_text(side["peak_saved_bytes"]) != ""


def page(worth, heading):
    rows = [["all of them", *cells(worth["all"]), *cells(worth["all"])]]
    noise, same = [], []
    for row in worth["passes"]:
        sides = row["among"], row["alone"]
        if any(map(tells, sides)):
            rows.append([row["pass"], *cells(sides[0]), *cells(sides[1])])
        elif all(side is None or side["same_work"] for side in sides):
            same.append(row["pass"])
        else:
            noise.append(row["pass"])
    header = ["pass", "among the others", "peak", "alone against none", "peak"]
    lines = [heading, "", *("| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows]), ""]
    if noise:
        lines.append("Within noise, and no memory: " + ", ".join(noise) + ".")
    if same:
        lines.append("The same work with and without them: " + ", ".join(same) + ".")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--precision", default="f32")
    parser.add_argument("--seconds", type=float, default=900, help="for the measurements, half of them among the others")
    parser.add_argument("--threads", default="2")
    parser.add_argument("--folder", help="keeps model and measurements of one size")
    parser.add_argument("-o", "--output", help="file for the table, else it is printed")
    parser.add_argument("--gradloom", default=os.path.join(ROOT, "build", "release", "gradloom"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or temporary
        os.makedirs(folder, exist_ok=True)
        model = model_file(folder, options.tokens)
        job = [model, "--dim", f"batch={options.batch}", "--loss", "loss", "--optimizer", "adamw{lr=1e-4}", "--precision", options.precision]
        search = ["--worth", "--seconds", str(options.seconds), "--session", os.path.join(folder, "worth.db")]
        lines = ranks.answer(options, "tune", *job, "--threads", options.threads, *search)
    worth = lines[-1]["worth"]
    machine = next(device["name"] for device in ranks.answer(options, "devices") if device["device"] == "cpu")
    heading = (
        f"GPT-2 124M, {options.batch} x {options.tokens} tokens, {options.precision}, AdamW, {options.threads} threads of {machine}, "
        f"{version(options)}, {datetime.date.today()}: {worth['step_ns'] / 1e6:,.0f} ms a step, peak {worth['peak_bytes'] / 2**20:,.0f} MiB."
    )
    text = page(worth, heading)
    if not options.output:
        print(text, end="")
        return 0
    with open(options.output, "w") as file:
        file.write(text)
    print(json.dumps({"output": options.output, "passes": len(worth["passes"])}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
