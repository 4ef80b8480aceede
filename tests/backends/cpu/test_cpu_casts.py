"""The CPU backend's casts: one rounding, saturation, and nothing undefined."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lazyt.backends.cpu import engine
from lazyt.backends.cpu.codegen import elementwise
from tests.support.vector_kernels import (
    BFLOAT16,
    BOOL,
    F16,
    F32,
    F64,
    FLOATS,
    INTS,
    LANES,
    caster,
    floats,
    integers,
    runner,
    same,
    text_of,
)

pytestmark = pytest.mark.usefixtures("quiet")


def rounded(x: np.ndarray, target: np.dtype) -> np.ndarray:
    """float64 to a narrower float with one rounding, by the size of its last place."""
    digits, least, top = {F32: (24, -149, 128), F16: (11, -24, 16), BFLOAT16: (8, -133, 128)}[target]
    _, exponent = np.frexp(x)
    place = np.maximum(exponent - digits, least)
    r = np.ldexp(np.rint(np.ldexp(x, -place)), place)
    r = np.where(np.abs(r) >= 2.0**top, np.copysign(np.inf, x), r)
    return np.where(np.isfinite(x), r, x).astype(target)


def exactly(v: int) -> float:
    """An integer as a double, rounded to odd where it does not fit, to be rounded once more."""
    excess = max(abs(v).bit_length() - 53, 0)
    high = abs(v) >> excess
    sticky = (high << excess) != abs(v)
    return math.copysign(float((high | sticky) << excess), v)


def cast_like(x: np.ndarray, target: np.dtype) -> np.ndarray:
    source = x.dtype
    if target == BOOL:
        return x.astype(np.float64) != 0
    if source == BOOL:
        return x.astype(np.float64).astype(target)
    if source.kind in "iu" and target.kind in "iu":
        return x.astype(target)
    if source.kind in "iu":
        if target == F64:
            return x.astype(target)
        return rounded(np.array([exactly(v) for v in x.tolist()]), target)
    if target.kind in "iu":
        info = np.iinfo(target)
        whole = [0 if math.isnan(v) else v for v in x.astype(np.float64).tolist()]
        clipped = [max(min(v, info.max), info.min) for v in whole]
        return np.array([int(v) for v in clipped], target)
    return x.astype(F64) if target == F64 else rounded(x.astype(F64), target)


@pytest.mark.parametrize("source", [BOOL, *INTS, *FLOATS], ids=str)
def test_casts_round_once_and_saturate(source):
    if source == BOOL:
        x = np.arange(40) % 3 == 0
    elif source in INTS:
        x = np.concatenate([*integers(source), ties(source)])[::3]
    elif source.itemsize == 2:
        x = np.arange(2**16, dtype=np.uint16).view(source)
    else:
        x = np.concatenate([floats(source, 6000), ties(source)])
    for target in [BOOL, *INTS, *FLOATS]:
        if target != source:
            same(caster(source, target)(x), cast_like(x, target), str(target))


def ties(source: np.dtype) -> np.ndarray:
    """Values at, just below and just above the middle of two neighbours of a narrower float."""
    middles = [s * (1 + (2 * k + 1) * 2.0**-d) for d in (8, 11, 24) for k in range(5) for s in (1, 6e-8)]
    middles += [65504.0, 65519.99, 65520.0, 2.0**31, 2.0**63, 3.3895313892515355e38]
    x = np.array(middles)
    x = np.concatenate([x, np.nextafter(x, 0), np.nextafter(x, math.inf), x * 2.0**-14])
    if source.kind not in "iu":
        return np.concatenate([x, -x]).astype(source)
    ints = [int(m * 2**s) + d for m in middles[:15:2] for s in range(5, 62, 7) for d in (-1, 0, 1)]
    info = np.iinfo(source)
    return np.array([v for v in ints if v <= info.max], source)


def test_half_conversions_without_instructions_give_the_same(monkeypatch):
    rng = np.random.default_rng(1)
    x = np.arange(2**16, dtype=np.uint16).view(F16)
    y = np.concatenate([rng.integers(0, 2**32, 50_000, dtype=np.uint32).view(F32), ties(F32)])
    y = np.concatenate([y, np.exp2(rng.uniform(-26, 17, 50_000)).astype(F32), x.astype(F32)])
    native = caster(F16, F32)(x), caster(F32, F16)(y)
    monkeypatch.setattr(engine.Host, "native_half", False)
    widen = runner(text_of(lambda b, v: [elementwise.cast(v, F16, F32, b, LANES)], [F16], [F32]), [F32])
    narrow = runner(text_of(lambda b, v: [elementwise.cast(v, F32, F16, b, LANES)], [F32], [F16]), [F16])
    np.testing.assert_array_equal(widen(x).view(np.uint32), native[0].view(np.uint32))
    np.testing.assert_array_equal(narrow(y).view(np.uint16), native[1].view(np.uint16))
