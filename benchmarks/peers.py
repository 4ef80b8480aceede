"""The libraries to measure: how each is imported, limited to some threads, given arrays, and waited for."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# What keeps each library, and the BLAS under it, to so many threads; set before it is imported.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMEXPR_MAX_THREADS",
    "VECLIB_MAXIMUM_THREADS", "CPU_COUNT",
)  # fmt: skip


def cache_variables(directory: Path) -> dict[str, str]:
    """The environment that gives every library caches of its own below a directory."""
    return {
        "LAZYT_CACHE_DIR": str(directory / "lazyt"),
        "TORCHINDUCTOR_CACHE_DIR": str(directory / "inductor"),
        "TRITON_CACHE_DIR": str(directory / "triton"),
        "JAX_COMPILATION_CACHE_DIR": str(directory / "jax"),
        "CACHEDB": str(directory / "tinygrad.db"),
    }


class Peer:
    """A library. `module` is what expressions see; most of them compute at once and need no waiting."""

    name = ""
    package = ""  # to import, where it is not the name
    distribution = ""  # to ask for a version, where it is not the name

    def __init__(self, threads: int) -> None:
        self.module: Any = importlib.import_module(self.package or self.name)
        self.threads = threads
        self.start()

    @classmethod
    def installed(cls) -> bool:
        """Whether it can be imported, without importing it."""
        return importlib.util.find_spec((cls.package or cls.name).split(".")[0]) is not None

    @property
    def version(self) -> str:
        return importlib.metadata.version(self.distribution or self.name)

    def start(self) -> None:
        """Whatever else it needs to know, its number of threads above all."""

    def array(self, x: np.ndarray[Any, Any]) -> Any:
        """Its own array with the values of x."""
        return self.module.asarray(x)

    def compile(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """`f` as its users would run it in a loop."""
        return f

    def jit(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """The same of a function whose Python takes most of its time."""
        return self.compile(f)

    def wait(self, result: Any) -> Any:
        """Return when `result` is computed."""
        return result

    def numpy(self, result: Any) -> np.ndarray[Any, Any]:
        """The values of one of its arrays."""
        return np.asarray(result)

    def reset_peak(self) -> None:
        """Let `peak` start again, where it counts."""

    def peak(self) -> float:
        """The most bytes that its arrays had since then; 0 where it does not count them."""
        return 0.0


class Lazyt(Peer):
    name = "lazyt"

    @property
    def version(self) -> str:
        return "this tree"

    def start(self) -> None:
        importlib.import_module("lazyt.nn")
        importlib.import_module("lazyt.optim")
        self.module.set_num_threads(self.threads)

    def jit(self, f: Callable[..., Any]) -> Callable[..., Any]:
        found: Callable[..., Any] = self.module.jit(f)
        return found

    def wait(self, result: Any) -> Any:
        self.module.sync()
        return result

    def numpy(self, result: Any) -> np.ndarray[Any, Any]:
        return result.detach().numpy()

    def reset_peak(self) -> None:
        self.module.memory.reset_peak()

    def peak(self) -> float:
        return float(self.module.memory.peak())


class NumPy(Peer):
    name = "numpy"


class NumExpr(Peer):
    name = "numexpr"

    def start(self) -> None:
        self.module.set_num_threads(self.threads)

    def array(self, x: np.ndarray[Any, Any]) -> Any:
        return x


class Torch(Peer):
    name = "torch"

    def start(self) -> None:
        self.module.set_num_threads(self.threads)

    def array(self, x: np.ndarray[Any, Any]) -> Any:
        return self.module.tensor(x)

    def numpy(self, result: Any) -> np.ndarray[Any, Any]:
        return result.detach().numpy()


class TorchCompile(Torch):
    name = "torch.compile"
    package = distribution = "torch"

    @classmethod
    def installed(cls) -> bool:
        """Inductor calls a C++ compiler."""
        compilers = (os.environ.get("CXX", "g++"), "g++", "clang++")
        return super().installed() and any(shutil.which(c) for c in compilers)

    def compile(self, f: Callable[..., Any]) -> Callable[..., Any]:
        return self.module.compile(f)


class Jax(Peer):
    name = "jax"
    package = "jax.numpy"

    def start(self) -> None:
        self.jax = importlib.import_module("jax")
        # Else it keeps only what took a second to compile, and a warm start would not be one.
        self.jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        self.jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

    def compile(self, f: Callable[..., Any]) -> Callable[..., Any]:
        return self.jax.jit(f)

    def wait(self, result: Any) -> Any:
        return self.jax.block_until_ready(result)


class Mlx(Peer):
    name = "mlx"
    package = "mlx.core"

    def start(self) -> None:
        self.module.set_default_device(self.module.cpu)

    def array(self, x: np.ndarray[Any, Any]) -> Any:
        return self.module.array(x)

    def compile(self, f: Callable[..., Any]) -> Callable[..., Any]:
        return self.module.compile(f)

    def wait(self, result: Any) -> Any:
        self.module.eval(result)
        return result


class Tinygrad(Peer):
    name = "tinygrad"

    @classmethod
    def installed(cls) -> bool:
        """Its CPU backend calls clang."""
        return super().installed() and shutil.which("clang") is not None

    def __init__(self, threads: int) -> None:
        os.environ["DEV"] = "CPU"  # read when it is imported
        super().__init__(threads)

    def array(self, x: np.ndarray[Any, Any]) -> Any:
        return self.module.Tensor(x).realize()

    def compile(self, f: Callable[..., Any]) -> Callable[..., Any]:
        return self.module.TinyJit(lambda *xs: self.wait(f(*xs)))

    def wait(self, result: Any) -> Any:
        """Its CPU device runs behind the caller's back."""
        parts = result if isinstance(result, tuple | list) else [result]
        parts[0].realize(*parts[1:])
        self.module.Device[self.module.Device.DEFAULT].synchronize()
        return result

    def numpy(self, result: Any) -> np.ndarray[Any, Any]:
        return result.numpy()


PEERS: dict[str, type[Peer]] = {
    p.name: p for p in (Lazyt, NumPy, NumExpr, Torch, TorchCompile, Jax, Mlx, Tinygrad)
}  # fmt: skip
