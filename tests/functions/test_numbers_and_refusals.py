"""Numbers that are instances of subclasses of Python's types, and arguments that are refused by name."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.errors import DTypeError, ShapeError

X = lt.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


class Size(enum.IntEnum):
    SMALL = 3


class Metre(float):
    pass


USES = {
    "operator": lambda n: X * n,
    "reflected": lambda n: n - X,
    "power": lambda n: X**n,
    "comparison": lambda n: n > X,
    "in place": lambda n: (X + 0).__imul__(n),
    "function": lambda n: lt.maximum(n, X),
    "method": lambda n: X.clip(0, n),
    "choice": lambda n: lt.where(X > 2, n, 0),
    "value": lambda n: lt.full((2,), n),
    "beside integers": lambda n: lt.asarray([1, 2]) + n,
    "ufunc": lambda n: np.add(X, n),
    "list": lambda n: lt.asarray([n, 1]),
}


@pytest.mark.parametrize("number", [Size.SMALL, Metre(2.5), np.complex64(3).real], ids=repr)
@pytest.mark.parametrize("use", USES)
def test_an_instance_of_a_subclass_is_the_number_that_it_is(use: str, number: Any) -> None:
    plain = number if isinstance(number, np.generic) else (int if isinstance(number, int) else float)(number)
    for _ in range(3):  # new, known, and as a cached call
        got, want = USES[use](number), USES[use](plain)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_a_value_is_written_by_such_a_number() -> None:
    x = lt.zeros(3)
    for _ in range(3):
        x[1] = Size.SMALL
        assert x.tolist() == [0, 3, 0]


def test_what_equals_no_number_is_in_no_tensor() -> None:
    assert 4.0 in X
    assert 7.0 not in X
    assert "a" not in X


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "grad": (lambda: lt.grad(3), TypeError, "grad: a function is required, not 'int'"),
    "vjp": (lambda: lt.vjp(3, X), TypeError, "vjp: a function is required, not 'int'"),
    "jvp": (lambda: lt.jvp(3, (X,), (X,)), TypeError, "jvp: a function is required, not 'int'"),
    "jacfwd": (lambda: lt.jacfwd(3), TypeError, "jacfwd: a function is required, not 'int'"),
    "jacrev": (lambda: lt.jacrev(3), TypeError, "jacrev: a function is required, not 'int'"),
    "hessian": (lambda: lt.hessian(3), TypeError, "hessian: a function is required, not 'int'"),
    "vmap": (lambda: lt.vmap(3), TypeError, "vmap: a function is required, not 'int'"),
    "einsum of one": (lambda: lt.einsum(X), ShapeError, "einsum: subscripts and at least one operand"),
    "einsum of none": (lambda: lt.einsum("ij"), ShapeError, "einsum: subscripts and at least one operand"),
    "arange": (lambda: lt.arange("a"), DTypeError, "arange: a bound is a number, got 'a'"),
    "unique": (lambda: lt.unique(X, axis=9), IndexError, "unique: axis 9 is out of bounds"),
    "seed": (lambda: lt.random.seed("a"), DTypeError, "random.seed: the seed must be an integer, got 'a'"),
    "generator": (lambda: lt.random.Generator("a"), DTypeError, "random.Generator: the seed must be an integer"),
    "ragged index": (lambda: X[[[0, 1], [2]]], ShapeError, "index: setting an array element with a sequence"),
    "size": (lambda: lt.memory.budget(-1), ValueError, "memory.budget: a size above 0 is required"),
    "bits": (lambda: lt.memory.compress("x"), ValueError, "compress: bits are one of"),
    "schema": (lambda: lt.library.custom_op("bad")(lambda a: a), ValueError, "'::' is required here"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_by_name_at_the_user_s_line(name: str) -> None:
    call, error, message = REFUSED[name]
    with pytest.raises(error, match=message) as e:
        call()
    assert "/lazyt/" not in str(e.traceback[-1].path)
