"""Functions of torch.nn.functional in operators that every exporter has; used while a module is traced.

Formulas are those of PyTorch's documentation. Arguments that only choose a reduction in old ways (size_average, reduce) are
turned into `reduction`.
"""

import math
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

import torch
from torch.nn import _reduction, functional

Tensor = torch.Tensor


def _reduced(loss: Tensor, reduction: str, size_average: Any = None, reduce: Any = None) -> Tensor:
    if size_average is not None or reduce is not None:
        reduction = _reduction.legacy_get_string(size_average, reduce)
    if reduction == "none":
        return loss
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    raise ValueError(f"{reduction} is not a valid value for reduction")


def mse_loss(input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean") -> Tensor:
    difference = input - target
    return _reduced(difference * difference, reduction, size_average, reduce)


def l1_loss(input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean") -> Tensor:
    return _reduced((input - target).abs(), reduction, size_average, reduce)


def smooth_l1_loss(input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean",
                   beta: float = 1.0) -> Tensor:  # fmt: skip
    if beta == 0.0:
        return l1_loss(input, target, size_average, reduce, reduction)
    size = (input - target).abs()
    return _reduced(torch.where(size < beta, 0.5 / beta * (size * size), size - 0.5 * beta), reduction, size_average, reduce)


def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    size = (input - target).abs()
    return _reduced(torch.where(size <= delta, 0.5 * (size * size), delta * (size - 0.5 * delta)), reduction)


def binary_cross_entropy(input: Tensor, target: Tensor, weight: Optional[Tensor] = None, size_average: Any = None, reduce: Any = None,
                         reduction: str = "mean") -> Tensor:  # fmt: skip
    loss = -(target * input.log().clamp(min=-100) + (1 - target) * (1 - input).log().clamp(min=-100))
    return _reduced(loss if weight is None else loss * weight, reduction, size_average, reduce)


def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool = True, full: bool = False, size_average: Any = None, eps: float = 1e-8,
                     reduce: Any = None, reduction: str = "mean") -> Tensor:  # fmt: skip
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        loss = loss + torch.where(target <= 1, torch.zeros_like(target), stirling)
    return _reduced(loss, reduction, size_average, reduce)


def soft_margin_loss(input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean") -> Tensor:
    return _reduced((1 + (-target.to(input.dtype) * input).exp()).log(), reduction, size_average, reduce)


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, size_average: Any = None, reduce: Any = None,
                         reduction: str = "mean") -> Tensor:  # fmt: skip
    zero = torch.zeros_like(input)
    loss = torch.where(target == 1, zero, (margin - input).clamp(min=0)) + torch.where(target == -1, zero, input)
    return _reduced(loss, reduction, size_average, reduce)


def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: Any = None, reduce: Any = None,
                          reduction: str = "mean") -> Tensor:  # fmt: skip
    epsilon = 1e-12
    product = (input1 * input2).sum(-1)
    cosine = product / (((input1 * input1).sum(-1) + epsilon) * ((input2 * input2).sum(-1) + epsilon)).sqrt()
    zero = torch.zeros_like(cosine)
    loss = torch.where(target == 1, 1 - cosine, zero) + torch.where(target == -1, (cosine - margin).clamp(min=0), zero)
    return _reduced(loss, reduction, size_average, reduce)


def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: Any = None, reduce: Any = None,
                        reduction: str = "mean") -> Tensor:  # fmt: skip
    return _reduced((-target * (input1 - input2) + margin).clamp(min=0), reduction, size_average, reduce)


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    distance: Tensor = torch.linalg.vector_norm(x1 - x2 + eps, p, -1, keepdim)
    return distance


def triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2, eps: float = 1e-6,
                        swap: bool = False, size_average: Any = None, reduce: Any = None, reduction: str = "mean") -> Tensor:  # fmt: skip
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = torch.minimum(far, pairwise_distance(positive, negative, p, eps))
    return _reduced((margin + near - far).clamp(min=0), reduction, size_average, reduce)


def gaussian_nll_loss(input: Tensor, target: Tensor, var: Tensor, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> Tensor:
    if not isinstance(var, Tensor):
        var = torch.full_like(input, var)
    if tuple(var.shape) == tuple(input.shape)[:-1]:
        var = var.unsqueeze(-1)
    bounded = var + (var.clamp(min=eps) - var).detach()  # the gradient passes the bound
    difference = input - target
    loss = 0.5 * (bounded.log() + difference * difference / bounded)
    return _reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    result = torch.einsum("...i,oij,...j->...o", input1, weight, input2)
    return result if bias is None else result + bias


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: Optional[bool] = None) -> Tensor:
    lengths = list(size[2:])
    axes = [torch.linspace(-1, 1, n, dtype=theta.dtype, device=theta.device) * (1 if align_corners else (n - 1) / n) for n in lengths]
    if align_corners:
        axes = [axis if n > 1 else torch.zeros_like(axis) for axis, n in zip(axes, lengths)]
    mesh = torch.meshgrid(*axes, indexing="ij")
    base = torch.stack([*reversed(mesh), torch.ones_like(mesh[0])], -1).reshape(1, -1, len(lengths) + 1)
    return (base @ theta.transpose(1, 2)).reshape(size[0], *lengths, len(lengths))


def rms_norm(input: Tensor, normalized_shape: Sequence[int], weight: Optional[Tensor] = None, eps: Optional[float] = None) -> Tensor:
    axes = tuple(range(-len(normalized_shape), 0))
    if eps is None:
        eps = torch.finfo(input.dtype).eps
    result = input / ((input * input).mean(axes, keepdim=True) + eps).sqrt()
    return result if weight is None else result * weight


def _pair(value: Any) -> Tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def fold(input: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    size, kernel, spread, pad, step = map(_pair, (output_size, kernel_size, dilation, padding, stride))
    padded = [n + 2 * p for n, p in zip(size, pad)]
    rows, columns = [torch.arange(k, device=input.device).mul(d)[:, None]
                     + torch.arange(0, n - d * (k - 1), s, device=input.device)[None]  # [place in kernel, block]
                     for n, k, d, s in zip(padded, kernel, spread, step)]  # fmt: skip
    places = rows[:, None, :, None] * padded[1] + columns[None, :, None, :]
    batch = input if input.dim() == 3 else input[None]
    values = batch.reshape(batch.shape[0], batch.shape[1] // (kernel[0] * kernel[1]), places.numel())
    image = torch.zeros(*values.shape[:2], padded[0] * padded[1], dtype=input.dtype, device=input.device)
    image = image.scatter_add(2, places.reshape(1, 1, -1).expand(values.shape), values)
    image = image.reshape(*values.shape[:2], *padded)[:, :, pad[0] : pad[0] + size[0], pad[1] : pad[1] + size[1]]
    return image if input.dim() == 3 else image[0]


def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Tensor.unfold: [.., windows, .., size]."""
    axis = dimension % input.dim()
    count = (input.shape[axis] - size) // step + 1
    if size == step:
        rows = input.narrow(axis, 0, count * size)
    else:
        first = torch.arange(count, device=input.device).mul(step)[:, None]
        rows = input.index_select(axis, (first + torch.arange(size, device=input.device)[None]).reshape(-1))
    return rows.reshape(*input.shape[:axis], count, size, *input.shape[axis + 1 :]).movedim(axis + 1, -1)


def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """Tensor.unflatten: an axis as several."""
    axis = dim % input.dim()
    known = math.prod(size for size in sizes if size != -1)
    if known != 0:  # reshape asks all axes what -1 is, and where another is empty none tells
        sizes = [input.shape[axis] // known if size == -1 else size for size in sizes]
    return input.reshape(*input.shape[:axis], *sizes, *input.shape[axis + 1 :])


def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Tensor.masked_scatter: where the mask is true, the source's numbers in order, or its rows where the mask has a row's truth."""
    mask, input = (mask, input.expand(torch.broadcast_shapes(mask.shape, input.shape)))
    width = input.shape[-1] if mask.dim() == input.dim() and mask.shape[-1] == 1 else 1
    mask = mask.expand(*input.shape[:-1], mask.shape[-1] if width > 1 else input.shape[-1])
    places = (mask.reshape(-1).to(torch.int64).cumsum(0) - 1).clamp(min=0)
    if source.numel() == 0:
        return input  # a mask that has nothing: PyTorch raises for any other
    rows = source.reshape(-1)[: source.numel() // width * width].reshape(-1, width)
    # No more are read than the mask has, and PyTorch raises where the source has fewer.
    values = rows.index_select(0, places.clamp(max=rows.shape[0] - 1)).reshape(input.shape)
    return torch.where(mask, values, input)


def _inverse_of_lower(matrix: Tensor) -> Tensor:
    """Of triangles [.., n, n], by blocks of 1, 2, 4, ..: [[A, 0], [C, D]] has the inverse [[a, 0], [-d C a, d]], a and d those of A and D."""
    size, batch = matrix.shape[-1], matrix.shape[:-2]
    padded = 1 << (size - 1).bit_length()
    if padded != size:
        matrix = functional.pad(matrix, (0, padded - size, 0, padded - size))
        matrix = matrix + torch.diag((torch.arange(padded, device=matrix.device) >= size).to(matrix.dtype))
    inverse = (1 / matrix.diagonal(0, -2, -1))[..., None, None]  # [.., blocks, rows, columns]
    width = 1
    while width < padded:
        count = padded // (2 * width)
        blocks = matrix.reshape(*batch, count, 2, width, count, 2, width).select(-2, 0).select(-4, 1)  # [.., count, width, count, width]
        below = blocks.diagonal(0, -4, -2).movedim(-1, -3)
        pairs = inverse.reshape(*batch, count, 2, width, width)
        first, second = pairs.select(-3, 0), pairs.select(-3, 1)
        lower = torch.cat([-(second @ below @ first), second], -1)
        inverse = torch.cat([torch.cat([first, torch.zeros_like(first)], -1), lower], -2)
        width *= 2
    return inverse.squeeze(-3)[..., :size, :size]


def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """torch.linalg.solve_triangular."""
    lower = A.transpose(-2, -1).tril() if upper else A.tril()
    if unitriangular:
        lower = lower.tril(-1) + torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    inverse = _inverse_of_lower(lower)
    if upper:
        inverse = inverse.transpose(-2, -1)
    return inverse @ B if left else B @ inverse


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """With constants of the input's width, which exporters write as f32."""
    if approximate == "tanh":
        return 0.5 * (input * (1.0 + torch.tanh(math.sqrt(2 / math.pi) * (input + 0.044715 * (input * (input * input))))))
    if approximate != "none":
        raise ValueError("approximate argument must be either none or tanh.")
    return input * (torch.erf(input / math.sqrt(2)) + 1.0) * 0.5


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None, dropout_p: float = 0.0,
                                 is_causal: bool = False, scale: Optional[float] = None, enable_gqa: bool = False) -> Tensor:  # fmt: skip
    """A row whose keys are all masked is the mean of the values here, and zeros or NaN in PyTorch."""
    if enable_gqa:
        key, value = (_repeated_heads(t, query.shape[-3] // t.shape[-3]) for t in (key, value))
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        later = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(attn_mask.logical_not(), torch.finfo(query.dtype).min)
    elif attn_mask is not None:
        scores = scores + attn_mask
    weights = functional.softmax(scores, -1)
    return (functional.dropout(weights, dropout_p, True) if dropout_p > 0 else weights) @ value


def _repeated_heads(tensor: Tensor, times: int) -> Tensor:
    *batch, heads, length, width = tensor.shape
    return tensor.unsqueeze(-3).expand(*batch, heads, times, length, width).reshape(*batch, heads * times, length, width)


def pad_circular(input: Tensor, pad: Sequence[int]) -> Tensor:
    for index in range(len(pad) // 2):
        axis, (before, after) = input.dim() - 1 - index, pad[2 * index : 2 * index + 2]
        cut = input.narrow(axis, max(0, -before), input.shape[axis] - max(0, -before) - max(0, -after))
        size = cut.shape[axis]
        if max(before, after) > size:
            raise ValueError("Padding value causes wrapping around more than once.")
        parts = [cut.narrow(axis, size - before, before)] if before > 0 else []
        parts += [cut] + ([cut.narrow(axis, 0, after)] if after > 0 else [])
        input = torch.cat(parts, axis) if len(parts) > 1 else cut
    return input


def _averages(into: int, size: int, like: Tensor) -> Tensor:
    """Rows of weights: cell i is the mean of [floor(i size / into), ceil((i + 1) size / into))."""
    weights = torch.zeros(into, size, dtype=like.dtype, device=like.device)
    for cell in range(into):
        first, last = cell * size // into, -(-(cell + 1) * size // into)
        weights[cell, first:last] = 1.0 / (last - first)
    return weights


def adaptive_avg_pool(input: Tensor, sizes: Sequence[Optional[int]]) -> Tensor:
    """Of cells that overlap: an average along each axis, one after the other."""
    for place, size in enumerate(sizes):
        axis = input.dim() - len(sizes) + place
        if size is not None and size != input.shape[axis]:
            input = (input.transpose(axis, -1) @ _averages(size, input.shape[axis], input).t()).transpose(axis, -1)
    return input


def selu(input: Tensor) -> Tensor:
    alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
    return scale * torch.where(input > 0, input, alpha * (torch.exp(input) - 1))


def hardsigmoid(input: Tensor) -> Tensor:
    return torch.clamp(input * (1 / 6) + 0.5, 0, 1)


def hardswish(input: Tensor) -> Tensor:
    return input * hardsigmoid(input)


# Of sizes, as torch's functions of these names give them for tensors.
NUMBERS: Dict[str, Callable[[float], float]] = {
    "ceil": lambda x: float(math.ceil(x)), "floor": lambda x: float(math.floor(x)), "round": lambda x: float(round(x)), "trunc": lambda x: float(math.trunc(x)),
    "sqrt": math.sqrt,
}  # fmt: skip
# Exporters write their constants as f32, which f64 would notice.
DECOMPOSED_IN_F64: Dict[str, Callable[..., Tensor]] = {"selu": selu, "hardsigmoid": hardsigmoid, "hardswish": hardswish}
DECOMPOSITIONS: Dict[str, Callable[..., Tensor]] = {
    body.__name__: body
    for body in (pairwise_distance, bilinear, affine_grid, rms_norm, fold, gelu, scaled_dot_product_attention)
    if hasattr(functional, body.__name__)
}  # fmt: skip
LOSSES: Dict[str, Callable[..., Tensor]] = {
    body.__name__: body
    for body in (mse_loss, l1_loss, smooth_l1_loss, huber_loss, binary_cross_entropy, poisson_nll_loss, soft_margin_loss, hinge_embedding_loss,
                 cosine_embedding_loss, margin_ranking_loss, triplet_margin_loss, gaussian_nll_loss, functional.binary_cross_entropy_with_logits,
                 functional.kl_div)
    if hasattr(functional, body.__name__)
}  # fmt: skip
