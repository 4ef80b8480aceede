"""The libraries that are timed on a device, behind one face: put an array there, run, wait, and time many runs."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

Call = Callable[[], Any]


class Library:
    """One library on one device ('cuda:0', or 'cpu' for a trial without a GPU)."""

    name = ""
    module = ""

    def __init__(self, device: str) -> None:
        self.device = device
        self.on_gpu = device != "cpu"
        self.m: Any = importlib.import_module(self.module)
        self.version: str = getattr(self.m, "__version__", "here")

    def put(self, x: Any, dtype: str = "", grad: bool = False) -> Any:
        raise NotImplementedError

    def compile(self, f: Call, small: bool = False) -> Any:
        """What a user of this library makes of a function; `small`: it waits for launches rather than for memory."""
        return f

    def submit(self, out: Any) -> None:
        """Have the work of a result enqueued."""

    def wait(self) -> None:
        raise NotImplementedError

    def precision(self, word: str) -> None:
        """'highest' or 'high' for products of float32."""

    def span(self, call: Call, n: int) -> float:
        """Seconds a run: n of them enqueued between two marks, then waited for."""
        self.wait()
        start = time.perf_counter()
        for _ in range(n):
            self.submit(call())
        self.wait()
        return (time.perf_counter() - start) / n


def _by_events(
    library: Library, call: Call, n: int, event: Callable[[], Any], elapsed: Callable[[Any, Any], float]
) -> float:
    """The same by events of CUDA on the library's stream; `elapsed` gives milliseconds."""
    library.wait()
    start, stop = event(), event()
    start.record()
    for _ in range(n):
        library.submit(call())
    stop.record()
    library.wait()
    return elapsed(start, stop) / 1e3 / n


class Cupy(Library):
    name = module = "cupy"

    def put(self, x: Any, dtype: str = "", grad: bool = False) -> Any:
        return self.m.asarray(x, dtype=dtype or None)

    def wait(self) -> None:
        self.m.cuda.Device().synchronize()

    def span(self, call: Call, n: int) -> float:
        cuda = self.m.cuda
        return _by_events(self, call, n, cuda.Event, cuda.get_elapsed_time)


class Lazyt(Library):
    name = module = "lazyt"

    def put(self, x: Any, dtype: str = "", grad: bool = False) -> Any:
        lt = self.m
        with lt.no_grad():
            found = lt.tensor(x, device=self.device)
            if dtype:
                found = found.astype(dtype)
            lt.sync()
        return found.requires_grad_() if grad else found

    def submit(self, out: Any) -> None:
        self.m.sync()

    def wait(self) -> None:
        self.m.sync()
        if self.on_gpu:
            importlib.import_module("cupy").cuda.Device().synchronize()

    def precision(self, word: str) -> None:
        self.m.set_float32_matmul_precision(word)

    def span(self, call: Call, n: int) -> float:
        if not self.on_gpu:
            return super().span(call, n)
        cuda = importlib.import_module("cupy").cuda
        return _by_events(self, call, n, cuda.Event, cuda.get_elapsed_time)


class Torch(Library):
    name = module = "torch"

    def __init__(self, device: str) -> None:
        super().__init__(device)
        if self.on_gpu and not self.m.cuda.is_available():
            raise ImportError("this PyTorch has no CUDA")

    def put(self, x: Any, dtype: str = "", grad: bool = False) -> Any:
        found = self.m.as_tensor(x, device=self.device)
        found = found.to(getattr(self.m, dtype)) if dtype else found
        return found.requires_grad_() if grad else found

    def wait(self) -> None:
        if self.on_gpu:
            self.m.cuda.synchronize()

    def precision(self, word: str) -> None:
        self.m.set_float32_matmul_precision(word)

    def span(self, call: Call, n: int) -> float:
        if not self.on_gpu:
            return super().span(call, n)
        event = partial(self.m.cuda.Event, enable_timing=True)
        return _by_events(self, call, n, event, lambda a, b: a.elapsed_time(b))


class Compiled(Torch):
    name = "torch.compile"

    def compile(self, f: Call, small: bool = False) -> Any:
        return self.m.compile(f, mode="reduce-overhead") if small and self.on_gpu else self.m.compile(f)


class Jax(Library):
    """It has no events: its runs are enqueued, and the last result is waited for."""

    name = "jax.jit"
    module = "jax"

    def __init__(self, device: str) -> None:
        super().__init__(device)
        if self.on_gpu and self.m.default_backend() != "gpu":
            raise ImportError("this JAX has no GPU")
        self.np = importlib.import_module("jax.numpy")
        self.last: Any = None

    def put(self, x: Any, dtype: str = "", grad: bool = False) -> Any:
        return self.np.asarray(x, dtype=dtype or None)

    def compile(self, f: Call, small: bool = False) -> Any:
        return self.m.jit(f)

    def submit(self, out: Any) -> None:
        self.last = out

    def wait(self) -> None:
        if self.last is not None:
            self.m.block_until_ready(self.last)

    def precision(self, word: str) -> None:
        self.m.config.update("jax_default_matmul_precision", {"highest": "float32", "high": "tensorfloat32"}[word])


LIBRARIES: dict[str, type[Library]] = {c.name: c for c in (Lazyt, Torch, Compiled, Jax, Cupy)}


def numbers(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray[Any, Any]:
    """Normal numbers, the same for all libraries; many are a few repeated, as host memory is slow to fill."""
    size = int(np.prod(shape))
    some = np.random.default_rng(seed).standard_normal(min(size, 1 << 20), dtype=np.float32) * np.float32(scale)
    return np.resize(some, shape)
