"""exp and tanh of float32 by the machine's own 2**x and 1/x, and division by what many elements share.

They stand in the inner loops of whole models. The shared rules, written for machines without such instructions, made
a tanh-GELU 61 instructions an element and a softmax 64, of which an H200 does 55 while it copies an element.

Largest errors: exp 2 ULP (2**x itself is good to 2**-22.5), 2.5 of what a row's maximum was taken from, tanh 1.4;
division is correctly rounded, but for a quotient that is only rounded to a half: 1 ULP of float32 before that.
Method of exp: as in NVIDIA's libdevice; the exponent comes out of one fma that rounds down.
`no-native-math` in LAZYT_DEBUG leaves the rules that all backends share.
"""

from __future__ import annotations

import numpy as np

from lazyt.backends.cuda.codegen.text import literal
from lazyt.backends.math.single_f32 import EXP, LN2_HIGH, LN2_LOW, LOG2E, MAGIC, TANH
from lazyt.backends.math.table import in_float32
from lazyt.backends.math.vector import Rule, Vec
from lazyt.ir import dtypes


def _f(x: float) -> str:
    return literal("float", x)


def _horner(name: str, x: str, coefficients: tuple[float, ...]) -> str:
    first, *rest = coefficients
    steps = "\n".join(f"    {name} = fmaf({name}, {x}, {_f(c)});" for c in rest)
    return f"    float {name} = {_f(first)};\n{steps}"


# log2(e) in two parts; x/252 + 1/2 saturates where the result is 0 or inf, and 252 times that, rounded down behind
# 2**23, has the biased exponent in its low bits.
_HIGH = float(np.float32(LOG2E))
_EXP = f"""static __device__ __forceinline__ float lt_exp_f32(float x) {{
    const float part = lt_saturated(fmaf(x, {_f(LOG2E / 252)}, 0.5f));
    const float biased = lt_fma_down(part, 252.0f, {_f(MAGIC + 1)});
    const float n = biased - {_f(MAGIC + 127)};
    const float r = fmaf(x, {_f(LOG2E - _HIGH)}, fmaf(x, {_f(_HIGH)}, -n));
    return lt_bits_float(lt_bits_i32(biased) << 23) * lt_exp2(r);
}}
"""
_TANH = f"""static __device__ __forceinline__ float lt_tanh_f32(float x) {{
    const float a = fabsf(x), z = x * x;
{_horner("near", "z", TANH)}
    near = fmaf(x * z, near, x);
    // 1 - 2/(exp(b) + 1), of exp(b) = 2**n * exp(r); from x = 10 on it is 1.
    const float b = a > 10.0f ? 20.0f : a + a;
    const float t = fmaf(b, {_f(LOG2E)}, {_f(MAGIC)});
    const float n = t - {_f(MAGIC)};
    const float r = fmaf(n, {_f(-LN2_LOW)}, fmaf(n, {_f(-LN2_HIGH)}, b));
{_horner("e", "r", EXP)}
    e = fmaf(r * r, e, r) + 1.0f;
    const float d = lt_bits_float(lt_bits_i32(e) + (lt_bits_i32(t) << 23)) + 1.0f;
    const float far = fmaf(-2.0f, lt_reciprocal(d), 1.0f);
    return copysignf(a >= 0.57f ? far : near, x);
}}
"""
# No x above 0: 2**t of the rounded t = x log2(e), and what was rounded away as one more step.
_LN2 = float(np.float32(np.log(2)))
_EXP_BELOW = f"""static __device__ __forceinline__ float lt_exp_below_f32(float x) {{
    x = lt_maximum(x, -88.0f);
    const float t = x * {_f(_HIGH)};
    const float rest = fmaf(t, {_f(_LN2 - float(np.log(2)))}, fmaf(t, {_f(-_LN2)}, x));
    const float e = lt_exp2(t);
    return fmaf(e, rest, e);
}}
"""
EXP_BELOW = {"lt_exp_below_f32": _EXP_BELOW}
# Markstein: with 1/b correctly rounded and a quotient within one ULP, one more step rounds it correctly.
_DIVIDE = """// Whether no step of lt_divide_by can leave the normal range because of x.
static __device__ __forceinline__ bool lt_is_usual(float x) { return (lt_bits_i32(x) >> 23 & 0xffu) - 67u <= 120u; }
static __device__ __noinline__ float lt_divide(float a, float b) { return a / b; }
static __device__ __forceinline__ float lt_divide_by(float a, float b, float r, bool usual) {
    if (!usual || !lt_is_usual(a)) return lt_divide(a, b);
    const float near = a * r;
    const float q = fmaf(fmaf(-near, b, a), r, near);
    return fmaf(fmaf(-q, b, a), r, q);
}
"""
DIVIDE_BY = {"lt_divide_by": _DIVIDE}
# The same for neighbours: all are divided without a look, and again if one of them was out of range. 0 is not: the
# remainder is taken as b q - a, so that its sign is right where b is above 0. What is rounded to a half takes one step,
# and dividends as small as they like.
_QUOTIENTS = """// Whether lt_quotient may be wrong for such a divisor; for this a and one that is not.
static __device__ __forceinline__ bool lt_is_odd_divisor(float b) {
    return (lt_bits_i32(b) >> 23 & 0xffu) - 103u > 48u;
}
static __device__ __forceinline__ bool lt_is_odd(float a, bool above) {
    return (lt_bits_i32(a) << 1) - (27u << 24) > 200u << 24 & (a != 0.0f | !above);
}
static __device__ __forceinline__ float lt_quotient(float a, float b, float r) {
    const float near = a * r;
    const float q = fmaf(-fmaf(near, b, -a), r, near);
    return fmaf(-fmaf(q, b, -a), r, q);
}
static __device__ __forceinline__ bool lt_is_near_odd(float a) { return fabsf(a) > 0x1p100f; }
static __device__ __forceinline__ float lt_near_quotient(float a, float b, float r) {
    const float near = a * r;
    return fmaf(-fmaf(near, b, -a), r, near);
}
"""
QUOTIENTS = {**DIVIDE_BY, "lt_quotient": _QUOTIENTS}


def _calls(symbol: str, text: str) -> Rule:
    """The rule that calls the function of this text."""

    def rule(x: Vec) -> Vec:
        x.body.module.define(symbol, lambda: text)  # type: ignore[attr-defined]
        return x.renamed(x.body.let("float", f"{symbol}({x.name})"))  # type: ignore[attr-defined]

    return rule


_FLOAT32 = {"exp": _calls("lt_exp_f32", _EXP), "tanh": _calls("lt_tanh_f32", _TANH)}
RULES: dict[np.dtype, dict[str, Rule]] = {
    np.dtype(np.float32): _FLOAT32,
    **{d: {name: in_float32(rule, d) for name, rule in _FLOAT32.items()} for d in dtypes.HALVES},
}
