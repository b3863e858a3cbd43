#!/usr/bin/env python3
"""Every module of tests/modules through gradloom.torch.Module: results and gradients are those of torch's autograd, in float64 to
1e-9 and in float32 to 1e-4 of the largest number of their tensor, or of a hundredth of the largest gradient.

GRADLOOM_LIBRARY names the library. Exits with 77 (skipped) where there is no PyTorch.
"""

import fnmatch
import os
import sys
import unittest
import warnings
from unittest import mock

import support
import torch
from gradloom.torch import Module
from support import worst

import cases
import export

REFUSED = {name: "only the data tells how large" for name in ("graph-self-loops", "graph-self-loops-dynamo")
           if int(torch.__version__.partition(".")[0]) < 2}  # which shows no mode what [] reads


def hardsigmoid(x, inplace=False):
    return torch.clamp(x / 6 + 0.5, 0, 1)


def hardswish(x, inplace=False):
    return x * hardsigmoid(x)


def exact_sixths():
    """PyTorch's kernels compute with a sixth in f32, in f64 too."""
    functional = torch.nn.functional
    return mock.patch.multiple(functional, hardsigmoid=hardsigmoid, hardswish=hardswish)


def values_of(inputs, dtype):
    values = [v.detach().clone().to(dtype) if v.is_floating_point() else v.clone() for v in inputs.values()]
    return [v.requires_grad_(v.is_floating_point()) for v in values]


def compare(case, dtype):
    """The worst relative difference of loss, gradients and buffers, and where it is; None: this torch lacks the module."""
    try:
        module, inputs = export.make_pair(case)
        other, _ = export.make_pair(case)
    except AttributeError:
        return None
    module, other = module.to(dtype), other.double()
    mine, theirs = values_of(inputs, dtype), values_of(inputs, torch.float64)
    wrapped = Module(module)
    loss = wrapped(*mine)
    loss.backward()
    with exact_sixths():
        reference = other(*theirs)
    reference.backward()
    found = [(worst([loss], [reference]), "loss")]
    # Some gradients are zero but for rounding: a key's bias moves all scores alike.
    largest = max(float(t.grad.abs().max()) for t in (*theirs, *other.parameters()) if t.grad is not None and t.grad.numel())
    named = list(zip(inputs, mine, theirs)) + [(n, p, q) for (n, p), (_, q) in zip(module.named_parameters(), other.named_parameters())]
    for name, a, b in named:
        if b.grad is not None and a.grad is None:
            found.append((float("inf"), name))
        elif b.grad is not None:
            found.append((worst([a.grad], [b.grad], 1e-2 * largest), name))
    found += [(worst([a], [b]), name) for (name, a), (_, b) in zip(module.named_buffers(), other.named_buffers()) if a.is_floating_point()]
    return max(found)


class Modules(unittest.TestCase):
    def check_all(self, dtype, tolerance):
        only = os.environ.get("GRADLOOM_TEST_MODULES", "*")
        count = 0
        for case in cases.CASES:
            if not fnmatch.fnmatch(case.name, only):
                continue
            with self.subTest(module=case.name), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if case.name in REFUSED:
                    with self.assertRaisesRegex(support.gradloom.UnsupportedError, REFUSED[case.name]):
                        compare(case, dtype)
                    continue
                found = compare(case, dtype)
                if found is not None:
                    self.assertLessEqual(found[0], tolerance, found[1])
                    count += 1
        if only == "*":
            self.assertGreater(count, 170)

    def test_float64(self):
        self.check_all(torch.float64, 1e-9)

    def test_float32(self):
        self.check_all(torch.float32, 1e-4)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
