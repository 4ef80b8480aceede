"""CUDA C of attention: a block of queries processes the keys tile by tile.

    scores   s[query][key] = sum over d of (by * q[query, d]) * k[key, d], in registers
    weights  top, total: the maximum so far and the sum of exp(s - top), a row each; w = exp(s - top)
    result   o[query][e] = o * exp(old top - top) + sum over keys of w[key][query] * v[key, e], in registers

The weights of one tile are in shared memory, no others anywhere. Blocks are independent, and each processes the keys in
order, so bits depend on the sizes alone. Where queries see earlier keys only, tiles behind them are left out, and the
blocks that see most begin. Arguments are those of `backends/common/attention.py`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from lazyt.backends.common.attention import AT, HEAD, OPERANDS, SIZE, STEP
from lazyt.backends.cuda.library.attention_preamble import preamble

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.backends.cuda.library.attention_tile import Variant

FORWARD = "lazyt_attention"

_FORWARD = """
    __align__(16) __shared__ S first[FIRST];
    __align__(16) __shared__ S second[SECOND];
    __align__(16) __shared__ S own_first[OWN_FIRST];
    const s64 tiles = (queries + ROWS - 1) / ROWS, turn = blockIdx.x % tiles;
    const s64 q0 = (CAUSAL ? tiles - 1 - turn : turn) * ROWS;
    const int q_live = (int)lt_min_index(queries - q0, (s64)ROWS), row = lt_row(), column = lt_column();
    const auto own = lt_own<D, D_PADDED>(own_first, q + (at_q + q0 * q_row), q_row, q_live, by, row);

    T o[OWN_ROWS][E_PADDED / ACROSS], top[OWN_ROWS], total[OWN_ROWS];
    lt_clear(o);
#pragma unroll
    for (int r = 0; r < OWN_ROWS; r++) {
        top[r] = LOW;
        total[r] = 0;
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
        T s[OWN_ROWS][OWN_COLUMNS];
        lt_scores<D>(s, first, own, these, row, column);
        lt_hide<false>(s, q_live, k_live, ahead, row, column);
        if constexpr (MASKED)
            lt_mask<false>(s, mask + (at_mask + q0 * mask_row + k0), mask_row, q_live, k_live, row, column);
#pragma unroll
        for (int r = 0; r < OWN_ROWS; r++) {
            T most = top[r];
#pragma unroll
            for (int c = 0; c < OWN_COLUMNS; c++) most = lt_most(most, s[r][c]);
#pragma unroll
            for (int d = NEIGHBOUR; d < NEIGHBOUR * ACROSS; d *= 2)
                most = lt_most(most, __shfl_xor_sync(LT_WARP, most, d));
            // Before the first key that is seen there is no maximum to take off.
            const T safe = most == LOW ? 0 : most, scale = lt_exp(top[r] - safe);
            T sum = 0;
#pragma unroll
            for (int c = 0; c < OWN_COLUMNS; c++) sum += s[r][c] = lt_exp(s[r][c] - safe);
            top[r] = most;
            total[r] = total[r] * scale + sum;
#pragma unroll
            for (int f = 0; f < E_PADDED / ACROSS; f++) o[r][f] *= scale;
        }
        // Where somebody asks for the sums alone (a gradient in a later sync) there is no result.
        if (asked) lt_accumulate<E, E_PADDED>(o, s, first, second, those, row, column);
    }
#pragma unroll
    for (int r = 0; r < OWN_ROWS; r++) {
        const int query = row + lt_row_apart(r);
        T sum = total[r];
#pragma unroll
        for (int d = NEIGHBOUR; d < NEIGHBOUR * ACROSS; d *= 2) sum += __shfl_xor_sync(LT_WARP, sum, d);
        const s64 line = matrix * queries + q0 + query;
        if (query < q_live) {
            // A row whose keys are all masked has a sum of 0: it is 0, and its logarithm inf.
            const bool unseen = MASKED && sum == 0;
            if (asked) lt_put<E>(o_out + line * E, o[r], unseen ? (T)0 : (T)1 / sum, column);
            if (column == 0 && logs) l_out[line] = unseen ? -LOW : top[r] + lt_log(sum);
        }
    }
}
"""


def opening(v: Variant, name: str, results: Sequence[str], rows: str) -> str:
    """A kernel up to where its tile begins: arguments by name, the matrix, and where its operands lie."""
    element = {"mask": "K", "l": "T", "delta": "T"}
    operands = ["q", "k", "v", "mask", *(("g", "l", "delta") if v.back else ())]
    parameter = f"const __grid_constant__ lt_args<{SIZE}> arguments"
    lines = [
        f'extern "C" __global__ void __launch_bounds__(THREADS, 2) {name}({parameter}) {{',
        "    const s64 *const args = arguments.at;",
    ]
    for i, operand in enumerate((*operands, *results)):
        kind = ("const " if i < len(operands) else "") + element.get(operand, "M")
        named = operand if i < len(operands) else f"{operand}_out"
        lines += [f"    {kind} *const p{i} = ({kind} *)args[{AT[operand]}];", f"    const auto {named} = p{i};"]
    fields = ["queries", "keys", "q_row", "k_row", "v_row", "mask_row", *(["g_row"] if v.back else [])]
    lines += [f"    const s64 {', '.join(f'{f} = args[{AT[f]}]' for f in fields)};"]
    lines += [
        f"    const T by = (T)lt_bits_double((u64)args[{AT['by']}]);",
        f"    const s64 matrix = blockIdx.x / (({rows} + ROWS - 1) / ROWS);",
        f"    s64 rest = matrix, {', '.join(f'at_{x} = 0' for x in OPERANDS)};",
        f"    for (s64 i = args[{AT['batch']}] - 1; i >= 0; i--) {{",
        f"        const s64 *const axis = args + ({HEAD} + {STEP} * i), digit = rest % axis[0];",
        "        rest /= axis[0];",
        *(f"        at_{x} += digit * axis[{1 + i}];" for i, x in enumerate(OPERANDS)),
        "    }",
    ]
    return "\n".join(lines)


@lru_cache(maxsize=64)
def attention_text(v: Variant) -> str:
    """The program of the forward kernel."""
    asked = f"    const bool asked = args[{AT['o']}] != 0, logs = args[{AT['l']}] != 0;"
    return "\n".join([preamble(v), opening(v, FORWARD, ("o", "l"), "queries"), asked]) + _FORWARD
