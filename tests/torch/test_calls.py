"""Calls as PyTorch writes them give PyTorch's results: dtypes, shapes and values of tests/golden/torch_calls.json."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from tools.torch_calls import GOLDEN, REFUSED, names_of, plain

EXPECTED: dict[str, Any] = json.loads(GOLDEN.read_text())


def check(found: Any, expected: Any, call: str) -> None:
    if isinstance(expected, list):
        assert isinstance(found, list) and len(found) == len(expected), call
        for f, e in zip(found, expected, strict=True):
            check(f, e, call)
    elif isinstance(expected, dict):
        assert isinstance(found, dict), call
        assert (found["dtype"], found["shape"]) == (expected["dtype"], expected["shape"]), call
        np.testing.assert_allclose(found["values"], expected["values"], rtol=2e-5, atol=1e-6, err_msg=call)
    elif isinstance(expected, str):
        assert found == expected, call
    else:
        assert type(found) is type(expected) and found == pytest.approx(expected, rel=1e-5), call


@pytest.mark.parametrize("call", EXPECTED)
def test_a_call_gives_what_pytorch_gives(call: str, torch: Any) -> None:
    # NOTE: the names are the globals of the call, so it is in a file that is written for PyTorch.
    check(plain(eval(call, names_of(torch))), EXPECTED[call], call)


@pytest.mark.parametrize("call", REFUSED.read_text().splitlines())
def test_a_call_that_pytorch_refuses_is_refused_by_name(call: str, torch: Any) -> None:
    with pytest.raises(lt.LazytError, match=r"^[\w.]+: \S") as caught:
        eval(call, names_of(torch)).tolist()
    assert str(caught.traceback[-1].path).endswith("<string>") or "found at the sync" in str(caught.value)


def test_every_call_has_a_result() -> None:
    from tools.torch_calls import CALLS

    assert list(EXPECTED) == CALLS.read_text().splitlines()
