"""`jit`: calls that come again run no Python, and mean what the function means."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn, optim
from lazyt.config import general
from lazyt.errors import LazytWarning, NotSupportedError
from tests.support.jitted import X8, Counted, W, array, same, settled

B = array(8)
MODEL = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))


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
    found, wanted, ran = settled(FUNCTIONS[name], lambda: [(lt.asarray(X8),)])
    same(found, wanted)
    assert ran == 0


@pytest.mark.parametrize("name", FUNCTIONS)
def test_pending_arguments_and_several_calls_a_program(name):
    def calls():
        x = lt.asarray(X8)
        return [(x,), (x * 2,), (x * 3,), (x,)]

    found, wanted, ran = settled(FUNCTIONS[name], calls)
    same(found, wanted)
    assert ran == 0


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
        with lt.eager():
            assert f(np.ones(2, np.float32)).tolist() == [2.0, 2.0]
    assert set(seen) == {lt.Tensor}


def test_what_is_no_function_is_refused():
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
    hook = (
        nn.modules.module.register_module_forward_hook(lambda m, args, out: out * 2) if hasattr(nn, "modules") else None
    )
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


def test_objects_among_the_arguments_die():
    class Settings:
        k = 2.0

    f = lt.jit(lambda x, s: x * s.k)
    s = Settings()
    for _ in range(4):
        assert f(lt.ones(1), s).item() == 2.0
    dead = weakref.ref(s)
    del s
    gc.collect()
    assert dead() is None
    assert not f._entries


@lt.jit
def _pickled(x):
    return x + 1


def test_it_is_pickled_by_its_name():
    assert pickle.loads(pickle.dumps(_pickled)) is _pickled
    model = copy.deepcopy(lt.jit(nn.Linear(2, 2)))
    assert model(lt.ones(2)).shape == (2,)


def test_what_changes_at_each_call_is_told():
    class Counter:
        n = 0

    state = Counter()

    @lt.jit
    def f(x):
        state.n += 1
        return x + state.n

    def forty():
        return [f(lt.zeros(1)).item() for _ in range(40)]

    with pytest.warns(LazytWarning, match="jit: .*f is called each time: an attribute of a Counter changes from call"):
        found = forty()
    assert found == [*range(1, 41)]


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


# What differs -> a function that reads something unseen: an attribute of lazyt's own module.
UNSEEN = {
    "steps": lambda x: x + 1 if lt.unseen == 1 else x * 2,
    "numbers": lambda x: x * (lt.unseen + 0.5),
    "constants": lambda x: x + lt.asarray([1.0, lt.unseen]),
    "results": lambda x: (x + 1, {"n": lt.unseen}),
}


def test_verify_finds_what_guards_do_not_see(monkeypatch):
    for what, f in UNSEEN.items():
        jitted = lt.jit(f)

        def call(verify, unseen, jitted=jitted):
            monkeypatch.setitem(general, "verify", verify)
            monkeypatch.setattr(lt, "unseen", unseen, raising=False)
            lt.sync()
            jitted(lt.ones(2))

        for k in range(6):
            call(k > 4, 1)
        with pytest.raises(NotSupportedError, match=f"recorded other {what} than before with the same arguments"):
            call(True, 2)
        call(True, 1)


def test_verify_finds_a_write_to_another_argument(monkeypatch):
    def f(x, y):
        x, y = (x, y) if lt.unseen == 1 else (y, x)
        x += 1
        return x * 2, y * 2

    jitted = lt.jit(f)

    def call(verify, unseen):
        monkeypatch.setitem(general, "verify", verify)
        monkeypatch.setattr(lt, "unseen", unseen, raising=False)
        x, y = lt.ones(2), lt.zeros(2)
        lt.sync()
        jitted(x, y)

    for k in range(6):
        call(k > 4, 1)
    with pytest.raises(NotSupportedError, match="recorded other steps than before"):
        call(True, 2)


def test_a_function_of_few_operations_is_called_plainly():
    f = lt.jit(lambda x: x * 2 + 1)
    for _ in range(4):
        assert f(lt.ones(2)).tolist() == [3.0, 3.0]
    assert "1 calls remembered; it is called plainly, which takes no longer" in repr(f)


def test_another_profiler_keeps_it_from_being_remembered():
    f, seen = lt.jit(lambda x: lt.tanh(x) * 2), []
    sys.setprofile(lambda *event: seen.append(event[1]))
    try:
        for _ in range(3):
            f(lt.ones(1)).tolist()
            lt.sync()
    except LazytWarning as warning:
        assert "it runs under a profiler" in str(warning)  # noqa: PT017 - raised by any of the calls
    finally:
        sys.setprofile(None)
    assert seen
    assert "0 calls remembered; the last one was not: it runs under a profiler" in repr(f)


def test_profile_and_trace_functions_are_as_before():
    f = lt.jit(lambda x: lt.tanh(x) * 2)
    before = sys.gettrace()
    for _ in range(3):
        f(lt.ones(1)).tolist()
        assert sys.getprofile() is None
        assert sys.gettrace() is before


def test_a_long_loop_is_one_call():
    def loop(x):
        for _ in range(3000):
            x = lt.tanh(x) * 1.5
        return x

    found, wanted, ran = settled(loop, lambda: [(lt.asarray(X8),)], again=1)
    same(found, wanted)
    assert ran == 0


def test_what_the_collector_calls_is_not_the_functions() -> None:
    called = []

    def hear(*_: Any) -> None:
        called.append(time.perf_counter())

    @lt.jit
    def f(x: Any) -> Any:
        for _ in range(200):
            x = x + [1, [2]][0]
        return x

    before = gc.get_threshold()
    gc.callbacks.append(hear)
    gc.set_threshold(1, 1, 1)
    try:
        for _ in range(3):
            assert f(lt.zeros(2)).tolist() == [200, 200]
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(hear)
    assert gc.isenabled()
    assert called
    assert "each time" not in repr(f)


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
