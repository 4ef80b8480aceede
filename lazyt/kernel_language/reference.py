"""The meaning of a kernel: the function itself, called by Python at every index, on arrays that follow its bounds."""

from __future__ import annotations

import builtins
import functools
import itertools
import math
import operator
import types
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import IndexOutOfRange
from lazyt.functions.arguments import shape_of
from lazyt.ops.definition import OPS
from lazyt.ops.reductions import total_dtype
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lazyt.kernel_language.lowering import Form


class Checked:
    """A NumPy array that is read as a kernel reads: by the rule for what is outside."""

    def __init__(self, array: np.ndarray[Any, Any], bounds: str) -> None:
        self.array = array
        self.bounds = bounds
        self.shape: tuple[int, ...] = array.shape
        self.ndim, self.dtype = array.ndim, array.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        key = list(index) if isinstance(index, tuple) else [index]
        outside = False
        for k, i in enumerate(key):
            n = self.shape[k]
            if isinstance(i, slice) or 0 <= i < n:
                continue
            if self.bounds == "error":
                raise IndexOutOfRange(f"index {i} is out of bounds for axis {k} with size {n}")
            if self.bounds == "zero":
                outside = True
                key[k] = 0
            else:
                key[k] = min(max(i, 0), n - 1) if self.bounds == "clamp" else i % n
        if outside and 0 in self.shape:
            return self.dtype.type(0)
        found = self.array[tuple(key)]
        return np.zeros_like(found)[()] if outside else found


def _sum(xs: Any) -> Any:
    """Python's `sum`, which adds bools and narrow integers in 64 bits, as a kernel does."""
    return functools.reduce(operator.add, map(_wide, xs), 0)


def _prod(xs: Any) -> Any:
    """`math.prod` in the same dtypes."""
    return functools.reduce(operator.mul, map(_wide, xs), 1)


def _mean(xs: Any) -> Any:
    given = list(xs)
    return _sum(given) / len(given)


def _wide(x: Any) -> Any:
    return x.astype(total_dtype(x.dtype)) if isinstance(x, np.generic | np.ndarray) else x


# Folds of `... for k in range(n)`, by any name.
_FOLDS: dict[str, Callable[[Any], Any]] = {
    "sum": _sum, "prod": _prod, "mean": _mean, "max": max, "min": min, "amax": max, "amin": min, "any": any, "all": all,
}  # fmt: skip
_PYTHON: dict[Any, Callable[[Any], Any]] = {sum: _sum, math.prod: _prod}


class _Functions:
    """The functions of a module as a kernel means them: lazyt's are NumPy's."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(np if self._module.__name__ == "lazyt" else self._module, name, None)
        if found is None and name in OPS:
            found = OPS[name].numpy
        if found is None:
            raise AttributeError(name)
        if name not in _FOLDS:
            return found
        return lambda x, *more: _FOLDS[name](x) if isinstance(x, types.GeneratorType) else found(x, *more)


def _names(code: types.CodeType) -> Iterator[str]:
    """The names of a function's text, those of its generators too."""
    yield from code.co_names
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            yield from _names(c)


def _on_numpy(f: types.FunctionType, seen: dict[Any, Any]) -> types.FunctionType:
    """The function with NumPy's functions in place of lazyt's, and with folds in the dtypes of a kernel's."""
    if f in seen:
        return seen[f]  # type: ignore[no-any-return]
    space: dict[str, Any] = dict(f.__globals__)
    made = types.FunctionType(f.__code__, space, f.__name__, f.__defaults__, f.__closure__)
    seen[f] = made
    for name in _names(f.__code__):
        x = space.get(name, getattr(builtins, name, None))
        if isinstance(x, types.ModuleType) and x.__name__ in ("lazyt", "numpy", "math"):
            space[name] = _Functions(x)
        elif isinstance(x, types.FunctionType) and x.__module__ == f.__module__:
            space[name] = _on_numpy(x, seen)
        elif isinstance(x, types.BuiltinFunctionType) and x in _PYTHON:
            space[name] = _PYTHON[x]
    return made


def evaluate(form: Form, values: list[Any], shape: Any) -> Any:
    """The function at every index, or on every row: an array, or a tuple of them."""
    f = _on_numpy(form.source.function, {})  # type: ignore[arg-type]
    arrays = [x.numpy() if isinstance(x, Handle) else np.asarray(x) if not np.isscalar(x) else x for x in values]
    if form.axis is not None:
        return _over_rows(form.axis, f, arrays)
    given = [Checked(x, form.bounds) if isinstance(x, np.ndarray) else x for x in arrays]
    if shape is None:
        at: dict[str, Any] = dict(zip(form.arguments, given, strict=True))
        read = {i: (at[v].shape[k] for v, k, _ in form.uses[i] if isinstance(at[v], Checked)) for i in form.indices}
        shape = [next(read[i]) for i in form.indices]
    shape = shape_of(form.source.name, shape)
    return _stacked([f(*i, *given) for i in np.ndindex(*shape)], shape)


def _stacked(found: list[Any], shape: tuple[int, ...]) -> Any:
    if found and isinstance(found[0], tuple):
        return tuple(_stacked([x[k] for x in found], shape) for k in range(len(found[0])))
    whole = np.array(found)
    return whole.reshape((*shape, *whole.shape[1:]))


def _over_rows(axis: int, f: Any, arrays: list[Any]) -> Any:
    rows = [np.moveaxis(x, axis, -1) if isinstance(x, np.ndarray) and x.ndim else x for x in arrays]
    lead = np.broadcast_shapes(*(x.shape[:-1] for x in rows if isinstance(x, np.ndarray) and x.ndim))
    wide = [
        np.broadcast_to(x, (*lead, x.shape[-1])) if isinstance(x, np.ndarray) and x.ndim else itertools.repeat(x)
        for x in rows
    ]
    found = [f(*(x[i] if isinstance(x, np.ndarray) else next(x) for x in wide)) for i in np.ndindex(*lead)]
    out = _stacked(found, lead)
    back = [np.moveaxis(x, -1, axis) if x.ndim > len(lead) else x for x in (out if isinstance(out, tuple) else (out,))]
    return tuple(back) if isinstance(out, tuple) else back[0]
