"""`check_against_numpy`: runs one function on NumPy arrays and on tensors in every mode, and locates differences."""

from __future__ import annotations

import copy
import inspect
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import lazyt as lt
from lazyt.config import HOST
from lazyt.errors import LazytError
from lazyt.testing.asserting import array, pending_slot, work_of_slots
from lazyt.testing.bisect import bisect, needed
from lazyt.testing.closeness import Comparison, Tolerance, Work, compare, same_bits, tolerance
from lazyt.testing.finding import Finding, Refused
from lazyt.testing.lockstep import Differs, Lockstep, Namespace, Pair, plain
from lazyt.testing.modes import EAGER, Mode, Run, devices, mode, modes
from lazyt.testing.numpy_names import reference
from lazyt.tracing.printer import site_text
from lazyt.tracing.tensor_state import Handle


class Mismatch(AssertionError):
    """A function gives something else in lazyt: `mode` says how it ran, `finding` where that starts, if known."""

    def __init__(self, message: str, mode: Mode, finding: Finding | None) -> None:
        super().__init__(message)
        self.mode = mode
        self.finding = finding


def check_against_numpy(
    fn: Callable[..., Any],
    *arrays: Any,
    sync: str = "all",
    backends: Sequence[str] | None = None,
    seed: int | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    ulp: float | None = None,
) -> None:
    """Check that `fn` gives on lazyt tensors what it gives on NumPy arrays, in every way that lazyt can run it.

    `fn` is called with copies of `arrays` (arrays, tensors or anything else, which is passed on as it is), and, where
    it has a parameter `xp`, with the namespace: lazyt, or NumPy under lazyt's names. It returns arrays, scalars, or
    tuples, lists and dicts of them. What it writes into its arguments is compared too.

    sync: 'never' (one sync at the end: fused, one kernel an operation, with plans that are known), 'always' (a sync
    after each operation), 'random' (at seeded places) or 'all'. backends: names of devices, by default all that are
    there. seed: of the random places; by default a new one each time, shown in the message. rtol, atol, ulp: as in
    `assert_close`, between NumPy and lazyt. Between the ways to run it all bits must be the same, unless a contraction
    or a library call had a part.

    Raises Mismatch, an AssertionError, with the way of running, the worst element, and the first operation that
    differs: its line, its operands and which part of lazyt is to blame. An error that lazyt raises is passed on, with
    the way of running as a note. ValueError for an unknown `sync`, DeviceError for a device that is not there.

    >>> import lazyt as lt, numpy as np
    >>> from lazyt.testing import check_against_numpy
    >>> def normalise(x, xp):
    ...     x -= xp.mean(x, axis=1, keepdims=True)
    ...     return x / xp.sqrt(xp.sum(x * x))
    >>> check_against_numpy(normalise, np.arange(6.0).reshape(2, 3))
    """
    if seed is None:
        seed = random.randrange(1 << 30)
    arrays = tuple(array(a) if isinstance(a, Handle) else a for a in arrays)
    given = (rtol, atol, ulp)
    want = Run(EAGER, *_in_numpy(fn, arrays))
    for backend in devices() if backends is None else backends:
        first: Run | None = None
        meant = False  # NumPy differs as it may: the modes are compared with each other
        for m in modes(sync, seed, backend):
            got = run(fn, arrays, m)
            apart = None if meant else _different(want, got, _allowed(want, got, given))
            if apart is not None and first is None and _meant(fn, arrays, backend):
                apart, meant = None, True
            where = apart or (None if first is None else _other_bits(first, got))
            if where is not None:
                raise _traced(fn, arrays, got, where, want, first)
            first = first or got


def run(fn: Callable[..., Any], arrays: Sequence[Any], m: Mode) -> Run:
    """Run a function on tensors in a mode; values are named by where they stand in the result."""
    out = Run(m)
    with mode(m, keep=True) as trace:
        try:
            for _ in range(m.repeat):
                del trace.programs[:]
                args = [lt.asarray(np.array(a), device=m.device) if isinstance(a, np.ndarray) else copy.deepcopy(a)
                        for a in arrays]  # fmt: skip
                result = fn(*args, **_namespace(fn, lt))
                found = dict(_named(result, args))
                slots = {k: s for k, x in found.items() if (s := pending_slot(x)) is not None}
                works = dict(zip(slots, work_of_slots(list(slots.values())), strict=True))
                several = bool(trace.programs)
                out.values = {k: array(x) for k, x in found.items()}
        except LazytError as e:
            e.add_note(f"lazyt.testing: {m}")
            raise
        out.structure = _structure(result)
        out.synced = list(trace.synced)
        out.programs = list(trace.programs)
    whole = sum((p.work() for p in out.programs), Work())
    out.work = {k: whole if several or k not in works else works[k] for k in out.values}
    return out


def _namespace(fn: Callable[..., Any], xp: Any) -> dict[str, Any]:
    return {"xp": xp} if "xp" in inspect.signature(fn).parameters else {}


def _in_numpy(fn: Callable[..., Any], arrays: Sequence[Any]) -> Any:
    args = [copy.deepcopy(a) for a in arrays]
    with np.errstate(all="ignore"):
        result = fn(*args, **_namespace(fn, reference))
    return {k: np.asarray(v) for k, v in _named(result, args)}, [], [], _structure(result)


def _named(result: Any, args: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Every array of a result, and every argument as it is after the call, by name."""
    todo = [("result", result)]
    while todo:
        name, x = todo.pop()
        if isinstance(x, dict):
            todo += [(f"{name}[{k!r}]", v) for k, v in reversed(list(x.items()))]
        elif isinstance(x, list | tuple):
            todo += [(f"{name}[{i}]", v) for i, v in reversed(list(enumerate(x)))]
        elif x is not None:
            yield name, x
    for i, a in enumerate(args):
        if isinstance(a, np.ndarray | Handle | Pair):
            yield f"argument {i} after the call", a


def _structure(x: Any) -> Any:
    if isinstance(x, dict):
        return {k: _structure(v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return [_structure(v) for v in x]
    return None if x is None else "value"


Allowed = dict[str, Tolerance]


def _allowed(want: Run, got: Run, given: tuple[float | None, float | None, float | None]) -> Allowed:
    rtol, atol, ulp = given
    if ulp is not None:
        return dict.fromkeys(want.values, Tolerance(0.0, 0.0, ulp))
    if rtol is not None or atol is not None:
        return dict.fromkeys(want.values, Tolerance(rtol or 0.0, atol or 0.0))
    return {k: tolerance(got.values[k].dtype, v, got.work.get(k)) for k, v in want.values.items() if k in got.values}


def _different(want: Run, got: Run, allowed: Allowed) -> tuple[str, Comparison | str] | None:
    """The first value by which two runs differ by more than is allowed."""
    if want.structure != got.structure:
        return "result", f"lazyt's result is made of {got.structure}, NumPy's of {want.structure}"
    for name, e in want.values.items():
        a = got.values[name]
        if a.shape != e.shape:
            return name, f"shape {a.shape}, expected {e.shape}"
        if a.dtype != e.dtype and not _of_a_scalar(a, e):
            return name, f"dtype {a.dtype}, expected {e.dtype}"
        found = compare(a.astype(e.dtype), e, allowed[name])
        if found is not None:
            return name, found
    return None


def _of_a_scalar(a: np.ndarray[Any, Any], e: np.ndarray[Any, Any]) -> bool:
    """Whether only the widths differ of what may both be Python scalars: `float(x)` has no dtype of its own."""
    return a.shape == () and a.dtype.kind == e.dtype.kind and 8 in (a.dtype.itemsize, e.dtype.itemsize)


def _other_bits(first: Run, got: Run) -> tuple[str, Comparison | str] | None:
    """The first value whose bits differ between two runs of lazyt."""
    for name, e in first.values.items():
        a = got.values[name]
        if not same_bits(a, e) and not (first.work[name].inexact or got.work[name].inexact):
            exact = Tolerance(0.0, 0.0, 0.0, f"the bits of lazyt {first.mode}")
            return name, compare(a, e, exact) or f"lazyt {first.mode} gives another sign of a zero"
    return None


def _traced(
    fn: Callable[..., Any], arrays: Sequence[Any], got: Run, where: tuple[str, Comparison | str], want: Run,
    first: Run | None,
) -> Mismatch:  # fmt: skip
    """The error for a difference: where it shows, and where it comes from."""
    name, found = where
    m = got.mode
    rows = [f"check_against_numpy: {getattr(fn, '__name__', fn)}, {name}, {m}: {found}"]
    finding, notes = trace_back(fn, arrays, got, lambda r: _fails(want, first, r))
    rows += notes
    rows.append(str(finding) if finding is not None else "no operation alone, and no fusion, shows the difference")
    return Mismatch("\n".join(rows), m, finding)


def _fails(want: Run, first: Run | None, got: Run) -> bool:
    allowed = _allowed(want, got, (None, None, None))
    return _different(want, got, allowed) is not None or (first is not None and _other_bits(first, got) is not None)


def trace_back(
    fn: Callable[..., Any], arrays: Sequence[Any], got: Run, fails: Callable[[Run], bool]
) -> tuple[Finding | None, list[str]]:
    """Where a difference comes from, and what else was learnt."""
    notes: list[str] = []
    try:
        lockstep(fn, arrays, got.mode.device)
    except Differs as d:
        inner = bisect(d.programs)
        if inner is not None:
            return replace(d.finding, blame=inner.blame, near=inner.near), notes
        blame = "the operation's meaning: its kernel does what its primitives say, and that is not what NumPy does"
        return replace(d.finding, blame=blame, near=d.programs[-1].primitives() if d.programs else []), notes
    except Refused as e:
        notes.append(f"  NumPy and lazyt could not be run side by side: {e}")
    finding = bisect(got.programs)
    if finding is None and got.synced:
        finding, more = _by_syncs(fn, arrays, got, fails)
        notes += more
    return finding, notes


def _meant(fn: Callable[..., Any], arrays: Sequence[Any], device: str) -> bool:
    """Whether some operation differs as lazyt means to (see departures.py), and none in another way."""
    try:
        return _side_by_side(fn, arrays, device).meant > 0
    except (Differs, Refused):
        return False


def lockstep(fn: Callable[..., Any], arrays: Sequence[Any], device: str = HOST) -> int:
    """Run a function on NumPy and lazyt side by side; Differs at the first operation that does. How many there were."""
    return _side_by_side(fn, arrays, device).operations


def _side_by_side(fn: Callable[..., Any], arrays: Sequence[Any], device: str) -> Lockstep:
    with mode(replace(EAGER, device=device), keep=True) as trace:
        step = Lockstep(trace)
        args = [
            Pair(step, np.array(a), lt.asarray(np.array(a), device=device)) if isinstance(a, np.ndarray) else a
            for a in arrays
        ]
        try:
            plain(fn(*args, **_namespace(fn, Namespace(step))))
        except (TypeError, AttributeError, LazytError) as e:
            raise Refused(f"{type(e).__name__}: {e}") from e
        return step


def _by_syncs(
    fn: Callable[..., Any], arrays: Sequence[Any], got: Run, fails: Callable[[Run], bool]
) -> tuple[Finding | None, list[str]]:
    """As few syncs as still give the difference, and the last operation before each."""
    m = got.mode

    def again(places: frozenset[int]) -> bool:
        return fails(run(fn, arrays, replace(m, places=places)))

    places = needed(got.synced, again)
    if not places:
        return None, []
    small = run(fn, arrays, replace(m, places=places))
    ends = [p.steps[-1] for p in small.programs]
    rows = [f"  needed: a sync after operation {n} ({s.op.name}, at {site_text(s.site)})"
            for n, s in zip(sorted(places), ends, strict=False)]  # fmt: skip
    return bisect(small.programs), rows
