"""Signatures: every public function with a namesake in NumPy takes what NumPy's takes, by NumPy's names and positions.

One call of each function (`CALLS`) is varied by NumPy's own signature: arguments by keyword, options at their defaults
by position and by keyword, other spellings of axes, shapes, integers and dtypes, lists and arrays for tensors. What
NumPy accepts lazyt accepts, with an equal result. `DEPARTURES` is the list of what is not so, and why.
"""

from __future__ import annotations

import inspect
import itertools
import re
import warnings

import numpy as np
import pytest

import lazyt as lt

RNG = np.random.default_rng(11)
M = RNG.standard_normal((4, 4))
V, W = RNG.standard_normal(6), RNG.standard_normal(3)
J = RNG.integers(0, 4, 6)
GIVEN = {
    "np": np, "M": M, "K": RNG.standard_normal((4, 3)), "V": V, "W": W, "I": RNG.integers(0, 4, (4, 4)), "J": J,
    "C": RNG.standard_normal((2, 3, 4)), "Z": V + 1j * V[::-1], "B": M > 0, "S": M @ M.T + 4 * np.eye(4),
    "D": np.arange(6), "U8": np.arange(6, dtype=np.uint8),
}  # fmt: skip

# name: what NumPy requires.
CALLS = {
    "": """
        all: M; allclose: M, M; amax: M; amin: M; angle: Z; any: M; append: V, W; apply_along_axis: SUM, 1, M;
        apply_over_axes: SUM, C, (0, 2); arange: 5; argmax: M; argmin: M; argpartition: V, 2; argsort: V; argwhere: B;
        around: M; array: M; array_equal: M, M; array_equiv: M, M; array_split: V, 4; asarray: M;
        astype: M, np.float32; atleast_1d: V; atleast_2d: V; atleast_3d: V; average: M; bartlett: 5; bincount: J;
        blackman: 5; block: [[M, M]]; broadcast_arrays: M, M[0]; broadcast_shapes: (2, 1), (1, 3);
        broadcast_to: W, (2, 3); can_cast: np.int8, np.int64; choose: I, [M, M, M, M]; clip: M, -1, 1;
        column_stack: (V, V); compress: V > 0, V; concat: (V, W); concatenate: (V, W); convolve: V, W; copy: M;
        corrcoef: M; correlate: V, W; count_nonzero: B; cov: M; cross: W, W; cumprod: M; cumsum: M; cumulative_prod: V;
        cumulative_sum: V; delete: V, 1; diag: V; diag_indices: 3; diag_indices_from: M; diagflat: V; diagonal: M;
        diff: V; digitize: V, np.sort(W); dot: M, M; dsplit: C, 2; dstack: (V, V); ediff1d: V; einsum: 'ij->j', M;
        empty: (0, 3); empty_like: M[:0]; expand_dims: M, 1; extract: B, M; eye: 3; fix: M; flatnonzero: B; flip: M;
        fliplr: M; flipud: M; full: (2, 3), 7; full_like: M, 7; geomspace: 1, 8; gradient: V; hamming: 5; hanning: 5;
        histogram: V; histogram2d: V, V; histogram_bin_edges: V; histogramdd: K; hsplit: M, 2; hstack: (V, W); i0: M;
        identity: 3; imag: Z; indices: (2, 3); inner: V, V; insert: V, 1, 5.0; interp: V, np.sort(W), W;
        intersect1d: D, D; isclose: M, M; iscomplex: Z; iscomplexobj: Z; isdtype: np.dtype('f4'), 'integral';
        isin: J, [1, 2]; isneginf: M; isposinf: M; isreal: Z; isrealobj: Z; isscalar: 3;
        issubdtype: np.float32, np.floating; ix_: [0, 2], [1, 3]; kaiser: 5, 2.0; kron: W, V; lexsort: (V, V[::-1]);
        linspace: 0, 1; logspace: 0, 1; max: M; matrix_transpose: M; mean: M; median: M; meshgrid: V, W; min: M;
        moveaxis: C, 0, 2; nan_to_num: M; nanargmax: M; nanargmin: M; nancumprod: M; nancumsum: M; nanmax: M;
        nanmean: M; nanmedian: M; nanmin: M; nanpercentile: M, 30; nanprod: M; nanquantile: M, 0.3; nanstd: M;
        nansum: M; nanvar: M; ndim: M; nonzero: B; ones: (2, 3); ones_like: M; outer: V, W; packbits: B; pad: M, 1;
        partition: V, 2; percentile: M, 30; permute_dims: C, (2, 0, 1); piecewise: V, [V < 0], [-1.0, 1.0];
        polyadd: V, W; polyder: V; polyint: V; polymul: V, W; polysub: V, W; polyval: W, V; prod: M;
        promote_types: np.int8, np.float32; ptp: M; quantile: M, 0.3; ravel: M; ravel_multi_index: (J, J), (5, 6);
        real: Z; repeat: V, 2; reshape: M, (2, 8); resize: V, (2, 5); result_type: np.int8, np.float32; roll: V, 1;
        rollaxis: C, 2; rot90: M; round: M; searchsorted: np.sort(V), W; select: [V > 0], [V]; setdiff1d: D, [1];
        setxor1d: D, [1]; shape: M; sinc: M; size: M; sort: V; sort_complex: Z; split: V, 3; squeeze: M[None];
        stack: (V, V); std: M; sum: M; swapaxes: C, 0, 2; take: V, J; take_along_axis: M, I; tensordot: M, M;
        tile: V, 2; trace: M; transpose: C; trapezoid: V; tri: 3; tril: M; tril_indices: 3; tril_indices_from: M;
        trim_zeros: V; triu: M; triu_indices: 3; triu_indices_from: M; union1d: J, [9]; unique: J; unique_all: J;
        unique_counts: J; unique_inverse: J; unique_values: J; unpackbits: U8; unravel_index: J, (2, 3); unstack: M;
        unwrap: V; vander: V; var: M; vdot: V, V; vsplit: M, 2; vstack: (V, V); where: B, M, 0.0; zeros: (2, 3);
        zeros_like: M
    """,
    "linalg": """
        cholesky: S; cond: M; cross: W, W; det: M; diagonal: M; eig: S; eigh: S; eigvals: S; eigvalsh: S; inv: M;
        lstsq: K, M[0]; matmul: M, M; matrix_norm: M; matrix_power: M, 3; matrix_rank: M; matrix_transpose: M;
        multi_dot: [M, M, K]; norm: M; outer: V, W; pinv: K; qr: K; slogdet: M; solve: M, K; svd: K; svdvals: K;
        tensordot: M, M; trace: M; vecdot: M, M; vector_norm: V
    """,
    "fft": """
        fft: V; fft2: M; fftfreq: 6; fftn: M; fftshift: M; hfft: V; ifft: V; ifft2: M; ifftn: M; ifftshift: M; ihfft: V;
        irfft: V; irfft2: M; irfftn: M; rfft: V; rfft2: M; rfftfreq: 6; rfftn: M
    """,
}
SPACES = {"": (lt, np), "linalg": (lt.linalg, np.linalg), "fft": (lt.fft, np.fft)}
# What is given for an argument of this name, besides its default.
VALUES = {
    "keepdims": (True, np.True_), "axis": (None, 0, -1, np.int64(0), (0,), [0], (0, -1), (-2, -1), (), np.array(0)),
    "axes": (None, 0, (0,), (0, 1), [1, 0], (2, 0, 1), (-1, 0, 1)), "device": ("cpu",), "order": (*"CFAK",),
    "dtype": ("float32", "f8", np.float64, np.dtype("f4"), np.int32, int, float, bool, complex, "i8", None, "c8"),
    "kind": ("quicksort", "mergesort", "heapsort", "stable"), "stable": (True, False), "ddof": (1, np.int64(1), 0.5),
    "correction": (1,), "decimals": (2, np.int64(1), -1), "n": (2, np.int64(2), None), "k": (1, -1, np.int64(1)),
    "N": (5, np.int64(3)), "M": (2, np.int64(4)), "offset": (1, np.int64(-1)), "side": ("right",),
    "num": (7, np.int8(5)),
    "mode": ("full", "same", "valid", "clip", "wrap", "raise", "reflect", "edge", "symmetric", "reduced", "complete",
             "r"),
    "norm": ("ortho", "forward", "backward", None), "endpoint": (False,), "base": (2.0,), "step": (2, np.int64(2), 0.5),
    "stop": (9, np.int64(9), 7.5), "shape": ((2, 8), [2, 8], np.array([2, 8]), 16, -1, (np.int64(4), 4), (4, -1)),
    "equal_nan": (True,), "bins": (4, np.int64(3)), "range": ((0, 1), [0, 1]), "density": (True,), "rowvar": (False,),
    "bias": (True,), "minlength": (9, np.int64(9)), "assume_unique": (True,), "invert": (True,), "sparse": (True,),
    "return_index": (True,), "return_inverse": (True,), "return_counts": (True,), "return_indices": (True,),
    "indexing": ("ij",), "increasing": (True,), "copy": (True, False, None), "ndmin": (3,), "where": (True, M > 0),
    "initial": (2.0, 1), "overwrite_input": (True,), "method": ("lower", "nearest"), "UPLO": (*"UL",), "upper": (True,),
    "hermitian": (True, False), "compute_uv": (False,), "full_matrices": (False,), "rtol": (1e-3,), "rcond": (1e-3,),
    "ord": (1, 2, np.inf, "fro", "nuc", -1, None, 0, 3), "p": (1, 2, "fro"), "tol": (1e-3,), "atol": (1e-3,),
    "retstep": (True,), "s": ((4, 4), [4, 4], None), "d": (0.5,), "deg": (True,), "trim": (*"fb",), "period": (4,),
    "discont": (2.0,), "left": (0.0,), "right": (True, 1.0), "to_end": (1.0, [1.0, 2.0]), "to_begin": (1.0,),
    "prepend": (0.0, [1.0]), "append": (0.0,), "axis1": (1, -1), "axis2": (0,), "returned": (True,), "count": (5,),
    "bitorder": ("little",), "default": (2.0,), "optimize": (True, "greedy"), "include_initial": (True,), "dx": (0.5,),
    "casting": ("same_kind", "safe", "unsafe"), "edge_order": (2,), "start": (1,),
    "fill_value": (3, 2.5, np.float32(3)),
    "nan": (1.0,), "posinf": (1.0,), "subok": (False, True), "ndmax": (2,),
}  # fmt: skip
# Python's floats, and what is made of nothing, are float32 here (float64 in NumPy): widths may differ.
MADE = {
    "arange", "empty", "eye", "fft.fftfreq", "fft.rfftfreq", "full", "geomspace", "identity", "linspace", "logspace",
    "ones", "tri", "zeros",
}  # fmt: skip
NO_CALL = {
    "from_dlpack": "no array of NumPy's is its argument alone: test_array_api.py",
    "load": "files: lazyt's format is its own", "save": "files: lazyt's format is its own",
    "put_along_axis": "a copy is returned: nothing is written in place",
}  # fmt: skip
# (function, variant, what lazyt does): why. A function's name is a pattern, the others are found within.
DEPARTURES = {
    ("asarray", "keywords from 0", "TypeError"): "the standard's name is `obj`, by position only",
    (r"fft\.(i?r?fft[n2]|fftshift|ifftshift)", r"axes=\(-1, 0, 1\)", "names an axis twice"):
        "a repeated axis is more often an error than a second transform",
    ("cumulative_(sum|prod)|unstack|size", r"axis=[(\[]0", "must be an integer"):
        "NumPy's accepts a sequence for one axis by accident",
    ("indices", "dtype=None", "int64 for float64"): "None is the default here, as elsewhere",
    ("trim_zeros", "list", "1 results for 6"): "a tensor, also for a list",
    (r"linalg\.qr", "mode='full'", "mode is 'reduced'"): "deprecated in NumPy",
}  # fmt: skip
if np.lib.NumpyVersion(np.__version__) < "2.5.0":  # since then NumPy's are so too
    DEPARTURES[r"linalg\.eig(vals)?", "", "complex"] = "complex always: the dtype does not depend on values"


def cases():
    found = {}
    for space, text in CALLS.items():
        for entry in text.split(";"):
            name, arguments = entry.split(":", 1)
            found[f"{space}.{name.strip()}".lstrip(".")] = f"({' '.join(arguments.split())},)"
    return found


CASES = cases()


def pair(name):
    space, _, short = name.rpartition(".")
    ours, theirs = SPACES[space]
    return getattr(ours, short), getattr(theirs, short)


def converted(x, to):
    """x with `to` of every array in it."""
    if isinstance(x, np.ndarray):
        return to(x)
    if isinstance(x, list | tuple) and any(isinstance(y, np.ndarray | list) for y in x):
        return type(x)(converted(y, to) for y in x)
    return lt.sum if x is np.sum and to is not np.ndarray.tolist else x


def flat(x):
    return [z for y in x for z in flat(y)] if isinstance(x, list | tuple) else [x]


def difference(found, want, narrow):
    found, want = flat(found), flat(want)
    if len(found) != len(want):
        return f"{len(found)} results for {len(want)}"
    for f, w in zip(found, want, strict=True):
        if isinstance(w, np.dtype):
            if f != w:
                return f"{f} for {w}"
            continue
        f, w = np.asarray(f), np.asarray(w)
        if f.shape != w.shape:
            return f"shape {f.shape} for {w.shape}"
        if f.dtype != w.dtype and not (narrow and f.dtype.kind == w.dtype.kind and w.dtype.kind in "fc"):
            return f"{f.dtype} for {w.dtype}"
        tolerance = 1e-7 if f.dtype == w.dtype and f.dtype.itemsize >= 8 else 1e-3
        if not np.allclose(f, w, rtol=tolerance, atol=1e-5, equal_nan=True):
            return f"values {f} for {w}"
    return ""


def variants(f, args):
    """(what it is, positional arguments, named arguments): calls of NumPy's `f` like `f(*args)`."""
    every = inspect.signature(f).parameters.values()
    places = [p for p in every if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    several = any(p.kind is p.VAR_POSITIONAL for p in every)
    n = len(args)
    yield "plain", args, {}
    free = [i for i, p in enumerate(places[:n]) if p.kind is p.POSITIONAL_OR_KEYWORD and not several]
    for i in dict.fromkeys((*free[:1], *free[-1:])):
        yield f"keywords from {i}", args[:i], {p.name: a for p, a in zip(places[i:], args[i:], strict=False)}
    for p in every:
        at = places.index(p) if p in places else n
        if p.default is not p.empty and at >= n:
            if p.default is not np._NoValue:
                yield f"{p.name} by name", args, {p.name: p.default}
            before = [q.default for q in places[n : at + 1]]
            if p in places and not several and not any(d is np._NoValue for d in before):
                yield f"{p.name} by position", (*args, *before), {}
        if at < n - 1 or (p.name == "shape" and "reshape" not in f.__name__):
            continue
        for value in VALUES.get(p.name, ()):
            more = {"initial": 1.0} if p.name == "where" and "initial" in {q.name for q in every} else {}
            yield f"{p.name}={value!r}", args[:at] if at < n else args, {p.name: value, **more}


def outcome(f, args, named):
    """What a call gives, computed, or the error that it raises."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            found = f(*args, **named)
            if f.__name__ == "unique_values":
                found = np.sort(found)  # NumPy's order is not defined
            return [np.asarray(x) if isinstance(x, lt.Tensor) else x for x in flat(found)], None
        except Exception as e:  # noqa: BLE001 - whatever is raised is the outcome
            return None, e


def compared(ours, theirs, args, named, to, narrow):
    """How the outcome of a call differs from NumPy's; nothing where NumPy raises too."""
    fixed = named.keys() & {"axis", "axes", "shape"}
    to_numpy = to if to is np.ndarray.tolist else lambda a: a
    want, refused = outcome(theirs, converted(args, to_numpy), {k: converted(v, to_numpy) for k, v in named.items()})
    if refused is not None:
        return ""
    given = {k: v if k in fixed else converted(v, to) for k, v in named.items()}
    found, error = outcome(ours, tuple(lt.sum if a is np.sum else converted(a, to) for a in args), given)
    return f"{type(error).__name__}: {error}" if error is not None else difference(found, want, narrow)


def departures(name, to):
    """(variant, difference) of every variant of a function that is not as NumPy's."""
    ours, theirs = pair(name)
    args = eval(CASES[name], {**GIVEN, "SUM": np.sum})
    for what, positional, named in variants(theirs, args):
        if to is not lt.asarray and what != "plain" and "keywords" not in what:
            continue
        wide = any(v is float or v is complex or isinstance(v, float) for v in (*positional, *named.values()))
        narrow = wide or name in MADE or to is np.ndarray.tolist
        if found := compared(ours, theirs, positional, named, to, narrow):
            yield f"{what}{' of lists' if to is np.ndarray.tolist else ''}", found


@pytest.mark.parametrize("name", CASES)
def test_takes_what_numpys_takes(name):
    try:
        inspect.signature(pair(name)[1])
    except ValueError:
        pytest.skip("this NumPy tells no signature of it")
    known = [key for key in DEPARTURES if re.fullmatch(key[0], name)]
    seen = set()
    unknown = []
    for to in (lt.asarray, np.asarray, np.ndarray.tolist):
        for what, found in departures(name, to):
            fits = [k for k in known if re.search(k[1], what) and re.search(k[2], found)]
            seen.update(fits)
            if not fits:
                unknown.append(f"{what} ({to.__name__}): {found}")
    assert not unknown, "\n".join(unknown)
    assert seen or not known, f"{known} is no departure any more"


def test_every_function_with_a_namesake_has_a_call():
    named = {
        f"{space}.{n}".lstrip(".")
        for space, (ours, theirs) in SPACES.items()
        for n in dir(ours)
        if not n.startswith("_") and callable(getattr(ours, n)) and callable(getattr(theirs, n, None))
        if not isinstance(getattr(theirs, n), np.ufunc | type)
    }
    assert named - NO_CALL.keys() == CASES.keys()


UFUNCS = sorted(n for n in dir(lt) if isinstance(getattr(np, n, None), np.ufunc) and getattr(np, n).signature is None)
WITHIN_ONE = {"arccos", "arcsin", "arctanh", "acos", "asin", "atanh"}
# Of which dtypes of its operands, by NumPy's characters; a refusal stands for the standard's.
REFUSED_KINDS = {
    "D": "maximum minimum fmax fmin greater greater_equal less less_equal exp2",
    "l": "reciprocal",
    "?": "bitwise_left_shift bitwise_right_shift left_shift right_shift reciprocal signbit",
}


@pytest.mark.parametrize("name", UFUNCS)
def test_a_ufunc_takes_what_numpys_takes(name):
    ours, theirs = getattr(lt, name), getattr(np, name)
    for char in "dl?D":
        rows = np.array([[1, 2, 3], [2, 1, 1]]) * (name not in WITHIN_ONE)
        args = tuple(rows[:, ::step].astype(char) for step in (1, -1)[: theirs.nin])
        if name == "ldexp":
            args = (args[0], rows)
        if outcome(theirs, args, {})[1] is not None:
            continue
        if name in REFUSED_KINDS.get(char, "").split():
            with pytest.raises(lt.DTypeError, match=rf"{name}: an? [\w ]+ is required|not supported"):
                ours(*map(lt.asarray, args))
            continue
        # bools and their like are float32 at least, and stay bool where NumPy makes them int8.
        if char == "?" and outcome(theirs, args, {})[0][0].dtype.char in "eb":
            continue
        scalars = tuple(a[0, 0].item() for a in args)
        options = [{}, {"order": "C"}, {"casting": "same_kind"}, {"subok": False}, {"dtype": None}]
        options += [{"dtype": d} for d in ("float32", np.float64, float, np.complex64, np.int32, "i8")]
        for to, named in itertools.product((lt.asarray, np.asarray), options):
            assert not compared(ours, theirs, args, named, to, named.get("dtype") is float), (char, to, named)
        assert not compared(ours, theirs, args, {}, np.ndarray.tolist, True), char
        for given in (scalars, tuple(a[0, 0] for a in args), (args[0], *scalars[1:]), (scalars[0], *args[1:])):
            assert not compared(ours, theirs, given, {}, lt.asarray, given[0] is scalars[0]), (char, given)
        writes_into_out(ours, theirs, args)


def writes_into_out(ours, theirs, args):
    """`out` by position, by name and as a tuple, and under a mask."""
    want = theirs(*args)
    results = want if isinstance(want, tuple) else (want,)
    given = tuple(map(lt.asarray, args))
    for by in ("position", "name", "tuple", "where"):
        outs = tuple(lt.zeros(w.shape, dtype=w.dtype) for w in results)
        mask = {"where": np.array([True, False, True])} if by == "where" else {}
        if by == "position":
            found = ours(*given, *outs)
        elif by == "name" and len(outs) == 1:
            found = ours(*given, out=outs[0])
        else:
            found = ours(*given, out=outs, **mask)
        for f, o, w in zip(found if isinstance(found, tuple) else (found,), outs, results, strict=True):
            assert f is o
            np.testing.assert_allclose(o, np.where(mask["where"], w, 0) if mask else w, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:numpy.fix is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", [n for n in CASES if "out" in inspect.signature(pair(n)[1]).parameters])
def test_out_is_written_by_name_and_by_position(name):
    ours, theirs = pair(name)
    args = eval(CASES[name], {**GIVEN, "SUM": np.sum})
    want = theirs(*args)
    given = converted(args, lt.asarray)
    out = lt.zeros(want.shape, dtype=want.dtype)
    assert ours(*given, out=out) is out
    np.testing.assert_allclose(out, want, rtol=1e-6)
    places = [p for p in inspect.signature(theirs).parameters.values() if p.kind is not p.KEYWORD_ONLY]
    names = [p.name for p in places]
    if "out" in names and name != "einsum":
        between = [p.default for p in places[len(args) : names.index("out")]]
        if not any(d is np._NoValue for d in between):
            out = lt.zeros(want.shape, dtype=want.dtype)
            with lt.no_grad():
                assert theirs(*given, *between, out) is out
                np.testing.assert_allclose(out, want, rtol=1e-6)
                out = lt.zeros(want.shape, dtype=want.dtype)
                assert ours(*given, *between, out) is out
            np.testing.assert_allclose(out, want, rtol=1e-6)


def test_where_both_have_an_argument_at_one_place():
    x = lt.asarray(M)
    assert lt.max(x, 0, True).shape == (1, 4) and lt.std(x, 0, 1).tolist() == pytest.approx(M.std(0, ddof=1).tolist())
    assert lt.std(x, 0, np.float32).dtype == np.float32
    assert lt.nan_to_num(lt.asarray([np.nan]), 3.0).tolist() == [3.0]
    assert lt.nan_to_num(lt.asarray([np.nan]), True, 2.0).tolist() == [2.0]


def test_what_no_signature_takes_is_refused_by_name():
    x = lt.asarray(M)
    for call, error, text in (
        (lambda: lt.sum(x, axis=np.array([0, 1])), lt.DTypeError, "sum: an integer or a tuple of integers is required"),
        (lambda: lt.flip(x, axis={0}), lt.DTypeError, r"flip: .*required, got \{0\}"),
        (lambda: lt.sort(x, axis="0"), lt.DTypeError, "sort: axis must be an integer, got '0'"),
        (lambda: lt.trace(x, offset=0.5), lt.DTypeError, "trace: offset must be an integer, got 0.5"),
        (lambda: lt.arange(), TypeError, "arange: start or stop is required"),
        (lambda: lt.eye(M=2), TypeError, "'N'"),
        (lambda: lt.sum(x, 0, None, None, True, 0, True, 1), TypeError, "too many positional arguments"),
    ):
        with pytest.raises(error, match=text):
            call()


def test_lists_beside_tensors_are_as_wide():
    x, v = lt.asarray(M), [0.1, 0.2, 0.3, 0.4]
    for got, want in ((lt.matvec(x, v), M @ v), (lt.vecmat(v, x), v @ M), (lt.maximum(v, x), np.maximum(v, M))):
        assert got.dtype == np.float64
        np.testing.assert_allclose(got, want, rtol=1e-14)
    assert lt.concatenate([[1], [2]]).dtype == np.int64 and lt.sum([1, 2, 3]).item() == 6
    assert lt.maximum([1.0, 2.0], 1.5).dtype == np.float32
    stack = np.stack([M, M + 1])
    np.testing.assert_allclose(lt.matvec(lt.asarray(stack), M[:2]), np.matvec(stack, M[:2]))
    np.testing.assert_allclose(lt.vecmat(M[:2], lt.asarray(stack)), np.vecmat(M[:2], stack))
    np.testing.assert_allclose(lt.vecmat(M[0], lt.asarray(stack)), np.vecmat(M[0], stack))


def test_a_dtype_of_std_does_not_lose_digits_before_it_is_needed():
    a = 1e8 + np.arange(8.0)
    for name in ("std", "var"):
        found = getattr(lt, name)(lt.asarray(a), dtype=np.float32)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, getattr(np, name)(a), rtol=1e-6)
        np.testing.assert_allclose(
            getattr(lt, name)(lt.asarray(a), where=a > a[2]), getattr(np, name)(a, where=a > a[2]), rtol=1e-12
        )
