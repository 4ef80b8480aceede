"""Calls of every function that lazyt and NumPy both have, on a million elements: what `benchmarks.functions` times.

A call is an expression over `xp`, which is lazyt or NumPy, and the arrays of `arrays`. One with another spelling in
NumPy is a pair, `lazyt's | NumPy's`. dtypes are NumPy's characters: `f` float32, `d` float64, `l` int64, `i` int32, `?`
bool, `F` complex64, `D` complex128.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# Functions of one array: the array, the dtypes, the names.
UNARY = (
    ("x", "fdl", "abs square sign negative positive isfinite isinf isnan logical_not real imag angle conj"),
    ("x", "FD", "abs square sign negative isfinite isinf isnan logical_not real imag angle conj reciprocal"),
    ("x", "fd", """
        exp exp2 expm1 sin cos tan sinh cosh tanh arctan arcsinh floor ceil trunc rint round fix fabs cbrt
        signbit isneginf isposinf reciprocal degrees radians deg2rad rad2deg nan_to_num sinc i0 spacing
        frexp modf iscomplex isreal
    """),
    ("p", "fd", "sqrt log log2 log10 log1p"),
    ("u", "fd", "arccos arcsin arctanh"),
    ("g", "fd", "arccosh"),
    ("x", "FD", """
        exp expm1 sin cos tan sinh cosh tanh sqrt log log10 log2 log1p arctan arcsin arccos arcsinh arccosh
        arctanh round iscomplex isreal nan_to_num
    """),
    ("x", "li?", "invert"),
    ("x", "li", "bitwise_count"),
)  # fmt: skip
BINARY = (
    ("x", "y", "fdl", """
        add subtract multiply maximum minimum fmax fmin equal not_equal less less_equal greater
        greater_equal
    """),
    ("x", "y", "FD", "add subtract multiply divide equal not_equal"),
    ("x", "p", "fdl", "divide floor_divide remainder fmod divmod"),
    ("p", "x", "fd", "power float_power"),
    ("x", "p", "F", "power"),
    ("x", "y", "fd", "arctan2 copysign heaviside hypot logaddexp logaddexp2 nextafter isclose"),
    ("x", "y", "l?", "bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_xor"),
    ("x", "y", "f", "logical_and logical_or logical_xor"),
    ("x", "z", "li", "left_shift right_shift"),
    ("x", "p", "l", "gcd lcm power"),
    ("x", "z", "fd", "ldexp"),
)  # fmt: skip
REDUCTIONS = (
    ("x", "fdl", "sum mean max min ptp any all count_nonzero argmax argmin std var"),
    ("x", "FD", "sum mean std var"),
    ("x", "?", "sum any all count_nonzero"),
    ("o", "fdl", "prod"),
    ("r", "fd", "nansum nanmean nanmax nanmin nanstd nanvar nanprod nanargmax nanargmin"),
    ("x", "fd", "median"),
    ("r", "fd", "nanmedian"),
    ("x", "fd", "average"),
)
AXES = ("", ", axis=0", ", axis=-1")
SCANS = (
    ("x", "fdlFD", "cumsum"),
    ("x", "f", "cumulative_sum"),
    ("o", "f", "cumulative_prod"),
    ("o", "fdlFD", "cumprod"),
    ("r", "fd", "nancumsum nancumprod"),
)
# dtypes, and calls separated by semicolons.
CALLS = (
    # sorts and searches
    ("fdl", """
        xp.sort(v); xp.sort(x); xp.sort(x, axis=0); xp.argsort(v, stable=True); xp.argsort(x, stable=True);
        xp.argsort(x, axis=0, stable=True); xp.argsort(v)
    """),
    ("fdl", "xp.partition(v, size // 2); xp.partition(x, side // 2); xp.argpartition(v, size // 2)"),
    ("d", "xp.lexsort((v, n)); xp.sort_complex(v)"),
    ("fdl", "xp.searchsorted(s, v); xp.searchsorted(h, v); xp.digitize(v, h)"),
    ("fdl", "xp.unique(n); xp.unique(v); xp.unique_values(n); xp.unique_counts(n); xp.unique_inverse(n)"),
    ("f", "xp.unique_all(n)"),
    ("fl", """
        xp.isin(v, h); xp.isin(n, n[:100]); xp.union1d(n, v); xp.intersect1d(n, v); xp.setdiff1d(n, v);
        xp.setxor1d(n, v)
    """),
    ("fl?", "xp.nonzero(x); xp.flatnonzero(v); xp.argwhere(x)"),
    ("fd", """
        xp.quantile(v, 0.3); xp.quantile(x, 0.3, axis=0); xp.quantile(x, 0.3, axis=-1);
        xp.percentile(v, [10, 50, 90]); xp.percentile(x, 30, axis=-1); xp.quantile(v, 0.3, method='nearest')
    """),
    ("fd", "xp.nanquantile(r, 0.3); xp.nanquantile(r, 0.3, axis=-1); xp.nanpercentile(r, 30)"),
    ("fd", """
        xp.histogram(v, 100); xp.histogram(v, h); xp.histogram(v, 100, weights=p.ravel());
        xp.histogram_bin_edges(v, 100)
    """),
    ("d", "xp.histogram2d(v, w, 50); xp.histogramdd((v, w), 50)"),
    ("l", "xp.bincount(q)"),
    ("d", "xp.bincount(q, weights=v); xp.average(x, weights=p); xp.average(x, axis=0, weights=p)"),
    # indexing
    ("fdlF", "v[k]; x[a[0]]; x[:, a[0]]; x[a, a]; v[d]; x[b]; xp.take(v, k); xp.take(x, a[0], axis=1)"),
    ("fdl", "xp.take_along_axis(x, a, axis=-1); xp.take_along_axis(x, a, axis=0)"),
    ("fdl", "xp.put_along_axis(x, a, y, axis=-1) | put_along_axis(x, a, y, -1)"),
    ("fdl", "xp.put_along_axis(x, a, y, axis=0) | put_along_axis(x, a, y, 0)"),
    ("fdl", "put(x, b, 0); put(v, k, w); put(x, np.s_[::2], 1); put(x, np.s_[:, ::2], 1); put(v, d, 0)"),
    ("fd", "xp.add_at(v, k, w) | add_at(v, k, w)"),
    ("fdl", "xp.where(b, x, y); xp.where(b, x, 0); xp.compress(d, v); xp.extract(b, x); xp.select([b, x > y], [x, y])"),
    ("fl", """
        xp.choose(z, [x, y, x, y, x, y, x, y]); xp.piecewise(x, [b], [1, 2]); xp.delete(v, side);
        xp.delete(v, k[:side]); xp.insert(v, side, 1); xp.trim_zeros(v); xp.resize(v, (2, size))
    """),
    ("f", """
        xp.delete(x, 5, axis=0); xp.insert(x, 5, 1, axis=0); xp.unravel_index(k, (side, side));
        xp.ravel_multi_index((a, a), (side, side)); xp.apply_over_axes(xp.sum, c, [0, 2])
    """),
    # movement
    ("fdlF", """
        xp.copy(x); xp.flip(x); xp.flip(x, axis=0); xp.flip(x, axis=-1); xp.matrix_transpose(x);
        xp.permute_dims(c, (2, 1, 0)); xp.permute_dims(c, (1, 0, 2)); xp.permute_dims(c, (0, 2, 1));
        xp.roll(v, side); xp.roll(x, 10, axis=0); xp.roll(x, 10, axis=1)
    """),
    ("fd", """
        xp.rot90(x); xp.swapaxes(c, 0, 2); xp.moveaxis(c, 0, 2); xp.rollaxis(c, 2); xp.transpose(c);
        xp.reshape(xp.transpose(x), (-1,)); xp.ravel(xp.transpose(x)); xp.fliplr(x); xp.flipud(x);
        xp.broadcast_to(x[0], (side, side)); xp.tile(x[:10], (100, 1)); xp.tile(x[:, :10], (1, 100));
        xp.repeat(v[:size // 4], 4); xp.repeat(x[:, :250], 4, axis=1); xp.repeat(x[:250], 4, axis=0);
        x[::2]; x[:, ::2]; x[1:-1, 1:-1]; xp.expand_dims(x, 1); xp.squeeze(x[None]); xp.diagonal(c);
        xp.pad(x, 10); xp.pad(x, 10, mode='edge'); xp.pad(x, 10, mode='reflect'); xp.pad(x, 10, mode='wrap')
    """),
    ("fd", """
        xp.concat([x, y]); xp.concatenate([x, y], axis=0); xp.concat([x, y], axis=1); xp.stack([x, y]);
        xp.stack([x, y], axis=-1); xp.vstack([x, y]); xp.hstack([x, y]); xp.dstack([x, y]);
        xp.column_stack([v, w]); xp.append(v, w);
        xp.block([[x, y], [y, x]]); xp.split(x, 4); xp.array_split(x, 3, axis=1); xp.unstack(x[:100]);
        xp.hsplit(x, 4); xp.vsplit(x, 4); xp.dsplit(c, 2); xp.meshgrid(h, h); xp.broadcast_arrays(x, x[0]);
        xp.tril(x); xp.triu(x); xp.diag(x[0]); xp.diagflat(x[0]); xp.atleast_1d(x); xp.atleast_2d(v);
        xp.atleast_3d(x)
    """),
    ("fdl", """
        xp.astype(x, np.float32); xp.astype(x, np.float64); xp.astype(x, np.int32); xp.astype(x, np.int64);
        xp.astype(x, np.float16); xp.astype(p, np.uint8); xp.astype(x, np.bool_); xp.astype(x, np.complex64)
    """),
    ("?", "xp.packbits(x); xp.unpackbits(xp.packbits(x))"),
    # creation
    ("f", """
        xp.zeros((side, side), dtype=np.float32); xp.ones((side, side), dtype=np.float32);
        xp.full((side, side), 2.5, dtype=np.float64); xp.empty((side, side), dtype=np.float32);
        xp.arange(size); xp.arange(0, 1, 1 / size, dtype=np.float64); xp.linspace(0, 1, size, dtype=np.float64);
        xp.logspace(0, 1, size, dtype=np.float64); xp.geomspace(1, 10, size, dtype=np.float64);
        xp.eye(side, dtype=np.float32); xp.identity(side, dtype=np.float64); xp.tri(side, dtype=np.float32);
        xp.indices((side, side)); xp.tril_indices(side); xp.triu_indices(side); xp.diag_indices(size);
        xp.tril_indices_from(x); xp.triu_indices_from(x); xp.hanning(size); xp.hamming(size);
        xp.blackman(size); xp.bartlett(size); xp.kaiser(size, 5.0); xp.vander(u[0], side); xp.array(N)
    """),
    ("fl", "xp.zeros_like(x); xp.ones_like(x); xp.full_like(x, 3); xp.empty_like(x)"),
    # arithmetic over more than one element
    ("fdl", "xp.clip(x, -1, 1); xp.diff(v); xp.diff(x, axis=0); xp.ediff1d(v)"),
    ("fd", """
        xp.gradient(v); xp.gradient(x); xp.trapezoid(v); xp.trapezoid(x, axis=0); xp.interp(v, h, h);
        xp.unwrap(v * 5); xp.convolve(v, j); xp.correlate(v, j); xp.convolve(v, j, 'same'); xp.polyval(j[:5], v);
        xp.polyder(v); xp.polyint(v); xp.polyadd(v, w); xp.polysub(v, w); xp.polymul(v, j[:8]);
        xp.allclose(x, x); xp.array_equal(x, x); xp.array_equiv(x, x[0]); xp.cov(x[:50]); xp.corrcoef(x[:50])
    """),
    # contractions
    ("fd", """
        xp.matmul(x, y); xp.dot(v, w); xp.vdot(v, w); xp.vecdot(x, y); xp.inner(x, y); xp.matvec(x, x[0]);
        xp.vecmat(x[0], x); xp.matmul(x, x[0]); xp.matmul(t, t); xp.matmul(e, e); xp.tensordot(c, c[0], axes=1);
        xp.tensordot(x, y, axes=2); xp.outer(x[0], y[0]); xp.kron(x[:32, :32], y[:31, :31]); xp.trace(x);
        xp.trace(c); xp.cross(f3, g3); xp.linalg.multi_dot([x, y, x[:, :10]]); xp.einsum('ij,jk->ik', x, y);
        xp.einsum('ij->j', x); xp.einsum('ij->ji', x); xp.einsum('ii->i', x); xp.einsum('i,i->', v, w);
        xp.einsum('bij,bjk->bik', t, t); xp.einsum('ij,ij->i', x, y); xp.einsum('i,j->ij', x[0], y[0])
    """),
    ("l", "xp.matmul(x[:200], y[:, :200]); xp.dot(v, w); xp.vecdot(x, y)"),
    # other shapes and arguments: few columns, long windows, columns summed up, one number
    ("fd", """
        xp.subtract(f3, f3[0]); xp.max(f3, axis=1); xp.sum(f3, axis=1); xp.matvec(f3, f3[0]);
        xp.permute_dims(f3, (1, 0)); xp.permute_dims(g3.T, (1, 0)); xp.multiply(f3, v[:size // 3, None]);
        xp.subtract(v[:, None], v[:1]); xp.max(v[:, None], axis=1); xp.convolve(v, x[0, :100]);
        xp.convolve(v, x[0], 'valid'); xp.einsum('ij,ij->j', x, y); xp.einsum('ij,ji->j', x, y)
    """),
    ("li", "xp.floor_divide(x, 7); xp.remainder(x, 7)"),
    ("FD", "xp.matmul(x, y); xp.vdot(v, w); xp.dot(v, w)"),
    # linear algebra
    ("fd", """
        xp.linalg.inv(t); xp.linalg.cholesky(t); xp.linalg.det(t); xp.linalg.slogdet(t); xp.linalg.qr(t);
        xp.linalg.solve(t, t); xp.linalg.eigvalsh(t); xp.linalg.eigh(t); xp.linalg.svdvals(t); xp.linalg.svd(t);
        xp.linalg.pinv(t); xp.linalg.matrix_rank(t); xp.linalg.matrix_power(t, 3); xp.linalg.eigvals(e);
        xp.linalg.eig(e); xp.linalg.cond(t); xp.linalg.inv(e); xp.linalg.det(e); xp.linalg.solve(e, e);
        xp.linalg.cholesky(e); xp.linalg.lstsq(x[:, :30], x[0])
    """),
    ("fd", "xp.linalg.inv(SPD); xp.linalg.solve(SPD, x); xp.linalg.cholesky(SPD); xp.linalg.det(SPD)"),
    ("fd", """
        xp.linalg.norm(x); xp.linalg.norm(v); xp.linalg.vector_norm(x, axis=-1); xp.linalg.matrix_norm(t);
        xp.linalg.norm(x, axis=0); xp.linalg.vector_norm(x, ord=1); xp.linalg.vector_norm(x, ord=3)
    """),
    # Fourier transforms
    ("FD", """
        xp.fft.fft(v); xp.fft.fft(x); xp.fft.ifft(x); xp.fft.fftn(x); xp.fft.ifftn(x); xp.fft.fft(x, axis=0);
        xp.fft.hfft(x); xp.fft.irfft(x); xp.fft.irfftn(x); xp.fft.fftshift(x); xp.fft.ifftshift(x);
        xp.fft.fft2(x); xp.fft.ifft2(x); xp.fft.irfft2(x)
    """),
    ("fd", "xp.fft.rfft(v); xp.fft.rfft(x); xp.fft.rfftn(x); xp.fft.rfft2(x); xp.fft.ihfft(x); xp.fft.fft(x)"),
    ("d", "xp.fft.fftfreq(size); xp.fft.rfftfreq(size)"),
    # random numbers
    ("f", """
        xp.random.random((side, side)) | rng.random((side, side), np.float32);
        xp.random.random((side, side), dtype=np.float64) | rng.random((side, side));
        xp.random.standard_normal((side, side)) | rng.standard_normal((side, side), np.float32);
        xp.random.standard_normal((side, side), dtype=np.float64) | rng.standard_normal((side, side));
        xp.random.uniform(-1, 1, (side, side), dtype=np.float64) | rng.uniform(-1, 1, (side, side));
        xp.random.normal(1, 2, (side, side), dtype=np.float64) | rng.normal(1, 2, (side, side));
        xp.random.integers(0, 100, (side, side)) | rng.integers(0, 100, (side, side));
        xp.random.permutation(size) | rng.permutation(size); xp.random.permutation(v) | rng.permutation(v);
        xp.random.choice(side, size) | rng.choice(side, size)
    """),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One call: lazyt's expression and NumPy's, and the dtype of the arrays."""

    name: str  # the function
    lazyt: str
    numpy: str
    dtype: str

    @property
    def label(self) -> str:
        return f"{self.lazyt.replace('xp.', '')} {np.dtype(self.dtype).name}"


def cases() -> list[Case]:
    """Every call of the tables, one of a kind."""
    found = {(c.lazyt, c.dtype): c for c in _all()}
    return list(found.values())


def _all() -> Iterator[Case]:
    for array, dtypes, names in UNARY:
        yield from _each(dtypes, [f"xp.{n}({array})" for n in names.split()])
    for a, b, dtypes, names in BINARY:
        yield from _each(dtypes, [f"xp.{n}({a}, {b})" for n in names.split()])
    for array, dtypes, names in REDUCTIONS:
        yield from _each(dtypes, [f"xp.{n}({array}{axis})" for n in names.split() for axis in AXES])
    for array, dtypes, names in SCANS:
        yield from _each(dtypes, [f"xp.{n}({array}{axis})" for n in names.split() for axis in _axes(n)])
    for dtypes, text in CALLS:
        yield from _each(dtypes, [" ".join(c.split()) for c in text.split(";")])


def _axes(name: str) -> tuple[str, ...]:
    """Along which axes; the standard's names want one."""
    return AXES[1:] if name.startswith("cumulative") else AXES


def _each(dtypes: str, calls: list[str]) -> Iterator[Case]:
    for call in calls:
        lazyt, _, numpy = (x.strip() for x in call.partition("|"))
        yield from (Case(name_of(lazyt), lazyt, numpy or lazyt, t) for t in dtypes)


def name_of(call: str) -> str:
    """The function that a call is of: `linalg.inv`; `getitem` and `setitem` for subscripts.

    >>> name_of("xp.linalg.inv(x)"), name_of("x[b]"), name_of("put(x, b, 0)")
    ('linalg.inv', 'getitem', 'setitem')
    """
    found = re.match(r"xp\.((?:linalg\.|fft\.|random\.)?\w+)\(", call)
    return found[1] if found else "setitem" if call.startswith("put(") else "getitem"


def arrays(dtype: str, quick: bool) -> dict[str, Any]:
    """What the calls of one dtype are given, by name; a million elements each unless said otherwise.

    x, y normal; p positive; u within 1; g above 1; o near 1 (products stay finite); r has NaN; n few distinct values;
    z from 0 to 7; c a cube; v, w vectors; s a sorted one; h a thousand sorted; j thirty-two; k, a, q positions; b, d
    masks; t, e stacks of matrices, 64 and 8 wide, positive definite; SPD such a matrix; f3, g3 triples; N for NumPy.
    """
    rng = np.random.default_rng(7)
    side = 32 if quick else 1000
    size = side * side
    d = np.dtype(dtype)

    def cast(a: Array) -> Array:
        return a.astype(d)

    def normal(*shape: int) -> Array:
        if d.kind == "c":
            return cast(rng.standard_normal(shape) + 1j * rng.standard_normal(shape))
        if d.kind == "f":
            return cast(rng.standard_normal(shape))
        return rng.random(shape) < 0.5 if d.kind == "b" else rng.integers(-100, 100, shape).astype(d)

    def between(low: float, high: float) -> Array:
        return cast(rng.integers(1, 8, (side, side)) if d.kind in "iu" else rng.uniform(low, high, (side, side)))

    def definite(count: tuple[int, ...], n: int) -> Array:
        a = rng.standard_normal((*count, n, n))
        return cast(a @ np.swapaxes(a, -1, -2) / n + np.eye(n))

    x, y = normal(side, side), normal(side, side)
    edge = round(size ** (1 / 3))
    found: dict[str, Any] = {
        "x": x, "y": y, "p": between(0.1, 4), "u": between(-0.95, 0.95), "g": between(1.05, 5),
        "z": rng.integers(0, 8, (side, side)).astype("i8" if d.kind not in "iu" else d),
        "n": cast(rng.integers(0, 1000, size)),
        "c": normal(edge, edge, edge), "v": x.ravel().copy(), "w": y.ravel().copy(), "s": np.sort(x, axis=None),
        "h": np.sort(normal(min(size, 1000))), "j": normal(32), "k": rng.permutation(size),
        "a": rng.integers(0, side, (side, side)), "q": rng.integers(0, 1000, size), "b": rng.random((side, side)) < 0.5,
        "d": rng.random(size) < 0.5, "f3": normal(size // 3, 3), "g3": normal(size // 3, 3),
    }  # fmt: skip
    found["o"] = cast(rng.choice([-1, 1], (side, side)) if d.kind in "iu" else rng.uniform(0.999, 1.001, (side, side)))
    if d.kind in "fc":
        found["r"] = np.where(rng.random((side, side)) < 0.1, d.type(np.nan), x)
        found["t"] = definite((2 if quick else 250,), 64)
        found["e"] = definite((2 if quick else 15625,), 8)
        found["SPD"] = definite((), side)
    return found
