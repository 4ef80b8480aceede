"""PyTorch's functions that make tensors, and those of random numbers.

Sources: the pages of torch 2.13, by name.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import lazyt as lt
from lazyt.errors import ArgumentError, ShapeError
from lazyt.functions.arguments import record
from lazyt.ir import dtypes
from lazyt.ops.checks import checked
from lazyt.torch.values import draws, need_at_least, rank_of

if TYPE_CHECKING:
    import numpy as np

    from lazyt.runtime.tensor import Tensor

__all__ = [
    "arange",
    "as_tensor",
    "bernoulli",
    "empty",
    "from_numpy",
    "full",
    "initial_seed",
    "linspace",
    "logspace",
    "manual_seed",
    "multinomial",
    "normal",
    "one_hot",
    "ones",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "randperm",
    "tensor",
    "zeros",
]


def _shape(size: tuple[Any, ...], named: Any = None) -> tuple[int, ...]:
    """`f(2, 3)`, `f((2, 3))` and `f(size=(2, 3))` mean the same."""
    size = size if named is None else (named,)
    if len(size) == 1 and not isinstance(size[0], int) and (not isinstance(size[0], lt.Tensor) or size[0].ndim):
        size = tuple(size[0])
    return tuple(int(n) for n in size)


def _marked(x: Tensor, requires_grad: bool) -> Tensor:
    return x.requires_grad_() if requires_grad else x


def zeros(
    *extents: Any, size: Any = None, dtype: Any = dtypes.float32, device: Any = None, requires_grad: bool = False
) -> Tensor:  # fmt: skip
    """Zeros of a shape, whose extents are given one by one or in a tuple."""
    return _marked(lt.zeros(_shape(extents, size), dtype=dtype or dtypes.float32, device=device), requires_grad)


def ones(
    *extents: Any, size: Any = None, dtype: Any = dtypes.float32, device: Any = None, requires_grad: bool = False
) -> Tensor:  # fmt: skip
    """Ones of a shape, whose extents are given one by one or in a tuple."""
    return _marked(lt.ones(_shape(extents, size), dtype=dtype or dtypes.float32, device=device), requires_grad)


def empty(
    *extents: Any, size: Any = None, dtype: Any = dtypes.float32, device: Any = None, requires_grad: bool = False
) -> Tensor:  # fmt: skip
    """A tensor of a shape, to be written."""
    return _marked(lt.empty(_shape(extents, size), dtype=dtype or dtypes.float32, device=device), requires_grad)


def full(size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """One value in a shape."""
    return _marked(lt.full(_shape((size,)), fill_value, dtype=dtype, device=device), requires_grad)


def _in_integers(first: Any, last: Any, by: Any, dtype: np.dtype) -> tuple[int, int, int]:
    """The bounds and step of integers: cut off, as in PyTorch, which counts int64 afterwards, other dtypes before."""
    n = math.ceil((last - first) / by)
    first, by = int(first), int(by)
    last = int(last) if dtype == dtypes.int64 else first + n * by
    if by == 0:
        raise ArgumentError(f"arange: a step of at least 1 is required for {dtype}, got one that is cut off to 0")
    return first, last, by


def arange(
    start: Any = None, end: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Numbers from start, or 0, up to end, which is not among them.

    ArgumentError for a step that leads away from the end.
    """
    if end is None:
        start, end = 0, start
    first, last, by = (x.item() if hasattr(x, "item") else x for x in (0 if start is None else start, end, step))
    if by == 0 or not math.isfinite(first) or not math.isfinite(last) or (last - first) * by < 0:
        raise ArgumentError(f"arange: steps that lead from start to end are required, got {first}, {last} and {by}")
    if dtype is not None and rank_of(dtypes.as_dtype(dtype)) == 1:
        first, last, by = _in_integers(first, last, by, dtypes.as_dtype(dtype))
    found = lt.arange(first, last, by, dtype=dtype, device=device)
    return _marked(found, requires_grad)


def linspace(
    start: Any, end: Any, steps: int, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:  # fmt: skip
    """So many numbers in equal steps, the first and the last among them."""
    return _marked(lt.linspace(start, end, steps, dtype=dtype, device=device), requires_grad)


def logspace(
    start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """So many powers of a base, whose exponents are in equal steps."""
    return _marked(lt.logspace(start, end, steps, base=base, dtype=dtype, device=device), requires_grad)


def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A copy of numbers, lists or an array."""
    return _marked(lt.tensor(data, dtype=dtype, device=device), requires_grad)


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """Numbers, lists or an array as a tensor."""
    return lt.asarray(data, dtype=dtype, device=device)


def randn(
    *extents: Any, size: Any = None, dtype: Any = dtypes.float32, device: Any = None, generator: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Normal samples; not PyTorch's bits."""
    found = lt.random.randn(*_shape(extents, size), dtype=dtype or dtypes.float32, generator=generator, device=device)
    return _marked(found, requires_grad)


def rand(
    *extents: Any, size: Any = None, dtype: Any = dtypes.float32, device: Any = None, generator: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Uniform samples of [0, 1); not PyTorch's bits."""
    found = lt.random.rand(*_shape(extents, size), dtype=dtype or dtypes.float32, generator=generator, device=device)
    return _marked(found, requires_grad)


def randint(
    low: Any, high: Any = None, size: Any = None, *, dtype: Any = dtypes.int64, device: Any = None,
    generator: Any = None,
) -> Tensor:  # fmt: skip
    """Integers of [low, high), or of [0, low) where one bound is given: `randint(10, (3,))`; floats by their dtype."""
    if size is None and not isinstance(high, int):
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    if size is None:
        raise ShapeError("randint: a size is required, as in randint(10, (3,))")
    kind = dtypes.int64 if dtypes.kind(dtypes.as_dtype(dtype)) == "f" else dtype
    found = lt.random.integers(low, high, _shape((size,)), dtype=kind, generator=generator, device=device)
    return lt.astype(found, dtype, copy=False)


def randperm(n: int, *, dtype: Any = dtypes.int64, device: Any = None, generator: Any = None) -> Tensor:
    """The numbers below n in a random order."""
    return lt.astype(lt.random.permutation(n, generator=generator, device=device), dtype)


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


def one_hot(input: Any, num_classes: int = -1) -> Tensor:
    """Integers as rows of 0 and one 1; as many as there are classes, or the greatest integer and one (a sync)."""
    return lt.nn.functional.one_hot(input, num_classes, dtype=dtypes.int64)


def normal(
    mean: Any = 0.0, std: Any = 1.0, size: Any = None, *, generator: Any = None, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Normal samples, one for each mean and deviation in their dtype, or of a size.

    ArgumentError for a deviation below 0: for a tensor's at the sync.
    """
    given = [x for x in (mean, std) if isinstance(x, lt.Tensor)]
    if not given:
        need_at_least("normal", 0, std=std)
        shape = () if size is None else _shape((size,))
        options = {"dtype": dtype or dtypes.float32, "generator": generator, "device": device}
        return _marked(lt.random.normal(mean, std, shape, **options), requires_grad)
    kind = draws("normal", given[0]) if len(given) == 1 else lt.result_type(*(x for x in given if draws("normal", x)))
    need_at_least("normal", 0, std=std)
    shape = lt.broadcast_shapes(*(x.shape for x in given))
    drawn = lt.random.randn(*shape, dtype=kind, generator=generator, device=given[0].device)
    if isinstance(std, lt.Tensor):
        std = record(checked("normal"), (std, lt.less(std.detach(), 0)))
    return lt.astype(mean + drawn * std, kind, copy=False)


def bernoulli(input: Any, p: float | None = None, *, generator: Any = None) -> Tensor:
    """1 with the probabilities of the input, or all with p, else 0; of the input's dtype."""
    given = (input,) if p is None else (p, input.shape)
    return lt.astype(lt.random.bernoulli(*given, generator=generator, device=input.device), input.dtype)


def multinomial(input: Any, num_samples: int, replacement: bool = False, *, generator: Any = None) -> Tensor:
    """Indices along the last axis, drawn by weights. InvalidWeights, at the sync, for a row that has none above 0."""
    found = lt.multinomial(input, num_samples, replacement, generator=generator)
    weights = input.detach()
    # NOTE: a NaN is the least and the greatest, and is neither above nor below anything.
    least, most = (f(weights, axis=-1, keepdims=True) for f in (lt.amin, lt.amax))
    bad = lt.logical_not((least >= 0) & (most > 0) & (most < math.inf))
    return record(checked("multinomial"), (found, lt.broadcast_to(bad, found.shape)))


def manual_seed(seed: int) -> Any:
    """Seed the default generator, which is returned."""
    lt.random.seed(seed)
    return lt.random.default_generator()


def initial_seed() -> int:
    """The seed of the default generator."""
    return int(lt.random.default_generator().seed)


def from_numpy(ndarray: Any) -> Tensor:
    """A tensor of an array's values; of a tensor, which `load` gives where an array was saved, itself."""
    return ndarray if isinstance(ndarray, lt.Tensor) else lt.from_numpy(ndarray)
