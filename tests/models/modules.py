"""The four small networks the tests and benchmarks train, as PyTorch modules.

Each module returns its logits, or (loss, logits) when labels are given: the loss is the mean cross-entropy over the
last axis. Every number that an exported file stores as float32 (epsilons, the attention scale, the dropout ratio) is
rounded to float32 here, so that a float64 reference computes with the constants the file really holds.
"""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def as_float32(value):
    """The double that a float32 attribute or constant of an ONNX file stands for."""
    return float(np.float32(value))


LAYER_NORM_EPSILON = as_float32(1e-5)
BATCH_NORM_EPSILON = as_float32(1e-5)


def with_loss(logits, labels):
    """Logits alone, or (mean cross-entropy, logits): classes are the last axis, every other axis is a sample."""
    if labels is None:
        return logits
    if logits.dim() == 2:
        return F.cross_entropy(logits, labels), logits
    return F.cross_entropy(logits.reshape(-1, logits.size(-1)), labels.reshape(-1)), logits


class CausalSelfAttention(nn.Module):
    """softmax(q k^T / sqrt(d) + causal mask) v, with q, k and v from one fused linear layer."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.scale = as_float32(1.0 / math.sqrt(width // heads))
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x, future):
        batch, time, width = x.size()
        q, k, v = self.qkv(x).split(width, dim=2)
        q = q.view(batch, time, self.heads, width // self.heads).transpose(1, 2)
        k = k.view(batch, time, self.heads, width // self.heads).transpose(1, 2)
        v = v.view(batch, time, self.heads, width // self.heads).transpose(1, 2)
        scores = (q @ k.transpose(-2, -1)) * self.scale
        scores = scores.masked_fill(future[:time, :time], float("-inf"))
        mixed = F.softmax(scores, dim=-1) @ v
        return self.proj(mixed.transpose(1, 2).reshape(batch, time, width))


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln1 = nn.LayerNorm(width, eps=LAYER_NORM_EPSILON)
        self.attn = CausalSelfAttention(width, heads)
        self.ln2 = nn.LayerNorm(width, eps=LAYER_NORM_EPSILON)
        self.fc = nn.Linear(width, 4 * width)
        self.gelu = nn.GELU(approximate="tanh")
        self.proj = nn.Linear(4 * width, width)

    def forward(self, x, future):
        x = x + self.attn(self.ln1(x), future)
        return x + self.proj(self.gelu(self.fc(self.ln2(x))))


class GptChar(nn.Module):
    """Decoder over bytes in the manner of GPT-2: learned positions, pre-norm blocks, embedding tied to the head."""

    def __init__(self, layers=4, width=128, heads=4, context=64, vocabulary=256):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(GptBlock(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width, eps=LAYER_NORM_EPSILON)
        self.register_buffer("future", torch.ones(context, context, dtype=torch.bool).triu(1))
        # GPT-2's initialisation (0.02 at width 768, the projections onto the residual stream divided by sqrt(2 layers)),
        # scaled to this width. Smaller weights leave the attention scores' gradients at float32's noise, which Adam
        # amplifies: float32 and float64 training then part within 50 steps.
        std = 0.02 * math.sqrt(768 / width)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif name.endswith("proj.weight"):
                nn.init.normal_(parameter, std=std / math.sqrt(2 * layers))
            elif parameter.dim() == 2:
                nn.init.normal_(parameter, std=std)

    def forward(self, tokens, labels=None):
        positions = torch.arange(tokens.size(1), device=tokens.device)
        x = self.wte(tokens) + self.wpe(positions)
        for block in self.blocks:
            x = block(x, self.future)
        return with_loss(F.linear(self.ln_f(x), self.wte.weight), labels)


class BertLayer(nn.Module):
    """Post-norm encoder layer with dropout on attention weights and on both residual branches."""

    def __init__(self, width, heads, hidden, dropout):
        super().__init__()
        self.heads = heads
        self.scale = as_float32(1.0 / math.sqrt(width // heads))
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.attention_dropout = nn.Dropout(dropout)
        self.attention_output = nn.Linear(width, width)
        self.output_dropout = nn.Dropout(dropout)
        self.attention_norm = nn.LayerNorm(width, eps=LAYER_NORM_EPSILON)
        self.intermediate = nn.Linear(width, hidden)
        self.gelu = nn.GELU()
        self.output = nn.Linear(hidden, width)
        self.hidden_dropout = nn.Dropout(dropout)
        self.output_norm = nn.LayerNorm(width, eps=LAYER_NORM_EPSILON)

    def split_heads(self, x):
        batch, time, width = x.size()
        return x.view(batch, time, self.heads, width // self.heads).permute(0, 2, 1, 3)

    def forward(self, x):
        q, k, v = (self.split_heads(part(x)) for part in (self.query, self.key, self.value))
        weights = F.softmax((q @ k.transpose(-1, -2)) * self.scale, dim=-1)
        mixed = (self.attention_dropout(weights) @ v).permute(0, 2, 1, 3)
        mixed = mixed.reshape(x.size())
        x = self.attention_norm(x + self.output_dropout(self.attention_output(mixed)))
        return self.output_norm(x + self.hidden_dropout(self.output(self.gelu(self.intermediate(x)))))


class BertTiny(nn.Module):
    """Encoder classifier: embeddings, post-norm layers, tanh pooler on the first token, linear head."""

    def __init__(self, layers=2, width=64, heads=2, hidden=128, context=32, vocabulary=256, classes=4, dropout=0.1):
        super().__init__()
        dropout = as_float32(dropout)
        self.word_embeddings = nn.Embedding(vocabulary, width)
        self.position_embeddings = nn.Embedding(context, width)
        self.embedding_norm = nn.LayerNorm(width, eps=LAYER_NORM_EPSILON)
        self.embedding_dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(BertLayer(width, heads, hidden, dropout) for _ in range(layers))
        self.pooler = nn.Linear(width, width)
        self.pooler_dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(width, classes)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.05)

    def forward(self, tokens, labels=None):
        positions = torch.arange(tokens.size(1), device=tokens.device)
        x = self.word_embeddings(tokens) + self.position_embeddings(positions)
        x = self.embedding_dropout(self.embedding_norm(x))
        for layer in self.layers:
            x = layer(x)
        pooled = torch.tanh(self.pooler(x[:, 0]))
        return with_loss(self.classifier(self.pooler_dropout(pooled)), labels)


class CnnDigits(nn.Module):
    """Convolution, training BatchNorm, ReLU, one residual block, max pooling, a second stage and a linear head."""

    def __init__(self, width=16, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(width, eps=BATCH_NORM_EPSILON)
        self.residual1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.residual1_norm = nn.BatchNorm2d(width, eps=BATCH_NORM_EPSILON)
        self.residual2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.residual2_norm = nn.BatchNorm2d(width, eps=BATCH_NORM_EPSILON)
        self.widen = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(2 * width * 4, classes)

    def forward(self, image, labels=None):
        x = torch.relu(self.stem_norm(self.stem(image)))
        branch = torch.relu(self.residual1_norm(self.residual1(x)))
        x = torch.relu(x + self.residual2_norm(self.residual2(branch)))
        x = torch.relu(self.widen(self.pool(x)))
        return with_loss(self.head(torch.flatten(self.pool(x), 1)), labels)


class Mlp(nn.Module):
    """Linear layers with ReLU between them."""

    def __init__(self, widths=(64, 96, 64, 10)):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))

    def forward(self, x, labels=None):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return with_loss(self.layers[-1](x), labels)
