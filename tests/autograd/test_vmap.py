"""`vmap` against the loop: axes, nests, randomness, compositions, what it refuses; and that it is one plan."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.errors import AutogradError, AxisError, DTypeError, NotSupportedError, ShapeError, SyncError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((5, 4))
W = RNG.standard_normal((4, 3))


def close(a: object, b: object) -> None:
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-9, atol=1e-12)


def loop(f, *arrays: np.ndarray) -> np.ndarray:
    """f of each first index, on tensors."""
    return np.stack([np.asarray(f(*(lt.asarray(x) for x in lane))) for lane in zip(*arrays, strict=True)])


def score(w, x):
    return lt.tanh(x @ w).sum() ** 2


# Axes


@pytest.mark.parametrize("in_axis", [0, 1, 2, -1])
@pytest.mark.parametrize("out_axis", [0, 1, -1])
def test_axes(in_axis: int, out_axis: int) -> None:
    a = RNG.standard_normal((2, 3, 4))
    got = lt.vmap(lambda x: lt.cumsum(x, axis=0) * 2, in_axes=in_axis, out_axes=out_axis)(lt.asarray(a))
    want = np.stack([np.cumsum(x, 0) * 2 for x in np.moveaxis(a, in_axis, 0)], out_axis)
    assert got.shape == want.shape
    close(got, want)


def test_nests_of_arguments_and_results() -> None:
    def f(p, x, *, bias):
        return {"y": x @ p["w"] + bias, "n": (p["s"], x)}

    p = {"w": lt.asarray(W), "s": lt.asarray(X[:, 0])}
    got = lt.vmap(f, in_axes=({"w": None, "s": 0}, 0))(p, X, bias=X[:, :3])
    close(got["y"], X @ W + X[:, :3])
    close(got["n"][0], X[:, 0])
    close(got["n"][1], X)
    got = lt.vmap(lambda x: (x, {"a": x}), out_axes=(1, {"a": 0}))(X)
    assert got[0].shape == (4, 5) and got[1]["a"].shape == (5, 4)
    assert lt.vmap(lambda x, k: (x, None), in_axes=(0, None))(X, "word")[1] is None


def test_what_all_lanes_share() -> None:
    got = lt.vmap(lambda x, c: (x, c, 2.0), in_axes=(0, None), out_axes=(0, None, 0))(X, lt.asarray(W))
    assert got[1].shape == W.shape and got[2].shape == (5,)
    assert lt.vmap(lambda c: c * 2, in_axes=None, axis_size=3)(lt.asarray(W)).shape == (3, *W.shape)
    with pytest.raises(AutogradError, match=r"out_axes is None for result 0, of shape \(4,\), but its lanes differ"):
        lt.vmap(lambda x: x, out_axes=None)(X)


def test_no_lanes_at_all() -> None:
    got = lt.vmap(lambda x: (lt.tanh(x @ lt.asarray(W)), x.sum()))(lt.zeros((0, 4), dtype=lt.float64))
    assert [np.asarray(y).shape for y in got] == [(0, 3), (0,)]


def test_other_numbers_of_lanes_take_the_same_plan() -> None:
    f = lt.vmap(lt.grad(score), in_axes=(None, 0))
    for n in (2, 3, 4, 7):
        x = RNG.standard_normal((n, 4))
        close(f(lt.asarray(W), lt.asarray(x)), loop(lambda a: lt.grad(score)(lt.asarray(W), a), x))


# Compositions


def test_per_sample_gradients_and_gradients_of_lanes() -> None:
    per_sample = lt.vmap(lt.grad(score), in_axes=(None, 0))(lt.asarray(W), lt.asarray(X))
    close(per_sample, loop(lambda x: lt.grad(score)(lt.asarray(W), x), X))
    total = lt.grad(lambda w: lt.vmap(score, in_axes=(None, 0))(w, lt.asarray(X)).sum())(lt.asarray(W))
    close(total, np.asarray(per_sample).sum(0))


@pytest.mark.parametrize("synced", [False, True])
def test_backward_through_lanes(synced: bool) -> None:
    w = lt.tensor(W, requires_grad=True)
    losses = lt.vmap(score, in_axes=(None, 0))(w, lt.asarray(X))
    norms = lt.vmap(lt.grad(score), in_axes=(None, 0))(w, lt.asarray(X))
    total = losses.sum() + (norms * norms).sum()
    if synced:
        total.item()
    total.backward()

    def plain(w):
        rows = [score(w, lt.asarray(x)) + (lt.grad(score)(w, lt.asarray(x)) ** 2).sum() for x in X]
        return lt.stack(rows).sum()

    close(w.grad, lt.grad(plain)(lt.asarray(W)))


def test_lanes_of_lanes() -> None:
    pairs = lt.vmap(lt.vmap(score, in_axes=(None, 0)), in_axes=(0, None))
    ws = RNG.standard_normal((2, 4, 3))
    close(pairs(lt.asarray(ws), lt.asarray(X)), [[score(lt.asarray(w), lt.asarray(x)) for x in X] for w in ws])
    outer = lt.vmap(lambda x: lt.vmap(lambda y: x * y)(lt.asarray(X[0])).sum() + x)
    close(outer(lt.asarray(X[:, 0])), X[:, 0] * X[0].sum() + X[:, 0])


def test_inner_lanes_see_outer_gradients() -> None:
    def f(x):
        return lt.vmap(lambda y: lt.grad(lambda z: (z * x).sum() ** 2)(y))(lt.asarray(X)).sum()

    def plain(x):
        return (2 * (lt.asarray(X) @ x)[:, None] * x).sum()

    x = lt.asarray(X[1])
    close(lt.grad(f)(x), lt.grad(plain)(x))
    close(lt.jvp(f, (x,), (x,))[1], lt.jvp(plain, (x,), (x,))[1])


def test_jvp_in_lanes_and_lanes_in_jvp() -> None:
    w, t = lt.asarray(W), lt.asarray(RNG.standard_normal((5, 4)))
    got = lt.vmap(lambda x, v: lt.jvp(lambda y: score(w, y), (x,), (v,))[1])(lt.asarray(X), t)
    close(got, loop(lambda x, v: lt.jvp(lambda y: score(w, y), (x,), (v,))[1], X, np.asarray(t)))
    both = lt.jvp(lt.vmap(lambda x: score(w, x)), (lt.asarray(X),), (t,))
    close(both[1], got)


def test_writes_inside() -> None:
    def f(x):
        y = lt.zeros(4, dtype=lt.float64)
        y[1:] = x[1:]
        z = lt.tensor([1.0, 2.0], dtype=lt.float64)
        z[0] = x[0]
        x += 1
        return y * 2, z, x

    y, z, x = lt.vmap(f)(lt.asarray(X))
    close(y, np.concatenate([np.zeros((5, 1)), X[:, 1:]], 1) * 2)
    close(z, np.stack([X[:, 0], np.full(5, 2.0)], 1))
    close(x, X + 1)


def test_it_is_one_program() -> None:
    w, x = lt.asarray(W), lt.asarray(X)
    f = lt.vmap(lt.grad(score), in_axes=(None, 0))
    lt.sync()
    with lt.expect(syncs=0):
        y = f(w, x)
    with lt.expect(syncs=1):
        y.numpy()
    assert lt.last_sync().launches < 10


def test_modules() -> None:
    lt.random.seed(0)
    model = lt.nn.Sequential(lt.nn.Linear(4, 6), lt.nn.LayerNorm(6), lt.nn.GELU(), lt.nn.Linear(6, 2))
    x = lt.asarray(X.astype(np.float32))
    got = lt.vmap(model)(x)
    np.testing.assert_allclose(got.detach().numpy(), model(x).detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("own", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions(own: tuple[bool, bool], groups: int) -> None:
    """Filters of each lane's own, and their gradients."""
    x, w = RNG.standard_normal((3, 2, 4, 6)), RNG.standard_normal((3, 4, 4 // groups, 3))

    def f(x, w):
        return lt.nn.functional.conv1d(x, w, stride=2, padding=1, groups=groups)

    def g(x, w):
        return lt.grad(lambda a, b: (f(a, b) ** 2).sum(), argnums=(0, 1))(x, w)

    axes = tuple(0 if o else None for o in own)
    given = [lt.asarray(v if o else v[0]) for v, o in zip((x, w), own, strict=True)]
    lanes = [v if o else np.stack([v[0]] * 3) for v, o in zip((x, w), own, strict=True)]
    close(lt.vmap(f, in_axes=axes)(*given), loop(f, *lanes))
    for k, got in enumerate(lt.vmap(g, in_axes=axes)(*given)):
        close(got, loop(lambda a, b, k=k: g(a, b)[k], *lanes))


def test_attention() -> None:
    q = RNG.standard_normal((3, 2, 4, 5))

    def f(q):
        return lt.nn.functional.scaled_dot_product_attention(q, q * 2, q + 1, is_causal=True)

    close(lt.vmap(f)(lt.asarray(q)), f(lt.asarray(q)))
    g = lt.grad(lambda q: (f(q) ** 2).sum())
    close(lt.vmap(g)(lt.asarray(q)), loop(g, q))


# Random numbers


def test_randomness() -> None:
    x = lt.zeros((4, 3))

    def draw(a):
        return a + lt.random.normal(shape=(3,))

    lt.random.seed(1)
    different = lt.vmap(draw, randomness="different")(x).numpy()
    lt.random.seed(1)
    np.testing.assert_array_equal(different, lt.random.normal(shape=(4, 3)).numpy())
    lt.random.seed(1)
    same = lt.vmap(draw, randomness="same")(x).numpy()
    lt.random.seed(1)
    np.testing.assert_array_equal(same, np.stack([lt.random.normal(shape=(3,)).numpy()] * 4))
    with pytest.raises(AutogradError, match=r"test_vmap.py:\d+; pass randomness='different'"):
        lt.vmap(draw)(x)
    with pytest.raises(AutogradError, match="must be one of 'error', 'different', 'same', not 'none'"):
        lt.vmap(draw, randomness="none")


def test_randomness_of_lanes_of_lanes() -> None:
    def draw(a):
        return a + lt.random.random()

    def rows(outer: str, inner: str) -> int:
        f = lt.vmap(lt.vmap(draw, randomness=inner), randomness=outer)
        return len(np.unique(f(lt.zeros((3, 4))).numpy()))

    assert rows("different", "different") == 12
    assert rows("different", "same") == 3
    assert rows("same", "different") == 4
    assert rows("same", "same") == 1


def test_dropout_differs_between_lanes_and_not_between_passes() -> None:
    x = lt.ones((3, 64))
    f = lt.vmap(lt.grad(lambda a: lt.nn.functional.dropout(a, 0.5).sum()), randomness="different")
    g = f(x).numpy()
    assert set(np.unique(g)) == {0.0, 2.0}
    assert len({row.tobytes() for row in g}) == 3


# What it refuses


def test_sizes_and_axes() -> None:
    f = lt.vmap(lambda a, b: a + b)
    with pytest.raises(ShapeError, match=r"the numbers of lanes differ: 5 \(axis 0 of \(5, 4\)\), 4 \(axis 0"):
        f(X, W)
    with pytest.raises(AxisError, match=r"in_axes 2 is out of range for an argument of shape \(5, 4\)"):
        lt.vmap(lambda a: a, in_axes=2)(X)
    with pytest.raises(AxisError, match=r"out_axes 2 is out of range for a result of 2 axes"):
        lt.vmap(lambda a: a, out_axes=2)(X)
    with pytest.raises(ShapeError, match=r"in_axes is 0 for the number 2\.0, which has no lanes"):
        f(X, 2.0)
    with pytest.raises(ShapeError, match="in_axes has 1 entries for 2 positional arguments"):
        lt.vmap(lambda a, b: a, in_axes=(0,))(X, X)
    with pytest.raises(ShapeError, match=r"in_axes \(0, 0, 0\) does not fit an argument of type 'list'"):
        lt.vmap(lambda a: a, in_axes=((0, 0, 0),))([X, X])
    with pytest.raises(ShapeError, match=r"out_axes \(0, 0\) does not fit one result of shape"):
        lt.vmap(lambda a: a, out_axes=(0, 0))(X)
    with pytest.raises(ShapeError, match="axis_size is needed"):
        lt.vmap(lambda a: a, in_axes=None)(lt.asarray(X))
    with pytest.raises(ShapeError, match="axis_size is 3, but the arguments have 5 lanes"):
        lt.vmap(lambda a: a, axis_size=3)(X)
    with pytest.raises(DTypeError, match="must return tensors, or nests of them, not 'str'"):
        lt.vmap(lambda a: "a")(X)


def in_thread(f):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(f).result()


@pytest.mark.parametrize(
    ("f", "cause"),
    [
        (lambda x: x if x.sum() > 0 else -x, r"bool\(\)"),
        (lambda x: float(x[0]), r"float\(\)"),
        (lambda x: x[x > 0], ""),
        (lambda x: lt.asarray(np.asarray(x)), ""),
        (lambda x: in_thread(lambda: (x * 2).tolist()), "another thread"),
        (lambda x: x + in_thread(lambda: (x * 2).detach().numpy()), "another thread"),
        (lambda x: x + in_thread(lambda: x * 2), "another thread"),
    ],
)
def test_values_cannot_be_read(f, cause: str) -> None:
    with pytest.raises(
        SyncError, match=rf"vmap: the function reads a value \(cause: {cause}.*test_vmap.py:\d+\) inside"
    ):
        lt.vmap(f)(lt.asarray(X))
    close(lt.vmap(lambda x: x + 1)(lt.asarray(X)), X + 1)


def test_another_thread_reads_what_lanes_have_in_common() -> None:
    two = lt.asarray(X)[0] * 2
    close(lt.vmap(lambda x: x + lt.asarray(in_thread(two.numpy)))(lt.asarray(X)), X + 2 * X[0])


def test_values_must_not_outlive_the_function() -> None:
    kept = []
    with pytest.raises(AutogradError, match=r"a value of one lane \(float64 \(4,\), recorded at .*\) outlives"):
        lt.vmap(lambda x: kept.append(x * 2))(lt.asarray(X))
    kept.clear()
    out, pending = lt.zeros(4), lt.ones(4) * 2

    def write(to):
        def f(x):
            to[...] = x
            return x

        return f

    for to in (out, pending, out[1:]):
        with pytest.raises(AutogradError, match="a tensor made outside the function is written with a value of one"):
            lt.vmap(write(to))(lt.ones((3, *to.shape)))
    assert out.tolist() == [0] * 4 and pending.tolist() == [2] * 4
    with pytest.raises(ZeroDivisionError):
        lt.vmap(lambda x: (write(out)(x), 1 // 0))(lt.ones((3, 4)))
    assert out.tolist() == [0] * 4
    count = lt.zeros(())
    lt.vmap(lambda x: (count.__iadd__(1), x)[1])(lt.ones(3))
    assert count.item() == 1, "what all lanes share may be written"


def test_gradients_in_eager_mode_are_those_of_all_lanes() -> None:
    rng = np.random.default_rng(0)
    values = [rng.normal(size=shape) for shape in ((4, 3), (3, 3), (3,))]

    def gradients(eager: bool) -> list[Any]:
        x, w, b = (lt.tensor(v, requires_grad=True) for v in values)
        with lt.eager() if eager else contextlib.nullcontext():
            y = lt.vmap(lambda r: (r[None] * lt.sigmoid(r[None] @ w) + b * b)[0])(x)
        (y * y).sum().backward()
        return [t.grad.numpy() for t in (x, w, b)]  # type: ignore[union-attr]

    for got, expected in zip(gradients(True), gradients(False), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_a_returned_value_of_one_lane_must_not_be_held_elsewhere() -> None:
    held: list[Any] = []

    def f(row: Any) -> Any:
        held.append(row * 2)
        return held[0]

    with pytest.raises(lt.AutogradError, match=r"a value of one lane \(float64 \(4,\), recorded at .* outlives"):
        lt.vmap(f)(lt.asarray(X))


def test_functions_of_numpy_and_effects(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(
        NotSupportedError, match=r"call \(recorded at .*test_vmap.py:\d+\) in vmap, because a function of"
    ):
        lt.vmap(lambda x: np.i0(x))(lt.asarray(X))
    with pytest.raises(NotSupportedError, match=r"effect \(recorded at .*\) in vmap, because an effect"):
        lt.vmap(lambda x: (lt.debug.print("{}", x), x)[1])(lt.asarray(X))
    lt.sync()
    assert capsys.readouterr().out == "", "nothing is printed for a lane"


def test_eager_mode_and_threads() -> None:
    with lt.eager():
        close(lt.vmap(lambda x: lt.tanh(x) * 2)(lt.asarray(X)), np.tanh(X) * 2)


def test_an_index_out_of_range_names_its_line() -> None:
    x, at = lt.asarray(X), lt.asarray([0, 1, 9, 2, 3])
    y = lt.vmap(lambda a, i: a[i] * 2)(x, at)
    with pytest.raises(lt.IndexOutOfRange, match=r"test_vmap.py:\d+"):
        y.numpy()
    close(lt.vmap(lambda a, i: a[i] * 2)(x, at % 4), X[np.arange(5), [0, 1, 1, 2, 3]] * 2)


def test_what_is_pending_can_be_seen() -> None:
    y = lt.vmap(lt.grad(score), in_axes=(None, 0))(lt.asarray(W), lt.asarray(X))
    assert "vmap" in str(lt.pending()) and "lane" in str(lt.pending())
    assert "matmul" in str(y.explain())


@pytest.mark.slow
def test_long_programs_are_not_divided_between_lanes_and_results() -> None:
    def turns(x, sin, n=1500):
        for _ in range(n):
            x = x + 0.01 * sin(x)
        return x

    x, want = lt.asarray(X), turns(X, np.sin)
    close(lt.vmap(lambda a: turns(a, lt.sin))(x), want)
    slope = np.asarray(lt.grad(lambda a: turns(a, lt.sin).sum())(x))
    close(lt.jvp(lambda a: turns(a, lt.sin), (x,), (lt.ones_like(x),))[1], slope)
    y = z = x
    for _ in range(1500):
        y = lt.vmap(lambda a: a + 0.01 * lt.sin(a))(y)
        z = lt.jvp(lambda a: a + 0.01 * lt.sin(a), (z,), (z,))[0]
    close(y, want)
    assert lt.last_sync().parts
    close(z, want)


LAYERS = {
    "Conv2d": lambda: lt.nn.Conv2d(2, 3, 3, padding=1),
    "MaxPool2d": lambda: lt.nn.MaxPool2d(2),
    "AvgPool2d": lambda: lt.nn.AvgPool2d(2),
    "GroupNorm": lambda: lt.nn.GroupNorm(2, 2),
    "BatchNorm2d": lambda: lt.nn.BatchNorm2d(2).eval(),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str) -> None:
    """Of batches: the axis of lanes is one more. Results and gradients are the loop's."""
    layer = LAYERS[name]()
    x = lt.asarray(RNG.standard_normal((3, 2, 2, 4, 4)).astype(np.float32))

    def slope(a):
        return lt.grad(lambda b: (layer(b) ** 2).sum())(a).detach()

    for f in (lambda a: layer(a).detach(), slope):
        want = np.stack([f(x[i]).numpy() for i in range(3)])
        np.testing.assert_allclose(lt.vmap(f)(x).numpy(), want, rtol=1e-4, atol=1e-5)


def test_buffers_of_layers_are_not_written_by_lanes() -> None:
    layer = lt.nn.BatchNorm1d(4)
    with pytest.raises(AutogradError, match="a tensor made outside the function is written with a value of one lane"):
        lt.vmap(layer)(lt.ones((3, 2, 4)))
    assert layer.running_mean.tolist() == [0.0] * 4


def test_hooks_inside_lanes() -> None:
    """They run once, on the gradients of a lane; from outside there are none of one lane."""

    def f(x):
        y = x * 2
        y.register_hook(lambda g: g * 10)
        return (y * y).sum()

    close(lt.vmap(lt.grad(f))(lt.asarray(X)).numpy(), 80 * X)
    w = lt.tensor(X[0], requires_grad=True)
    with pytest.raises(
        NotSupportedError, match=r"from outside a vmap through a hook inside it \(recorded at .*test_vmap"
    ):
        lt.vmap(lambda x: f(x * w))(lt.asarray(X)).sum().backward()
    w.register_hook(lambda g: g * 10)
    lt.vmap(lambda x: (x * w).sum())(lt.asarray(X)).sum().backward()
    assert w.grad is not None
    close(w.grad.numpy(), 10 * X.sum(0))
