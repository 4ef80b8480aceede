"""When lazyt computes, and when it does not: every sync point of docs/when-does-it-compute.md, and what is none."""

from __future__ import annotations

import copy
import gc
import operator
import pickle
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu import engine
from lazyt.errors import IndexOutOfRange, SyncError
from lazyt.functions import searching, sets
from lazyt.runtime import memory
from lazyt.runtime.sync import counters
from lazyt.tracing import record as recording
from lazyt.tracing.printer import site_text
from lazyt.tracing.trace import local

DOC = Path(__file__).parents[2] / "docs" / "when-does-it-compute.md"


def work() -> tuple[int, int, int, int]:
    """What has been done so far: syncs, plans, kernels, compiles."""
    return counters.syncs, counters.plans, counters.kernels, engine.counters.compiles


def here(f) -> str:
    """Where a function written on one line stands."""
    return site_text(recording.Site(f.__code__, 0))


def vector() -> lt.Tensor:
    return lt.asarray([1.0, 2.0, 3.0]) * 2.0


# --- nothing runs before a sync --------------------------------------------------------------------------------------


def test_recording_runs_nothing():
    w = lt.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    x = lt.asarray([[1.0, 0.0], [0.0, 1.0]])
    before = work()
    with lt.no_sync():
        y = lt.softmax(x @ w, axis=-1)
        loss = (y * y).sum()
        loss.backward()
        with lt.no_grad():
            w -= 0.1 * w.grad
        view = w.detach()[1:]
        view += 1.0
        (gradient,) = lt.grad(lambda v: (v * v).sum(), argnums=(0,))(x)
    assert work() == before
    assert all(t.is_pending for t in (y, loss, w, w.grad, view, gradient))


NO_SYNC = {
    "shape": lambda x: x.shape,
    "dtype": lambda x: x.dtype,
    "ndim": lambda x: x.ndim,
    "size": lambda x: x.size,
    "nbytes": lambda x: x.nbytes,
    "device": lambda x: x.device,
    "requires_grad": lambda x: x.requires_grad,
    "is_pending": lambda x: x.is_pending,
    "len": len,
    "iter": lambda x: [*x],
    "copy.copy": copy.copy,
    "==": lambda x: x == x,
    "repr": repr,
    "_repr_html_": lambda x: x._repr_html_(),
    "T": lambda x: x.T,
    "getitem": lambda x: x[0],
    "astype": lambda x: x.astype(lt.asarray(1).dtype),
    "asarray": lt.asarray,
    "detach": lambda x: x.detach(),
    "explain": lambda x: str(x.explain()),
    "graph": lambda x: x.graph(),
    "pending": lambda x: str(lt.pending()),
    "last_sync": lambda x: str(lt.last_sync()),
    "where": lambda x: lt.where(x > 1, x, 0.0),
}


@pytest.mark.parametrize("name", NO_SYNC)
def test_no_sync_point(name):
    x = vector()
    before = work()
    with lt.no_sync():
        NO_SYNC[name](x)
    assert work() == before
    assert x.is_pending


# --- every sync point ------------------------------------------------------------------------------------------------

INTEGERS = lt.asarray([0, 1, 1])

# What computes -> (cause, a call on one line).
SYNC = {
    "lt.sync()": ("sync()", lambda x: lt.sync()),
    "lt.sync(x)": ("sync()", lambda x: lt.sync(x)),
    "x.numpy()": ("numpy()", lambda x: x.numpy()),
    "x.item()": ("item()", lambda x: x[0].item()),
    "x.tolist()": ("tolist()", lambda x: x.tolist()),
    "float(x)": ("float()", lambda x: float(x[0])),
    "int(x)": ("int()", lambda x: int(x[0])),
    "bool(x)": ("bool()", lambda x: bool(x[0])),
    "complex(x)": ("complex()", lambda x: complex(x[0])),
    "operator.index(x)": ("__index__", lambda x: operator.index(x.astype(np.int64)[0])),
    "if x:": ("bool()", lambda x: 1 if x[0] else 0),
    "value in x": ("bool()", lambda x: 4.0 in x),
    "str(x)": ("print", lambda x: str(x)),
    "print(x)": ("print", lambda x: print(x)),
    "f'{x}'": ("print", lambda x: f"{x}"),
    "f'{x:.2f}'": ("item()", lambda x: f"{x[0]:.2f}"),
    "np.asarray(x)": ("__array__", lambda x: np.asarray(x)),
    "np.from_dlpack(x)": ("__dlpack__", lambda x: np.from_dlpack(x)),
    "pickle.dumps(x)": ("pickle", lambda x: pickle.dumps(x)),
    "copy.deepcopy(x)": ("deepcopy", lambda x: copy.deepcopy(x)),
    "lt.tensor(x)": ("tensor()", lambda x: lt.tensor(x)),
    "lt.save(x, path)": ("save", lambda x, path: lt.save(x, path)),
    "x[mask]": ("boolean index", lambda x: x[x > 3]),
    "lt.nonzero(x)": ("nonzero", lambda x: searching.nonzero(x)),
    "lt.unique_values(x)": ("unique_values", lambda x: sets.unique_values(x)),
    "lt.repeat(x, counts)": ("repeat", lambda x: lt.repeat(x, INTEGERS + 1)),
    "lt.arange(x)": ("item()", lambda x: lt.arange(x[0])),
    "with lt.eager():": ("eager", lambda x: lt.eager().__enter__().__exit__()),
}


@pytest.mark.parametrize("name", SYNC)
def test_sync_point_is_logged_with_its_cause_and_line(name, tmp_path, capsys):
    cause, call = SYNC[name]
    x = vector()
    with lt.expect(syncs=1):
        call(x, tmp_path / "x.npz") if "path" in name else call(x)
    report = lt.last_sync()
    if name == "np.asarray(x)" and sys.version_info >= (3, 12):
        # Python's buffer protocol is open to classes since then, and NumPy asks for a buffer first.
        cause = "__buffer__"
    assert report.cause == cause
    assert site_text(report.site) == here(call)
    assert not x.is_pending
    capsys.readouterr()


@pytest.mark.parametrize("name", SYNC)
def test_the_page_has_every_sync_point(name):
    page = DOC.read_text()
    assert f"`{name}`" in page, "docs/when-does-it-compute.md lists every sync point"
    assert f"`{SYNC[name][0]}`" in page, "... and its cause"


# Those that record something of their own first, or read nothing.
MORE = {"lt.sync()", "lt.sync(x)", "with lt.eager():", "x[mask]", "lt.repeat(x, counts)", "value in x"}


@pytest.mark.parametrize("name", [n for n in SYNC if n not in MORE | {"operator.index(x)"}])
def test_a_computed_value_is_read_without_a_sync(name, tmp_path, capsys):
    x = vector()
    lt.sync()
    other = vector()
    with lt.no_sync():
        SYNC[name][1](x, tmp_path / "x.npz") if "path" in name else SYNC[name][1](x)
    assert other.is_pending
    capsys.readouterr()


def test_a_pending_value_of_another_thread_is_computed_for_the_reader():
    box: list[lt.Tensor] = []
    recorded, go = threading.Event(), threading.Event()

    def owner() -> None:
        box.append(vector())
        recorded.set()
        go.wait(10)

    t = threading.Thread(target=owner)
    t.start()
    assert recorded.wait(10)
    assert box[0].tolist() == [2.0, 4.0, 6.0]
    assert lt.last_sync().cause == "another thread"
    go.set()
    t.join()


def test_the_bound_computes_what_is_pending(monkeypatch):
    monkeypatch.setattr(recording, "MAX_STEPS", 40)
    monkeypatch.setattr(sys.modules["lazyt.tracing.trace"], "FIRST_BOUND", 40)
    lt.sync()
    local.trace.start()
    x = lt.asarray([1.0])
    reports = []
    with lt.expect() as seen:
        for _ in range(200):
            x = x + 1.0
        reports = list(seen.reports)
    assert reports and {r.cause for r in reports} == {"bound"}
    assert max(r.steps for r in reports) <= 81
    assert x.item() == 201.0
    local.trace.reset_trie()


def test_an_index_read_from_data_is_found_at_the_sync_by_who_wants_it():
    x, i = lt.asarray([1.0, 2.0, 3.0]), lt.asarray([0, 7]) + 0
    y, line = lt.take(x, i), here(lambda: 0)
    z = x + 1.0
    assert z.tolist() == [2.0, 3.0, 4.0]
    for _ in range(2):
        with pytest.raises(IndexOutOfRange, match="index 7 is out of bounds for an axis of size 3") as e:
            y.numpy()
        assert line.rpartition("/")[2] in str(e.value)
        assert y.is_pending


def test_an_index_into_several_axes_names_those_that_would_refuse_it():
    x, rows = lt.ones((4, 3)), lt.asarray([0, 1])
    with pytest.raises(IndexOutOfRange, match="index 50 is out of bounds for an axis of size 3 or 4 "):
        x[rows, lt.asarray([0, 50])].numpy()
    with pytest.raises(IndexOutOfRange, match="index 3 is out of bounds for an axis of size 3 "):
        x[lt.asarray([0, 3]), lt.asarray([0, 3])].numpy()


# --- what a sync does and does not -----------------------------------------------------------------------------------


def test_a_second_sync_does_nothing():
    x = vector()
    lt.sync()
    before = work()
    lt.sync()
    lt.sync(x)
    x.numpy(), x.item if x.size == 1 else x.tolist(), str(x)
    assert work() == before


def test_views_of_computed_values_are_read_in_place():
    x = lt.asarray(np.arange(24.0).reshape(2, 3, 4))
    views = [x[1], x.T, x[:, ::-1, 1:], x.reshape(6, 4)[::2], x[0, 0, 0], lt.broadcast_to(x[:, :1], (2, 3, 4)), x[1:1]]
    a = np.arange(24.0).reshape(2, 3, 4)
    want = [a[1], a.T, a[:, ::-1, 1:], a.reshape(6, 4)[::2], a[0, 0, 0], np.broadcast_to(a[:, :1], (2, 3, 4)), a[1:1]]
    before = work()
    for v, w in zip(views, want, strict=True):
        got = v.numpy()
        np.testing.assert_array_equal(got, w)
        assert not got.flags.writeable
    assert np.shares_memory(views[0].numpy(), x.numpy())
    assert work() == before


def test_a_view_knows_its_shape_after_a_sync_without_recording():
    x = lt.asarray(np.zeros((4, 6), np.float32)) + 1.0
    v = x[1:, ::2]
    lt.sync()
    assert v.shape == (3, 3) and v.dtype == np.float32
    assert str(lt.pending()) == "nothing is pending"


def test_what_nobody_holds_is_not_computed():
    x = lt.asarray([1.0, 2.0])
    y = lt.exp(x)
    z = x + 1.0
    del y
    lt.sync()
    assert lt.last_sync().outputs == 1
    assert z.tolist() == [2.0, 3.0]


def test_what_was_held_in_some_turns_is_not_computed_in_others():
    """Though a plan with it is known: its matrix products are most of the bytes."""
    x = lt.asarray(np.random.default_rng(0).random((96, 96)))
    y = lt.zeros(4)
    lt.sync()
    kept = []
    for t in range(6):
        d = x @ x @ x
        if t == 0:
            kept.append(d)
        y = y + 1
        del d
        lt.sync()
        assert not lt.last_sync().superset
    assert lt.last_sync().kernels == 1
    assert y.tolist() == [6.0] * 4


def test_a_sync_computes_everything_that_is_held():
    x = lt.asarray([1.0, 2.0])
    y, z = x + 1.0, x * 3.0
    with lt.expect(syncs=1):
        y.numpy()
    assert not z.is_pending


def test_buffers_go_at_once():
    size = 1 << 20
    lt.sync()
    gc.collect()
    start = memory.allocated()
    x = lt.asarray(np.ones(size, np.float32))
    assert memory.allocated() - start >= 4 * size
    y = x + 1.0
    lt.sync()
    held = memory.allocated()
    del y
    assert held - memory.allocated() >= 4 * size
    del x
    assert memory.allocated() == start


def test_a_leaf_goes_with_the_sync_that_read_it():
    size = 1 << 20
    start = memory.allocated()
    y = (lt.asarray(np.ones(size, np.float32)) + 1.0).sum()
    assert memory.allocated() - start >= 4 * size  # the pending program reads it
    assert y.item() == 2.0 * size
    assert memory.allocated() - start < 4096


# --- asking for it, forbidding it, counting it -----------------------------------------------------------------------


def test_no_sync_raises_at_the_line_that_would_compute():
    x = vector()
    before = work()
    with pytest.raises(SyncError, match=r"a sync is not allowed here \(cause: numpy\(\)") as e, lt.no_sync():
        x.numpy()
    message = str(e.value)
    assert message.count(f"{__file__}:") == 2, "the line that would compute, and the line that forbids it"
    assert any(entry.path == __file__ or str(entry.path) == __file__ for entry in e.traceback)
    assert work() == before and x.is_pending
    assert x.tolist() == [2.0, 4.0, 6.0]


def test_no_sync_decorates_functions():
    @lt.no_sync()
    def loss(x: lt.Tensor) -> float:
        return float(x.sum())

    with pytest.raises(SyncError, match=r"cause: float\(\)"):
        loss(vector())


def test_expect_counts():
    x = lt.asarray(np.ones((8, 8), np.float32))

    def step() -> float:
        return float(lt.tanh(x * 3.0).sum())

    step(), step(), step()
    with lt.expect(syncs=2, plans=0, compiles=0):
        step(), step()


def test_expect_says_what_happened():
    with pytest.raises(SyncError) as e, lt.expect(syncs=0, plans=0):
        lt.log1p(lt.floor(vector()) - lt.cos(vector())).numpy()
    message = str(e.value)
    assert "1 syncs, expected 0" in message and "1 plans, expected 0" in message
    assert "\n  numpy() at " in message and f"{__file__}:" in message


def test_expect_lets_an_error_through():
    with pytest.raises(KeyError), lt.expect(syncs=5):
        raise KeyError


def test_expect_nests():
    with lt.expect(syncs=2):
        vector().numpy()
        with lt.expect(syncs=1):
            vector().numpy()


def test_eager_runs_each_operation_as_it_is_recorded():
    data = np.linspace(-3, 3, 40, dtype=np.float32).reshape(4, 10)

    def program() -> list[np.ndarray]:
        w = lt.tensor(data, requires_grad=True)
        y = lt.softmax(w * 2.0, axis=-1)
        view = (y.detach() * 1.0)[1:]
        view += 1.0
        (y * y).sum().backward()
        return [y.detach().numpy(), view.numpy(), w.grad.numpy()]

    lazy = program()
    with lt.eager():
        x = lt.asarray(data) + 1.0
        assert not x.is_pending
        assert lt.last_sync().cause == "eager"
        assert f"{__file__}:" in str(lt.last_sync().site)
        eager = program()
    for a, b in zip(lazy, eager, strict=True):
        np.testing.assert_array_equal(a, b)
    assert (lt.asarray(data) + 1.0).is_pending


def test_a_sync_of_what_stands_in_containers():
    x = lt.asarray([[2.0, 0.0], [0.0, 1.0]])
    found = lt.linalg.eigh(x)
    state = {"a": [x + 1, (x + 2,)], "b": found}
    lt.sync(state, [x * 2])
    assert not any(y.is_pending for y in (*found, state["a"][0], state["a"][1][0]))
    with lt.no_sync():
        assert found.eigenvalues.tolist() == [1, 2]
    lt.sync([], {})
    for wrong in (3, [x, "b"], {"a": None}, np.zeros(2)):
        with pytest.raises(TypeError, match="sync: tensors are required, or lists, tuples and dictionaries of them"):
            lt.sync(x, wrong)
