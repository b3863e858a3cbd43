#!/usr/bin/env python3
"""What `gradloom what-if` predicts from a recorded run beside what `gradloom compare` then measures, interleaved.

    /usr/bin/python3 bench/what_if.py [--models gpt-char,bert-tiny,cnn-digits] [--seconds 5]

    gpt-char passes=none: predicted 0.810x [0.423, 0.885], measured 0.790x, +2.5 %, within
    ..
    median error 5.0 %, 14 of 18 within their ranges

Each model is recorded once as it is, and every change below predicted from that run: the time of its step over that of the changed one.
Before them `devices --measure` finds what other types make of kernels here. `what-if --scores` holds predictions against later runs,
whose times also have the machine's drift between both; `compare` has not.
"""

import argparse
import os
import statistics
import sys
import tempfile

import advice
import ranks

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CHANGES = ["passes=none", "passes=default,-fuse-elementwise", "precision=bf16", "dim=batch=4", "dim=batch=32", "clip-norm=1"]
STEPS = {"gpt-char": 150, "bert-tiny": 2000, "cnn-digits": 6000}  # some seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(advice.JOBS))
    parser.add_argument("--seconds", default="5", help="for each comparison")
    parser.add_argument("--gradloom", default=os.path.join(ROOT, "build", "release", "gradloom"))
    options = parser.parse_args()
    errors, within = [], 0
    ranks.answer(options, "devices", "--measure", "--device", "cpu")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models.split(","):
            session = os.path.join(folder, name + ".db")
            job = [os.path.join(ROOT, "tests", "models", name, "model.onnx"), *advice.JOBS[name]]
            ranks.answer(options, "train", *job, "--steps", str(STEPS[name]), "--profile", "sampled", "--session", session)
            for change in CHANGES:
                p = ranks.answer(options, "what-if", session, "--b", change, "--forget")[-1]
                value, low, high = (p["step_ns"] / p[key] for key in ("predicted_ns", "high_ns", "low_ns"))
                ratio = ranks.answer(options, "compare", *job, "--b", change, "--max-seconds", options.seconds)[-1]["ratio"]
                errors.append(abs(value / ratio - 1))
                within += low <= ratio <= high
                print(
                    f"{name} {change}: predicted {value:.3f}x [{low:.3f}, {high:.3f}], measured {ratio:.3f}x, "
                    f"{100 * (value / ratio - 1):+.1f} %, {'within' if low <= ratio <= high else 'not within'}",
                    flush=True,
                )
    print(f"median error {100 * statistics.median(errors):.1f} %, {within} of {len(errors)} within their ranges")
    return 0


if __name__ == "__main__":
    sys.exit(main())
