"""Convolutions of a bound plan: by cuDNN, or where it refuses one by CuPy, a product for each place of the window."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.backends.common import products
from lazyt.backends.common.products import Choice
from lazyt.backends.cuda.library.cudnn import Cudnn, Geometry
from lazyt.backends.cuda.library.products import is_tf32, place
from lazyt.config import general
from lazyt.ir import dtypes, graph as g
from lazyt.ir.prims import MOVEMENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.backends.common.products import Patches
    from lazyt.backends.cuda.binding import Binding, Run
    from lazyt.ir.graph import Node
    from lazyt.ir.passes.schedule import MatmulCall


TITLES = {"convolve": "convolution", "convolve_filter": "filter gradient", "convolve_image": "input gradient"}


class Convolution(products.Product):
    """One convolution or gradient of one, of operands that lie dense; one of one axis has another of 1."""

    bound: Binding

    def __init__(self, bound: Binding, call: MatmulCall) -> None:
        n, (x, y), value = call.node, call.node.operands, bound.value
        a = n.attrs
        assert isinstance(a, g.Convolution)
        self.attrs = a
        first, second, result = ([value(d) for d in o.shape] for o in (x, y, n))
        image, filters, places = {
            "convolve": (first, second, result),
            "convolve_filter": (first, [result[-1], *result[:-1]], second),
            "convolve_image": (result, second, first),
        }[n.op]
        self.shapes = _planar(image), _planar(filters), _planar(places)
        self.exact = all(_of_halves(o) for o in (x, y))
        _, filters, places = map(list, self.shapes)
        depth, area = math.prod(filters[1:]), math.prod(places[2:])
        sides = {
            "convolve": (filters[0], area, depth, places[0]),
            "convolve_filter": (depth, filters[0], places[0] * area, 1),
            "convolve_image": (depth, area, filters[0], places[0]),
        }[n.op]
        super().__init__(bound, call, Choice("cudnn", *sides, 0, 0))

    @property
    def geometry(self) -> Geometry:
        """As it would be computed now: what halves hold is exact in tf32, else the precision is asked for."""
        tf32, a = self.exact or is_tf32(np.dtype(np.float32)), self.attrs
        spread = _pair(a.dilations), _pair(a.strides), _pair(a.padding, 0)
        return Geometry(self.call.node.op, *self.shapes, *spread, tf32)

    @property
    def cudnn(self) -> Cudnn:
        return self.bound.where.cudnn

    @property
    def library(self) -> str:
        """Whose it is, for a person to read."""
        geometry = self.geometry
        if self.cudnn.refusal(geometry):
            return "CuPy product over windows"
        groups = f" in {geometry.groups} groups" * (geometry.groups > 1)
        return f"cuDNN {TITLES[geometry.op]}{groups}" + ", tf32" * geometry.tf32

    @property
    def reason(self) -> str:
        """Why it is computed so."""
        refusal = self.cudnn.refusal(self.geometry)
        if refusal:
            return f"cuDNN refused it: {refusal}"
        return "the operands were halves, which tf32 holds" if self.exact else "cuDNN takes float32"

    def place(self, table: list[int], patches: Patches) -> None:
        """The addresses of both operands and the result stand in the table."""
        self.at = len(table)
        place(self.bound, self.call, table, patches)

    def run(self, run: Run) -> None:
        where, geometry = self.bound.where, self.geometry
        first, second, out = (int(a) for a in self.bound.table[self.at : self.at + 3])
        with where.driver.library(where.number) as xp:
            if geometry.op != "convolve_filter":
                if not self.cudnn.compute(run.stream, geometry, (first, second, out)):
                    self._by_products(xp, first, second, out)
                return
            # cuDNN knows no filters whose features lie side by side, as here: those are put there behind it.
            found = where.take(4 * math.prod(geometry.result))
            if self.cudnn.compute(run.stream, geometry, (first, second, found.address)):
                self._view(out, self._transposed)[...] = xp.moveaxis(self._view(found.address, geometry.result), 0, -1)
            else:
                self._by_products(xp, first, second, out)

    @property
    def _transposed(self) -> tuple[int, ...]:
        """A filter's gradient as the plan has it: (C / groups, sizes.., O)."""
        features, *rest = self.geometry.result
        return (*rest, features)

    def _view(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Any:
        where = self.bound.where
        return where.driver.view(where.number, address, np.dtype(np.float32), shape, strides)

    def _by_products(self, xp: Any, first: int, second: int, out: int) -> None:
        """A product of the filters, or of what comes back, with the image at each place of the window."""
        geometry = self.geometry
        (n, c, h, w), groups = geometry.image, geometry.groups
        (up, across), (down, right) = geometry.padding, geometry.strides
        padded = xp.zeros((n, groups, c // groups, h + 2 * up, w + 2 * across), np.float32)
        inside = padded[..., up : up + h, across : across + w]
        features, depth, *sizes = geometry.filters
        shapes = {
            "image": (n, groups, c // groups, h, w),
            "filters": (groups, features // groups, depth, *sizes),
            "places": (n, groups, features // groups, *geometry.places[2:]),
        }
        rows, columns = geometry.places[2:]

        def part(i: int, j: int) -> Any:
            y, x = i * geometry.dilations[0], j * geometry.dilations[1]
            return padded[..., y : y + rows * down : down, x : x + columns * right : right]

        taps = list(np.ndindex(*sizes))
        match geometry.op:
            case "convolve":
                inside[...] = self._view(first, shapes["image"])
                filters, found = self._view(second, shapes["filters"]), self._view(out, shapes["places"])
                found[...] = 0
                for i, j in taps:
                    found += xp.einsum("ngcyx,goc->ngoyx", part(i, j), filters[..., i, j])
            case "convolve_filter":
                inside[...] = self._view(first, shapes["image"])
                places, found = self._view(second, shapes["places"]), self._view(out, self._transposed)
                for i, j in taps:
                    each = xp.einsum("ngcyx,ngoyx->cgo", part(i, j), places)
                    found[:, i, j, :] = each.reshape(depth, features)
            case _:
                places, filters = self._view(first, shapes["places"]), self._view(second, shapes["filters"])
                for i, j in taps:
                    piece = part(i, j)
                    piece += xp.einsum("ngoyx,goc->ngcyx", places, filters[..., i, j])
                self._view(out, shapes["image"])[...] = inside


def why_windows(cudnn: Cudnn, names: Sequence[str]) -> str:
    """Why a product of these public operations is lazyt's own form of them, not cuDNN's; '' of any others."""
    if "scaled_dot_product_attention" in names:
        why = "no kernel has its sizes, or dropout" if general["attention"] else "it is switched off"
        return f"attention is products with all weights in memory: {why}"
    if not {"conv1d", "conv2d"} & set(names):
        return ""
    if cudnn.missing:
        return f"a convolution over windows without cuDNN: {cudnn.missing}"
    return "a convolution over windows: it is not of float32 and, in one group, wider than 1"


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
    return n.op == "cast" and n.operands[0].dtype in dtypes.HALVES


def _is_zero(n: Node) -> bool:
    while n.op in MOVEMENT:
        n = n.operands[0]
    return isinstance(n.attrs, g.Constant) and n.attrs.value == 0
