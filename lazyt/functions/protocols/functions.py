"""`__array_function__`: a NumPy function called on tensors records lazyt's function of that name.

NumPy's arguments are bound by NumPy's own signature, and given to lazyt's function by its. What lazyt's function does
not take goes through NumPy on values, which is a sync with the function's name as its cause.
"""

from __future__ import annotations

import inspect
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import NotSupportedError
from lazyt.functions.arguments import tensor
from lazyt.functions.host import holds_array, refuse_class
from lazyt.functions.protocols.special_cases import REFUSED, SPECIAL
from lazyt.functions.protocols.table import FFT, LINALG, PUBLIC
from lazyt.functions.protocols.through import name_of, numpys_types, through_numpy, write_out
from lazyt.ir import dtypes
from lazyt.runtime.tensor import Tensor
from lazyt.tracing.autocast import outside
from lazyt.tracing.tracebacks import filter_traceback, filters_itself

if TYPE_CHECKING:
    from collections.abc import Callable

# Arguments that change nothing for deferred, C-contiguous tensors, and the values for which that is so.
HARMLESS: dict[str, tuple[Any, ...]] = {
    "order": ("C", "K", "A", None), "subok": (True, False), "like": (None,), "copy": (True, None), "kind": (None,
    "quicksort", "mergesort", "heapsort", "stable", "introselect"), "overwrite_input": (True, False), "ndmin": (0,),
    "casting": ("same_kind", "safe"), "assume_unique": (True, False), "bias": (np._NoValue,), "sorted": (True,),
    "stable": (True, False, None), "optimize": (True, False, "greedy", "optimal"), "hermitian": (False,),
}  # fmt: skip


def _native() -> dict[Any, Callable[..., Any]]:
    """NumPy's functions that dispatch and have a namesake in lazyt."""
    found: dict[Any, Callable[..., Any]] = {}
    for space, ours in ((np, PUBLIC), (np.linalg, LINALG), (np.fft, FFT)):
        for name, f in ours.items():
            theirs = getattr(space, name, None)
            if theirs is not None and not isinstance(theirs, np.ufunc | type):
                # One function may have several names: its own says what its arguments are (permute_dims is transpose).
                found[theirs] = ours.get(theirs.__name__, f)
    found[np.lib.stride_tricks.sliding_window_view] = PUBLIC["sliding_window_view"]
    return found


NATIVE = _native()


class _Misfit(Exception):
    """An argument that lazyt's function does not take: its name is the message."""


class _Adapter:
    """Calls of one NumPy function as calls of lazyt's."""

    def __init__(self, theirs: Any, ours: Callable[..., Any]) -> None:
        self.ours = ours
        # NOTE: before NumPy 2.2 its compiled functions tell no signature; their calls are passed on as they are.
        try:
            self.theirs: inspect.Signature | None = inspect.signature(theirs)
        except ValueError:
            self.theirs = None
        every = inspect.signature(ours).parameters.values()
        self.positional = [p for p in every if p.kind is p.POSITIONAL_ONLY]
        self.names = {p.name for p in every if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        self.variadic = any(p.kind is p.VAR_POSITIONAL for p in every)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.theirs is None or self.variadic:
            return self.ours(*args, **{k: v for k, v in kwargs.items() if not _is_harmless(k, v)})
        bound = self.theirs.bind(*args, **kwargs)
        given: list[Any] = []
        named: dict[str, Any] = {}
        parameters = self.theirs.parameters
        for i, (name, value) in enumerate(bound.arguments.items()):
            kind = parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL or kind is inspect.Parameter.VAR_KEYWORD:
                raise _Misfit(name)
            if i < len(self.positional) and i == len(given):
                given.append(value)
            elif name in self.names:
                if value is not np._NoValue:
                    named[name] = value
            elif value is not parameters[name].default and value is not np._NoValue and not _is_harmless(name, value):
                raise _Misfit(name)
        return self.ours(*given, **named)


def _is_harmless(name: str, value: Any) -> bool:
    return name in HARMLESS and any(value is v or (type(value) is type(v) and value == v) for v in HARMLESS[name])


@cache
def _adapter(f: Any) -> _Adapter:
    return _Adapter(f, NATIVE[f])


@cache
def _place_of_out(f: Any) -> int:
    """Which positional argument `out` is."""
    try:
        every = inspect.signature(f).parameters.values()
    except ValueError:  # NumPy's compiled functions tell none before NumPy 2.2
        return sys.maxsize
    names = [p.name for p in every if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return names.index("out") if "out" in names else sys.maxsize


def _foreign(t: type) -> bool:
    """Whether an argument's class has a protocol of its own, which decides before lazyt does."""
    return not issubclass(t, Tensor) and t is not np.ndarray and t is not np.memmap


# Reductions and scans, whose result NumPy casts to any dtype of `out`.
_CAST_TO_ANY = frozenset(
    f"numpy.{name}"
    for name in (
        "amax", "amin", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "max", "mean", "median", "min",
        "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmedian", "nanmin", "nanprod", "nansum", "nanvar", "prod",
        "sum", "var",
    )
)  # fmt: skip
# Functions that are ufuncs within: their result is broadcast to `out`.
_BROADCAST = {np.around, np.clip, np.fix, np.isneginf, np.isposinf, np.outer, np.round}
# What NumPy gives as a list.
_LISTS = {np.split, np.array_split, np.hsplit, np.vsplit, np.dsplit}


@filters_itself
def array_function(self: Tensor, f: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """NEP 18: `f(*args, **kwargs)` recorded where lazyt can, else computed by NumPy; NotImplemented for other classes.

    `out=` a tensor is a deferred write, `out=` an array computes. Raises as lazyt's function does, NotSupportedError
    for what has no meaning on tensors.
    """
    try:
        if any(map(_foreign, types)):
            for t in types:
                # A subclass with a protocol of its own is asked next; others have none that knows tensors.
                if issubclass(t, np.ndarray) and _foreign(t) and t.__array_function__ is np.ndarray.__array_function__:
                    refuse_class(t)
            return NotImplemented
        if f in REFUSED:
            raise NotSupportedError(f"{name_of(f)}: not supported: a tensor as its argument, because {REFUSED[f]}")
        args, kwargs = numpys_types(args, kwargs)
        out = kwargs.get("out")
        if isinstance(out, tuple) and len(out) == 1:
            out = out[0]
        rest = {k: v for k, v in kwargs.items() if k != "out"} if out is not None else kwargs
        if len(args) > (at := _place_of_out(f)):
            out, args = args[at], (*args[:at], None, *args[at + 1 :])
        if out is None:
            return _dispatched(f, args, rest)
        if (dtype := getattr(out, "dtype", None)) is not None:
            # Python's floats are as wide as what they are written into.
            args = tuple(tensor(a, result=dtype) if type(a) is list and _is_floats(a) else a for a in args)
        result = outside(_dispatched, f, args, rest)
        name = name_of(f)
        casting: Any = "unsafe" if name in _CAST_TO_ANY else rest.get("casting", "same_kind")
        return write_out(name, out, result, casting=casting, exact=f not in _BROADCAST)
    except Exception as error:
        filter_traceback(error)
        raise


def _is_floats(a: Any) -> bool:
    """Whether nested lists are a rectangle of Python's numbers, floats among them."""
    if not a or holds_array(a):
        return False
    try:
        return dtypes.host_kind(np.asarray(a).dtype) in "fc"
    except ValueError:
        return False


def _dispatched(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if getattr(f, "__module__", None) == "numpy":
        f = getattr(np, f.__name__, f)  # creation with `like=` comes in through functions of its own
    special = SPECIAL.get(f)
    if special is not None:
        result = special(*args, **kwargs)
        if result is not NotImplemented:
            return result
    elif f in NATIVE:
        try:
            result = _adapter(f)(args, kwargs)
        except _Misfit as e:
            return through_numpy(f, args, kwargs, f"{name_of(f)}({e}=)")
        return list(result) if f in _LISTS else result
    return through_numpy(f, args, kwargs, name_of(f))
