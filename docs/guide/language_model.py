#!/usr/bin/env python3
"""The PyTorch script of the guide (docs/guide.md): a small language model over bytes, its training and its export.

    python3 language_model.py train            20 steps in PyTorch: losses and time per step
    python3 language_model.py export MODEL     writes MODEL (ONNX) and batches.npz beside it

--tiny makes the model so small that a test takes no time (tests/docs). The text is FILE of --text, by default this script itself.
"""

import argparse
import os
import statistics
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x, future):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(x).split(width, dim=2))
        scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
        attention = scores.masked_fill(future, float("-inf")).softmax(dim=-1)
        mixed = (attention @ v).transpose(1, 2).reshape(batch, length, width)
        return self.proj(mixed), attention


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.expand = nn.Linear(width, 4 * width)
        self.shrink = nn.Linear(4 * width, width)

    def forward(self, x, future):
        mixed, attention = self.attention(self.norm1(x), future)
        x = x + mixed
        return x + self.shrink(F.gelu(self.expand(self.norm2(x)))), attention


class LanguageModel(nn.Module):
    def __init__(self, layers, width, heads, context):
        super().__init__()
        self.tokens = nn.Embedding(256, width)
        self.places = nn.Parameter(0.02 * torch.randn(context, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 256)
        self.register_buffer("future", torch.ones(context, context, dtype=torch.bool).triu(1))

    def forward(self, tokens, labels):
        x = self.tokens(tokens) + self.places
        for block in self.blocks:
            x, attention = block(x, self.future)
        logits = self.head(self.norm(x))
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return loss, logits, attention  # the map is for looking at


def text_batches(path, count, batch, context):
    """Arrays [count, batch, context]: windows of the text, and at each place the byte that comes next."""
    text = np.fromfile(path, np.uint8).astype(np.int64)
    starts = np.random.RandomState(1).randint(0, len(text) - context - 1, (count, batch, 1)) + np.arange(context)
    return {"tokens": text[starts], "labels": text[starts + 1]}


def train(model, batches):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    times = []
    for step, (tokens, labels) in enumerate(zip(*batches.values()), 1):
        start = time.perf_counter()
        loss = model(torch.from_numpy(tokens), torch.from_numpy(labels))[0]
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
        if step in (1, 2, 3, len(batches["tokens"])):
            print(f"step {step}: loss {loss.item():.5f}")
    print(f"median time per step: {1e3 * statistics.median(times):.1f} ms")


def export(model, batches, path):
    first = tuple(torch.from_numpy(array[0]) for array in batches.values())
    torch.onnx.export(
        model,
        first,
        path,
        input_names=["tokens", "labels"],
        output_names=["loss", "logits", "attention"],
        dynamic_axes={"tokens": {0: "batch"}, "labels": {0: "batch"}},
        training=torch.onnx.TrainingMode.TRAINING,  # dropout and batch norm as in training
        do_constant_folding=False,  # every parameter keeps its name
        opset_version=17,
    )
    np.savez_compressed(os.path.join(os.path.dirname(path), "batches.npz"), **batches)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["train", "export"])
    parser.add_argument("model", nargs="?", default="model.onnx")
    parser.add_argument("--text", default=os.path.abspath(__file__), metavar="FILE")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(2)
    width, heads, count = (8, 2, 2) if options.tiny else (128, 4, 20)
    model = LanguageModel(4, width, heads, 256)
    batches = text_batches(options.text, count, 4, 256)
    if options.command == "train":
        train(model, batches)
    else:
        export(model, batches, options.model)


if __name__ == "__main__":
    main()
