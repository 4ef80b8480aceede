"""Derivatives of one's own beside a graph that other paths lead through too."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from lazyt.errors import AutogradError


@lt.custom_vjp
def doubled(x):
    return x * 2


doubled.defvjp(lambda x: (x * 2, (x,)), lambda residuals, ct: (ct * 2 * (residuals[0] * 0 + 1),))


def test_two_paths_share_what_is_in_front():
    weights = np.array([1.0, 2.0, 3.0])
    for _ in range(2):  # the program's second turn is known
        a = lt.tensor(np.full(3, 1.5), requires_grad=True)
        c = a * lt.asarray(weights)
        y = (doubled(c + 1) * c).sum()
        y.backward()
        np.testing.assert_allclose(a.grad.numpy(), weights * (4 * c.detach().numpy() + 2))
    with pytest.raises(AutogradError, match=r"after a sync|a second time"):
        y.backward()


def test_what_one_backward_freed_is_not_passed_again():
    c = lt.tensor(np.full(3, 1.5), requires_grad=True) * lt.asarray([1.0, 2.0, 3.0])
    y = (doubled(c + 1) * c).sum()
    y.backward()
    with pytest.raises(AutogradError, match="a second time"):
        y.backward()


def test_a_kept_graph_is_passed_again():
    a = lt.tensor(np.full(3, 1.5), requires_grad=True)
    c = a * a
    y = (doubled(c) * c).sum()
    y.backward(retain_graph=True)
    y.backward()
    np.testing.assert_allclose(a.grad.numpy(), 2 * 4 * c.detach().numpy() * 3.0)
