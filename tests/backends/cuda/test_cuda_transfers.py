"""Gradients across devices: a transfer is a step of the graph, whichever way it goes. On the fake driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from tests.support.cuda.fake import FakeDriver, installed
from tests.support.cuda.shim import compiler

Program = Callable[[Any, Callable[[Any, str], Any]], Any]


@pytest.fixture(autouse=True)
def gpu() -> Iterator[FakeDriver]:
    compiler()
    with installed(FakeDriver()) as fake:
        yield fake


def there(x: Any, device: str) -> Any:
    return x.to(device)


def here(x: Any, device: str) -> Any:
    return x * 1


def down(p: Any, to: Any) -> Any:
    return (lt.tanh(to(p * 2, "cuda:0")) ** 2).sum()


def leaf(p: Any, to: Any) -> Any:
    return (to(p, "cuda:0") * 3).sum()


def around(p: Any, to: Any) -> Any:
    x = to(lt.sin(to(p, "cuda:0")), "cuda:1") * 2
    return (to(x, "cpu") * lt.exp(p)).sum()


def twice(p: Any, to: Any) -> Any:
    """Two transfers of what one graph made, which the loss reads as well."""
    a = p * p
    y, z = to(a, "cuda:0"), to(a * 3, "cuda:1")
    return to((y * y).sum(), "cpu") * to(z.sum(), "cpu") + (a * a).sum()


def one_behind_the_other(p: Any, to: Any) -> Any:
    """The older transfer's cotangent comes partly from behind the newer one."""
    y = to(p * 2, "cuda:0")
    z = to(to(y * y, "cpu") * p, "cuda:0")
    return (y * z).sum()


def of_a_view(p: Any, to: Any) -> Any:
    a = p * 2
    return (to(a[1:], "cuda:0") * to(p[:2], "cuda:0")).sum() + to(a, "cuda:0").sum()


def directly(p: Any, to: Any) -> Any:
    return to(to(to(p, "cuda:0"), "cuda:1"), "cpu").sum() * p.sum()


def synced_between(p: Any, to: Any) -> Any:
    y = to(p * 2, "cuda:0")
    z = y * y
    lt.sync()
    w = to(z, "cuda:1") * 2
    lt.sync()
    return (w * w).sum()


PROGRAMS = [down, leaf, around, twice, one_behind_the_other, of_a_view, directly, synced_between]
VALUES = np.array([0.5, -1.25, 2.0], np.float32)


def leaf_of(values: Any = VALUES) -> Any:
    return lt.tensor(values, requires_grad=True)


@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_are_those_of_one_device(program: Program) -> None:
    p, q = leaf_of(), leaf_of()
    program(p, there).backward()
    program(q, here).backward()
    assert p.grad.device == "cpu"
    np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-5)


@pytest.mark.parametrize("program", PROGRAMS)
def test_functional_gradients_are_those_of_one_device(program: Program) -> None:
    x = lt.asarray(VALUES)
    want = lt.grad(lambda v: program(v, here))(x)
    np.testing.assert_allclose(lt.grad(lambda v: program(v, there))(x).numpy(), want.numpy(), rtol=1e-5)


def test_a_function_is_pulled_back_through_more_than_once() -> None:
    y, pull = lt.vjp(lambda v: there(v * v, "cuda:0") * 3, lt.asarray(VALUES))
    assert y.device == "cuda:0"
    for scale in (1, 2):
        (got,) = pull(lt.tensor([scale, 0.0, 1.0], device="cuda:0"))
        np.testing.assert_allclose(got.numpy(), VALUES * [6 * scale, 0, 6])


@pytest.mark.parametrize("program", [around, twice, one_behind_the_other])
def test_a_graph_is_freed_once(program: Program) -> None:
    p, q = leaf_of(), leaf_of()
    loss = program(p, there)
    loss.backward(retain_graph=True)
    loss.backward()
    with pytest.raises(lt.AutogradError, match="second time"):
        loss.backward()
    program(q, here).backward()
    np.testing.assert_allclose(p.grad.numpy(), 2 * q.grad.numpy(), rtol=1e-5)


@pytest.mark.parametrize("synced", [False, True])
def test_derivatives_of_derivatives_cross(synced: bool) -> None:
    p = leaf_of()
    (p.to("cuda:0") ** 3).sum().backward(create_graph=True)
    np.testing.assert_allclose(p.grad.detach().numpy(), 3 * VALUES**2, rtol=1e-6)
    g, p.grad = p.grad, None
    if synced:
        lt.sync()
    (g * g).sum().backward()
    np.testing.assert_allclose(p.grad.numpy(), 2 * 3 * VALUES**2 * 6 * VALUES, rtol=1e-5)


def test_hooks_of_a_copy_and_of_what_is_behind_it() -> None:
    p = leaf_of()
    seen: list[Any] = []
    h = p * 2
    h.register_hook(lambda g: seen.append(("before", str(g.device))) or g * 3)
    y = h.to("cuda:0")
    y.register_hook(lambda g: seen.append(("copy", str(g.device))) or g * 5)
    z = y * y
    z.register_hook(lambda g: seen.append(("behind", str(g.device))))
    z.sum().backward()
    assert seen == [("behind", "cuda:0"), ("copy", "cuda:0"), ("before", "cpu")]
    np.testing.assert_allclose(p.grad.numpy(), 15 * 8 * VALUES, rtol=1e-5)


def test_a_copy_is_no_leaf_and_asks_only_where_gradients_are_asked_for() -> None:
    p = leaf_of()
    y = p.to("cuda:0")
    assert y.requires_grad
    assert not y.is_leaf
    assert not p.detach().to("cuda:0").requires_grad
    with lt.no_grad():
        assert not p.to("cuda:0").requires_grad
    assert not lt.asarray(VALUES).to("cuda:0").requires_grad


def test_hooks_of_a_leaf_see_its_whole_gradient() -> None:
    p = leaf_of()
    seen: list[Any] = []
    p.register_hook(lambda g: seen.append(g) or g * 10)
    twice(p, there).backward()
    q = leaf_of()
    twice(q, here).backward()
    assert len(seen) == 1
    np.testing.assert_allclose(p.grad.numpy(), 10 * q.grad.numpy(), rtol=1e-5)


def test_inputs_and_retained_gradients() -> None:
    p, w = leaf_of(), leaf_of()
    y = (p * w).to("cuda:0")
    y.retain_grad()
    (y * y).sum().backward(inputs=[w])
    assert p.grad is None
    np.testing.assert_allclose(w.grad.numpy(), 2 * VALUES**3, rtol=1e-6)
    assert y.grad.device == "cuda:0"
    np.testing.assert_allclose(y.grad.numpy(), 2 * VALUES**2, rtol=1e-6)


@pytest.mark.slow
def test_a_model_on_two_devices_trains_as_on_one() -> None:
    rng = np.random.default_rng(0)
    x, t = rng.normal(size=(6, 5)).astype(np.float32), rng.normal(size=(6, 2)).astype(np.float32)
    losses = []
    for devices in (("cuda:0", "cuda:1"), ("cpu", "cpu")):
        lt.random.seed(3)
        first, second = lt.nn.Linear(5, 7).to(devices[0]), lt.nn.Linear(7, 2).to(devices[1])
        opt = lt.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
        found = []
        for _ in range(4):
            opt.zero_grad()
            h = lt.tanh(first(lt.asarray(x, device=devices[0])))
            loss = ((second(h.to(devices[1])).to("cpu") - lt.asarray(t)) ** 2).mean()
            loss.backward()
            opt.step()
            found.append(float(loss))
        losses.append(found)
    assert losses[0][-1] < losses[0][0]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


def test_what_another_thread_recorded_has_no_gradient_here() -> None:
    import threading

    p, made = leaf_of(), []
    ready, done = threading.Event(), threading.Event()

    def record() -> None:
        made.append(p * 2)
        ready.set()
        done.wait(30)

    worker = threading.Thread(target=record)
    worker.start()
    try:
        assert ready.wait(30)
        with pytest.raises(lt.NotSupportedError, match="another thread has recorded"):
            made[0].to("cuda:0")
    finally:
        done.set()
        worker.join()
