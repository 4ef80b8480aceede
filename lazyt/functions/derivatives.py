"""Derivatives of functions of tensors, forward and of higher order: `jvp`, Jacobians, Hessians. Nothing runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from lazyt.autograd import engine
from lazyt.autograd.functional import flatten, tensors_of, unflatten, value_and_grad, vjp_of
from lazyt.autograd.jvp import Linear, close, primal
from lazyt.errors import AutogradError, DTypeError, ShapeError
from lazyt.functions.creation import eye
from lazyt.functions.manipulation import astype, reshape
from lazyt.functions.vectorize import _as_tensors, vmap
from lazyt.ir import dtypes
from lazyt.tracing.current import restore_grad_mode, set_grad_mode
from lazyt.tracing.record import begin, is_grad_enabled, slot_of
from lazyt.tracing.refusals import check_function
from lazyt.tracing.tensor_state import Handle
from lazyt.tracing.tracebacks import api_boundary

__all__ = ["hessian", "hvp", "jacfwd", "jacrev", "jvp", "linearize"]


class _At:
    """`f` at some values of its arguments: its result, and how tangents of the values are pushed through it."""

    def __init__(
        self, name: str, f: Callable[..., Any], primals: Sequence[Any], has_aux: bool, real: bool = False
    ) -> None:
        check_function(name, f)
        self.name = name
        primals = _as_tensors(tuple(primals), name)
        self.leaves: list[Handle] = []
        self.tree = flatten(primals, self.leaves)
        check_floating(name, self.leaves)
        if real:
            _check_real(name, self.leaves, "arguments")
        self.grad = is_grad_enabled()
        before = set_grad_mode(True)
        try:
            tracked = [engine.track(x) for x in self.leaves]
            inputs = [primal(x) for x in tracked]
            tr = begin()
            given, number = [slot_of(tr, x) for x in inputs], tr.number
            out = f(*unflatten(self.tree, inputs))
        finally:
            restore_grad_mode(before)
        self.aux = None
        if has_aux:
            out, self.aux = _pair(name, out)
        outs: list[Handle] = []
        self.shape = flatten(_as_tensors(out, name), outs)
        self.linear = Linear(outs, tracked, given, number)

    def value(self) -> Any:
        """The result."""
        return unflatten(self.shape, self.linear.values())

    def push(self, tangents: Sequence[Any]) -> Any:
        """Its tangent, for these of the arguments."""
        ts = _tangents(self.name, self.leaves, _as_tensors(tuple(tangents), self.name))
        return unflatten(self.shape, self.linear.push(ts, self.grad))


def _pair(name: str, out: Any) -> tuple[Any, Any]:
    if not isinstance(out, tuple) or len(out) != 2:
        raise AutogradError(f"{name}: with has_aux the function must return a pair, not {type(out).__name__!r}")
    return out


def check_floating(name: str, leaves: Sequence[Handle]) -> None:
    """DTypeError unless all may be differentiated by; AutogradError if there is none."""
    if not leaves:
        raise AutogradError(f"{name}: the arguments to differentiate by hold no tensor")
    for x in leaves:
        if dtypes.kind(x.dtype) not in "fc":
            raise DTypeError(f"{name}: a floating or complex tensor is required, not {x.dtype}")


def _tangents(name: str, leaves: Sequence[Handle], tangents: Any) -> list[Handle]:
    ts = tensors_of(tangents)
    if len(ts) != len(leaves):
        raise AutogradError(
            f"{name}: {len(leaves)} tangents are required, one a tensor of the arguments, got {len(ts)}"
        )
    for i, (x, t) in enumerate(zip(leaves, ts, strict=True)):
        if x.shape != t.shape:
            raise ShapeError(f"{name}: tangent {i} has shape {t.shape}, the argument has {x.shape}")
        if x.dtype != t.dtype and dtypes.kind(t.dtype) == "c" != dtypes.kind(x.dtype):
            raise DTypeError(f"{name}: tangent {i} is {t.dtype}, the argument is {x.dtype}")
    return [t if t.dtype == x.dtype else astype(t, x.dtype) for x, t in zip(leaves, ts, strict=True)]


def jvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """f(*primals) and its derivative along `tangents`: (value, tangent), by forward mode.

    `primals` is a tuple of arguments (tensors, or nests of them), `tangents` one of the same structure and shapes; the
    second result has the structure of the first. With `has_aux`, f returns a pair (value, anything), and a third result
    is that anything. One pass, whatever f returns: where it has few arguments and many results this is the mode to use.

    Raises ShapeError or AutogradError if tangents do not fit. As `jax.jvp` and `torch.func.jvp`.

    >>> import lazyt as lt
    >>> y, t = lt.jvp(lambda x: x**3, (lt.asarray(2.0),), (lt.asarray(1.0),))
    >>> y.item(), t.item()
    (8.0, 12.0)
    """
    at = _At("jvp", f, primals, has_aux)
    value, tangent = at.value(), at.push(tangents)
    at.linear.close()
    return (value, tangent, at.aux) if has_aux else (value, tangent)


def linearize(f: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """f(*primals), and the function that pushes tangents of the primals forward; f is called once.

    As `jax.linearize` and `torch.func.linearize`.

    >>> import lazyt as lt
    >>> y, push = lt.linearize(lambda x: x * x, lt.asarray([1.0, 2.0]))
    >>> push(lt.asarray([1.0, 0.0])).tolist(), push(lt.asarray([0.0, 1.0])).tolist()
    ([2.0, 0.0], [0.0, 4.0])
    """
    at = _At("linearize", f, primals, False)

    @api_boundary
    def push(*tangents: Any) -> Any:
        return at.push(tangents)

    return at.value(), push


def _selected(name: str, argnums: int | Sequence[int], args: Sequence[Any]) -> list[int]:
    numbers = [argnums] if isinstance(argnums, int) else [*argnums]
    for n in numbers:
        if not -len(args) <= n < len(args):
            raise AutogradError(f"{name}: argnums {n} is out of range for {len(args)} positional arguments")
    return [n % len(args) for n in numbers]


def _of_selected(f: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], at: Sequence[int]) -> Any:
    """f as a function of some of its arguments."""

    def some(*values: Any) -> Any:
        call = list(args)
        for n, v in zip(at, values, strict=True):
            call[n] = v
        return f(*call, **kwargs)

    return some


def _check_real(name: str, leaves: Sequence[Handle], what: str) -> None:
    for x in leaves:
        if dtypes.kind(x.dtype) != "f":
            raise DTypeError(f"{name}: {what} must be real floating tensors, not {x.dtype}; for others use jvp or vjp")


def _basis(leaves: Sequence[Any]) -> list[Any]:
    """All unit tangents of some tensors together: an axis of all their elements comes first."""
    total = sum(x.size for x in leaves)
    found, start = [], 0
    for x in leaves:
        ones = eye(total, x.size, k=-start, dtype=x.dtype)
        found.append(reshape(ones, (total, *x.shape)))
        start += x.size
    return found


def _parts(y: Any, leaves: Sequence[Any]) -> list[Any]:
    """(..., all elements of the leaves) -> one (..., *shape) a leaf."""
    found, start, shape = [], 0, y.shape[:-1]
    for x in leaves:
        found.append(reshape(y[..., start : start + x.size], (*shape, *x.shape)))
        start += x.size
    return found


def jacfwd(f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives the Jacobian of f by the arguments at `argnums`, by forward mode: one pass for all columns.

    For a result of shape R and an argument of shape A it has shape (*R, *A); for nests the result's structure, with the
    argument's in place of each tensor (and a tuple of them where `argnums` is one). The mode for few inputs and many
    outputs; `jacrev` is that for the opposite. As `jax.jacfwd` and `torch.func.jacfwd`.

    >>> import lazyt as lt
    >>> lt.jacfwd(lambda x: x * x)(lt.asarray([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    check_function("jacfwd", f)

    @wraps(f)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        numbers = _selected("jacfwd", argnums, args)
        given = [args[n] for n in numbers]
        at = _At("jacfwd", _of_selected(f, args, kwargs, numbers), given, has_aux, real=True)
        basis = unflatten(at.tree, _basis(at.leaves))
        columns = vmap(lambda *ts: at.push(ts), out_axes=-1)(*basis)
        at.linear.close()
        outs: list[Handle] = []
        tree = flatten(columns, outs)

        def by_argument(y: Any) -> Any:
            found = unflatten(at.tree, _parts(y, at.leaves))
            return found[0] if isinstance(argnums, int) else found

        result = unflatten(tree, [by_argument(y) for y in outs])
        return (result, at.aux) if has_aux else result

    return api_boundary(jacobian, "jacfwd")


def jacrev(f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives the Jacobian of f by the arguments at `argnums`, by reverse mode: one pass for all rows.

    Shapes and structure are those of `jacfwd`. As `jax.jacrev` and `torch.func.jacrev`.

    >>> import lazyt as lt
    >>> lt.jacrev(lambda x: (x * x).sum())(lt.asarray([1.0, 2.0])).tolist()
    [2.0, 4.0]
    """
    check_function("jacrev", f)

    @wraps(f)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        numbers = _selected("jacrev", argnums, args)
        some, kept = _of_selected(f, args, kwargs, numbers), []

        def value(*xs: Any) -> Any:
            out = some(*xs)
            if has_aux:
                out, aux = _pair("jacrev", out)
                kept.append(aux)
            return _as_tensors(out, "jacrev")

        given = _as_tensors(tuple(args[n] for n in numbers), "jacrev")
        leaves = tensors_of(given)
        check_floating("jacrev", leaves)
        _check_real("jacrev", leaves, "arguments")
        out, pull, records = vjp_of(value, given)
        outs: list[Any] = []
        tree = flatten(out, outs)
        _check_real("jacrev", outs, "results")
        rows = vmap(pull)(unflatten(tree, _basis(outs)))
        close(records)

        def by_argument(start: int, y: Any) -> Any:
            mine = [r[start : start + y.size].reshape((*y.shape, *r.shape[1:])) for r in tensors_of(rows)]
            found = unflatten(flatten(rows, []), mine)
            return found[0] if isinstance(argnums, int) else found

        results, start = [], 0
        for y in outs:
            results.append(by_argument(start, y))
            start += y.size
        result = unflatten(tree, results)
        return (result, kept[0]) if has_aux else result

    return api_boundary(jacobian, "jacrev")


def hessian(f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives the second derivatives of f by the arguments at `argnums`, forward over reverse mode.

    For a result of shape R and an argument of shape A it has shape (*R, *A, *A). As `jax.hessian` and
    `torch.func.hessian`.

    >>> import lazyt as lt
    >>> lt.hessian(lambda x: x[0] * x[1] ** 2)(lt.asarray([1.0, 3.0])).tolist()
    [[0.0, 6.0], [6.0, 2.0]]
    """
    check_function("hessian", f)
    return jacfwd(jacrev(f, argnums, has_aux), argnums, has_aux)


def hvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """f(*primals), a scalar, and its Hessian times `tangents`: forward over reverse mode, at the cost of few gradients.

    `primals` is a tuple of arguments, `tangents` one of the same structure and shapes, and so is the second result.
    As `torch.autograd.functional.hvp`; in JAX `jvp(grad(f), primals, tangents)[1]`.

    >>> import lazyt as lt
    >>> y, (h,) = lt.hvp(lambda x: (x**3).sum(), (lt.asarray([1.0, 2.0]),), (lt.asarray([1.0, 1.0]),))
    >>> y.item(), h.tolist()
    (9.0, [6.0, 12.0])
    """
    (value, _), (_, product) = jvp(value_and_grad(f, tuple(range(len(primals)))), primals, tangents)
    return value, product
