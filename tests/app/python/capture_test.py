#!/usr/bin/env python3
"""capture of batches whose sizes differ, as loaders make them that pad to the longest text, and of arrays of other libraries.

GRADLOOM_LIBRARY names the library, GRADLOOM_PROGRAM the program. Exits with 77 (skipped) where there is no PyTorch.
"""

import collections
import copy
import os
import sys
import unittest
import warnings

import numpy as np
import support
import torch
from gradloom.torch import Module, TrainStep, capture
from job_test import Folder, torch_losses, train
from support import Block, mlp, twins, worst
from torch import nn
from torch.nn import functional as F

gradloom = support.gradloom


class Texts(nn.Module):
    """A masked language model whose mask and labels ignore what fills a text."""

    def __init__(self, words=31, width=16):
        super().__init__()
        self.words, self.block, self.drop, self.head = nn.Embedding(words, width), Block(width, 2, False), nn.Dropout(0.1), nn.Linear(width, words)

    def forward(self, input_ids, attention_mask, labels):
        x = self.block(self.drop(self.words(input_ids)), attention_mask[:, None, None, :] == 0)
        return {"loss": F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())}


def texts(*sizes):
    """Batches of rows x words."""
    torch.manual_seed(4)
    return [{"input_ids": torch.randint(1, 31, size), "attention_mask": torch.ones(size, dtype=torch.int64), "labels": torch.randint(0, 31, size)}
            for size in sizes]  # fmt: skip


FILL = {"input_ids": 0, "attention_mask": 0, "labels": -100}


class Sizes(Folder):
    def arrays(self):
        with np.load(os.path.join(self.folder, "batches.npz")) as archive:
            return {name: archive[name] for name in archive}

    def model(self):
        torch.manual_seed(1)
        model = Texts()
        model.drop.p = 0.0
        return model

    def test_the_most_frequent_sizes_are_kept(self):
        batches = texts((2, 5), (2, 7), (2, 9), (2, 7), (1, 7))
        with support.one_warning(self, "capture keeps 2 of 5 batches, those of the most frequent sizes (input_ids 2x7, attention_mask 2x7, labels 2x7)"):
            recipe = capture(self.model(), batches, folder=self.folder, steps=6)
        self.assertTrue(np.array_equal(self.arrays()["labels"], torch.stack([batches[1]["labels"], batches[3]["labels"]]).numpy()))
        kept = [batches[1], batches[3]]
        model = self.model()
        self.assert_curves(train(recipe), torch_losses(model, kept, lambda m, b: m(**b)["loss"], torch.optim.SGD(model.parameters(), lr=0.01), 6), 1e-5)

    def test_of_equally_frequent_sizes_the_largest_is(self):
        with support.one_warning(self, "capture keeps 1 of 3 batches, those of the most frequent sizes (input_ids 2x9, "):
            capture(self.model(), texts((2, 5), (2, 9), (2, 7)), folder=self.folder)

    def test_equal_sizes_need_no_word(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            capture(self.model(), texts((2, 5), (2, 5)), folder=self.folder, pad=FILL)
        self.assertEqual(self.arrays()["input_ids"].shape, (2, 2, 5))

    def test_filled_up_to_the_longest_all_are(self):
        """The job's losses are those of the batches as they were, in PyTorch."""
        batches = texts((2, 5), (3, 7), (2, 9))
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            recipe = capture(self.model(), batches, folder=self.folder, pad=FILL, steps=9)
        self.assertEqual(self.arrays()["input_ids"].shape, (3, 3, 9))
        self.assertEqual(self.arrays()["labels"][0, :, 5:].max(), -100)
        model = self.model()
        self.assert_curves(train(recipe), torch_losses(model, batches, lambda m, b: m(**b)["loss"], torch.optim.SGD(model.parameters(), lr=0.01), 9), 1e-5)

    def test_a_fill_that_the_loss_sees_is_refused(self):
        model, batches = self.model(), texts((2, 5), (2, 9))
        for part in (model, model.block):
            part.train(part is model)
        with self.assertRaisesRegex(gradloom.Error, "batch 0 has the loss .* filled up as pad says: the loss does not ignore the fill"):
            capture(model, batches, folder=self.folder, pad={**FILL, "labels": 1})
        self.assertEqual((model.training, model.block.training), (True, False))

    def test_what_pad_says_has_to_fit(self):
        batches = texts((2, 5), (2, 9))
        with self.assertRaisesRegex(gradloom.Error, "'labels' has other sizes in other batches, and pad says nothing to fill it with"):
            capture(self.model(), batches, folder=self.folder, pad={"input_ids": 0, "attention_mask": 0})
        with self.assertRaisesRegex(gradloom.Error, "pad names 'tokens', which is none of the batch's tensors: input_ids, attention_mask, labels"):
            capture(self.model(), batches, folder=self.folder, pad={"tokens": 0})
        more = {**batches[1], "labels": batches[1]["labels"][..., None]}
        with self.assertRaisesRegex(gradloom.Error, "'labels' has more axes in one batch than in another"):
            capture(self.model(), [batches[0], more], folder=self.folder, pad=FILL)

    def test_a_target_and_the_last_batch_of_an_epoch(self):
        """Rows are left out by their labels."""
        torch.manual_seed(2)
        model, batches = mlp(), [(torch.randn(rows, 6), torch.randint(0, 3, (rows,))) for rows in (4, 4, 3)]
        other = copy.deepcopy(model)
        recipe = capture(model, batches, nn.CrossEntropyLoss(), folder=self.folder, pad={"input": 0, "target": -100}, steps=6)
        theirs = torch_losses(other, batches, lambda m, b: F.cross_entropy(m(b[0]), b[1]), torch.optim.SGD(other.parameters(), lr=0.01), 6)
        self.assert_curves(train(recipe), theirs, 1e-5)

    def test_batch_normalization_sees_rows_that_labels_leave_out(self):
        torch.manual_seed(2)
        model, batches = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)), [(torch.randn(n, 6), torch.randint(0, 3, (n,))) for n in (4, 3)]
        before = copy.deepcopy(model.state_dict())
        with self.assertRaisesRegex(gradloom.Error, "the loss does not ignore the fill"):
            capture(model, batches, nn.CrossEntropyLoss(), folder=self.folder, pad={"input": 0, "target": -100})
        self.assertTrue(all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items()))
        capture(model.eval(), batches, nn.CrossEntropyLoss(), folder=self.folder, pad={"input": 0, "target": -100})

    def test_mappings_are_batches(self):
        """Such as Hugging Face's BatchEncoding, which is no dict."""
        batches = [collections.UserDict(batch) for batch in texts((2, 5), (2, 5))]
        capture(self.model(), batches, folder=self.folder)
        self.assertEqual(self.arrays()["input_ids"].shape, (2, 2, 5))


class Arrays(Folder):
    """numpy's stand for all that have DLPack."""

    def test_as_arguments_of_a_module(self):
        model, x = mlp(), np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32)
        mine = Module(copy.deepcopy(model))
        found, expected = mine(x), model(torch.from_numpy(x))
        self.assertLess(worst([found], [expected]), 1e-6)
        found.sum().backward()
        expected.sum().backward()
        self.assertLess(worst([p.grad for p in mine.parameters()], [p.grad for p in model.parameters()]), 1e-5)
        self.assertEqual(np.from_dlpack(found.detach()).shape, (4, 3))
        mine(torch.from_numpy(x))
        self.assertEqual(len(mine._gradloom._entries), 1)  # an array is a tensor
        x *= 2  # in its own memory
        self.assertLess(worst([mine(x)], [model(torch.from_numpy(x))]), 1e-6)

    def test_nested_and_what_dlpack_does_not_carry(self):
        class Nested(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(6, 3)

            def forward(self, batch, scale):
                return torch.where(batch["mask"][:, None], self.linear(batch["more"][0]), self.linear.bias * scale)

        mine, theirs = twins(Nested)
        x, mask = np.random.default_rng(1).standard_normal((8, 6)).astype(np.float32), np.array([True, False] * 4)
        x.flags.writeable = False
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            for some in (x, x[::-1], x[:, ::-1]):
                found = mine({"mask": mask, "more": (some, None)}, 2.0)
                self.assertLess(worst([found], [theirs({"mask": torch.tensor(mask), "more": (torch.tensor(some.copy()), None)}, 2.0)]), 1e-6)
        with self.assertRaisesRegex(gradloom.UnsupportedError, "an array of type numpy.ndarray is no tensor by DLPack: "):
            mine({"mask": mask, "more": (np.array([None] * 6), None)}, 2.0)

    def test_where_the_call_runs_in_pytorch(self):
        class Reads(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(6, 3)

            def forward(self, x):
                return self.linear(x) if x.sum() > 0 else x

        mine, theirs = twins(Reads)
        mine, x = Module(mine.module, fallback="torch"), np.ones((2, 6), np.float32)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.assertEqual(worst([mine(x)], [theirs(torch.from_numpy(x))]), 0.0)

    def test_as_batches_of_a_step_and_of_a_job(self):
        batches = [(np.random.default_rng(i).standard_normal((4, 6)).astype(np.float32), np.array([0, 1, 2, i])) for i in range(2)]
        models = [mlp() for _ in range(3)]
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
        step = TrainStep(models[0], nn.CrossEntropyLoss(), optimizers[0])
        mine = [step.step(*batches[i % 2]) for i in range(6)]
        recipe = capture(models[1], batches, nn.CrossEntropyLoss(), optimizers[1], self.folder, steps=6)
        given = [tuple(torch.from_numpy(array) for array in batch) for batch in batches]
        theirs = torch_losses(models[2], given, lambda m, b: F.cross_entropy(m(b[0]), b[1]), optimizers[2], 6)
        self.assert_curves(mine, theirs, 1e-5)
        self.assert_curves(train(recipe), theirs, 1e-5)


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)
    sys.exit(unittest.main(verbosity=1))
