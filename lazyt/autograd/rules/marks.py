"""Derivatives of autograd's own marks, and what has none: sources, positions, bits, NumPy's functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.autograd.rules.registry import library_vjp, nondifferentiable, vjp

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node

    Cotangents = tuple[Node | None, ...]


@vjp("track")
def _track(b: Builder, n: Node, ct: Node) -> Cotangents:
    return (ct,)


@vjp("known")
def _known(b: Builder, n: Node, ct: Node) -> Cotangents:
    return (ct, None)


@library_vjp("after")
def _after(b: Builder, n: Node, cts: Cotangents) -> Cotangents:
    return (None, *cts)


nondifferentiable("what it is for: reverse mode takes it as a constant", "stop")
nondifferentiable("a source: it has no operands", "input", "scalar", "constant", "extent", "iota")
nondifferentiable(
    "its result is a position or a truth, not a number that varies",
    *("any", "all", "argmax", "argmin", "argsort", "topk", "isin", "searchsorted", "position"),
)
nondifferentiable("bits are no numbers that vary", "packbits", "unpackbits")
nondifferentiable("a function of NumPy's: recording it refuses operands that ask for a gradient", "call")
nondifferentiable("recording it refuses operands that ask for a gradient", "frexp")
nondifferentiable("what a user's kernel computes: its rule is the user's too", "operation", "operation_on_device")
nondifferentiable("its result orders effects", "effect")
