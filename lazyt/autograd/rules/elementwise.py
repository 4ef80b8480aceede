"""Derivatives of the elementwise primitives and of the `complex_<name>` library calls.

Where a function has a kink the choice is PyTorch's: abs'(0) = 0, ties of maximum and minimum share equally,
x ** 0 has derivative 0, and 0 ** y has derivative 0 in y for y >= 0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from lazyt.autograd.rules.formula import Value, carries, is_complex, working, zeros
from lazyt.autograd.rules.registry import library_vjp, nondifferentiable, vjp
from lazyt.ir import graph as g
from lazyt.ops.special import polygamma

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.autograd.rules.formula import OpaqueRule, Rule
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node

    Cotangents = tuple[Node | None, ...]

# f'(x), of the operand x and the result y; for real and complex values alike.
UNARY: dict[str, Callable[[Value, Value], Value]] = {
    "sqrt": lambda x, y: 0.5 / y,
    "rsqrt": lambda x, y: -0.5 * (y * y * y),
    "exp": lambda x, y: y,
    "exp2": lambda x, y: y * math.log(2),
    "expm1": lambda x, y: y + 1,
    "log": lambda x, y: 1 / x,
    "log2": lambda x, y: 1 / (x * math.log(2)),
    "log10": lambda x, y: 1 / (x * math.log(10)),
    "log1p": lambda x, y: 1 / (x + 1),
    "sin": lambda x, y: x.cos(),
    "cos": lambda x, y: -x.sin(),
    "tan": lambda x, y: 1 + y * y,
    "asin": lambda x, y: 1 / (1 - x * x).sqrt(),
    "acos": lambda x, y: -1 / (1 - x * x).sqrt(),
    "atan": lambda x, y: 1 / (1 + x * x),
    "sinh": lambda x, y: x.cosh(),
    "cosh": lambda x, y: x.sinh(),
    "tanh": lambda x, y: 1 - y * y,
    "asinh": lambda x, y: 1 / (1 + x * x).sqrt(),
    "acosh": lambda x, y: 1 / ((x - 1).sqrt() * (x + 1).sqrt()),
    "atanh": lambda x, y: 1 / (1 - x * x),
    "erf": lambda x, y: 2 / math.sqrt(math.pi) * (-(x * x)).exp(),
    "erfc": lambda x, y: -2 / math.sqrt(math.pi) * (-(x * x)).exp(),
    "erfinv": lambda x, y: math.sqrt(math.pi) / 2 * (y * y).exp(),
    "lgamma": lambda x, y: x.digamma(),
    "digamma": lambda x, y: Value(x.b, polygamma(x.b, x.node, 1)),
}

# f'(x) of complex values where UNARY's root of x is on another branch than y, on a cut or beside it. PyTorch and JAX
# take that root: their slope has the wrong sign at asin(3 + 0j).
COMPLEX: dict[str, Callable[[Value, Value], Value]] = {
    "asin": lambda x, y: 1 / y.cos(),
    "acos": lambda x, y: -1 / y.sin(),
    "asinh": lambda x, y: 1 / y.cosh(),
    "acosh": lambda x, y: 1 / y.sinh(),
}


def _power(x: Value, y: Value, z: Value) -> tuple[Value, Value]:
    """x ** y. Arguments are made harmless before they are masked: so no NaN comes up at order two."""
    flat = y.eq(0)
    by_x = (y * x.apply("pow", x, y.where(flat.not_(), 1) - 1)).where(flat.not_(), 0)
    at_zero = x.eq(0)
    if not is_complex(y.node):
        at_zero = at_zero.and_(y.ge(0))
    return by_x, (z * x.where(at_zero.not_(), 1).log()).where(at_zero.not_(), 0)


def _square_sum(x: Value, y: Value) -> Value:
    """x**2 + y**2, or 1 where both are 0: an angle has no slope there, which is taken as 0."""
    total = x * x + y * y
    return x.full(1).where(total.eq(0), total)


def _nonzero(z: Value) -> Value:
    """z, or 1 where it is 0: a length has no slope there, which is taken as 0."""
    return z.full(1).where(z.eq(0), z)


def _shares(x: Value, y: Value, z: Value) -> tuple[Value, Value]:
    """exp(x - z) and exp(y - z), whose sum is 1, by one exponential and without z; with the derivatives of these."""
    apart = x - y
    near = (-apart.abs()).exp()
    large = 1 / (near + 1)
    small, first = near * large, apart.ge(0)
    return _known((x - z).exp(), large.where(first, small)), _known((y - z).exp(), small.where(first, large))


def _known(differentiated: Value, x: Value) -> Value:
    """The value of x with the derivative of another expression of it."""
    return Value(x.b, x.b.known(differentiated.node, x.b.stop(x.node)), x.library)


# (df/dx, df/dy), of the operands x, y and the result z.
BINARY: dict[str, Callable[[Value, Value, Value], tuple[Value, Value | None]]] = {
    "div": lambda x, y, z: (1 / y, -z / y),
    "pow": _power,
    "rem": lambda x, y, z: (x * 0 + 1, -x.floordiv(y)),
    "fmod": lambda x, y, z: (x * 0 + 1, -(x / y).trunc()),
    "atan2": lambda x, y, z: (y / _square_sum(x, y), -x / _square_sum(x, y)),
    "hypot": lambda x, y, z: (x / _nonzero(z), y / _nonzero(z)),
    "logaddexp": _shares,
    "copysign": lambda x, y, z: (x.sign() * x.full(1).copysign(y), None),
}


def _unary(name: str) -> Rule:
    def rule(b: Builder, n: Node, ct: Node) -> Cotangents:
        x, y, c = working(b, n.operands[0], n, ct)
        return ((c * UNARY[name](x, y).conj()).node,)

    return rule


def _binary(name: str) -> Rule:
    def rule(b: Builder, n: Node, ct: Node) -> Cotangents:
        if name == "pow" and (known := _constant_power(b, n, ct)) is not None:
            return known
        x, y, z, c = working(b, *n.operands, n, ct)
        return tuple(None if d is None else (c * d.conj()).node for d in BINARY[name](x, y, z))

    return rule


def _constant_power(b: Builder, n: Node, ct: Node) -> Cotangents | None:
    slope = constant_slope(b, n)
    if slope is None:
        return None
    return ((working(b, ct)[0] * slope.conj()).node if slope else None, None)


def constant_slope(b: Builder, n: Node) -> Value | Literal[0] | None:
    """That of x ** k for a k written in the program: no masks, and no power at all for squares; None for other k."""
    exponent = n.operands[1]
    while exponent.op in ("expand", "reshape"):
        exponent = exponent.operands[0]
    if not isinstance(exponent.attrs, g.Constant):
        return None
    k = exponent.attrs.value
    if k == 0:
        return 0
    (x,) = working(b, n.operands[0])
    return x * k if k == 2 else x.apply("pow", x, k - 1) * k


# Rules that are not a product with a derivative


@vjp("add")
def _add(b: Builder, n: Node, ct: Node) -> Cotangents:
    return (ct, ct)


@vjp("sub")
def _sub(b: Builder, n: Node, ct: Node) -> Cotangents:
    return (ct, b.neg(ct))


@vjp("mul")
def _mul(b: Builder, n: Node, ct: Node) -> Cotangents:
    x, y = (Value(b, o).conj() for o in n.operands)
    return (b.mul(ct, y.node), b.mul(ct, x.node))


@vjp("neg")
def _neg(b: Builder, n: Node, ct: Node) -> Cotangents:
    return (b.neg(ct),)


@vjp("abs")
def _abs(b: Builder, n: Node, ct: Node) -> Cotangents:
    x = n.operands[0]
    return (b.mul(b.cast(ct, x.dtype), b.sign(x)),)


@vjp("sign")
def _sign(b: Builder, n: Node, ct: Node) -> Cotangents:
    """z / |z| turns with z: what is left of the cotangent across sign(z), over |z|. Real signs are flat."""
    if not is_complex(n):
        return (None,)
    z, s, c = Value(b, n.operands[0]), Value(b, n), Value(b, ct)
    at_zero = z.eq(0)
    size = z.where(at_zero.not_(), 1).abs().cast(n.dtype)
    along = (c * s.conj()).real().cast(n.dtype)
    return (((c - s * along) / size).where(at_zero.not_(), 0).node,)


def _extremum(loses: str) -> Rule:
    """maximum and minimum: `x loses y` says where x is not the result. NaN passes to both, as in PyTorch."""

    def rule(b: Builder, n: Node, ct: Node) -> Cotangents:
        x, y = n.operands
        c = Value(b, ct)
        shared = (c * 0.5).where(b.eq(x, y), c)
        nothing = zeros(b, n.shape, ct.dtype)
        return tuple(b.select(b.elementwise(loses, *pair), nothing, shared.node) for pair in ((x, y), (y, x)))

    return rule


@vjp("select")
def _select(b: Builder, n: Node, ct: Node) -> Cotangents:
    nothing = zeros(b, n.shape, ct.dtype)
    condition = n.operands[0]
    return (None, b.select(condition, ct, nothing), b.select(condition, nothing, ct))


@vjp("cast")
def _cast(b: Builder, n: Node, ct: Node) -> Cotangents:
    x = n.operands[0]
    return (b.cast(ct, x.dtype) if carries(x) else None,)


@vjp("complex")
def _complex(b: Builder, n: Node, ct: Node) -> Cotangents:
    return (b.real(ct), b.imag(ct))


@vjp("real")
def _real(b: Builder, n: Node, ct: Node) -> Cotangents:
    return (b.complex(ct, zeros(b, n.shape, ct.dtype)),)


@vjp("imag")
def _imag(b: Builder, n: Node, ct: Node) -> Cotangents:
    return (b.complex(zeros(b, n.shape, ct.dtype), ct),)


@vjp("conj")
def _conj(b: Builder, n: Node, ct: Node) -> Cotangents:
    return (b.conj(ct),)


vjp("maximum")(_extremum("lt"))
vjp("minimum")(_extremum("gt"))
for _name in UNARY:
    vjp(_name)(_unary(_name))
for _name in BINARY:
    vjp(_name)(_binary(_name))

_FLAT = "piecewise constant: its derivative is 0 wherever it has one"
_DISCRETE = "its result is not a number that varies with its operands"
_BITS = "defined on integers and booleans only"

nondifferentiable(_FLAT, "floordiv", "floor", "ceil", "trunc", "round")
nondifferentiable(_DISCRETE, "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "signbit")
nondifferentiable(_BITS, "and", "or", "xor", "not", "shl", "shr")
nondifferentiable("a step of one unit in the last place has no useful derivative", "nextafter")
nondifferentiable("random numbers depend on a seed and a position", "random_bits")


# The complex functions of the library


def _library(name: str) -> OpaqueRule:
    def rule(b: Builder, n: Node, cts: tuple[Node | None, ...]) -> Cotangents:
        assert cts[0] is not None
        c = Value(b, cts[0])
        return tuple((c * d.conj()).node for d in library_slopes(b, n, name))

    return rule


def library_slopes(b: Builder, n: Node, name: str) -> tuple[Value, ...]:
    """The derivative of a call `complex_<name>` by each operand."""
    assert isinstance(n.attrs, g.Opaque)
    xs = [Value(b, o, library=True) for o in n.operands]
    y = Value(b, b.opaque(n.attrs.fn, n.operands, (), n.attrs.outputs)[0], library=True)
    return _power(xs[0], xs[1], y) if name == "pow" else ((COMPLEX.get(name) or UNARY[name])(xs[0], y),)


for _name in (
    *("exp", "expm1", "log", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sqrt", "pow"),
):
    library_vjp(f"complex_{_name}")(_library(_name))
