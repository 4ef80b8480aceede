"""Small matrices in machine code: residuals beside LAPACK's, errors at the user's line, shapes, threads and sizes."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu.library import small_matrices
from lazyt.backends.cpu.library.matrix_lanes import LANES
from tests.support.plans import forget

DTYPES = ("f4", "f8")
# The largest of a dozen errors, by LAPACK's; of single rounding errors the largest may be luck.
WORSE = 2.0
# Sizes of matrices: of one element, around a square of registers, and the largest.
SIZES = (1, 2, 3, 4, 5, 8, 13, 16)
SHAPES = ((1, 1), (2, 2), (5, 3), (3, 5), (8, 8), (1, 4), (4, 1), (13, 16))
COUNTS = (1, LANES - 1, LANES, 2 * LANES + 1)


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch):
    """Every number of matrices is worth the machine code, and chunks are small."""
    monkeypatch.setattr(small_matrices, "FEW", 1 << 60)
    monkeypatch.setattr(small_matrices, "GRAIN", 1)
    forget()
    yield
    forget()


def stack(count: int, m: int, n: int, dtype: str, kind: str = "random", seed: int = 0) -> np.ndarray:
    """Matrices: random, with rows of different scales, nearly singular, or of half the rank."""
    x = np.random.default_rng(seed).normal(size=(count, m, n))
    least = -5 if dtype == "f4" else -12
    if kind == "graded":
        x *= np.logspace(0, least, m)[:, None]
    elif kind == "ill":
        u, s, v = np.linalg.svd(x, full_matrices=False)
        x = u * np.logspace(0, least, s.shape[-1]) @ v
    elif kind == "low":
        x[..., n // 2 :] = x[..., : n - n // 2]
    return x.astype(dtype)


def symmetric(x: np.ndarray) -> np.ndarray:
    return x + np.swapaxes(x, -1, -2)


def reflections(count: int, n: int) -> np.ndarray:
    """Householder's: eigenvalues 1, all but one, and -1."""
    v = np.random.default_rng(n).normal(size=(count, n, 1))
    return np.eye(n) - 2 * v @ np.swapaxes(v, -1, -2) / (v * v).sum(axis=(-2, -1), keepdims=True)


def projections(count: int, n: int) -> np.ndarray:
    """Onto half of the dimensions: eigenvalues 0 and 1."""
    q = np.linalg.qr(np.random.default_rng(n).normal(size=(count, n, max(n // 2, 1))))[0]
    return q @ np.swapaxes(q, -1, -2)


def threefold(count: int, n: int) -> np.ndarray:
    """With eigenvalues 0, 1 and 2."""
    rng = np.random.default_rng(n)
    q = np.linalg.qr(rng.normal(size=(count, n, n)))[0]
    return q * rng.integers(0, 3, (count, 1, n)) @ np.swapaxes(q, -1, -2)


@pytest.mark.parametrize("make", [reflections, projections, threefold])
@pytest.mark.parametrize("n", [2, 16, 24])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c16"])
def test_equal_eigenvalues(dtype: str, n: int, make) -> None:
    """Beside them only rounding is left, which no rotation takes away."""
    a = make(64, n)
    a = ((a + np.swapaxes(a, -1, -2)) / 2).astype(dtype)
    w, v = (t.numpy() for t in lt.linalg.eigh(lt.asarray(a)))
    few = 4 * n * np.finfo(dtype).eps
    np.testing.assert_allclose(w, np.linalg.eigvalsh(a), rtol=0, atol=few)
    np.testing.assert_allclose(lt.linalg.eigvalsh(lt.asarray(a)).numpy(), w, rtol=0, atol=few)
    np.testing.assert_allclose(a @ v, v * w[:, None], rtol=0, atol=few)
    np.testing.assert_allclose(np.conj(np.swapaxes(v, -1, -2)) @ v, np.eye(n) + np.zeros(a.shape), rtol=0, atol=few)
    s = lt.linalg.svdvals(lt.asarray(a)).numpy()
    np.testing.assert_allclose(s, np.linalg.svd(a, compute_uv=False), rtol=0, atol=few)


def values(*tensors) -> list[np.ndarray]:
    assert "native linalg" in str(lt.explain(*tensors))
    lt.sync(list(tensors))
    return [t.numpy() for t in tensors]


def norm(x) -> np.ndarray:
    return np.sqrt((np.asarray(x, np.longdouble) ** 2).sum(axis=(-2, -1)))


def product(*xs) -> np.ndarray:
    out = np.asarray(xs[0], np.longdouble)
    for x in xs[1:]:
        out = np.einsum("...ij,...jk->...ik", out, np.asarray(x, np.longdouble))
    return out


def turned(x: np.ndarray) -> np.ndarray:
    return np.swapaxes(x, -1, -2)


def not_worse(found, lapack, dtype: str, what: str) -> None:
    """Errors, one for each matrix, beside those of LAPACK; less than a rounding error is none."""
    bound = WORSE * max(float(np.max(lapack)), float(np.finfo(dtype).eps))
    assert float(np.max(found)) <= bound, f"{what}: {np.max(found)} where LAPACK has {np.max(lapack)}"


def from_identity(q: np.ndarray) -> np.ndarray:
    return norm(product(turned(q), q) - np.eye(q.shape[-1]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["random", "graded", "ill"])
@pytest.mark.parametrize("n", [3, 8, 16, pytest.param(32, marks=pytest.mark.slow)])
def test_residuals_of_solutions(dtype, kind, n, native):
    a, b = stack(24, n, n, dtype, kind), stack(24, n, 3, dtype, seed=1)
    solution, inverse = values(lt.linalg.solve(lt.asarray(a), lt.asarray(b)), lt.linalg.inv(lt.asarray(a)))

    def residual(x, y):
        return norm(product(a, x) - y) / (norm(a) * norm(x) + norm(y))

    not_worse(residual(solution, b), residual(np.linalg.solve(a, b), b), dtype, "solve")
    not_worse(residual(inverse, np.eye(n)), residual(np.linalg.inv(a), np.eye(n)), dtype, "inv")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["random", "graded", "ill", "low"])
@pytest.mark.parametrize("n", [3, 8, 16, pytest.param(24, marks=pytest.mark.slow)])
def test_residuals_of_decompositions(dtype, kind, n, native):
    a = stack(24, n, n, dtype, kind)
    s = symmetric(a)
    x, y = lt.asarray(a), lt.asarray(s)
    q, r, w, v, left, d, right = values(*lt.linalg.qr(x), *lt.linalg.eigh(y), *lt.linalg.svd(x))
    lapack = np.linalg.qr(a)
    errors = [norm(product(*found) - a) / norm(a) for found in ((q, r), lapack)]
    not_worse(*errors, dtype, "qr")
    not_worse(from_identity(q), from_identity(lapack[0]), dtype, "q")
    errors = [norm(product(s, vectors) - vectors * w[:, None]) / norm(s) for w, vectors in ((w, v), np.linalg.eigh(s))]
    not_worse(*errors, dtype, "eigh")
    not_worse(from_identity(v), from_identity(np.linalg.eigh(s)[1]), dtype, "v")
    lapack = np.linalg.svd(a)
    errors = [norm(product(u * d[:, None], v) - a) / norm(a) for u, d, v in ((left, d, right), lapack)]
    not_worse(*errors, dtype, "svd")
    not_worse(from_identity(left), from_identity(lapack[0]), dtype, "u")
    not_worse(from_identity(turned(right)), from_identity(turned(lapack[2])), dtype, "vh")
    assert (np.diff(w) >= 0).all() and (np.diff(d) <= 0).all() and (d >= 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threads", [1, 4], indirect=True)
def test_square_matrices_of_every_size(dtype, threads, native):
    tol = 1e-4 if dtype == "f4" else 1e-11
    for n in SIZES:
        for count in COUNTS:
            a = stack(count, n, n, dtype)
            s = (a @ turned(a) + n * np.eye(n)).astype(dtype)
            x, y, b = lt.asarray(a), lt.asarray(s), stack(count, n, 2, dtype, seed=1)
            solution, inverse, det, sign, log, factor, eigen = values(
                lt.linalg.solve(y, lt.asarray(b)), lt.linalg.inv(y), lt.linalg.det(x), *lt.linalg.slogdet(x),
                lt.linalg.cholesky(y), lt.linalg.eigvalsh(y),
            )  # fmt: skip
            for found, exact in (
                (solution, np.linalg.solve(s, b)), (inverse, np.linalg.inv(s)), (det, np.linalg.det(a)),
                (sign, np.linalg.slogdet(a)[0]), (log, np.linalg.slogdet(a)[1]), (factor, np.linalg.cholesky(s)),
                (eigen, np.linalg.eigvalsh(s)),
            ):  # fmt: skip
                assert found.dtype == dtype
                np.testing.assert_allclose(
                    found, exact, rtol=tol, atol=tol * np.abs(exact).max(), err_msg=f"{count} {n}"
                )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threads", [1, 4], indirect=True)
def test_oblong_matrices(dtype, threads, native):
    """Q and R with LAPACK's signs; both forms of factors."""
    tol = 1e-5 if dtype == "f4" else 1e-13
    for m, n in SHAPES:
        for count in COUNTS[1:3]:
            a = stack(count, m, n, dtype)
            x, scale = lt.asarray(a), float(np.abs(a).max()) * max(m, n)
            for mode, full in (("reduced", False), ("complete", True)):
                found = values(*lt.linalg.qr(x, mode=mode), *lt.linalg.svd(x, full_matrices=full), lt.linalg.svdvals(x))
                q, r, u, d, vh, alone = found
                for part, exact in zip((q, r), np.linalg.qr(a, mode), strict=True):
                    np.testing.assert_allclose(
                        part, exact, rtol=tol, atol=tol * scale, err_msg=f"{count} {m} {n} {mode}"
                    )
                for s in (d, alone):
                    np.testing.assert_allclose(s, np.linalg.svd(a, compute_uv=False), rtol=tol, atol=tol * scale)
                assert (u.shape, vh.shape) == tuple(x.shape for x in np.linalg.svd(a, full)[::2])
                k = min(m, n)
                np.testing.assert_allclose((u[..., :k] * d[:, None]) @ vh[:, :k], a, rtol=tol, atol=tol * scale)
                for basis in (u, turned(vh)):
                    assert from_identity(basis).max() < tol * max(m, n)


def test_results_that_are_not_read(native):
    x = stack(6, 4, 4, "f8")
    s = symmetric(x)
    a, b = lt.asarray(x), lt.asarray(s)
    found = values(
        lt.linalg.qr(a)[1], lt.linalg.qr(a)[0], lt.linalg.eigh(b)[0], lt.linalg.svd(a)[1], lt.linalg.slogdet(a)[1]
    )
    exact = (
        np.linalg.qr(x)[1], np.linalg.qr(x)[0], np.linalg.eigvalsh(s), np.linalg.svd(x)[1], np.linalg.slogdet(x)[1]
    )  # fmt: skip
    for got, want in zip(found, exact, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    v = values(lt.linalg.eigh(b)[1])[0]
    np.testing.assert_allclose(v * exact[2][:, None] @ turned(v), s, atol=1e-12)
    u, vh = (values(lt.linalg.svd(a)[k])[0] for k in (0, 2))
    np.testing.assert_allclose(np.abs(turned(u) @ x @ turned(vh)), exact[3][:, None] * np.eye(4), atol=1e-12)


def test_layouts_of_operands(native):
    x, y = stack(6, 5, 5, "f8"), stack(6, 5, 5, "f8", seed=1)
    a, b = lt.asarray(x), lt.asarray(y)
    one = y[0]
    found = values(
        lt.linalg.solve(a.mT, b[::-1]), lt.linalg.inv(a[::2, ::-1]), lt.linalg.solve(a[0], b),
        lt.linalg.solve(a.reshape(2, 3, 5, 5), b[:3, :, :1]), lt.linalg.solve(a, b[0, :, 0]),
    )  # fmt: skip
    exact = (
        np.linalg.solve(turned(x), y[::-1]), np.linalg.inv(x[::2, ::-1]), np.linalg.solve(x[0], y),
        np.linalg.solve(x.reshape(2, 3, 5, 5), y[:3, :, :1]), np.linalg.solve(x, one[:, 0]),
    )  # fmt: skip
    for got, want in zip(found, exact, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


def test_many_right_hand_sides_and_none(native):
    x = stack(9, 6, 6, "f8")
    for k in (small_matrices.SIDES, small_matrices.SIDES + 1, 0):
        b = stack(9, 6, k, "f8", seed=1)
        got = lt.linalg.solve(lt.asarray(x), lt.asarray(b))
        assert ("native linalg" in str(lt.explain(got))) == (0 < k <= small_matrices.SIDES)
        np.testing.assert_allclose(got.numpy(), np.linalg.solve(x, b), rtol=1e-9, atol=1e-9)
    for shape in ((0, 3, 3), (2, 0, 0)):
        assert lt.linalg.inv(lt.zeros(shape)).numpy().shape == shape
        np.testing.assert_array_equal(lt.linalg.det(lt.zeros(shape)).numpy(), np.linalg.det(np.zeros(shape)))
        assert lt.linalg.svdvals(lt.zeros(shape)).numpy().shape == shape[:-1]


REFUSED = {
    "inv": (lt.linalg.inv, np.ones((3, 3)), r"linalg\.inv: Singular matrix"),
    "solve": (lambda x: lt.linalg.solve(x, x), np.ones((3, 3)), r"linalg\.solve: Singular matrix"),
    "cholesky": (lt.linalg.cholesky, -np.eye(3), r"linalg\.cholesky: Matrix is not positive definite"),
    "cholesky of NaN": (lt.linalg.cholesky, np.eye(3) * np.nan, r"linalg\.cholesky: Matrix is not positive definite"),
    "svdvals": (lt.linalg.svdvals, np.eye(3) * np.nan, r"linalg\.svdvals: SVD did not converge \("),
    "svd": (lambda x: lt.linalg.svd(x)[1], np.diag([1, np.nan, 1]), r"linalg\.svd: SVD did not converge \("),
    "svd of inf": (
        lambda x: lt.linalg.svd(x)[0],
        np.diag([1, np.inf, 1]),
        "SVD did not converge: .* holds inf",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("threads", [1, 4], indirect=True)
def test_a_matrix_that_is_refused(name, threads, native):
    """The error says which operation, and its line; what is pending can be had again; nothing is overwritten."""
    call, refused, message = REFUSED[name]
    x = np.tile(np.eye(3), (3 * LANES + 2, 1, 1)) * 2
    for _ in range(3):  # in a new plan, a known one, and a replay
        bad = x.copy()
        bad[2 * LANES + 1] = refused
        kept, other, t = lt.asarray(np.arange(4.0)), lt.asarray(x), lt.asarray(bad)
        result = call(t)
        kept += 1
        fine = lt.linalg.det(other)
        dependent = result * 2
        with pytest.raises(np.linalg.LinAlgError, match=message + r".*recorded at .*test_small_matrices\.py") as e:
            dependent.numpy()
        assert "found at the sync" in str(e.value)
        assert result.is_pending and dependent.is_pending
        np.testing.assert_allclose(fine.numpy(), 8)
        np.testing.assert_array_equal(kept.numpy(), np.arange(4.0) + 1)
        np.testing.assert_array_equal(t.numpy(), bad)
        with pytest.raises(np.linalg.LinAlgError, match=message):
            result.numpy()
        np.testing.assert_allclose(lt.linalg.inv(other).numpy(), x / 4)


def test_what_follows_a_refusal_is_not_computed(native):
    """An effect behind it is not seen, and a library that would fail for another reason is not asked."""
    seen = []
    x = lt.linalg.inv(lt.asarray(np.ones((4, 3, 3))))
    y = lt.linalg.eig(x)[0]
    lt.debug.callback(lambda v: seen.append(v), y)
    with pytest.raises(np.linalg.LinAlgError, match=r"linalg\.inv: Singular matrix"):
        lt.sync()
    assert not seen


def test_numbers_that_are_not_finite_or_out_of_range(native):
    """NaN and infinities stay in their matrix; large and small numbers lose nothing."""
    x = np.tile(np.diag([1.0, 2.0, 4.0]), (10, 1, 1))
    x[3, 1, 1] = np.nan
    x[5, 0, 0] = np.inf
    t = lt.asarray(x)
    fine = np.isfinite(x).all(axis=(1, 2))
    for f, exact in (
        (lt.linalg.inv, np.linalg.inv),
        (lt.linalg.det, np.linalg.det),
        (lt.linalg.eigvalsh, np.linalg.eigvalsh),
    ):
        (found,) = values(f(t))
        np.testing.assert_allclose(found[fine], exact(x[fine]))
        assert np.isnan(found[3]).any()
    for scale in (1e300, 1e-300, 5e-324 * 64, 1e150, 1e-150):
        y = np.array([[[3, 1], [1, 2]], [[0, 1], [1, 0]]]) * scale
        w, d, r, log = values(
            lt.linalg.eigvalsh(lt.asarray(y)), lt.linalg.svdvals(lt.asarray(y)), lt.linalg.qr(lt.asarray(y))[1],
            lt.linalg.slogdet(lt.asarray(y * 8))[1],
        )  # fmt: skip
        near = {"rtol": 1e-13 if scale > 1e-310 else 0.1, "atol": scale * 1e-13}
        np.testing.assert_allclose(w, np.linalg.eigvalsh(y), **near)
        np.testing.assert_allclose(d, np.linalg.svd(y, compute_uv=False), **near)
        np.testing.assert_allclose(r, np.linalg.qr(y)[1], **near)
        np.testing.assert_allclose(log, 2 * np.log(scale) + np.log([5 * 64, 64]), rtol=near["rtol"])
    b = np.ones((1, 2, 1))
    for scale in (1e300, 1e-300, 1e-308):
        y = np.array([[[1.0, 2.0], [3.0, -1.0]]]) * scale
        (found,) = values(lt.linalg.solve(lt.asarray(y), lt.asarray(b * scale)))
        np.testing.assert_allclose(found, [[[3 / 7], [2 / 7]]], rtol=1e-12)
    product_of_extremes = np.diag([1e300, 1e300, 1e-300, 1e-300])[None]
    np.testing.assert_allclose(values(lt.linalg.det(lt.asarray(product_of_extremes)))[0], [1], rtol=1e-12)


def test_singular_matrices_have_no_determinant(native):
    x = np.stack([np.ones((3, 3)), np.zeros((3, 3)), np.eye(3)])
    det, sign, log = values(lt.linalg.det(lt.asarray(x)), *lt.linalg.slogdet(lt.asarray(x)))
    np.testing.assert_array_equal(det, [0, 0, 1])
    np.testing.assert_array_equal(sign, [0, 0, 1])
    np.testing.assert_array_equal(log, [-np.inf, -np.inf, 0])


def test_rank_deficient_matrices_have_bases(native):
    cases = (np.zeros((7, 4, 4)), np.ones((6, 4, 4)), np.tile(np.arange(4.0), (9, 4, 1)), np.ones((6, 5, 3)))
    for x in cases:
        u, d, vh = values(*lt.linalg.svd(lt.asarray(x), full_matrices=True))
        assert from_identity(u).max() < 1e-14
        assert from_identity(turned(vh)).max() < 1e-14
        k = d.shape[-1]
        np.testing.assert_allclose((u[..., :k] * d[:, None]) @ vh[:, :k], x, atol=1e-13)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_vectors_of_few_matrices_have_the_signs_of_numpy(count):
    """Where these are free, and a program on one matrix is compared with NumPy's."""
    x = stack(count, 4, 4, "f8") if count else stack(1, 4, 4, "f8")[0]
    for got, want in (
        (lt.linalg.eigh(lt.asarray(symmetric(x)))[1], np.linalg.eigh(symmetric(x))[1]),
        (lt.linalg.svd(lt.asarray(x))[0], np.linalg.svd(x)[0]),
    ):
        np.testing.assert_allclose(got.numpy(), want, atol=1e-12)


def test_only_the_lower_triangle_is_read(native):
    x = stack(4, 5, 5, "f8")
    s = symmetric(x) + 20 * np.eye(5)
    upper = np.tril(s) + np.triu(np.full((5, 5), np.nan), 1)
    w, factor = values(lt.linalg.eigvalsh(lt.asarray(upper)), lt.linalg.cholesky(lt.asarray(upper)))
    np.testing.assert_allclose(w, np.linalg.eigvalsh(s))
    np.testing.assert_allclose(factor, np.linalg.cholesky(s), atol=1e-14)


def test_extents_that_change(native):
    """One plan for all; some sizes are LAPACK's."""
    for i in range(14):
        n, count = 2 + i % 7, 1 + 3 * i
        for size in (n, 40) if i == 9 else (n,):
            a, b = stack(count, size, size, "f8", seed=i), stack(count, size, 2, "f8", seed=i + 1)
            got = lt.linalg.solve(lt.asarray(a) * 2, lt.asarray(b)) + 1
            np.testing.assert_allclose(got.numpy(), np.linalg.solve(a * 2, b) + 1, rtol=1e-7, atol=1e-7)


def test_gradients(native):
    """Of the same calls in NumPy: with the machine code and without."""

    def gradients() -> list[np.ndarray]:
        forget()
        x = lt.asarray(stack(5, 4, 4, "f8")).requires_grad_()
        s = x @ x.mT + 4 * lt.eye(4)
        total = lt.linalg.solve(s, x).sum() + lt.linalg.slogdet(s)[1].sum() + lt.linalg.cholesky(s).sum()
        total = total + lt.linalg.eigvalsh(s).sum() + lt.linalg.svdvals(x).sum() + abs(lt.linalg.qr(x)[1]).sum()
        total = total + lt.linalg.inv(s).sum() + lt.linalg.det(x).sum() + (lt.linalg.eigh(s)[1] ** 2 * x).sum()
        total.backward()
        return [x.grad.numpy()]

    found = gradients()
    with pytest.MonkeyPatch.context() as m:
        m.setattr(small_matrices, "FORMS", {})
        lapack = gradients()
    np.testing.assert_allclose(found[0], lapack[0], rtol=1e-9, atol=1e-9)


def test_a_few_large_matrices_are_left_to_numpy():
    for count, n, native in ((1, 4, True), (1, 30, False), (8, 30, True), (8, 33, False)):
        x = lt.linalg.inv(lt.asarray(stack(count, n, n, "f8")))
        assert ("native linalg_inv" in str(lt.explain(x))) == native, (count, n)
    assert "NumPy linalg.inv" in str(lt.explain(lt.linalg.inv(lt.asarray(stack(8, 4, 4, "c16")))))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "matrix",
    [
        [[0.0, np.inf]],
        [[-np.inf, 2.0, -0.0]],
        [[1.0, np.inf], [0.0, 2.0]],
        [[np.inf, 1.0], [0.0, 2.0]],
        [[-np.inf], [2.0]],
        [[2.0], [np.nan]],
        [[np.nan, 1.0], [0.0, np.inf]],
    ],
)
def test_qr_of_what_is_not_finite_is_lapacks(matrix: list[list[float]], dtype: type) -> None:
    """A reflection that is nothing but 1 is not applied, so infinities do not become NaN."""
    a = np.asarray(matrix, dtype)
    for found, expected in zip(values(*lt.linalg.qr(lt.asarray(a) * 1)), np.linalg.qr(a), strict=True):
        np.testing.assert_array_equal(found, expected)
