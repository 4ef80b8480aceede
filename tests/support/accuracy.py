"""`python -m tests.support.accuracy [--every N] [--jobs N]` writes docs/accuracy.md: how exact functions are.

The float32 column is of all 2**32 inputs, or with `--every N` of every Nth (then the page says so).
"""

from __future__ import annotations

import argparse
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from tests.support.elementwise_bounds import BINARY_ULP, LONG, UNARY_ULP, reference, scattered_powers, worst_float32
from tests.support.vector_kernels import F32, F64, floats, kernel, pairs, ulp_error

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"
HEAD = """# How exact the elementary functions are

Errors are in units of the last place (ULP), against a wider reference (float64 for float32, long double for float64);
half a unit is the nearest number. `python -m tests.support.accuracy` writes this page; `pytest -m slow` asserts the
bounds on every float32. The halves are computed in float32 and rounded once. Special values are exact: NaN,
infinities and zeros come out as in C99; nothing defines the sign of a NaN. The code is the same IEEE operations on
every processor and backend (`lazyt/backends/math/`), so these are its errors everywhere, but for exp and tanh of
float32 and the halves on a GPU: by its own 2**x and 1/x they are within 2 and 1.4, exp of x less its row's maximum
within 2.5 (`LAZYT_DEBUG=no-native-math` has the others' code).

| function | float32: worst | at | float64: worst of a sample |
| --- | --- | --- | --- |
"""


TAIL = """
## The gamma function and the inverse error function

In float64 `lgamma` of positive numbers is within 6 ULP, `digamma` within 4.5, `erfinv` within 5, `polygamma(n, x)` for
n from 1 to 4 within 8; in float32 the first three are those, rounded, and `polygamma` is within 1e-6 of its value. For
negative numbers the reflection formula's terms cancel near zeros, so the bounds hold of the larger term there. The
references are of 50 digits (`python -m tools.special_golden`), and `tests/functions/test_special_functions.py` asserts
the bounds.

## Convolutions by Winograd's algorithm

A convolution sums up the products of a window in one order, in float32. After
`lt.set_float32_convolution_precision("high")`, those that are recorded with a window of 3 x 3, stride 1 and one group
may go by Winograd's algorithm F(4 x 4, 3 x 3) on the CPU: forward, and both derivatives. It takes a quarter of the
multiply-adds, and half of the time. The results have other bits, and errors of about five times the size: with 256
channels of normal numbers 1.5e-6 of the result's standard deviation in the mean, where a sum has 0.3e-6. Lavin's points
0, 1, -1, 2, -2 have twice that; lazyt's are 0, 0.75, -0.75, 1.5, -1.5. Where channels differ by orders of magnitude the
error is relative to the largest. Convolutions of halves are computed in float32 and rounded, so the setting holds for
them too, but for those by AMX; float64 is not affected.

Which convolutions go by it depends on their sizes alone (channels, features, places, and whether there are enough
images), not on threads or on what ran before, and `explain()` names them: `winograd_convolve`. So bits are the same
from run to run. `tests/ir/test_winograd_calls.py` and `tests/backends/cpu/test_winograd.py` assert this.

## Float32 products of rounded operands

After `lt.set_float32_matmul_precision("medium")` a processor with AMX for bfloat16 rounds the operands of float32
products to bfloat16 (to nearest even, 7 bits of mantissa), and sums up in float32: products of at least 16 rows and 32
terms, those of gradients and of functions that multiply matrices too, but none with a vector. Each operand has an error
of 2^-8 of itself at most (beyond 3.39e38 it is infinite), so a result one of 2^-7 times the sum of the absolute
products, beside the rounding of its sums, which is that of the next section. After
`lt.set_float32_convolution_precision("medium")` so do convolutions and their gradients, where the next section has them
by AMX, or they are products of so many rows and terms (a window of one place, three axes, groups). All else keeps its
bits; elsewhere, and for other dtypes and attention, nothing changes. `explain()` says `by AMX`. The bits are those of a
product of float32 copies of bfloat16: `tests/backends/cpu/test_rounded_operands.py` asserts that. `LAZYT_DEBUG=no-amx`
and `no-halves` turn it off.

## Numbers below the smallest normal one

Subnormal numbers (below 1.2e-38 in float32) are computed exactly, as IEEE 754 says, whatever another library has set
for a thread; products by AMX and `avx512_bf16` alone take them as zeros, as said below. Processors take up to 15 times
as long for a vector of them in elementwise arithmetic, and 300 times in a product of matrices. A running mean that
decays ends in them, as Adam's first moment does where gradients are zero. `lt.set_flush_denormal(True)` takes them as
zeros in all kernels and products on the CPU: `tests/runtime/test_flush_denormal.py` asserts that. `exp` of a number
whose result is zero takes no longer than of others.

## Floats of 8 bits

`float8_e4m3fn` (4 bits of exponent, 3 of mantissa, up to 448, no infinity) and `float8_e5m2` (5 and 2, up to 57344)
store values. An operation reads them as float32, computes in float32, and rounds each result of their dtype once, to
nearest even: `z = x * y + w` of one line rounds twice, as two operations do. Operations that only move elements keep
their bits. Casts from float32 and float16 have the bits of ml_dtypes' `astype`; those from float64
are rounded once, where ml_dtypes rounds to float32 first. What is too large becomes NaN in `float8_e4m3fn`, infinite in
`float8_e5m2`; cast `lt.clip(x, -448, 448)` where it should saturate. Beside another float they give way to it, and
integers and Python's numbers give way to them, as in JAX; two different ones have no common dtype, and are refused.

```pycon
>>> import lazyt as lt
>>> x = lt.asarray([0.3, 3.0, 500.0]).astype(lt.float8_e4m3fn)
>>> x.tolist(), (x * 2).dtype, (x + lt.ones(3)).dtype
([0.3125, 3.0, nan], dtype(float8_e4m3fn), dtype('float32'))

```

Refused by name are random numbers, optimizers' steps, recurrent layers and `nextafter` of them, and all operations on
another device than the CPU. `tests/ops/test_stored_dtypes.py` asserts this for the whole table of operations.

## Products of float16 and bfloat16

A product (and a convolution, and attention) of halves takes each operand exactly as float32, sums up in float32, and is
rounded once, to the dtype of its result. With k elements along the sum its error is at most half a unit of the last
place of the result, plus (k + 1) * 2^-24 times the sum of the absolute products: float32's own. A float32 operand that
the program casts to a half is rounded to nearest even while it is read, NaN stays NaN, and overflow is infinite: the
bits of the cast. `tests/backends/cpu/test_half_products.py` asserts all of this. Gradients of such products are such
products. On a GPU, attention of halves rounds its weights too, to the half, before it multiplies the values with them,
as PyTorch's does. So does a CPU with AMX where queries, keys and values are bfloat16 as attention is recorded (not
float32 copies of such), 32 divides the features of queries and 16 those of values: each weight has an error of 2^-8 of
itself at most, their sum has none of it. Scores are scaled after they are summed up, so they may overflow where
float32's do not (beyond 3.4e38). The gradient, of the rounded result, rounds the weights and the slopes of the scores
so too, where the cotangent is of bfloat16 and 32 divides the features of values; else it is computed as float32.
`tests/backends/cpu/test_attention_tiles.py` and `tests/backends/cpu/test_attention_tiles_gradient.py` assert this.

Where a processor multiplies pairs of bfloat16 (`avx512_bf16`), generated products of more than a few rows take
`vdpbf16ps`. To a sum it adds the second product of a pair of neighbours along k, then the first, each with one rounding
to nearest even; an odd last one is paired with a zero. It takes subnormal operands as zeros and gives zero for a
subnormal sum, whatever the processor's mode: an operand below 2^-126 counts as 0, and each step may add another
2^-126 of error. So the bits of such a product differ between processors, as those of products by BLAS do. They do not
depend on threads or tiles. `LAZYT_DEBUG=width-8` turns this off. Elementwise casts to bfloat16 do not flush: they are
done in integers everywhere.

Where a processor has AMX for bfloat16 (`amx_bf16`), and Linux grants it to the process, products of at least 16 rows
and 32 elements along k take `tdpbf16ps`. Of 32 neighbours along k, from the first on, the even ones are one sum and the
odd ones another, with one rounding to nearest even for each product; both are added, and what that gives is added to
the sum so far. Subnormal operands and sums are zeros here too, and the bound is the same. `LAZYT_DEBUG=no-amx` turns
this off: such a processor then multiplies the elements as float32, as it does in smaller products, because its
`vdpbf16ps` takes longer. `tests/backends/cpu/test_amx.py` compares the bits with this description.

Convolutions of bfloat16 along one axis or two take it too, and so do transposed ones and all gradients: from 16
channels and features on, without groups, with at most 344 taps and 1,024 places in a row; transposed ones without
dilation, and gradients by the filters of fewer than 8 images where rows of places divide into runs of 12 to 16. They
add up tap by tap, 32 channels of each after others. A gradient by the filters adds up row by row: 12 to 16 places of
one pair of images after another where rows divide so, else pairs of images, at as many places as fit 32 elements if
strides are 1. The order depends on extents alone. What is filled up with zeros adds zeros.
`tests/backends/cpu/test_conv_tiles.py` compares the bits with this description.
"""


def row(task: tuple[str, int]) -> str:
    """One line of the table."""
    op, every = task
    with np.errstate(all="ignore"):
        if op in UNARY_ULP:
            worst, x = worst_float32(op, every)
            at = f"`{x!s}`"
            x64 = floats(F64, 100_000)
            double = ulp_error(kernel(op, F64)(x64), reference(op, LONG)(x64.astype(LONG))).max()
        else:
            found = []
            for dtype, wide in ((F32, np.float64), (F64, LONG)):
                x, y = pairs(dtype, 200_000)
                if op == "pow":
                    a, b = scattered_powers(dtype)
                    x, y = np.concatenate([x, a]), np.concatenate([y, b])
                if op == "logaddexp" and dtype == F64:
                    x, y = np.abs(x), np.abs(y)
                found.append(ulp_error(kernel(op, dtype)(x, y), reference(op, wide)(x.astype(wide), y.astype(wide))))
            worst, at, double = found[0].max(), "a sample of pairs", found[1].max()
    return f"| `{op}` | {worst:.3f} | {at} | {double:.3f} |"


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--every", type=int, default=1)
    ap.add_argument("--jobs", type=int, default=2)
    args = ap.parse_args()
    tasks = [(op, args.every) for op in (*UNARY_ULP, *BINARY_ULP)]
    rows = []
    with get_context("spawn").Pool(args.jobs) as pool:
        for line in pool.imap(row, tasks):
            print(line, flush=True)
            rows.append(line)
    of = "all 2^32 inputs" if args.every == 1 else f"one in {args.every} of the 2^32 inputs, evenly spread"
    tail = f"\nfloat32 functions of one argument: {of}.\n"
    PAGE.write_text(HEAD + "\n".join(rows) + "\n" + tail + TAIL, encoding="utf-8")


if __name__ == "__main__":
    main()
