"""Operations of users: kernels of arrays and of tensors, shapes, derivatives, lanes, autocast, errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import lazyt as lt

names = itertools.count()


def defined(arguments: str = "Tensor x", results: str = "Tensor") -> lt.library.Operation:
    return lt.library.define(f"test::op{next(names)}({arguments}) -> {results}")


def square() -> lt.library.Operation:
    op = defined()
    op.impl("cpu", np.square)
    op.register_fake(lambda x: x)
    return op


def hypot() -> lt.library.Operation:
    """a * hypot(x, y), with all rules."""
    op = defined("Tensor x, Tensor y, float a=1.0")
    op.impl("cpu", lambda x, y, a: np.asarray(a * np.hypot(x, y), x.dtype))
    op.register_fake(lambda x, y, a: x)
    return op


def test_a_call_is_one_deferred_step_in_the_order_of_the_program():
    calls = []
    op = defined("Tensor x, int n, *, str name='a'")

    @op.impl("cpu")
    def _(x, n, *, name):
        calls.append((x.tolist(), n, name))
        assert not x.flags.writeable
        return x + np.float32(n)

    op.register_fake(lambda x, n, *, name: x)
    x = lt.asarray([1.0])
    with lt.no_sync():
        y = op(op(x + 1, 1) * 2, 5, name="b")
    assert not calls
    assert y.tolist() == [11.0]
    assert calls == [([2.0], 1, "a"), ([6.0], 5, "b")]
    assert "test::" in repr(op)


def test_names_and_numbers():
    op = hypot()
    assert getattr(lt.library.ops.test, op.schema.name) is op
    assert op.schema.name in dir(lt.library.ops.test)
    assert "test" in dir(lt.library.ops)
    x = lt.asarray([3.0])
    for a in (1.0, 2.0, 3.5):
        assert op(x, np.float32([4.0]), a).tolist() == [5.0 * a]
    with pytest.raises(AttributeError, match="test::nothing: no such operation"):
        lt.library.ops.test.nothing  # noqa: B018
    with pytest.raises(lt.library.RegistrationError, match="did you mean test::op"):
        lt.library.impl(op.name + "0", "cpu", np.square)


def test_another_number_is_no_other_program():
    op, x = hypot(), lt.asarray([3.0])
    for a in (1.0, 2.0, 3.0):
        (op(x, x, a) + 1).tolist()
    with lt.expect(plans=0):
        (op(x, x, 7.0) + 1).tolist()


def test_several_results_lists_and_none():
    op = defined("Tensor[] xs, Tensor? y=None", "(Tensor, Tensor)")

    @op.impl("cpu")
    def _(xs, y):
        total = sum(xs)
        return total if y is None else total + y, np.array(len(xs))

    op.register_fake(lambda xs, y: (xs[0], ((), lt.int64)))
    x = lt.asarray([1.0, 2.0])
    total, n = op([x, x * 2])
    assert (total.tolist(), n.item()) == ([3.0, 6.0], 2)
    assert op([x], y=x)[0].tolist() == [2.0, 4.0]


def test_a_call_without_tensors():
    op = defined("int n")
    op.impl("cpu", lambda n: np.full(n, n, np.float32))
    op.register_fake(lambda n: ((n,), lt.float32))
    assert (op(3) * 2).tolist() == [6.0, 6.0, 6.0]


def test_bfloat16_is_passed_as_it_is():
    op = square()
    assert op(lt.asarray([1.5], dtype=lt.bfloat16)).dtype == lt.bfloat16


def test_a_composed_kernel_is_recorded_inline():
    op = defined("Tensor x, float a=2.0")
    op.impl(None, lambda x, a: lt.exp(x) * a)
    x = lt.ones(3)
    y = op(x) + 1
    assert y.explain().launches == 1
    np.testing.assert_allclose(y.numpy(), 2 * np.exp(np.ones(3)) + 1, rtol=1e-6)
    np.testing.assert_allclose(lt.grad(lambda x: op(x).sum())(x).numpy(), 2 * np.exp(np.ones(3)), rtol=1e-6)
    bad = defined("Tensor x", "(Tensor, Tensor)")
    bad.impl(None, lambda x: x)
    with pytest.raises(lt.ShapeError, match="its kernel gave 1 results, 2 are declared"):
        bad(x)


def test_results_are_checked_at_the_line_that_recorded_them():
    for kernel, error, why in (
        (lambda x: x[:1], lt.ShapeError, r"shape \(1,\), register_fake says \(2,\)"),
        (lambda x: x.astype(np.float64), lt.DTypeError, "dtype float64, register_fake says float32"),
        (lambda x: (x, x), lt.ShapeError, "gave 2 results, 1 are declared"),
        (lambda x: 1 // 0, ZeroDivisionError, "by zero"),
    ):
        op = defined()
        op.impl("cpu", kernel)
        op.register_fake(lambda x: x)
        y = op(lt.ones(2))
        with pytest.raises(error, match=why) as e:
            y.numpy()
        assert any(op.name in note and "test_operations.py" in note for note in e.value.__notes__)


def test_a_kernel_cannot_write_its_inputs():
    op = defined()

    @op.impl("cpu")
    def _(x):
        x += 1
        return x

    op.register_fake(lambda x: x)
    with pytest.raises(ValueError, match="read-only"):
        op(lt.ones(2)).numpy()


def test_what_is_missing_is_said():
    op = defined()
    x = lt.ones(2)
    with pytest.raises(lt.NotSupportedError, match=r"test::op\d+ on 'cpu', .* no kernel there; registered: none"):
        op(x)
    op.impl("cpu", np.square)
    with pytest.raises(lt.NotSupportedError, match=r"register a function by lazyt\.library\.register_fake"):
        op(x)
    op.register_fake(lambda x: 5)
    with pytest.raises(TypeError, match=r"its register_fake gave 5; a result is a pair \(shape, dtype\)"):
        op(x)
    with pytest.raises(lt.library.RegistrationError, match=r"no backend 'tpu'; there are 'cpu'"):
        op.impl("tpu", np.square)
    with pytest.raises(ValueError, match="kind is 'composed', 'arrays' or None"):
        op.impl("cpu", np.square, kind="numpy")
    with pytest.raises(ValueError, match="a kernel of arrays is for one backend"):
        op.impl(None, np.square, kind="arrays")
    with pytest.raises(TypeError, match="a kernel is a function"):
        op.impl("cpu", 3)
    with pytest.raises(TypeError, match="an operation or its name 'ns::name' is required, got 3"):
        lt.library.register_fake(3, lambda x: x)
    with pytest.raises(TypeError, match="register_vjp: a function is required, got 3"):
        op.register_vjp(3)


def test_a_second_definition_names_both_lines():
    op = square()
    with pytest.raises(lt.library.RegistrationError, match=r"defined already, at .*test_operations.py:\d+; .*again at"):
        lt.library.define(str(op.schema))
    with pytest.raises(lt.library.RegistrationError, match=r"a kernel of test::op\d+ for 'cpu' is registered already"):
        op.impl("cpu", np.sqrt)
    with pytest.raises(lt.library.RegistrationError, match="register_fake: that of"):
        op.register_fake(lambda x: x)


def test_what_the_same_line_defines_again_replaces_it():
    for kernel in (np.square, np.negative):
        op = lt.library.define("test::again(Tensor x) -> Tensor")
        op.impl("cpu", kernel)
        op.register_fake(lambda x: x)
    assert lt.library.ops.test.again(lt.asarray([3.0])).tolist() == [-3.0]


# --- derivatives


def _vjp(args, output, ct):
    x, y, a = args
    return ct * a * a * x / output, ct * a * a * y / output, None


def _jvp(args, output, tangents):
    x, y, a = args
    parts = [t * v for t, v in zip(tangents[:2], (x, y), strict=True) if t is not None]
    return sum(parts[1:], parts[0]) * a * a / output


@pytest.mark.parametrize("rules", ["vjp", "jvp", "both"])
def test_derivatives_by_registered_rules(rules):
    op = hypot()
    if rules != "jvp":
        op.register_vjp(_vjp)
    if rules != "vjp":
        op.register_jvp(_jvp)
    x, y = (lt.tensor(v, dtype=lt.float64, requires_grad=True) for v in ([3.0, 1.0], [4.0, 2.0]))
    f = lambda x, y: op(x, y, 2.0)
    assert lt.autograd.gradcheck(f, (x, y))
    assert lt.autograd.gradgradcheck(f, (x, y))
    if rules != "vjp":
        _, t = lt.jvp(lambda x: op(x, y.detach(), 2.0), (x.detach(),), (lt.ones(2, dtype=lt.float64),))
        np.testing.assert_allclose(t.numpy(), 2 * np.array([0.6, 1 / np.sqrt(5)]))
    else:
        with pytest.raises(lt.LazytError, match=r"forward|jvp"):
            lt.jvp(lambda x: op(x, x), (x.detach(),), (lt.ones(2, dtype=lt.float64),))


def test_second_derivatives_by_a_jvp_alone():
    """And third ones: of operations within others, whose jvp reads the arguments, the output, or nothing."""
    made = {
        "cube": (lambda x: x**3, None, lambda args, output, ts: 3 * args[0] ** 2 * ts[0]),
        "exp": (np.exp, ("output",), lambda args, output, ts: output * ts[0]),
        "twice": (lambda x: 2 * x, (), lambda args, output, ts: 2 * ts[0]),
    }
    ops = {}
    for name, (kernel, saves, rule) in made.items():
        op = ops[name] = defined()
        op.impl("cpu", kernel)
        op.register_fake(lambda x: x)
        op.register_jvp(rule, saves=saves)
    x = lt.tensor([0.5, -1.0], dtype=lt.float64, requires_grad=True)
    f = lambda x: ops["exp"](ops["twice"](x) * x) + ops["twice"](ops["cube"](x) * ops["twice"](x))
    assert lt.autograd.gradgradcheck(f, (x,))
    v = lt.asarray(0.7)
    for name, second in (("cube", 6 * 0.7), ("exp", np.exp(0.7)), ("twice", 0.0)):
        assert lt.grad(lt.grad(ops[name]))(v).item() == pytest.approx(second)
    for name, third in (("cube", 6.0), ("exp", np.exp(0.7)), ("twice", 0.0)):
        assert lt.grad(lt.grad(lt.grad(ops[name])))(v).item() == pytest.approx(third)


@pytest.mark.parametrize("synced", [False, True])
def test_backward_before_and_behind_a_sync(synced):
    op = hypot()
    op.register_vjp(_vjp)
    x = lt.tensor([3.0], requires_grad=True)
    y = op(x * 1, 4 * lt.ones(1))
    if synced:
        assert y.tolist() == [5.0]
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [0.6], rtol=1e-6)


def test_a_gradient_without_a_rule_is_refused_at_the_call():
    op = square()
    x = lt.tensor([1.0], requires_grad=True)
    with pytest.raises(lt.NotSupportedError, match=r"a gradient through test::op\d+.*lazyt.library.register_vjp"):
        op(x)
    with lt.no_grad():
        assert op(x).tolist() == [1.0]
    positions = defined()
    positions.impl("cpu", lambda x: np.argsort(x))
    positions.register_fake(lambda x: x.new_empty(x.shape, lt.int64))
    assert positions(x).tolist() == [0]


def test_rules_get_what_they_save():
    op, seen = hypot(), []

    @op.register_vjp(saves=("x",))
    def _(args, output, ct):
        seen.append((args[1], args[2], output))
        return ct * args[0], None, None

    x = lt.tensor([3.0], requires_grad=True)
    op(x, 4 * lt.ones(1)).sum().backward()
    assert seen == [(None, 1.0, None)]
    assert x.grad.tolist() == [3.0]
    with pytest.raises(ValueError, match="saves has 'z', which is no argument"):
        square().register_vjp(lambda a, o, ct: ct, saves=("z",))


@pytest.mark.parametrize(
    ("rule", "error", "why"),
    [
        (lambda args, output, ct: (ct, ct), lt.AutogradError, "must give 1 cotangents, one an argument, got 2"),
        (
            lambda args, output, ct: ct[:1],
            lt.ShapeError,
            r"shape \(1,\) for an argument of shape \(2,\)",
        ),
        (lambda args, output, ct: 3.0, lt.AutogradError, "a 'float', a tensor or None is required"),
    ],
)
def test_rules_that_give_what_does_not_fit(rule, error, why):
    op = square()
    op.register_vjp(rule)
    with pytest.raises(error, match=why):
        lt.grad(lambda x: op(x).sum())(lt.ones(2))


def test_several_results_of_which_one_is_differentiable():
    op = defined("Tensor x", "(Tensor, Tensor)")
    op.impl("cpu", lambda x: (x * x, (x > 0)))
    op.register_fake(lambda x: (x, x.new_empty(x.shape, lt.bool)))

    @op.register_vjp
    def _(args, output, cts):
        assert cts[1] is None
        return cts[0] * 2 * args[0] * output[1]

    x = lt.tensor([3.0, -3.0], requires_grad=True)
    y, positive = op(x)
    y.sum().backward()
    assert (positive.tolist(), x.grad.tolist()) == ([True, False], [6.0, 0.0])


# --- lanes, autocast


@pytest.mark.parametrize("rule", ["sequential", "broadcast_all", "function"])
def test_vmap_by_a_rule(rule):
    op, calls = defined("Tensor x, Tensor y, float a=1.0"), []

    @op.impl("cpu")
    def _(x, y, a):
        calls.append(x.shape)
        return np.asarray((x * y).sum(-1) * a, np.float32)

    op.register_fake(lambda x, y, a: x.new_empty(x.shape[:-1]))
    if rule == "function":

        @op.register_batching
        def _(size, axes, x, y, a):
            assert (size, axes) == (2, (0, None, None))
            return np.asarray((x * y).sum(-1) * a, np.float32)

    else:
        op.register_batching(rule)
    x = lt.arange(6, dtype=lt.float32).reshape((2, 3))
    found = lt.vmap(lambda x, y: op(x, y, 2.0), in_axes=(0, None))(x, lt.ones(3))
    assert found.tolist() == [6.0, 24.0]
    assert calls == {"sequential": [(3,), (3,)], "broadcast_all": [(2, 3)], "function": []}[rule]
    if rule != "function":
        nested = lt.vmap(lt.vmap(op, in_axes=(0, None)), in_axes=(0, None))(lt.ones((2, 3, 4)), lt.ones(4))
        assert nested.tolist() == [[4.0] * 3] * 2


def test_vmap_without_a_rule_names_it():
    op = square()
    with pytest.raises(lt.NotSupportedError, match=r"in vmap, because no batching rule .*register_batching\('test::op"):
        lt.vmap(op)(lt.ones((2, 3)))
    with pytest.raises(ValueError, match="'sequential', 'broadcast_all' or a function"):
        op.register_batching("loop")


def test_gradients_of_examples():
    op = square()
    op.register_vjp(lambda args, output, ct: 2 * ct * args[0])
    op.register_batching("broadcast_all")
    found = lt.vmap(lt.grad(lambda x: op(x).sum()))(lt.asarray([[1.0, 2.0], [3.0, 4.0]]))
    assert found.tolist() == [[2.0, 4.0], [6.0, 8.0]]


def test_autocast():
    op = square()
    op.register_autocast("cpu", lt.bfloat16)
    x = lt.ones(2)
    with lt.autocast("cpu"):
        assert op(x).dtype == lt.bfloat16
        assert square()(x).dtype == lt.float32
    assert op(x).dtype == lt.float32
    with pytest.raises(ValueError, match="a floating dtype is required, got int32"):
        op.register_autocast("cpu", lt.int32)


def test_a_decorated_function():
    @lt.library.custom_op("test::shifted")
    def shifted(x: lt.Tensor, by: int = 1) -> lt.Tensor:
        """Roll it."""
        return np.roll(x, by)

    shifted.register_fake(lambda x, by: x)
    assert shifted(lt.asarray([1.0, 2.0, 3.0])).tolist() == [3.0, 1.0, 2.0]
    assert shifted.__doc__ == "Roll it."
