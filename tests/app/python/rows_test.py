#!/usr/bin/env python3
"""Rows that a mask chooses: mixtures of experts as a Python loop, and what is refused of such rows.

GRADLOOM_LIBRARY names the library, GRADLOOM_PROGRAM the program. Exits with 77 (skipped) where there is no PyTorch.
"""

import copy
import json
import os
import subprocess
import tempfile
import unittest

import support
import torch
from gradloom.torch import Module, TrainStep, capture
from support import worst
from torch import nn
from torch.nn import functional as F

PROGRAM = os.environ.get("GRADLOOM_PROGRAM", "gradloom")


class Expert(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        return self.down(F.silu(self.up(x)))


class Mixture(nn.Module):
    """style: how the experts' loop is written."""

    def __init__(self, style, width=6, hidden=10, experts=4, chosen=2):
        super().__init__()
        self.style, self.chosen, self.gate = style, chosen, nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(Expert(width, hidden) for _ in range(experts))

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        weights, picked = torch.topk(F.softmax(self.gate(flat), -1), self.chosen, -1)
        return self.style(self.experts, flat, weights / weights.sum(-1, keepdim=True), picked).reshape(x.shape)


def index_add(experts, x, weights, picked):
    """Hugging Face's Mixtral before transformers 5."""
    out = torch.zeros(x.shape, dtype=x.dtype, device=x.device)
    mask = F.one_hot(picked, num_classes=len(experts)).permute(2, 1, 0)
    for number in range(len(experts)):
        slot, row = torch.where(mask[number])
        state = x[None, row].reshape(-1, x.shape[-1])
        state = experts[number](state) * weights[row, slot, None]
        out.index_add_(0, row, state.to(x.dtype))
    return out


def added_to(experts, x, weights, picked):
    """Mistral's own."""
    out = torch.zeros_like(x)
    for number, expert in enumerate(experts):
        row, slot = torch.where(picked == number)
        out[row] += weights[row, slot, None] * expert(x[row])
    return out


def masked(experts, x, weights, picked):
    """DeepSeek's training code."""
    copies = x[:, None].expand(-1, picked.shape[1], -1).reshape(-1, x.shape[-1])
    out, flat = torch.empty_like(copies), picked.reshape(-1)
    for number, expert in enumerate(experts):
        out[flat == number] = expert(copies[flat == number])
    return (out.view(*weights.shape, -1) * weights.unsqueeze(-1)).sum(1)


def guarded(experts, x, weights, picked):
    out, mask = torch.zeros_like(x), F.one_hot(picked, num_classes=len(experts)).permute(2, 0, 1)
    for number, expert in enumerate(experts):
        row, slot = torch.where(mask[number])
        if row.numel() > 0:
            state = expert(x[row]) * weights[row, slot].unsqueeze(-1)
            out.index_add_(0, row, state)
    return out


def continued(experts, x, weights, picked):
    out = torch.zeros_like(x)
    for number, expert in enumerate(experts):
        hit = picked == number
        if not hit.any() or (hit.sum() == 0):
            continue
        row, slot = torch.where(hit)
        if row.shape[0] == 0:
            continue
        out[row] += expert(x[row]) * weights[row, slot].view(row.shape[0], 1)
    return out


def any_of(experts, x, weights, picked):
    """Of two masks with the same elements, one of which has another shape."""
    full = torch.zeros(x.shape[0], len(experts), dtype=x.dtype).scatter(-1, picked, weights)
    out = torch.zeros(1, *x.shape, dtype=x.dtype)
    for number, expert in enumerate(experts):
        hit = (picked == number).any(-1)[None]
        flat = hit.view(-1)
        if flat.any():
            state = expert(x[flat])
            out[hit] += (state * full[flat, number].unsqueeze(1)).squeeze(1)
    return out


def nonzero(experts, x, weights, picked):
    out, flat = torch.zeros_like(x), picked.flatten()
    for number, expert in enumerate(experts):
        place = (flat == number).nonzero().squeeze(-1)
        row = place // picked.shape[1]
        out = out.index_add(0, row, expert(x.index_select(0, row)) * weights.flatten()[place].unsqueeze(-1))
    return out


def over_those_hit(experts, x, weights, picked):
    """Mixtral of transformers 4.57."""
    out = torch.zeros(x.shape, dtype=x.dtype, device=x.device)
    mask = F.one_hot(picked, num_classes=len(experts)).permute(2, 1, 0)
    for number in torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero():
        slot, row = torch.where(mask[number].squeeze(0))
        state = x[None, row].reshape(-1, x.shape[-1])
        out.index_add_(0, row, (experts[number](state) * weights[row, slot, None]).to(x.dtype))
    return out


def over_numbers_hit(experts, x, weights, picked):
    """As transformers 5 has it without grouped products."""
    out = torch.zeros_like(x)
    with torch.no_grad():
        mask = F.one_hot(picked, num_classes=len(experts)).permute(2, 1, 0)
        hit = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()
    for number in hit:
        number = number[0]
        if number == len(experts):
            continue
        slot, row = torch.where(mask[number])
        out.index_add_(0, row, experts[number](x[row]) * weights[row, slot, None])
    return out


STYLES = (index_add, added_to, masked, guarded, continued, any_of, nonzero, over_those_hit, over_numbers_hit)


old = unittest.skipIf(int(torch.__version__.partition(".")[0]) < 2, "this PyTorch shows no mode what [] reads and writes")


@old
class Gradients(support.Case):
    def check(self, style, dtype, tolerance, **sizes):
        torch.manual_seed(4)
        model = Mixture(style, **sizes).to(dtype)
        mine, theirs = Module(copy.deepcopy(model)), model
        for shape in ((2, 7, 6), (2, 7, 6), (3, 5, 6), (1, 2, 6), (1, 1, 6)):  # the last leave experts without a row
            x = torch.randn(shape, dtype=dtype)
            given = [x.clone().requires_grad_() for _ in range(2)]
            results = [m(g) for m, g in zip((mine, theirs), given)]
            scale = torch.randn(shape, dtype=dtype)
            for m, result in zip((mine, theirs), results):
                m.zero_grad(set_to_none=False)
                (result * scale).sum().backward()
            self.assert_near(results[0], results[1], tolerance)
            self.assert_near(given[0].grad, given[1].grad, tolerance)
            for (name, p), q in zip(mine.named_parameters(), theirs.parameters()):
                if p.grad is None:
                    self.assertIsNone(q.grad, name)
                    continue
                wanted = torch.zeros_like(q) if q.grad is None else q.grad  # of an expert that an `if` skipped
                self.assertLessEqual(worst([p.grad], [wanted], 1e-2), tolerance, name)

    def test_float64(self):
        for style in STYLES:
            with self.subTest(style.__name__):
                self.check(style, torch.float64, 1e-9)
        self.check(index_add, torch.float64, 1e-9, experts=9, chosen=3)
        self.check(added_to, torch.float64, 1e-9, experts=5, chosen=1)

    def test_float32(self):
        for style in STYLES:
            with self.subTest(style.__name__):
                self.check(style, torch.float32, 1e-4)

    def test_under_autocast(self):
        torch.manual_seed(4)
        model = Mixture(index_add, hidden=32)
        mine, theirs = Module(copy.deepcopy(model)), model
        x = torch.randn(2, 9, 6)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = mine(x).float().pow(2).sum()
        loss.backward()
        theirs(x).pow(2).sum().backward()
        for (name, p), q in zip(mine.named_parameters(), theirs.parameters()):
            if "gate" not in name:  # a choice that rounding turns has another gradient
                self.assertLess(worst([p.grad], [q.grad], 1e-2), 0.1, name)

    def test_masks_with_several_of_a_rows_picks(self):
        def style(mask_of):
            def sums(experts, x, weights, picked):
                out = torch.zeros_like(x)
                row, slot = torch.where(mask_of(picked))
                out.index_add_(0, row, experts[0](x[row]) * weights[row, slot, None])
                return out

            return sums

        def others(picked):
            return F.one_hot(picked, 4).permute(2, 0, 1)[1] == 0

        for mask_of in (lambda picked: picked != 1, lambda picked: picked, lambda picked: picked > 0, others):
            self.check(style(mask_of), torch.float64, 1e-9, chosen=3)

    def test_numbers_that_are_not_chosen_do_no_harm(self):
        class Logs(nn.Module):
            def forward(self, x):
                out = torch.zeros_like(x)
                out[x > 0] = torch.log(x[x > 0])
                return out

        x = torch.tensor([[-1.0, 0.0, 2.0], [3.0, -4.0, 0.5]], dtype=torch.float64)
        for values in (x, -x.abs()):  # of the second none is chosen
            given = [values.clone().requires_grad_() for _ in range(2)]
            mine, theirs = Module(Logs())(given[0]), Logs()(given[1])
            mine.sum().backward()
            theirs.sum().backward()
            self.assert_near(mine, theirs, 1e-12)
            self.assert_near(given[0].grad, given[1].grad, 1e-12)


class Operator(support.Case):
    def test_index_add(self):
        """Of places that come twice, along each axis."""
        for axis in (0, 1, 2):
            for alpha in (1, 0.5):
                torch.manual_seed(axis)
                x, index = torch.randn(3, 4, 5, dtype=torch.float64), torch.randint(3, (7,))
                more = torch.randn([7 if place == axis else size for place, size in enumerate(x.shape)], dtype=torch.float64)

                class Adds(nn.Module):
                    def forward(self, x, index, more):
                        return x.index_add(axis, index, more, alpha=alpha)

                given = [[t.clone().requires_grad_() for t in (x, more)] for _ in range(2)]
                results = [run(a, index, b) for run, (a, b) in zip((Module(Adds()), Adds()), given)]
                for result in results:
                    (result * result).sum().backward()
                self.assert_near(results[0], results[1], 1e-12)
                self.assert_near([t.grad for t in given[0]], [t.grad for t in given[1]], 1e-12)


@old
class Refused(support.Case):
    """What would be another number than PyTorch's is an error that says so, and runs in PyTorch by fallback."""

    def check(self, body, reason):
        class Holder(nn.Module):
            def forward(self, x):
                return body(x, (x[:, 0] > 0))

        torch.manual_seed(1)
        x = torch.randn(6, 3)
        with self.assertRaisesRegex(support.gradloom.UnsupportedError, reason):
            Module(Holder())(x)
        with support.one_warning(self, reason.partition(" (")[0]):
            mine = Module(Holder(), fallback="torch")(x)
        self.assertEqual(mine.tolist(), Holder()(x).tolist())

    def test_rows_that_meet(self):
        def softmax(x, hit):
            out = torch.zeros_like(x)
            out[hit] = F.softmax(x[hit], 0)
            return out

        self.check(lambda x, hit: x[hit].sum(0), "sum of rows that a mask chooses does not keep them apart")
        self.check(softmax, "softmax of rows that a mask chooses does not keep them apart")
        self.check(lambda x, hit: torch.cat([x, x[hit].cumsum(0)])[:4], "cumsum of rows that a mask chooses does not keep them apart")

    def test_their_number(self):
        self.check(lambda x, hit: x * torch.where(hit)[0].shape[0], "Python computes with the number of rows")
        self.check(lambda x, hit: x * (torch.where(hit)[0].numel() + 1), "Python computes with the number of rows")
        self.check(lambda x, hit: x * len(torch.where(hit)[0]), "Python computes with the number of rows")

    def test_what_an_if_does_besides(self):
        def counts(x, hit):
            used, rows = 0, torch.where(hit)[0]
            if rows.numel() > 0:
                used += 1
            return x * used

        def lists(x, hit):
            used, rows = [], torch.where(hit)[0]
            if rows.numel() > 0:
                used.append(1)
            return x * len(used)

        def fills(x, hit):
            out = torch.zeros_like(x)
            if hit.any():
                out[0] = 1.0
            return out

        def others(x, hit):
            out, rows = torch.zeros_like(x), torch.where(x[:, 1] > 0)[0]
            if hit.any():
                out.index_add_(0, rows, x[rows])
            return out

        def adds_for_each(x, hit):
            out = torch.zeros_like(x)
            for _ in torch.where(hit)[0]:
                out.add_(1)
            return out

        def counts_each(x, hit):
            used = 0
            for _ in torch.where(hit)[0]:
                used += 1
            return x * used

        def of_another_turn(x, hit):
            out, before = torch.zeros_like(x), torch.where(x[:, 1] > 0)[0]
            for number in torch.where(hit)[0]:
                out[before] += x[before]
                before = torch.where(x[:, 2] > number)[0]
            return out

        for body in (counts, lists, counts_each, of_another_turn):
            self.check(body, "asks what rows a mask chooses, for more than what to write into their places")
        for body in (fills, others, adds_for_each):
            self.check(body, "are other numbers than these rows")


class Jobs(support.Case):
    @old
    def test_train_step(self):
        torch.manual_seed(4)
        theirs = Mixture(added_to).double()
        model = copy.deepcopy(theirs)
        loss = lambda result, target: F.mse_loss(result, target)  # noqa: E731
        optimizer = torch.optim.AdamW(theirs.parameters(), lr=1e-2)
        step = TrainStep(model, loss, torch.optim.AdamW(model.parameters(), lr=1e-2))
        for seed in range(12):
            generator = torch.Generator().manual_seed(seed)
            batch = torch.randn(2, 8, 6, generator=generator).double(), torch.randn(2, 8, 6, generator=generator).double()
            optimizer.zero_grad()
            wanted = loss(theirs(batch[0]), batch[1])
            wanted.backward()
            optimizer.step()
            self.assert_near(torch.tensor(float(step.step(*batch)), dtype=torch.float64), wanted.detach(), 1e-9)

    @old
    def test_captured(self):
        """The command's passes change nothing, and its step is one of standard operators."""
        torch.manual_seed(4)
        with tempfile.TemporaryDirectory() as folder:
            recipe = capture(Mixture(index_add), [(torch.randn(2, 8, 6), torch.randn(2, 8, 6)) for _ in range(3)], F.mse_loss, "adamw{lr=1e-2}", folder, steps=6)

            def run(*words):
                done = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
                return done.stdout

            self.assertIn("EQUAL", run("verify", "--recipe", recipe))
            losses = [json.loads(line)["loss"] for line in run("train", "--recipe", recipe, "--json").splitlines() if '"step"' in line]
            self.assertEqual(len(losses), 6)
            self.assertLess(losses[-1], losses[0])

    def test_data_that_tell_how_many_there_are(self):
        """A job of one batch: rows that meet, chosen by labels that are the same in each step."""

        class Labelled(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(6, 5)

            def forward(self, x, labels):
                hit = labels != -100
                return F.cross_entropy(self.head(x)[hit], labels[hit])

        torch.manual_seed(4)
        labels = torch.tensor([1, -100, 3, 0, -100, -100, 2])
        with tempfile.TemporaryDirectory() as folder:
            recipe = capture(Labelled(), (torch.randn(7, 6), labels), optimizer="sgd{lr=0.1}", folder=folder, steps=2)
            done = subprocess.run([PROGRAM, "train", "--recipe", recipe], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)


class Older(support.Case):
    @unittest.skipIf(int(torch.__version__.partition(".")[0]) >= 2, "this PyTorch is new enough")
    def test_they_are_refused(self):
        with self.assertRaisesRegex(support.gradloom.UnsupportedError, "needs in Python how many elements where gives"):
            Module(Mixture(added_to))(torch.randn(2, 7, 6))


if __name__ == "__main__":
    unittest.main()
