"""Attention of bfloat16 by AMX: on processors that have it and, emulated, on all others."""

from __future__ import annotations

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


# Whole registers, and rests of queries and keys; several panels, blocks of keys and units; all features.
SIZES = [
    Sizes((2, 3), 64, 64, 32, 32),
    Sizes((2,), 100, 77, 64, 48),
    Sizes((1, 1), 8, 5, 32, 16),
    Sizes((2,), 33, 200, 96, 128),
    Sizes((), 17, 130, 256, 256),
    Sizes((1,), 700, 66, 64, 64),
]


def is_near(got: lt.Tensor, q: Array, k: Array, v: Array, scale: float, mask: Array | None = None) -> None:
    """Weights are rounded to bfloat16, and so is the result; the rest is float32's."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    s = q @ np.swapaxes(k, -1, -2) * scale
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + mask
    top = s.max(-1, keepdims=True)
    w = np.exp(s - np.where(np.isinf(top), 0, top))
    total = w.sum(-1, keepdims=True)
    w /= np.where(total == 0, 1, total)
    exact, size = w @ v, w @ np.abs(v)
    allowed = 2.0**-8 * size + 2.0**-8 * (np.abs(exact) + 2.0**-8 * size) + 1e-5 * size
    assert (np.abs(got.numpy().astype("f8") - exact) <= allowed).all()


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kind", MASKS)
def test_every_size_and_mask(kind: str, sizes: Sizes, way: str) -> None:
    q, k, v, _ = operands(sizes)
    mask, given = masked(kind, sizes)
    z = attend(*map(lt.asarray, (q, k, v)), **given)
    assert z.dtype == BFLOAT16
    assert "generated attention by AMX" in str(z.explain())
    is_near(z, q, k, v, sizes.d**-0.5, mask)


@pytest.mark.parametrize("scale", [0.7, -0.3, 0.0])
def test_scales(scale: float, way: str) -> None:
    q, k, v, _ = operands(SIZES[1])
    x, y, z = map(lt.asarray, (q, k, v))
    is_near(attend(x, y, z, scale=scale), q, k, v, scale)
    mask = np.tri(100, 77) > 0
    is_near(attend(x, y, z, is_causal=True, scale=scale), q, k, v, scale, mask)


def test_views(way: str) -> None:
    """Heads of one projection lie beside each other; each reads its own where it is."""
    a = draw(2, 40, 3 * 2 * 64)
    x = lt.asarray(a)
    q, k, v = (lt.permute_dims(y.reshape(2, 40, 2, 64), (0, 2, 1, 3)) for y in lt.split(x, 3, axis=-1))
    z = attend(q, k, v, is_causal=True)
    assert [i.library for i in z.explain().kernels] == ["generated attention by AMX"]
    own = [y.reshape(2, 40, 2, 64).transpose(0, 2, 1, 3) for y in np.split(a, 3, axis=-1)]
    is_near(z, *own, 64**-0.5, np.tri(40, 40) > 0)


def test_nan_and_infinity_reach_their_rows_alone(way: str) -> None:
    q, k, v, _ = operands(Sizes((1,), 40, 70, 32, 16))
    q[0, 3, 5], v[0, 69, 2] = np.nan, np.inf
    z = attend(*map(lt.asarray, (q, k, v))).numpy().astype("f4")[0]
    assert np.isnan(z[3]).all()
    rest = np.delete(z, 3, axis=0)
    assert (rest[:, 2] == np.inf).all()
    assert np.isfinite(np.delete(rest, 2, axis=1)).all()


def test_keys_that_a_panel_does_not_see_are_not_read(way: str) -> None:
    q, k, v, _ = operands(Sizes((1,), 37, 64, 32, 16))
    k[0, 37:], v[0, 37:] = np.nan, np.inf
    z = attend(*map(lt.asarray, (q, k, v)), is_causal=True)
    is_near(z, q, k[:, :37], v[:, :37], 32**-0.5, np.tri(37) > 0)


@here
def test_the_registers_and_their_emulation_have_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for one in ("emulated", "registers"):
        with monkeypatch.context() as patch, registers(one, patch):
            forget()
            found.append([attend(*map(lt.asarray, operands(s)[:3]), is_causal=True).numpy().tobytes() for s in SIZES])
    assert found[0] == found[1]


@here
def test_bits_do_not_depend_on_threads() -> None:
    x, y, z = map(lt.asarray, operands(Sizes((3,), 300, 130, 64, 64))[:3])
    threads, found = lt.get_num_threads(), set()
    try:
        for n in (1, 2, 3, 5):
            lt.set_num_threads(n)
            forget()
            found.add(attend(x, y, z, is_causal=True).numpy().tobytes())
    finally:
        lt.set_num_threads(threads)
    assert len(found) == 1


def test_gradients(way: str) -> None:
    """Near float32's, of the same rounded operands; in one program, and behind a sync."""
    q, k, v, _ = operands(Sizes((2,), 50, 50, 32, 32))
    ct = draw(2, 50, 32, seed=7)

    def gradients(dtype: str, synced: bool) -> list[Array]:
        leaves = [lt.asarray(x).astype(dtype).detach().requires_grad_() for x in (q, k, v)]
        y = attend(*leaves, is_causal=True)
        if synced:
            lt.sync()
        return [g.numpy().astype("f4") for g in lt.autograd.grad(y, leaves, lt.asarray(ct).astype(dtype))]

    exact = gradients("float32", False)
    for synced in (False, True):
        for half, want in zip(gradients("bfloat16", synced), exact, strict=True):
            assert np.abs(half - want).max() < 0.02 * np.abs(want).max()


def test_bits_do_not_depend_on_what_is_held_or_synced(way: str) -> None:
    q, k, v, _ = operands(Sizes((2,), 50, 50, 32, 32))
    ct = lt.asarray(draw(2, 50, 32, seed=7))

    def gradients(held: bool, synced: bool) -> bytes:
        leaves = [lt.asarray(x).detach().requires_grad_() for x in (q, k, v)]
        y = attend(*leaves, is_causal=True)
        if synced:
            lt.sync()
        found = lt.autograd.grad(y, leaves, ct)
        if not held:
            del y
        return b"".join(g.numpy().tobytes() for g in found)

    assert len({gradients(*case) for case in [(True, False), (False, False), (True, True), (False, True)]}) == 1


def test_under_autocast(way: str) -> None:
    q, k, v, _ = operands(SIZES[0])
    x, y, z = (lt.asarray(a.astype(np.float32)) for a in (q, k, v))
    with lt.amp.autocast("cpu"):
        found = attend(x, y, z)
    assert "generated attention by AMX" in str(found.explain())
    is_near(found, q, k, v, 32**-0.5)


def test_what_is_computed_as_float32(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other features, other dtypes, few queries; and float32 copies, whatever reads the result."""
    q, k, v, _ = operands(SIZES[0])
    x, y, z = map(lt.asarray, (q, k, v))
    odd = [lt.asarray(draw(2, 20, 40, seed=i)) for i in range(3)]
    copies = [a.astype("float32") for a in (x, y, z)]
    others = (
        attend(*odd),
        attend(*(a.astype("float16") for a in (x, y, z))),
        attend(x[..., :7, :], y, z),
        attend(*copies),
    )
    for found in others:
        assert "AMX" not in "".join(i.library for i in found.explain().kernels if i.library.startswith("generated att"))
    exact = attend(*(lt.asarray(a.astype("f4")) for a in (q, k, v))).numpy()
    half = others[-1].astype("bfloat16")
    np.testing.assert_array_equal(others[-1].numpy(), exact)
    np.testing.assert_array_equal(half.numpy().astype("f4"), exact.astype(BFLOAT16).astype("f4"))
    monkeypatch.setattr(pair_products, "dot_products", lambda: "")
    forget()
    assert "AMX" not in str(attend(x, y, z).explain())


def test_a_first_run_has_the_bits_of_later_ones(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(plan_cache.settings, "tiers", True)
    x, y, z = map(lt.asarray, operands(SIZES[0])[:3])
    found = set()
    for _ in range(4):
        copies = [a.astype("float32") for a in (x, y, z)]
        found.add(attend(*copies).astype("bfloat16").numpy().tobytes())
    assert len(found) == 1
