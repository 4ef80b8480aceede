"""Every derivative rule against central differences of the interpreter, to order two, real and complex."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from lazyt.autograd.reverse import backward, needed
from lazyt.autograd.rules.registry import NONDIFFERENTIABLE, OPAQUE_VJP, VJP, library_vjp, vjp
from lazyt.errors import NotSupportedError
from lazyt.ir import dtypes, prims
from lazyt.ir.builder import Builder
from lazyt.ir.graph import Convolution, Graph
from lazyt.ir.graph_interpreter import interpret
from lazyt.ir.library_calls import FUNCTIONS, OF_PASSES
from lazyt.ir.passes.verify import verify
from lazyt.ir.symbolic import Scope
from tests.support.central_differences import INT, C, F, check, inner, random

pytestmark = pytest.mark.filterwarnings("error")


RNG = np.random.default_rng(0)
X, Y, M = random(RNG, (2, 3)), random(RNG, (2, 3)), random(RNG, (3, 4))
Z, W = random(RNG, (2, 3), C), random(RNG, (2, 3), C)
ABOVE_ONE = {"acosh": 1.0}


def test_every_name_is_in_exactly_one_table():
    primitives = prims.SOURCES | prims.MOVEMENT | prims.REDUCTIONS | prims.OTHERS | set(prims.ELEMENTWISE)
    names = (primitives - {"opaque", "item"}) | (set(FUNCTIONS) - OF_PASSES)
    rules = [*VJP, *OPAQUE_VJP, *NONDIFFERENTIABLE]
    assert sorted(rules) == sorted(set(rules)), "a name has two entries"
    assert names - set(rules) == set(), "no derivative, and no reason why not"
    assert set(rules) - names == set(), "an entry for what does not exist"


# Elementwise


def test_a_name_has_one_rule_or_one_reason():
    for taken in ("exp", "linalg_inv", "floor"):
        before = dict(VJP), dict(OPAQUE_VJP), dict(NONDIFFERENTIABLE)
        with pytest.raises(AssertionError, match=f"^{taken} "):
            vjp(taken)(lambda b, n, ct: (ct,))
        with pytest.raises(AssertionError, match=f"^{taken} "):
            library_vjp(taken)(lambda b, n, cts: cts)
        assert before == (VJP, OPAQUE_VJP, NONDIFFERENTIABLE)


UNARY = [n for n, r in prims.ELEMENTWISE.items() if r.arity == 1 and n in VJP]


@pytest.mark.parametrize("name", [n for n in UNARY if "f" in prims.ELEMENTWISE[n].kinds])
def test_unary(name):
    check(lambda b, x: b.elementwise(name, x), X + ABOVE_ONE.get(name, 0.0))


@pytest.mark.parametrize("name", [n for n in UNARY if "c" in prims.ELEMENTWISE[n].kinds])
def test_unary_complex(name):
    check(lambda b, x: b.elementwise(name, x), Z)
    check(
        lambda b, x: b.elementwise(name, x),
        -np.conj(Z) if name in ("acosh", "sqrt", "log", "asin") else Z * 0.5,
    )


@pytest.mark.parametrize("name", [n for n, r in prims.ELEMENTWISE.items() if r.arity == 2 and n in VJP])
def test_binary(name):
    rec = prims.ELEMENTWISE[name]
    check(lambda b, x, y: b.elementwise(name, x, y), X + 1.5, Y)
    if "c" in rec.kinds:
        check(lambda b, x, y: b.elementwise(name, x, y), Z, W)


@pytest.mark.parametrize("name", sorted(n for n in OPAQUE_VJP if n.startswith("complex_")))
def test_complex_library_functions(name):
    operands = (Z, W) if name == "complex_pow" else (Z,)
    check(lambda b, *xs: b.opaque(name, xs, (), [(xs[0].shape, xs[0].dtype)])[0], *operands)


# On both sides of each cut: along the real axis, and along the imaginary one.
CUTS = [complex(re, im) for re in (-3.0, -0.5, 0.5, 3.0) for im in (0.0, -0.0)]
CUTS += [complex(im, re) for re in (-3.0, -0.5, 0.5, 3.0) for im in (0.0, -0.0)]


@pytest.mark.parametrize("name", sorted(f for f in FUNCTIONS if f.startswith("complex_") and f != "complex_pow"))
def test_slopes_are_on_the_branch_of_the_value(name):
    """Along a cut, where a zero's sign says which side of it a number is."""
    f = getattr(lt, name.removeprefix("complex_"))
    for z in CUTS:
        along = 1j if z.real == 0 else 1
        at = np.array([z, z, z])
        (at.imag if z.real == 0 else at.real)[...] += (0.0, 1e-6, -1e-6)
        y, slope = lt.jvp(f, (lt.asarray(at),), (lt.full(3, along, dtype=lt.complex128),))
        y, slope = y.numpy(), slope.numpy()
        assert abs(slope[0] - (y[1] - y[2]) / 2e-6) < 1e-6 * max(1, abs(slope[0])), z


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, 0.5])
def test_constant_powers(exponent):
    def f(b, x):
        return b.mul(x, b.pow(x, b.constant(exponent, x.dtype)))

    check(f, X)
    check(f, Z)


def gradient(f, *arrays):
    """The gradients of sum(f)."""
    b = Builder()
    leaves = [b.input(i, a.shape, a.dtype) for i, a in enumerate(arrays)]
    y = f(b, *leaves)
    seed = b.expand_to(b.constant(1, y.dtype), y.shape)
    grads, _ = backward(b, [y], [seed], [[x] for x in leaves])
    return interpret(b.nodes, grads, arrays)


def test_kinks_follow_pytorch():
    zero = np.zeros(1)
    assert gradient(lambda b, x: b.abs(x), zero) == [0]
    assert gradient(lambda b, x: b.abs(x), zero * 1j) == [0]
    shared = gradient(lambda b, x, y: b.maximum(x, y), np.ones(3), np.arange(3.0))
    np.testing.assert_array_equal(shared, [[1, 0.5, 0], [0, 0.5, 1]])
    shared = gradient(lambda b, x: b.reduce("max", x, (0,)), np.array([1.0, 2, 2]))
    np.testing.assert_array_equal(shared, [[0, 0.5, 0.5]])
    np.testing.assert_array_equal(gradient(lambda b, x, y: b.pow(x, y), zero, zero), [[0], [0]])
    np.testing.assert_array_equal(gradient(lambda b, x, y: b.pow(x, y), zero, zero + 2), [[0], [0]])


def test_powers_at_zero_to_order_two():
    def f(b, x, y):
        (g,), _ = backward(b, [b.pow(x, y)], [b.expand_to(b.constant(1.0, F), x.shape)], [[x]])
        return g

    np.testing.assert_array_equal(gradient(f, np.zeros(2), np.array([2.0, 3.0]))[0], [2, 0])


def test_select_and_complex_parts():
    condition = np.array([[True, False, True]] * 2)
    check(lambda b, x, y, c: b.mul(x, b.select(c, x, y)), X, Y, constants=(condition,))
    check(lambda b, x, y: b.mul(z := b.complex(x, y), z), X, Y)


def test_casts():
    check(lambda b, x, z: b.mul(b.cast(x, C), z), X, Z)
    check(lambda b, z: b.mul(y := b.cast(z, F), y), Z)
    b = Builder()
    x = b.input(0, (3,), F)
    y = b.cast(b.cast(x, INT), F)
    assert backward(b, [y], [x], [[x]])[1] == (False,)
    h = b.cast(x, dtypes.float16)
    (g,), _ = backward(b, [b.exp(h)], [b.input(1, (3,), dtypes.float16)], [[x]])
    assert g.dtype == F


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
def test_half_formulas_round_once(dtype):
    x = np.array([0.3, 2.0], dtype)
    want = (1 - np.tanh(x.astype("float32")).astype(dtype).astype("float32") ** 2).astype(dtype)
    np.testing.assert_array_equal(gradient(lambda b, n: b.tanh(n), x)[0], want)


# Movement and indexing

SHIFT = (1, 0)
MOVES = {
    "permute": lambda b, x: b.permute(x, (1, 0)),
    "reshape": lambda b, x: b.reshape(x, (3, 2)),
    "expand": lambda b, x: b.expand(b.reshape(x, (2, 1, 3)), (2, 4, 3)),
    "slice": lambda b, x: b.slice(x, (1, 0), (1, 2), (1, 2)),
    "slice_backwards": lambda b, x: b.slice(x, (1, 2), (2, 2), (-1, -1)),
    "slice_backwards_stepped": lambda b, x: b.slice(x, (1, 2), (2, 2), (-1, -2)),
    "slice_of_nothing": lambda b, x: b.slice(x, (2, 1), (0, 2), (1, 1)),
    "concat": lambda b, x: b.concat([x, b.mul(x, x), x], 1),
    "stop": lambda b, x: b.mul(x, x),
}


@pytest.mark.parametrize("name", MOVES)
def test_movement(name):
    check(lambda b, x: b.mul(y := MOVES[name](b, x), b.mul(y, y)), X)


def test_update_and_pad():
    check(lambda b, x, v: b.mul(y := b.update(x, v, (1, 2), (1, -2)), y), X, random(RNG, (1, 2)))
    check(lambda b, x, v: b.mul(y := b.pad(x, (1, 0), (4, 3), v), b.mul(y, y)), X, random(RNG, ()))


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2), (3, 2)])
def test_window(stride, dilation):
    def f(b, x):
        y = b.window(x, (2, 0), (2, 3), (stride, 1), (dilation, 1))
        return b.mul(y, y)

    check(f, random(RNG, (4, 2, 6)))


def test_gather_and_scatter():
    i, j = np.array([[0, 1], [1, 1]]), np.array([[2, 0], [0, 2]])
    check(lambda b, x, i, j: b.mul(y := b.gather(x, [i, j], (0, 1)), b.mul(y, y)), X, constants=(i, j))
    check(lambda b, x, j: b.mul(y := b.gather(x, [j], (1,)), y), X, constants=(j,))
    v = random(RNG, (2, 2, 2))
    for mode in ("set", "add"):
        check(
            lambda b, x, v, j, mode=mode: b.mul(y := b.scatter(x, v, [j], (1,), mode), y),
            X,
            v,
            constants=(j,),
            order=2,
        )
        check(
            lambda b, x, v, j, mode=mode: b.mul(y := b.scatter(x, v, [j], (0,), mode), y),
            X,
            random(RNG, (3,)),
            constants=(np.array(1),),
        )


# Reductions, contraction, scans, sorting


@pytest.mark.parametrize("values", [[0, 0, 1e200, 1e200, 3], [0, 1e200, 1e200, 3]])
def test_a_product_that_overflows_beside_a_zero_has_gradients(values):
    x = lt.tensor(np.array(values, np.float64), requires_grad=True)
    lt.prod(x).backward()
    with np.errstate(over="ignore"):
        others = [np.prod(np.delete(x.detach().numpy(), i)) for i in range(len(values))]
    assert x.grad.tolist() == others


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_reductions(name, axes):
    check(lambda b, x: b.mul(y := b.reduce(name, x, axes), y), X)


@pytest.mark.parametrize("zeros", range(3))
@pytest.mark.parametrize("base", [X, Z], ids=["real", "complex"])
def test_products_with_zeros(zeros, base):
    x = base.copy()
    x[0, [1, 2][:zeros]] = 0
    x[1, [0][:zeros]] = 0
    check(lambda b, x: b.mul(y := b.reduce("prod", x, (1,)), b.add(y, b.constant(1, y.dtype))), x)

    def scan(b, x):
        y = b.opaque("cumprod", (x,), (1,), [(x.shape, x.dtype)])[0]
        return b.mul(y, b.add(y, b.constant(1, y.dtype)))

    check(scan, x)


def test_matmul():
    check(lambda b, x, y: b.matmul(x, y), X, M)
    check(lambda b, x, y: b.matmul(x, y), random(RNG, (2, 2, 3), C), random(RNG, (2, 3, 2), C))


@pytest.mark.parametrize(
    ("strides", "dilations", "groups", "padding"),
    [((1, 1), (1, 1), 1, (0, 0)), ((2, 1), (1, 2), 1, (1, 0)), ((1, 1), (1, 1), 2, (1, 1))],
)
def test_convolutions(strides, dilations, groups, padding):
    """To order two: the derivatives are the transposed ones, whose derivatives are these again."""
    a = Convolution((2, 2), dilations, strides, groups, padding)
    check(lambda b, x, w: b.convolve(x, w, a), random(RNG, (2, 4, 4, 3)), random(RNG, (2, 4 // groups, 2, 2)))


def test_known_values_have_the_derivative_of_what_they_stand_for():
    def f(b, x):
        y = b.mul(x, b.sin(x))
        return b.known(y, b.stop(y))

    check(f, X, order=1)


@pytest.mark.parametrize(
    ("name", "statics"), [("cumsum", (0,)), ("cumsum", (-1,)), ("sort", (1, True)), ("sort", (0, False))]
)
def test_scans_and_sorting(name, statics):
    check(lambda b, x: b.mul(y := b.opaque(name, (x,), statics, [(x.shape, x.dtype)])[0], b.mul(y, y)), X)


# Linear algebra


def opaque(fn, statics=()):
    """f(b, *nodes) for a library call, its output shapes found by running it."""

    def f(b, *xs):
        out = FUNCTIONS[fn](
            *(np.broadcast_to(np.eye(*x.shape[-2:]) + 0.1, x.shape).astype(x.dtype) for x in xs), *statics
        )
        out = out if isinstance(out, tuple) else (out,)
        return b.opaque(fn, xs, statics, [(np.shape(y), np.asarray(y).dtype) for y in out])

    return f


def hermitian(b, x):
    """A Hermitian positive definite matrix made of any one."""
    xh = b.permute(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))
    xh = b.conj(xh) if x.dtype == C else xh
    return b.add(b.matmul(x, xh), b.cast(b.eq(b.iota(x.shape, x.ndim - 2), b.iota(x.shape, x.ndim - 1)), x.dtype))


def matrix(shape, dtype):
    n = np.random.default_rng(7).standard_normal((2, *shape))
    return n[0] + 1j * n[1] if dtype == C else n[0]


BOTH = pytest.mark.parametrize("dtype", [F, C], ids=["real", "complex"])


@BOTH
@pytest.mark.parametrize("name", ["linalg_inv", "linalg_det"])
def test_inverse_and_determinant(name, dtype):
    check(opaque(name), matrix((2, 3, 3), dtype), rtol=1e-5)


@BOTH
def test_solve(dtype):
    check(opaque("linalg_solve"), matrix((2, 3, 3), dtype), matrix((2, 3, 2), dtype), rtol=1e-5)

    def f(b, a, v):
        return b.opaque("linalg_solve", (a, v), (), [(v.shape, v.dtype)])[0]

    check(f, matrix((3, 3), dtype), matrix((3,), dtype), rtol=1e-5)


@BOTH
def test_slogdet(dtype):
    check(opaque("linalg_slogdet"), matrix((2, 3, 3), dtype), rtol=1e-5)


@BOTH
@pytest.mark.parametrize("shape", [(3, 2), (2, 3), (3, 3)])
def test_pinv(shape, dtype):
    check(opaque("linalg_pinv", (None,)), matrix(shape, dtype), rtol=1e-5)


@BOTH
def test_cholesky(dtype):
    check(lambda b, x: opaque("linalg_cholesky")(b, hermitian(b, x)), matrix((2, 3, 3), dtype), rtol=1e-5)


@BOTH
def test_eigh(dtype):
    def f(b, x):
        """Values, and the projectors on the vectors: what does not depend on the phase of a vector."""
        w, v = opaque("linalg_eigh")(b, hermitian(b, x))
        first = b.slice(v, (0, 0), (3, 1), (1, 1))
        return w, b.matmul(first, b.conj(b.permute(first, (1, 0))) if dtype == C else b.permute(first, (1, 0)))

    check(f, matrix((3, 3), dtype), rtol=1e-5)
    check(lambda b, x: opaque("linalg_eigvalsh")(b, hermitian(b, x)), matrix((3, 3), dtype), rtol=1e-5)


@BOTH
@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (3, 3)])
def test_svd(shape, dtype):
    def f(b, x):
        u, s, vh = opaque("linalg_svd", (False,))(b, x)
        u1, v1 = b.slice(u, (0, 0), (shape[0], 1), (1, 1)), b.slice(vh, (0, 0), (1, shape[1]), (1, 1))
        return s, b.matmul(u1, v1)

    check(f, matrix(shape, dtype), rtol=1e-5)
    check(opaque("linalg_svdvals"), matrix(shape, dtype), rtol=1e-5)
    check(lambda b, x: opaque("linalg_svd", (True,))(b, x)[1], matrix(shape, dtype), order=1, rtol=1e-5)
    if dtype == F:  # the phase of a real singular vector is a sign, which does not move
        check(opaque("linalg_svd", (False,)), matrix(shape, dtype), rtol=1e-5)


@BOTH
@pytest.mark.parametrize("shape", [(4, 3), (3, 5), (3, 3)])
def test_qr(shape, dtype):
    check(opaque("linalg_qr", ("reduced",)), matrix(shape, dtype), rtol=1e-5)


def test_what_decompositions_cannot_do():
    with pytest.raises(NotSupportedError, match="use full_matrices=False"):
        check(opaque("linalg_svd", (True,)), matrix((3, 2), F))
    with pytest.raises(NotSupportedError, match="use mode='reduced'"):
        check(opaque("linalg_qr", ("complete",)), matrix((3, 2), F))


# Fourier transforms


@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
@pytest.mark.parametrize("n", [None, 4, 7])
@pytest.mark.parametrize("fn", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_fft(fn, n, norm):
    x = random(RNG, (2, 5), F if fn in ("rfft", "ihfft") else C)
    f = opaque(f"fft_{fn}", (n, -1, norm))
    check(lambda b, x: b.mul(y := f(b, x)[0], y), x)


@pytest.mark.parametrize(("s", "axes"), [(None, None), (None, (0, 2)), ((3, 6), (2, 0)), ((2, 5), (0, -2))])
@pytest.mark.parametrize("fn", ["fftn", "ifftn", "rfftn", "irfftn"])
def test_fftn(fn, s, axes):
    x = random(RNG, (4, 2, 5), F if fn == "rfftn" else C)
    f = opaque(f"fft_{fn}", (s, axes, "ortho"))
    check(lambda b, x: b.mul(y := f(b, x)[0], y), x)


def test_fft_of_real_values():
    check(opaque("fft_fft", (None, 1, None)), X)
    check(opaque("fft_ifftn", (None, None, None)), X)


# The engine


def test_unreachable_gradients_are_zeros():
    b = Builder()
    x, y, i = b.input(0, (2,), F), b.input(1, (3,), dtypes.float32), b.input(2, (2,), INT)
    grads, reached = backward(b, [b.mul(x, b.stop(x))], [x], [[x], [y], [b.stop(x)], [i]])
    assert reached == (True, False, True, False)
    got = interpret(b.nodes, grads, [np.array([2.0, 3.0]), np.zeros(3, "float32"), np.zeros(2, int)])
    np.testing.assert_array_equal(got[0], [4, 9])
    np.testing.assert_array_equal(got[1], np.zeros(3, "float32"))
    assert got[1].dtype == np.float32 and got[3].dtype == np.int64


def test_groups_are_summed_and_inner_nodes_can_be_wanted():
    b = Builder()
    x, v = b.input(0, (), F), b.input(1, (), F)
    y = b.mul(x, v)
    z = b.mul(y, y)
    seed = b.constant(1.0, F)
    grads, reached = backward(b, [z, y], [seed, seed], [[x, v, x], [y]])
    got = interpret(b.nodes, grads, [np.array(2.0), np.array(3.0)])
    assert got == [13 * 3 + 13 * 2, 13] and reached == (True, True)


def test_needed_is_the_border_of_the_gradient():
    b = Builder()
    x, w = b.input(0, (2, 3), F), b.input(1, (3, 4), F)
    h = b.tanh(y := b.matmul(x, w))
    loss = b.reduce("sum", h, (0, 1))
    count = len(b.nodes)
    assert needed(b, [loss], [[w]]) == {x, h}
    assert needed(b, [loss], [[x]]) == {w, h}
    assert needed(b, [y], [[b.input(2, (), F)]]) == set()
    assert len(b.nodes) - count <= 1


def test_sites_are_those_of_the_primal():
    b = Builder()
    b.site = "there"
    x = b.input(0, (), F)
    y = b.sin(x)
    b.site = "here"
    (grad,), _ = backward(b, [y], [x], [[x]])
    assert grad.site == "there" and b.site == "here"


def test_symbolic_extents():
    scope = Scope()
    n, m = scope.symbol(0, 2), scope.symbol(1, 3)
    b = Builder(scope)
    x, w = b.input(0, (n, m), F), b.input(1, (m,), F)
    y = b.mul(x, b.expand_to(w, x.shape))
    half = b.slice(y, (0, 0), (n, m - 1), (1, 1))
    windows = b.window(half, (1,), (2,), (1,), (1,))
    loss = b.add(b.reduce("prod", b.reduce("sum", windows, (0, 2)), (0,)), b.reduce("max", y, (0, 1)))
    order = b.opaque("fft_rfft", (y,), (None, 1, None), [((n, m // 2 + 1), C)])[0]
    outputs = [loss, order]
    seeds = [b.constant(1.0, F), b.input(2, order.shape, C)]
    guards = len(scope.guards)
    grads, _ = backward(b, outputs, seeds, [[x], [w]])
    verify(Graph(b.nodes, grads))
    assert scope.guards[guards:] == [("lt", 1 - m + m // 2, 0)], "the adjoint of rfft compares two lengths"
    for shape in ((2, 3), (4, 5)):
        rng = np.random.default_rng(3)
        every = [random(rng, shape), random(rng, shape[1:]), random(rng, (shape[0], shape[1] // 2 + 1), C)]
        got = interpret(b.nodes, grads, every, binding=(shape, ()))
        for k, grad in enumerate(got):
            v, sides = random(rng, grad.shape), []
            for h in (1e-6, -1e-6):
                moved = list(every)
                moved[k] = every[k] + h * v
                value, spectrum = interpret(b.nodes, outputs, moved, binding=(shape, ()))
                sides.append(value + inner(every[2], spectrum))
            np.testing.assert_allclose(inner(grad, v), (sides[0] - sides[1]) / 2e-6, rtol=1e-6)


@pytest.mark.slow
def test_a_chain_of_100_000_nodes():
    b = Builder()
    x = y = b.input(0, (), F)
    for _ in range(100_000):
        y = b.neg(b.add(y, x)) if y.op == "add" else b.add(y, x)
    grads, _ = backward(b, [y], [b.constant(1.0, F)], [[x]])
    (got,) = interpret(b.nodes, grads, [np.array(1.0)])
    assert np.isfinite(got)


@pytest.mark.parametrize("as_tensors", [False, True])
def test_clip_at_its_bounds_and_at_nan(as_tensors: bool) -> None:
    """As in PyTorch: 1 at a bound, 0 at a NaN; a bound has the gradient of what it replaced."""
    values = [-2.0, -1.0, 0.0, 1.0, 2.0, np.nan]
    cases = [
        (-1.0, 1.0, [0, 1, 1, 1, 0, 0]), (-1.0, None, [0, 1, 1, 1, 1, 0]), (None, 1.0, [1, 1, 1, 1, 0, 0]),
        (1.0, -1.0, [0] * 6), (0.0, 0.0, [0, 0, 1, 0, 0, 0]),
    ]  # fmt: skip
    for lo, hi, want in cases:
        x = lt.tensor(values, requires_grad=True)
        bounds = [None if v is None else lt.tensor([v] * 6, requires_grad=True) if as_tensors else v for v in (lo, hi)]
        y = lt.clip(x, *bounds)
        np.testing.assert_array_equal(y.detach().numpy(), np.clip(np.float32(values), lo, hi))
        y.sum().backward()
        assert x.grad.tolist() == want, (lo, hi)
        if as_tensors and lo == -1.0 and hi == 1.0:
            assert bounds[0].grad.tolist() == [1, 0, 0, 0, 0, 0] and bounds[1].grad.tolist() == [0, 0, 0, 0, 1, 0]


def test_the_slope_of_a_standard_deviation_of_0_is_0() -> None:
    """PyTorch's: 0 where nothing varies, NaN where the deviation is NaN."""
    for x in ([[3.0]], [[2.0, 2.0, 2.0]], [[1.0], [5.0]]):
        v = lt.tensor(x, requires_grad=True)
        lt.std(v, axis=-1).sum().backward()
        np.testing.assert_array_equal(v.grad.numpy(), np.zeros_like(x, np.float32))
    v = lt.tensor([[3.0]], requires_grad=True)
    lt.std(v, axis=-1, correction=1).sum().backward()
    assert np.isnan(v.grad.numpy()).all()


@pytest.mark.parametrize("order", [0.5, 1.5, 3, 4, -1, -2])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_the_derivative_of_a_norm_is_zero_at_zero(order, dtype):
    for value in ([0.0, 0.0, 0.0], [0.0, 1.0, -2.0]):
        x = lt.asarray(np.asarray(value, dtype)).requires_grad_()
        lt.linalg.vector_norm(x, ord=order).backward()
        g = x.grad.numpy()
        assert np.isfinite(g).all() and g[0] == 0
        assert (g[1:] != 0).all() == (any(value) and order > 0)


def test_the_derivative_of_an_angle_is_zero_at_zero():
    x = lt.tensor([0.0, 2.0], requires_grad=True)
    lt.atan2(x, 2 * x).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0]
    z = lt.asarray(np.asarray([0, 1j])).requires_grad_()
    lt.angle(z).sum().backward()
    np.testing.assert_allclose(z.grad.numpy(), [0, -1])


def _cofactors(a):
    n = len(a)
    minors = [np.delete(np.delete(a, i, 0), j, 1) for i in range(n) for j in range(n)]
    signs = [(-1) ** (i + j) for i in range(n) for j in range(n)]
    return np.asarray([s * np.linalg.det(m) for s, m in zip(signs, minors, strict=True)]).reshape(n, n)


@pytest.mark.parametrize("turned", [1.0, 1j])
def test_the_derivative_of_a_determinant_is_the_cofactors_of_any_matrix(turned):
    integers = np.random.default_rng(3).integers(-3, 4, size=(3, 3)).astype(float)
    ones = np.ones((3, 3))
    doubled = np.stack([integers[0], integers[0], integers[1]])
    stack = turned * np.stack([np.zeros((3, 3)), ones, doubled, np.diag([1.0, 2.0, 0.0]), integers])
    x = lt.asarray(stack).requires_grad_()
    lt.real(lt.linalg.det(x)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.conj([_cofactors(a) for a in stack]), atol=1e-12)


def test_the_second_derivative_of_a_determinant_asks_for_an_inverse():
    a = np.asarray([[1.0, 2.0], [3.0, 5.0]])
    expected = np.asarray([[[[0, 0], [0, 1]], [[0, 0], [-1, 0]]], [[[0, -1], [0, 0]], [[1, 0], [0, 0]]]])
    np.testing.assert_allclose(lt.hessian(lt.linalg.det)(lt.asarray(a)), expected, atol=1e-12)
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
        lt.hessian(lt.linalg.det)(lt.zeros((2, 2), dtype="f8")).tolist()
