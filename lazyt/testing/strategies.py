"""Hypothesis strategies: shapes, dtypes, scalars, arrays, tensors, index keys and whole programs.

>>> from hypothesis import given, settings
>>> import lazyt as lt, numpy as np
>>> from lazyt.testing import assert_close
>>> from lazyt.testing.strategies import arrays, indices
>>> @settings(max_examples=5, deadline=None, database=None)
... @given(arrays(dtypes=["float32", "int64"], max_dims=2))
... def test_flip(a):
...     assert_close(lt.flip(lt.asarray(a)), np.flip(a))
>>> test_flip()
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import lazyt as lt
from lazyt.ir import dtypes as known
from lazyt.testing import array_programs, mixed_programs, view_programs
from lazyt.testing.modes import EAGER, mode

try:
    import hypothesis.extra.numpy as hnp
    import hypothesis.strategies as st
except ImportError as e:
    raise ImportError("lazyt.testing.strategies needs hypothesis: pip install 'lazyt[test]'") from e

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

    Shape = tuple[int, ...]
    Array = np.ndarray[Any, Any]

__all__ = ["arrays", "dtypes", "indices", "programs", "scalars", "shapes", "tensors"]


def shapes(
    min_dims: int = 0, max_dims: int = 3, min_side: int = 0, max_side: int = 6, sides: Sequence[int] = (17, 35)
) -> SearchStrategy[Shape]:
    """Shapes, with extents 0 and 1 often, and now and then one of `sides`, which a vector of 16 lanes does not divide.

    >>> from hypothesis import find
    >>> find(shapes(min_dims=2), lambda shape: shape[1] > 6)
    (0, 17)
    """
    small = st.integers(min_side, max_side)
    large = [s for s in sides if s >= min_side]
    side = st.one_of(small, small, st.sampled_from(large)) if large else small
    return st.lists(side, min_size=min_dims, max_size=max_dims).map(tuple)


def dtypes(kinds: str = "biufc", half: bool = True) -> SearchStrategy[np.dtype[Any]]:
    """The dtypes of these kinds: bool, signed, unsigned, floating, complex. `half`: float16 and bfloat16 too.

    >>> from hypothesis import find
    >>> find(dtypes("f", half=False), lambda d: d.itemsize > 4)
    dtype('float64')
    """
    return st.sampled_from([d for d in known.ALL if known.kind(d) in kinds and (half or not known.of(d).narrow)])


def scalars(dtype: Any = None, special: bool = True) -> SearchStrategy[Any]:
    """Python scalars that a tensor of `dtype` takes; without one, of any type. `special`: NaN, infinities, -0.0 too.

    >>> from hypothesis import find
    >>> find(scalars("uint8"), lambda n: n > 199)
    200
    """
    if dtype is None:
        return st.one_of(scalars("bool"), scalars("int64"), scalars("float64", special), scalars("complex128", special))
    d = known.as_dtype(dtype)
    match known.kind(d):
        case "b":
            return st.booleans()
        case "i" | "u":
            info = np.iinfo(d)
            return st.integers(int(info.min), int(info.max))
        case "f":
            width: Any = 8 * known.of(d).numpy.itemsize
            return st.floats(width=width, allow_nan=special, allow_infinity=special)
    part = scalars(known.real_of(d), special)
    return st.builds(complex, part, part)


@st.composite
def arrays(
    draw: DrawFn,
    dtype: Any = None,
    shape: Any = None,
    *,
    dtypes: Sequence[Any] | None = None,
    min_dims: int = 0,
    max_dims: int = 3,
    special: bool = True,
) -> Array:
    """NumPy arrays: of `dtype` (or one of `dtypes`, or any), of `shape` (a shape, or a strategy of shapes).

    `special`: NaN, infinities, zeros of both signs, subnormals and the ends of a dtype's range among the elements.

    >>> from hypothesis import find
    >>> find(arrays("float32", (2,)), lambda a: np.isinf(a).all())
    array([inf, inf], dtype=float32)
    """
    if dtype is None:
        dtype = draw(st.sampled_from(list(known.ALL if dtypes is None else dtypes)))
    d = known.as_dtype(dtype)
    if shape is None:
        shape = draw(shapes(min_dims, max_dims))
    elif not isinstance(shape, tuple | int):
        shape = draw(shape)
    made = known.of(d).numpy
    elements: Any = scalars(made, special) if special else _plain(made)
    a: Array = draw(hnp.arrays(made, shape, elements=elements))
    return a.astype(d)


def _plain(d: np.dtype[Any]) -> SearchStrategy[Any]:
    """Small numbers, which sums and products of a few do not carry out of range."""
    match known.kind(d):
        case "b":
            return st.booleans()
        case "u":
            return st.integers(0, 9)
        case "i":
            return st.integers(-9, 9)
        case "f":
            return st.integers(-64, 64).map(lambda n: n / 16)
    return st.builds(complex, _plain(known.float64), _plain(known.float64))


def tensors(*args: Any, **kwargs: Any) -> SearchStrategy[Any]:
    """lazyt tensors, with the arguments of `arrays`.

    >>> from hypothesis import find
    >>> find(tensors("int32", (2,)), lambda t: True)
    <lazyt.Tensor shape=(2,) dtype=int32 device=cpu [0, 0]>
    """
    return arrays(*args, **kwargs).map(lt.asarray)


@st.composite
def indices(draw: DrawFn, shape: Shape, *, advanced: bool = True, new_axes: bool = True) -> Any:
    """Keys that index an array of `shape`: integers, slices of either direction, `...`, None, and, if `advanced`, at
    most one integer array or mask.

    >>> from hypothesis import find
    >>> find(indices((3, 4), advanced=False), lambda key: np.zeros((3, 4))[key].ndim == 0)
    (0, 0)
    """
    items: list[Any] = []
    free = draw(st.integers(0, len(shape)))  # axes that the key names; the rest are an ellipsis' or nobody's
    array_at = draw(st.integers(0, free)) if advanced and free and draw(st.booleans()) else -1
    for axis in range(free):
        n = shape[axis]
        if axis == array_at and n:
            kind = draw(st.sampled_from(("list", "array", "mask")))
            if kind == "mask":
                items.append(draw(hnp.arrays(np.bool_, n)))
            else:
                found = draw(st.lists(st.integers(-n, n - 1), min_size=0, max_size=5))
                items.append(np.array(found, np.int64) if kind == "array" or not found else found)
        elif n and draw(st.integers(0, 2)) == 0:
            items.append(draw(st.integers(-n, n - 1)))
        else:
            items.append(draw(st.slices(n)))
        if new_axes and draw(st.integers(0, 7)) == 7:
            items.append(None)
    if draw(st.booleans()) and (free < len(shape) or draw(st.booleans())):
        items.append(...)
    return tuple(items) if len(items) != 1 or draw(st.booleans()) else items[0]


@st.composite
def programs(draw: DrawFn, length: int = 12, kind: str = "mixed") -> list[str]:
    """Statements of a random program, for `lazyt.testing.check_program`.

    kind: 'mixed' (the whole operation table, views, and writes in place that aliases see), 'arrays' (no writes) or
    'views' (integers, every kind of view and write, exact). lazyt runs a program while it is written.

    >>> from hypothesis import given, settings
    >>> from lazyt.testing import check_program
    >>> @settings(max_examples=2, deadline=None, database=None)
    ... @given(programs(3))
    ... def test_program(lines):
    ...     check_program(lines)
    >>> test_program()
    """

    def pick(n: int) -> int:
        return draw(st.integers(0, n - 1))

    if kind == "views":
        views = view_programs.Writer(pick)
        with np.errstate(all="ignore"):
            views.program(length, syncs=True)
        return views.lines
    if kind not in ("arrays", "mixed"):
        raise ValueError(f"programs: kind={kind!r}: 'mixed', 'arrays' or 'views' is required")
    w = array_programs.Writer(pick) if kind == "arrays" else mixed_programs.MixedWriter(pick)
    with mode(EAGER):
        w.program(length)
    return w.lines
