"""Complex numbers while a module is traced: the engine and its files have real ones, so a complex tensor is its two parts.

A Complex looks like PyTorch's complex tensor to the module, and what is computed of it is computed of the parts: Fourier transforms
(a DFT of ONNX for each axis), products, sums, rearrangements, absolute values. All else is an UnsupportedError. Gradients are those
of the real formulas, which is what PyTorch's convention for complex numbers gives for what is real.
"""

import math
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

from .._library import UnsupportedError
from ._outside import OPERATORS
from ._values import made_of, untraced

Tensor = torch.Tensor
_REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}
_TRANSFORMS = ("fft", "ifft", "rfft", "irfft", "fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn")


class Complex(torch.Tensor):
    """A complex tensor of a trace; its own numbers are no part of it."""

    re: Tensor
    im: Tensor
    shape = property(lambda z: z.re.shape)
    device = property(lambda z: z.re.device)
    real = property(lambda z: z.re)
    imag = property(lambda z: z.im)
    data = property(lambda z: joined(z.re.detach(), z.im.detach()))
    requires_grad = property(lambda z: z.re.requires_grad or z.im.requires_grad)
    T = property(lambda z: joined(z.re.T, z.im.T))
    mT = property(lambda z: joined(z.re.mT, z.im.mT))
    H = property(lambda z: joined(z.re.H, -z.im.H))
    mH = property(lambda z: joined(z.re.mH, -z.im.mH))

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name: str = getattr(function, "__name__", "")
        in_place = name.endswith("_") and not name.endswith("__")
        body = _BODIES.get(name.strip("_"))
        if body is None and name.strip("_") not in _EACH:
            return cls._other(function, name, args)
        if in_place and (kwargs or not isinstance(args[0], Complex)):
            raise UnsupportedError(f"torch's {name} of complex numbers is not known to the engine")
        if body is None and in_place:
            function = getattr(Tensor, name[:-1])
        made = body(*args, **(kwargs or {})) if body is not None else _each(function, args, kwargs or {})
        if not in_place:
            return made
        if not isinstance(made, Complex) or made.shape != args[0].shape:
            raise UnsupportedError(f"torch's {name} of complex numbers is not known to the engine")
        args[0].re, args[0].im = made.re, made.im
        return args[0]

    @staticmethod
    def _other(function: Any, name: str, args: Any) -> Any:
        if name == "__get__":  # dtype, ndim, layout, ..
            with torch._C.DisableTorchFunction():
                found = function(*args)
            if not isinstance(found, Tensor):
                return found
        raise UnsupportedError(f"torch's {name} of complex numbers is not known to the engine")


def joined(re: Tensor, im: Tensor) -> Complex:
    """re + i im."""
    with untraced(), torch.no_grad():
        made = torch.complex(re.detach(), im.detach()).as_subclass(Complex)
    made.re, made.im = re, im
    return made


def _parts(value: Any) -> Tuple[Any, Any]:
    """Real and imaginary part of a tensor or number; None: an imaginary part that is zero."""
    if isinstance(value, Complex):
        return value.re, value.im
    if isinstance(value, complex):
        return value.real, value.imag
    if not isinstance(value, Tensor) or not value.is_complex():
        return value, None
    if made_of(value)[0]:
        raise UnsupportedError("a complex argument, parameter or result of another operator is not known to the engine")
    with untraced():
        plain = value.detach().resolve_conj()
        return plain.real.clone(), plain.imag.clone()


def _pair(value: Any) -> Tuple[Any, Any]:
    re, im = _parts(value)
    return re, im if im is not None else torch.zeros_like(re) if isinstance(re, Tensor) else 0.0


def _each(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """What `function`, which rearranges or sums, makes of the real parts and of the imaginary ones."""

    def part(value: Any, index: int) -> Any:
        if isinstance(value, (list, tuple)) and any(isinstance(item, Complex) for item in value):
            return [_pair(item)[index] for item in value]
        return _pair(value)[index] if isinstance(value, Complex) else value

    name = getattr(function, "__name__", "")
    if name == "view" and any(isinstance(value, torch.dtype) for value in (*args, *kwargs.values())):
        raise UnsupportedError("a view of complex numbers as others is not known to the engine")
    if name == "pad" and (len(args) > 3 or kwargs.get("value")):
        raise UnsupportedError("complex numbers padded with others than 0 are not known to the engine")
    made = [function(*[part(value, index) for value in args], **kwargs) for index in (0, 1)]
    if isinstance(made[0], (list, tuple)):
        return [joined(re, im) for re, im in zip(*made)]
    return joined(*made)


def _sum(left: Any, right: Any, sign: int = 1) -> Any:
    """left + sign * right, either of which may be None for zero."""
    if right is None:
        return left
    if left is None:
        return sign * right
    return left + right if sign > 0 else left - right


def _product(function: Callable[..., Any], left: Any, right: Any) -> Complex:
    """`function`, linear in both, of numbers one of which is complex."""
    (a, b), (c, d) = _parts(left), _parts(right)

    def times(x: Any, y: Any) -> Any:
        return None if x is None or y is None else function(x, y)

    return joined(_sum(times(a, c), times(b, d), -1), _sum(times(a, d), times(b, c)))


def _multiplied(left: Any, right: Any) -> Complex:
    return _product(lambda x, y: x * y, left, right)


def _multiplied_by_matrix(left: Any, right: Any) -> Complex:
    return _product(lambda x, y: x @ y, left, right)


def _added(left: Any, right: Any, alpha: Any = 1) -> Complex:
    (a, b), (c, d) = _parts(left), _parts(right)
    if alpha != 1:
        c, d = alpha * c, None if d is None else alpha * d
    re, im = a + c, _sum(b, d)
    return joined(re, im.expand(re.shape))


def _negative(value: Complex) -> Complex:
    return joined(-value.re, -value.im)


def _subtracted(left: Any, right: Any, alpha: Any = 1) -> Complex:
    return _added(left, _negative(right) if isinstance(right, Complex) else -right, alpha)


def _divided(left: Any, right: Any) -> Complex:
    re, im = _parts(right)
    if im is None:
        return _multiplied(left, 1 / re) if not isinstance(re, Tensor) else joined(*[part / re for part in _pair(left)])
    square = re * re + im * im
    product = _multiplied(left, joined(re, -im) if isinstance(right, Tensor) else right.conjugate())
    return joined(product.re / square, product.im / square)


def _einsum(equation: str, *operands: Any) -> Any:
    given = operands[0] if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
    if len(given) == 1:
        return joined(*[torch.einsum(equation, part) for part in _pair(given[0])])
    if len(given) != 2:
        raise UnsupportedError("torch's einsum of more than two complex operands is not known to the engine")
    return _product(lambda x, y: torch.einsum(equation, x, y), *given)


def _absolute(value: Complex) -> Tensor:
    """Whose gradient at zero is zero, as PyTorch's."""
    square = value.re * value.re + value.im * value.im
    zero = square == 0
    return torch.where(zero, torch.zeros_like(square), torch.where(zero, torch.ones_like(square), square).sqrt())


def _exponential(value: Complex) -> Complex:
    size = value.re.exp()
    return joined(size * value.im.cos(), size * value.im.sin())


def _converted(value: Complex, *args: Any, **kwargs: Any) -> Complex:
    """Tensor.to."""
    kinds = [item for item in (*args, kwargs.get("dtype")) if isinstance(item, torch.dtype)]
    if any(kind not in _REAL for kind in kinds):
        raise UnsupportedError("a complex tensor is made real, which loses its imaginary part")
    return joined(*[part.to(_REAL[kinds[0]]) for part in (value.re, value.im)]) if kinds else value


_EACH = {"reshape", "view", "permute", "transpose", "squeeze", "unsqueeze", "flatten", "unflatten", "getitem", "contiguous", "clone", "expand",
         "repeat", "cat", "concat", "stack", "sum", "mean", "roll", "flip", "movedim", "swapaxes", "narrow", "chunk", "split", "unbind", "select",
         "index_select", "pad", "detach", "tile", "broadcast_to", "repeat_interleave", "t"}  # fmt: skip
_BODIES: Dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("mul", "rmul", "multiply"), _multiplied),
    **dict.fromkeys(("add", "radd"), _added),
    **dict.fromkeys(("sub", "subtract"), _subtracted),
    "rsub": lambda right, left: _subtracted(left, right),
    **dict.fromkeys(("div", "truediv", "divide", "true_divide"), _divided),
    **dict.fromkeys(("rdiv", "rtruediv"), lambda right, left: _divided(left, right)),
    **dict.fromkeys(("matmul", "mm", "bmm"), _multiplied_by_matrix),
    "rmatmul": lambda right, left: _multiplied_by_matrix(left, right),
    "einsum": _einsum,
    **dict.fromkeys(("neg", "negative"), _negative),
    **dict.fromkeys(("abs", "absolute"), _absolute),
    "angle": lambda z: torch.atan2(z.im, z.re),
    **dict.fromkeys(("conj", "conj_physical"), lambda z: joined(z.re, -z.im)),
    **dict.fromkeys(("resolve_conj", "resolve_neg"), lambda z: z),
    "exp": _exponential,
    **dict.fromkeys(("to", "type"), _converted),
    "view_as_real": lambda z: torch.stack([z.re, z.im], -1),
    "real": lambda z: z.re,
    "imag": lambda z: z.im,
    "is_complex": lambda z: True,
    "is_floating_point": lambda z: False,
    "size": lambda z, *axis, **named: z.re.size(*axis, **named),
    "len": lambda z: len(z.re),
    **{name: lambda z, name=name: getattr(z.re, name)() for name in ("dim", "ndimension", "numel", "nelement", "is_contiguous")},
}  # fmt: skip


# ---- Fourier transforms ----------------------------------------------------------------------------------------------

def _computed(x: Tensor, axis: int, length: Optional[int], inverse: bool, one_sided: bool) -> Tensor:
    """ONNX's DFT: x [.., n, .., 1 or 2], whose last axis holds real and imaginary part."""
    with untraced(), torch.no_grad():
        z = x.detach().select(-1, 0) if x.shape[-1] == 1 else torch.view_as_complex(x.detach().contiguous())
        if inverse and one_sided:
            real: Tensor = torch.fft.irfft(z, n=length, dim=axis).unsqueeze(-1)
            return real
        transform = torch.fft.ifft if inverse else torch.fft.rfft if one_sided else torch.fft.fft
        return torch.view_as_real(transform(z, n=length, dim=axis).resolve_conj()).clone()


def dft_symbolic(g: Any, x: Any, axis: Any, length: Any, inverse: Any, one_sided: Any) -> Any:
    helper = torch.onnx.symbolic_helper
    axis, inverse, one_sided = (helper._maybe_get_const(value, "i") for value in (axis, inverse, one_sided))
    count = [] if length.node().mustBeNone() else [g.op("Constant", value_t=torch.tensor(helper._maybe_get_const(length, "i")))]
    return g.op("DFT", x, *count, axis_i=axis, inverse_i=inverse, onesided_i=one_sided).setType(g.original_node.output().type())


OPERATORS.define("dft(Tensor x, int axis, int? length, bool inverse, bool one_sided) -> Tensor")
OPERATORS.impl("dft", _computed, "CompositeExplicitAutograd")


def _transformed(x: Tensor, axis: int, length: Optional[int], inverse: bool, one_sided: bool) -> Tensor:
    """_computed as an operator of the trace."""
    result: Tensor = torch.ops.gradloom.dft(x, axis, length, inverse, one_sided)
    return result if result.requires_grad == x.requires_grad else result.requires_grad_()


def _over(name: str, inverse: bool, real: bool, axes: Callable[[Tensor, Any, Any], Tuple[List[int], List[Optional[int]]]]) -> Callable[..., Any]:
    """A function of torch.fft. real: the spectrum is that of real numbers, and has its first half alone."""

    def transform(input: Any, s: Any = None, dim: Any = None, norm: Optional[str] = None) -> Any:
        over, lengths = axes(input, s, dim)
        if norm not in (None, "forward", "backward", "ortho"):
            raise ValueError(f'Invalid normalization mode: "{norm}"')
        re, im = _parts(input)
        if not re.is_floating_point():
            re = re.to(torch.get_default_dtype())
        if real and not inverse and im is not None:
            raise ValueError(f"{name} expects a real input tensor")
        if real and inverse and im is None:
            im = torch.zeros_like(re)
        x = re.unsqueeze(-1) if im is None else torch.stack([re, im], -1)
        order = list(zip(over, lengths))
        total = 1
        for axis, length in order if inverse else reversed(order):
            halved = real and axis == over[-1]
            before = x.shape[axis]
            x = _transformed(x, axis, length, inverse, halved)
            total *= length or (2 * (before - 1) if halved and inverse else before)
        factor = {"ortho": total**0.5, "forward": float(total)}.get(norm or "backward", 1.0)
        if factor != 1.0:
            x = x * factor if inverse else x * (1 / factor)
        return x.select(-1, 0) if real and inverse else joined(x.select(-1, 0), x.select(-1, 1))

    return transform


def _axes(input: Tensor, s: Any, dim: Any, default: Optional[Tuple[int, ...]]) -> Tuple[List[int], List[Optional[int]]]:
    """Each axis, counted from the first, and its length, None where it is what the input has."""
    rank = len(input.shape)
    s = [s] if isinstance(s, int) else None if s is None else list(s)
    if dim is None:
        dim = default if default is not None else range(rank - len(s), rank) if s is not None else range(rank)
    over = [axis % rank for axis in ([dim] if isinstance(dim, int) else dim)]
    lengths: List[Optional[int]] = [None] * len(over) if s is None else [None if length == -1 else length for length in s]
    if len(lengths) != len(over) or len(set(over)) != len(over) or not over:
        raise ValueError("torch.fft: dim and s must name as many axes, each once")
    return over, lengths


def _function(name: str) -> Callable[..., Any]:
    inverse, real = "i" in name.split("fft")[0], "r" in name.split("fft")[0]
    default = {"2": (-2, -1), "n": None}.get(name[-1], (-1,))
    transform = _over(name, inverse, real, lambda input, s, dim: _axes(input, s, dim, default))
    if name[-1] in "2n":
        return transform

    def along(input: Any, n: Any = None, dim: int = -1, norm: Optional[str] = None, axis: Optional[int] = None) -> Any:
        return transform(input, n, dim if axis is None else axis, norm)

    return along


def _rolled(half: Callable[[int], int]) -> Callable[..., Any]:
    """fftshift, ifftshift."""

    def shift(input: Any, dim: Any = None) -> Any:
        over = list(range(len(input.shape))) if dim is None else [dim] if isinstance(dim, int) else list(dim)
        return torch.roll(input, [half(input.shape[axis]) for axis in over], over)

    return shift


def _constant(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def make(*args: Any, **kwargs: Any) -> Tensor:
        with untraced():
            return function(*args, **kwargs)

    return make


def _polar(abs: Tensor, angle: Tensor) -> Complex:
    return joined(abs * angle.cos(), abs * angle.sin())


# By the functions of torch, which modules may hold under other names.
REPLACED: Dict[Any, Callable[..., Any]] = {
    **{getattr(torch.fft, name): _function(name) for name in _TRANSFORMS},
    torch.fft.fftshift: _rolled(lambda size: size // 2),
    torch.fft.ifftshift: _rolled(lambda size: (size + 1) // 2),
    torch.fft.fftfreq: _constant(torch.fft.fftfreq),
    torch.fft.rfftfreq: _constant(torch.fft.rfftfreq),
    torch.complex: lambda real, imag: joined(real, imag),
    torch.polar: _polar,
    torch.view_as_complex: lambda input: joined(input.select(-1, 0), input.select(-1, 1)),
}
