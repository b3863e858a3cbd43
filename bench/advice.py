#!/usr/bin/env python3
"""What `gradloom advise` promises beside what `gradloom compare` then measures, for models of tests/models. On an idle machine.

    /usr/bin/python3 bench/advice.py [--models gpt-char,bert-tiny,cnn-digits] [--seconds 12]

    gpt-char precision=bf16: predicted 1.460x [1.302, 1.662], measured 1.510x, within
    ..
    median error 2.9 %, 5 of 6 within their ranges

Every finding whose remedy is a setting is measured as its own command line says, interleaved, for six seconds.
"""

import argparse
import os
import statistics
import sys

import ranks

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
JOBS = {
    "gpt-char": ["--dim", "batch=8", "--loss", "ce:logits,labels", "--optimizer", "adamw{lr=1e-3}"],
    "bert-tiny": ["--dim", "batch=8", "--optimizer", "adamw{lr=1e-3}"],
    "cnn-digits": ["--dim", "batch=8", "--loss", "ce:logits,labels", "--optimizer", "sgd{lr=0.01}"],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(JOBS))
    parser.add_argument("--seconds", default="12", help="for the steps that advise makes")
    parser.add_argument("--gradloom", default=os.path.join(ROOT, "build", "release", "gradloom"))
    options = parser.parse_args()
    errors, within = [], 0
    for name in options.models.split(","):
        job = [os.path.join(ROOT, "tests", "models", name, "model.onnx"), *JOBS[name]]
        findings = ranks.answer(options, "advise", *job, "--seconds", options.seconds)
        for finding in findings:
            change, expected = finding.get("change"), finding.get("expected_ratio")
            if not expected or "EDITED" in change:
                continue
            compared = ranks.answer(options, "compare", *job, "--b", change, "--max-seconds", "6")
            ratio = compared[-1]["ratio"]
            fits = expected["low"] <= ratio <= expected["high"]
            errors.append(abs(expected["value"] / ratio - 1))
            within += fits
            print(
                f"{name} {change}: predicted {expected['value']:.3f}x [{expected['low']:.3f}, {expected['high']:.3f}], "
                f"measured {ratio:.3f}x, {'within' if fits else 'not within'}",
                flush=True,
            )
    if errors:
        print(f"median error {100 * statistics.median(errors):.1f} %, {within} of {len(errors)} within their ranges")
    return 0


if __name__ == "__main__":
    sys.exit(main())
