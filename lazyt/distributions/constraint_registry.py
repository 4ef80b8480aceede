"""Transforms from all real numbers to where parameters lie. As `torch.distributions.constraint_registry`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from lazyt.distributions import constraints as c
from lazyt.distributions.composed_transforms import identity_transform
from lazyt.distributions.constraints import Constraint
from lazyt.distributions.matrix_transforms import (
    CorrCholeskyTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
)
from lazyt.distributions.transforms import (
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    IndependentTransform,
    SigmoidTransform,
    SoftmaxTransform,
    StickBreakingTransform,
    Transform,
)
from lazyt.errors import DistributionError, NotSupportedError

Factory = Callable[[Constraint], Transform]


class ConstraintRegistry:
    """Call it with a constraint: the transform of real numbers to it. `register` adds one, for a kind of constraints.

    >>> import lazyt as lt
    >>> scale = lt.distributions.transform_to(lt.distributions.Normal.arg_constraints["scale"])
    >>> scale(lt.asarray(0.0)).item()
    1.0
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._factories: dict[str, Factory] = {}

    def register(self, constraint: Constraint, factory: Factory | None = None) -> Any:
        """Use a function of the constraint for all of its kind; without a function, a decorator."""
        if factory is None:
            return lambda f: self.register(constraint, f)
        if not isinstance(constraint, Constraint):
            raise DistributionError(f"{self._name}.register: a constraint is required, got {constraint!r}")
        self._factories[constraint.kind] = factory
        return factory

    def __call__(self, constraint: Constraint) -> Transform:
        if not isinstance(constraint, Constraint):
            raise DistributionError(f"{self._name}: a constraint is required, got {constraint!r}")
        if constraint.kind not in self._factories:
            raise NotSupportedError(f"{self._name}: not supported: a transform to {constraint}, as none is registered")
        return self._factories[constraint.kind](constraint)


biject_to, transform_to = ConstraintRegistry("biject_to"), ConstraintRegistry("transform_to")


def _above(constraint: Constraint) -> Transform:
    return ComposeTransform([ExpTransform(), AffineTransform(constraint.arguments[0], 1.0)])


def _below(constraint: Constraint) -> Transform:
    return ComposeTransform([ExpTransform(), AffineTransform(constraint.arguments[0], -1.0)])


def _between(constraint: Constraint) -> Transform:
    low, high = constraint.arguments
    return ComposeTransform([SigmoidTransform(), AffineTransform(low, high - low)])


def _independent(registry: ConstraintRegistry, constraint: Constraint) -> Transform:
    base, more = constraint.arguments
    return IndependentTransform(registry(base), more)


for _registry in (biject_to, transform_to):
    _registry.register(c.real, lambda constraint: identity_transform)
    for _of in (c.positive, c.nonnegative):
        _registry.register(_of, lambda constraint: ExpTransform())
    for _of in (c.greater_than(0), c.greater_than_eq(0)):
        _registry.register(_of, _above)
    _registry.register(c.less_than(0), _below)
    _registry.register(c.unit_interval, lambda constraint: SigmoidTransform())
    for _of in (c.interval(0, 1), c.half_open_interval(0, 1)):
        _registry.register(_of, _between)
    _registry.register(c.corr_cholesky, lambda constraint: CorrCholeskyTransform())
    _registry.register(c.independent(c.real, 1), partial(_independent, _registry))
    _registry.register(c.real_vector, lambda constraint: IndependentTransform(identity_transform, 1))
biject_to.register(c.simplex, lambda constraint: StickBreakingTransform())
transform_to.register(c.simplex, lambda constraint: SoftmaxTransform())
transform_to.register(c.lower_cholesky, lambda constraint: LowerCholeskyTransform())
transform_to.register(c.positive_definite, lambda constraint: PositiveDefiniteTransform())
