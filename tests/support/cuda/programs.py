"""Programs whose kernels every backend must do: what a training script and a notebook are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

import lazyt as lt
from lazyt.backends.cuda.codegen.mapping import pieces_of
from lazyt.ir.kernel import Kernel
from lazyt.ir.passes.kernelize import KernelCall
from lazyt.nn import functional as F
from lazyt.runtime import plan_cache
from lazyt.runtime.sync import last_report

Launch = tuple[Kernel, list[int]]
PROCESSORS = 132


def _data(*shape: int, dtype: str = "float32", seed: int = 0, grad: bool = False) -> Any:
    x = lt.asarray(np.random.default_rng(seed).normal(size=shape).astype(np.float32)).astype(dtype)
    lt.sync()
    return x.requires_grad_() if grad else x


def gelu_chain() -> Any:
    x = _data(4096)
    return F.gelu(F.gelu(x, approximate="tanh") * 1.5 + 0.5, approximate="tanh")


def sum_of_squares() -> Any:
    a, b, c = (_data(200_000, seed=s) for s in range(3))
    return ((a * b + c) ** 2).sum()


def softmax(dtype: str = "float32") -> Any:
    x = _data(3, 8192, dtype=dtype, grad=True)
    y = F.softmax(x, -1)
    (y * y).sum().backward()
    return y, x.grad


def layer_norm() -> Any:
    x, r = _data(9, 1024, grad=True), _data(9, 1024, seed=1)
    w, b = _data(1024, seed=2, grad=True), _data(1024, seed=3, grad=True)
    y = F.layer_norm(x + r, (1024,), w, b)
    (y * r).sum().backward()
    return y, x.grad, w.grad, b.grad


def cross_entropy() -> Any:
    x = _data(3, 32768, grad=True)
    target = lt.asarray(np.arange(3) * 7000)
    loss = F.cross_entropy(x, target)
    loss.backward()
    return loss, x.grad


def long_rows() -> Any:
    """Fewer rows than multiprocessors, which are read again."""
    x, w, h = _data(2, 33_000, grad=True), _data(33_000, seed=1), _data(2, 33_000, dtype="bfloat16", seed=2)
    loss = F.cross_entropy(x, lt.asarray([7, 32_000])) + F.layer_norm(x, (33_000,), w, w).sum()
    loss.backward()
    return loss, x.grad, F.softmax(h, -1), F.log_softmax(h.astype("float32"), -1), lt.argmax(h, -1)


def statistics() -> Any:
    x = _data(300, 96)
    return x.mean(0), x.var(0), x.argmax(1), x.min(0), (x > 0).any(1), x.prod(1), x.std()


def transposed_add() -> Any:
    x, y = _data(40, 36), _data(36, 40, seed=1)
    return x.T + y[::-1]


def movement() -> Any:
    x = _data(6, 8, 10)
    a = lt.concat([x, x[:, ::2].reshape(6, 2, 20)[..., :10]], axis=1)
    return lt.pad(a, ((1, 2), (0, 0), (3, 0))), lt.roll(x, 3, axis=1), lt.flip(x, axis=(0, 2)), lt.tile(x, (2, 1, 1))


def adam() -> Any:
    ps = [_data(1000 + 8 * i, seed=i, grad=True) for i in range(4)]
    opt = lt.optim.AdamW(ps, lr=1e-3, weight_decay=0.01)
    for _ in range(2):
        opt.zero_grad()
        sum((p * p).sum() for p in ps).backward()
        opt.step()
    return ps


def random() -> Any:
    r = lt.random
    x = r.normal(shape=(500,))
    return (
        x,
        r.uniform(shape=(500,)),
        r.integers(0, 10, shape=(500,)),
        r.random((500,), dtype="float64"),
        F.dropout(x, 0.3),
    )


def indexing() -> Any:
    x, i = _data(50, 20, grad=True), lt.asarray(np.arange(30) * 7 % 50)
    y = x[i] * 2
    (y * y).sum().backward()
    return y, x.grad, lt.where(x > 0, x, -x), lt.take(x, i, axis=0)


def integers() -> Any:
    x = lt.asarray(np.arange(-500, 500, dtype=np.int32))
    return x // 7, x % 7, x << 3, (x * x).sum(), x.max(), x.astype("uint8"), (x.astype("int64") ** 3)


def complex_numbers() -> Any:
    x = lt.asarray((np.arange(60) + 1j * np.arange(60)[::-1]).astype(np.complex64))
    return lt.exp(x / 60), abs(x), x * lt.conj(x), x.sum()


def complex_words() -> Any:
    """What only moves goes by words of 8 bytes, of which a complex128 has two."""
    rows = lt.asarray(np.array([3, 0, 5, 5]))
    found = []
    for dtype in ("complex64", "complex128"):
        x = lt.asarray(np.random.default_rng(0).normal(size=(40, 66)).view("c16").astype(dtype))
        found += [x.T, lt.flip(x), lt.fft.fftshift(x), lt.pad(x, ((1, 0), (2, 1))), lt.take(x, rows, axis=1)]
        found += [lt.take(x, rows, axis=0)[:, ::-1], lt.concat([x[::3], x[1:3]])]
    return tuple(found)


def halves() -> Any:
    x, y = _data(600, dtype="bfloat16"), _data(600, dtype="float16", seed=1)
    return lt.exp(x) * 2 + x, lt.tanh(y) / 3, x.astype("float32") + y.astype("float32"), x.sum(), y.max()


def elementary() -> Any:
    x = abs(_data(300)) / 4 + 0.1
    names = "exp expm1 log log1p log2 sin cos tan asin acos atan sinh cosh tanh asinh atanh sqrt"
    doubles = x.astype("float64")
    return [getattr(lt, n)(v) for n in names.split() for v in (x, doubles)]


def network() -> Any:
    model = lt.nn.Sequential(lt.nn.Linear(64, 48), lt.nn.GELU(), lt.nn.LayerNorm(48), lt.nn.Linear(48, 10))
    opt = lt.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss = F.cross_entropy(model(_data(33, 64)), lt.asarray(np.arange(33) % 10))
    loss.backward()
    opt.step()
    return loss, *model.parameters()


def long_logits(dtype: str) -> Any:
    """As many rows as multiprocessors, of a vocabulary's length."""
    x = _data(PROCESSORS, 50_304, dtype=dtype, grad=True)
    loss = F.cross_entropy(x, lt.asarray(np.arange(PROCESSORS) * 300))
    loss.backward()
    return loss, x.grad


def whole_tiles() -> Any:
    pairs = [(_data(1024, 2048, dtype=d), _data(2048, 1024, dtype=d, seed=1)) for d in ("float32", "bfloat16")]
    return [x.T + y[::-1] for x, y in pairs]


# Too large to be run without a device.
LARGE: dict[str, Callable[[], Any]] = {
    "long_logits": lambda: long_logits("float32"),
    "long_logits_bf16": lambda: long_logits("bfloat16"),
    "whole_tiles": whole_tiles,
}

# What `benchmarks/` times on a device: none of their kernels may spill.
BENCHMARKS: dict[str, Callable[[], Any]] = {
    "gelu_chain": gelu_chain,
    "sum_of_squares": sum_of_squares,
    "softmax": softmax,
    "softmax_bf16": lambda: softmax("bfloat16"),
    "layer_norm": layer_norm,
    "cross_entropy": cross_entropy,
    "long_rows": long_rows,
    "statistics": statistics,
    "transposed_add": transposed_add,
    "adam": adam,
    "network": network,
}
PROGRAMS: dict[str, Callable[[], Any]] = BENCHMARKS | {
    "movement": movement,
    "random": random,
    "indexing": indexing,
    "integers": integers,
    "complex": complex_numbers,
    "complex words": complex_words,
    "halves": halves,
    "elementary": elementary,
}


def launches(program: Callable[[], Any]) -> list[Launch]:
    """The kernels of a program's last plan, fused, each with the argument entries of its launch (addresses 0)."""
    with mock.patch.dict(plan_cache.settings, {"tiers": False, "reuse": False, "epilogues": False, "gemm": False}):
        values = program()
        lt.sync()
    report = last_report()
    del values
    if report is None or report.plan is None:
        return []  # nothing was pending
    bound = report.plan.executable.bound[report.extents]
    calls = [c for c in report.plan.schedule.launches if isinstance(c, KernelCall)]
    found = []
    for c in calls:
        extents, strides, coefs = bound._shape(c)
        for piece in pieces_of(c.kernel, extents, strides, coefs, PROCESSORS):
            entries: list[int] = []
            bound._arguments(c, piece, entries, [])
            found.append((piece.kernel, entries))
    return found


def flat(values: Any) -> list[np.ndarray]:
    if isinstance(values, lt.Tensor):
        return [values.detach().numpy()]
    return [a for v in values for a in flat(v)]
