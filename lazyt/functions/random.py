"""Random numbers: counter-based (Philox4x32-10), so that a program gives the same bits on every backend.

A Generator is a seed and a counter; each call takes the current counter and moves it on by one when it is
recorded. Neither is part of a program: another seed or another step runs the same plan. Numbers are made on `device`,
by default that of `lazyt.device(...)`, or the CPU.
"""

from __future__ import annotations

import itertools
import math
import operator
import threading
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from lazyt.autograd import custom
from lazyt.errors import DTypeError, ScalarRangeError, ShapeError
from lazyt.functions.arguments import record, tensor
from lazyt.functions.creation import on_device
from lazyt.ir import dtypes
from lazyt.ops import random as ops
from lazyt.ops.axes import integer
from lazyt.tracing.lanes import check_random
from lazyt.tracing.record import current_device
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from lazyt.runtime.tensor import Tensor

__all__ = [
    "Generator",
    "bernoulli",
    "choice",
    "default_generator",
    "get_state",
    "integers",
    "normal",
    "permutation",
    "rand",
    "randn",
    "random",
    "seed",
    "set_state",
    "standard_normal",
    "uniform",
]

Shape = int | tuple[int, ...] | list[int] | None
_MASK = (1 << 64) - 1


class Generator:
    """A stream of random numbers: a seed, and a counter of the calls recorded so far.

    >>> import lazyt as lt
    >>> g = lt.random.Generator(7)
    >>> a, b = lt.random.random(3, generator=g), lt.random.random(3, generator=lt.random.Generator(7))
    >>> a.tolist() == b.tolist()
    True
    """

    __slots__ = ("counter", "seed")

    def __init__(self, seed: int = 0, counter: int = 0) -> None:
        self.seed = integer("random.Generator", "the seed", seed) & _MASK
        self.counter = counter

    def manual_seed(self, seed: int) -> Self:
        """Begin anew, with another seed. As `torch.Generator.manual_seed`."""
        self.seed, self.counter = integer("random.Generator", "the seed", seed) & _MASK, 0
        return self

    def initial_seed(self) -> int:
        """The seed. As `torch.Generator.initial_seed`."""
        return self.seed

    def step(self) -> tuple[int, int]:
        """The seed and the counter for one call, which is counted."""
        check_random()
        now = self.counter
        self.counter = (now + 1) & _MASK
        return self.seed, now

    def get_state(self) -> tuple[int, int]:
        """(seed, counter), for `set_state`."""
        return self.seed, self.counter

    def set_state(self, state: tuple[int, int]) -> None:
        """Go to a state that `get_state` gave."""
        self.seed, self.counter = state

    def __repr__(self) -> str:
        return f"Generator(seed={self.seed}, counter={self.counter})"


class _Default(threading.local):
    """Each thread's generator, and the epoch of the process's seed that it was made in."""

    generator: Generator | None = None
    epoch = -1
    ordinal = -1


_default = _Default()
_ordinals = itertools.count()
_process = (0, 0)  # (epoch, seed)


def _mixed(seed: int, ordinal: int) -> int:
    """The seed of one thread: the process's for the first; SplitMix64 of both for the others."""
    if ordinal == 0:
        return seed & _MASK
    z = (seed + ordinal * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def default_generator() -> Generator:
    """This thread's generator, seeded from (seed, thread ordinal): threads draw different numbers.

    >>> import lazyt as lt
    >>> lt.random.seed(3)
    >>> lt.random.default_generator()
    Generator(seed=3, counter=0)
    """
    epoch, process_seed = _process
    if _default.generator is None or _default.epoch != epoch:
        if _default.ordinal < 0:
            _default.ordinal = next(_ordinals)
        _default.generator = Generator(_mixed(process_seed, _default.ordinal))
        _default.epoch = epoch
    return _default.generator


def seed(n: int) -> None:
    """Seed the default generators of all threads; before the first call the seed is 0.

    >>> import lazyt as lt
    >>> lt.random.seed(1); x = lt.random.random(2); lt.random.seed(1)
    >>> x.tolist() == lt.random.random(2).tolist()
    True
    """
    global _process
    _process = (_process[0] + 1, integer("random.seed", "the seed", n))


def get_state() -> tuple[int, int]:
    """The (seed, counter) of this thread's generator.

    >>> import lazyt as lt
    >>> lt.random.seed(1); lt.random.get_state()
    (1, 0)
    """
    return default_generator().get_state()


def set_state(state: tuple[int, int]) -> None:
    """Set the (seed, counter) of this thread's generator.

    >>> import lazyt as lt
    >>> lt.random.set_state((1, 5)); lt.random.get_state()
    (1, 5)
    """
    default_generator().set_state(state)


custom.random_state = get_state, set_state


def _dims(name: str, shape: Any) -> tuple[int, ...]:
    try:
        dims = tuple(map(operator.index, shape)) if isinstance(shape, tuple | list) else (operator.index(shape),)
    except TypeError:
        raise DTypeError(f"random.{name}: a shape is an integer or a tuple of them, got {shape!r}") from None
    if any(d < 0 for d in dims):
        raise ShapeError(f"random.{name}: a shape has no negative extents, got {dims}")
    return dims


def _result_shape(name: str, shape: Any, *params: Any) -> tuple[int, ...]:
    """The shape asked for, which the parameters broadcast to; by default the one that they broadcast to together."""
    shapes = [p.shape for p in params if hasattr(p, "shape")]
    dims = None if shape is None else _dims(name, shape)
    try:
        whole = np.broadcast_shapes(*shapes, *(() if dims is None else (dims,)))
    except ValueError:
        whole = None
    if whole is None or dims not in (None, whole):
        given = " and ".join(map(str, shapes))
        end = "together" if dims is None else f"to the size {dims}"
        raise ShapeError(f"random.{name}: parameters of shape {given} do not broadcast {end}")
    return whole


def _float(name: str, dtype: Any) -> np.dtype:
    d = dtypes.as_dtype(dtype)
    if dtypes.kind(d) != "f":
        raise DTypeError(f"random.{name}: a real floating dtype is required, got {d}")
    return d


def _state(generator: Generator | None) -> tuple[int, int]:
    return (default_generator() if generator is None else generator).step()


def _device_of(*xs: Any) -> Any:
    """The device of the first tensor among parameters, where numbers are drawn; None if that is the default one."""
    found = next((x.device for x in xs if isinstance(x, Handle)), None)
    return None if found == current_device() else found


@on_device
def _placed(x: Any, *, device: Any = None) -> Tensor:
    return tensor(x)


def _parameters(*xs: Any) -> tuple[Any, ...]:
    """Python floats and tensors; arrays go where the tensors are."""
    device = _device_of(*xs)
    return tuple(float(x) if type(x) in (bool, int, float) else _placed(x, device=device) for x in xs)


@on_device
def random(
    shape: Shape = (), *, dtype: Any = dtypes.float32, generator: Generator | None = None, device: Any = None
) -> Tensor:
    """Uniform numbers in [0, 1): every multiple of 2**-24 (float32) or 2**-53 (float64) is equally likely.

    Raises DTypeError unless dtype is a real floating one. As `numpy.random.random`.

    >>> import lazyt as lt
    >>> lt.random.random((2, 3)).shape
    (2, 3)
    """
    statics = (_float("random", dtype),)
    dims = _dims("random", shape)
    return record(ops.RANDOM, _state(generator), statics, dims)


@on_device
def rand(*shape: int, dtype: Any = dtypes.float32, generator: Generator | None = None, device: Any = None) -> Tensor:
    """`random` with the extents as arguments. As `numpy.random.rand`, `torch.rand`.

    >>> import lazyt as lt
    >>> lt.random.rand(2, 3).shape
    (2, 3)
    """
    return random(_unpacked(shape), dtype=dtype, generator=generator)


def _unpacked(shape: tuple[Any, ...]) -> Any:
    return shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape


@on_device
def uniform(
    low: Any = 0.0,
    high: Any = 1.0,
    size: Shape = None,
    *,
    shape: Shape = None,
    dtype: Any = dtypes.float32,
    generator: Generator | None = None,
    device: Any = None,
) -> Tensor:
    """Uniform numbers low + u * (high - low), u in [0, 1); rounding may give `high` itself.

    `shape` (or `size`) is by default that of `low` and `high`, numbers or tensors that broadcast to it. Raises
    DTypeError unless dtype is a real floating one. As `numpy.random.uniform`.

    >>> import lazyt as lt
    >>> x = lt.random.uniform(2.0, 3.0, 1000)
    >>> bool((x >= 2.0).all()) and bool((x <= 3.0).all())
    True
    """
    d = _float("uniform", dtype)
    low, high = _parameters(low, high)
    dims = _result_shape("uniform", shape if size is None else size, low, high)
    return record(ops.UNIFORM, (*_state(generator), low, high - low), (d,), dims)


@on_device
def standard_normal(
    shape: Shape = (), *, dtype: Any = dtypes.float32, generator: Generator | None = None, device: Any = None
) -> Tensor:
    """Normal numbers of mean 0 and variance 1, by inversion with correctly rounded operations alone.

    The distribution is right to 1e-7 (float32, within 6.3 of 0) or 1e-15 (float64, within 8.3). Raises DTypeError
    unless dtype is a real floating one. As `numpy.random.standard_normal`. Wichura, Algorithm AS 241.

    >>> import lazyt as lt
    >>> lt.random.standard_normal((2, 3)).shape
    (2, 3)
    """
    statics = (_float("standard_normal", dtype),)
    dims = _dims("standard_normal", shape)
    return record(ops.STANDARD_NORMAL, _state(generator), statics, dims)


@on_device
def randn(*shape: int, dtype: Any = dtypes.float32, generator: Generator | None = None, device: Any = None) -> Tensor:
    """`standard_normal` with the extents as arguments. As `numpy.random.randn`, `torch.randn`.

    >>> import lazyt as lt
    >>> lt.random.randn(2, 3).shape
    (2, 3)
    """
    return standard_normal(_unpacked(shape), dtype=dtype, generator=generator)


@on_device
def normal(
    loc: Any = 0.0,
    scale: Any = 1.0,
    size: Shape = None,
    *,
    shape: Shape = None,
    dtype: Any = dtypes.float32,
    generator: Generator | None = None,
    device: Any = None,
) -> Tensor:
    """Normal numbers loc + z * scale (see `standard_normal`).

    `shape` (or `size`) is by default that of `loc` and `scale`, numbers or tensors that broadcast to it. Raises
    DTypeError unless dtype is a real floating one. As `numpy.random.normal`.

    >>> import lazyt as lt
    >>> lt.random.normal(5.0, 0.0, 2).tolist()
    [5.0, 5.0]
    """
    d = _float("normal", dtype)
    loc, scale = _parameters(loc, scale)
    dims = _result_shape("normal", shape if size is None else size, loc, scale)
    return record(ops.NORMAL, (*_state(generator), loc, scale), (d,), dims)


@on_device
def integers(
    low: int,
    high: int | None = None,
    size: Shape = (),
    *,
    shape: Shape = None,
    dtype: Any = dtypes.int64,
    generator: Generator | None = None,
    device: Any = None,
) -> Tensor:
    """Integers in [low, high), or in [0, low) without `high`.

    By 64-bit multiply and shift: the probabilities of two values differ by less than 2**-64. Raises ShapeError for an
    empty range, ScalarRangeError for one that leaves the dtype. As `numpy.random.Generator.integers`.

    >>> import lazyt as lt
    >>> x = lt.random.integers(3, 5, 100)
    >>> int(x.min()), int(x.max())
    (3, 4)
    """
    d = dtypes.as_dtype(dtype)
    if dtypes.kind(d) not in "iu":
        raise DTypeError(f"random.integers: an integer dtype is required, got {d}")
    first, end = (0, operator.index(low)) if high is None else (operator.index(low), operator.index(high))
    if first >= end:
        raise ShapeError(f"random.integers: low < high is required, got {first} and {end}")
    info = np.iinfo(d)
    least, most = int(info.min), int(info.max)
    if first < least or end - 1 > most:
        raise ScalarRangeError(f"random.integers: [{first}, {end}) leaves the range of {d}")
    number = () if end - first == 1 << 64 else (end - first,)
    dims = _dims("integers", size if shape is None else shape)
    return record(ops.INTEGERS, (*_state(generator), first, *number), (d,), dims)


@on_device
def bernoulli(
    p: Any = 0.5, size: Shape = None, *, shape: Shape = None, generator: Generator | None = None, device: Any = None
) -> Tensor:
    """True with probability p, a number or a tensor of them; bool.

    Raises ShapeError for a number outside [0, 1]. As `numpy.random.binomial(1, p)`.

    >>> import lazyt as lt
    >>> lt.random.bernoulli(1.0, 3).tolist()
    [True, True, True]
    """
    (p,) = _parameters(p)
    if type(p) is float and not 0 <= p <= 1:
        raise ShapeError(f"random.bernoulli: a probability in [0, 1] is required, got {p}")
    dims = _result_shape("bernoulli", shape if size is None else size, p)
    return record(ops.BERNOULLI, (*_state(generator), p), (), dims)


@on_device
def permutation(x: Any, *, generator: Generator | None = None, device: Any = None) -> Tensor:
    """The integers 0 .. x - 1 in random order, or the rows of an array in random order (a copy).

    Raises ShapeError for a 0-d array. As `numpy.random.permutation`.

    >>> import lazyt as lt
    >>> sorted(lt.random.permutation(4).tolist())
    [0, 1, 2, 3]
    """
    if isinstance(x, int | np.integer):
        return record(ops.PERMUTATION, _state(generator), (), _dims("permutation", x))
    return record(ops.PERMUTED, (x, *_state(generator)))


@on_device
def _chosen(
    n: int, dims: tuple[int, ...], chances: tuple[Any, ...], replace: bool, generator: Generator | None,
    *, device: Any = None,
) -> Tensor:  # fmt: skip
    """Indices below n."""
    return record(ops.CHOICE, (*_state(generator), *chances), (replace,), (n, *dims))


def choice(
    a: Any,
    size: Shape = (),
    replace: bool = True,
    p: Any = None,
    *,
    shape: Shape = None,
    generator: Generator | None = None,
) -> Tensor:
    """Elements of a (or of 0 .. a - 1), with probabilities proportional to p.

    Raises ShapeError for more elements than there are without replacement, or for a p of another length. As
    `numpy.random.choice`.

    >>> import lazyt as lt
    >>> sorted(lt.random.choice(3, 3, replace=False).tolist())
    [0, 1, 2]
    """
    device = _device_of(a, p)
    values = None if type(a) is int else _placed(a, device=device)
    if values is not None and len(values.shape) != 1:
        raise ShapeError(f"random.choice: an integer or a vector is required, got shape {tuple(values.shape)}")
    n = a if values is None else values.shape[0]
    dims = _dims("choice", size if shape is None else shape)
    if n <= 0 and math.prod(dims):
        raise ShapeError(f"random.choice: cannot choose from {n} elements")
    chances = () if p is None else (_placed(p, device=device),)
    at = _chosen(n, dims, chances, bool(replace), generator, device=device)
    return at if values is None else record(ops.CHOSEN, (values, at))
