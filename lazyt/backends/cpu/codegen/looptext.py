"""Builds a function of LLVM IR with loops over i64: used for products and packing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.loops import when
from lazyt.backends.cpu.codegen.text import Body
from lazyt.ir import dtypes

if TYPE_CHECKING:
    import numpy as np


class Function:
    """A function in the making, with loops."""

    def __init__(self) -> None:
        self.body = Body()
        self.let, self.line, self.label = self.body.let, self.body.line, self.body.label

    @contextmanager
    def loop(self, start: str, stop: str, step: str, carried: Sequence[tuple[str, str]] = ()) -> Iterator[Loop]:
        """for index in range(start, stop, step), of i64; the carried values may be changed through `next`."""
        body = self.body
        tag = body.fresh("loop")
        before = body.block
        body.line(f"br label %{tag}")
        body.label(tag)
        loop = Loop(f"%{tag}.i", [f"%{tag}.c{i}" for i in range(len(carried))])
        first = len(body.lines)
        body.lines.extend([""] * (1 + len(carried)))  # the phis, once the back edge is known
        more = body.let(f"icmp slt i64 {loop.index}, {stop}")
        body.line(f"br i1 {more}, label %{tag}.in, label %{tag}.end")
        body.label(f"{tag}.in")
        yield loop
        after = body.let(f"add nsw i64 {loop.index}, {loop.step or step}")
        latch = body.block
        body.line(f"br label %{tag}")
        body.lines[first] = f"  {loop.index} = phi i64 [ {start}, %{before} ], [ {after}, %{latch} ]"
        for i, (kind, init) in enumerate(carried):
            body.lines[first + 1 + i] = (
                f"  {loop.carried[i]} = phi {kind} [ {init}, %{before} ], [ {loop.next[i]}, %{latch} ]"
            )
        body.label(f"{tag}.end")

    def when(self, condition: str) -> AbstractContextManager[None]:
        """Only if the i1 holds."""
        return when(self.body, condition)

    def at(self, element: str, pointer: str, index: str) -> str:
        return self.let(f"getelementptr {element}, ptr {pointer}, i64 {index}")

    def load(self, kind: str, pointer: str) -> str:
        return self.let(f"load {kind}, ptr {pointer}")

    def smin(self, a: str, b: str) -> str:
        return self.body.call("i64", "llvm.smin.i64", ("i64", a), ("i64", b))

    def mask(self, lanes: int, count: str) -> str:
        """The first `count` lanes."""
        low = self.let(f"trunc i64 {count} to i32")
        one = self.let(f"insertelement <{lanes} x i32> poison, i32 {low}, i32 0")
        all_ = self.let(f"shufflevector <{lanes} x i32> {one}, <{lanes} x i32> poison, <{lanes} x i32> zeroinitializer")
        iota = ", ".join(f"i32 {i}" for i in range(lanes))
        return self.let(f"icmp ugt <{lanes} x i32> {all_}, <{iota}>")

    def text(self) -> str:
        return self.body.text()


class Loop:
    def __init__(self, index: str, carried: list[str]) -> None:
        self.index = index
        self.carried = carried
        self.next: list[str] = []
        self.step = ""


def suffix_of(dtype: np.dtype) -> str:
    return f"f{8 * dtype.itemsize}" if dtypes.kind(dtype) == "f" else f"i{8 * dtype.itemsize}"


def named(text: str, name: str) -> tuple[str, str]:
    """The text with a hash of itself in its function's name."""
    unique = f"{name}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return text.replace(f"@{name}(", f"@{unique}("), unique
