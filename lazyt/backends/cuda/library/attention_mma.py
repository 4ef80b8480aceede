"""Attention's products by tensor cores: operands of 16 bits, or float32 as tf32, summed up in float32.

A warp has 16 rows. `mma` multiplies 16 rows by 8 columns over 16 halves or 8 tf32; a thread has two rows, 8 apart, and
of every 8 columns two neighbours. Own rows stay in registers as its first operand, the widest of a gradient in shared
memory; tiles lie there as they lie in memory, each row PAD elements longer, so that eight rows of 16 bytes meet no bank
twice. Weights become the first operand of the second product where they are: for tf32 its keys are taken in another
order, on both sides.
"""

from __future__ import annotations

from string import Template
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lazyt.backends.cuda.library.attention_tile import Variant

_TEXT = Template("""
#ifdef __CUDA_ARCH__
LT_FUNCTION void lt_mma(float &c0, float &c1, float &c2, float &c3, const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.${shape}.row.col.f32.${kind}.${kind}.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Four matrices of 8 rows of 16 bytes, whose rows the lanes name; TURNED: each transposed, of halves.
template <bool TURNED> LT_FUNCTION void lt_matrices(u32 (&r)[4], const void *at) {
    const u32 address = (u32)__cvta_generic_to_shared(at);
    if constexpr (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
#else  // on the CPU, for tests
LT_FUNCTION void lt_mma(float &c0, float &c1, float &c2, float &c3, const u32 (&a)[4], u32 b0, u32 b1) {
    const u32 own[6] = {a[0], a[1], a[2], a[3], b0, b1};
    float *const c[4] = {&c0, &c1, &c2, &c3};
    lt_warp_product<M>(c, own, lt_wide);
}
#endif
LT_FUNCTION int lt_lane() { return threadIdx.x % 32; }
LT_FUNCTION int lt_row() { return threadIdx.x / 32 * 16 + lt_lane() / 4; }
LT_FUNCTION int lt_column() { return lt_lane() % 4 * 2; }
LT_FUNCTION constexpr int lt_row_apart(int i) { return 8 * i; }
LT_FUNCTION constexpr int lt_column_apart(int i) { return i / 2 * 8 + i % 2; }
LT_FUNCTION void lt_meet() { __syncthreads(); }
${words}

// ROWS rows of memory into shared memory; what is not there is 0.
template <int ROWS, int FEATURES, int PADDED, typename P>
LT_FUNCTION void lt_stage(S *to, P from, s64 step, int live) {
    constexpr int TEAM = PADDED / WIDE, ALL = (ROWS * TEAM + THREADS - 1) / THREADS, SOME = ALL < 8 ? ALL : 8;
    constexpr bool whole = ROWS * TEAM % (THREADS * SOME) == 0;
#pragma unroll 1
    for (int part = 0; part < ALL; part += SOME) {
        M held[SOME][WIDE];
#pragma unroll
        for (int n = 0; n < SOME; n++) {
            const int i = (part + n) * THREADS + (int)threadIdx.x, f = i % TEAM * WIDE, row = i / TEAM;
#pragma unroll
            for (int w = 0; w < WIDE; w++) held[n][w] = 0;
            if (row < live && f < FEATURES) lt_load(held[n], from + (row * step + f));
        }
#pragma unroll
        for (int n = 0; n < SOME; n++) {
            const int i = (part + n) * THREADS + (int)threadIdx.x, f = i % TEAM * WIDE, row = i / TEAM;
#pragma unroll
            for (int w = 0; w < WIDE; w++) held[n][w] = lt_rounded(held[n][w]);
            if (whole || row < ROWS) lt_store(to + row * (PADDED + PAD) + f, held[n]);
        }
    }
}

// A block's own rows as first operands, and the number that their products are multiplied by.
template <int PADDED> struct lt_operand { u32 at[OWN_SHARED ? 1 : PADDED / STEP][4]; const S *rows; T by; };
template <int FEATURES, int PADDED, typename P>
LT_FUNCTION lt_operand<PADDED> lt_own(S *to, P from, s64 step, int live, T by, int row) {
    lt_operand<PADDED> own;
    own.by = by;
    if constexpr (OWN_SHARED) {
        lt_stage<ROWS, FEATURES, PADDED>(to, from, step, live);
        const int lane = lt_lane();
        own.rows = to + (threadIdx.x / 32 * 16 + lane % 16) * (PADDED + PAD) + lane / 16 * (STEP / 2);
    } else {
#pragma unroll
        for (int n = 0; n < PADDED / STEP; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int r = row + i % 2 * 8, f = n * STEP + i / 2 * (STEP / 2) + lt_lane() % 4 * PER_WORD;
                M part[PER_WORD];
#pragma unroll
                for (int w = 0; w < PER_WORD; w++) part[w] = 0;
                if (r < live) lt_some<FEATURES>(part, from + (r * step + f), f);
                own.at[n][i] = lt_word(part);
            }
    }
    return own;
}

// A tile of COLUMNS rows in shared memory.
template <int PADDED> struct lt_staged { const S *at; };
template <int FEATURES, int PADDED, typename P>
LT_FUNCTION lt_staged<PADDED> lt_tile(S *to, P from, s64 step, int live) {
    lt_stage<COLUMNS, FEATURES, PADDED>(to, from, step, live);
    return {to};
}

// s[row][column] = the sum over features of own[row, feature] * tile[column, feature].
template <int FEATURES, int R, int C, int PADDED>
LT_FUNCTION void lt_scores(
    T (&s)[R][C], S *, const lt_operand<PADDED> &own, const lt_staged<PADDED> &tile, int, int
) {
    lt_clear(s);
    // Of the four matrices that are read at once: two neighbours along the features, of two that follow one another.
    const int lane = lt_lane(), half = STEP / 2;
    const S *const at = tile.at + (lane / 16 * 8 + lane % 8) * (PADDED + PAD) + lane / 8 % 2 * half;
#pragma unroll
    for (int n = 0; n < PADDED / STEP; n++) {
        u32 a[4];
        if constexpr (OWN_SHARED) lt_matrices<false>(a, own.rows + n * STEP);
        else
#pragma unroll
            for (int i = 0; i < 4; i++) a[i] = own.at[n][i];
#pragma unroll
        for (int c = 0; c < C; c += 4) {
            u32 b[4];
            lt_matrices<false>(b, at + c * 4 * (PADDED + PAD) + n * STEP);
            lt_mma(s[0][c], s[0][c + 1], s[1][c], s[1][c + 1], a, b[0], b[1]);
            lt_mma(s[0][c + 2], s[0][c + 3], s[1][c + 2], s[1][c + 3], a, b[2], b[3]);
        }
    }
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++) s[r][c] *= own.by;
}

// o[row][feature] += the sum over columns of s[row][column] * tile[column, feature].
template <int FEATURES, int PADDED, int R, int C, int N>
LT_FUNCTION void lt_accumulate(
    T (&o)[R][C], const T (&s)[R][N], S *, S *, const lt_staged<PADDED> &tile, int, int
) {
    const int lane = lt_lane();
#pragma unroll
    for (int n = 0; n < COLUMNS / STEP; n++) {
${accumulate}
    }
}
""")

# A word of a first operand: what is rounded to in shared memory; weights as an operand, times a tile's columns.
_HALVES = Template("""
LT_FUNCTION M lt_rounded(M x) { return x; }
LT_FUNCTION u32 lt_word(const M (&x)[2]) { return (u32)x[0] | (u32)x[1] << 16; }
#ifdef __CUDA_ARCH__
LT_FUNCTION u32 lt_pair(float low, float high) {
    u32 r;
    asm("cvt.rn.${kind}x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
#else
LT_FUNCTION u32 lt_pair(float low, float high) { return (u32)lt_narrow(low) | (u32)lt_narrow(high) << 16; }
#endif
// Two neighbours of a row.
template <int FEATURES, typename P> LT_FUNCTION void lt_some(M (&to)[2], P from, int f) {
    if (PUT == 2 && f < FEATURES) lt_load(to, from);
    else {
        if (f < FEATURES) to[0] = from[0];
        if (f + 1 < FEATURES) to[1] = from[1];
    }
}
""")
_HALVES_ACCUMULATE = """
        const u32 a[4] = {
            lt_pair(s[0][4 * n], s[0][4 * n + 1]), lt_pair(s[1][4 * n], s[1][4 * n + 1]),
            lt_pair(s[0][4 * n + 2], s[0][4 * n + 3]), lt_pair(s[1][4 * n + 2], s[1][4 * n + 3]),
        };
        const S *const at = tile.at + (n * STEP + lane % 16) * (PADDED + PAD) + lane / 16 * 8;
#pragma unroll
        for (int c = 0; c < C; c += 4) {
            u32 b[4];
            lt_matrices<true>(b, at + c * 4);
            lt_mma(o[0][c], o[0][c + 1], o[1][c], o[1][c + 1], a, b[0], b[1]);
            lt_mma(o[0][c + 2], o[0][c + 3], o[1][c + 2], o[1][c + 3], a, b[2], b[3]);
        }"""
_SINGLES = """
#ifdef __CUDA_ARCH__
LT_FUNCTION M lt_rounded(M x) {
    u32 r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return lt_bits_float(r);
}
#else
LT_FUNCTION M lt_rounded(M x) { return lt_isnan(x) ? x : lt_bits_float(lt_bits_i32(x) + 0x1000u & 0xffffe000u); }
#endif
LT_FUNCTION u32 lt_word(const M (&x)[1]) { return lt_bits_i32(lt_rounded(x[0])); }
template <int FEATURES, typename P> LT_FUNCTION void lt_some(M (&to)[1], P from, int f) {
    if (f < FEATURES) to[0] = from[0];
}
"""
_SINGLES_ACCUMULATE = """
        const u32 a[4] = {
            lt_bits_i32(lt_rounded(s[0][2 * n])), lt_bits_i32(lt_rounded(s[1][2 * n])),
            lt_bits_i32(lt_rounded(s[0][2 * n + 1])), lt_bits_i32(lt_rounded(s[1][2 * n + 1])),
        };
        const S *const at = tile.at + (n * STEP + lane % 4 * 2) * (PADDED + PAD) + lane / 4;
#pragma unroll
        for (int c = 0; c < C; c += 2) {
            const u32 b0 = lt_bits_i32(at[c * 4]), b1 = lt_bits_i32(at[c * 4 + PADDED + PAD]);
            lt_mma(o[0][c], o[0][c + 1], o[1][c], o[1][c + 1], a, b0, b1);
        }"""


def text(v: Variant) -> str:
    """What the products of a variant are written in."""
    half = v.dtype.itemsize == 2
    kind = "tf32" if not half else "f16" if v.dtype == np.float16 else "bf16"
    return _TEXT.substitute(
        kind=kind,
        shape="m16n8k16" if half else "m16n8k8",
        words=(_HALVES.substitute(kind=kind) if half else _SINGLES).strip(),
        accumulate=(_HALVES_ACCUMULATE if half else _SINGLES_ACCUMULATE).lstrip("\n"),
    )


def sizes(v: Variant) -> dict[str, int]:
    """The constants of that text."""
    t, half = v.tile, v.dtype.itemsize == 2
    pack = 16 // v.dtype.itemsize
    first, second = (t.width * (t.padded(n) + pack) for n in (v.d, v.e))
    # Of 64 features it is room for more blocks that shared memory would cost.
    shared = v.back and max(v.d, v.e) > 64
    own = [t.height * (t.padded(n) + pack) if shared else 1 for n in (v.d, v.e)]
    return {
        "OWN_SHARED": int(shared), "OWN_FIRST": own[0], "OWN_SECOND": own[1],
        "FIRST": first, "SECOND": second, "NEIGHBOUR": 1, "STEP": 2 * pack, "PAD": pack, "PER_WORD": 1 + half,
        "WIDE": pack if v.wide else 1, "PUT": 1 + v.wide, "MASK_ALONG": 1 + v.wide_mask, "MASK_DOWN": 1,
    }  # fmt: skip
