"""Tensors between processes: one memory, which all see and which vanishes with the last of them."""

from __future__ import annotations

import copy
import os
import pickle
import signal
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest

import lazyt as lt
import lazyt.multiprocessing as mp
from lazyt.errors import AutogradError, DeviceError, NotSupportedError, SyncError
from lazyt.tracing.tensor_state import EXTERNAL
from tests.support.shared_files import shared_files

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def through(x):
    a, b = mp.Pipe()
    with a, b:
        a.send(x)
        return b.recv()


def test_a_tensor_that_was_sent_is_the_same_memory():
    x = lt.arange(6.0).reshape(2, 3) + 1  # pending
    y = through(x)
    assert not x.is_pending and x.is_shared() and y.is_shared()
    y[0] = 7
    x[1, 2] += 4
    assert x.tolist() == y.tolist() == [[7, 7, 7], [4, 5, 10]]


@pytest.mark.parametrize("dtype", [lt.bool, lt.int8, lt.bfloat16, lt.float16, lt.float64, lt.complex64, lt.complex128])
def test_dtypes(dtype):
    x = lt.ones((2, 2), dtype=dtype)
    y = through(x)
    y[0, 1] = 0
    assert y.dtype == dtype and x.tolist() == [[1, 0], [1, 1]]


@pytest.mark.parametrize("view", [
    lambda x: x[1], lambda x: x.T, lambda x: x[:, 1:].T, lambda x: x[:, ::-1], lambda x: x.reshape(6)[2:5],
    lambda x: x.detach()[0], lambda x: x[0, 1],
], ids=range(7))  # fmt: skip
def test_views_are_sent_as_views(view):
    x = lt.asarray(np.arange(6.0).reshape(2, 3))
    y = through(view(x))
    assert y.tolist() == view(x).tolist()
    y += 10
    assert view(x).tolist() == y.tolist() and float(x.sum()) == 15 + 10 * y.size


def test_empty_ones_and_numbers():
    assert through(lt.zeros((0, 3))).shape == (0, 3)
    assert through(lt.asarray(2.5)).item() == 2.5
    assert through({"a": [lt.ones(2), "b"]})["a"][0].tolist() == [1, 1]


def test_leaves_stay_leaves():
    w = lt.tensor([1.0, 1.0], requires_grad=True)
    y = through(w)
    assert y.requires_grad and y.is_leaf
    with pytest.raises(AutogradError, match="is no leaf cannot be sent to another process"):
        through(w * 2)
    optimizer = lt.optim.SGD([w], lr=0.5)
    (w * w).sum().backward()
    optimizer.step()
    assert w.is_shared() and y.tolist() == w.tolist() == [0, 0]


def trained(model):
    optimizer = lt.optim.SGD(model.parameters(), lr=0.5)
    model(lt.ones((1, 2))).sum().backward()
    optimizer.step()


def test_a_model_is_trained_by_another_process():
    model = lt.nn.Sequential(lt.nn.Linear(2, 1), lt.nn.BatchNorm1d(1)).eval().share_memory()
    assert all(x.is_shared() for x in model.state_dict().values())
    before = model[0].bias.item()
    p = mp.get_context("fork").Process(target=trained, args=(model,))
    p.start()
    p.join(60)
    assert p.exitcode == 0 and model[0].bias.item() == pytest.approx(before - 0.5, abs=1e-4)


def test_what_is_read_of_shared_memory_is_a_value_of_its_own():
    x = lt.zeros(2).share_memory_()
    copies = [
        x.clone(),
        x + 0,
        copy.deepcopy(x),
        x.reshape(2, 1).clone(),
        x.astype(lt.float32, copy=True),
        through(x).clone(),
    ]
    lt.sync()
    kept = lt.zeros(2)
    kept[...] = x
    lt.sync()
    x += 1
    assert [c.numpy().max() for c in copies] == [0] * 6 and kept.tolist() == [0, 0] and x.tolist() == [1, 1]
    assert pickle.loads(pickle.dumps(x)).tolist() == [1, 1]


def test_a_write_is_a_sync():
    x = lt.zeros(2).share_memory_()
    with lt.no_sync(), pytest.raises(SyncError, match="cause: shared memory"):
        x += 1
    x += 1
    assert x.tolist() == [2, 2]


def test_memory_is_freed_with_the_last_tensor():
    before, known = shared_files(), len(EXTERNAL)
    x = lt.zeros(5).share_memory_()
    y = x[1:]
    assert len(EXTERNAL) == known + 1 and shared_files() > before
    del x
    assert y.is_shared()
    del y
    lt.sync()
    assert len(EXTERNAL) == known and shared_files() <= before
    with pytest.raises(NotSupportedError, match="sending a view made by real"):
        through(lt.asarray([1 + 2j]).real)


def child(q, answers, x):
    """Writes what was inherited, what was sent, and a row of its own."""
    y = q.get()
    y += 1
    x[0] = -1
    for _ in range(20):
        x[1] += 1
    answers.put(y * 2)
    assert q.get() == "end"


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_childs_writes_are_seen(method):
    context = mp.get_context(method)
    q, answers = context.Queue(), context.SimpleQueue()
    x = lt.zeros(4).share_memory_()
    p = context.Process(target=child, args=(q, answers, x))
    p.start()
    for _ in range(20):
        x[2] += 1  # at the same time: neither loses the other's
    t = lt.arange(3.0) + 1
    q.put(t)
    assert answers.get().tolist() == [4, 6, 8] and t.tolist() == [2, 3, 4]
    q.put("end")
    p.join(30)
    assert p.exitcode == 0 and x.tolist() == [-1, 20, 20, 0]


def test_a_pool_takes_and_gives_tensors():
    with mp.get_context("fork").Pool(2) as pool:
        assert [float(s) for s in pool.map(lt.sum, [lt.ones(3), lt.ones(4)])] == [3, 4]


def test_a_large_tensor_goes_as_a_descriptor():
    x = lt.ones(25_000_000)  # 100 MB
    found = ForkingPickler.dumps(x)
    assert len(found) < 2000
    y = ForkingPickler.loads(found)
    y[3] = 5
    assert float(x[3]) == 5


def sends_and_dies(connection):
    connection.send(lt.ones(4))
    connection.recv()
    os.kill(os.getpid(), signal.SIGKILL)


def test_memory_outlives_who_made_it_but_not_the_last():
    a, b = mp.Pipe()
    p = mp.get_context("fork").Process(target=sends_and_dies, args=(b,))
    p.start()
    x = a.recv()
    a.send("die")
    p.join(30)
    x += 1
    assert p.exitcode == -signal.SIGKILL and x.tolist() == [2] * 4
    p = mp.get_context("fork").Process(target=sends_and_dies, args=(b,))
    p.start()
    a.poll(30)
    os.kill(p.pid, signal.SIGKILL)
    p.join(30)
    with pytest.raises(DeviceError, match="has ended before it was received"):
        a.recv()
    assert not [f for f in os.listdir("/dev/shm") if "lazyt" in f]
