"""Calls with one work-item an element: searches, memberships, bits, and copies."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lazyt.backends.math.c_expressions import short_name
from lazyt.ir import dtypes
from lazyt_opencl.codegen.scope import memory_type
from lazyt_opencl.library.routine import PARAMETERS, Routine, Step, filled, flat
from lazyt_opencl.library.sorting import key_function

if TYPE_CHECKING:
    from lazyt_opencl.codegen.text import Module
    from lazyt_opencl.library.routine import Patches

_HEAD = """
__kernel void $symbol$($parameters$, __global uchar *b0, __global uchar *b1, __global uchar *b2) {
    __global const long *const args = table + first;
    const long at = (long)get_global_id(0), count = args[3], n = args[4];
    if (at >= count) return;
    __global const $x$ *const x = (__global const $x$ *)(b0 + args[0]);
    __global const $v$ *const v = (__global const $v$ *)(b1 + args[1]);
    __global $y$ *const y = (__global $y$ *)(b2 + args[2]);
"""
_SEARCH = """\
    const $key$ own = $of$(v[at]);
    long low = 0, high = n;
    while (low < high) {
        const long middle = (low + high) / 2;
        if ($of$(x[middle]) $less$ own) low = middle + 1; else high = middle;
    }
    y[at] = low;
}
"""
_MEMBER = """\
    const $key$ own = $of$(x[at]);
    bool found = false;
    for (long i = 0; i < n && !found; i++) found = $of$(v[i]) == own;
    y[at] = found$number$;
}
"""
_PACK = """\
    uint found = 0;
    for (int i = 0; i < 8; i++) found |= (x[8 * at + i] != 0 ? 1u : 0u) << $bit$;
    y[at] = (uchar)found;
}
"""
_UNPACK = """\
    for (int i = 0; i < 8; i++) y[8 * at + i] = x[at] >> $bit$ & 1;
}
"""
_COPY = """\
    y[at] = x[at];
}
"""
# Longer lists to look through are NumPy's, who sorts them.
MOST_MEMBERS = 4096


class ByElement(Routine):
    """One launch, whose work-items have an element each of the first operand, or of the result."""

    name = "by element"
    body = _COPY

    @property
    def suffix(self) -> str:
        return f"{self.call.node.attrs.fn}_{'_'.join(short_name(x.dtype) for x in self.call.operands)}"

    def _words(self, module: Module) -> dict[str, object]:
        return {}

    def _places(self) -> tuple[Any, Any, Any]:
        x = self.call.operands[0]
        return x, x, self.call.results[0]

    def _count(self) -> int:
        return math.prod(self.shape(self.call.results[0]))

    def _n(self) -> int:
        return 0

    def text(self, module: Module) -> str:
        x, v, y = (memory_type(p.dtype) for p in self._places())
        words = {"symbol": self.symbol("each"), "parameters": PARAMETERS, "x": x, "v": v, "y": y}
        return filled(_HEAD + self.body, words | self._words(module))

    def steps(self, table: list[int], patches: Patches) -> list[Step]:
        count = self._count()
        if not count:
            return []
        at, bases = self.arguments(table, patches, self._places(), [count, self._n()])
        return [Step(self.symbol("each"), at, bases, flat(count))]


class Search(ByElement):
    """`searchsorted`."""

    name, body = "binary search", _SEARCH

    @property
    def suffix(self) -> str:
        return f"{super().suffix}_{self.statics[0]}"

    def _words(self, module: Module) -> dict[str, object]:
        kind, of = key_function(self.call.operands[0].dtype, False, module)
        return {"key": kind, "of": of, "less": "<=" if self.statics[0] == "right" else "<"}

    def _places(self) -> tuple[Any, Any, Any]:
        return *self.call.operands, self.call.results[0]

    def _n(self) -> int:
        return self.shape(self.call.operands[0])[0]


class Member(ByElement):
    """`isin`."""

    name, body = "search through all", _MEMBER

    def _words(self, module: Module) -> dict[str, object]:
        dtype = self.call.operands[0].dtype
        kind, of = key_function(dtype, False, module)
        # The key of NaN, which is no element.
        nan = "0xfffffffffffffffful" if kind == "ulong" else "0xffffffffu"
        return {"key": kind, "of": of, "number": "" if dtypes.kind(dtype) in "iub" else f" && own != {nan}"}

    def _places(self) -> tuple[Any, Any, Any]:
        return *self.call.operands, self.call.results[0]

    def _n(self) -> int:
        return math.prod(self.shape(self.call.operands[1]))


class Bits(ByElement):
    """`packbits` and `unpackbits`."""

    name = "bits"

    @property
    def suffix(self) -> str:
        return f"{super().suffix}_{self.statics[0]}"

    @property
    def body(self) -> str:  # type: ignore[override]
        return _PACK if self.call.node.attrs.fn == "packbits" else _UNPACK

    def _words(self, module: Module) -> dict[str, object]:
        return {"bit": "i" if self.statics[0] == "little" else "(7 - i)"}

    def _count(self) -> int:
        packed = self.call.results[0] if self.call.node.attrs.fn == "packbits" else self.call.operands[0]
        return math.prod(self.shape(packed))


class After(Routine):
    """`after`: all operands but the first, as they are."""

    name = "copies"

    @property
    def _wanted(self) -> list[tuple[Any, Any]]:
        pairs = zip(self.call.operands[1:], self.call.results, strict=True)
        return [(x, y) for x, y in pairs if y is not None]

    @property
    def suffix(self) -> str:
        return "_".join(["after", *(short_name(x.dtype) for x, _ in self._wanted)])

    def _symbol(self, kind: str) -> str:
        return self.symbol(f"copy_{kind}")

    @staticmethod
    def _kind(x: Any) -> str:
        return {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong", 16: "ulong2"}[x.dtype.itemsize]

    def text(self, module: Module) -> str:
        kinds = dict.fromkeys(self._kind(x) for x, _ in self._wanted)
        return "".join(
            filled(_HEAD + _COPY, {"symbol": self._symbol(k), "parameters": PARAMETERS, "x": k, "v": k, "y": k})
            for k in kinds
        )

    def steps(self, table: list[int], patches: Patches) -> list[Step]:
        found = []
        for x, y in self._wanted:
            if count := math.prod(self.shape(y)):
                at, bases = self.arguments(table, patches, [x, x, y], [count, 0])
                found.append(Step(self._symbol(self._kind(x)), at, bases, flat(count)))
        return found
