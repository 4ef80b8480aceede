"""Programs of other people's libraries, written once for any array library.

    python -m tests.support.ecosystem_programs PACKAGE ...

Each is run with NumPy's arrays and with tensors; printed as JSON are, for every program, the syncs that it caused and
what went wrong. A process of its own, because SciPy reads SCIPY_ARRAY_API when it is imported.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import lazyt as lt
from lazyt.runtime.sync import counters

RNG = np.random.default_rng(0)
A = RNG.standard_normal((60, 5))
LABELS = (A[:, 0] + A[:, 1] > 0).astype(np.int64)
TARGET = A @ np.arange(5.0) + 1
IMAGE = RNG.standard_normal((12, 10))
Program = Callable[[Callable[..., Any]], Any]

# package -> program's name -> the program; `put` makes an array of the library under test.
PROGRAMS: dict[str, dict[str, Program]] = {}


def program(package: str, name: str) -> Callable[[Program], Program]:
    def enter(f: Program) -> Program:
        PROGRAMS.setdefault(package, {})[name] = f
        return f

    return enter


# --- einops, opt_einsum, array-api-* -------------------------------------------------------------------------------

for _text, _call in {
    "rearrange": lambda e, x: e.rearrange(x, "a (b c) -> c (a b)", c=5),
    "reduce": lambda e, x: e.reduce(x, "(a two) b -> a b", "mean", two=2),
    "repeat": lambda e, x: e.repeat(x, "a b -> a 3 b"),
    "einsum": lambda e, x: e.einsum(x, x, "a b, c b -> a c"),
    "pack, unpack": lambda e, x: e.unpack(*e.pack([x, x], "* b"), "* b"),
}.items():
    program("einops", _text)(lambda put, f=_call: f(importlib.import_module("einops"), put(A)))


@program("opt_einsum", "contract")
def _contract(put: Any) -> Any:
    import opt_einsum

    return opt_einsum.contract("ij,kj,kl,lm->im", put(A), put(A), put(A), put(A.T))


@program("opt_einsum", "contract_path for einsum")
def _path(put: Any) -> Any:
    import opt_einsum

    x = put(A)
    text = "ij,kj,kl->il"
    operands = [x, x, x]
    path, _ = opt_einsum.contract_path(text, *operands)
    assert len(path) == 2
    return np.einsum(text, *operands, optimize=["einsum_path", *path])


for _text, _call in {
    "array_namespace": lambda c, x: c.array_namespace(x).sum(x),
    "device, size, to_device": lambda c, x: [c.size(x), c.to_device(x, c.device(x))],
    "is_array_api_obj": lambda c, x: c.is_array_api_obj(x),
}.items():
    program("array_api_compat", _text)(lambda put, f=_call: f(importlib.import_module("array_api_compat"), put(A)))

for _text, _call in {
    "atleast_nd": lambda e, x: e.atleast_nd(x, ndim=3),
    "at().set": lambda e, x: e.at(x)[0, :].set(1.0),
    "at().add": lambda e, x: e.at(x)[1].add(1.0),
    "cov": lambda e, x: e.cov(x.T),
    "create_diagonal": lambda e, x: e.create_diagonal(x[0]),
    "expand_dims": lambda e, x: e.expand_dims(x, axis=(0, 3)),
    "isclose": lambda e, x: e.isclose(x, x + 1e-9),
    "kron": lambda e, x: e.kron(x[:2], x[:2]),
    "nunique": lambda e, x: e.nunique(x),
    "pad": lambda e, x: e.pad(x, 1),
    "setdiff1d": lambda e, x: e.setdiff1d(x[0], x[0, :2]),
    "sinc": lambda e, x: e.sinc(x),
    "apply_where": lambda e, x: e.apply_where(x > 0, (x,), lambda v: v * 2, lambda v: -v),
}.items():
    program("array_api_extra", _text)(lambda put, f=_call: f(importlib.import_module("array_api_extra"), put(A)))

# --- SciPy, under SCIPY_ARRAY_API=1 --------------------------------------------------------------------------------


def _scipy(module: str, name: str, call: Callable[..., Any]) -> None:
    def run(put: Any) -> Any:
        return call(getattr(importlib.import_module(f"scipy.{module}"), name), put)

    program("scipy", f"{module}.{name}")(run)


for _n in ("expit", "erf", "gammaln", "ndtr", "entr", "i0"):
    _scipy("special", _n, lambda f, put: f(put(np.abs(A))))
for _n in ("logsumexp", "softmax", "log_softmax"):
    _scipy("special", _n, lambda f, put: f(put(A), axis=1))
for _n in ("fft", "ifft", "rfft", "fft2", "rfftn", "hfft"):
    _scipy("fft", _n, lambda f, put: f(put(A)))
for _n in ("zscore", "skew", "kurtosis", "describe", "variation", "sem", "kstat", "tmean", "tvar", "iqr", "mode",
           "rankdata", "skewtest", "normaltest", "jarque_bera", "differential_entropy", "circmean"):  # fmt: skip
    _scipy("stats", _n, lambda f, put: f(put(A)))
for _n in ("gmean", "hmean", "entropy"):
    _scipy("stats", _n, lambda f, put: f(put(np.abs(A))))
_scipy("stats", "chisquare", lambda f, put: f(put(np.full((4, 2), 3.0))))
for _n in ("ttest_ind", "pearsonr"):
    _scipy("stats", _n, lambda f, put: f(put(A[:, 0]), put(A[:, 1])))
for _n in ("detrend", "hilbert", "periodogram", "welch"):
    _scipy("signal", _n, lambda f, put: f(put(A[:, 0])))
for _n in ("fftconvolve", "convolve", "correlate", "oaconvolve", "csd"):
    _scipy("signal", _n, lambda f, put: f(put(A[:, 0]), put(A[:, 1])))
_scipy("signal", "lfilter", lambda f, put: f(put(np.array([1.0, 2.0])), put(np.array([1.0, 0.5])), put(A[:, 0])))
_scipy("signal", "resample", lambda f, put: f(put(A[:, 0]), 30))
for _n, _more in (("gaussian_filter", (1.0,)), ("uniform_filter", (3,)), ("median_filter", (3,)), ("sobel", ()),
                  ("laplace", ()), ("zoom", (2,))):  # fmt: skip
    _scipy("ndimage", _n, lambda f, put, more=_more: f(put(IMAGE), *more))
for _n in ("inv", "det", "svd", "eigh", "cholesky", "expm", "pinv"):
    _scipy("linalg", _n, lambda f, put: f(put(A.T @ A / 60)))
_scipy("integrate", "trapezoid", lambda f, put: f(put(A)))
_scipy("integrate", "simpson", lambda f, put: f(put(A)))
_scipy("integrate", "cumulative_trapezoid", lambda f, put: f(put(A)))
_scipy("cluster.vq", "whiten", lambda f, put: f(put(A)))
_scipy("cluster.vq", "vq", lambda f, put: f(put(A), put(A[:3])))
_scipy("spatial.distance", "cdist", lambda f, put: f(put(A), put(A[:3])))
_scipy("interpolate", "PchipInterpolator", lambda f, put: f(put(np.arange(60.0)), put(A))(put(np.array([1.5, 2.5]))))

# --- scikit-learn, with array_api_dispatch -------------------------------------------------------------------------


def _sklearn(module: str, name: str, call: Callable[..., Any], **options: Any) -> None:
    def run(put: Any) -> Any:
        sklearn = importlib.import_module("sklearn")
        made = getattr(importlib.import_module(f"sklearn.{module}"), name)
        with sklearn.config_context(array_api_dispatch=True):
            return call(made(**options) if isinstance(made, type) else made, put)

    text = f"{name}({', '.join(f'{k}={v!r}' for k, v in options.items() if k != 'random_state')})"
    program("sklearn", text if options else name)(run)


for _n in ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "Normalizer", "Binarizer", "PolynomialFeatures"):
    _sklearn("preprocessing", _n, lambda e, put: e.fit_transform(put(A)))
_sklearn("preprocessing", "LabelEncoder", lambda e, put: e.fit_transform(put(LABELS)))
_sklearn("preprocessing", "KernelCenterer", lambda e, put: e.fit_transform(put(A @ A.T)))
_sklearn(
    "naive_bayes", "GaussianNB", lambda e, put: e.fit(put(A), put(LABELS)).predict_proba(put(A)), var_smoothing=1e-8
)
for _o in ({"svd_solver": "full"}, {"svd_solver": "covariance_eigh"}):
    _sklearn("decomposition", "PCA", lambda e, put: abs(e.fit_transform(put(A))), n_components=2, **_o)
_sklearn("linear_model", "Ridge", lambda e, put: e.fit(put(A), put(TARGET)).predict(put(A)), solver="svd")
_sklearn("linear_model", "RidgeCV", lambda e, put: e.fit(put(A), put(TARGET)).predict(put(A)))
for _m, _n in (("discriminant_analysis", "LinearDiscriminantAnalysis"), ("naive_bayes", "GaussianNB"),
               ("linear_model", "RidgeClassifierCV"), ("linear_model", "LogisticRegression")):  # fmt: skip
    _sklearn(_m, _n, lambda e, put: e.fit(put(A), put(LABELS)).predict(put(A)))
_sklearn(
    "naive_bayes", "GaussianNB", lambda e, put: e.fit(put(A), put(LABELS)).predict_proba(put(A)), var_smoothing=1e-8
)
_sklearn("mixture", "GaussianMixture", lambda e, put: e.fit(put(A)).predict(put(A)), n_components=2,
         init_params="random_from_data", random_state=0)  # fmt: skip
_sklearn("model_selection", "train_test_split", lambda f, put: f(put(A), put(LABELS), random_state=0))
for _n in ("accuracy_score", "f1_score", "confusion_matrix", "zero_one_loss"):
    _sklearn("metrics", _n, lambda f, put: f(put(LABELS), put(np.roll(LABELS, 3))))
for _n in ("mean_squared_error", "r2_score", "mean_absolute_error", "explained_variance_score"):
    _sklearn("metrics", _n, lambda f, put: f(put(TARGET), put(TARGET * 0.9)))
_sklearn("metrics", "roc_auc_score", lambda f, put: f(put(LABELS), put(TARGET)))
for _n in ("cosine_similarity", "euclidean_distances", "rbf_kernel", "linear_kernel"):
    _sklearn("metrics.pairwise", _n, lambda f, put: f(put(A)))

# --- matplotlib, pandas, tqdm --------------------------------------------------------------------------------------


def _drawn(draw: Callable[..., Any]) -> Program:
    def run(put: Any) -> Any:
        import matplotlib

        matplotlib.use("agg")
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots()
        draw(axes, put)
        file = io.BytesIO()
        figure.savefig(file, format="raw")
        plt.close(figure)
        return np.frombuffer(file.getvalue(), np.uint8)

    return run


program("matplotlib", "plot")(_drawn(lambda axes, put: axes.plot(put(A[:, 0]), put(A[:, 1]))))
program("matplotlib", "scatter")(_drawn(lambda axes, put: axes.scatter(put(A[:, 0]), put(A[:, 1]), c=put(A[:, 2]))))
program("matplotlib", "imshow")(_drawn(lambda axes, put: axes.imshow(put(IMAGE))))
program("matplotlib", "hist")(_drawn(lambda axes, put: axes.hist(put(A[:, 0]))))
program("matplotlib", "bar")(_drawn(lambda axes, put: axes.bar(put(np.arange(5)), put(A[0]))))


@program("pandas", "DataFrame of a matrix")
def _frame(put: Any) -> Any:
    import pandas as pd

    return pd.DataFrame(put(A)).describe().to_numpy()


@program("pandas", "DataFrame of columns")
def _columns(put: Any) -> Any:
    import pandas as pd

    return pd.DataFrame({"a": put(A[:, 0]), "b": put(LABELS)}).groupby("b").sum().to_numpy()


@program("pandas", "Series")
def _series(put: Any) -> Any:
    import pandas as pd

    return (pd.Series(put(A[:, 0])).rolling(3).mean().dropna() + 1).to_numpy()


@program("tqdm", "a loop over rows")
def _bar(put: Any) -> Any:
    from tqdm import tqdm

    total = 0.0
    for row in tqdm(put(A), file=io.StringIO()):
        total = total + (row * row).sum()
    return total


# --- running them --------------------------------------------------------------------------------------------------


def _compare(found: Any, want: Any) -> None:
    if isinstance(want, list | tuple):
        assert len(found) == len(want), f"{len(found)} results, {len(want)} wanted"
        for f, w in zip(found, want, strict=True):
            _compare(f, w)
    else:
        a, b = np.asarray(found), np.asarray(want)
        assert a.shape == b.shape, f"shape {a.shape}, {b.shape} wanted"
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)


def run(f: Program) -> dict[str, Any]:
    """The syncs that one program causes, and what goes wrong."""
    try:
        want = f(np.array)
        lt.sync()
        before = counters.syncs
        found = f(lambda a: lt.asarray(a) + 0)
        syncs = counters.syncs - before
        _compare(found, want)
    except Exception:  # noqa: BLE001 - whatever goes wrong in another library is the result
        return {"error": traceback.format_exc()}
    return {"syncs": syncs, "tensor": _is_lazy(found)}


def _is_lazy(x: Any) -> bool:
    return any(map(_is_lazy, x)) if isinstance(x, list | tuple) else isinstance(x, lt.Tensor)


def main() -> None:
    os.environ["SCIPY_ARRAY_API"] = "1"
    warnings.simplefilter("ignore")
    print(json.dumps({p: {n: run(f) for n, f in PROGRAMS[p].items()} for p in sys.argv[1:]}))


if __name__ == "__main__":
    main()
