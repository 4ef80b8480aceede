"""The LLVM IR of convolutions of bfloat16 by AMX: operands are copied beforehand, in pairs of what is summed.

    y[n, o, i] = sum over taps t, channels c of x[n][place(i) + t][c] * w[t][c][o]

x lies with its channels last. A register has up to 16 places of a row, and 32 channels of each, which are read there
whatever the stride is. A unit is as in conv_features_ir.py, and so is what follows the sums. Places may be of several
phases, each with taps of its own: of a transposed convolution, which reads y.

Two registers of each operand make four of sums. The order of the sums, tap by tap, then 32 channels after others,
depends on neither units nor threads.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.looptext import Function, named
from lazyt.backends.cpu.library import gemm_amx
from lazyt.backends.cpu.library.conv_features_ir import PLACE_FIELDS, Driver
from lazyt.backends.cpu.library.conv_tiles_pack_ir import COLUMNS, PAIR, PAIR_SIZE, PAIRS
from lazyt.backends.cpu.library.gemm_amx import SIDE, do, multiply
from lazyt.backends.cpu.library.gemm_epilogue import epilogue_text
from lazyt.backends.cpu.library.gemm_tile import FIELDS, HEAD

if TYPE_CHECKING:
    from collections.abc import Callable

# Entries after those of conv_features_ir.py: a configuration of the registers, blocks of 32 channels, bytes from a
# place to its neighbour of the same phase, places between them in the result, rows from one of a phase to the next, and
# the records of the phases.
ROW_FIELDS = ("shape", "blocks", "a_step", "apart", "down_phase", "phases", "records")
ROW_AT = {name: HEAD + len(PLACE_FIELDS) + i for i, name in enumerate(ROW_FIELDS)}
ROW_SIZE = HEAD + len(PLACE_FIELDS) + len(ROW_FIELDS)
# A record: the taps of a phase, the table of their offsets, where their filters are in a panel (pairs), the first row,
# registers that a row takes, and a table of these: where each begins in x (pairs), and in the result.
RECORD = ("taps", "offsets", "filters", "first", "segments", "places")
# Bytes of an entry of a register of places, in working memory: where it begins, and where its sums do.
ENTRY = 16
# Registers of A and of B, along each side of a tile.
SIDES = (1, 2)


def micros(write: Callable[[str, int, int], tuple[str, Function]]) -> tuple[list[str], set[str]]:
    """The micro-kernels of one and two registers of each operand, their table, and what they declare."""
    names = [(f"micro.{mr}.{nv}", mr, nv) for nv in SIDES for mr in SIDES]
    made = [write(*x) for x in names]
    listed = ", ".join(f"ptr @{name}" for name, _, _ in names)
    declared = {line for _, f in made for line in f.body.module.text().splitlines()}
    return [f"@micros = internal constant [{len(names)} x ptr] [{listed}]", *(text for text, _ in made)], declared


def which(f: Function, rows: str, columns: str) -> str:
    """The micro-kernel for so many registers of A, and columns of B."""
    two_rows = f.let(f"zext i1 {f.let(f'icmp sgt i64 {rows}, 1')} to i64")
    two_columns = f.let(f"zext i1 {f.let(f'icmp sgt i64 {columns}, {SIDE}')} to i64")
    at = f.let(f"add i64 {f.let(f'shl i64 {two_columns}, 1')}, {two_rows}")
    return f.load("ptr", f.at("ptr", "@micros", at))


def defined(name: str, params: str, f: Function) -> str:
    f.line("ret void")
    return f"define internal void @{name}({params}) nounwind noinline {{\nentry:\n{f.text()}\n}}"


def _row_micro(name: str, mr: int, nv: int) -> tuple[str, Function]:
    """`(taps, blocks, entries, offsets, w, step in x, first feature, step in sums)`; an entry: where x and sums are."""
    f = Function()
    xs, sums = [], []
    for i in range(mr):
        entry = [f.load("ptr", f.at("ptr", "%entries", str(2 * i + part))) for part in range(2)]
        xs.append(entry[0])
        sums.append(f.at(PAIR, entry[1], "%first"))
    for t in range(mr * nv):
        do(f, "tilezero", f"i8 {t}")
    with f.loop("0", "%taps", "1", [("ptr", "%b")]) as tap:
        offset = f.load("i64", f.at("i64", "%offsets", tap.index))
        starts = [f.at(PAIR, x, offset) for x in xs]
        with f.loop("0", "%blocks", "1", [("ptr", x) for x in (*starts, tap.carried[0])]) as block:
            *rows, b = block.carried
            multiply(f, rows, "%a_step", [f.at(PAIR, b, str(SIDE * j)) for j in range(nv)], str(COLUMNS * PAIR_SIZE))
            block.next = [*(f.at(PAIR, x, str(SIDE)) for x in rows), f.at(PAIR, b, str(SIDE * COLUMNS))]
        tap.next = [block.carried[-1]]
    for i, at in enumerate(sums):
        for j in range(nv):
            to = f.at(PAIR, at, str(SIDE * j))
            do(f, "tilestored64", f"i8 {i * nv + j}", f"ptr {to}", "i64 %c_step")
    params = "i64 %taps, i64 %blocks, ptr %entries, ptr %offsets, ptr %b, i64 %a_step, i64 %first, i64 %c_step"
    return defined(name, params, f), f


class _Rows(Driver):
    """The loops over units, panels of features and registers of places."""

    fields = (*FIELDS, *PLACE_FIELDS, *ROW_FIELDS)

    def __init__(self) -> None:
        super().__init__(PAIRS, gemm_amx.TILE)
        do(self.f, "ldtilecfg", f"ptr {self.f.at('i64', '%args', self.arg['shape'])}")

    def _end(self) -> None:
        gemm_amx.end(self.f)

    def _image(self, workspace: str, group: str, n0: str, i0: str, images: str) -> tuple[str, str, str]:
        f, arg = self.f, self.arg
        return f.at(PAIR, arg["A"], f.let(f"mul i64 {n0}, {arg['x_batch']}")), arg["x_batch"], i0

    def _sums(
        self, image: tuple[str, str, str], images: str, i0: str, part: str, features: str, w: str, sums: str
    ) -> None:  # fmt: skip
        f, arg = self.f, self.arg
        entries = f.at("i8", sums, arg["rows_at"])
        records = f.at("i64", "%args", arg["records"])
        line = arg["line"]
        c_step = f.let(f"mul i64 {f.let(f'mul i64 {line}, {PAIR_SIZE}')}, {arg['apart']}")
        with f.loop("0", arg["phases"], "1") as phase:
            at = f.at("i64", records, f.let(f"mul i64 {phase.index}, {len(RECORD)}"))
            record = {name: f.load("i64", f.at("i64", at, str(i))) for i, name in enumerate(RECORD)}
            offsets = f.at("i64", "%args", record["offsets"])
            count = self._entries(entries, record, image, images, part, sums)
            with f.loop("0", features, str(COLUMNS), [("ptr", f.at(PAIR, w, record["filters"]))]) as panel:
                columns = f.let(f"sub i64 {features}, {panel.index}")
                with f.loop("0", count, str(len(SIDES))) as register:
                    micro = which(f, f.let(f"sub i64 {count}, {register.index}"), columns)
                    own = f.at("ptr", entries, f.let(f"shl i64 {register.index}, 1"))
                    f.line(
                        f"call void {micro}(i64 {record['taps']}, i64 {arg['blocks']}, ptr {own}, ptr {offsets}, "
                        f"ptr {panel.carried[0]}, i64 {arg['a_step']}, i64 {panel.index}, i64 {c_step})"
                    )
                panel.next = [f.at(PAIR, panel.carried[0], arg["b_panel"])]

    def _entries(
        self, entries: str, record: dict[str, str], image: tuple[str, str, str], images: str, part: str, sums: str
    ) -> str:  # fmt: skip
        """Write where each register of a phase's places begins, in x and in the sums; how many there are."""
        f, arg = self.f, self.arg
        x, step, i0 = image
        # Rows of the phase before the part, and those before its end.
        before, end = (self._rows_before(places, record) for places in (i0, f.let(f"add i64 {i0}, {part}")))
        segments = record["segments"]
        first = f.let(f"mul i64 {before}, {segments}")
        count = f.let(f"mul i64 {f.let(f'sub i64 {end}, {before}')}, {segments}")
        table = f.at("i64", f.at("i64", "%args", record["places"]), f.let(f"shl i64 {first}, 1"))
        with f.loop("0", images, "1") as number:
            own = f.at(PAIR, x, f.let(f"mul i64 {number.index}, {step}"))
            shift = f.let(f"sub i64 {f.let(f'mul i64 {number.index}, {part}')}, {i0}")
            to = f.at("ptr", entries, f.let(f"shl i64 {f.let(f'mul i64 {number.index}, {count}')}, 1"))
            with f.loop("0", count, "1") as register:
                at = f.let(f"shl i64 {register.index}, 1")
                entry, target = f.at("i64", table, at), f.at("ptr", to, at)
                place = f.let(f"add i64 {f.load('i64', f.at('i64', entry, '1'))}, {shift}")
                line = f.at(PAIR, sums, f.let(f"mul i64 {place}, {arg['line']}"))
                f.line(f"store ptr {f.at(PAIR, own, f.load('i64', entry))}, ptr {target}")
                f.line(f"store ptr {line}, ptr {f.at('ptr', target, '1')}")
        return f.let(f"mul i64 {images}, {count}")

    def _rows_before(self, places: str, record: dict[str, str]) -> str:
        """How many rows of a phase there are before so many places, which are whole rows."""
        f, down, first = self.f, self.arg["down_phase"], record["first"]
        row = f.let(f"udiv i64 {places}, {self.arg['out_width']}")
        # NOTE: rounded up.
        up = f.let(f"sub i64 {f.let(f'add i64 {row}, {down}')}, 1")
        return f.let(f"udiv i64 {f.let(f'sub i64 {up}, {first}')}, {down}")


@cache
def rows_text() -> tuple[str, str]:
    """The module, and its name."""
    driver = _Rows()
    name = "lazyt_convolve_tiles"
    body = driver.text(name)
    kernels, declared = micros(_row_micro)
    transposer, more = driver.transposer.text()
    declared |= more | set(driver.f.body.module.text().splitlines())
    parts = [*sorted(x for x in declared if x), *kernels, transposer, epilogue_text(), body]
    return named("\n".join(parts), name)
