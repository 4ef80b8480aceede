"""Pooling to a given number of windows of the last one to three axes, channels first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import ShapeError
from lazyt.functions.arguments import record, record_many, tensor
from lazyt.functions.pooling import max_pool1d, max_pool2d, max_pool3d
from lazyt.functions.windows import check_extents, each
from lazyt.ops import adaptive_pooling as ops

if TYPE_CHECKING:
    from lazyt.runtime.tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices",
    "adaptive_max_pool2d",
    "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d",
    "adaptive_max_pool3d_with_indices",
]

Counts = int | None | tuple[int | None, ...]


def _counts(name: str, t: Tensor, rank: int, output_size: Counts) -> tuple[int, ...]:
    """How many windows each of the last axes has, 0 where it stays as it is."""
    if t.ndim not in (rank + 1, rank + 2):
        raise ShapeError(f"{name}: an input of {rank + 1} or {rank + 2} dimensions is required, got shape {t.shape}")
    if 0 in t.shape[-rank:]:
        raise ShapeError(f"{name}: the pooled axes are not empty, got shape {t.shape}")
    given = tuple(output_size) if isinstance(output_size, tuple | list) else (output_size,) * rank
    if any(n is not None and n == 0 for n in given):
        raise ShapeError(f"{name}: output_size is one or {rank} integers, at least 1, or None, got {output_size!r}")
    if len(given) == 1:
        given *= rank
    check_extents(name, given)
    return each(name, "output_size", tuple(n or 0 for n in given), rank, 0)


def adaptive_avg_pool(name: str, rank: int, x: Any, output_size: Counts) -> Tensor:
    """`adaptive_avg_pool1d` and those of more axes, for a function of this name."""
    t = tensor(x)
    counts = _counts(name, t, rank, output_size)
    widths = tuple(
        () if not n or d % n == 0 else (ops.widest(d, n), ops.widest(n, d))
        for d, n in zip(t.shape[-rank:], counts, strict=True)
    )
    return record(ops.ADAPTIVE_AVG_POOL[rank - 1], (t,), (counts, widths))


def _adaptive_max_pool(rank: int, x: Any, output_size: Counts, indices: bool) -> Any:
    name, t = f"adaptive_max_pool{rank}d", tensor(x)
    dims = t.shape[-rank:]
    counts = tuple(n or d for d, n in zip(dims, _counts(name, t, rank, output_size), strict=True))
    if not any(d % n for d, n in zip(dims, counts, strict=True)):
        sizes = tuple(d // n for d, n in zip(dims, counts, strict=True))
        return (max_pool1d, max_pool2d, max_pool3d)[rank - 1](t, sizes, return_indices=indices)
    widths = tuple(ops.widest(d, n) for d, n in zip(dims, counts, strict=True))
    values, at = record_many(ops.ADAPTIVE_MAX_POOL[rank - 1], (t,), (counts, widths))
    return (values, at) if indices else values


def adaptive_avg_pool1d(x: Any, output_size: Counts) -> Tensor:
    """The means of `output_size` windows of the last axis of (N, C, W) or (C, W).

    None leaves an axis as it is. Windows differ in size, and overlap, where the number does not divide the extent.
    Raises ShapeError for a bad number. As `torch.nn.functional.adaptive_avg_pool1d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.adaptive_avg_pool1d(lt.asarray([[1.0, 3.0, 5.0]]), 2).tolist()
    [[2.0, 4.0]]
    """
    return adaptive_avg_pool("adaptive_avg_pool1d", 1, x, output_size)


def adaptive_avg_pool2d(x: Any, output_size: Counts) -> Tensor:
    """The means of `output_size` windows of the last two axes of (N, C, H, W) or (C, H, W).

    None leaves an axis as it is. Windows differ in size, and overlap, where the number does not divide the extent.
    Raises ShapeError for a bad number. As `torch.nn.functional.adaptive_avg_pool2d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.adaptive_avg_pool2d(lt.asarray([[[1.0, 3.0], [2.0, 0.0]]]), 1).tolist()
    [[[1.5]]]
    """
    return adaptive_avg_pool("adaptive_avg_pool2d", 2, x, output_size)


def adaptive_avg_pool3d(x: Any, output_size: Counts) -> Tensor:
    """The means of `output_size` windows of the last three axes of (N, C, D, H, W) or (C, D, H, W).

    None leaves an axis as it is. Windows differ in size, and overlap, where the number does not divide the extent.
    Raises ShapeError for a bad number. As `torch.nn.functional.adaptive_avg_pool3d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.adaptive_avg_pool3d(lt.arange(8.0).reshape(1, 2, 2, 2), 1).tolist()
    [[[[3.5]]]]
    """
    return adaptive_avg_pool("adaptive_avg_pool3d", 3, x, output_size)


def adaptive_max_pool1d(x: Any, output_size: Counts, return_indices: bool = False) -> Any:
    """The greatest elements of `output_size` windows of the last axis of (N, C, W) or (C, W).

    With `return_indices` also where they are, in the flat order of that axis (int64). Raises ShapeError for a bad
    number. As `torch.nn.functional.adaptive_max_pool1d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.adaptive_max_pool1d(lt.asarray([[1.0, 3.0, 5.0]]), 2).tolist()
    [[3.0, 5.0]]
    """
    return _adaptive_max_pool(1, x, output_size, return_indices)


def adaptive_max_pool1d_with_indices(x: Any, output_size: Counts) -> tuple[Tensor, Tensor]:
    """`adaptive_max_pool1d` with `return_indices`. As `torch.nn.functional.adaptive_max_pool1d_with_indices`.

    >>> import lazyt as lt
    >>> lt.nn.functional.adaptive_max_pool1d_with_indices(lt.asarray([[1.0, 3.0, 5.0]]), 2)[1].tolist()
    [[1, 2]]
    """
    values, at = _adaptive_max_pool(1, x, output_size, True)
    return values, at


def adaptive_max_pool2d(x: Any, output_size: Counts, return_indices: bool = False) -> Any:
    """The greatest elements of `output_size` windows of the last two axes of (N, C, H, W) or (C, H, W).

    With `return_indices` also where they are, in the flat order of these two axes (int64). Raises ShapeError for a bad
    number. As `torch.nn.functional.adaptive_max_pool2d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.adaptive_max_pool2d(lt.asarray([[[1.0, 3.0], [2.0, 0.0]]]), 1).tolist()
    [[[3.0]]]
    """
    return _adaptive_max_pool(2, x, output_size, return_indices)


def adaptive_max_pool2d_with_indices(x: Any, output_size: Counts) -> tuple[Tensor, Tensor]:
    """`adaptive_max_pool2d` with `return_indices`. As `torch.nn.functional.adaptive_max_pool2d_with_indices`.

    >>> import lazyt as lt
    >>> lt.nn.functional.adaptive_max_pool2d_with_indices(lt.asarray([[[1.0, 3.0], [2.0, 0.0]]]), 1)[1].tolist()
    [[[1]]]
    """
    values, at = _adaptive_max_pool(2, x, output_size, True)
    return values, at


def adaptive_max_pool3d(x: Any, output_size: Counts, return_indices: bool = False) -> Any:
    """The greatest elements of `output_size` windows of the last three axes of (N, C, D, H, W) or (C, D, H, W).

    With `return_indices` also where they are, in the flat order of these three axes (int64). Raises ShapeError for
    a bad number. As `torch.nn.functional.adaptive_max_pool3d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.adaptive_max_pool3d(lt.arange(8.0).reshape(1, 2, 2, 2), 1).tolist()
    [[[[7.0]]]]
    """
    return _adaptive_max_pool(3, x, output_size, return_indices)


def adaptive_max_pool3d_with_indices(x: Any, output_size: Counts) -> tuple[Tensor, Tensor]:
    """`adaptive_max_pool3d` with `return_indices`. As `torch.nn.functional.adaptive_max_pool3d_with_indices`.

    >>> import lazyt as lt
    >>> lt.nn.functional.adaptive_max_pool3d_with_indices(lt.arange(8.0).reshape(1, 2, 2, 2), 1)[1].tolist()
    [[[[7]]]]
    """
    values, at = _adaptive_max_pool(3, x, output_size, True)
    return values, at
