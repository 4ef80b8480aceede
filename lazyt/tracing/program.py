"""The recorded program as a value: calls, their keys, and numbers for equal programs.

A *call* is one operation on values of its program, in one mode and on one device; an input is a call without operands.
Extents, scalars and lines are arguments of a program, not parts of it: calls know only how many there are. What a call
does, whatever it reads, is its *kind*; the kind, its operands by their places and its results are its *key*. Equal keys
in a row are equal programs, whoever recorded them: each has one number (`Program.number`).

A trace is a program whose calls are steps of a trie (trace.py). A part of one is a program of its own (`Builder`).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from lazyt.forking import process_lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.tracing.call_site import Site
    from lazyt.tracing.mode import Mode

Key = tuple[Any, ...]


class _Special:
    """A call that is not an operation: an input, a change of mode, an assignment."""

    __slots__ = ("differentiable", "fallible", "name", "saves")

    def __init__(self, name: str) -> None:
        self.name = name
        self.saves: tuple[int, ...] = ()
        self.differentiable = True
        self.fallible = False

    def __repr__(self) -> str:
        return self.name


INPUT = _Special("input")
MODE = _Special("mode")
ASSIGN = _Special("assign")


class Slot:
    """Value `k` of a call. `shape` is the one at the latest extents."""

    __slots__ = ("dtype", "k", "leaf", "reach", "requires_grad", "shape", "step")

    def __init__(self, step: Any, k: int, dtype: Any, requires_grad: bool) -> None:
        self.step: Any = step if step is not None else self
        self.k = k
        self.dtype = dtype
        self.shape: tuple[int, ...] = ()
        self.requires_grad = requires_grad
        # The leaf slot whose gradient identity this value carries: itself for a leaf, the parameter's leaf for a
        # value assigned to it under no_grad, None otherwise.
        self.leaf: Slot | None = None
        self.reach: Any = None  # memo: the steps that a backward from here passes


class Call(Slot):
    """One operation of a program; it is also its own first value."""

    __slots__ = (
        "device", "ext_start", "index", "info", "kind", "mode", "n_ints", "n_offsets", "n_scalars", "n_weak", "op",
        "operands", "scalar_start", "site", "slots", "statics", "stops", "targets",
    )  # fmt: skip

    def __init__(
        self, before: Call | None, op: Any, operands: tuple[Any, ...], statics: tuple[Any, ...], mode: Mode
    ) -> None:
        super().__init__(None, 0, None, False)
        self.op = op
        self.operands = operands  # slots, or the type of a Python scalar
        self.statics = statics
        self.index: int = -1 if before is None else before.index + 1
        self.scalar_start: int = 0 if before is None else before.scalar_start + before.n_scalars
        self.ext_start: int = 0 if before is None else before.ext_start + before.n_ints
        self.n_weak: int = 0
        self.n_offsets: int = 0
        self.n_scalars: int = 0
        self.n_ints: int = 0
        self.slots: tuple[Slot, ...] = (self,)
        self.mode = mode
        # The device that the values are on: the operands', where there are any.
        self.device: str = next((x.step.device for x in operands if isinstance(x, Slot)), mode.device)
        self.site: Site | None = None
        self.info: Any = None
        self.kind: Key | None = None  # memo of `kind_of`
        self.targets: tuple[Slot, ...] = ()  # for an in-place call: the values it supersedes
        self.stops: frozenset[Slot] = frozenset()  # for a backward: values that pass nothing on

    def give(self, n: int) -> None:
        """Makes `n` slots for its values."""
        self.slots = tuple(self if k == 0 else Slot(self, k, None, False) for k in range(n))


def is_expanded(op: Any) -> bool:
    """Whether autograd expands an operation from the calls before it, so that its attributes name values."""
    return hasattr(op, "expand")


def kind_of(c: Call) -> Key:
    """Key of the computation of a call, whatever it reads. Types of attributes are part of it: True is not 1."""
    kind = c.kind
    if kind is None:
        if is_expanded(c.op):
            kind = (c.op, len(c.operands), None, c.n_ints, c.n_offsets, c.mode.computing, ())
        else:
            kind = (c.op, c.statics, c.info, c.n_ints, c.n_offsets, c.mode.computing, tuple(map(type, c.statics)))
        c.kind = kind
    return kind


def key_of(c: Call, place: Callable[[Slot], Any]) -> Key:
    """Key of a call whose operands are at the places that `place` gives; equal for equal calls."""
    if c.op is INPUT:
        return (INPUT, *c.statics)
    if c.op is MODE:
        return (MODE, *c.statics)
    special = (_placed(c.statics, place), _placed(c.info, place)) if is_expanded(c.op) else None
    return (
        kind_of(c), tuple([place(x) if isinstance(x, Slot) else x for x in c.operands]), special,
        tuple([(x.dtype, x.requires_grad, x.leaf is not None) for x in c.slots]),
        bool(c.targets), frozenset(map(place, c.stops)) if c.stops else None, c.device,
    )  # fmt: skip


def _placed(x: Any, place: Callable[[Slot], Any]) -> Any:
    """An attribute with places instead of values."""
    if isinstance(x, Slot):
        return place(x)
    if isinstance(x, tuple | frozenset):
        return type(x)(_placed(y, place) for y in x)
    return x


def position(x: Slot) -> tuple[int, int]:
    """Place of a value in its program: index of the call, and which of its values."""
    return x.step.index, x.k


MAX_NUMBERS = 1 << 16  # about 600 bytes each, and the attributes in their keys
_numbers: dict[tuple[Any, ...], int] = {}
_next = itertools.count(1)
_lock = process_lock()


def number_of(before: int, key: Key) -> int:
    """Number of the program that appends a call to another one, whose number is `before`; 0: the empty program."""
    full = (before, key)
    n = _numbers.get(full)
    if n is None:
        with _lock:
            if len(_numbers) >= MAX_NUMBERS:
                _numbers.clear()  # NOTE: a forgotten program gets a second number, and no plan of the first
            n = _numbers.setdefault(full, next(_next))
    return n


# `Program.left` before it is computed.
UNASKED = object()


class Program:
    """A sequence of calls with the number of all equal programs, and memos of the runtime."""

    __slots__ = ("calls", "division", "ext", "left", "number", "plan", "plans", "want")

    def __init__(self, calls: list[Any], number: int) -> None:
        self.calls = calls
        self.number = number
        # Memo of runtime/plan_cache.py: the plans of all equal programs; the latest one, its extents and wanted values.
        self.plans: Any = None
        self.plan: Any = None
        self.ext: Any = None
        self.want: list[Slot] = []
        # Memo of runtime/subprograms.py: where it is divided; number of calls left of an iteration of a loop.
        self.division: Any = None
        self.left: Any = UNASKED

    @property
    def end(self) -> Any:
        """The last call."""
        return self.calls[-1]


class Builder:
    """Builds a program from calls of another one, on inputs of its own."""

    def __init__(self, mode: Mode, device: str, number: int = 0) -> None:
        """number: that of the program before the first call."""
        self.calls: list[Call] = []
        self.slots: dict[Slot, Slot] = {}  # from a value of the other program to the one here
        self.number = number
        self._root = Call(None, None, (), (), mode)
        self._root.device = device

    def _add(self, c: Call) -> Call:
        self.calls.append(c)
        return c

    @property
    def _last(self) -> Call:
        return self.calls[-1] if self.calls else self._root

    def input(self, form: Key, x: Slot | None = None) -> Call:
        """Adds an input of this form (dtype, rank, kind of gradient, -1, device), which stands for a value `x`."""
        c = Call(self._last, INPUT, (), form, self._root.mode)
        c.dtype, c.n_ints, c.device = form[0], form[1], form[4]
        c.requires_grad = form[2] != 0
        c.leaf = c if c.requires_grad else None
        if x is not None:
            c.shape, c.site, self.slots[x] = x.shape, x.step.site, c
        return self._add(c)

    def call(self, like: Call, op: Any, operands: tuple[Any, ...], statics: tuple[Any, ...], more: Key) -> Call:
        """Adds a new call with line, mode and device of another one; its values have no dtypes yet.

        more: the numbers of its integers, offsets and values.
        """
        c = Call(self._last, op, operands, statics, like.mode)
        c.site, c.device = like.site, like.device
        c.n_ints, c.n_offsets, n = more
        c.n_weak = sum(not isinstance(x, Slot) for x in operands)
        c.n_scalars = c.n_weak + c.n_offsets
        c.info = ("ints",) * bool(c.n_ints) + ("offsets",) * bool(c.n_offsets)
        c.give(n)
        return self._add(c)

    def copy(self, s: Call) -> Call:
        """Adds a copy of a call, on the values that stand for its operands."""
        of = self.slots.__getitem__
        special = is_expanded(s.op)
        c = Call(self._last, s.op, _placed(s.operands, of), _placed(s.statics, of) if special else s.statics, s.mode)
        c.info = _placed(s.info, of) if special else s.info
        c.n_weak, c.n_offsets, c.n_scalars, c.n_ints = s.n_weak, s.n_offsets, s.n_scalars, s.n_ints
        c.site, c.device = s.site, s.device
        c.give(len(s.slots))
        c.stops = frozenset(map(of, s.stops))
        # NOTE: targets of an update are operands too; lowering asks only whether there are any.
        c.targets = tuple(of(x) for x in s.targets if x in self.slots)
        for x, y in zip(s.slots, c.slots, strict=True):
            y.dtype, y.shape, y.requires_grad = x.dtype, x.shape, x.requires_grad
            self.slots[x] = y
        for x, y in zip(s.slots, c.slots, strict=True):
            y.leaf = None if x.leaf is None else self.slots.get(x.leaf, y)
        return self._add(c)

    def program(self) -> Program:
        """The program of the calls added so far."""
        number = self.number
        for c in self.calls:
            number = number_of(number, key_of(c, position))
        return Program(self.calls, number)
