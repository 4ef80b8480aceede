"""`assert_close`: two arrays agree to a tolerance, or the worst element and the line that recorded it are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lazyt.ir import dtypes, graph as g
from lazyt.testing.closeness import Tolerance, Work, compare, tolerance, work_of
from lazyt.tracing.lower import lower
from lazyt.tracing.printer import site_text
from lazyt.tracing.program import INPUT, Slot
from lazyt.tracing.step_printer import call_text
from lazyt.tracing.tensor_state import Handle, Holder


def pending_slot(x: Any) -> Slot | None:
    """The pending value of a tensor, or None when it is computed (or no tensor)."""
    if not isinstance(x, Handle):
        return None
    holder: Holder = x._storage if x._storage is not None else x
    if holder._buffer is not None:
        return None
    slot = x._slot if x._slot is not None else holder._slot
    return None if slot is None or slot.step.op is INPUT else slot


def recorded(slot: Slot) -> str:
    """`exp %0, at train.py:7`: the step that makes a value, and the user's line."""
    s = slot.step
    tr = s.owner
    return f"{call_text(s, tr.scalars, tr.ext.values)}, at {site_text(s.site)}"


def work_of_slots(slots: Sequence[Slot]) -> list[Work]:
    """The primitives that each of these pending values of one trace is computed with."""
    if not slots:
        return []
    tr = slots[0].step.owner
    pos = tr.pos
    low = lower(pos.steps(), tr.ext.values, tr.scalars[: pos.scalar_start + pos.n_scalars])
    return [work_of(g.reachable([low.nodes[s]])) for s in slots]


def array(x: Any) -> np.ndarray[Any, Any]:
    """The value of a tensor (one that requires grad too), or of anything that NumPy takes."""
    return x._array("testing") if isinstance(x, Handle) else np.asarray(x)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    ulp: float | None = None,
    equal_nan: bool = True,
) -> None:
    """Raise AssertionError unless `actual` has the shape and dtype of `expected` and elements close to its own.

    Either may be a tensor, a NumPy array, a Python scalar or nested lists; those without a dtype take the other's.
    Integers and bools are exact. For floats and complex numbers the tolerance is `atol + rtol * abs(expected)`, or
    `ulp` units in the last place. Where neither is given it comes from the dtype and, for a tensor that is still
    pending, from the primitives that compute it: each may round a few units, and what adds numbers is measured by the
    largest of them. The message has the worst element, how many differ, and the recorded line if it is known.

    Syncs pending tensors. Raises ValueError for `ulp` together with `rtol` or `atol`. But for tolerances as
    `numpy.testing.assert_allclose` with `strict=True`.

    >>> import lazyt as lt, numpy as np
    >>> from lazyt.testing import assert_close
    >>> x = np.linspace(0, 1, 5, dtype=np.float32)
    >>> assert_close(lt.exp(lt.asarray(x)), np.exp(x))
    >>> assert_close(lt.asarray(x) + 1, x + 1, ulp=0)
    >>> assert_close(lt.asarray(x), x.astype(np.float64))
    Traceback (most recent call last):
    ...
    AssertionError: assert_close: dtype float32 where float64 is expected (shape (5,))
    """
    if ulp is not None and (rtol is not None or atol is not None):
        raise ValueError("assert_close: ulp is a tolerance of its own; leave rtol and atol out")
    slot = pending_slot(actual)
    line = "" if slot is None else f"\n  recorded: {recorded(slot)}"
    work = None if slot is None else work_of_slots([slot])[0]
    other = pending_slot(expected)
    if work is not None and other is not None:
        work += work_of_slots([other])[0]
    a, e = array(actual), array(expected)
    if not hasattr(expected, "dtype"):
        e = e.astype(a.dtype)
    elif not hasattr(actual, "dtype"):
        a = a.astype(e.dtype)
    if a.shape != e.shape:
        raise AssertionError(f"assert_close: shape {a.shape} where {e.shape} is expected{line}")
    if a.dtype != e.dtype:
        raise AssertionError(f"assert_close: dtype {a.dtype} where {e.dtype} is expected (shape {a.shape}){line}")
    dtypes.as_dtype(a.dtype)
    allowed = given(a.dtype, e, rtol, atol, ulp, work)
    found = compare(a, e, allowed, equal_nan)
    if found is not None:
        raise AssertionError(f"assert_close: {found}{line}")


def given(
    dtype: np.dtype[Any], expected: Any, rtol: float | None, atol: float | None, ulp: float | None, work: Work | None
) -> Tolerance:
    """The tolerance that a caller asked for; without one, that of the dtype and the work."""
    if ulp is not None:
        return Tolerance(0.0, 0.0, ulp)
    if rtol is not None or atol is not None:
        return Tolerance(rtol or 0.0, atol or 0.0)
    return tolerance(dtype, expected, work)
