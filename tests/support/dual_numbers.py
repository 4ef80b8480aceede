"""Derivatives by dual numbers over NumPy: the meaning of small differentiable programs, in a few rules.

A `Dual` is a value and its tangent, each an array or a `Dual` of a level further out, so derivatives nest: `gradient`
and `pushforward` may be called inside each other. All values have two axes. The directions of level `d` lie along an
axis of their own in front of these two, so that NumPy's broadcasting does the rest.

Rules that a plain derivative has not: `scaled` is a value whose cotangent is scaled (a hook), `stopped` one that has no
derivative, `custom` one whose derivative is another function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Number = Any  # an array or a Dual
LEVELS = 5  # derivatives of derivatives that there may be


class Dual:
    """A value and its tangent; `reverse` where the level is that of a gradient."""

    __array_ufunc__ = None

    def __init__(self, primal: Number, tangent: Number, level: int, reverse: bool) -> None:
        self.primal = primal
        self.tangent = tangent
        self.level = level
        self.reverse = reverse

    @property
    def shape(self) -> tuple[int, ...]:
        return self.primal.shape[-2:]

    def map(self, f: Callable[[Array], Array]) -> Dual:
        """A linear function of the last two axes, of every part."""
        return Dual(mapped(self.primal, f), mapped(self.tangent, f), self.level, self.reverse)

    def elementwise(self, value: Callable[[Number], Number], slope: Callable[[Number, Number], Number]) -> Dual:
        """A function of each element; `slope(x, y)` is its derivative."""
        y = value(self.primal)
        return Dual(y, slope(self.primal, y) * self.tangent, self.level, self.reverse)

    def _with(self, other: Number) -> tuple[Number, Number, Number, Number]:
        """The primals and tangents of both at this level; a tangent of None is zero."""
        if isinstance(other, Dual) and other.level == self.level:
            return self.primal, self.tangent, other.primal, other.tangent
        return self.primal, self.tangent, other, None

    def _linear(self, p: Number, t: Number) -> Dual:
        return Dual(p, t, self.level, self.reverse)

    def __add__(self, other: Number) -> Number:
        if _further_in(other, self):
            return other + self
        a, da, b, db = self._with(other)
        return self._linear(a + b, da + b * 0 if db is None else da + db)

    def __mul__(self, other: Number) -> Number:
        if _further_in(other, self):
            return other * self
        a, da, b, db = self._with(other)
        return self._linear(a * b, da * b if db is None else da * b + a * db)

    def __matmul__(self, other: Number) -> Number:
        if _further_in(other, self):
            return other.__rmatmul__(self)
        a, da, b, db = self._with(other)
        return self._linear(a @ b, da @ b if db is None else da @ b + a @ db)

    def __rmatmul__(self, other: Number) -> Number:
        return self._linear(other @ self.primal, other @ self.tangent)

    def __neg__(self) -> Number:
        return self * -1.0

    def __sub__(self, other: Number) -> Number:
        return self + other * -1.0

    def __rsub__(self, other: Number) -> Number:
        return self * -1.0 + other

    def __truediv__(self, other: Number) -> Number:
        return self * reciprocal(other)

    def __rtruediv__(self, other: Number) -> Number:
        return reciprocal(self) * other

    __radd__, __rmul__ = __add__, __mul__


def _further_in(other: Number, x: Dual) -> bool:
    return isinstance(other, Dual) and other.level > x.level


def mapped(x: Number, f: Callable[[Array], Array]) -> Number:
    """A linear function of the last two axes."""
    return x.map(f) if isinstance(x, Dual) else f(np.asarray(x, np.float64))


def reciprocal(x: Number) -> Number:
    return x.elementwise(reciprocal, lambda _, y: y * y * -1.0) if isinstance(x, Dual) else 1.0 / x


def tanh(x: Number) -> Number:
    return x.elementwise(tanh, lambda _, y: 1.0 - y * y) if isinstance(x, Dual) else np.tanh(x)


def exp(x: Number) -> Number:
    return x.elementwise(exp, lambda _, y: y) if isinstance(x, Dual) else np.exp(x)


def total(x: Number, axis: int | None = None) -> Number:
    """The sum along an axis, or of all; the axes stay, of extent 1."""
    axes: Any = (-2, -1) if axis is None else axis
    return mapped(x, lambda a: np.sum(a, axis=axes, keepdims=True))


def part(x: Number, *key: Any) -> Number:
    """An index of the last two axes that keeps both."""
    both = (*key, *[slice(None)] * (2 - len(key)))
    return mapped(x, lambda a: a[(..., *both)])


def reshaped(x: Number, shape: tuple[int, int]) -> Number:
    return mapped(x, lambda a: a.reshape(*a.shape[:-2], *shape))


def transposed(x: Number) -> Number:
    return mapped(x, lambda a: np.swapaxes(a, -1, -2))


def padded(x: Number, before: int, after: int, axis: int) -> Number:
    """Zeros before and after along one of the last two axes: a joined value is a sum of such."""

    def pad(a: Array) -> Array:
        widths = [(0, 0)] * a.ndim
        widths[axis] = before, after
        return np.pad(a, widths)

    return mapped(x, pad)


def joined(xs: Sequence[Number], axis: int) -> Number:
    sizes = [x.shape[-2:][axis] for x in xs]
    out: Number = 0.0
    for k, x in enumerate(xs):
        out = padded(x, sum(sizes[:k]), sum(sizes[k + 1 :]), axis) + out
    return out


def stopped(x: Number) -> Array:
    """The value alone."""
    while isinstance(x, Dual):
        x = x.primal
    return np.asarray(x)


def scaled(x: Number, by: float) -> Number:
    """The same value; its cotangent is scaled, its tangent in forward mode is not."""
    if not isinstance(x, Dual):
        return x
    return Dual(scaled(x.primal, by), x.tangent * by if x.reverse else x.tangent, x.level, x.reverse)


def custom(x: Number, value: Callable[[Number], Number], slope: Callable[[Number], Number]) -> Number:
    """A function of each element whose derivative is said."""
    if not isinstance(x, Dual):
        return value(x)
    return Dual(custom(x.primal, value, slope), slope(x.primal) * x.tangent, x.level, x.reverse)


def gradient(f: Callable[[Number], Number], x: Number, level: int) -> Number:
    """The gradient of `f`, whose result is one number, at `x`. `level` says how many derivatives there are around."""
    r, c = x.shape[-2:]
    directions = np.eye(r * c).reshape(r * c, *[1] * (LEVELS - 1 - level), r, c)
    y = f(Dual(x, directions, level, reverse=True))
    t = y.tangent if isinstance(y, Dual) and y.level == level else x * 0.0

    def turned(a: Array) -> Array:
        # The directions of this level are the elements of the gradient.
        a = np.broadcast_to(a, (*a.shape[: -(LEVELS + 2 - level)], r * c, *[1] * (LEVELS + 1 - level)))
        return a.reshape(*a.shape[: -(LEVELS + 2 - level)], *[1] * (LEVELS - level), r, c)

    def wide(a: Array) -> Array:
        return a.reshape(*[1] * max(LEVELS + 2 - level - a.ndim, 0), *a.shape)

    return _each(t, lambda a: turned(wide(a)))


def _each(x: Number, f: Callable[[Array], Array]) -> Number:
    if isinstance(x, Dual):
        return Dual(_each(x.primal, f), _each(x.tangent, f), x.level, x.reverse)
    return f(np.asarray(x))


def pushforward(f: Callable[[Number], Number], x: Number, t: Array, level: int) -> tuple[Number, Number]:
    """`f(x)` and its derivative along `t`, as forward mode has them."""
    y = f(Dual(x, t, level, reverse=False))
    if isinstance(y, Dual) and y.level == level:
        return y.primal, y.tangent
    return y, stopped(y) * 0.0


def gradients(f: Callable[[list[Number]], Number], xs: Sequence[Array]) -> tuple[float, list[Array]]:
    """The value of `f`, one number, and its gradients by each of the arrays."""
    n = sum(x.size for x in xs)
    seeded, at = [], 0
    for x in xs:
        t = np.zeros((n, x.size))
        t[at : at + x.size] = np.eye(x.size)
        seeded.append(Dual(x, t.reshape(n, *[1] * (LEVELS - 1), *x.shape), 0, reverse=True))
        at += x.size
    y = f(seeded)
    value = float(stopped(y).ravel()[0])
    if not isinstance(y, Dual):
        return value, [np.zeros(x.shape) for x in xs]
    flat = np.broadcast_to(y.tangent, (n, *[1] * (LEVELS + 1))).reshape(n)
    parts = np.split(flat, np.cumsum([x.size for x in xs])[:-1])
    return value, [p.reshape(x.shape) for p, x in zip(parts, xs, strict=True)]
