#!/usr/bin/env python3
"""What buckets save a loop whose batches have many lengths: plans, and seconds of all steps with what makes the plans.

    /usr/bin/python3 bench/buckets.py [--steps 200] [--layers 2] [--width 128] [--buckets 32,64,96,128] [--threads 2]
                                     [--variants module,module+buckets]

    eager           200 steps   3.5 s (6.8 s of processor time)
    module          200 steps   4.4 s (8.8 s of processor time)  169 plans, 0.4 s until they were there
    module+buckets  200 steps   1.7 s (3.4 s of processor time)  4 plans, 0.3 s until they were there

OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=0 in the environment keeps PyTorch's threads from spinning beside the engine's.

padding.py's encoder over 4,000 words, batches of 8 texts padded to the longest, of 17 to 128 tokens at random, AdamW. Each step runs all variants in turns:
PyTorch, Module and TrainStep without and with buckets. "until they were there": what the calls that made a plan took beyond the variant's median
step. GRADLOOM_LIBRARY names libgradloom.so; the one of build/release is found without.
"""

import argparse
import copy
import logging
import random
import statistics
import time

import padding
import torch
from gradloom.torch import Module, TrainStep


class Variant:
    def __init__(self, name, step):
        self.name, self.step, self.seconds, self.plans, self.making, self.processor = name, step, [], 0, [], 0.0

    def run(self, batch, made):
        before, start, processor = made[0], time.perf_counter(), time.process_time()
        loss = self.step(batch)
        self.seconds.append(time.perf_counter() - start)
        self.processor += time.process_time() - processor
        self.plans += made[0] - before
        if made[0] > before:
            self.making.append(len(self.seconds) - 1)
        return loss

    def told(self):
        usual = statistics.median(self.seconds)
        until = sum(self.seconds[index] - usual for index in self.making)
        plans = f"  {self.plans} plans, {until:.1f} s until they were there" if self.plans else ""
        return f"{self.name:16}{len(self.seconds)} steps {sum(self.seconds):5.1f} s ({self.processor:.1f} s of processor time){plans}"


def loop(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def step(batch):
        optimizer.zero_grad(set_to_none=True)
        loss = model(**batch)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def whole(model, buckets, plans):
    step = TrainStep(model, None, torch.optim.AdamW(model.parameters(), lr=1e-5), plans=plans, buckets=buckets)
    return lambda batch: step.step(**batch)


class Count(logging.Handler):
    def __init__(self):
        super().__init__()
        self.made = [0]

    def emit(self, record):
        self.made[0] += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--buckets", default="32,64,96,128")
    parser.add_argument("--plans", type=int, default=16, help="that each variant keeps")
    parser.add_argument("--variants", default="eager,module,module+buckets,step,step+buckets")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    padding.VOCABULARY = 4000
    draw, model, count = random.Random(1), padding.Encoder(options.layers, options.width), Count()
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0  # the losses are the same
    logger = logging.getLogger("gradloom")
    logger.setLevel(logging.INFO)
    logger.addHandler(count)
    buckets = [int(size) for size in options.buckets.split(",")]
    steps = {
        "eager": lambda own: loop(own),
        "module": lambda own: loop(Module(own, plans=options.plans)),
        "module+buckets": lambda own: loop(Module(own, plans=options.plans, buckets=buckets)),
        "step": lambda own: whole(own, None, options.plans),
        "step+buckets": lambda own: whole(own, buckets, options.plans),
    }
    variants = [Variant(name, steps[name](copy.deepcopy(model))) for name in options.variants.split(",")]
    losses = []
    for _ in range(options.steps):
        longest = draw.randint(17, 128)
        lengths = [longest] + [draw.randint(longest // 2, longest) for _ in range(padding.TEXTS - 1)]
        mask = (torch.arange(longest)[None] < torch.tensor(lengths)[:, None]).long()
        batch = {"tokens": torch.randint(padding.VOCABULARY, mask.shape) * mask, "mask": mask, "labels": torch.randint(2, (padding.TEXTS,))}
        losses.append([variant.run(batch, count.made) for variant in variants])
    for variant in variants:
        print(variant.told(), flush=True)
    print(f"losses are {max(abs(loss - row[0]) for row in losses for loss in row[1:]):.1g} apart")


if __name__ == "__main__":
    main()
