"""Small whole networks, each in the form its paper or its usual implementation gives it, as PyTorch modules.

Head widths are 4 or 16, so that 1 / sqrt(d) is exact in float32; every epsilon is EPSILON, a float32 number. A float64
reference therefore computes with the constants that an exported float32 file holds.
"""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

EPSILON = float(np.float32(1e-5))


def squared_error(y, target):
    return (y - target).pow(2).mean()


def binary_cross_entropy(y, target):
    return -(target * y.log() + (1 - target) * (1 - y).log())


def split_heads(x, heads):
    """[batch, time, heads * d] -> [batch, heads, time, d]"""
    batch, time, width = x.shape
    return x.view(batch, time, heads, width // heads).transpose(1, 2)


def join_heads(x):
    batch, heads, time, width = x.shape
    return x.transpose(1, 2).reshape(batch, time, heads * width)


def attend(q, k, v, mask=None):
    """softmax(q k^T / sqrt(d) + mask) v over the last two axes."""
    scores = q @ k.transpose(-2, -1) * (1.0 / math.sqrt(q.shape[-1]))
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf"))
    return F.softmax(scores, dim=-1) @ v


def future_mask(time):
    return torch.ones(time, time, dtype=torch.bool).triu(1)


class Attention(nn.Module):
    """Multi-head attention of queries over a memory (itself without one)."""

    def __init__(self, width, heads, bias=True):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=bias)
        self.key = nn.Linear(width, width, bias=bias)
        self.value = nn.Linear(width, width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(self, x, memory=None, mask=None):
        memory = x if memory is None else memory
        q, k, v = self.query(x), self.key(memory), self.value(memory)
        q, k, v = (split_heads(part, self.heads) for part in (q, k, v))
        return self.out(join_heads(attend(q, k, v, mask)))


class FeedForward(nn.Module):
    def __init__(self, width, hidden, activation):
        super().__init__()
        self.up, self.down, self.activation = nn.Linear(width, hidden), nn.Linear(hidden, width), activation

    def forward(self, x):
        return self.down(self.activation(self.up(x)))


# ---- transformers ------------------------------------------------------------------------------------------------------


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width, eps=EPSILON), nn.LayerNorm(width, eps=EPSILON)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = FeedForward(width, 2 * width, nn.GELU(approximate="tanh"))

    def forward(self, x, mask):
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(self.ln1(x)).split(x.shape[-1], dim=2))
        x = x + self.proj(join_heads(attend(q, k, v, mask)))
        return x + self.mlp(self.ln2(x))


class Gpt(nn.Module):
    """GPT-2: learned positions, pre-norm blocks; the head is the embedding (tied) or a matrix of its own."""

    def __init__(self, tied, layers=2, width=16, heads=4, context=6, vocabulary=19):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(GptBlock(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width, eps=EPSILON)
        self.head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.wte.weight
        self.register_buffer("future", future_mask(context))

    def forward(self, tokens, labels):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x, self.future)
        return F.cross_entropy(self.head(self.ln_f(x)).flatten(0, 1), labels.flatten())


class RmsNorm(nn.Module):
    """Zhang and Sennrich 2019, written out as Llama's published code does."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON) * self.weight


def rotary_table(time, width, base=10000.0):
    """cos and sin of position * base^(-2i / width), both halves alike: [time, width]."""
    frequencies = base ** (-torch.arange(0, width, 2, dtype=torch.float32) / width)
    angles = torch.outer(torch.arange(time, dtype=torch.float32), frequencies)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    """Rotary embedding, the two halves of the last axis being the real and imaginary parts."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


def repeat_heads(x, times):
    """Each head `times` times in a row: [batch, groups, time, d] -> [batch, groups * times, time, d]"""
    batch, groups, time, width = x.shape
    return x[:, :, None].expand(batch, groups, times, time, width).reshape(batch, groups * times, time, width)


class LlamaBlock(nn.Module):
    """Pre-RMSNorm, rotary positions, grouped-query attention, SwiGLU."""

    def __init__(self, width, heads, groups, hidden, norm):
        super().__init__()
        self.heads, self.groups = heads, groups
        head = width // heads
        self.attention_norm, self.ffn_norm = norm(width), norm(width)
        self.wq, self.wo = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.wk = nn.Linear(width, groups * head, bias=False)
        self.wv = nn.Linear(width, groups * head, bias=False)
        self.w1, self.w3 = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.w2 = nn.Linear(hidden, width, bias=False)

    def forward(self, x, cos, sin, mask):
        h = self.attention_norm(x)
        q = rotate(split_heads(self.wq(h), self.heads), cos, sin)
        k = rotate(split_heads(self.wk(h), self.groups), cos, sin)
        v = split_heads(self.wv(h), self.groups)
        k, v = (repeat_heads(part, self.heads // self.groups) for part in (k, v))
        x = x + self.wo(join_heads(attend(q, k, v, mask)))
        h = self.ffn_norm(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class Llama(nn.Module):
    def __init__(self, layers=2, width=16, heads=4, groups=2, hidden=24, context=6, vocabulary=19, norm=RmsNorm):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(LlamaBlock(width, heads, groups, hidden, norm) for _ in range(layers))
        self.norm = norm(width)
        self.output = nn.Linear(width, vocabulary, bias=False)
        cos, sin = rotary_table(context, width // heads)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)
        self.register_buffer("future", future_mask(context))

    def forward(self, tokens, labels):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin, self.future)
        return F.cross_entropy(self.output(self.norm(x)).flatten(0, 1), labels.flatten())


class Buffers(nn.Module):
    """Two attentions whose buffers are floats, as modules register them, beside parameters that resemble them: a norm's scale
    of ones, a temperature that divides, gates of zeros and ones."""

    def __init__(self, width=16, heads=2, longest=8, features=4):
        super().__init__()
        self.heads, size = heads, width // heads
        self.embed, self.head = nn.Linear(features, width), nn.Linear(width, features)
        self.first, self.second = nn.Linear(width, 3 * width), nn.Linear(width, 3 * width)
        self.scale, self.temperature = nn.Parameter(torch.ones(width)), nn.Parameter(torch.tensor(2.0))
        self.gates = nn.Parameter(torch.eye(width)[0])
        position, frequency = torch.arange(longest).float(), 10000.0 ** (-torch.arange(0, width, 2) / width)
        angles = position[:, None] * frequency
        self.register_buffer("pe", torch.stack((angles.sin(), angles.cos()), -1).view(1, longest, width))
        self.register_buffer("position", position)
        self.register_buffer("inv_freq", 10000.0 ** (-torch.arange(0, size, 2) / size))
        self.register_buffer("bias", torch.ones(longest, longest).tril().view(1, 1, longest, longest))
        self.register_buffer("masked_bias", torch.tensor(-1e9))
        self.register_buffer("root", torch.tensor(float(size)).sqrt())
        slopes = 2.0 ** (-8.0 / heads * torch.arange(1, heads + 1))
        self.register_buffer("alibi", -slopes[:, None, None] * (position - position[:, None]).abs())
        self.register_buffer("hidden", torch.full((longest, longest), -math.inf).triu(1))
        self.register_buffer("keep_mask", (torch.arange(longest) % 4 != 1).float()[:, None])
        self.register_buffer("mean", torch.linspace(-0.5, 0.25, features))
        self.register_buffer("std", torch.linspace(0.5, 1.25, features))

    def heads_of(self, linear, x):
        return (split_heads(part, self.heads) for part in linear(x).chunk(3, dim=-1))

    def forward(self, x, target):
        time = x.shape[1]
        h = self.embed((x - self.mean) / self.std) + self.pe[:, :time]
        angles = torch.outer(self.position[:time], self.inv_freq)
        angles = torch.cat((angles, angles), -1)
        q, k, v = self.heads_of(self.first, h)
        q, k = (rotate(part, angles.cos(), angles.sin()) for part in (q, k))
        scores = torch.where(self.bias[:, :, :time, :time] != 0, q @ k.transpose(-2, -1) / self.root, self.masked_bias)
        h = h + join_heads(F.softmax(scores, dim=-1) @ v) * self.scale
        q, k, v = self.heads_of(self.second, h)
        scores = q @ k.transpose(-2, -1) / self.temperature + self.alibi[:, :time, :time] + self.hidden[:time, :time]
        h = h + join_heads(F.softmax(scores, dim=-1) @ v) * self.gates
        return squared_error(self.head(h * self.keep_mask[:time]), target)


class Foldings(nn.Module):
    """What dynamo's optimizer folds: a query that is repeated and transposed, two tables that indices read, a slice, and two
    layer scales of equal numbers, which it merges."""

    def __init__(self, width=8, heads=2, window=2):
        super().__init__()
        self.heads, area = heads, window**2
        self.probe, self.positions = nn.Parameter(torch.randn(1, 1, width)), nn.Parameter(torch.randn(1, area + 2, width))
        self.scale1, self.scale2 = nn.Parameter(torch.full((width,), 0.25)), nn.Parameter(torch.full((width,), 0.25))
        self.table, self.offsets = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads)), nn.Parameter(torch.randn(heads, 3))
        self.qkv, self.mlp, self.pool = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, width)
        at = np.stack(np.meshgrid(np.arange(window), np.arange(window), indexing="ij")).reshape(2, -1)
        offset = at[:, :, None] - at[:, None, :]
        self.register_buffer("index", torch.from_numpy((offset[0] + window - 1) * (2 * window - 1) + offset[1] + window - 1))
        self.register_buffer("distance", torch.from_numpy(np.abs(offset).sum(0)))

    def forward(self, x, target):
        area = x.shape[1]
        x = x + self.positions[:, 1 : area + 1]
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, dim=-1))
        bias = self.table[self.index.view(-1)].view(area, area, self.heads).permute(2, 0, 1)
        scores = q @ k.transpose(-2, -1) + bias + self.offsets[:, self.distance]
        x = x + self.scale1 * join_heads(F.softmax(scores, dim=-1) @ v)
        x = x + self.scale2 * self.mlp(x)
        probe = self.probe.repeat(x.shape[0], 1, 1).transpose(0, 1)
        pooled = F.softmax(self.pool(x) @ probe.permute(1, 2, 0), dim=1) * x
        return squared_error(pooled.sum(1), target)


class Droppings(nn.Module):
    """What the dynamo exporter leaves out of calls: padding_idx, label_smoothing, and with its optimizer detach."""

    def __init__(self, vocabulary=9, width=6, classes=5):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width, padding_idx=2)
        self.head, self.teacher = nn.Linear(width, classes), nn.Linear(width, classes)

    def forward(self, tokens, labels):
        h = self.words(tokens)
        teacher = self.teacher(h).detach()
        logits = self.head(h) + teacher * h.sum(-1, keepdim=True) + torch.tanh(h).mul(h.detach()).sum(-1, keepdim=True)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=0.125, ignore_index=4)


class BertLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention, self.mlp = Attention(width, heads), FeedForward(width, 2 * width, nn.GELU())
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=EPSILON), nn.LayerNorm(width, eps=EPSILON)

    def forward(self, x, mask):
        x = self.norm1(x + self.attention(x, mask=mask))
        return self.norm2(x + self.mlp(x))


class Bert(nn.Module):
    """Words, positions and segments; post-norm layers; padding masked; a pooled and a masked-word loss together."""

    def __init__(self, layers=2, width=16, heads=4, context=6, vocabulary=19, classes=3):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.positions, self.segments = nn.Embedding(context, width), nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=EPSILON)
        self.layers = nn.ModuleList(BertLayer(width, heads) for _ in range(layers))
        self.pooler, self.classifier = nn.Linear(width, width), nn.Linear(width, classes)
        self.transform, self.decoder_bias = nn.Linear(width, width), nn.Parameter(torch.zeros(vocabulary))

    def forward(self, tokens, segments, labels, word_labels):
        x = self.words(tokens) + self.positions.weight + self.segments(segments)
        x = self.norm(x)
        mask = (tokens == 0)[:, None, None, :]
        for layer in self.layers:
            x = layer(x, mask)
        pooled = self.classifier(torch.tanh(self.pooler(x[:, 0])))
        words = F.linear(F.gelu(self.transform(x)), self.words.weight, self.decoder_bias)
        return F.cross_entropy(pooled, labels) + F.cross_entropy(words.transpose(1, 2), word_labels, ignore_index=-100)


def relative_buckets(queries, keys, buckets, far):
    """T5's bidirectional buckets of key - query: half of them exact, half logarithmic up to `far`."""
    distance = np.arange(keys)[None, :] - np.arange(queries)[:, None]
    half = buckets // 2
    result = (distance > 0) * half
    distance = np.abs(distance)
    exact = half // 2
    large = exact + (np.log(np.maximum(distance, 1) / exact) / np.log(far / exact) * (half - exact)).astype(int)
    return torch.from_numpy(result + np.where(distance < exact, distance, np.minimum(large, half - 1)))


class T5Attention(nn.Module):
    """Without scale and bias vectors; an additive position table where the layer is given one."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x, memory, bias):
        q, k, v = (split_heads(part, self.heads) for part in (self.q(x), self.k(memory), self.v(memory)))
        return self.o(join_heads(F.softmax(torch.matmul(q, k.transpose(3, 2)) + bias, dim=-1) @ v))


class T5(nn.Module):
    """Encoder and decoder of one layer each: RMS norms, relative position tables, ReLU, shared and scaled embedding."""

    def __init__(self, width=16, heads=4, vocabulary=19, buckets=8, source=6, target=5):
        super().__init__()
        self.shared = nn.Embedding(vocabulary, width)
        self.encoder_bias, self.decoder_bias = nn.Embedding(buckets, heads), nn.Embedding(buckets, heads)
        self.encoder_attention = T5Attention(width, heads)
        self.decoder_attention, self.cross_attention = T5Attention(width, heads), T5Attention(width, heads)
        self.norms = nn.ModuleList(RmsNorm(width) for _ in range(7))
        self.encoder_mlp = FeedForward(width, 2 * width, nn.ReLU())
        self.decoder_mlp = FeedForward(width, 2 * width, nn.ReLU())
        self.register_buffer("encoder_buckets", relative_buckets(source, source, buckets, 16))
        self.register_buffer("decoder_buckets", relative_buckets(target, target, buckets, 16))
        self.register_buffer("future", torch.zeros(target, target).masked_fill(future_mask(target), -1e9))

    def forward(self, source, target, labels):
        norms = self.norms
        x = self.shared(source)
        bias = self.encoder_bias(self.encoder_buckets).permute(2, 0, 1).unsqueeze(0)
        h = norms[0](x)
        x = x + self.encoder_attention(h, h, bias)
        memory = norms[2](x + self.encoder_mlp(norms[1](x)))
        y = self.shared(target)
        bias = self.decoder_bias(self.decoder_buckets).permute(2, 0, 1).unsqueeze(0) + self.future
        h = norms[3](y)
        y = y + self.decoder_attention(h, h, bias)
        y = y + self.cross_attention(norms[4](y), memory, torch.zeros(1, dtype=y.dtype))
        y = norms[6](y + self.decoder_mlp(norms[5](y))) * (y.shape[-1] ** -0.5)
        return F.cross_entropy(F.linear(y, self.shared.weight).flatten(0, 1), labels.flatten())


class VisionTransformer(nn.Module):
    def __init__(self, size=8, patch=4, channels=3, width=16, heads=4, layers=2, classes=5):
        super().__init__()
        self.patches = nn.Conv2d(channels, width, patch, stride=patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, (size // patch) ** 2 + 1, width))
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=EPSILON) for _ in range(2 * layers + 1))
        self.attentions = nn.ModuleList(Attention(width, heads) for _ in range(layers))
        self.mlps = nn.ModuleList(FeedForward(width, 2 * width, nn.GELU()) for _ in range(layers))
        self.head = nn.Linear(width, classes)

    def forward(self, image, labels):
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls.expand(x.shape[0], -1, -1), x), dim=1) + self.positions
        for i, (attention, mlp) in enumerate(zip(self.attentions, self.mlps)):
            x = x + attention(self.norms[2 * i](x))
            x = x + mlp(self.norms[2 * i + 1](x))
        return F.cross_entropy(self.head(self.norms[-1](x)[:, 0]), labels)


class SwinBlock(nn.Module):
    """Attention inside windows of a map that is rolled by half a window, with a relative position table and a mask."""

    def __init__(self, width, heads, size, window, shift):
        super().__init__()
        self.heads, self.size, self.window, self.shift = heads, size, window, shift
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=EPSILON), nn.LayerNorm(width, eps=EPSILON)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = FeedForward(width, 2 * width, nn.GELU())
        self.table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        at = np.stack(np.meshgrid(np.arange(window), np.arange(window), indexing="ij")).reshape(2, -1)
        offset = at[:, :, None] - at[:, None, :] + window - 1
        self.register_buffer("index", torch.from_numpy(offset[0] * (2 * window - 1) + offset[1]).reshape(-1))
        region = np.zeros((size, size))
        for i, rows in enumerate((slice(0, -window), slice(-window, -shift), slice(-shift, None))):
            for j, columns in enumerate((slice(0, -window), slice(-window, -shift), slice(-shift, None))):
                region[rows, columns] = 3 * i + j
        region = self.windows(torch.from_numpy(region)[None, :, :, None]).squeeze(-1)
        self.register_buffer("mask", (region[:, None, :] != region[:, :, None]).float() * -100.0)

    def windows(self, x):
        """[batch, size, size, c] -> [batch * windows, window^2, c]"""
        n, w = self.size // self.window, self.window
        x = x.view(x.shape[0], n, w, n, w, x.shape[3])
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, x.shape[5])

    def map(self, x, batch):
        n, w = self.size // self.window, self.window
        x = x.view(batch, n, n, w, w, x.shape[2])
        return x.permute(0, 1, 3, 2, 4, 5).reshape(batch, self.size, self.size, x.shape[5])

    def forward(self, x):
        h = self.windows(torch.roll(self.norm1(x), (-self.shift, -self.shift), dims=(1, 2)))
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(h).chunk(3, dim=-1))
        area = self.window**2
        bias = self.table[self.index].view(area, area, self.heads).permute(2, 0, 1)
        scores = q * (q.shape[-1] ** -0.5) @ k.transpose(-2, -1) + bias
        scores = scores.view(x.shape[0], -1, self.heads, area, area) + self.mask[None, :, None]
        h = self.proj(join_heads(F.softmax(scores.view(-1, self.heads, area, area), dim=-1) @ v))
        x = x + torch.roll(self.map(h, x.shape[0]), (self.shift, self.shift), dims=(1, 2))
        return x + self.mlp(self.norm2(x))


class Swin(nn.Module):
    """One block of shifted windows and a patch merging."""

    def __init__(self, channels=3, width=8, classes=4):
        super().__init__()
        self.embed = nn.Conv2d(channels, width, 2, stride=2)
        self.block = SwinBlock(width, heads=2, size=4, window=2, shift=1)
        self.merge_norm = nn.LayerNorm(4 * width, eps=EPSILON)
        self.merge = nn.Linear(4 * width, 2 * width, bias=False)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, image, labels):
        x = self.block(self.embed(image).permute(0, 2, 3, 1))
        x = torch.cat([x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)], dim=-1)
        x = self.merge(self.merge_norm(x)).mean(dim=(1, 2))
        return F.cross_entropy(self.head(x), labels)


class MixtureOfExperts(nn.Module):
    """Each token goes to the two experts of highest probability, weighted by their share of it, with a balance loss."""

    def __init__(self, width=8, hidden=12, experts=4, best=2):
        super().__init__()
        self.router, self.best = nn.Linear(width, experts, bias=False), best
        self.up = nn.Parameter(torch.zeros(experts, width, hidden))
        self.down = nn.Parameter(torch.zeros(experts, hidden, width))

    def forward(self, x, target):
        probability = F.softmax(self.router(x), dim=-1)
        weight, index = probability.topk(self.best, dim=-1)
        weight = weight / weight.sum(-1, keepdim=True)
        gate = torch.zeros_like(probability).scatter(1, index, weight)
        hidden = F.silu(torch.einsum("td,edh->teh", x, self.up))
        y = torch.einsum("teh,ehd,te->td", hidden, self.down, gate)
        share = F.one_hot(index, probability.shape[1]).to(x.dtype).sum(1).mean(0)
        return squared_error(y, target) + 0.125 * (share * probability.mean(0)).sum()


# ---- others ------------------------------------------------------------------------------------------------------------


class RecurrentClassifier(nn.Module):
    """A stack of recurrent layers over embedded words; the last state is classified."""

    def __init__(self, kind, vocabulary=13, width=6, hidden=5, classes=3, **options):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.layers = kind(width, hidden, num_layers=2, batch_first=True, **options)
        self.head = nn.Linear(hidden * (2 if options.get("bidirectional") else 1), classes)

    def forward(self, tokens, labels):
        outputs, _ = self.layers(self.words(tokens))
        return F.cross_entropy(self.head(outputs[:, -1]), labels)


class Dlrm(nn.Module):
    """Recommendation: bottom MLP of the dense features, a table per category, pairwise products, top MLP."""

    def __init__(self, dense=5, tables=(7, 11, 5), width=4):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(dense, 8), nn.ReLU(), nn.Linear(8, width), nn.ReLU())
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for rows in tables)
        pairs = len(tables) * (len(tables) + 1) // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 8), nn.ReLU(), nn.Linear(8, 1))
        first, second = np.tril_indices(len(tables) + 1, -1)
        self.register_buffer("pairs", torch.from_numpy(first * (len(tables) + 1) + second))

    def forward(self, dense, categories, clicks):
        x = self.bottom(dense)
        rows = torch.stack([x] + [table(categories[:, i]) for i, table in enumerate(self.tables)], dim=1)
        products = torch.bmm(rows, rows.transpose(1, 2)).flatten(1)
        logits = self.top(torch.cat((x, products[:, self.pairs]), dim=1)).squeeze(1)
        return binary_cross_entropy(torch.sigmoid(logits), clicks).mean()


class Vae(nn.Module):
    """Variational autoencoder with the noise as an input: reconstruction and the Kullback-Leibler term."""

    def __init__(self, pixels=12, hidden=10, latent=3):
        super().__init__()
        self.encode = nn.Linear(pixels, hidden)
        self.mean, self.log_variance = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.decode = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, pixels), nn.Sigmoid())

    def forward(self, x, noise):
        h = F.relu(self.encode(x))
        mean, log_variance = self.mean(h), self.log_variance(h)
        y = self.decode(mean + torch.exp(0.5 * log_variance) * noise)
        divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
        return binary_cross_entropy(y, x).sum() + divergence


class Gcn(nn.Module):
    """Two graph convolutions over an edge list (Kipf and Welling): gather, scale, scatter-add."""

    def __init__(self, features=5, hidden=6, classes=3):
        super().__init__()
        self.weight1, self.weight2 = nn.Linear(features, hidden, bias=False), nn.Linear(hidden, classes, bias=False)
        self.bias1, self.bias2 = nn.Parameter(torch.zeros(hidden)), nn.Parameter(torch.zeros(classes))

    @staticmethod
    def spread(x, edges, scale):
        messages = x[edges[0]] * scale[:, None]
        return torch.zeros_like(x).scatter_add(0, edges[1][:, None].expand_as(messages), messages)

    def forward(self, x, edges, scale, labels):
        h = F.relu(self.spread(self.weight1(x), edges, scale) + self.bias1)
        return F.cross_entropy(self.spread(self.weight2(h), edges, scale) + self.bias2, labels)


class SelfLoops(nn.Module):
    """A graph convolution that drops the self-loops of its edge list: how many edges remain, only the data tells."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Linear(4, 3)

    def forward(self, x, edges):
        edges = edges[:, edges[0] != edges[1]]
        messages = self.weight(x)[edges[0]]
        return torch.zeros(x.shape[0], 3, dtype=x.dtype).index_add(0, edges[1], messages)


class GraphAttention(nn.Module):
    """GAT over a dense adjacency: LeakyReLU scores, neighbours only, two heads."""

    def __init__(self, features=5, width=4, heads=2):
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(features, heads * width, bias=False)
        self.source, self.target = nn.Parameter(torch.zeros(heads, width)), nn.Parameter(torch.zeros(heads, width))

    def forward(self, x, adjacency):
        h = self.project(x).view(x.shape[0], self.heads, -1)
        scores = (h * self.source).sum(-1)[:, None] + (h * self.target).sum(-1)[None]
        scores = F.leaky_relu(scores, 0.25).masked_fill(adjacency[:, :, None] == 0, float("-inf"))
        return F.elu(torch.einsum("ijh,jhd->ihd", F.softmax(scores, dim=1), h).flatten(1))


class Siamese(nn.Module):
    """One network on three inputs, a margin between their distances."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))

    def forward(self, anchor, near, far):
        a, n, f = (F.normalize(self.embed(x), dim=-1) for x in (anchor, near, far))
        return F.relu((a - n).pow(2).sum(1) - (a - f).pow(2).sum(1) + 0.5).mean()


class StateSpace(nn.Module):
    """A diagonal linear recurrence in its convolution form: decays by cumulative sums, mixed by a causal matrix."""

    def __init__(self, width=6, state=4):
        super().__init__()
        self.inputs, self.outputs = nn.Linear(width, state), nn.Linear(state, width)
        self.rate = nn.Linear(width, state)

    def forward(self, x):
        log_decay = -F.softplus(self.rate(x))
        total = torch.cumsum(log_decay, dim=1)
        kernel = torch.exp(total[:, :, None] - total[:, None, :])
        kernel = kernel.permute(0, 3, 1, 2).tril().permute(0, 2, 3, 1)
        return self.outputs(torch.einsum("btsn,bsn->btn", kernel, self.inputs(x)))
