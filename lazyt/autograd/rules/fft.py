"""Derivatives of the Fourier transforms: linear maps, whose rules are their adjoints.

The adjoint of `fft` is the unscaled inverse transform: `ifft` with the norms 'backward' and 'forward'
exchanged. The adjoint of a transform's padding or cutting to length n is cutting or padding back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.autograd.rules.formula import Value, call, fit, statics_of
from lazyt.autograd.rules.registry import library_vjp
from lazyt.ir import dtypes

if TYPE_CHECKING:
    from lazyt.autograd.rules.formula import OpaqueRule
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node
    from lazyt.ir.symbolic import Dim

    Cotangents = tuple[Node | None, ...]

_EXCHANGED = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}


def _transform(b: Builder, fn: str, x: Node, axis: int, norm: str) -> Node:
    """A complex transform of one axis, or `rfft`, at its own length."""
    shape = x.shape
    if fn == "rfft":
        shape = (*shape[:axis], shape[axis] // 2 + 1, *shape[axis + 1 :])
    return call(b, f"fft_{fn}", (x,), (None, axis, norm), [(shape, dtypes.complex_of(x.dtype))])[0]


def _complex_adjoint(b: Builder, fn: str, ct: Node, axis: int, size: int | Dim, norm: str | None) -> Node:
    """Of `fft` or `ifft` over one axis whose operand has `size` elements."""
    back = _transform(b, "ifft" if fn == "fft" else "fft", ct, axis, _EXCHANGED[norm])
    return fit(b, back, axis, size)


def _rfft_adjoint(b: Builder, ct: Node, axis: int, n: int | Dim, size: int | Dim, norm: str | None) -> Node:
    """`rfft` is the first half of `fft` of a real operand: zeros for the other half, and the real part."""
    back = _transform(b, "ifft", fit(b, ct, axis, n), axis, _EXCHANGED[norm])
    return fit(b, b.real(back), axis, size)


def _irfft_adjoint(b: Builder, ct: Node, axis: int, n: int | Dim, size: int | Dim, norm: str | None) -> Node:
    """`irfft` reads every frequency twice, but 0 and n / 2 once."""
    y = Value(b, _transform(b, "rfft", ct, axis, _EXCHANGED[norm]))
    k = Value(b, b.iota(y.node.shape, axis))
    alone = k.eq(0).or_((k + k).eq(b.extent(n)))
    return fit(b, y.where(alone, y + y).node, axis, size)


def _one_axis(fn: str) -> OpaqueRule:
    def rule(b: Builder, n: Node, cts: tuple[Node | None, ...]) -> Cotangents:
        assert cts[0] is not None
        assert len(statics_of(n)) == 3, "a transform has the statics (n, axis, norm)"
        _, axis, norm = statics_of(n)
        return (_adjoint(b, fn, n, cts[0], axis % n.operands[0].ndim, norm),)

    return rule


def _adjoint(b: Builder, fn: str, n: Node, ct: Node, axis: int, norm: str | None) -> Node:
    size, out = n.operands[0].shape[axis], ct.shape[axis]
    length = size if statics_of(n)[0] is None else statics_of(n)[0]
    match fn:
        case "fft" | "ifft":
            return _complex_adjoint(b, fn, ct, axis, size, norm)
        case "rfft":
            return _rfft_adjoint(b, ct, axis, length, size, norm)
        case "irfft":
            return _irfft_adjoint(b, ct, axis, out, size, norm)
        case "hfft":  # irfft(conj(x)) with the norms exchanged
            y: Node = b.conj(_irfft_adjoint(b, ct, axis, out, size, _EXCHANGED[norm]))
            return y
        case _:  # ihfft: conj(rfft(x)) with the norms exchanged
            return _rfft_adjoint(b, b.conj(ct), axis, length, size, _EXCHANGED[norm])


def _axes_and_lengths(n: Node) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """The axes of an n-dimensional transform, and the length given for each, or None."""
    s, axes, _ = statics_of(n)
    rank = n.operands[0].ndim
    axes = tuple(range(rank)) if axes is None else tuple(a % rank for a in axes)
    return axes, (None,) * len(axes) if s is None else s


def _many_axes(fn: str) -> OpaqueRule:
    """`fftn` and its kin transform the last of their axes first (and `irfftn` last): undone in turn."""

    def rule(b: Builder, n: Node, cts: tuple[Node | None, ...]) -> Cotangents:
        assert cts[0] is not None
        assert len(statics_of(n)) == 3, "a transform has the statics (s, axes, norm)"
        ct, norm, shape = cts[0], statics_of(n)[2], n.operands[0].shape
        axes, lengths = _axes_and_lengths(n)
        last, out = axes[-1], ct.shape[axes[-1]]
        if fn == "irfftn":
            ct = _irfft_adjoint(b, ct, last, out, shape[last], norm)
        for axis in axes[:-1] if fn in ("rfftn", "irfftn") else axes:
            ct = _complex_adjoint(b, "fft" if fn in ("fftn", "rfftn") else "ifft", ct, axis, shape[axis], norm)
        if fn == "rfftn":
            length = shape[last] if lengths[-1] is None else lengths[-1]
            ct = _rfft_adjoint(b, ct, last, length, shape[last], norm)
        return (ct,)

    return rule


for _fn in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    library_vjp(f"fft_{_fn}")(_one_axis(_fn))
for _fn in ("fftn", "ifftn", "rfftn", "irfftn"):
    library_vjp(f"fft_{_fn}")(_many_axes(_fn))
