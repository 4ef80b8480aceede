"""Generated CUDA C compiled as C++ and run on the CPU (see shim.h), for differential tests of the source itself."""

from __future__ import annotations

import ctypes
import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from lazyt.backends.cuda.codegen.emit import arguments, program
from lazyt.backends.cuda.codegen.mapping import (
    Mapping as Threads,
    extras,
    grid,
    phases,
    portions,
    scratch_words,
    shared_bytes,
)
from lazyt.ir.kernel import Kernel
from lazyt.ir.kernel_interpreter import Arguments, table

HEADER = Path(__file__).with_name("shim.h")
FLAGS = ["-std=c++17", "-O0", "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv", "-w", "-shared", "-fPIC"]
# A pointer to a buffer, from an argument entry or from another such pointer.
_BASE = re.compile(r"^(\s*)((?:const )?\w+) \*const p(\d+) = \([^)]*\)args\[(\d+)\];", re.M)
_DERIVED = re.compile(r"^(\s*)(?:const )?\w+ \*const (p\d+[ur]\d*) = ", re.M)
PACKS = """
template <typename T, int N> static inline void lt_load(T (&to)[N], const lt_checked<const T> from, int live) {
    if (live == N) lt_touch(from.access, from.at, sizeof to, sizeof(lt_pack<T, N>) < 16 ? sizeof(lt_pack<T, N>) : 16);
    for (int k = 0; k < N; k++) to[k] = k < live ? from[k] : (T)0;
}
template <typename T, int N> static inline void lt_store(const lt_checked<T> to, const T (&from)[N], int live) {
    if (live == N) lt_touch(to.access, to.at, sizeof from, sizeof(lt_pack<T, N>) < 16 ? sizeof(lt_pack<T, N>) : 16);
    for (int k = 0; k < live; k++) to[k] = from[k];
}
template <typename T, int N> static inline void lt_load(T (&to)[N], const lt_checked<const T> from) {
    lt_load(to, from, N);
}
template <typename T, int N> static inline void lt_store(const lt_checked<T> to, const T (&from)[N]) {
    lt_store(to, from, N);
}
static const void *lt_parameters;
static unsigned char *kept_here;
"""
WRAPPER = """
static void enter_{name}() {{ {name}(*(const lt_args<{size}> *)lt_parameters); }}
extern "C" const char *run_{name}(const void *args, unsigned blocks, unsigned threads, void *shared,
                                  const void **low, const void **high) {{
    lt_parameters = args;
    kept_here = (unsigned char *)shared;
    memcpy(lt_low, low, sizeof lt_low);
    memcpy(lt_high, high, sizeof lt_high);
    return lt_launch(enter_{name}, blocks, threads);
}}
"""


@functools.cache
def compiler() -> str:
    """g++, or a skip that says why."""
    found = shutil.which("g++")
    if found is None:
        pytest.skip("the CUDA source is run on the CPU by way of g++, which is not here")
    return found


def translated(source: str) -> str:
    """The program as C++: pointers to buffers are checked, dynamic shared memory is the launch's."""
    source = _BASE.sub(r"\1const lt_checked<\2> p\3 = {(\2 *)args[\4], \3};", source)
    source = _DERIVED.sub(r"\1const auto \2 = ", source)
    source = source.replace("extern __shared__ __align__(16) u8 kept[];", "u8 *const kept = kept_here;")
    head, mark, rest = source.partition("// The index clamped")
    return f'#include "{HEADER}"\n{head}{PACKS}{mark}{rest}'


def built(source: str, kernels: Mapping[str, int]) -> ctypes.CDLL:
    """A program as a library with `run_NAME` for each of its kernels, given how many entries its arguments have."""
    wrappers = [WRAPPER.format(name=name, size=size) for name, size in kernels.items()]
    with tempfile.TemporaryDirectory() as folder:
        path, made = Path(folder) / "kernels.cpp", f"{folder}/kernels.so"
        path.write_text(translated(source) + "\n".join(wrappers))
        done = subprocess.run([compiler(), *FLAGS, "-o", made, str(path)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"g++ refuses the generated source:\n{done.stderr[:4000]}"
        return ctypes.CDLL(made)


class Library:
    """Kernels compiled together; `run` launches one of them."""

    def __init__(self, kernels: list[tuple[Kernel, Threads]]) -> None:
        unique = {(k.key, m): k for k, m in kernels}
        self.names = {key: f"k{i}" for i, key in enumerate(unique)}
        source = program([(unique[key], key[1], name) for key, name in self.names.items()])
        self.library = built(source, {name: arguments(unique[key], key[1]) for key, name in self.names.items()})

    def run(self, kernel: Kernel, mapping: Threads, args: Arguments, processors: int = 1) -> None:
        """Launch over all of the kernel's domain; an AssertionError for what the shim sees go wrong."""
        units = kernel.units(args.extents)
        points = int(np.prod(args.extents))
        if units == 0 or (points == 0 and not (kernel.rows and all(args.extents[: kernel.outer]))):
            return
        entries = table(kernel, args)
        launches = phases(kernel, mapping, args.extents, processors)
        if launches[0].phase:
            count = portions(launches[0], args.extents)
            rows = int(np.prod(args.extents[: kernel.outer]))
            scratch = np.full(rows * scratch_words(kernel, launches[0]) * count + 1, -1)
            entries = np.append(entries, (scratch.ctypes.data, count))
        low, high = (ctypes.c_void_p * 64)(), (ctypes.c_void_p * 64)()
        for i, bound in enumerate(args.accesses):
            low[i] = bound.array.ctypes.data
            high[i] = bound.array.ctypes.data + bound.array.nbytes
        entries = np.append(entries, np.array(extras(kernel, launches[0], args.extents), np.int64))
        for m in launches:
            shared = np.full(shared_bytes(kernel, m) + 16, 0xA5, np.uint8)
            run = getattr(self.library, f"run_{self.names[kernel.key, m]}")
            run.restype = ctypes.c_char_p
            blocks = grid(kernel, m, args.extents, processors)
            failure = run(ctypes.c_void_p(entries.ctypes.data), blocks, m.threads,
                          ctypes.c_void_p(shared.ctypes.data), low, high)  # fmt: skip
            assert failure is None, failure.decode()
