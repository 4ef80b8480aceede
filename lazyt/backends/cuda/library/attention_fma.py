"""Attention's products by fused multiply-adds of float32 or float64: tiles go through shared memory by slabs.

    stage      rows of memory into shared memory, SLAB of a product's pairs at a time: as they lie, or transposed
    multiply   s[row][column] += x[pair][row] * y[pair][column]; a thread has rows x columns of s in registers
    scores     s = a @ b.T by slabs of features;  accumulate   o += s @ b by slabs of columns

A thread's rows and columns are chunks of 16 bytes. A warp is 4 x 8 or 2 x 16 threads, laid out so that of two
neighbours, and of two that are next but one, each reads the same chunk of one operand: then the machine reads a chunk
for all lanes in two steps instead of four. Slabs are stored with the chunks of a pair exchanged (`lt_turn`), so that
transposed stores of a warp meet no bank twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.cuda.library.attention_tile import SLAB

if TYPE_CHECKING:
    from lazyt.backends.cuda.library.attention_tile import Variant

_TEXT = """
// Where chunk i / CHUNK of a thread lies behind its first, and i in it; `team` threads share a tile's side.
LT_FUNCTION constexpr int lt_apart(int i, int team) { return i / CHUNK * CHUNK * team + i % CHUNK; }
LT_FUNCTION constexpr int lt_row_apart(int i) { return lt_apart(i, DOWN); }
LT_FUNCTION constexpr int lt_column_apart(int i) { return lt_apart(i, ACROSS); }
LT_FUNCTION int lt_column() { return CHUNK * (threadIdx.x % 32 >> 1 & (ACROSS - 1)); }
LT_FUNCTION int lt_row() {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    return CHUNK * (warp * (32 / ACROSS) + (lane & 1 | lane / (2 * ACROSS) << 1));
}
// By how much the positions of a pair are exchanged. Doubles are too wide to gain by it.
LT_FUNCTION constexpr int lt_turn(int pair) { return CHUNK == 4 ? (pair / 4 & 3) * 8 : 0; }

// SLAB features of ROWS rows of memory, from `first` on: to[feature][row], times a number. What is not there is 0.
template <int ROWS, int FEATURES, typename P>
LT_FUNCTION void lt_stage_turned(T *to, P from, s64 step, int live, int first, T by) {
    constexpr int TEAM = SLAB / WIDE, APART = THREADS / TEAM;
    const int f = (int)threadIdx.x % TEAM * WIDE, row = (int)threadIdx.x / TEAM;
    const auto at = from + (row * step + f) + first;
    const bool there = first + f < FEATURES;
    M held[ROWS / APART][WIDE];
#pragma unroll
    for (int n = 0; n < ROWS / APART; n++) {
#pragma unroll
        for (int w = 0; w < WIDE; w++) held[n][w] = 0;
        if (there && row + n * APART < live) lt_load(held[n], at + n * (APART * step));
    }
#pragma unroll
    for (int n = 0; n < ROWS / APART; n++)
#pragma unroll
        for (int w = 0; w < WIDE; w++)
            to[(f + w) * ROWS + (row + n * APART ^ lt_turn(f))] = lt_wide(held[n][w]) * by;
}

// SLAB rows of memory as they lie: to[row][feature], times a number. What is not there is 0.
template <int FEATURES, int PADDED, typename P>
LT_FUNCTION void lt_stage(T *to, P from, s64 step, int live, T by) {
    // Of the widest rows, whose results fill the registers, a half is held at a time.
    constexpr int ALL = SLAB * PADDED / WIDE / THREADS, SOME = PADDED > 128 ? ALL / 2 : ALL;
    M held[SOME][WIDE];
#pragma unroll 1
    for (int part = 0; part < ALL; part += SOME) {
#pragma unroll
        for (int n = 0; n < SOME; n++) {
            const int i = (part + n) * THREADS + (int)threadIdx.x;
            const int f = i % (PADDED / WIDE) * WIDE, row = i / (PADDED / WIDE);
#pragma unroll
            for (int w = 0; w < WIDE; w++) held[n][w] = 0;
            if (row < live && f < FEATURES) lt_load(held[n], from + (row * step + f));
        }
#pragma unroll
        for (int n = 0; n < SOME; n++) {
            const int i = (part + n) * THREADS + (int)threadIdx.x;
            const int f = i % (PADDED / WIDE) * WIDE, row = i / (PADDED / WIDE);
            T some[WIDE];
#pragma unroll
            for (int w = 0; w < WIDE; w++) some[w] = lt_wide(held[n][w]) * by;
            lt_store(to + row * PADDED + (f ^ lt_turn(row)), some);
        }
    }
}

// A thread's N positions of a pair.
template <int N, int TEAM> LT_FUNCTION void lt_chunks(T (&to)[N], const T *from) {
#pragma unroll
    for (int i = 0; i < N; i += CHUNK) {
        T part[CHUNK];
        lt_load(part, from + lt_apart(i, TEAM));
#pragma unroll
        for (int k = 0; k < CHUNK; k++) to[i + k] = part[k];
    }
}

// s[row][column] += the sum over SLAB pairs of x[pair][row] * y[pair][column].
template <int ROWS, int COLUMNS, int R, int C>
LT_FUNCTION void lt_multiply(T (&s)[R][C], const T *x, const T *y, int row, int column) {
#pragma unroll UNROLL
    for (int first = 0; first < SLAB; first += 4) {
        const T *const own = x + first * ROWS + (row ^ lt_turn(first));
        const T *const other = y + first * COLUMNS + (column ^ lt_turn(first));
#pragma unroll
        for (int pair = 0; pair < 4; pair++) {
            T a[R], b[C];
            lt_chunks<R, DOWN>(a, own + pair * ROWS);
            lt_chunks<C, ACROSS>(b, other + pair * COLUMNS);
#pragma unroll
            for (int r = 0; r < R; r++)
#pragma unroll
                for (int c = 0; c < C; c++) s[r][c] = lt_fma(a[r], b[c], s[r][c]);
        }
    }
}

// Rows of memory, read when they are multiplied: a block's own, times a number, and a tile of the others.
template <typename P> struct lt_rows { P at; s64 step; int live; T by; };
template <int FEATURES, int PADDED, typename P>
LT_FUNCTION lt_rows<P> lt_own(T *, P at, s64 step, int live, T by, int) { return {at, step, live, by}; }
template <int FEATURES, int PADDED, typename P>
LT_FUNCTION lt_rows<P> lt_tile(T *, P at, s64 step, int live) { return {at, step, live, (T)1}; }
LT_FUNCTION void lt_meet() {}

// s[row][column] = the sum over features of a[row, feature] * b[column, feature].
template <int FEATURES, int R, int C, typename A, typename B>
LT_FUNCTION void lt_scores(T (&s)[R][C], T *slab, const A &a, const B &b, int row, int column) {
    lt_clear(s);
#pragma unroll 1
    for (int first = 0; first < FEATURES; first += SLAB) {
        __syncthreads();
        lt_stage_turned<ROWS, FEATURES>(slab, a.at, a.step, a.live, first, a.by);
        lt_stage_turned<COLUMNS, FEATURES>(slab + SLAB * ROWS, b.at, b.step, b.live, first, b.by);
        __syncthreads();
        lt_multiply<ROWS, COLUMNS>(s, slab, slab + SLAB * ROWS, row, column);
    }
}

// What each thread has of s, where all can read it: to[column][row].
template <int R, int C> LT_FUNCTION void lt_share(T *to, const T (&s)[R][C], int row, int column) {
#pragma unroll
    for (int c = 0; c < C; c++) {
        const int at = column + lt_apart(c, ACROSS);
#pragma unroll
        for (int r = 0; r < R; r += CHUNK) {
            T part[CHUNK];
#pragma unroll
            for (int k = 0; k < CHUNK; k++) part[k] = s[r + k][c];
            lt_store(to + at * ROWS + (row ^ lt_turn(at)) + lt_apart(r, DOWN), part);
        }
    }
}

// o[row][feature] += the sum over columns of s[row][column] * b[column, feature]; `x` is where s is shared.
template <int FEATURES, int PADDED, int R, int C, int N, typename B>
LT_FUNCTION void lt_accumulate(T (&o)[R][C], const T (&s)[R][N], T *slab, T *x, const B &b, int row, int column) {
    __syncthreads();
    lt_share(x, s, row, column);
#pragma unroll 1
    for (int first = 0; first < b.live; first += SLAB) {
        __syncthreads();
        lt_stage<FEATURES, PADDED>(slab, b.at + first * b.step, b.step, b.live - first, b.by);
        __syncthreads();
        lt_multiply<ROWS, PADDED>(o, x + first * ROWS, slab, row, column);
    }
}
"""


def text(v: Variant) -> str:
    """What the products of a variant are written in."""
    return _TEXT


def sizes(v: Variant) -> dict[str, int]:
    """The constants of that text."""
    t = v.tile
    pairs = SLAB * max(t.height + t.width, t.padded(v.e), t.padded(v.d) if v.back else 0)
    wide, beside = t.chunk if v.wide else 1, t.chunk if v.wide_mask else 1
    return {
        "SLAB": SLAB, "FIRST": pairs, "SECOND": t.height * t.width, "OWN_FIRST": 1, "OWN_SECOND": 1,
        "NEIGHBOUR": 2, "WIDE": wide, "PUT": wide,
        "MASK_ALONG": beside, "MASK_DOWN": beside,
        # Steps of 4 pairs written out; of the widest rows, whose results fill the registers, one.
        "UNROLL": SLAB // 4 if max(v.d, v.e) <= 128 else 1,
    }  # fmt: skip
