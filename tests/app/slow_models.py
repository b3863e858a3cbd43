"""Networks that are slow in a way in which people make them slow, and the same ones mended.

    CASES    name, the kind of finding that gradloom advise has to tell first, part of its words, both networks and how they are trained
    CURED    what passes mend: name, both networks and their inputs; a step of the one launches no more than one of the other
    export(module, inputs, path)    writes one with a loss as its first output

Both networks of a case whose parameters have the same names compute the same loss from the same numbers.
"""

import dataclasses
import warnings
from typing import Callable

import torch
from torch import nn
from torch.nn import functional as F


def export(module, inputs, path, batch=False):
    """`batch`: the first dim of every input is named batch."""
    names = list(inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            tuple(inputs.values()),
            path,
            input_names=names,
            output_names=["loss"],
            training=torch.onnx.TrainingMode.PRESERVE,
            do_constant_folding=False,
            opset_version=15,
            dynamic_axes={name: {0: "batch"} for name in names} if batch else None,
        )


def layers(*widths):
    steps = [nn.Linear(widths[0], widths[1])]
    for a, b in zip(widths[1:], widths[2:]):
        steps += [nn.Tanh(), nn.Linear(a, b)]
    return nn.Sequential(*steps)


class Mean(nn.Module):
    """The mean square of what a network gives."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, *inputs):
        return self.body(*inputs).pow(2).mean()


class Scaled(nn.Module):
    """A constant that NumPy made, in float64, takes a branch with it."""

    def __init__(self, wide):
        super().__init__()
        self.up, self.down, self.wide = nn.Linear(128, 512), nn.Linear(512, 128), wide
        self.register_buffer("scale", torch.linspace(0.5, 2, 512, dtype=torch.float64 if wide else torch.float32))

    def forward(self, x):
        h = self.up(x)
        return self.down(torch.tanh((h.double() if self.wide else h) * self.scale).float())


class Classifier(nn.Module):
    """The loss of 2000 classes: by their numbers, in float64, or by rows of zeros with a one."""

    def __init__(self, how="plain"):
        super().__init__()
        self.body, self.how = nn.Linear(32, 2000), how

    def forward(self, x, labels):
        logits = self.body(x)
        if self.how == "one hot":
            return -(F.one_hot(labels, 2000).float() * F.log_softmax(logits, -1)).sum(-1).mean()
        return F.cross_entropy(logits.double() if self.how == "wide" else logits, labels).float()


class Words(nn.Module):
    """Rows of a table: by their numbers, or by a product."""

    def __init__(self, multiplied):
        super().__init__()
        self.table, self.body, self.multiplied = nn.Parameter(torch.randn(4000, 64) * 0.1), layers(64, 64), multiplied

    def forward(self, ids):
        return self.body(F.one_hot(ids, 4000).float() @ self.table if self.multiplied else F.embedding(ids, self.table))


class LowRank(nn.Module):
    """x A B, with the weight A B made first or not."""

    def __init__(self, merged):
        super().__init__()
        self.a, self.b, self.merged = nn.Parameter(torch.randn(1024, 16) * 0.1), nn.Parameter(torch.randn(16, 1024) * 0.1), merged

    def forward(self, x):
        return torch.tanh(x @ (self.a @ self.b) if self.merged else (x @ self.a) @ self.b)


def heads_of(x, heads):
    n, t, c = x.shape
    return x.view(n, t, heads, c // heads).transpose(1, 2)


class Attention(nn.Module):
    """softmax(q k^T + mask) v; `weigh` makes the probabilities of scores, and multiplies them with values."""

    def __init__(self, weigh, width=64, heads=2, longest=384, bias=False):
        super().__init__()
        self.heads, self.weigh = heads, weigh
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        if bias:
            self.bias = nn.Parameter(torch.randn(heads, longest, longest) * 0.01)
        self.register_buffer("keep", torch.ones(longest, longest, dtype=torch.bool).tril())

    def forward(self, x):
        q, k, v = (heads_of(part, self.heads) for part in self.qkv(x).chunk(3, -1))
        y = self.weigh(self, q, k, v)
        return self.out(y.transpose(1, 2).reshape(x.shape))


def masked_before(m, q, k, v):
    scores = q @ k.transpose(-2, -1) * 0.125
    return F.softmax(scores.masked_fill(~m.keep, -1e9), -1) @ v


def masked_after(m, q, k, v):
    p = F.softmax(q @ k.transpose(-2, -1) * 0.125, -1) * m.keep
    return (p / p.sum(-1, keepdim=True)) @ v


def with_bias(m, q, k, v):
    return F.softmax(q @ k.transpose(-2, -1) * 0.125 + m.bias, -1) @ v


def linear_by_pairs(m, q, k, v):
    return (F.elu(q) + 1) @ (F.elu(k) + 1).transpose(-2, -1) @ v * (1 / 384)


def linear_by_sums(m, q, k, v):
    return (F.elu(q) + 1) @ ((F.elu(k) + 1).transpose(-2, -1) @ v) * (1 / 384)


class Decoder(nn.Module):
    """One code for all positions of a sequence, multiplied at each of them or once."""

    def __init__(self, each):
        super().__init__()
        self.up, self.place, self.each = nn.Linear(256, 512), nn.Parameter(torch.randn(64, 512)), each

    def forward(self, z):
        z = z.unsqueeze(1)
        return torch.tanh(self.up(z.expand(-1, 64, -1) if self.each else z) + self.place)


class PerSample(nn.Module):
    def __init__(self, loop):
        super().__init__()
        self.body, self.loop = layers(64, 64, 64, 64), loop

    def forward(self, x):
        return torch.cat([self.body(sample) for sample in x.split(1)]) if self.loop else self.body(x)


class Cells(nn.Module):
    """A recurrence whose inputs are multiplied at each step, or all before the first."""

    def __init__(self, each):
        super().__init__()
        self.ih, self.hh, self.each = nn.Linear(512, 64), nn.Linear(64, 64), each

    def forward(self, x):  # [time, batch, width]
        inputs = [self.ih(step[0]) for step in x.split(1)] if self.each else [step[0] for step in self.ih(x).split(1)]
        h = torch.zeros(4, 64)
        for given in inputs:
            h = torch.tanh(given + self.hh(h))
        return h


class Heads(nn.Module):
    """A layer for each head, as lessons write attention."""

    def __init__(self, apart):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(256, 4) for _ in range(32)) if apart else nn.ModuleList([nn.Linear(256, 128)])

    def forward(self, x):
        return torch.tanh(torch.cat([part(x) for part in self.parts], -1))


class FrozenBackbone(nn.Module):
    """A head over a body that is not trained, whose norms are in training with it or not."""

    def __init__(self, evaluated):
        super().__init__()
        self.backbone = nn.Sequential(*(layer for _ in range(3) for layer in (nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Tanh())))
        self.head, self.evaluated = nn.Linear(16, 10), evaluated

    def train(self, mode=True):
        super().train(mode)
        self.backbone.train(mode and not self.evaluated)
        return self

    def forward(self, x):
        return self.head(self.backbone(x)).pow(2).mean()


class Prototypes(nn.Module):
    """Squared distances of all pairs: by differences, or by a product."""

    def __init__(self, differences):
        super().__init__()
        self.up, self.centres, self.differences = nn.Linear(64, 64), nn.Parameter(torch.randn(128, 64)), differences

    def forward(self, x):
        x = self.up(x)
        if self.differences:
            return (x.unsqueeze(1) - self.centres.unsqueeze(0)).pow(2).sum(-1)
        return x.pow(2).sum(-1, keepdim=True) + self.centres.pow(2).sum(-1) - 2 * (x @ self.centres.t())


class ChannelsLast(nn.Module):
    """Norms over channels: with them last, a turn before and after each convolution; or as they lie."""

    def __init__(self, turns):
        super().__init__()
        self.turns = turns
        self.convs = nn.ModuleList(nn.Conv2d(36, 36, 1) for _ in range(4))
        self.norms = nn.ModuleList(nn.LayerNorm(36) if turns else nn.GroupNorm(1, 36) for _ in range(4))

    def forward(self, x):
        if self.turns:
            x = x.permute(0, 2, 3, 1)
        for conv, norm in zip(self.convs, self.norms):
            x = norm(conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1) if self.turns else conv(x))
        return x


class Encoder(nn.Module):
    """Texts that are filled up to 64 tokens, of which the loss reads the first."""

    def __init__(self):
        super().__init__()
        self.words, self.q, self.k, self.v = nn.Embedding(100, 64), nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 64)
        self.up, self.down, self.head = nn.Linear(64, 1024), nn.Linear(1024, 64), nn.Linear(64, 16)

    def forward(self, ids, mask):
        x = self.words(ids)
        for _ in range(2):
            scores = self.q(x) @ self.k(x).transpose(1, 2)
            x = x + F.softmax(scores.masked_fill(mask.unsqueeze(1) == 0, -1e9), -1) @ self.v(x)
            x = x + self.down(F.relu(self.up(x)))
        return self.head(x[:, 0]).pow(2).mean()


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(64), Attention(masked_before, longest=64)
        self.after, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.down(F.gelu(self.up(self.after(x))))


def floats(*shape):
    return torch.randn(*shape)


def numbers(most, *shape):
    return torch.randint(0, most, shape)


@dataclasses.dataclass
class Case:
    name: str
    rule: str
    words: str  # of the finding's title, change or remedy
    slow: Callable[[], nn.Module]
    inputs: dict
    mended: Callable[[], nn.Module] = None  # none: the slow one, trained otherwise
    flags: tuple = ()
    mended_flags: tuple = None  # none: flags
    mended_inputs: dict = None  # none: inputs
    batch: bool = False
    data: str = ""  # what both are given: "padded", "compressed"


def gelu_of_erf(x):
    return x * 0.5 * (1 + torch.erf(x / 2**0.5))


def gelu_of_tanh(x):
    return 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x * x * x)))


def copied(x):
    return x.clone().contiguous().transpose(1, 2).contiguous().transpose(1, 2).contiguous()


class Feed(nn.Module):
    """Two layers, and something between them and behind."""

    def __init__(self, between, behind=None):
        super().__init__()
        self.up, self.down, self.between, self.behind = nn.Linear(64, 256), nn.Linear(256, 64), between, behind

    def forward(self, x):
        y = self.down(self.between(self.up(x)))
        return y if self.behind is None else self.behind(y)


class NextWord(nn.Module):
    """The loss of the last word: of the logits of all, or of its own."""

    def __init__(self, all_words):
        super().__init__()
        self.body, self.head, self.all_words = Block(), nn.Linear(64, 500), all_words

    def forward(self, x, labels):
        h = self.body(x)
        return F.cross_entropy(self.head(h)[:, -1] if self.all_words else self.head(h[:, -1]), labels)


def masked_by_where(m, q, k, v):
    scores = torch.matmul(q, k.permute(0, 1, 3, 2)) / 8.0
    return torch.matmul(torch.softmax(torch.where(m.keep, scores, torch.tensor(-1e9)), -1), v)


def mean(make, *args):
    return lambda: Mean(make(*args))


def case(name, rule, words, slow, inputs, mended=None, **options):
    return Case(name, rule, words, slow, inputs, mended, **options)


CURED = [
    ("gelu-of-erf", mean(Feed, gelu_of_erf), mean(Feed, F.gelu), {"x": floats(8, 32, 64)}),
    ("gelu-of-tanh", mean(Feed, gelu_of_tanh), mean(Feed, lambda x: F.gelu(x, approximate="tanh")), {"x": floats(8, 32, 64)}),
    ("copies", mean(Feed, copied), mean(Feed, lambda x: x), {"x": floats(8, 32, 64)}),
    ("dropout-of-nothing", mean(Feed, torch.tanh, nn.Dropout(0)), mean(Feed, torch.tanh), {"x": floats(8, 32, 64)}),
    ("logits-of-all-words", lambda: NextWord(True), lambda: NextWord(False), {"x": floats(4, 64, 64), "labels": numbers(500, 4)}),
    ("mask-of-minus-1e9", mean(Attention, masked_by_where), mean(Attention, masked_before), {"x": floats(2, 384, 64)}),
]  # fmt: skip

ROWS = floats(256, 128)
CASES = [
    case("float64-model", "wide", "in f64", lambda: Mean(layers(128, 512, 128)).double(), {"x": ROWS.double()},
         lambda: Mean(layers(128, 512, 128)), mended_inputs={"x": ROWS}),
    case("float64-constant", "wide", "in f64", mean(Scaled, True), {"x": floats(256, 128)}, mean(Scaled, False),
         flags=("--freeze", "body.scale")),
    case("float64-loss", "wide", "in f64", lambda: Classifier("wide"), {"x": floats(512, 32), "labels": numbers(2000, 512)},
         lambda: Classifier()),
    case("one-hot-embedding", "one_hot", "nn.Embedding", mean(Words, True), {"ids": numbers(4000, 512)}, mean(Words, False)),
    case("one-hot-loss", "one_hot", "F.cross_entropy", lambda: Classifier("one hot"),
         {"x": floats(512, 32), "labels": numbers(2000, 512)}, lambda: Classifier()),
    case("low-rank-weight-made-first", "product_order", "(x @ a) @ b", mean(LowRank, True), {"x": floats(64, 1024)}, mean(LowRank, False)),
    case("linear-attention-by-pairs", "product_order", "a @ (b @ c)", mean(Attention, linear_by_pairs), {"x": floats(2, 384, 64)},
         mean(Attention, linear_by_sums)),
    case("expanded-before-linear", "repeated", "64 times", mean(Decoder, True), {"z": floats(16, 256)}, mean(Decoder, False)),
    case("loop-over-samples", "unrolled", "with one weight", mean(PerSample, True), {"x": floats(32, 64)}, mean(PerSample, False)),
    case("inputs-of-a-recurrence-one-by-one", "unrolled", "with one weight", mean(Cells, True), {"x": floats(48, 4, 512)}, mean(Cells, False)),
    case("layer-for-each-head", "unrolled", "of one operand", mean(Heads, True), {"x": floats(128, 256)}, mean(Heads, False)),
    case("frozen-norms-in-training", "frozen_norms", ".eval()", lambda: FrozenBackbone(False), {"x": floats(8192, 16)},
         lambda: FrozenBackbone(True), flags=("--freeze", "backbone.*")),
    case("distances-by-differences", "pairs", "all pairs", mean(Prototypes, True), {"x": floats(256, 64)}, mean(Prototypes, False)),
    case("masked-behind-softmax", "left_alone", "fuse-attention", mean(Attention, masked_after, 32, 4, 512), {"x": floats(2, 512, 32)},
         mean(Attention, masked_before, 32, 4, 512)),
    case("trained-bias-of-positions", "left_alone", "freeze=", lambda: Mean(Attention(with_bias, 32, 4, 512, bias=True)), {"x": floats(1, 512, 32)},
         flags=(), mended_flags=("--freeze", "body.bias")),
    case("turns-around-each-convolution", "moves", "Transpose", mean(ChannelsLast, True), {"x": floats(4, 36, 64, 64)}, mean(ChannelsLast, False)),
    case("one-row-at-a-time", "batch", "dim=batch=", lambda: Mean(layers(256, 512, 512, 256)), {"x": floats(4, 256)},
         batch=True, flags=("--dim", "batch=1"), mended_flags=("--dim", "batch=1024")),
    case("memory-unused", "batch", "dim=batch=", lambda: Classifier(), {"x": floats(4, 32), "labels": numbers(2000, 4)},
         batch=True, flags=("--dim", "batch=4"), mended_flags=("--dim", "batch=1024")),
    case("passes-off", "passes_off", "passes=default", mean(Block), {"x": floats(8, 64, 64)}, flags=("--passes", "none"), mended_flags=()),
    case("everything-again", "recompute", "recompute=", mean(Block), {"x": floats(8, 64, 64)}, flags=("--recompute", "*"), mended_flags=()),
    case("job-in-float64", "precision", "precision=f32", mean(Block), {"x": floats(8, 64, 64)}, flags=("--precision", "f64"), mended_flags=()),
    case("padding", "padding", "are padding", Encoder, {"ids": numbers(100, 8, 64), "mask": torch.ones(8, 64, dtype=torch.long)},
         data="padded"),
    case("compressed-batches", "waits", "data=synthetic", lambda: Mean(layers(4096, 64)), {"x": floats(256, 4096)}, data="compressed"),
]  # fmt: skip
