"""What docs/from-jax.md calls the same gives what JAX gives, and so does each other spelling that it names."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from tools.jax_calls import GOLDEN, calls, names_of, plain
from tools.porting_pages import FOLDER, spelled

EXPECTED: dict[str, Any] = json.loads(GOLDEN.read_text())


def named(name: str) -> str:
    """The function that the page names first for one of JAX's."""
    found = re.match(r"`(lt\.[\w.]+)", spelled(name))
    assert found, name
    return found[1]


# A call of JAX's -> lazyt's.
PAIRS = {theirs: here or named(name) + theirs.removeprefix(name) for name, theirs, here in calls()}
# What has no call: classes, files, what shows a program, and dtypes, which are no functions here.
UNASKED = {
    "jax.Array", "jax.Device", "jax.default_device", "jax.make_jaxpr", "jax.numpy.load", "jax.numpy.ndarray",
    "jax.numpy.save", "jax.random.split",
}  # fmt: skip


def check(found: Any, expected: Any, call: str) -> None:
    if isinstance(expected, list):
        assert isinstance(found, list), call
        assert len(found) == len(expected), call
        for f, e in zip(found, expected, strict=True):
            check(f, e, call)
    elif isinstance(expected, dict):
        assert isinstance(found, dict), call
        assert (found["kind"], found["shape"]) == (expected["kind"], expected["shape"]), call
        if expected["kind"] == "b":
            assert found["values"] == expected["values"], call
        else:
            a, b = (np.array(x["values"].split(), "float64") for x in (found, expected))
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5, err_msg=call)
    else:
        assert found == expected, call


def test_every_call_has_a_result():
    assert list(EXPECTED) == list(PAIRS), "ask JAX anew: python -m tools.jax_calls"


@pytest.mark.parametrize("function", dict.fromkeys(call.partition("(")[0] for call in PAIRS))
def test_a_spelling_gives_what_jax_gives(function):
    names = {**names_of(lt), "lt": lt}
    for theirs, here in PAIRS.items():
        if theirs.partition("(")[0] == function:
            check(plain(eval(here, dict(names))), EXPECTED[theirs], f"{theirs} => {here}")


def test_every_name_of_the_page_has_a_call():
    listed = (FOLDER / "tests" / "docs" / "jax_names.txt").read_text().split()
    called = {name for call in PAIRS for name in re.findall(r"jax\.[\w.]+\w", call)}
    dtypes = {n for n in listed if isinstance(getattr(lt, n.removeprefix("jax.numpy."), None), np.dtype)}
    unasked = {n for n in listed if spelled(n)} - called - dtypes - UNASKED
    assert not unasked
