"""AMX in plain LLVM IR: what a product's code for it does, on any processor (of one thread at a time)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import lazyt as lt
from lazyt.backends.cpu import pair_products
from lazyt.backends.cpu.codegen.looptext import Function, named
from lazyt.backends.cpu.library import attention, conv_filter_tiles, conv_tiles, products

here = pytest.mark.skipif(not pair_products.are_granted(), reason="no AMX for bfloat16 here, or it is kept back")
WAYS = ["emulated", pytest.param("registers", marks=here)]
# What writes modules with AMX's instructions: where it is called, and its name there.
WRITERS: list[tuple[Any, str]] = [
    (products, "product_text"),
    (conv_tiles, "rows_text"),
    (conv_filter_tiles, "filter_text"),
    (attention, "tiles_text"),
    (attention, "tiles_gradient_text"),
]

STATE = """@amx.shape = internal global [64 x i8] zeroinitializer
@amx.tiles = internal global [8192 x i8] zeroinitializer
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"""
FMA = "declare float @llvm.fma.f32(float, float, float)"
INSTRUCTIONS = ("ldtilecfg", "tilerelease", "tilezero", "tileloadd64", "tilestored64", "tdpbf16ps")


@contextmanager
def registers(way: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pairs of bfloat16 are multiplied by AMX, or emulated in all modules that have its instructions."""
    monkeypatch.setattr(pair_products, "dot_products", lambda: "tiles")
    threads = lt.get_num_threads()
    if way == "emulated":
        lt.set_num_threads(1)  # registers of all threads are the same memory
        for module, name in WRITERS:
            plain = getattr(module, name)
            monkeypatch.setattr(module, name, lambda *given, plain=plain: without_amx(plain(*given)))
    yield
    lt.set_num_threads(threads)


def without_amx(module: tuple[str, str]) -> tuple[str, str]:
    """A module (text, its function's name) with functions in place of AMX's instructions."""
    text, name = module
    if "@llvm.x86.tdpbf16ps" not in text:
        return module
    wanted = [s for s in (*STATE.splitlines(), FMA) if s not in text]
    instruction = rf"@llvm\.x86\.({'|'.join(INSTRUCTIONS)})\("
    text = re.sub(rf"^declare void {instruction}.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(instruction, r"@amx.\1(", text)
    return named("\n".join([*wanted, *_functions(), text]), name)


def _functions() -> list[str]:
    return [
        _written("ldtilecfg", "ptr %p", _configure),
        _written("tilerelease", "", lambda f: None),
        _written("tilezero", "i8 %t", _clear),
        _written("tileloadd64", "i8 %t, ptr %p, i64 %step", lambda f: _moved(f, True)),
        _written("tilestored64", "i8 %t, ptr %p, i64 %step", lambda f: _moved(f, False)),
        _written("tdpbf16ps", "i8 %t, i8 %a, i8 %b", _multiply),
    ]


def _written(name: str, params: str, write: Callable[[Function], None]) -> str:
    f = Function()
    write(f)
    f.line("ret void")
    return f"define internal void @amx.{name}({params}) {{\nentry:\n{f.text()}\n}}"


def _configure(f: Function) -> None:
    f.line("call void @llvm.memcpy.p0.p0.i64(ptr @amx.shape, ptr %p, i64 64, i1 false)")
    f.line("call void @llvm.memset.p0.i64(ptr @amx.tiles, i8 0, i64 8192, i1 false)")


def _tile(f: Function, t: str) -> tuple[str, str, str]:
    """Where a register is, its rows, and the bytes of a row."""
    number = f.let(f"zext i8 {t} to i64")
    rows = f.load("i8", f.at("i8", "@amx.shape", f.let(f"add i64 {number}, 48")))
    size = f.load("i16", f.at("i8", f.at("i16", "@amx.shape", number), "16"))
    at = f.at("i8", "@amx.tiles", f.let(f"shl i64 {number}, 10"))
    return at, f.let(f"zext i8 {rows} to i64"), f.let(f"zext i16 {size} to i64")


def _clear(f: Function) -> None:
    at, _, _ = _tile(f, "%t")
    f.line(f"call void @llvm.memset.p0.i64(ptr {at}, i8 0, i64 1024, i1 false)")


def _moved(f: Function, loads: bool) -> None:
    at, rows, size = _tile(f, "%t")
    if loads:
        _clear(f)
    with f.loop("0", rows, "1") as row:
        inside = f.at("i8", at, f.let(f"shl i64 {row.index}, 6"))
        outside = f.at("i8", "%p", f.let(f"mul i64 {row.index}, %step"))
        to, source = (inside, outside) if loads else (outside, inside)
        f.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {size}, i1 false)")


def _multiply(f: Function) -> None:
    """As Intel defines it, but for subnormal numbers: two sums of fused products, whose sum is added."""
    (c, rows, size), (a, _, along), (b, _, _) = (_tile(f, t) for t in ("%t", "%a", "%b"))
    columns, pairs = (f.let(f"lshr i64 {x}, 2") for x in (size, along))
    with f.loop("0", rows, "1") as m, f.loop("0", columns, "1") as n:
        zeros = [("float", "0.0"), ("float", "0.0")]
        of_row = f.at("i8", a, f.let(f"shl i64 {m.index}, 6"))
        with f.loop("0", pairs, "1", zeros) as k:
            below = f.at("i8", b, f.let(f"shl i64 {k.index}, 6"))
            both = f.load("i32", f.at("i32", of_row, k.index)), f.load("i32", f.at("i32", below, n.index))
            first = [f.let(f"shl i32 {x}, 16") for x in both]
            second = [f.let(f"and i32 {x}, -65536") for x in both]
            k.next = []
            for (x, y), total in zip((first, second), k.carried, strict=True):
                p, q = (f.let(f"bitcast i32 {z} to float") for z in (x, y))
                k.next.append(f.let(f"call float @llvm.fma.f32(float {p}, float {q}, float {total})"))
        sums = f.let(f"fadd float {k.carried[0]}, {k.carried[1]}")
        place = f.at("float", f.at("i8", c, f.let(f"shl i64 {m.index}, 6")), n.index)
        total = f.let(f"fadd float {f.load('float', place)}, {sums}")
        f.line(f"store float {total}, ptr {place}")
