"""Native routines that are not kernels of the kernel IR: `void name(ptr args, i64 begin, i64 end)`, structured.

Like kernels they read int64 entries at `args`, do units [begin, end), and use explicit vectors of LANES elements. What
they keep beside registers lies on the stack, or, where it is large, in a workspace (see workspace.py).
"""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.loops import Loop, counted, when
from lazyt.backends.cpu.codegen.text import Body, Module, type_of, vector
from lazyt.backends.cpu.engine import compile_module
from lazyt.backends.cpu.workspace import workspace_of
from lazyt.backends.math.vector import Vec
from lazyt.ir.kernel import LANES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lazyt.backends.cpu import engine

_SUFFIX = {"half": "f16", "float": "f32", "double": "f64"}


class Routine:
    """One function being written."""

    def __init__(self, module: Module) -> None:
        self.body = Body(module, "start")
        self._entry: list[str] = []
        self._arguments: dict[tuple[int, str], str] = {}
        self._parameters = "ptr noalias %args, i64 %begin, i64 %end"

    def workspace(self, position: int) -> str:
        """The workspace of the thread that runs it; the caller's is at this entry of the arguments."""
        self._parameters += ", ptr %workspace"
        return workspace_of(self.body, self.argument(position, "ptr"))

    def argument(self, position: int, kind: str = "i64") -> str:
        """An entry of the arguments, loaded once."""
        key = (position, kind)
        if key not in self._arguments:
            name = f"%arg{position}.{kind}"
            self._entry.append(f"  {name}.p = getelementptr i64, ptr %args, i64 {position}")
            self._entry.append(f"  {name} = load {kind}, ptr {name}.p, align 8")
            self._arguments[key] = name
        return self._arguments[key]

    def slot(self, kind: str, count: int = 1) -> str:
        """The address of `count` values of a type on the stack, 64-byte aligned."""
        name = "%" + self.body.fresh("slot")
        self._entry.append(f"  {name} = alloca {kind}, i64 {count}, align 64")
        return name

    def text(self, name: str) -> str:
        lines = [
            f"define void @{name}({self._parameters}) nounwind {{",
            "entry:",
            *self._entry,
            "  %some = icmp slt i64 %begin, %end",
            "  br i1 %some, label %start, label %done",
            "start:",
            self.body.text(),
            "  br label %done",
            "done:",
            "  ret void",
            "}",
        ]
        return "\n".join(lines)

    # Control flow

    def loop(
        self, start: str, stop: str, step: int | str = 1, carried: Sequence[tuple[str, str]] = ()
    ) -> AbstractContextManager[Loop]:
        """for index in range(start, stop, step): see `loops.counted`."""
        return counted(self.body, start, stop, str(step), carried)

    @contextmanager
    def repeat(self, carried: Sequence[tuple[str, str]]) -> Iterator[Loop]:
        """Over and over while the condition of `go_on`, which stands at the head, holds."""
        body = self.body
        tag = body.fresh("while")
        before = body.block
        body.line(f"br label %{tag}")
        body.label(tag)
        loop = Loop("")
        first = len(body.lines)
        loop.carried = loop.results = [f"%{tag}.c{k}" for k in range(len(carried))]
        body.lines.extend([""] * len(carried))
        yield loop
        latch = body.block
        body.line(f"br label %{tag}")
        for k, ((kind, init), nxt) in enumerate(zip(carried, loop.next, strict=True)):
            body.lines[first + k] = f"  {loop.carried[k]} = phi {kind} [ {init}, %{before} ], [ {nxt}, %{latch} ]"
        body.label(f"{tag}.end")

    def go_on(self, loop: Loop, condition: str) -> None:
        """Leave a `repeat` unless the condition holds; what follows is its body."""
        body, tag = self.body, loop.carried[0][1:].rsplit(".", 1)[0]
        body.line(f"br i1 {condition}, label %{tag}.body, label %{tag}.end")
        body.label(f"{tag}.body")

    def when(self, condition: str) -> AbstractContextManager[None]:
        """Only if the i1 holds."""
        return when(self.body, condition)

    # Memory

    def at(self, element: str, base: str, index: str) -> str:
        """The address of an element."""
        return self.body.let(f"getelementptr {element}, ptr {base}, i64 {index}")

    def get(self, element: str, base: str, index: str) -> str:
        """An element of an array."""
        return self.body.let(f"load {element}, ptr {self.at(element, base, index)}, align {size_of(element)}")

    def put(self, element: str, base: str, index: str, x: str) -> None:
        self.body.line(f"store {element} {x}, ptr {self.at(element, base, index)}, align {size_of(element)}")

    def lanes(self, left: str, lanes: int = LANES) -> str:
        """The mask of the first `left` lanes."""
        body = self.body
        few = body.call("i64", "llvm.umin.i64", ("i64", left), ("i64", str(lanes)))
        count = self.splat("i32", body.let(f"trunc i64 {few} to i32"), lanes)
        numbers = ", ".join(f"i32 {i}" for i in range(lanes))
        return body.let(f"icmp ugt <{lanes} x i32> {count}, <{numbers}>")

    def splat(self, element: str, x: str, lanes: int = LANES) -> str:
        kind = vector(element, lanes)
        one = self.body.let(f"insertelement {kind} poison, {element} {x}, i64 0")
        return self.body.let(f"shufflevector {kind} {one}, {kind} poison, <{lanes} x i32> zeroinitializer")

    def load(self, element: str, at: str, mask: str = "", other: str = "zeroinitializer", lanes: int = LANES) -> Vec:
        """Neighbours, of which only those of a mask are read; `other` stands in for the rest."""
        kind = vector(element, lanes)
        if not mask:
            x = self.body.let(f"load {kind}, ptr {at}, align {size_of(element)}")
        else:
            name = f"llvm.masked.load.v{lanes}{_SUFFIX.get(element, element)}.p0"
            bits = f"<{lanes} x i1>"
            x = self.body.call(kind, name, ("ptr", f"align {size_of(element)} {at}"), (bits, mask), (kind, other))
        return Vec(self.body, x, element, lanes)

    def store(self, x: Vec, at: str, mask: str = "") -> None:
        align = size_of(x.element)
        if not mask:
            self.body.line(f"store {type_of(x)} {x.name}, ptr {at}, align {align}")
            return
        name, bits = f"llvm.masked.store.v{x.lanes}{_SUFFIX.get(x.element, x.element)}.p0", f"<{x.lanes} x i1>"
        self.body.declare(f"declare void @{name}({type_of(x)}, ptr, {bits})")
        self.body.line(f"call void @{name}({type_of(x)} {x.name}, ptr align {align} {at}, {bits} {mask})")


def size_of(element: str) -> int:
    """Bytes of an LLVM element type in memory."""
    return {"half": 2, "float": 4, "double": 8}.get(element) or max(int(element[1:]) // 8, 1)


class Routines:
    """Compiled routines of one module, by name."""

    def __init__(self, functions: Mapping[str, Callable[[Routine], None]]) -> None:
        module = Module()
        texts = {}
        for name, write in functions.items():
            routine = Routine(module)
            write(routine)
            texts[name] = routine.text("@" + name + "@")
        whole = module.text() + "\n" + "\n".join(texts.values())
        mark = hashlib.sha256(whole.encode()).hexdigest()[:20]
        names = {name: f"lazyt_r_{name}_{mark}" for name in functions}
        for name, symbol in names.items():
            whole = whole.replace("@@" + name + "@", "@" + symbol)
        self.text = whole + "\n"
        self.module: engine.Module = compile_module(self.text, list(names.values()), permanent=True)
        self.address = {name: self.module.address(symbol) for name, symbol in names.items()}
