"""Matrix products: by generated code or by BLAS, chosen when sizes are known; their launches and memory.

The choice is made by counting cycles (`Choice.generated_cycles`, `blas_cycles`). It reads the sizes, the strides and
the dtype, and nothing that could differ between two runs: not the number of threads, and no clock.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from lazyt.backends.common import products
from lazyt.backends.common.products import MAX_BATCH, NO_TRANS, TRANS, leading
from lazyt.backends.cpu import pair_products
from lazyt.backends.cpu.codegen.source import Source, source_of
from lazyt.backends.cpu.engine import compile_module, host_features
from lazyt.backends.cpu.kept_panels import LEAST, Kept
from lazyt.backends.cpu.library import blas, gemm_amx
from lazyt.backends.cpu.library.gemm_ir import Reads, product_text
from lazyt.backends.cpu.library.gemm_pack import PANELS, pack_pairs_text, pack_text
from lazyt.backends.cpu.library.gemm_tile import (
    AT,
    CHUNK,
    DEEP,
    DEPTH,
    FINISHED,
    HEAD,
    MAX_ARGUMENTS,
    NEAR,
    PACK_AT,
    PACK_B,
    PACK_HEAD,
    PACK_SIZE,
    PACKED_A,
    PACKED_B,
    PAD,
    SCRATCH,
    SIZE,
    Family,
    Tile,
    tile_of,
)
from lazyt.backends.cpu.library.product_costs import blas_cycles, generated_cycles
from lazyt.backends.cpu.thread_pool import get_num_threads
from lazyt.forking import cached_property
from lazyt.ir import dtypes, graph as g
from lazyt.ir.records import dataclass
from lazyt.ir.symbolic import uses_offset

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyt.backends.common.products import Patches, Value
    from lazyt.backends.cpu.kernel_rows import KernelRows
    from lazyt.ir.graph import Node
    from lazyt.ir.passes.schedule import MatmulCall
    from lazyt.ir.symbolic import Dim


# Multiply-adds that a chunk of a batch of products should have, and that a panel of one product must have.
PRODUCT_GRAIN = 1 << 18
PANEL = 1 << 20
# ... or as long as which many take an element of B to read, where few rows meet it.
READ = 4
# A unit of a generated product has about this many multiply-adds (20 us), if there are enough of them to share.
UNIT = 1 << 21
# Columns of a unit, at most: a packed group of B stays in the second-level cache.
WIDE = 512
# Operands of more than NEAR bytes are read where they lie, too, if at most this many rows of A meet them.
MANY = 40
# A right operand that is converted is packed if more tiles than so many read it: halves, and float32 that is rounded.
SOME = 4
FEW = 1
# A transposed left operand up to this many bytes is read where it lies: it stays in the first-level cache.
CLOSE = 1 << 15
# Rows this far apart (or a multiple) fall into the same sets of the first-level cache.
ALIASED = 4096

# A packed right operand is worth keeping where at most so many rows, times the lanes of a vector, meet it: for more it
# is less than a tenth of the time.
MOST_ROWS = 8
# ... and one that is read in place if its rows are this far apart (or a multiple): 32 of them have few sets of the
# first-level cache.
CROWDED = 2048


@dataclass(frozen=True)
class Choice(products.Choice):
    """How one product is computed here, and why."""

    tile: Tile | None = None
    families: tuple[Family, ...] = ()  # the micro-kernels that it takes
    form: str = "row"  # how a micro-kernel reads A
    pack_a: str = ""  # '' or 'across'
    pack_b: str = ""  # '', 'panel' or 'across'
    deep: int = DEEP  # rows of a unit at most, where there are several blocks of k
    wide: int = WIDE  # columns of a unit at most
    sources: tuple[Source | None, Source | None] = (None, None)  # how A and B are converted as they are read
    dots: str = ""  # how pairs of bfloat16 are multiplied, if they are (see `Reads`)
    by_dots: bool = False  # a dot product for each element (gemv.py)
    leading: tuple[tuple[int, int], ...] = ()  # how A and B lie (see `leading`), where one that is not NumPy reads them

    @property
    def reason(self) -> str:
        return "few rows by a matrix that lies along them: nothing is packed" if self.by_dots else super().reason

    def text(self, dtype: np.dtype) -> tuple[str, str]:
        """The module of a generated product, and its name."""
        assert self.tile is not None
        a, b = self.sources
        if self.pack_a and a is not None:
            a = Source(dtype, a.half) if self.dots else None  # packed, it is float32
        reads = Reads(a, b, b is None or bool(self.pack_b), self.dots)
        return product_text(dtype, self.tile, self.form, self.families, reads)


@lru_cache(maxsize=16)
def tile_for(dtype: np.dtype, form: str = "row") -> Tile | None:
    """The micro-kernels for products of a dtype that read A so; None when there are none."""
    if dtypes.kind(dtype) in "iuf" and not dtypes.of(dtype).narrow:
        return tile_of(dtype, host_features(), form=form)
    return None


def choose(c: MatmulCall, value: Value, gemm: bool, library: bool) -> Choice:
    """By generated code, BLAS or NumPy. `gemm` and `library` off: not by generated code, not by BLAS if avoidable."""
    x, y = c.node.operands
    m, kk = (value(d) for d in x.shape[-2:])
    n = value(y.shape[-1])
    count = math.prod(value(d) for d in x.shape[:-2])
    dtype = c.node.dtype
    ta, tb = leading(x, c.operands[0][1], value), leading(y, c.operands[1][1], value)
    readable = ta is not None and tb is not None and c.node.ndim - 2 <= MAX_BATCH
    lie = (ta, tb) if ta is not None and tb is not None else ()
    form = "col" if ta is not None and ta[0] == TRANS else "row"
    tile = tile_for(dtype, form) if readable else None
    (xb, _, _), (yb, _, _) = c.operands
    sources = source_of(x, xb, dtype), source_of(y, yb, dtype)
    by_blas = readable and blas.available(dtype) and sources == (None, None)
    # The generated code of the largest integers' products is needed: no library has them.
    if tile is None or not (gemm or not by_blas):
        return Choice("blas" if by_blas else "numpy", m, n, kk, count, 0, int(by_blas), leading=lie)
    assert ta is not None
    assert tb is not None
    size = dtype.itemsize
    pack_a = ""
    if form == "col" and n > tile.columns and m * kk * size > CLOSE:
        pack_a, form = "across", "row"
        tile = tile_for(dtype)
        assert tile is not None
    both = all(s is not None and s.half == dtypes.bfloat16 for s in sources)
    dots = pair_products.dot_products() if both and m > FEW * tile.rows[0] else ""
    if dots == "tiles" and (m < gemm_amx.ROWS or kk < gemm_amx.LENGTH):
        dots = ""
    if dots and form == "col":
        pack_a, form = "across", "row"
        tile = tile_for(dtype)
        assert tile is not None
    if dots == "tiles":
        tile = gemm_amx.TILE
    far = kk * n * size > NEAR and m > MANY
    if sources[1] is not None:
        far = bool(dots) or m > (FEW if sources[1].rounds else SOME) * tile.rows[0]
    aliased = tb[1] * size % ALIASED == 0 and kk > 32 and m > 4 * tile.rows[0]
    pack_b = "across" if tb[0] != NO_TRANS else "panel" if far or aliased else ""
    estimate = generated_cycles(tile, m, n, kk, count, pack_a, pack_b, c)
    library_estimate = blas_cycles(tile, m, n, kk, count, c, tb[0] != NO_TRANS) if by_blas else 0
    how = "generated" if not by_blas or not library or estimate < library_estimate else "blas"
    on_stack = how == "generated" and stays_on_stack(c, kk)
    return Choice(
        how, m, n, kk, count, estimate, library_estimate, on_stack, tile=tile, families=tile.families(n), form=form,
        pack_a=pack_a, pack_b=pack_b, sources=sources, dots=dots, leading=lie,
    )  # fmt: skip


def stays_on_stack(c: MatmulCall, k: int) -> bool:
    """Whether a generated product needs no memory: only its epilogue reads it, and it is finished in one go along k."""
    return epilogue_alone(c) and k <= DEPTH


def epilogue_alone(c: MatmulCall) -> bool:
    """Whether an epilogue that the code of the product can call reads the result, and nothing else does."""
    return c.epilogue is not None and not c.kept and c.epilogue.kernel.layout.size <= MAX_ARGUMENTS


def fill(size: int, at: Mapping[str, int], values: Mapping[str, int]) -> list[int]:
    """The arguments of a launch: `size` entries, those with a name where `at` says."""
    args = [0] * size
    for name, v in values.items():
        args[at[name]] = v
    return args


@lru_cache(maxsize=64)
def code_of(text: str, name: str) -> int:
    """The address of a function of a module that stays loaded."""
    module = compile_module(text, [name], permanent=True)
    _modules.append(module)
    return module.address(name)


_modules: list[object] = []


class Product(products.Product):
    """One product of a bound plan: the rows of the program and what memory they need beside it."""

    bound: KernelRows
    choice: Choice

    @property
    def tile(self) -> Tile:
        """That of generated code."""
        tile = self.choice.tile
        assert tile is not None, "asked for generated code alone"
        return tile

    @property
    def extra(self) -> dict[str, int]:
        """Bytes of operands that are packed beforehand."""
        ch, size = self.choice, self.call.node.dtype.itemsize
        found = {"A": self._lines() * self._batch(0) * size} if ch.pack_a else {}
        return found | ({"B": self._all_panels * size} if self._packs_once else {})

    @cached_property
    def _packs_once(self) -> bool:
        """Whether panels of pairs are packed beforehand, as several units read them."""
        ch = self.choice
        if ch.how != "generated" or ch.dots != "tiles" or not ch.pack_b or any(self._strides(1)):
            return False
        return -(-ch.m // self._unit()[0]) * ch.count > 1

    @property
    def _all_panels(self) -> int:
        """Elements of all packed panels."""
        return self._panel() * -(-self.choice.n // self.tile.columns)

    @property
    def workspace(self) -> int:
        """Bytes of working memory that a thread needs for it: a part of the product, and panels of B packed."""
        ch = self.choice
        if ch.how != "generated" or not (ch.on_stack or ch.pack_b or self._converts):
            return 0
        size = self.call.node.dtype.itemsize
        rows, _, group, chunk = self._unit()
        if self._converts:
            lines = rows if ch.form == "row" else min(max(ch.k, 1), DEPTH)
            return self._converted_at(group) + lines * self._converted_line(rows) * size
        if not ch.pack_b:
            return min(rows, chunk) * group * size
        return self._converted_at(group)

    @property
    def _converts(self) -> bool:
        """Whether a unit converts its part of A."""
        return self.choice.sources[0] is not None and (not self.choice.pack_a or bool(self.choice.dots))

    def _converted_at(self, group: int) -> int:
        """Where a converted part of A lies in the working memory: behind a finished part of C, and a group of B."""
        ch = self.choice
        packed = max(-(-group // self.tile.columns), 1) * self._packed_panel() if ch.pack_b else 0
        return FINISHED * int(ch.on_stack) + packed

    def _converted_line(self, rows: int) -> int:
        """From line to line of a converted part of A: room for a whole vector at its end, and a little more."""
        ch, columns = self.choice, self.tile.columns
        long = self._pairs(min(max(ch.k, 1), DEPTH)) if ch.form == "row" else rows
        return -(-long // columns) * columns + PAD

    def _packed_panel(self) -> int:
        """Bytes of a panel of B that the unit packs."""
        return self._deep(min(max(self.choice.k, 1), DEPTH)) * self.tile.columns * self.call.node.dtype.itemsize

    def _pairs(self, k: int) -> int:
        """What so many elements along k are, converted or packed: as many, or half as many pairs."""
        return -(-k // 2) if self.choice.dots else k

    def _deep(self, k: int) -> int:
        """Rows of a packed panel of B for so many elements along k."""
        lanes = self.tile.lanes
        return -(-self._pairs(k) // lanes) * lanes

    @property
    def modules(self) -> list[tuple[str, str]]:
        """The code that its launches call (text, name of the function), where that is generated."""
        ch, dtype = self.choice, self.call.node.dtype
        if ch.how != "generated":
            return []
        # NOTE: B is packed by the product's own code.
        packs = [pack_text(dtype, self.tile, ch.pack_a, ch.sources[0])] if ch.pack_a else []
        return [ch.text(dtype), *packs, *([self._pairs_text] if self._packs_once else [])]

    @property
    def _pairs_text(self) -> tuple[str, str]:
        source = self.choice.sources[1]
        assert source is not None, "pairs are of halves"
        return pack_pairs_text(self.call.node.dtype, self.tile, self.choice.pack_b, source)

    def _lines(self) -> int:
        """Elements of one packed A."""
        lanes = self.tile.lanes
        return -(-self.choice.m // lanes) * lanes * self._line()

    def _line(self) -> int:
        """From row to row of a packed A: a little more than it is long."""
        columns = self.tile.columns
        return -(-self.choice.k // columns) * columns + PAD

    def _panel(self) -> int:
        """Elements of one packed panel of B."""
        return self._deep(self.choice.k) * self.tile.columns

    def _strides(self, i: int) -> list[int]:
        """The strides of an operand along the axes of the batch."""
        return [self.bound.value(s) for s in self.call.operands[i][1][:-2]]

    def _batch(self, i: int) -> int:
        """How many different matrices an operand has: one that is repeated is packed once."""
        return self.choice.count if any(self._strides(i)) else 1

    @property
    def kept(self) -> Kept | None:
        """The panels of B that may stay packed: where it is an input, and to pack it is a good part of the product."""
        ch, dtype, (base, _, offset) = self.choice, self.call.node.dtype, self.call.operands[1]
        # NOTE: units that share a part of B would both pack it.
        if not self._may_stay or self._packs_once or -(-ch.m // self._unit()[0]) > 1:
            return None
        assert ch.tile is not None
        assert isinstance(base.attrs, g.Input)
        order, line = ch.leading[1]
        nbytes = self._all_panels * dtype.itemsize
        sizes = self.bound.value(offset), line, ch.k, ch.n
        form = order, base.dtype, dtype, ch.sources[1], bool(ch.dots), ch.tile.columns, ch.tile.lanes
        return Kept(base.attrs.index, sizes, form, nbytes)

    @cached_property
    def _may_stay(self) -> bool:
        """Whether panels of B stay packed, where units do not share them."""
        ch, size, (base, _, offset) = self.choice, self.call.node.dtype.itemsize, self.call.operands[1]
        if not self.bound.keeps or ch.how != "generated" or base.op != "input" or uses_offset(offset):
            return False
        assert ch.tile is not None
        # NOTE: what micro-kernels convert is read as it is, and so are rows that do not fall into the same few sets.
        if not ch.pack_b and (ch.sources[1] is not None or ch.leading[1][1] * size % CROWDED):
            return False
        return ch.m <= MOST_ROWS * ch.tile.lanes and ch.k * ch.n * size >= LEAST and not any(self._strides(1))

    def rows(self, rows: list[list[int]], table: list[int], patches: Patches) -> None:
        """Append this product's launches, with their arguments."""
        if self.choice.how == "blas":
            self._blas(rows, table, patches)
        else:
            self._generated(rows, table, patches)

    # Generated code

    def _generated(self, rows: list[list[int]], table: list[int], patches: Patches) -> None:
        b, c, ch, tile = self.bound, self.call, self.choice, self.tile
        x = c.node.operands[0]
        la, lb = ch.leading
        dtype = c.node.dtype
        batch = [b.value(d) for d in x.shape[:-2]]
        steps_a, steps_b = self._strides(0), self._strides(1)
        a_line = la[1]
        if ch.pack_a:
            a_line = self._line()
            units = -(-ch.k // tile.columns)
            head = {"rows": ch.m, "cols": ch.k, "row_step": la[1], "to_unit": tile.columns, "to_row": a_line}
            self._pack(ch.pack_a, head, units, self._lines(), 0, c.operands[0][::2], rows, table, patches)
            steps_a = self._dense(batch, steps_a, self._lines())
        if self._packs_once:
            self._pack_pairs(rows, table, patches)
        at = len(table)
        unit_rows, unit_cols, group, chunk = self._unit()
        row_blocks, col_blocks = max(-(-ch.m // unit_rows), 1), max(-(-ch.n // unit_cols), 1)
        values = {
            "m": ch.m, "n": ch.n, "k": ch.k, "a_row": a_line if ch.form == "row" else 1,
            "a_col": 1 if ch.form == "row" else a_line, "b_row": lb[1], "c_row": ch.n,
            "pack_b": PACK_B.index(ch.pack_b), "group": group, "chunk": chunk,
            "unit_rows": unit_rows, "unit_cols": unit_cols, "row_blocks": row_blocks, "col_blocks": col_blocks,
            "c_batch": ch.m * ch.n, "batch": len(batch), "scratch": int(ch.on_stack),
            "a_at": self._converted_at(group), "a_line": self._converted_line(unit_rows),
        }  # fmt: skip
        args = fill(SIZE, AT, values)
        for i, e in enumerate(batch):
            args[HEAD + 3 * i : HEAD + 3 * i + 3] = [e, steps_a[i], steps_b[i]]
        table.extend(args)
        if ch.pack_a:
            patches.append((at + AT["A"], b.arena_base, b.offsets[c, "A"]))
        else:
            b._address(c.operands[0][0], c.operands[0][2], c.operands[0][0].dtype.itemsize, at + AT["A"], patches)
        b._address(c.operands[1][0], c.operands[1][2], c.operands[1][0].dtype.itemsize, at + AT["B"], patches)
        if not ch.on_stack:
            b._address(c.node, 0, dtype.itemsize, at + AT["C"], patches)
        patches.append((at + AT["workspace"], b.arena_base, b.workspace_at))
        if self._packs_once:
            patches.append((at + AT["kept"], b.arena_base, b.offsets[c, "B"]))
        elif c in b.kept_base:
            patches.append((at + AT["kept"], b.kept_base[c], 0))
        units = row_blocks * col_blocks * ch.count if ch.m and ch.n else 0
        grain = max(PRODUCT_GRAIN // max(max(unit_rows, READ) * unit_cols * ch.k, 1), 1)
        self._launch(ch.text(dtype), at, units, grain, rows, table, patches)

    def _launch(
        self, code: tuple[str, str], at: int, units: int, grain: int, rows: list[list[int]], table: list[int],
        patches: Patches,
    ) -> None:  # fmt: skip
        """Append the launch of a module's function, whose arguments begin at `at`, and its epilogue: called by it, or
        behind it."""
        epilogue = self.call.epilogue
        is_called = epilogue is not None and self._epilogue(at, table, patches)
        rows.append([code_of(*code), at, units, grain, 0])
        if epilogue is not None and not is_called:
            self.bound._kernel(epilogue, rows, table, patches, False)

    def _unit_height(self, height: int, line: int) -> int:
        """Rows of a unit of a convolution, each of `line` elements in all features: a part that stays in the cache, and
        enough units to share."""
        ch, line = self.choice, max(line, 1)
        most = max(SCRATCH // self.call.node.dtype.itemsize // line, 1)
        wanted = -(-4 * get_num_threads() // max(ch.count, 1))
        worth = max(PRODUCT_GRAIN // max(line * ch.k, 1), 1)
        return max(min(most, max(-(-height // wanted), worth), height), 1)

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

    def _pack_pairs(self, rows: list[list[int]], table: list[int], patches: Patches) -> None:
        """Append the packing of all panels of B in pairs."""
        b, c, ch = self.bound, self.call, self.choice
        at = len(table)
        line = ch.leading[1][1]
        units = -(-ch.n // (PANELS * self.tile.columns))
        values = {
            "rows": ch.k, "cols": ch.n, "row_step": line, "col_step": line if ch.pack_b == "across" else 1,
            "to_unit": self._panel(), "to_row": self.tile.columns, "units": units,
        }  # fmt: skip
        table.extend(fill(PACK_SIZE, PACK_AT, values))
        base, _, offset = c.operands[1]
        b._address(base, offset, base.dtype.itemsize, at + PACK_AT["from"], patches)
        patches.append((at + PACK_AT["to"], b.arena_base, b.offsets[c, "B"]))
        rows.append([code_of(*self._pairs_text), at, units if ch.k else 0, 1, 0])

    def _pack_from(
        self, source: tuple[Node, int | Dim], kind: str, head: dict[str, int], units: int, size: int, name: str,
        batch: Sequence[tuple[int, int]], rows: list[list[int]], table: list[int], patches: Patches, shift: int = 0,
        first: int = 0,
    ) -> None:  # fmt: skip
        """Append a packing of `units` parts of each of a batch of (extent, stride) matrices, `size` elements each.

        They lie one after another, unless `head` says how far apart; `shift` elements are skipped, `first` of the copy.
        """
        b, c = self.bound, self.call
        at = len(table)
        args = fill(PACK_SIZE, PACK_AT, {"units": units, "batch": len(batch), "to_batch": size, **head})
        args[PACK_HEAD : PACK_HEAD + 2 * len(batch)] = [n for both in batch for n in both]
        table.extend(args)
        b._address(*source, source[0].dtype.itemsize, at + PACK_AT["from"], patches, shift)
        patches.append((at + PACK_AT["to"], b.arena_base, b.offsets[c, name] + first * c.node.dtype.itemsize))
        if name == "B" and c in b.kept_base:
            patches.append((at + PACK_AT["kept"], b.kept_base[c], 0))
        grain = max(16384 * units // max(size, 1), 1)
        text = pack_text(c.node.dtype, self.tile, kind, self.choice.sources["AB".index(name)])
        rows.append([code_of(*text), at, units * math.prod(e for e, _ in batch), grain, 0])

    def _unit(self) -> tuple[int, int, int, int]:
        """Rows and columns of a unit, columns of a group, rows of a chunk.

        Units are small enough to be shared and to lie in a cache, large enough to be worth it; groups fit the stack.
        """
        ch, tile = self.choice, self.tile
        size = self.call.node.dtype.itemsize
        m, n, high = max(ch.m, 1), max(ch.n, 1), tile.rows[0]
        whole = -(-n // tile.columns) * tile.columns
        chunk = -(-CHUNK // high) * high
        cols = min(whole, ch.wide) if m > 2 * high or ch.on_stack else whole
        rows = m
        work = m * n * max(ch.k, 1)
        threads = get_num_threads()
        parts = 1
        if threads > 1 and ch.count * work >= PANEL:
            # As many units as can be shared evenly, each still worth a thread's while.
            parts = max(-(-threads // ch.count), min(work // UNIT, -(-4 * threads // ch.count)))
            parts = max(min(parts, work // PRODUCT_GRAIN), 1)
        elif threads > 1 and ch.count * n * ch.k * READ >= PANEL:
            # Few rows wait for B's memory, which two threads read faster than one.
            parts = -(-threads // ch.count)
        if ch.k > DEPTH and m > ch.deep:
            rows = -(-m // -(-m // ch.deep))
        if self._converts:
            deepest = -(-self._pairs(min(max(ch.k, 1), DEPTH)) // tile.columns) * tile.columns
            rows = min(rows, max(PACKED_A // (size * (deepest + tile.columns + PAD)) - tile.columns - PAD, high))
        # By AMX B is packed once for all (see `_packs_once`), and each unit has rows of A of its own to convert.
        along_m = ch.dots == "tiles" and m >= 2 * parts * high and not any(self._strides(1))
        if parts > 1 and not along_m and (ch.pack_b or self._may_stay or m < parts * high) and n > tile.columns:
            # Along n nothing is packed twice.
            wanted = -(-parts // -(-m // rows))
            cols = min(cols, max(-(-n // wanted // tile.columns), 2 if n > 4 * tile.columns else 1) * tile.columns)
        deep = -(-parts // -(-n // cols))
        if deep > -(-m // rows):
            rows = -(-m // deep)
        if rows < m:
            rows = -(-rows // high) * high if rows > 4 * high else rows
        group = cols
        if ch.pack_b:
            group = min(cols, max(PACKED_B // self._packed_panel(), 1) * tile.columns)
        if ch.on_stack:
            group = min(group, FINISHED // (chunk * size) // tile.columns * tile.columns)
        return max(rows, 1), cols, group, chunk

    def _epilogue(self, at: int, table: list[int], patches: Patches) -> bool:
        """Append the epilogue's arguments and what moves them; False if it must be launched on its own."""
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
        x = c.node.operands[0]
        m, n, kk = ch.m, ch.n, ch.k
        (_, sa, oa), (_, sb, ob) = c.operands
        la, lb = ch.leading
        batch = [b.value(d) for d in x.shape[:-2]]
        panels, pm, pn = blas.panels(m, n, get_num_threads() if m * n * kk >= PANEL * get_num_threads() else 1)
        pa = 0 if pn < n else pm * (la[1] if la[0] == NO_TRANS else 1)
        pb = 0 if pn == n else pn * (1 if lb[0] == NO_TRANS else lb[1])
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
