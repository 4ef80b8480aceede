"""What kernels become: text of every level, and CUDA C that NVRTC compiles where it is there."""

from __future__ import annotations

import pytest

import lazyt as lt
from tests.support.user_kernels import CASES


@lt.kernel
def saxpy(i, /, x, y, a):
    return a * x[i] + y[i]


@lt.kernel
def dots(i, j, /, x):
    return sum(x[i, k] * x[j, k] for k in range(x.shape[1]))


X = lt.ones(4)


def test_the_texts_of_a_kernel():
    with lt.no_sync():
        y = X * 2
        graph, ir, assembly = saxpy.graph(y, X, 3.0), saxpy.ir(y, X, 3.0), saxpy.assembly(y, X, 3.0)
        llvm, cuda = saxpy.source(y, X, 3.0), saxpy.source(y, X, 3.0, device="cuda:0")
    assert "mul" in graph
    assert ir.startswith("kernel outer=1 rows=0")
    assert "define " in llvm
    assert "fmul" in llvm
    assert "ret" in assembly
    assert "__global__" in cuda
    assert y.is_pending


def test_the_texts_of_a_library_call():
    x = lt.ones((3, 4))
    assert "MatmulCall: a library's code" in dots.ir(x)
    assert dots.source(x, device="cuda").startswith("// [1] MatmulCall")


def test_rows_and_shapes_have_texts_too():
    @lt.kernel(axis=-1)
    def centred(x):
        return x - sum(x) / len(x)

    assert "sum" in centred.ir(lt.ones((3, 4)))
    assert "iota" in numbered.graph(shape=(3,))


@lt.kernel
def numbered(i, /):
    return 2 * i


def test_code_that_is_not_shown():
    with pytest.raises(lt.NotSupportedError, match="not supported: the code of a kernel for 'cuda'"):
        saxpy.assembly(X, X, 3.0, device="cuda")
    with pytest.raises(lt.DeviceError, match="its backend is not registered"):
        saxpy.source(X, X, 3.0, device="nothing")


def test_a_kernel_says_what_it_is():
    assert repr(saxpy) == "<lazyt.kernel saxpy(x, y, a)>"
    assert saxpy.__name__ == "saxpy"
    assert saxpy.__wrapped__.__name__ == "saxpy"  # type: ignore[attr-defined]


def test_the_cuda_code_of_kernels_is_written_without_a_gpu():
    for f, args, more in CASES:
        text = f.source(*args, device="cuda", **more)
        assert "__global__" in text or "a library's code" in text
