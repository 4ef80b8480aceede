"""Random functions: what their parameters and sizes have to fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lazyt as lt
from lazyt.errors import LazytInternalError
from lazyt.ir.builder import Builder

P, Q = lt.ones((2, 3)), lt.ones((3, 2))


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (
            lambda: lt.random.bernoulli(P, [0, 5]),
            r"bernoulli: parameters of shape \(2, 3\) do not broadcast to the size",
        ),
        (
            lambda: lt.random.normal(P, 1.0, 3),
            r"normal: parameters of shape \(2, 3\) do not broadcast to the size \(3,\)",
        ),
        (
            lambda: lt.random.normal(P, Q),
            r"normal: parameters of shape \(2, 3\) and \(3, 2\) do not broadcast together",
        ),
        (
            lambda: lt.random.uniform(0.0, P, (2, 1)),
            r"uniform: parameters of shape \(2, 3\) do not broadcast to the size",
        ),
        (lambda: lt.random.normal(P, 1.0, (-1, 3)), r"normal: a shape has no negative extents, got \(-1, 3\)"),
    ],
)
def test_parameters_have_to_fit_the_size(draw: Callable[[], Any], message: str) -> None:
    with pytest.raises(lt.ShapeError, match=message):
        draw()
    lt.sync()  # nothing was left behind


def test_parameters_broadcast() -> None:
    assert lt.random.normal(P, lt.ones((4, 1, 3))).shape == (4, 2, 3)
    assert lt.random.uniform(0.0, P, (5, 2, 3)).numpy().shape == (5, 2, 3)
    assert lt.random.bernoulli(P * 0 + 1).all().item()


def test_an_operation_that_checks_too_little_fails_where_it_is_recorded() -> None:
    b = Builder()
    with pytest.raises(LazytInternalError, match="2 and 1 must be equal here, and the operation has not checked it"):
        b.same(2, 1)
