"""Every switch of the CPU backend changes how results come about, and not a bit of them; nor do threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[3]

# Sizes are such that long rows are divided (some with a remainder), and that vectors have one.
PROGRAMS = """
import hashlib, sys
import numpy as np
import lazyt as lt

lt.set_num_threads(int(sys.argv[1]))
rng = np.random.default_rng(0)

def f32(*shape):
    return rng.standard_normal(shape, dtype=np.float32)

def show(name, run, *arrays, rtol=1e-4, exact=None):
    operands = [lt.asarray(a) for a in arrays]
    for _ in range(2):  # the second time through fused kernels
        out = run(lt, *operands)
        out = out if isinstance(out, tuple) else (out,)
        lt.sync()
    want = (exact or (lambda *a: run(np, *a)))(*(a.astype("f8") if a.dtype == "f4" else a for a in arrays))
    want = want if isinstance(want, tuple) else (want,)
    for x, y in zip(out, want, strict=True):
        np.testing.assert_allclose(x.numpy().astype("f8"), np.asarray(y).astype("f8"), rtol=rtol, atol=1e-4)
    print(name, *(hashlib.md5(np.ascontiguousarray(x.numpy()).tobytes()).hexdigest() for x in out))

n = 300_003
show("sum", lambda m, x: m.sum(x * x), f32(n))
show("extremes", lambda m, x: (m.max(x), m.min(x), m.sum(x)), f32(n))
show("variance", lambda m, x: m.var(x), f32(n))
show("rows", lambda m, x: m.sum(x, axis=1), f32(2, 200_001))
show("two axes", lambda m, x: m.sum(x, axis=(0, 2)), f32(90, 3, 1100))
show("transposed", lambda m, x: m.sum(x.T + 1.0), f32(500, 1100))
show("softmax", lambda m, x: m.exp(x - m.max(x)) / m.sum(m.exp(x - m.max(x))), f32(n))
show("columns", lambda m, x: (m.mean(x, axis=0), m.var(x, axis=0)), f32(20_001, 17))
show("middle", lambda m, x: m.sum(x, axis=1), f32(2, 20_001, 10))
show("integers", lambda m, x: m.sum(x), rng.integers(-9, 9, n))
show("truth", lambda m, x: (m.any(x > 4.9), m.all(x > 4.9)), f32(n))
show("truth of rows", lambda m, x: (m.any(x > 2, axis=1), m.all(x < 3, axis=(0, 1))), f32(70, 5001))
show("positions", lambda m, x: (m.argmax(x), m.sum(m.arange(n) * x)), f32(n), rtol=1e-2)
show("map", lambda m, x, y: m.tanh(x) * m.exp(-y) + m.log(m.abs(x)), f32(999, 301), f32(999, 301))
def written(m, x, y):
    z = x * 1.0
    for i in range(3):
        if m is lt:
            lt.sync()
        z += y * 0.5
        z[:, i] = y[:, 0]
        z[1:] += z[:-1]
    return z
show("in place", written, f32(130, 140), f32(130, 140))
def distances(m, x, y):
    return m.sum((x[:, None, :] - y[None, :, :]) ** 2, axis=-1)
show("pairs", distances, f32(301, 37), f32(41, 37))
def of_outer(m, x, y):
    z = x[:, :, None] * y[:, None]
    return m.sum(z * z, axis=(1, 2)), m.max(z, axis=(1, 2)), z / (1 + m.sum(m.abs(z), axis=(1, 2))[:, None, None])
show("outer products", of_outer, f32(91, 413), f32(91, 11))
def nearest(m, x, y):
    return m.argmin(distances(m, x, y), -1), m.max(distances(m, x, y), -1)
show("nearest", nearest, f32(77, 19), f32(9, 19))
def stencil(m, x, y):
    u = x * 1.0
    for _ in range(3):
        u[1:-1, 2:] += 0.1 * (u[:-2, 2:] + u[2:, 2:] - u[1:-1, 1:-1] * y[1:-1, 1:-1])
        u[:-1] = u[1:] * 0.5
    return u, u[3:5]
show("stencil", stencil, f32(131, 45), f32(131, 45))
show("rolled", lambda m, x: m.roll(x, 1, 0) + m.roll(x, -3, 1) * 2, f32(131, 45))
show("stencil of halves", stencil, f32(13, 45).astype("f2"), f32(13, 45).astype("f2"), rtol=1e-2)
show("stencil of complex", lambda m, x, y: m.abs(stencil(m, x + 1j * y, y)[0]), f32(13, 45), f32(13, 45))
for name in ("?", "i1", "f2", "f4", "i8", "f8"):
    x, y = (rng.integers(0, 2 if name == "?" else 50, (2, 45, 67)).astype(name) for _ in "ab")
    t = y.transpose(0, 2, 1).copy()
    def across(m, x, t):
        return x.swapaxes(1, 2)[:, ::-1] * t
    show("across " + name, across, x, t, exact=lambda x, t: across(np, x, t))
show("library", lambda m, x: (m.real(m.fft.rfft(x)), m.sort(m.partition(x, 50)[:, :50])), f32(90, 1000), rtol=1e-3)
show("its ufuncs", lambda m, x: m.spacing(x), f32(n))
show("two parts", lambda m, x: m.frexp(x), f32(n))
show("complex", lambda m, x: m.abs(m.exp(x * 1j)), f32(n))
show("reversed", lambda m, x, y: m.sum((x.T + y)[::-1, 1:] * y[:, 1:], axis=0), f32(300, 300), f32(300, 300))
"""


def printed(directory: Path, threads: int, debug: str = "") -> str:
    environment = {**os.environ, "PYTHONPATH": str(TOP), "LAZYT_DEBUG": debug, "LAZYT_CACHE_DIR": str(directory)}
    command = [sys.executable, "-W", "error", "-c", PROGRAMS, str(threads)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    directory = tmp_path_factory.mktemp("objects")
    directory.chmod(0o700)
    return directory


@pytest.fixture(scope="module")
def usual(cache):
    text = printed(cache, 2)
    assert text.count("\n") > PROGRAMS.count("\nshow(")
    return text


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 4])
def test_bits_do_not_depend_on_the_number_of_threads(cache, usual, threads):
    assert printed(cache, threads) == usual


SWITCHES = ["no-split", "no-wide", "no-tile", "no-pairs", "no-together", "no-donate", "no-adopt", "no-reuse"]
SWITCHES += ["no-cover", "no-widen", "no-alternate", "no-early", "no-place", "no-stream", "no-interior", "no-skew"]
SWITCHES += ["no-peel", "no-inplace", "no-join"]
WIDTHS = ["width-8", "width-4", "width-1"]
# Each compiles most programs anew in a process of its own. All switches at once, and one width, are tried first.
ALONE = [pytest.param(word, marks=pytest.mark.slow) for word in [*SWITCHES, "no-fuse,no-tiers", "width-8", "width-1"]]
WORDS = [",".join(SWITCHES), "width-4", *ALONE]


@pytest.mark.parametrize("word", WORDS)
def test_bits_do_not_depend_on_a_switch(cache, usual, word):
    assert printed(cache, 2, word) == usual
