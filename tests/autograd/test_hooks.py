"""Hooks: where Python functions take a cotangent over, in derivatives of derivatives too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt


@pytest.mark.parametrize("synced", [False, True])
def test_a_gradient_past_a_hook_is_derived_again_behind_a_sync(synced):
    x = lt.ones(3).requires_grad_()
    y = x * x
    y.register_hook(lambda g: None)
    z = y * y
    (g,) = lt.autograd.grad(z.sum(), [x], create_graph=True)
    penalty = (g * g).sum()
    if synced:
        lt.sync()
    penalty.backward()
    assert x.grad.tolist() == [96.0] * 3
    assert z.tolist() == [1.0] * 3


@pytest.mark.parametrize("synced", [False, True])
def test_a_gradient_penalty_of_a_network_with_a_backward_hook(synced):
    net = lt.nn.Sequential(lt.nn.Linear(2, 2, bias=False), lt.nn.Tanh(), lt.nn.Linear(2, 1, bias=False))
    lt.nn.init.constant_(net[0].weight, 0.5)
    lt.nn.init.constant_(net[2].weight, 1.0)
    net[1].register_full_backward_hook(lambda m, given, out: None)
    x = lt.asarray([[0.3, 0.4]]).requires_grad_()
    out = net(x)
    (g,) = lt.autograd.grad(out.sum(), [x], create_graph=True)
    penalty = (g * g).sum()
    if synced:
        lt.sync()
    penalty.backward()
    # With t = tanh(0.35) for both units, g = 1 - t^2 in both columns and the penalty is 2 * (1 - t^2)^2.
    t = lt.tanh(lt.asarray(0.35)).item()
    expected = -8 * t * (1 - t * t) ** 2 * 0.5
    assert x.grad.tolist()[0] == pytest.approx([expected] * 2, rel=1e-5)
    assert out.shape == (1, 1)


ALIASES = {
    "clone": lambda x: x.clone(),
    "plus": lambda x: +x,
    "ellipsis": lambda x: x[...],
    "reshape": lambda x: x.reshape(1),
    "transposed": lambda x: x.T,
    "concatenate": lambda x: lt.concat([x]),
    "written": lambda x: _written(x),
}


def _written(x):
    z = lt.zeros(1)
    z[...] = x
    return z


@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("alias", ALIASES.values(), ids=ALIASES)
class TestTheSameValue:
    """What is the node of another value in the graph (a copy, a view of all) has a cotangent of its own."""

    def leaf(self):
        return lt.asarray([3.0]).requires_grad_()

    def test_a_hook_on_it_takes_part_in_second_derivatives(self, alias, synced):
        x = self.leaf()
        y = alias(x)
        y.register_hook(lambda g: g * 2)
        (g,) = lt.autograd.grad((y * y * y).sum(), [x], create_graph=True)
        loss = g.sum()
        if synced:
            lt.sync()
        loss.backward()
        assert x.grad.tolist() == [72.0]
        assert y.tolist() == [3.0]

    def test_a_hook_on_it_leaves_what_goes_past_it(self, alias, synced):
        x = self.leaf()
        y = alias(x)
        y.register_hook(lambda g: g * 2)
        loss = (x * y).sum()
        if synced:
            lt.sync()
        loss.backward()
        assert x.grad.tolist() == [9.0]

    def test_the_gradient_by_it_is_no_more_than_its_own(self, alias, synced):
        x = self.leaf()
        y = alias(x)
        loss = (x * y).sum()
        if synced:
            lt.sync()
            if alias in (ALIASES["ellipsis"], ALIASES["reshape"], ALIASES["transposed"]):
                return  # a view that was made before a sync is another value behind it
        by_y, by_x = lt.autograd.grad(loss, [y, x], retain_graph=True)
        (alone,) = lt.autograd.grad(loss, [y])
        assert (by_y.tolist(), by_x.tolist(), alone.tolist()) == ([3.0], [6.0], [3.0])

    def test_it_keeps_its_own_gradient_behind_a_hook_on_the_other(self, alias, synced):
        x = self.leaf()
        y = x * x
        y.register_hook(lambda g: None)
        z = alias(y)
        z.retain_grad()
        loss = (z * 3).sum()
        if synced:
            lt.sync()
        loss.backward()
        assert (x.grad.tolist(), z.grad.tolist()) == ([18.0], [3.0])

    def test_a_hook_on_each_of_both(self, alias, synced):
        x = self.leaf()
        y = x * x
        z = alias(y)
        y.register_hook(lambda g: g + 1)
        z.register_hook(lambda g: g * 2)
        loss = (z * y).sum()
        if synced:
            lt.sync()
        loss.backward()
        assert x.grad.tolist() == [(9.0 + 2 * 9.0 + 1) * 6.0]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (lambda x: x.reshape(4), lambda y: y.reshape(2, 2)),
        (lambda x: lt.permute_dims(x, (1, 0)), lambda y: lt.permute_dims(y, (1, 0))),
        (lambda x: x[0, 0], lambda y: y.sum()),
    ],
    ids=["reshape", "permute", "sum of one"],
)
def test_a_value_that_the_builder_would_read_through_has_its_cotangent(first, then):
    x = lt.ones((2, 2)).requires_grad_()
    y = first(x)
    (g,) = lt.autograd.grad(then(y).sum(), [y], retain_graph=True)
    assert g.tolist() == lt.ones(y.shape).tolist()
    y.register_hook(lambda g: g * 2)
    then(y).sum().backward()
    assert x.grad.sum().item() == 2.0 * y.size


@pytest.mark.parametrize("synced", [False, True])
class TestWhatADerivativeReads:
    """As in PyTorch, a hook on a result takes part where the derivative reads that result, and only there."""

    def second(self, f, synced):
        x = lt.asarray([0.5], dtype=lt.float64).requires_grad_()
        y = f(x)
        y.register_hook(lambda g: g * 2)
        if synced:
            lt.sync()
        (g,) = lt.autograd.grad(y, [x], create_graph=True)
        if synced:
            lt.sync()
        g.backward()
        return x.grad.item(), y

    def test_the_result(self, synced):
        found, y = self.second(lt.exp, synced)
        assert found == pytest.approx(4 * y.item())  # 2 * y, and 2 of the derivative of y

    def test_operands_alone(self, synced):
        found, y = self.second(lambda x: 1 / x, synced)
        assert found == pytest.approx(2 * 2 * y.item() ** 3)  # 2 of the derivative of -1 / x ** 2


@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("alias", [lambda v: v.detach(), lambda v: v[:1]], ids=["detached", "view"])
def test_a_value_with_views_keeps_its_gradient(alias, synced):
    x = lt.asarray([3.0, 4.0]).requires_grad_()
    v = x * 2
    other = alias(v)
    if synced:
        lt.sync()
    v.retain_grad()
    loss = v.sum() + other.sum()
    if synced:
        lt.sync()
    loss.backward()
    assert v.grad.tolist() == ([2.0, 1.0] if other.requires_grad else [1.0, 1.0])


class TestBehindSeveralSyncs:
    """What a backward recorded again is the same value for the backwards behind the next sync."""

    def derivatives(self, sync):
        seen = []
        x = lt.asarray([0.4], dtype=lt.float64).requires_grad_()
        y = lt.tanh(x)
        sync()
        y.register_hook(lambda g: seen.append(g.tolist()) or g * g)
        found = [(y * y).sum()]
        for _ in range(3):
            sync()
            found += lt.autograd.grad(found[-1].sum(), [x], create_graph=True)
        return [g.item() for g in found], seen

    def test_a_hook_is_called_once_with_all_of_a_cotangent(self):
        values, seen = self.derivatives(lambda: None)
        again, seen_again = self.derivatives(lt.sync)
        assert again == pytest.approx(values)
        assert len(seen_again) == len(seen) == 3
        assert [g[0] for g in seen_again] == pytest.approx([g[0] for g in seen])

    def test_a_gradient_can_be_differentiated_by_a_value_on_the_way(self):
        x = lt.asarray([0.4], dtype=lt.float64).requires_grad_()
        y = lt.tanh(x)
        lt.sync()
        (g,) = lt.autograd.grad((y * y).sum(), [x], create_graph=True)
        lt.sync()
        (by_y,) = lt.autograd.grad(g, [y])
        assert by_y.item() == pytest.approx(2 - 6 * y.item() ** 2)  # g is 2 * y * (1 - y * y)


def test_a_synced_value_keeps_its_gradient_once_where_a_hook_takes_part():
    x = lt.asarray([3.0]).requires_grad_()
    v = x * x
    lt.sync()
    v.retain_grad()
    w = v * 2
    w.register_hook(lambda g: None)
    w.backward()
    assert (v.grad.tolist(), x.grad.tolist()) == ([2.0], [12.0])


def test_of_equal_hooks_the_one_is_taken_off_that_was_registered_so():
    x = lt.asarray([3.0]).requires_grad_()
    seen, after = [], []
    x.register_hook(seen.append)
    x.register_hook(lambda g: g * 2)
    second = x.register_hook(seen.append)
    x.register_post_accumulate_grad_hook(after.append)
    x.register_post_accumulate_grad_hook(after.append).remove()
    second.remove()
    second.remove()
    (x * 5).sum().backward()
    assert ([g.tolist() for g in seen], len(after), x.grad.tolist()) == ([[5.0]], 1, [10.0])


def _flat(x: lt.Tensor) -> lt.Tensor:
    return x[:2]


def _reshaped(x: lt.Tensor) -> lt.Tensor:
    return x.reshape(2, 2)


def _of_a_view(x: lt.Tensor) -> lt.Tensor:
    return x.reshape(2, 2).T[0]


@pytest.mark.parametrize("view", [_flat, _reshaped, _of_a_view])
@pytest.mark.parametrize("synced", ["never", "before the hook", "behind it", "both"])
@pytest.mark.parametrize("used", ["before", "behind", "both"])
def test_a_hook_on_a_view_gets_its_whole_gradient_whatever_is_synced(view: Any, synced: str, used: str) -> None:
    def gradients(hooked: bool) -> tuple[list[list[float]], Any, Any]:
        a = lt.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
        v = view(a * 2)
        loss = (v * v).sum() if used != "behind" else v.sum() * 0
        if synced in ("before the hook", "both"):
            lt.sync()
        calls: list[list[float]] = []
        if hooked:
            v.register_hook(lambda g: (calls.append(g), g * 10)[1])
            v.retain_grad()
        if synced in ("behind it", "both"):
            lt.sync()
        if used != "before":
            loss = loss + (v * v * v).sum()
        loss.backward()
        assert a.grad is not None
        return [c.tolist() for c in calls], a.grad.tolist(), v.grad.tolist() if hooked else None  # type: ignore

    _, plain, _ = gradients(False)
    calls, found, kept = gradients(True)
    assert len(calls) == 1
    assert found == [10 * g for g in plain]
    assert kept == (lt.asarray(calls[0]) * 10).tolist()


@pytest.mark.parametrize("synced", [False, True])
def test_a_kept_gradient_goes_on_to_what_is_written(synced: bool) -> None:
    """As in PyTorch, of a view too."""
    for view in (lambda x: x, _flat, _of_a_view):
        b = view(lt.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True) * 2)
        b.retain_grad()
        if synced:
            lt.sync()
        b *= 3
        if synced:
            lt.sync()
        b.sum().backward()
        assert b.grad is not None and set(np.ravel(b.grad.numpy()).tolist()) == {1.0}


def test_a_hook_on_a_view_is_passed_by_views_of_it_on_a_later_trace() -> None:
    a = lt.tensor([1.0, 2.0], requires_grad=True)
    v = (a * 2)[None]
    w = v[0]
    lt.sync()
    calls: list[Any] = []
    v.register_hook(lambda g: calls.append(g.tolist()))
    (w * w).sum().backward()
    assert calls == [[[4.0, 8.0]]]


def test_a_write_behind_a_sync_to_what_a_view_reads_is_found() -> None:
    v = (lt.tensor([1.0, 2.0], requires_grad=True) * 2)[None]
    y = (v * v).sum()
    lt.sync()
    z = (v * v).sum()
    v *= 2
    with pytest.raises(lt.AutogradError, match="modified by an inplace operation"):
        (y + z).backward()
