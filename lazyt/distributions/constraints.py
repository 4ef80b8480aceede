"""Where parameters and values lie. As `torch.distributions.constraints`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Constraint(NamedTuple):
    """A set of values: `check(x)` is computed on the host, of an array; its last `event_dim` axes are one value."""

    name: str
    event_dim: int
    inside: Any
    # What it was made of, and by which function: `biject_to` and `transform_to` read these.
    arguments: tuple[Any, ...] = ()
    maker: str = ""

    @property
    def kind(self) -> str:
        """The name without its arguments."""
        return self.maker or self.name

    def check(self, x: Any) -> np.ndarray:
        """Whether each value lies in the set; reads x."""
        a = np.asarray(x.detach() if hasattr(x, "detach") else x)
        with np.errstate(invalid="ignore"):
            out: np.ndarray = np.asarray(self.inside(a))
        return out

    def __repr__(self) -> str:
        return self.name


def _integers(x: np.ndarray) -> Any:
    return x == np.floor(x)


real = Constraint("real", 0, lambda x: x == x)
real_vector = Constraint("real_vector", 1, lambda x: (x == x).all(-1))
positive = Constraint("positive", 0, lambda x: x > 0)
nonnegative = Constraint("nonnegative", 0, lambda x: x >= 0)
unit_interval = Constraint("unit_interval", 0, lambda x: (x >= 0) & (x <= 1))
positive_integer = Constraint("positive_integer", 0, lambda x: (x >= 1) & _integers(x))
boolean = Constraint("boolean", 0, lambda x: (x == 0) | (x == 1))
nonnegative_integer = Constraint("nonnegative_integer", 0, lambda x: (x >= 0) & _integers(x))
simplex = Constraint("simplex", 1, lambda x: (x >= 0).all(-1) & (np.abs(x.sum(-1) - 1) < 1e-6 * x.shape[-1]))
one_hot = Constraint("one_hot", 1, lambda x: ((x == 0) | (x == 1)).all(-1) & (x.sum(-1) == 1))
positive_definite = Constraint(
    "positive_definite",
    2,
    lambda x: np.isclose(x, np.swapaxes(x, -1, -2), atol=1e-6).all((-2, -1)) & (np.linalg.eigvalsh(x) > 0).all(-1),
)
lower_cholesky = Constraint(
    "lower_cholesky",
    2,
    lambda x: (np.tril(x) == x).all((-2, -1)) & (np.diagonal(x, axis1=-2, axis2=-1) > 0).all(-1),
)
corr_cholesky = Constraint(
    "corr_cholesky",
    2,
    lambda x: lower_cholesky.inside(x) & (np.abs((x * x).sum(-1) - 1) < 1e-5 * x.shape[-1]).all(-1),
)


def interval(low: Any, high: Any) -> Constraint:
    """Values from low to high."""
    a, b = (np.asarray(x) for x in (low, high))
    return Constraint(f"interval({a}, {b})", 0, lambda x: (x >= a) & (x <= b), (low, high), "interval")


def integer_interval(low: int, high: int) -> Constraint:
    """Integers from low to high."""
    return Constraint(f"integers from {low} to {high}", 0, lambda x: (x >= low) & (x <= high) & _integers(x))


def greater_than_eq(low: Any) -> Constraint:
    """Values of at least low."""
    a = np.asarray(low)
    return Constraint(f"greater_than_eq({a})", 0, lambda x: x >= a, (low,), "greater_than_eq")


def greater_than(low: Any) -> Constraint:
    """Values above low."""
    a = np.asarray(low)
    return Constraint(f"greater_than({a})", 0, lambda x: x > a, (low,), "greater_than")


def less_than(high: Any) -> Constraint:
    """Values below high."""
    a = np.asarray(high)
    return Constraint(f"less_than({a})", 0, lambda x: x < a, (high,), "less_than")


def half_open_interval(low: Any, high: Any) -> Constraint:
    """Values from low to below high."""
    a, b = (np.asarray(x) for x in (low, high))
    return Constraint(
        f"half_open_interval({a}, {b})", 0, lambda x: (x >= a) & (x < b), (low, high), "half_open_interval"
    )


def multinomial(total: int) -> Constraint:
    """Counts with a sum."""
    return Constraint(f"counts of sum {total}", 1, lambda x: ((x >= 0) & _integers(x)).all(-1) & (x.sum(-1) == total))


def independent(base: Constraint, more: int) -> Constraint:
    """All of the values along `more` axes."""
    axes = tuple(range(-more, 0))
    name = f"independent({base.name}, {more})"
    return Constraint(name, base.event_dim + more, lambda x: base.inside(x).all(axes), (base, more), "independent")
