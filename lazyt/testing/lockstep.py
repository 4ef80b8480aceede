"""NumPy and lazyt side by side, one operation at a time: the first one that differs says which and where.

A `Pair` stands for an array in both. Every operation is applied to both, lazyt syncs after each one,
and the results are compared on the same operands: where the two have drifted apart by rounding, NumPy repeats the
operation on what lazyt had before anything is called a difference.
"""

from __future__ import annotations

import copy
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import lazyt as lt
from lazyt.runtime.tensor import Tensor
from lazyt.testing import departures
from lazyt.testing.asserting import array
from lazyt.testing.closeness import Comparison, Work, compare, tolerance
from lazyt.testing.finding import Finding, Refused, operand_text
from lazyt.testing.modes import Program, Watched
from lazyt.testing.numpy_names import reference
from lazyt.tracing.call_site import Site
from lazyt.tracing.printer import site_text
from lazyt.tracing.tensor_state import Handle


class Differs(Exception):
    """Two results of one operation on equal operands."""

    def __init__(self, finding: Finding, programs: list[Program]) -> None:
        super().__init__(str(finding))
        self.finding = finding
        self.programs = programs  # what lazyt ran for the operation


def caller() -> str:
    """The line of the innermost frame outside lazyt."""
    f: Any = sys._getframe(1)
    while f is not None and (f.f_globals.get("__name__") or "").partition(".")[0] in ("lazyt", "contextlib"):
        f = f.f_back
    return "?" if f is None else site_text(Site(f.f_code, f.f_lasti))


class Lockstep:
    """Runs operations on both sides; counts them."""

    def __init__(self, trace: Watched) -> None:
        self.trace = trace
        self.operations = 0
        self.meant = 0  # how many differed as lazyt means to (see departures.py)

    def call(
        self, name: str, on_numpy: Callable[..., Any], on_lazyt: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """One operation on both sides; Differs where the results do."""
        self.operations += 1
        before = [copy.copy(array(p.tensor)) for p in pairs(args, kwargs)]
        programs = len(self.trace.programs)
        with np.errstate(all="ignore"):
            want = on_numpy(*_side(args, 0), **_side(kwargs, 0))
        got = on_lazyt(*_side(args, 1), **_side(kwargs, 1))
        ran = self.trace.programs[programs:]

        def again() -> Any:
            # NOTE: an operation in place has changed its operand by now; this works on what it was.
            fresh = iter(before)
            with np.errstate(all="ignore"):
                return on_numpy(*_fresh(args, fresh), **_fresh(kwargs, fresh))

        return self._join(name, want, got, again, lambda r: r, before, ran)

    def _join(
        self, name: str, want: Any, got: Any, again: Callable[[], Any], part: Callable[[Any], Any],
        operands: list[np.ndarray[Any, Any]], ran: list[Program],
    ) -> Any:  # fmt: skip
        """Both results as a Pair, or in a tuple of them, if they agree."""
        if isinstance(want, list | tuple) and isinstance(got, list | tuple) and len(want) == len(got):
            parts = []
            for k in range(len(want)):
                inner = lambda r, k=k: part(r)[k]
                parts.append(self._join(name, want[k], got[k], again, inner, operands, ran))
            return tuple(parts)
        if not isinstance(got, Handle) or not isinstance(want, np.ndarray | np.generic | Pair):
            if isinstance(got, Handle) or isinstance(want, np.ndarray):
                raise Refused(f"{name} gives a {type(want).__name__} in NumPy and a {type(got).__name__} in lazyt")
            if not _scalars_agree(want, got):
                texts = [operand_text(a) for a in operands]
                raise Differs(_finding(name, texts, f"actual {got!r}, expected {want!r}"), ran)
            return got
        found = difference(np.asarray(want), array(got), ran)
        if found is not None:
            # Rounding may have grown on the way here: the same operation on lazyt's own operands decides.
            repeated = np.asarray(part(again()))
            found = difference(repeated, array(got), ran)
            if found is not None and self._meant(name, repeated, array(got), operands, ran):
                found, want = None, repeated.astype(got.dtype)
            if found is not None:
                raise Differs(_finding(name, [operand_text(a) for a in operands], found), ran)
        if (
            isinstance(want, np.ndarray)
            and want.flags.writeable
            and want.dtype == got.dtype
            and want.shape == got.shape
        ):
            np.copyto(want, array(got))  # neither drifts away from the other; what is viewed follows
        elif not isinstance(want, np.ndarray):
            want = np.array(array(got))
        return Pair(self, want, got)

    def _meant(self, name: str, want: Any, got: Any, operands: list[Any], ran: list[Program]) -> bool:
        """Whether NumPy's result differs only as lazyt means to."""
        if want.shape != got.shape:
            return False
        same = departures.in_dtype(got, want, operands, "")
        where = departures.meant([_SIGNS.get(name, name)], got, same, operands)
        meant = difference(same if where is None else np.where(where, got, same), got, ran) is None
        self.meant += meant
        return meant


# The functions behind operators that departures.py knows by name.
_SIGNS = {"floordiv": "floor_divide", "ifloordiv": "floor_divide", "truediv": "divide", "itruediv": "divide"}


def difference(want: np.ndarray[Any, Any], got: np.ndarray[Any, Any], ran: list[Program]) -> Comparison | str | None:
    """How two results differ, by more than what ran may round; or None."""
    if got.shape != want.shape:
        return f"shape {got.shape}, expected {want.shape}"
    if got.dtype != want.dtype:
        return f"dtype {got.dtype}, expected {want.dtype}"
    work = sum((p.work() for p in ran), Work())
    return compare(got, want, tolerance(got.dtype, want, work))


def _finding(name: str, operands: list[str], found: Comparison | str) -> Finding:
    return Finding(name, caller(), operands, found, f"NumPy's {name} and lazyt's, on these operands")


def _scalars_agree(a: Any, b: Any) -> bool:
    if isinstance(a, float | complex | np.floating) and isinstance(b, float | complex):
        return bool(np.isclose(a, b, rtol=1e-6, equal_nan=True))
    return a is b or bool(a == b)


class Pair:
    """An array in NumPy and in lazyt at once; what is done to it is done to both, and compared."""

    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 2000

    __getitem__: Callable[..., Any]

    def __init__(self, step: Lockstep, numpy: Any, tensor: Any) -> None:
        self._step = step
        self.numpy_value = numpy
        self.tensor: Tensor = tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return self.tensor.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return self.tensor.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.tensor.size

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if not hasattr(type(self.tensor), name):
            raise AttributeError(f"lazyt's Tensor has no {name}")
        if callable(getattr(type(self.tensor), name)):
            return lambda *args, **kwargs: self._do(name, args, kwargs)
        return self._step.call(name, operator.attrgetter(name), operator.attrgetter(name), (self,), {})

    def _do(self, name: str, args: Sequence[Any], kwargs: Any) -> Any:
        def method(x: Any, *a: Any, **k: Any) -> Any:
            if name == "numpy" and isinstance(x, np.ndarray):
                return x
            return getattr(x, name)(*a, **k)

        return self._step.call(name, method, method, (self, *args), kwargs)

    def __array_namespace__(self, **kwargs: Any) -> Any:
        return Namespace(self._step)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        f = getattr(ufunc, method) if method != "__call__" else ufunc
        return self._step.call(ufunc.__name__, f, f, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return self._step.call(function.__name__, function, function, args, kwargs)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._write("setitem", operator.setitem, (key, value))

    def _write(self, name: str, f: Callable[..., Any], operands: Any) -> Any:
        """An operation in place: the whole array is compared after it."""

        def run(x: Any, *rest: Any) -> Any:
            f(x, *rest)
            return x

        self._step.call(name, run, run, (self, *operands), {})
        return self

    def __float__(self) -> float:
        return float(self._step.call("float()", float, float, (self,), {}))

    def __int__(self) -> int:
        return int(self._step.call("int()", int, int, (self,), {}))

    def __bool__(self) -> bool:
        return bool(self._step.call("bool()", bool, bool, (self,), {}))

    def __complex__(self) -> complex:
        return complex(self._step.call("complex()", complex, complex, (self,), {}))

    def __index__(self) -> int:
        return int(self._step.call("index", operator.index, operator.index, (self,), {}))

    def __len__(self) -> int:
        return len(self.tensor)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    def __repr__(self) -> str:
        return f"<NumPy and lazyt: {operand_text(array(self.tensor))}>"


_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_UNARY = ("neg", "pos", "abs", "invert")


def _attach() -> None:
    def forward(name: str, f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, *other: self._step.call(name, f, f, (self, *other), {})

    def backward(name: str, f: Callable[..., Any]) -> Callable[..., Any]:
        def swapped(a: Any, b: Any) -> Any:
            return f(b, a)

        return lambda self, other: self._step.call(name, swapped, swapped, (self, other), {})

    def in_place(name: str, f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, other: self._write(name, f, (other,))

    for name in (*_BINARY, *_COMPARISONS, *_UNARY, "getitem"):
        f = getattr(operator, f"__{name}__")
        setattr(Pair, f"__{name}__", forward(name, f))
        if name in _BINARY:
            setattr(Pair, f"__r{name}__", backward(name, f))
            setattr(Pair, f"__i{name}__", in_place(f"i{name}", getattr(operator, f"__i{name}__")))


_attach()


class Namespace:
    """lazyt's names, each called in NumPy and in lazyt at once."""

    def __init__(self, step: Lockstep, of_numpy: Any = reference, of_lazyt: Any = lt) -> None:
        self._step = step
        self._numpy = of_numpy
        self._lazyt = of_lazyt

    def __getattr__(self, name: str) -> Any:
        theirs, ours = getattr(self._numpy, name), getattr(self._lazyt, name)
        if name in ("linalg", "fft", "nn", "functional"):
            return Namespace(self._step, theirs, ours)
        if isinstance(ours, np.dtype | int | float) or ours is None:
            return ours
        return lambda *args, **kwargs: self._step.call(name, theirs, ours, args, kwargs)


def _walk(x: Any, f: Callable[[Pair], Any]) -> Any:
    if isinstance(x, Pair):
        return f(x)
    if isinstance(x, slice):
        return slice(_walk(x.start, f), _walk(x.stop, f), _walk(x.step, f))
    if type(x) in (list, tuple):
        return type(x)(_walk(y, f) for y in x)
    return {k: _walk(v, f) for k, v in x.items()} if type(x) is dict else x


def pairs(*xs: Any) -> list[Pair]:
    """The Pairs among arguments, in order."""
    found: list[Pair] = []
    _walk(list(xs), found.append)
    return found


def _side(x: Any, k: int) -> Any:
    return _walk(x, lambda p: (p.numpy_value, p.tensor)[k])


def _fresh(x: Any, values: Any) -> Any:
    return _walk(x, lambda p: np.array(next(values)))


def plain(x: Any) -> Any:
    """What a function returned, every Pair as its tensor."""
    return _side(x, 1)
