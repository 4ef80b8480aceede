"""Shared code of attention's kernels: products of tiles in shared memory, and masks of scores.

    stage      rows of memory into shared memory, SLAB of a product's pairs at a time: as they lie, or transposed
    multiply   s[row][column] += x[pair][row] * y[pair][column]; a thread has rows x columns of s in registers
    scores     s = a @ b.T by slabs of features;  accumulate   o += x.T @ b by slabs of columns

A thread's rows and columns are chunks of 16 bytes. A warp is 4 x 8 or 2 x 16 threads, laid out so that of two
neighbours, and of two that are next but one, each reads the same chunk of one operand: then the machine reads a chunk
for all lanes in two steps instead of four. Slabs are stored with the chunks of a pair exchanged (`lt_turn`), so that
transposed stores of a warp meet no bank twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.cuda.codegen.elementwise import cast, lower
from lazyt.backends.cuda.codegen.preamble import PREAMBLE
from lazyt.backends.cuda.codegen.text import Module, type_of
from lazyt.backends.cuda.library.attention_tile import SLAB
from lazyt.backends.math.elements import mem_type

if TYPE_CHECKING:
    from lazyt.backends.cuda.library.attention_tile import Variant

_TEXT = """
// Where chunk i / CHUNK of a thread lies behind its first, and i in it; `team` threads share a tile's side.
LT_FUNCTION constexpr int lt_apart(int i, int team) { return i / CHUNK * CHUNK * team + i % CHUNK; }
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

template <int R, int C> LT_FUNCTION void lt_clear(T (&s)[R][C]) {
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++) s[r][c] = 0;
}

// s[row][column] = the sum over features of a[row, feature] * b[column, feature], either times a number.
template <int FEATURES, int R, int C, typename A, typename B>
LT_FUNCTION void lt_scores(
    T (&s)[R][C], T *slab, A a, s64 a_step, int a_live, T a_by, B b, s64 b_step, int b_live, T b_by, int row, int column
) {
    lt_clear(s);
#pragma unroll 1
    for (int first = 0; first < FEATURES; first += SLAB) {
        __syncthreads();
        lt_stage_turned<ROWS, FEATURES>(slab, a, a_step, a_live, first, a_by);
        lt_stage_turned<COLUMNS, FEATURES>(slab + SLAB * ROWS, b, b_step, b_live, first, b_by);
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

// o[row][feature] += the sum over columns of x[column][row] * b[column, feature], b times a number.
template <int FEATURES, int PADDED, int R, int C, typename B>
LT_FUNCTION void lt_accumulate(
    T (&o)[R][C], const T *x, T *slab, B b, s64 step, int live, T by, int row, int column
) {
#pragma unroll 1
    for (int first = 0; first < live; first += SLAB) {
        __syncthreads();
        lt_stage<FEATURES, PADDED>(slab, b + first * step, step, live - first, by);
        __syncthreads();
        lt_multiply<ROWS, PADDED>(o, x + first * ROWS, slab, row, column);
    }
}

// The features that a thread has of a row, times a number, to memory.
template <int FEATURES, int C, typename P> LT_FUNCTION void lt_put(P to, const T (&x)[C], T by, int column) {
#pragma unroll
    for (int c = 0; c < C; c += WIDE) {
        const int f = column + lt_apart(c, ACROSS);
        M part[WIDE];
#pragma unroll
        for (int w = 0; w < WIDE; w++) part[w] = lt_narrow(x[c + w] * by);
        if (f < FEATURES) lt_store(to + f, part);
    }
}

template <bool TRANSPOSED, int R, int C> LT_FUNCTION T &lt_score(T (&s)[R][C], int query, int key) {
    if constexpr (TRANSPOSED) return s[key][query];
    else return s[query][key];
}

// Scores of keys behind a query, and of what is past the end, become -inf. `ahead` is how far the first query is behind
// the first key. TRANSPOSED: rows are keys.
template <bool TRANSPOSED, int R, int C>
LT_FUNCTION void lt_hide(T (&s)[R][C], int queries, int keys, int ahead, int row, int column) {
    constexpr int all = TRANSPOSED ? ROWS : COLUMNS;
    if (keys >= all && !(CAUSAL && ahead + 1 < all) && !(TRANSPOSED && queries < COLUMNS)) return;
#pragma unroll
    for (int i = 0; i < (TRANSPOSED ? C : R); i++) {
        const int query = TRANSPOSED ? column + lt_apart(i, ACROSS) : row + lt_apart(i, DOWN);
        const int limit = query >= queries ? 0 : CAUSAL ? lt_min_index(keys, ahead + query + 1) : keys;
#pragma unroll
        for (int j = 0; j < (TRANSPOSED ? R : C); j++) {
            const int key = TRANSPOSED ? row + lt_apart(j, DOWN) : column + lt_apart(j, ACROSS);
            if (key >= limit) lt_score<TRANSPOSED>(s, i, j) = LOW;
        }
    }
}

// The mask, which lies at `mask` for the first query and key, on scores; past the end of either there is none.
template <bool TRANSPOSED, int R, int C, typename P>
LT_FUNCTION void lt_mask(T (&s)[R][C], P mask, s64 step, int queries, int keys, int row, int column) {
#pragma unroll
    for (int i = 0; i < (TRANSPOSED ? C : R); i++) {
        const int query = TRANSPOSED ? column + lt_apart(i, ACROSS) : row + lt_apart(i, DOWN);
#pragma unroll
        for (int j = 0; j < (TRANSPOSED ? R : C); j += BESIDE) {
            const int key = TRANSPOSED ? row + lt_apart(j, DOWN) : column + lt_apart(j, ACROSS);
            K part[BESIDE];
#pragma unroll
            for (int w = 0; w < BESIDE; w++) part[w] = 0;
            if (query < queries && key < keys) lt_load(part, mask + (query * step + key));
#pragma unroll
            for (int w = 0; w < BESIDE; w++) {
                T &x = lt_score<TRANSPOSED>(s, i, j + w);
                x = lt_masked(x, part[w]);
            }
        }
    }
}
"""


def preamble(v: Variant) -> str:
    """The program up to its kernels."""
    module, t = Module(), v.tile
    single = v.work.itemsize == 4
    kind, memory = type_of(mem_type(v.work)), type_of(mem_type(v.dtype))
    wide, narrow = cast("x", v.dtype, v.work, module), cast("x", v.work, v.dtype, module)
    exp, log = (lower(op, ["x"], v.work, module) for op in ("exp", "log"))
    end = "f" if single else ""
    features = {"D": v.d, "E": v.e, "D_PADDED": t.padded(v.d), "E_PADDED": t.padded(v.e)}
    slab = SLAB * max(t.height + t.width, t.padded(v.e), t.padded(v.d) if v.back else 0)
    sizes = {
        "THREADS": t.threads, "ACROSS": t.across, "DOWN": t.down, "CHUNK": t.chunk, "SLAB": SLAB, "ROWS": t.height,
        "COLUMNS": t.width, "OWN_ROWS": t.rows, "OWN_COLUMNS": t.columns, **features, "SLAB_SIZE": slab,
        "WIDE": t.chunk if v.wide else 1, "BESIDE": t.chunk if v.wide_mask else 1,
        # Steps of 4 pairs written out; of the widest rows, whose results fill the registers, one.
        "UNROLL": SLAB // 4 if max(v.d, v.e) <= 128 else 1,
    }  # fmt: skip
    # A mask says which keys are seen, or is added.
    masked = "k ? x : LOW" if v.mask == "bool" else "x + k"
    lines = [
        f"typedef {kind} T;  // what is computed",
        f"typedef {memory} M;  // what lies in memory",
        f"typedef {'T' if v.mask == 'add' else 'u8'} K;  // what a mask is",
        *(f"constexpr int {name} = {value};" for name, value in sizes.items()),
        f"constexpr bool CAUSAL = {str(v.causal).lower()}, MASKED = {str(bool(v.mask)).lower()};",
        f"#define LOW (-lt_inf{end}())",
        f"LT_FUNCTION T lt_wide(M x) {{ return {wide}; }}",
        f"LT_FUNCTION M lt_narrow(T x) {{ return {narrow}; }}",
        f"LT_FUNCTION T lt_fma(T x, T y, T z) {{ return fma{end}(x, y, z); }}",
        f"LT_FUNCTION T lt_most(T x, T y) {{ return fmax{end}(x, y); }}",
        f"LT_FUNCTION T lt_exp(T x) {{ return {exp}; }}",
        f"LT_FUNCTION T lt_log(T x) {{ return {log}; }}",
        f"LT_FUNCTION T lt_masked(T x, K k) {{ return {masked}; }}",
    ]
    return "\n".join([PREAMBLE, module.text(), *lines, _TEXT])
