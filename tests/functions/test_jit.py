"""`jit`: calls that come again run no Python, and mean what the function means."""

from __future__ import annotations

import functools
import gc
import threading
import weakref

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn, optim
from lazyt.config import general
from lazyt.errors import LazytWarning, NotSupportedError

RNG = np.random.default_rng(3)


def array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


class Counted:
    """A function that counts how often its Python ran."""

    def __init__(self, f) -> None:
        self.f = f
        self.calls = 0
        counted = self

        @functools.wraps(f)
        def call(*args, **kwargs):
            Counted.last = counted
            counts[counted] = counts.get(counted, 0) + 1
            return f(*args, **kwargs)

        # NOTE: what counts is not seen as something that the function reads.
        counts: dict = _Unseen()
        self.counts = counts
        self.jitted = lt.jit(call)

    @property
    def ran(self) -> int:
        return self.counts.get(self, 0)


class _Unseen:
    """A dictionary in slots, which guards do not look into."""

    __slots__ = ("d",)

    def __init__(self) -> None:
        self.d: dict = {}

    def get(self, k, default):
        return self.d.get(k, default)

    def __setitem__(self, k, v) -> None:
        self.d[k] = v


def ran_once_settled(f, calls, again=3):
    """The results of calls under jit and without, and how often Python ran in the last `again` rounds."""
    c = Counted(f)
    rounds = []
    for _ in range(5 + again):
        found = [c.jitted(*args) for args in calls()]
        lt.sync()
        rounds.append(c.ran)
    wanted = [f(*args) for args in calls()]
    return found, wanted, rounds[-1] - rounds[4]


def same(found, wanted):
    if isinstance(wanted, lt.Tensor):
        assert found.shape == wanted.shape
        assert found.dtype == wanted.dtype
        assert found.detach().numpy().tobytes() == wanted.detach().numpy().tobytes()
    elif isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for k in wanted:
            same(found[k], wanted[k])
    elif isinstance(wanted, list | tuple):
        assert type(found) is type(wanted)
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            same(a, b)
    else:
        assert found == wanted


W = lt.asarray(array(8, 8))
B = array(8)
MODEL = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
NORM = nn.BatchNorm1d(8)


def _loss(w, x):
    return ((x @ w) ** 2).sum()


FUNCTIONS = {
    "elementwise": lambda x: (x * 2 + 1).tanh(),
    "captured": lambda x: lt.softmax(x @ W, axis=-1),
    "host data": lambda x: x + B,
    "host data made a tensor": lambda x: x + lt.asarray(B) * lt.asarray([2.0]),
    "module": lambda x: MODEL(x),
    "gradient": lambda x: lt.grad(_loss)(W, x),
    "gradient of a module": lambda x: lt.grad(lambda y: MODEL(y).sum())(x),
    "vmap": lambda x: lt.vmap(lambda row: row / row.sum())(x),
    "views inside": lambda x: x.T.reshape(-1)[::2] + 1,
    "a view as the result": lambda x: (x + 1).T[1:],
    "writes inside": lambda x: _written(x),
    "several results": lambda x: {"a": x + 1, "b": (x.sum(), [x * 2]), "n": 3},
    "an argument as a result": lambda x: (x, x + 1),
    "several values of one operation": lambda x: lt.topk(x, 3)[1],
    "sorted": lambda x: lt.sort(x, axis=0),
    "creation": lambda x: lt.arange(8) + lt.zeros(8) + x,
    "by shape": lambda x: x[: x.shape[0] // 2].sum(axis=0),
    "no_grad inside": lambda x: _without_gradients(x),
    "nothing": lambda x: None,
}


def _written(x):
    y = x + 0
    y[1:] += y[:-1]
    y[0] = 5
    y *= 2
    return y


def _without_gradients(x):
    y = MODEL(x)
    with lt.no_grad():
        return y.sum() + x


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_call_that_comes_again_runs_no_python_and_gives_the_same(name):
    found, wanted, ran = ran_once_settled(FUNCTIONS[name], lambda: [(lt.asarray(X8),)])
    same(found, wanted)
    assert ran == 0


@pytest.mark.parametrize("name", FUNCTIONS)
def test_pending_arguments_and_several_calls_a_program(name):
    def calls():
        x = lt.asarray(X8)
        return [(x,), (x * 2,), (x * 3,), (x,)]

    found, wanted, ran = ran_once_settled(FUNCTIONS[name], calls)
    same(found, wanted)
    assert ran == 0


X8 = array(6, 8)


def test_sizes_that_come_in_turn():
    f = FUNCTIONS["captured"]
    c = Counted(f)
    rounds = []
    for n in (6, 3, 9) * 4 + (6, 9, 9, 3):
        x = lt.asarray(array(n, 8))
        same(c.jitted(x), f(x))
        lt.sync()
        rounds.append(c.ran)
    assert rounds[-1] == rounds[11]


def test_the_program_is_that_of_the_function():
    x = lt.asarray(X8)
    f = lt.jit(FUNCTIONS["module"])
    lt.sync()
    for _ in range(4):
        lt.sync()
        x + 0  # so that both begin alike
        held = f(x)
        text = str(lt.pending())
        lt.sync()
    x + 0
    for v in (x, *MODEL.parameters()):
        v + 0
    del held
    assert "linear" in text
    assert "tanh" in text
    assert "test_jit.py" in text


def test_other_arguments_than_tensors_choose_the_program():
    c = Counted(lambda x, n, *, scale=1.0, flags=(): x[:n] * scale + len(flags))
    x = lt.asarray(X8)
    rounds = []
    for n, scale in ((2, 1.0), (3, 1.0), (2, 0.0), (2, -0.0)) * 5:
        found = c.jitted(x, n, scale=scale, flags=("a",))
        lt.sync()
        same(found, x[:n] * scale + 1)
        lt.sync()
        rounds.append(c.ran)
    assert rounds[-1] == rounds[11]
    same(c.jitted(x, 2, flags=("a", "b")), x[:2] + 2)


def test_true_is_not_one():
    f = lt.jit(lambda x, n: x + n if n is not True else x)
    x = lt.asarray([1.0])
    for _ in range(3):
        assert f(x, 1).tolist() == [2.0]
        assert f(x, True).tolist() == [1.0]
        assert f(x, 1.0).tolist() == [2.0]


def test_numpy_arrays_come_as_tensors():
    seen = []
    f = lt.jit(lambda x: seen.append(type(x)) or x + 1)
    for _ in range(3):
        assert f(np.ones(2, np.float32)).tolist() == [2.0, 2.0]
    assert set(seen) == {lt.Tensor}


def test_an_argument_that_is_neither_is_refused():
    f = lt.jit(lambda x, y: x)
    with pytest.raises(TypeError, match=r"jit: an argument must be a tensor, a nest of them, or hashable, not 'set'"):
        f(lt.ones(2), {1})
    with pytest.raises(TypeError, match="jit: a function is required, not 'int'"):
        lt.jit(3)


def test_arguments_that_are_the_same_tensor_or_not():
    c = Counted(lambda x, y: x * 2 - y)
    x, y = lt.asarray(X8), lt.asarray(X8 + 1)
    for _ in range(4):
        same(c.jitted(x, x), x * 2 - x)
        same(c.jitted(x, y), x * 2 - y)
        lt.sync()
        same(c.jitted(x, y), x * 2 - y)
        lt.sync()
        same(c.jitted(y, y), y * 2 - y)
        lt.sync()


def test_one_buffer_behind_two_tensors():
    x = lt.asarray(X8)
    f = lt.jit(lambda a, b: a + b * 2)
    for _ in range(5):
        a, b = x.detach(), x.detach()
        same(f(a, b), a + b * 2)
        lt.sync()
        same(f(a, lt.asarray(X8)), a + b * 2)
        lt.sync()


# --- what the function reads


scale = 2.0
weight = lt.ones(3)
table = {"w": lt.ones(3), "n": [1.0]}


def _by_global(x):
    return x * scale + weight


def _by_helper(x):
    return _by_global(x) + table["w"] * table["n"][0]


def test_names_that_are_bound_anew_are_seen(monkeypatch):
    f = lt.jit(_by_helper)
    x = lt.ones(3)
    for k in range(12):
        if k == 4:
            monkeypatch.setitem(globals(), "scale", 3.0)
        if k == 6:
            monkeypatch.setitem(globals(), "weight", lt.zeros(3))
        if k == 8:
            monkeypatch.setitem(table, "w", lt.full(3, 7.0))
        if k == 10:
            table["n"][0] = 5.0
        same(f(x), _by_helper(x))
        lt.sync()
    table["n"][0] = 1.0
    assert "remembered" in repr(f)


def test_variables_of_enclosing_functions_are_seen():
    k, w = 1.0, lt.ones(3)

    @lt.jit
    def f(x):
        return x * k + w

    x = lt.ones(3)
    for i in range(12):
        if i == 4:
            k = 2.0
        if i == 8:
            w = w + 1
        assert f(x).tolist() == (x * k + w).tolist()
        lt.sync()


def test_values_written_in_place_are_read_anew():
    w = lt.ones(3)
    c = Counted(lambda x: x + w)
    for k in range(12):
        if k > 5:
            w += 1
        assert c.jitted(lt.zeros(3)).tolist() == w.tolist()
    assert c.ran < 8


def test_modules_are_seen_as_they_are():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4)).eval()
    f = lt.jit(model)
    x = lt.asarray(array(5, 4))
    for k in range(14):
        if k == 4:
            model[0].weight = nn.Parameter(lt.asarray(array(4, 4)))
        if k == 6:
            model[0].load_state_dict(nn.Linear(4, 4).state_dict())
        if k == 8:
            model[0] = nn.Linear(4, 4)
        if k == 10:
            model.append(nn.Tanh())
        if k == 12:
            model[2].eps = 1.0
        same(f(x), model(x))
        lt.sync()
    hook = model[0].register_forward_hook(lambda m, args, out: out * 0)
    same(f(x), model(x))
    lt.sync()
    hook.remove()
    same(f(x), model(x))
    lt.sync()
    hook = nn.modules.module.register_module_forward_hook(lambda m, args, out: out * 2) if hasattr(nn, "modules") else None
    if hook is not None:
        same(f(x), model(x))
        hook.remove()


def test_a_trained_module():
    model = nn.Linear(4, 2)
    opt = optim.Adam(model.parameters(), lr=0.1)
    f = Counted(lambda x: model(x))
    x = lt.asarray(array(5, 4))
    for k in range(12):
        loss = (model(x) ** 2).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        if k % 2:
            lt.sync()
        with lt.no_grad():
            same(f.jitted(x), model(x))
    assert f.ran < 8


def test_methods():
    class Layer:
        def __init__(self, k):
            self.k, self.w = k, lt.full(3, float(k))

        @lt.jit
        def apply(self, x):
            return x * self.k + self.w

    a, b = Layer(1), Layer(2)
    x = lt.ones(3)
    for i in range(10):
        if i == 5:
            a.k = 7
        assert a.apply(x).tolist() == [a.k + 1.0] * 3
        assert b.apply(x).tolist() == [4.0] * 3
    assert "apply" in repr(Layer.apply)


def test_what_changes_at_each_call_is_told():
    class Counter:
        n = 0

    state = Counter()

    @lt.jit
    def f(x):
        state.n += 1
        return x + state.n

    with pytest.warns(LazytWarning, match="jit: .*f is called each time: an attribute of a Counter changes from call"):
        for k in range(40):
            assert f(lt.zeros(1)).item() == k + 1


def test_tensors_die():
    f = lt.jit(lambda x: x + 1)
    x = lt.asarray(X8)
    for _ in range(4):
        y = f(x)
        lt.sync()
    dead = weakref.ref(x), weakref.ref(y)
    del x, y
    lt.ones(1) + 1
    lt.sync()
    gc.collect()
    assert [r() for r in dead] == [None, None]


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


def test_arguments_are_written():
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


def test_running_statistics():
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


def test_a_function_that_reads_values_is_called_each_time():
    w = lt.ones(2)
    lt.sync()
    for read in (lambda x: x if x.sum() > 0 else -x, lambda x: x * float(w.sum()), lambda x: x * w.tolist()[0],
                 lambda x: x + np.asarray(w), lambda x: x[lt.nonzero(w)[0]]):  # fmt: skip
        f = lt.jit(read)
        with pytest.warns(LazytWarning, match=r"jit: .* is called each time: it reads a value at .*test_jit.py:\d+"):
            f(lt.ones(2))
        for k in range(6):
            x = lt.full(2, 3.0 - k)
            same(f(x), read(x))
            w += 1
            lt.sync()
        assert "reads a value" in repr(f)


def test_a_function_that_draws_is_called_each_time():
    for draw in (lambda x: x + lt.random.random(2), lambda x: nn.Dropout(0.5)(x)):
        f = lt.jit(draw)
        with pytest.warns(LazytWarning, match="is called each time: it draws random numbers at .*test_jit.py"):
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
    with pytest.warns(LazytWarning, match="it keeps a value in something else than its results, recorded at"):
        f(lt.ones(2))
    for k in range(4):
        f(lt.full(2, float(k)))
        lt.sync()
    assert [y.tolist()[0] for y in kept] == [2.0, 1.0, 2.0, 3.0, 4.0]


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

    with pytest.warns(LazytWarning, match="writes into a tensor with gradients that it did not make, at .*test_jit.py"):
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


def test_errors_of_the_function_are_its_own():
    @lt.jit
    def f(x):
        return x @ lt.ones((3, 3))

    for _ in range(3):
        with pytest.raises(lt.errors.ShapeError, match="matmul"):
            f(lt.ones((2, 2)))
        assert f(lt.ones((2, 3))).tolist() == [[3.0] * 3] * 2


def test_the_switch(monkeypatch):
    c = Counted(lambda x: x + 1)
    rounds = []
    for k in range(8):
        monkeypatch.setitem(general, "jit", k != 7)
        assert c.jitted(lt.ones(2)).tolist() == [2.0, 2.0]
        rounds.append(c.ran)
    assert rounds[6] == rounds[4]
    assert rounds[7] == rounds[6] + 1


def test_verify_finds_what_guards_do_not_see(monkeypatch):
    state = _Unseen()
    state[0] = 1
    f = lt.jit(lambda x: x + 1 if state.get(0, 0) == 1 else x * 2)
    with pytest.raises(NotSupportedError, match="recorded other steps than before with the same arguments"):
        for k in range(8):
            monkeypatch.setitem(general, "verify", k > 4)
            state[0] = 1 + (k == 6)
            lt.sync()
            f(lt.ones(2))
    assert k == 6


def test_threads():
    f = lt.jit(lambda x: lt.tanh(x @ W).sum(axis=0))
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(40):
            x = lt.asarray(rng.standard_normal((5, 8)).astype(np.float32))
            if f(x).numpy().tobytes() != lt.tanh(x @ W).sum(axis=0).numpy().tobytes():
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_index_errors_come_at_the_line():
    f = lt.jit(lambda x, i: x[i])
    x = lt.arange(4.0)
    for k in range(6):
        i = lt.asarray([0, 9 if k % 2 else 1])
        if k % 2:
            with pytest.raises(IndexError, match="9"):
                f(x, i).tolist()
        else:
            assert f(x, i).tolist() == [0.0, 1.0]
