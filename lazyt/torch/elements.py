"""PyTorch's functions of elements, its products, and its questions and settings.

Sources: the pages of torch 2.13, by name.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import lazyt as lt
from lazyt.errors import ArgumentError, DTypeError, NotSupportedError, ShapeError
from lazyt.functions.arguments import broadcasts_to, tensor as as_tensor_of
from lazyt.ir import dtypes
from lazyt.torch.reductions import is_floats as _floats
from lazyt.torch.scalars import tuple_of
from lazyt.torch.values import need_at_least, need_same, rank_of, scaled, times

if TYPE_CHECKING:
    import numpy as np

    from lazyt.runtime.tensor import Tensor

__all__ = [
    "add",
    "addbmm",
    "addcdiv",
    "addcmul",
    "addmm",
    "addmv",
    "addr",
    "adjoint",
    "allclose",
    "baddbmm",
    "bmm",
    "cholesky",
    "clamp",
    "clamp_max",
    "clamp_min",
    "clip",
    "clone",
    "compile",
    "complex",
    "conj",
    "cross",
    "detach",
    "div",
    "divide",
    "einsum",
    "frac",
    "get_default_dtype",
    "heaviside",
    "is_complex",
    "is_floating_point",
    "is_nonzero",
    "is_tensor",
    "isclose",
    "ldexp",
    "lerp",
    "logdet",
    "logit",
    "mm",
    "mv",
    "neg",
    "numel",
    "polar",
    "qr",
    "real",
    "rsub",
    "set_default_dtype",
    "sub",
    "subtract",
    "tensordot",
    "true_divide",
    "vander",
    "view_as_real",
    "xlogy",
]


def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """A quotient, as it is, or rounded by 'floor' or 'trunc'."""
    if rounding_mode is None:
        return lt.divide(input, other)
    if rounding_mode == "floor":
        return lt.floor_divide(input, other)
    if rounding_mode != "trunc":
        raise NotSupportedError(f"div: rounding_mode is None, 'floor' or 'trunc', got {rounding_mode!r}")
    found = lt.trunc(lt.divide(input, other))
    floats = _floats(as_tensor_of(input)) or _floats(as_tensor_of(other))
    return found if floats else lt.astype(found, lt.result_type(input, other))


divide = true_divide = div


def add(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """input + alpha * other. DTypeError for an alpha of a higher kind than the sum, as 0.5 of integers."""
    return lt.add(input, _part("add", input, other, alpha))


def sub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """input - alpha * other. DTypeError for an alpha of a higher kind than the difference."""
    return lt.subtract(input, _part("sub", input, other, alpha))


def _part(name: str, input: Any, other: Any, alpha: Any) -> Any:
    plain = type(alpha) is int and alpha == 1
    return other if plain else times(name, alpha, other, lt.result_type(input, other))


subtract = sub


def rsub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """other - alpha * input."""
    return sub(other, input, alpha=alpha)


def neg(input: Any) -> Tensor:
    """-input."""
    return lt.negative(input)


def clamp(input: Any, min: Any = None, max: Any = None) -> Tensor:
    """Values no smaller than `min` and no greater than `max`; ArgumentError without either."""
    if min is None and max is None:
        raise ArgumentError("clamp: at least one of min and max is required")
    return lt.clip(input, min, max)


clip = clamp


def clamp_min(input: Any, min: Any) -> Tensor:
    """Values no smaller than `min`."""
    return lt.clip(input, min, None)


def clamp_max(input: Any, max: Any) -> Tensor:
    """Values no greater than `max`."""
    return lt.clip(input, None, max)


def lerp(input: Any, end: Any, weight: Any) -> Tensor:
    """input + weight * (end - input)."""
    return input + weight * (end - input)  # type: ignore[no-any-return]


def addcmul(input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
    """input + value * tensor1 * tensor2; the value of integers is cut off."""
    return input + scaled(value, tensor1 * tensor2)  # type: ignore[no-any-return]


def addcdiv(input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
    """input + value * tensor1 / tensor2. DTypeError where both are integers."""
    if rank_of(tensor1.dtype) < 2 and rank_of(tensor2.dtype) < 2:
        raise DTypeError(f"addcdiv: a quotient of {tensor1.dtype} and {tensor2.dtype} is not taken: cast one to floats")
    return input + scaled(value, tensor1) / tensor2  # type: ignore[no-any-return]


def addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha times the product of matrices; nothing is read of what is times 0."""
    return _weighted("addmm", input, _product("addmm", 2, mat1, 2, mat2), beta, alpha)


def addmv(input: Any, mat: Any, vec: Any, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha times a matrix times a vector; nothing is read of what is times 0."""
    return _weighted("addmv", input, _product("addmv", 2, mat, 1, vec), beta, alpha)


def baddbmm(input: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha times the products of matrices; the input is not read if beta is 0."""
    return _weighted("baddbmm", input, _product("baddbmm", 3, batch1, 3, batch2), beta, alpha, reads=True)


def addbmm(input: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha times the sum of products of matrices; nothing is read of what is times 0."""
    return _weighted("addbmm", input, lt.sum(_product("addbmm", 3, batch1, 3, batch2), axis=0), beta, alpha)


def addr(input: Any, vec1: Any, vec2: Any, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha times the outer product; the input is not read if beta is 0."""
    if (vec1.ndim, vec2.ndim) != (1, 1):
        raise ShapeError(f"addr: 1 and 1 dimensions are required, got {vec1.ndim} and {vec2.ndim}")
    return _weighted("addr", input, lt.outer(vec1, vec2), beta, alpha, reads=True)


def _weighted(name: str, x: Any, y: Any, beta: Any, alpha: Any, reads: bool = False) -> Tensor:
    """beta * x + alpha * y in the shape of y; of integers the factors are cut off. A factor 0 leaves no NaN behind."""
    if not broadcasts_to(x.shape, y.shape):
        raise ShapeError(f"{name}: an input that broadcasts to {y.shape} is required, got {x.shape}")
    added = y if reads or alpha != 0 else lt.where(lt.asarray(False), y, lt.zeros_like(y))
    if beta == 0:
        x = lt.where(lt.asarray(False), x, lt.zeros_like(x))
    return scaled(beta, x) + scaled(alpha, added)  # type: ignore[no-any-return]


def tensordot(a: Any, b: Any, dims: Any = 2) -> Tensor:
    """Products summed over axes: the last of one and the first of the other, or two lists of them."""
    return lt.tensordot(a, b, dims if isinstance(dims, int) else tuple(map(tuple_of, dims)))


def cross(input: Any, other: Any, dim: int | None = None) -> Tensor:
    """Vector products along an axis, by default the first of three elements."""
    if dim is None:
        shape = lt.broadcast_shapes(input.shape, other.shape)
        if 3 not in shape:
            raise ShapeError(f"cross: an axis of 3 elements is required, got shape {shape}")
        dim = shape.index(3) - len(shape)
    return lt.linalg.cross(input, other, axis=dim)


def einsum(equation: str, *operands: Any) -> Tensor:
    """As `lazyt.einsum`; the operands may be in a list."""
    given = operands[0] if len(operands) == 1 and isinstance(operands[0], list | tuple) else operands
    return lt.einsum(equation, *given)


def mm(input: Any, mat2: Any) -> Tensor:
    """A product of matrices."""
    return _product("mm", 2, input, 2, mat2)


def bmm(input: Any, mat2: Any) -> Tensor:
    """Products of matrices, one for each of a batch."""
    return _product("bmm", 3, input, 3, mat2)


def mv(input: Any, vec: Any) -> Tensor:
    """A matrix times a vector."""
    return _product("mv", 2, input, 1, vec)


def _product(name: str, n: int, x: Any, m: int, y: Any) -> Tensor:
    if (x.ndim, y.ndim) != (n, m):
        raise ShapeError(f"{name}: {n} and {m} dimensions are required, got {x.ndim} and {y.ndim}")
    return lt.matmul(x, y)


def qr(input: Any, some: bool = True) -> Any:
    """Orthonormal and upper triangular factors; the complete ones unless `some`."""
    return lt.linalg.qr(input, "reduced" if some else "complete")


def cholesky(input: Any, upper: bool = False) -> Tensor:
    """The lower triangular factor of positive definite matrices, or the upper one."""
    return lt.linalg.cholesky(input, upper=upper)


def frac(input: Any) -> Tensor:
    """What is behind the point."""
    return input - input.trunc()  # type: ignore[no-any-return]


def logit(input: Any, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), of x kept eps away from 0 and 1 if eps is given."""
    # NOTE: the lower bound comes first, as in PyTorch, where eps is above 1/2.
    x = input if eps is None else lt.where(input < eps, eps, lt.where(input > 1 - eps, 1 - eps, input))
    return lt.log(x / (1 - x))


def xlogy(input: Any, other: Any) -> Tensor:
    """x * log(y), and 0 where x is."""
    # NOTE: `isnan` of a number would be made on the default device.
    lost = lt.where(lt.isnan(other), other, 0) if is_tensor(other) else other if other != other else 0
    return lt.where(input == 0, lost, input * lt.log(lt.where(input == 0, 1, other)))


def polar(abs: Any, angle: Any) -> Tensor:
    """Complex numbers of an absolute value and an angle."""
    return complex(abs * lt.cos(angle), abs * lt.sin(angle))


def complex(real: Any, imag: Any) -> Tensor:
    """Complex numbers of two parts."""
    return real + 1j * imag  # type: ignore[no-any-return]


def conj(input: Any) -> Tensor:
    """The complex conjugate; of real numbers the tensor itself."""
    return lt.conj(input) if is_complex(input) else input


def real(input: Any) -> Tensor:
    """The real part: a view, of real numbers the tensor itself."""
    return input.real  # type: ignore[no-any-return]


def adjoint(input: Any) -> Tensor:
    """The conjugate of the transpose of matrices: a view, of real numbers."""
    return conj(input.mT)


def view_as_real(input: Any) -> Tensor:
    """The two parts of complex numbers, along a new last axis."""
    return lt.stack((lt.real(input), lt.imag(input)), axis=-1)


def logdet(input: Any) -> Tensor:
    """The logarithm of a determinant, NaN where it is negative."""
    sign, found = lt.linalg.slogdet(input)
    return lt.where(sign < 0, math.nan, found)


def heaviside(input: Any, values: Any) -> Tensor:
    """0 below 0, 1 above, and the values at 0, in the dtype that both have."""
    need_same("heaviside", "values", input, values)
    return lt.astype(lt.heaviside(input, values), input.dtype, copy=False)


def ldexp(input: Any, other: Any) -> Tensor:
    """input * 2 ** other."""
    if rank_of(input.dtype) > rank_of(other.dtype):
        other = lt.astype(other, input.dtype)
    return lt.multiply(input, lt.exp2(other))


def isclose(input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Which elements are close to each other. ArgumentError for negative tolerances, DTypeError for two dtypes."""
    need_same("isclose", "other", input, other)
    need_at_least("isclose", 0, rtol=rtol, atol=atol)
    return lt.isclose(input, other, rtol=rtol, atol=atol, equal_nan=equal_nan)


def allclose(input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether all elements are close to each other: a sync. Raises as `isclose`."""
    need_same("allclose", "other", input, other)
    need_at_least("allclose", 0, rtol=rtol, atol=atol)
    return bool(lt.allclose(input, other, rtol=rtol, atol=atol, equal_nan=equal_nan))


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Tensor:  # noqa: N803 - PyTorch's name
    """Powers of a vector's elements, a row each."""
    return lt.astype(lt.vander(x, N, increasing), x.dtype)


def is_tensor(obj: Any) -> bool:
    """Whether it is a tensor."""
    return isinstance(obj, lt.Tensor)


def is_floating_point(input: Any) -> bool:
    """Whether the elements are real floating numbers."""
    return bool(lt.isdtype(input.dtype, "real floating"))


def is_complex(input: Any) -> bool:
    """Whether the elements are complex."""
    return bool(lt.isdtype(input.dtype, "complex floating"))


def is_nonzero(input: Any) -> bool:
    """Whether the one element is not zero: a sync."""
    return bool(input)


def numel(input: Any) -> int:
    """The number of elements."""
    return int(input.size)


def clone(input: Any) -> Tensor:
    """A copy."""
    return input.clone()  # type: ignore[no-any-return]


def detach(input: Any) -> Tensor:
    """The same values, outside of any gradient."""
    return input.detach()  # type: ignore[no-any-return]


def get_default_dtype() -> np.dtype:
    """float32, always."""
    return dtypes.float32


def set_default_dtype(d: Any) -> None:
    """float32 is the default, and nothing else: NotSupportedError."""
    if dtypes.as_dtype(d) != dtypes.float32:
        raise NotSupportedError(
            f"set_default_dtype: not supported: {d}, because new values are float32; write dtype= where they are made"
        )


def compile(model: Any = None, **options: Any) -> Any:
    """The model, or function, as it is: what runs is recorded, fused and compiled. Options are PyTorch's, and read by
    nothing. Also as a decorator.
    """
    return model if model is not None else lambda f: f
