"""A launch that Python makes between native programs: a library call, or a product or scatter left to NumPy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.backends.cpu import memory, sorting
from lazyt.errors import recorded_at
from lazyt.ir import graph as g
from lazyt.ir.extents import Dim
from lazyt.ir.graph import Node
from lazyt.ir.interpret import PRIMITIVES, Walk
from lazyt.ir.opaque import FUNCTIONS
from lazyt.ir.schedule import LibraryCall, MatmulCall, ScatterCall

if TYPE_CHECKING:
    from lazyt.backends.cpu.executor import Bound


class Callback:
    """A library call on NumPy views of the plan's buffers."""

    def __init__(self, bound: Bound, call: LibraryCall | MatmulCall | ScatterCall) -> None:
        self.bound = bound
        self.call = call

    def _view(
        self, n: Node, outs: Sequence[Any], arena: Any, leaves: Sequence[Any], writable: bool
    ) -> np.ndarray[Any, Any]:
        b = self.bound
        shape = [b.value(d) for d in n.shape]
        base = n
        while base.op == "reshape":
            base = base.operands[0]
        if isinstance(base.attrs, g.Leaf):
            return memory.as_ndarray(leaves[base.attrs.index].buffer, n.dtype, shape)
        if base in b.output_base:
            return memory.as_ndarray(outs[b.exe.outputs.index(base)], n.dtype, shape, writable=writable)
        return memory.as_ndarray(arena, n.dtype, shape, offset=b.offsets[base], writable=writable)

    def run(self, bases: Sequence[int], outs: Sequence[Any], arena: Any, leaves: Sequence[Any]) -> None:
        c = self.call
        n = c.node

        def get(x: Node, writable: bool = False) -> np.ndarray[Any, Any]:
            return self._view(x, outs, arena, leaves, writable)

        if isinstance(c, MatmulCall):
            views = []
            for x, (base, strides, offset) in zip(n.operands, c.operands, strict=True):
                flat = self._view(base, outs, arena, leaves, False).reshape(-1)
                b, size = self.bound, n.dtype.itemsize
                shape = [b.value(d) for d in x.shape]
                start = flat[b.value(offset) :] if flat.size else flat
                views.append(np.lib.stride_tricks.as_strided(start, shape, [b.value(s) * size for s in strides]))
            np.matmul(views[0], views[1], out=get(n, True))
        elif isinstance(c, ScatterCall):
            out = get(n, True)
            out[...] = c.fill.attrs.value if c.fill is not None else get(c.x)  # type: ignore[arg-type,union-attr]
            updates = np.broadcast_to(get(c.v), [self.bound.value(d) for d in n.operands[1].shape])
            out[...] = PRIMITIVES["scatter"](n, [out, updates, get(c.at)], Walk((), (), None))
        else:
            assert isinstance(n.attrs, g.Opaque)
            statics = _evaluated(n.attrs.statics, self.bound)
            if self.bound.exe.native and sorting.takes(n.attrs.fn, get(c.operands[0]).shape, statics):
                if c.results[0] is not None:
                    sorting.FUNCTIONS[n.attrs.fn](get(c.results[0], True), get(c.operands[0]), *statics)
                return
            try:
                got = FUNCTIONS[n.attrs.fn](*(get(x) for x in c.operands), *statics)
            except Exception as e:
                recorded_at(e, *line_of(n))
                e.add_note(f"{getattr(n.site, 'name', n.attrs.fn)}, recorded at {n.site}; found at the sync")
                raise
            results = got if isinstance(got, tuple) else (got,)
            for r, value in zip(c.results, results, strict=True):
                if r is not None:
                    get(r, True)[...] = value


def line_of(n: Node) -> tuple[Any, int]:
    """The user's line that a node comes from, and the step of the program."""
    site = getattr(n.site, "site", None)
    return getattr(site, "site", site), getattr(n.site, "step", -1)


def extents_in(static: Any) -> Iterator[Dim]:
    """The symbolic extents among static arguments (the length of a transform)."""
    if isinstance(static, Dim):
        yield static
    elif isinstance(static, tuple):
        for s in static:
            yield from extents_in(s)


def _evaluated(static: Any, bound: Bound) -> Any:
    """Static arguments with the extents in them evaluated."""
    if isinstance(static, tuple):
        return tuple(_evaluated(s, bound) for s in static)
    return bound.value(static) if isinstance(static, Dim) else static
