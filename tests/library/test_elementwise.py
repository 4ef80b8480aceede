"""Elementwise operations by expressions and functions: they fuse, and have every derivative."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import lazyt as lt

names = itertools.count()


def name() -> str:
    return f"expr::op{next(names)}"


def test_an_expression_is_one_step_that_fuses():
    op = lt.library.elementwise(name(), "x * exp(-y) + where(x > 0.5, 1.0, pi)")
    x, y = (lt.asarray(v, dtype=lt.float64) for v in ([0.1, 2.0], [3.0, 4.0]))
    with lt.no_sync():
        z = op(x * 2, y) + 1
    assert z.explain().launches == 1
    assert op.name in str(z.explain())
    a, b = np.array([0.2, 4.0]), np.array([3.0, 4.0])
    np.testing.assert_allclose(z.numpy(), a * np.exp(-b) + np.where(a > 0.5, 1, np.pi) + 1)


def test_broadcasting_promotion_and_numbers():
    op = lt.library.elementwise(f"{name()}(Tensor x, Tensor y, float a=2.0) -> Tensor", "a * x + y")
    x = lt.ones((2, 1), dtype=lt.float16)
    z = op(x, lt.arange(3, dtype=lt.int8), a=3.0)
    assert (z.dtype, z.tolist()) == (lt.float16, [[3.0, 4.0, 5.0]] * 2)
    for a in (4.0, 5.0, 6.0):
        (op(x, x, a) + 1).tolist()
    with lt.expect(plans=0):
        (op(x, x, 7.0) + 1).tolist()


def test_derivatives_and_lanes():
    op = lt.library.elementwise(name(), lambda x, y: x**2 * lt.sin(y))
    x, y = (lt.tensor(v, dtype=lt.float64, requires_grad=True) for v in ([0.3, 0.7], [1.0, -2.0]))
    assert lt.autograd.gradcheck(op, (x, y))
    assert lt.autograd.gradgradcheck(op, (x, y))
    np.testing.assert_allclose(lt.vmap(op)(x, y).detach().numpy(), op(x, y).detach().numpy())
    z = op(x, y).sum()
    z.item()
    z.backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.array([0.3, 0.7]) * np.sin([1.0, -2.0]))


def test_a_decorated_function_in_any_mode():
    with lt.no_grad(), lt.autocast("cpu"):

        @lt.library.elementwise(name())
        def op(x):
            return lt.maximum(x, 0) * 2

    assert op(lt.asarray([-1.0, 3.0])).tolist() == [0.0, 6.0]


@pytest.mark.parametrize(
    ("text", "why", "at"),
    [
        ("x +", "invalid syntax", None),
        ("nothing(x)", "lazyt has no function 'nothing'", "nothing"),
        ("x if x > 0 else 0", "not supported: IfExp", "x if"),
        ("0 < x < 1", "not supported: a chain of comparisons", "0 <"),
        ("x.real", "not supported: Attribute", "x.real"),
        ("sum(x, axis=0)", "arguments by position", "sum"),
    ],
)
def test_expressions_that_are_none(text, why, at):
    with pytest.raises(lt.library.SchemaError, match=why) as e:
        lt.library.elementwise(name(), text)
    lines = str(e.value).split("\n")
    assert lines[1] == "  " + text
    if at is not None:
        assert lines[2] == " " * (2 + text.index(at)) + "^"


outside = lt.asarray([1.0, 2.0])


@pytest.mark.parametrize(
    ("f", "why"),
    [
        (lambda x: x.sum(), r"not supported|because"),
        (lambda x: lt.cumsum(x.reshape((1,))), r"not elementwise|at its place"),
        (lambda x: x + outside, "a tensor from outside; make it an argument"),
        (lambda x: 3, "the function gave a 'int', a tensor is required"),
    ],
)
def test_functions_that_are_not_elementwise(f, why):
    with pytest.raises((lt.NotSupportedError, TypeError), match=why):
        lt.library.elementwise(name(), f)


def test_schemas_that_do_not_fit():
    with pytest.raises(lt.library.SchemaError, match="'y' of 'x \\+ y' is no argument"):
        lt.library.elementwise(f"{name()}(Tensor x) -> Tensor", "x + y")
    with pytest.raises(lt.NotSupportedError, match=r"argument 'd' of type int\[\]"):
        lt.library.elementwise(f"{name()}(Tensor x, int[] d) -> Tensor", "x")
    with pytest.raises(lt.library.SchemaError, match="has no arguments"):
        lt.library.elementwise(name(), "pi")
    with pytest.raises(TypeError, match="an expression or a function is required, got 3"):
        lt.library.elementwise(name(), 3)
