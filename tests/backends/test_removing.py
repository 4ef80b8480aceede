"""A backend that is removed takes its plans along, also what other threads remember to run again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends import registry
from lazyt.runtime import plan_cache
from lazyt.runtime.replay import Again
from lazyt.tracing.trace import local
from tests.support.interpreted_backend import NAME, InterpretedBackend
from tests.support.plugin_folders import TWO

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def added() -> Iterator[Callable[[lt.backends.Backend], str]]:
    names = []

    def add(backend: lt.backends.Backend) -> str:
        registry.register(backend)
        names.append(backend.name)
        return backend.name

    yield add
    for name in names:
        if name in registry._loaded:
            registry.unregister(name)


class Worker(threading.Thread):
    """A thread that does one thing after another, each when it is asked to."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.work, self.found = work, object()
        self.asked, self.done = threading.Semaphore(0), threading.Semaphore(0)
        self.start()

    def run(self) -> None:
        while self.asked.acquire() and self.work is not None:
            try:
                self.found = self.work()
            except lt.LazytError as e:
                self.found = e.with_traceback(None)
            self.done.release()

    def ask(self) -> object:
        self.asked.release()
        assert self.done.acquire(timeout=60), "it does not end"
        return self.found

    def end(self) -> None:
        self.work = None
        self.asked.release()
        self.join(60)


def plans_for(name: str) -> list[object]:
    return [p for p in plan_cache.elsewhere if p.device.partition(":")[0] == name and p.fused]


@pytest.mark.parametrize("training", [False, True])
def test_other_threads_run_no_plan_of_it(added, training):
    name = added(InterpretedBackend())
    made = []

    def program() -> Callable[[], object]:
        x, w = lt.asarray(X).to(name), lt.tensor(X, requires_grad=True, device=name)
        optimizer = lt.optim.SGD([w], lr=0.1)

        def step() -> object:
            if not training:
                return (x * 2 + 1).tolist()
            loss = (x * w).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.item()

        return step

    steps = [program()]
    worker = Worker(lambda: steps[0]())
    try:
        for _ in range(4):
            assert not isinstance(worker.ask(), Exception), worker.found
        registry.unregister(name)
        assert not plans_for(name)
        found = worker.ask()
        assert isinstance(found, lt.DeviceError), found
        assert "no longer" in str(found)
        # Another backend of the name has plans of its own, in that thread's old trie.
        again = InterpretedBackend()
        again.compile = lambda schedule, device: (
            made.append(device) or InterpretedBackend.compile(again, schedule, device)
        )
        added(again)
        steps[0] = program()
        for _ in range(3):
            assert not isinstance(worker.ask(), Exception), worker.found
        assert made
    finally:
        worker.end()


def test_what_is_remembered_to_be_run_again_is_forgotten(added):
    """The plans of a backend with replays (`Target.replay`)."""
    name = added(InterpretedBackend())
    x = lt.asarray(X, device=name)
    for _ in range(3):
        (x * 2 + 1).tolist()
    (plan,) = [p for p in plans_for(name) if p.runs]
    y = x + 5
    again = Again(local.trace, plan, None, 1)
    again.run = lambda tr, cause, site: True
    registry.unregister(name)
    assert not again.run(local.trace, "sync()", None)
    del y


def test_plans_of_programs_that_are_no_longer_listed_end_too(added, monkeypatch):
    name = added(InterpretedBackend())
    x = lt.asarray(X, device=name)
    for _ in range(3):
        y = x * 2 + 1
        lt.sync()
    assert plans_for(name)
    monkeypatch.setattr(plan_cache, "_programs", {})
    del y
    registry.unregister(name)
    assert not plans_for(name)


def test_tensors_of_a_backend_that_was_removed_are_refused_by_the_next_of_its_name(added):
    name = added(InterpretedBackend())
    x = lt.asarray(X, device=name)
    registry.unregister(name)
    with pytest.raises(lt.DeviceError, match=f"{name!r}: its backend is not registered, or no longer"):
        x.numpy()
    added(InterpretedBackend())
    assert lt.asarray(X, device=NAME).tolist() == X.tolist()
    for ask in (x.numpy, lambda: float((x + 1).sum())):
        with pytest.raises(lt.DeviceError, match=f"{name}: the backend that this tensor's memory is of was removed"):
            ask()


# --- plugins


def test_unloading_removes_names_plans_and_policies(install):
    install("npu", TWO)
    x = lt.asarray(X, device="npu:1")
    for _ in range(3):
        y = x * 2 + 1
        lt.sync()
    assert plans_for("npu")
    pending = x + 5
    with lt.device("npu"), pytest.raises(lt.DeviceError, match="'npu:0' is the device of the block"):
        lt.backends.unregister("npu")
    lt.npu.set_device(1)
    lt.backends.unregister("npu")
    assert not plans_for("npu")
    assert not pending.is_pending  # it was computed before
    assert not hasattr(x, "npu") and not hasattr(x, "is_npu")
    again = r"device 'npu': its backend was removed; lazyt\.backends\.load\('npu'\) loads it again"
    for ask in (lambda: lt.npu, lambda: lt.zeros(1, device="npu"), y.numpy, lambda: float((x + 1).sum())):
        with pytest.raises(lt.DeviceError, match=again):
            ask()
    lt.backends.load("npu")
    assert lt.npu.current_device() == 0
    np.testing.assert_array_equal(lt.asarray(X).npu().numpy(), X)
    with pytest.raises(lt.DeviceError, match="load: no plugin is called 'tpu'; installed are 'npu'"):
        lt.backends.load("tpu")


WITH_OPERATIONS = """
import lazyt as lt
from tests.support.interpreted_backend import InterpretedBackend


class Backend(InterpretedBackend):
    name = {name!r}
    interface_version = {version}

    def __init__(self):
        super().__init__()
        lt.library.impl("plugins::twice", {name!r}, lambda x: x * 2, kind="composed")
"""


MODULE_LEVEL = """
import numpy as np
import lazyt as lt
from tests.support.interpreted_backend import InterpretedBackend

own = lt.library.define("plugins::own(Tensor x) -> Tensor")
own.impl("cpu", np.negative)
own.register_fake(lambda x: x)
lt.library.fallback({name!r}, own)
{ends}


class Backend(InterpretedBackend):
    name = {name!r}
    interface_version = {version}
"""


def test_operations_of_a_plugin_go_and_come_with_it(install):
    install("npu", MODULE_LEVEL.replace("{ends}", ""))
    with lt.library.scoped():  # in which it is loaded, and which it has nothing to do with
        x = lt.asarray(X, device="npu")
    own = lt.library.ops.plugins.own
    for _ in range(2):
        np.testing.assert_array_equal(own(lt.asarray(X, device="npu")).numpy(), -X)
        np.testing.assert_array_equal(own(lt.asarray(X)).numpy(), -X)
        lt.backends.unregister("npu")
        with pytest.raises(AttributeError, match="plugins::own: no such operation"):
            lt.library.ops.plugins.own  # noqa: B018
        with pytest.raises(lt.NotSupportedError, match="no kernel there; registered: none"):
            own(lt.asarray(X))
        lt.backends.load("npu")
        assert lt.library.ops.plugins.own is own
    with pytest.raises(lt.DeviceError, match="memory is of was removed"):
        x.numpy()


def test_a_plugin_that_fails_leaves_no_operation(install):
    install("npu", MODULE_LEVEL.replace("{ends}", "raise OSError('no driver')"))
    for _ in range(2):
        with pytest.raises(lt.DeviceError, match="OSError: no driver"):
            lt.zeros(1, device="npu")
        assert "own" not in dir(lt.library.ops.plugins)


def test_unloading_removes_what_it_registered_for_operations(install):
    install("npu", WITH_OPERATIONS)
    twice = lt.library.define("plugins::twice(Tensor x) -> Tensor")
    twice.register_fake(lambda x: x)
    try:
        for load in (lt.backends.available, lambda: lt.backends.load("npu")):
            load()
            np.testing.assert_array_equal(twice(lt.asarray(X, device="npu")).numpy(), X * 2)
            lt.backends.unregister("npu")
            assert "npu" not in twice.kernels
    finally:
        del lt.library.operation.OPERATIONS["plugins::twice"]
