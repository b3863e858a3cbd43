"""Small convolutional networks, as networks.py has the others."""

import math

import torch
from networks import EPSILON, FeedForward, attend, squared_error
from torch import nn
from torch.nn import functional as F


def conv_norm(inputs, outputs, size, stride=1, groups=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs, eps=EPSILON)
    )


class Bottleneck(nn.Module):
    """ResNet's 1x1, 3x3, 1x1 with a projected shortcut."""

    def __init__(self, inputs, hidden, outputs, stride):
        super().__init__()
        self.reduce, self.conv = conv_norm(inputs, hidden, 1), conv_norm(hidden, hidden, 3, stride)
        self.expand = conv_norm(hidden, outputs, 1)
        self.shortcut = conv_norm(inputs, outputs, 1, stride)

    def forward(self, x):
        y = self.expand(F.relu(self.conv(F.relu(self.reduce(x)))))
        return F.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.stem = conv_norm(3, 8, 3)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1, self.layer2 = Bottleneck(8, 4, 16, 1), Bottleneck(16, 6, 12, 2)
        self.fc = nn.Linear(12, classes)

    def forward(self, image, labels):
        x = self.layer2(self.layer1(self.pool(F.relu(self.stem(image)))))
        return F.cross_entropy(self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1)), labels)


class SqueezeExcite(nn.Module):
    def __init__(self, channels, hidden):
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(channels, hidden, 1), nn.Conv2d(hidden, channels, 1)

    def forward(self, x):
        return x * F.hardsigmoid(self.fc2(F.relu(self.fc1(F.adaptive_avg_pool2d(x, 1)))))


class InvertedResidual(nn.Module):
    """MobileNetV3: expand, depthwise, squeeze and excite, project."""

    def __init__(self, channels, hidden):
        super().__init__()
        self.expand = conv_norm(channels, hidden, 1)
        self.depthwise = conv_norm(hidden, hidden, 3, groups=hidden)
        self.se = SqueezeExcite(hidden, 4)
        self.project = conv_norm(hidden, channels, 1)

    def forward(self, x):
        y = F.hardswish(self.depthwise(F.hardswish(self.expand(x))))
        return x + self.project(self.se(y))


class MobileNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.stem = conv_norm(3, 6, 3, stride=2)
        self.block = InvertedResidual(6, 12)
        self.classifier = nn.Sequential(nn.Linear(6, 10), nn.Hardswish(), nn.Linear(10, classes))

    def forward(self, image, labels):
        x = self.block(F.hardswish(self.stem(image)))
        return F.cross_entropy(self.classifier(x.mean((2, 3))), labels)


class UNet(nn.Module):
    """Two levels down and up with skipped connections; up by a transposed convolution, then by interpolation."""

    def __init__(self, width=4):
        super().__init__()
        self.down1, self.down2 = self.block(2, width), self.block(width, 2 * width)
        self.middle = self.block(2 * width, 4 * width)
        self.up = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.merge2, self.merge1 = self.block(4 * width, 2 * width), self.block(3 * width, width)
        self.out = nn.Conv2d(width, 1, 1)

    @staticmethod
    def block(inputs, outputs):
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(2, outputs, eps=EPSILON), nn.LeakyReLU(0.125)
        )

    def forward(self, image, mask):
        a = self.down1(image)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.middle(F.max_pool2d(b, 2))
        b = self.merge2(torch.cat((self.up(c), b), 1))
        up = F.interpolate(b, scale_factor=2, mode="bilinear", align_corners=False)
        a = self.merge1(torch.cat((up, a), 1))
        return F.binary_cross_entropy_with_logits(self.out(a), mask)


class DiffusionBlock(nn.Module):
    """A denoiser's residual block: GroupNorm, SiLU, convolutions, sinusoidal time embedding, attention over pixels."""

    def __init__(self, channels=8, time=8):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, channels, eps=EPSILON), nn.GroupNorm(4, channels, eps=EPSILON)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(time, 2 * channels), nn.SiLU(), nn.Linear(2 * channels, 2 * channels))
        self.norm3, self.qkv = nn.GroupNorm(2, channels, eps=EPSILON), nn.Conv1d(channels, 3 * channels, 1)
        self.proj = nn.Conv1d(channels, channels, 1)
        self.register_buffer("frequencies", torch.exp(-math.log(10000.0) * torch.arange(time // 2) / (time // 2)))

    def forward(self, x, steps, noise):
        angles = steps[:, None].to(x.dtype) * self.frequencies[None]
        scale, shift = self.time(torch.cat((angles.sin(), angles.cos()), dim=1))[:, :, None, None].chunk(2, dim=1)
        h = self.norm2(self.conv1(F.silu(self.norm1(x)))) * (1 + scale) + shift
        x = x + self.conv2(F.silu(h))
        batch, channels, height, width = x.shape
        q, k, v = self.qkv(self.norm3(x).reshape(batch, channels, -1)).reshape(batch, 3, 2, 4, -1).unbind(1)
        h = attend(q.transpose(2, 3), k.transpose(2, 3), v.transpose(2, 3)).transpose(2, 3)
        x = x + self.proj(h.reshape(batch, channels, -1)).reshape(batch, channels, height, width)
        return squared_error(x, noise)


class Gan(nn.Module):
    """DCGAN: a generator of transposed convolutions, and a discriminator called twice, on its images and on real ones."""

    def __init__(self, noise=5, width=4):
        super().__init__()
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(noise, 2 * width, 4, bias=False), nn.BatchNorm2d(2 * width, eps=EPSILON), nn.ReLU(),
            nn.ConvTranspose2d(2 * width, 1, 4, 2, 1, bias=False), nn.Tanh()
        )  # fmt: skip
        self.discriminator = nn.Sequential(
            nn.Conv2d(1, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.25),
            nn.Conv2d(width, 2 * width, 3, bias=False), nn.BatchNorm2d(2 * width, eps=EPSILON), nn.LeakyReLU(0.25),
            nn.Conv2d(2 * width, 1, 2, bias=False)
        )  # fmt: skip

    def forward(self, noise, image, real, made):
        loss = F.binary_cross_entropy_with_logits(self.discriminator(image).flatten(), real)
        return loss + F.binary_cross_entropy_with_logits(self.discriminator(self.generator(noise)).flatten(), made)


class ConvNext(nn.Module):
    """Depthwise 7x7, channels-last LayerNorm, pointwise expansion, a learnt scale per channel."""

    def __init__(self, channels=6):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=EPSILON)
        self.mlp = FeedForward(channels, 3 * channels, nn.GELU())
        self.gamma = nn.Parameter(torch.ones(channels))

    def forward(self, x):
        y = self.mlp(self.norm(self.depthwise(x).permute(0, 2, 3, 1)))
        return x + (self.gamma * y).permute(0, 3, 1, 2)


class MlpMixer(nn.Module):
    def __init__(self, patches=4, width=8):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=EPSILON), nn.LayerNorm(width, eps=EPSILON)
        self.tokens = FeedForward(patches, 6, nn.GELU())
        self.channels = FeedForward(width, 12, nn.GELU())

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class WaveNet(nn.Module):
    """Dilated causal convolutions with gates, residual and skipped connections."""

    def __init__(self, channels=6, layers=3, levels=8):
        super().__init__()
        self.inputs = nn.Conv1d(1, channels, 1)
        self.dilated = nn.ModuleList(nn.Conv1d(channels, 2 * channels, 2, dilation=2**i) for i in range(layers))
        self.mixed = nn.ModuleList(nn.Conv1d(channels, channels, 1) for _ in range(layers))
        self.outputs = nn.Conv1d(channels, levels, 1)

    def forward(self, x, labels):
        x, skipped = self.inputs(x), 0.0
        for dilated, mixed in zip(self.dilated, self.mixed):
            gate, value = dilated(F.pad(x, (dilated.dilation[0], 0))).chunk(2, dim=1)
            h = mixed(torch.sigmoid(gate) * torch.tanh(value))
            x, skipped = x + h, skipped + h
        return F.cross_entropy(self.outputs(F.relu(skipped)), labels)
