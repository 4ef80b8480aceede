"""The gradient of attention of bfloat16 by AMX: on processors that have it and, emulated, on all others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu import pair_products
from lazyt.runtime import plan_cache
from tests.support.amx import here, registers
from tests.support.dots import BFLOAT16, Array
from tests.support.half_attention import MASKS, Sizes, draw, masked, operands
from tests.support.plans import forget

pytestmark = pytest.mark.usefixtures("planned")
attend = lt.nn.functional.scaled_dot_product_attention
HALF = 2.0**-8  # of a number: what rounding to bfloat16 moves it by, at most twice over


# Whole registers, and rests of queries and keys; one panel of each width, several, and several groups; all features.
SIZES = [
    Sizes((2, 3), 64, 64, 32, 32),
    Sizes((2,), 100, 77, 64, 32),
    Sizes((1, 1), 8, 5, 32, 32),
    Sizes((2,), 30, 200, 96, 128),
    Sizes((), 17, 130, 256, 256),
    Sizes((1,), 700, 66, 64, 64),
    Sizes((1,), 73, 16, 160, 64),
]


def gradients(q: Any, k: Any, v: Any, ct: Any, by: Sequence[int] = (0, 1, 2), **how: Any) -> list[lt.Tensor]:
    leaves = [lt.asarray(x).detach().requires_grad_(i in by) for i, x in enumerate((q, k, v))]
    y = attend(*leaves, **how)
    return list(lt.autograd.grad(y, [leaves[i] for i in by], lt.asarray(ct)))


def are_by_amx(found: list[lt.Tensor]) -> bool:
    names = [x.library for x in lt.explain(*found).kernels if "attention" in x.library]
    return names == ["generated attention by AMX"] * 2


def turned(x: Array) -> Array:
    return np.swapaxes(x, -1, -2)


def are_near(
    got: list[lt.Tensor], q: Array, k: Array, v: Array, ct: Array, mask: Array | None = None, scale: float | None = None
) -> None:
    """Weights and what is made of them are rounded to bfloat16, so are the result, of which delta is, and gradients."""
    q, k, v, ct = (x.astype(np.float64) for x in (q, k, v, ct))
    by = q.shape[-1] ** -0.5 if scale is None else scale
    s = q @ turned(k) * by
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + mask
    top = s.max(-1, keepdims=True)
    w = np.exp(s - np.where(np.isinf(top), 0, top))
    total = w.sum(-1, keepdims=True)
    w /= np.where(total == 0, 1, total)
    o, p = w @ v, ct @ turned(v)
    slope = w * (p - (ct * o).sum(-1, keepdims=True)) * by
    size = w * (np.abs(ct) @ turned(np.abs(v)) + (np.abs(ct) * (w @ np.abs(v))).sum(-1, keepdims=True)) * abs(by)
    moved = HALF * np.abs(slope) + w * HALF * 2 * (np.abs(ct) * (w @ np.abs(v))).sum(-1, keepdims=True) * abs(by)
    moved += 2e-5 * size * (1 + np.abs(np.where(np.isinf(s), 0, s)))
    exact = slope @ k, turned(slope) @ q, turned(w) @ ct
    allowed = moved @ np.abs(k), turned(moved) @ np.abs(q), (HALF + 2e-5) * turned(w) @ np.abs(ct)
    for x, want, more in zip(got, exact, allowed, strict=True):
        assert x.dtype == BFLOAT16
        assert (np.abs(x.numpy().astype("f8") - want) <= more + HALF * (np.abs(want) + more)).all()


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kind", MASKS)
def test_every_size_and_mask(kind: str, sizes: Sizes, way: str) -> None:
    given = operands(sizes)
    mask, how = masked(kind, sizes)
    found = gradients(*given, **how)
    assert are_by_amx(found)
    q, k, v, ct = given
    are_near(found, q, k, v, ct, mask)


@pytest.mark.parametrize("scale", [0.7, -0.3, 0.0])
def test_scales(scale: float, way: str) -> None:
    q, k, v, ct = operands(SIZES[1])
    are_near(gradients(q, k, v, ct, scale=scale), q, k, v, ct, scale=scale)
    mask = np.tri(100, 77) > 0
    are_near(gradients(q, k, v, ct, is_causal=True, scale=scale), q, k, v, ct, mask, scale)


@pytest.mark.parametrize("by", [(0,), (1,), (2,), (0, 2), (1, 2)])
def test_some_gradients_have_the_bits_of_all(by: tuple[int, ...], way: str) -> None:
    given = operands(SIZES[1])
    whole = [x.numpy().tobytes() for x in gradients(*given, is_causal=True)]
    found = gradients(*given, by=by, is_causal=True)
    assert are_by_amx(found)
    assert [x.numpy().tobytes() for x in found] == [whole[i] for i in by]


def test_queries_that_a_panel_does_not_have_add_nothing(way: str) -> None:
    """Their lanes have a sum of weights of 1, so a large score would be infinite there."""
    q, k, v, ct = operands(Sizes((1,), 37, 50, 32, 32))
    large = (q.astype("f4") * 400).astype(BFLOAT16)
    assert all(np.isfinite(x.numpy().astype("f4")).all() for x in gradients(large, k, v, ct))
    are_near(gradients(q, k, v, ct), q, k, v, ct)


def test_views(way: str) -> None:
    """Heads of one projection lie beside each other; the gradient of the projection is one array."""
    a, ct = draw(2, 40, 3 * 2 * 64), draw(2, 40, 2 * 64, seed=1)
    x = lt.asarray(a).detach().requires_grad_()
    q, k, v = (lt.permute_dims(y.reshape(2, 40, 2, 64), (0, 2, 1, 3)) for y in lt.split(x, 3, axis=-1))
    y = lt.permute_dims(attend(q, k, v, is_causal=True), (0, 2, 1, 3)).reshape(2, 40, 128)
    (found,) = lt.autograd.grad(y, [x], lt.asarray(ct))
    assert are_by_amx([found])
    own = [y.reshape(2, 40, 2, 64).transpose(0, 2, 1, 3) for y in (*np.split(a, 3, axis=-1), ct)]
    parts = [lt.permute_dims(y.reshape(2, 40, 2, 64), (0, 2, 1, 3)) for y in lt.split(found, 3, axis=-1)]
    q, k, v, ct = own
    are_near(parts, q, k, v, ct, np.tri(40) > 0)


def test_nan_reaches_its_row_alone(way: str) -> None:
    q, k, v, ct = operands(Sizes((1,), 40, 70, 32, 32))
    ct[0, 3, 5] = np.nan
    dq, dk, dv = (x.numpy().astype("f4")[0] for x in gradients(q, k, v, ct))
    assert np.isnan(dq[3]).all() and np.isfinite(np.delete(dq, 3, axis=0)).all()
    assert np.isnan(dk).all()
    assert np.isnan(dv[:, 5]).all() and np.isfinite(np.delete(dv, 5, axis=1)).all()


def test_what_an_earlier_call_left_in_working_memory_is_not_read(way: str) -> None:
    """Few queries fill half a register; NaN was in the other half."""
    threads = lt.get_num_threads()
    lt.set_num_threads(1)
    try:
        given, few = operands(SIZES[0]), operands(Sizes((1,), 16, 64, 32, 32))
        given[3][:] = np.nan
        given[1][:] = np.nan
        first, then = gradients(*given), gradients(*few)
        lt.sync()
        assert all(np.isnan(x.numpy().astype("f4")).any() for x in first)
        q, k, v, ct = few
        are_near(then, q, k, v, ct)
    finally:
        lt.set_num_threads(threads)


def test_keys_that_no_query_sees_are_not_read(way: str) -> None:
    q, k, v, ct = operands(Sizes((1,), 37, 64, 32, 32))
    k[0, 37:], v[0, 37:] = np.nan, np.inf
    dq, dk, dv = gradients(q, k, v, ct, is_causal=True)
    assert not dk[:, 37:].numpy().any() and not dv[:, 37:].numpy().any()
    are_near([dq, dk[:, :37], dv[:, :37]], q, k[:, :37], v[:, :37], ct, np.tri(37) > 0)


@here
def test_the_registers_and_their_emulation_have_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for one in ("emulated", "registers"):
        with monkeypatch.context() as patch, registers(one, patch):
            forget()
            found.append([x.numpy().tobytes() for s in SIZES for x in gradients(*operands(s), is_causal=True)])
    assert found[0] == found[1]


@here
def test_bits_do_not_depend_on_threads() -> None:
    given = operands(Sizes((5,), 300, 130, 64, 64))
    threads, found = lt.get_num_threads(), set()
    try:
        for n in (1, 2, 3, 5):
            lt.set_num_threads(n)
            forget()
            found.add(b"".join(x.numpy().tobytes() for x in gradients(*given, is_causal=True)))
    finally:
        lt.set_num_threads(threads)
    assert len(found) == 1


def test_what_is_computed_as_float32(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Features of values that are no whole registers; a cotangent, or operands, that are no halves."""
    q, k, v, ct = operands(Sizes((2,), 64, 64, 32, 48))
    assert not are_by_amx(gradients(q, k, v, ct))
    q, k, v, ct = operands(SIZES[0])
    copies = [x.astype("f4") for x in (q, k, v, ct)]
    assert not are_by_amx(gradients(*copies))
    leaves = [lt.asarray(x).detach().requires_grad_() for x in (q, k, v)]
    weighted = attend(*leaves).astype("float32") * lt.asarray(draw(2, 3, 64, 32, seed=8).astype("f4"))
    found = lt.autograd.grad(weighted.sum(), leaves)
    assert are_by_amx([*found]), "a cotangent of a bfloat16 is one"
    monkeypatch.setattr(pair_products, "dot_products", lambda: "")
    forget()
    assert not are_by_amx(gradients(q, k, v, ct))


def test_a_first_run_has_the_bits_of_later_ones(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(plan_cache.settings, "tiers", True)
    given = operands(SIZES[0])
    found = {b"".join(x.numpy().tobytes() for x in gradients(*given, is_causal=True)) for _ in range(4)}
    assert len(found) == 1
