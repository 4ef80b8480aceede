"""Matrix products by generated code: against float64, BLAS, other register widths, and with epilogues on and off."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends import object_cache
from lazyt.backends.cpu.engine import compile_module, host_features
from lazyt.backends.cpu.flags import switches
from lazyt.backends.cpu.library import products, tuning
from lazyt.backends.cpu.library.gemm_ir import product_text
from lazyt.backends.cpu.library.gemm_tile import AT, HEAD, SIZE, tile_of
from lazyt.backends.cpu.thread_pool import Program
from lazyt.errors import LazytInternalError
from lazyt.ir.passes.epilogue import verify_epilogue
from lazyt.ir.passes.schedule import MatmulCall
from lazyt.runtime import plan_cache
from tests.support.plans import forget

# rows, columns, length: tails of every kind, several blocks of k, one element, nothing.
SIZES = [
    (1, 1, 1), (1, 70, 5), (70, 1, 5), (5, 3, 400), (6, 64, 384), (7, 65, 385), (13, 130, 31), (64, 64, 64),
    (130, 70, 770), (20, 70, 1152), (9, 66, 1537), (3, 4, 0), (0, 4, 3), (4, 0, 3), (257, 513, 20),
]  # fmt: skip
DTYPES = ["float32", "float64", "int8", "uint16", "int32", "int64"]


@pytest.fixture(autouse=True)
def _generated(monkeypatch):
    """Fused from the first time on, by generated code wherever there is some, and checked."""
    forget()
    for name, value in {"tiers": False, "verify": True, "blas": False}.items():
        monkeypatch.setitem(plan_cache.settings, name, value)
    yield
    forget()


def array(*shape, dtype="float32", seed=0):
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 100, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def tensors(*arrays):
    out = [lt.asarray(a) for a in arrays]
    lt.sync()
    return out


def call_of(x):
    """The product of a pending value's plan."""
    (call,) = [c for c in x.explain().plan.schedule.launches if isinstance(c, MatmulCall)]
    return call


def check(got, a, b, dtype):
    if np.dtype(dtype).kind in "iu":
        np.testing.assert_array_equal(got, np.matmul(a, b))
    else:
        exact = np.matmul(a.astype(np.float64), b.astype(np.float64))
        bound = np.matmul(np.abs(a).astype(np.float64), np.abs(b).astype(np.float64))
        eps = np.finfo(dtype).eps
        assert (np.abs(got - exact) <= (2 + a.shape[-1] ** 0.5) * eps * bound).all()


class TestProducts:
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize(("m", "n", "k"), SIZES)
    def test_against_numpy(self, m, n, k, dtype):
        a, b = array(m, k, dtype=dtype), array(k, n, dtype=dtype, seed=1)
        x, y = tensors(a, b)
        z = x @ y
        if m and n and k:
            assert "generated" in z.explain().kernels[0].library
        check(z.numpy(), a, b, dtype)

    @pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
    @pytest.mark.parametrize("left", [False, True])
    @pytest.mark.parametrize("right", [False, True])
    @pytest.mark.parametrize(
        ("m", "n", "k"), [(5, 3, 400), (7, 65, 385), (64, 64, 64), (130, 70, 33), (1, 40, 7), (40, 1, 7)]
    )
    def test_transposed_operands(self, m, n, k, left, right, dtype):
        a = array(*((k, m) if left else (m, k)), dtype=dtype)
        b = array(*((n, k) if right else (k, n)), dtype=dtype, seed=1)
        x, y = tensors(a, b)
        check(((x.T if left else x) @ (y.T if right else y)).numpy(), a.T if left else a, b.T if right else b, dtype)

    @pytest.mark.parametrize("right", [False, True])
    def test_rows_at_multiples_of_a_page(self, right):
        """A right operand with such rows is packed."""
        a, b = array(30, 1024), array(1024, 1024, seed=1)
        x, y = tensors(a, b)
        z = x @ (y.T if right else y)
        choice = z.explain().kernels[0]._description._choice
        assert not choice.pack_a and choice.pack_b == ("across" if right else "panel")
        check(z.numpy(), a, b.T if right else b, "float32")

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize("rows", [1, 2])
    def test_few_rows_by_a_matrix_in_memory_are_shared(self, rows, dtype):
        """Bits do not depend on it; a matrix in the caches stays with one thread."""
        a, b = array(rows, 700, dtype=dtype), array(700, 710, dtype=dtype, seed=1)
        x, y, small = tensors(a, b, b[:90, :90])
        threads, found = lt.get_num_threads(), []
        try:
            for n in (2, 1):
                lt.set_num_threads(n)
                forget()
                z, w = x @ y, x[:, :90] @ small
                lt.sync()
                (bound,) = lt.last_sync().plan.executable.bound.values()
                columns = sorted((p.choice.n, p._unit()[1]) for p in bound.products.values())
                assert [unit < wide for wide, unit in columns] == [False, n == 2]
                found.append(z.numpy())
        finally:
            lt.set_num_threads(threads)
        np.testing.assert_array_equal(*found)
        check(found[0], a, b, dtype)
        check(w.numpy(), a[:, :90], b[:90, :90], dtype)

    def test_a_large_transposed_left_operand(self):
        a, b = array(3, 200, 130), array(3, 200, 90, seed=1)
        x, y = tensors(a, b)
        z = lt.swapaxes(x, 1, 2) @ y
        assert z.explain().kernels[0]._description._choice.pack_a == "across"
        check(z.numpy(), a.swapaxes(1, 2), b, "float32")

    @pytest.mark.parametrize("shapes", [
        ((4, 5, 20, 7), (4, 5, 7, 33)), ((4, 5, 20, 7), (7, 33)), ((4, 1, 20, 7), (5, 7, 33)),
        ((3, 100, 80), (3, 80, 70)),
    ])  # fmt: skip
    def test_batches(self, shapes):
        a, b = array(*shapes[0]), array(*shapes[1], seed=1)
        x, y = tensors(a, b)
        check((x @ y).numpy(), a, b, "float32")
        heads = array(6, 90, 4, 16)
        (h,) = tensors(heads)
        q = lt.permute_dims(h, (0, 2, 1, 3))
        check(
            (q @ lt.permute_dims(h, (0, 2, 3, 1))).numpy(),
            heads.transpose(0, 2, 1, 3),
            heads.transpose(0, 2, 3, 1),
            "float32",
        )

    def test_the_sum_is_at_least_as_exact_as_by_blas(self, monkeypatch):
        a, b = array(200, 3000), array(3000, 100, seed=1)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        x, y = tensors(a, b)
        generated = np.abs((x @ y).numpy() - exact).mean()
        assert generated <= np.abs(a @ b - exact).mean() * 1.1

    @pytest.mark.parametrize("right", [False, True])
    def test_bits_do_not_depend_on_threads(self, right):
        a, b, c = array(333, 900), array(*((500, 900) if right else (900, 500)), seed=1), array(500, seed=2)
        before = lt.get_num_threads()
        try:
            results = []
            for threads in (1, 2, 4):
                lt.set_num_threads(threads)
                x, y, z = tensors(a, b, c)
                results.append(lt.relu(x @ (y.T if right else y) + z).numpy().tobytes())
        finally:
            lt.set_num_threads(before)
        assert results[0] == results[1] == results[2]

    @pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
    @pytest.mark.parametrize("width", [4, 8, 16, 32, 64])
    def test_every_width_gives_the_same_bits(self, width, dtype):
        if width < np.dtype(dtype).itemsize:
            pytest.skip("narrower than an element")
        m, n, k = 29, 75, 400
        a, b = array(m, k, dtype=dtype), array(k, n, dtype=dtype, seed=1)
        tile = dataclasses.replace(tile_of(np.dtype(dtype), host_features(), width), fused="fma" in host_features())
        text, name = product_text(np.dtype(dtype), tile, "row", tile.families(n))
        module = compile_module(text, [name])
        c = np.empty((m, n), dtype)
        table = [0] * SIZE
        for field, value in {
            "m": m, "n": n, "k": k, "a_row": k, "a_col": 1, "b_row": n, "b_panel": tile.columns, "c_row": n,
            "unit_rows": 10, "unit_cols": 2 * tile.columns, "group": tile.columns, "chunk": 7,
            "row_blocks": 3, "col_blocks": -(-n // (2 * tile.columns)),
            "A": a.ctypes.data, "B": b.ctypes.data, "C": c.ctypes.data,
        }.items():  # fmt: skip
            table[AT[field]] = value
        assert table[HEAD] == 0
        Program([[module.address(name), 0, 3 * -(-n // (2 * tile.columns)), 1, 0]], table).run()
        x, y = tensors(a, b)
        np.testing.assert_array_equal(c, (x @ y).numpy())


def _epilogues():
    w, v, full = array(48, seed=3), array(90, 1, seed=4), array(90, 48, seed=5)
    return {
        "row": (lambda z, x: lt.gelu(z + x), w),
        "column": (lambda z, x: z * x, v),
        "residual": (lambda z, x: x + lt.tanh(z) * 0.5, full),
        "scale": (lambda z, x: z * 0.125 - 1, full),
        "position": (lambda z, x: z + lt.arange(48, dtype="float32"), full),
        "several outputs": (lambda z, x: (lt.relu(z + x), z > 0), w),
        "kept": (lambda z, x: (z, lt.relu(z + x)), w),
        "cast": (lambda z, x: lt.astype(z + x, "float16"), w),
        "reshaped": (lambda z, x: lt.relu(lt.reshape(z, (9, 10, 48)) + x), w),
        "split rows": (lambda z, x: lt.reshape(z, (9, 10, 48)) + lt.arange(10, dtype="float32")[:, None], full),
        "transposed": (lambda z, x: lt.relu(z.T + 1), full),
        "flipped": (lambda z, x: lt.relu(z[::-1] + x), full),
        "part": (lambda z, x: lt.relu(z[:, :20]), full),
        "padded": (lambda z, x: lt.pad(lt.relu(z), ((1, 1), (2, 3))), full),
        "joined": (lambda z, x: lt.concat([lt.relu(z), x], axis=0), full),
    }


class TestEpilogues:
    @pytest.mark.parametrize("name", list(_epilogues()))
    @pytest.mark.parametrize("blas", [False, True])
    def test_same_bits_on_and_off(self, name, blas, monkeypatch):
        make, other = _epilogues()[name]
        a, b = array(90, 70), array(70, 48, seed=1)
        monkeypatch.setitem(plan_cache.settings, "gemm", not blas)
        got = []
        for on in (True, False):
            monkeypatch.setitem(plan_cache.settings, "epilogues", on)
            forget()
            x, y, w = tensors(a, b, other)
            out = make(x @ y, w)
            lt.sync()
            fused = [c.epilogue for c in lt.last_sync().plan.schedule.launches if isinstance(c, MatmulCall)]
            assert on or not any(fused)
            out = out if isinstance(out, tuple) else (out,)
            got.append([np.array(o.numpy()) for o in out])
        for p, q in zip(*got, strict=True):
            np.testing.assert_array_equal(p, q)

    @pytest.mark.parametrize(("name", "fused"), [
        ("row", True), ("column", True), ("residual", True), ("several outputs", True), ("kept", True),
        ("reshaped", True), ("cast", True), ("split rows", False), ("transposed", True), ("part", False),
    ])  # fmt: skip
    def test_which_are_fused(self, name, fused):
        make, other = _epilogues()[name]
        x, y, w = tensors(array(90, 70), array(70, 48, seed=1), other)
        out = make(x @ y, w)
        first = out[-1] if isinstance(out, tuple) else out
        call = call_of(first)
        assert (call.epilogue is not None) == fused

    def test_one_that_moves_many_arrays_has_a_pass_of_its_own(self):
        x, y, *more = tensors(array(90, 70), array(70, 48, seed=1), *(array(90, 48, seed=2 + i) for i in range(5)))
        for count, fused in ((3, True), (4, False)):  # and one that is written
            z = x @ y
            for m in more[:count]:
                z = z * m
            assert (call_of(z).epilogue is not None) == fused

    def test_batched(self):
        a, b, m = array(3, 4, 20, 16), array(3, 4, 16, 30, seed=1), array(20, 30, seed=2)
        x, y, mask = tensors(a, b, m)
        z = (x @ y) * 0.25 + mask
        assert call_of(z).epilogue is not None
        exact = a.astype("float64") @ b * 0.25 + m
        np.testing.assert_allclose(z.numpy(), exact, rtol=1e-5, atol=1e-5)

    def test_the_product_has_no_memory_unless_it_is_read(self):
        x, y, w = tensors(array(900, 70), array(70, 480, seed=1), array(480, seed=2))
        z = lt.gelu(x @ y + w)
        alone = z.explain()
        assert alone.temporaries < 900 * 480 * 4
        assert "never in memory" in str(alone.kernels[0])
        z.numpy()
        p = x @ y
        z = lt.gelu(p + w)
        assert "never in memory" not in str(z.explain().kernels[0])

    def test_an_operand_made_after_the_product(self):
        """The kernel moves up to the product only if what it reads is there."""
        a, b, v = array(40, 30), array(30, 40, seed=1), array(40, 40, seed=2)
        x, y, w = tensors(a, b, v)
        p = x @ y
        z = p + lt.sum(p, axis=0) * w
        exact = a.astype("float64") @ b
        np.testing.assert_allclose(z.numpy(), exact + exact.sum(0) * v, rtol=1e-4, atol=1e-4)

    def test_two_products_in_one_kernel(self):
        a, b, v = array(40, 30), array(30, 50, seed=1), array(30, 50, seed=2)
        x, y, w = tensors(a, b, v)
        z = lt.sigmoid(x @ y) * (x @ w)
        ka = z.explain().kernels
        assert len(ka) == 2
        exact = (a.astype("float64") @ v) / (1 + np.exp(-(a.astype("float64") @ b)))
        np.testing.assert_allclose(z.numpy(), exact, rtol=1e-4, atol=1e-4)

    def test_other_sizes_use_the_same_plan(self):
        y, w = tensors(array(70, 48, seed=1), array(48, seed=2))
        for i, m in enumerate((5, 300, 1, 64, 0)):
            a = array(m, 70)
            z = lt.relu(lt.asarray(a) @ y + w)
            lt.sync()
            assert lt.last_sync().plans == (i == 0)
            np.testing.assert_allclose(z.numpy(), np.maximum(a @ y.numpy() + w.numpy(), 0), rtol=1e-4, atol=1e-4)

    def test_verify_rejects(self):
        x, y, w = tensors(array(9, 7), array(7, 8, seed=1), array(8, seed=2))
        call = call_of(lt.relu(x @ y + w))
        verify_epilogue(call)
        kernel = call.epilogue
        for wrong, why in [
            (dataclasses.replace(kernel, product=None), "over another product"),
            (dataclasses.replace(kernel, extents=kernel.extents[:1]), "one axis a dimension"),
            (dataclasses.replace(kernel, extents=kernel.extents[::-1]), "the product's extents"),
            (dataclasses.replace(kernel, checks=[call.node]), "cannot fail"),
        ]:
            with pytest.raises(LazytInternalError, match=why):
                verify_epilogue(dataclasses.replace(call, epilogue=wrong))


class TestChoice:
    def test_by_size_not_by_threads(self, monkeypatch):
        monkeypatch.setitem(plan_cache.settings, "blas", True)
        x, y = tensors(array(64, 64, 64), array(64, 64, 64))
        before = lt.get_num_threads()
        try:
            chosen = []
            for threads in (1, 4):
                lt.set_num_threads(threads)
                chosen.append((x @ y).explain().kernels[0].chosen)
        finally:
            lt.set_num_threads(before)
        assert chosen[0] == chosen[1] and chosen[0].startswith("estimated ")

    def test_switches(self, monkeypatch):
        x, y = tensors(array(30, 30), array(30, 30))
        assert (x @ y).explain().kernels[0].library.startswith("generated ")
        monkeypatch.setitem(plan_cache.settings, "blas", True)
        monkeypatch.setitem(plan_cache.settings, "gemm", False)
        assert not (x @ y).explain().kernels[0].library.startswith("generated ")

    def test_complex_products_are_by_blas(self):
        x, y = tensors(array(30, 30) + 1j, array(30, 30) - 1j)
        assert products.tile_for(np.dtype("complex64")) is None
        np.testing.assert_allclose((x @ y).numpy(), x.numpy() @ y.numpy(), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", ["matrix by vector", "column", "vector by matrix", "row", "transposed", "flat"])
def test_an_epilogue_over_a_product_of_one_row_or_column(name, monkeypatch):
    monkeypatch.setitem(plan_cache.settings, "tiers", False)
    programs = {
        "matrix by vector": lambda a, b: (a @ b[:, 0]) * 2 - 1.5,
        "column": lambda a, b: (a @ b[:, :1]) * 2 - 1.5,
        "vector by matrix": lambda a, b: (a[0] @ b) * 2 - 1.5,
        "row": lambda a, b: (a[:1] @ b) * 2 - 1.5,
        "transposed": lambda a, b: (a @ b).T * 2 - 1.5,
        "flat": lambda a, b: (a @ b).reshape(-1) * 2 - 1.5,
    }
    rng = np.random.default_rng(0)
    for m, k, n in ((5, 3, 4), (70, 9, 65), (1, 1, 1), (130, 64, 1)):
        a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
        got = programs[name](lt.asarray(a), lt.asarray(b)).numpy()
        np.testing.assert_allclose(got, programs[name](a, b), rtol=1e-12, atol=1e-12)


@pytest.fixture
def autotune(monkeypatch, tmp_path):
    """On, with an empty cache."""
    cache = object_cache.ObjectCache(tmp_path)
    monkeypatch.setattr(tuning.object_cache, "default_cache", lambda: cache)
    monkeypatch.setitem(switches, "autotune", True)
    monkeypatch.setitem(plan_cache.settings, "blas", True)
    tuning.forget()
    yield cache
    tuning.forget()


class TestAutotuner:
    def test_a_class_of_sizes_is_timed_once(self, autotune, monkeypatch):
        rounds = []
        measured = tuning._measured
        monkeypatch.setattr(tuning, "_measured", lambda *a: rounds.append(1) or measured(*a))
        a, b = array(120, 200), array(200, 190, seed=1)
        x, y = tensors(a, b)
        z = x @ y
        assert z.explain().kernels[0].chosen.startswith("estimated ")  # to look measures nothing
        check(z.numpy(), a, b, "float32")
        assert len(rounds) == 1
        for forgetting in (False, True):
            forget()
            if forgetting:
                tuning.forget()  # as in the next process
            w = lt.asarray(array(121, 201)) @ lt.asarray(array(201, 185, seed=1))
            assert w.explain().kernels[0].chosen.startswith("timed ")
            w.numpy()
            assert len(rounds) == 1
        (lt.asarray(array(300, 200)) @ y).numpy()
        assert len(rounds) == 2

    @pytest.mark.parametrize(("left", "right"), [(False, False), (True, False), (False, True)])
    def test_every_candidate_is_right(self, autotune, monkeypatch, left, right):
        a, b, w = array(400, 230), array(400, 390, seed=1), array(390, seed=2)
        a = a if left else np.ascontiguousarray(a.T)
        b = np.ascontiguousarray(b.T) if right else b
        bits = set()
        for number in range(7):
            forget()
            tuning.forget()
            seen = []

            def chosen(c, choice, value, number=number, seen=seen):
                ways = tuning.candidates(choice)
                way = ways[min(number, len(ways) - 1)]
                seen.append(way.how)
                fields = {"how": way.how, "deep": way.deep, "wide": way.wide, "pack_b": way.pack_b}
                return {**fields, "generated": 1.0, "blas": 1.0}

            monkeypatch.setattr(tuning, "_measured", chosen)
            monkeypatch.setattr(object_cache.ObjectCache, "load", lambda *_: None)
            x, y, v = tensors(a, b, w)
            p, q = x.T if left else x, y.T if right else y
            z = p @ q + v
            got = z.numpy()
            exact = (a.T if left else a).astype("float64") @ (b.T if right else b) + w
            np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-3)
            if seen == ["generated"]:
                bits.add(got.tobytes())
        assert len(bits) == 1

    def test_small_products_and_off(self, autotune, monkeypatch):
        monkeypatch.setattr(tuning, "_measured", lambda *a: pytest.fail("nothing is worth timing"))
        x, y = tensors(array(20, 30), array(30, 20))
        (x @ y).numpy()
        monkeypatch.setitem(switches, "autotune", False)
        x, y = tensors(array(200, 300), array(300, 200))
        assert (x @ y).explain().kernels[0].chosen.startswith("estimated ")
        (x @ y).numpy()

    def test_classes(self):
        assert [tuning.rounded(n) for n in (1, 2, 3, 4, 5, 6, 7, 100, 129, 192, 193)] == [
            1, 2, 3, 4, 6, 6, 8, 128, 192, 192, 256,
        ]  # fmt: skip


FORMS = {
    "column": lambda a, u, v: a @ v,
    "row": lambda a, u, v: u @ a,
    "transposed column": lambda a, u, v: a.T @ u,
    "transposed row": lambda a, u, v: v @ a.T,
    "batch": lambda a, u, v: (lt.stack([a, a * 2]) if isinstance(a, lt.Tensor) else np.stack([a, a * 2])) @ v,
    "both": lambda a, u, v: u[None] @ (a @ v)[:, None],
}


class TestVectors:
    """A matrix by a vector is a reduction where the matrix' rows lie in memory, else a product by a row."""

    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
    def test_on_and_off(self, form, dtype, monkeypatch):
        arrays = [array(*shape, dtype=dtype, seed=i) for i, shape in enumerate([(70, 90), (70,), (90,)])]
        want = FORMS[form](*(a.astype("f8") for a in arrays))
        for on in (True, False):
            monkeypatch.setitem(plan_cache.settings, "vectors", on)
            forget()
            got = FORMS[form](*tensors(*arrays)).numpy()
            np.testing.assert_allclose(got, want, rtol=2e-2 if dtype == "float16" else 1e-5, atol=1e-2)

    @pytest.mark.parametrize(("form", "products"), [
        ("column", 0), ("row", 1), ("transposed column", 1), ("transposed row", 0),
    ])  # fmt: skip
    def test_what_is_a_reduction(self, form, products):
        x = FORMS[form](*tensors(array(70, 90), array(70), array(90)))
        lt.sync()
        assert x.shape
        assert sum(isinstance(c, MatmulCall) for c in lt.last_sync().plan.schedule.launches) == products

    def test_an_extent_that_happens_to_be_one_is_a_product(self):
        x, y = tensors(array(70, 90), array(90, 1))
        z = x @ y
        lt.sync()
        assert z.shape == (70, 1)
        assert any(isinstance(c, MatmulCall) for c in lt.last_sync().plan.schedule.launches)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("shape", [(3, 1), (3, 2), (2, 3), (40, 1), (1, 40), (9, 5), (70, 33)])
def test_operands_that_lie_apart(shape, dtype):
    # A line of one element has any stride: (1, n) of a transposed view was read as if its elements were neighbours.
    a = array(*shape, dtype=dtype)
    for key in (np.s_[::2], np.s_[:, ::2], np.s_[::2, :1], np.s_[:1], np.s_[::-1], np.s_[1:, 1:]):
        x = a[key]
        for f in (
            lambda x: x @ x.T,
            lambda x: x.T @ x,
            lambda x: (x + 0) @ x.T,
            lambda x: (x.T + 0) @ x,
            lambda x: x @ (x.T + 0),
        ):
            got = f(lt.asarray(a)[key]).numpy()
            np.testing.assert_allclose(got, f(x), rtol=1e-4, atol=1e-4, err_msg=f"{shape} {key}")
