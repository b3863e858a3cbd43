#!/usr/bin/env python3
"""Benchmark models committed without their weights, so that a machine needs no exporter to run them.

    bench/twins.py fill NAME FOLDER        writes FOLDER/NAME.onnx and its random weights; needs Python alone
    /usr/bin/python3 bench/twins.py write [NAME..]   exports the twins again (PyTorch and onnx)

bench/twins/NAME.onnx is an exported model whose large tensors lie in an external file NAME.weights; NAME.json lists them in the
order of that file: {"tensors": [{"name", "kind", "elements", "std"}]}. kind: normal (float32, mean 0, deviation std), ones,
zeros, or future (a square of bools, true above the diagonal). Each tensor starts at a multiple of ALIGNMENT bytes.

gpt2-124m has the shape of GPT-2 small: 12 layers of width 768 with 12 heads, context 1024, vocabulary 50257, head tied to the
embedding; gpt2-350m that of GPT-2 medium, 24 layers of width 1024 with 16 heads; bert-large that of BERT large with 128 tokens. mlp is
784-2048-2048-10.
"""

import array
import json
import os
import random
import shutil
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TWINS = os.path.join(ROOT, "bench", "twins")
GPT2_124M = {"layers": 12, "width": 768, "heads": 12, "context": 1024, "vocabulary": 50257}
GPT2_350M = {"layers": 24, "width": 1024, "heads": 16, "context": 1024, "vocabulary": 50257}
BERT_LARGE = {"layers": 24, "width": 1024, "heads": 16, "hidden": 4096, "context": 128, "vocabulary": 30522, "classes": 2}
MLP_WIDTHS = (784, 2048, 2048, 10)
ALIGNMENT = 4096
INLINE_BYTES = 256  # smaller tensors stay in the model's file


def offsets(tensors):
    """Byte offset and length of every tensor in the weights' file."""
    at = 0
    for tensor in tensors:
        length = tensor["elements"] * (1 if tensor["kind"] == "future" else 4)
        yield at, length
        at += -(-length // ALIGNMENT) * ALIGNMENT


def fill(name, folder):
    """Writes the model and its weights into the folder and returns the model's path."""
    with open(os.path.join(TWINS, name + ".json")) as file:
        tensors = json.load(file)["tensors"]
    generator = random.Random(1)
    normal = [generator.gauss(0, 1) for _ in range(1 << 16)]
    blocks = {}

    def block(tensor):
        """Bytes to repeat until the tensor is full."""
        kind = tensor["kind"], tensor.get("std")
        if kind not in blocks:
            values = {"ones": [1.0], "zeros": [0.0] * 1024}.get(kind[0]) or [value * kind[1] for value in normal]
            blocks[kind] = array.array("f", values).tobytes()
        return blocks[kind]

    with open(os.path.join(folder, name + ".weights"), "wb") as file:
        for tensor, (offset, length) in zip(tensors, offsets(tensors)):
            file.seek(offset)
            if tensor["kind"] == "future":
                side = round(tensor["elements"] ** 0.5)
                data = b"".join(b"\0" * (row + 1) + b"\1" * (side - row - 1) for row in range(side))
            else:
                data = block(tensor)
                data = (data * -(-length // len(data)))[:length]
            file.write(data)
    path = os.path.join(folder, name + ".onnx")
    shutil.copyfile(os.path.join(TWINS, name + ".onnx"), path)
    return path


def describe(array_of_tensor, name):
    """The entry of NAME.json that stands for a tensor's contents."""
    import numpy as np

    entry = {"name": name, "elements": int(array_of_tensor.size)}
    if array_of_tensor.dtype == np.bool_:
        assert np.array_equal(array_of_tensor, np.triu(np.ones_like(array_of_tensor), 1)), name
        return {**entry, "kind": "future"}
    assert array_of_tensor.dtype == np.float32, name
    for kind, value in (("ones", 1), ("zeros", 0)):
        if (array_of_tensor == value).all():
            return {**entry, "kind": kind}
    return {**entry, "kind": "normal", "std": float(f"{array_of_tensor.std():.3g}")}


def strip(source, name):
    """Writes the twin of an exported file."""
    import onnx
    import onnx.numpy_helper

    proto = onnx.load(source)
    for node in proto.graph.node:
        node.ClearField("doc_string")
    kinds = (onnx.TensorProto.FLOAT, onnx.TensorProto.BOOL)
    large = [t for t in proto.graph.initializer if len(t.raw_data) > INLINE_BYTES and t.data_type in kinds]
    tensors = [describe(onnx.numpy_helper.to_array(t), t.name) for t in large]
    for tensor, (offset, length) in zip(large, offsets(tensors)):
        assert len(tensor.raw_data) == length, tensor.name
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", name + ".weights"), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
    with open(os.path.join(TWINS, name + ".onnx"), "wb") as file:
        file.write(proto.SerializeToString(deterministic=True))
    with open(os.path.join(TWINS, name + ".json"), "w") as file:
        lines = ",\n".join(json.dumps(tensor) for tensor in tensors)
        file.write('{"tensors": [\n' + lines + "\n]}\n")


def write(names):
    import tempfile

    import torch

    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.join(ROOT, "tests", "models"))
    import export
    import modules

    def gpt(sizes):
        tokens = torch.randint(sizes["vocabulary"], (1, sizes["context"]))
        return modules.GptChar(**sizes), {"tokens": tokens}, tokens

    def bert(sizes):
        tokens = torch.randint(sizes["vocabulary"], (2, sizes["context"]))
        return modules.BertTiny(**sizes), {"tokens": tokens}, torch.randint(sizes["classes"], (2,))

    workloads = {
        "gpt2-124m": lambda: gpt(GPT2_124M),
        "gpt2-350m": lambda: gpt(GPT2_350M),
        "bert-large": lambda: bert(BERT_LARGE),
        "mlp": lambda: (modules.Mlp(MLP_WIDTHS), {"x": torch.rand(2, MLP_WIDTHS[0])}, torch.randint(MLP_WIDTHS[-1], (2,))),
    }
    os.makedirs(TWINS, exist_ok=True)
    for name in names or workloads:
        torch.manual_seed(1)
        model, inputs, labels = workloads[name]()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            export.export_onnx(model, inputs, labels, path, opset=17)
            strip(path, name)


if __name__ == "__main__":
    if sys.argv[1:2] == ["write"]:
        write(sys.argv[2:])
    elif len(sys.argv) == 4 and sys.argv[1] == "fill":
        print(fill(sys.argv[2], sys.argv[3]))
    else:
        sys.exit(__doc__)
