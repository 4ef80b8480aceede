"""lazyt's functions called by NumPy's signature: `lt.sum(x, where=mask)`, `lt.add(x, y, out=z)`, `lt.tile(x, reps=2)`.

What lazyt's own signature has not goes the way of NumPy's function called on tensors (functions.py, ufuncs.py), so it
means the same under both names. A function whose signature is NumPy's already is left as it is. Signatures are read
when they are first asked for: to read them all took a sixth of the time of an import.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt import on_demand
from lazyt.functions.arguments import dtype_or_none, tensor
from lazyt.functions.methods import METHODS
from lazyt.ir import dtypes
from lazyt.tracing.call_cache import in_short
from lazyt.tracing.fast_paths import of_one, of_two
from lazyt.tracing.public_names import keyword_error
from lazyt.tracing.steps import hooks
from lazyt.tracing.tensor_state import Handle
from lazyt.tracing.tracebacks import api_boundary, filter_traceback, filters_itself, guard_functions

if TYPE_CHECKING:
    from lazyt.functions.protocols import functions, ufuncs
else:
    functions = on_demand.module("lazyt.functions.protocols.functions")
    ufuncs = on_demand.module("lazyt.functions.protocols.ufuncs")

Function = Callable[..., Any]
# Parameters of NumPy's that say nothing of what is computed here: they are taken, and not shown.
_UNSHOWN = frozenset({"order", "subok", "like", "casting", "signature", "axes"})
# By the type of a default: what may be meant for it.
_OWN: dict[type, tuple[type, ...]] = {bool: (bool, np.bool_), float: (float, int)}
# What Python's types are as dtypes here; in NumPy's functions they are twice as wide.
_FLOATS: dict[Any, Any] = {float: dtypes.float32, complex: dtypes.complex64}
# What every ufunc takes.
_OPTIONS = ("out", "where", "dtype")


def give_signatures(space: dict[str, Any], names: Iterable[str], theirs: Any) -> None:
    """Give functions of a public namespace the signatures of NumPy's, in its namespace `theirs`, besides their own."""
    for name in names:
        f, named = space[name], getattr(theirs, name, None)
        if named is None or not callable(f) or isinstance(named, type):
            continue
        if isinstance(named, np.ufunc):
            called = _of_a_ufunc(f, named, name)
        else:
            called = _of_a_function(f, named, name)
            called = f if called is f else in_short(name, f, called)
        if called is not f:
            # Pickled by this name: `lazyt.absolute` is not `lazyt.abs`.
            called.__module__, called.__qualname__ = space["__name__"], name
            space[name] = called


def give_methods_signatures(lt: dict[str, Any], own: Mapping[str, Function]) -> None:
    """A method of NumPy's has the arguments of its function: that of `lt`, if it is the method's own."""
    for name, f in METHODS.items():
        if hasattr(np.ndarray, name) and own.get(name) is f and not isinstance(getattr(np, name, None), np.ufunc):
            setattr(hooks.tensor, name, lt[name])


def publish(space: dict[str, Any], names: Iterable[str], theirs: Any = None) -> None:
    """Make functions of a public namespace boundaries, with NumPy's signatures besides their own if there are such."""
    names = list(names)
    if theirs is not None:
        give_signatures(space, names, theirs)
    guard_functions(space, names, boundary_of)


def boundary_of(f: Function, name: str) -> Function:
    """A function as a public one: with the operators' way, where all it does is to record an operation."""
    op = _operation(f)
    if op is None:
        return api_boundary(f, name)
    front = of_one if f.__code__.co_argcount == 1 else of_two
    return filters_itself(functools.update_wrapper(front(op, f, name), f))


class _Shown:
    """What stands behind a function for whoever asks for its signature: its own, and NumPy's arguments behind."""

    def __init__(self, ours: Function, extra: Callable[[], Iterable[str]]) -> None:
        self.__wrapped__ = ours
        self._extra = extra

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.__wrapped__(*args, **options)

    @functools.cached_property
    def own(self) -> inspect.Signature:
        return inspect.signature(self.__wrapped__)

    @functools.cached_property
    def __signature__(self) -> inspect.Signature:
        own = list(self.own.parameters.values())
        more = [
            inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=True if n == "where" else None)
            for n in self._extra()
            if n not in _UNSHOWN and n not in self.own.parameters
        ]
        at = next((i for i, p in enumerate(own) if p.kind is p.VAR_KEYWORD), len(own))
        return self.own.replace(parameters=[*own[:at], *more, *own[at:]])


def _shown(call: Function, shown: _Shown) -> Function:
    """The front of a function: its name, its page, its signature."""
    functools.update_wrapper(call, shown.__wrapped__)
    filters_itself(call)
    call.__wrapped__ = shown  # type: ignore[attr-defined]
    return call


def _of_a_ufunc(ours: Function, ufunc: np.ufunc, name: str) -> Function:
    shown = _Shown(ours, lambda: _OPTIONS)
    if ufunc.nout == 2:

        def call(*xs: Any, out: Any = None, **options: Any) -> Any:
            try:
                if len(xs) == ufunc.nin and out is None and not options:
                    return ours(*xs)
                if len(xs) == ufunc.nin + 2 and out is None:
                    xs, out = xs[: ufunc.nin], xs[ufunc.nin :]
                shown.own.bind_partial(*xs)
                return _called(shown, ufunc, xs, out, options)
            except Exception as error:
                filter_traceback(error, True, name)
                raise

    elif ufunc.nin == 1:

        def call(x: Any, /, out: Any = None, **options: Any) -> Any:  # type: ignore[misc]
            try:
                if out is None and not options:
                    return ours(x)
                return _called(shown, ufunc, (x,), out, options)
            except Exception as error:
                filter_traceback(error, True, name)
                raise

    else:

        def call(x1: Any, x2: Any, /, out: Any = None, **options: Any) -> Any:  # type: ignore[misc]
            try:
                if out is None and not options:
                    return ours(x1, x2)
                return _called(shown, ufunc, (x1, x2), out, options)
            except Exception as error:
                filter_traceback(error, True, name)
                raise

    op = _operation(ours)
    if op is not None:
        call = (of_one if ufunc.nin == 1 else of_two)(op, call, name)
    found = _shown(call, shown)
    if ufunc.nout == 1 and ufunc.signature is None:
        found.at = ufunc.at  # type: ignore[attr-defined] # it writes, so NumPy's arrays stay its own
        for method in ("accumulate", "outer", "reduce", "reduceat") if ufunc.nin == 2 else ():
            setattr(found, method, functools.partial(_by_method, getattr(ufunc, method)))
    return found


def _by_method(method: Function, array: Any, *args: Any, **options: Any) -> Any:
    """`lt.add.reduce(x)` and its like: NumPy's methods, which find lazyt's by the protocol."""
    if (dtype := options.get("dtype")) is float or dtype is complex:
        options["dtype"] = _FLOATS[dtype]
    found = (
        array if any(isinstance(x, Handle) for x in args) else tensor(array, result=dtype_or_none(options.get("dtype")))
    )
    return method(found, *args, **options)


def _operation(f: Function) -> Any:
    """The operation that a function records, if it does nothing else: `return record_one(ops.EXP, x)`."""
    names = f.__code__.co_names
    if len(names) != 3 or names[0] not in ("record_one", "record_two", "record_comparison"):
        return None
    return getattr(f.__globals__[names[1]], names[2])


def _called(shown: _Shown, ufunc: np.ufunc, xs: tuple[Any, ...], out: Any, options: dict[str, Any]) -> Any:
    ours = shown.__wrapped__
    if out is None and options.keys() <= shown.own.parameters.keys():
        return ours(*xs, **options)
    if out is not None:
        options["out"] = out if isinstance(out, tuple) else (out,)
    operand = next((x for x in xs if isinstance(x, Handle)), None)
    found = ufuncs.array_ufunc(operand, ufunc, "__call__", *xs, **options)  # type: ignore[arg-type]
    if found is NotImplemented:
        raise TypeError(f"{ours.__name__}: not arrays, or not of lazyt's: {', '.join(type(x).__name__ for x in xs)}")
    return found


class _Pair:
    """The signatures of a function of lazyt's and of NumPy's, and where they part."""

    def __init__(self, ours: Function, theirs: Function) -> None:
        own = inspect.signature(ours).parameters.values()
        self.signature = inspect.signature(_told(theirs))
        more = self.signature.parameters.values()
        positional = [p for p in own if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self.most = len(positional) if not any(p.kind is p.VAR_POSITIONAL for p in own) else sys.maxsize
        theirs_at = [p.name for p in more if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        # Where the two have other arguments: `max(x, 0, True)` is ours, `max(x, 0, out)` NumPy's.
        apart = [
            i
            for i, (p, name) in enumerate(zip(positional, theirs_at, strict=False))
            if type(p.default) in _OWN and p.name != name
        ]
        self.at = apart[0] if apart else sys.maxsize
        self.of_ours = _OWN[type(positional[self.at].default)] if apart else ()
        # The names of NumPy's operands (`a`, `ary`) are taken too, and not shown.
        self.extra = [
            p.name for p in more if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.default is not p.empty
        ]


def _told(f: Any) -> Any:
    """A compiled function as one of Python's with the parameters that it tells; others as they are.

    NOTE: `inspect` would read the text with `tokenize`, whose patterns take 13 ms to compile.
    """
    inner: Any = inspect.unwrap(f)
    text = getattr(inner, "__text_signature__", None)
    if hasattr(inner, "__code__"):
        return inner
    if not text or "$" in text:
        return f
    space: dict[str, Any] = {}
    try:
        exec(f"def told{text}: ...", space)
    except (NameError, SyntaxError):  # a default that is no plain value
        return f
    return space["told"]


def _keywords(f: Any) -> frozenset[str]:
    """The names by which a function takes arguments. ValueError if it does not tell."""
    if code := getattr(_told(f), "__code__", None):
        return frozenset(code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount])
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return frozenset(p.name for p in inspect.signature(f).parameters.values() if p.kind in named)


def _required(f: Any) -> int:
    """How many arguments by position have no default: up to there the two are alike (see `_Pair.at`)."""
    inner: Any = inspect.unwrap(f)
    code = getattr(inner, "__code__", None)
    return 0 if code is None else code.co_argcount - len(inner.__defaults__ or ())


def _of_a_function(ours: Function, theirs: Function, name: str) -> Function:
    names = _keywords(ours)
    try:
        if _keywords(theirs) <= names:
            return ours
    except ValueError:  # NumPy's compiled functions tell none before NumPy 2.2
        return ours
    pair = functools.cache(lambda: _Pair(ours, theirs))
    plain = _required(ours)

    def call(*args: Any, **options: Any) -> Any:
        try:
            # NOTE: nor are the signatures read (a millisecond or two) for what has only what both require.
            if len(args) <= plain and (not options or options.keys() <= names):
                return ours(*args, **options)
            p = pair()
            if options.keys() <= names and len(args) <= p.most and (len(args) <= p.at or type(args[p.at]) in p.of_ours):
                return ours(*args, **options)
            try:
                p.signature.bind(*args, **options)
            except TypeError as error:
                text = TypeError(f"{ours.__name__}() {error}")
                raise keyword_error(text, ours.__name__, options) or text from None
            args = tuple(_FLOATS[a] if a is float or a is complex else a for a in args)
            if (dtype := options.get("dtype")) is float or dtype is complex:
                options["dtype"] = _FLOATS[dtype]
            found = functions.array_function(None, theirs, (), args, options)  # type: ignore[arg-type]
            return tensor(found) if isinstance(found, np.ndarray | np.generic) and options.get("out") is None else found
        except Exception as error:
            filter_traceback(error, True, name)
            raise

    return _shown(call, _Shown(ours, lambda: pair().extra))
