"""Invertible functions with the logarithm of their Jacobian's determinant. As `torch.distributions.transforms`."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import lazyt as lt
from lazyt.distributions import constraints
from lazyt.distributions.base import sum_last
from lazyt.errors import DistributionError, NotSupportedError
from lazyt.tracing.lanes import in_lanes


class NoSign:
    """Of a transform that neither rises nor falls everywhere."""

    def __get__(self, t: Any, kind: Any = None) -> Any:
        raise NotSupportedError(f"{kind.__name__}.sign: not supported: it neither rises nor falls everywhere")


class _Pair(NamedTuple):
    """What a transform was given and gave, how often both had been written, and whether gradients were recorded."""

    x: Any
    y: Any
    writes: tuple[int, int]
    graded: bool

    def is_current(self) -> bool:
        return self.writes == (_writes_of(self.x), _writes_of(self.y))


def _writes_of(x: Any) -> int:
    return 0 if x.is_inference() else int(x._version)


# Attributes that do not tell transforms apart.
_OF_CACHE = ("_cache_size", "_last")


class Transform:
    """Base of the transforms: `t(x)`, `t.inv(y)`, `t.log_abs_det_jacobian(x, y)`.

    `event_dim` axes are one value that is given, `out_dim` one that comes out. With a cache_size of 1 the last x and y
    are kept until others come: `t.inv(t(x))` is x itself, and no digits are lost where the inverse is steep. A tensor
    that was written in place since then is computed anew, and so is all in a vmap. Another cache_size than 0 and 1 is a
    DistributionError.

    >>> import lazyt as lt
    >>> from lazyt.distributions import TanhTransform
    >>> x, t, cached = lt.asarray(9.0), TanhTransform(), TanhTransform(cache_size=1)
    >>> t.inv(t(x)).item() == 9.0, cached.inv(cached(x)) is x
    (False, True)
    """

    event_dim = 0
    bijective = True
    # 1 where it rises, -1 where it falls, for those of single elements.
    sign: Any = 1
    codomain = constraints.real
    _cache_size = 0
    # NOTE: of the class, as classes of users need not call `__init__`.
    _last: _Pair | None = None

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise DistributionError(f"{type(self).__name__}: cache_size must be 0 or 1, got {cache_size!r}")
        self._cache_size = cache_size

    @property
    def out_dim(self) -> int:
        """How many axes are one value that comes out."""
        return self.event_dim

    def __call__(self, x: Any) -> Any:
        x, last = lt.asarray(x), self._last
        if last is not None and x is last.x and last.is_current() and (last.graded or not lt.is_grad_enabled()):
            return last.y
        return self._keep(x, self._call(x))[1]

    def inverse(self, y: Any) -> Any:
        """The x with t(x) = y."""
        y, last = lt.asarray(y), self._last
        if last is not None and y is last.y and last.is_current():
            return last.x
        return self._keep(self._inverse(y), y)[0]

    def _keep(self, x: Any, y: Any) -> tuple[Any, Any]:
        if self._cache_size and not in_lanes():
            self._last = _Pair(x, y, (_writes_of(x), _writes_of(y)), lt.is_grad_enabled())
        return x, y

    def with_cache(self, cache_size: int = 1) -> Self:
        """This transform with another cache_size."""
        if cache_size == self._cache_size:
            return self
        found = copy.copy(self)
        Transform.__init__(found, cache_size)
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {name: x for name, x in self.__dict__.items() if name != "_last"}

    @property
    def inv(self) -> Transform:
        """The inverse, as a transform."""
        return _Inverse(self)

    def _call(self, x: Any) -> Any:
        raise NotImplementedError

    def _inverse(self, y: Any) -> Any:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """log(abs(det(dy / dx)))."""
        raise NotSupportedError(f"{type(self).__name__}.log_abs_det_jacobian: not supported: it is not a bijection")

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of t(x)."""
        return shape

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of t.inv(y)."""
        return shape

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        mine, theirs = ({k: x for k, x in t.__dict__.items() if k not in _OF_CACHE} for t in (self, other))
        return mine.keys() == theirs.keys() and all(_is_equal(x, theirs[name]) for name, x in mine.items())

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def _is_equal(x: Any, y: Any) -> bool:
    """Whether two attributes are equal; of tensors all elements (a sync)."""
    if isinstance(x, lt.Tensor) or isinstance(y, lt.Tensor):
        return bool(lt.array_equal(x, y))
    return bool(x == y)


class _Inverse(Transform):
    def __init__(self, of: Transform) -> None:
        self.of = of
        self.event_dim, self.bijective = of.out_dim, of.bijective

    @property
    def out_dim(self) -> int:
        return self.of.event_dim

    @property
    def sign(self) -> Any:
        return self.of.sign

    @property
    def inv(self) -> Transform:
        return self.of

    def _call(self, x: Any) -> Any:
        return self.of.inverse(x)

    def _inverse(self, y: Any) -> Any:
        return self.of(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -self.of.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return self.of.inverse_shape(shape)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return self.of.forward_shape(shape)


class AffineTransform(Transform):
    """loc + scale * x. As `torch.distributions.AffineTransform`.

    >>> import lazyt as lt
    >>> lt.distributions.AffineTransform(1.0, 2.0)(lt.asarray([0.0, 3.0])).tolist()
    [1.0, 7.0]
    """

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self.event_dim = loc, scale, event_dim

    @property
    def sign(self) -> Any:
        """The scale's sign."""
        return lt.sign(self.scale) if isinstance(self.scale, lt.Tensor) else math.copysign(1, self.scale)

    def _call(self, x: Any) -> Any:
        return self.loc + self.scale * x

    def _inverse(self, y: Any) -> Any:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """log(abs(scale))."""
        size = lt.log(lt.abs(lt.asarray(self.scale, dtype=x.dtype, device=x.device)))
        return sum_last(lt.broadcast_to(size, x.shape), self.event_dim)


class ExpTransform(Transform):
    """exp(x). As `torch.distributions.ExpTransform`."""

    codomain = constraints.positive

    def _call(self, x: Any) -> Any:
        return lt.exp(x)

    def _inverse(self, y: Any) -> Any:
        return lt.log(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """x."""
        return x


class PowerTransform(Transform):
    """x ** exponent, of positive numbers. As `torch.distributions.PowerTransform`."""

    codomain = constraints.positive

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = exponent

    @property
    def sign(self) -> Any:
        """The exponent's sign."""
        return lt.sign(self.exponent) if isinstance(self.exponent, lt.Tensor) else math.copysign(1, self.exponent)

    def _call(self, x: Any) -> Any:
        return x**self.exponent

    def _inverse(self, y: Any) -> Any:
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """log(abs(exponent * y / x))."""
        return lt.log(lt.abs(self.exponent * y / x))


class SigmoidTransform(Transform):
    """1 / (1 + exp(-x)). As `torch.distributions.SigmoidTransform`."""

    codomain = constraints.unit_interval

    def _call(self, x: Any) -> Any:
        info = lt.finfo(x.dtype)
        return lt.clip(lt.sigmoid(x), float(info.tiny), 1 - float(info.eps))

    def _inverse(self, y: Any) -> Any:
        info = lt.finfo(y.dtype)
        y = lt.clip(y, float(info.tiny), 1 - float(info.eps))
        return lt.log(y) - lt.log1p(-y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """-softplus(x) - softplus(-x)."""
        return -lt.softplus(-x) - lt.softplus(x)


class TanhTransform(Transform):
    """tanh(x). As `torch.distributions.TanhTransform`."""

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Any) -> Any:
        return lt.tanh(x)

    def _inverse(self, y: Any) -> Any:
        return lt.atanh(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """2 * (log(2) - x - softplus(-2 x))."""
        return 2 * (math.log(2) - x - lt.softplus(-2 * x))


class SoftplusTransform(Transform):
    """log(1 + exp(x)). As `torch.distributions.SoftplusTransform`."""

    codomain = constraints.positive

    def _call(self, x: Any) -> Any:
        return lt.softplus(x)

    def _inverse(self, y: Any) -> Any:
        return lt.log(-lt.expm1(-y)) + y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """-softplus(-x)."""
        return -lt.softplus(-x)


class AbsTransform(Transform):
    """abs(x), which no one value comes back from. As `torch.distributions.AbsTransform`."""

    bijective = False
    codomain = constraints.nonnegative
    sign = NoSign()

    def _call(self, x: Any) -> Any:
        return lt.abs(x)

    def _inverse(self, y: Any) -> Any:
        return y


class SoftmaxTransform(Transform):
    """exp(x), normalized over the last axis. As `torch.distributions.SoftmaxTransform`."""

    event_dim = 1
    bijective = False
    codomain = constraints.simplex
    sign = NoSign()

    def _call(self, x: Any) -> Any:
        return lt.softmax(x, axis=-1)

    def _inverse(self, y: Any) -> Any:
        return lt.log(y)


class StickBreakingTransform(Transform):
    """Vectors to shares of 1, one more of them. As `torch.distributions.StickBreakingTransform`."""

    event_dim = 1
    codomain = constraints.simplex
    sign = NoSign()

    def _offset(self, x: Any) -> Any:
        n = x.shape[-1]
        return lt.log(lt.asarray([float(n - k) for k in range(n)], dtype=x.dtype, device=x.device))

    def _call(self, x: Any) -> Any:
        z = lt.sigmoid(x - self._offset(x))
        left = lt.cumulative_prod(1 - z, axis=-1)
        one = lt.ones((*x.shape[:-1], 1), dtype=x.dtype, device=x.device)
        return lt.concat([z, one], axis=-1) * lt.concat([one, left], axis=-1)

    def _inverse(self, y: Any) -> Any:
        cut = y[..., :-1]
        left = lt.maximum(1 - lt.cumulative_sum(cut, axis=-1), float(lt.finfo(y.dtype).tiny))
        return lt.log(cut) - lt.log(left) + self._offset(cut)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The sum over the breaks."""
        x = x - self._offset(x)
        return lt.sum(-x + lt.log_softmax(lt.stack([x, lt.zeros_like(x)]), axis=0)[0] + lt.log(y[..., :-1]), axis=-1)

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """One more along the last axis."""
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """One less along the last axis."""
        return (*shape[:-1], shape[-1] - 1)


class ComposeTransform(Transform):
    """One transform after the other. As `torch.distributions.ComposeTransform`.

    >>> import lazyt as lt
    >>> from lazyt.distributions import AffineTransform, ComposeTransform, ExpTransform
    >>> ComposeTransform([AffineTransform(0.0, 2.0), ExpTransform()])(lt.asarray(0.0)).item()
    1.0
    """

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = list(parts)
        self.event_dim = self._out = 0
        for t in self.parts:
            self._out = max(self._out + t.out_dim - t.event_dim, t.out_dim)
        for t in reversed(self.parts):
            self.event_dim = max(self.event_dim + t.event_dim - t.out_dim, t.event_dim)
        self.bijective = all(t.bijective for t in self.parts)
        if self.parts:
            self.codomain = self.parts[-1].codomain

    @property
    def out_dim(self) -> int:
        """That of the parts."""
        return self._out

    @property
    def sign(self) -> Any:
        """The product of the signs."""
        return math.prod(t.sign for t in self.parts)

    def _call(self, x: Any) -> Any:
        for t in self.parts:
            x = t(x)
        return x

    def _inverse(self, y: Any) -> Any:
        for t in reversed(self.parts):
            y = t.inverse(y)
        return y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The sum over the parts."""
        total: Any = sum_last(lt.zeros_like(x), self.event_dim)
        dims = self.event_dim
        for t in self.parts:
            then = t(x)
            total = total + sum_last(t.log_abs_det_jacobian(x, then), dims - t.event_dim)
            dims += t.out_dim - t.event_dim
            x = then
        return total

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The last part's."""
        for t in self.parts:
            shape = t.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The first part's."""
        for t in reversed(self.parts):
            shape = t.inverse_shape(shape)
        return shape


class IndependentTransform(Transform):
    """A transform whose further axes are one value. As `torch.distributions.IndependentTransform`."""

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        if reinterpreted_batch_ndims < 0:
            raise DistributionError(
                f"IndependentTransform: reinterpreted_batch_ndims is at least 0, got {reinterpreted_batch_ndims}"
            )
        self.base_transform, self.reinterpreted_batch_ndims = base_transform, reinterpreted_batch_ndims
        self.event_dim = base_transform.event_dim + reinterpreted_batch_ndims
        self.bijective = base_transform.bijective
        self.codomain = constraints.independent(base_transform.codomain, reinterpreted_batch_ndims)

    @property
    def out_dim(self) -> int:
        """The base's and the further ones."""
        return self.base_transform.out_dim + self.reinterpreted_batch_ndims

    @property
    def sign(self) -> Any:
        """The base's."""
        return self.base_transform.sign

    def _call(self, x: Any) -> Any:
        return self.base_transform(x)

    def _inverse(self, y: Any) -> Any:
        return self.base_transform.inverse(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The sum over the further axes."""
        return sum_last(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The base's."""
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The base's."""
        return self.base_transform.inverse_shape(shape)
