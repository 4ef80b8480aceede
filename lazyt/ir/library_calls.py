"""Library calls on whole arrays: the meaning of `opaque fn statics` is `FUNCTIONS[fn](*arrays, *statics)`.

An entry takes NumPy arrays and static arguments and returns an array, or a tuple of them. Results keep the
dtype family of their arguments: float32 in, float32 (or complex64) out.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt import on_demand
from lazyt.ir import dtypes
from lazyt.ir.scan import SCANS, scan

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.ir import winograd

    Array = np.ndarray[Any, Any]
    Function = Callable[..., Any]
else:
    winograd = on_demand.module("lazyt.ir.winograd")

FUNCTIONS: dict[str, Function] = {}


# Why no cotangent passes through a call, and why no GPU computes it, of those that are registered with the reason.
NO_GRADIENT: dict[str, str] = {}
ON_HOST: dict[str, str] = {}
# The operands that a call is a linear function of, each with the others as they are: a position, from the end if it is
# negative. What is not here may be read in any way.
LINEAR: dict[str, tuple[int, ...]] = {}

TO_HOST, TO_DEVICE = "move_to_host", "move_to_device"
MOVES = frozenset({TO_HOST, TO_DEVICE})
# Parts of a convolution by Winograd's algorithm (passes/lower_winograd.py): functions of `winograd`, by their names.
WINOGRAD = frozenset(f"winograd_{fn}" for fn in ("tiles", "filters", "convolve", "filter_sums", "filter_slope"))
# Functions that passes write, and that no program records: they have no derivative, and no form of a library.
OF_PASSES = MOVES | WINOGRAD


def register(
    name: str, *, no_gradient: str = "", on_host: str = "", linear: tuple[int, ...] = ()
) -> Callable[[Function], Function]:
    """Decorator: make a function the meaning of `opaque name`.

    no_gradient: why it has no derivative, where `autograd/rules` has no rule; on_host: why the host computes it for a
    GPU, where `backends/cuda/library` has no form; linear: see `LINEAR`.
    """

    def enter(f: Function) -> Function:
        # An import that was interrupted comes again.
        twice = name in FUNCTIONS and FUNCTIONS[name].__module__ != f.__module__
        assert not twice, f"opaque function {name} is registered twice"
        FUNCTIONS[name] = f
        if no_gradient:
            NO_GRADIENT[name] = no_gradient
        if on_host:
            ON_HOST[name] = on_host
        if linear:
            LINEAR[name] = linear
        return f

    return enter


def is_linear(name: str, operand: int, operands: int) -> bool:
    """Whether a call of so many operands is a linear function of this one."""
    known = LINEAR.get(name, ())
    return operand in known or operand - operands in known


def _wide(x: Array) -> Array:
    """The halves as float32: NumPy neither sorts nor accumulates bfloat16 well."""
    return x.astype(dtypes.computed_in(x.dtype), copy=False)


# Sorting and scans


@register("argsort")
def argsort(x: Array, axis: int, descending: bool) -> Array:
    """Stable in both directions: equal elements keep their order. NaN counts as the greatest."""
    x = _wide(x)
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    backwards = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return np.asarray(x.shape[axis] - 1 - np.flip(backwards, axis))


@register("sort")
def sort(x: Array, axis: int, descending: bool) -> Array:
    """`x` in the order of `argsort`."""
    return np.take_along_axis(x, argsort(x, axis, descending), axis)


@register("topk")
def topk(x: Array, axis: int, largest: bool, k: int) -> Array:
    """The first k positions of `argsort`, starting at the greatest or the least."""
    return np.take(argsort(x, axis, largest), np.arange(k), axis)


for _name in SCANS:
    register(_name, linear=(0,) if _name == "cumsum" else ())(partial(scan, _name))


@register("searchsorted")
def searchsorted(x: Array, values: Array, side: str) -> Array:
    """`np.searchsorted` in one sorted axis."""
    return np.searchsorted(_wide(x), _wide(values), side=side)  # type: ignore[call-overload,no-any-return]


# Effects (ops/effects.py)

# Functions that are called for their effect. A graph has them in one chain: see `verify.py`.
EFFECTS = frozenset({"effect"})


class _Calling(threading.local):
    """Who makes the calls of effects on this thread (`runtime/effect_calls.py`)."""

    effects: Any = None


calling = _Calling()


@register("effect")
def effect(*given: Any) -> Array:
    """`effect(*arrays, call, n)`: the call on copies of the first n arrays; gives the token that orders effects."""
    *arrays, call, n = given

    def copies() -> list[Any]:
        return [np.array(x)[()] for x in arrays[:n]]

    if calling.effects is None:
        call(copies())
    else:
        calling.effects.call(call, copies)
    return np.array(False)


# Linear algebra, over the last two axes

register("linalg_inv")(np.linalg.inv)
register("linalg_cholesky")(np.linalg.cholesky)
register("linalg_svdvals")(lambda x: np.linalg.svd(x, compute_uv=False))
register("linalg_eigh")(lambda x: tuple(np.linalg.eigh(x)))
register("linalg_eigvalsh")(np.linalg.eigvalsh)
register("linalg_det")(np.linalg.det)
register("linalg_slogdet")(lambda x: tuple(np.linalg.slogdet(x)))
register("linalg_qr")(lambda x, mode: tuple(out) if isinstance(out := np.linalg.qr(x, mode), tuple) else out)
register("linalg_solve", linear=(1,))(np.linalg.solve)


def check_svd(x: Array) -> None:
    """Raise `LinAlgError` where LAPACK's divide and conquer, which gives vectors too, may never end."""
    if np.isinf(x).any():
        raise np.linalg.LinAlgError("SVD did not converge: the matrix holds infinities")


@register("linalg_svd")
def svd(x: Array, full_matrices: bool) -> tuple[Array, ...]:
    """`np.linalg.svd`, which never returns for a matrix with an infinity (seen with OpenBLAS); here it fails."""
    check_svd(x)
    return tuple(np.linalg.svd(x, full_matrices))


def _epsilon(x: Array) -> float:
    return float(max(x.shape[-2:]) * np.finfo(x.dtype).eps)


@register("linalg_pinv")
def pinv(x: Array, rtol: Array | None = None) -> Array:
    """`np.linalg.pinv`; the default `rtol` is the Array API's, max(M, N) * eps."""
    check_svd(x)
    return np.linalg.pinv(x, rcond=_epsilon(x) if rtol is None else rtol)


@register("linalg_matrix_rank")
def matrix_rank(x: Array, rtol: Array | None = None) -> Array:
    """The number of singular values above `rtol` times the largest; by default max(M, N) * eps."""
    s = np.linalg.svd(x, compute_uv=False)
    least = _epsilon(x) if rtol is None else rtol[..., None]
    return np.asarray(np.sum(s > least * s.max(axis=-1, keepdims=True, initial=0), axis=-1), dtype=np.int64)


# Fourier transforms: (x, n, axis, norm), or (x, s, axes, norm) for the n-dimensional ones

for _name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fftn", "ifftn", "rfftn", "irfftn"):
    register(f"fft_{_name}", linear=(0,))(getattr(np.fft, _name))

# Elementary functions of complex values, which no backend generates code for


def _complex_function(f: Function) -> Function:
    def apply(*xs: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(f(*(x.astype(np.complex128) for x in xs))).astype(xs[0].dtype)

    return apply


def complex_expm1(z: Array) -> Array:
    """`np.expm1`, which multiplies infinities by zeros; there, and at 0, as the Array API: exp's cases less 1."""
    found = np.array(np.expm1(z))
    special = np.flatnonzero(~np.isfinite(z) | (z == 0))
    if special.size:
        found.flat[special] = np.exp(z.flat[special]) - 1
    return found


def complex_tanh(z: Array) -> Array:
    """`np.tanh`; at an infinite real part +-1 with a zero that has the sign of the imaginary part (Array API)."""
    found = np.array(np.tanh(z))
    special = np.flatnonzero(np.isinf(z.real) & np.isfinite(z.imag))
    if special.size:
        found.imag.flat[special] = np.copysign(0.0, z.imag.flat[special])
    return found


for _name in (
    *("exp", "log", "log10", "log1p", "sqrt", "pow", "sin", "cos", "tan", "sinh", "cosh"),
    *("asin", "acos", "atan", "asinh", "acosh", "atanh"),
):
    register(f"complex_{_name}")(_complex_function(getattr(np, _name)))
register("complex_expm1")(_complex_function(complex_expm1))
register("complex_tanh")(_complex_function(complex_tanh))


def _complex_eig(x: Array) -> tuple[Array, Array]:
    d = dtypes.complex_of(x.dtype)
    values, vectors = np.linalg.eig(x)
    return values.astype(d), vectors.astype(d)


_UNORDERED = "eigenvalues of a matrix that is not symmetric: no rule is written yet"
register("linalg_eig", no_gradient=_UNORDERED, on_host="older CuPy has none")(_complex_eig)
register("linalg_eigvals", no_gradient=_UNORDERED, on_host="older CuPy has none")(
    lambda x: np.linalg.eigvals(x).astype(dtypes.complex_of(x.dtype))
)


@register("isin")
def isin(x: Array, values: Array) -> Array:
    """Whether each element of `x` is one of `values`; NaN is not."""
    return np.isin(_wide(x), _wide(values))


@register("packbits")
def packbits(x: Array, bitorder: Any) -> Array:
    """Packs each eight elements along the last axis into a byte: a bit is set where the element is not 0."""
    return np.packbits(x, axis=-1, bitorder=bitorder)[..., 0]


@register("unpackbits")
def unpackbits(x: Array, bitorder: Any) -> Array:
    """Unpacks the eight bits of each byte along a new last axis."""
    return np.unpackbits(x[..., None], axis=-1, bitorder=bitorder)


@register("frexp")
def frexp(x: Array) -> tuple[Array, Array]:
    """`np.frexp`."""
    return np.frexp(x)


@register("call")
def numpy_call(*rest: Any) -> tuple[Array, ...]:
    """A recorded call of NumPy (`ops/numpy_calls.py`): operands, the call, (shape, dtype) of its results."""
    *arrays, call, recorded = rest
    with np.errstate(all="ignore"):
        got = call(arrays)
    results = tuple(map(np.asarray, got if isinstance(got, tuple | list) else (got,)))
    shapes = tuple(r.shape for r in results)
    assert shapes == tuple(s for s, _ in recorded), f"{call!r} gave the shapes {shapes}, recorded were {recorded}"
    return tuple(r.astype(d, copy=False) for r, (_, d) in zip(results, recorded, strict=True))


# Operations of users (ops/kernel_calls.py): a kernel on the host, and one of the operands' device.
@register("operation")
@register("operation_on_device")
def operation(*rest: Any) -> tuple[Array, ...]:
    """A call of a user's kernel: operands, the call, (shape, dtype) of its results."""
    *arrays, call, recorded = rest
    with np.errstate(all="ignore"):
        found: tuple[Array, ...] = call.run(np, arrays, recorded)
    return found


# Copies of a value to the host's memory and back, beside the kernels (passes/offload.py).
@register(TO_HOST, linear=(0,))
@register(TO_DEVICE, linear=(0,))
def moved(x: Array) -> Array:
    """The same values."""
    return np.array(x)


def _winograd(name: str, *given: Any) -> Array:
    call: Function = getattr(winograd, name.removeprefix("winograd_"))
    return np.asarray(call(*given))


for _name in sorted(WINOGRAD):
    register(_name)(partial(_winograd, _name))


@register("after")
def after(_: Array, *arrays: Array) -> tuple[Array, ...]:
    """The arrays, to be had only when the first one has been computed: what reads them is computed again then."""
    return arrays
