"""Two row axes in the order of one: native code beside the kernel interpreter, and beside the same rows as one axis."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from lazyt.backends.cpu import flags
from lazyt.backends.cpu.codegen.emit_row import PART
from lazyt.errors import LazytInternalError
from lazyt.ir.kernel import CHUNK, FLUSH, LANES
from tests.support.arrays import normal
from tests.support.cpu_kernels import MODULES, check
from tests.support.kernel_builder import Builder, several_sums
from tests.support.plans import bits

SIZES = [
    (1, 1), (128, 10), (5, 16), (7, 17), (1, 300), (300, 1), (PART // 8 + 1, 8), (2, PART - 1),
    (3, PART + 1), (FLUSH * LANES // 10 + 1, 10), (2, FLUSH * LANES + 5), (CHUNK // 9 + 2, 9), (2, CHUNK - 3),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", ml_dtypes.bfloat16])
@pytest.mark.parametrize("size", SIZES)
def test_the_bits_are_those_of_one_axis(size, dtype):
    outer = 3 if size[0] * size[1] < 10_000 else 1
    x, h, c = (normal(outer, *s, seed=i).astype(dtype) for i, s in enumerate([size, (size[0], 1), (1, size[1])]))
    got = check(several_sums(x, h, c, (outer, *size), 2, "rows"), 2)
    flat = (np.broadcast_to(v, x.shape).reshape(outer, -1) for v in (x, h, c))
    want = check(several_sums(*map(np.ascontiguousarray, flat), (outer, size[0] * size[1]), 1, "row"))
    assert [bits(a.astype("f8")) for a in got] == [bits(a.astype("f8")) for a in want]


@pytest.mark.parametrize("size", [(3, 0), (0, 5), (0, 0)])
def test_rows_without_elements(size):
    k = Builder((3, *size), 2, "rows")
    reduces = k.reduce("sum", v := k.load(normal(3, *size))), k.reduce("prod", v)
    k.stage(reduces=reduces, loops=True)
    for r in reduces:
        k.stage(k.store_once(r, np.full(3, 7, "f4")))
    for got, want in zip(check(k), (0, 1), strict=True):
        np.testing.assert_array_equal(got, np.full(3, want))


@pytest.mark.parametrize("width", [8, 4, 1])
def test_registers_of_other_widths(width, monkeypatch):
    """And with a third row axis outside, whose rows end with a flush each."""
    x, h, c = normal(2, 3, 131, 11), normal(2, 3, 131, 1, seed=1), normal(1, 1, 1, 11, seed=2)

    def found():
        MODULES.clear()
        return [bits(a) for a in check(several_sums(x, h, c, x.shape, 3, "rows"))]

    want = found()
    monkeypatch.setitem(flags.registers, "width", width)
    assert found() == want
    MODULES.clear()


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "any", "all"])
@pytest.mark.parametrize("dtype", ["int8", "int64", "uint16"])
def test_integers_and_bools(name, dtype):
    dtype = "bool" if name in ("any", "all") else dtype
    a = normal(4, 37, 1) * 3 > 0 if dtype == "bool" else (normal(4, 37, 1) * 9).astype(dtype)
    b = normal(4, 1, 7, seed=1) * 3 > 1 if dtype == "bool" else (normal(4, 1, 7, seed=1) * 9).astype(dtype)
    k = Builder((4, 37, 7), 2, "rows")
    r = k.reduce(name, k.op("or" if dtype == "bool" else "mul", k.load(a), k.load(b)))
    k.stage(reduces=(r,), loops=True)
    k.stage(k.store_once(r, np.zeros(4, dtype)))
    (got,) = check(k)
    np.testing.assert_array_equal(got, getattr(np, name)(a | b if dtype == "bool" else a * b, (1, 2)).astype(dtype))


def test_what_is_read_under_a_condition():
    x, mask = normal(5, 61, 9), normal(5, 61, 9, seed=1) > 0
    k = Builder(x.shape, 2, "rows")
    r = k.reduce("sum", k.load(x, k.load(mask)))
    k.stage(reduces=(r,), loops=True)
    k.stage(k.store_once(r, np.zeros(5, "f4")))
    (got,) = check(k)
    np.testing.assert_allclose(got, (x * mask).sum((1, 2)), rtol=1e-4, atol=1e-4)


def test_each_element_is_written_once():
    """Also where parts of a row lie in two parts of the stack: in place, a second time would read what was written."""
    x = normal(2, PART // 7 + 9, 7)
    k = Builder(x.shape, 2, "rows")
    y = k.op("add", k.load(x), k.const(1.0, x.dtype))
    r = k.reduce("sum", y)
    k.stage(k.store(y, x), reduces=(r,), loops=True)
    k.stage(k.store_once(r, np.zeros(2, "f4")))
    check(k)


def test_two_row_axes_are_needed():
    k = several_sums(*(normal(3, 5, seed=i) for i in range(3)), (3, 5), 1, "rows")
    with pytest.raises(LazytInternalError, match="needs two row axes"):
        k.kernel()
