"""Library calls on a GPU: CuPy's routines (CUB, cuSOLVER, cuFFT) for the opaque functions that have them.

An entry takes CuPy itself, arrays and static arguments, and does what the same name does with NumPy in
`ir/library_calls.py`. What is not in the table is done on the host. Tests give NumPy in CuPy's place: it
has every one of these routines, with the same arguments.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.ir import dtypes, library_calls
from lazyt.ir.attention import attention_of, by_call, gradient_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Function = Callable[..., Any]

FUNCTIONS: dict[str, Function] = {}


def call(xp: Any, fn: str, operands: Sequence[tuple[Any, np.dtype]], statics: Sequence[Any]) -> tuple[Any, ...]:
    """The results of opaque function `fn`: operands are arrays with what their elements are."""
    got = FUNCTIONS[fn](xp, *(widened(xp, x, dtype) for x, dtype in operands), *statics)
    return tuple(got) if isinstance(got, tuple) else (got,)


def memory_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype that the library sees: bfloat16 is its bits."""
    return np.dtype(np.uint16) if dtype == dtypes.bfloat16 else dtype


def widened(xp: Any, x: Any, dtype: np.dtype) -> Any:
    """The halves as float32."""
    if dtype == dtypes.bfloat16:
        return (x.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return x.astype(np.float32) if dtype == np.float16 else x


def put(xp: Any, out: Any, dtype: np.dtype, value: Any) -> None:
    """Write a result, rounded to `dtype`."""
    if dtype == dtypes.bfloat16:
        bits = xp.ascontiguousarray(value, dtype=np.float32).view(np.uint32)
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
        value = xp.where(xp.isnan(value), np.uint32(0x7FFF), rounded)
    out[...] = value


def _enter(name: str) -> Callable[[Function], Function]:
    def enter(f: Function) -> Function:
        FUNCTIONS[name] = f
        return f

    return enter


# Attention, where cuDNN refuses it

FUNCTIONS["attention"] = partial(by_call, attention_of)
FUNCTIONS["attention_gradient"] = partial(by_call, gradient_of)


# Sorting and scans


@_enter("argsort")
def argsort(xp: Any, x: Any, axis: int, descending: bool) -> Any:
    if dtypes.kind(x.dtype) == "f":
        # CuPy sorts floats by their bits: NaN with a sign would come first, and -0.0 before 0.0.
        x = xp.where(xp.isnan(x), x.dtype.type(np.nan), x + x.dtype.type(0))
    if not descending:
        return xp.argsort(x, axis=axis, kind="stable")
    backwards = xp.argsort(xp.flip(x, axis), axis=axis, kind="stable")
    return x.shape[axis] - 1 - xp.flip(backwards, axis)


@_enter("sort")
def sort(xp: Any, x: Any, axis: int, descending: bool) -> Any:
    return xp.take_along_axis(x, argsort(xp, x, axis, descending), axis)


@_enter("topk")
def topk(xp: Any, x: Any, axis: int, largest: bool, k: int) -> Any:
    return xp.take(argsort(xp, x, axis, largest), xp.arange(k), axis)


def _scan(name: str, xp: Any, x: Any, axis: int) -> Any:
    """Floats in float64, as on the CPU, if in another order."""
    work = {"f": np.dtype(np.float64), "c": np.dtype(np.complex128)}.get(dtypes.kind(x.dtype), x.dtype)
    return getattr(xp, name)(x, axis=axis, dtype=work) if x.size else x


for _name in ("cumsum", "cumprod"):
    FUNCTIONS[_name] = partial(_scan, _name)


@_enter("searchsorted")
def searchsorted(xp: Any, x: Any, values: Any, side: str) -> Any:
    return xp.searchsorted(x, values, side=side)


@_enter("isin")
def isin(xp: Any, x: Any, values: Any) -> Any:
    return xp.isin(x, values)


# Linear algebra

for _name in ("inv", "cholesky", "eigvalsh", "det", "solve"):
    FUNCTIONS[f"linalg_{_name}"] = lambda xp, *xs, name=_name: getattr(xp.linalg, name)(*xs)
for _name in ("eigh", "slogdet"):
    FUNCTIONS[f"linalg_{_name}"] = lambda xp, x, name=_name: tuple(getattr(xp.linalg, name)(x))


@_enter("linalg_qr")
def qr(xp: Any, x: Any, mode: str) -> Any:
    got = xp.linalg.qr(x, mode)
    return tuple(got) if isinstance(got, tuple) else got


@_enter("linalg_svd")
def svd(xp: Any, x: Any, full_matrices: bool) -> Any:
    return tuple(xp.linalg.svd(x, full_matrices))


@_enter("linalg_svdvals")
def svdvals(xp: Any, x: Any) -> Any:
    return xp.linalg.svd(x, compute_uv=False)


@_enter("linalg_matrix_rank")
def matrix_rank(xp: Any, x: Any, rtol: Any = None) -> Any:
    s = xp.linalg.svd(x, compute_uv=False)
    least = float(max(x.shape[-2:]) * np.finfo(x.dtype).eps) if rtol is None else rtol[..., None]
    top = s.max(axis=-1, keepdims=True) if s.shape[-1] else xp.zeros((*s.shape[:-1], 1), s.dtype)
    return xp.sum(s > least * top, axis=-1)


# Fourier transforms


def _transform(name: str, xp: Any, *rest: Any) -> Any:
    return getattr(xp.fft, name)(*rest)


for _name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fftn", "ifftn", "rfftn", "irfftn"):
    FUNCTIONS[f"fft_{_name}"] = partial(_transform, _name)

# Elementary functions of complex values


def _complex(name: str, xp: Any, *xs: Any) -> Any:
    return getattr(xp, name)(*(x.astype(np.complex128) for x in xs))


_NAMES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh"}
_NAMES |= {"atanh": "arctanh", "pow": "power"}
for _name in (
    *("exp", "log", "log10", "log1p", "sqrt", "pow", "sin", "cos", "tan", "sinh", "cosh"),
    *("asin", "acos", "atan", "asinh", "acosh", "atanh"),
):
    FUNCTIONS[f"complex_{_name}"] = partial(_complex, _NAMES.get(_name, _name))

# Bits


@_enter("packbits")
def packbits(xp: Any, x: Any, bitorder: str) -> Any:
    return xp.packbits(x.ravel(), bitorder=bitorder).reshape(x.shape[:-1])


@_enter("unpackbits")
def unpackbits(xp: Any, x: Any, bitorder: str) -> Any:
    return xp.unpackbits(x.ravel(), bitorder=bitorder).reshape(*x.shape, 8)


@_enter("frexp")
def frexp(xp: Any, x: Any) -> Any:
    return tuple(xp.frexp(x))


@_enter("operation_on_device")
def operation_on_device(xp: Any, *rest: Any) -> Any:
    *arrays, kernel_call, recorded = rest
    return kernel_call.run(xp, arrays, recorded)


@_enter("after")
def after(xp: Any, _: Any, *arrays: Any) -> Any:
    return arrays


# What has no GPU form, and why: done on the host, counted, and named by `explain()`.
ON_HOST = {
    **library_calls.ON_HOST,
    "call": "a function that is NumPy's alone",
    "operation": "an operation that falls back to its kernel for the CPU",
    "effect": "a function of the host's, called for what it does",
    "linalg_pinv": "CuPy's takes one tolerance for all matrices",
    "complex_expm1": "infinities as the Array API asks",
    "complex_tanh": "infinities as the Array API asks",
}
