"""Control flow in LLVM text that several emitters share: a counted loop that carries values, and a condition."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lazyt.backends.cpu.codegen.text import Body


class Loop:
    """A loop being written: `index`, and what it carries from one trip to the next."""

    def __init__(self, index: str) -> None:
        self.index = index
        self.carried: list[str] = []
        self.next: list[str] = []
        # How far the index moves; may be given inside the loop.
        self.step = ""
        # After the loop: what was carried, whether or not a trip was made.
        self.results: list[str] = []


@contextmanager
def counted(body: Body, start: str, stop: str, step: str, carried: Sequence[tuple[str, str]] = ()) -> Iterator[Loop]:
    """for index in range(start, stop, step); `carried` are (type, initial value) pairs.

    The user reads `loop.carried` inside, sets `loop.next`, and reads `loop.results` afterwards.
    """
    tag = body.fresh("loop")
    some = body.let(f"icmp slt i64 {start}, {stop}")
    before = body.block
    body.line(f"br i1 {some}, label %{tag}, label %{tag}.end")
    body.label(tag)
    loop = Loop(f"%{tag}.i")
    loop.step = step
    first = len(body.lines)
    loop.carried = names = [f"%{tag}.c{k}" for k in range(len(carried))]
    body.lines.extend([""] * (1 + len(carried)))  # the phis, once the back edge is known
    yield loop
    after = body.let(f"add nsw i64 {loop.index}, {loop.step}")
    more = body.let(f"icmp slt i64 {after}, {stop}")
    latch = body.block
    body.line(f"br i1 {more}, label %{tag}, label %{tag}.end")
    body.lines[first] = f"  {loop.index} = phi i64 [ {start}, %{before} ], [ {after}, %{latch} ]"
    assert len(loop.next) == len(carried), "a loop needs the next value of everything it carries"
    for k, ((kind, init), nxt) in enumerate(zip(carried, loop.next, strict=True)):
        body.lines[first + 1 + k] = f"  {names[k]} = phi {kind} [ {init}, %{before} ], [ {nxt}, %{latch} ]"
    body.label(f"{tag}.end")
    for (kind, init), nxt in zip(carried, loop.next, strict=True):
        loop.results.append(body.let(f"phi {kind} [ {init}, %{before} ], [ {nxt}, %{latch} ]"))


@contextmanager
def when(body: Body, condition: str) -> Iterator[None]:
    """Only if the i1 holds."""
    tag = body.fresh("when")
    body.line(f"br i1 {condition}, label %{tag}, label %{tag}.end")
    body.label(tag)
    yield
    body.line(f"br label %{tag}.end")
    body.label(f"{tag}.end")
