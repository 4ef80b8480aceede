"""What batches are made of samples: `default_collate` and `default_convert`. They record nothing, where values are
there: arrays are stacked on the host.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, MutableMapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from lazyt.config import HOST
from lazyt.errors import DTypeError, ShapeError
from lazyt.functions.conversion import asarray
from lazyt.functions.joining import stack
from lazyt.ir import dtypes
from lazyt.runtime import memory
from lazyt.runtime.host_views import array_of
from lazyt.runtime.tensor import Tensor, tensor_of

__all__ = ["default_collate", "default_convert"]

_shape = attrgetter("shape")
_NUMBERS = {bool: dtypes.bool_, int: dtypes.int64, float: dtypes.float32, complex: dtypes.complex64}


def default_convert(data: Any) -> Any:
    """Tensors of NumPy's arrays, in dicts, tuples and lists too; everything else as it is.

    As `torch.utils.data.default_convert`.

    >>> import lazyt as lt, numpy as np
    >>> lt.data.default_convert({"x": np.arange(2), "name": "a"})
    {'x': <lazyt.Tensor shape=(2,) dtype=int64 device=cpu [0, 1]>, 'name': 'a'}
    """
    if isinstance(data, Tensor | str | bytes):
        return data
    if isinstance(data, np.ndarray | np.generic):
        return asarray(data, device=HOST) if dtypes.host_kind(data.dtype) not in "OUSMmV" else data
    if isinstance(data, Mapping):
        return _like(data, {k: default_convert(v) for k, v in data.items()})
    if isinstance(data, tuple):
        made = [default_convert(x) for x in data]
        return type(data)(*made) if hasattr(data, "_fields") else made
    if isinstance(data, Sequence):
        return _like(data, [default_convert(x) for x in data])
    return data


def _like(x: Any, made: Any) -> Any:
    """A container of x's type; of the plain one where that cannot be made of it."""
    if type(x) in (dict, list):
        return made
    try:
        if isinstance(x, MutableMapping):  # a defaultdict is not made of a dict alone
            found = copy.copy(x)
            found.update(made)
            return found
        return type(x)(made)
    except TypeError:
        return made


def default_collate(batch: Sequence[Any]) -> Any:
    """Samples as a batch: arrays, tensors and numbers are stacked along a new first axis, dicts, tuples and lists are
    collated entry by entry, texts stay lists.

    Python's floats give float32 and its ints int64, as everywhere in lazyt. Raises ShapeError for samples of different
    shapes, DTypeError for anything else. As `torch.utils.data.default_collate`.

    >>> import lazyt as lt
    >>> lt.data.default_collate([{"x": 1.0, "y": "a"}, {"x": 2.0, "y": "b"}])
    {'x': <lazyt.Tensor shape=(2,) dtype=float32 device=cpu [1., 2.]>, 'y': ['a', 'b']}
    """
    if not batch:
        raise ShapeError("default_collate: a batch of no samples")
    first = batch[0]
    cls = type(first)
    if cls in _NUMBERS:
        return _numbers(batch)
    if isinstance(first, Tensor):
        return _tensors(batch)
    if isinstance(first, np.ndarray):
        return _arrays(batch)
    if isinstance(first, np.generic):
        return tensor_of(memory.wrap_array(_known(np.array(batch))))
    if isinstance(first, str | bytes):
        return list(batch)
    if isinstance(first, Mapping):
        return _mappings(batch, first)
    if isinstance(first, Sequence):
        n = len(first)
        if any(len(x) != n for x in batch):
            raise ShapeError(
                f"default_collate: samples have {sorted({len(x) for x in batch})} entries, not all as many"
            )
        made = [default_collate(x) for x in zip(*batch, strict=True)]
        if hasattr(first, "_fields"):
            return cls(*made)
        return made if isinstance(first, tuple) else _like(first, made)
    raise DTypeError(
        "default_collate: tensors, NumPy arrays, numbers, texts, and dicts, tuples and lists of them are collated, not "
        f"{cls.__name__!r}; a collate_fn of your own takes anything"
    )


def _mappings(batch: Sequence[Any], first: Any) -> Any:
    for x in batch:
        if x.keys() != first.keys():
            raise ShapeError(f"default_collate: samples have keys {list(first)} and {list(x)}")
    return _like(first, {k: default_collate([x[k] for x in batch]) for k in first})


def _numbers(batch: Sequence[Any]) -> Tensor:
    kinds = set(map(type, batch))
    for kind in (complex, float, int, bool):
        if kind in kinds and kinds <= _NUMBERS.keys():
            return tensor_of(memory.wrap_array(np.array(batch, _NUMBERS[kind])))
    return asarray(list(batch))


def _tensors(batch: Sequence[Any]) -> Tensor:
    arrays = []
    for t in batch:
        a = array_of(t) if isinstance(t, Tensor) and t.device == HOST and not t.requires_grad else None
        if a is None:
            _equal(batch)
            return stack(batch)
        arrays.append(a)
    return _arrays(arrays)


def _equal(batch: Sequence[Any]) -> None:
    shapes = dict.fromkeys(map(_shape, batch))
    if len(shapes) > 1:
        raise ShapeError(
            f"default_collate: samples of a batch have one shape, not {' and '.join(map(str, list(shapes)[:3]))}; "
            "a collate_fn can pad them"
        )


def _known(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if not dtypes.is_known(a.dtype):
        raise DTypeError(f"default_collate: arrays of dtype {a.dtype} are not tensors; a collate_fn takes anything")
    return a


def _arrays(batch: Sequence[Any]) -> Tensor:
    _equal(batch)
    shape = batch[0].shape
    whole = np.concatenate(batch).reshape(len(batch), *shape) if shape and shape[0] else np.stack(batch)
    return tensor_of(memory.wrap_array(_known(whole)))
