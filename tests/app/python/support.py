"""What the tests of the Python package share: where things lie, networks, comparisons. Exits with 77 without PyTorch."""

import contextlib
import copy
import importlib
import os
import sys
import tempfile
import unittest
import warnings
from unittest import mock

try:
    import numpy as np  # noqa: F401
    import torch
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

TESTS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(os.path.dirname(TESTS), "app", "python"), os.path.join(TESTS, "modules")]
sys.dont_write_bytecode = True
os.environ.setdefault("OMP_NUM_THREADS", "2")
torch.set_num_threads(1)

import gradloom  # noqa: E402, F401
from gradloom.torch import Module  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

try:
    gradloom._library.library()
except gradloom.Error as error:
    sys.exit(str(error))


class Folder(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.folder = self._folder.name

    def tearDown(self):
        self._folder.cleanup()

    def assert_curves(self, mine, theirs, tolerance):
        self.assertEqual(len(mine), len(theirs))
        self.assertLess(max(abs(a - b) / abs(b) for a, b in zip(mine, theirs)), tolerance)


def of_hugging_face(*names):
    """Its packages, which look for nothing in the network. Exits with 77 (skipped) where one is missing."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    try:
        return [importlib.import_module(name) for name in names]
    except ImportError as error:
        print("skipped:", error)
        sys.exit(77)


class Block(nn.Module):
    def __init__(self, width, heads, causal, dropout=0.0):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x, mask):
        n, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-1, -2) / (c // self.heads) ** 0.5
        scores = scores.masked_fill(mask, -1e4)
        x = x + self.drop(self.out((F.softmax(scores, -1) @ v).transpose(1, 2).reshape(n, t, c)))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))


class Gpt(nn.Module):
    """GPT-2-like: tied head, causal mask kept as a buffer; returns a dict as Hugging Face's models do."""

    def __init__(self, words=31, width=16, layers=2, longest=12, dropout=0.0):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(Block(width, 2, True, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight
        self.register_buffer("mask", torch.ones(longest, longest, dtype=torch.bool).triu(1))

    def forward(self, tokens, labels=None):
        t = tokens.shape[1]
        x = self.words(tokens) + self.places(torch.arange(t, device=tokens.device))
        for block in self.blocks:
            x = block(x, self.mask[:t, :t])
        logits = self.head(self.norm(x))
        loss = None if labels is None else F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return {"loss": loss, "logits": logits}


class Bert(nn.Module):
    """BERT-like: padding mask from the tokens, a classifier of the first token and one of masked words."""

    def __init__(self, words=31, width=16, layers=2, longest=12, dropout=0.0):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width, padding_idx=0), nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(Block(width, 2, False, dropout) for _ in range(layers))
        self.pool, self.classes, self.head = nn.Linear(width, width), nn.Linear(width, 3), nn.Linear(width, words)

    def forward(self, tokens, labels, word_labels):
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        mask = (tokens == 0)[:, None, None, :]
        for block in self.blocks:
            x = block(x, mask)
        classes = self.classes(torch.tanh(self.pool(x[:, 0])))
        words = F.cross_entropy(self.head(x).flatten(0, 1), word_labels.flatten(), ignore_index=-100)
        return F.cross_entropy(classes, labels) + words, classes


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                                  nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8, momentum=None), nn.ReLU())  # fmt: skip
        self.head = nn.Linear(8, 4)

    def forward(self, image):
        return self.head(self.body(image).mean((2, 3)))


def mlp(width=6, dtype=torch.float32):
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(width, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)).to(dtype)


def worst(mine, theirs, least=1e-30):
    """The largest difference, measured by the largest number of `theirs` (of all tensors), or by `least`."""
    scale = max([float(t.detach().abs().max()) for t in theirs if t is not None and t.numel()] + [least])
    return max([float((a.detach().double() - b.detach().double()).abs().max()) for a, b in zip(mine, theirs) if b is not None and b.numel()] + [0.0]) / scale


def twins(make, seed=5):
    torch.manual_seed(seed)
    model = make()
    return Module(copy.deepcopy(model)), model


class Case(unittest.TestCase):
    def assert_near(self, mine, theirs, tolerance=1e-5):
        mine, theirs = ([t] if isinstance(t, torch.Tensor) else list(t) for t in (mine, theirs))
        self.assertEqual(len(mine), len(theirs))
        self.assertLessEqual(worst(mine, theirs), tolerance)

    def assert_same_gradients(self, mine, theirs, tolerance=1e-5):
        """Measured by each one's largest number, or a hundredth of the largest of all: some are zero but for rounding."""
        largest = max(float(q.grad.abs().max()) for q in theirs.parameters() if q.grad is not None)
        for (name, p), q in zip(mine.named_parameters(), theirs.parameters()):
            self.assertEqual(p.grad is None, q.grad is None, name)
            if q.grad is not None:
                self.assertLessEqual(worst([p.grad], [q.grad], 1e-2 * largest), tolerance, name)


@contextlib.contextmanager
def counted_calls(*names):
    """How often these functions of the library are called inside, by their names."""
    counts, library = dict.fromkeys(names, 0), type(gradloom._library.library())

    def counting(function):
        def counted(self, name, *arguments):
            if name in counts:
                counts[name] += 1
            return function(self, name, *arguments)

        return counted

    with mock.patch.object(library, "call", counting(library.call)), mock.patch.object(library, "compute", counting(library.compute)):
        yield counts


@contextlib.contextmanager
def one_warning(test, text):
    """Exactly one warning of ours, with this text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    ours = [str(w.message) for w in caught if "gradloom" in str(w.message)]
    test.assertEqual(len(ours), 1, ours)
    test.assertIn(text, ours[0])
