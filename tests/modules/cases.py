"""What export.py exports: a list of Case rows, one per folder of this directory.

A module returns a scalar loss, or one or more tensors that export.py turns into one (each times an input of its own,
averaged, so that the gradient by that input is the module's output).
"""

import math
from typing import Callable, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from convolutional import ConvNext, DiffusionBlock, Gan, MlpMixer, MobileNet, ResNet, UNet, WaveNet
from networks import (EPSILON, Bert, Buffers, Dlrm, Droppings, Foldings, Gcn, Gpt, GraphAttention, Llama, MixtureOfExperts,
                      RecurrentClassifier, RmsNorm, SelfLoops, Siamese, StateSpace, Swin, T5, Vae, VisionTransformer)  # fmt: skip


class Case(NamedTuple):
    name: str
    make: Callable  # () -> module in training mode
    inputs: dict  # name -> () -> tensor
    opset: int
    exporter: str  # torchscript | dynamo
    train: bool = True
    dynamic: tuple = ()  # names of inputs whose first axis is `batch`
    external: bool = False  # weights in a file beside the model
    ir: int = 0  # IR version of the file; 0: the exporter's
    optimize: bool = True  # False: the dynamo exporter would fold a parameter into a constant of another shape
    fresh: bool = False  # with the parameters of a module that was never trained
    steps: int = 0  # of training, whose losses are written too
    traced: bool = False  # the file keeps the calls that its nodes were traced from
    restored: bool = False  # the dynamo exporter merges, folds or drops parameters: the file keeps what it tells of them


class StraightThrough(nn.Module):
    """Quantization whose gradient passes by the rounding, and a head that does not train what is below it."""

    def __init__(self):
        super().__init__()
        self.below, self.head = nn.Linear(4, 5), nn.Linear(5, 2)

    def forward(self, x):
        h = self.below(x)
        return h + (torch.round(2 * h) / 2 - h).detach(), self.head(h.detach())


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def normal(*shape):
    return lambda: torch.randn(*shape)


def uniform(*shape, low=0.05, high=0.95):
    return lambda: torch.rand(*shape) * (high - low) + low


def integers(high, *shape, low=0):
    return lambda: torch.randint(low, high, shape)


def distinct(*shape):
    """Values that lie apart: no ties where an operator chooses one of them."""
    return lambda: (torch.randperm(math.prod(shape)).float() * 0.125 - math.prod(shape) / 16 + 0.0625).reshape(shape)


def values(*numbers):
    return lambda: torch.tensor(numbers)


def f32(number):
    return float(np.float32(number))


CASES = []


def both(name, make, inputs, opset, dynamo_opset, optimize=True, **options):
    """The same module through both exporters."""
    torchscript(name, make, inputs, opset, **options)
    dynamo(name + "-dynamo", make, inputs, dynamo_opset, optimize=optimize, **options)


def torchscript(name, make, inputs, opset=17, **options):
    CASES.append(Case(name, make, inputs, opset, "torchscript", **options))


def dynamo(name, make, inputs, opset=18, **options):
    CASES.append(Case(name, make, inputs, opset, "dynamo", **options))


def function(name, body, inputs, opset=17, **options):
    torchscript(name, lambda: Function(body), inputs, opset, **options)


# ---- products, convolutions, pooling -----------------------------------------------------------------------------------

torchscript("linear", lambda: nn.Linear(5, 4), {"x": normal(3, 5)}, opset=9, dynamic=("x",))
torchscript("linear-batched", lambda: nn.Linear(5, 4), {"x": normal(2, 3, 5)}, opset=11)
torchscript("linear-no-bias", lambda: nn.Linear(5, 4, bias=False), {"x": normal(2, 3, 5)}, opset=13)
dynamo("bilinear-dynamo", lambda: nn.Bilinear(3, 4, 5), {"a": normal(2, 3), "b": normal(2, 4)}, optimize=False)
function("matmul-broadcast", lambda a, b: a @ b, {"a": normal(2, 1, 3, 4), "b": normal(3, 4, 2)}, opset=13)
function("vector-products", lambda m, v, w: (m @ v, v @ w, torch.outer(v, w), torch.addmm(m, m, m.t(), alpha=0.5)),
         {"m": normal(4, 4), "v": normal(4), "w": normal(4)}, opset=14)  # fmt: skip
function("einsum", lambda a, b, c: torch.einsum("bij,bjk,kl->bil", a, b, c),
         {"a": normal(2, 3, 4), "b": normal(2, 4, 5), "c": normal(5, 2)}, opset=13)  # fmt: skip
torchscript("conv1d", lambda: nn.Conv1d(3, 4, 3, stride=2, padding=2, dilation=2), {"x": normal(2, 3, 9)}, opset=9)
torchscript("conv2d", lambda: nn.Conv2d(3, 4, (3, 2), stride=(2, 1), padding=(1, 0)), {"x": normal(2, 3, 7, 6)}, opset=11,
            dynamic=("x",))  # fmt: skip
torchscript("conv2d-grouped", lambda: nn.Conv2d(4, 6, 3, groups=2, padding=1), {"x": normal(2, 4, 5, 5)}, opset=13)
torchscript("conv2d-depthwise", lambda: nn.Sequential(nn.Conv2d(3, 6, 3, groups=3, dilation=2), nn.Conv2d(6, 4, 1)),
            {"x": normal(2, 3, 7, 7)})  # fmt: skip
torchscript("conv3d", lambda: nn.Conv3d(2, 3, 2, stride=(1, 2, 1)), {"x": normal(1, 2, 3, 4, 3)})
torchscript("conv-transpose1d", lambda: nn.ConvTranspose1d(3, 2, 3, stride=2, dilation=2), {"x": normal(2, 3, 4)}, opset=11)
torchscript("conv-transpose2d", lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
            {"x": normal(2, 4, 3, 3)})  # fmt: skip
torchscript("conv-transpose3d", lambda: nn.ConvTranspose3d(2, 2, 2, stride=2), {"x": normal(1, 2, 2, 2, 2)})
function("max-pool", lambda x, y, z: (F.max_pool1d(x, 3, 2, 1), F.max_pool2d(y, 3, 2, 1, dilation=1, ceil_mode=True),
                                      F.max_pool3d(z, 2, 1)),
         {"x": distinct(2, 2, 7), "y": distinct(1, 2, 6, 6), "z": distinct(1, 2, 3, 3, 3)})  # fmt: skip
function("max-pool-dilated", lambda x: F.max_pool2d(x, 2, stride=1, dilation=2), {"x": distinct(1, 2, 6, 5)})
function("avg-pool", lambda x, y, z: (F.avg_pool1d(x, 3, 2, 1), F.avg_pool2d(y, 3, 2, 1, count_include_pad=False),
                                      F.avg_pool3d(z, 2, 1)),
         {"x": normal(2, 2, 7), "y": normal(1, 2, 6, 6), "z": normal(1, 2, 3, 3, 3)})  # fmt: skip
function("avg-pool-ceil", lambda x: (F.avg_pool2d(x, 3, 2, ceil_mode=True),
                                     F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)),
         {"x": normal(1, 2, 6, 8)}, opset=13)  # fmt: skip
function("adaptive-pool", lambda x: (F.adaptive_avg_pool2d(x, (2, 3)), F.adaptive_avg_pool2d(x, 1),
                                     F.adaptive_max_pool2d(x, (3, 2)), F.adaptive_max_pool2d(x, 1)),
         {"x": distinct(1, 2, 6, 6)})  # fmt: skip
function("lp-pool", lambda x: F.lp_pool2d(x, 2.0, 2, 2), {"x": uniform(1, 2, 4, 4, low=0.5, high=2)}, opset=13)
function("unfold", lambda x: F.unfold(x, 2, padding=1, stride=2), {"x": normal(1, 2, 4, 4)}, opset=13)

# ---- normalizations ----------------------------------------------------------------------------------------------------

torchscript("batch-norm1d", lambda: nn.BatchNorm1d(4, eps=EPSILON), {"x": normal(5, 4)}, opset=11)
torchscript("batch-norm2d", lambda: nn.BatchNorm2d(3, eps=EPSILON), {"x": normal(2, 3, 4, 4)}, opset=14)
torchscript("batch-norm3d", lambda: nn.BatchNorm3d(2, eps=EPSILON, affine=False), {"x": normal(2, 2, 2, 3, 3)}, opset=15)
torchscript("batch-norm-frozen", lambda: nn.Sequential(nn.BatchNorm2d(2, eps=EPSILON), nn.ReLU(), nn.Conv2d(2, 3, 3)),
            {"x": normal(2, 2, 5, 5)}, opset=15, train=False)  # fmt: skip
torchscript("instance-norm", lambda: nn.InstanceNorm2d(3, eps=EPSILON, affine=True), {"x": normal(2, 3, 4, 4)}, opset=13)
torchscript("group-norm", lambda: nn.GroupNorm(2, 6, eps=EPSILON), {"x": normal(2, 6, 3, 3)}, opset=13)
torchscript("layer-norm", lambda: nn.LayerNorm((3, 4), eps=EPSILON), {"x": normal(2, 3, 4)}, opset=17)
torchscript("layer-norm-parts", lambda: nn.LayerNorm(6, eps=EPSILON), {"x": normal(2, 3, 6)}, opset=13)
torchscript("rms-norm", lambda: RmsNorm(6), {"x": normal(2, 3, 6)}, opset=13)
torchscript("local-response-norm", lambda: nn.LocalResponseNorm(3, alpha=0.25, beta=0.75, k=1.5),
            {"x": normal(2, 6, 3, 3)}, opset=13)  # fmt: skip
torchscript("weight-norm", lambda: nn.utils.weight_norm(nn.Linear(4, 3)), {"x": normal(2, 4)}, opset=13)
function("vector-norms", lambda x: (F.normalize(x, dim=1, eps=f32(1e-12)), x.norm(p=1, dim=0), x.norm(dim=(1, 2)),
                                    torch.linalg.vector_norm(x, 3, dim=2)),
         {"x": uniform(2, 3, 4, low=0.5, high=2)}, opset=14)  # fmt: skip

# ---- activations -------------------------------------------------------------------------------------------------------

function("rectifiers", lambda x: (F.relu(x), F.relu6(4 * x), F.leaky_relu(x, 0.125), F.hardtanh(x, -0.5, 0.75),
                                  F.threshold(x, 0.0, 0.0), F.hardshrink(x, 0.5), F.softshrink(x, 0.5)),
         {"x": normal(4, 5)}, opset=13)  # fmt: skip
function("exponential-units", lambda x: (F.elu(x, 0.75), F.selu(x), F.celu(x, 0.75), F.softplus(x), F.logsigmoid(x)),
         {"x": normal(4, 5)}, opset=13)  # fmt: skip
function("gelu", lambda x: (F.gelu(x), F.gelu(x, approximate="tanh")), {"x": normal(4, 5)}, opset=13)
function("smooth-units", lambda x: (F.silu(x), F.mish(x), torch.tanh(x), torch.sigmoid(x), F.softsign(x), F.tanhshrink(x)),
         {"x": normal(4, 5)}, opset=16)  # fmt: skip
function("hard-units", lambda x: (F.hardsigmoid(3 * x), F.hardswish(3 * x)), {"x": normal(4, 5)}, opset=14)
function("gated-units", lambda x: (F.glu(x, dim=1), F.glu(x, dim=-1)), {"x": normal(2, 4, 6)}, opset=13)
torchscript("prelu", lambda: nn.Sequential(nn.PReLU(3), nn.Conv2d(3, 2, 1), nn.PReLU()), {"x": normal(2, 3, 3, 3)}, opset=13)
function("softmax", lambda x: (F.softmax(x, dim=1), F.log_softmax(x, dim=0), F.softmin(x, dim=-1)),
         {"x": normal(3, 4, 5)}, opset=13)  # fmt: skip
function("softmax-old", lambda x: (F.softmax(x, dim=1), F.log_softmax(x, dim=-1)), {"x": normal(3, 4, 5)}, opset=11)

# ---- elementwise, reductions, movement ---------------------------------------------------------------------------------

function("exponentials", lambda x: (x.exp(), x.log(), x.sqrt(), x.rsqrt(), x.log1p(), x.erf(), x.reciprocal()),
         {"x": uniform(3, 4, low=0.25, high=2)}, opset=13)  # fmt: skip
function("trigonometry", lambda x: (x.sin(), x.cos(), x.tan(), x.asin(), x.acos(), x.atan(), x.tanh()),
         {"x": uniform(3, 4, low=-0.875, high=0.875)}, opset=13)  # fmt: skip
function("powers", lambda x, y: (x.pow(3), x.pow(0.5), x.pow(y), 2.0**y, x.square()),
         {"x": uniform(3, 4, low=0.5, high=2), "y": normal(4)}, opset=13)  # fmt: skip
function("broadcasting", lambda a, b, c: ((a + b) * c - a / (c + 2), torch.addcmul(a, b, c, value=0.5), torch.lerp(a, b, c)),
         {"a": normal(2, 3, 4), "b": normal(3, 1), "c": uniform(4)}, opset=13)  # fmt: skip
function("choices", lambda a, b: (torch.maximum(a, b), torch.minimum(a, b), torch.where(a > b, a * b, a), a.clamp(-0.5, 0.5),
                                  a.clamp(min=0.25), a.masked_fill(b > 0, 2.0), a.abs(), torch.remainder(a, 0.75)),
         {"a": normal(3, 4), "b": normal(3, 4)}, opset=13)  # fmt: skip
function("reductions", lambda x: (x.sum(1), x.mean((0, 2)), x.amax(1), x.amin((1, 2), keepdim=True), x.prod(2),
                                  x.max(1).values, x.logsumexp((1, 2)), x.max(), x.mean()),
         {"x": distinct(2, 3, 4)}, opset=13)  # fmt: skip
function("moments", lambda x: (x.var(1), x.std((0, 2)), x.var((1, 2), unbiased=False, keepdim=True), *torch.var_mean(x, 2)),
         {"x": normal(2, 3, 4)}, opset=13)  # fmt: skip
function("cumulative", lambda x: (x.cumsum(1), x.flip(1).cumsum(1).flip(1)), {"x": normal(2, 5)}, opset=13)
function("joins", lambda a, b: (torch.cat((a, b), 1), torch.stack((a, a * 2), 1), torch.cat(b.chunk(2, 1)[::-1], 0)),
         {"a": normal(2, 3), "b": normal(2, 4)}, opset=13)  # fmt: skip
function("cuts", lambda x: (x[:, 1:], x[:, ::2], x[..., -1], x.narrow(1, 1, 2), *x.split((1, 3), 1), x.unbind(0)[1], x.select(2, 1)),
         {"x": normal(2, 4, 3)}, opset=13)  # fmt: skip
function("shapes", lambda x: (x.permute(2, 0, 1), x.reshape(4, -1), x.flatten(1), x.unsqueeze(1).expand(-1, 2, -1, -1), x.t_()
                              if x.dim() == 2 else x.transpose(0, 1), x.repeat(2, 1, 2), x.repeat_interleave(2, 1),
                              x.movedim(0, 2)),
         {"x": normal(2, 2, 3)}, opset=13)  # fmt: skip
function("rolls", lambda x: (x.roll(1, 1), x.roll((1, -1), (1, 2)), x.flip((1, 2)), torch.tril(x), torch.triu(x, 1)),
         {"x": normal(2, 3, 4)}, opset=14)  # fmt: skip
function("pads", lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, 0, 2, 1), value=0.5), F.pad(x, (1, 2, 0, 1), mode="reflect"),
                            F.pad(x, (2, 1, 1, 0), mode="replicate"), F.pad(x, (-1, 0, 1, -1))),
         {"x": normal(1, 2, 3, 4)}, opset=13)  # fmt: skip
function("pixel-shuffle", lambda x, y: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(y, 2)),
         {"x": normal(1, 4, 2, 3), "y": normal(1, 2, 4, 2)}, opset=13)  # fmt: skip
function("sorts", lambda x: (x.topk(3, 1).values, x.topk(2, 0, largest=False).values, x.sort(1, descending=True).values),
         {"x": distinct(4, 5)}, opset=13)  # fmt: skip

# ---- indices -----------------------------------------------------------------------------------------------------------

torchscript("embedding", lambda: nn.Embedding(7, 4, padding_idx=0), {"tokens": integers(7, 2, 5, low=1)}, opset=11)
torchscript("embedding-bag", lambda: nn.EmbeddingBag(7, 4, mode="mean"), {"tokens": integers(7, 2, 3)}, opset=13)
function("gathers", lambda x, i, j: (x.gather(1, i), x.index_select(1, j), x[:, j], x[j, j]),
         {"x": normal(4, 4), "i": integers(4, 4, 3), "j": integers(4, 5)}, opset=13)  # fmt: skip
function("scatters", lambda x, y, i: (x.scatter(1, i, y), x.scatter_add(1, i, y), x.index_add(1, i[0], y)),
         {"x": normal(3, 4), "y": normal(3, 2), "i": lambda: torch.tensor([[0, 2], [3, 1], [1, 0]])}, opset=16)  # fmt: skip


def put(x, y, i):
    a, b, c = x.clone(), x.clone(), x.clone()
    a[i] = y
    b.index_put_((i,), y, accumulate=True)
    c[:, 1:3] = y[0, :2]
    return a, b, c


function("index-put", put, {"x": normal(5, 4), "y": normal(3, 4), "i": values(4, 0, 2)}, opset=13)
function("one-hot", lambda x, i: F.one_hot(i, 5).to(x.dtype) @ x, {"x": normal(5, 3), "i": integers(5, 4)}, opset=13)

# ---- images ------------------------------------------------------------------------------------------------------------

function("upsample-nearest", lambda x: (F.interpolate(x, scale_factor=2), F.interpolate(x, size=(5, 6))), {"x": normal(1, 2, 3, 4)}, opset=13)
function("upsample-bilinear", lambda x: (F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False),
                                         F.interpolate(x, size=(5, 7), mode="bilinear", align_corners=True)),
         {"x": normal(1, 2, 3, 4)}, opset=13)  # fmt: skip
function("upsample-bicubic", lambda x: (F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False),
                                        F.interpolate(x, size=(7, 5), mode="bicubic", align_corners=True)),
         {"x": normal(1, 2, 4, 3)}, opset=13)  # fmt: skip
function("upsample-linear", lambda x, y: (F.interpolate(x, size=7, mode="linear", align_corners=True),
                                          F.interpolate(y, scale_factor=2, mode="trilinear", align_corners=False)),
         {"x": normal(1, 2, 4), "y": normal(1, 1, 2, 2, 3)}, opset=13)  # fmt: skip
function("downsample-bilinear", lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear", align_corners=False),
         {"x": normal(1, 2, 6, 8)}, opset=11)  # fmt: skip
function("grid-sample", lambda x, g: (F.grid_sample(x, g, align_corners=False), F.grid_sample(x, g, align_corners=True),
                                      F.grid_sample(x, g, padding_mode="border", align_corners=False),
                                      F.grid_sample(x, g, padding_mode="reflection", align_corners=True)),
         {"x": normal(1, 2, 4, 5), "g": uniform(1, 3, 3, 2, low=-1.1, high=1.1)}, opset=16)  # fmt: skip

# ---- recurrent ---------------------------------------------------------------------------------------------------------

SEQUENCE = {"x": normal(5, 2, 3)}
torchscript("rnn", lambda: nn.RNN(3, 4), SEQUENCE, opset=14)
torchscript("rnn-relu-bidirectional", lambda: nn.RNN(3, 4, nonlinearity="relu", bidirectional=True), SEQUENCE, opset=14)
torchscript("lstm", lambda: nn.LSTM(3, 4), SEQUENCE, opset=14)
torchscript("lstm-bidirectional", lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True), SEQUENCE, opset=14)
torchscript("lstm-no-bias", lambda: nn.LSTM(3, 4, bias=False, batch_first=True), {"x": normal(2, 5, 3)}, opset=11)
torchscript("gru", lambda: nn.GRU(3, 4), SEQUENCE, opset=14)
torchscript("gru-opset7", lambda: nn.GRU(3, 4), SEQUENCE, opset=7)
torchscript("gru-bidirectional", lambda: nn.GRU(3, 4, num_layers=2, bidirectional=True), SEQUENCE, opset=14)
torchscript("lstm-cell", lambda: nn.LSTMCell(3, 4), {"x": normal(2, 3)}, opset=13)
torchscript("gru-cell", lambda: nn.GRUCell(3, 4), {"x": normal(2, 3)}, opset=13)


class StatefulLstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 4)

    def forward(self, x, h, c):
        y, (h, c) = self.lstm(x, (h, c))
        return y, h, c


torchscript("lstm-states", StatefulLstm, {**SEQUENCE, "h": normal(1, 2, 4), "c": normal(1, 2, 4)}, opset=14)

# ---- attention ---------------------------------------------------------------------------------------------------------


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 1, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


torchscript("multihead-attention", SelfAttention, {"x": normal(2, 5, 16)}, opset=13)
torchscript("transformer-encoder", lambda: nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, layer_norm_eps=EPSILON),
            {"x": normal(5, 2, 8)}, opset=14)  # fmt: skip
torchscript("transformer-decoder", lambda: nn.TransformerDecoderLayer(8, 2, 12, dropout=0.0, layer_norm_eps=EPSILON, norm_first=True,
                                                                      activation="gelu"),
            {"y": normal(4, 2, 8), "memory": normal(5, 2, 8)}, opset=17)  # fmt: skip

# ---- losses ------------------------------------------------------------------------------------------------------------

LOGITS = {"logits": normal(6, 4), "labels": integers(4, 6)}
IGNORED = {"logits": normal(6, 4), "labels": values(1, -100, 3, 0, -100, 2)}
PIXELS = {"logits": normal(2, 4, 3, 3), "labels": integers(4, 2, 3, 3)}
CLASS_WEIGHTS = (0.5, 1.25, 2.0, 0.75)
PAIR = {"x": normal(3, 4), "y": normal(3, 4)}
THREE = {"a": normal(3, 4), "b": normal(3, 4), "c": normal(3, 4)}
PROBABILITY = {"x": uniform(3, 4), "y": uniform(3, 4)}


def loss(name, make, inputs, opset=13, **options):
    torchscript("loss-" + name, make, inputs, opset, **options)


def new_loss(name, make, inputs, opset=18):
    """A loss that the TorchScript exporter does not have."""
    dynamo("loss-" + name + "-dynamo", make, inputs, opset)


def weighted(kind, **options):
    return lambda: kind(weight=torch.tensor(CLASS_WEIGHTS), **options)


loss("cross-entropy", nn.CrossEntropyLoss, LOGITS, dynamic=("logits", "labels"))
loss("cross-entropy-weight", weighted(nn.CrossEntropyLoss), LOGITS)
loss("cross-entropy-ignored", weighted(nn.CrossEntropyLoss), IGNORED)
loss("cross-entropy-pixels", lambda: nn.CrossEntropyLoss(reduction="sum"), PIXELS)
loss("cross-entropy-each", lambda: nn.CrossEntropyLoss(reduction="none"), LOGITS)
function("loss-cross-entropy-smoothed",  # what label_smoothing computes: one exporter refuses it, the other leaves it out
         lambda x, y: 0.875 * F.cross_entropy(x, y) - 0.125 * F.log_softmax(x, 1).mean(), LOGITS, opset=13)  # fmt: skip
function("loss-nll-weight", lambda x, y: F.nll_loss(F.log_softmax(x, 1), y, torch.tensor(CLASS_WEIGHTS, dtype=x.dtype)),
         {"x": normal(6, 4), "y": integers(4, 6)}, opset=13)  # fmt: skip
new_loss("bce", nn.BCELoss, PROBABILITY)
loss("bce-logits", nn.BCEWithLogitsLoss, {"x": normal(3, 4), "y": uniform(3, 4)})
loss("bce-logits-weighted", lambda: nn.BCEWithLogitsLoss(weight=torch.tensor(CLASS_WEIGHTS), pos_weight=torch.tensor(CLASS_WEIGHTS[::-1]),
                                                         reduction="sum"),
     {"x": normal(3, 4), "y": uniform(3, 4)})  # fmt: skip
function("loss-kl-div", lambda x, y: F.kl_div(F.log_softmax(x, 1), F.softmax(y, 1), reduction="batchmean"), PAIR, opset=13)
function("loss-kl-div-log", lambda x, y: F.kl_div(F.log_softmax(x, 1), F.log_softmax(y, 1), reduction="sum", log_target=True), PAIR, opset=13)
new_loss("mse", nn.MSELoss, PAIR)
new_loss("l1", lambda: nn.L1Loss(reduction="sum"), PAIR)
new_loss("smooth-l1", lambda: nn.SmoothL1Loss(beta=0.5), PAIR)
new_loss("huber", lambda: nn.HuberLoss(delta=0.75), PAIR)
new_loss("poisson-nll", nn.PoissonNLLLoss, {"x": normal(3, 4), "y": uniform(3, 4, low=0, high=4)})
new_loss("soft-margin", nn.SoftMarginLoss, {"x": normal(3, 4), "y": lambda: torch.randint(0, 2, (3, 4)) * 2 - 1})
loss("multilabel-soft-margin", nn.MultiLabelSoftMarginLoss, {"x": normal(3, 4), "y": lambda: torch.randint(0, 2, (3, 4)).float()})
new_loss("hinge-embedding", nn.HingeEmbeddingLoss, {"x": normal(3, 4), "y": lambda: torch.randint(0, 2, (3, 4)).float() * 2 - 1})
new_loss("cosine-embedding", lambda: nn.CosineEmbeddingLoss(margin=0.25),
     {"a": normal(4, 3), "b": normal(4, 3), "y": values(1.0, -1.0, -1.0, 1.0)})  # fmt: skip
new_loss("margin-ranking", lambda: nn.MarginRankingLoss(margin=0.25), {"a": normal(5), "b": normal(5), "y": values(1.0, -1.0, 1.0, 1.0, -1.0)})
new_loss("triplet", lambda: nn.TripletMarginLoss(eps=2.0**-20), THREE)
loss("gaussian-nll", lambda: nn.GaussianNLLLoss(eps=f32(1e-6)), {"x": normal(3, 4), "y": normal(3, 4), "variance": uniform(3, 4)})

# ---- whole networks ----------------------------------------------------------------------------------------------------

TEXT = {"tokens": integers(19, 2, 6), "labels": integers(19, 2, 6)}
PHOTO = {"image": normal(3, 3, 16, 16), "labels": integers(4, 3)}
IMAGE = {"image": normal(2, 3, 8, 8), "labels": integers(4, 2)}
BERT = {"tokens": lambda: torch.tensor([[3, 7, 1, 12, 5, 9], [4, 18, 2, 11, 0, 0]]), "segments": integers(2, 2, 6), "labels": integers(3, 2),
        "word_labels": lambda: torch.tensor([[-100, 7, -100, -100, 2, -100], [-100, -100, 6, -100, -100, -100]])}  # fmt: skip
T5_TEXT = {"source": integers(19, 2, 6), "target": integers(19, 2, 5), "labels": integers(19, 2, 5)}
UNET = {"image": normal(1, 2, 8, 8), "mask": uniform(1, 1, 8, 8)}
DIFFUSION = {"x": normal(2, 8, 4, 4), "steps": values(3, 71), "noise": normal(2, 8, 4, 4)}
MOE = {"x": normal(7, 8), "target": normal(7, 8)}
GCN = {"x": normal(5, 5), "edges": lambda: torch.tensor([[0, 1, 1, 2, 3, 4, 4, 0], [1, 0, 2, 1, 4, 3, 0, 4]]), "scale": uniform(8),
       "labels": integers(3, 5)}  # fmt: skip
WORDS = {"tokens": integers(13, 3, 5), "labels": integers(3, 3)}

both("gpt-tied", lambda: Gpt(True), TEXT, 14, 18, dynamic=("tokens", "labels"), optimize=False)
both("gpt-untied", lambda: Gpt(False), TEXT, 17, 20)
both("llama", Llama, TEXT, 17, 20)
torchscript("llama-trained", Llama, TEXT, 17, steps=20)
torchscript("swin-trained", Swin, IMAGE, 17, steps=20)
torchscript("buffers", Buffers, {"x": normal(2, 6, 4), "target": normal(2, 6, 4)}, 17, steps=20)
both("bert", Bert, BERT, 13, 18, optimize=False)
both("t5", T5, T5_TEXT, 16, 21, optimize=False)
both("vit", VisionTransformer, IMAGE, 17, 20, optimize=False)
torchscript("resnet", ResNet, PHOTO, 15)
dynamo("resnet-frozen-dynamo", ResNet, PHOTO, 18, train=False, optimize=False)
torchscript("mobilenet", MobileNet, IMAGE, 14)
dynamo("mobilenet-frozen-dynamo", MobileNet, IMAGE, 19, train=False, optimize=False)
both("unet", UNet, UNET, 16, 18, optimize=False)
both("swin", Swin, IMAGE, 17, 20, optimize=False)
both("diffusion", DiffusionBlock, DIFFUSION, 17, 21)
both("moe", MixtureOfExperts, MOE, 17, 18)
both("convnext", ConvNext, {"x": normal(1, 6, 7, 7)}, 17, 20)
torchscript("lstm-stack", lambda: RecurrentClassifier(nn.LSTM, bidirectional=True), WORDS, 14)
torchscript("gru-stack", lambda: RecurrentClassifier(nn.GRU), WORDS, 14)
both("dlrm", Dlrm, {"dense": normal(3, 5), "categories": integers(5, 3, 3), "clicks": values(1.0, 0.0, 1.0)}, 13, 18)
torchscript("gan", Gan, {"noise": normal(3, 5, 1, 1), "image": uniform(3, 1, 8, 8), "real": values(1.0, 0.5, 1.0),
                         "made": values(0.0, 0.25, 0.0)}, 13)  # fmt: skip
both("vae", Vae, {"x": uniform(2, 12), "noise": normal(2, 3)}, 13, 18)
both("gcn", Gcn, GCN, 16, 18)
both("graph-self-loops", SelfLoops, {"x": normal(4, 4), "edges": lambda: torch.tensor([[0, 1, 2, 2, 3], [1, 1, 0, 3, 3]])}, 16, 18)
torchscript("graph-attention", GraphAttention, {"x": normal(5, 5), "adjacency": lambda: (torch.rand(5, 5) > 0.5).long() | torch.eye(5).long()}, 13)
torchscript("mixer", MlpMixer, {"x": normal(2, 4, 8)}, 17)
torchscript("wavenet", WaveNet, {"x": normal(2, 1, 9), "labels": integers(8, 2, 9)}, 13)
torchscript("siamese", Siamese, {"anchor": normal(3, 6), "near": normal(3, 6), "far": normal(3, 6)}, 13)
torchscript("state-space", StateSpace, {"x": normal(2, 5, 6)}, 14)

# ---- the newer operators and the newer exporter ------------------------------------------------------------------------


class ScaledAttention(nn.Module):
    """torch's own fused attention, which opset 23 has as one operator."""

    def __init__(self, causal):
        super().__init__()
        self.causal, self.qkv, self.proj = causal, nn.Linear(8, 96), nn.Linear(32, 8)

    def forward(self, x):
        q, k, v = self.qkv(x).view(2, 5, 3, 2, 16).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.proj(y.transpose(1, 2).reshape(2, 5, 32))


class SpatialTransformer(nn.Module):
    def forward(self, x, theta):
        return F.grid_sample(x, F.affine_grid(0.5 * torch.tanh(theta), [2, 1, 2, 4], align_corners=False), align_corners=False)


def rms_norm(width):
    return nn.RMSNorm(width, eps=EPSILON)


def without_biases(module):
    """With biases of zeros, as many modules begin."""
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
    return module


def mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8, eps=EPSILON), nn.Linear(8, 3))


dynamo("mlp-dynamo", mlp, {"x": normal(4, 6)}, 20, dynamic=("x",))
dynamo("mlp-external-dynamo", mlp, {"x": normal(4, 6)}, 18, external=True)
dynamo("linear-dynamo", lambda: nn.Linear(5, 4), {"x": normal(2, 3, 5)}, 18)
dynamo("conv-dynamo", lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.SiLU(), nn.AvgPool2d(2), nn.ConvTranspose2d(4, 2, 2, 2)),
       {"x": normal(2, 3, 6, 6)}, 18)  # fmt: skip
dynamo("batch-norm-dynamo", lambda: nn.Sequential(nn.BatchNorm2d(2, eps=EPSILON), nn.ReLU(), nn.Conv2d(2, 3, 3)), {"x": normal(2, 2, 5, 5)}, 18,
       train=False)  # fmt: skip
dynamo("batch-norm-training-dynamo", lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3, eps=EPSILON), nn.ReLU(), nn.Conv2d(3, 2, 1)),
       {"x": normal(2, 2, 5, 5)}, 18, optimize=False)  # fmt: skip
dynamo("group-norm-dynamo", lambda: nn.GroupNorm(2, 6, eps=EPSILON), {"x": normal(2, 6, 3, 3)}, 21)
dynamo("layer-norm-dynamo", lambda: nn.LayerNorm(6, eps=EPSILON), {"x": normal(2, 3, 6)}, 18)
dynamo("rms-norm-dynamo", lambda: rms_norm(6), {"x": normal(2, 3, 6)}, 23)
dynamo("rms-norm-parts-dynamo", lambda: rms_norm(6), {"x": normal(2, 3, 6)}, 18)
dynamo("llama-rms-dynamo", lambda: Llama(norm=rms_norm), TEXT, 23)
dynamo("gpt-tied-folded-dynamo", lambda: Gpt(True), TEXT, 20, restored=True)
dynamo("gpt-fresh-dynamo", lambda: without_biases(Gpt(True)), TEXT, 20, fresh=True, restored=True)
dynamo("vit-folded-dynamo", VisionTransformer, IMAGE, 20, restored=True)
dynamo("foldings-dynamo", Foldings, {"x": normal(2, 4, 8), "target": normal(2, 8)}, 18, fresh=True, restored=True, traced=True, steps=20)
dynamo("droppings-dynamo", Droppings, {"tokens": values([1, 2, 5], [2, 7, 3]), "labels": values([0, 4, 1], [3, 2, 4])}, 18, traced=True,
       restored=True, steps=20)  # fmt: skip
dynamo("attention-dynamo", lambda: ScaledAttention(False), {"x": normal(2, 5, 8)}, 18)
dynamo("attention-causal-dynamo", lambda: ScaledAttention(True), {"x": normal(2, 5, 8)}, 23)
dynamo("multihead-attention-dynamo", SelfAttention, {"x": normal(2, 5, 16)}, 20)
dynamo("transformer-encoder-dynamo", lambda: nn.TransformerEncoderLayer(16, 1, 12, dropout=0.0, layer_norm_eps=EPSILON, batch_first=True),
       {"x": normal(2, 5, 16)}, 18)  # fmt: skip
dynamo("activations-dynamo", lambda: Function(lambda x: (F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.mish(x), F.elu(x), F.softplus(x),
                                                         F.hardswish(3 * x), F.leaky_relu(x, 0.125), F.glu(x, 1), F.logsigmoid(x))),
       {"x": normal(3, 4)}, 20)  # fmt: skip
dynamo("interpolate-dynamo", lambda: Function(lambda x: (F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
                                                         F.interpolate(x, size=(5, 7), mode="bicubic", align_corners=False),
                                                         F.interpolate(x, scale_factor=2.0))),
       {"x": normal(1, 2, 3, 4)}, 19)  # fmt: skip
dynamo("pads-dynamo", lambda: Function(lambda x: (F.pad(x, (1, 1, 2, 1), mode="circular"), F.pad(x, (1, 2, 0, 1), mode="reflect"),
                                                  F.pad(x, (-1, 0, 1, -1)))),
       {"x": normal(1, 2, 3, 4)}, 18)  # fmt: skip
dynamo("scatter-dynamo", lambda: Function(put), {"x": normal(5, 4), "y": normal(3, 4), "i": values(4, 0, 2)}, 18)
dynamo("fold-dynamo", lambda: Function(lambda x: F.fold(x, (4, 4), 2, stride=2)), {"x": normal(1, 8, 4)}, 18)
dynamo("spatial-transformer-dynamo", SpatialTransformer, {"x": normal(2, 1, 4, 5), "theta": normal(2, 2, 3)}, 20)
dynamo("losses-dynamo", lambda: Function(lambda x, y, i: (F.mse_loss(x, y) + F.smooth_l1_loss(x, y, beta=0.5) + F.huber_loss(x, y, delta=0.75) +
                                                          F.l1_loss(x, y) + F.binary_cross_entropy_with_logits(x, torch.sigmoid(y)) +
                                                          F.kl_div(F.log_softmax(x, 1), F.softmax(y, 1), reduction="batchmean") +
                                                          F.nll_loss(F.log_softmax(x, 1), i) + F.cross_entropy(y, i))),
       {"x": normal(3, 4), "y": normal(3, 4), "i": integers(4, 3)}, 20)  # fmt: skip
dynamo("conv-22-dynamo", lambda: nn.Sequential(nn.Conv2d(3, 4, 3, groups=1, padding=1), nn.GroupNorm(2, 4, eps=EPSILON), nn.Mish(), nn.MaxPool2d(2),
                                              nn.ConvTranspose2d(4, 2, 2, 2), nn.InstanceNorm2d(2, eps=EPSILON)),
       {"x": distinct(2, 3, 6, 6)}, 22, ir=11)  # fmt: skip
dynamo("transformer-encoder-22-dynamo", lambda: nn.TransformerEncoderLayer(16, 1, 12, dropout=0.0, layer_norm_eps=EPSILON, batch_first=True,
                                                                           norm_first=True, activation="gelu"),
       {"x": normal(2, 5, 16)}, 22)  # fmt: skip
dynamo("mlp-ir9-dynamo", mlp, {"x": normal(4, 6)}, 19, dynamic=("x",), ir=9)
dynamo("rms-norm-ir11-dynamo", lambda: rms_norm(6), {"x": normal(2, 3, 6)}, 23, ir=11)
dynamo("lstm-dynamo", lambda: nn.LSTM(3, 4), SEQUENCE, 18, optimize=False)
dynamo("reductions-dynamo", lambda: Function(lambda x: (x.sum(1), x.mean((0, 2)), x.amax(1), x.prod(2), x.logsumexp((1, 2)), x.var(1), x.std((0, 2)),
                                                        x.cumsum(1), x.norm(dim=1), x.topk(2, 2).values)),
       {"x": distinct(2, 3, 4)}, 18)  # fmt: skip
dynamo("stop-gradient-dynamo", StraightThrough, {"x": distinct(3, 4)}, 18, optimize=False)
dynamo("conv3d-no-bias-dynamo", lambda: nn.Sequential(nn.Conv3d(2, 3, 2, bias=False), nn.ReLU(), nn.Conv3d(3, 2, 1, bias=False)),
       {"x": distinct(1, 2, 3, 3, 4)}, 18, optimize=False)  # fmt: skip
