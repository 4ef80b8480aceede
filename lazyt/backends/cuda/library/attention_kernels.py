"""Attention by lazyt's own kernels (attention_emit.py): which calls have them, and their launches."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from lazyt.backends.common import attention as shared
from lazyt.backends.common.attention import SIZE
from lazyt.backends.cuda import engine
from lazyt.backends.cuda.codegen.routine import is_loaded, loaded
from lazyt.backends.cuda.cuda_graph import Launch
from lazyt.backends.cuda.flags import switches
from lazyt.backends.cuda.library.attention_emit import FORWARD, attention_text
from lazyt.backends.cuda.library.attention_gradient_emit import KEYS, QUERIES, gradient_text
from lazyt.backends.cuda.library.attention_tile import Variant, by_tensor_cores, widest
from lazyt.ir import dtypes
from lazyt.ir.attention import as_call, causal_of, mask_of, on_halves
from lazyt.ir.symbolic import is_multiple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.backends.common.products import Patches
    from lazyt.backends.cuda.binding import Binding
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node
    from lazyt.ir.passes.schedule import AttentionCall


# Ampere: the first whose tensor cores multiply bfloat16, and float16 by 16 at once.
OLDEST_MMA = 80


def calls(b: Builder, n: Node, operands: Sequence[Node]) -> tuple[Node, ...] | None:
    """The results of attention as a call, on the halves that there were; None for those that are to be products."""
    if not shared.attends(b, n):
        return None
    rows = (n.operands[i].shape[-1] for i in (1, 2))
    if any(b.at_least(d, widest(n.operands[0].dtype) + 1) for d in rows):
        return None
    return on_halves(b, n, operands) or as_call(b, n, operands)


class Kernels:
    """One call of a bound plan: one launch, of a gradient two that do not need each other."""

    def __init__(self, bound: Binding, call: AttentionCall) -> None:
        self.bound, self.call = bound, call
        self.back = shared.is_gradient(call)
        self.count, self.queries, self.keys, self.d, self.e = shared.sizes(bound, call)

    @property
    def fits(self) -> bool:
        """Whether there are kernels for it at these sizes."""
        return self.keys > 0 and max(self.d, self.e) <= widest(self.call.node.operands[0].dtype)

    @cached_property
    def variant(self) -> Variant:
        n = self.call.node
        at = mask_of(n)
        mask = "" if at is None else "bool" if n.operands[at].dtype == dtypes.bool_ else "add"
        dtype, mma = n.operands[0].dtype, self._is_by_tensor_cores()
        chunk = 16 // (dtype.itemsize if mma else max(dtype.itemsize, 4))
        wide, beside = self._is_wide(chunk), bool(mask) and self.keys % chunk == 0
        native = switches["native-math"]
        return Variant(dtype, self.d, self.e, mask, causal_of(n), self.back, wide, beside, native, mma)

    def _is_by_tensor_cores(self) -> bool:
        dtype = self.call.node.operands[0].dtype
        has = switches["tensor-cores"] and self.bound.where.properties.capability >= OLDEST_MMA
        return has and dtype in dtypes.HALVES and by_tensor_cores(dtype, (self.d, self.e))

    def _is_wide(self, chunk: int) -> bool:
        """Whether every row of matrices that are read begins at a multiple of `chunk` elements, and ends at one."""
        if self.d % chunk or self.e % chunk:
            return False
        value = self.bound.value
        for name, i in shared.positions(self.call).items():
            if name not in ("q", "k", "v", "g"):
                continue
            _, strides, offset = self.call.views[i]
            shape = [value(x) for x in self.call.node.operands[i].shape]
            steps = (value(s) for s, extent in zip(strides[:-1], shape, strict=False) if extent > 1)
            # NOTE: buffers begin at multiples of 256 bytes.
            if not is_multiple(offset, chunk, self.bound.extents) or any(s % chunk for s in steps):
                return False
        return True

    @cached_property
    def source(self) -> str:
        """The program."""
        return (gradient_text if self.back else attention_text)(self.variant)

    @property
    def is_loaded(self) -> bool:
        return is_loaded(self.bound.where, self.source)

    def place(self, table: list[int], patches: Patches) -> int:
        """The arguments of all its kernels into the table; where they begin."""
        return shared.place(self.bound, self.call, {}, table, patches)

    def launches(self, at: int, level: int) -> list[Launch]:
        """What runs with the arguments that begin there: what somebody reads."""
        height, asked = self.variant.tile.height, [r is not None for r in self.call.results]
        by_queries, by_keys = (self.count * -(-n // height) for n in (self.queries, self.keys))
        if self.back:
            wanted = [(QUERIES, by_queries)] * asked[0] + [(KEYS, by_keys)] * (asked[1] or asked[2])
        else:
            wanted = [(FORWARD, by_queries)]
        if not self.count:
            return []
        names = (QUERIES, KEYS) if self.back else (FORWARD,)
        functions = loaded(self.bound.where, self.source, names, self.variant.tile.threads, SIZE)
        return [Launch(functions[name], at, blocks, level) for name, blocks in wanted]

    # For a person to read

    def sass(self) -> str:
        """The machine code for this device; compiles it, if only to be read."""
        capability = self.bound.where.properties.capability
        return engine.disassembled(engine.compile_program(self.source, capability).cubin)

    @property
    def library(self) -> str:
        name = "lazyt's attention kernels, gradient" if self.back else "lazyt's attention kernel"
        return name + ", by tensor cores" * self.variant.mma

    @property
    def reason(self) -> str:
        some = min(self.keys, self.variant.tile.width)
        return f"at most {some} of {self.keys} keys at a time; the weights are never in memory"
