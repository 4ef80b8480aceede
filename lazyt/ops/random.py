"""Random numbers: Philox4x32-10 of (seed, counter, index), so the same bits on every backend and in any schedule.

The seed and the counter are scalar operands: another seed or another step is the same program.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lazyt.errors import ShapeError
from lazyt.ir import dtypes
from lazyt.ir.symbolic import hint, product
from lazyt.ops.definition import Operand, define, node_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node, Shape

# Significant bits of each float: a uniform number has so many, and every multiple of 2 ** -bits is equally likely.
PRECISION = {d: dtypes.of(d).precision for d in dtypes.ALL if dtypes.kind(d) == "f"}


def bits_of(b: Builder, seed: Operand, counter: Operand, shape: Shape) -> Node:
    """64 random bits an element; element i in C order has index i."""
    n = product(shape)
    index = b.iota((n,), 0)
    u = dtypes.uint64
    words = b.elementwise("random_bits", node_of(b, seed, u), node_of(b, counter, u), index)
    return b.reshape(words, shape)


def _top(b: Builder, bits: Node, n: int, dtype: np.dtype) -> Node:
    """The top n bits as an integer."""
    return b.cast(b.shr(bits, b.constant(64 - n, dtypes.uint64)), dtype)


def uniform_bits(b: Builder, seed: Operand, counter: Operand, shape: Shape, dtype: np.dtype) -> Node:
    """Multiples of 2 ** -PRECISION in [0, 1), all equally likely."""
    n = PRECISION[dtype]
    # int32 where it suffices: its conversion to a float is one instruction everywhere.
    k = _top(b, bits_of(b, seed, counter, shape), n, dtypes.int32 if n <= 31 else dtypes.int64)
    work = dtypes.computed_in(dtype)
    return b.cast(b.mul(b.cast(k, work), b.constant(2.0**-n, work)), dtype)


def spread(b: Builder, x: Operand, shape: Shape, dtype: np.dtype) -> Node:
    """A parameter (a scalar or an array) in the shape of the result."""
    return b.expand_to(node_of(b, x, dtype), shape)


def uniform(
    b: Builder, seed: Operand, counter: Operand, low: Operand, span: Operand, dtype: np.dtype, *, ints: Shape
) -> Node:
    """low + u * span."""
    work = dtypes.computed_in(dtype)
    u = b.cast(uniform_bits(b, seed, counter, ints, dtype), work)
    return b.cast(b.add(b.mul(u, spread(b, span, ints, work)), spread(b, low, ints, work)), dtype)


UNIFORM = define("random.uniform", uniform)


def random(b: Builder, seed: Operand, counter: Operand, dtype: np.dtype, *, ints: Shape) -> Node:
    return uniform_bits(b, seed, counter, ints, dtype)


RANDOM = define("random.random", random)

# The normal distribution. Wichura: Algorithm AS 241, the percentage points of the normal distribution (1988).
# Numerators and denominators, constant terms first: the centre |q| <= 0.425 in 0.180625 - q * q, the tails in
# r - 1.6 where r = sqrt(-log(p)) <= 5, the far tails in r - 5.

SINGLE = (
    (
        (3.3871327179e0, 5.0434271938e1, 1.5929113202e2, 5.9109374720e1),
        (1.0, 1.7895169469e1, 7.8757757664e1, 6.7187563600e1),
    ),
    (
        (1.4234372777e0, 2.7568153900e0, 1.3067284816e0, 1.7023821103e-1),
        (1.0, 7.3700164250e-1, 1.2021132975e-1, 0.0),
    ),
)
DOUBLE = (
    (
        (
            3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
            4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3,
        ),
        (
            1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
            2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3,
        ),
    ),
    (
        (
            1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
            1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4,
        ),
        (
            1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
            1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9,
        ),
    ),
    (
        (
            6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
            2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7,
        ),
        (
            1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
            7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15,
        ),
    ),
)  # fmt: skip


def _horner(b: Builder, x: Node, coefficients: Sequence[Node]) -> Node:
    y = coefficients[-1]
    for c in coefficients[-2::-1]:
        y = b.add(b.mul(y, x), c)
    return y


def _minus_log(b: Builder, p: Node, shifts: Sequence[int], terms: int) -> Node:
    """-log(p) for 2 ** -(sum(shifts) + 1) <= p < 1, by correctly rounded operations alone.

    p = m * 2 ** -n is found by comparisons, and log(m) = 2 * atanh(s), s = (m - 1) / (m + 1), |s| <= 0.172.
    """
    d = p.dtype
    n = b.expand_to(b.constant(0, d), p.shape)
    for k in (*shifts, None):
        bound, step = (2.0**-k, k) if k else (math.sqrt(0.5), 1)
        small = b.lt(p, b.expand_to(b.constant(bound, d), p.shape))
        p = b.select(small, b.mul(p, b.constant(2.0**step, d)), p)
        n = b.select(small, b.add(n, b.constant(step, d)), n)
    one = b.constant(1, d)
    s = b.div(b.sub(p, one), b.add(p, one))
    series = _horner(b, b.mul(s, s), [b.constant(2 / (2 * k + 1), d) for k in range(terms)])
    return b.sub(b.mul(n, b.constant(math.log(2), d)), b.mul(s, series))


def _inverse_normal(b: Builder, q: Node, single: bool) -> Node:
    """x with P(X <= x) = q + 0.5, for |q| < 0.5; computed in float64.

    In exact arithmetic its relative error is below 1e-7 if `single`, else below 1e-16; rounding adds a few ulp.
    """
    d = q.dtype
    regions = SINGLE if single else DOUBLE

    def value(v: float) -> Node:
        return b.constant(v, d)

    size = b.abs(q)
    p = b.sub(value(0.5), size)
    # 31 bits give p >= 2 ** -32, where r is 4.71: the far tails do not occur.
    log = _minus_log(b, p, (16, 8, 4, 2, 1) if single else (32, 16, 8, 4, 2, 1), 5 if single else 10)
    r = b.sqrt(log)
    centre = b.le(size, value(0.425))
    x = b.select(centre, b.sub(value(0.180625), b.mul(q, q)), b.sub(r, value(1.6)))
    choose: Callable[..., Node]
    if single:

        def choose(c: float, tail: float) -> Node:
            return b.select(centre, value(c), value(tail))
    else:
        far = b.gt(r, value(5))
        x = b.select(far, b.sub(r, value(5)), x)

        def choose(c: float, tail: float, end: float) -> Node:
            return b.select(centre, value(c), b.select(far, value(end), value(tail)))

    tops, bottoms = zip(*regions, strict=True)
    top = _horner(b, x, [choose(*c) for c in zip(*tops, strict=True)])
    bottom = _horner(b, x, [value(1.0), *(choose(*c) for c in list(zip(*bottoms, strict=True))[1:])])
    y = b.div(top, bottom)
    return b.select(centre, b.mul(q, y), b.select(b.lt(q, value(0)), b.neg(y), y))


def normal_bits(b: Builder, seed: Operand, counter: Operand, shape: Shape, dtype: np.dtype) -> Node:
    """Standard normal numbers: from 52 bits for float64, else from 31 (so at most 6.3 from 0), rounded to `dtype`."""
    single = dtype != dtypes.float64
    n = 31 if single else 52
    bits = bits_of(b, seed, counter, shape)
    f = dtypes.float64
    k = b.cast(_top(b, bits, n, dtypes.int32 if single else dtypes.int64), f)
    # q = (k + 1/2) * 2 ** -n - 1/2, exactly.
    q = b.mul(b.add(k, b.constant(0.5 - 2.0 ** (n - 1), f)), b.constant(2.0**-n, f))
    return b.cast(_inverse_normal(b, q, single), dtype)


def standard_normal(b: Builder, seed: Operand, counter: Operand, dtype: np.dtype, *, ints: Shape) -> Node:
    return normal_bits(b, seed, counter, ints, dtype)


STANDARD_NORMAL = define("random.standard_normal", standard_normal)


def normal(
    b: Builder, seed: Operand, counter: Operand, loc: Operand, scale: Operand, dtype: np.dtype, *, ints: Shape
) -> Node:
    work = dtypes.computed_in(dtype)
    z = normal_bits(b, seed, counter, ints, work)
    return b.cast(b.add(b.mul(z, spread(b, scale, ints, work)), spread(b, loc, ints, work)), dtype)


NORMAL = define("random.normal", normal)


def bernoulli(b: Builder, seed: Operand, counter: Operand, p: Operand, *, ints: Shape) -> Node:
    """True with probability p, to 2 ** -53."""
    u = uniform_bits(b, seed, counter, ints, dtypes.float64)
    return b.lt(u, spread(b, p, ints, dtypes.float64))


BERNOULLI = define("random.bernoulli", bernoulli, differentiable=False)


def high_product(b: Builder, x: Node, y: Node) -> Node:
    """The upper 64 bits of the product of two uint64."""
    u = dtypes.uint64
    low, shift = b.constant(0xFFFFFFFF, u), b.constant(32, u)
    x0, x1 = b.and_(x, b.expand_to(low, x.shape)), b.shr(x, shift)
    y0, y1 = b.and_(y, b.expand_to(low, y.shape)), b.shr(y, shift)
    middle = b.add(b.mul(x1, y0), b.shr(b.mul(x0, y0), shift))
    other = b.add(b.mul(x0, y1), b.and_(middle, b.expand_to(low, middle.shape)))
    return b.add(b.add(b.mul(x1, y1), b.shr(middle, shift)), b.shr(other, shift))


def below(b: Builder, bits: Node, n: Operand) -> Node:
    """Integers in [0, n) from 64 bits by multiply and shift: their probabilities differ by less than n / 2 ** 64."""
    return high_product(b, bits, spread(b, n, bits.shape, dtypes.uint64))


def integers(b: Builder, seed: Operand, counter: Operand, low: Operand, *rest: Any, ints: Shape) -> Node:
    """Operands seed, counter, low, [how many]; static: the dtype. Without `how many`, all 2 ** 64 are there."""
    *number, dtype = rest
    work = dtypes.uint64 if dtype == dtypes.uint64 else dtypes.int64
    bits = bits_of(b, seed, counter, ints)
    k = b.cast(below(b, bits, number[0]) if number else bits, work)
    return b.cast(b.add(k, spread(b, low, ints, work)), dtype)


INTEGERS = define("random.integers", integers, differentiable=False)


def order(b: Builder, seed: Operand, counter: Operand, n: Any) -> Node:
    """A permutation of 0 .. n - 1: the order of 64-bit keys, equal ones by their index."""
    keys = bits_of(b, seed, counter, (n,))
    return b.opaque("argsort", (keys,), (0, False), [((n,), dtypes.int64)])[0]


def permutation(b: Builder, seed: Operand, counter: Operand, *, ints: Shape) -> Node:
    return order(b, seed, counter, ints[0])


def permuted(b: Builder, x: Node, seed: Operand, counter: Operand) -> Node:
    if not x.ndim:
        raise ShapeError("random.permutation: an array of at least one dimension is required, got a 0-d one")
    return b.gather(x, (order(b, seed, counter, x.shape[0]),), (0,))


PERMUTATION = define("random.permutation", permutation, differentiable=False)
PERMUTED = define("random.permuted", permuted)


def _chances(b: Builder, p: Node, n: Any) -> Node:
    if p.ndim != 1 or hint(p.shape[0]) != hint(n):
        raise ShapeError(f"random.choice: {hint(n)} probabilities are required, got shape {tuple(map(hint, p.shape))}")
    b.same(p.shape[0], n)
    return b.cast(p, dtypes.float64)


def choice(b: Builder, seed: Operand, counter: Operand, *rest: Any, ints: Shape) -> Node:
    """Operands seed, counter, [p]; statics: replace?; ints: how many to choose from, then the shape. Gives indices."""
    *chances, replace = rest
    n, *dims = ints
    shape = tuple(dims)
    if not replace and hint(product(shape)) > hint(n):
        raise ShapeError(f"random.choice: {hint(product(shape))} of {hint(n)} without replacement")
    if not chances:
        if replace:
            u = b.extent(n, dtypes.uint64)
            return b.cast(below(b, bits_of(b, seed, counter, shape), u), dtypes.int64)
        return _first(b, order(b, seed, counter, n), shape)
    p = _chances(b, chances[0], n)
    f = dtypes.float64
    if replace:
        (cumulated,) = b.opaque("cumsum", (p,), (0,), [(p.shape, f)])
        total = b.reshape(b.slice(cumulated, (n - 1,), (1,), (1,)), ())
        u = b.mul(uniform_bits(b, seed, counter, shape, f), total)
        (found,) = b.opaque("searchsorted", (cumulated, u), ("right",), [(shape, dtypes.int64)])
        return found
    # Efraimidis, Spirakis: weighted random sampling (2006): the smallest -log(u) / p.
    k = b.cast(_top(b, bits_of(b, seed, counter, (n,)), 52, dtypes.int64), f)
    u = b.mul(b.add(k, b.constant(0.5, f)), b.constant(2.0**-52, f))
    keys = b.div(_minus_log(b, u, (32, 16, 8, 4, 2, 1), 10), p)
    (ordered,) = b.opaque("argsort", (keys,), (0, False), [((n,), dtypes.int64)])
    return _first(b, ordered, shape)


def _first(b: Builder, ordered: Node, shape: Shape) -> Node:
    return b.reshape(b.slice(ordered, (0,), (product(shape),), (1,)), shape)


CHOICE = define("random.choice", choice, differentiable=False)


def chosen(b: Builder, x: Node, at: Node) -> Node:
    return b.gather(x, (at,), (0,))


CHOSEN = define("random.chosen", chosen)


def truncated_normal(
    b: Builder, seed: Operand, counter: Operand, low: Operand, span: Operand, loc: Operand, scale: Operand,
    least: Operand, most: Operand, dtype: np.dtype, *, ints: Shape,
) -> Node:  # fmt: skip
    """The numbers whose distribution function is low + u * span, clipped to what rounding may leave."""
    f = dtypes.float64
    u = uniform_bits(b, seed, counter, ints, f)
    half, edge = b.constant(0.5, f), b.constant(0.5 - 2.0**-54, f)
    q = b.sub(b.add(b.mul(u, node_of(b, span, f)), node_of(b, low, f)), half)
    q = b.minimum(b.maximum(q, b.neg(edge)), edge)
    x = b.add(b.mul(_inverse_normal(b, q, False), node_of(b, scale, f)), node_of(b, loc, f))
    return b.cast(b.minimum(b.maximum(x, node_of(b, least, f)), node_of(b, most, f)), dtype)


TRUNCATED_NORMAL = define("random.truncated_normal", truncated_normal, differentiable=False)
