"""Convolutions of a bound plan: by cuDNN, or where it refuses one by CuPy as products over windows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.backends.cpu import products
from lazyt.backends.cpu.products import Choice
from lazyt.backends.cuda.cudnn import Cudnn, Geometry
from lazyt.backends.cuda.products import is_tf32, place
from lazyt.backends.rules.elements import BFLOAT16
from lazyt.ir import graph as g
from lazyt.ir.prims import MOVEMENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.backends.cpu.products import Patches
    from lazyt.backends.cuda.executor import Bound, Run
    from lazyt.ir.graph import Node
    from lazyt.ir.schedule import MatmulCall

HALVES = (np.dtype(np.float16), BFLOAT16)


class Convolution(products.Product):
    """One convolution, or the gradient of a filter, of operands that lie dense; one of one axis has another of 1."""

    bound: Bound

    def __init__(self, bound: Bound, call: MatmulCall) -> None:
        n, (x, y), value = call.node, call.node.operands, bound.value
        a = n.attrs
        assert isinstance(a, g.Convolution)
        self.of_filter = n.op == "convolve_filter"
        image, other = ([value(d) for d in o.shape] for o in (x, y))
        self.image, self.other = _planar(image), _planar(other)
        self.sizes, self.dilations = _pair(a.sizes), _pair(a.dilations)
        self.exact = all(_of_halves(o) for o in (x, y))
        taps, places = math.prod(self.sizes), math.prod(self.geometry.result[2:])
        if self.of_filter:
            sides = (image[1] * taps, other[1], image[0] * math.prod(self.other[2:]), 1)
        else:
            sides = (other[0], places, image[1] * taps, image[0])
        super().__init__(bound, call, Choice("cudnn", *sides, 0, 0))

    @property
    def geometry(self) -> Geometry:
        """As it would be computed now: what halves hold is exact in tf32, else the precision is asked for."""
        tf32 = self.exact or is_tf32(np.dtype(np.float32))
        return Geometry(self.of_filter, self.image, self.other, self.sizes, self.dilations, tf32)

    @property
    def cudnn(self) -> Cudnn:
        return self.bound.where.cudnn

    @property
    def library(self) -> str:
        """Whose it is, for a person to read."""
        geometry = self.geometry
        if self.cudnn.refusal(geometry):
            return "CuPy product over windows"
        return "cuDNN " + ("filter gradient" if self.of_filter else "convolution") + ", tf32" * geometry.tf32

    @property
    def reason(self) -> str:
        """Why it is computed so."""
        refusal = self.cudnn.refusal(self.geometry)
        if refusal:
            return f"cuDNN refused it: {refusal}"
        return "the operands were halves, which tf32 holds" if self.exact else "cuDNN takes float32 at stride 1"

    def place(self, table: list[int], patches: Patches) -> None:
        """The addresses of both operands and the result stand in the table."""
        self.at = len(table)
        place(self.bound, self.call, table, patches)

    def run(self, run: Run) -> None:
        where, geometry = self.bound.where, self.geometry
        image, other, out = (int(a) for a in self.bound.table[self.at : self.at + 3])
        with where.driver.library(where.number) as xp:
            if not self.of_filter:
                if not self.cudnn.convolve(run.stream, geometry, image, other, out):
                    self._by_products(xp, image, other, out)
                return
            # cuDNN knows no filters whose features lie side by side, as here: those are put there behind it.
            found = where.take(4 * math.prod(geometry.result))
            if self.cudnn.convolve(run.stream, geometry, image, other, found.address):
                self._view(out, self._turned)[...] = xp.moveaxis(self._view(found.address, geometry.result), 0, -1)
            else:
                self._by_products(xp, image, other, out)

    @property
    def _turned(self) -> tuple[int, ...]:
        """A filter's gradient as the plan has it: (C, sizes.., O)."""
        features, *rest = self.geometry.result
        return (*rest, features)

    def _view(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Any:
        where = self.bound.where
        return where.driver.view(where.number, address, np.dtype(np.float32), shape, strides)

    def _by_products(self, xp: Any, image: int, other: int, out: int) -> None:
        """One product of the filter, or of what comes back, with the image at every place of the window."""
        geometry = self.geometry
        n, c, h, w = self.image
        counts = self.other[2:] if self.of_filter else geometry.result[2:]
        (up, across), (ky, kx) = self.dilations, self.sizes
        steps = (4 * c * h * w, 4 * h * w, 4 * up * w, 4 * across, 4 * w, 4)
        windows = self._view(image, (n, c, ky, kx, *counts), steps)
        y = self._view(other, self.other)
        if self.of_filter:
            found = xp.tensordot(windows, y, ((0, 4, 5), (0, 2, 3)))
            self._view(out, self._turned)[...] = found
        else:
            found = xp.tensordot(y, windows, ((1, 2, 3), (1, 2, 3)))
            self._view(out, geometry.result)[...] = xp.moveaxis(found, 0, 1)


def why_windows(cudnn: Cudnn, names: Sequence[str]) -> str:
    """Why a product of these public operations is lazyt's own form of them, not cuDNN's; '' of any others."""
    if "scaled_dot_product_attention" in names:
        return "attention is lazyt's own kernels between products; cuDNN's is not asked for"
    if not {"conv1d", "conv2d"} & set(names):
        return ""
    if cudnn.missing:
        return f"a convolution over windows without cuDNN: {cudnn.missing}"
    return "a convolution over windows: it is not of float32 at stride 1, in one group, wider than 1"


def _planar(shape: list[int]) -> tuple[int, ...]:
    return (*shape[:2], *_pair(tuple(shape[2:]), 1))


def _pair(sizes: tuple[int, ...], first: int = 1) -> tuple[int, int]:
    """Of two axes; a lone one is the last."""
    return (sizes[0], sizes[1]) if len(sizes) == 2 else (first, sizes[0])


def _of_halves(n: Node) -> bool:
    """Whether it only holds values that were float16 or bfloat16, and zeros around them."""
    while n.op in MOVEMENT and n.op != "concat":
        if n.op == "pad" and not _is_zero(n.operands[1]):
            return False
        n = n.operands[0]
    return n.op == "cast" and n.operands[0].dtype in HALVES


def _is_zero(n: Node) -> bool:
    while n.op in MOVEMENT:
        n = n.operands[0]
    return isinstance(n.attrs, g.Constant) and n.attrs.value == 0
