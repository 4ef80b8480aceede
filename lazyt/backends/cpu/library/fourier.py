"""Fourier transforms by NumPy's functions, whose rows are divided among threads: results as in `ir/library_calls.py`.

A transform of one axis is one of each line along it, and NumPy computes each by itself, so parts of another axis are
transforms of their own: the bits are the same. A transform of several axes is one axis after another, as in NumPy.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.backends.cpu.library.sorting import divided
from lazyt.ir import dtypes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Array = np.ndarray[Any, Any]

# Elements of a transform that take as long as so many in a sort.
WEIGHT = 2


def _one_axis(fn: str, out: Array, x: Array, n: int | None, axis: int, norm: str | None) -> None:
    """`numpy.fft.fn` of one axis, into `out`."""
    function = getattr(np.fft, fn)
    others = [i for i in range(x.ndim) if i != axis]
    if not others:
        function(x, n, axis, norm, out=out)
        return
    by = max(others, key=x.shape.__getitem__)

    def some(part: slice) -> None:
        at = tuple(part if i == by else slice(None) for i in range(x.ndim))
        function(x[at], n, axis, norm, out=out[at])

    divided(x.shape[by], WEIGHT * max(x.size, out.size) // max(x.shape[by], 1), some)


def _many_axes(
    fn: str, out: Array, x: Array, s: Sequence[int] | None, axes: Sequence[int], norm: str | None
) -> None:  # fmt: skip
    """`numpy.fft.fn` of several axes, one after another: of a real result the last one at the end, else first."""
    last, other = fn.removesuffix("n"), fn.removesuffix("n").replace("r", "")
    sizes = [None] * len(axes) if s is None else s
    steps = [*zip([other] * (len(axes) - 1) + [last], axes, sizes, strict=True)]
    for k, (one, axis, n) in enumerate(steps if last == "irfft" else steps[::-1]):
        to = out
        if k < len(steps) - 1:
            length = x.shape[axis] if n is None else n
            half = length // 2 + 1 if one == "rfft" else length
            to = np.empty((*x.shape[:axis], half, *x.shape[axis + 1 :]), dtypes.complex_of(x.dtype))
        _one_axis(one, to, x, n, axis, norm)
        x = to


FUNCTIONS: dict[str, Callable[..., None]] = {
    **{f"fft_{fn}": partial(_one_axis, fn) for fn in ("fft", "ifft", "rfft", "irfft")},
    **{f"fft_{fn}": partial(_many_axes, fn) for fn in ("fftn", "ifftn", "rfftn", "irfftn")},
}
