"""float32 products and convolutions whose operands may be rounded to bfloat16, where AMX multiplies these."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn
from lazyt.backends.cpu import pair_products
from lazyt.backends.cpu.library import conv_tiles
from lazyt.runtime import plan_cache
from lazyt.tracing.mode import FIRST
from lazyt.tracing.trace import local
from tests.support.plans import forget


@pytest.fixture(autouse=True)
def _planned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in {"tiers": False, "verify": True}.items():
        monkeypatch.setitem(plan_cache.settings, name, value)
    monkeypatch.setattr(conv_tiles, "IMAGES", 0)
    forget()
    yield
    rounded(False)
    forget()


def rounded(allowed: bool) -> None:
    precision = "medium" if allowed else "highest"
    lt.set_float32_matmul_precision(precision)
    lt.set_float32_convolution_precision(precision)


def normal(*shape: int, seed: int = 0) -> lt.Tensor:
    return lt.asarray(np.random.default_rng(seed).standard_normal(shape).astype("float32"))


def copy(x: lt.Tensor) -> lt.Tensor:
    """x as bfloat16, as float32: what AMX reads with any precision."""
    return x.astype("bfloat16").astype("float32")


def bits(*xs: lt.Tensor) -> list[bytes]:
    return [x.detach().numpy().tobytes() for x in xs]


PRODUCTS: dict[str, Callable[[Callable[[lt.Tensor], lt.Tensor], lt.Tensor, lt.Tensor], lt.Tensor]] = {
    "plain": lambda r, x, w: r(x) @ r(w),
    "transposed": lambda r, x, w: r(w).T @ r(x).T,
    "epilogue": lambda r, x, w: lt.tanh(r(x) @ r(w) * 0.1) * 2,
    "computed": lambda r, x, w: r(lt.exp(x)) @ r(w),
    "batch": lambda r, x, w: lt.einsum("ij,bjk->bik", r(x), r(lt.stack([w, w + 1]))),
    "linear": lambda r, x, w: nn.functional.linear(r(x), r(w.T), normal(50, seed=3)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str, way: str) -> None:
    f, x, w = PRODUCTS[name], normal(40, 70), normal(70, 50, seed=1)
    exact, want = f(lambda y: y, x, w).numpy(), bits(f(copy, x, w))
    rounded(True)
    got = f(lambda y: y, x, w)
    assert "by AMX" in str(got.explain())
    assert bits(got) == want
    np.testing.assert_allclose(got.numpy(), exact, rtol=0.02, atol=0.3)


@pytest.mark.parametrize("flags", [{"tiers": True, "verify": False}, {"fuse": False}, {"vectors": False}])
def test_products_with_a_vector_stay_as_they_are(flags: dict[str, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """However they are computed: as a product, in a first run say, or as a sum."""
    for name, value in flags.items():
        monkeypatch.setitem(plan_cache.settings, name, value)
    x, v, column = normal(40, 70), normal(70, seed=1), normal(70, 1, seed=1)
    exact = x.numpy().astype("f8") @ v.numpy()
    rounded(True)
    for f in (
        lambda: x @ v,
        lambda: (x @ v[:, None])[:, 0],
        lambda: (x @ column)[:, 0],
        lambda: nn.functional.linear(x, v[None])[:, 0],
        lambda: nn.functional.linear(x, column.T)[:, 0],
    ):
        for _ in range(3):
            assert np.abs(f().numpy() - exact).max() < 1e-4


def test_attention_stays_as_it_is(way: str) -> None:
    """Written out, too: for dropout, and for what is derived from it."""
    q, k, v = (normal(48, 64, seed=i) for i in range(3))

    def results() -> list[bytes]:
        lt.random.seed(0)
        a = nn.functional.scaled_dot_product_attention
        value, tangent = lt.func.jvp(lambda t: a(t, k, v), (q,), (q,))
        return bits(a(q, k, v, dropout_p=0.2), value, tangent)

    want = results()
    rounded(True)
    assert results() == want


@pytest.mark.parametrize(("m", "k"), [(15, 64), (40, 31), (1, 64)])
def test_small_products_stay_as_they_are(m: int, k: int, way: str) -> None:
    x, w = normal(m, k), normal(k, 50, seed=1)
    want = bits(x @ w)
    rounded(True)
    assert bits(x @ w) == want


def test_other_dtypes_stay_as_they_are(way: str) -> None:
    x, w = normal(40, 70), normal(70, 50, seed=1)
    pairs = [(x.astype(d), w.astype(d)) for d in ("float64", "bfloat16", "int32", "complex64")]
    want = bits(*(p @ q for p, q in pairs))
    rounded(True)
    assert bits(*(p @ q for p, q in pairs)) == want


def test_gradients_of_products(way: str) -> None:
    """Both are products of rounded operands, which give float32; also of a backward behind a sync."""
    x, w, y = normal(40, 70), normal(70, 50, seed=1), normal(40, 50, seed=2)
    want = bits(copy(y) @ copy(w).T, copy(x).T @ copy(y))
    rounded(True)
    for synced in (False, True):
        p, q = x.clone().requires_grad_(), w.clone().requires_grad_()
        z = p @ q
        if synced:
            lt.sync()
        assert bits(*lt.autograd.grad(z, (p, q), y)) == want


CONVOLUTIONS: dict[str, tuple[int, dict[str, int]]] = {
    "plain": (3, {"padding": 1}),
    "strides": (3, {"padding": 1, "stride": 2}),
    "transposed": (3, {"stride": 2}),
    "one place": (1, {}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_and_their_gradients(name: str, way: str) -> None:
    size, steps = CONVOLUTIONS[name]
    image, filters = normal(9, 32, 8, 10), normal(32, 32, size, size, seed=1)
    f = nn.functional.conv_transpose2d if name == "transposed" else nn.functional.conv2d

    def results(prepare: Callable[[lt.Tensor], lt.Tensor]) -> list[lt.Tensor]:
        x, w = prepare(image).requires_grad_(), prepare(filters).requires_grad_()
        y = f(x, w, **steps)
        return [y, *lt.autograd.grad(y, (x, w), prepare(normal(*y.shape, seed=2)))]

    want = bits(*results(lambda x: copy(x).detach()))
    rounded(True)
    got = results(lambda x: x.clone())
    assert str(got[0].explain()).count("by AMX") == 3
    assert bits(*got) == want


def test_a_convolution_in_groups_stays_as_it_is(way: str) -> None:
    x, w = normal(2, 32, 8, 8), normal(32, 1, 3, 3, seed=1)
    want = bits(nn.functional.conv2d(x, w, groups=32))
    rounded(True)
    assert bits(nn.functional.conv2d(x, w, groups=32)) == want


def test_convolutions_of_float16_stay_as_they_are(way: str) -> None:
    x, w = normal(2, 32, 8, 8).astype("float16"), normal(32, 32, 3, 3, seed=1).astype("float16")
    functions = nn.functional.conv2d, nn.functional.conv_transpose2d
    want = bits(*(f(x, w) for f in functions))
    rounded(True)
    assert bits(*(f(x, w) for f in functions)) == want


def test_each_precision_is_of_its_own_operations(way: str) -> None:
    """A convolution of one place is one, though it is a product."""
    x, w, image = normal(40, 70), normal(70, 50, seed=1), normal(4, 32, 6, 6)
    filters = normal(32, 32, 1, 1, seed=1)
    exact = x @ w, nn.functional.conv2d(image, filters)
    want = bits(*exact)
    lt.set_float32_matmul_precision("medium")
    only = bits(x @ w, nn.functional.conv2d(image, filters))
    assert only[0] != want[0]
    assert only[1] == want[1]
    lt.set_float32_matmul_precision("highest")
    lt.set_float32_convolution_precision("medium")
    only = bits(x @ w, nn.functional.conv2d(image, filters))
    assert only[0] == want[0]
    assert only[1] != want[1]


def test_a_window_that_is_the_image_is_planned_as_such(way: str) -> None:
    """Whatever was planned for longer images at the same line."""
    w, one, long = normal(24, 17, 3), normal(1, 17, 3, seed=1), normal(1, 17, 9, seed=2)
    rounded(True)
    f = lt.jit(nn.functional.conv1d)
    want = bits(f(one, w))
    forget()
    for _ in range(3):
        f(long, w).numpy()
    assert bits(f(one, w)) == want


def test_a_checkpoint_has_the_precision_of_its_forward(way: str) -> None:
    x, w, c = normal(40, 70), normal(70, 50, seed=1), normal(40, 50, seed=2)

    def gradient(after: bool, wrap: Callable[..., lt.Tensor]) -> list[bytes]:
        rounded(True)
        p = x.clone().requires_grad_()
        y = wrap(lambda t: lt.tanh(t @ w), p)
        rounded(after)
        return bits(*lt.autograd.grad(y, p, c))

    want = gradient(True, lambda f, p: f(p))
    for after in (True, False):
        assert gradient(after, lt.utils.checkpoint.checkpoint) == want


def test_a_block_of_inference_leaves_what_is_set_in_it(way: str) -> None:
    for allowed in (True, False):
        with lt.autograd.inference_mode():
            rounded(allowed)
        assert local.trace.mode.rounded == FIRST[0].rounded == (("convolutions", "products") if allowed else ())
        assert local.trace.mode.grad
        assert not local.trace.mode.inference


def test_a_function_that_was_compiled_before(way: str) -> None:
    f, x, w = lt.jit(lambda x, w: lt.relu(x @ w)), normal(40, 70), normal(70, 50, seed=1)
    exact = bits(f(x, w))
    for _ in range(4):
        assert bits(f(x, w)) == exact
    rounded(True)
    other = bits(f(x, w))
    assert other != exact
    for _ in range(4):
        assert bits(f(x, w)) == other
    rounded(False)
    assert bits(f(x, w)) == exact


def test_what_was_recorded_before_keeps_its_precision(way: str) -> None:
    x, w = normal(40, 70), normal(70, 50, seed=1)
    exact = bits(x @ w)
    before = x @ w
    rounded(True)
    after = x @ w
    assert bits(before) == exact
    assert bits(after) != exact


def test_threads(way: str) -> None:
    """Those that begin later have the precision; one that runs keeps its own."""
    x, w = normal(40, 70), normal(70, 50, seed=1)
    exact = bits(x @ w)
    ready, go, found = threading.Event(), threading.Event(), dict[str, list[bytes]]()

    def running() -> None:
        x.sum().numpy()
        ready.set()
        go.wait(60)
        found["running"] = bits(x @ w)

    def later() -> None:
        found["later"] = bits(x @ w)

    first = threading.Thread(target=running)
    first.start()
    ready.wait(60)
    rounded(True)
    second = threading.Thread(target=later)
    second.start()
    second.join()
    go.set()
    first.join()
    assert found["running"] == exact
    assert found["later"] == bits(x @ w) != exact
    rounded(False)
    third = threading.Thread(target=later)
    third.start()
    third.join()
    assert found["later"] == exact


def test_a_thread_that_runs_changes_one_precision_alone(way: str) -> None:
    ready, go, found = threading.Event(), threading.Event(), list[tuple[str, ...]]()

    def running() -> None:
        assert not local.trace.mode.rounded
        ready.set()
        go.wait(60)
        lt.set_float32_convolution_precision("medium")
        found.append(local.trace.mode.rounded)

    thread = threading.Thread(target=running)
    thread.start()
    ready.wait(60)
    lt.set_float32_matmul_precision("medium")
    go.set()
    thread.join()
    assert found == [("convolutions",)]


def test_without_the_registers_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, image = normal(40, 70), normal(70, 50, seed=1), normal(2, 16, 8, 8)
    filters = normal(16, 16, 2, 2, seed=1)
    monkeypatch.setattr(pair_products, "dot_products", lambda: "")
    want = bits(x @ w, nn.functional.conv2d(image, filters))
    rounded(True)
    assert bits(x @ w, nn.functional.conv2d(image, filters)) == want


def test_a_region_and_a_block_without_gradients_leave_it(way: str) -> None:
    rounded(True)
    with lt.no_grad(), lt.amp.autocast("cpu"):
        assert local.trace.mode.rounded == ("convolutions", "products")
        lt.set_float32_matmul_precision("high")
    assert local.trace.mode.rounded == FIRST[0].rounded == ("convolutions",)


def test_another_word() -> None:
    with pytest.raises(
        ValueError, match=r"^set_float32_matmul_precision: 'low' is none of 'highest', 'high', 'medium'$"
    ):
        lt.set_float32_matmul_precision("low")
    assert lt.get_float32_matmul_precision() == "highest"
