"""The function that transposes lines, of every width and dtype, at all depths and counts around its squares."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from lazyt.backends.cpu.codegen.transpose import Transposer
from lazyt.backends.cpu.engine import compile_module

KINDS = [
    ("float32", 1), ("float32", 2), ("float32", 4), ("float32", 8), ("float32", 16), ("float64", 1), ("float64", 2),
    ("float64", 4), ("float64", 8), ("int8", 1), ("int8", 16), ("int16", 8), ("int16", 16), ("int64", 8),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "lanes"), KINDS)
def test_lines_become_columns(dtype: str, lanes: int) -> None:
    transposer = Transposer(np.dtype(dtype), lanes)
    body, declared = transposer.text()
    name = f"tested_{transposer.name}.{lanes}"
    text = body.replace("define internal", "define").replace(f"@{transposer.name}(", f"@{name}(")
    module = compile_module("\n".join([*sorted(x for x in declared if x), text]), [name])
    words = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
    transpose = ctypes.CFUNCTYPE(None, *words)(module.address(name))
    rng = np.random.default_rng(0)
    for depth in (0, 1, 3, lanes, lanes + 1, 2 * lanes + 5):
        for count in sorted({1, max(lanes - 1, 1), lanes}):
            lines = rng.integers(-100, 100, (lanes, depth)).astype(dtype)
            addresses = (ctypes.c_void_p * lanes)(*(lines.ctypes.data + i * lines.strides[0] for i in range(lanes)))
            got = np.full((depth + 1, count + 3), 111, dtype)
            want = got.copy()
            want[:depth, :count] = lines[:count].T
            transpose(ctypes.addressof(addresses), depth, count, got.ctypes.data, count + 3)
            np.testing.assert_array_equal(got, want, err_msg=f"{depth} deep, {count} lines: nothing else is written")
