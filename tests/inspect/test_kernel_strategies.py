"""`explain()` says which optimisations were applied to a kernel; with its switch off none is."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu.engine import host_features
from lazyt.config import cpu, general, registers


def array(*shape):
    return lt.asarray(np.random.default_rng(0).standard_normal(shape).astype("f4"))


def long_chain():
    x = array(4096)
    return lt.exp(lt.sin(x)) * lt.tanh(x) + lt.erf(x)


def cheap_chain(n, count):
    x, y = np.linspace(-2, 0.6, n, dtype=np.float32), np.linspace(0, 1.3, n, dtype=np.float32)
    with np.errstate(all="ignore"):
        want = orbits(x, y, count)
    return orbits(lt.asarray(x), lt.asarray(y), lt.asarray(count)), want


def orbits(x, y, count):
    """How long points of the plane stay within 2: operations that wait for one another, and bools that are counted."""
    u, v = x, y
    for _ in range(30):
        uu, vv = u * u, v * v
        count = count + (uu + vv < 4.0)
        u, v = uu - vv + x, u * v * 2.0 + y
    return count


def write():
    c = array(64, 64) * 1
    lt.sync()
    c[1:-1, 1:-1] = c[1:-1, 1:-1] * 2
    return c


def update():
    p, g = array(512, 64) * 1, array(512, 64)
    lt.sync()
    p -= 0.1 * g
    return p


# What is computed, the switch, and what is said of it.
WAYS = {
    "wide": (long_chain, "64 lanes side by side"),
    "wide, cheap": (lambda: cheap_chain(4096, np.zeros(4096, np.int32))[0], "64 lanes side by side"),
    "together": (lambda: lt.mean(array(300, 400), axis=0), "columns, 8 rows at a time through registers"),
    "pairs": (
        lambda: lt.sum((array(40, 1, 24) - array(1, 50, 24)) ** 2, axis=2),
        "short rows against short rows, lanes along the outputs",
    ),
    "widen": (lambda: (x := array(200, 3)) * x[:, :1] + 1, "lanes along axis 0, the last is short"),
    "widen, beside a point's": (
        lambda: array(200, 3) * array(200, 1) + 1, "values beside an axis of 3 are spread over whole vectors"
    ),
    "widen, beside a channel's": (
        lambda: array(200, 3) * array(3) + 1,
        "values along an axis of 3 are repeated in whole vectors",
    ),
    "alternate": (lambda: array(5000)[::2] + 1, "every other element as two of neighbours and a shuffle"),
    "adopt": (lambda: lt.linalg.inv(array(30, 30)), "results of NumPy's are taken over with their memory"),
    "cover": (write, "a write into most of an array, in one pass over all of it"),
    "interior": (
        lambda: lt.pad(array(30, 70), ((1, 1), (2, 2))) * 2,
        "places that no condition divides are computed without masks",
    ),
    "tile": (lambda: array(300, 200).T + array(200, 300), "reads across memory in tiles of 16 rows"),
    "split": (lambda: lt.sum(array(2, 1 << 18), axis=1), "few long rows, each divided among 2 threads"),
    "early": (lambda: lt.any(array(70, 300) > 2, axis=1), "any and all end where they are decided"),
    "donate": (update, "in the place of an input, when nobody else holds that"),
    "reuse": (
        lambda: lt.softmax(array(100, 1000), axis=1), "costly values of a row stand in its result until that is known",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WAYS)
def test_explain_says_what_was_applied(name, monkeypatch):
    program, way = WAYS[name]
    name = name.partition(",")[0]
    if name in ("wide", "pairs", "widen") and (registers["width"] or "avx512f" not in host_features()):
        pytest.skip("for registers of 16 float32")
    threads = lt.get_num_threads()
    lt.set_num_threads(2)
    monkeypatch.setitem(general, "tiers", False)
    table = cpu if name in cpu else general
    try:
        for on in (True, False):
            monkeypatch.setitem(table, name, on)
            x = program()
            assert (way in [w for kernel in lt.explain(x).kernels for w in kernel.strategies]) == on, lt.explain(x)
            assert (way in str(lt.explain(x))) == on
            del x
    finally:
        lt.set_num_threads(threads)


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("dtype", ["int8", "int32", "uint16", "int64"])
def test_bools_are_counted(dtype, wide, monkeypatch):
    monkeypatch.setitem(cpu, "wide", wide)
    monkeypatch.setitem(general, "tiers", False)
    for n in (1, 15, 63, 64, 65, 1000):
        for start in (np.zeros(n, dtype), np.full(n, np.iinfo(dtype).max, dtype)):
            got, want = cheap_chain(n, start)
            np.testing.assert_array_equal(got.numpy(), want)
            assert got.dtype == want.dtype
