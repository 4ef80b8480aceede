"""Transforms of parts of a value, of its shape, and by a distribution. As `torch.distributions.transforms`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import lazyt as lt
from lazyt.distributions import constraints
from lazyt.distributions.base import Distribution, sum_last
from lazyt.distributions.transforms import ComposeTransform, NoSign, Transform
from lazyt.errors import DistributionError, ShapeError

identity_transform = ComposeTransform([])


class ReshapeTransform(Transform):
    """The last axes in another shape. As `torch.distributions.ReshapeTransform`.

    >>> import lazyt as lt
    >>> lt.distributions.ReshapeTransform((4,), (2, 2))(lt.zeros((3, 4))).shape
    (3, 2, 2)
    """

    sign = NoSign()

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ShapeError(f"ReshapeTransform: {self.in_shape} and {self.out_shape} have different sizes")
        self.event_dim, self._out = len(self.in_shape), len(self.out_shape)
        self.codomain = constraints.independent(constraints.real, self._out)

    @property
    def out_dim(self) -> int:
        """That of out_shape."""
        return self._out

    def _exchanged(self, shape: tuple[int, ...], old: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...]:
        at = len(shape) - len(old)
        if at < 0 or shape[at:] != old:
            raise ShapeError(f"ReshapeTransform: a value's last dimensions are {old}, got shape {shape}")
        return (*shape[:at], *new)

    def _call(self, x: Any) -> Any:
        return lt.reshape(x, self.forward_shape(x.shape))

    def _inverse(self, y: Any) -> Any:
        return lt.reshape(y, self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """0."""
        return lt.zeros(x.shape[: x.ndim - self.event_dim], dtype=x.dtype, device=x.device)

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """out_shape in in_shape's place."""
        return self._exchanged(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """in_shape in out_shape's place."""
        return self._exchanged(shape, self.out_shape, self.in_shape)


class _Parts(Transform):
    """Several transforms, each of its slice along an axis."""

    sign = NoSign()

    def __init__(self, tseq: Sequence[Transform], dim: int, lengths: Sequence[int], cache_size: int) -> None:
        super().__init__(cache_size)
        name = type(self).__name__
        if not tseq or not all(isinstance(t, Transform) for t in tseq):
            raise DistributionError(f"{name}: transforms are required, got {[type(t).__name__ for t in tseq]}")
        if len(lengths) != len(tseq):
            raise DistributionError(f"{name}: {len(lengths)} lengths for {len(tseq)} transforms")
        self.transforms, self.dim, self.lengths = list(tseq), dim, list(lengths)
        self.bijective = all(t.bijective for t in self.transforms)

    def _slices(self, x: Any) -> list[Any]:
        whole = sum(self.lengths)
        if not -x.ndim <= self.dim < x.ndim or x.shape[self.dim] != whole:
            raise ShapeError(f"{type(self).__name__}: {whole} along axis {self.dim} are required, got shape {x.shape}")
        at = [sum(self.lengths[: k + 1]) for k in range(len(self.lengths) - 1)]
        return lt.array_split(x, at, axis=self.dim)  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.transforms}, {self.dim})"


class CatTransform(_Parts):
    """Transforms of slices of some lengths along an axis. As `torch.distributions.CatTransform`.

    >>> import lazyt as lt
    >>> from lazyt.distributions import CatTransform, ExpTransform, identity_transform
    >>> CatTransform([ExpTransform(), identity_transform], lengths=[1, 2])(lt.asarray([0.0, 3.0, 4.0])).tolist()
    [1.0, 3.0, 4.0]
    """

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0
    ) -> None:
        super().__init__(tseq, dim, [1] * len(tseq) if lengths is None else lengths, cache_size)
        self.event_dim = max(t.event_dim for t in self.transforms)

    def _call(self, x: Any) -> Any:
        return lt.concat([t._call(s) for t, s in zip(self.transforms, self._slices(x), strict=True)], axis=self.dim)

    def _inverse(self, y: Any) -> Any:
        return lt.concat([t._inverse(s) for t, s in zip(self.transforms, self._slices(y), strict=True)], axis=self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The parts', side by side, or their sum where the axis is one of a value's."""
        found = [
            sum_last(t.log_abs_det_jacobian(a, b), self.event_dim - t.event_dim)
            for t, a, b in zip(self.transforms, self._slices(x), self._slices(y), strict=True)
        ]
        axis = (self.dim if self.dim < 0 else self.dim - x.ndim) + self.event_dim
        return lt.concat(found, axis=axis) if axis < 0 else sum(found)


class StackTransform(_Parts):
    """A transform for each index of an axis. As `torch.distributions.StackTransform`.

    >>> import lazyt as lt
    >>> from lazyt.distributions import ExpTransform, StackTransform, identity_transform
    >>> StackTransform([ExpTransform(), identity_transform])(lt.asarray([0.0, 3.0])).tolist()
    [1.0, 3.0]
    """

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(tseq, dim, [1] * len(tseq), cache_size)

    def _each(self, *values: Any) -> list[tuple[Any, ...]]:
        parts = [[lt.squeeze(s, axis=self.dim) for s in self._slices(x)] for x in values]
        return list(zip(self.transforms, *parts, strict=True))

    def _call(self, x: Any) -> Any:
        return lt.stack([t._call(s) for t, s in self._each(x)], axis=self.dim)

    def _inverse(self, y: Any) -> Any:
        return lt.stack([t._inverse(s) for t, s in self._each(y)], axis=self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The parts'."""
        return lt.stack([t.log_abs_det_jacobian(a, b) for t, a, b in self._each(x, y)], axis=self.dim)


class CumulativeDistributionTransform(Transform):
    """A distribution's cdf. As `torch.distributions.CumulativeDistributionTransform`.

    >>> import lazyt as lt
    >>> from lazyt.distributions import CumulativeDistributionTransform, Normal
    >>> CumulativeDistributionTransform(Normal(0.0, 1.0))(lt.asarray(0.0)).item()
    0.5
    """

    codomain = constraints.unit_interval

    def __init__(self, distribution: Distribution, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    def _call(self, x: Any) -> Any:
        return self.distribution.cdf(x)

    def _inverse(self, y: Any) -> Any:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The density's logarithm."""
        return self.distribution.log_prob(x)
