"""`__array_ufunc__`: a ufunc called on tensors records lazyt's operation, or itself as one opaque step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import DTypeError, NotSupportedError
from lazyt.functions import arithmetic, indexing, linear, logic, manipulation, statistics
from lazyt.functions.arguments import tensor
from lazyt.functions.numpy_calls import record_numpy, record_ufunc, resolved, ufunc_name
from lazyt.inplace import assign
from lazyt.ir import dtypes
from lazyt.ops.axes import many_axes, one_axis
from lazyt.protocols import reducing
from lazyt.protocols.table import PUBLIC
from lazyt.protocols.through import through_numpy, write_out
from lazyt.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_KNOWN = (Tensor, np.generic, bool, int, float, complex, list, tuple)


def is_ours(x: Any) -> bool:
    """Whether lazyt may take this operand: another class with protocols of its own comes first."""
    return isinstance(x, _KNOWN) or type(x) in (np.ndarray, np.memmap)


# Every ufunc of NumPy's that lazyt has under its name.
UFUNCS: dict[np.ufunc, Callable[..., Any]] = {
    f: PUBLIC[f.__name__] for f in vars(np).values() if isinstance(f, np.ufunc) and f.__name__ in PUBLIC
}
UFUNCS |= {np.matmul: linear.matmul, np.vecdot: linear.vecdot, np.divmod: arithmetic.divmod}
# Ufuncs whose reduction, scan or unbuffered write lazyt has.
REDUCTIONS: dict[np.ufunc, str] = {
    np.add: "sum", np.multiply: "prod", np.maximum: "max", np.minimum: "min", np.logical_and: "all",
    np.logical_or: "any",
}  # fmt: skip
SCANS: dict[np.ufunc, Callable[..., Any]] = {np.add: statistics.cumsum, np.multiply: statistics.cumprod}


def array_ufunc(self: Tensor, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """NEP 13: calls, reduce, accumulate, outer, reduceat and at are recorded; NotImplemented for foreign operands.

    `out=` a tensor is a deferred write, `out=` an array computes. Raises DTypeError where the ufunc has no loop for
    these dtypes, ShapeError where shapes do not broadcast.
    """
    out = kwargs.pop("out", None)
    where = kwargs.get("where", True)
    if not all(map(is_ours, inputs)) or not all(o is None or is_ours(o) for o in out or ()) or not is_ours(where):
        return NotImplemented
    name = ufunc_name(ufunc) + ("" if method == "__call__" else f".{method}")
    if method == "at":
        return _at(ufunc, name, *inputs)
    result = _METHODS[method](ufunc, name, inputs, kwargs, out)
    if out is None:
        return result
    results = result if isinstance(result, tuple) else (result,)
    written = tuple(
        r if o is None else write_out(name, o, r, True if method != "__call__" else where)
        for o, r in zip(out, results, strict=True)
    )
    return written if len(written) > 1 else written[0]


def _plain(name: str, kwargs: dict[str, Any]) -> None:
    """Drop the options that change nothing here; refuse the others by name."""
    for k, harmless in (("order", ("K", "C", "A", "F")), ("subok", (True, False)), ("casting", ("same_kind", "safe"))):
        value = kwargs.pop(k, harmless[0])
        if value not in harmless:
            raise NotSupportedError(f"{name}: not supported: {k}={value!r}, because results are C-contiguous tensors")
    if kwargs:
        raise NotSupportedError(f"{name}: not supported: {', '.join(sorted(kwargs))}=, because lazyt chooses the loop")


def _call(ufunc: np.ufunc, name: str, inputs: Sequence[Any], kwargs: dict[str, Any], out: Any) -> Any:
    where = kwargs.pop("where", True)
    dtype = kwargs.pop("dtype", None)
    if ufunc.signature is not None and ufunc not in UFUNCS:
        return through_numpy(ufunc, inputs, kwargs, name)
    axis = {"axis": kwargs.pop("axis")} if ufunc is np.vecdot and "axis" in kwargs else {}
    _plain(name, kwargs)
    if dtype is not None:
        inputs = [manipulation.astype(tensor(x), dtypes.as_dtype(dtype), copy=False) for x in inputs]
    f = UFUNCS.get(ufunc)
    result = f(*inputs, **axis) if f is not None else record_ufunc(ufunc, inputs)
    if where is True:
        return result
    results = result if isinstance(result, tuple) else (result,)
    # Where the mask is false NumPy leaves what was in memory: here, what was in `out`, or zeros.
    befores = out if out is not None else (0,) * len(results)
    masked = tuple(
        logic.where(where, r, 0 if b is None or isinstance(b, np.ndarray) else b)
        for r, b in zip(results, befores, strict=True)
    )
    return masked if len(masked) > 1 else masked[0]


def _reduce(ufunc: np.ufunc, name: str, inputs: Sequence[Any], kwargs: dict[str, Any], out: Any) -> Any:
    x = tensor(inputs[0])
    axis, keepdims = kwargs.pop("axis", 0), kwargs.pop("keepdims", False)
    dtype, initial, where = kwargs.pop("dtype", None), kwargs.pop("initial", None), kwargs.pop("where", True)
    _plain(name, kwargs)
    if ufunc in REDUCTIONS and (initial is None or not isinstance(initial, bool)):
        return reducing.reduce(REDUCTIONS[ufunc], x, axis, dtype, keepdims, initial, where)
    at = range(x.ndim) if axis is None else many_axes(name, axis, x.ndim)
    shape = tuple(1 if i in at else n for i, n in enumerate(x.shape) if keepdims or i not in at)
    more: dict[str, Any] = {} if initial is None else {"initial": initial}
    if where is not True:
        more["where"] = where
    d = _accumulated(ufunc, name, x, dtype)
    return record_numpy(
        name, ufunc.reduce, (x,), {"axis": _axis(axis), "keepdims": bool(keepdims), **more}, [(shape, d)]
    )


def _axis(axis: Any) -> Any:
    return tuple(axis) if isinstance(axis, list) else axis


def _accumulated(ufunc: np.ufunc, name: str, x: Tensor, dtype: Any) -> np.dtype:
    """The dtype that a reduction, scan or segmented reduction of x by this ufunc gives."""
    if ufunc.nin != 2 or ufunc.nout != 1 or ufunc.signature is not None:
        raise DTypeError(f"{name}: only a ufunc of two operands and one result can do this")
    if dtype is not None:
        return dtypes.as_dtype(dtype)
    given = dtypes.float32 if x.dtype == dtypes.bfloat16 else x.dtype
    return resolved(ufunc, (None, given, None), name, reduction=True)[-1]


def _accumulate(ufunc: np.ufunc, name: str, inputs: Sequence[Any], kwargs: dict[str, Any], out: Any) -> Any:
    x = tensor(inputs[0])
    axis = one_axis(name, kwargs.pop("axis", inputs[1] if len(inputs) > 1 else 0), x.ndim)
    dtype = kwargs.pop("dtype", None)
    _plain(name, kwargs)
    if ufunc in SCANS:
        return SCANS[ufunc](x, axis=axis, dtype=dtype)
    d = _accumulated(ufunc, name, x, dtype)
    return record_numpy(name, ufunc.accumulate, (x,), {"axis": axis}, [(x.shape, d)])


def _reduceat(ufunc: np.ufunc, name: str, inputs: Sequence[Any], kwargs: dict[str, Any], out: Any) -> Any:
    x, indices = tensor(inputs[0]), tensor(inputs[1])
    axis = one_axis(name, kwargs.pop("axis", inputs[2] if len(inputs) > 2 else 0), x.ndim)
    dtype = kwargs.pop("dtype", None)
    _plain(name, kwargs)
    d = _accumulated(ufunc, name, x, dtype)
    shape = (*x.shape[:axis], indices.size, *x.shape[axis + 1 :])
    return record_numpy(name, ufunc.reduceat, (x, indices), {"axis": axis}, [(shape, d)])


def _outer(ufunc: np.ufunc, name: str, inputs: Sequence[Any], kwargs: dict[str, Any], out: Any) -> Any:
    a, b = map(tensor, inputs)
    return _call(ufunc, name, (manipulation.reshape(a, (*a.shape, *(1,) * b.ndim)), b), kwargs, out)


def _written_at(x: np.ndarray[Any, Any], ufunc: np.ufunc, indices: Any, *values: Any) -> np.ndarray[Any, Any]:
    x = x.copy()
    ufunc.at(x, indices, *values)
    return x


def _at(ufunc: np.ufunc, name: str, x: Any, indices: Any, *values: Any) -> None:
    """x[indices] = ufunc(x[indices], value), once for each time that an index occurs: a deferred write."""
    if not isinstance(x, Tensor):
        through_numpy(ufunc.at, (x, indices, *values), {}, name)
        return
    if ufunc is np.add and dtypes.kind(x.dtype) != "b":
        value = tensor(values[0])
        if not np.can_cast(value.dtype, x.dtype, "same_kind"):
            raise DTypeError(f"{name}: a value of dtype {value.dtype} cannot be added to a tensor of dtype {x.dtype}")
        assign(x, indexing.add_at(x, indices, manipulation.astype(value, x.dtype, copy=False)), name)
        return
    new = record_numpy(name, _written_at, (x, ufunc, indices, *values), {}, [(x.shape, x.dtype)])
    assign(x, new, name)


_METHODS: dict[str, Callable[..., Any]] = {
    "__call__": _call, "reduce": _reduce, "accumulate": _accumulate, "reduceat": _reduceat, "outer": _outer,
}  # fmt: skip
