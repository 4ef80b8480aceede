"""`checkpoint`: computed again in the same plan, with the same bits, in less memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.nn.functional import dropout
from lazyt.utils.checkpoint import checkpoint, checkpoint_sequential

N = 64


def weights() -> list[lt.Tensor]:
    rng = np.random.default_rng(0)
    return [lt.tensor(rng.normal(size=(N, N)) / 8, dtype=lt.float32, requires_grad=True) for _ in range(6)]


def block(h: Any, w: list[Any]) -> Any:
    for p in w:
        h = dropout(lt.tanh(h @ p), 0.25)
    return h


def trained(checkpointed: bool, sync: Any = None) -> tuple[list[Any], int, Any]:
    """The gradients, the bytes at the peak, and the kernels of a step of three blocks."""
    w, x = weights(), lt.ones((512, N))
    lt.random.seed(3)
    h = x
    for k in range(0, 6, 2):
        h = checkpoint(block, h, w[k : k + 2]) if checkpointed else block(h, w[k : k + 2])
        if sync is not None:
            lt.sync()
    loss = (h * h).mean()
    loss.backward()
    state = lt.random.get_state()
    lt.memory.reset_peak()
    before = lt.memory.allocated()
    with lt.expect(syncs=1):
        lt.sync()
    assert lt.last_sync().plans <= 1
    return [p.grad.numpy() for p in w], lt.memory.peak() - before, state


def test_the_bits_are_those_of_the_plain_step_and_memory_is_saved() -> None:
    want, plain, state = trained(False)
    got, less, again = trained(True)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)
    assert again == state, "the random state goes on as without"
    assert less < 0.75 * plain, f"{less} bytes at the peak, {plain} without"


def test_across_syncs() -> None:
    want, _, _ = trained(False)
    got, _, _ = trained(True, "between")
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_nested_arguments_inputs_and_second_derivatives() -> None:
    calls = []

    def f(pair: Any, scale: float, *, bias: Any) -> Any:
        calls.append(1)
        return {"a": lt.exp(pair[0]) * pair[1] * scale + bias, "n": 3, "shape": lt.argmax(pair[0])}

    x, y, b = (lt.tensor(v, dtype=lt.float64, requires_grad=True) for v in ([0.5, 1.0], [2.0, 3.0], [1.0, 1.0]))
    out = checkpoint(f, (x, y), 2.0, bias=b)
    assert out["n"] == 3
    assert not out["shape"].requires_grad
    g = lt.autograd.grad(out["a"].sum(), [x, y, b], create_graph=True)
    assert len(calls) == 2
    np.testing.assert_allclose(g[0].tolist(), 2 * np.exp([0.5, 1.0]) * [2, 3])
    assert g[2].tolist() == [1.0, 1.0]
    (g2,) = lt.autograd.grad(g[0].sum(), y)
    np.testing.assert_allclose(g2.tolist(), 2 * np.exp([0.5, 1.0]))
    assert lt.autograd.gradgradcheck(lambda *xs: checkpoint(lambda a, c: lt.sin(a) * c, *xs), (x, y))


def test_parameters_alone_and_one_within_another() -> None:
    w = lt.tensor([1.0, 2.0], requires_grad=True)
    x = lt.asarray([3.0, 4.0])

    def inner(v: Any) -> Any:
        return v * w

    checkpoint(lambda v: checkpoint(inner, v) * w, x).sum().backward()
    assert w.grad.tolist() == [6.0, 16.0]
    with lt.no_grad():
        assert not checkpoint(inner, x).requires_grad
    assert not checkpoint(lambda v: v * 2, x).requires_grad


def test_a_chain_in_segments() -> None:
    w = weights()
    layers = [lambda h, p=p: lt.tanh(h @ p) for p in w]
    h = lt.ones((3, N))
    for f in layers:
        h = f(h)
    h.sum().backward()
    want = [p.grad.numpy() for p in w]
    for segments in (1, 2, 4):
        for p in w:
            p.grad = None
        checkpoint_sequential(layers, segments, lt.ones((3, N)), use_reentrant=False).sum().backward()
        for p, a in zip(w, want, strict=True):
            np.testing.assert_allclose(p.grad.numpy(), a, rtol=1e-5, atol=1e-6)
    net = lt.nn.Sequential(lt.nn.Linear(N, N), lt.nn.Tanh(), lt.nn.Linear(N, 1))
    checkpoint_sequential(net, 2, lt.ones((3, N))).sum().backward()
    assert net[0].weight.grad is not None
    with pytest.raises(ValueError, match="7 segments of 6 functions"):
        checkpoint_sequential(layers, 7, h)


def _updated(update: bool) -> tuple[int, list[int], list[int]]:
    """Of a step of four blocks: the bytes of temporaries, and where the weights lie before and after it."""
    w, x = [p for _ in range(4) for p in weights()], lt.ones((2048, N))
    opt = lt.optim.SGD(w, lr=0.1)
    lt.sync()
    before = [p._buffer.address for p in w]
    h = x
    for i in range(0, len(w), 6):
        h = checkpoint(block, h, w[i : i + 6])
    h.sum().backward()
    if update:
        opt.step()
        opt.zero_grad()
    temporaries = lt.memory.plan().temporaries
    lt.sync()
    return temporaries, before, [p._buffer.address for p in w]


def test_weights_are_updated_in_place_as_soon_as_their_gradients_are_there() -> None:
    alone, _, _ = _updated(False)
    temporaries, before, after = _updated(True)
    assert temporaries < 1.25 * alone
    assert after == before


def test_what_must_not_change_between_the_two_calls() -> None:
    x = lt.tensor([1.0, 2.0], requires_grad=True)
    h = x * 1
    y = checkpoint(lt.exp, h).sum()
    h += 1
    with pytest.raises(lt.AutogradError, match="tensor 0 of its arguments, is at version 1; expected version 0"):
        y.backward()
    sizes = [2, 1]
    y = checkpoint(lambda v: v[: sizes.pop(0)], x).sum()
    with pytest.raises(lt.ShapeError, match="the function gave other results when it was called again"):
        y.backward()
    y = checkpoint(lt.exp, x).sum()
    y.backward()
    with pytest.raises(lt.AutogradError, match="a second time: the arguments were freed"):
        y.backward()
    with pytest.raises(TypeError, match="checkpoint: a function is required, not 'int'"):
        checkpoint(3)
    with pytest.raises(lt.NotSupportedError, match=r"checkpoint\(\.\.\., context_fn=\)"):
        checkpoint(lt.exp, x, context_fn=None)


def test_other_random_numbers_if_they_are_asked_for() -> None:
    x = lt.tensor(np.ones(64), requires_grad=True)
    lt.random.seed(0)
    y = checkpoint(lambda v: dropout(v, 0.5), x, preserve_rng_state=False)
    y.sum().backward()
    assert (x.grad.numpy() != y.detach().numpy()).any()


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("turned", ["in place", "anew", "detached"])
def test_a_loop_of_checkpoints_beside_products_of_their_argument(turned: str, known: bool, rows: int) -> None:
    """The argument's extents are symbols of their own each turn, and are found equal later."""

    def step(again: Any) -> list[np.ndarray]:
        rng = np.random.default_rng(0)
        x, w, v = (lt.tensor(rng.standard_normal(s), requires_grad=True) for s in ((rows, 17), (17, 17), (17,)))
        x.requires_grad_(known)
        for _ in range(3):
            again(lambda u: u @ w, x).sum().backward()
            total = x.sum()
            h = (x @ w) * v
            h.backward(lt.ones_like(h))
            if turned == "in place":
                with lt.no_grad():
                    x += 1
            else:
                x = x + 1 if turned == "anew" else (x.detach() + 1).requires_grad_(known)
        lt.sync()
        return [t.grad.numpy() for t in (w, v)] + [total.detach().numpy()]

    for got, want in zip(step(checkpoint), step(lambda f, x: f(x)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)
