"""Attention of a bound plan: by cuDNN on halves, or by lazyt's kernels.

Where cuDNN refuses a call when it is asked, lazyt's kernels compute it; and where there are none for its sizes CuPy,
with all weights in memory.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.backends.cuda.library import registry as library
from lazyt.backends.cuda.library.attention_kernels import Kernels
from lazyt.backends.cuda.library.cudnn import dense
from lazyt.backends.cuda.library.cudnn_attention import Attended
from lazyt.forking import cached_property
from lazyt.ir import dtypes, graph as g
from lazyt.ir.attention import causal_of, mask_of, on_halves

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.backends.common.products import Patches
    from lazyt.backends.cuda.binding import Binding, Run
    from lazyt.backends.cuda.cuda_graph import Launch
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node
    from lazyt.ir.passes.schedule import AttentionCall

# The leading axes that cuDNN has: a batch, and heads.
LEADING = 2


def calls(b: Builder, n: Node, operands: Sequence[Node]) -> tuple[Node, ...] | None:
    """The results of attention as a call that cuDNN may take; None for those that are to be products."""
    if mask_of(n) is not None or operands[0].ndim - 2 > LEADING or operands[-1].op not in ("scalar", "constant"):
        return None
    return on_halves(b, n, operands)


def chosen(bound: Binding, call: AttentionCall) -> Attention | Kernels:
    """What computes a call: cuDNN may be asked for halves without a mask."""
    n = call.node
    kernels = Kernels(bound, call)
    asked = n.operands[0].dtype in dtypes.HALVES and mask_of(n) is None and n.operands[0].ndim - 2 <= LEADING
    if asked and not (bound.where.cudnn.missing and kernels.fits):
        return Attention(bound, call, kernels)
    return kernels


class Attention:
    """One call by cuDNN. Results that nobody reads are put into memory that is given back."""

    def __init__(self, bound: Binding, call: AttentionCall, kernels: Kernels) -> None:
        self.bound, self.call, self.kernels = bound, call, kernels
        n = call.node
        assert isinstance(n.attrs, g.Opaque)
        self.back = n.attrs.fn == "attention_gradient"
        self.half: np.dtype = n.operands[0].dtype
        results = call.results if self.back else (call.results[0], call.results[1])
        shapes = [tuple(bound.value(d) for d in shape) for shape, _ in n.attrs.outputs]
        # The operands that cuDNN reads, in its order (delta it makes itself), and CuPy's last one.
        self.read = (0, 1, 2, 3, 6, 4) if self.back else (0, 1, 2)
        self.layouts = tuple(self._layout(call.views[i], n.operands[i]) for i in self.read) + tuple(
            self._planar(shape, dense(shape), lone=not self.back and i == 1) for i, shape in enumerate(shapes)
        )
        self.results = list(zip(results, shapes, (dtype for _, dtype in n.attrs.outputs), strict=True))
        self.empty = not all(math.prod(dim) for dim, _ in self.layouts)

    def place(self, table: list[int], patches: Patches) -> None:
        """The addresses of what is read, of delta, of the results, and the number stand in the table."""
        b, c = self.bound, self.call
        self.at = len(table)
        slots = [*self.read, *((5,) if self.back else ())]
        table.extend([0] * (len(slots) + len(self.results) + 1))
        for slot, i in enumerate(slots):
            base, _, offset = c.views[i]
            b._address(base, offset, base.dtype.itemsize, self.at + slot, patches)
        self.first = self.at + len(slots)
        for slot, (result, _, dtype) in enumerate(self.results):
            if result is not None:
                b._address(result, 0, dtype.itemsize, self.first + slot, patches)
        self.number = self.first + len(self.results)
        by = c.node.operands[-1]
        if isinstance(by.attrs, g.Constant):
            table[self.number] = int(np.array(by.attrs.value, np.float64).view(np.int64))
        for s in c.scalars:
            patches.append((self.number, b.scalar_base[s.position, s.part, s.floating], 0))
        self.arguments = self.kernels.place(table, patches) if self.kernels.fits else -1

    def geometry(self, by: float) -> Attended:
        return Attended(self.back, self.half.name, self.layouts, causal_of(self.call.node), by)

    def run(self, run: Run) -> None:
        where, table = self.bound.where, self.bound.table
        by = float(table[self.number : self.number + 1].view(np.float64)[0])
        inputs = [int(a) for a in table[self.at : self.at + len(self.read)]]
        outputs, held = [], []
        for i, (result, shape, dtype) in enumerate(self.results):
            if result is None:
                held.append(where.take(dtype.itemsize * math.prod(shape)))
                outputs.append(held[-1].address)
            else:
                outputs.append(int(table[self.first + i]))
        with where.driver.library(where.number) as xp:
            if where.cudnn.compute(run.stream, self.geometry(by), [*inputs, *outputs]):
                return
            if not self.kernels.fits:
                self._by_library(xp, inputs, outputs, by)
                return
        for launch in self._launches:
            where.driver.launch(run.stream, launch.node)

    @cached_property
    def _launches(self) -> list[Launch]:
        """Those of lazyt's kernels, loaded when they are first needed."""
        found = self.kernels.launches(self.arguments, 0)
        for launch in found:
            launch.place(self.bound.table)
        return found

    def _by_library(self, xp: Any, inputs: list[int], outputs: list[int], by: float) -> None:
        where, table = self.bound.where, self.bound.table
        arrays = dict(zip(self.read, zip(inputs, self.layouts[: len(inputs)], strict=True), strict=True))
        if self.back:
            arrays[5] = int(table[self.at + len(self.read)]), arrays[4][1]
        operands = []
        for i in sorted(arrays):
            address, (dim, stride) = arrays[i]
            dtype = self.call.node.operands[i].dtype
            steps = tuple(s * dtype.itemsize for s in stride)
            x = where.driver.view(where.number, address, library.memory_dtype(dtype), dim, steps)
            operands.append((x[..., 0] if self._is_row(i) else x, dtype))
        assert isinstance(self.call.node.attrs, g.Opaque)
        got = library.call(xp, self.call.node.attrs.fn, operands, (by, *self.call.node.attrs.statics))
        for address, (_, shape, dtype), value in zip(outputs, self.results, got, strict=True):
            out = where.driver.view(where.number, address, library.memory_dtype(dtype), shape)
            library.put(xp, out, dtype, value.reshape(shape))

    def _is_row(self, i: int) -> bool:
        """Whether an operand has one number a row."""
        return self.back and i in (4, 5)

    def _layout(self, view: Any, x: Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
        value = self.bound.value
        shape, strides = [value(d) for d in x.shape], [value(s) for s in view[1]]
        return self._planar(shape, strides, lone=x.ndim < self.call.node.operands[0].ndim)

    def _planar(
        self, shape: Sequence[int], strides: Sequence[int], lone: bool
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of four axes; what has one number a row has a last axis of 1."""
        shape, strides = [*shape, *([1] if lone else [])], [*strides, *([1] if lone else [])]
        more = LEADING + 2 - len(shape)
        far = max((d * s for d, s in zip(shape, strides, strict=True)), default=1)
        return (1,) * more + tuple(shape), (far,) * more + tuple(strides)

    # For a person to read

    @property
    def _known(self) -> str:
        """Why cuDNN refused it when it was asked, if it did."""
        return self.bound.where.cudnn.refusal_of(self.layouts)

    @property
    def library(self) -> str:
        if self._known:
            return self.kernels.library if self.kernels.fits else "CuPy attention"
        return "cuDNN attention" + ", gradient" * self.back

    @property
    def reason(self) -> str:
        return (
            f"cuDNN refused it: {self._known}" if self._known else "cuDNN takes halves; the weights are never in memory"
        )
