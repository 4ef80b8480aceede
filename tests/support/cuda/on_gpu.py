"""On a machine with a GPU: tests marked `cuda`, then what the backend takes beside its peers. One call, under 8 min.

    python -m tests.support.cuda.on_gpu [report.txt]

Times are of many runs enqueued and then waited for, so they are the device's where it is the slower side. `share` is
the part of the bandwidth of a device-to-device copy, measured in the same run, that a work's least traffic is done at.
What fails is a line of the report, and what is timed after it still is. The report is written after each line.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import lazyt as lt
from lazyt.backends.cpu.flags import switches
from lazyt.backends.cuda import cupy_driver, device as devices
from lazyt.nn import functional as F

# Of all that this may take; tests get the first part.
SECONDS = 460
TEST_SECONDS = 270
# Each work is timed for about so long.
EACH = 0.5


@dataclass
class Work:
    """Something to time: one run of it, the same by torch, and the bytes (or flops) that it is at the least."""

    name: str
    run: Callable[[], Any]
    peer: Callable[[Any], Callable[[], Any]] | None = None
    nbytes: int = 0
    flops: int = 0


def _random(*shape: int, dtype: str = "float32", grad: bool = False, seed: int = 0) -> lt.Tensor:
    with lt.device("cuda:0"), lt.no_grad():
        lt.random.seed(seed)
        x = lt.random.normal(shape=shape).astype(dtype)
        lt.sync(x)
    return x.requires_grad_() if grad else x


# What makes a work, its sizes divided by `scale`: what one is made of goes before the next.


def gelu_chain(scale: int) -> Work:
    n = (1 << 28) // scale
    a = _random(n)

    def peer(torch: Any) -> Callable[[], Any]:
        t = torch.randn(n, device="cuda")
        return lambda: torch.nn.functional.gelu(t, approximate="tanh") * 1.5 + 0.5

    return Work("tanh-GELU chain, float32", lambda: F.gelu(a, approximate="tanh") * 1.5 + 0.5, peer, 8 * n)


def sum_of_squares(scale: int) -> Work:
    n = (1 << 28) // scale
    a, b, c = (_random(n, seed=i) for i in range(3))

    def peer(torch: Any) -> Callable[[], Any]:
        x, y, z = (torch.randn(n, device="cuda") for _ in range(3))
        return lambda: ((x * y + z) ** 2).sum()

    return Work("sum((a*b+c)^2), float32", lambda: ((a * b + c) ** 2).sum(), peer, 12 * n)


def softmax(scale: int, dtype: str = "float32") -> Work:
    rows, wide = 16384 // min(scale, 4096), 8192
    x = _random(rows, wide, dtype=dtype)

    def peer(torch: Any) -> Callable[[], Any]:
        t = torch.randn(rows, wide, device="cuda", dtype=getattr(torch, dtype))
        return lambda: torch.softmax(t, -1)

    return Work(f"softmax over rows, {dtype}", lambda: F.softmax(x, -1), peer, 2 * x.nbytes)


def long_rows(scale: int) -> Work:
    rows, wide = 8, (1 << 17) // min(scale, 64)
    x = _random(rows, wide)

    def peer(torch: Any) -> Callable[[], Any]:
        t = torch.randn(rows, wide, device="cuda")
        return lambda: torch.softmax(t, -1)

    return Work("softmax over 8 rows of 131,072", lambda: F.softmax(x, -1), peer, 2 * x.nbytes)


def layer_norm(scale: int) -> Work:
    rows = 65536 // min(scale, 4096)
    h, r, w, v = _random(rows, 1024), _random(rows, 1024, seed=1), _random(1024, seed=2), _random(1024, seed=3)

    def peer(torch: Any) -> Callable[[], Any]:
        s, t, u, v = (torch.randn(*d, device="cuda") for d in ((rows, 1024), (rows, 1024), (1024,), (1024,)))
        return lambda: torch.nn.functional.layer_norm(s + t, (1024,), u, v)

    return Work("layernorm + residual", lambda: F.layer_norm(h + r, (1024,), w, v), peer, 3 * h.nbytes)


def cross_entropy(scale: int) -> Work:
    rows = 8192 // min(scale, 2048)
    logits, target = _random(rows, 32768), lt.asarray(np.arange(rows), device="cuda:0")
    both = lt.value_and_grad(lambda x: F.cross_entropy(x, target))

    def peer(torch: Any) -> Callable[[], Any]:
        t, to = torch.randn(rows, 32768, device="cuda", requires_grad=True), torch.arange(rows, device="cuda")

        def run() -> Any:
            loss = torch.nn.functional.cross_entropy(t, to)
            return loss, torch.autograd.grad(loss, t)[0]

        return run

    return Work("cross-entropy, value and gradient", lambda: both(logits), peer, 2 * logits.nbytes)


def statistics(scale: int) -> Work:
    x = _random(65536 // min(scale, 512), 4096 // min(scale, 64))

    def peer(torch: Any) -> Callable[[], Any]:
        t = torch.randn(*x.shape, device="cuda")
        return lambda: (t.mean(0), t.var(0, correction=0))

    return Work("mean and variance over axis 0", lambda: (x.mean(0), x.var(0)), peer, x.nbytes)


def transposed_add(scale: int) -> Work:
    side = 16384 // min(scale, 256)
    p, q = _random(side, side), _random(side, side, seed=1)

    def peer(torch: Any) -> Callable[[], Any]:
        s, t = torch.randn(side, side, device="cuda"), torch.randn(side, side, device="cuda")
        return lambda: s.T + t.flip(0)

    return Work("transposed add, reversed", lambda: p.T + q[::-1], peer, 3 * p.nbytes)


def adam(scale: int) -> Work:
    count, size = (100, 1 << 20) if scale == 1 else (3, 256)
    return Work(f"Adam over {count} tensors", _adam(size, count), None, 28 * count * size)


def product(scale: int, dtype: str = "float32") -> Work:
    m = 8192 // min(scale, 256)
    s, t = _random(m, m, dtype=dtype), _random(m, m, dtype=dtype, seed=1)

    def peer(torch: Any) -> Callable[[], Any]:
        x, y = (torch.randn(m, m, device="cuda", dtype=getattr(torch, dtype)) for _ in range(2))
        return lambda: x @ y

    return Work(f"matmul {m}^3, {dtype}", lambda: s @ t, peer, flops=2 * m**3)


def convolution(scale: int, groups: int = 1) -> Work:
    """At stride 2 with zeros around, forward and both gradients."""
    images, side = max(32 // scale, 1), 56 // min(scale, 8)
    x = _random(images, 64, side, side, grad=True)
    w = _random(128 if groups == 1 else 64, 64 // groups, 3, 3, grad=True, seed=1)
    places = (side + 1) // 2

    both = lt.value_and_grad(lambda a, b: F.conv2d(a, b, stride=2, padding=1, groups=groups).sum(), argnums=(0, 1))

    def run() -> Any:
        value, gradients = both(x, w)
        return value, *gradients

    def peer(torch: Any) -> Callable[[], Any]:
        a, b = (torch.randn(*t.shape, device="cuda", requires_grad=True) for t in (x, w))

        def run() -> Any:
            y = torch.nn.functional.conv2d(a, b, stride=2, padding=1, groups=groups)
            return torch.autograd.grad(y.sum(), (a, b))

        return run

    flops = 3 * 2 * images * places * places * int(np.prod(w.shape))
    return Work(f"convolution, stride 2, {groups} groups", run, peer, flops=flops)


def attention(scale: int, dtype: str = "float32") -> Work:
    """Causal, forward and its gradients: 2 products and 5."""
    length, heads, d = max(1024 // scale, 16), max(12 // scale, 1), 64
    q, k, v = (_random(8 if scale == 1 else 1, heads, length, d, dtype=dtype, seed=i) for i in range(3))

    def loss(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).sum()

    both = lt.value_and_grad(loss, argnums=(0, 1, 2))

    def run() -> Any:
        value, gradients = both(q, k, v)
        return value, *gradients

    def peer(torch: Any) -> Callable[[], Any]:
        xs = [torch.randn(*q.shape, device="cuda", dtype=getattr(torch, dtype), requires_grad=True) for _ in range(3)]

        def run() -> Any:
            y = torch.nn.functional.scaled_dot_product_attention(*xs, is_causal=True)
            return torch.autograd.grad(y.sum(), xs)

        return run

    flops = 7 * 2 * q.shape[0] * heads * length * length * d // 2
    return Work(f"causal attention, both ways, {dtype}", run, peer, flops=flops)


def mlp(scale: int) -> Work:
    return Work("MLP step, batch 128", _mlp(), _torch_mlp)


WORKS: list[Callable[[int], Work]] = [
    gelu_chain, sum_of_squares, softmax, partial(softmax, dtype="bfloat16"), long_rows, layer_norm, cross_entropy,
    statistics, transposed_add, adam, product, partial(product, dtype="bfloat16"), convolution,
    partial(convolution, groups=64), attention, mlp,
]  # fmt: skip


def _adam(size: int, count: int) -> Callable[[], Any]:
    ps = [_random(size, seed=i, grad=True) for i in range(count)]
    opt = lt.optim.Adam(ps, lr=1e-3)
    grads = [_random(size, seed=i + count) for i in range(count)]

    def run() -> Any:
        for p, g in zip(ps, grads, strict=True):
            p.grad = g
        opt.step()
        return ()

    return run


def _mlp() -> Callable[[], Any]:
    lt.random.seed(0)
    model = lt.nn.Sequential(lt.nn.Linear(784, 256), lt.nn.ReLU(), lt.nn.Linear(256, 10)).to("cuda:0")
    opt = lt.optim.SGD(model.parameters(), lr=0.01)
    x, y = _random(128, 784), lt.asarray(np.arange(128) % 10, device="cuda:0")

    def run() -> Any:
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return (loss.detach(),)

    return run


def _torch_mlp(torch: Any) -> Callable[[], Any]:
    nn = torch.nn
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)).cuda()
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(128, 784, device="cuda"), torch.arange(128, device="cuda") % 10

    def run() -> Any:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()

    return run


def timed(run: Callable[[], Any], wait: Callable[[], Any], seconds: float = EACH) -> float:
    """Seconds a run, of as many as fit."""

    def several(n: int) -> float:
        wait()
        t0 = time.perf_counter()
        for _ in range(n):
            run()
        wait()
        return (time.perf_counter() - t0) / n

    several(4)
    once = several(2)
    return several(max(1, min(int(seconds / once), 1000)))


def ours(work: Work) -> Callable[[], None]:
    """A run of lazyt's, enqueued."""

    def run() -> None:
        out = work.run()
        lt.sync(*(out if isinstance(out, tuple) else (out,)))

    return run


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


def _attempt(what: Callable[[], str]) -> str:
    """A part of a line, or what went wrong: the script cannot be run again at will."""
    try:
        return what()
    except Exception as error:  # noqa: BLE001 - it goes into the report, and the next work is timed
        return f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"


def table(
    scale: int, bandwidth: float, seconds: float = EACH, until: float = float("inf"), torch: Any = None
) -> Iterator[str]:
    """The lines of the table; works that would begin after `until` are left out."""
    yield f"{'work':36} {'ms':>9} {'rate':>12} {'share':>6}   by torch eager, compiled: ms"
    for make in WORKS:
        yield _line(make, scale, bandwidth, seconds, torch) if time.perf_counter() < until else "left out: no time"


def _line(make: Callable[[int], Work], scale: int, bandwidth: float, seconds: float, torch: Any) -> str:
    wait = devices.device("cuda:0").synchronize

    def own() -> str:
        took = timed(ours(work), wait, seconds)
        if work.flops:
            return f"{took * 1e3:9.3f} {work.flops / took / 1e12:5.0f} TFLOP/s {'':6}"
        rate = work.nbytes / took
        share = f"{rate / bandwidth:6.0%}" if work.nbytes else f"{'':6}"
        return f"{took * 1e3:9.3f} {rate / 1e9:7.0f} GB/s {share}"

    def peers() -> str:
        if torch is None or work.peer is None:
            return ""
        run = work.peer(torch)
        eager = timed(run, torch.cuda.synchronize, seconds) * 1e3
        if work.flops:
            return f"{eager:9.3f}"
        compiled = _attempt(lambda: f"{timed(torch.compile(run), torch.cuda.synchronize, seconds) * 1e3:9.3f}")
        return f"{eager:9.3f} {compiled}"

    try:
        work = make(scale)
    except Exception as error:  # noqa: BLE001 - as below
        return f"{getattr(make, '__name__', make)}: {error}"
    line = f"{work.name:36} {_attempt(own)}   {_attempt(peers)}"
    if torch is not None:
        torch.cuda.empty_cache()
    return line


def tests() -> str:
    """How the tests went, in a process of their own."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "cuda", "-p", "no:cacheprovider", "-o", "addopts=",
               "--tb=short", "--maxfail=25", "tests/backends/cuda/test_cuda_gpu.py"]  # fmt: skip
    try:
        done = subprocess.run(command, timeout=TEST_SECONDS, check=False, capture_output=True, text=True)
    except subprocess.TimeoutExpired as error:
        out = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        return f"tests marked cuda: not finished in {TEST_SECONDS} s\n{out[-6000:]}"
    lines = done.stdout.strip().splitlines() or [done.stderr[-2000:]]
    shown = lines[-1:] if done.returncode == 0 else lines[-120:]
    return "\n".join([f"tests marked cuda: {'passed' if done.returncode == 0 else f'exit {done.returncode}'}", *shown])


def main() -> int:
    begin = time.perf_counter()
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    report: list[str] = []

    def tell(line: str) -> None:
        print(line, flush=True)
        report.append(line)
        if path is not None:
            path.write_text("\n".join(report) + "\n")

    properties = cupy_driver.get().properties(0)
    tell(f"{properties.name}, compute capability {properties.capability / 10}, {properties.processors} processors")
    tell(tests())
    passed = report[-1].startswith("tests marked cuda: passed")
    bandwidth = copy_bandwidth(1 << 30)
    tell(f"device-to-device copy: {bandwidth / 1e9:.0f} GB/s")
    try:
        import torch
    except ImportError:
        torch = None
    for line in table(1, bandwidth, until=begin + SECONDS - 40, torch=torch):
        tell(line)
    switches["graphs"] = False
    last = Work("MLP step, launch by launch", _mlp())
    wait = devices.device("cuda:0").synchronize
    tell(_attempt(lambda: f"{last.name:36} {timed(ours(last), wait) * 1e3:9.3f}"))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
