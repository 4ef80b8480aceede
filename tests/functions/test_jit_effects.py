"""`jit` with gradients, modes, transformations and writes; and functions that it calls each time."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn, optim
from lazyt.errors import LazytWarning
from lazyt.tracing import trace
from tests.support.jitted import X8, Counted, W, array, same

# --- gradients, modes, transformations


def test_gradients_pass_through():
    f = lt.jit(lambda x, w: lt.tanh(x @ w))
    for _ in range(4):
        x, w = lt.tensor(X8, requires_grad=True), lt.tensor(W.numpy(copy=True), requires_grad=True)
        (f(x, w) ** 2).sum().backward()
        found = x.grad, w.grad
        a, b = lt.tensor(X8, requires_grad=True), lt.tensor(W.numpy(copy=True), requires_grad=True)
        (lt.tanh(a @ b) ** 2).sum().backward()
        same(found, (a.grad, b.grad))
        lt.sync()


def test_gradients_of_what_is_read():
    w = lt.tensor(array(8), requires_grad=True)
    f = lt.jit(lambda x: (x * w).sum())
    for _ in range(5):
        w.grad = None
        f(lt.asarray(X8)).backward()
        np.testing.assert_allclose(w.grad.numpy(), X8.sum(0), rtol=1e-5)


def test_grad_mode_is_part_of_the_place():
    w = lt.tensor(array(8), requires_grad=True)
    f = lt.jit(lambda x: x * w)
    for _ in range(4):
        assert f(lt.ones(8)).requires_grad
        with lt.no_grad():
            assert not f(lt.ones(8)).requires_grad
        lt.sync()
        with lt.no_grad():
            assert not f(lt.ones(8)).requires_grad
        assert f(lt.ones(8)).requires_grad


def test_transformations_of_jitted_functions():
    f = lt.jit(lambda x: (x**3).sum())
    x = lt.asarray(X8)
    for _ in range(4):
        same(lt.grad(f)(x), lt.grad(f.__wrapped__)(x))
        same(lt.vmap(f)(x), lt.vmap(f.__wrapped__)(x))
        same(lt.vmap(lt.grad(f))(x), lt.vmap(lt.grad(f.__wrapped__))(x))
        same(lt.hessian(f)(x[0]), lt.hessian(f.__wrapped__)(x[0]))
        lt.sync()


def test_jit_in_jit():
    inner = lt.jit(lambda x: x * 2)
    c = Counted(lambda x: inner(x) + inner(x + 1))
    rounds = []
    for _ in range(8):
        found = c.jitted(lt.asarray(X8))
        lt.sync()
        same(found, lt.asarray(X8) * 2 + (lt.asarray(X8) + 1) * 2)
        rounds.append(c.ran)
    assert rounds[-1] == rounds[4]


def test_autocast():
    f = lt.jit(lambda x: x @ W)
    x = lt.asarray(X8)
    for _ in range(4):
        with lt.amp.autocast("cpu", lt.bfloat16):
            assert f(x).dtype == lt.bfloat16
        assert f(x).dtype == lt.float32
        lt.sync()


def test_eager_mode():
    f = lt.jit(lambda x: x + 1)
    for _ in range(4):
        with lt.eager():
            y = f(lt.ones(2))
            assert not y.is_pending
        assert f(lt.ones(2)).tolist() == [2.0, 2.0]


# --- writes


@pytest.fixture
def alone():
    """No second thread has recorded: else what a function writes is written by its Python."""
    before = trace.several[:]
    trace.several.clear()
    yield
    trace.several[:] = before


def test_arguments_are_written(alone):
    def write(cache, row, at):
        cache[at] = row
        cache += 1
        return cache.sum()

    c = Counted(write)
    found, wanted = lt.zeros((4, 8)), lt.zeros((4, 8))
    rounds = []
    for at in [0, 1, 2, 3] * 5:
        row = lt.asarray(array(8))
        a = c.jitted(found, row, at)
        lt.sync()
        same([a, found], [write(wanted, row, at), wanted])
        assert found._version == wanted._version
        lt.sync()
        rounds.append(c.ran)
    assert rounds[-1] == rounds[15]


def test_a_written_argument_and_its_views():
    f = lt.jit(lambda x: x.__imul__(2))
    for _ in range(5):
        x = lt.asarray(X8)
        view, copy = x[1:], x + 0
        y = f(x)
        assert y is x
        same([x, view, copy], [lt.asarray(X8 * 2), lt.asarray(X8[1:] * 2), lt.asarray(X8)])
        lt.sync()


def test_old_values_stay_where_they_were_read():
    f = lt.jit(lambda x: x.__iadd__(1))
    x = lt.zeros(3)
    for k in range(6):
        before = x * 1
        f(x)
        after = x * 1
        f(x)
        assert (before.tolist(), after.tolist(), x.tolist()) == ([2.0 * k] * 3, [2.0 * k + 1] * 3, [2.0 * k + 2] * 3)


def test_running_statistics(alone):
    a, b = nn.BatchNorm1d(8), nn.BatchNorm1d(8)
    c = Counted(lambda x: a(x))
    for k in range(8):
        x = lt.asarray(array(6, 8))
        same(c.jitted(x), b(x))
        lt.sync()
        same(dict(a.state_dict()), dict(b.state_dict()))
        if k == 4:
            before = c.ran
    assert c.ran == before


# --- what is called each time


@pytest.mark.parametrize(
    "read",
    [
        lambda x, w: x if x.sum() > 0 else -x,
        lambda x, w: x * float(w.sum()),
        lambda x, w: x * w.tolist()[0],
        lambda x, w: x + np.asarray(w),
        lambda x, w: x[lt.nonzero(w)[0]],
    ],
)
def test_a_function_that_reads_values_is_called_each_time(read):
    w = lt.ones(2)
    lt.sync()
    f = lt.jit(lambda x: read(x, w))
    f(lt.ones(2))
    with pytest.warns(LazytWarning, match=r"jit: .* called each time: it reads a value at .*test_jit_effects.py:\d+"):
        f(lt.ones(2))
    for k in range(6):
        x = lt.full(2, 3.0 - k)
        same(f(x), read(x, w))
        w += 1
        lt.sync()
    assert "reads a value" in repr(f)


def test_a_function_that_draws_is_called_each_time():
    for draw in (lambda x: x + lt.random.random(2), lambda x: nn.Dropout(0.5)(x)):
        f = lt.jit(draw)
        f(lt.ones(2))
        with pytest.warns(LazytWarning, match="is called each time: it draws random numbers at .*test_jit_effects.py"):
            f(lt.ones(2))
        for _ in range(4):
            lt.random.seed(3)
            found = [f(lt.ones(2)).tolist() for _ in range(2)]
            lt.random.seed(3)
            assert found == [draw(lt.ones(2)).tolist() for _ in range(2)]


def test_a_function_that_keeps_values_is_called_each_time():
    kept = []

    def keep(x):
        y = x + 1
        kept.append(y)
        return y * 2

    f = lt.jit(keep)
    f(lt.ones(2))
    with pytest.warns(LazytWarning, match="it keeps a value in something else than its results, recorded at"):
        f(lt.ones(2))
    for k in range(4):
        f(lt.full(2, float(k)))
        lt.sync()
    assert [y.tolist()[0] for y in kept] == [2.0, 2.0, 1.0, 2.0, 3.0, 4.0]


def test_a_training_step_is_called_each_time():
    def train(wrap):
        lt.random.seed(0)
        model = nn.Linear(3, 1)
        opt = optim.Adam(model.parameters(), lr=0.1)

        def step(x):
            loss = (model(x) ** 2).mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
            return loss

        step = wrap(step)
        losses = [step(lt.asarray(X8[:, :3])).item() for _ in range(8)]
        return losses, model.weight.detach().numpy().tolist()

    with pytest.warns(
        LazytWarning, match="writes into a tensor with gradients that it did not make, at .*test_jit_effects.py"
    ):
        found = train(lt.jit)
    assert found == train(lambda f: f)


def test_what_is_seen_inside_of_another_jit():
    inner = lt.jit(lambda x: x + lt.random.random(2))
    outer = lt.jit(lambda x: inner(x) * 2)
    with pytest.warns(LazytWarning, match="draws random numbers"):
        found = {tuple(outer(lt.ones(2)).tolist()) for _ in range(6)}
    assert len(found) == 6


def test_custom_functions_and_prints_are_called_each_time():
    called = []

    class Double(lt.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            called.append(1)
            return g * 2

    f = lt.jit(lambda x: Double.apply(x))
    for k in range(5):
        x = lt.ones(2).requires_grad_()
        f(x).sum().backward()
        assert x.grad.tolist() == [2.0, 2.0]
        assert len(called) == k + 1
    assert "custom function" in repr(f)
    printed = lt.jit(lambda x: [lt.debug.print("{}", x), x + 1][1])
    for _ in range(4):
        printed(lt.ones(1))
        lt.sync()
    assert "effect" in repr(printed)


def test_results_that_share_memory_keep_doing_so():
    def f(x):
        y = x + 1
        return y, y[0]

    j = lt.jit(f)
    for _ in range(5):
        y, first = j(lt.ones((2, 2)))
        first += 1
        assert y.tolist() == [[3.0, 3.0], [2.0, 2.0]]
    assert "share memory" in repr(j)
