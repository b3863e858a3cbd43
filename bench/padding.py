#!/usr/bin/env python3
"""What padding costs a training step, and what drop-padding saves of it.

    /usr/bin/python3 bench/padding.py [--layers 4] [--width 768] [--tokens 0.5,0.75,1] [--precision bf16] [--seconds 60]

    50 % tokens: 1.80x [1.79, 1.85] (521 against 935 ms)

An encoder as BERT's, 8 texts in 128 positions, classified by their first position, trained with AdamW. Lengths are spread evenly so that
the given share of positions has tokens. Both sides are `gradloom compare`'s, in turns: passes=default and passes=default,drop-padding.
GRADLOOM_LIBRARY names libgradloom.so; the one of build/release is found without.
"""

import argparse
import os
import sys
import tempfile

import torch
from torch import nn
from torch.nn import functional as F

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "app/python"))
os.environ.setdefault("GRADLOOM_LIBRARY", os.path.join(ROOT, "build/release/libgradloom.so"))
import gradloom  # noqa: E402
from gradloom.torch import capture  # noqa: E402

TEXTS, POSITIONS, VOCABULARY = 8, 128, 30000


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second, self.drop = nn.LayerNorm(width), nn.LayerNorm(width), nn.Dropout(0.1)

    def split(self, x):
        return x.reshape(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def forward(self, x, left_out):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + left_out
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape)
        x = self.first(x + self.drop(self.out(mixed)))
        return self.second(x + self.drop(self.narrow(F.gelu(self.wide(x)))))


class Encoder(nn.Module):
    def __init__(self, layers, width):
        super().__init__()
        self.words, self.places, self.norm = nn.Embedding(VOCABULARY, width), nn.Parameter(torch.randn(POSITIONS, width) / 50), nn.LayerNorm(width)
        self.blocks, self.head = nn.ModuleList(Block(width, width // 64) for _ in range(layers)), nn.Linear(width, 2)

    def forward(self, tokens, mask, labels):
        x = self.norm(self.words(tokens) + self.places[: tokens.shape[1]])
        left_out = (1 - mask[:, None, None, :].to(x.dtype)) * -1e9
        for block in self.blocks:
            x = block(x, left_out)
        return F.cross_entropy(self.head(x[:, 0]), labels)


def batch(share):
    """Lengths between 2 * share - 1 and 1 of the positions (0 and 2 * share below one half), evenly spread."""
    low, high = (2 * share - 1, 1.0) if share > 0.5 else (0.0, 2 * share)
    lengths = [max(1, round(POSITIONS * (low + (high - low) * (i + 0.5) / TEXTS))) for i in range(TEXTS)]
    mask = (torch.arange(POSITIONS)[None] < torch.tensor(lengths)[:, None]).long()
    return {"tokens": torch.randint(VOCABULARY, (TEXTS, POSITIONS)), "mask": mask, "labels": torch.randint(2, (TEXTS,))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--tokens", default="0.5,0.75,1", help="shares of positions with tokens")
    parser.add_argument("--precision", default="f32")
    parser.add_argument("--seconds", default="60", help="longest time of a comparison")
    parser.add_argument("--threads", default="2")
    options = parser.parse_args()
    torch.manual_seed(1)
    model = Encoder(options.layers, options.width)
    print(f"{options.layers} layers of width {options.width}, {TEXTS} x {POSITIONS} positions, {options.precision}, {options.threads} threads")
    for share in map(float, options.tokens.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            given = batch(share)
            capture(model, given, None, torch.optim.AdamW(model.parameters(), lr=1e-5), folder, threads=options.threads, precision=options.precision)
            answer = gradloom.compare(folder, a="passes=default", b="passes=default,drop-padding", max_seconds=options.seconds)
        print(f"{100 * given['mask'].float().mean():3.0f} % tokens: {answer.ratio:.2f}x [{answer.ratio_low:.2f}, {answer.ratio_high:.2f}] "
              f"({answer.b_step_ns / 1e6:,.0f} against {answer.a_step_ns / 1e6:,.0f} ms)", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
