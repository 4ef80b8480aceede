"""The LLVM IR that puts zeros around images: rows of them, for a convolution that reads them through a window.

A part of an image is copied by the unit that reads it, into working memory (conv_features_ir.py), or whole images are
before the convolution, by a launch of their own ('pad').
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.looptext import Function, named
from lazyt.backends.cpu.codegen.text import mem_type

if TYPE_CHECKING:
    import numpy as np

# Entries of the arguments of a launch: planes in all, and what a plane's image is.
PAD_FIELDS = ("from", "to", "height", "width", "top", "left", "pad_height", "pad_width")
PAD_AT = {name: i for i, name in enumerate(PAD_FIELDS)}
PAD_SIZE = len(PAD_FIELDS)

# Of `@framed`.
PARAMETERS = (
    "ptr %from, ptr %to, i64 %planes, i64 %height, i64 %width, i64 %top, i64 %left, i64 %first, i64 %rows, i64 %wide"
)


def framing(dtype: np.dtype, lanes: int) -> tuple[str, set[str]]:
    """`@framed(...)`, and what it declares: rows [first, first + rows) of each plane with its zeros, one after another.

    A plane has `height` rows of `width` elements, dense; with its zeros it is `wide`, and begins at (top, left).
    """
    f, e, size = Function(), mem_type(dtype), dtype.itemsize
    vector = f"<{lanes} x {e}>"
    f.body.declare("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    plane, step = f.let("mul i64 %height, %width"), f.let("mul i64 %rows, %wide")
    nbytes = f.let(f"mul i64 {f.let(f'mul i64 {step}, %planes')}, {size}")
    # The rows that are there: those behind `top`, in this part.
    begin = f.body.call("i64", "llvm.smax.i64", ("i64", f.let("sub i64 %first, %top")), ("i64", "0"))
    stop = f.smin(f.let("sub i64 " + f.let("add i64 %first, %rows") + ", %top"), "%height")
    at = f.let(f"sub i64 {f.let(f'add i64 {begin}, %top')}, %first")
    inside = f.let(f"add i64 {f.let(f'mul i64 {at}, %wide')}, %left")
    skipped = f.let(f"mul i64 {begin}, %width")
    whole = f.let(f"and i64 %width, {-lanes}")
    has_vector, ragged = f.let(f"icmp sge i64 %width, {lanes}"), f.let(f"icmp ne i64 {whole}, %width")
    last = f.let(f"sub i64 %width, {lanes}")
    overlaps = f.let(f"and i1 {has_vector}, {ragged}")
    singly = f.let(f"select i1 {has_vector}, i64 0, i64 %width")
    f.line(f"call void @llvm.memset.p0.i64(ptr %to, i8 0, i64 {nbytes}, i1 false)")

    def moved(source: str, target: str, index: str) -> None:
        x = f.let(f"load {vector}, ptr {f.at(e, source, index)}, align {size}")
        f.line(f"store {vector} {x}, ptr {f.at(e, target, index)}, align {size}")

    with f.loop("0", "%planes", "1") as number:
        source = f.at(e, f.at(e, "%from", f.let(f"mul i64 {number.index}, {plane}")), skipped)
        target = f.at(e, f.at(e, "%to", f.let(f"mul i64 {number.index}, {step}")), inside)
        with f.loop(begin, stop, "1", [("ptr", source), ("ptr", target)]) as row:
            s, t = row.carried
            with f.loop("0", whole, str(lanes)) as one:
                moved(s, t, one.index)
            with f.when(overlaps):
                moved(s, t, last)
            with f.loop("0", singly, "1") as one:
                x = f.load(e, f.at(e, s, one.index))
                f.line(f"store {e} {x}, ptr {f.at(e, t, one.index)}")
            row.next = [f.at(e, s, "%width"), f.at(e, t, "%wide")]
    f.line("ret void")
    text = f"define internal void @framed({PARAMETERS}) nounwind noinline {{\nentry:\n{f.text()}\n}}"
    return text, set(f.body.module.text().splitlines())


@cache
def pad_text(dtype: np.dtype, lanes: int) -> tuple[str, str]:
    """The module that copies whole planes with their zeros, and its name; a unit is a plane."""
    f, e = Function(), mem_type(dtype)
    arg = {}
    for i, field in enumerate(PAD_FIELDS):
        arg[field] = f.load("ptr" if field in ("from", "to") else "i64", f.at("i64", "%args", str(i)))
    count = f.let("sub i64 %end, %begin")
    plane = f.let(f"mul i64 {arg['height']}, {arg['width']}")
    padded = f.let(f"mul i64 {arg['pad_height']}, {arg['pad_width']}")
    source = f.at(e, arg["from"], f.let(f"mul i64 %begin, {plane}"))
    target = f.at(e, arg["to"], f.let(f"mul i64 %begin, {padded}"))
    f.line(
        f"call void @framed(ptr {source}, ptr {target}, i64 {count}, i64 {arg['height']}, i64 {arg['width']}, "
        f"i64 {arg['top']}, i64 {arg['left']}, i64 0, i64 {arg['pad_height']}, i64 {arg['pad_width']})"
    )
    f.line("ret void")
    body, declared = framing(dtype, lanes)
    head = "define void @lazyt_pad(ptr %args, i64 %begin, i64 %end) nounwind {\nentry:"
    parts = [*sorted(line for line in declared if line), body, f"{head}\n{f.text()}\n}}"]
    return named("\n".join(parts), "lazyt_pad")
