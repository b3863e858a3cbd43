#!/usr/bin/env python3
"""gradloom.torch.Buckets: few plans for many lengths, whose numbers are those of the lengths that were given.

GRADLOOM_LIBRARY names the library. Exits with 77 (skipped) where there is no PyTorch.
"""

import contextlib
import copy
import os
import pickle
import tempfile
import types
import unittest

import support
import torch
from gradloom.torch import Buckets, Module, TrainStep
from support import Bert, Case, Gpt, one_warning, worst
from torch import nn
from torch.nn import functional as F

gradloom = support.gradloom
LENGTHS = (5, 9, 12, 16, 7, 20, 31, 23, 30, 11)  # two buckets of 16 and 32


class Masked(nn.Module):
    """An LSTM whose states are averaged where a mask is not 0, and a head for all of them."""

    def __init__(self, both=False):
        super().__init__()
        self.cells = nn.LSTM(5, 6, batch_first=True, bidirectional=both)
        self.head, self.config = nn.Linear(12 if both else 6, 3), types.SimpleNamespace(pad_token_id=7)

    def forward(self, x, mask, labels=None):
        states = self.cells(x)[0]
        mean = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        scores = self.head(states)
        loss = None if labels is None else F.cross_entropy(scores.flatten(0, 1), labels.flatten())
        return {"mean": self.head(mean), "scores": scores, "loss": loss}


class Encoder(nn.Module):
    """As Hugging Face's: embeddings by words and places, attention with a mask (or without), the first token's class."""

    def __init__(self, longest=64, dropout=0.0):
        super().__init__()
        self.words, self.places, self.drop = nn.Embedding(31, 16), nn.Embedding(longest, 16), nn.Dropout(dropout)
        self.qkv, self.out, self.classes = nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 3)
        self.config = types.SimpleNamespace(pad_token_id=2)

    def forward(self, input_ids, attention_mask=None, labels=None):
        x = self.words(input_ids) + self.places(torch.arange(input_ids.shape[1]))
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(1, 2) / 4.0
        if attention_mask is not None:
            scores = scores.masked_fill(attention_mask[:, None] == 0, torch.finfo(scores.dtype).min)
        x = x + self.drop(self.out(scores.softmax(-1) @ v))
        classes = self.classes(x[:, 0])
        return (classes, x) if labels is None else (F.cross_entropy(classes, labels), classes, x)


def tokens(n, t, *_):
    return torch.randint(1, 31, (n, t))


def gpt_call(n, t):
    return {"tokens": tokens(n, t), "labels": tokens(n, t)}


def bert_call(n, t):
    words = tokens(n, t)
    words[:, t - 2 :] = 0
    words[:, t // 2 :][torch.rand(n, t - t // 2) < 0.3] = 0
    return {"tokens": words, "labels": torch.randint(0, 3, (n,)), "word_labels": tokens(n, t)}


def masked_call(n, t):
    mask = (torch.arange(t) < torch.randint(1, t + 1, (n, 1))).double()
    return {"x": torch.randn(n, t, 5, dtype=torch.float64), "mask": mask, "labels": torch.randint(0, 3, (n, t))}


def encoder_call(n, t):
    mask = (torch.arange(t) < torch.randint(1, t + 1, (n, 1))).long()
    return {"input_ids": tokens(n, t), "attention_mask": mask, "labels": torch.randint(0, 3, (n,))}


NETWORKS = {"Gpt": (lambda: Gpt(longest=64), gpt_call), "Bert": (lambda: Bert(longest=64), bert_call), "Masked": (Masked, masked_call),
            "Encoder": (Encoder, encoder_call)}  # fmt: skip


def pair(make, buckets, dtype=torch.float64, **options):
    torch.manual_seed(5)
    model = make().to(dtype)
    return Module(copy.deepcopy(model), buckets=buckets, **options), model


def results_of(output):
    values = output.values() if isinstance(output, dict) else output if isinstance(output, tuple) else (output,)
    return [value for value in values if value is not None]


@contextlib.contextmanager
def plans(test, count):
    """So many plans are made inside, and the logger tells each."""
    with test.assertLogs("gradloom", "INFO") as logs:
        yield logs
    made = [line for line in logs.output if ": plan " in line]
    test.assertEqual(len(made), count, made)


class Numbers(Case):
    def agree(self, mine, theirs, call, tolerance=1e-9, where=""):
        """Results, shapes and gradients; of all results, also of those outside of a loss."""
        made = []
        for module in (mine, theirs):
            module.zero_grad()
            results = results_of(module(**call) if isinstance(call, dict) else module(*call))
            sum((r * torch.linspace(0.5, 1.5, r.numel(), dtype=r.dtype).view(r.shape)).sum() for r in results).backward()
            made.append(results)
        self.assertEqual([r.shape for r in made[0]], [r.shape for r in made[1]], where)
        self.assertTrue(all(r.is_contiguous() for r in made[0]))
        for a, b in zip(*made):
            self.assertLess(worst([a], [b]), tolerance, where)
        self.assert_same_gradients(mine, theirs, tolerance)

    def test_gradients_are_those_without_a_fill(self):
        for name, (make, call) in NETWORKS.items():
            mine, theirs = pair(make, [16, 32])
            with self.subTest(network=name), plans(self, 2):
                for t in LENGTHS:
                    self.agree(mine, theirs, call(3, t), where=f"{name} {t}")

    def test_multiples_batches_and_what_is_longer_than_all(self):
        mine, theirs = pair(lambda: Gpt(longest=64), {1: 16, 0: [4]})
        with plans(self, 4) as logs:  # of 4 x 16, 4 x 32, 4 x 48, 5 x 16
            for n, t in ((3, 5), (4, 16), (2, 9), (1, 33), (4, 31), (5, 7), (3, 40)):
                self.agree(mine, theirs, gpt_call(n, t), where=f"{n} {t}")
        self.assertIn("Gpt: plan 1: tokens 4x16, labels 4x16", logs.output[0])
        mine, theirs = pair(lambda: Gpt(longest=64), [8, 16])
        with plans(self, 2):
            for t in (16, 10, 20):
                self.agree(mine, theirs, gpt_call(2, t))

    def test_by_name_by_number_and_by_the_length_that_inputs_share(self):
        given = ([16, 32], {1: (32, 16)}, {name: {1: [16, 32]} for name in ("tokens", "word_labels")}, {0: {1: 16}, 2: {1: 16}},
                 Buckets({"tokens": {1: 16}, 2: {1: 16}}, fill={2: -100}))  # fmt: skip
        for buckets in given:
            mine, theirs = pair(lambda: Bert(longest=64), buckets)
            with plans(self, 2):
                for t in (5, 12, 20):
                    self.agree(mine, theirs, tuple(bert_call(3, t).values()))

    def test_what_does_not_share_the_length_is_left_alone(self):
        """Though it happens to have it once, here and there; the first of forward's parameters counts, not the first of the call."""

        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.line, self.other = nn.Linear(5, 5), nn.Linear(4, 5)

            def forward(self, x, mask, kinds):
                return (self.line(x) * mask[..., None]).sum(1) + self.other(kinds)

        mine, theirs = pair(Two, 8)
        with plans(self, 2):
            for t in (6, 3, 4, 9, 4):
                x = torch.randn(2, t, 5, dtype=torch.float64)
                self.agree(mine, theirs, {"kinds": torch.randn(2, 4, dtype=torch.float64), "mask": torch.ones(2, t, dtype=torch.float64), "x": x})

    def test_two_lengths_that_fall_together(self):
        """Which axis of a result follows which of them is seen when they part."""

        class Pair(nn.Module):
            def __init__(self):
                super().__init__()
                self.line = nn.Linear(5, 5)

            def forward(self, source, source_mask, target):
                read = (self.line(source) * source_mask[..., None]).sum(1, keepdim=True)
                return self.line(target) + read, self.line(source), self.line(target)[:, 1:]

        for check in (True, False):
            mine, theirs = pair(Pair, Buckets({"source": {1: 16}, "source_mask": {1: 16}, "target": {1: 16}}, check=check))
            with plans(self, 1):
                for s, t in ((6, 6), (6, 9), (11, 3), (4, 4)):
                    mask = torch.ones(2, s, dtype=torch.float64)
                    self.agree(mine, theirs, (torch.randn(2, s, 5).double(), mask, torch.randn(2, t, 5).double()), where=f"{s} {t}")

    def test_gradients_of_arguments_have_their_shape(self):
        mine, theirs = pair(Masked, 16)
        call = masked_call(3, 11)
        grads = []
        for module in (mine, theirs):
            x = call["x"].clone().requires_grad_()
            module(**{**call, "x": x})["loss"].backward()
            grads.append(x.grad)
        self.assertEqual(grads[0].shape, (3, 11, 5))
        self.assert_near(grads[0], grads[1], 1e-9)

    def test_modes(self):
        """Modes have plans of their own, two forwards may wait for one backward, and steps in between change nothing."""
        mine, theirs = pair(lambda: Encoder(dropout=0.5), [16, 32])
        calls = [encoder_call(3, t) for t in (5, 12, 20)]
        for module in (mine, theirs):
            module.eval()
        with torch.no_grad():
            for call in calls:
                self.assert_near(results_of(mine(**call)), results_of(theirs(**call)), 1e-9)
        losses = [[module(**call)[0] for call in calls] for module in (mine, theirs)]
        for each in losses:
            (each[0] * each[2] + each[1]).backward()
        self.assert_same_gradients(mine, theirs, 1e-9)
        mine.train()
        torch.manual_seed(1)
        first, second = (mine(**calls[0])[2] for _ in range(2))
        torch.manual_seed(1)
        self.assertTrue(torch.equal(mine(**calls[0])[2], first))
        self.assertFalse(torch.equal(first, second))
        for again in (copy.deepcopy(mine), pickle.loads(pickle.dumps(mine))):
            with plans(self, 1):
                for call in calls[:2]:
                    again.eval()(**call)

    def test_autocast(self):
        mine, theirs = pair(Encoder, 16, torch.float32)
        with plans(self, 1):
            for t in (5, 12):
                call, losses = encoder_call(3, t), []
                for module in (mine, theirs):
                    module.zero_grad()
                    with torch.autocast("cpu", torch.bfloat16):
                        loss, classes, x = module(**call)
                    self.assertEqual((classes.dtype, x.shape), (torch.bfloat16, (3, t, 16)))
                    loss.backward()
                    losses.append(loss)
                self.assertLess(worst(losses[:1], losses[1:]), 2e-2)
                self.assert_same_gradients(mine, theirs, 0.1)

    def test_in_distributed_data_parallel(self):
        from torch import distributed
        from torch.nn.parallel import DistributedDataParallel

        mine, theirs = pair(Masked, 16)
        with tempfile.TemporaryDirectory() as folder:
            distributed.init_process_group("gloo", rank=0, world_size=1, init_method="file://" + os.path.join(folder, "meet"))
            try:
                parallel = DistributedDataParallel(mine)
                for t in (5, 12, 20):
                    call = masked_call(2, t)
                    for module in (mine, theirs):
                        module.zero_grad()
                    for module in (parallel, theirs):
                        module(**call)["loss"].backward()
                    self.assert_same_gradients(mine, theirs, 1e-9)
            finally:
                distributed.destroy_process_group()


class Fills(Case):
    def test_what_fills(self):
        """Ids with the config's padding, labels with -100, the rest with 0; or what is said."""
        seen = []

        class Seen(nn.Module):
            def __init__(self):
                super().__init__()
                self.config = types.SimpleNamespace(pad_token_id=9)

            def forward(self, input_ids, attention_mask, tag_labels, where, weights):
                seen.append((input_ids, attention_mask, tag_labels, where, weights))
                return input_ids + attention_mask + tag_labels + where + weights

        call = {"input_ids": tokens(2, 3), "attention_mask": torch.ones(2, 3, dtype=torch.bool), "tag_labels": tokens(2, 3), "where": tokens(2, 3),
                "weights": torch.ones(2, 3)}  # fmt: skip
        for fill, wanted in ((None, [9, 0, -100, 0, 0]), ({"where": 5, "weights": 0.5, "input_ids": 4, 1: 1}, [4, 1, -100, 5, 0.5])):
            seen.clear()
            result = Module(Seen(), buckets=Buckets(4, fill=fill))(**call)
            self.assertTrue(torch.equal(result, Seen()(**call)))
            filled = next(row for row in seen if row[0].shape == (2, 4))
            self.assertEqual([float(t[0, 3]) for t in filled], wanted)
            self.assertTrue(all(torch.equal(t[:, :3], given) for t, given in zip(filled, call.values())))

    def test_words_that_do_not_fit(self):
        for given, text in ((0, "not 0"), ([], r"not \[\]"), ({1: "a"}, "not 'a'"), ({"input_ids": {-1: 8}}, "axes, counted from 0, not by -1"),
                            ({"input_ids": 8}, "not by 'input_ids'"), ({1.5: {1: 8}}, "not by 1.5"), (True, "not True")):  # fmt: skip
            with self.assertRaisesRegex(ValueError, text):
                Module(Encoder(), buckets=given)
        call = encoder_call(2, 5)
        for given, text in (({"inputs": {1: 8}}, "name 'inputs', which is none of the call's tensors: input_ids, attention_mask, labels"),
                            (Buckets(8, fill={"mask": 1}), "name 'mask'"), ({7: {1: 8}}, "name '7'"),
                            ({"labels": {1: 8}}, "name axis 1 of 'labels', which has 1")):  # fmt: skip
            with self.assertRaisesRegex(gradloom.UsageError, text):
                Module(Encoder(), buckets=given)(**call)
        del call["labels"]  # forward has it, this call has not
        self.assertEqual(Module(Encoder(), buckets={"input_ids": {1: 8}, "attention_mask": {1: 8}, "labels": {0: 2}})(**call)[1].shape, (2, 5, 16))


class Mean(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(5, 5)

    def forward(self, x):
        return self.line(x).mean(1), self.line(x)


class Checks(Case):
    def refused(self, make, call, text, buckets=8, **options):
        mine, theirs = pair(make, buckets, torch.float32)
        with self.assertRaisesRegex(gradloom.UsageError, text) as caught:
            mine(**call)
        self.assertNotIn("\n", str(caught.exception))
        return mine, theirs

    def test_a_mean_over_positions(self):
        mine, theirs = self.refused(Mean, {"x": torch.randn(2, 5, 5)}, r"buckets: filled up \(x from 5 to 8 on axis 1\) the result '0' differs by 0\.\d+ of its "
                                    r"largest number .* the call has no mask: pass one .*-100")  # fmt: skip
        x = torch.randn(2, 8, 5)  # as large as its bucket
        self.assert_near(mine(x), theirs(x))

    def test_attention_needs_a_mask(self):
        call = encoder_call(2, 5)
        del call["attention_mask"]
        self.refused(Encoder, call, "the result '0' differs by .* the call has no mask")
        self.refused(lambda: Masked(True), {k: v.float() if v.is_floating_point() else v for k, v in masked_call(2, 5).items()},
                     "the result 'mean' differs by .* heed the mask .* leave this axis out")  # fmt: skip

    def test_batch_normalization_in_training(self):
        def make():
            return nn.Sequential(nn.Conv1d(3, 4, 3, padding=1), nn.BatchNorm1d(4))

        mine, theirs = self.refused(make, {"input": torch.randn(4, 3, 6)}, r"'1' \(BatchNorm1d\) takes its statistics of the fill too", {0: 8})
        self.assertEqual([m.training for m in mine.modules()], [True] * 3)
        self.assertTrue(torch.equal(mine[1].running_mean, theirs[1].running_mean))
        self.assertEqual(int(mine[1].num_batches_tracked), 0)
        for module in (mine, theirs):
            module.eval()
        x = torch.randn(4, 3, 6)
        self.assert_near(mine(x), theirs(x))

    def test_a_bucket_beyond_the_model_and_an_input_that_is_left_out(self):
        self.refused(lambda: Encoder(longest=12), encoder_call(2, 9), "the forward raises IndexError: .* none is longer than what the model takes", 16)
        self.refused(Encoder, encoder_call(2, 5), "filled up .input_ids from 5 to 8 on axis 1. the forward raises RuntimeError: .* need the same buckets",
                     {"input_ids": {1: 8}})  # fmt: skip

    def test_what_cannot_be_cut(self):
        def of(forward):
            return lambda: type("Case", (Mean,), {"forward": forward})()

        x = {"x": torch.randn(2, 5, 5)}
        self.refused(of(lambda m, x: m.line(x).flatten(0, 1)), x, "the result 'x' is 10x5, and 16x5 where its inputs are filled up: which part")
        self.refused(of(lambda m, x: (m.line(x), x.shape[1])), x, "what it returns depends on the length")
        self.refused(of(lambda m, x: m.line(x / x.square().sum(-1, keepdim=True))), x, "the result has NaN, which the gradients of all would have")

    def test_once_per_bucket(self):
        calls = []

        class Counted(Gpt):
            def forward(self, tokens, labels=None):
                calls.append(torch._C._get_tracing_state() is None)
                return super().forward(tokens, labels)

        for check, wanted in ((True, [2, 0, 2, 0, 0]), (False, [2, 0, 0, 0, 0])):
            mine, _ = pair(lambda: Counted(longest=64), Buckets(16, check=check))
            found = []
            for t in (5, 7, 20, 31, 32):
                calls.clear()
                mine(**gpt_call(2, t))
                found.append(sum(calls))
            self.assertEqual(found, wanted)
        mean, theirs = pair(Mean, Buckets(8, check=False), torch.float32)
        x = torch.randn(2, 5, 5)
        found, wanted = mean(x), theirs(F.pad(x, (0, 0, 0, 3)))
        self.assert_near(found, (wanted[0], wanted[1][:, :5]))

    def test_a_forward_that_draws_at_rest_is_told(self):
        class Noisy(nn.Module):
            def __init__(self):
                super().__init__()
                self.line = nn.Linear(5, 5)

            def forward(self, x):
                return F.dropout(self.line(x), 0.5, True)

        state = torch.get_rng_state()
        mine, _ = pair(Noisy, 8, torch.float32)
        with one_warning(self, "draws random numbers in eval mode too: what buckets fill is not checked"):
            for t in (5, 9):
                self.assertEqual(mine(torch.randn(2, t, 5)).shape, (2, t, 5))
        self.assertFalse(torch.equal(state, torch.get_rng_state()))

    def test_a_module_that_was_changed_is_checked_again(self):
        mine, theirs = pair(lambda: nn.Sequential(nn.Linear(5, 5), nn.Identity()), 8, torch.float32)
        x = torch.randn(2, 5, 5)
        self.assert_near(mine(x), theirs(x))
        mine.module[1] = Mean()
        with self.assertRaisesRegex(gradloom.UsageError, "the result '0' differs"):
            mine(x)


class Steps(Case):
    def curves(self, make, batches, loss, buckets, **options):
        torch.manual_seed(5)
        theirs = make().double()
        mine = copy.deepcopy(theirs)
        optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-2) for model in (mine, theirs)]
        step = TrainStep(mine, loss, optimizers[0], buckets=buckets, precision="f64", **options)
        for group in batches:
            found = step.step(*group) if options else step.step(**group) if isinstance(group, dict) else step.step(*group)
            rows = group if options else (group,)
            optimizers[1].zero_grad()
            losses = [theirs(**row)["loss"] if loss is None else loss(theirs(*row[:-1]), row[-1]) for row in rows]
            (sum(losses) / len(losses)).backward()
            optimizers[1].step()
            self.assertAlmostEqual(found, float(sum(losses).detach() / len(losses)), delta=1e-9)
        step.update_module()
        self.assert_near(list(mine.parameters()), list(theirs.parameters()), 1e-8)

    def test_steps_are_those_without_a_fill(self):
        calls = [gpt_call(3, t) for t in LENGTHS]
        with plans(self, 2) as logs:
            self.curves(lambda: Gpt(longest=64), calls, None, [16, 32])
        self.assertIn("Gpt: plan 2: tokens 3x32, labels 3x32", logs.output[-1])
        with plans(self, 2):
            self.curves(Masked, [masked_call(3, t) for t in LENGTHS], None, [16, 32])

    def test_a_target_and_batches_of_one_step_that_differ(self):
        class Tags(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.head = nn.Embedding(31, 8), nn.Linear(8, 4)

            def forward(self, words):
                return self.head(self.words(words)).flatten(0, 1)

        def loss(scores, target):
            return F.cross_entropy(scores, target.flatten())

        with plans(self, 2):
            self.curves(Tags, [(tokens(3, t), torch.randint(0, 4, (3, t))) for t in LENGTHS], loss, 16)
        with plans(self, 1):
            self.curves(lambda: Gpt(longest=64), [(gpt_call(3, a), gpt_call(3, b)) for a, b in ((5, 12), (16, 3), (9, 9))], None, 16, accumulate=2)

    def test_a_loss_that_does_not_ignore_the_fill(self):
        model = Mean()
        step = TrainStep(model, lambda result, target: (result[1] - target).square().mean(), buckets=8)
        with self.assertRaisesRegex(gradloom.UsageError, r"filled up \(x from 5 to 8 on axis 1, target from 5 to 8 on axis 1\) the result differs by"):
            step.step(torch.randn(2, 5, 5), torch.randn(2, 5, 5))


if __name__ == "__main__":
    unittest.main()
