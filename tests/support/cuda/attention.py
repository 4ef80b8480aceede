"""Attention's kernels on the CPU (shim.h), given arrays: for tests of the generated source itself."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from lazyt.backends.common.attention import AT, HEAD, OPERANDS, SIZE, STEP
from lazyt.backends.cuda.library.attention_emit import FORWARD, attention_text
from lazyt.backends.cuda.library.attention_gradient_emit import KEYS, QUERIES, gradient_text
from lazyt.backends.cuda.library.attention_tile import Variant
from tests.support.cuda.shim import built

# What is not to be written, or is read where nothing was.
GUARD = 64


@cache
def _library(v: Variant) -> ctypes.CDLL:
    names = (QUERIES, KEYS) if v.back else (FORWARD,)
    return built((gradient_text if v.back else attention_text)(v), dict.fromkeys(names, SIZE))


def _guarded(shape: Sequence[int], dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """An array that begins at a multiple of 16 bytes between guards, and all of the memory."""
    memory = np.full(int(np.prod(shape)) * dtype.itemsize + 2 * GUARD + 16, 0xA5, np.uint8)
    skip = -memory.ctypes.data % 16 + GUARD
    return memory[skip : skip + int(np.prod(shape)) * dtype.itemsize].view(dtype).reshape(shape), memory


def _launch(v: Variant, name: str, rows: int, given: dict[str, Any], shapes: dict[str, Any], by: float) -> Any:
    """Results by name; an AssertionError for what the shim sees go wrong, each array against its own memory."""
    q, k = given["q"], given["k"]
    leading = q.shape[:-2]
    table = np.zeros(SIZE, np.int64)
    fields = {"queries": q.shape[-2], "keys": k.shape[-2], "batch": len(leading)}
    for operand in OPERANDS:
        if (x := given.get(operand)) is not None:
            fields[f"{operand}_row"] = 0 if x.shape[-2] == 1 else x.strides[-2] // x.itemsize
    for field, value in fields.items():
        table[AT[field]] = value
    for i, extent in enumerate(leading):
        steps = [0 if (x := given.get(o)) is None or x.shape[i] == 1 else x.strides[i] // x.itemsize for o in OPERANDS]
        at = HEAD + STEP * i
        table[at : at + STEP] = [extent, *steps]
    table[AT["by"]] = np.array(by).view(np.int64)
    work = dict.fromkeys(shapes, v.dtype) | {"l": v.work}
    results = {o: _guarded(shape, work[o]) for o, shape in shapes.items()}
    low, high = (ctypes.c_void_p * 64)(), (ctypes.c_void_p * 64)()
    operands = ["q", "k", "v", "mask", *(("g", "l", "delta") if v.back else ())]
    arrays = {**{o: x for o, x in given.items() if x is not None}, **{o: x for o, (x, _) in results.items()}}
    named = {FORWARD: ("o", "l"), QUERIES: ("dq",), KEYS: ("dk", "dv")}[name]
    for access, o in enumerate((*operands, *named)):
        if o in arrays:
            first, last = np.lib.array_utils.byte_bounds(arrays[o])
            table[AT[o]], low[access], high[access] = arrays[o].ctypes.data, first, last
    run = getattr(_library(v), f"run_{name}")
    run.restype = ctypes.c_char_p
    blocks = int(np.prod(leading)) * -(-rows // v.tile.height)
    failure = run(ctypes.c_void_p(table.ctypes.data), blocks, v.tile.threads, None, low, high)
    assert failure is None, failure.decode()
    for x, memory in results.values():
        around = np.ones(memory.shape, bool)
        start = x.ctypes.data - memory.ctypes.data
        around[start : start + x.nbytes] = False
        assert (memory[around] == 0xA5).all(), "a result is written outside its array"
    return {o: x for o, (x, _) in results.items()}


def forward(v: Variant, q: Any, k: Any, v_: Any, mask: Any = None, by: float = 1.0, only_logs: bool = False) -> Any:
    shapes = {"o": (*q.shape[:-1], v.e), "l": q.shape[:-1]}
    if only_logs:
        del shapes["o"]
    return _launch(v, FORWARD, q.shape[-2], {"q": q, "k": k, "v": v_, "mask": mask}, shapes, by)


def gradient(
    v: Variant, q: Any, k: Any, v_: Any, l: Any, delta: Any, g: Any, mask: Any = None, by: float = 1.0,  # noqa: E741
) -> Any:  # fmt: skip
    given = {"q": q, "k": k, "v": v_, "mask": mask, "g": g, "l": l, "delta": delta}
    found = _launch(v, QUERIES, q.shape[-2], given, {"dq": q.shape}, by)
    return found | _launch(v, KEYS, k.shape[-2], given, {"dk": k.shape, "dv": v_.shape}, by)
