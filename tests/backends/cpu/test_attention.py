"""Attention by generated code: against NumPy, against its products, in every derivative; and how little it keeps."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.common.attention import FEATURES, QUERIES
from lazyt.backends.cpu.library.attention_tile import KEYS
from lazyt.ir import attention as ir
from lazyt.ir.passes.schedule import AttentionCall
from lazyt.nn import functional as F
from lazyt.runtime import plan_cache
from tests.support.arrays import normal
from tests.support.attention import SIZES, close, exact, mask_of, operands, results
from tests.support.central_differences import check
from tests.support.plans import forget

pytestmark = pytest.mark.usefixtures("planned")


class TestAgainstNumPy:
    @pytest.mark.parametrize("size", list(SIZES))
    @pytest.mark.parametrize("is_causal", [False, True])
    def test_sizes(self, size, is_causal):
        args = operands(size)
        got, calls = results(*args, is_causal=is_causal)
        assert calls == 2
        close(got, exact(*args, is_causal=is_causal))

    @pytest.mark.parametrize("kind", ["bool", "added", "a batch", "keys", "queries"])
    @pytest.mark.parametrize("size", ["usual", "odd", "across"])
    def test_masks(self, kind, size):
        args, mask = operands(size), mask_of(kind, size)
        got, calls = results(*args, mask, scale=0.3)
        assert calls == 2
        # What a mask of one column gets is 0, as the sum of many values.
        close(got, exact(*args, mask, scale=0.3), factor=400)

    @pytest.mark.parametrize("mask", [None, "bool", "added"])
    def test_float64(self, mask):
        args = operands("across", dtype="float64")
        found = mask_of(mask, "across")
        found = found.astype("float64") if mask == "added" else found
        got, calls = results(*args, found)
        assert calls == 2
        close(got, exact(*args, found), "float64")

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
    def test_halves_are_computed_in_float32(self, dtype):
        args = [x.astype(lt.asarray(x).astype(dtype).numpy().dtype) for x in operands("odd")]
        got, calls = results(*args)
        assert calls == 2
        for x, y in zip(got, exact(*args), strict=True):
            np.testing.assert_allclose(x.astype("float64"), y, atol=2e-2 * np.abs(y).max())

    def test_operands_are_read_where_they_lie(self):
        x = normal(2, 50, 3, 4, 8)  # batch, length, (q, k, v), heads, features
        q, k, v = (np.moveaxis(x[:, :, i], 1, 2) for i in range(3))
        ct = normal(2, 4, 50, 8, seed=1)
        leaf = lt.tensor(x, requires_grad=True)
        y = F.scaled_dot_product_attention(
            *(lt.permute_dims(leaf[:, :, i], (0, 2, 1, 3)) for i in range(3)), is_causal=True
        )
        lt.sum(y * lt.asarray(ct)).backward()
        lt.sync()
        calls = [c for c in lt.last_sync().plan.schedule.launches if isinstance(c, AttentionCall)]
        (forward,) = [c for c in calls if c.node.attrs.fn == "attention"]
        assert [base.op for base, _, _ in forward.views[1:3]] == ["input", "input"]
        want = exact(q, k, v, ct, is_causal=True)
        grads = np.stack([np.moveaxis(g, 1, 2) for g in want[1:]], 2)
        close([y.detach().numpy(), leaf.grad.numpy()], [want[0], grads])

    def test_a_matrix_and_repeated_operands(self):
        q, k, v, ct = operands("odd", batch=())
        close(results(q, k, v, ct)[0], exact(q, k, v, ct))
        many, ct = normal(3, 2, *q.shape), normal(3, 2, *ct.shape, seed=4)
        got, calls = results(many, k, v[None], ct)
        assert calls == 2
        want = exact(many, k, v[None], ct)
        close(got, [*want[:2], want[2].sum((0, 1)), want[3].sum((0, 1))[None]])


class TestAgainstItsProducts:
    """With the switch off there are products and a softmax between them, as there were before there was a call."""

    @pytest.mark.parametrize("kind", [None, "causal", "bool", "added", "keys"])
    @pytest.mark.parametrize("size", ["usual", "odd", "several units"])
    def test_on_and_off(self, kind, size, monkeypatch):
        args, how = operands(size), {"is_causal": True} if kind == "causal" else {}
        mask = None if kind == "causal" else mask_of(kind, size)
        got, calls = results(*args, mask, **how)
        assert calls == 2
        forget()
        monkeypatch.setitem(plan_cache.settings, "attention", False)
        want, calls = results(*args, mask, **how)
        assert calls == 0
        close(got, want)

    @pytest.mark.parametrize("name", ["interpret", "native"])
    def test_other_ways_to_run(self, name, monkeypatch):
        args, mask = operands("odd"), mask_of("bool", "odd")
        want, _ = results(*args, mask)
        forget()
        monkeypatch.setitem(plan_cache.settings, name, name == "interpret")
        close(results(*args, mask)[0], want)

    @pytest.mark.parametrize("on", [True, False])
    @pytest.mark.parametrize("mask", ["bool", "added"])
    def test_a_row_without_keys_is_0(self, on, mask, monkeypatch):
        monkeypatch.setitem(plan_cache.settings, "attention", on)
        for size, dtype in (("usual", "float32"), ("odd", "float64"), ("several units", "float32")):
            q, k, v, ct = operands(size, dtype=dtype)
            seen = np.random.default_rng(2).random((q.shape[-2], k.shape[-2])) < 0.6
            seen[:, 0] = True
            unseen = np.arange(len(seen)) % 7 == 3
            seen[unseen] = False
            added = np.where(seen, 0.5, -np.inf).astype(dtype)
            found, calls = results(q, k, v, ct, added if mask == "added" else seen)
            assert calls == 2 * on
            # By NumPy, of the rows that see something.
            at = [x[:, :, ~unseen] for x in (q, ct)]
            y, dq, dk, dv, *of_mask = exact(at[0], k, v, at[1], (added if mask == "added" else seen)[~unseen])
            close([found[0][:, :, ~unseen], found[1][:, :, ~unseen], *found[2:4]], [y, dq, dk, dv], dtype)
            for x in found[:2]:
                assert not x[:, :, unseen].any()
            if of_mask:
                close([found[4][~unseen]], of_mask, dtype, factor=400)
                assert not found[4][unseen].any()

    @pytest.mark.parametrize("on", [True, False])
    def test_the_first_keys_may_all_be_hidden(self, on, monkeypatch):
        monkeypatch.setitem(plan_cache.settings, "attention", on)
        t, s = 40, 3 * KEYS + 20
        args = normal(1, t, 8), normal(1, s, 8, seed=1), normal(1, s, 8, seed=2), normal(1, t, 8, seed=3)
        seen = np.broadcast_to(np.arange(s) >= 2 * KEYS + np.arange(t)[:, None] % 3, (t, s)).copy()
        close(results(*args, seen)[0], exact(*args, seen))

    @pytest.mark.parametrize("on", [True, False])
    def test_infinities_and_nan(self, on, monkeypatch):
        monkeypatch.setitem(plan_cache.settings, "attention", on)
        q, k, v, ct = operands("usual")
        q[0, 0, 5, 1] = np.nan
        q[0, 1, 6, 0] = np.inf
        v[1, 0, 7, 2] = np.inf
        ((y, *_), _) = results(q, k, v, ct)
        assert np.isnan(y[0, 0, 5]).all()
        assert np.isnan(y[0, 1, 6]).all()
        assert np.isinf(y[1, 0, :, 2]).all()
        assert np.isfinite(y[1, 2]).all()

    @pytest.mark.parametrize("on", [True, False])
    def test_large_scores(self, on, monkeypatch):
        monkeypatch.setitem(plan_cache.settings, "attention", on)
        q, k, v, ct = operands("usual")
        (y, *_), _ = results(q * 60, k * 60, v, ct)
        close([y], exact(q * 60, k * 60, v, ct)[:1], factor=3e4)


class TestWhatIsLeftToProducts:
    @pytest.mark.parametrize(("t", "s", "d"), [(1, 300, 16), (QUERIES - 1, 30, 16), (30, 30, FEATURES + 1)])
    def test_sizes(self, t, s, d):
        args = normal(2, t, d), normal(2, s, d, seed=1), normal(2, s, d, seed=2), normal(2, t, d, seed=3)
        got, calls = results(*args)
        assert calls == 0
        close(got, exact(*args))

    def test_a_plan_is_for_sizes_that_it_fits(self):
        """A plan with the call is not used for a single query, nor the other way round."""
        for t in (20, 1, 20, 1, 33):
            args = normal(2, t, 8), normal(2, 50, 8, seed=1), normal(2, 50, 8, seed=2), normal(2, t, 8, seed=3)
            got, calls = results(*args)
            assert calls == (2 if t > 1 else 0)
            close(got, exact(*args))

    def test_no_keys_and_no_queries(self):
        for t, s, batch in ((20, 0, 2), (0, 20, 2), (20, 20, 0)):
            q, k, v = (lt.zeros((batch, n, 4)) for n in (t, s, s))
            assert F.scaled_dot_product_attention(q, k, v).numpy().shape == (batch, t, 4)

    def test_dropout(self):
        q, k, v, ct = operands("usual")
        lt.random.seed(0)
        got, calls = results(q, k, v, ct, dropout_p=0.5)
        assert calls == 0
        assert np.isfinite(got[0]).all()

    def test_a_mask_that_makes_more_queries(self):
        q, k, v, _ = operands("odd")
        mask = np.ones((11, 53), bool)
        y = F.scaled_dot_product_attention(*map(lt.asarray, (q[:, :, :1], k, v)), lt.asarray(mask))
        assert y.shape == (2, 3, 11, 5)
        close([y.numpy()[:, :, 4]], [exact(q[:, :, :1], k, v, np.zeros((2, 3, 1, 5)))[0][:, :, 0]])


class TestGradients:
    @pytest.mark.parametrize(("masked", "causal"), [(False, False), (False, True), (True, False)])
    def test_both_orders(self, masked, causal):
        q, k, v, mask = (
            normal(*s, seed=i, dtype="float64") for i, s in enumerate(((2, 3, 2), (2, 4, 2), (2, 4, 5), (1, 3, 4)))
        )
        if masked:
            check(lambda b, *xs: ir.attention(b, *xs, b.constant(0.7, xs[0].dtype), causal)[0], q, k, v, mask)
        else:
            check(lambda b, *xs: ir.attention(b, *xs, None, b.constant(0.7, xs[0].dtype), causal)[0], q, k, v)

    def test_second_derivatives_of_the_call(self):
        """grad of a function of the gradient, through generated code and products, against differences."""
        q, k, v, ct = operands("odd", batch=(1,), dtype="float64")
        mask = normal(1, 1, SIZES["odd"][1], seed=7, dtype="float64")

        def slope(q, k, v, mask):
            xs = [lt.tensor(x, requires_grad=True) for x in (q, k, v, mask)]
            y = F.scaled_dot_product_attention(*xs[:3], xs[3], scale=0.5)
            first = lt.grad(
                lambda *ys: lt.sum(F.scaled_dot_product_attention(*ys[:3], ys[3], scale=0.5) * ct), argnums=(0, 1, 2)
            )
            del y
            return xs, sum(lt.sum(lt.sin(g)) for g in first(*xs))

        xs, total = slope(q, k, v, mask)
        total.backward()
        rng = np.random.default_rng(3)
        for i, x in enumerate((q, k, v, mask)):
            step = rng.standard_normal(x.shape)
            moved = [
                [y + sign * 1e-5 * step if i == j else y for j, y in enumerate((q, k, v, mask))] for sign in (1, -1)
            ]
            up, down = (float(slope(*m)[1].detach()) for m in moved)
            np.testing.assert_allclose(np.sum(xs[i].grad.numpy() * step), (up - down) / 2e-5, rtol=1e-6, atol=1e-8)

    @pytest.mark.parametrize("asked", list(itertools.product([False, True], repeat=3))[1:])
    def test_some_operands(self, asked):
        q, k, v, ct = operands("odd")
        xs = [lt.tensor(x, requires_grad=a) for x, a in zip((q, k, v), asked, strict=True)]
        lt.sum(F.scaled_dot_product_attention(*xs) * lt.asarray(ct)).backward()
        want = [g for g, a in zip(exact(q, k, v, ct)[1:], asked, strict=True) if a]
        close([x.grad.numpy() for x in xs if x.requires_grad], want)

    def test_across_a_sync(self):
        q, k, v, ct = operands("across")
        xs = [lt.tensor(x, requires_grad=True) for x in (q, k, v)]
        y = F.scaled_dot_product_attention(*xs)
        lt.sync()
        lt.sum(y * lt.asarray(ct)).backward()
        close([y.detach().numpy(), *(x.grad.numpy() for x in xs)], exact(q, k, v, ct))


class TestWhatItKeeps:
    @pytest.mark.parametrize("mask", [None, "keys"])
    def test_no_matrix_of_all_weights(self, mask):
        t = 4096
        q, k, v, ct = (normal(1, 1, t, 16, seed=i) for i in range(4))
        seen = None if mask is None else np.arange(t) < t - 5
        lt.memory.reset_peak()
        before = lt.memory.allocated()
        got, calls = results(q, k, v, ct, seen, is_causal=mask is None)
        assert calls == 2
        assert lt.memory.peak() - before < 32 * q.nbytes < t * t
        part = slice(0, 64)
        want = exact(q[:, :, part], k, v, ct[:, :, part], None if seen is None else seen[None], is_causal=mask is None)
        close([got[0][:, :, part], got[1][:, :, part]], want[:2])

    def test_bits_do_not_depend_on_threads(self, threads):
        args, mask = operands("several units"), mask_of("bool", "several units")
        many, _ = results(*args, mask)
        with_all = lt.get_num_threads()
        try:
            lt.set_num_threads(1)
            forget()
            one, _ = results(*args, mask)
        finally:
            lt.set_num_threads(with_all)
        for x, y in zip(many, one, strict=True):
            np.testing.assert_array_equal(x, y)
