"""PyTorch's functions of shapes, and of elements chosen by place or mask.

Sources: the pages of torch 2.13, by name.
"""

from __future__ import annotations

import builtins
import math
import operator
from typing import TYPE_CHECKING, Any

import numpy as np

import lazyt as lt
from lazyt.errors import DTypeError, ShapeError
from lazyt.ir import dtypes
from lazyt.ops.axes import one_axis
from lazyt.torch.scalars import axis_of, extent_of, of_scalars
from lazyt.torch.values import as_value, need_same, rank_of, scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.runtime.tensor import Tensor

__all__ = [
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "broadcast_tensors",
    "broadcast_to",
    "bucketize",
    "cat",
    "chunk",
    "concat",
    "concatenate",
    "diag",
    "diag_embed",
    "diagonal",
    "diff",
    "flatten",
    "flip",
    "fliplr",
    "flipud",
    "gather",
    "hstack",
    "index_add",
    "index_copy",
    "index_fill",
    "index_put",
    "index_select",
    "masked_fill",
    "masked_select",
    "meshgrid",
    "movedim",
    "narrow",
    "nonzero",
    "permute",
    "repeat_interleave",
    "roll",
    "rot90",
    "scatter",
    "scatter_add",
    "searchsorted",
    "select",
    "split",
    "split_with_sizes",
    "squeeze",
    "stack",
    "swapdims",
    "t",
    "take_along_dim",
    "tensor_split",
    "transpose",
    "tril",
    "tril_indices",
    "triu",
    "triu_indices",
    "unbind",
    "unflatten",
    "unsqueeze",
    "where",
]


def cat(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    """Tensors one behind the other along an axis; vectors of no elements fit any others."""
    return _joined("cat", tensors, dim)


def concat(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    """As `cat`."""
    return _joined("concat", tensors, dim)


def concatenate(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    """As `cat`."""
    return _joined("concatenate", tensors, dim)


def hstack(tensors: Sequence[Any]) -> Tensor:
    """Tensors one behind the other along axis 1; vectors, along axis 0."""
    given = [lt.reshape(x, (1,)) if not x.ndim else x for x in tensors]
    return _joined("hstack", given, 0 if not given or given[0].ndim == 1 else 1)


def _joined(name: str, tensors: Sequence[Any], dim: int) -> Tensor:
    if isinstance(tensors, lt.Tensor):
        raise DTypeError(f"{name}: a list or tuple of tensors is required, got a tensor")
    others = [x for x in tensors if x.shape != (0,)]
    if len(others) in (0, len(tensors)):
        return lt.concat(tensors, axis=dim)
    # NOTE: what is left out still has a say in the dtype.
    return lt.astype(lt.concat(others, axis=dim), lt.result_type(*tensors), copy=False)


def stack(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    """Tensors beside each other along a new axis."""
    return lt.stack(tensors, axis=dim)


def chunk(input: Any, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most so many parts, all but the last of one size."""
    chunks = operator.index(chunks)
    if chunks < 1:
        raise ShapeError(f"chunk: at least one part is required, got {chunks}")
    n = extent_of("chunk", input, dim)
    return split(input, -(-n // chunks), dim) if n else split(input, [0] * chunks, dim)


def split(tensor: Any, split_size_or_sections: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Parts of one size, the last of what is left; or of the sizes given."""
    n, sizes = extent_of("split", tensor, dim), split_size_or_sections
    if isinstance(sizes, int):
        if sizes < 1:
            raise ShapeError(f"split: a size of at least 1 is required, got {sizes}")
        return lt.split(tensor, list(range(sizes, n, sizes)), axis=dim)
    if builtins.sum(sizes) != n:
        raise ShapeError(f"split: the sizes {list(sizes)} are {builtins.sum(sizes)} together, and axis {dim} has {n}")
    return lt.split(tensor, list(np.cumsum(sizes)[:-1].tolist()), axis=dim)


split_with_sizes = split


def tensor_split(
    input: Any, indices_or_sections: Any = None, dim: int = 0, *, indices: Any = None, sections: Any = None
) -> tuple[Tensor, ...]:  # fmt: skip
    """So many nearly equal parts, or those between the indices."""
    at = next((x for x in (indices_or_sections, indices, sections) if x is not None), None)
    if at is None:
        raise DTypeError("tensor_split: indices or sections are required")
    if isinstance(at, lt.Tensor):  # a sync
        if at.ndim > 1 or rank_of(at.dtype) != 1:
            raise ShapeError(
                f"tensor_split: a number, or a vector, of integers is required, got {at.dtype} of shape {at.shape}"
            )
        at = at.tolist()
    if isinstance(at, int) and at < 1:
        raise ShapeError(f"tensor_split: at least one part is required, got {at}")
    return lt.array_split(input, at, axis=dim)


def unbind(input: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices along an axis."""
    return lt.unstack(input, axis=dim)


def along(x: Any, dim: int, key: Any) -> Any:
    """The index that takes `key` of one axis, and all of the others."""
    return (slice(None),) * axis_of("index", x, dim) + (key,)


def narrow(input: Any, dim: int, start: int, length: int) -> Tensor:
    """A slice of an axis: a view."""
    n = extent_of("narrow", input, dim)
    first = start + n if start < 0 else start
    if not 0 <= first <= first + length <= n:
        raise ShapeError(f"narrow: {length} elements from {start} on are not within axis {dim} of {n}")
    found: Tensor = input[along(input, dim, slice(first, first + length))]
    return found


def select(input: Any, dim: int, index: int) -> Tensor:
    """One slice of an axis: a view."""
    found: Tensor = input[along(input, dim, index)]
    return found


@of_scalars
def transpose(input: Any, dim0: int, dim1: int) -> Tensor:
    """Two axes swapped."""
    return lt.swapaxes(input, dim0, dim1)


swapdims = transpose


def t(input: Any) -> Tensor:
    """The transpose of a matrix; vectors and scalars as they are."""
    if input.ndim > 2:
        raise ShapeError(f"t: at most 2 dimensions are allowed, got {input.ndim}")
    return lt.transpose(input)


def permute(input: Any, dims: Sequence[int]) -> Tensor:
    """The axes in another order."""
    return lt.permute_dims(input, tuple(dims))


@of_scalars
def movedim(input: Any, source: Any, destination: Any) -> Tensor:
    """Axes moved to other places."""
    return lt.moveaxis(input, source, destination)


def unsqueeze(input: Any, dim: int) -> Tensor:
    """A new axis of one element."""
    return lt.expand_dims(input, axis=dim)


@of_scalars
def squeeze(input: Any, dim: Any = None, *more: int) -> Tensor:
    """Without axes of one element: all of them, or those that are given and have one."""
    dim = (dim, *more) if more else dim
    given = range(input.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    return lt.squeeze(input, axis=tuple(d for d in given if extent_of("squeeze", input, d) == 1))


def unflatten(input: Any, dim: int, sizes: Sequence[int]) -> Tensor:
    """One axis as several; one of the sizes may be -1."""
    at, shape = axis_of("unflatten", input, dim), input.shape or (1,)
    known = math.prod(n for n in sizes if n != -1)
    filled = [n if n != -1 else shape[at] // builtins.max(known, 1) for n in sizes]
    if math.prod(filled) != shape[at]:
        raise ShapeError(f"unflatten: axis {dim} of {shape[at]} elements has not the sizes {tuple(sizes)}")
    return lt.reshape(input, (*shape[:at], *filled, *shape[at + 1 :]))


def repeat_interleave(
    input: Any, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:  # fmt: skip
    """Each element several times; of counts alone, the place of each so many times."""
    if repeats is None:
        input, repeats = lt.arange(len(input), device=input.device), input
    return lt.repeat(input, repeats, axis=dim)


@of_scalars
def flip(input: Any, dims: Any, *more: int) -> Tensor:
    """The elements in reverse order along axes, given one by one or in a tuple: a copy."""
    return lt.flip(input, axis=(dims, *more) if isinstance(dims, int) else tuple(dims)).clone()


def fliplr(input: Any) -> Tensor:
    """The columns in reverse order: a copy."""
    return lt.fliplr(input).clone()


def flipud(input: Any) -> Tensor:
    """The rows in reverse order: a copy."""
    return lt.flipud(input).clone()


def rot90(input: Any, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Turned k times by 90 degrees, from the first of two axes towards the second: a copy."""
    first, second = dims
    return lt.rot90(input, k, (first, second)).clone()


def diff(input: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    """The n-th differences of neighbours along an axis; of n = 0, a copy."""
    found = lt.diff(input, n, dim, prepend, append)
    return found.clone() if found is input else found


def diagonal(input: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonals of two axes as a new last axis: a view."""
    return lt.diagonal(input, offset, dim1, dim2)


def diag(input: Any, diagonal: int = 0) -> Tensor:
    """The matrix with a vector on a diagonal, or a copy of a matrix's diagonal."""
    found = lt.diag(input, diagonal)
    return found.clone() if input.ndim == 2 else found


def flatten(input: Any, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Axes as one: a view where `reshape` gives one."""
    return lt.flatten(input, start_dim=start_dim, end_dim=end_dim)


def broadcast_to(input: Any, size: Sequence[int]) -> Tensor:
    """Repeated along new axes and those of one element: a view, which may be written if nothing is repeated."""
    shape = tuple(size)
    if input.size == math.prod(shape) and lt.broadcast_shapes(input.shape, shape) == shape:
        return lt.reshape(input, shape)
    return lt.broadcast_to(input, shape)


def expand(input: Any, *size: Any) -> Tensor:
    """As `broadcast_to`, with the extents one by one or in a tuple; -1 keeps an extent."""
    given = size if len(size) != 1 or isinstance(size[0], int) else tuple(size[0])
    lead = len(given) - input.ndim
    if lead < 0 or -1 in given[:lead]:
        raise ShapeError(f"expand: shape {input.shape} does not broadcast to {given}")
    kept = (*given[:lead], *input.shape)
    return broadcast_to(input, [n if m == -1 else m for m, n in zip(given, kept, strict=True)])


def roll(input: Any, shifts: Any, dims: Any = None) -> Tensor:
    """The elements moved along axes, or in the whole, those at the end to the beginning. One axis for each shift."""
    moved = (shifts,) if isinstance(shifts, int) else tuple(shifts)
    along = () if dims is None else (dims,) if isinstance(dims, int) else tuple(dims)
    if not moved or (len(moved) != len(along) and (along or len(moved) != 1)):
        raise ShapeError(f"roll: one axis for each shift is required, got shifts {moved} and dims {along}")
    return lt.roll(input, moved, axis=along) if along else lt.roll(input, moved[0])


def meshgrid(*tensors: Any, indexing: str = "ij") -> list[Tensor]:
    """Coordinates of a grid; rows first, unless indexing is 'xy'."""
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], list | tuple) else tensors
    return list(lt.meshgrid(*given, indexing=indexing))


def _at_least(name: str) -> Callable[..., Any]:
    of_lazyt = getattr(lt, name)

    def f(*tensors: Any) -> Any:
        listed = len(tensors) == 1 and isinstance(tensors[0], list | tuple)
        given = tensors[0] if listed else tensors
        made = tuple(map(of_lazyt, given))
        return made if listed or len(made) != 1 else made[0]

    f.__doc__ = f"As `lazyt.{name}`; of several tensors, or a list of them, a tuple."
    f.__name__ = f.__qualname__ = name
    return f


atleast_1d, atleast_2d, atleast_3d = map(_at_least, ("atleast_1d", "atleast_2d", "atleast_3d"))


def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """Tensors broadcast to one shape."""
    shape = lt.broadcast_shapes(*(x.shape for x in tensors))
    return tuple(broadcast_to(x, shape) for x in tensors)


def tril_indices(row: int, col: int, offset: int = 0) -> Tensor:
    """The places of a lower triangle: one row of rows, one of columns."""
    return lt.stack(lt.tril_indices(row, k=offset, m=col))


def triu_indices(row: int, col: int, offset: int = 0) -> Tensor:
    """The places of an upper triangle: one row of rows, one of columns."""
    return lt.stack(lt.triu_indices(row, k=offset, m=col))


def tril(input: Any, diagonal: int = 0) -> Tensor:
    """What is on and below a diagonal."""
    return lt.tril(input, diagonal)


def triu(input: Any, diagonal: int = 0) -> Tensor:
    """What is on and above a diagonal."""
    return lt.triu(input, diagonal)


@of_scalars
def _matrices(input: Any, offset: int) -> Tensor:
    """Matrices with the last axis on a diagonal, and zeros elsewhere."""
    size = input.shape[-1] + abs(offset)
    on = lt.eye(size, k=offset, dtype=dtypes.bool_, device=input.device)
    padded = lt.pad(input, ((0, 0),) * (input.ndim - 1) + ((0, abs(offset)),))
    zero = lt.zeros((), dtype=input.dtype, device=input.device)
    return lt.where(on, padded[..., None] if offset >= 0 else padded[..., None, :], zero)


def diag_embed(input: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices of two axes with the last axis on a diagonal."""
    first, second = (one_axis("diag_embed", d, input.ndim + 1) for d in (dim1, dim2))
    if first == second:
        raise ShapeError(f"diag_embed: two axes are required, got {dim1} and {dim2}")
    return lt.moveaxis(_matrices(input, offset), (-2, -1), (first, second))


def _beside(input: Any, dim: int, index: Any) -> Any:
    """What a smaller index is beside: as much of the other axes as it has."""
    at = axis_of("gather", input, dim)
    return tuple(slice(None) if i == at else slice(n) for i, n in enumerate(index.shape))


def gather(input: Any, dim: int, index: Any) -> Tensor:
    """Elements by their places along an axis. The index may be smaller than the input along other axes."""
    if not input.ndim:
        found = lt.take_along_axis(lt.reshape(input, (1,)), lt.reshape(index, (-1,)), axis=dim)
        return lt.reshape(found, index.shape)
    return lt.take_along_axis(input[_beside(input, dim, index)], index, axis=dim)


@of_scalars
def index_select(input: Any, dim: int, index: Any) -> Tensor:
    """Slices of an axis by their places."""
    return lt.take(input, lt.reshape(index, (-1,)), axis=dim)


@of_scalars
def index_add(input: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Tensor:
    """A copy with slices added at places along an axis: as many as there are places, of the input's other extents."""
    _need_slices("index_add", input, dim, index, source)
    added = scaled(alpha, source)
    return lt.index_add(input, dim, lt.reshape(index, (-1,)), added if added.ndim else lt.reshape(added, (1,)))


def _need_slices(name: str, input: Any, dim: int, index: Any, source: Any) -> None:
    """Raise unless `source` has the input's dtype, a slice for each place along an axis, and the other extents."""
    need_same(name, "source", input, source)
    at, n = axis_of(name, input, dim), index.size
    wanted = (*input.shape[:at], n, *input.shape[at + 1 :])
    if source.shape != wanted and not (source.ndim == 0 and n == 1 and input.ndim < 2):
        raise ShapeError(f"{name}: a source of shape {wanted} is required, got {source.shape}")


@of_scalars
def index_copy(input: Any, dim: int, index: Any, source: Any) -> Tensor:
    """A copy with slices written at places along an axis: as many as there are places."""
    _need_slices("index_copy", input, dim, index, source)
    found = input.clone()
    found[along(found, dim, lt.reshape(index, (-1,)))] = source
    return found  # type: ignore[no-any-return]


@of_scalars
def index_fill(input: Any, dim: int, index: Any, value: Any) -> Tensor:
    """A copy with one value, as the input's dtype has it, in slices of an axis."""
    found = input.clone()
    found[along(found, dim, lt.reshape(index, (-1,)))] = as_value("index_fill", value, input.dtype)
    return found  # type: ignore[no-any-return]


def index_put(input: Any, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """A copy with values of the input's dtype written, or added, at the places of index arrays."""
    need_same("index_put", "values", input, values)
    if accumulate:
        return lt.add_at(input, tuple(indices), values)
    found = input.clone()
    found[tuple(indices)] = values
    return found  # type: ignore[no-any-return]


def where(condition: Any, input: Any = None, other: Any = None) -> Any:
    """The input where the condition is true, the other elsewhere; of a condition alone, where it is true: a sync."""
    return lt.where(condition) if input is None else lt.where(condition, input, other)


def masked_fill(input: Any, mask: Any, value: Any) -> Tensor:
    """A value, as the input's dtype has it, where a mask of bools is true."""
    if mask.dtype != dtypes.bool_:
        raise DTypeError(f"masked_fill: a mask of bools is required, got {mask.dtype}")
    return lt.where(mask, as_value("masked_fill", value, input.dtype), input)


def masked_select(input: Any, mask: Any) -> Tensor:
    """The elements where the mask is true: a sync, for their number."""
    x, m = lt.broadcast_arrays(input, mask)
    return x[m]


def take_along_dim(input: Any, indices: Any, dim: int | None = None) -> Tensor:
    """Elements by their places along an axis, or in the whole."""
    return lt.take_along_axis(input, indices, axis=dim)


def _scattered(put: Callable[..., Tensor], input: Any, dim: int, index: Any, src: Any) -> Tensor:
    """A copy in which `put` has written values at places along an axis, where the index is smaller too."""
    if not input.ndim:
        found = put(*(lt.reshape(x, (1,)) for x in (input, index, src)), axis=dim)
        return lt.reshape(found, ())
    values, at = _source(src, index), axis_of("scatter", input, dim)
    if builtins.all(n == m for i, (n, m) in enumerate(zip(index.shape, input.shape, strict=True)) if i != at):
        return put(input, index, values, axis=dim)
    within, found = _beside(input, dim, index), input.clone()
    found[within] = put(input[within], index, values, axis=dim)
    return found  # type: ignore[no-any-return]


def scatter(input: Any, dim: int, index: Any, src: Any = None, *, value: Any = None) -> Tensor:
    """A copy with values, or one `value`, put at places along an axis."""
    if (src is None) == (value is None):
        raise DTypeError("scatter: either src or value is required")
    given = value if src is None else src
    if isinstance(given, lt.Tensor) and given.ndim:
        need_same("scatter", "src", input, given)
    else:
        given = as_value("scatter", given, input.dtype)
    return _scattered(lt.put_along_axis, input, dim, index, given)


def scatter_add(input: Any, dim: int, index: Any, src: Any) -> Tensor:
    """A copy with values of the input's dtype added at places along an axis."""
    need_same("scatter_add", "src", input, src)
    return _scattered(lt.scatter_add, input, dim, index, src)


def _source(src: Any, index: Any) -> Any:
    """What of `src` is read: as many values along each axis as there are places."""
    return src[tuple(slice(n) for n in index.shape)] if getattr(src, "ndim", 0) else src


def nonzero(input: Any, *, as_tuple: bool = False) -> Any:
    """The places of what is not zero, a row each; as a tuple an array for each axis. A sync, for their number."""
    return lt.nonzero(input) if as_tuple else lt.argwhere(input)


def bucketize(input: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """The bucket of each value."""
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


def searchsorted(
    sorted_sequence: Any, input: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Any = None,
) -> Tensor:  # fmt: skip
    """Where each value would stand in a sorted vector, before equal ones, or behind them."""
    found = lt.searchsorted(sorted_sequence, input, side or ("right" if right else "left"), sorter)
    return lt.astype(found, dtypes.int32) if out_int32 else found
