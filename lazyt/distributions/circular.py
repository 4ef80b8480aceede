"""Distributions of angles."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import lazyt as lt
from lazyt.distributions import constraints
from lazyt.distributions.base import Distribution, broadcast
from lazyt.distributions.constraints import Constraint

# Abramowitz, Stegun 9.8.1 to 9.8.4: I0 and I1, of small and of large arguments.
_SMALL = (
    (1.0, 3.5156229, 3.0899424, 1.2067492, 0.2659732, 0.360768e-1, 0.45813e-2),
    (0.5, 0.87890594, 0.51498869, 0.15084934, 0.2658733e-1, 0.301532e-2, 0.32411e-3),
)
_LARGE = (
    (0.39894228, 0.1328592e-1, 0.225319e-2, -0.157565e-2, 0.916281e-2, -0.2057706e-1, 0.2635537e-1, -0.1647633e-1,
     0.392377e-2),
    (0.39894228, -0.3988024e-1, -0.362018e-2, 0.163801e-2, -0.1031555e-1, 0.2282967e-1, -0.2895312e-1, 0.1787654e-1,
     -0.420059e-2),
)  # fmt: skip
# Of so many proposals, each of which is taken with a probability of at least 0.65, none is in one case of 10**14.
_PROPOSALS = 32


def _polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    total: Any = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = c + x * total
    return total


def _log_bessel(x: Any, order: int) -> Any:
    """The logarithm of the modified Bessel function of a positive argument, to 7 digits, as PyTorch's."""
    is_small = x < 3.75
    # NOTE: neither form may overflow where the other holds, which would spoil the gradient.
    near, far = lt.minimum(x, 3.75), lt.maximum(x, 3.75)
    small = lt.log(_polynomial((near / 3.75) ** 2, _SMALL[order]) * (near if order else 1.0))
    large = far - 0.5 * lt.log(far) + lt.log(_polynomial(3.75 / far, _LARGE[order]))
    return lt.where(is_small, small, large)


class VonMises(Distribution):
    """The normal distribution's like on the circle. As `torch.distributions.VonMises`.

    `mean` and `variance` are the circular ones, samples are from -pi to pi. A sample is the first of 32 proposals that
    is accepted (Best, Fisher 1979), all drawn at once, so that nothing syncs.

    >>> import lazyt as lt
    >>> d = lt.distributions.VonMises(0.0, 2.0)
    >>> round(d.log_prob(0.5).item(), 4), d.sample((3,)).shape
    (-0.9067, (3,))
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real, "concentration": constraints.positive,
    }  # fmt: skip
    support = constraints.real

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        (self.loc, self.concentration), batch = broadcast(self, loc, concentration)
        super().__init__(batch, (), validate_args, {"loc": loc, "concentration": concentration})

    def log_prob(self, value: Any) -> Any:
        """concentration * cos(value - loc) - log(2 pi I0(concentration))."""
        k = self.concentration
        return k * lt.cos(self._value(value) - self.loc) - math.log(2 * math.pi) - _log_bessel(k, 0)

    def _draw(self, sample_shape: Any) -> Any:
        shape = (_PROPOSALS, *self._extended_shape(sample_shape))
        # In float64: of small concentrations the proposals' parameter loses all digits in float32.
        k, loc = lt.astype(self.concentration, lt.float64), lt.astype(self.loc, lt.float64)
        tau = 1 + lt.sqrt(1 + 4 * k * k)
        rho = (tau - lt.sqrt(2 * tau)) / (2 * k)
        r = lt.where(k < 1e-5, 1 / k + k, (1 + rho * rho) / (2 * rho))
        z = lt.cos(math.pi * lt.random.random(shape, dtype=lt.float64, device=self._device))
        f = (1 + r * z) / (r + z)
        c = k * (r - f)
        u = 1 - lt.random.random(shape, dtype=lt.float64, device=self._device)
        accepted = lt.logical_or(c * (2 - c) > u, lt.log(c / u) + 1 - c >= 0)
        first = lt.argmax(lt.astype(accepted, lt.int8), axis=0, keepdims=True)
        chosen = lt.squeeze(lt.take_along_axis(lt.acos(lt.clip(f, -1.0, 1.0)), first, axis=0), 0)
        turn = lt.where(lt.random.random(shape[1:], device=self._device) < 0.5, -chosen, chosen)
        return lt.astype((turn + math.pi + loc) % (2 * math.pi) - math.pi, self._dtype)

    @property
    def mean(self) -> Any:
        """loc."""
        return self.loc

    @property
    def mode(self) -> Any:
        """loc."""
        return self.loc

    @property
    def variance(self) -> Any:
        """1 - I1(concentration) / I0(concentration)."""
        k = self.concentration
        return 1 - lt.exp(_log_bessel(k, 1) - _log_bessel(k, 0))
