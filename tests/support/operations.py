"""Calls of every public operation on its samples, by lazyt and by NumPy."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import lazyt as lt
from lazyt.ops.definition import OPS

# Relative tolerance by dtype; integers and bools are exact.
TOLERANCE = {
    "float16": 2e-2,
    "bfloat16": 5e-2,
    "float32": 2e-5,
    "complex64": 2e-5,
    "float64": 1e-10,
    "complex128": 1e-10,
}


# Contractions and library calls may round differently from run to run of another shape of plan.
INEXACT = ("matmul", "linear", "conv", "einsum", "tensordot", "dot", "inner", "outer", "vecdot", "kron", "linalg",
           "fft",           "scaled_dot_product_attention", "multi_head", "cov", "trace")  # fmt: skip

# Vectors that another library may turn around.
UP_TO_SIGN = ("linalg.eigh", "linalg.svd")


SPACES: tuple[Any, ...] = (lt, lt.linalg, lt.fft, lt.nn.functional)


def public(name: str) -> Any:
    """The public function of an operation: `linalg.inv` is lt.linalg.inv."""
    space, _, short = name.rpartition(".")
    if space:
        return getattr(getattr(lt, space, None), short, None)
    return next((f for s in SPACES if (f := getattr(s, name, None)) is not None), None)


# NOTE: modules are loaded on demand, and add their operations to the table.
for _name in dir(lt):
    getattr(lt, _name)
NAMES = sorted(n for n, op in OPS.items() if op.samples is not None and op.numpy is not None and public(n) is not None)


def tensors(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return lt.asarray(x)
    if isinstance(x, list | tuple) and any(isinstance(q, np.ndarray) for q in x):
        return type(x)(tensors(q) for q in x)
    return x


def run(name: str, args: Any, kwargs: Any) -> list[np.ndarray]:
    out = public(name)(*(tensors(a) for a in args), **{k: tensors(v) for k, v in kwargs.items()})
    return [o.numpy() for o in (out if isinstance(out, tuple) else (out,))]


def expected(name: str, args: Any, kwargs: Any, several: bool) -> list[np.ndarray]:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = OPS[name].numpy(*args, **kwargs)  # type: ignore[misc]
    return [np.asarray(o) for o in (out if several else (out,))]


def wide(a: np.ndarray) -> np.ndarray:
    return a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)


def check(name: str, device: str, up_to_sign: tuple[str, ...] = ()) -> None:
    """Compare an operation on a device with NumPy on each of its samples; those of some names but for the sign."""
    for args, kwargs in OPS[name].samples():  # type: ignore[misc]
        with lt.device(device):
            got = run(name, args, kwargs)
        for g, w in zip(got, expected(name, args, kwargs, len(got) > 1), strict=True):
            assert (g.shape, g.dtype) == (w.shape, w.dtype)
            tolerance = TOLERANCE.get(g.dtype.name, 0)
            a, e = wide(g), wide(w)
            if name in up_to_sign:
                a, e = np.abs(a), np.abs(e)
            np.testing.assert_allclose(a, e, rtol=tolerance, atol=tolerance / 10)
