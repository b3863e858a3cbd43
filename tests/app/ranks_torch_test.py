#!/usr/bin/env python3
"""Ranks train as PyTorch's DistributedDataParallel does: usage: ranks_torch_test.py GRADLOOM MODELS

Two, three and four ranks over gloo and here, 12 steps in float64 with AdamW or SGD and clipping on the same batches from the same weights:
losses (the mean over the ranks) and parameters agree to 1e-9, with Dropout's masks of each rank. Exits with 77 (skipped) where there is no PyTorch.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnx.numpy_helper
    import torch
    import torch.distributed
    import torch.multiprocessing
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

gradloom, models = sys.argv[1:]
sys.path.insert(0, models)
sys.dont_write_bytecode = True
import export  # noqa: E402
import modules  # noqa: E402

STEPS = 12
MODELS = {"mlp": (modules.Mlp, "x"), "gpt-char": (modules.GptChar, "tokens"), "bert-tiny": (modules.BertTiny, "tokens")}
# As PyTorch has them, and as --optimizer has them.
OPTIMIZERS = {
    "adamw": (lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.01), "adamw{lr=1e-3,weight_decay=0.01}"),
    "sgd": (lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=0.01), "sgd{lr=0.05,momentum=0.9,weight_decay=0.01}"),
}


def torch_rank(rank, ranks, name, optimizer_name, port, results):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks, init_method=f"tcp://127.0.0.1:{port}")
    make, input_name = MODELS[name]
    module = make()
    graph = onnx.load(f"{models}/{name}/model.onnx").graph
    weights = {w.name: onnx.numpy_helper.to_array(w) for w in graph.initializer}
    for key, parameter in module.named_parameters():
        parameter.data = torch.from_numpy(weights[key].copy())
    module = module.double()
    # Masks of truth values, which gloo cannot send, are the same on every rank.
    DataParallel = torch.nn.parallel.DistributedDataParallel
    DataParallel._set_params_and_buffers_to_ignore_for_model(module, [key for key, _ in module.named_buffers()])
    parallel = DataParallel(module)
    optimizer = OPTIMIZERS[optimizer_name][0](module.parameters())
    arrays = np.load(f"{models}/{name}/batches.npz")
    count = len(arrays["labels"])
    losses = []
    masks = export.DropoutMasks(graph, seed=0)
    for step in range(STEPS):
        masks.begin(step * ranks + rank + 1)
        batch = (step * ranks + rank) % count
        inputs = torch.from_numpy(arrays[input_name][batch])
        inputs = inputs.double() if inputs.is_floating_point() else inputs
        optimizer.zero_grad()
        with export.semantics_of_file(masks):
            result = parallel(inputs, torch.from_numpy(arrays["labels"][batch]))
        loss = result if torch.is_tensor(result) and result.dim() == 0 else result[0]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 0.5)
        optimizer.step()
        loss = loss.detach().clone()
        torch.distributed.all_reduce(loss)
        losses.append(loss.item() / ranks)
    if rank == 0:
        np.savez(results, losses=losses, **{key: value.detach().numpy() for key, value in module.named_parameters()})


def check(name, ranks, optimizer, work):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    results, saved = f"{work}/{name}-{ranks}-{optimizer}.npz", f"{work}/{name}-{ranks}-{optimizer}-saved.npz"
    # Forked: PyTorch was only imported so far, which takes each process that starts anew longer than its steps.
    torch.multiprocessing.start_processes(torch_rank, (ranks, name, optimizer, port, results), nprocs=ranks, start_method="fork")
    theirs = np.load(results)
    size = np.load(f"{models}/{name}/batches.npz")["labels"].shape[1]
    words = [
        gradloom, "train", f"{models}/{name}/model.onnx", "--dim", f"batch={size}", "--loss", "ce:logits,labels",
        "--data", f"npz:{models}/{name}/batches.npz", "--optimizer", OPTIMIZERS[optimizer][1], "--clip-norm", "0.5",
        "--precision", "f64", "--steps", str(STEPS), "--ranks", str(ranks), "--threads", "1", "--save-params", saved, "--json",
    ]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    ours = [line["loss"] for line in lines if "step" in line and "loss" in line]
    np.testing.assert_allclose(ours, theirs["losses"], rtol=1e-9)
    parameters = np.load(saved)
    for key in theirs.files:
        if key != "losses":
            np.testing.assert_allclose(parameters[key], theirs[key], rtol=0, atol=1e-9, err_msg=key)
    print(f"{name}, {ranks} ranks, {optimizer}: losses and parameters agree")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        for model in MODELS:
            for world in (2, 3, 4):
                for optimizer in OPTIMIZERS:
                    check(model, world, optimizer, work)
