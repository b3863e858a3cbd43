"""What a tensor holds, as bytes of the host."""

from typing import Any

import torch


def contents(tensor: torch.Tensor) -> memoryview:
    """Its numbers, row by row; of 16 bits also where NumPy has no such type."""
    flat = tensor.detach().cpu().contiguous().view(-1)
    if flat.dtype == torch.bfloat16:
        flat = flat.view(torch.int16)
    numbers: Any = flat.numpy()
    return memoryview(numbers).cast("B") if flat.numel() else memoryview(b"")
