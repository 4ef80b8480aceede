"""PyTorch's functions of tensors that lazyt spells otherwise, with PyTorch's arguments, defaults and results.

`lazyt.torch` offers them, and lazyt's own under every other name. Sources: the pages of torch 2.13, by name.
"""

from __future__ import annotations

import builtins
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import lazyt as lt
from lazyt.errors import NotSupportedError, ShapeError
from lazyt.functions.arguments import tensor as as_tensor_of
from lazyt.ir import dtypes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.runtime.tensor import Tensor

# --- new tensors ---------------------------------------------------------------------------------------------------


def _shape(size: tuple[Any, ...]) -> tuple[int, ...]:
    """`f(2, 3)` and `f((2, 3))` mean the same."""
    if len(size) == 1 and not isinstance(size[0], int):
        size = tuple(size[0])
    return tuple(int(n) for n in size)


def _marked(x: Tensor, requires_grad: bool) -> Tensor:
    return x.requires_grad_() if requires_grad else x


def zeros(*size: Any, dtype: Any = dtypes.float32, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Zeros of a shape, whose extents are given one by one or in a tuple."""
    return _marked(lt.zeros(_shape(size), dtype=dtype or dtypes.float32, device=device), requires_grad)


def ones(*size: Any, dtype: Any = dtypes.float32, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Ones of a shape, whose extents are given one by one or in a tuple."""
    return _marked(lt.ones(_shape(size), dtype=dtype or dtypes.float32, device=device), requires_grad)


def empty(*size: Any, dtype: Any = dtypes.float32, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor of a shape, to be written."""
    return _marked(lt.empty(_shape(size), dtype=dtype or dtypes.float32, device=device), requires_grad)


def full(size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """One value in a shape."""
    return _marked(lt.full(_shape((size,)), fill_value, dtype=dtype, device=device), requires_grad)


def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A copy of numbers, lists or an array."""
    return _marked(lt.tensor(data, dtype=dtype, device=device), requires_grad)


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """Numbers, lists or an array as a tensor."""
    return lt.asarray(data, dtype=dtype, device=device)


def randn(
    *size: Any, dtype: Any = dtypes.float32, device: Any = None, generator: Any = None, requires_grad: bool = False
) -> Tensor:  # fmt: skip
    """Normal samples; not PyTorch's bits."""
    found = lt.random.randn(*_shape(size), dtype=dtype or dtypes.float32, generator=generator, device=device)
    return _marked(found, requires_grad)


def rand(
    *size: Any, dtype: Any = dtypes.float32, device: Any = None, generator: Any = None, requires_grad: bool = False
) -> Tensor:  # fmt: skip
    """Uniform samples of [0, 1); not PyTorch's bits."""
    found = lt.random.rand(*_shape(size), dtype=dtype or dtypes.float32, generator=generator, device=device)
    return _marked(found, requires_grad)


def randint(
    low: Any, high: Any = None, size: Any = None, *, dtype: Any = dtypes.int64, device: Any = None,
    generator: Any = None,
) -> Tensor:  # fmt: skip
    """Integers of [low, high), or of [0, low) where one bound is given: `randint(10, (3,))`."""
    if size is None and not isinstance(high, int):
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    if size is None:
        raise ShapeError("randint: a size is required, as in randint(10, (3,))")
    return lt.random.integers(low, high, _shape((size,)), dtype=dtype, generator=generator, device=device)


def randperm(n: int, *, dtype: Any = dtypes.int64, device: Any = None, generator: Any = None) -> Tensor:
    """The numbers below n in a random order."""
    return lt.random.permutation(n, generator=generator, device=device).astype(dtype)


def randn_like(input: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Normal samples of a tensor's shape, dtype and device."""
    return randn(
        *input.shape, dtype=dtype or input.dtype, device=device or input.device, requires_grad=requires_grad
    )  # fmt: skip


def rand_like(input: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Uniform samples of a tensor's shape, dtype and device."""
    return rand(*input.shape, dtype=dtype or input.dtype, device=device or input.device, requires_grad=requires_grad)


def randint_like(input: Any, low: int, high: int | None = None, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Integers of a tensor's shape, dtype and device."""
    return randint(low, high, input.shape, dtype=dtype or input.dtype, device=device or input.device)


def normal(mean: Any, std: Any = 1.0, size: Any = None, *, generator: Any = None) -> Tensor:
    """Normal samples, one for each mean and deviation, or of a size."""
    return lt.random.normal(mean, std, None if size is None else _shape((size,)), generator=generator)


def manual_seed(seed: int) -> Any:
    """Seed the default generator, which is returned."""
    lt.random.seed(seed)
    return lt.random.default_generator()


def initial_seed() -> int:
    """The seed of the default generator."""
    return int(lt.random.default_generator().seed)


# --- shapes --------------------------------------------------------------------------------------------------------


def cat(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    """Tensors one behind the other along an axis."""
    return lt.concat(tensors, axis=dim)


def stack(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    """Tensors beside each other along a new axis."""
    return lt.stack(tensors, axis=dim)


def chunk(input: Any, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most so many parts, all but the last of one size."""
    if chunks < 1:
        raise ShapeError(f"chunk: at least one part is required, got {chunks}")
    return split(input, builtins.max(1, -(-input.shape[dim] // chunks)), dim)


def split(tensor: Any, split_size_or_sections: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Parts of one size, the last of what is left; or of the sizes given."""
    n, sizes = tensor.shape[dim], split_size_or_sections
    if isinstance(sizes, int):
        if sizes < 1:
            raise ShapeError(f"split: a size of at least 1 is required, got {sizes}")
        return lt.split(tensor, list(range(sizes, n, sizes)), axis=dim)
    if builtins.sum(sizes) != n:
        raise ShapeError(f"split: the sizes {list(sizes)} are {builtins.sum(sizes)} together, and axis {dim} has {n}")
    return lt.split(tensor, list(np.cumsum(sizes)[:-1].tolist()), axis=dim)


split_with_sizes = split


def tensor_split(input: Any, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """So many nearly equal parts, or those between the indices."""
    return lt.array_split(input, indices_or_sections, axis=dim)


def unbind(input: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices along an axis."""
    return lt.unstack(input, axis=dim)


def narrow(input: Any, dim: int, start: int, length: int) -> Tensor:
    """A slice of an axis: a view."""
    n = input.shape[dim]
    first = start + n if start < 0 else start
    if not 0 <= first <= first + length <= n:
        raise ShapeError(f"narrow: {length} elements from {start} on are not within axis {dim} of {n}")
    found: Tensor = input[(slice(None),) * (dim % input.ndim) + (slice(first, first + length),)]
    return found


def select(input: Any, dim: int, index: int) -> Tensor:
    """One slice of an axis: a view."""
    found: Tensor = input[(slice(None),) * (dim % input.ndim) + (index,)]
    return found


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


def movedim(input: Any, source: Any, destination: Any) -> Tensor:
    """Axes moved to other places."""
    return lt.moveaxis(input, source, destination)


def unsqueeze(input: Any, dim: int) -> Tensor:
    """A new axis of one element."""
    return lt.expand_dims(input, axis=dim)


def unflatten(input: Any, dim: int, sizes: Sequence[int]) -> Tensor:
    """One axis as several; one of the sizes may be -1."""
    at, shape = dim % input.ndim, input.shape
    known = math.prod(n for n in sizes if n != -1)
    filled = [n if n != -1 else shape[at] // builtins.max(known, 1) for n in sizes]
    if math.prod(filled) != shape[at]:
        raise ShapeError(f"unflatten: axis {dim} of {shape[at]} elements has not the sizes {tuple(sizes)}")
    return lt.reshape(input, (*shape[:at], *filled, *shape[at + 1 :]))


def repeat_interleave(input: Any, repeats: Any, dim: int | None = None) -> Tensor:
    """Each element several times."""
    return lt.repeat(input, repeats, axis=dim)


def meshgrid(*tensors: Any, indexing: str = "ij") -> list[Tensor]:
    """Coordinates of a grid; rows first, unless indexing is 'xy'."""
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], list | tuple) else tensors
    return list(lt.meshgrid(*given, indexing=indexing))


def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """Tensors broadcast to one shape."""
    return lt.broadcast_arrays(*tensors)


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


def diag_embed(input: Any) -> Tensor:
    """A matrix with the last axis on its diagonal."""
    return input[..., None] * lt.eye(input.shape[-1], dtype=input.dtype)  # type: ignore[no-any-return]


# --- elements chosen -----------------------------------------------------------------------------------------------


def gather(input: Any, dim: int, index: Any) -> Tensor:
    """Elements by their places along an axis. The index may be smaller than the input along other axes."""
    at = dim % builtins.max(input.ndim, 1)
    within = tuple(slice(None) if i == at else slice(n) for i, n in enumerate(index.shape))
    return lt.take_along_axis(input[within], index, axis=dim)


def index_select(input: Any, dim: int, index: Any) -> Tensor:
    """Slices of an axis by their places."""
    return lt.take(input, index, axis=dim)


def masked_fill(input: Any, mask: Any, value: Any) -> Tensor:
    """A value where the mask is true."""
    return lt.where(mask, value, input)


def masked_select(input: Any, mask: Any) -> Tensor:
    """The elements where the mask is true: a sync, for their number."""
    x, m = lt.broadcast_arrays(input, mask)
    return x[m]


def take_along_dim(input: Any, indices: Any, dim: int | None = None) -> Tensor:
    """Elements by their places along an axis, or in the whole."""
    return lt.take_along_axis(input, indices, axis=dim)


def scatter(input: Any, dim: int, index: Any, src: Any) -> Tensor:
    """A copy with values put at places along an axis."""
    at = dim % input.ndim
    if builtins.any(n != m for i, (n, m) in enumerate(zip(index.shape, input.shape, strict=True)) if i != at):
        within = tuple(slice(None) if i == at else slice(n) for i, n in enumerate(index.shape))
        found = input.clone()
        found[within] = lt.put_along_axis(input[within], index, _source(src, index), axis=dim)
        return found
    return lt.put_along_axis(input, index, _source(src, index), axis=dim)


def scatter_add(input: Any, dim: int, index: Any, src: Any) -> Tensor:
    """A copy with values added at places along an axis."""
    return lt.scatter_add(input, index, _source(src, index), axis=dim)


def _source(src: Any, index: Any) -> Any:
    """What of `src` is read: as many values along each axis as there are places."""
    return src[tuple(slice(n) for n in index.shape)] if getattr(src, "ndim", 0) else src


def nonzero(input: Any, *, as_tuple: bool = False) -> Any:
    """The places of what is not zero, a row each; as a tuple an array for each axis. A sync, for their number."""
    return lt.nonzero(input) if as_tuple else lt.argwhere(input)


def bucketize(input: Any, boundaries: Any, *, right: bool = False) -> Tensor:
    """The bucket of each value."""
    return lt.searchsorted(boundaries, input, side="right" if right else "left")


# --- reductions ----------------------------------------------------------------------------------------------------


class Extremes(NamedTuple):
    """Values along an axis, and where they stand."""

    values: Tensor
    indices: Tensor


class MinMax(NamedTuple):
    """The least and the greatest values."""

    min: Tensor
    max: Tensor


def _extreme(name: str, of_two: Callable[..., Any]) -> Callable[..., Any]:
    values, places = getattr(lt, name), getattr(lt, f"arg{name}")

    def f(input: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None:
            return values(input)
        if not isinstance(dim, int):
            return of_two(input, dim)
        # NOTE: the places take their values, so the two agree where there are NaNs and equals.
        where = places(input, axis=dim, keepdims=True)
        found = lt.take_along_axis(input, where, axis=dim)
        return Extremes(*((found, where) if keepdim else (found.squeeze(dim), where.squeeze(dim))))

    f.__doc__ = f"The {name}imum of all; (values, indices) along an axis; element by element of two tensors."
    f.__name__ = f.__qualname__ = name
    return f


max = _extreme("max", lt.maximum)
min = _extreme("min", lt.minimum)


def aminmax(input: Any, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """The least and the greatest values, along an axis or of all."""
    return MinMax(lt.min(input, axis=dim, keepdims=keepdim), lt.max(input, axis=dim, keepdims=keepdim))


def sort(input: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Extremes:
    """The values in order along an axis, and where they stood; equal ones stay in their order."""
    where = lt.argsort(input, axis=dim, descending=descending)
    return Extremes(lt.take_along_axis(input, where, axis=dim), where)


def argsort(input: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """Where the values in order stand."""
    return lt.argsort(input, axis=dim, descending=descending)


def topk(input: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The k greatest, or least, values along an axis, and where they stand."""
    return lt.topk(input, k, axis=dim, largest=largest, sorted=sorted)


def kthvalue(input: Any, k: int, dim: int = -1, keepdim: bool = False) -> Extremes:
    """The k-th least value along an axis, counted from 1, and where it stands."""
    n = input.shape[dim]
    if not 1 <= k <= n:
        raise ShapeError(f"kthvalue: k is between 1 and {n}, got {k}")
    found = [narrow(x, dim, k - 1, 1) for x in sort(input, dim)]
    return Extremes(*(found if keepdim else [x.squeeze(dim) for x in found]))


def median(input: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower of the two values in the middle: of all, or (values, indices) along an axis. NaN where there is one."""
    if dim is None:
        flat = lt.reshape(input, (-1,))
        return kthvalue(flat, (flat.size + 1) // 2).values if not _floats(input) else _median(flat, -1, False).values
    return _median(input, dim, keepdim) if _floats(input) else kthvalue(input, (input.shape[dim] + 1) // 2, dim, keepdim)


def _floats(x: Any) -> bool:
    return dtypes.kind(x.dtype) == "f"


def _median(x: Any, dim: int, keepdim: bool) -> Extremes:
    found = kthvalue(x, (x.shape[dim] + 1) // 2, dim, True)
    missing = lt.isnan(x)
    where = lt.where(lt.any(missing, axis=dim, keepdims=True), lt.argmax(missing, axis=dim, keepdims=True), found.indices)
    values = lt.take_along_axis(x, where, axis=dim)
    return Extremes(*((values, where) if keepdim else (values.squeeze(dim), where.squeeze(dim))))


def _reduced(name: str) -> Callable[..., Any]:
    of_lazyt = getattr(lt, name)

    def f(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        options = {} if dtype is None else {"dtype": dtype}
        axis = tuple(dim) if isinstance(dim, list) else dim
        return of_lazyt(input, axis=axis, keepdims=keepdim, **options)

    f.__doc__ = f"As `lazyt.{name}`, along `dim`."
    f.__name__ = f.__qualname__ = name
    return f


sum, mean, prod, nansum, nanmean = map(_reduced, ("sum", "mean", "prod", "nansum", "nanmean"))
amax, amin, argmax, argmin, all, any = map(_reduced, ("amax", "amin", "argmax", "argmin", "all", "any"))
count_nonzero, logsumexp = map(_reduced, ("count_nonzero", "logsumexp"))


def _spread(name: str) -> Callable[..., Any]:
    of_lazyt = getattr(lt, name)

    def f(
        input: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: float | None = None
    ) -> Any:  # fmt: skip
        if isinstance(dim, bool):  # x.std(False)
            dim, unbiased = None, dim
        if correction is None:
            correction = 1 if unbiased is None else int(unbiased)
        axis = tuple(dim) if isinstance(dim, list) else dim
        return of_lazyt(input, axis=axis, correction=correction, keepdims=keepdim)

    f.__doc__ = f"As `lazyt.{name}`, divided by n - 1 unless `unbiased` is False or `correction` is given."
    f.__name__ = f.__qualname__ = name
    return f


std, var = map(_spread, ("std", "var"))


def std_mean(input: Any, dim: Any = None, *, correction: float = 1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The standard deviation, divided by n - correction, and the mean."""
    return std(input, dim, keepdim=keepdim, correction=correction), mean(input, dim, keepdim)


def var_mean(input: Any, dim: Any = None, *, correction: float = 1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The variance, divided by n - correction, and the mean."""
    return var(input, dim, keepdim=keepdim, correction=correction), mean(input, dim, keepdim)


def norm(input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False) -> Tensor:
    """The p-norm of all elements, or along axes."""
    order = 2 if p == "fro" else p
    if order == "nuc":
        raise NotSupportedError("norm: not supported: p='nuc', because lt.linalg.matrix_norm(x, ord='nuc') has it")
    axis = tuple(dim) if isinstance(dim, list) else dim
    return lt.linalg.vector_norm(input, axis=axis, keepdims=keepdim, ord=order)


def dist(input: Any, other: Any, p: float = 2) -> Tensor:
    """The p-norm of a difference."""
    return norm(input - other, p)


def unique(
    input: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:  # fmt: skip
    """The values that occur, in order; with where each element's is, and how often: a sync, for their number."""
    return lt.unique(input, return_inverse=return_inverse, return_counts=return_counts, axis=dim)


def equal(input: Any, other: Any) -> bool:
    """Whether two tensors have one shape and equal elements: a sync."""
    return bool(lt.array_equal(input, other))


# --- elements and products -----------------------------------------------------------------------------------------


def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """A quotient, as it is, or rounded by 'floor' or 'trunc'."""
    if rounding_mode is None:
        return lt.divide(input, other)
    if rounding_mode == "floor":
        return lt.floor_divide(input, other)
    if rounding_mode != "trunc":
        raise NotSupportedError(f"div: rounding_mode is None, 'floor' or 'trunc', got {rounding_mode!r}")
    found = lt.divide(input, other).trunc()
    return found if _floats(as_tensor_of(input)) or _floats(as_tensor_of(other)) else found.astype(
        lt.result_type(input, other)
    )  # fmt: skip


divide = true_divide = div


def add(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """input + alpha * other."""
    return lt.add(input, other if alpha == 1 else alpha * other)


def sub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """input - alpha * other."""
    return lt.subtract(input, other if alpha == 1 else alpha * other)


subtract = sub


def rsub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """other - alpha * input."""
    return sub(other, input, alpha=alpha)


def neg(input: Any) -> Tensor:
    """-input."""
    return lt.negative(input)


def clamp(input: Any, min: Any = None, max: Any = None) -> Tensor:
    """Values no smaller than `min` and no greater than `max`."""
    return lt.clip(input, min, max)


clip = clamp


def clamp_min(input: Any, min: Any) -> Tensor:
    """Values no smaller than `min`."""
    return lt.clip(input, min, None)


def clamp_max(input: Any, max: Any) -> Tensor:
    """Values no greater than `max`."""
    return lt.clip(input, None, max)


def lerp(input: Any, end: Any, weight: Any) -> Tensor:
    """input + weight * (end - input)."""
    return input + weight * (end - input)  # type: ignore[no-any-return]


def addcmul(input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
    """input + value * tensor1 * tensor2."""
    return input + value * tensor1 * tensor2  # type: ignore[no-any-return]


def addcdiv(input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
    """input + value * tensor1 / tensor2."""
    return input + value * tensor1 / tensor2  # type: ignore[no-any-return]


def addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2)."""
    product = mat1 @ mat2
    return (input if beta == 1 else beta * input) + (product if alpha == 1 else alpha * product)  # type: ignore[no-any-return]


addmv = baddbmm = addmm


def addr(input: Any, vec1: Any, vec2: Any, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha times the outer product."""
    product = lt.outer(vec1, vec2)
    return (input if beta == 1 else beta * input) + (product if alpha == 1 else alpha * product)  # type: ignore[no-any-return]


def mm(input: Any, mat2: Any) -> Tensor:
    """A product of matrices."""
    return _product("mm", 2, input, 2, mat2)


def bmm(input: Any, mat2: Any) -> Tensor:
    """Products of matrices, one for each of a batch."""
    return _product("bmm", 3, input, 3, mat2)


def mv(input: Any, vec: Any) -> Tensor:
    """A matrix times a vector."""
    return _product("mv", 2, input, 1, vec)


def _product(name: str, n: int, x: Any, m: int, y: Any) -> Tensor:
    if (x.ndim, y.ndim) != (n, m):
        raise ShapeError(f"{name}: {n} and {m} dimensions are required, got {x.ndim} and {y.ndim}")
    return lt.matmul(x, y)


def frac(input: Any) -> Tensor:
    """What is behind the point."""
    return input - input.trunc()  # type: ignore[no-any-return]


def logit(input: Any, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), of x kept eps away from 0 and 1 if eps is given."""
    x = input if eps is None else lt.clip(input, eps, 1 - eps)
    return lt.log(x / (1 - x))


def xlogy(input: Any, other: Any) -> Tensor:
    """x * log(y), and 0 where x is."""
    return lt.where(input == 0, lt.where(lt.isnan(other), other, 0), input * lt.log(lt.where(input == 0, 1, other)))


def polar(abs: Any, angle: Any) -> Tensor:
    """Complex numbers of an absolute value and an angle."""
    return complex(abs * lt.cos(angle), abs * lt.sin(angle))


def complex(real: Any, imag: Any) -> Tensor:
    """Complex numbers of two parts."""
    return real + 1j * imag  # type: ignore[no-any-return]


def view_as_real(input: Any) -> Tensor:
    """The two parts of complex numbers, along a new last axis."""
    return lt.stack((lt.real(input), lt.imag(input)), axis=-1)


def logdet(input: Any) -> Tensor:
    """The logarithm of a determinant, NaN where it is negative."""
    sign, found = lt.linalg.slogdet(input)
    return lt.where(sign < 0, math.nan, found)


# --- questions and settings ----------------------------------------------------------------------------------------


def is_tensor(obj: Any) -> bool:
    """Whether it is a tensor."""
    return isinstance(obj, lt.Tensor)


def is_floating_point(input: Any) -> bool:
    """Whether the elements are real floating numbers."""
    return lt.isdtype(input.dtype, "real floating")


def is_complex(input: Any) -> bool:
    """Whether the elements are complex."""
    return lt.isdtype(input.dtype, "complex floating")


def is_nonzero(input: Any) -> bool:
    """Whether the one element is not zero: a sync."""
    return bool(input)


def numel(input: Any) -> int:
    """The number of elements."""
    return int(input.size)


def clone(input: Any) -> Tensor:
    """A copy."""
    return input.clone()  # type: ignore[no-any-return]


def detach(input: Any) -> Tensor:
    """The same values, outside of any gradient."""
    return input.detach()  # type: ignore[no-any-return]


def get_default_dtype() -> np.dtype:
    """float32, always."""
    return dtypes.float32


def set_default_dtype(d: Any) -> None:
    """float32 is the default, and nothing else: NotSupportedError."""
    if dtypes.as_dtype(d) != dtypes.float32:
        raise NotSupportedError(
            f"set_default_dtype: not supported: {d}, because new values are float32; write dtype= where they are made"
        )


def compile(model: Any = None, **options: Any) -> Any:
    """The model, or function, as it is: what runs is recorded, fused and compiled. Options are PyTorch's, and read by
    nothing. Also as a decorator.
    """
    return model if model is not None else lambda f: f


def from_numpy(ndarray: Any) -> Tensor:
    """A tensor of an array's values; of a tensor, which `load` gives where an array was saved, itself."""
    return ndarray if isinstance(ndarray, lt.Tensor) else lt.from_numpy(ndarray)
