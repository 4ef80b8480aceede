"""`gradcheck`, `gradgradcheck`: recorded derivatives against finite differences."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lazyt.errors import AutogradError, LazytWarning
from lazyt.functions.conversion import asarray
from lazyt.functions.creation import zeros_like
from lazyt.functions.gradients.calls import grad
from lazyt.ir import dtypes
from lazyt.tracing.inplace import requires_grad
from lazyt.tracing.tensor_state import Handle


class GradcheckError(AutogradError):
    """A derivative differs from finite differences."""


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    fast_mode: bool = False,
) -> bool:
    """Compare the gradients of `func(*inputs)` by each input that requires grad with central differences.

    As `torch.autograd.gradcheck`: complex inputs and results count as pairs of numbers; inputs should be float64 or
    complex128 (a warning otherwise). `fast_mode` compares one random direction in place of whole Jacobians. Gradients
    are computed twice and must differ by at most `nondet_tol`. Raises GradcheckError with both Jacobians where they
    differ, or returns False if not `raise_exception`.

    >>> import lazyt as lt
    >>> x = lt.tensor([0.3, -0.7], dtype=lt.float64, requires_grad=True)
    >>> lt.autograd.gradcheck(lambda v: lt.sin(v) * v, (x,))
    True
    """
    args = [inputs] if isinstance(inputs, Handle) else list(inputs)
    try:
        _check(func, args, "gradcheck", eps, atol, rtol, nondet_tol, fast_mode)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    fast_mode: bool = False,
) -> bool:
    """Compare the gradients of gradients of `func(*inputs)` with central differences; see `gradcheck`.

    As `torch.autograd.gradgradcheck`: `grad_outputs` are the cotangents of the results, random if not given, and are
    differentiated by as well.

    >>> import lazyt as lt
    >>> x = lt.tensor([0.3, -0.7], dtype=lt.float64, requires_grad=True)
    >>> lt.autograd.gradgradcheck(lambda v: lt.sin(v) * v, (x,))
    True
    """
    args = [inputs] if isinstance(inputs, Handle) else list(inputs)
    outs = _outputs(func, args)
    if grad_outputs is None:
        rng = np.random.default_rng(0)
        grad_outputs = [_random(rng, y).requires_grad_() for y in outs]
    cts = [grad_outputs] if isinstance(grad_outputs, Handle) else list(grad_outputs)
    n = len(args)

    def gradients(*both: Any) -> tuple[Any, ...]:
        xs = both[:n]
        asked: list[Any] = [x for x in xs if isinstance(x, Handle) and requires_grad(x)]
        made = grad(_outputs(func, xs), asked, list(both[n:]), create_graph=True, allow_unused=True)
        return tuple(zeros_like(x) if d is None else d for x, d in zip(asked, made, strict=True))

    try:
        _check(gradients, [*args, *cts], "gradgradcheck", eps, atol, rtol, nondet_tol, fast_mode)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _outputs(func: Callable[..., Any], args: Sequence[Any]) -> list[Any]:
    """The differentiable results."""
    made = func(*args)
    outs = list(made) if isinstance(made, tuple | list) else [made]
    return [y for y in outs if isinstance(y, Handle) and requires_grad(y)]


def _random(rng: np.random.Generator, like: Any) -> Any:
    a = rng.uniform(-1, 1, like.shape)
    if dtypes.kind(like.dtype) == "c":
        a = a + 1j * rng.uniform(-1, 1, like.shape)
    return asarray(a, dtype=like.dtype, device=like.device)


def _inner(a: Any, b: Any) -> float:
    """The real inner product, for which cotangents are gradients."""
    return float(np.real(np.sum(np.conj(a) * b)))


def _check(
    func: Callable[..., Any], args: list[Any], name: str, eps: float, atol: float, rtol: float, nondet: float,
    fast: bool,
) -> None:  # fmt: skip
    places = [i for i, x in enumerate(args) if isinstance(x, Handle) and requires_grad(x)]
    if not places:
        raise ValueError(f"{name} expects at least one input tensor to require gradient, but none of the them have "
                         "requires_grad=True.")  # fmt: skip
    for i in places:
        if args[i].dtype not in (np.float64, np.complex128):
            warnings.warn(
                f"{name}: input {i} requires gradient and is {args[i].dtype}, not float64 or complex128: finite "
                "differences are not exact enough, so it will likely fail",
                LazytWarning,
                stacklevel=3,
            )
    outs = _outputs(func, args)
    if not outs:
        raise GradcheckError(f"{name}: no output of the function requires grad")
    xs = [args[i] for i in places]
    values = [x.detach().numpy() for x in xs]
    for k, y in enumerate(outs):
        probe = _Probe(func, args, places, values, k, eps)
        numeric = probe.along if fast else probe.jacobian
        for v in _directions(y, fast):
            ct = asarray(v, dtype=y.dtype, device=y.device)
            found, again = (
                [np.zeros_like(a) if d is None else d.detach().numpy() for a, d in zip(values, made, strict=True)]
                for made in (grad(y, xs, ct, retain_graph=True, allow_unused=True) for _ in range(2))
            )
            for j, (a, b) in enumerate(zip(found, again, strict=True)):
                if np.abs(a - b).max(initial=0.0) > nondet:
                    raise GradcheckError(f"{name}: the gradient of output {k} by input {places[j]} is not reentrant: "
                                         f"the same one twice differs by {np.abs(a - b).max()}")  # fmt: skip
                want, got = numeric(v, j, a)
                if not np.allclose(got, want, rtol, atol):
                    raise GradcheckError(
                        f"{name}: Jacobian mismatch for output {k} with respect to input {places[j]},\nnumerical:{want}"
                        f"\nanalytical:{got}"
                    )


def _directions(y: Any, fast: bool) -> Any:
    """Cotangents of one result: one a number in it, or a random one."""
    if fast:
        yield _random(np.random.default_rng(1), y).numpy()
        return
    units = [1.0, 1.0j] if dtypes.kind(y.dtype) == "c" else [1.0]
    for i in np.ndindex(y.shape):
        for unit in units:
            v = np.zeros(y.shape, y.dtype)
            v[i] = unit
            yield v


class _Probe:
    """Central differences of one result of a function."""

    def __init__(
        self, func: Callable[..., Any], args: list[Any], places: list[int], values: list[Any], k: int, eps: float
    ) -> None:
        self.func, self.args, self.places, self.values, self.k, self.eps = func, args, places, values, k, eps
        self.columns: dict[int, list[tuple[Any, Any, Any]]] = {}

    def at(self, j: int, step: Any) -> Any:
        """The result where input j is moved."""
        args = list(self.args)
        x = args[self.places[j]]
        args[self.places[j]] = asarray(self.values[j] + step, dtype=x.dtype, device=x.device).requires_grad_()
        return _outputs(self.func, args)[self.k].detach().numpy()

    def slope(self, j: int, step: Any) -> Any:
        """The derivative of the result along a change of input j."""
        return (self.at(j, self.eps * step) - self.at(j, -self.eps * step)) / (2 * self.eps)

    def jacobian(self, v: Any, j: int, gradient: Any) -> tuple[Any, Any]:
        """What the gradient by input j should be, and what it is."""
        if j not in self.columns:
            x = self.values[j]
            units = [1.0, 1.0j] if np.iscomplexobj(x) else [1.0]
            self.columns[j] = []
            for i in np.ndindex(x.shape):
                for unit in units:
                    step = np.zeros_like(x)
                    step[i] = unit
                    self.columns[j].append((i, unit, self.slope(j, step)))
        want = np.zeros_like(gradient)
        for i, unit, slope in self.columns[j]:
            want[i] += unit * _inner(v, slope)
        return want, gradient

    def along(self, v: Any, j: int, gradient: Any) -> tuple[Any, Any]:
        """The same along one random direction."""
        rng = np.random.default_rng(2)
        step = rng.uniform(-1, 1, gradient.shape).astype(gradient.dtype)
        if np.iscomplexobj(gradient):
            step = step + 1j * rng.uniform(-1, 1, gradient.shape)
        return _inner(v, self.slope(j, step)), _inner(gradient, step)


__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]
