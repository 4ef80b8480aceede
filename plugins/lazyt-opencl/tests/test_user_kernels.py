"""Users' kernels in OpenCL C (`lt.library.kernel_source`) and in NumPy, on the device."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt_opencl.device import NAME, Device

names = itertools.count()
X = np.arange(12, dtype=np.float32).reshape(3, 4)
AXPY = """
__kernel void axpy(__global const float *x, __global const float *y, float a, long size, __global float *out) {
    long i = get_global_id(0);
    if (i < size) out[i] = a * x[i] + y[i];
}
"""
SIGNATURE = "void axpy(const float* x, const float* y, float a, int64_t size, float* out)"


def opencl_c(text: str, signature: str, **options: Any) -> Any:
    return lt.library.kernel_source(text, signature, language="OpenCL C", **options)


def defined(arguments: str, results: str = "Tensor") -> lt.library.Operation:
    op = lt.library.define(f"opencl_c::op{next(names)}({arguments}) -> {results}")
    op.register_fake(lambda x, *rest: x)
    return op


def axpy(text: str = AXPY, signature: str = SIGNATURE) -> lt.library.Operation:
    op = defined("Tensor x, Tensor y, float a=1.0")
    op.impl(NAME, opencl_c(text, signature))
    return op


def test_a_source_is_compiled_and_launched(opencl: Device) -> None:
    op, x = axpy(), lt.asarray(X, device=NAME)
    before = sum(opencl.fallbacks.values())
    with lt.no_sync():
        y = op(x * 2, x.T.reshape(3, 4), 3.0) + 1
    np.testing.assert_array_equal(y.numpy(), 6 * X + X.T.reshape(3, 4) + 1)
    assert op(x[:0], x[:0]).shape == (0, 4)
    np.testing.assert_array_equal(op(x[1:], x[1:], 0.5).numpy(), 1.5 * X[1:])
    assert sum(opencl.fallbacks.values()) == before


def test_sizes_blocks_and_several_results() -> None:
    text = """
    __kernel void rows(__global const float *x, __global const long *x_shape,
                       __global float *out0, __global int *out1) {
        __local float part[4];
        const int j = get_local_id(0), row = get_group_id(0);
        part[j] = x[row * x_shape[1] + j];
        barrier(CLK_LOCAL_MEM_FENCE);
        if (j == 0) { out0[row] = part[0] + part[1] + part[2] + part[3]; out1[row] = row; }
    }"""
    signature = "void rows(const float* x, const int64_t* x_shape, float* out0, int* out1)"
    op = lt.library.define(f"opencl_c::op{next(names)}(Tensor x) -> (Tensor, Tensor)")
    op.register_fake(lambda x: (x.new_empty(x.shape[:1]), x.new_empty(x.shape[:1], lt.int32)))
    op.impl(NAME, opencl_c(text, signature, block=4, grid=lambda out0, out1: out0))
    sums, numbers = op(lt.asarray(X, device=NAME))
    np.testing.assert_array_equal(sums.numpy(), X.sum(1))
    np.testing.assert_array_equal(numbers.numpy(), [0, 1, 2])


def test_numbers_of_all_kinds() -> None:
    text = """
    __kernel void f(__global const double *x, int a, uchar b, double c, long size, __global double *out) {
        const long i = get_global_id(0);
        if (i < size) out[i] = b ? x[i] * a + c : 0;
    }"""
    op = defined("Tensor x, int a, bool b, float c")
    op.impl(NAME, opencl_c(text, "void f(const double* x, int a, bool b, double c, int64_t size, double* out)"))
    x = lt.asarray(X.astype(np.float64), device=NAME)
    np.testing.assert_array_equal(op(x, 3, True, 0.25).numpy(), 3 * X + 0.25)


def test_gradients_and_vmap() -> None:
    op = axpy()
    op.register_vjp(lambda args, output, ct: (ct * args[2], ct, None), saves=("a",))
    x = lt.asarray(X, device=NAME)
    grad = lt.grad(lambda x: op(x, x * 0, 3.0).sum())(x)
    np.testing.assert_array_equal(grad.numpy(), np.full_like(X, 3))
    for how in ("broadcast_all", "sequential"):
        lanes = axpy()
        lanes.register_batching(how)
        y = lt.asarray(X[0], device=NAME)
        np.testing.assert_array_equal(lt.vmap(lambda x, y=y, f=lanes: f(x, y, 2.0))(x).numpy(), 2 * X + X[0])


def test_explain_names_it() -> None:
    shown = str(axpy()(lt.asarray(X, device=NAME), lt.asarray(X, device=NAME)).explain())
    assert "OpenCL C of the user's" in shown and "host" not in shown


def test_what_the_compiler_says_is_shown_with_the_line() -> None:
    op, x = axpy(AXPY.replace("a * x[i]", "b * x[i]")), lt.asarray(X, device=NAME)
    y = op(x, x)
    with pytest.raises(
        lt.KernelError, match=r"OpenCL C: opencl:0 refuses the source of 'axpy':\n(.|\n)*axpy:4:\d+: .*'b'"
    ) as e:
        y.numpy()
    assert any("test_user_kernels.py" in note for note in e.value.__notes__)
    assert y.is_pending
    del y


def test_what_does_not_fit_is_an_error() -> None:
    x = lt.asarray(X, device=NAME)
    with pytest.raises(lt.KernelError, match="the source has no kernel 'axpy'; it has other"):
        axpy(AXPY.replace("void axpy", "void other"))(x, x).numpy()
    with pytest.raises(lt.KernelError, match="kernel 'axpy' has 5 parameters, and its signature 4"):
        axpy(AXPY, SIGNATURE.replace("int64_t size, ", ""))(x, x).numpy()
    with pytest.raises(lt.KernelError, match="kernel 'axpy' cannot be launched: "):
        axpy(AXPY, SIGNATURE.replace("int64_t size", "int size"))(x, x).numpy()
    with pytest.raises(lt.DTypeError, match="argument 'x' is float64, and its kernel takes float"):
        axpy()(x.astype("float64"), x)


def test_checking_mode_finds_what_is_written_outside() -> None:
    x = lt.asarray(X, device=NAME)
    with lt.library.checked():
        np.testing.assert_array_equal(axpy()(x, x, 3.0).numpy(), 4 * X)
        y = axpy(AXPY.replace("out[i] =", "out[i + 1] ="))(x, x)
    with pytest.raises(
        lt.KernelError, match=r"its kernel axpy for 'opencl' wrote \d bytes? outside of 'out' \(48 bytes\)"
    ):
        y.numpy()
    with lt.library.checked():
        y = axpy(AXPY.replace("__global const float *x", "__global float *x").replace("out[i] =", "x[i] = out[i] ="))(
            x, x
        )
    with pytest.raises(lt.KernelError, match=r"of argument 'x' \(48 bytes\), which it may only read, from byte"):
        y.numpy()


def test_another_backend_does_not_take_it() -> None:
    op, kernel = defined("Tensor x, Tensor y, float a"), opencl_c(AXPY, SIGNATURE)
    with pytest.raises(lt.library.RegistrationError, match="backend 'cpu' compiles no OpenCL C; it compiles no source"):
        op.impl("cpu", kernel)
    with pytest.raises(lt.library.RegistrationError, match="backend 'cuda' compiles no OpenCL C; it compiles CUDA C"):
        op.impl("cuda", kernel)
    with pytest.raises(lt.library.RegistrationError, match="a kernel in OpenCL C is for one backend; name it"):
        op.impl(None, kernel)
    cuda = lt.library.cuda_source(AXPY, SIGNATURE)
    with pytest.raises(lt.library.RegistrationError, match="backend 'opencl' compiles no CUDA C; it compiles OpenCL C"):
        op.impl(NAME, cuda)


def test_a_function_of_numpys_arrays_runs_on_the_host_and_says_so(opencl: Device) -> None:
    op = defined("Tensor x")
    op.impl(NAME, lambda x: np.cumsum(x, 1, dtype=x.dtype))
    y, before = op(lt.asarray(X, device=NAME) + 1), opencl.fallbacks["operation_on_device"]
    assert "a function of NumPy's arrays" in str(y.explain())
    np.testing.assert_array_equal(y.numpy(), np.cumsum(X + 1, 1))
    assert opencl.fallbacks["operation_on_device"] == before + 1
