"""CUDA C of attention's gradient: two kernels recompute the weights from the logarithms of the rows.

    w[query][key] = exp(s - l), p[query][key] = sum over e of ct[query, e] * v[key, e], s' = w * (p - delta)
    queries  a block of queries, over keys:  dq[query, d] = by * sum over keys of s' * k[key, d]
    keys     a block of keys, over queries:  dk[key, d] = by * sum over queries of s' * q[query, d],
                                               dv[key, e] = sum over queries of w * ct[query, e]

So every sum is one thread's, in order, and there are no atomics; scores are made twice. Where queries see earlier keys
only, both skip tiles that are masked.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from lazyt.backends.common.attention import AT
from lazyt.backends.cuda.library.attention_emit import opening
from lazyt.backends.cuda.library.attention_preamble import preamble

if TYPE_CHECKING:
    from lazyt.backends.cuda.library.attention_tile import Variant

QUERIES = "lazyt_attention_gradient_queries"
KEYS = "lazyt_attention_gradient_keys"

_QUERIES = """
    __align__(16) __shared__ S first[FIRST];
    __align__(16) __shared__ S second[SECOND];
    __align__(16) __shared__ S own_first[OWN_FIRST];
    __align__(16) __shared__ S own_second[OWN_SECOND];
    const s64 tiles = (queries + ROWS - 1) / ROWS, turn = blockIdx.x % tiles;
    const s64 q0 = (CAUSAL ? tiles - 1 - turn : turn) * ROWS, line = matrix * queries + q0;
    const int q_live = (int)lt_min_index(queries - q0, (s64)ROWS), row = lt_row(), column = lt_column();
    const auto own_q = lt_own<D, D_PADDED>(own_first, q + (at_q + q0 * q_row), q_row, q_live, by, row);
    const auto own_g = lt_own<E, E_PADDED>(own_second, g + (at_g + q0 * g_row), g_row, q_live, (T)1, row);

    T dq[OWN_ROWS][D_PADDED / ACROSS], log[OWN_ROWS], less[OWN_ROWS];
    lt_clear(dq);
#pragma unroll
    for (int r = 0; r < OWN_ROWS; r++) {
        const int query = row + lt_row_apart(r);
        log[r] = query < q_live ? l[line + query] : (T)0;
        less[r] = query < q_live ? delta[line + query] : (T)0;
    }
    const s64 limit = CAUSAL ? lt_min_index(keys, q0 + ROWS) : keys;
#pragma unroll 1
    for (s64 k0 = 0; k0 < limit; k0 += COLUMNS) {
        const int k_live = (int)lt_min_index(limit - k0, (s64)COLUMNS);
        const int ahead = (int)lt_min_index(q0 - k0, (s64)COLUMNS);
        lt_meet();
        const auto these = lt_tile<D, D_PADDED>(first, k + (at_k + k0 * k_row), k_row, k_live);
        const auto those = lt_tile<E, E_PADDED>(second, v + (at_v + k0 * v_row), v_row, k_live);
        lt_meet();
        T s[OWN_ROWS][OWN_COLUMNS], p[OWN_ROWS][OWN_COLUMNS];
        lt_scores<D>(s, first, own_q, these, row, column);
        lt_hide<false>(s, q_live, k_live, ahead, row, column);
        if constexpr (MASKED)
            lt_mask<false>(s, mask + (at_mask + q0 * mask_row + k0), mask_row, q_live, k_live, row, column);
        lt_scores<E>(p, first, own_g, those, row, column);
#pragma unroll
        for (int r = 0; r < OWN_ROWS; r++)
#pragma unroll
            for (int c = 0; c < OWN_COLUMNS; c++) s[r][c] = lt_exp(s[r][c] - log[r]) * (p[r][c] - less[r]);
        lt_accumulate<D, D_PADDED>(dq, s, first, second, these, row, column);
    }
#pragma unroll
    for (int r = 0; r < OWN_ROWS; r++) {
        const int query = row + lt_row_apart(r);
        if (query < q_live) lt_put<D>(dq_out + (line + query) * D, dq[r], by, column);
    }
}
"""

_KEYS = """
    __align__(16) __shared__ S first[FIRST];
    __align__(16) __shared__ S second[SECOND];
    __align__(16) __shared__ S own_first[OWN_FIRST];
    __align__(16) __shared__ S own_second[OWN_SECOND];
    const s64 k0 = blockIdx.x % ((keys + ROWS - 1) / ROWS) * ROWS, line = matrix * queries;
    const int k_live = (int)lt_min_index(keys - k0, (s64)ROWS), row = lt_row(), column = lt_column();
    const auto own_k = lt_own<D, D_PADDED>(own_first, k + (at_k + k0 * k_row), k_row, k_live, by, row);
    const auto own_v = lt_own<E, E_PADDED>(own_second, v + (at_v + k0 * v_row), v_row, k_live, (T)1, row);

    T dk[OWN_ROWS][D_PADDED / ACROSS], dv[OWN_ROWS][E_PADDED / ACROSS];
    lt_clear(dk);
    lt_clear(dv);
#pragma unroll 1
    for (s64 q0 = CAUSAL ? k0 / COLUMNS * COLUMNS : 0; q0 < queries; q0 += COLUMNS) {
        const int q_live = (int)lt_min_index(queries - q0, (s64)COLUMNS);
        const int ahead = (int)lt_min_index(q0 - k0, (s64)ROWS);
        lt_meet();
        const auto these = lt_tile<D, D_PADDED>(first, q + (at_q + q0 * q_row), q_row, q_live);
        const auto those = lt_tile<E, E_PADDED>(second, g + (at_g + q0 * g_row), g_row, q_live);
        lt_meet();
        T s[OWN_ROWS][OWN_COLUMNS], p[OWN_ROWS][OWN_COLUMNS];
        lt_scores<D>(s, first, own_k, these, row, column);
        lt_hide<true>(s, q_live, k_live, ahead, row, column);
        if constexpr (MASKED)
            lt_mask<true>(s, mask + (at_mask + q0 * mask_row + k0), mask_row, q_live, k_live, row, column);
        lt_scores<E>(p, first, own_v, those, row, column);
#pragma unroll
        for (int c = 0; c < OWN_COLUMNS; c++) {
            const int query = column + lt_column_apart(c);
            const T log = query < q_live ? l[line + q0 + query] : (T)0;
            const T less = query < q_live ? delta[line + q0 + query] : (T)0;
#pragma unroll
            for (int r = 0; r < OWN_ROWS; r++) {
                s[r][c] = lt_exp(s[r][c] - log);
                p[r][c] = s[r][c] * (p[r][c] - less);
            }
        }
        lt_accumulate<E, E_PADDED>(dv, s, first, second, those, row, column);
        lt_accumulate<D, D_PADDED>(dk, p, first, second, these, row, column);
    }
#pragma unroll
    for (int r = 0; r < OWN_ROWS; r++) {
        const int key = row + lt_row_apart(r);
        const s64 to = matrix * keys + k0 + key;
        if (key < k_live) {
            if (asked_k) lt_put<D>(dk_out + to * D, dk[r], by, column);
            if (asked_v) lt_put<E>(dv_out + to * E, dv[r], (T)1, column);
        }
    }
}
"""


@lru_cache(maxsize=64)
def gradient_text(v: Variant) -> str:
    """The program of the gradient's kernels."""
    asked = f"    const bool asked_k = args[{AT['dk']}] != 0, asked_v = args[{AT['dv']}] != 0;"
    parts = [preamble(v), opening(v, QUERIES, ("dq",), "queries") + _QUERIES]
    return "\n".join([*parts, opening(v, KEYS, ("dk", "dv"), "keys"), asked]) + _KEYS
