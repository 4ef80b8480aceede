"""`np.add.at` of integer tensors takes integers of any width, as NumPy does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt

VALUES: tuple[Any, ...] = (1, -1, 255, 300, -300, True, np.int64(300), [300, 2], np.array([1, -2], np.int16))


@pytest.mark.parametrize("dtype", ["u1", "i1", "i4", "u8"])
def test_integers_of_any_width_are_added_as_in_numpy(dtype: str) -> None:
    # NumPy adds to signed integers what is unsigned by way of float64.
    for value in (*VALUES, *[2**63] * (dtype[0] == "u")):
        want = np.array([1, 0, 1], dtype)
        x = lt.asarray(want)
        np.add.at(want, [0, 1], value)
        np.add.at(x, [0, 1], value)
        np.testing.assert_array_equal(x.numpy(), want, strict=True)


def test_what_is_no_integer_of_64_bits_is_refused() -> None:
    x = lt.asarray(np.array([1, 2], "u1"))
    for value in (10**30, -(2**63) - 1):
        with pytest.raises(OverflowError, match=rf"numpy.add.at: {value} is no integer of 64 bits"):
            np.add.at(x, [0], value)
    with pytest.raises(lt.DTypeError, match="a value of dtype float32 cannot be added to a tensor of dtype uint8"):
        np.add.at(x, [0], 1.5)
    assert x.tolist() == [1, 2]
