#!/usr/bin/env python3
"""Networks and training scripts drawn at random: what PyTorch computes is what gradloom.torch.Module does.

A failure names its seed, which alone makes network and script. Exits with 77 (skipped) where there is no PyTorch.
"""

import random
import sys
import unittest
import warnings

import support
import torch
from outside_test import Block, Both, Lacks, Reads, Rounds, Stack, pair
from torch import nn
from torch.nn import functional as F

WIDTH, WORDS = 8, 23


class Recurrent(nn.Module):
    def __init__(self, kind, both_ways, layers):
        super().__init__()
        self.cells = kind(WIDTH, WIDTH // (1 + both_ways), layers, batch_first=True, bidirectional=both_ways)

    def forward(self, x, mask):
        return self.cells(x)[0]


class Attention(nn.Module):
    """torch's own, with a mask of padding, or over the past alone."""

    def __init__(self, causal):
        super().__init__()
        self.heads, self.causal = nn.MultiheadAttention(WIDTH, 2, batch_first=True), causal

    def forward(self, x, mask):
        if self.causal:
            later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            return self.heads(x, x, x, attn_mask=later, need_weights=False)[0]
        return self.heads(x, x, x, key_padding_mask=~mask)[0]


class Dots(nn.Module):
    def __init__(self, causal):
        super().__init__()
        self.qkv, self.causal = nn.Linear(WIDTH, 3 * WIDTH, bias=False), causal

    def forward(self, x, mask):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, WIDTH // 2)).permute(2, 0, 3, 1, 4).unbind(0)
        if hasattr(F, "scaled_dot_product_attention"):
            attended = F.scaled_dot_product_attention(q, k, v, None if self.causal else mask[:, None, None], is_causal=self.causal)
        else:
            scores = q @ k.transpose(-1, -2) / (WIDTH // 2) ** 0.5
            hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1) if self.causal else ~mask[:, None, None]
            attended = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v
        return attended.transpose(1, 2).flatten(2)


class Channels(nn.Module):
    """A convolution along the sequence, and a normalization of batches."""

    def __init__(self, groups, norm):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(WIDTH, WIDTH, 3, padding=1, groups=groups), norm

    def forward(self, x, mask):
        return self.norm(self.conv(x.transpose(1, 2))).relu().transpose(1, 2)


class Plain(nn.Module):
    def __init__(self, *parts):
        super().__init__()
        self.parts = nn.Sequential(*parts)

    def forward(self, x, mask):
        return self.parts(x)


class Encoder(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 12, 0.0, batch_first=True, norm_first=first)

    def forward(self, x, mask):
        return self.layer(x, src_key_padding_mask=~mask)


class Outer(nn.Module):
    """Of rows that Python looks at, or whose backward is a torch.autograd.Function's."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, mask):
        y = self.inner(x.flatten(0, 1))
        return (y["y"] if isinstance(y, dict) else y).view_as(x)


class Twice(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, mask):
        return self.inner(self.inner(x, mask) * 0.5, mask)


class Front(nn.Module):
    """Words, a picture or numbers, as a sequence and its mask."""

    def __init__(self, draw):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH, padding_idx=draw.choice((None, 0))), nn.Embedding(16, WIDTH)
        self.picture = nn.Sequential(nn.Conv2d(3, WIDTH, 3, stride=draw.choice((1, 2)), padding=1, bias=draw.random() < 0.5), nn.BatchNorm2d(WIDTH),
                                     draw.choice((nn.ReLU, nn.SiLU, nn.GELU))(), draw.choice((nn.MaxPool2d, nn.AvgPool2d))(2))  # fmt: skip
        self.numbers = nn.Linear(5, WIDTH)

    def forward(self, given):
        if "tokens" in given:
            tokens = given["tokens"]
            return self.words(tokens) + self.places.weight[: tokens.shape[1]], tokens != 0
        x = self.picture(given["picture"]).flatten(2).transpose(1, 2) if "picture" in given else self.numbers(given["numbers"])
        return x, torch.ones(x.shape[:2], dtype=torch.bool)


class Mixed(nn.Module):
    """A front, bodies with and without a way around them, and a head; a dict of results."""

    def __init__(self, draw, bodies):
        super().__init__()
        self.kind = draw.choice(("tokens", "picture", "numbers"))
        self.front, self.bodies = Front(draw), nn.ModuleList(bodies)
        self.around = [draw.random() < 0.6 for _ in bodies]
        self.norm, self.head, self.tied = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4), draw.random() < 0.5

    def forward(self, batch, scale=1.0):
        x, mask = self.front(batch["given"])
        states = []
        for body, around in zip(self.bodies, self.around):
            y = body(x, mask)
            x = x + y if around else y
            states.append(x)
        x = self.norm(x) * mask.unsqueeze(-1)
        words = x @ self.front.words.weight.t() if self.tied else self.head(x)
        classes = self.head(x.sum(1) / mask.sum(1, keepdim=True))
        loss = F.cross_entropy(classes, batch["labels"]) + scale * words.square().mean()
        return {"loss": loss, "classes": classes, "more": (states[-1].mean(), None)}


def bodies_of(draw):
    """Kinds of bodies, each with its own draws."""
    norm = lambda: draw.choice((nn.BatchNorm1d(WIDTH), nn.GroupNorm(2, WIDTH), nn.InstanceNorm1d(WIDTH, affine=True)))  # noqa: E731
    return {
        "lstm": lambda: Recurrent(nn.LSTM, draw.random() < 0.5, draw.choice((1, 2))),
        "gru": lambda: Recurrent(nn.GRU, draw.random() < 0.5, 1),
        "rnn": lambda: Recurrent(nn.RNN, draw.random() < 0.5, 1),
        "attention": lambda: Attention(draw.random() < 0.5),
        "dots": lambda: Dots(draw.random() < 0.5),
        "encoder": lambda: Encoder(draw.random() < 0.5),
        "channels": lambda: Channels(draw.choice((1, 2, WIDTH)), norm()),
        "linear": lambda: Plain(nn.Linear(WIDTH, WIDTH), draw.choice((nn.GELU, nn.Tanh, nn.SiLU, nn.ELU, nn.Softplus))(), nn.Dropout(0.5)),
        "norm": lambda: Plain(nn.LayerNorm(WIDTH), nn.Dropout(0.3)),
        "twice": lambda: Twice(draw.choice((Attention(False), Recurrent(nn.GRU, False, 1)))),
    }


def batch_of(draw, kind, dtype):
    """Of drawn sizes, as nested dicts."""
    rows, long = draw.choice((2, 3, 3, 5)), draw.choice((4, 6, 6, 9))
    if kind == "tokens":
        given = {"tokens": torch.randint(1, WORDS, (rows, long))}
        given["tokens"][1:, long - draw.randint(1, 3) :] = 0
    elif kind == "picture":
        given = {"picture": torch.randn(rows, 3, 4 * (long // 3), 8, dtype=dtype)}
    else:
        given = {"numbers": torch.randn(rows, long, 5, dtype=dtype)}
    return {"given": given, "labels": torch.randint(0, 4, (rows,))}


def mode(model, training):
    """Dropout is at rest in all modes: its masks are not PyTorch's."""
    model.train(training)
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.eval()


class Fuzzed(Both):
    def make(self, seed):
        draw = random.Random(seed)
        kinds = [Lacks, Reads, Rounds, lambda: nn.Linear(6, 6), nn.Tanh, lambda: Block(draw.choice([Lacks, Reads, nn.ReLU])())]
        model = Stack(*[draw.choice(kinds)() for _ in range(draw.randint(2, 5))])
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        return model

    def test_twelve_stacks_in_f64(self):
        for seed in range(12):
            with self.subTest(seed=seed), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                mine, theirs = pair(lambda: self.make(seed), fallback="torch")
                for count in (4, 4, 7):
                    self.assert_same(mine, theirs, torch.randn(count, 6, dtype=torch.float64))
                    optimizers = [torch.optim.SGD(model.parameters(), lr=1e-2) for model in (mine, theirs)]
                    for optimizer in optimizers:
                        optimizer.step()

    def script(self, seed, models, batch, loss_of, low=None):
        """Modes, sizes, accumulation, passes without gradients, and two forwards before their backwards, at random; what each of `models` gives.
        batch: draws one; loss_of: of a model and a batch; low: how often autocast is around a step (self.cast), before each of which all have the
        last one's numbers then: AdamW makes whole steps of what is rounded otherwise."""
        draw = random.Random(seed)
        make = draw.choice([lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9), lambda p: torch.optim.AdamW(p, lr=1e-3)])
        optimizers = [make(model.parameters()) for model in models]
        for _ in range(8):
            training, gradients, batches = draw.random() < 0.7, draw.random() < 0.75, draw.randint(1, 3)
            together = draw.random() < 0.5
            given = [batch(draw) for _ in range(batches)]
            self.cast = low is not None and draw.random() < low
            told = []
            for model in () if low is None else models:
                model.load_state_dict(models[-1].state_dict())
            for model in models:
                mode(model, training)
                with torch.set_grad_enabled(gradients):
                    losses = []
                    for x in given:
                        with torch.autocast("cpu", torch.bfloat16, enabled=self.cast):
                            losses.append(loss_of(model, x) / batches)
                        if gradients and not together:
                            losses[-1].backward()
                    if gradients and together:
                        sum(losses).backward()
                told.append([loss.detach() for loss in losses])
            yield [torch.stack(one) for one in told]
            if gradients and draw.random() < 0.8:
                for optimizer in optimizers:
                    optimizer.step()
                    optimizer.zero_grad()

    def test_ten_scripts_in_f64(self):
        for seed in range(10):
            with self.subTest(seed=seed), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                mine, theirs = pair(lambda: self.make(seed + 100), fallback="torch")

                def batch(draw):
                    return torch.randn(draw.choice((4, 4, 7, 9)), 6, dtype=torch.float64)

                for losses in self.script(seed, (mine, theirs), batch, lambda model, x: model(x).square().mean()):
                    self.assert_alike(losses, mine, theirs)

    def assert_alike(self, losses, mine, theirs):
        self.assert_near(*losses, 1e-9)
        self.assert_near(list(mine.parameters()), list(theirs.parameters()), 1e-9)
        gradients = [[p.grad for p in model.parameters() if p.grad is not None] for model in (mine, theirs)]
        self.assert_near(*gradients, 1e-8)
        self.assert_near(*([b for b in model.buffers() if b.is_floating_point()] for model in (mine, theirs)), 1e-7)

    def mixed(self, seed, outer=True):
        draw = random.Random(seed)
        kinds = bodies_of(draw)
        chosen = [kinds[draw.choice(sorted(kinds))]() for _ in range(draw.randint(2, 4))]
        if outer and draw.random() < 0.3:
            chosen.insert(draw.randint(0, len(chosen)), Outer(draw.choice((Reads, Rounds))(WIDTH)))
        return Mixed(draw, chosen)

    def test_mixed_networks_in_f64(self):
        """Embeddings, convolutions, recurrent cells, attention, norms, in dicts, with parts in PyTorch."""
        for seed in range(24):
            with self.subTest(seed=seed), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                mine, theirs = pair(lambda: self.mixed(seed), fallback="torch")

                def batch(draw):
                    return batch_of(draw, theirs.kind, torch.float64)

                for losses in self.script(seed, (mine, theirs), batch, lambda model, x: model(x)["loss"]):
                    self.assert_alike(losses, mine, theirs)

    def test_mixed_networks_with_and_without_autocast(self):
        low = 0.5 if hasattr(torch, "get_autocast_dtype") else 0.0  # before PyTorch 2.4 its own norms take no bf16 beside f32
        for seed in range(100, 112):
            with self.subTest(seed=seed), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                mine, theirs = pair(lambda: self.mixed(seed, False), torch.float32)

                def batch(draw):
                    return batch_of(draw, theirs.kind, torch.float32)

                for losses in self.script(seed, (mine, theirs), batch, lambda model, x: model(x)["loss"], low):
                    self.assert_near(*losses, 3e-2 if self.cast else 1e-5)

if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)
    sys.exit(unittest.main(verbosity=1))
