"""Matrix products: a native kernel that calls the BLAS that NumPy carries, or `numpy.matmul` where none is found.

A unit is one panel of one product of a batch: the rows (or columns) of C are divided among lazyt's own threads, and
BLAS runs with one thread meanwhile, because two pools on the same processors cost milliseconds in hand-overs.
The kernel's int64 arguments: m, n, k, lda, ldb, ldc, transa, transb (CBLAS enums), the C batch stride, the number of
batch axes, how many panels, the rows and the columns of a panel, the element steps from panel to panel in A, B and C;
then for each of MAX_BATCH axes its extent, A stride and B stride (elements), then the addresses of A, B, C and of the
routine.
"""

from __future__ import annotations

import ctypes
import glob
import math
import os
from functools import lru_cache

import numpy as np

from lazyt.backends.common.products import MAX_BATCH
from lazyt.backends.cpu.engine import compile_module
from lazyt.ir import dtypes

HEAD = 16
POINTERS = HEAD + 3 * MAX_BATCH
FUNCTION = POINTERS + 3
SIZE = FUNCTION + 1
_ROUTINE = {"float32": ("sgemm", "float"), "float64": ("dgemm", "double"),
            "complex64": ("cgemm", "float"), "complex128": ("zgemm", "double")}  # fmt: skip


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL | None:
    """The OpenBLAS that this NumPy was built with, if it is one that can be called."""
    root = os.path.dirname(np.__file__)
    for pattern in ("../numpy.libs/*openblas*", ".dylibs/*openblas*"):
        for path in sorted(glob.glob(os.path.join(root, pattern))):
            lib = ctypes.CDLL(path)
            if hasattr(lib, "scipy_cblas_sgemm64_"):
                return lib
    return None


@lru_cache(maxsize=32)
def available(dtype: np.dtype) -> bool:
    """Whether a product of this dtype has a native kernel here."""
    return dtype.name in _ROUTINE and _library() is not None


def routine(dtype: np.dtype) -> str:
    """The library and its routine for products of a dtype."""
    return f"OpenBLAS {_ROUTINE[dtype.name][0]}"


class OneThread:
    """BLAS with one thread inside the block; as it was afterwards (NumPy shares it)."""

    def __enter__(self) -> None:
        lib = _library()
        self.before = 1
        if lib is not None and hasattr(lib, "scipy_openblas_set_num_threads64_"):
            self.before = lib.scipy_openblas_get_num_threads64_()
            if self.before != 1:
                lib.scipy_openblas_set_num_threads64_(1)

    def __exit__(self, *exc: object) -> None:
        if self.before != 1:
            lib = _library()
            assert lib is not None
            lib.scipy_openblas_set_num_threads64_(self.before)


@lru_cache(maxsize=8)
def kernel(dtype: np.dtype) -> tuple[int, int]:
    """The addresses of the product kernel for a dtype and of the BLAS routine that it calls."""
    routine, real = _ROUTINE[dtype.name]
    lib = _library()
    assert lib is not None
    target = ctypes.cast(getattr(lib, f"scipy_cblas_{routine}64_"), ctypes.c_void_p).value
    assert target is not None
    name = f"lazyt_{routine}"
    module = compile_module(_text(name, real, dtype), [name], permanent=True)
    _modules.append(module)
    return module.address(name), target


_modules: list[object] = []


def _text(name: str, real: str, dtype: np.dtype) -> str:
    is_complex = dtypes.kind(dtype) == "c"
    one = "ptr %one" if is_complex else f"{real} 1.0"
    zero = "ptr %zero" if is_complex else f"{real} 0.0"
    slots = "\n".join(
        f"  %{v}p = getelementptr i64, ptr %args, i64 {i}\n  %{v} = load i64, ptr %{v}p"
        for i, v in enumerate(
            ["m", "n", "k", "lda", "ldb", "ldc", "ta", "tb", "cs", "nb", "panels", "pm", "pn", "pa", "pb", "pc"]
        )
    )
    addresses = "\n".join(
        f"  %{v}p = getelementptr i64, ptr %args, i64 {POINTERS + i}\n  %{v} = load ptr, ptr %{v}p"
        for i, v in enumerate("ABC")
    )
    constants = (
        f"""  %one = alloca [2 x {real}]
  store [2 x {real}] [{real} 1.0, {real} 0.0], ptr %one
  %zero = alloca [2 x {real}]
  store [2 x {real}] zeroinitializer, ptr %zero"""
        if is_complex
        else ""
    )
    kind = "ptr" if is_complex else real
    size = dtype.itemsize
    return f"""
declare i64 @llvm.smin.i64(i64, i64)

define void @{name}(ptr %args, i64 %begin, i64 %end) {{
entry:
{slots}
{addresses}
{constants}
  %ta32 = trunc i64 %ta to i32
  %tb32 = trunc i64 %tb to i32
  %fp = getelementptr i64, ptr %args, i64 {FUNCTION}
  %f = load ptr, ptr %fp
  %any = icmp slt i64 %begin, %end
  br i1 %any, label %unit, label %done
unit:
  %u = phi i64 [ %begin, %entry ], [ %u1, %call ]
  %panel = urem i64 %u, %panels
  %product = udiv i64 %u, %panels
  %r0 = mul i64 %panel, %pm
  %rleft = sub i64 %m, %r0
  %mpart = call i64 @llvm.smin.i64(i64 %pm, i64 %rleft)
  %c0 = mul i64 %panel, %pn
  %cleft = sub i64 %n, %c0
  %npart = call i64 @llvm.smin.i64(i64 %pn, i64 %cleft)
  %tall = icmp eq i64 %pn, %n
  %mu = select i1 %tall, i64 %mpart, i64 %m
  %nu = select i1 %tall, i64 %n, i64 %npart
  %a0 = mul i64 %panel, %pa
  %b0 = mul i64 %panel, %pb
  %co0 = mul i64 %panel, %pc
  br label %axes
axes:
  %i = phi i64 [ %nb, %unit ], [ %i1, %axis ]
  %rest = phi i64 [ %product, %unit ], [ %rest1, %axis ]
  %ao = phi i64 [ %a0, %unit ], [ %ao1, %axis ]
  %bo = phi i64 [ %b0, %unit ], [ %bo1, %axis ]
  %more = icmp sgt i64 %i, 0
  br i1 %more, label %axis, label %call
axis:
  %i1 = sub i64 %i, 1
  %j = mul i64 %i1, 3
  %j0 = add i64 %j, {HEAD}
  %ep = getelementptr i64, ptr %args, i64 %j0
  %e = load i64, ptr %ep
  %asp = getelementptr i64, ptr %ep, i64 1
  %as = load i64, ptr %asp
  %bsp = getelementptr i64, ptr %ep, i64 2
  %bs = load i64, ptr %bsp
  %digit = urem i64 %rest, %e
  %rest1 = udiv i64 %rest, %e
  %am = mul i64 %digit, %as
  %ao1 = add i64 %ao, %am
  %bm = mul i64 %digit, %bs
  %bo1 = add i64 %bo, %bm
  br label %axes
call:
  %co1 = mul i64 %product, %cs
  %co = add i64 %co1, %co0
  %ab = mul i64 %ao, {size}
  %bb = mul i64 %bo, {size}
  %cb = mul i64 %co, {size}
  %Ai = getelementptr i8, ptr %A, i64 %ab
  %Bi = getelementptr i8, ptr %B, i64 %bb
  %Ci = getelementptr i8, ptr %C, i64 %cb
  call void %f(i32 101, i32 %ta32, i32 %tb32, i64 %mu, i64 %nu, i64 %k, {one}, ptr %Ai, i64 %lda,
    ptr %Bi, i64 %ldb, {zero}, ptr %Ci, i64 %ldc)
  %u1 = add i64 %u, 1
  %again = icmp slt i64 %u1, %end
  br i1 %again, label %unit, label %done
done:
  ret void
}}
""".replace(
        "call void %f(i32",
        f"call void (i32, i32, i32, i64, i64, i64, {kind}, ptr, i64, ptr, i64, {kind}, ptr, i64) %f(i32",
    )


def panels(m: int, n: int, threads: int) -> tuple[int, int, int]:
    """How many panels one product is divided into, and the rows and columns of each."""
    if threads == 1:
        return 1, max(m, 1), n
    if m >= n:
        rows = math.ceil(math.ceil(m / threads) / 8) * 8
        return math.ceil(m / rows), rows, n
    columns = math.ceil(math.ceil(n / threads) / 16) * 16
    return math.ceil(n / columns), m, columns
