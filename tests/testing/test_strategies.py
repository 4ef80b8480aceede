"""What the hypothesis strategies draw is what they say, and lazyt agrees with NumPy on it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, find, given, note, settings

import lazyt as lt
from lazyt.errors import LazytError
from lazyt.ir import dtypes as known
from lazyt.testing import assert_close, check_program
from lazyt.testing.strategies import arrays, dtypes, indices, programs, scalars, shapes, tensors

EXAMPLES = int(os.environ.get("LAZYT_EXAMPLES", "0"))
few = settings(
    max_examples=EXAMPLES or 40,
    derandomize=not EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@few
@given(shapes(min_dims=1, max_dims=2, min_side=1), dtypes("iu"), st.data())
def test_what_is_drawn_is_what_was_asked_for(shape: tuple[int, ...], dtype: np.dtype, data: st.DataObject) -> None:
    assert 1 <= len(shape) <= 2 and min(shape) >= 1
    assert dtype.kind in "iu"
    a = data.draw(arrays(dtype, shape))
    assert (a.shape, a.dtype) == (shape, dtype)
    t = data.draw(tensors(dtype, shape))
    assert isinstance(t, lt.Tensor) and (t.shape, t.dtype) == (shape, dtype)
    s = data.draw(scalars(dtype))
    assert type(s) is int and (lt.asarray(a) * 0 + s).dtype == dtype


@pytest.mark.parametrize(
    "dtype", [pytest.param(d, marks=pytest.mark.slow) if known.kind(d) == "c" else d for d in known.ALL], ids=str
)
def test_every_dtype_is_drawn(dtype: np.dtype) -> None:
    a = find(arrays(dtype, (2,)), lambda a: bool(a[0] != a[1]))
    assert a.dtype == dtype
    if known.kind(dtype) == "f":
        find(arrays(dtype, (2,)), lambda a: bool(np.isnan(a).any()))
        assert np.isfinite(find(arrays(dtype, (3,), special=False), lambda a: True)).all()


@few
@given(st.data())
def test_keys_index_as_in_numpy(data: st.DataObject) -> None:
    a = data.draw(arrays("int64", shapes(max_side=4, sides=())))
    key = data.draw(indices(a.shape))
    want = a[key]  # NumPy takes every key that is drawn
    try:
        got = lt.asarray(a)[key]
    except LazytError as e:
        note(f"{key}: {e}")
        raise
    assert_close(got, np.asarray(want))


@pytest.mark.parametrize("kind", ["mixed", "arrays", "views"])
def test_programs_agree_with_numpy(kind: str) -> None:
    @settings(few, max_examples=EXAMPLES or 4)
    @given(programs(8, kind))
    def check(lines: list[str]) -> None:
        note("\n".join(lines))
        check_program(lines)

    check()


def test_an_unknown_kind_of_program_is_refused() -> None:
    with pytest.raises(ValueError, match="kind='all'"):
        find(programs(2, "all"), lambda lines: True)


def test_a_program_that_differs_is_shown_as_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(x: Any) -> Any:
        return lt.exp2(x)

    monkeypatch.setattr(lt, "exp", wrong)
    with pytest.raises(AssertionError, match=r"(?s)1 of 2 elements differ.*def program\(xp\).*v0 = xp.exp"):
        check_program(["v0 = xp.exp(xp.asarray(np.array([0.0, 1.0])))"])


def test_without_hypothesis_there_is_one_clear_error() -> None:
    code = "import sys; sys.modules['hypothesis'] = None\nimport lazyt.testing\nimport lazyt.testing.strategies"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError: lazyt.testing.strategies needs hypothesis: pip install 'lazyt[test]'" in done.stderr
    code = "import sys, lazyt.testing\nassert not {'hypothesis', 'pytest', '_pytest'} & sys.modules.keys()"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
