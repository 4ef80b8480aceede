"""Matrix products: by generated code or by BLAS, chosen once sizes are known; their launches and memory.

The choice is made by counting cycles (`Choice.generated_cycles`, `blas_cycles`). It reads the sizes, the strides and
the dtype, and nothing that could differ between two runs: not the number of threads, and no clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from lazyt.backends.cpu import blas
from lazyt.backends.cpu.engine import compile_module, host_features
from lazyt.backends.cpu.gemm_ir import product_text
from lazyt.backends.cpu.gemm_pack import pack_text
from lazyt.backends.cpu.gemm_tile import (
    AT,
    HEAD,
    KC,
    MAX_ARGUMENTS,
    MAX_BATCH,
    PACK_AT,
    PACK_HEAD,
    PACK_SIZE,
    PAD,
    SCRATCH,
    SIZE,
    Tile,
    tile_of,
)
from lazyt.backends.cpu.threads import get_num_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.backends.cpu.executor import Bound
    from lazyt.ir.extents import Dim
    from lazyt.ir.graph import Node
    from lazyt.ir.schedule import MatmulCall

    Patches = list[tuple[int, int, int]]
    Value = Callable[[int | Dim], int]

# Multiply-adds that a chunk of a batch of products should have, and that a panel of one product must have.
PRODUCT_GRAIN = 1 << 18
PANEL = 1 << 20
# A unit of a generated product has about this many multiply-adds (20 us), if there are enough of them to share.
UNIT = 1 << 21
# Operands up to this many bytes are read where they lie: they stay in the second-level cache.
NEAR = 1 << 18
# ... and so are larger ones, if at most this many rows of A meet them.
MANY = 160
# A transposed left operand up to this many bytes is read where it lies: it stays in the first-level cache.
CLOSE = 1 << 15
# Rows this far apart (or a multiple) fall into the same sets of the first-level cache.
ALIASED = 4096

# The cost model, in cycles.
PACK_CYCLES = {"": 0.0, "rows": 0.3, "panel": 0.4, "across": 0.5}
MICRO_CYCLES = 120  # a call of a micro-kernel, and storing its tile
REGION_CYCLES = 2500  # one more region of the program: threads meet
BLAS_CALL = 2500
BLAS_TILE = 32
BLAS_ELEMENT = 0.15  # of C
BLAS_EFFICIENCY = 0.80  # of the peak, for large sizes
GENERATED_EFFICIENCY = 0.88
LARGE_EFFICIENCY = 0.77  # of operands from here on, in bytes
LARGE = 1 << 22
# What a pass over memory costs that an epilogue saves: cycles for each byte, beyond the caches.
MEMORY_CYCLES = 0.25


@dataclass(frozen=True)
class Choice:
    """How one product is computed, and why."""

    how: str  # 'generated' | 'blas' | 'numpy'
    m: int
    n: int
    k: int
    count: int  # products in the batch
    generated_cycles: int  # 0 where there is no generated code for it
    blas_cycles: int  # 0 where BLAS has no routine for it
    tile: Tile | None = None
    form: str = "row"  # how a micro-kernel reads A
    pack_a: str = ""  # '', 'rows' or 'across'
    pack_b: str = ""  # '', 'panel' or 'across'
    on_stack: bool = False  # whether nobody but the epilogue needs the product

    def source(self, dtype: np.dtype) -> str:
        """The LLVM IR of a generated product."""
        assert self.tile is not None
        return product_text(dtype, self.tile, self.form)[0]

    @property
    def reason(self) -> str:
        """The estimates, for a person to read."""
        if not self.blas_cycles:
            return "BLAS has no routine for it"
        if not self.generated_cycles:
            return "there is no generated code for it"
        return f"estimated {self.generated_cycles / 1e3:,.0f} kcycles generated, {self.blas_cycles / 1e3:,.0f} by BLAS"


def leading(x: Node, strides: tuple[int | Dim, ...], value: Value) -> tuple[int, int] | None:
    """(transposition, leading dimension) of a matrix operand, if BLAS can read it."""
    r, s = (value(d) for d in x.shape[-2:])
    a, b = (value(d) for d in strides[-2:])
    if b == 1 and (a >= max(s, 1) or r <= 1):
        return blas.NO_TRANS, max(a if r > 1 else s, s, 1)
    if a == 1 and (b >= max(r, 1) or s <= 1):
        return blas.TRANS, max(b if s > 1 else r, r, 1)
    if s <= 1 and r <= 1:
        return blas.NO_TRANS, max(s, 1)
    if r <= 1 and b == 1:
        return blas.NO_TRANS, max(s, 1)
    return None


@lru_cache(maxsize=16)
def tile_for(dtype: np.dtype) -> Tile | None:
    """The micro-kernels for products of a dtype; None when there are none."""
    if dtype.kind in "iu" or dtype in (np.dtype(np.float32), np.dtype(np.float64)):
        return tile_of(dtype, host_features())
    return None


def choose(c: MatmulCall, value: Value, gemm: bool, library: bool) -> Choice:
    """By generated code, BLAS or NumPy. `gemm` and `library` off: not by generated code, not by BLAS if avoidable."""
    x, y = c.node.operands
    m, kk = (value(d) for d in x.shape[-2:])
    n = value(y.shape[-1])
    count = math.prod(value(d) for d in x.shape[:-2])
    dtype = c.node.dtype
    ta, tb = (leading(o, s, value) for o, (_, s, _) in zip((x, y), c.operands, strict=True))
    readable = ta is not None and tb is not None and c.node.ndim - 2 <= min(MAX_BATCH, blas.MAX_BATCH)
    tile = tile_for(dtype) if readable else None
    by_blas = readable and blas.available(dtype)
    # The generated code of the largest integers' products is needed: no library has them.
    if tile is None or not (gemm or not by_blas):
        return Choice("blas" if by_blas else "numpy", m, n, kk, count, 0, int(by_blas))
    assert ta is not None
    assert tb is not None
    form = "row" if ta[0] == blas.NO_TRANS else "col"
    size = dtype.itemsize
    pack_a = ""
    if form == "row" and n > tile.columns and ta[1] * size % ALIASED == 0 and m > 4:
        pack_a = "rows"
    elif form == "col" and n > tile.columns and m * kk * size > CLOSE:
        pack_a, form = "across", "row"
    far = kk * n * size > NEAR and m > MANY
    aliased = tb[1] * size % ALIASED == 0 and kk > 32 and m > 4 * tile.rows[0]
    pack_b = "across" if tb[0] != blas.NO_TRANS and kk > 1 else "panel" if far or aliased else ""
    if tb[0] != blas.NO_TRANS and n <= 1:
        pack_b = "across"
    on_stack = c.epilogue is not None and not c.kept and c.epilogue.kernel.layout.size <= MAX_ARGUMENTS
    estimate = _generated(tile, m, n, kk, count, pack_a, pack_b, c, value)
    library_estimate = _blas(tile, m, n, kk, count, c) if by_blas else 0
    how = "generated" if not by_blas or not library or estimate < library_estimate else "blas"
    return Choice(
        how, m, n, kk, count, estimate, library_estimate, tile, form, pack_a, pack_b, on_stack and how == "generated"
    )


def _generated(
    tile: Tile, m: int, n: int, kk: int, count: int, pack_a: str, pack_b: str, c: MatmulCall, value: Value
) -> int:
    """Cycles of one core: two multiply-adds a cycle, but four cycles until a sum can be added to again."""
    efficiency = GENERATED_EFFICIENCY if max(m * kk, kk * n) * c.node.dtype.itemsize < LARGE else LARGE_EFFICIENCY
    blocks = max(-(-kk // KC), 1)
    cycles = 0.0
    rows, left = [], m
    for height in tile.rows:
        rows.append((height, left // height))
        left %= height
    full, rest = divmod(n, tile.columns)
    for vectors, times in ((tile.vectors, full), (-(-rest // tile.lanes), 1 if rest else 0)):
        for height, tiles in rows:
            work = max(height * vectors / 2 / efficiency, 4.0)
            cycles += times * tiles * (kk * work + blocks * MICRO_CYCLES)
    packed = 1 if all(not value(s) for s in c.operands[1][1][:-2]) else count
    cycles *= count
    if pack_b:
        cycles += packed * kk * n * PACK_CYCLES[pack_b]
    if pack_a:
        cycles += count * m * kk * PACK_CYCLES[pack_a]
    if pack_a or pack_b:
        cycles += REGION_CYCLES
    return int(cycles)


def _blas(tile: Tile, m: int, n: int, kk: int, count: int, c: MatmulCall) -> int:
    # Its tiles are large, and computed whole.
    work = max(m, BLAS_TILE) * max(n, BLAS_TILE) * kk / tile.lanes / 2
    cycles = count * (work / BLAS_EFFICIENCY + BLAS_CALL + m * n * BLAS_ELEMENT)
    if c.epilogue is not None:
        # The product is written, and read again.
        moved = count * m * n * c.node.dtype.itemsize
        cycles += REGION_CYCLES + 2 * moved * MEMORY_CYCLES * (moved > NEAR)
    return int(cycles)


@lru_cache(maxsize=64)
def code_of(text: str, name: str) -> int:
    """The address of a function of a module that stays loaded."""
    module = compile_module(text, [name], permanent=True)
    _modules.append(module)
    return module.address(name)


_modules: list[object] = []


class Product:
    """One product of a bound plan: the rows of the program and what memory they need beside it."""

    def __init__(self, bound: Bound, call: MatmulCall, choice: Choice) -> None:
        self.bound = bound
        self.call = call
        self.choice = choice

    @property
    def extra(self) -> dict[str, int]:
        """Bytes of packed operands."""
        ch, size = self.choice, self.call.node.dtype.itemsize
        out: dict[str, int] = {}
        if ch.how != "generated":
            return out
        if ch.pack_a:
            out["A"] = self._lines() * self._batch(0) * size
        if ch.pack_b:
            assert ch.tile is not None
            out["B"] = self._panel() * -(-ch.n // ch.tile.columns) * self._batch(1) * size
        return out

    @property
    def modules(self) -> list[tuple[str, str]]:
        """The code that its launches call (text, name of the function), where that is generated."""
        ch, dtype = self.choice, self.call.node.dtype
        if ch.how != "generated":
            return []
        assert ch.tile is not None
        packs = [pack_text(dtype, ch.tile, kind) for kind in (ch.pack_a, ch.pack_b) if kind]
        return [product_text(dtype, ch.tile, ch.form), *packs]

    def _lines(self) -> int:
        """Elements of one packed A."""
        tile = self.choice.tile
        assert tile is not None
        whole = max(tile.lanes, 8)
        return -(-self.choice.m // whole) * whole * self._line()

    def _line(self) -> int:
        """From row to row of a packed A: a little more than it is long."""
        tile = self.choice.tile
        assert tile is not None
        return -(-self.choice.k // tile.columns) * tile.columns + PAD

    def _panel(self) -> int:
        """Elements of one packed panel of B."""
        ch = self.choice
        assert ch.tile is not None
        return -(-ch.k // ch.tile.lanes) * ch.tile.lanes * ch.tile.columns

    def _strides(self, i: int) -> list[int]:
        """The strides of an operand along the axes of the batch."""
        return [self.bound.value(s) for s in self.call.operands[i][1][:-2]]

    def _batch(self, i: int) -> int:
        """How many different matrices an operand has: one that is repeated is packed once."""
        return self.choice.count if any(self._strides(i)) else 1

    def rows(self, rows: list[list[int]], table: list[int], patches: Patches) -> None:
        """Append this product's launches, with their arguments."""
        if self.choice.how == "blas":
            self._blas(rows, table, patches)
        else:
            self._generated(rows, table, patches)

    # Generated code

    def _generated(self, rows: list[list[int]], table: list[int], patches: Patches) -> None:
        b, c, ch = self.bound, self.call, self.choice
        tile = ch.tile
        assert tile is not None
        x, y = c.node.operands
        (base_a, sa, oa), (base_b, sb, ob) = c.operands
        la, lb = leading(x, sa, b.value), leading(y, sb, b.value)
        assert la is not None
        assert lb is not None
        dtype = c.node.dtype
        batch = [b.value(d) for d in x.shape[:-2]]
        steps_a, steps_b = self._strides(0), self._strides(1)
        a_line, b_row, b_panel = la[1], lb[1], tile.columns
        first = len(rows)
        if ch.pack_a:
            a_line = self._line()
            head = {"rows": ch.m, "cols": ch.k, "row_step": la[1], "to_unit": 8 * a_line, "to_row": a_line}
            units = -(-ch.m // 8)
            if ch.pack_a == "across":
                head["to_unit"], units = tile.columns, -(-ch.k // tile.columns)
            self._pack(ch.pack_a, head, units, self._lines(), 0, (base_a, oa), rows, table, patches)
            steps_a = self._dense(batch, steps_a, self._lines())
        if ch.pack_b:
            panels = -(-ch.n // tile.columns)
            head = {"rows": ch.k, "cols": ch.n, "row_step": lb[1], "to_unit": self._panel(), "to_row": tile.columns}
            whole = panels * self._panel()
            self._pack(ch.pack_b, head, panels, whole, 1, (base_b, ob), rows, table, patches)
            b_row, b_panel = tile.columns, self._panel()
            steps_b = self._dense(batch, steps_b, whole)
        for row in rows[first:-1]:
            row[4] = 1
        at = len(table)
        unit_rows, unit_cols = self._unit()
        row_blocks, col_blocks = max(-(-ch.m // unit_rows), 1), max(-(-ch.n // unit_cols), 1)
        args = [0] * SIZE
        values = {
            "m": ch.m, "n": ch.n, "k": ch.k, "a_row": a_line if ch.form == "row" else 1,
            "a_col": 1 if ch.form == "row" else a_line, "b_row": b_row, "b_panel": b_panel, "c_row": ch.n,
            "unit_rows": unit_rows, "unit_cols": unit_cols, "row_blocks": row_blocks, "col_blocks": col_blocks,
            "c_batch": ch.m * ch.n, "batch": len(batch), "scratch": int(ch.on_stack),
        }  # fmt: skip
        for name, v in values.items():
            args[AT[name]] = v
        for i, e in enumerate(batch):
            args[HEAD + 3 * i : HEAD + 3 * i + 3] = [e, steps_a[i], steps_b[i]]
        table.extend(args)
        for i, name in enumerate("AB"):
            if name in self.extra:
                patches.append((at + AT[name], b.arena_base, b.offsets[c, name]))
            else:
                base, _, offset = c.operands[i]
                b._address(base, offset, dtype.itemsize, at + AT[name], patches)
        if not ch.on_stack:
            b._address(c.node, 0, dtype.itemsize, at + AT["C"], patches)
        own = True
        if c.epilogue is not None:
            own = self._epilogue(at, table, patches)
        units = row_blocks * col_blocks * ch.count if ch.m and ch.n else 0
        grain = max(PRODUCT_GRAIN // max(unit_rows * unit_cols * ch.k, 1), 1)
        rows.append([code_of(*product_text(dtype, tile, ch.form)), at, units, grain, 0])
        if not own:
            assert c.epilogue is not None
            b._kernel(c.epilogue, rows, table, patches, False)

    def _dense(self, batch: Sequence[int], strides: Sequence[int], size: int) -> list[int]:
        """The strides of packed matrices, one after another."""
        if not any(strides):
            return [0] * len(batch)
        out: list[int] = []
        step = size
        for e in reversed(batch):
            out.insert(0, step)
            step *= e
        return out

    def _pack(
        self, kind: str, head: dict[str, int], units: int, size: int, operand: int, source: tuple[Node, int | Dim],
        rows: list[list[int]], table: list[int], patches: Patches,
    ) -> None:  # fmt: skip
        extents = (
            [self.bound.value(d) for d in self.call.node.operands[0].shape[:-2]] if self._batch(operand) > 1 else []
        )
        batch = list(zip(extents, self._strides(operand), strict=False))
        self._pack_from(source, kind, head, units, size, "AB"[operand], batch, rows, table, patches)

    def _pack_from(
        self, source: tuple[Node, int | Dim], kind: str, head: dict[str, int], units: int, size: int, name: str,
        batch: Sequence[tuple[int, int]], rows: list[list[int]], table: list[int], patches: Patches,
    ) -> None:  # fmt: skip
        """Append a packing of `units` parts of each of a batch of (extent, stride) matrices, `size` elements each."""
        b, c, tile = self.bound, self.call, self.choice.tile
        assert tile is not None
        at = len(table)
        args = [0] * PACK_SIZE
        for field, v in {**head, "units": units, "batch": len(batch), "to_batch": size}.items():
            args[PACK_AT[field]] = v
        count = 1
        for i, (e, s) in enumerate(batch):
            args[PACK_HEAD + 2 * i : PACK_HEAD + 2 * i + 2] = [e, s]
            count *= e
        table.extend(args)
        b._address(source[0], source[1], c.node.dtype.itemsize, at + PACK_AT["from"], patches)
        patches.append((at + PACK_AT["to"], b.arena_base, b.offsets[c, name]))
        grain = max(16384 * units // max(size, 1), 1)
        rows.append([code_of(*pack_text(c.node.dtype, tile, kind)), at, units * count, grain, 0])

    def _unit(self) -> tuple[int, int]:
        """Rows and columns of a unit: small enough to be shared, large enough to be worth it, and to lie in a cache."""
        ch = self.choice
        tile = ch.tile
        assert tile is not None
        m, n = max(ch.m, 1), max(ch.n, 1)
        most = SCRATCH // self.call.node.dtype.itemsize
        cols = min(-(-n // tile.columns) * tile.columns, 512)
        if m <= 2 * tile.rows[0] and not ch.on_stack:
            cols = -(-n // tile.columns) * tile.columns
        work = m * n * max(ch.k, 1)
        threads = get_num_threads()
        parts = 1
        if threads > 1 and ch.count * work >= PANEL:
            # As many units as can be shared evenly, each still worth a thread's while.
            parts = max(-(-threads // ch.count), min(work // UNIT, -(-4 * threads // ch.count)))
            parts = max(min(parts, work // PRODUCT_GRAIN), 1)
        if m < parts * tile.rows[0] and n >= parts * tile.columns:
            cols = min(cols, -(-n // parts // tile.columns) * tile.columns)
            rows = m
        else:
            wide = -(-n // cols)
            deep = -(-parts // wide)
            rows = -(-m // deep)
            rows = -(-rows // tile.rows[0]) * tile.rows[0] if rows > 4 * tile.rows[0] else rows
        if ch.on_stack:
            rows = min(rows, max(most // cols, 1))
        return max(rows, 1), cols

    def _epilogue(self, at: int, table: list[int], patches: Patches) -> bool:
        """The epilogue's arguments and what must be known to move them; False if it must be launched on its own."""
        b, c = self.bound, self.call
        call = c.epilogue
        assert call is not None
        layout = call.kernel.layout
        if layout.size > MAX_ARGUMENTS:
            return False
        arguments, code = b.epilogue(call, table, patches)
        about = len(table)
        for a, access in zip(call.accesses, call.kernel.accesses, strict=True):
            own = self.choice.on_stack and a.buffer is c.node and not access.writes
            table.append(-1 if own else a.itemsize)
        axes = call.kernel.axes
        for name, v in {
            "epilogue": code, "arguments": arguments - at, "size": layout.size, "axes": axes,
            "accesses": len(call.accesses), "affines": len(call.affines), "about": about - at,
        }.items():  # fmt: skip
            table[at + AT[name]] = v
        return True

    # BLAS

    def _blas(self, rows: list[list[int]], table: list[int], patches: Patches) -> None:
        b, c, ch = self.bound, self.call, self.choice
        at = len(table)
        args = [0] * blas.SIZE
        x, y = c.node.operands
        m, n, kk = ch.m, ch.n, ch.k
        (_, sa, oa), (_, sb, ob) = c.operands
        la, lb = leading(x, sa, b.value), leading(y, sb, b.value)
        assert la is not None
        assert lb is not None
        batch = [b.value(d) for d in x.shape[:-2]]
        panels, pm, pn = _panels(m, n, kk)
        pa = 0 if pn < n else pm * (la[1] if la[0] == blas.NO_TRANS else 1)
        pb = 0 if pn == n else pn * (1 if lb[0] == blas.NO_TRANS else lb[1])
        pc = pm * n if pn == n else pn
        args[: blas.HEAD] = [
            m, n, kk, la[1], lb[1], max(n, 1), la[0], lb[0], m * n, len(batch), panels, pm, pn, pa, pb, pc,
        ]  # fmt: skip
        units = panels
        for i, e in enumerate(batch):
            args[blas.HEAD + 3 * i : blas.HEAD + 3 * i + 3] = [e, b.value(sa[i]), b.value(sb[i])]
            units *= e
        size = c.node.dtype.itemsize
        for i, (node, offset) in enumerate(((c.operands[0][0], oa), (c.operands[1][0], ob), (c.node, 0))):
            b._address(node, offset, size, at + blas.POINTERS + i, patches)
        address, args[blas.FUNCTION] = blas.kernel(c.node.dtype)
        if m == 0 or n == 0:
            units = 0
        work = max(m * n * kk // panels, 1)
        rows.append([address, at, units, max(PRODUCT_GRAIN // work, 1), 0])
        table.extend(args)
        if c.epilogue is not None:
            b._kernel(c.epilogue, rows, table, patches, False)


def _panels(m: int, n: int, k: int) -> tuple[int, int, int]:
    """How many panels one product is divided into, and the rows and columns of each."""
    threads = get_num_threads()
    if threads == 1 or m * n * k < PANEL * threads:
        return 1, max(m, 1), n
    if m >= n:
        rows = math.ceil(math.ceil(m / threads) / 8) * 8
        return math.ceil(m / rows), rows, n
    columns = math.ceil(math.ceil(n / threads) / 16) * 16
    return math.ceil(n / columns), m, columns
