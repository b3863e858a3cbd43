"""Whole networks at sizes that people train, for bench/vs_torch.py: name -> () -> (module that returns its loss, inputs).

torchvision's with random weights, and those of tests/modules, where the tests check them at small sizes.
"""

import os
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torchvision import models

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "modules"))

import convolutional  # noqa: E402
import networks  # noqa: E402


class Classifier(nn.Module):
    """The cross-entropy of what a network makes of x; of a segmentation network's "out"."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, labels):
        y = self.net(x)
        return F.cross_entropy(y["out"] if isinstance(y, dict) else y, labels)


class Denoiser(nn.Module):
    """Residual blocks of a diffusion model: GroupNorm, SiLU, 3x3 convolutions, scale and shift by the time."""

    def __init__(self, channels=64, blocks=3):
        super().__init__()
        conv = lambda a, b: nn.Conv2d(a, b, 3, padding=1)  # noqa: E731
        self.time, self.first, self.last = nn.Linear(32, 2 * channels), conv(3, channels), conv(channels, 3)
        self.norms = nn.ModuleList(nn.GroupNorm(8, channels) for _ in range(2 * blocks))
        self.convs = nn.ModuleList(conv(channels, channels) for _ in range(2 * blocks))

    def forward(self, x, time, noise):
        scale, shift = self.time(time)[:, :, None, None].chunk(2, 1)
        x = self.first(x)
        for i in range(0, len(self.norms), 2):
            h = self.norms[i + 1](self.convs[i](F.silu(self.norms[i](x)))) * (1 + scale) + shift
            x = x + self.convs[i + 1](F.silu(h))
        return (self.last(x) - noise).pow(2).mean()


def images(batch, *size, classes=1000):
    return {"x": torch.randn(batch, 3, *size), "labels": torch.randint(classes, (batch,))}


def pixels(batch, size, classes):
    return {"x": torch.randn(batch, 3, size, size), "labels": torch.randint(classes, (batch, size, size))}


def tokens(batch, time, vocabulary, *names):
    return {name: torch.randint(vocabulary, (batch, time)) for name in names}


def unpretrained(make, **options):
    return make(weights=None, weights_backbone=None, num_classes=21, **options)


def recurrent(kind, **options):
    net = networks.RecurrentClassifier(kind, vocabulary=10000, width=256, hidden=256, classes=5, **options)
    return net, {**tokens(16, 64, 10000, "tokens"), "labels": torch.randint(5, (16,))}


NETWORKS = {
    "mobilenet": lambda: (Classifier(models.mobilenet_v3_large()), images(8, 224, 224)),
    "efficientnet": lambda: (Classifier(models.efficientnet_b0(stochastic_depth_prob=0.0)), images(4, 224, 224)),
    "convnext": lambda: (Classifier(models.convnext_tiny(stochastic_depth_prob=0.0)), images(2, 224, 224)),
    "densenet": lambda: (Classifier(models.densenet121()), images(4, 224, 224)),
    "shufflenet": lambda: (Classifier(models.shufflenet_v2_x1_0()), images(8, 224, 224)),
    "resnext": lambda: (Classifier(models.resnext50_32x4d()), images(2, 224, 224)),
    "resnet3d": lambda: (Classifier(models.video.mc3_18()), images(1, 8, 112, 112, classes=400)),
    "fcn": lambda: (Classifier(unpretrained(models.segmentation.fcn_resnet50)), pixels(1, 224, 21)),
    "vit": lambda: (networks.VisionTransformer(224, 16, 3, 192, 12, 6, 1000),
                    {"image": torch.randn(8, 3, 224, 224), "labels": torch.randint(1000, (8,))}),
    "unet": lambda: (convolutional.UNet(32), {"image": torch.randn(4, 2, 128, 128), "mask": torch.rand(4, 1, 128, 128).round()}),
    "denoiser": lambda: (Denoiser(), {"x": torch.randn(4, 3, 64, 64), "time": torch.randn(4, 32), "noise": torch.randn(4, 3, 64, 64)}),
    "lstm": lambda: recurrent(nn.LSTM),
    "gru": lambda: recurrent(nn.GRU, bidirectional=True),
    "dlrm": lambda: (networks.Dlrm(13, (100000,) * 8, 32), {"dense": torch.randn(512, 13), **tokens(512, 8, 100000, "categories"),
                                                         "clicks": torch.rand(512).round()}),
    "moe": lambda: (networks.MixtureOfExperts(256, 512, 8), {"x": torch.randn(1024, 256), "target": torch.randn(1024, 256)}),
    "llama": lambda: (networks.Llama(4, 256, 16, 4, 688, 256, 8000), tokens(4, 256, 8000, "tokens", "labels")),
    "t5": lambda: (networks.T5(256, 8, 8000, 32, 128, 128), tokens(4, 128, 8000, "source", "target", "labels")),
    "wavenet": lambda: (convolutional.WaveNet(32, 8, 256), {"x": torch.randn(4, 1, 4096), "labels": torch.randint(256, (4, 4096))}),
    "gcn": lambda: (networks.Gcn(128, 64, 10), {"x": torch.randn(20000, 128), "edges": torch.randint(20000, (2, 200000)),
                                             "scale": torch.rand(200000), "labels": torch.randint(10, (20000,))}),
}  # fmt: skip


def make(name):
    torch.manual_seed(1)
    return NETWORKS[name]()


def export(name, folder):
    """Writes the model NAME.onnx and its batch NAME.npz."""
    import numpy

    module, inputs = make(name)
    path = os.path.join(folder, name)
    torch.onnx.export(
        module.train(), tuple(inputs.values()), path + ".onnx", input_names=list(inputs), output_names=["loss"],
        training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, opset_version=17,
    )  # fmt: skip
    numpy.savez(path + ".npz", **{key: value.numpy()[None] for key, value in inputs.items()})
