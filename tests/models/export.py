#!/usr/bin/env python3
"""Writes the four test models of this folder, their reference gradients and their 50-step training references.

    /usr/bin/python3 tests/models/export.py [--only NAME] [--out FOLDER]

Needs Debian's python3-torch, python3-onnx and python3-sklearn; the repository's build and tests need none of them, because
everything written here is committed. Running it again on the same machine writes the same bytes. For each model NAME
(defined in modules.py):

NAME/model.onnx
    Exported for training (training mode, no constant folding, dynamic axis `batch`); output 0 is `loss`, the mean
    cross-entropy of output 1, `logits`, against the input `labels`. Initializer names are the parameter names.
NAME/test_data_set_0/
    One small batch: inputs, outputs, and grad_N.pb, the gradient of the loss by every parameter and float input. Computed in
    float64 from the file's float32 weights, then rounded to float32.
NAME/batches.npz
    Five batches (arrays named after the graph inputs, the leading axis is the batch number), cycled by the runs below.
NAME/parity.json
    Losses of training runs in float64 by PyTorch (optimizers it lacks: optimizers.py) on those batches: {"runs": [{optimizer, loss, seed, accumulate, clip_norm,
    losses, and where there are any clip_value, schedule, group}, ...]}, options spelled as on the command line, plus the check batch's loss and gradient norms in float64.
    Clipping is torch.nn.utils.clip_grad_norm_'s: gradients are multiplied by min(1, limit / (norm + 1e-6)), then clip_grad_value_'s. With `accumulate` K
    a step consumes the next K batches; its gradient and its loss are their means.
cnn-digits/digits.npz
    The UCI digits as 56 batches of 32, for training at length.

Dropout follows the engine's definition, not PyTorch's generator: element i (row-major) of a Dropout node's output at
training step s (1-based; 0 in test_data_set_0) is kept if u >= ratio and then multiplied by 1 / (1 - ratio), where
u = (w >> 8) * 2^-24, w = word i % 4 of Philox4x32-10 with the counter {lo(i / 4), hi(i / 4), lo(s), hi(s)} and the key
{lo(k), hi(k)}, k = seed XOR (FNV-1a 64 of the ONNX node's name). Philox: Salmon et al., "Parallel random numbers: as easy
as 1, 2, 3", SC 2011.
"""

import argparse
import contextlib
import copy
import fnmatch
import hashlib
import inspect
import json
import math
import os
import sys
import time
import warnings
from unittest import mock

import numpy as np
import onnx
import onnx.checker
import onnx.numpy_helper
import torch
from torch.optim import lr_scheduler

sys.dont_write_bytecode = True
import modules  # noqa: E402
import optimizers  # noqa: E402

FOLDER = os.path.dirname(os.path.abspath(__file__))
LOSS_OPTION = "ce:logits,labels"
BATCHES = 5
STEPS = 50


# ---- dropout by Philox -------------------------------------------------------------------------------------------------


def fnv1a_64(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def philox4x32_10(counter, key):
    """Ten rounds over four uint64 arrays holding 32-bit words; key is two integers. Returns four arrays of words."""
    mask, c, (k0, k1) = np.uint64(0xFFFFFFFF), list(counter), key
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [
            (p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0),
            p1 & mask,
            (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1),
            p0 & mask,
        ]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def check_philox():
    """The known answers published with the generator (Random123, kat_vectors)."""
    for word, key, expected in [
        (0, 0, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        (0xFFFFFFFF, 0xFFFFFFFF, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    ]:
        words = philox4x32_10([np.array([word], np.uint64)] * 4, (key, key))
        assert [int(w[0]) for w in words] == expected, "Philox4x32-10 does not match its known answers"


def uniforms(count, seed, step, node_name):
    """The first `count` numbers in [0, 1) of one node's stream at one step."""
    key = seed ^ fnv1a_64(node_name)
    block = np.arange((count + 3) // 4, dtype=np.uint64)
    low = np.uint64(0xFFFFFFFF)
    counter = [
        block & low,
        block >> np.uint64(32),
        np.full_like(block, step & 0xFFFFFFFF),
        np.full_like(block, step >> 32),
    ]
    words = np.stack(philox4x32_10(counter, (key & 0xFFFFFFFF, key >> 32)), axis=1).reshape(-1)[:count]
    return (words >> np.uint64(8)).astype(np.float64) * 2.0**-24


class DropoutMasks:
    """Stands for F.dropout: the n-th call of a forward pass takes the mask of the file's n-th Dropout node."""

    def __init__(self, graph, seed):
        constants = {n.output[0]: onnx.numpy_helper.to_array(n.attribute[0].t) for n in graph.node if n.op_type == "Constant"}
        nodes = [node for node in graph.node if node.op_type == "Dropout"]
        self.names = [node.name for node in nodes]
        self.ratios = [float(constants[node.input[1]]) for node in nodes]
        assert all(self.names) and len(set(self.names)) == len(self.names), "Dropout nodes need distinct names"
        self.seed = seed
        self.begin(0)

    def begin(self, step):
        self.step, self.calls = step, 0

    def end(self):
        assert self.calls == len(self.names), "as many dropout calls as Dropout nodes"

    def __call__(self, x, p=0.5, training=True, inplace=False):
        assert training and p == self.ratios[self.calls], "the module's ratio is the file's"
        u = uniforms(x.numel(), self.seed, self.step, self.names[self.calls]).reshape(x.shape)
        self.calls += 1
        return x * torch.from_numpy((u >= p) / (1.0 - p)).to(x.dtype)


def gelu_of_file(x, approximate="none"):
    """GELU with the constants an exported file holds (float32) and in the order of its operations."""
    if approximate == "tanh":
        beta, kappa = modules.as_float32(math.sqrt(2 / math.pi)), modules.as_float32(0.044715)
        return 0.5 * (x * (1.0 + torch.tanh(beta * (x + kappa * (x * (x * x))))))
    return x * (torch.erf(x / modules.as_float32(math.sqrt(2))) + 1.0) * 0.5


@contextlib.contextmanager
def semantics_of_file(masks):
    functional = torch.nn.functional
    with mock.patch.object(functional, "dropout", masks), mock.patch.object(functional, "gelu", gelu_of_file):
        yield


# ---- data --------------------------------------------------------------------------------------------------------------


def text_batches(batch, context=64):
    """Windows of this repository's own text (modules.py) with the following bytes as labels."""
    with open(os.path.join(FOLDER, "modules.py"), "rb") as file:
        text = np.frombuffer(file.read(), np.uint8).astype(np.int64)
    starts = np.arange(BATCHES * batch) * (context + 1)
    assert starts[-1] + context < len(text), "modules.py is too short"
    windows = np.stack([text[start : start + context + 1] for start in starts]).reshape(BATCHES, batch, context + 1)
    return {"tokens": windows[..., :-1].copy(), "labels": windows[..., 1:].copy()}


def topic_batches(batch, context=32, vocabulary=256, classes=4):
    """Sequences whose words come from a Zipf law over the vocabulary, rotated by the class: learnable, not trivial."""
    random = np.random.RandomState(2)
    labels = random.randint(0, classes, (BATCHES, batch))
    words = (random.zipf(1.3, (BATCHES, batch, context)) - 1) % vocabulary
    return {"tokens": (words + labels[..., None] * (vocabulary // classes)) % vocabulary, "labels": labels}


def digits():
    """All 1797 UCI digits in a fixed shuffled order: images scaled to [0, 1] and labels."""
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.RandomState(3).permutation(len(data.target))
    return (data.images[order] / 16).astype(np.float32), data.target[order].astype(np.int64)


def digit_batches(name, shape, batch, batches=BATCHES):
    images, labels = digits()
    count = batch * batches
    return {name: images[:count].reshape(batches, batch, *shape), "labels": labels[:count].reshape(batches, batch)}


# ---- the models and their runs -----------------------------------------------------------------------------------------


OPTIMIZERS = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "lamb": optimizers.Lamb,
    "adagrad": torch.optim.Adagrad,
    "lion": optimizers.Lion,
    "adamw_hf": optimizers.AdamWOfHuggingFace,
    "adafactor": optimizers.Adafactor,
    "rmsprop": torch.optim.RMSprop,
    "nadam": optimizers.NAdam,
    "radam": torch.optim.RAdam,
    "adadelta": torch.optim.Adadelta,
}


def run(optimizer, steps=STEPS, accumulate=1, clip_norm=0.0, clip_value=0.0, schedule=None, group=(), **options):
    """group: (glob, options) pairs, of which the first that fits a parameter is its. schedule: (text, make), make(optimizer)."""
    spec = {"optimizer": optimizer, "options": options, "steps": steps, "accumulate": accumulate, "clip_norm": clip_norm}
    return {**spec, "clip_value": clip_value, "schedule": schedule, "group": group}


def warmed_up(steps, make):
    """A linear warm-up, then what make(optimizer) returns."""

    def both(optimizer):
        first = lr_scheduler.LinearLR(optimizer, start_factor=1 / steps, total_iters=steps - 1)
        return lr_scheduler.SequentialLR(optimizer, [first, make(optimizer)], milestones=[steps])

    return both


ADAMW = run("adamw", lr=1e-3)
MODELS = {
    "gpt-char": dict(make=modules.GptChar, opset=17, data=lambda batch: text_batches(batch), batch=4, check=2, runs=[ADAMW]),
    "bert-tiny": dict(make=modules.BertTiny, opset=13, data=lambda batch: topic_batches(batch), batch=8, check=4, runs=[ADAMW]),
    "cnn-digits": dict(
        make=modules.CnnDigits,
        opset=17,
        data=lambda batch: digit_batches("image", (1, 8, 8), batch),
        batch=8,
        check=4,
        runs=[run("sgd", lr=0.005, momentum=0.9)],
    ),
    "mlp": dict(
        make=modules.Mlp,
        opset=17,
        data=lambda batch: digit_batches("x", (64,), batch),
        batch=8,
        check=4,
        runs=[
            run("adam", lr=1e-3),
            run("sgd", steps=10, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-2),
            run("adamw", steps=10, clip_norm=0.5, lr=1e-3),
            run("adamw", steps=10, accumulate=4, lr=1e-3),
            run("lamb", steps=10, lr=1e-2, weight_decay=0.01),
            run("sgd", steps=100, lr=0.02, momentum=0.9, dampening=0.1, weight_decay=1e-2),
            run("adam", steps=100, lr=1e-3, weight_decay=1e-2),
            run("adamw", steps=100, lr=1e-3, weight_decay=0.1),
            run("lamb", steps=100, lr=1e-2, weight_decay=0.01),
            run("adagrad", steps=100, lr=1e-2),
            run("adagrad", steps=100, lr=2e-2, lr_decay=1e-2, weight_decay=1e-3, initial_accumulator_value=0.1),
            run("lion", steps=100, lr=3e-4, weight_decay=0.1),
            run("adamw_hf", steps=100, lr=1e-3, weight_decay=0.1),
            run("adamw_hf", steps=100, lr=1e-3, correct_bias=False),
            run("adafactor", steps=100, lr=1),
            run("adafactor", steps=100, lr=3e-3, relative_step=False, scale_parameter=False, beta1=0.9, weight_decay=0.1),
            run("adafactor", steps=100, lr=100, warmup_init=True, clip_threshold=0.5, decay_rate=-0.5),
            run("adam", steps=100, lr=1e-2, weight_decay=1e-2, amsgrad=True),
            run("adamw", steps=100, lr=3e-3, amsgrad=True),
            run("rmsprop", steps=100, lr=1e-3, weight_decay=1e-2),
            run("rmsprop", steps=100, lr=3e-4, alpha=0.9, eps=1e-3, momentum=0.9, centered=True),
            run("nadam", steps=100, lr=2e-3),
            run("nadam", steps=100, lr=1e-3, momentum_decay=0.1, weight_decay=1e-2),
            run("radam", steps=100, lr=1e-2, weight_decay=1e-2),
            run("adadelta", steps=100, lr=1, weight_decay=1e-3),
            run("adadelta", steps=100, lr=0.5, rho=0.95, eps=1e-5),
            run("adamw", steps=20, lr=1e-3, clip_value=0.01, clip_norm=0.4,
                group=[("*bias", {"weight_decay": 0, "lr": 2e-3}), ("layers.0.*", {"weight_decay": 0.3})]),  # fmt: skip
            run("sgd", steps=20, lr=0.1, schedule=("one-cycle{total=20}", lambda o: lr_scheduler.OneCycleLR(
                o, max_lr=0.1, total_steps=20, cycle_momentum=False))),  # fmt: skip
            run("sgd", steps=20, lr=0.1, group=[("layers.1.*", {"lr": 0.02})], schedule=(
                "polynomial{warmup=4,total=19,power=2}", warmed_up(4, lambda o: lr_scheduler.PolynomialLR(o, total_iters=15, power=2)))),  # fmt: skip
        ],
    ),
}


def export_onnx(model, inputs, labels, path, opset):
    """Exports `model(*inputs, labels)` for training with outputs `loss` and `logits`; inputs is {name: tensor}."""
    names = list(inputs) + ["labels"]
    # The exporter that newer versions take by default folds BatchNorm into convolutions, in training too.
    newer = inspect.signature(torch.onnx.export).parameters
    legacy = {"dynamo": False} if "dynamo" in newer else {}
    with warnings.catch_warnings():
        # BatchNorm's batch counter is not part of the ONNX operator; the exporter says so for each one.
        warnings.filterwarnings("ignore", message=".*num_batches_tracked.*")
        torch.onnx.export(
            model.train(),
            (*inputs.values(), labels),
            path,
            input_names=names,
            output_names=["loss", "logits"],
            dynamic_axes={name: {0: "batch"} for name in names + ["logits"]},
            training=torch.onnx.TrainingMode.TRAINING,
            do_constant_folding=False,
            opset_version=opset,
            **legacy,
        )


def check_file(path, model):
    """The file is valid, its nodes are named, its float initializers are the parameters and BatchNorm's statistics."""
    proto = onnx.load(path)
    onnx.checker.check_model(proto)
    names = [node.name for node in proto.graph.node]
    assert all(names) and len(set(names)) == len(names), "node names are distinct"
    floats = {t.name: t for t in proto.graph.initializer if t.data_type == onnx.TensorProto.FLOAT}
    parameters = dict(model.named_parameters())
    statistics = {name for name in floats if name.endswith(("running_mean", "running_var"))}
    assert set(floats) - statistics == set(parameters), set(floats) ^ set(parameters)
    for name, parameter in parameters.items():
        assert np.array_equal(onnx.numpy_helper.to_array(floats[name]), parameter.detach().numpy()), name
    return proto


def to_tensors(batch, dtype):
    return [torch.from_numpy(a).to(dtype) if a.dtype == np.float32 else torch.from_numpy(a) for a in batch.values()]


def check_directional_derivative(model, inputs, masks, parameters):
    """Central difference of the loss along the gradient against the gradient's own length, in float64."""
    norm = math.sqrt(sum(float((p.grad**2).sum()) for p in parameters))
    losses, h = [], 1e-6
    for sign in (1, -1):
        moved = copy.deepcopy(model)
        for source, target in zip(parameters, moved.parameters()):
            target.data += sign * h * source.grad / norm
        masks.begin(0)
        losses.append(float(moved(*inputs)[0]))
    difference = (losses[0] - losses[1]) / (2 * h)
    assert abs(difference - norm) < 1e-6 * norm, (difference, norm)
    return abs(difference - norm) / norm


def write_tensor(folder, name, array, tensor_name):
    with open(os.path.join(folder, name), "wb") as file:
        file.write(onnx.numpy_helper.from_array(np.asarray(array, order="C"), tensor_name).SerializeToString())


def write_test_data(folder, model, batch, masks):
    """Writes inputs, outputs and gradients of one batch; returns its loss and gradient norms in float64."""
    os.makedirs(folder, exist_ok=True)
    for name in os.listdir(folder):
        os.remove(os.path.join(folder, name))
    model = copy.deepcopy(model).double().train()
    inputs = to_tensors(batch, torch.float64)
    for tensor in inputs:
        tensor.requires_grad_(tensor.is_floating_point())
    masks.begin(0)
    loss, logits = model(*inputs)
    masks.end()
    loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    gradients.update({name: t.grad for name, t in zip(batch, inputs) if t.is_floating_point()})
    for index, (name, array) in enumerate(batch.items()):
        write_tensor(folder, f"input_{index}.pb", array, name)
    for index, (name, value) in enumerate([("loss", loss), ("logits", logits)]):
        write_tensor(folder, f"output_{index}.pb", value.detach().numpy().astype(np.float32), name)
    for index, (name, value) in enumerate(gradients.items()):
        write_tensor(folder, f"grad_{index}.pb", value.numpy().astype(np.float32), name)
    with torch.no_grad():
        error = check_directional_derivative(model, inputs, masks, list(model.parameters()))
    norms = {name: float(value.norm()) for name, value in gradients.items()}
    return {"loss": float(loss), "gradient_norms": norms}, error


def parameter_groups(model, spec):
    """What an optimizer takes: all parameters, or the groups of `spec` and the rest."""
    if not spec["group"]:
        return model.parameters()
    groups = [{"params": [], **options} for _, options in spec["group"]] + [{"params": []}]
    for name, parameter in model.named_parameters():
        fits = [fnmatch.fnmatchcase(name, glob) for glob, _ in spec["group"]]
        groups[fits.index(True) if any(fits) else -1]["params"].append(parameter)
    assert all(group["params"] for group in groups), "every group has a parameter"
    return groups


def train(model, batches, masks, spec, dtype=torch.float64):
    """Losses of the steps of one run, starting from the given weights."""
    model = copy.deepcopy(model).to(dtype).train()
    optimizer = OPTIMIZERS[spec["optimizer"]](parameter_groups(model, spec), **spec["options"])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*epoch parameter.*")  # SequentialLR's own call
        schedule = spec["schedule"][1](optimizer) if spec["schedule"] else None
    losses, consumed, clipped = [], 0, 0
    for step in range(1, spec["steps"] + 1):
        optimizer.zero_grad()
        total = 0.0
        for _ in range(spec["accumulate"]):
            batch = {name: array[consumed % BATCHES] for name, array in batches.items()}
            consumed += 1
            masks.begin(step)
            loss = model(*to_tensors(batch, dtype))[0] / spec["accumulate"]
            masks.end()
            loss.backward()
            total += float(loss)
        if spec["clip_norm"]:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), spec["clip_norm"], error_if_nonfinite=True)
            clipped += norm > spec["clip_norm"]
        if spec["clip_value"]:
            largest = max(float(p.grad.abs().max()) for p in model.parameters())
            clipped += largest > spec["clip_value"]
            torch.nn.utils.clip_grad_value_(model.parameters(), spec["clip_value"])
        optimizer.step()
        if schedule:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*epoch parameter.*")
                schedule.step()
        losses.append(total)
    clips = spec["clip_norm"] or spec["clip_value"]
    assert not clips or clipped > spec["steps"] / 2, "norm or largest element are above the limit in most steps"
    return losses


def option_text(name, options):
    def text(value):
        return str(value).lower() if isinstance(value, bool) else f"{value:g}"

    return name + "{" + ",".join(f"{k}={text(v)}" for k, v in options.items()) + "}"


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def write_model(name, spec, root):
    start = time.monotonic()
    folder = os.path.join(root, name)
    os.makedirs(folder, exist_ok=True)
    torch.manual_seed(1)
    model = spec["make"]()
    batches = spec["data"](spec["batch"])
    first = {key: array[0, : spec["check"]].copy() for key, array in batches.items()}
    *inputs, labels = to_tensors(first, torch.float32)
    path = os.path.join(folder, "model.onnx")
    export_onnx(model, dict(zip(first, inputs)), labels, path, spec["opset"])
    proto = check_file(path, model)
    np.savez_compressed(os.path.join(folder, "batches.npz"), **batches)
    export_seconds = time.monotonic() - start

    masks = DropoutMasks(proto.graph, seed=0)
    with semantics_of_file(masks):
        check, error = write_test_data(os.path.join(folder, "test_data_set_0"), model, first, masks)
        runs = []
        for run_spec in spec["runs"]:
            losses = train(model, batches, masks, run_spec)
            single = train(model, batches, masks, run_spec, torch.float32)
            drift = max(abs(a - b) / abs(a) for a, b in zip(losses, single))
            text = option_text(run_spec["optimizer"], run_spec["options"])
            print(f"  {text}: loss {losses[0]:.6f} -> {losses[-1]:.6f}; the same in float32 differs by {drift:.1e}")
            entry = {"optimizer": text, "loss": LOSS_OPTION, "seed": 0, "accumulate": run_spec["accumulate"],
                     "clip_norm": run_spec["clip_norm"]}  # fmt: skip
            if run_spec["clip_value"]:
                entry["clip_value"] = run_spec["clip_value"]
            if run_spec["schedule"]:
                entry["schedule"] = run_spec["schedule"][0]
            if run_spec["group"]:  # of those that fit, gradloom takes the last
                entry["group"] = [option_text(*group) for group in reversed(run_spec["group"])]
            runs.append({**entry, "losses": losses})
    files = {file: sha256(os.path.join(folder, file)) for file in ("model.onnx", "batches.npz")}
    with open(os.path.join(folder, "parity.json"), "w") as file:
        json.dump({"sha256": files, "check": check, "runs": runs}, file, indent=1)
        file.write("\n")
    if name == "cnn-digits":
        np.savez_compressed(os.path.join(folder, "digits.npz"), **digit_batches("image", (1, 8, 8), 32, 56))
    size = sum(os.path.getsize(os.path.join(at, f)) for at, _, files in os.walk(folder) for f in files)
    print(f"  {size} bytes; export {export_seconds:.1f} s, all {time.monotonic() - start:.1f} s; "
          f"directional derivative off by {error:.1e}")  # fmt: skip
    print(f"  operators: {', '.join(sorted({node.op_type for node in proto.graph.node}))}")
    return size


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=sorted(MODELS), help="write one model")
    parser.add_argument("--out", default=FOLDER, help="the folder to write to (default: the script's own)")
    options = parser.parse_args()
    torch.set_num_threads(1)  # sums in one order: the same bytes from every run
    check_philox()
    total = 0
    for name, spec in MODELS.items():
        if options.only in (None, name):
            print(name)
            total += write_model(name, spec, options.out)
    print(f"{total} bytes in all")
    assert total < 8_000_000, "the models must stay below 8 MB together"


if __name__ == "__main__":
    main()
