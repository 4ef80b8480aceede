"""The LLVM IR of convolutions' gradients by the filters, of bfloat16 by AMX: operands are copied in pairs of images.

    w[c, t, o] = sum over places i, images n of x[c][place(i) + t][n] * y[i][n][o]

A register has 16 channels, or features, along one side; along the other it has pairs of images at one place or several,
or one pair at some places of a row (conv_filter_tiles.py chooses). A unit is 32 channels by 32 features, of
all taps or some, whose sums lie in the thread's working memory. Some rows of places meet all these taps together, while
they are in a cache.

The order of the sums is that in which x lies, so it depends on extents alone: not on units, nor on threads.
"""

from __future__ import annotations

from functools import cache

from lazyt.backends.cpu.codegen.looptext import Function, named
from lazyt.backends.cpu.library.conv_tiles_ir import defined, micros, which
from lazyt.backends.cpu.library.conv_tiles_pack_ir import COLUMNS, PAIR, PAIR_SIZE
from lazyt.backends.cpu.library.gemm_amx import SIDE, do, end, multiply
from lazyt.backends.cpu.library.gemm_tile import FIELDS, HEAD
from lazyt.backends.cpu.workspace import PARAMETERS, workspace_of

# Entries after those of every product. A row of places is `runs` times `steps` registers of `pairs` pairs along k; from
# run to run of x, from row to row, plane to plane and channel to channel there are `by_run`, `by_row`, `by_plane` and
# `a_row` pairs, and of y `b_row` from pair to pair. A unit has `own` of the taps. `chunk` rows of the `height` of a
# plane meet these together.
FILTER_FIELDS = (
    "shape", "taps", "own", "offsets", "planes", "height", "chunk", "runs", "steps", "pairs", "by_run", "by_row",
    "by_plane",
)  # fmt: skip
FILTER_AT = {name: HEAD + i for i, name in enumerate(FILTER_FIELDS)}
FILTER_SIZE = HEAD + len(FILTER_FIELDS)
# Bytes of working memory for the sums of a tap.
TAP_SUMS = COLUMNS * COLUMNS * PAIR_SIZE


def _filter_micro(name: str, mr: int, nv: int) -> tuple[str, Function]:
    """`(rows, runs, steps, x, x's steps, y, y's step, pairs, sums)`: adds to the sums, COLUMNS by COLUMNS."""
    f = Function()
    c_step = COLUMNS * PAIR_SIZE
    tiles = [
        (i * nv + j, f.at(PAIR, "%c", str(SIDE * (i * COLUMNS + j)))) for i in range(mr) for j in range(nv)
    ]  # fmt: skip
    a_step, b_step = (f.let(f"mul i64 {x}, {PAIR_SIZE}") for x in ("%a_row", "%b_row"))
    far = f.let(f"mul i64 %a_row, {SIDE}")
    by_step = f.let("mul i64 %b_row, %pairs")
    for t, at in tiles:
        do(f, "tileloadd64", f"i8 {t}", f"ptr {at}", f"i64 {c_step}")
    with f.loop("0", "%rows", "1", [("ptr", "%a"), ("ptr", "%b")]) as row:
        with f.loop("0", "%runs", "1", [("ptr", x) for x in row.carried]) as run:
            with f.loop("0", "%steps", "1", [("ptr", x) for x in run.carried]) as step:
                a, b = step.carried
                rows = [f.at(PAIR, a, far) if i else a for i in range(mr)]
                multiply(f, rows, a_step, [f.at(PAIR, b, str(SIDE * j)) for j in range(nv)], b_step)
                step.next = [f.at(PAIR, a, "%pairs"), f.at(PAIR, b, by_step)]
            run.next = [f.at(PAIR, run.carried[0], "%by_run"), step.carried[1]]
        row.next = [f.at(PAIR, row.carried[0], "%by_row"), run.carried[1]]
    for t, at in tiles:
        do(f, "tilestored64", f"i8 {t}", f"ptr {at}", f"i64 {c_step}")
    params = (
        "i64 %rows, i64 %runs, i64 %steps, ptr %a, i64 %a_row, i64 %by_run, i64 %by_row, ptr %b, i64 %b_row, "
        "i64 %pairs, ptr %c"
    )
    return defined(name, params, f), f


def _filter(f: Function, name: str) -> str:
    arg = {}
    for i, field in enumerate((*FIELDS, *FILTER_FIELDS)):
        arg[field] = f.load("ptr" if field in ("A", "B", "C", "workspace") else "i64", f.at("i64", "%args", str(i)))
    sums, taps = workspace_of(f, arg["workspace"]), arg["taps"]
    most = arg["own"]
    above = f.let(f"sub i64 {f.let(f'add i64 {taps}, {most}')}, 1")
    parts = f.let(f"udiv i64 {above}, {most}")
    offsets = f.at("i64", "%args", arg["offsets"])
    do(f, "ldtilecfg", f"ptr {f.at('i64', '%args', arg['shape'])}")
    f.body.declare("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    blocks, steps, pairs, height = arg["col_blocks"], arg["steps"], arg["pairs"], arg["height"]
    y_run = f.let(f"mul i64 {f.let(f'mul i64 {steps}, {pairs}')}, {arg['b_row']}")
    y_row = f.let(f"mul i64 {arg['runs']}, {y_run}")
    with f.loop("%begin", "%end", "1") as unit:
        t0 = f.let(f"mul i64 {f.let(f'urem i64 {unit.index}, {parts}')}, {most}")
        own = f.smin(f.let(f"sub i64 {taps}, {t0}"), most)
        block = f.let(f"udiv i64 {unit.index}, {parts}")
        c0, o0 = (f.let(f"mul i64 {f.let(f'{op} i64 {block}, {blocks}')}, {COLUMNS}") for op in ("udiv", "urem"))
        channels = f.let(f"sub i64 {arg['m']}, {c0}")
        features = f.let(f"sub i64 {arg['n']}, {o0}")
        rows = f.let(f"udiv i64 {f.let(f'add i64 {channels}, {SIDE - 1}')}, {SIDE}")
        micro = which(f, rows, features)
        x, y = f.at(PAIR, arg["A"], f.let(f"mul i64 {c0}, {arg['a_row']}")), f.at(PAIR, arg["B"], o0)
        nbytes, along = f.let(f"mul i64 {own}, {TAP_SUMS}"), f.at("i64", offsets, t0)
        f.line(f"call void @llvm.memset.p0.i64(ptr {sums}, i8 0, i64 {nbytes}, i1 false)")
        with f.loop("0", arg["planes"], "1") as plane, f.loop("0", arg["height"], arg["chunk"]) as part:
            count = f.smin(f.let(f"sub i64 {arg['height']}, {part.index}"), arg["chunk"])
            own_x = f.at(PAIR, x, f.let(f"mul i64 {plane.index}, {arg['by_plane']}"))
            own_x = f.at(PAIR, own_x, f.let(f"mul i64 {part.index}, {arg['by_row']}"))
            row = f.let(f"add i64 {f.let(f'mul i64 {plane.index}, {height}')}, {part.index}")
            own_y = f.at(PAIR, y, f.let(f"mul i64 {row}, {y_row}"))
            with f.loop("0", own, "1") as tap:
                at = f.at(PAIR, own_x, f.load("i64", f.at("i64", along, tap.index)))
                c = f.at(PAIR, sums, f.let(f"mul i64 {tap.index}, {COLUMNS * COLUMNS}"))
                f.line(
                    f"call void {micro}(i64 {count}, i64 {arg['runs']}, i64 {steps}, ptr {at}, i64 {arg['a_row']}, "
                    f"i64 {arg['by_run']}, i64 {arg['by_row']}, ptr {own_y}, i64 {arg['b_row']}, i64 {pairs}, ptr {c})"
                )
        _put(f, arg, sums, (c0, f.smin(channels, str(COLUMNS))), (t0, own), (o0, f.smin(features, str(COLUMNS))))
    end(f)
    f.line("ret void")
    return f"define void @{name}({PARAMETERS}) nounwind {{\nentry:\n{f.text()}\n}}"


def _put(f: Function, arg: dict[str, str], sums: str, *parts: tuple[str, str]) -> None:
    """The sums of so many channels, taps and features, from the first ones on, to the result."""
    (c0, m), (t0, own), (o0, n) = parts
    nbytes = f.let(f"mul i64 {n}, {PAIR_SIZE}")
    f.body.declare("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    taps = arg["taps"]
    with f.loop("0", m, "1") as channel, f.loop("0", own, "1") as tap:
        row = f.let(f"mul i64 {f.let(f'add i64 {c0}, {channel.index}')}, {taps}")
        row = f.let(f"add i64 {row}, {t0}")
        line = f.let(f"mul i64 {f.let(f'add i64 {row}, {tap.index}')}, {arg['n']}")
        to = f.at(PAIR, f.at(PAIR, arg["C"], line), o0)
        source = f.let(f"mul i64 {f.let(f'mul i64 {tap.index}, {COLUMNS}')}, {COLUMNS}")
        source = f.let(f"add i64 {source}, {f.let(f'mul i64 {channel.index}, {COLUMNS}')}")
        at = f.at(PAIR, sums, source)
        f.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {at}, i64 {nbytes}, i1 false)")


@cache
def filter_text() -> tuple[str, str]:
    """The module, and its name."""
    f = Function()
    name = "lazyt_filter_tiles"
    body = _filter(f, name)
    kernels, declared = micros(_filter_micro)
    declared |= set(f.body.module.text().splitlines())
    return named("\n".join([*sorted(x for x in declared if x), *kernels, body]), name)
