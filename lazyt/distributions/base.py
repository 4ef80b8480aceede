"""The base of distributions: shapes, arguments, what is checked, and what is refused."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ClassVar

import numpy as np

import lazyt as lt
from lazyt.distributions.constraints import Constraint
from lazyt.errors import DistributionError, DTypeError, NotSupportedError, ShapeError
from lazyt.runtime.host_views import array_of

Shape = tuple[int, ...]


def is_tensor(x: Any) -> bool:
    return isinstance(x, lt.Tensor)


def device_of(*given: Any) -> Any:
    """The device of the first tensor among parameters, where numbers and arrays go; None without one."""
    return next((x.device for x in given if is_tensor(x)), None)


def broadcast(owner: Any, *given: Any, event_dims: tuple[int, ...] | None = None) -> tuple[list[Any], Shape]:
    """Parameters as tensors of one floating dtype, and their common batch shape; `event_dims` axes are kept apart."""
    name = type(owner).__name__
    dims = event_dims or (0,) * len(given)
    place = device_of(*given)
    made = [x if isinstance(x, bool | int | float) or is_tensor(x) else _array(name, x, place) for x in given]
    strong = [x for x in made if is_tensor(x)]
    dtype = lt.result_type(*strong) if strong else lt.float32
    if lt.isdtype(dtype, "complex floating"):
        raise DTypeError(f"{name}: real parameters are required, got {dtype}")
    if not lt.isdtype(dtype, "real floating"):
        dtype = lt.float32
    place = device_of(*made)
    tensors = [x.to(dtype=dtype) if is_tensor(x) else lt.asarray(x, dtype=dtype, device=place) for x in made]
    for x, d in zip(tensors, dims, strict=True):
        if x.ndim < d:
            raise ShapeError(f"{name}: a parameter of at least {d} dimensions is required, got shape {x.shape}")
    heads = [x.shape[: x.ndim - d] for x, d in zip(tensors, dims, strict=True)]
    batch = _common(heads, f"{name}: parameters of shapes {' and '.join(str(x.shape) for x in tensors)}")
    shapes = [(*batch, *x.shape[x.ndim - d :]) for x, d in zip(tensors, dims, strict=True)]
    return [x if x.shape == s else lt.broadcast_to(x, s) for x, s in zip(tensors, shapes, strict=True)], batch


def _array(name: str, x: Any, device: Any) -> Any:
    try:
        return lt.asarray(x, device=device)
    except DTypeError as e:
        raise DTypeError(f"{name}: a parameter is a number, an array or a tensor, got {x!r}") from e


def _common(shapes: Sequence[Shape], what: str) -> Shape:
    try:
        return lt.broadcast_shapes(*shapes)
    except ShapeError as e:
        raise ShapeError(f"{what} do not broadcast") from e


def _extents(name: str, what: str, given: Any) -> Shape:
    """A shape that a user gave: one integer or several."""
    try:
        return tuple(operator.index(n) for n in (given if hasattr(given, "__iter__") else (given,)))
    except TypeError:
        raise DTypeError(f"{name}: {what} is a tuple of integers, got {given!r}") from None


def sum_last(x: Any, n: int) -> Any:
    """The sum over the last n axes."""
    return lt.sum(x, axis=tuple(range(x.ndim - n, x.ndim))) if n else x


def _beside_value(method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A method of a value: numbers are where that is."""

    @wraps(method)
    def placed(self: Any, value: Any) -> Any:
        return method(self._on(value.device) if is_tensor(value) else self, value)

    return placed


class Distribution:
    """Base of the distributions. As `torch.distributions.Distribution`.

    `batch_shape` are distributions with parameters of their own, `event_shape` is one value. `sample` gives values
    without a graph, `rsample` values whose gradients reach the parameters; both record, and nothing is computed.
    `log_prob`, `entropy`, `cdf` and `icdf` record formulas.

    `validate_args`: by default parameters, and values for `log_prob` and `cdf`, are checked where that reads no tensor:
    numbers, lists and NumPy arrays. With True tensors are checked too, which syncs them; with False nothing is. What is
    outside its constraint raises DistributionError, a ValueError, at the line that gives it; shapes and dtypes are
    always checked. `set_default_validate_args` says what holds where it is not given.

    >>> import lazyt as lt
    >>> try:
    ...     lt.distributions.Normal([0.0, 0.0], [1.0, -1.0])
    ... except ValueError as e:
    ...     print(e)
    Normal: scale must be positive, got -1.0 at index (1,)
    """

    has_rsample = False
    has_enumerate_support = False
    arg_constraints: ClassVar[dict[str, Constraint]] = {}
    _validate_all: ClassVar[bool | None] = None
    # What it was made of, if no tensor was among that.
    _plain: dict[str, Any] | None = None
    # The parameters that `support` reads.
    _support_reads: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        batch_shape: Shape = (),
        event_shape: Shape = (),
        validate_args: bool | None = None,
        given: dict[str, Any] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.batch_shape, self.event_shape = tuple(batch_shape), tuple(event_shape)
        self._validate = Distribution._validate_all if validate_args is None else validate_args
        # Parameters by name, as this distribution was made; `expand` makes another one of them.
        self._given = {k: getattr(self, k) for k, v in (given or {}).items() if v is not None}
        self._options = options or {}
        if given and not any(map(is_tensor, given.values())):
            self._plain = {k: v for k, v in given.items() if v is not None}
        # Those that were given as numbers or arrays: they are known without a sync.
        self._known = {k: np.asarray(v) for k, v in (given or {}).items() if v is not None and not is_tensor(v)}
        for name, value in (given or {}).items():
            if value is not None:
                self._check(name, self.arg_constraints[name], value)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in {"log_prob", "cdf", "icdf"} & vars(cls).keys():
            setattr(cls, name, _beside_value(vars(cls)[name]))

    @staticmethod
    def set_default_validate_args(value: bool | None) -> None:
        """What `validate_args` is where it is not given: None, True or False, as the class says."""
        Distribution._validate_all = value

    def _check(self, name: str, constraint: Constraint, value: Any) -> None:
        if self._validate is False or (is_tensor(value) and not self._validate):
            return
        inside = constraint.check(value)
        if not inside.all():
            x = np.asarray(value.detach() if is_tensor(value) else value)
            at = tuple(int(i) for i in np.argwhere(~inside)[0])
            where = f" at index {at}" if at else ""
            raise DistributionError(f"{type(self).__name__}: {name} must be {constraint.name}, got {x[at]}{where}")

    def _on_host(self, name: str) -> Any:
        """A parameter as it was given, or, of a tensor, read."""
        return self._known[name] if name in self._known else getattr(self, name).detach().numpy()

    def _knows_support(self) -> bool:
        """Whether `support` reads no tensor."""
        return all(name in self._known for name in self._support_reads)

    def _value(self, value: Any) -> Any:
        """A value that log_prob and cdf get, as a tensor; checked as `validate_args` says."""
        if self._validate or (self._validate is None and not is_tensor(value) and self._knows_support()):
            self._check("a value", self.support, value)
        x = value if is_tensor(value) else lt.asarray(value, dtype=self._dtype, device=self._device)
        n = len(self.event_shape)
        if n and x.shape[x.ndim - n :] != self.event_shape:
            raise ShapeError(
                f"{type(self).__name__}: a value's last dimensions are {self.event_shape}, got shape {x.shape}"
            )
        what = f"{type(self).__name__}: a value of shape {x.shape} and the batch shape {self.batch_shape}"
        _common([x.shape[: x.ndim - n], self.batch_shape], what)
        return x

    def _probability(self, value: Any) -> Any:
        """What icdf gets, as a tensor: one of float64 stays that."""
        return value if is_tensor(value) else lt.asarray(value, dtype=self._dtype, device=self._device)

    @property
    def _dtype(self) -> Any:
        return next((x.dtype for x in self._given.values() if is_tensor(x)), lt.float32)

    @property
    def _device(self) -> Any:
        """Where values are drawn: None is the default device."""
        return device_of(*self._given.values())

    def _on(self, device: Any) -> Any:
        """This distribution on another device, where it is used with tensors of that and was made of numbers alone."""
        if self._plain is None or self._device in (None, device):
            return self
        made: Any = type(self)
        with lt.device(device):
            return made(**self._plain, **self._options, validate_args=self._validate)

    def _extended_shape(self, sample_shape: Any = ()) -> Shape:
        return (*_extents(type(self).__name__, "sample_shape", sample_shape), *self.batch_shape, *self.event_shape)

    def _random(self, shape: Shape) -> Any:
        """Numbers in [0, 1)."""
        return lt.random.random(shape, dtype=self._dtype, device=self._device)

    def _uniform(self, shape: Shape) -> Any:
        """Numbers in (0, 1). They are multiples of a step; 0 becomes half of it, so that tails end where those end."""
        return lt.maximum(self._random(shape), float(lt.finfo(self._dtype).eps) / 4)

    def _normal(self, shape: Shape) -> Any:
        return lt.random.standard_normal(shape, dtype=self._dtype, device=self._device)

    @property
    def support(self) -> Constraint:
        """Where values lie."""
        raise self._none("support")

    @property
    def mean(self) -> Any:
        """The mean, of batch_shape + event_shape."""
        raise self._none("mean")

    @property
    def mode(self) -> Any:
        """The likeliest value."""
        raise self._none("mode")

    @property
    def variance(self) -> Any:
        """The variance, of batch_shape + event_shape."""
        raise self._none("variance")

    @property
    def stddev(self) -> Any:
        """The root of the variance."""
        return lt.sqrt(self.variance)

    def sample(self, sample_shape: Any = ()) -> Any:
        """Values of shape sample_shape + batch_shape + event_shape, without gradients."""
        with lt.no_grad():
            x = self._draw(sample_shape)
        # NOTE: a transform knows the tensor that it gave, so that its inverse loses no digits.
        return x.detach() if x.requires_grad else x

    def _draw(self, sample_shape: Any) -> Any:
        return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Any:
        """Values whose gradients reach the parameters; NotSupportedError where there is no such form."""
        raise NotSupportedError(
            f"{type(self).__name__}.rsample: not supported: values are not a differentiable function of the "
            "parameters; use sample and log_prob"
        )

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density or probability of values, one a batch element."""
        raise self._none("log_prob")

    def cdf(self, value: Any) -> Any:
        """The probability of at most `value`."""
        raise self._none("cdf", "it has no closed form here")

    def icdf(self, value: Any) -> Any:
        """The value at which `cdf` is `value`."""
        raise self._none("icdf", "it has no closed form here")

    def entropy(self) -> Any:
        """The entropy in nats, of batch_shape."""
        raise self._none("entropy", "it has no closed form here")

    def perplexity(self) -> Any:
        """exp(entropy)."""
        return lt.exp(self.entropy())

    def enumerate_support(self, expand: bool = True) -> Any:
        """All values of a discrete distribution, along a new first axis."""
        raise self._none("enumerate_support", "its values are not finitely many, or not listed here")

    def _none(self, what: str, why: str = "this distribution has none") -> NotSupportedError:
        return NotSupportedError(f"{type(self).__name__}.{what}: not supported: {why}")

    def expand(self, batch_shape: Any) -> Any:
        """The same distribution for a larger batch shape."""
        shape = _extents(f"{type(self).__name__}.expand", "batch_shape", batch_shape)
        grown: dict[str, Any] = {}
        for name, x in self._given.items():
            event = x.shape[len(self.batch_shape) :] if is_tensor(x) else ()
            grown[name] = lt.broadcast_to(x, (*shape, *event)) if is_tensor(x) else x
        made: Any = type(self)
        return made(**grown, **self._options, validate_args=self._validate)

    def __repr__(self) -> str:
        parts = [f"{k}: {self._shown(k, x) if is_tensor(x) else x}" for k, x in self._given.items()]
        return f"{type(self).__name__}({', '.join(parts)})"

    def _shown(self, name: str, x: Any) -> str:
        """A parameter of one element where that is known without computing, else its shape."""
        known = self._known[name] if name in self._known else array_of(x)
        if known is None or x.size != 1:
            return str(tuple(x.shape))
        return str(np.reshape(known, x.shape).astype(x.dtype))


HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def one_of(owner: str, **given: Any) -> tuple[str, Any]:
    """The one of several ways to give a parameter that was used."""
    used = {k: v for k, v in given.items() if v is not None}
    if len(used) != 1:
        raise DistributionError(f"{owner}: one of {' and '.join(given)} is required, got {sorted(used) or 'none'}")
    return next(iter(used.items()))
