"""What is written to a detached tensor: its graph is its own, as in PyTorch; what it was detached from keeps its."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from tests.support.interrupt_places import Interrupt, count


def leaf(n: int = 3) -> Any:
    return lt.tensor(np.ones(n, np.float32), requires_grad=True)


def masked(h: Any, w: Any) -> None:
    h[h > 0] = w[0]


def rows(h: Any, w: Any) -> None:
    h[lt.asarray(np.array([0, 1]))] = w[:2]


def product(h: Any, w: Any) -> None:
    h *= w


def sum_of_rest(h: Any, w: Any) -> None:
    h[1:] *= w[1:]


def whole(h: Any, w: Any) -> None:
    h[...] = w


def one(h: Any, w: Any) -> None:
    h[0] = w[0] * 0.5


def added(h: Any, w: Any) -> None:
    h[0] += w[0]


def of_a_view(h: Any, w: Any) -> None:
    h.reshape(3, 1)[0] = w[0]


# What PyTorch's w.grad is of (h.sum() + w.sum()).backward() afterwards; h is made of ones that are doubled.
WRITES: list[tuple[Callable[[Any, Any], None], list[float]]] = [
    (one, [1.5, 1, 1]), (whole, [2, 2, 2]), (masked, [4, 1, 1]), (rows, [2, 2, 1]), (product, [3, 3, 3]),
    (sum_of_rest, [1, 3, 3]), (added, [2, 1, 1]), (of_a_view, [2, 1, 1]),
]  # fmt: skip


@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("made", ["of what has a graph", "of a constant", "twice", "of a leaf"])
@pytest.mark.parametrize(("write", "want"), WRITES)
def test_a_write_gives_it_a_graph(write: Any, want: list[float], made: str, synced: bool) -> None:
    w = leaf()
    base: Any = lt.ones(3) * 2 if made == "of a constant" else w * 2
    if made == "of a leaf":
        base = (lt.ones(3) * 2).requires_grad_()
    h = base.detach().detach() if made == "twice" else base.detach()
    if synced:
        lt.sync()
    write(h, w)
    assert h.requires_grad and not h.is_leaf
    if synced:
        lt.sync()
        assert h.requires_grad and not h.is_leaf
    (h.sum() + w.sum()).backward()
    np.testing.assert_array_equal(w.grad.numpy(), want)
    # The memory is the same, so what it was detached from has the value, and the graph that it had.
    np.testing.assert_array_equal(base.detach().numpy(), h.detach().numpy())
    assert base.requires_grad == (made != "of a constant")


def test_a_view_of_it_is_one_of_its_own_graph() -> None:
    w, base = leaf(), lt.zeros(3)
    h = base.detach()
    before, other = h[1:], base.detach()
    h[1] = w[1] * 3
    behind = h[:2]
    for x, tracked in ((h, True), (before, True), (behind, True), (other, False), (base, False)):
        assert x.requires_grad == tracked
    (before.sum() + behind.sum()).backward()
    np.testing.assert_array_equal(w.grad.numpy(), [0, 6, 0])
    with lt.no_grad():
        before[0] = 7.0
    np.testing.assert_array_equal(h.detach().numpy(), [0, 7, 0])


def test_a_buffer_that_is_detached_each_turn() -> None:
    """Truncated backpropagation: each turn has the gradient of its own write."""
    w, buffer = leaf(), lt.zeros(4)
    for i in range(6):
        buffer = buffer.detach()
        buffer[i % 4] = w[i % 3] * (i + 1.0)
        w.grad = None
        (buffer * buffer).sum().backward()
        want = np.zeros(3)
        want[i % 3] = 2 * (i + 1.0) ** 2
        np.testing.assert_allclose(w.grad.numpy(), want)


def test_detached_tensors_of_one_line_have_a_graph_each() -> None:
    w, base, found = leaf(), lt.zeros(3), []
    for i in range(3):
        lt.sync()
        h = base.detach()
        if i == 1:
            h[0] = w[0]
        found.append(h)
    assert [h.requires_grad for h in found] == [False, True, False]


def test_a_write_without_a_graph_is_shared_as_before() -> None:
    w = leaf()
    base = w * 1.0
    h = base.detach()
    h[0] = 5.0
    np.testing.assert_array_equal(base.detach().numpy(), [5, 1, 1])
    assert not h.requires_grad and base.requires_grad


def test_what_was_saved_of_the_base_is_checked() -> None:
    w = leaf()
    base = w * 1.0
    square = base * base
    base.detach()[0] = w[0]
    with pytest.raises(lt.AutogradError, match="modified by an inplace operation"):
        square.sum().backward()


def test_what_is_viewed_under_no_grad_is_refused_still() -> None:
    w, h = leaf(), lt.zeros(3).detach()
    with lt.no_grad():
        view = h[1:]
    with pytest.raises(lt.AutogradError, match="created in no_grad mode"):
        view[0] = w[0]
    for part in h.split(1):
        with pytest.raises(lt.AutogradError, match="returns multiple views"):
            part[0] = w[0]


def test_an_interrupted_write_is_made_or_not() -> None:
    def program() -> tuple[Any, Callable[[], None]]:
        w, h = leaf(), (lt.ones(3) * 2).detach()
        lt.sync()
        return (w, h), partial(h.__setitem__, 1, w[1] * 9)

    for n in range(1, count(program()[1]) + 1):
        (w, h), write = program()
        Interrupt(n).run(write)
        done = h.requires_grad
        np.testing.assert_array_equal(h.detach().numpy(), [2, 9 if done else 2, 2], err_msg=f"at place {n}")
        h *= 1.0
        (h.sum() + w.sum()).backward()
        np.testing.assert_array_equal(w.grad.numpy(), [1, 10 if done else 1, 1], err_msg=f"at place {n}")
