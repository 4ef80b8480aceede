"""What attention's kernels have in common: types, masks of scores, results to memory.

Products of tiles are by fused multiply-adds (`attention_fma.py`) or by tensor cores (`attention_mma.py`); both give

    row, column          where a thread's scores begin, `lt_row_apart` and `lt_column_apart` where they go on
    own = lt_own(...)    a block's rows, times a number;  tile = lt_tile(...)   a tile of the others
    lt_scores            s = own @ tile.T;  lt_accumulate   o += s @ tile
    lt_meet              before tiles, and between tiles and their use
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.cuda.codegen.elementwise import cast, exp_below, lower
from lazyt.backends.cuda.codegen.preamble import PREAMBLE
from lazyt.backends.cuda.codegen.text import Module, type_of
from lazyt.backends.cuda.library import attention_fma, attention_mma
from lazyt.backends.math.elements import mem_type

if TYPE_CHECKING:
    from lazyt.backends.cuda.library.attention_tile import Variant

_CLEAR = """
template <int R, int C> LT_FUNCTION void lt_clear(T (&s)[R][C]) {
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++) s[r][c] = 0;
}
"""

_TEXT = """
// The features that a thread has of a row, times a number, to memory.
template <int FEATURES, int C, typename P> LT_FUNCTION void lt_put(P to, const T (&x)[C], T by, int column) {
#pragma unroll
    for (int c = 0; c < C; c += PUT) {
        const int f = column + lt_column_apart(c);
        M part[PUT];
#pragma unroll
        for (int w = 0; w < PUT; w++) part[w] = lt_narrow(x[c + w] * by);
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
        const int query = TRANSPOSED ? column + lt_column_apart(i) : row + lt_row_apart(i);
        const int limit = query >= queries ? 0 : CAUSAL ? lt_min_index(keys, ahead + query + 1) : keys;
#pragma unroll
        for (int j = 0; j < (TRANSPOSED ? R : C); j++) {
            const int key = TRANSPOSED ? row + lt_row_apart(j) : column + lt_column_apart(j);
            if (key >= limit) lt_score<TRANSPOSED>(s, i, j) = LOW;
        }
    }
}

// The mask, which lies at `mask` for the first query and key, on scores; past the end of either there is none.
template <bool TRANSPOSED, int R, int C, typename P>
LT_FUNCTION void lt_mask(T (&s)[R][C], P mask, s64 step, int queries, int keys, int row, int column) {
    constexpr int BESIDE = TRANSPOSED ? MASK_DOWN : MASK_ALONG;
#pragma unroll
    for (int i = 0; i < (TRANSPOSED ? C : R); i++) {
        const int query = TRANSPOSED ? column + lt_column_apart(i) : row + lt_row_apart(i);
#pragma unroll
        for (int j = 0; j < (TRANSPOSED ? R : C); j += BESIDE) {
            const int key = TRANSPOSED ? row + lt_row_apart(j) : column + lt_column_apart(j);
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
    products = attention_mma if v.mma else attention_fma
    single = v.work.itemsize == 4
    kind, memory = type_of(mem_type(v.work)), type_of(mem_type(v.dtype))
    wide, narrow = cast("x", v.dtype, v.work, module), cast("x", v.work, v.dtype, module)
    # Weights are exp of what is not above 0, but for a rounding.
    exp = exp_below("x", module) if single and v.native else lower("exp", ["x"], v.work, module)
    log = lower("log", ["x"], v.work, module)
    end = "f" if single else ""
    sizes = {
        "THREADS": t.threads, "ACROSS": t.across, "DOWN": t.down, "CHUNK": t.chunk, "ROWS": t.height,
        "COLUMNS": t.width, "OWN_ROWS": t.rows, "OWN_COLUMNS": t.columns, "D": v.d, "E": v.e,
        "D_PADDED": t.padded(v.d), "E_PADDED": t.padded(v.e), **products.sizes(v),
    }  # fmt: skip
    # A mask says which keys are seen, or is added.
    masked = "k ? x : LOW" if v.mask == "bool" else "x + k"
    lines = [
        f"typedef {kind} T;  // what is computed",
        f"typedef {memory} M;  // what lies in memory",
        f"typedef {'M' if v.mma else 'T'} S;  // what is shared",
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
    return "\n".join([PREAMBLE, module.text(), *lines, _CLEAR, products.text(v), _TEXT])
