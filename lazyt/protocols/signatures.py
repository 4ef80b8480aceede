"""lazyt's functions called by NumPy's signature: `lt.sum(x, where=mask)`, `lt.add(x, y, out=z)`, `lt.tile(x, reps=2)`.

What lazyt's own signature has not goes the way of NumPy's function called on tensors (functions.py, ufuncs.py), so it
means the same under both names. A function whose signature is NumPy's already is left as it is.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from lazyt.calls import in_short
from lazyt.doors import of_one, of_two
from lazyt.functions.arguments import tensor
from lazyt.handle import Handle
from lazyt.ir import dtypes
from lazyt.protocols.functions import NATIVE, array_function
from lazyt.protocols.special_cases import SPECIAL
from lazyt.protocols.table import FFT, LINALG, PUBLIC
from lazyt.protocols.ufuncs import UFUNCS, array_ufunc
from lazyt.spellings import keyword_error

Function = Callable[..., Any]
# Parameters of NumPy's that say nothing of what is computed here: they are taken, and not shown.
_UNSHOWN = frozenset({"order", "subok", "like", "casting", "signature", "axes"})
# By the type of a default: what may be meant for it.
_OWN: dict[type, tuple[type, ...]] = {bool: (bool, np.bool_), float: (float, int)}
# What Python's types are as dtypes here; in NumPy's functions they are twice as wide.
_FLOATS: dict[Any, Any] = {float: dtypes.float32, complex: dtypes.complex64}
# What every ufunc takes.
_OPTIONS = ("out", "where", "dtype")


def install(lt: dict[str, Any], linalg: dict[str, Any], fft: dict[str, Any]) -> None:
    """Give the functions of the namespaces `lt`, `lt.linalg` and `lt.fft` NumPy's signatures besides their own."""
    for space, theirs, ours in ((lt, np, PUBLIC), (linalg, np.linalg, LINALG), (fft, np.fft, FFT)):
        for name, f in ours.items():
            named: Any = getattr(theirs, name, None)
            if isinstance(named, np.ufunc):
                if named in UFUNCS:
                    space[name] = _of_a_ufunc(f, named)
            elif named in SPECIAL or named in NATIVE:
                called = _of_a_function(f, named)
                # NOTE: what is not wrapped stays itself, so that it can be pickled.
                space[name] = f if called is f else in_short(name, f, called)


def _of_a_ufunc(ours: Function, ufunc: np.ufunc) -> Function:
    own = inspect.signature(ours)
    if ufunc.nout == 2:

        def call(*xs: Any, out: Any = None, **options: Any) -> Any:
            if len(xs) == ufunc.nin and out is None and not options:
                return ours(*xs)
            if len(xs) == ufunc.nin + 2 and out is None:
                xs, out = xs[: ufunc.nin], xs[ufunc.nin :]
            own.bind_partial(*xs)
            return _called(ours, own, ufunc, xs, out, options)

    elif ufunc.nin == 1:

        def call(x: Any, /, out: Any = None, **options: Any) -> Any:  # type: ignore[misc]
            if out is None and not options:
                return ours(x)
            return _called(ours, own, ufunc, (x,), out, options)

    else:

        def call(x1: Any, x2: Any, /, out: Any = None, **options: Any) -> Any:  # type: ignore[misc]
            if out is None and not options:
                return ours(x1, x2)
            return _called(ours, own, ufunc, (x1, x2), out, options)

    op = _operation(ours)
    if op is not None:
        call = (of_one if ufunc.nin == 1 else of_two)(op, call)
    return _shown(call, ours, own, _OPTIONS)


def _operation(f: Function) -> Any:
    """The operation that a function records, if it does nothing else: `return record_one(ops.EXP, x)`."""
    names = f.__code__.co_names
    if len(names) != 3 or names[0] not in ("record_one", "record_two", "record_comparison"):
        return None
    return getattr(f.__globals__[names[1]], names[2])


def _called(
    ours: Function, own: inspect.Signature, ufunc: np.ufunc, xs: tuple[Any, ...], out: Any, options: dict[str, Any]
) -> Any:
    if out is None and options.keys() <= own.parameters.keys():
        return ours(*xs, **options)
    if out is not None:
        options["out"] = out if isinstance(out, tuple) else (out,)
    operand = next((x for x in xs if isinstance(x, Handle)), None)
    found = array_ufunc(operand, ufunc, "__call__", *xs, **options)  # type: ignore[arg-type]
    if found is NotImplemented:
        raise TypeError(f"{ours.__name__}: not arrays, or not of lazyt's: {', '.join(type(x).__name__ for x in xs)}")
    return found


def _of_a_function(ours: Function, theirs: Function) -> Function:
    own = inspect.signature(ours)
    names = {p.name for p in own.parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    try:
        signature = inspect.signature(theirs)
    except ValueError:  # NumPy's compiled functions tell none before NumPy 2.2
        return ours
    more = signature.parameters.values()
    extra = [p.name for p in more if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name not in names]
    if not extra:
        return ours
    positional = [p for p in own.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    most = len(positional) if not any(p.kind is p.VAR_POSITIONAL for p in own.parameters.values()) else sys.maxsize
    theirs_at = [p.name for p in more if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    # Where the two have other arguments: `max(x, 0, True)` is ours, `max(x, 0, out)` NumPy's.
    apart = [
        i
        for i, (p, name) in enumerate(zip(positional, theirs_at, strict=False))
        if type(p.default) in _OWN and p.name != name
    ]
    at = apart[0] if apart else sys.maxsize
    of_ours = _OWN[type(positional[at].default)] if apart else ()

    def call(*args: Any, **options: Any) -> Any:
        if options.keys() <= names and len(args) <= most and (len(args) <= at or type(args[at]) in of_ours):
            return ours(*args, **options)
        try:
            signature.bind(*args, **options)
        except TypeError as error:
            raise keyword_error(error, ours.__name__, options) from None
        args = tuple(_FLOATS[a] if a is float or a is complex else a for a in args)
        if (dtype := options.get("dtype")) is float or dtype is complex:
            options["dtype"] = _FLOATS[dtype]
        found = array_function(None, theirs, (), args, options)  # type: ignore[arg-type]
        return tensor(found) if isinstance(found, np.ndarray | np.generic) and options.get("out") is None else found

    # The names of NumPy's operands (`a`, `ary`) are taken too.
    first = [p.name for p in more if p.default is p.empty]
    return _shown(call, ours, own, [n for n in extra if n not in first])


def _shown(call: Function, ours: Function, own: inspect.Signature, extra: Any) -> Function:
    """The front of a function: its name, its page, and NumPy's arguments behind its own."""
    functools.update_wrapper(call, ours)
    more = [
        inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=True if n == "where" else None)
        for n in extra
        if n not in _UNSHOWN and n not in own.parameters
    ]
    call.__signature__ = own.replace(parameters=_with(list(own.parameters.values()), more))  # type: ignore[attr-defined]
    return call


def _with(own: list[inspect.Parameter], more: list[inspect.Parameter]) -> list[inspect.Parameter]:
    at = next((i for i, p in enumerate(own) if p.kind is p.VAR_KEYWORD), len(own))
    return [*own[:at], *more, *own[at:]]
