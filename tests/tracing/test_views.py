"""Views and writes in place: the same elements as NumPy, bit for bit, synced anywhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings

import lazyt as lt
from lazyt.errors import DTypeError, IndexOutOfRange, ScalarRangeError, ShapeError
from lazyt.testing.view_programs import Writer

EXAMPLES = int(os.environ.get("LAZYT_EXAMPLES", "0"))
random_programs = settings(
    max_examples=EXAMPLES or 25,
    derandomize=not EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def _run(code: Any, eager: bool = False) -> dict[str, Any]:
    space = {"xp": lt, "np": np, "new": lambda x: x, "sync": lt.sync}
    if eager:
        with lt.eager():
            exec(code, space)
    else:
        exec(code, space)
    return space


def _check(w: Writer, space: dict[str, Any], regime: str) -> None:
    for name in w.names:
        want, got = w.array(name), space[name].numpy()
        assert got.dtype == want.dtype, f"{regime}: {name}"
        np.testing.assert_array_equal(got, want, err_msg=f"{regime}: {name}", strict=True)


@random_programs
@given(st.data())
def test_programs_of_views_and_writes_agree_with_numpy(data: st.DataObject) -> None:
    w = Writer(lambda n: data.draw(st.integers(0, n - 1)))
    with np.errstate(all="ignore"):
        source = w.program(length=12, syncs=True)
    note(source)
    lines = source.split("\n")
    regimes = {
        "synced at random": source,
        "synced after each": "\n".join(f"{line}\nsync()" for line in lines),
        "synced at the end": "\n".join(line for line in lines if line != "sync()"),
    }
    for regime, text in regimes.items():
        code = compile(text, f"<{regime}>", "exec")
        _check(w, _run(code), regime)
        # The second time the program is known, and runs fused.
        _check(w, _run(code), f"{regime}, again")
    _check(w, _run(code, eager=True), "eager")


def both(f: Callable[[Any], Any]) -> None:
    """f(array) writes in place and returns what to look at; the same for NumPy and lazyt, synced and not."""
    a = np.arange(24, dtype=np.int64).reshape(2, 3, 4)
    want = f(a)
    for synced in (False, True):
        x = lt.asarray(np.arange(24, dtype=np.int64).reshape(2, 3, 4))
        if synced:
            lt.sync()
        got = f(x)
        np.testing.assert_array_equal(x.numpy(), a)
        for g, w in zip(got, want, strict=True):
            np.testing.assert_array_equal(g.numpy(), w)


def test_a_write_to_a_base_is_seen_through_its_views() -> None:
    def f(a: Any) -> Any:
        v, w = a[1], a[:, ::-1, 2]
        a += 100
        return v, w

    both(f)


def test_a_write_through_a_view_of_a_view_is_seen_everywhere() -> None:
    def f(a: Any) -> Any:
        v = a[:, ::-1]
        w = v[1, :, ::2]
        u = a.swapaxes(0, 2)
        w[...] = -1
        return v, w, u

    both(f)


def test_what_was_read_before_a_write_keeps_its_value() -> None:
    def f(a: Any) -> Any:
        v = a[0]
        before = v + 0
        v[1:] = 7
        return v, before

    both(f)


LATER, EARLIER, REVERSED = slice(1, None), slice(None, -1), slice(None, None, -1)


@pytest.mark.parametrize(("cut", "other"), [(LATER, EARLIER), (EARLIER, LATER), (REVERSED, slice(None))])
def test_the_right_side_of_an_overlapping_write_is_read_first(cut: slice, other: slice) -> None:
    def f(a: Any) -> Any:
        v = a.reshape(-1)
        v[cut] += v[other]
        return (v,)

    both(f)


def test_swapping_through_views() -> None:
    def f(a: Any) -> Any:
        a[0], a[1] = a[1], a[0] + 0
        return ()

    both(f)


def test_a_zero_dimensional_view_is_written_through() -> None:
    def f(a: Any) -> Any:
        v = a[1, 2, 3, ...]
        v += 5
        v[...] = v * 2
        return (v,)

    both(f)


def test_views_without_elements_are_written_without_harm() -> None:
    def f(a: Any) -> Any:
        v = a[:, 3:, ::-1]
        v += 1
        v[...] = 9
        a[:0] = 3
        a[1:1] *= 2
        return (v,)

    both(f)


def test_reshape_is_a_view_where_numpy_says_so() -> None:
    def f(a: Any) -> Any:
        views = [
            a.reshape(6, 4), a.reshape(-1), a[:, ::-1].reshape(2, 3, 2, 2), a.swapaxes(0, 2).reshape(24),
            a[:, 1:2].reshape(8), a[:, :2].reshape(-1), a[:, :, ::2].reshape(12), a[1].reshape(2, 6), a[0].T.reshape(2, 6),
            a.reshape(1, 24, 1)[:, ::2].reshape(3, 4), a[::-1].reshape(2, 12), a[:0].reshape(0, 7),
        ]  # fmt: skip
        a += 1000
        return views

    both(f)


def test_reshape_without_a_copy_is_refused_where_it_needs_one() -> None:
    x = lt.asarray(np.arange(6).reshape(2, 3))
    assert lt.reshape(x, (3, 2), copy=False).shape == (3, 2)
    with pytest.raises(ShapeError, match=r"reshape: a view of shape .* needs a copy"):
        lt.reshape(x.T, (6,), copy=False)
    assert x.view(3, -1).shape == (3, 2) and x.T[:, :0].view(0, 4).shape == (0, 4)
    for view in (lambda: x.T.view(6), lambda: x[:, :2].view(4), lambda: (x * 2).T.view(-1)):
        with pytest.raises(RuntimeError, match=r"view: a view of shape \(.,\) needs a copy .*x\.reshape"):
            view()


def test_a_broadcast_view_is_read_only() -> None:
    x = lt.asarray(np.arange(3))
    v = lt.broadcast_to(x, (2, 3))
    for w in (v, v[0], v.reshape(2, 3, 1), lt.flip(v)):
        with pytest.raises(ShapeError, match="may refer to a single memory location"):
            w += 1
        with pytest.raises(ShapeError, match="copy it first"):
            w[...] = 1
    x[1] = 50
    np.testing.assert_array_equal(v.numpy(), [[0, 50, 2], [0, 50, 2]])


def test_a_copy_is_not_a_view() -> None:
    x = lt.asarray(np.arange(6).reshape(2, 3))
    copies = [
        x.flatten(),
        lt.asarray(x, copy=True),
        x + 0,
        x[[0, 1]],
        x[x > -1],
        x.astype("int64"),
        lt.reshape(x, 6, copy=True),
    ]
    x += 100
    for c in copies:
        assert int(c.max()) == 5


def test_a_deleted_base_lives_on_in_its_view() -> None:
    x = lt.asarray(np.arange(6))
    v = x[::2]
    v += 1
    del x
    lt.sync()
    v *= 2
    assert v.tolist() == [2, 6, 10]


def test_many_views_of_one_storage_die_and_leave_no_trace() -> None:
    x = lt.asarray(np.arange(6))
    for i in range(300):
        x[i % 6] += 1
    assert x.tolist() == [50 + i for i in range(6)]
    x[0]
    assert len(x._storage.aliases) < 130


def test_setitem_casts_as_numpy_does() -> None:
    x = lt.asarray(np.arange(3))
    x[0] = 2.75
    x[1] = lt.asarray([9.5])
    x[2] = np.float32(-1.5)
    assert x.tolist() == [2, 9, -1]
    y = lt.asarray(np.arange(3, dtype=np.float32))
    y[1:] = lt.asarray(np.array([1, 2]))
    y[0] = True
    assert y.tolist() == [1.0, 1.0, 2.0]


def test_in_place_results_must_fit_the_kind_of_the_dtype() -> None:
    x = lt.asarray(np.arange(3))
    with pytest.raises(DTypeError, match="result of dtype float64 cannot be written into a tensor of dtype int64"):
        x += 0.5
    with pytest.raises(DTypeError, match="cannot be written"):
        x /= 2
    with pytest.raises(ScalarRangeError, match="out of range"):
        lt.asarray(np.arange(3, dtype=np.uint8))[0] = 256
    y = lt.asarray(np.arange(3, dtype=np.int32))
    y += np.arange(3, dtype=np.int64)
    assert y.dtype == np.int32 and y.tolist() == [0, 2, 4]


def test_in_place_results_must_have_the_shape() -> None:
    x = lt.asarray(np.arange(2))
    with pytest.raises(ShapeError, match=r"output with shape \(2,\) doesn't match the broadcast shape \(3, 2\)"):
        x += np.ones((3, 2), np.int64)
    with pytest.raises(ShapeError, match="broadcast"):
        x[...] = np.arange(3)
    assert x.tolist() == [0, 1]


def test_keys_that_do_not_fit_are_refused_when_recorded() -> None:
    x = lt.asarray(np.arange(6).reshape(2, 3))
    for key, match in (
        (2, "index 2 is out of bounds for axis 0 with size 2"),
        ((0, -4), "index -4 is out of bounds for axis 1 with size 3"),
        ((0, 0, 0), "too many indices"),
        ((..., ...), "single ellipsis"),
        ("a", "only integers, slices"),
        (1.5, "only integers, slices"),
        ([0, 5], "index 5 is out of bounds"),
        (np.ones((2, 2), bool), "boolean index did not match"),
    ):
        with pytest.raises(IndexOutOfRange, match=match):
            x[key]
        with pytest.raises(IndexOutOfRange, match=match):
            x[key] = 0
    with pytest.raises(ShapeError, match="step cannot be zero"):
        x[::0]


KEYS: list[Any] = [
    1, -1, slice(1, 3), slice(None, None, -1), slice(1, None, 2), (1, 2), (slice(None), 1), (None, 1), (Ellipsis, 1),
    (1, Ellipsis), (None, slice(1, 2), Ellipsis), [0, 3], [-1, 1], (0, [1, 2]), [True, False, True, True], (1,), (),
    np.array([1, 2]), (slice(1, 2), None, 3), (slice(3, 1),), (np.array([0, 3]), 1), (np.array([0, 3]), np.array([5, 1])),
    slice(True, 3),
]  # fmt: skip
REFUSED: list[Any] = [
    4, -5, [4], [-5, 0], (slice, 1, 2, 3), (int,), slice(1.0, 2), 1.0, (slice(0, 1, 0),), (1, 1, 1), (slice(1, 2), True, 3, 1)
]  # fmt: skip


def test_keys_that_were_met_mean_the_same_again() -> None:
    x = np.arange(24.0).reshape(4, 6)
    t = lt.asarray(x)
    for _ in range(3):
        for key in KEYS:
            np.testing.assert_array_equal(t[key].numpy(), x[key], err_msg=str(key), strict=True)
            mine = lt.asarray(key) if isinstance(key, np.ndarray) else key
            if isinstance(key, tuple):
                mine = tuple(lt.asarray(k) if isinstance(k, np.ndarray) else k for k in key)
            np.testing.assert_array_equal(t[mine].numpy(), x[key], err_msg=str(key), strict=True)
        for key in REFUSED:
            with pytest.raises((IndexOutOfRange, ShapeError)):
                t[key]
        with pytest.raises(IndexOutOfRange, match="index 9 is out of bounds for axis 0 with size 4"):
            t[[0, 9]]
        np.testing.assert_array_equal(lt.asarray(x[:3])[[0, 2]].numpy(), x[[0, 2]])


@pytest.mark.parametrize("update", [False, True])
def test_a_view_with_gradients_of_its_own_outlives_a_write_to_its_base(update: bool) -> None:
    w = lt.asarray([1.0, 2.0]).requires_grad_()
    optimizer = lt.optim.SGD([w], lr=0.5)
    (w * 3).sum().backward()
    d = w.detach().requires_grad_()
    if update:
        optimizer.step()
    else:
        with lt.no_grad():
            w -= 1.5
    assert d.dtype == np.float32 and d.is_leaf
    (d * d).sum().backward()
    assert d.tolist() == [1.0, 2.0] and d.grad is not None and d.grad.tolist() == [2.0, 4.0]
    assert w.tolist() == [-0.5, 0.5]


def test_the_parts_of_complex_numbers_are_views_that_can_be_set() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((3, 4)) + 1j * rng.standard_normal((3, 4))
    x = lt.asarray(a)
    for z in (a, x):
        r, im, part = z.real, z.T.imag, z[1:, ::2].real
        for k in range(4):
            z *= 1j
            z.real[k % 3] = 0.5
            z.imag *= 0.75
            r += 0.25
            im[k] -= 0.5
            part *= 1.5
            z.real.reshape(-1)[k] = 9
            z.T.real.reshape(-1)[0] = 7  # a copy: not seen
            z[0].imag = k
            z.T.real = z.imag.T
            if k == 2 and z is x:
                lt.sync()
    np.testing.assert_allclose(x.numpy(), a, rtol=1e-12)
    np.testing.assert_array_equal(part.numpy(), x.numpy()[1:, ::2].real)
    y = lt.ones(2)
    assert y.real is y
    with pytest.raises(lt.DTypeError, match="imag: a tensor of dtype float32 has no imaginary part to set"):
        y.imag = 1


def test_gradients_through_parts_that_are_written() -> None:
    w = lt.tensor([1 + 2j, 3 - 1j], dtype=lt.complex128, requires_grad=True)
    c = w * 2
    c.real[1] = 3.0
    c.imag *= 2.0
    (c.real**2 + c.imag).sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), [8 + 4j, 4j])
    with lt.no_grad():
        w.real = 0
    np.testing.assert_array_equal(w.detach().numpy(), [2j, -1j])


def test_a_view_of_a_value_is_read_as_numpys_of_whatever_size():
    kept = []
    for n in (10, 10, 12, 12, 10, 3):
        for dtype in ("f4", "c8", "i8"):
            a = np.arange(n * 4).reshape(n, 4).astype(dtype)
            x = lt.asarray(a)
            lt.sync()
            views = x[::-1].T[1:], lt.broadcast_to(x[2], (2, 4)), lt.real(x)[1:, ::2], lt.reshape(x[:2], (8,))
            want = a[::-1].T[1:], np.broadcast_to(a[2], (2, 4)), a.real[1:, ::2], a[:2].reshape(8)
            for _ in range(2):
                for v, w in zip(views, want, strict=True):
                    np.testing.assert_array_equal(v.numpy(), w, strict=True)
            kept.append((x, views[0], a))
    for x, v, a in kept:
        x += 1
        np.testing.assert_array_equal(v.numpy(), (a + 1)[::-1].T[1:])
