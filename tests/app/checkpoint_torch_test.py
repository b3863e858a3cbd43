#!/usr/bin/env python3
"""Checkpoints and PyTorch read each other's numbers: usage: checkpoint_torch_test.py GRADLOOM MODELS

1. A training of each model, saved, is what `load_state_dict` takes strictly, and the module's loss on the next batch is the
   one of the next step; the optimizer's state_dict, made from optimizer.safetensors, goes on with a step of
   torch.optim to the same parameters.
2. A state_dict that PyTorch changed and wrote is what --load-params begins with.
Dropout draws the masks of the file's nodes and of the step on both sides.
Exits with 77 (skipped) where there is no PyTorch.
"""

import json
import os
import subprocess
import sys
import tempfile

gradloom, models = sys.argv[1:]
sys.path.insert(0, models)
sys.dont_write_bytecode = True
try:
    import export
    import numpy as np
    import onnx
    import torch
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

import modules  # noqa: E402
from safetensors_files import load_file, save_file  # noqa: E402

def run(*args):
    done = subprocess.run([gradloom, "train", *args, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    steps = {}
    for line in done.stdout.splitlines():
        row = json.loads(line)
        if "step" in row:
            steps[row["step"]] = row["loss"]
    return steps


def close(a, b, what, tolerance=2e-5):
    assert abs(a - b) <= tolerance * abs(b), f"{what}: {a} and {b}"


def loss_in_step(module, arrays, names, masks, step):
    """Of the step of that number, the first being 1, with its batch and its masks."""
    inputs = [torch.from_numpy(arrays[key][(step - 1) % len(arrays[key])]) for key in names]
    masks.begin(step)
    with export.semantics_of_file(masks):
        loss, _ = module(*inputs)
    masks.end()
    return loss


def resumed_optimizer(module, folder):
    """torch.optim.Adam with the state of the checkpoint."""
    kept = load_file(folder + "/optimizer.safetensors")
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-3)
    state = {}
    for index, (name, _) in enumerate(module.named_parameters()):
        state[index] = {key: kept[f"{name}.{key}"] for key in ("step", "exp_avg", "exp_avg_sq")}
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    return optimizer


def check_model(name, make, names, work):
    folder = os.path.join(models, name)
    arrays = np.load(folder + "/batches.npz")
    size = next(iter(arrays.values())).shape[1]
    work = os.path.join(work, name)
    job = [folder + "/model.onnx", "--dim", f"batch={size}", "--loss", "ce:logits,labels", "--optimizer", "adam{lr=1e-3}",
           "--data", "npz:" + folder + "/batches.npz"]
    run(*job, "--steps", "3", "--checkpoint", work)
    saved = work + "/step-00000003"
    module = make()
    module.load_state_dict(load_file(saved + "/model.safetensors"), strict=True)
    module.train()
    optimizer = resumed_optimizer(module, saved)
    after = run("--resume", work, "--steps", "4", "--save-params", work + "/after.safetensors")
    masks = export.DropoutMasks(onnx.load(folder + "/model.onnx").graph, seed=0)
    loss = loss_in_step(module, arrays, names, masks, 4)
    close(loss.item(), after[4], f"{name}: loss of the step after the checkpoint")
    loss.backward()
    optimizer.step()
    for key, mine in load_file(work + "/after.safetensors").items():
        theirs = module.state_dict()[key]
        if mine.is_floating_point():  # one update of Adam moves by about the learning rate
            assert torch.allclose(mine, theirs, rtol=1e-4, atol=2e-5), f"{name}: {key} after a step of each"
    # The other way: numbers of PyTorch's own.
    torch.manual_seed(1)
    other = make()
    other.train()
    state = {key: value.clone() for key, value in other.state_dict().items()}
    save_file(state, work + "/torch.safetensors")
    first = run(*job, "--steps", "1", "--load-params", work + "/torch.safetensors")
    loss = loss_in_step(other, arrays, names, masks, 1)
    close(loss.item(), first[1], f"{name}: loss with parameters of PyTorch")
    print("ok", name)


with tempfile.TemporaryDirectory() as work:
    check_model("mlp", modules.Mlp, ("x", "labels"), work)
    check_model("cnn-digits", modules.CnnDigits, ("image", "labels"), work)
    check_model("gpt-char", modules.GptChar, ("tokens", "labels"), work)
    check_model("bert-tiny", modules.BertTiny, ("tokens", "labels"), work)
