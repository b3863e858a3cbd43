#!/usr/bin/env python3
"""What `gradloom advise` promises beside what `gradloom compare` then measures, for models of tests/models. On an idle machine.

    /usr/bin/python3 bench/advice.py [--models gpt-char,bert-tiny,cnn-digits] [--seconds 12]
    /usr/bin/python3 bench/advice.py --slow [NAME,..]    # networks of tests/app/slow_models.py beside the same ones mended; needs PyTorch

    gpt-char precision=bf16: predicted 1.460x [1.302, 1.662], measured 1.510x, within
    ..
    median error 2.9 %, 5 of 6 within their ranges

Every finding whose remedy is a setting is measured as its own command line says, interleaved, for six seconds. Of slow networks it is
the finding of the cause that was put in; where its remedy lies in the model, the mended one is what it is compared with.
"""

import argparse
import os
import statistics
import sys
import tempfile

import ranks

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
JOBS = {
    "gpt-char": ["--dim", "batch=8", "--loss", "ce:logits,labels", "--optimizer", "adamw{lr=1e-3}"],
    "bert-tiny": ["--dim", "batch=8", "--optimizer", "adamw{lr=1e-3}"],
    "cnn-digits": ["--dim", "batch=8", "--loss", "ce:logits,labels", "--optimizer", "sgd{lr=0.01}"],
}


def measured(options, label, job, change, expected):
    """What `compare` finds of the change; prints it beside what was expected. The error, and whether it lies within."""
    compared = ranks.answer(options, "compare", *job, "--b", change, "--max-seconds", "6")
    ratio = compared[-1]["ratio"]
    fits = expected["low"] <= ratio <= expected["high"]
    print(
        f"{label}: predicted {expected['value']:.3f}x [{expected['low']:.3f}, {expected['high']:.3f}], "
        f"measured {ratio:.3f}x, {'within' if fits else 'not within'}",
        flush=True,
    )
    return abs(expected["value"] / ratio - 1), fits


def of_settings(options):
    for name in options.models.split(","):
        job = [os.path.join(ROOT, "tests", "models", name, "model.onnx"), *JOBS[name]]
        for finding in ranks.answer(options, "advise", *job, "--seconds", options.seconds):
            change, expected = finding.get("change"), finding.get("expected_ratio")
            if expected and "EDITED" not in change:
                yield measured(options, f"{name} {change}", job, change, expected)


def of_slow_models(options):
    sys.path.insert(0, os.path.join(ROOT, "tests", "app"))
    import slow_models

    wanted = options.slow.split(",") if options.slow else [case.name for case in slow_models.CASES if not case.data]
    for case in slow_models.CASES:
        if case.name not in wanted:
            continue
        with tempfile.TemporaryDirectory() as folder:
            slow, mended = os.path.join(folder, "slow.onnx"), os.path.join(folder, "mended.onnx")
            slow_models.export(case.slow().train(), case.inputs, slow, case.batch)
            slow_models.export((case.mended or case.slow)().train(), case.mended_inputs or case.inputs, mended, case.batch)
            job = [slow, "--optimizer", "adam{lr=1e-3}", *case.flags]
            findings = ranks.answer(options, "advise", *job, "--seconds", options.seconds)
            finding = next((f for f in findings if f.get("finding") == case.rule), None)
            if finding is None:
                print(f"{case.name}: {case.rule} was not found")
                continue
            change = finding["change"].replace("EDITED.onnx", mended)
            yield measured(options, f"{case.name} ({case.rule})", job, change, finding["expected_ratio"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(JOBS))
    parser.add_argument("--slow", nargs="?", const="", help="networks that were made slow, all that need no files of data")
    parser.add_argument("--seconds", default="12", help="for the steps that advise makes")
    parser.add_argument("--gradloom", default=os.path.join(ROOT, "build", "release", "gradloom"))
    options = parser.parse_args()
    results = list(of_settings(options) if options.slow is None else of_slow_models(options))
    if results:
        errors = [error for error, _ in results]
        within = sum(fits for _, fits in results)
        print(f"median error {100 * statistics.median(errors):.1f} %, {within} of {len(errors)} within their ranges")
    return 0


if __name__ == "__main__":
    sys.exit(main())
