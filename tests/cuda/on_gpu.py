"""On a machine with a GPU: the tests marked `cuda`, then what the backend takes beside a copy. One call, a few minutes.

    python -m tests.cuda.on_gpu [report.txt]

Times are of many runs enqueued and then waited for, so they are the device's where it is the slower side. `share` is
the part of the bandwidth of a device-to-device copy, measured in the same run, that a work's least traffic is done at.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import lazyt as lt
from lazyt.backends.cuda import device as devices
from lazyt.backends.cuda import driver
from lazyt.nn import functional as F

TEST_SECONDS = 270
# Each work is timed for about so long.
SECONDS = 1.0


@dataclass
class Work:
    """Something to time: what it is made of, one run of it, and the bytes that it must move at the least."""

    name: str
    run: Callable[[], Any]
    nbytes: int


def _random(*shape: int, dtype: str = "float32", grad: bool = False, seed: int = 0) -> lt.Tensor:
    with lt.device("cuda:0"), lt.no_grad():
        lt.random.seed(seed)
        x = lt.random.normal(shape=shape).astype(dtype)
        lt.sync(x)
    return x.requires_grad_() if grad else x


def works(scale: int = 1) -> list[Work]:
    """The memory-bound rows of the table in the issue, their sizes divided by `scale`."""
    n = (1 << 28) // scale
    a, b, c = (_random(n, seed=s) for s in range(3))
    rows, wide = 16384 // min(scale, 4096), 8192
    x = _random(rows, wide)
    half = x.astype("bfloat16")
    tall = 65536 // min(scale, 4096)
    h, r, w, v = _random(tall, 1024), _random(tall, 1024, seed=1), _random(1024, seed=2), _random(1024, seed=3)
    columns = _random(65536 // min(scale, 512), 4096 // min(scale, 64))
    side = 16384 // min(scale, 256)
    p, q = _random(side, side), _random(side, side, seed=1)
    lt.sync()
    return [
        Work("tanh-GELU chain, float32", lambda: F.gelu(a, approximate="tanh") * 1.5 + 0.5, 8 * n),
        Work("sum((a*b+c)^2), float32", lambda: ((a * b + c) ** 2).sum(), 12 * n),
        Work("softmax over rows, float32", lambda: F.softmax(x, -1), 8 * x.size),
        Work("softmax over rows, bfloat16", lambda: F.softmax(half, -1), 4 * x.size),
        Work("layernorm + residual", lambda: F.layer_norm(h + r, (1024,), w, v), 12 * h.size),
        Work("mean and variance over axis 0", lambda: (columns.mean(0), columns.var(0)), 4 * columns.size),
        Work("transposed add, reversed", lambda: p.T + q[::-1], 12 * p.size),
    ]


def timed(run: Callable[[], Any], seconds: float = SECONDS) -> float:
    """Seconds a run, of as many as fit."""
    where = devices.device("cuda:0")

    def several(n: int) -> float:
        where.synchronize()
        t0 = time.perf_counter()
        for _ in range(n):
            lt.sync(*_flat(run()))
        where.synchronize()
        return (time.perf_counter() - t0) / n

    several(3)
    once = several(2)
    return several(max(1, min(int(seconds / once), 1000)))


def _flat(x: Any) -> list[lt.Tensor]:
    return list(x) if isinstance(x, tuple) else [x]


def copy_bandwidth(nbytes: int) -> float:
    """Bytes a second of reading and writing, by the copy engine of CuPy."""
    import cupy

    a, b = cupy.zeros(nbytes, np.uint8), cupy.empty(nbytes, np.uint8)
    start, stop = cupy.cuda.Event(), cupy.cuda.Event()
    cupy.copyto(b, a)
    start.record()
    for _ in range(20):
        cupy.copyto(b, a)
    stop.record()
    stop.synchronize()
    return 20 * 2 * nbytes / (cupy.cuda.get_elapsed_time(start, stop) / 1000)


def table(scale: int, bandwidth: float, seconds: float = SECONDS) -> list[str]:
    lines = [f"{'work':34} {'ms':>9} {'GB/s':>8} {'share':>6}"]
    for work in works(scale):
        took = timed(work.run, seconds)
        rate = work.nbytes / took
        lines.append(f"{work.name:34} {took * 1e3:9.3f} {rate / 1e9:8.0f} {rate / bandwidth:6.0%}")
    return lines


def main() -> int:
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "cuda", "-p", "no:cacheprovider", "tests/test_cuda_gpu.py"],
        timeout=TEST_SECONDS, check=False,
    )  # fmt: skip
    properties = driver.get().properties(0)
    bandwidth = copy_bandwidth(1 << 30)
    lines = [
        f"{properties.name}, compute capability {properties.capability / 10}, {properties.processors} multiprocessors",
        f"tests marked cuda: {'passed' if tests.returncode == 0 else f'exit {tests.returncode}'}",
        f"device-to-device copy: {bandwidth / 1e9:.0f} GB/s",
        *table(1, bandwidth),
    ]
    text = "\n".join(lines)
    print(text)
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w") as file:
            file.write(text + "\n")
    return tests.returncode


if __name__ == "__main__":
    sys.exit(main())
