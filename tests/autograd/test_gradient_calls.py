"""`autograd.grad` and `backward`, modes, anomaly detection, hooks of leaves, gradcheck's refusals, threads."""

from __future__ import annotations

import collections
import threading
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import autograd
from lazyt.errors import DTypeError


def leaf(*values: float) -> lt.Tensor:
    return lt.tensor(list(values), dtype=lt.float64, requires_grad=True)


@pytest.mark.parametrize("synced", [False, True])
def test_grad_by_leaves_and_others(synced: bool) -> None:
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    h = x * w
    y = h * h
    lt.sync() if synced else None
    z = y.sum() + h.sum()
    gx, gh, gy = autograd.grad(z, (x, h, y), retain_graph=True)
    assert gy.tolist() == [1.0, 1.0]
    assert gh.tolist() == [7.0, 17.0]
    assert gx.tolist() == [21.0, 68.0]
    assert x.grad is w.grad is None
    (g,) = autograd.grad([y, h], w, [lt.asarray([1.0, 0.0]), lt.asarray([0.0, 1.0])])
    assert g.tolist() == [6.0, 2.0]


def test_grad_refuses_as_pytorch_does() -> None:
    x, w = leaf(1.0, 2.0), leaf(3.0)
    y = x * 2
    with pytest.raises(
        lt.AutogradError,
        match=r"Tensor at index 1 appears to not have been used in the graph\. Set allow_unused=True",
    ):
        autograd.grad(y.sum(), [x, w], retain_graph=True)
    gx, gw = autograd.grad(y.sum(), [x, w], retain_graph=True, allow_unused=True)
    assert gw is None
    assert gx.tolist() == [2.0, 2.0]
    assert autograd.grad(y.sum(), [x, w], materialize_grads=True)[1].tolist() == [0.0]
    with pytest.raises(lt.AutogradError, match="one of the differentiated Tensors does not require grad"):
        autograd.grad(y.sum(), lt.ones(2))
    with pytest.raises(
        lt.AutogradError, match="element 0 of tensors does not require grad and does not have a grad_fn"
    ):
        autograd.grad(lt.ones(()), x)
    with pytest.raises(lt.AutogradError, match="grad can be implicitly created only for scalar outputs"):
        autograd.grad(x * 2, x)
    with pytest.raises(lt.ShapeError, match=r"gradient has shape \(3,\), the tensor has \(2,\)"):
        autograd.grad(x * 2, x, lt.ones(3))
    with pytest.raises(lt.AutogradError, match="got 1 tensors and 2 gradients"):
        autograd.grad(x * 2, x, [None, None])
    with pytest.raises(lt.AutogradError, match="requires non-empty inputs"):
        autograd.grad(x * 2, [])
    with pytest.raises(lt.AutogradError, match="requires non-empty outputs"):
        autograd.grad([], x)
    with pytest.raises(TypeError, match="outputs must be tensors, not 'int'"):
        autograd.grad([3], x)
    with pytest.raises(lt.AutogradError, match="Expected allow_unused to be True"):
        autograd.grad(y.sum(), x, allow_unused=False, materialize_grads=True)
    with pytest.raises(lt.AutogradError, match=r"is_grads_batched requires rows of shape \(\), got None"):
        autograd.grad(y.sum(), x, is_grads_batched=True)
    with pytest.raises(lt.AutogradError, match="requires non-empty tensors"):
        autograd.backward([])
    with pytest.raises(lt.AutogradError, match="argument to `backward\\(\\)` cannot be empty"):
        autograd.backward(y.sum(), inputs=[])


def test_rows_of_gradients_are_pulled_back_at_once() -> None:
    x, w, other = (lt.tensor([1.0, 2.0, 3.0], requires_grad=True) for _ in range(3))
    y, z = x * x * w, (x + 1).sum()
    rows = [lt.eye(3), lt.asarray([1.0, 2.0, 3.0])]
    got = autograd.grad([y, z], [x, w, other], rows, is_grads_batched=True, retain_graph=True, allow_unused=True)
    for i in range(3):
        want = autograd.grad([y, z], [x, w], [r[i] for r in rows], retain_graph=True)
        assert got[0][i].tolist() == want[0].tolist() and got[1][i].tolist() == want[1].tolist()
    assert got[2] is None
    lt.sync()
    zeros = autograd.grad(y, other, lt.eye(3), is_grads_batched=True, materialize_grads=True)[0]
    assert zeros.tolist() == np.zeros((3, 3)).tolist()


def test_backward_of_several_values_and_of_some_leaves() -> None:
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    autograd.backward([(x * w).sum(), x * 2], [None, lt.asarray([1.0, 10.0])])
    assert x.grad.tolist() == [5.0, 24.0]
    autograd.backward((x * w).sum(), inputs=w)
    assert x.grad.tolist() == [5.0, 24.0]
    assert w.grad.tolist() == [2.0, 4.0]


def test_hooks_after_a_leaf_received_its_gradient() -> None:
    x = leaf(1.0, 2.0)
    seen: list[Any] = []
    hook = x.register_post_accumulate_grad_hook(lambda p: seen.append((p is x, p.grad.tolist())))
    (x * 2).sum().backward()
    (x * 3).sum().backward()
    with hook:
        pass
    (x * 3).sum().backward()
    assert seen == [(True, [2.0, 2.0]), (True, [5.0, 5.0])]
    with pytest.raises(lt.AutogradError, match="post accumulate grad hooks cannot be registered on non-leaf tensors"):
        (x * 2).register_post_accumulate_grad_hook(print)
    with pytest.raises(lt.AutogradError, match="cannot register a hook on a tensor that doesn't require gradient"):
        lt.ones(2).register_post_accumulate_grad_hook(print)


def test_a_hook_that_updates_its_leaf_is_one_plan() -> None:
    """The optimizer in the backward: no gradient outlives its use."""
    w = leaf(1.0, 2.0)

    def step(p: Any) -> None:
        with lt.no_grad():
            p -= 0.25 * p.grad
        p.grad = None

    w.register_post_accumulate_grad_hook(step)
    with lt.expect(syncs=1):
        for _ in range(2):
            (w * w).sum().backward()
        assert w.tolist() == [0.25, 0.5]
    assert w.grad is None


def test_what_a_hook_may_return() -> None:
    x = leaf(1.0, 2.0)
    for bad, error, message in (
        (lambda g: 3, lt.AutogradError, "a hook must return a tensor or None, not 'int'"),
        (lambda g: g.sum(), lt.ShapeError, "a hook has changed the size of value"),
    ):
        h = x * 2
        h.register_hook(bad)
        with pytest.raises(error, match=message):
            h.sum().backward()


def test_modes() -> None:
    w = leaf(1.0)
    with autograd.set_grad_enabled(False):
        assert not (w * 2).requires_grad
        with autograd.enable_grad():
            assert (w * 2).requires_grad
        with lt.inference_mode():
            assert not (w * 2).requires_grad
    autograd.set_grad_enabled(False)
    assert not lt.is_grad_enabled()
    autograd.set_grad_enabled(True)

    @autograd.set_grad_enabled(False)
    def plain() -> Any:
        return w * 2

    @lt.inference_mode()
    def inferred() -> Any:
        return w * 2

    @autograd.no_grad()
    def none() -> Any:
        return w * 2

    assert lt.is_grad_enabled()
    assert not plain().requires_grad
    assert not none().requires_grad
    out = inferred()
    assert lt.is_grad_enabled()
    assert out.is_inference()
    assert not out.requires_grad


@pytest.mark.parametrize("synced", [False, True])
def test_an_anomaly_names_the_line_of_the_first_nan(synced: bool) -> None:
    x = lt.tensor([0.0, 4.0], requires_grad=True)
    here = "test_gradient_calls"
    with autograd.detect_anomaly():
        y = lt.sqrt(x)
        z = (y * 0).sum()
        lt.sync() if synced else None
        with pytest.raises(
            lt.AutogradError,
            match=rf"'sqrtBackward' returned nan values in its 0th output: the gradient of sqrt, .*{here}.py:\d+\.$",
        ):
            z.backward()
        z = (lt.log(x) * 0).sum()
        lt.sync() if synced else None
        with pytest.raises(
            lt.AutogradError,
            match=rf"'logBackward' .* is not finite in the forward pass is inf, the result of log.*{here}.py:\d+\.$",
        ):
            autograd.grad(z, x)
        (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
    (lt.sqrt(x) * 0).sum().backward()  # nobody looks
    with autograd.detect_anomaly(check_nan=False):
        assert autograd.is_anomaly_enabled()
        (lt.sqrt(x) * 0).sum().backward()
    assert not autograd.is_anomaly_enabled()
    autograd.set_detect_anomaly(True)
    with pytest.raises(lt.AutogradError, match="A value that the program was given is not finite"):
        (lt.asarray([np.nan, 1.0]) * x).sum().backward()
    autograd.set_detect_anomaly(False)
    assert not autograd.is_anomaly_enabled()


def test_gradcheck_finds_what_is_wrong() -> None:
    class Bad(autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return lt.exp(x)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * ctx.saved_tensors[0]

    x, z = leaf(0.3, 0.7), lt.tensor([0.5 + 1j, -1j], dtype=lt.complex128, requires_grad=True)
    for fast in (False, True):
        with pytest.raises(
            autograd.GradcheckError, match="Jacobian mismatch for output 0 with respect to input 0,\nnumerical:"
        ):
            autograd.gradcheck(Bad.apply, x, fast_mode=fast)
        assert not autograd.gradcheck(Bad.apply, x, raise_exception=False, fast_mode=fast)
        assert autograd.gradcheck(lambda a, b: (lt.sin(a) * b, a * 2), (x, z), fast_mode=fast)
        assert autograd.gradgradcheck(lambda a, b: lt.sin(a) * b * b, (x, z), fast_mode=fast)
    assert not autograd.gradgradcheck(lambda v: v * v.detach(), x, raise_exception=False)
    with pytest.raises(ValueError, match="expects at least one input tensor to require gradient"):
        autograd.gradcheck(lt.exp, lt.ones(2))
    with pytest.raises(autograd.GradcheckError, match="no output of the function requires grad"):
        autograd.gradcheck(lambda v: v.detach(), x)
    with pytest.warns(lt.LazytWarning, match="input 0 requires gradient and is float32"):
        autograd.gradcheck(lambda v: v * 2, lt.tensor([1.0], requires_grad=True), eps=1e-2)


class Square(autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return 2 * grad * ctx.saved_tensors[0]


def test_four_threads_with_backward_on_their_own_graphs() -> None:
    found: dict[int, Any] = {}

    def train(k: int) -> None:
        rng = np.random.default_rng(k)
        w = lt.tensor(rng.normal(size=(4, 4)), dtype=lt.float64, requires_grad=True)
        for turn in range(6):
            h = lt.tanh(lt.ones((2, 4)).astype(lt.float64) @ w)
            h.register_hook(lambda g: g * (k + 1))
            y = Square.apply(h)
            if turn % 2:
                lt.sync()
            y.sum().backward()
            with lt.no_grad():
                w -= 0.01 * w.grad
            w.grad = None
        found[k] = w.detach().numpy()

    threads = [threading.Thread(target=train, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    together = dict(found)
    for k in range(4):
        train(k)
        np.testing.assert_array_equal(together[k], found[k])


def test_a_hook_on_what_another_thread_has_pending_is_refused() -> None:
    w, found = leaf(1.0, 2.0), []
    recorder = threading.Thread(target=lambda: found.append(w * 2))
    recorder.start()
    recorder.join()
    for _ in range(2):  # it is computed by the first attempt
        with pytest.raises(lt.ThreadError, match="register_hook: another thread has recorded this value"):
            found[0].register_hook(lambda g: g)
    assert found[0].tolist() == [2.0, 4.0]


def test_gradients_by_numpys_arrays_are_arrays_and_values_numbers():
    w = lt.tensor([2.0, 3.0], dtype=lt.float64, requires_grad=True)
    f = lt.value_and_grad(lambda x, d: (w * x * x).sum() * d["s"], argnums=(0, 1))
    lt.sync()
    with lt.expect(syncs=1):
        value, (gx, gd) = f(np.array([1.0, 4.0]), {"s": np.array(0.5)})
    assert type(value) is float and value == 25.0
    assert type(gx) is np.ndarray and gx.dtype == np.float64 and gx.tolist() == [2.0, 12.0] and gx.flags.writeable
    assert type(gd["s"]) is np.ndarray and gd["s"] == 50.0
    assert type(lt.grad(lambda x: (x * x).sum())(np.ones(2, "f4"))) is np.ndarray
    with pytest.raises(DTypeError, match="grad: a floating or complex tensor is required, not int64"):
        f(np.array([1, 4]), {"s": np.array(1)})


def test_what_is_made_of_plain_values_has_no_graph():
    x, w = lt.tensor([1.0, 2.0]), lt.tensor([3.0, 4.0], requires_grad=True)

    def f(v):
        return (v**3).sum()

    value, g = lt.value_and_grad(f)(x)
    again = lt.grad(lambda v: lt.grad(f)(v).sum())(x)
    rows = lt.jacrev(lt.grad(f))(x)
    out, pull = lt.vjp(f, x)
    (pulled,) = pull(lt.tensor(1.0))
    aux = lt.value_and_grad(lambda v: (f(v), {"twice": v * 2}), has_aux=True)(x)[0][1]["twice"]
    assert not any(t.requires_grad for t in (value, g, again, rows, out, pulled, aux))
    assert again.tolist() == [6, 12] and rows.tolist() == [[6, 0], [0, 12]] and aux.tolist() == [2, 4]
    # What f reads beside its arguments is differentiated as ever, and so is a graph around it.
    value, g = lt.value_and_grad(lambda v: (v * v * w).sum())(x)
    (value + g.sum()).backward()
    assert w.grad.tolist() == [3, 8]
    y = lt.tensor([1.0, 2.0], requires_grad=True)
    lt.value_and_grad(f)(y)[0].backward()
    assert y.grad.tolist() == [3, 12]


def test_a_gradient_that_comes_again_leads_where_it_leads_then():
    w, one = lt.tensor([1.0, 2.0]), lt.tensor([3.0, 4.0])

    def calls(held: bool) -> list[Any]:
        """Gradients by two arguments beside a leaf, which somebody holds or not."""
        x = one * 1
        x.requires_grad_()
        y = x * 2
        leaf = [x] if held else []
        del x
        f = lt.grad(lambda v, u: (v * v * y + u * v).sum(), argnums=(0, 1))
        found = [*f(w, one), *f(one, w)]
        for t in leaf:
            (found[0] * found[2]).sum().backward()
            found.append(t.grad)
        return found

    alone = [calls(False) for _ in range(3)]
    # The same steps: now they lead to something that somebody may differentiate by.
    beside = [calls(True) for _ in range(2)] + [calls(False)] + [calls(True)]
    want = [[15, 36], [1, 2], [37, 66], [3, 4]]
    assert all([t.tolist() for t in found[:4]] == want for found in alone + beside)
    assert [len(found) for found in beside] == [5, 5, 4, 5]
    assert not any(t.requires_grad for found in (*alone, beside[2]) for t in found)
    assert all(found[0].requires_grad for found in beside if len(found) == 5)
    assert len({tuple(found[4].tolist()) for found in beside if len(found) == 5}) == 1


def test_a_gradient_that_comes_again_is_found_where_it_was_recorded(monkeypatch):
    w, u = lt.tensor([1.0, 2.0]), lt.tensor([3.0, 4.0])
    f = lt.value_and_grad(lambda v, rest: (v * v * rest["u"]).sum(), argnums=(1, 0))

    def values(a: lt.Tensor, b: lt.Tensor) -> list[Any]:
        out, (by_rest, by_v) = f(a, {"u": b})
        assert not any(t.requires_grad for t in (out, by_rest["u"], by_v))
        return [t.tolist() for t in (out, by_rest["u"], by_v)]

    found = [values(w, u) for _ in range(2)]
    monkeypatch.setattr("lazyt.autograd.engine.pull", None)  # what finds the way to the leaves
    found.append(values(w, u))
    assert found == [[19.0, [1.0, 4.0], [6.0, 16.0]]] * 3
    with pytest.raises(TypeError):
        values(w[1:], u)


def _named(kind: Any) -> Any:
    x = lt.asarray([1.0, 2.0])
    return collections.defaultdict(list, a=x) if kind is collections.defaultdict else kind(a=x)


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, collections.defaultdict])
def test_a_mapping_stays_what_it_is(kind: Any) -> None:
    m = _named(kind)
    for got in (
        lt.grad(lambda q: (q["a"] ** 2).sum())(m),
        lt.vmap(lambda q: q)(m),
        lt.vmap(lambda q: q, in_axes=({"a": 0},))(m),
        lt.vjp(lambda q: q, m)[0],
    ):
        assert type(got) is kind
        assert [*got] == ["a"]
        assert getattr(got, "default_factory", None) is getattr(m, "default_factory", None)
    assert m["a"].tolist() == [1.0, 2.0]
