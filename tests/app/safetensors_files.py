"""safetensors.torch.load_file and save_file for the dtypes of the tests: the package is not needed, the format is a few lines."""

import json
import struct

import numpy as np
import torch

DTYPES = {"F32": np.float32, "F64": np.float64, "I64": np.int64, "BOOL": np.bool_}


def load_file(path):
    data = open(path, "rb").read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, row in header.items():
        begin, end = (8 + length + at for at in row["data_offsets"])
        array = np.frombuffer(data[begin:end], DTYPES[row["dtype"]]).reshape(row["shape"])
        tensors[name] = torch.from_numpy(array.copy())
    return tensors


def save_file(tensors, path):
    """With all names in alphabetical order."""
    header, parts, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name in sorted(tensors):
        array = tensors[name].detach().contiguous().numpy()
        dtype = next(key for key, value in DTYPES.items() if value == array.dtype)
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        parts.append(array.tobytes())
        at += array.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))
