"""Sorting few elements along an axis by insertion: `sort`, `argsort`, `topk`. Results as in `ir/library_calls.py`.

A unit is one line along the axis. Its elements become keys on the stack, integers in the order of the values (NaN the
greatest, zeros equal; the complement where the order is descending), so one comparison does for every dtype, and equal
ones stay as they stood. Of `topk` only the first k are kept.

NOTE: for short lines alone, see `suits`. Of all others `sorting.py` makes calls of NumPy's vector sorts.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.routine import Routine, Routines
from lazyt.backends.cpu.codegen.text import mem_type
from lazyt.ir import dtypes, graph as g
from lazyt.ir.passes.call_operands import buffer_of
from lazyt.ir.symbolic import hint

if TYPE_CHECKING:
    import numpy as np

    from lazyt.backends.common.binding import ScheduleBinding
    from lazyt.ir.passes.schedule import LibraryCall

FUNCTIONS = ("sort", "argsort", "topk")
# Arguments: the elements, what comes out, and of each line the elements, those kept, and the lines side by side.
X, Y, LENGTH, KEPT, INNER = range(5)
SIZE = INNER + 1
# Lines of at most FEW elements, where these are SMALL in all: measured, NumPy's calls cost more. Of more elements its
# sorts of values are the faster ones, and its sorts of positions from STEPS comparisons a line on.
FEW, SMALL, STEPS = 64, 1024, 1024
# Elements that a chunk should have at least.
GRAIN = 4096
_GREATEST = (1 << 63) - 1


def native(c: LibraryCall) -> bool:
    """Whether there is machine code for this call, if its lines are short."""
    attrs = c.node.attrs
    return isinstance(attrs, g.Opaque) and attrs.fn in FUNCTIONS and c.operands[0].ndim > 0 and None not in c.results


def suits(b: ScheduleBinding, c: LibraryCall) -> bool:
    """Whether the lines are short, for these extents."""
    fn, out, x, axis, _ = _parts(c)
    n = b.value(x.shape[axis])
    if n > FEW:
        return False
    return prod(map(b.value, x.shape)) <= SMALL or (fn != "sort" and n * b.value(out.shape[axis]) <= STEPS)


def prepare(c: LibraryCall) -> None:
    """Compile or load the machine code, if the lines are short in the trace that is planned."""
    fn, _, x, axis, descending = _parts(c)
    if hint(x.shape[axis]) <= FEW:
        routines(x.dtype, fn == "sort", descending)


def launch(
    b: ScheduleBinding, c: LibraryCall, rows: list[list[int]], table: list[int], patches: list[tuple[int, int, int]]
) -> None:
    """Write the row of a program for one call."""
    fn, out, x, axis, descending = _parts(c)
    shape, at = [b.value(d) for d in x.shape], len(table)
    n, kept = shape[axis], b.value(out.shape[axis])
    lines = prod(shape[:axis]) * prod(shape[axis + 1 :])
    if not lines * kept:
        return
    for slot, node in ((X, x), (Y, out)):
        b._address(buffer_of(node), 0, node.dtype.itemsize, at + slot, patches)
    rows.append([routines(x.dtype, fn == "sort", descending).address["insertion"], at, lines, max(GRAIN // n, 1), 0])
    args = [0] * SIZE
    args[LENGTH:] = [n, kept, prod(shape[axis + 1 :])]
    table.extend(args)


def _parts(c: LibraryCall) -> tuple[str, g.Node, g.Node, int, bool]:
    """The function, what comes out and goes in, the axis, and whether the greatest comes first."""
    assert isinstance(c.node.attrs, g.Opaque)
    x, out = c.operands[0], c.results[0]
    assert out is not None, "asked for in `native`"
    axis, descending, *_ = c.node.attrs.statics
    return c.node.attrs.fn, out, x, axis % x.ndim, bool(descending)


@lru_cache(maxsize=64)
def routines(dtype: np.dtype, values: bool, descending: bool) -> Routines:
    """The machine code for a dtype and an order: of the values, or of the positions."""
    return Routines({"insertion": lambda r: _insertion(r, dtype, values, descending)})


def _insertion(r: Routine, dtype: np.dtype, values: bool, descending: bool) -> None:
    body, element = r.body, mem_type(dtype)
    n, kept, inner = r.argument(LENGTH), r.argument(KEPT), r.argument(INNER)
    to = element if values else "i64"
    keys, found = r.slot("i64", FEW), r.slot(to, FEW)
    last = body.let(f"sub i64 {kept}, 1")
    with r.loop("%begin", "%end") as line:
        outer, column = (body.let(f"{op} i64 {line.index}, {inner}") for op in ("udiv", "urem"))
        step = body.let(f"mul i64 {n}, {inner}")
        x = r.at(element, r.argument(X, "ptr"), body.let(f"add i64 {body.let(f'mul i64 {outer}, {step}')}, {column}"))
        with r.loop("0", n) as i:
            one = r.get(element, x, body.let(f"mul i64 {i.index}, {inner}"))
            key = _key(r, one, dtype, descending)
            # The place behind all, which is the last one's once there are as many as are kept.
            full = body.let(f"icmp sge i64 {i.index}, {kept}")
            place = body.call("i64", "llvm.smin.i64", ("i64", i.index), ("i64", last))
            least = r.get("i64", keys, last)
            behind = body.let(f"icmp sle i64 {least}, {key}")
            with r.when(body.let(f"xor i1 {body.let(f'and i1 {full}, {behind}')}, true")):
                with r.repeat([("i64", place)]) as at:
                    (j,) = at.carried
                    before = body.let(f"sub i64 {j}, 1")
                    # NOTE: at the first place its own key is looked at, which may be anything.
                    looked = body.call("i64", "llvm.smax.i64", ("i64", before), ("i64", "0"))
                    other = r.get("i64", keys, looked)
                    later = body.let(f"icmp sgt i64 {other}, {key}")
                    r.go_on(at, body.let(f"and i1 {later}, {body.let(f'icmp sgt i64 {j}, 0')}"))
                    r.put("i64", keys, j, other)
                    r.put(to, found, j, r.get(to, found, before))
                    at.next = [before]
                r.put("i64", keys, at.results[0], key)
                r.put(to, found, at.results[0], one if values else i.index)
        step = body.let(f"mul i64 {kept}, {inner}")
        y = r.at(to, r.argument(Y, "ptr"), body.let(f"add i64 {body.let(f'mul i64 {outer}, {step}')}, {column}"))
        with r.loop("0", kept) as i:
            r.put(to, y, body.let(f"mul i64 {i.index}, {inner}"), r.get(to, found, i.index))


def _key(r: Routine, x: str, dtype: np.dtype, descending: bool) -> str:
    """An int64 for an element: less than another's where it comes before it."""
    body, kind, element = r.body, dtypes.kind(dtype), mem_type(dtype)
    if kind == "f":
        bits = dtypes.of(dtype).bits
        if not element.startswith("i"):
            x = body.let(f"bitcast {element} {x} to i{bits}")
        if bits < 64:
            x = body.let(f"sext i{bits} {x} to i64")
        size = body.let(f"and i64 {x}, {(1 << (bits - 1)) - 1}")
        # The sign as an order: of the negative ones the complement of the size, but for zero.
        below = body.let(f"sub i64 0, {size}")
        negative = body.let(f"icmp slt i64 {x}, 0")
        key = body.let(f"select i1 {negative}, i64 {below}, i64 {size}")
        nan = body.let(f"icmp sgt i64 {size}, {dtypes.of(dtype).top}")
        key = body.let(f"select i1 {nan}, i64 {_GREATEST}, i64 {key}")
    elif element == "i64":
        key = body.let(f"xor i64 {x}, {-1 << 63}") if kind == "u" else x
    else:
        key = body.let(f"{'sext' if kind == 'i' else 'zext'} {element} {x} to i64")
    return body.let(f"xor i64 {key}, -1") if descending else key
