"""Which calls have generated code, and why the host computes the others."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lazyt.ir import dtypes
from lazyt.ir.graph import Opaque
from lazyt.ir.passes.schedule import LibraryCall, MatmulCall, ScatterCall
from lazyt.ops.kernel_calls import ON_DEVICE
from lazyt_opencl.arrays import LANGUAGE
from lazyt_opencl.library import elements, scan, scatter, sorting

if TYPE_CHECKING:
    from lazyt_opencl.executor import Bound
    from lazyt_opencl.library.routine import Routine

SORTS = ("sort", "argsort", "topk")
BITS = ("packbits", "unpackbits")
# All functions that have code for some dtypes.
FUNCTIONS = frozenset((*SORTS, *BITS, "cumsum", "cumprod", "searchsorted", "isin", "after"))
# Rows of a sort have at most so many elements: positions are uint32.
LONGEST = 1 << 31


def routine_of(bound: Bound, call: Any) -> Routine | None:
    """The generated code of a call at the sizes of a binding; None where the host computes it."""
    if isinstance(call, ScatterCall):
        return scatter.Scatter(bound, call) if scatter.suits(bound, call) else None
    if not isinstance(call, LibraryCall) or not isinstance(call.node.attrs, Opaque):
        return None
    fn, (x, *rest) = call.node.attrs.fn, call.operands
    if fn == "after":
        return elements.After(bound, call)
    # NOTE: the host gives each result memory of its own; one that nobody reads has none.
    if fn not in FUNCTIONS or len(call.results) != 1:
        return None
    if fn in ("cumsum", "cumprod"):
        return scan.Scan(bound, call) if scan.suits(call) else None
    if fn in BITS:
        return elements.Bits(bound, call) if dtypes.kind(x.dtype) in "bu" and x.dtype.itemsize == 1 else None
    alike = sorting.has_keys(x.dtype) and all(r.dtype == x.dtype for r in rest)
    if fn in SORTS:
        return sorting.Sort(bound, call) if alike and max(map(bound.value, x.shape), default=0) < LONGEST else None
    if fn == "isin":
        few = alike and math.prod(bound.value(d) for d in rest[0].shape) <= elements.MOST_MEMBERS
        return elements.Member(bound, call) if few else None
    return elements.Search(bound, call) if alike else None


def user_call(call: Any) -> Any:
    """The call of a user's kernel in OpenCL C that a launch is; None for all others."""
    if isinstance(call, LibraryCall) and isinstance(call.node.attrs, Opaque) and call.node.attrs.fn == ON_DEVICE:
        found = call.node.attrs.statics[0]
        return found if found.language == LANGUAGE else None
    return None


def may_fail(call: Any) -> bool:
    """Whether a launch may be computed by the host, or by code of a user's, which can fail."""
    if isinstance(call, LibraryCall):
        return not isinstance(call.node.attrs, Opaque) or call.node.attrs.fn not in FUNCTIONS
    return isinstance(call, MatmulCall | ScatterCall) and dtypes.kind(call.node.dtype) == "c"
