"""Checking mode: what a kernel writes outside of its results is found, and named."""

from __future__ import annotations

import ctypes
import itertools
from types import SimpleNamespace

import numpy as np
import pytest

import lazyt as lt
from lazyt.config import general
from lazyt.library.guards import Guarded

names = itertools.count()
X = np.arange(4, dtype=np.float32)
ARRAYS = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_float), ctypes.c_int64, ctypes.POINTER(ctypes.c_float))


def native(write) -> lt.library.Operation:
    """x + 1 by compiled code, which also does `write(x, size, out)`."""

    @ARRAYS
    def f(x, size, out):
        for i in range(size):
            out[i] = x[i] + 1
        write(x, size, out)

    op = lt.library.define(f"guards::op{next(names)}(Tensor x) -> Tensor")
    op.impl("cpu", lt.library.c_function(f, "void f(const float* x, int64_t size, float* out)"))
    op.register_fake(lambda x: x)
    return op


def put(p: str, at: int):
    """Write an element of an argument."""

    def write(x, size, out):
        {"x": x, "out": out}[p][at] = 1.2  # no byte of which is in X

    return write


@pytest.mark.parametrize(
    ("write", "what"),
    [
        (put("out", 4), "outside of 'out' (16 bytes), from byte 16 on"),
        (put("out", -1), "outside of 'out' (16 bytes), from byte -4 on"),
        (put("out", 1000), "outside of 'out' (16 bytes), from byte 4,000 on"),
        (put("x", 4), "outside of 'x' (16 bytes), from byte 16 on"),
        (put("x", -2), "outside of 'x' (16 bytes), from byte -8 on"),
        (put("x", 2), "of argument 'x' (16 bytes), which it may only read, from byte 8 on"),
    ],
)
def test_a_write_outside_of_the_result_is_refused(write, what):
    op = native(write)
    x = lt.asarray(X)
    with lt.library.checked():
        y = op(x)
    with pytest.raises(lt.KernelError) as caught:
        y.numpy()
    text = str(caught.value)
    assert text.startswith(f"{op.name}: its kernel f for 'cpu' wrote ")
    assert text.endswith(what)
    assert any("test_guards.py" in note for note in caught.value.__notes__)
    np.testing.assert_array_equal(x.numpy(), X)


def test_a_refused_call_loses_nothing_else():
    op, x = native(put("out", 4)), lt.asarray(X)
    before = x * 2
    with lt.library.checked():
        bad = op(x)
    with pytest.raises(lt.KernelError, match="wrote"):
        lt.sync()
    assert bad.is_pending
    with pytest.raises(lt.KernelError, match="wrote"):
        bad.numpy()
    np.testing.assert_array_equal(before.numpy(), X * 2)


def test_what_writes_its_results_alone_passes_with_the_same_values():
    op, x = native(lambda x, size, out: None), lt.asarray(X)
    for _ in range(3):
        with lt.library.checked():
            y = op(x * 2) + 1
        np.testing.assert_array_equal(y.numpy(), X * 2 + 2)
    with lt.expect(plans=0), lt.library.checked():
        (op(x * 2) + 1).numpy()
    # Empty arrays, arrays without axes, and those of other dtypes have zones too.
    with lt.library.checked():
        assert op(lt.zeros(0)).shape == (0,)
        assert op(lt.asarray(2.0)).item() == 3.0


def test_calls_outside_of_the_block_are_not_checked():
    op = native(put("x", 0))
    with lt.library.checked(), lt.library.checked():
        pass
    np.testing.assert_array_equal(op(lt.asarray(X) + 0).numpy(), X + 1)


def test_numpy_kernels_that_reach_for_the_memory_of_an_input():
    op = lt.library.define(f"guards::op{next(names)}(Tensor[] xs, int n) -> Tensor")

    @op.impl("cpu")
    def careless(xs, n):
        xs[1].base[:1] = 0
        ctypes.memset(xs[1].ctypes.data + 4 * n, 1, 3)
        return xs[0] + xs[1]

    op.register_fake(lambda xs, n: xs[0])
    with lt.library.checked():
        y = op([lt.asarray(X), lt.asarray(X)], 2)
    with pytest.raises(lt.KernelError, match=r"careless for 'cpu' wrote 4 bytes outside of 'xs\[1\]' \(16 bytes\)"):
        y.numpy()


def test_rules_for_lanes_are_checked():
    op = native(lambda x, size, out: None)

    @op.register_batching
    def lanes(size, axes, x):
        ctypes.memset(x.ctypes.data, 1, 4)
        return x + 1

    with lt.library.checked():
        y = lt.vmap(op)(lt.ones((2, 3)))
    with pytest.raises(lt.KernelError, match=r"its batching rule \S*lanes for 'cpu' wrote 4 bytes of argument 'x'"):
        y.numpy()
    each = native(put("out", 2))
    each.register_batching("sequential")
    with lt.library.checked():
        y = lt.vmap(each)(lt.ones((2, 2)))
    with pytest.raises(lt.KernelError, match=r"outside of 'out' \(8 bytes\), from byte 8 on"):
        y.numpy()


def test_kernels_for_lazyts_own_operations_are_checked():
    with lt.library.scoped(), lt.library.checked():
        lt.library.impl("exp", "cpu", lambda x: (ctypes.memset(x.ctypes.data, 1, 4), x + 1)[1])
        y = lt.exp(lt.asarray(X))
        with pytest.raises(lt.KernelError, match=r"exp .*for 'cpu' wrote 4 bytes of argument 'argument 0'"):
            y.numpy()


def test_the_switch_is_for_the_whole_process(monkeypatch):
    op = native(put("out", 4))
    monkeypatch.setitem(general, "guards", True)
    with pytest.raises(lt.KernelError, match="outside of 'out'"):
        op(lt.asarray(X)).numpy()


class _OfAGpu(np.ndarray):
    """NumPy's memory with CuPy's name for its address."""

    @property
    def data(self):
        return SimpleNamespace(ptr=0)


def test_a_kernel_of_a_gpu_is_watched_by_the_gpus_own_arrays():
    """Beside a library in CuPy's place; its arrays are no NumPy arrays to who asks."""

    def launch(grid, block, given):
        *_, out = given
        out.base[out.base.size // 2 + 3000] ^= 1

    xp = SimpleNamespace(
        empty=np.empty, ascontiguousarray=np.ascontiguousarray, asarray=np.asarray, RawKernel=lambda *a, **k: launch
    )
    op = lt.library.define(f"guards::op{next(names)}(Tensor x) -> Tensor")
    op.impl("cuda", lt.library.cuda_source("", "void g(const float* x, long long size, float* out)"))
    op.register_fake(lambda x: x)
    guarded = Guarded(op.name, "cuda", op.kernels["cuda"].kernel, ("x",))
    with pytest.raises(lt.KernelError, match=r"its kernel g for 'cuda' wrote 1 byte outside of 'out'"):
        guarded.run(xp, (X,), [((4,), np.dtype(np.float32))])
