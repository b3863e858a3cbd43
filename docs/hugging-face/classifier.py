#!/usr/bin/env python3
"""The PyTorch script of docs/hugging-face.md: trains a BERT classifier of Hugging Face that tells prose from code.

    python3 classifier.py train                   40 steps: losses and time per step
    python3 classifier.py train --recipe FILE     the same loop on Gradloom's engine
    python3 classifier.py profile TRACE           ten of its steps under PyTorch's profiler
    python3 classifier.py capture FOLDER          its step as a folder for gradloom

Nothing is downloaded: the weights are random, the texts are those of Python's standard library, and words get their
numbers by hashing. --tiny makes the model so small that a test takes no time (tests/docs).
"""

import argparse
import os
import random
import statistics
import time
import zlib

import torch

os.environ["HF_HUB_OFFLINE"] = "1"
from transformers import BertConfig, BertForSequenceClassification  # noqa: E402

SOURCES = ["argparse", "ast", "codecs", "datetime", "decimal", "difflib", "functools", "inspect", "logging", "pathlib", "random", "statistics"]


def paragraphs():
    """Paragraphs of the library's sources, each with its class: 1 is prose (of a docstring), 0 is code."""
    for name in SOURCES:
        with open(os.path.join(os.path.dirname(random.__file__), name + ("/__init__.py" if name == "logging" else ".py"))) as file:
            prose = False
            for paragraph in file.read().split("\n\n"):
                begins_in_prose = prose
                prose ^= paragraph.count('"""') % 2 == 1
                if len(paragraph.split()) > 4 and begins_in_prose == prose:
                    yield paragraph, int(prose)


def batches(count, size, length, words):
    """Batches as a tokenizer with padding="max_length" makes them: 0 fills up, 1 begins a text, words are numbers above."""
    texts = sorted(paragraphs())
    random.Random(0).shuffle(texts)
    made = []
    for first in range(0, count * size, size):
        rows = [[1] + [2 + zlib.crc32(word.encode()) % (words - 2) for word in text.split()][: length - 1] for text, _ in texts[first : first + size]]
        made.append({
            "input_ids": torch.tensor([row + [0] * (length - len(row)) for row in rows]),
            "attention_mask": torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows]),
            "labels": torch.tensor([prose for _, prose in texts[first : first + size]]),
        })  # fmt: skip
    return made


def train(model, data, steps, each_step=lambda: None):
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.01)
    times = []
    for step in range(1, steps + 1):
        start = time.perf_counter()
        loss = model(**data[(step - 1) % len(data)]).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
        each_step()
        if step in (1, 2, 3, 10, steps):
            print(f"step {step}: loss {loss.item():.5f}")
    print(f"median time per step: {1e3 * statistics.median(times):.1f} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["train", "profile", "capture"])
    parser.add_argument("to", nargs="?")
    parser.add_argument("--recipe")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(2)
    width, length, words, count = (32, 128, 50, 2) if options.tiny else (256, 128, 8192, 40)
    config = BertConfig(
        hidden_size=width, intermediate_size=4 * width, num_hidden_layers=4, num_attention_heads=4, vocab_size=words,
        max_position_embeddings=length, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    data = batches(count, 4 if options.tiny else 16, length, words)

    if options.command == "capture":
        import gradloom.torch

        gradloom.torch.capture(model, data, None, torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.01), options.to)
    elif options.command == "profile":
        import gradloom.torch

        with gradloom.torch.profile(model, options.to, steps=2 if options.tiny else 10) as profile:
            train(model, data, 5 if options.tiny else 13, profile.step)
    else:
        if options.recipe:
            from gradloom.torch import Module

            model = Module(model, recipe=options.recipe)
        train(model, data, 40)


if __name__ == "__main__":
    main()
