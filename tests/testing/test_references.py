"""The references of lazyt.testing, NumPy's own functions or others, mean what lazyt means."""

from __future__ import annotations

import numpy as np
import pytest

from lazyt.testing import reference
from lazyt.testing.statements import Stopped, check


def test_a_jump_in_bfloat16_is_where_bfloat16_has_it() -> None:
    # The difference is -3.1445 before it is rounded, a jump of more than half a period, and -3.1406 after it.
    assert check(["v0 = xp.asarray(np.array([2.34375, -0.80078125], 'bfloat16'))", "v1 = new(xp.unwrap(v0))"]) is None


def test_equal_elements_are_sorted_as_lazyt_has_them() -> None:
    assert reference.argsort(np.array([[7.0, 7.0, 0.0, 0.0]])).tolist() == [[2, 3, 0, 1]]


@pytest.mark.parametrize("call", ["softplus(v0, 2.0)", "mish(v0)", "logsigmoid(-v0)"])
def test_references_of_activations_do_not_overflow(call: str) -> None:
    assert check(["v0 = xp.asarray(np.array([54103.0, 0.5]))", f"v1 = new(xp.{call})"]) is None


def test_the_reference_of_softplus_has_its_threshold() -> None:
    assert check(["v0 = xp.asarray(np.array([9.9, 10.1]))", "v1 = new(xp.softplus(v0, 2.0))"]) is None


def test_a_constant_row_is_normalized_to_the_rounding_of_its_mean() -> None:
    data = "v0 = xp.asarray(np.full((1, 3), 6.357785224914551, 'float32'))"
    assert check([data, "v1 = new(xp.group_norm(v0, 1))"]) is None


@pytest.mark.parametrize("call", ["svd(v0)[1]", "pinv(v0)"])
def test_the_reference_refuses_an_infinity_where_lazyt_does(call: str) -> None:
    with pytest.raises(Stopped, match="the matrix holds infinities"):
        check(["v0 = xp.asarray(np.full((3, 2), np.inf))", f"v1 = new(xp.linalg.{call})"])


def test_a_sample_that_overflows_in_float16_is_computed_in_float64_too() -> None:
    assert check(["v0 = new(xp.linalg.matrix_norm(xp.asarray(sample('linalg.matrix_norm', 10, 0))))"]) is None
