"""Bits packed and taken out, floats in their two parts: NumPy's, by machine code of lazyt's and by NumPy itself."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import lazyt as lt

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("bitorder", ["big", "little"])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_bits_along_an_axis(axis, bitorder, threads):
    for shape in ((9, 70, 41), (3, 8, 16), (2, 1, 7), (0, 3, 8), (3, 0, 8), (3, 2, 0)):
        a = RNG.integers(0, 3, shape).astype(np.uint8)
        for x in (a > 0, a, a.astype(np.int64) - 1):
            got = lt.packbits(lt.asarray(x), axis=axis, bitorder=bitorder)
            np.testing.assert_array_equal(got.numpy(), np.packbits(x, axis=axis, bitorder=bitorder))
        got = lt.unpackbits(lt.asarray(a), axis=axis, bitorder=bitorder)
        np.testing.assert_array_equal(got.numpy(), np.unpackbits(a, axis=axis, bitorder=bitorder))
        if a.size:
            for count in (0, 5, 13, -3, 600):
                got = lt.unpackbits(lt.asarray(a), axis=axis, count=count, bitorder=bitorder)
                np.testing.assert_array_equal(got.numpy(), np.unpackbits(a, axis, count, bitorder))


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_bits_of_a_single_element(axis):
    x = np.array(5, np.uint8)
    for ours, theirs in ((lt.packbits, np.packbits), (lt.unpackbits, np.unpackbits)):
        np.testing.assert_array_equal(ours(lt.asarray(x), axis=axis).numpy(), theirs(x, axis=axis))


def test_many_bits_are_one_native_step_which_waits():
    x = RNG.random((700, 301)) < 0.5
    for _ in range(4):
        t = lt.asarray(x)
        packed = lt.packbits(t)
        bits = lt.unpackbits(packed, count=x.size)
        assert packed.is_pending
        assert bits.is_pending
        assert any("native packbits" in str(k) for k in lt.explain(packed).kernels)
        assert any("native unpackbits" in str(k) for k in lt.explain(bits).kernels)
        lt.sync()
        np.testing.assert_array_equal(packed.numpy(), np.packbits(x))
        np.testing.assert_array_equal(bits.numpy(), x.ravel())


def test_other_sizes_of_the_same_line():
    for n in (8, 9, 64, 1000, 20001, 7, 0, 16):
        x = RNG.random((3, n)) < 0.5
        np.testing.assert_array_equal(lt.packbits(lt.asarray(x), axis=1).numpy(), np.packbits(x, axis=1))


def same_bits(got, want):
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    kept = ~np.isnan(want)
    word = f"u{want.itemsize}"
    np.testing.assert_array_equal(got[kept].view(word), want[kept].view(word))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_floats_in_two_parts(dtype, threads):
    d = np.dtype(dtype)
    words = RNG.integers(0, 1 << 8 * d.itemsize, 40_001, np.uint64).astype(f"u{d.itemsize}")
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -0.5], d)
    tiny = (np.finfo(d).smallest_subnormal * RNG.integers(-1000, 1000, 50)).astype(d)
    x = np.concatenate([words.view(d), special, tiny])
    with np.errstate(all="ignore"):
        want = np.frexp(x)
    m, e = lt.frexp(lt.asarray(x))
    assert m.is_pending
    assert any("native frexp" in str(k) for k in lt.explain(m, e).kernels)
    lt.sync()
    same_bits(m.numpy(), want[0])
    assert e.dtype == np.int32
    np.testing.assert_array_equal(e.numpy(), want[1])
    # One of the two alone is NumPy's.
    np.testing.assert_array_equal(lt.frexp(lt.asarray(x) * 1)[1].numpy(), want[1])
    same_bits(lt.frexp(lt.asarray(x) * 1)[0].numpy(), want[0])


def test_the_dtypes_of_the_two_parts():
    x = np.array([-3, 0, 5])
    for d in ("?", "i1", "u1", "i2", "u2", "i4", "i8", "f2", "f4", "f8"):
        for got, want in zip(lt.frexp(lt.asarray(x.astype(d))), np.frexp(x.astype(d)), strict=True):
            assert got.dtype == want.dtype, d
            np.testing.assert_array_equal(got.numpy(), want)
    m, e = lt.frexp(lt.asarray(x.astype(ml_dtypes.bfloat16)))
    assert m.dtype == ml_dtypes.bfloat16
    assert (m.tolist(), e.tolist()) == ([-0.75, 0.0, 0.625], [2, 0, 3])
    for scalar in (3, 0.75, True):
        assert [r.item() for r in lt.frexp(scalar)] == [r.item() for r in np.frexp(scalar)]
        assert lt.frexp(scalar)[0].dtype == np.frexp(scalar)[0].dtype


def test_what_frexp_refuses():
    with pytest.raises(lt.DTypeError, match=r"numpy\.frexp"):
        lt.frexp(lt.asarray([1j]))
    with pytest.raises(lt.AutogradError, match=r"numpy\.frexp: not supported: a gradient"):
        lt.frexp(lt.asarray([1.0]).requires_grad_())
