"""The record of each dtype, and that code asks it: no second vocabulary of kinds, no second list of the halves."""

from __future__ import annotations

import ast
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.math.elements import FLOAT_BITS
from lazyt.errors import DTypeError
from lazyt.ir import dtypes

TOP = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_a_record_agrees_with_the_dtype(dtype):
    r = dtypes.of(dtype)
    assert (r.dtype, r.kind, r.narrow) == (dtype, dtypes.kind(dtype), dtypes.computed_in(dtype) != dtype)
    assert r.bits == (1 if r.kind == "b" else 8 * dtype.itemsize)
    assert r.foreign == (dtype.type.__module__ != "numpy")
    if r.kind != "c":
        assert FLOAT_BITS.get(r.memory, 0) == 8 * dtype.itemsize or r.memory == f"i{8 * dtype.itemsize}"
    if r.kind == "f":
        info = ml_dtypes.finfo(dtype)
        assert (r.largest, 2.0 ** (1 - r.precision)) == (float(info.max), float(info.eps))
        last = np.array([r.top, r.top + 1], r.bits_dtype).view(dtype)
        with np.errstate(invalid="ignore"):
            assert last[0] >= r.largest and np.isnan(last[1])
        # Each of its numbers is one of the dtype that it is computed in.
        assert np.array(r.largest, r.compute).astype(dtype) == np.array(r.largest, dtype)


def test_functions_of_numpy_that_need_its_own_dtypes_are_refused():
    x = lt.ones(2, dtype=lt.bfloat16)
    for f in (lt.spacing, np.spacing):
        with pytest.raises(DTypeError, match=r"not supported: numpy\.spacing of bfloat16, because"):
            f(x)


def test_a_dtype_lies_under_itself_and_its_kind():
    assert lt.issubdtype(lt.bfloat16, np.floating) and lt.issubdtype(lt.bfloat16, lt.bfloat16)
    for pair in ((lt.bfloat16, lt.float16), (lt.float16, lt.bfloat16), (lt.bfloat16, np.integer)):
        assert not lt.issubdtype(*pair)


def test_what_is_no_dtype_of_a_tensor_has_the_letter_of_numpy():
    assert [dtypes.host_kind(np.dtype(d)) for d in ("O", "M8[s]", "S3", "f2", ml_dtypes.bfloat16)] == list("OMSff")


# Its letters are NumPy's kinds, in which a dtype of ml_dtypes is 'V': `dtypes.kind` has lazyt's.
_LETTERS = set("biufcOSUMmV")
# Programs over NumPy's arrays, which are compared with lazyt's.
_OF_NUMPY = ("lazyt/ir/dtypes.py", "lazyt/testing/")


def raw_kinds(tree: ast.AST) -> list[int]:
    """Lines that read NumPy's `kind` of a dtype: `x.dtype.kind`, or any `kind` that is compared with its letters."""
    named = lambda x: x.id if isinstance(x, ast.Name) else x.attr if isinstance(x, ast.Attribute) else ""
    own = lambda x: isinstance(x, ast.Attribute) and x.attr == "kind" and named(x.value) != "self"
    found = [n.lineno for n in ast.walk(tree) if own(n) and named(n.value).endswith("dtype")]
    for n in ast.walk(tree):
        if isinstance(n, ast.Compare) and own(n.left):
            letters = n.comparators[0]
            if isinstance(letters, ast.Constant) and isinstance(letters.value, str) and set(letters.value) <= _LETTERS:
                found.append(n.lineno)
    return sorted(set(found))


def halves(tree: ast.AST) -> list[int]:
    """Lines with a tuple, a list or a set of just the two halves."""
    pairs = (n for n in ast.walk(tree) if isinstance(n, ast.Tuple | ast.List | ast.Set) and len(n.elts) == 2)
    return [n.lineno for n in pairs if {ast.unparse(e).split(".")[-1] for e in n.elts} == {"float16", "bfloat16"}]


def test_raw_kinds_and_tuples_of_halves_are_found():
    tree = ast.parse('a.dtype.kind\nsource.kind in "iu"\ndtypes.kind(d)\nself.kind == "f"\nd in (t.float16, bfloat16)')
    assert (raw_kinds(tree), halves(tree)) == ([1, 2], [5])


def test_a_dtype_is_asked_through_its_record():
    for folder in ("lazyt", "plugins"):
        for p in sorted((TOP / folder).rglob("*.py")):
            name = p.relative_to(TOP).as_posix()
            text = p.read_text()
            if name.startswith(_OF_NUMPY) or "/tests/" in name or not (".kind" in text or "bfloat16" in text):
                continue
            tree = ast.parse(text)
            wrong = [*raw_kinds(tree), *halves(tree)]
            assert not wrong, f"{name}, lines {wrong}: ask `lazyt.ir.dtypes` (`kind`, `host_kind`, `of`, `HALVES`)"
