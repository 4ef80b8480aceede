"""`autograd.Function` as in PyTorch, recorded, wherever the program is synced."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.autograd import Function, gradcheck, gradgradcheck, once_differentiable


class Cube(Function):
    """The input is saved."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x


class Exp(Function):
    """The result is saved."""

    @staticmethod
    def forward(x: Any) -> Any:
        return lt.exp(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        assert len(inputs) == 1
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * ctx.saved_tensors[0]


class SumAndProduct(Function):
    """Two results, of two inputs and a number."""

    @staticmethod
    def forward(ctx: Any, x: Any, k: float, y: Any) -> Any:
        ctx.save_for_backward(x, None, y)
        ctx.k = k
        return x + k * y, x * y

    @staticmethod
    def backward(ctx: Any, a: Any, b: Any) -> Any:
        x, nothing, y = ctx.saved_tensors
        assert nothing is None
        assert ctx.needs_input_grad[1] is False
        return a + b * y, None, ctx.k * a + b * x if ctx.needs_input_grad[2] else None


class Cbrt(Function):
    """A body in NumPy, deferred."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = lt.pure_callback(np.cbrt, x, x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (y,) = ctx.saved_tensors
        return grad / (3 * y * y)


class Hypot(Function):
    """A body in NumPy that reads its input: a sync."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        a = x.numpy()
        ctx.save_for_backward(x)
        return lt.asarray(np.hypot(a, 1.0))

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad * x / lt.hypot(x, 1.0)


def leaf(*values: float) -> lt.Tensor:
    return lt.tensor(list(values), dtype=lt.float64, requires_grad=True)


@pytest.mark.parametrize("function", [Cube, Exp, Cbrt, Hypot])
def test_first_and_second_derivatives(function: Any) -> None:
    x = leaf(0.5, 1.25)
    assert gradcheck(function.apply, x)
    assert gradgradcheck(function.apply, x)
    assert gradgradcheck(lambda a, b: SumAndProduct.apply(a * 1, 3.0, b), (x, leaf(2.0, -1.0)))


@pytest.mark.parametrize("syncs", [(), (0,), (1,), (2,), (0, 1, 2)])
@pytest.mark.parametrize("function", [Cube, Exp, Cbrt])
def test_derivatives_do_not_depend_on_syncs(function: Any, syncs: tuple[int, ...]) -> None:
    x = leaf(0.5, 1.25)
    got = []
    for _ in range(2):
        h = x * 2
        y = function.apply(h)
        lt.sync() if 0 in syncs else None
        z = (y * h).sum()
        lt.sync() if 1 in syncs else None
        (g,) = lt.autograd.grad(z, x, create_graph=True)
        lt.sync() if 2 in syncs else None
        (g2,) = lt.autograd.grad(g.sum(), x)
        got.append((g.tolist(), g2.tolist()))
    v = np.asarray([1.0, 2.5])
    f, d, dd = {
        Cube: (v**3, 3 * v**2, 6 * v),
        Exp: (np.exp(v), np.exp(v), np.exp(v)),
        Cbrt: (np.cbrt(v), np.cbrt(v) / (3 * v), -2 * np.cbrt(v) / (9 * v * v)),
    }[function]
    np.testing.assert_allclose(got[0][0], 2 * (f + v * d), rtol=1e-12)
    np.testing.assert_allclose(got[0][1], 4 * (2 * d + v * dd), rtol=1e-12)
    assert got[1] == got[0]


def test_a_numpy_body_stays_deferred_and_a_step_is_one_sync() -> None:
    x = leaf(0.5, 1.25)
    with lt.no_sync():
        y = Cbrt.apply(x * 1).sum()
        y.backward()
    with lt.expect(syncs=1):
        lt.sync()
    np.testing.assert_allclose(x.grad.numpy(), np.cbrt([0.5, 1.25]) / (3 * np.asarray([0.5, 1.25])))


def test_results_that_nothing_depends_on_have_zeros_or_none() -> None:
    seen: list[Any] = []

    class Two(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, materialize: bool) -> Any:
            ctx.set_materialize_grads(materialize)
            n = lt.argmax(x)
            return x * 2, x * 3, n, None

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            seen.append(grads)
            return grads[0], None

    x = leaf(1.0, 2.0)
    for materialize in (True, False):
        a, _, n, nothing = Two.apply(x, materialize)
        assert nothing is None
        assert not n.requires_grad
        a.sum().backward()
    assert seen[0][1].tolist() == [0.0, 0.0]
    assert seen[1][1] is seen[1][2] is None
    assert x.grad.tolist() == [2.0, 2.0]


def test_what_is_marked_has_no_gradient() -> None:
    class Marked(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            a, b = x * 2, x * 3
            ctx.mark_non_differentiable(b)
            return a, b

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any) -> Any:
            assert b.tolist() == [0.0]
            return a * 2

    x = leaf(1.0)
    a, b = Marked.apply(x)
    assert a.requires_grad
    assert not b.requires_grad
    (a + b).sum().backward()
    assert x.grad.tolist() == [2.0]


class DoubleInPlace(Function):
    """Writes its input."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        x *= 2
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2


@pytest.mark.parametrize("synced", [False, True])
def test_an_input_may_be_written_in_place(synced: bool) -> None:
    x = leaf(1.0, 3.0)
    h = x * 5
    y = DoubleInPlace.apply(h)
    assert y is h
    lt.sync() if synced else None
    assert h.tolist() == [10.0, 30.0]
    (y * y).sum().backward()
    assert x.grad.tolist() == [200.0, 600.0]
    with pytest.raises(lt.AutogradError, match="a leaf Variable that requires grad is being used in an in-place"):
        DoubleInPlace.apply(leaf(1.0))


def test_gradients_take_the_shape_of_the_input_or_do_not_fit() -> None:
    class Wrong(Function):
        made: Any = None

        @staticmethod
        def forward(ctx: Any, x: Any, y: Any = None) -> Any:
            return x.sum()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return Wrong.made

    def pulled(made: Any) -> Any:
        x = leaf(1.0)
        Wrong.made = made
        Wrong.apply(x).backward()
        return x.grad.tolist()

    assert pulled((lt.ones((2, 3)), None, None)) == [6.0]
    assert pulled(lt.ones(1)) == [1.0]
    with pytest.raises(
        lt.AutogradError,
        match=r"function WrongBackward returned an incorrect number of gradients \(expected 1, got 2\)",
    ):
        pulled((lt.ones(1), lt.ones(1)))
    with pytest.raises(TypeError, match="expected a tensor or None as gradient 0, got 'float'"):
        pulled(1.0)
    x = leaf(1.0, 2.0)
    Wrong.made = lt.ones(3)
    with pytest.raises(
        lt.ShapeError, match=r"invalid gradient at index 0 - got \[3\] but expected shape compatible with \[2\]"
    ):
        Wrong.apply(x).backward()


@pytest.mark.parametrize("synced", [False, True])
def test_saved_tensors_are_checked_and_freed(synced: bool) -> None:
    x = leaf(1.0, 2.0)
    h = x * 2
    y = Cube.apply(h).sum()
    lt.sync() if synced else None
    h += 1
    with pytest.raises(
        lt.AutogradError,
        match=r"float64 \[2\], which is saved tensor 0 of Cube, is at version 1; expected version 0",
    ):
        y.backward()
    y = Cube.apply(x * 1).sum()
    lt.sync() if synced else None
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [6.0, 24.0]
    with pytest.raises(lt.AutogradError, match="Trying to backward through the graph a second time"):
        y.backward()


def test_a_derivative_that_is_none_again() -> None:
    class Once(Cube):
        backward = staticmethod(once_differentiable(Cube.backward))

    x = leaf(2.0)
    (g,) = lt.autograd.grad(Once.apply(x).sum(), x, create_graph=True)
    assert g.tolist() == [12.0]
    with pytest.raises(
        lt.AutogradError, match="trying to differentiate twice a function that was marked with @once_differentiable"
    ):
        g.sum().backward()


def test_a_view_of_an_input_may_not_be_written() -> None:
    class First(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x[0], x

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any) -> Any:
            return lt.stack([a, a * 0]) + b

    x = leaf(1.0, 2.0) * 1
    for k, out in enumerate(First.apply(x)):
        with pytest.raises(
            lt.AutogradError,
            match=f"Output {k} of First is a view and is being modified inplace. This view was created inside",
        ):
            out += 1
        with lt.no_grad():
            out += 1
    assert x.tolist() == [1.0, 2.0]


def test_what_a_function_is_not() -> None:
    with pytest.raises(TypeError, match="Cube should not be instantiated"):
        Cube()
    with pytest.raises(NotImplementedError, match="You must implement the forward function"):
        Function.apply(leaf(1.0))

    class Saves(Cube):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(3)

    with pytest.raises(TypeError, match="save_for_backward can only save variables, but argument is of type int"):
        Saves.apply(leaf(1.0))

    class Dirty(Cube):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_dirty(x)
            return x * 1

    with pytest.raises(lt.AutogradError, match="must be an input, and returned as-is"):
        Dirty.apply(leaf(1.0) * 1)


def test_without_gradients_nothing_is_kept() -> None:
    x = leaf(2.0)
    with lt.no_grad():
        y = Cube.apply(x)
    assert not y.requires_grad
    assert not Cube.apply(x.detach()).requires_grad
    y = Cube.apply(x * 1)  # nobody holds what it saved
    del y
    with lt.expect(kernels=0):
        lt.sync()


def test_saved_tensors_hooks_pack_and_unpack() -> None:
    log: list[str] = []

    def pack(t: Any) -> Any:
        log.append("pack")
        return t.detach() * 10

    def unpack(t: Any) -> Any:
        log.append("unpack")
        return t / 10

    x = leaf(1.0, 2.0)
    for function, want in ((Cube, [24.0, 96.0]), (Exp, [2 * np.exp(2.0), 2 * np.exp(4.0)])):
        x.grad = None
        h = x * 2
        with lt.autograd.saved_tensors_hooks(pack, unpack):
            y = function.apply(h)
        assert log == ["pack"]
        h += 1  # no version is checked of what is packed
        lt.sync()
        (g,) = lt.autograd.grad(y.sum(), x, create_graph=True)
        np.testing.assert_allclose(g.detach().numpy(), want)
        (g2,) = lt.autograd.grad(g.sum(), x)
        np.testing.assert_allclose(g2.numpy(), [48.0, 96.0] if function is Cube else np.multiply(want, 2))
        assert log == ["pack", "unpack"] * 1 + ["unpack"] * (len(log) - 2)
        log.clear()

    def spoil(t: Any) -> Any:
        t += 1
        return t

    with (
        lt.autograd.saved_tensors_hooks(spoil, lambda t: t),
        pytest.raises(lt.AutogradError, match="A saved tensor pack hook is modifying its input in place"),
    ):
        Cube.apply(x * 1)
    with lt.autograd.saved_tensors_hooks(lambda t: 3, lambda t: t):
        y = Cube.apply(x).sum()
    with pytest.raises(TypeError, match="Output of saved tensor unpack_hook expected to be a tensor but got int"):
        y.backward()
    with pytest.raises(TypeError, match="saved_tensors_hooks: a function is required, not 'int'"):
        lt.autograd.saved_tensors_hooks(3, 4)
    with lt.autograd.save_on_cpu():
        y = Cube.apply(x).sum()
    x.grad = None
    y.backward()
    assert x.grad.tolist() == [3.0, 12.0]


def test_pure_callback() -> None:
    x = lt.asarray([3.0, 4.0])
    a, b = lt.pure_callback(np.modf, [x, x], x / 2)
    assert (a.tolist(), b.tolist()) == ([0.5, 0.0], [1.0, 2.0])
    with pytest.raises(lt.AutogradError, match="no derivative"):
        lt.pure_callback(np.cbrt, x, leaf(1.0, 2.0))
    with pytest.raises(TypeError, match="pure_callback: a function is required, not 'int'"):
        lt.pure_callback(3, x)
    with pytest.raises(TypeError, match="a result is a pair"):
        lt.pure_callback(np.cbrt, 3, x)


@pytest.mark.parametrize("how", [
    lambda y: y.detach(), lambda y: y.reshape(3, 1)[:, 0], lambda y: y + 0 * y[0],
    lambda y: lt.broadcast_to(y, (2, 3))[1], lambda y: lt.stack([*y]), lambda y: y,
])  # fmt: skip
@pytest.mark.parametrize("create", [False, True])
def test_backward_reads_a_saved_result_in_any_way(how, create):
    """Views of it are of a value of its own: the result is the user's, and keeps its value."""
    kept = []

    class Tanh(lt.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = lt.tanh(x)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, ct):
            (y,) = ctx.saved_tensors
            kept.append(y)
            return ct * (1 - how(y) ** 2)

    x = lt.asarray([0.1, 0.2, 0.3]).requires_grad_()
    want = np.tanh(x.detach().numpy())
    y = Tanh.apply(x)
    (g,) = lt.autograd.grad((y**2).sum(), [x], create_graph=create)
    if create:
        g.sum().backward()
    lt.sync()
    np.testing.assert_allclose(g.detach().numpy(), 2 * want * (1 - want**2), rtol=1e-6)
    np.testing.assert_allclose(y.detach().numpy(), want, rtol=1e-6)
    np.testing.assert_allclose((kept[0].detach() * 2).numpy(), 2 * want, rtol=1e-6)


class _WritesAndSaves(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = x * 2
        y *= 2
        ctx.save_for_backward(y)
        return y * 1

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * ctx.saved_tensors[0]


class _WritesItsInput(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        x *= lt.asarray([1.0, 0.0])
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * ctx.saved_tensors[0]


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize(("function", "expected"), [(_WritesAndSaves, [4.0, 8.0]), (_WritesItsInput, [1.0, 0.0])])
def test_what_forward_writes_and_saves_is_read_back(function: Any, expected: list[float], read: bool) -> None:
    x = lt.tensor([1.0, 2.0], requires_grad=True)
    loss = function.apply(x * 1).sum()
    if read:
        loss.item()
    loss.backward()
    assert x.grad is not None and x.grad.tolist() == expected


def test_a_write_to_a_saved_result_that_forward_wrote_is_found() -> None:
    y = _WritesItsInput.apply(lt.tensor([1.0, 2.0], requires_grad=True) * 1)
    y *= 2
    with pytest.raises(lt.AutogradError, match="saved tensor 0 of _WritesItsInput"):
        y.sum().backward()


def test_a_result_that_forward_wrote_and_saved_is_not_kept_by_itself() -> None:
    y = _WritesItsInput.apply(lt.tensor([1.0, 2.0], requires_grad=True) * 1)
    held = weakref.ref(y)
    lt.sync()
    gc.collect()
    gc.disable()
    try:
        del y
        assert held() is None
    finally:
        gc.enable()


def _exponential(keeps: str) -> Any:
    class Exp(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = lt.exp(x)
            ctx.scale = lt.asarray(1.0)
            ctx.kept = {"a result": y, "in a list": [y], "an argument": x}.get(keeps)
            if keeps.startswith("saved"):
                ctx.save_for_backward(y if keeps == "saved" else lt.exp(x))
            return y

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            kept = ctx.saved_tensors[0] if ctx.kept is None else ctx.kept
            kept = kept[0] if keeps == "in a list" else lt.exp(kept) if keeps == "an argument" else kept
            return grad * kept * ctx.scale

    return Exp.apply


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("keeps", ["saved", "an argument", "a result", "in a list", "saved, no result"])
def test_what_forward_computes_and_keeps_by_hand_is_differentiated_once(keeps: str, read: bool) -> None:
    f = _exponential(keeps)
    x = lt.tensor([0.0, 1.0], requires_grad=True)
    (g,) = lt.autograd.grad(f(x).sum(), [x], create_graph=True)
    np.testing.assert_allclose(
        g.detach().numpy() if read else lt.grad(lambda u: f(u).sum())(x.detach()), np.exp([0, 1])
    )
    if keeps in ("saved", "an argument"):
        g.sum().backward()
        assert x.grad is not None
        np.testing.assert_allclose(x.grad, np.exp([0.0, 1.0]), rtol=1e-6)
        return
    with pytest.raises(lt.NotSupportedError, match=r"differentiating twice through Exp, .*keeps (as the attribute|by)"):
        g.sum().backward()
