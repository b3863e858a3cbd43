#!/usr/bin/env python3
"""A training that begins in PyTorch goes on here: usage: load_optimizer_torch_test.py GRADLOOM MODELS

N steps of torch.optim in float64, its state by --load-optimizer and the module's by --load-params, and M steps here are N + M steps
in PyTorch: losses and parameters within 1e-9, for each optimizer that PyTorch has, and with a schedule.
Exits with 77 (skipped) where there is no PyTorch.
"""

import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

gradloom, models = sys.argv[1:]
sys.path.insert(0, models)
import modules  # noqa: E402
from safetensors_files import load_file, save_file  # noqa: E402

BEFORE, AFTER = 4, 6

OPTIMIZERS = {
    "adam{lr=0.001}": lambda p: torch.optim.Adam(p, lr=1e-3),
    "adamw{lr=0.001,weight_decay=0.1}": lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.1),
    "sgd{lr=0.01,momentum=0.9,nesterov=true}": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True),
    "adagrad{lr=0.01,lr_decay=0.1}": lambda p: torch.optim.Adagrad(p, lr=0.01, lr_decay=0.1),
    "adamw{lr=0.001,amsgrad=true}": lambda p: torch.optim.AdamW(p, lr=1e-3, amsgrad=True),
    "rmsprop{lr=0.001,momentum=0.9,centered=true}": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.9, centered=True),
    "nadam{lr=0.002,momentum_decay=0.02}": lambda p: torch.optim.NAdam(p, lr=2e-3, momentum_decay=0.02, foreach=True),
    "radam{lr=0.001}": lambda p: torch.optim.RAdam(p, lr=1e-3),
    "adadelta{lr=1}": lambda p: torch.optim.Adadelta(p),
}


def tensors_of(module, optimizer):
    """As app/README.md says it, and the count that SGD does not keep."""
    tensors = {f"{n}.{k}": torch.as_tensor(v) for n, p in module.named_parameters() for k, v in optimizer.state[p].items()}
    if not any(name.endswith(".step") for name in tensors):
        tensors["step"] = torch.tensor(BEFORE)
    return tensors


def close(a, b, what):
    a, b = np.asarray(a), np.asarray(b)
    error = np.max(np.abs(a - b) / np.maximum(1, np.abs(b)))
    assert error <= 1e-9, f"{what}: {error}"


def check(name, make, names, text, optimizer_of, work):
    folder = os.path.join(models, name)
    arrays = np.load(folder + "/batches.npz")
    size = next(iter(arrays.values())).shape[1]
    torch.manual_seed(3)
    torch.set_default_dtype(torch.float32)
    module = make().double()
    module.train()
    torch.set_default_dtype(torch.float64)  # of NAdam's mu_product
    optimizer = optimizer_of(module.parameters())
    rate = optimizer.param_groups[0]["lr"]
    losses = []
    for step in range(BEFORE + AFTER):
        if step == BEFORE:
            save_file(module.state_dict(), work + "/params.safetensors")
            tensors = tensors_of(module, optimizer)
            save_file(tensors, work + "/optimizer.safetensors")
            np.savez(work + "/optimizer.npz", **{key: value.detach().numpy() for key, value in tensors.items()})
        optimizer.param_groups[0]["lr"] = rate * (1 - (step + 1) / 20)
        batch = [torch.from_numpy(arrays[key][step % len(arrays[key])]) for key in names]
        loss, _ = module(*[x.double() if x.is_floating_point() else x for x in batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    for kind in ("safetensors", "npz"):
        done = subprocess.run(
            [gradloom, "train", folder + "/model.onnx", "--dim", f"batch={size}", "--loss", "ce:logits,labels", "--optimizer", text,
             "--schedule", "linear{total=20}", "--data", "npz:" + folder + "/batches.npz", "--precision", "f64", "--load-params",
             work + "/params.safetensors", "--load-optimizer", f"{work}/optimizer.{kind}", "--steps", str(BEFORE + AFTER), "--save-params",
             work + "/after.safetensors", "--json"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        mine = {row["step"]: row["loss"] for row in rows if "step" in row}
        assert sorted(mine) == list(range(BEFORE + 1, BEFORE + AFTER + 1)), sorted(mine)
        close([mine[step] for step in sorted(mine)], losses[BEFORE:], f"{name}, {text}: losses")
        saved = load_file(work + "/after.safetensors")
        for key, value in module.named_parameters():  # running statistics: their momentum is f32 in an ONNX file
            close(saved[key], value.detach(), f"{name}, {text}: {key}")
    print("ok", name, text)


with tempfile.TemporaryDirectory() as work:
    for text, optimizer_of in OPTIMIZERS.items():
        check("mlp", modules.Mlp, ("x", "labels"), text, optimizer_of, work)
    check("cnn-digits", modules.CnnDigits, ("image", "labels"), *list(OPTIMIZERS.items())[2], work)
    check("gpt-char", modules.GptChar, ("tokens", "labels"), *list(OPTIMIZERS.items())[1], work)
