"""`__array_ufunc__`: a ufunc called on tensors records lazyt's operation, or itself as one opaque step."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import ArgumentError, DTypeError, IndexOutOfRange, NotSupportedError, ScalarRangeError, ShapeError
from lazyt.functions import arithmetic, indexing, logic, manipulation, products, statistics
from lazyt.functions.arguments import dtype_or_none, tensor, tensors
from lazyt.functions.conversion import asarray
from lazyt.functions.host import PYTHONS, is_foreign, refuse_foreign
from lazyt.functions.numpy_calls import record_numpy, record_ufunc, resolved, ufunc_name
from lazyt.functions.protocols import reducing
from lazyt.functions.protocols.table import PUBLIC
from lazyt.functions.protocols.through import CASTINGS, numpys_types, through_numpy, write_out
from lazyt.ir import dtypes
from lazyt.ops.axes import many_axes, one_axis
from lazyt.runtime.tensor import Tensor
from lazyt.tracing.autocast import outside
from lazyt.tracing.inplace import rewrite
from lazyt.tracing.tracebacks import filter_traceback, filters_itself

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_KNOWN = (Tensor, np.generic, bool, int, float, complex, list, tuple, *PYTHONS)

# Methods whose result NumPy casts to any dtype of `out`.
_FOLDS = frozenset(("reduce", "accumulate", "reduceat"))


def is_ours(x: Any) -> bool:
    """Whether lazyt may take this operand: another class with protocols of its own comes first."""
    return isinstance(x, _KNOWN) or type(x) in (np.ndarray, np.memmap)


# Every ufunc of NumPy's that lazyt has under its name.
UFUNCS: dict[np.ufunc, Callable[..., Any]] = {
    f: PUBLIC[f.__name__] for f in vars(np).values() if isinstance(f, np.ufunc) and f.__name__ in PUBLIC
}
UFUNCS |= {np.matmul: products.matmul, np.vecdot: products.vecdot, np.divmod: arithmetic.divmod}
# Ufuncs whose reduction, scan or unbuffered write lazyt has.
REDUCTIONS: dict[np.ufunc, str] = {
    np.add: "sum", np.multiply: "prod", np.maximum: "max", np.minimum: "min", np.logical_and: "all",
    np.logical_or: "any",
}  # fmt: skip
SCANS: dict[np.ufunc, Callable[..., Any]] = {np.add: statistics.cumsum, np.multiply: statistics.cumprod}


@filters_itself
def array_ufunc(self: Tensor, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """NEP 13: calls, reduce, accumulate, outer, reduceat and at are recorded; NotImplemented for foreign operands.

    `out=` a tensor is a deferred write, `out=` an array computes. Raises DTypeError where the ufunc has no loop for
    these dtypes, ShapeError where shapes do not broadcast.
    """
    try:
        _, kwargs = numpys_types((), kwargs)
        out = kwargs.pop("out", None)
        where = kwargs.get("where", True)
        operands = (inputs[0], *inputs[2:]) if method == "at" else inputs  # the second says where: it may be a slice
        if not all(map(is_ours, operands)) or not all(o is None or is_ours(o) for o in out or ()) or not is_ours(where):
            # A subclass with a protocol of its own is asked next; others have none that knows tensors.
            for x in (*operands, *(out or ())):
                if is_foreign(x) and type(x).__array_ufunc__ is np.ndarray.__array_ufunc__:
                    refuse_foreign(x)
            return NotImplemented
        name = ufunc_name(ufunc) + ("" if method == "__call__" else f".{method}")
        if method == "at":
            return _at(ufunc, name, *inputs)
        casting = kwargs.get("casting", "same_kind")
        if casting not in CASTINGS:
            raise ArgumentError(f"{name}: casting is one of {', '.join(CASTINGS)}, got {casting!r}")
        if out is None and kwargs.get("dtype") is None:
            return _METHODS[method](ufunc, name, inputs, kwargs, out)
        result = outside(_METHODS[method], ufunc, name, inputs, kwargs, out)
        if out is None:
            return result
        results = result if isinstance(result, tuple) else (result,)
        more: Any = {"casting": "unsafe", "exact": True} if method in _FOLDS else {"casting": casting}
        if method == "__call__":
            more["where"] = where
        written = tuple(r if o is None else write_out(name, o, r, **more) for o, r in zip(out, results, strict=True))
        return written if len(written) > 1 else written[0]
    except Exception as error:
        filter_traceback(error)
        raise


# Options of ufuncs by which NumPy's loop is chosen, or the axes that it goes over.
_LOOP = frozenset(("axes", "axis", "extobj", "keepdims", "sig", "signature"))


# The axes of a product of matrices, or of vectors by one, that it has anyway.
_OWN_AXES = ([(-2, -1)] * 3, [(-1,), (-2, -1), (-1,)])


def _plain(name: str, kwargs: dict[str, Any]) -> None:
    """Drop the options that change nothing here; refuse the others by name."""
    for k, harmless in (("order", ("K", "C", "A", "F")), ("subok", (True, False))):
        value = kwargs.pop(k, harmless[0])
        if value not in harmless:
            raise NotSupportedError(f"{name}: not supported: {k}={value!r}, because results are C-contiguous tensors")
    if unknown := sorted(kwargs.keys() - _LOOP):
        raise TypeError(f"{name.removeprefix('numpy.')}() got an unexpected keyword argument {unknown[0]!r}")
    if kwargs:
        raise NotSupportedError(f"{name}: not supported: {', '.join(sorted(kwargs))}=, because lazyt chooses the loop")


def _call(ufunc: np.ufunc, name: str, inputs: Sequence[Any], kwargs: dict[str, Any], out: Any) -> Any:
    where = kwargs.pop("where", True)
    if ufunc.signature is not None and ufunc not in UFUNCS:
        return through_numpy(ufunc, inputs, kwargs, name)
    dtype, casting = kwargs.pop("dtype", None), kwargs.pop("casting", "same_kind")
    axis = {"axis": kwargs.pop("axis")} if ufunc is np.vecdot and "axis" in kwargs else {}
    if ufunc is np.matmul and kwargs.get("axes") in _OWN_AXES:
        del kwargs["axes"]  # as `array @= tensor` says
    _plain(name, kwargs)
    made: tuple[np.dtype, ...] = ()
    if dtype is not None or out is not None or casting != "same_kind":
        inputs, made = _cast(ufunc, name, inputs, dtype, casting, out)
    f = UFUNCS.get(ufunc)
    try:
        result = record_ufunc(ufunc, inputs) if f is None else f(*inputs, **axis)
    except DTypeError:
        # What lazyt's operation refuses NumPy may have a loop for: the reciprocal of an integer, a bool shifted.
        if f is None or ufunc.signature is not None:
            raise
        result = record_ufunc(ufunc, inputs)
    if made:
        several = result if isinstance(result, tuple) else (result,)
        found = tuple(manipulation.astype(r, d, copy=False) for r, d in zip(several, made, strict=True))
        result = found if isinstance(result, tuple) else found[0]
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


def _cast(
    ufunc: np.ufunc, name: str, inputs: Sequence[Any], dtype: Any, casting: str, out: Any
) -> tuple[list[Any], tuple[np.dtype, ...]]:
    """The operands in the dtypes of NumPy's loop for `dtype` and `casting`, and the dtypes of its results.

    Without `dtype` lazyt's own promotion holds: the operands stay as they are, and no dtypes are given. Raises
    DTypeError where the loop would need a cast that `casting` does not allow.
    """
    d = dtype_or_none(dtype)
    outs = [o.dtype for o in out or () if o is not None]
    # Beside a dtype or an array for the result, Python's numbers in lists are as wide as what comes out.
    beside = functools.reduce(dtypes.promote, outs, d) if d is not None else outs[0] if outs else None
    # A number is weak beside arrays, and an array where there are none.
    weak = [type(x) in (bool, int, float, complex) for x in inputs]
    weak = weak if d is not None or not all(weak) else [False] * len(weak)
    arrays = [x if w else t for x, t, w in zip(inputs, tensors(inputs, beside), weak, strict=True)]
    given = [x.dtype if isinstance(x, Tensor) else dtypes.bool_ if isinstance(x, bool) else type(x) for x in arrays]
    if d is None and casting in ("same_kind", "unsafe"):
        return arrays, ()
    known = [dtypes.of(g).numpy if isinstance(g, np.dtype) else g for g in given]
    want = (*(None,) * ufunc.nin, *(d and dtypes.of(d).numpy,) * ufunc.nout)
    options: dict[str, Any] = {"casting": casting} if d is None else {"casting": casting, "signature": want}
    found = resolved(ufunc, (*known, *(None,) * ufunc.nout), name, **options)
    if d is None:
        return arrays, ()
    found = tuple(d if dtypes.of(d).foreign and f == dtypes.of(d).numpy else f for f in found)
    # NOTE: a number of Python's is checked against the range of its dtype, which a cast of a tensor is not.
    cast = [
        manipulation.astype(x, f, copy=False) if isinstance(x, Tensor) else asarray(x, dtype=f)
        for x, f in zip(arrays, found, strict=False)
    ]
    return cast, found[ufunc.nin :]


def _reduce(ufunc: np.ufunc, name: str, inputs: Sequence[Any], kwargs: dict[str, Any], out: Any) -> Any:
    x = tensor(inputs[0], result=dtype_or_none(kwargs.get("dtype")))
    axis, keepdims = kwargs.pop("axis", 0), kwargs.pop("keepdims", False)
    axis = () if not x.ndim and axis == 0 else axis  # as in NumPy
    dtype, initial, where = kwargs.pop("dtype", None), kwargs.pop("initial", None), kwargs.pop("where", True)
    _plain(name, kwargs)
    if ufunc in REDUCTIONS and (initial is None or not isinstance(initial, bool)):
        return reducing.reduce(REDUCTIONS[ufunc], x, axis, dtype, keepdims, initial, where)
    at = range(x.ndim) if axis is None else many_axes(name, axis, x.ndim)
    shape = tuple(1 if i in at else n for i, n in enumerate(x.shape) if keepdims or i not in at)
    more: dict[str, Any] = {"axis": None if axis is None else tuple(at), "keepdims": bool(keepdims)}
    if initial is not None:
        more["initial"] = initial
    if where is not True:
        more["where"] = where
    return _recorded(ufunc, name, "reduce", (x,), more, dtype, shape)


def _recorded(
    ufunc: np.ufunc, name: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any], dtype: Any, shape: Any
) -> Any:
    """A reduction, scan or segmented reduction by this ufunc, as one step; what NumPy refuses is refused now."""
    if dtype is not None:
        kwargs = {**kwargs, "dtype": dtypes.as_dtype(dtype)}
    call = getattr(ufunc, method)
    found = _tried(name, call, tuple(map(_stand_in, args)), {k: _stand_in(v) for k, v in kwargs.items()})
    if found.dtype not in dtypes.ALL:
        raise DTypeError(f"{name}: not supported: its result is {found.dtype}, which lazyt has not")
    return record_numpy(name, call, args, kwargs, [(shape, found.dtype)])


def _stand_in(x: Any) -> Any:
    """An array of as many axes, and of one element or none, for a tensor."""
    if not isinstance(x, Tensor | np.ndarray):
        return x
    # As an index 0 is in range.
    return np.zeros(tuple(min(n, 1) for n in x.shape), dtypes.of(x.dtype).numpy)


def _tried(name: str, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What NumPy gives for stand-ins, or its refusal as an error of lazyt's."""
    with np.errstate(all="ignore"):
        try:
            return call(*args, **kwargs)
        except TypeError as e:
            raise DTypeError(f"{name}: {e}") from None
        except ValueError as e:
            raise ShapeError(f"{name}: {e}") from None
        except IndexError as e:
            raise IndexOutOfRange(f"{name}: {e}") from None


def _accumulate(ufunc: np.ufunc, name: str, inputs: Sequence[Any], kwargs: dict[str, Any], out: Any) -> Any:
    x = tensor(inputs[0], result=dtype_or_none(kwargs.get("dtype")))
    axis = one_axis(name, kwargs.pop("axis", inputs[1] if len(inputs) > 1 else 0), x.ndim)
    dtype = kwargs.pop("dtype", None)
    _plain(name, kwargs)
    if ufunc in SCANS:
        return SCANS[ufunc](x, axis=axis, dtype=dtype)
    return _recorded(ufunc, name, "accumulate", (x,), {"axis": axis}, dtype, x.shape)


def _reduceat(ufunc: np.ufunc, name: str, inputs: Sequence[Any], kwargs: dict[str, Any], out: Any) -> Any:
    x, indices = tensors(inputs[:2])
    axis = one_axis(name, kwargs.pop("axis", inputs[2] if len(inputs) > 2 else 0), x.ndim)
    dtype = kwargs.pop("dtype", None)
    _plain(name, kwargs)
    shape = (*x.shape[:axis], indices.size, *x.shape[axis + 1 :])
    return _recorded(ufunc, name, "reduceat", (x, indices), {"axis": axis}, dtype, shape)


def _outer(ufunc: np.ufunc, name: str, inputs: Sequence[Any], kwargs: dict[str, Any], out: Any) -> Any:
    a, b = tensors(inputs, dtype_or_none(kwargs.get("dtype")))
    return _call(ufunc, name, (manipulation.reshape(a, (*a.shape, *(1,) * b.ndim)), b), kwargs, out)


def _written_at(x: np.ndarray[Any, Any], ufunc: np.ufunc, indices: Any, *values: Any) -> np.ndarray[Any, Any]:
    x = x.copy()
    ufunc.at(x, indices, *values)
    return x


def _integer(name: str, value: int) -> Any:
    """A Python integer as an array of 64 bits, unsigned where it must be."""
    if not -(1 << 63) <= value < 1 << 64:
        raise ScalarRangeError(f"{name}: {value} is no integer of 64 bits")
    return np.asarray(value, np.int64 if value < 1 << 63 else np.uint64)


def _at(ufunc: np.ufunc, name: str, x: Any, indices: Any, *values: Any) -> None:
    """x[indices] = ufunc(x[indices], value), once for each time that an index occurs: a deferred write."""
    if not isinstance(x, Tensor):
        through_numpy(ufunc.at, (x, indices, *values), {}, name)
        return
    # lazyt's own way takes an index of arrays alone, or of none.
    arrays = [isinstance(i, list | np.ndarray | Tensor) for i in (indices if isinstance(indices, tuple) else (None,))]
    if ufunc is np.add and dtypes.kind(x.dtype) != "b" and any(arrays) == all(arrays):
        whole = type(values[0]) is int and dtypes.kind(x.dtype) in "iu"
        value = tensor(_integer(name, values[0]) if whole else values[0], x)
        # Integers are added modulo the range of x, as NumPy adds them here.
        integers = dtypes.kind(value.dtype) in "biu" and dtypes.kind(x.dtype) in "iu"
        if not integers and not np.can_cast(value.dtype, x.dtype, "same_kind"):
            raise DTypeError(f"{name}: a value of dtype {value.dtype} cannot be added to a tensor of dtype {x.dtype}")
        added = manipulation.astype(value, x.dtype, copy=False)
        rewrite(x, lambda: indexing.add_at(x, indices, added), name)
        return
    beside = [_stand_in(v).reshape(-1)[:1] if isinstance(v, Tensor | np.ndarray) else v for v in values]
    _tried(
        name,
        ufunc.at,
        (np.zeros(1, _stand_in(x).dtype), [0] * len(np.ravel(beside[0])) if beside else [0], *beside),
        {},
    )
    rewrite(x, lambda: record_numpy(name, _written_at, (x, ufunc, indices, *values), {}, [(x.shape, x.dtype)]), name)


_METHODS: dict[str, Callable[..., Any]] = {
    "__call__": _call, "reduce": _reduce, "accumulate": _accumulate, "reduceat": _reduceat, "outer": _outer,
}  # fmt: skip
