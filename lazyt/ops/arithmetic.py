"""Arithmetic of two operands, element by element: promoted to one dtype, broadcast to one shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import DTypeError, ShapeError
from lazyt.ir import dtypes
from lazyt.ir.builder import broadcast_shapes
from lazyt.ops import samples
from lazyt.ops.definition import PRODUCT, OpDef, Operand, define, node_of, promoted, require_kind, result_type
from lazyt.ops.elementwise import complex_call, constant, float_of

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node

_REAL = "a real number dtype"
_MIXED = (
    (np.float32, np.float64),
    (np.int64, np.float32),
    (np.int32, np.uint8),
    dtypes.HALVES,
)
SHAPES: Any = (
    (np.zeros((3, 4)), np.zeros((2, 4))),
    {},
    ShapeError,
    r"shapes \(3, 4\) and \(2, 4\) do not broadcast",
)


def binary(
    name: str,
    prim: str,
    ref: Any,
    *,
    kinds: str = "iufc",
    what: str = "a number dtype",
    bool_as: np.dtype | None = None,
    saves: tuple[int | tuple[int, int], ...] = (0, 1),
    sample: Any = None,
    errors: Any = (),
) -> OpDef:
    """A primitive of two operands; bool operands are taken as `bool_as` where the primitive has none for
    them.
    """

    def lower(b: Builder, x: Operand, y: Operand) -> Node:
        d = result_type(x, y)
        if bool_as is not None and d == dtypes.bool_:
            d = bool_as
        require_kind(name, d, kinds, what)
        return b.elementwise(prim, *promoted(b, name, x, y, dtype=d))

    sample = sample or samples.binary("".join(k for k in "fiuc" if k in kinds), mixed=_MIXED)
    return define(name, lower, numpy=ref, samples=sample, saves=saves, errors=[SHAPES, *errors])


def floating(name: str, ref: Any, sample: Any = None, saves: tuple[int | tuple[int, int], ...] = (0, 1)) -> OpDef:
    """A primitive of two floats that is named like the operation; integers become floats."""

    def lower(b: Builder, x: Operand, y: Operand) -> Node:
        d = float_of(result_type(x, y))
        require_kind(name, d, "f", "a real dtype")
        return b.elementwise(name, *promoted(b, name, x, y, dtype=d))

    complex_error: Any = ((np.zeros(2, "c8"), np.zeros(2, "c8")), {}, DTypeError, f"{name}: a real dtype")
    return define(
        name,
        lower,
        numpy=ref,
        samples=sample or samples.binary("f"),
        saves=saves,
        errors=[SHAPES, complex_error],
    )


_BOOLS = (np.zeros(2, np.bool_), np.ones(2, np.bool_))
_COMPLEX = (np.zeros(2, "c8"), np.ones(2, "c8"))

ADD = binary("add", "add", np.add, kinds="biufc", saves=())
SUBTRACT = binary(
    "subtract", "sub", np.subtract, saves=(), what="a number dtype (for bool: logical_xor)",
    errors=[(_BOOLS, {}, DTypeError, "subtract: a number dtype")],
)  # fmt: skip
MULTIPLY = binary("multiply", "mul", np.multiply, kinds="biufc", saves=PRODUCT)


def _divide(b: Builder, x: Operand, y: Operand) -> Node:
    d = result_type(x, y)
    d = d if dtypes.kind(d) in "fc" else dtypes.float64
    return b.div(*promoted(b, "divide", x, y, dtype=d))


DIVIDE = define(
    "divide", _divide, numpy=np.divide, saves=((0, 1), (1, 0), (1, 1)), errors=[SHAPES],
    samples=samples.binary("fciu", low2=1, high2=4, mixed=((np.bool_, np.bool_), (np.int8, np.int16))),
)  # fmt: skip

_NONZERO = samples.binary("fiu", low=-9, high=9, low2=1, high2=4, mixed=((np.int32, np.float32),), scalars=(2,))
_NO_COMPLEX: Any = [(_COMPLEX, {}, DTypeError, _REAL)]


def _floor_divide(b: Builder, x: Operand, y: Operand) -> Node:
    """The floor of the quotient: exact for finite floats; by an infinity, or of one, floor(x / y) (Array API).

    NumPy has Python's `divmod` there: inf // 2 is NaN, and 1 // -inf is -1.
    """
    d = result_type(x, y)
    d = dtypes.int8 if d == dtypes.bool_ else d
    require_kind("floor_divide", d, "iuf", _REAL)
    p, q = promoted(b, "floor_divide", x, y, dtype=d)
    exact = b.floordiv(p, q)
    if dtypes.kind(d) != "f":
        return exact
    finite = b.and_(b.isfinite(p), b.isfinite(q))
    return b.select(finite, exact, b.floor(b.div(p, q)))


def _numpy_floor_divide(x: Any, y: Any) -> Any:
    exact = np.floor_divide(x, y)
    if dtypes.kind(exact.dtype) in "iub":
        return exact
    return np.where(np.isfinite(x) & np.isfinite(y), exact, np.floor(np.divide(x, y))).astype(exact.dtype)


_INFINITE: list[Any] = [
    ((x.astype(t), y.astype(t)), {})
    for x, y in [np.meshgrid([np.inf, -np.inf, np.nan, 2.5, -2.5, 0.0, -0.0], [np.inf, -np.inf, np.nan, 2.0, -2.0])]
    for t in (np.float32, np.float64, np.float16, dtypes.bfloat16)
]
FLOOR_DIVIDE = define(
    "floor_divide", _floor_divide, numpy=_numpy_floor_divide, samples=lambda: [*_NONZERO(), *_INFINITE], saves=(),
    errors=[SHAPES, *_NO_COMPLEX],
)  # fmt: skip
REMAINDER = binary(
    "remainder", "rem", np.remainder, kinds="iuf", what=_REAL, bool_as=dtypes.int8, sample=_NONZERO,
    errors=_NO_COMPLEX,
)  # fmt: skip
FMOD = binary(
    "fmod", "fmod", np.fmod, kinds="iuf", what=_REAL, bool_as=dtypes.int8, sample=_NONZERO, errors=_NO_COMPLEX
)


def _pow(b: Builder, x: Operand, y: Operand) -> Node:
    d = result_type(x, y)
    p, q = promoted(b, "pow", x, y, dtype=dtypes.int8 if d == dtypes.bool_ else d)
    return complex_call(b, "pow", p, q) if dtypes.kind(d) == "c" else b.pow(p, q)


POW = define(
    "pow", _pow, numpy=np.power, saves=(0, 1, -1), errors=[SHAPES],
    samples=samples.binary("fciu", low=0.2, high=4, low2=0, high2=3, scalars=(1.7,)),
)  # fmt: skip

MAXIMUM = binary("maximum", "maximum", np.maximum, kinds="biuf", what="a real dtype", errors=[
    (_COMPLEX, {}, DTypeError, "maximum: a real dtype")
])  # fmt: skip
MINIMUM = binary("minimum", "minimum", np.minimum, kinds="biuf", what="a real dtype", errors=[
    (_COMPLEX, {}, DTypeError, "minimum: a real dtype")
])  # fmt: skip

ATAN2 = floating("atan2", np.arctan2)
HYPOT = floating("hypot", np.hypot, saves=(0, 1, -1))
LOGADDEXP = floating("logaddexp", np.logaddexp)
COPYSIGN = floating("copysign", np.copysign, saves=(0, 1))


def _nextafter(b: Builder, x: Operand, y: Operand) -> Node:
    d = float_of(result_type(x, y))
    require_kind("nextafter", d, "f", "a real dtype")
    return b.nextafter(*promoted(b, "nextafter", x, y, dtype=d))


NEXTAFTER = define(
    "nextafter",
    _nextafter,
    numpy=np.nextafter,
    samples=samples.binary("f"),
    errors=[SHAPES],
    differentiable=False,
)


def _number_or(name: str, prim: str, ref: Any) -> OpDef:
    """fmax and fmin: the other operand where one is NaN."""

    def lower(b: Builder, x: Operand, y: Operand) -> Node:
        d = result_type(x, y)
        require_kind(name, d, "biuf", "a real dtype")
        p, q = promoted(b, name, x, y)
        if dtypes.kind(d) != "f":
            return b.elementwise(prim, p, q)
        return b.select(b.isnan(p), q, b.select(b.isnan(q), p, b.elementwise(prim, p, q)))

    def sample() -> Any:
        x = np.array([1.0, np.nan, np.nan, 4.0])
        y = np.array([2.0, 5.0, np.nan, np.nan])
        return [((x, y), {}), ((x.astype("f4"), 2.0), {}), ((np.arange(3), np.array([[1], [2]])), {})]

    return define(name, lower, numpy=ref, samples=sample, saves=(0, 1), errors=[SHAPES])


FMAX = _number_or("fmax", "maximum", np.fmax)
FMIN = _number_or("fmin", "minimum", np.fmin)


def _clip(b: Builder, x: Operand, *rest: Any) -> Node:
    """Operands x, then the bounds there are; statics say which."""
    *bounds, has_min, has_max = rest
    d = result_type(x, *bounds)
    require_kind("clip", d, "biuf", "a real dtype")
    nodes = list(promoted(b, "clip", x, *bounds, dtype=d))
    y = v = nodes[0]
    if has_min:
        y = b.maximum(y, nodes[1])
    if has_max:
        y = b.minimum(y, nodes[-1])
    if len(nodes) == 1 or dtypes.kind(d) != "f":
        return y
    # The derivative is PyTorch's: at a bound it is x's, and a NaN has none.
    of = b.expand_to(b.constant(0, d), v.shape)
    inside = [b.ge(v, nodes[1])] * has_min + [b.le(v, nodes[-1])] * has_max
    if has_min:
        below = b.lt(v, nodes[1])
        of = b.select(b.and_(below, b.lt(nodes[1], nodes[-1])) if has_max else below, nodes[1], of)
    if has_max:
        above = b.gt(v, nodes[-1])
        of = b.select(b.or_(above, b.lt(nodes[-1], nodes[1])) if has_min else above, nodes[-1], of)
    of = b.select(b.and_(*inside) if len(inside) == 2 else inside[0], v, of)
    return b.known(of, b.stop(y))


def _clip_numpy(x: Any, min: Any = None, max: Any = None) -> Any:
    return np.clip(x, min, max)


_X = samples.array((2, 3), low=-9, high=9)
CLIP = define(
    "clip",
    _clip,
    numpy=_clip_numpy,
    saves=(0, 1, 2),
    samples=samples.calls(
        (_X, -1, 1),
        (_X, -1.5),
        (_X, {"max": 1.5}),
        (_X, _X[0] - 1, _X[0] + 1),
        (_X.astype("i4"), 0, 3),
        (_X,),
        (_X.astype("f2"), 0, np.float16(2)),
        (_X[:0], -1, 1),
    ),
    errors=[((np.zeros(2, "c8"), 0, 1), {}, DTypeError, "clip: a real dtype")],
)


def _isclose(b: Builder, x: Operand, y: Operand, rtol: Operand, atol: Operand, equal_nan: bool) -> Node:
    d = dtypes.computed_in(float_of(result_type(x, y)))
    real = dtypes.real_of(d)
    p, q, r, a = (node_of(b, t, e) for t, e in ((x, d), (y, d), (rtol, real), (atol, real)))
    shape = broadcast_shapes(b, "isclose", p.shape, q.shape)
    for t in (r, a):
        shape = broadcast_shapes(b, "isclose", shape, t.shape)
    p, q, r, a = (b.expand_to(n, shape) for n in (p, q, r, a))
    size = b.abs(q)
    # inf - inf is NaN and fails the test; equal infinities pass by eq; inf bounds no finite difference.
    near = b.and_(b.le(b.abs(b.sub(p, q)), b.add(a, b.mul(r, size))), _finite(b, q))
    near = b.or_(near, b.eq(p, q))
    return b.or_(near, b.and_(_nan(b, p), _nan(b, q))) if equal_nan else near


def _nan(b: Builder, x: Node) -> Node:
    return b.or_(b.isnan(b.real(x)), b.isnan(b.imag(x))) if dtypes.kind(x.dtype) == "c" else b.isnan(x)


def _finite(b: Builder, x: Node) -> Node:
    if dtypes.kind(x.dtype) == "c":
        return b.and_(b.isfinite(b.real(x)), b.isfinite(b.imag(x)))
    return b.isfinite(x)


_A = np.array([1.0, 1.0, np.nan, np.inf, np.inf, -np.inf])
_B = np.array([1.0 + 1e-9, 1.1, np.nan, np.inf, 1.0, np.inf])
ISCLOSE = define(
    "isclose", _isclose, numpy=np.isclose, differentiable=False, errors=[SHAPES],
    samples=samples.calls(
        (_A, _B), (_A, _B, {"equal_nan": True}), (_A.astype("f4"), _B.astype("f4"), 0.1, 0.2),
        (np.arange(4), np.arange(4)), (_A + 0j, _B + 0j),
    ),
)  # fmt: skip


def _heaviside(b: Builder, x: Operand, y: Operand) -> Node:
    d = float_of(result_type(x, y))
    require_kind("heaviside", d, "f", "a real dtype")
    p, q = promoted(b, "heaviside", x, y, dtype=d)
    zero, one = constant(b, 0, p), constant(b, 1, p)
    step = b.select(b.lt(p, zero), zero, b.select(b.eq(p, zero), q, one))
    return b.select(b.isnan(p), p, step)


HEAVISIDE = define(
    "heaviside", _heaviside, numpy=np.heaviside, samples=samples.calls(
        (np.array([-1.0, 0.0, 2.0, np.nan]), 0.5), (np.arange(-1, 2), np.float64(2) * np.ones(3))
    ), saves=(0,), errors=[SHAPES],
)  # fmt: skip
