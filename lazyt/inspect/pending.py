"""The pending program of a thread: `lazyt.pending()`."""

from __future__ import annotations

import sys
from dataclasses import field
from typing import Any

from lazyt.inspect.names import gradients_of, holders_text, names_in_frames
from lazyt.ir import graph as g
from lazyt.ir.passes import pipeline
from lazyt.ir.passes.program import Options
from lazyt.ir.records import dataclass
from lazyt.ir.symbolic import hint
from lazyt.runtime.liveness import wanted_of
from lazyt.tracing.lower import lower
from lazyt.tracing.printer import aligned, bytes_text, html_table, plural, site_text
from lazyt.tracing.program import INPUT, MODE, Slot
from lazyt.tracing.step_printer import call_text, input_text, results_text, types_text, value_name
from lazyt.tracing.tensor_state import Handle
from lazyt.tracing.trace import Ext, Step, Trace, local

# Lines of a longer program are left out in the middle.
LIMIT = 400


@dataclass(frozen=True)
class Line:
    """One recorded step."""

    results: str  # %3
    call: str  # add %1, 2.0
    types: str  # float32 (3, 4)
    site: str  # train.py:7
    held: str  # who holds its results; '' when nobody does

    def __str__(self) -> str:
        return "  ".join(_cells(self))


def _cells(line: Line) -> tuple[str, str]:
    body = f"{line.results} = {line.call}" if line.results else line.call
    where = f"# {line.site}, {line.held}" if line.held else f"# {line.site}"
    return (f"{body} : {line.types}" if line.types else body, where)


@dataclass(frozen=True)
class Pending:
    """The program that this thread has recorded and not run, as it was when `lazyt.pending()` was called."""

    lines: list[Line]
    inputs: int = 0
    input_bytes: int = 0
    wanted: tuple[Slot, ...] = ()
    _pos: Step | None = field(default=None, repr=False)
    _ext: Ext | None = field(default=None, repr=False)
    _scalars: tuple[Any, ...] = field(default=(), repr=False)

    def __len__(self) -> int:
        return len(self.lines)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return self.text(40)

    def text(self, limit: int = LIMIT) -> str:
        """One line a step; beyond `limit` lines, the first and the last."""
        if not self.lines:
            return "nothing is pending"
        rows = aligned([_cells(line) for line in self.lines])
        if len(rows) > limit:
            rows[limit // 2 : len(rows) - limit // 2] = [f"... {len(rows) - limit:,} more ..."]
        return "\n".join([self.head, *rows])

    @property
    def head(self) -> str:
        """What there is, in a line."""
        return (
            f"pending: {plural(len(self.lines), 'step')}, {plural(self.inputs, 'input')} "
            f"({bytes_text(self.input_bytes)}), {plural(len(self.wanted), 'value')} held"
        )

    def graph(self) -> GraphText:
        """The primitives that compute what is held, with the sizes of this trace."""
        return _graph(self._pos, self._ext, self._scalars, self.wanted)

    def _repr_html_(self) -> str:
        if not self.lines:
            return "<p>nothing is pending</p>"
        rows = [(x.results, x.call, x.types, x.site, x.held) for x in self.lines[:LIMIT]]
        return f"<p>{self.head}</p>" + html_table(("", "recorded", "type", "line", "held by"), rows)


class GraphText(str):
    """The primitive graph as text; `str` in every way but that a prompt shows it as it prints."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def pending() -> Pending:
    """The program that this thread has recorded and not run: one line a step, with who holds its results.

    Looking computes nothing, records nothing and keeps nothing alive.

    >>> import lazyt as lt
    >>> lt.sync()
    >>> lt.pending()
    nothing is pending
    >>> y = lt.ones(3) * 2.0
    >>> [line.call for line in lt.pending().lines]
    ['ones dtype=float32 (3,)', 'multiply %0, 2.0']
    """
    tr: Trace = local.trace
    pos = tr.pos
    if pos.parent is None:
        return Pending([])
    names = names_in_frames(sys._getframe(1))
    for token in tr.effects.values():
        names.setdefault(id(token), []).append("the order of effects")
    gradients = gradients_of(tr, names)
    wanted, holders, others = wanted_of(tr)
    held: dict[Step, list[str]] = {}
    for slot, h in zip(wanted, holders, strict=True):
        several = f"{value_name(slot)} " if len(slot.step.slots) > 1 else ""
        held.setdefault(slot.step, []).append(f"{several}held by {holders_text(h, names, gradients)}")
    for h in others:
        # A view has no value of its own; an input has its value already.
        if isinstance(h, Handle) and h._view is not None and h._slot is not None and id(h) in names:
            held.setdefault(h._slot.step, []).append(f"view {names[id(h)][0]}")
        elif h._slot is not None and h._slot.step.op is INPUT and h._slot.step.owner is tr:
            held.setdefault(h._slot.step, []).append(holders_text(h, names, gradients))
    scalars = tuple(tr.scalars[: pos.scalar_start + pos.n_scalars])
    lines = [_line(s, scalars, tr.ext.values, held.get(s, [])) for s in pos.steps()]
    slots = tuple(dict.fromkeys(wanted))
    return Pending(lines, len(tr.inputs), sum(d.nbytes for d in tr.inputs), slots, pos, tr.ext, scalars)


def _line(s: Step, scalars: tuple[Any, ...], extents: tuple[int, ...], held: list[str]) -> Line:
    call = input_text(s) if s.op is INPUT else call_text(s, scalars, extents)
    types = "" if s.op is MODE else types_text(s)
    results = "" if s.op is MODE else results_text(s)
    return Line(results, call, types, site_text(s.site), ", ".join(held))


def graph(x: Handle) -> GraphText:
    """The primitives that compute x, with the sizes of this trace; says so when x is not pending here."""
    tr: Trace = local.trace
    slot = x._slot
    if slot is None and x._storage is not None:
        slot = x._storage._slot
    if slot is None or slot.step.owner is not tr or slot.step.op is INPUT:
        return GraphText("nothing is pending")
    pos = tr.pos
    return _graph(pos, tr.ext, tuple(tr.scalars[: pos.scalar_start + pos.n_scalars]), (slot,))


def _graph(pos: Step | None, ext: Ext | None, scalars: tuple[Any, ...], wanted: tuple[Slot, ...]) -> GraphText:
    if pos is None or ext is None or not wanted:
        return GraphText("nothing is pending")
    low = lower(pos.steps(), ext.values, scalars)
    program = pipeline.compile_graph([low.nodes[s] for s in wanted], low.scope, Options(), until="canonicalize")
    return graph_text(program.graph, scalars)


def graph_text(graph: g.Graph, scalars: tuple[Any, ...] = ()) -> GraphText:
    """One line a primitive, with the user's line; scalar arguments have the values given."""
    number = {n: f"%{i}" for i, n in enumerate(graph.nodes)}
    rows = []
    for n in graph.nodes:
        line = g.node_line(n, number.__getitem__)
        body = line.rpartition(" : ")[0]
        if isinstance(n.attrs, g.Scalar) and n.attrs.position < len(scalars):
            body += f" ({scalars[n.attrs.position]!r})"
        shape = g.shape_text(tuple(hint(d) for d in n.shape))
        where = ""
        if isinstance(n.site, g.Origin):
            where = f"# {n.site.name}{', gradient' if n.site.backward else ''}, {site_text(n.site.site)}"
        rows.append((f"{body} : {n.dtype} {shape}", where))
    return GraphText("\n".join([*aligned(rows), "return " + ", ".join(number[n] for n in graph.outputs)]))


__all__ = ["GraphText", "Line", "Pending", "graph", "graph_text", "pending"]
