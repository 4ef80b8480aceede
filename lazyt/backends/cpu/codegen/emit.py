"""LLVM IR for one kernel: `void name(ptr noalias args, i64 begin, i64 end)` does [begin, end).

Explicit vectors of LANES elements, one masked loop for whole vectors and the tail alike: no IR
optimiser runs on this text, and a second copy of a loop's body would cost as much to compile as the
first. (Measured with AVX-512: without masks, kernels whose data stays in the cache gain 5-12 %, all others nothing.)
Where masked accesses are slow, only loads and stores are written twice (emit_memory.py, emit_stores.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from lazyt.backends.cpu.codegen.column_slots import ColumnSlots, column_slots
from lazyt.backends.cpu.codegen.emit_columns import ColumnStage
from lazyt.backends.cpu.codegen.emit_levels import KERNEL, Levels
from lazyt.backends.cpu.codegen.emit_pairs import emit_pairs, over_pairs
from lazyt.backends.cpu.codegen.emit_row import RowStage
from lazyt.backends.cpu.codegen.emit_scope import Scope
from lazyt.backends.cpu.codegen.emit_stores import finish_stores
from lazyt.backends.cpu.codegen.emit_values import open_level
from lazyt.backends.cpu.codegen.lines import Module
from lazyt.backends.cpu.codegen.repeated import repeat
from lazyt.backends.cpu.codegen.text import Body
from lazyt.backends.cpu.engine import host_features
from lazyt.backends.cpu.flags import registers, switches
from lazyt.ir.kernel import BLOCK, COLUMNS, LANES, Kernel, Op, operands_of
from lazyt.ir.prims import ELEMENTWISE

# So many costly functions (exp, log, erf ...) make a map a long one.
LONG = 3
# ... and so do so many operations that wait for one another, if no more values than this are wanted at a time: four
# registers each.
DEEP, ALIVE = 48, 8
# Lanes of a map over bytes: a register of them.
BYTES = 64


def emit(kernel: Kernel, name: str) -> str:
    """The text of a module that defines `name`; the kernel is one that `verify` accepts."""
    return _emitted(kernel, name)[0]


def strategies_of(kernel: Kernel) -> list[str]:
    """What was chosen in writing a kernel's code, in words."""
    return list(_emitted(kernel, "kernel")[1].strategies)


def _emitted(kernel: Kernel, name: str) -> tuple[str, Module]:
    module = Module()
    if over_pairs(kernel):
        rows = f"{name}.rows"
        module.strategies["short rows against short rows, lanes along the outputs"] = None
        text = [_function(kernel, rows, module, "internal "), emit_pairs(kernel, name, rows, module)]
    else:
        text = [_function(kernel, name, module)]
    return "\n".join([module.text(), *text, ""]), module


def _function(kernel: Kernel, name: str, module: Module, linkage: str = "") -> str:
    levels = Levels(kernel)
    body = Body(module, block="start")
    lanes = lanes_of(kernel, levels)
    if lanes > LANES:
        module.strategies[f"{lanes} lanes side by side"] = None
    bytes_alone = lanes == BYTES and _over_bytes(kernel, levels)
    scope = Scope(kernel, levels, body, lanes, counter="i8" if bytes_alone else "i32")
    slots = column_slots(kernel, levels) if kernel.rows and kernel.vector == "outer" else None
    if slots is not None:
        scope.groups, scope.slot_sizes = slots.groups, slots.sizes
    for axis in range(kernel.axes):
        scope.extent[axis] = scope.argument(kernel.layout.extents + axis)
    # Nothing may be read, nor divided by an extent, when there is nothing to do.
    body.lines.append("start:")
    repeat(scope)
    roots = [v for stage in kernel.stages for v in levels.roots(stage)]
    open_level(scope, KERNEL, levels.needed(roots), ())
    _units(scope, slots)
    body.line("br label %done")
    head = f"define {linkage}void @{name}(ptr noalias %args, i64 %begin, i64 %end) nounwind {{"
    guard = [
        "entry:",
        *scope.entry,
        "  %some = icmp slt i64 %begin, %end",
        "  br i1 %some, label %start, label %done",
    ]
    return "\n".join([head, *guard, body.text(), "done:", *finish_stores(scope), "  ret void", "}"])


def lanes_of(kernel: Kernel, levels: Levels) -> int:
    """How many points a map does side by side: two native registers of 4-byte values hide the latency of long chains.

    As many bytes as fill one, where all values are bytes. Four registers where several costly functions, or a chain of
    cheap ones, are so long that the processor does not see the end.
    Reductions fold LANES lanes by definition; values of 8 bytes would take four registers each.
    """
    if registers["width"] == 1 and not kernel.rows:
        return 1
    if kernel.rows or not switches["wide"] or "avx512f" not in host_features():
        return LANES
    lanes = [v for v in range(len(kernel.values)) if levels.is_vector(v)]
    small = all(kernel.values[v].dtype.itemsize <= 4 for v in lanes)
    strided = any(a.classes[kernel.vector_axis] in "2n" for a in kernel.accesses)
    if not small or strided:
        return LANES
    if _over_bytes(kernel, levels):
        return BYTES
    costly = sum(isinstance(v, Op) and v.name in ELEMENTWISE and ELEMENTWISE[v.name].costly for v in kernel.values)
    return (4 if costly >= LONG or _is_chain(kernel, lanes) else 2) * LANES


def _is_chain(kernel: Kernel, vectors: Sequence[int]) -> bool:
    """Whether many operations wait for one another, and few values are wanted at a time."""
    depth: dict[int, int] = {}
    last: dict[int, int] = {}
    for v in vectors:
        operands = [o for o in operands_of(kernel.values[v]) if o in depth]
        depth[v] = max((depth[o] for o in operands), default=0) + 1
        last |= dict.fromkeys(operands, v)
    if max(depth.values(), default=0) < DEEP:
        return False
    alive: set[int] = set()
    for v in vectors:
        alive = {o for o in alive if last[o] > v} | ({v} & last.keys())
        if len(alive) > ALIVE:
            return False
    return True


def _over_bytes(kernel: Kernel, levels: Levels) -> bool:
    """Whether all that lies in memory or differs between lanes is bytes."""
    values = (v for i, v in enumerate(kernel.values) if levels.is_vector(i))
    return all(x.dtype.itemsize == 1 for x in (*values, *kernel.accesses))


def _units(scope: Scope, slots: ColumnSlots | None) -> None:
    """The loop over units: counts like an odometer, so that only the first unit costs divisions."""
    kernel, body = scope.kernel, scope.body
    axes = list(range(kernel.outer - (kernel.vector == "outer")))
    sizes = [scope.extent[a] for a in axes]
    block = COLUMNS if kernel.rows else BLOCK
    if kernel.vector == "outer":
        above = body.let(f"add i64 {scope.extent[kernel.outer - 1]}, {block - 1}")
        sizes.append(body.let(f"sdiv i64 {above}, {block}"))
    first: list[str] = []
    rest = "%begin"
    for size in reversed(sizes[1:]):
        first.insert(0, body.let(f"srem i64 {rest}, {size}"))
        rest = body.let(f"sdiv i64 {rest}, {size}")
    first.insert(0, rest)
    # A single digit is the unit's number itself.
    carried = [("i64", d) for d in first] if len(sizes) > 1 else []
    with scope.loop("%begin", "%end", 1, carried) as unit:
        digits = unit.carried if carried else [unit.index]
        for axis, digit in zip(axes, digits, strict=False):
            scope.index[axis] = digit
        if kernel.vector != "outer":
            for stage in kernel.stages:
                RowStage(scope, stage).emit()
        else:
            if slots is not None:
                unit.step = _run_length(scope, slots.units, unit.index, digits[-1], sizes[-1])
            _columns(scope, slots, digits[-1], unit.step, block)
        if carried:
            unit.next = _advance(scope, digits, sizes, unit.step)


def _run_length(scope: Scope, most: int, unit: str, block: str, blocks: str) -> str:
    """How many units, next to each other along the vector axis, are done together: at most so many."""
    body = scope.body
    length = str(most)
    for limit in (body.let(f"sub i64 %end, {unit}"), body.let(f"sub i64 {blocks}, {block}")):
        length = body.call("i64", "llvm.smin.i64", ("i64", length), ("i64", limit))
    return length


def _advance(scope: Scope, digits: list[str], sizes: list[str], step: str) -> list[str]:
    """The digits of the next unit."""
    body = scope.body
    carry = step
    out: list[str] = []
    for k in range(len(digits) - 1, -1, -1):
        digit = body.let(f"add i64 {digits[k]}, {carry}")
        if k:
            full = body.let(f"icmp eq i64 {digit}, {sizes[k]}")
            digit = body.let(f"select i1 {full}, i64 0, i64 {digit}")
            carry = body.let(f"zext i1 {full} to i64")
        out.insert(0, digit)
    return out


def _columns(scope: Scope, slots: ColumnSlots | None, first: str, count: str, block: int) -> None:
    """All stages for `count` blocks of the vector axis, from number `first` on."""
    kernel, body = scope.kernel, scope.body
    start = body.let(f"mul i64 {first}, {block}")
    after = body.let(f"add i64 {start}, {body.let(f'mul i64 {count}, {block}')}")
    stop = body.call("i64", "llvm.smin.i64", ("i64", after), ("i64", scope.extent[kernel.outer - 1]))
    stages = [None] * len(kernel.stages) if slots is None else slots.stages
    for stage, own in zip(kernel.stages, stages, strict=True):
        ColumnStage(scope, stage, own, start, stop).emit()
