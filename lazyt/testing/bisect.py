"""Finds the first wrong step of a program that ran, and the part of lazyt that is at fault.

Three checks run on each step, in recorded order. Does the kernel of the operation alone give what the
graph IR means (`ir/graph_interpreter.py`), on the operands that it had? Does a fused kernel give the bits of the
operations alone? If neither finds anything, a sync did it: which ones are needed?
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lazyt.errors import IndexOutOfRange
from lazyt.ir.graph import node_line, reachable
from lazyt.ir.graph_interpreter import interpret
from lazyt.runtime import memory
from lazyt.testing.closeness import compare, same_bits, tolerance, work_of
from lazyt.testing.finding import Finding, operand_text
from lazyt.testing.modes import Program
from lazyt.tracing.printer import site_text
from lazyt.tracing.program import ASSIGN, INPUT, MODE, Slot
from lazyt.tracing.shape_inference import infer
from lazyt.tracing.step_printer import call_text
from lazyt.tracing.trace import Step

Array = np.ndarray[Any, Any]
Values = dict[Slot, Array]
# A program with more ancestors than this is searched by halves.
LINEAR = 96


def bisect(programs: Sequence[Program], wanted: Sequence[Slot] | None = None) -> Finding | None:
    """The first step of what ran that differs from its meaning, or whose fused kernel differs from it alone."""
    for program in programs:
        values = unfused(program)
        found = against_meaning(program, values) or fused_apart(program, values)
        if found is not None:
            return found
    return None


def unfused(program: Program) -> Values:
    """The value of every step, each operation through a kernel of its own."""
    values: Values = {}
    n_inputs = 0
    slots: list[Slot] = []
    for s in program.steps:
        if s.op is INPUT:
            at = s.statics[3]
            values[s] = memory.as_array(program.inputs[n_inputs if at < 0 else at])
            n_inputs += at < 0
        elif s.op is not MODE:
            slots += s.slots
    try:
        values.update(zip(slots, program.compute(slots, False), strict=True))
    except IndexOutOfRange:
        # What nobody wanted may fail (an index read from data): one by one, those that do are left out.
        for slot in slots:
            try:
                values[slot] = program.compute([slot], False)[0]
            except IndexOutOfRange:
                continue
    return values


def against_meaning(program: Program, values: Values) -> Finding | None:
    """The first step whose kernel differs from the interpreter on the same operands."""
    for s in program.steps:
        if s.op in (INPUT, MODE, ASSIGN) or getattr(s.op, "lower", None) is None:
            continue
        operands = [x for x in s.operands if isinstance(x, Slot)]
        if any(x not in values for x in (*operands, *s.slots)):
            continue
        b, nodes = _alone(program, s)
        inputs = [values[x] if isinstance(x, Slot) else np.zeros(()) for x in s.operands]
        scalars = program.scalars[s.scalar_start : s.scalar_start + s.n_scalars]
        work = work_of(reachable(nodes))
        for slot, want in zip(s.slots, interpret(b.nodes, nodes, inputs, scalars), strict=True):
            got = values[slot]
            found = compare(got, want, tolerance(got.dtype, want, work))
            if found is not None:
                near = [node_line(n) for n in reachable(nodes) if n.op != "input"]
                return Finding(
                    call_text(s, program.scalars, program.ext.values),
                    site_text(s.site),
                    [operand_text(values[x]) for x in operands],
                    found,
                    "the kernel of this operation alone, and the interpreter of the graph IR, on these operands",
                    "code generation: the kernel does not do what its primitives mean",
                    near,
                )
    return None


def _alone(program: Program, s: Step) -> Any:
    """One step lowered by itself, over the sizes of this trace."""
    ints = program.ext.values[s.ext_start : s.ext_start + s.n_ints] if "ints" in (s.info or ()) else None
    at = s.scalar_start + s.n_weak
    offsets = tuple(program.scalars[at : at + s.n_offsets]) if "offsets" in (s.info or ()) else None
    shapes = s.by_ext.get(s.ext) if s.ext is not None else None
    assert shapes is None or all(slot.shape == shape for slot, shape in zip(s.slots, shapes, strict=True))
    return infer(s.op, s.operands, s.statics, ints, offsets)


def fused_apart(program: Program, values: Values) -> Finding | None:
    """The first step that, computed by fused kernels, has other bits than through operations one by one."""
    slots = [x for s in program.steps if s.op not in (INPUT, MODE) for x in s.slots if x in values]
    exact = [x for x in slots if not program.work([x]).inexact]

    def wrong(slot: Slot) -> Array | None:
        got = program.compute([slot], True)[0]
        return None if same_bits(got, values[slot]) else got

    if len(exact) > LINEAR:
        first = first_of(exact, lambda slot: wrong(slot) is not None)
        exact = [] if first is None else [first]
    for slot in exact:
        got = wrong(slot)
        if got is not None:
            s = slot.step
            allowed = tolerance(got.dtype, values[slot])
            found = compare(got, values[slot], type(allowed)(0.0, 0.0, 0.0, "fusion keeps every bit"))
            return Finding(
                call_text(s, program.scalars, program.ext.values),
                site_text(s.site),
                [operand_text(values[x]) for x in s.operands if isinstance(x, Slot) and x in values],
                found or "the sign of a zero, or the shape, differs",
                "fused kernels, and one kernel an operation, from the same inputs",
                "fusion: every operation alone gives what it means",
            )
    return None


def first_of(items: Sequence[Any], fails: Callable[[Any], bool]) -> Any:
    """An item that fails while the one before it does not, found by halves; None where the last does not fail."""
    if not items or not fails(items[-1]):
        return None
    low, high = -1, len(items) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fails(items[middle]) else (middle, high)
    return items[high]


def needed(places: Sequence[int], fails: Callable[[frozenset[int]], bool]) -> frozenset[int]:
    """As few of these places as still fail, by taking away ever smaller parts (delta debugging)."""
    left = list(places)
    size = max(len(left) // 2, 1)
    while left:
        for i in range(0, len(left), size):
            rest = left[:i] + left[i + size :]
            if fails(frozenset(rest)):
                left = rest
                break
        else:
            if size == 1:
                break
            size = max(size // 2, 1)
    return frozenset(left)
