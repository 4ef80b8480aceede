"""Images read at positions that a grid holds, and grids of affine maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import NotSupportedError, ShapeError
from lazyt.functions.arguments import record, shape_of, tensor, tensors
from lazyt.functions.arithmetic import add, divide, multiply, subtract
from lazyt.functions.creation import arange, zeros
from lazyt.functions.manipulation import reshape
from lazyt.functions.subscript import getitem
from lazyt.ops.grid_sample import GRID_SAMPLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.runtime.tensor import Tensor

__all__ = ["affine_grid", "grid_sample"]

_MODES, _PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


def grid_sample(
    x: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    """(N, C, H, W) at the positions (N, H', W', 2), or (N, C, D, H, W) at (N, D', H', W', 3): (N, C, H', W').

    A position is (x, y) or (x, y, z), from -1 to 1 over the image; these are the centres of the first and last elements
    with `align_corners`, else their outer ends. Modes: 'bilinear', 'nearest', 'bicubic' (images of two axes). Beyond
    the image are zeros, the nearest elements ('border') or its mirror image ('reflection'). Raises ShapeError for
    shapes and options that do not fit. As `torch.nn.functional.grid_sample`.

    >>> import lazyt as lt
    >>> image = lt.asarray([[[[1.0, 3.0]]]])
    >>> lt.nn.functional.grid_sample(image, lt.zeros((1, 1, 1, 2))).tolist()
    [[[[2.0]]]]
    """
    t, places = tensors((x, grid))
    if mode not in _MODES:
        raise ShapeError(f"grid_sample: mode {mode!r} is not one of {', '.join(_MODES)}")
    if padding_mode not in _PADDINGS:
        raise ShapeError(f"grid_sample: padding_mode {padding_mode!r} is not one of {', '.join(_PADDINGS)}")
    if mode == "bicubic" and t.ndim != 4:
        raise NotSupportedError(
            f"grid_sample: not supported: mode 'bicubic' over an input of shape {t.shape}, because it is for images of "
            "two axes; use 'bilinear'"
        )
    return record(GRID_SAMPLE, (t, places), (mode, padding_mode, bool(align_corners)))


def affine_grid(theta: Any, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Where affine maps (N, 2, 3) or (N, 3, 4) take the positions of an image of `size`: (N, C, H, W), (N, C, D, H, W).

    The result is a grid for `grid_sample`, (N, H, W, 2) or (N, D, H, W, 3). Raises ShapeError for shapes that do
    not fit. As `torch.nn.functional.affine_grid`.

    >>> import lazyt as lt
    >>> theta = lt.asarray([[[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]]])
    >>> lt.nn.functional.affine_grid(theta, (1, 1, 1, 2)).tolist()
    [[[[0.0, 0.0], [1.0, 0.0]]]]
    """
    t, whole = tensor(theta), shape_of("affine_grid", size)
    rank = len(whole) - 2
    if rank not in (2, 3) or t.shape != (whole[0], rank, rank + 1) or min(whole[2:]) < 1:
        raise ShapeError(
            "affine_grid: maps (N, 2, 3) for a size (N, C, H, W), or (N, 3, 4) for (N, C, D, H, W), are required, got "
            f"shape {t.shape} for {whole}"
        )
    ones = (1,) * rank
    columns = [reshape(getitem(t, (slice(None), slice(None), k)), (whole[0], *ones, rank)) for k in range(rank + 1)]
    found = columns[-1]
    for k, n in enumerate(whole[:1:-1]):
        along = reshape(
            _positions(n, bool(align_corners), t), (1, *(n if a == rank - 1 - k else 1 for a in range(rank)), 1)
        )
        found = add(multiply(along, columns[k]), found)
    return found


def _positions(n: int, align: bool, like: Tensor) -> Tensor:
    """The centres of n elements, from -1 to 1."""
    if align and n == 1:
        return zeros((1,), dtype=like.dtype, device=like.device)
    at = arange(n, dtype=like.dtype, device=like.device)
    if align:
        return subtract(divide(multiply(at, 2), n - 1), 1)
    return subtract(divide(add(multiply(at, 2), 1), n), 1)
