"""Compiled kernels: pointers of ctypes and cffi, LLVM IR, CUDA C."""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
from types import SimpleNamespace

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends import registry as backends
from lazyt.library.native import CFunction

names = itertools.count()
AXPY = """
define i32 @axpy(ptr %x, ptr %y, float %a, i64 %size, ptr %out) {
entry:
  %any = icmp sgt i64 %size, 0
  br i1 %any, label %loop, label %done
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %px = getelementptr float, ptr %x, i64 %i
  %py = getelementptr float, ptr %y, i64 %i
  %po = getelementptr float, ptr %out, i64 %i
  %vx = load float, ptr %px
  %vy = load float, ptr %py
  %m = fmul float %a, %vx
  %s = fadd float %m, %vy
  store float %s, ptr %po
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %size
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}
"""
SIGNATURE = "int axpy(const float* x, const float* y, float a, int64_t size, float* out)"


def defined(arguments: str = "Tensor x", results: str = "Tensor") -> lt.library.Operation:
    op = lt.library.define(f"native::op{next(names)}({arguments}) -> {results}")
    op.register_fake(lambda x, *rest: x if op.schema.results == 1 else (x, x.new_empty((), lt.int64)))
    return op


def axpy() -> lt.library.Operation:
    op = defined("Tensor x, Tensor y, float a=1.0")
    op.impl("cpu", lt.library.llvm_ir(AXPY, SIGNATURE))
    return op


def test_llvm_ir():
    op = axpy()
    x = lt.asarray([[1.0, 2.0], [3.0, 4.0]])
    with lt.no_sync():
        y = op(x.T, x, 2.0) + 1
    assert y.tolist() == [[4.0, 9.0], [8.0, 13.0]]
    assert op(lt.zeros(0), lt.zeros(0)).tolist() == []
    op.register_batching("broadcast_all")
    assert lt.vmap(op, in_axes=(0, None))(x, x[0]).tolist() == [[2.0, 4.0], [4.0, 6.0]]
    # Two modules may have functions of one name.
    assert axpy()(x, x).tolist() == [[2.0, 4.0], [6.0, 8.0]]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("define i32 @axpy( {", "LLVM refuses the text"),
        ("define i32 @other() { ret i32 0 }", "defines no function 'axpy'; it has other"),
        (
            "declare void @nowhere_at_all()\ndefine i32 @axpy() { call void @nowhere_at_all() ret i32 0 }",
            "calls what this process does not have: nowhere_at_all",
        ),
    ],
)
def test_llvm_ir_that_cannot_be_loaded(text, why):
    with pytest.raises(lt.KernelError, match=why):
        lt.library.llvm_ir(text, SIGNATURE)


def test_a_pointer_of_ctypes_gets_sizes_and_numbers():
    kind = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.POINTER(ctypes.c_double), ctypes.POINTER(ctypes.c_int64), ctypes.c_int64, ctypes.c_int,
        ctypes.c_bool, ctypes.POINTER(ctypes.c_double), ctypes.POINTER(ctypes.c_int64),
    )  # fmt: skip

    @kind
    def f(x, shape, size, n, flag, out0, out1):
        for i in range(size):
            out0[i] = x[i] * n
        out1[0] = 10 * shape[0] + shape[1] + 1000 * flag
        return 0 if n < 5 else 7

    op = defined("Tensor x, int n, bool flag=False", "(Tensor, Tensor)")
    op.impl("cpu", lt.library.c_function(
        f, "int f(const double* x, const int64_t* x_shape, int64_t size, int n, bool flag, double* out0, int64_t* out1)"
    ))  # fmt: skip
    x = lt.ones((2, 3), dtype=lt.float64)
    y, shape = op(x, 3, True)
    assert (y.tolist(), shape.item()) == ([[3.0] * 3] * 2, 1023)
    bad, _ = op(x, 5)
    with pytest.raises(lt.KernelError, match="f reported a failure: it gave 7"):
        bad.numpy()
    with pytest.raises(lt.DTypeError, match=r"argument 'x' is float32, and its kernel takes double\*"):
        op(lt.ones((2, 3)), 3)


def test_a_pointer_of_cffi_and_anything_with_an_address():
    cffi = pytest.importorskip("cffi")
    ffi = cffi.FFI()

    @ffi.callback("void(float *, int64_t)")
    def fill(out, size):
        for i in range(size):
            out[i] = i

    address = int(ffi.cast("uintptr_t", fill))
    for pointer in (fill, address, SimpleNamespace(address=address)):
        op = defined()
        op.impl("cpu", lt.library.c_function(pointer, "void fill(float* out, int64_t size)"))
        assert op(lt.ones(3)).tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(TypeError, match="an address, or a function of ctypes, cffi or Numba"):
        lt.library.c_function("fill", "void fill(float* out)")
    with pytest.raises(ValueError, match="is null"):
        lt.library.c_function(0, "void fill(float* out)")


def test_a_cfunc_of_numba():
    numba = pytest.importorskip("numba")
    floats, integer = numba.types.CPointer(numba.float32), numba.int64

    @numba.cfunc(numba.types.void(floats, integer, numba.float64, floats), error_model="numpy")
    def running(x, size, decay, out):
        total = numba.float32(0)
        for i in range(size):
            total = numba.float32(total * decay + x[i])
            out[i] = total

    op = defined("Tensor x, float decay=0.5")
    signature = "void running(const float* x, int64_t size, double decay, float* out)"
    op.impl("cpu", lt.library.c_function(running, signature))
    x = lt.asarray([4.0, 2.0, 1.0])
    with lt.no_sync():
        y = op(x + 0) * 2
    assert y.tolist() == [8.0, 8.0, 6.0]
    del running  # the operation keeps its code
    with lt.library.checked():
        assert op(x, 1.0).tolist() == [4.0, 6.0, 7.0]


@pytest.mark.parametrize(
    ("signature", "why"),
    [
        ("float f(float* out)", "a C function that gives void or int"),
        ("void f(long x, float* out)", "'long x' is no parameter; types are int8_t"),
        ("void f(float* x, float* out)", "a pointer to const"),
        ("void f(const float* out)", "a result is written"),
        ("void f(const float* x)", "writes no result 0"),
        ("void f(float* out, int64_t m)", "no argument, result, or size has this name"),
        ("void f(float* out, const float* x_size)", "a size or an ndim an integer"),
        ("void f(float* out, int n)", r"int is no form of float"),
        ("void f(float* out, int64_t dims)", r"not supported: int\[\]"),
        ("void f(float* out, __bf16 n)", "cannot be passed as a number"),
    ],
)
def test_signatures_that_do_not_fit(signature, why):
    op = defined("Tensor x, float n=1.0, int[] dims=[]")
    with pytest.raises(lt.library.SchemaError, match=why):
        op.impl("cpu", lt.library.c_function(1, signature))


SOURCE = """
extern "C" __global__ void scaled(const float* x, long long size, double a, float* out) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < size) out[i] = a * x[i];
}
"""


def test_cuda_source_is_launched_with_what_its_signature_says():
    """Beside a library in CuPy's place, which computes what the source says."""
    launched = []

    class RawKernel:
        def __init__(self, source, name, options):
            launched.append((name, options))

        def __call__(self, grid, block, given):
            launched.append((grid, block, [type(x) for x in given[1:3]]))
            x, size, a, out = given
            out.reshape(-1)[:size] = a * x.reshape(-1)

    xp = SimpleNamespace(
        empty=np.empty, ascontiguousarray=np.ascontiguousarray, asarray=np.asarray, RawKernel=RawKernel
    )
    kernel = lt.library.cuda_source(SOURCE, "void scaled(const float* x, long long size, double a, float* out)")
    op = defined("Tensor x, float a=2.0")
    op.impl("cuda", kernel)
    bound = op.kernels["cuda"].kernel
    (y,) = bound.run(xp, (np.ones((3, 100), np.float32), 2.5), [((3, 100), lt.float32)])
    assert (y == 2.5).all()
    assert launched == [("scaled", ("--std=c++17",)), ((2,), (256,), [np.int64, np.float64])]
    with pytest.raises(lt.NotSupportedError, match="on 'cpu', because it has no kernel there; registered: 'cuda'"):
        op(lt.ones(2))
    with pytest.raises(lt.library.SchemaError, match="a kernel of CUDA C gives void"):
        lt.library.cuda_source(SOURCE, "int scaled(float* out)")


def test_a_source_in_another_language_is_compiled_by_the_arrays_it_runs_on(monkeypatch):
    loaded = []

    def load_source(source, name, language):
        loaded.append((source, name, language))
        return lambda blocks, block, given: np.copyto(given[1], 3 * given[0])

    xp = SimpleNamespace(
        empty=np.empty, ascontiguousarray=np.ascontiguousarray, asarray=np.asarray, load_source=load_source
    )
    signature = "void tripled(const float* x, float* out)"
    kernel = lt.library.kernel_source("text", signature, language="Mine C", block=16)
    op = defined()
    with pytest.raises(lt.library.RegistrationError, match="backend 'cpu' compiles no Mine C; it compiles no source"):
        op.impl("cpu", kernel)
    with pytest.raises(lt.library.RegistrationError, match="a kernel in Mine C is for one backend; name it"):
        op.impl(None, kernel)
    monkeypatch.setattr(type(backends.get("cuda")), "languages", ("Mine C",))
    op.impl("cuda", kernel)
    (y,) = op.kernels["cuda"].kernel.run(xp, (np.ones(20, np.float32),), [((20,), lt.float32)])
    assert (y == 3).all() and loaded == [("text", "tripled", "Mine C")]
    with pytest.raises(lt.library.SchemaError, match="a kernel of Mine C gives void"):
        lt.library.kernel_source("", "int f(float* out)", language="Mine C")


@pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="CuPy is not installed")
def test_cuda_source_is_compiled():
    from lazyt.backends.cuda import engine

    assert engine.compile_program(SOURCE, 80).cubin


def test_a_function_is_kept_alive():
    op = defined()
    op.impl("cpu", lt.library.c_function(_local(), "void f(float* out, int64_t size)"))
    assert isinstance(op.kernels["cpu"].kernel, CFunction)
    assert op(lt.ones(2)).tolist() == [4.0, 4.0]


def _local():
    @ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_float), ctypes.c_int64)
    def f(out, size):
        for i in range(size):
            out[i] = 4

    return f
