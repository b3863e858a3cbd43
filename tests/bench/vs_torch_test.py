#!/usr/bin/python3
"""vs_torch_test.py PROGRAM: the comparison with PyTorch on a GPU, on the CPU with tiny batches: what PyTorch is given, the gate before the
times, and what a row tells. No time is held to anything. Exit code 77 without PyTorch."""

import json
import math
import os
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError:
    print("no PyTorch here")
    sys.exit(77)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "tests", "models")]
import figures  # noqa: E402
import modules  # noqa: E402
import peer  # noqa: E402
import twins  # noqa: E402
import vs_torch  # noqa: E402


def close(a, b, relative=1e-6):
    return abs(a - b) <= relative * max(abs(a), abs(b))


def options(**changes):
    return type("Options", (), {"device": "cpu", "precision": "f32", "threads": 1, "variant": "eager", **changes})


def test_padding():
    """nanoGPT's vocabulary; rows that are padding change no logit of the others."""
    assert peer.padded(50257) == 50304 and peer.padded(64) == 64
    torch.manual_seed(1)
    model = modules.GptChar(layers=1, width=16, heads=2, context=8, vocabulary=70)
    tokens = torch.randint(70, (2, 8))
    before = model(tokens)
    peer.pad_vocabulary(model, 70)
    after = model(tokens)
    assert after.shape[-1] == 128 and torch.allclose(after[..., :70], before, rtol=0, atol=1e-6)  # of a product with more columns
    assert model.wte.weight.requires_grad and not after[..., 70:].any()


def test_attention_is_the_same_function():
    """scaled_dot_product_attention in place of the explicit one; a stand-in where this PyTorch has none."""
    own = getattr(torch.nn.functional, "scaled_dot_product_attention", None)

    def stand_in(q, k, v, dropout_p=0.0, is_causal=False):
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if is_causal:
            scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
        return torch.dropout(torch.softmax(scores, -1), dropout_p, dropout_p > 0) @ v

    if own is None:
        torch.nn.functional.scaled_dot_product_attention = stand_in
    try:
        torch.manual_seed(1)
        decoder = modules.GptChar(layers=2, width=16, heads=2, context=8, vocabulary=32)
        encoder = modules.BertTiny(layers=2, width=16, heads=2, hidden=32, context=8, vocabulary=32, dropout=0.0)
        for model in (decoder, encoder):
            tokens = torch.randint(32, (2, 8))
            before = model(tokens)
            assert peer.use_sdpa(model, modules) == 2
            assert torch.allclose(model(tokens), before, rtol=1e-5, atol=1e-6)
    finally:
        if own is None:
            del torch.nn.functional.scaled_dot_product_attention


def test_choices():
    """The fastest that works; what PyTorch refuses is left out."""

    def measure(candidate):
        if candidate == "refused":
            raise RuntimeError("no kernel")
        return {"slow": 3.0, "fast": 1.0, "medium": 2.0}[candidate]

    assert peer.fastest(["slow", "refused", "fast", "medium"], measure) == ("fast", 1.0)
    assert peer.fastest(["refused"], measure) == (None, math.inf)
    torch.manual_seed(1)
    model = modules.CnnDigits()
    side = peer.Peer(model, [torch.rand(4, 1, 8, 8), torch.randint(10, (4,))], modules, options())
    assert side.facts["layout"] == "channels last" and side.facts["optimizer"] in ("fused", "foreach", "loop")
    assert model.residual1.weight.is_contiguous(memory_format=torch.channels_last)
    before = float(side.loss())
    answer = side.run(20)
    assert answer["paced"] == 20 and answer["elapsed_ns"] > 0 and answer["peak_bytes"] is None
    assert float(side.loss()) < before, "it trains"


def test_figures():
    flops = figures.transformer_flops(twins.GPT2_124M, 64)
    # nanoGPT: 6 N + 12 L C T per token, N = 124.4 M less the positions' 0.8 M and what is no product.
    assert close(flops, 64 * 1024 * (6 * 123.53e6 + 12 * 12 * 768 * 1024), 1e-3), flops
    told = figures.figures(100e6, 65536, flops, "h200", "bf16", 90e6)
    assert close(told["items_per_s"], 655360) and close(told["mfu"], flops / 0.1 / 989.5e12) and close(told["share_of_limit"], 0.9)
    unknown = figures.figures(100e6, 65536, flops, "", "bf16")
    assert unknown["mfu"] is None and unknown["share_of_limit"] is None
    assert figures.card_of("NVIDIA H200") == "h200" and figures.card_of("NVIDIA A100-SXM4-80GB") == "a100" and figures.card_of("T4") == ""
    assert figures.gate(2.0, 2.00001, "f32", False)[0] and not figures.gate(2.0, 2.001, "f32", False)[0]
    assert figures.gate(2.0, 2.001, "bf16", False)[0] and not figures.gate(float("nan"), 2.0, "bf16", True)[0]


def test_networks_of_the_zoo_have_no_peer():
    for workload, asked, expected in (("gpt2-124m@64", True, True), ("gpt2-124m", False, False), ("some-network", True, False)):
        assert vs_torch.uses_peer(workload, options(peer=asked)) is expected, workload


def run(program, *flags):
    command = [sys.executable, os.path.join(ROOT, "bench", "vs_torch.py"), "--peer", "--gradloom", program, "--threads", "1",
               "--blocks", "1", "--launches", "1", "--leg", "0.02", "--on", "h200", *flags]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True)


def test_rows(program):
    """Both sides with the same weights and batch, then timed: a row with all that it is to tell."""
    done = run(program, "--models", "gpt-char@2", "--json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["model"] for row in rows] == ["gpt-char@2"]
    for row, items in zip(rows, (2 * 64,)):
        assert row["gate"].startswith("first losses ") and row["variant"] == "eager"
        assert close(row["ours"]["items_per_s"], items / row["ours_step_ns"] * 1e9)
        assert close(row["theirs"]["items_per_s"], items / row["torch_step_ns"] * 1e9)
        assert 0 < row["ours"]["mfu"] and 0 < row["ours"]["share_of_limit"] and row["ours"]["launches"] > 0 and row["ours"]["peak_bytes"] > 0
        assert row["theirs"]["launches"] is None, "nothing was launched on a GPU"
    text = run(program, "--models", "mlp@4")
    assert text.returncode == 0 and "\n  ours: " in text.stdout and "% of the limit" in text.stdout, text.stdout


def test_gate_refuses(program):
    """A side that computes something else is not timed."""
    with tempfile.TemporaryDirectory() as folder:
        wrong = os.path.join(folder, "gradloom")
        with open(wrong, "w") as file:  # its losses are ten more
            file.write(f"#!/bin/sh\n'{program}' \"$@\" | sed 's/\"loss\":\\([0-9]*\\)/\"loss\":1\\1/'\n")
        os.chmod(wrong, 0o755)
        done = run(wrong, "--models", "mlp@4")
    assert done.returncode == 1 and "differ by" in done.stderr and not done.stdout, done.stderr


if __name__ == "__main__":
    for test in (test_padding, test_attention_is_the_same_function, test_choices, test_figures, test_networks_of_the_zoo_have_no_peer):
        test()
    for test in (test_rows, test_gate_refuses):
        test(os.path.abspath(sys.argv[1]))
    print("as it should be")
