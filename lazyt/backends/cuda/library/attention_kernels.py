"""Attention by lazyt's own kernels (attention_emit.py): which calls have them, and their launches."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lazyt.backends.common import attention as shared
from lazyt.backends.common.attention import SIZE
from lazyt.backends.cuda import engine
from lazyt.backends.cuda.codegen.routine import Function, is_loaded, loaded
from lazyt.backends.cuda.cuda_graph import Launch
from lazyt.backends.cuda.flags import switches
from lazyt.backends.cuda.library.attention_emit import FORWARD, attention_text
from lazyt.backends.cuda.library.attention_gradient_emit import KEYS, QUERIES, gradient_text
from lazyt.backends.cuda.library.attention_tile import Variant, by_tensor_cores, widest
from lazyt.backends.cuda.library.products import is_tf32
from lazyt.forking import cached_property
from lazyt.ir import dtypes
from lazyt.ir.attention import as_call, causal_of, mask_of, on_halves
from lazyt.ir.extents import is_multiple

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

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
        return self.keys > 0 and max(self.d, self.e) <= widest(self.dtype)

    @property
    def variant(self) -> Variant:
        """What is compiled for it, with the precision that products have now."""
        return self._variant(self.dtype in dtypes.HALVES or is_tf32(self.dtype))

    @cached_property
    def dtype(self) -> np.dtype:
        """What it reads."""
        return self.call.node.operands[0].dtype

    def _variant(self, rounded: bool) -> Variant:
        """What is compiled for it; `rounded`: tensor cores may multiply, if they can."""
        n, dtype = self.call.node, self.dtype
        at, mma = mask_of(n), rounded and self.has_tensor_cores
        mask = "" if at is None else "bool" if n.operands[at].dtype == dtypes.bool_ else "add"
        chunk = 16 // (dtype.itemsize if mma else max(dtype.itemsize, 4))
        wide, beside = self._is_wide(chunk), bool(mask) and self.keys % chunk == 0
        native = switches["native-math"]
        return Variant(dtype, self.d, self.e, mask, causal_of(n), self.back, wide, beside, native, mma)

    @cached_property
    def has_tensor_cores(self) -> bool:
        """Whether tensor cores can multiply its rows: of halves, of float32 where products may be of tf32."""
        has = switches["tensor-cores"] and self.bound.where.properties.capability >= OLDEST_MMA
        return has and by_tensor_cores(self.dtype, (self.d, self.e))

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

    @property
    def source(self) -> str:
        """The program."""
        return self._source(self.variant)

    def _source(self, v: Variant) -> str:
        return (gradient_text if self.back else attention_text)(v)

    @property
    def is_loaded(self) -> bool:
        return is_loaded(self.bound.where, self.source)

    def place(self, table: list[int], patches: Patches) -> int:
        """The arguments of all its kernels into the table; where they begin."""
        at = shared.place(self.bound, self.call, {}, table, patches)
        if self.is_by_precision:
            table.append(0)
        return at

    @property
    def is_by_precision(self) -> bool:
        """Whether the precision of products says, in each run, which kernels compute it."""
        return self.dtype == dtypes.float32 and self.has_tensor_cores

    def launches(self, at: int, level: int) -> list[Launch]:
        """What runs with the arguments that begin there: what somebody reads."""
        v, asked = self.variant, [r is not None for r in self.call.results]
        by_queries, by_keys = (self.count * -(-n // v.tile.height) for n in (self.queries, self.keys))
        if self.back:
            wanted = [(QUERIES, by_queries)] * asked[0] + [(KEYS, by_keys)] * (asked[1] or asked[2])
        else:
            wanted = [(FORWARD, by_queries)]
        if not self.count:
            return []
        either = {name: partial(self._function, name) if self.is_by_precision else None for name, _ in wanted}
        assert v.tile.height == self._variant(not v.mma).tile.height or not self.is_by_precision, "for the same blocks"
        return [Launch(self._function(name, v.mma), at, blocks, level, either[name]) for name, blocks in wanted]

    def _function(self, name: str, rounded: bool) -> Function:
        names, v = (QUERIES, KEYS) if self.back else (FORWARD,), self._variant(rounded)
        return loaded(self.bound.where, self._source(v), names, v.tile.threads, SIZE)[name]

    # For a person to read

    def sass(self) -> str:
        """The machine code for this device; compiles it, if only to be read."""
        capability = self.bound.where.properties.capability
        return engine.disassembled(engine.compile_program(self.source, capability).cubin)

    @property
    def library(self) -> str:
        name = "lazyt's attention kernels, gradient" if self.back else "lazyt's attention kernel"
        return name + (", by tensor cores" + ", tf32" * (self.dtype == dtypes.float32)) * self.variant.mma

    @property
    def reason(self) -> str:
        some = min(self.keys, self.variant.tile.width)
        return f"at most {some} of {self.keys} keys at a time; the weights are never in memory"
