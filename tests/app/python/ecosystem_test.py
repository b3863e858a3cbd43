#!/usr/bin/env python3
"""gradloom.torch.Module in the loops of others: Lightning, DeepSpeed's ZeRO, GradScaler, Apex's lists; and FSDP, which is refused.

A test is skipped where its package is missing; all of it exits with 77 without PyTorch.
"""

import concurrent.futures
import importlib.util
import sys
import tempfile
import unittest

import support
import torch
from gradloom.torch import Module
from process_test import run
from support import Case, Cnn, mlp, twins, worst
from torch import nn

WRAPS = (Module, lambda module: module)


def needs(name):
    return unittest.skipUnless(importlib.util.find_spec(name), f"no {name}")


class Lightning(Case):
    @needs("lightning")
    def test_trainer(self):
        """With accumulation and clipping of its own."""
        import lightning

        class Task(lightning.LightningModule):
            def __init__(self, wrap):
                super().__init__()
                torch.manual_seed(1)
                self.net, self.losses = wrap(Cnn()), []

            def training_step(self, batch, index):
                loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
                self.losses.append(float(loss.detach()))
                return loss

            def configure_optimizers(self):
                return torch.optim.AdamW(self.parameters(), lr=1e-2)

        generator = torch.Generator().manual_seed(5)
        rows = torch.utils.data.TensorDataset(torch.randn(40, 3, 8, 8, generator=generator), torch.randint(0, 4, (40,), generator=generator))
        tasks = [Task(wrap) for wrap in WRAPS]
        for task in tasks:
            with tempfile.TemporaryDirectory() as folder:
                trainer = lightning.Trainer(max_steps=50, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                                            enable_model_summary=False, default_root_dir=folder, gradient_clip_val=1.0,
                                            accumulate_grad_batches=2)  # fmt: skip
                trainer.fit(task, torch.utils.data.DataLoader(rows, batch_size=4))
        mine, theirs = (task.losses for task in tasks)
        self.assertEqual((len(mine), len(theirs)), (100, 100))
        self.assertLess(theirs[-1], theirs[0])
        self.assertLess(max(abs(a - b) for a, b in zip(mine, theirs)), 1e-4)


class Sharded(unittest.TestCase):
    """Each in a process of its own: both packages keep states of a process."""

    @needs("deepspeed")
    def test_zero_1_and_2(self):
        script = """
            import os, sys
            rank, world = sys.argv[2:]
            os.environ.update(DS_ACCELERATOR="cpu", RANK=rank, WORLD_SIZE=world, LOCAL_RANK=rank, MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
            import deepspeed
            import torch.distributed
            torch.distributed.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=int(rank), world_size=int(world))
            deepspeed.init_distributed("gloo")
            for stage in (1, 2):
                curves = []
                for wrap in (Module, lambda module: module):
                    model = wrap(support.mlp())
                    settings = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0,
                                "zero_optimization": {"stage": stage}, "zero_allow_untested_optimizer": True}
                    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
                    engine = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)[0]
                    generator, losses = torch.Generator().manual_seed(5 + int(rank)), []
                    for _ in range(40):
                        loss = engine(torch.randn(4, 6, generator=generator)).square().mean()
                        engine.backward(loss)
                        engine.step()
                        losses.append(float(loss.detach()))
                    curves.append(losses)
                assert curves[1][-1] < 0.7 * curves[1][0], curves[1]
                assert max(abs(a - b) for a, b in zip(*curves)) < 1e-4, curves
                print("stage", stage)
        """
        for world in (1, 2):
            with self.subTest(processes=world), tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(world) as pool:
                started = [pool.submit(run, script, folder + "/store", str(rank), str(world)) for rank in range(world)]
                for done in (one.result() for one in started):
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertIn("stage 2", done.stdout)

    @needs("torch.distributed.fsdp")
    def test_fsdp_is_refused(self):
        script = """
            import sys
            import torch.distributed as dist
            from torch.distributed.fsdp import FullyShardedDataParallel
            dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)

            def refused(module):
                try:
                    module(torch.randn(4, 6))
                except support.gradloom.UnsupportedError as error:
                    assert "DistributedDataParallel" in str(error) and "\\n" not in str(error), error
                else:
                    assert False, module

            for original in (False, True):
                device = torch.device("cpu")
                refused(FullyShardedDataParallel(Module(support.mlp()), device_id=device, use_orig_params=original))
                refused(FullyShardedDataParallel(Module(torch.nn.Linear(6, 3)), device_id=device, use_orig_params=original))
                refused(Module(FullyShardedDataParallel(support.mlp(), device_id=device, use_orig_params=original)))
                refused(FullyShardedDataParallel(torch.nn.Sequential(Module(support.mlp())), device_id=device, use_orig_params=original))
            from torch.distributed.fsdp import fully_shard
            module = Module(support.mlp())
            fully_shard(module, mesh=dist.init_device_mesh("cpu", (1,)))
            refused(module)
            print("refused")
        """
        if tuple(int(n) for n in torch.__version__.split(".")[:2]) < (2, 6):
            self.skipTest("this torch shards on GPUs alone")
        with tempfile.TemporaryDirectory() as folder:
            done = run(script, folder + "/store")
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "refused"), done.stderr)


class Precision(Case):
    @unittest.skipUnless(hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler"), "this torch's GradScaler is of GPUs alone")
    def test_grad_scaler(self):
        """Scales grow and, after an infinite gradient whose step is skipped, shrink as beside PyTorch."""
        pair = twins(mlp)
        scalers = [torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=5) for _ in pair]
        optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in pair]
        generator, scales = torch.Generator().manual_seed(5), []
        for step in range(20):
            x = torch.randn(4, 6, generator=generator)
            if step == 7:
                x[0, 0] = float("inf")
            for module, optimizer, scaler in zip(pair, optimizers, scalers):
                optimizer.zero_grad()
                scaler.scale(module(x).square().mean()).backward()
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(module.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
            scales.append(scalers[0].get_scale())
            self.assertEqual(scales[-1], scalers[1].get_scale())
            self.assert_near(list(pair[0].parameters()), list(pair[1].parameters()))
        self.assertLess(scales[7], scales[6])
        self.assertGreater(max(scales), 1024.0)

    def test_apexs_lists_by_name(self):
        """O1 keeps layer normalization and GELU in f32, O2 has them in 16 bits: results differ from each other and, little, from f32."""
        torch.manual_seed(2)
        plain = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8))
        x, results = torch.randn(16, 64), {}
        exact = plain(x)
        expected = torch.autograd.grad(exact.square().mean(), list(plain.parameters()))
        for low, most in (("bf16", 5e-2), ("f16", 5e-3)):
            for name in ("O1", "O2"):
                module = Module(plain, recipe={"gradloom_recipe": 1, "passes": [], "precision": f"{low}{{list={name}}}"})
                result = results[low, name] = module(x)
                self.assertEqual(result.dtype, torch.float32)
                self.assertTrue(1e-6 < worst([result], [exact]) < most, (low, name))
                scale = 1024 if low == "f16" else 1
                gradients = torch.autograd.grad(result.square().mean() * scale, list(module.parameters()))
                self.assertLess(worst([g / scale for g in gradients], expected), most, (low, name))
            self.assertFalse(torch.equal(results[low, "O1"], results[low, "O2"]))


if __name__ == "__main__":
    support.torch.set_num_threads(1)
    sys.exit(unittest.main(verbosity=1))
