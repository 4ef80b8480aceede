"""Multi-head attention with each of its options, and the functions under it."""

from typing import Any

import numpy as np

from tests.support.torch_golden import Case

LATER = ~np.tri(3, 4, k=1, dtype=bool)
PADDING = np.array([[False, False, False, True], [False, True, False, False]])
SQUARE = ~np.tri(4, dtype=bool)


def _layer(*, masks: dict[str, Any] | None = None, call: dict[str, Any] | None = None, **options: Any) -> Any:
    """`call`: further arguments of forward; masks are arrays. With one input it is query, key and value."""

    def build(t: Any) -> Any:
        class Attends(t.nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.attention = t.nn.MultiheadAttention(4, 2, **options)

            def forward(self, *xs: Any) -> Any:
                more = {k: _as(t, v, xs[0]) for k, v in (masks or {}).items()}
                return self.attention(*(xs * 3 if len(xs) == 1 else xs), **more, **(call or {}))

        return Attends()

    return build


def _as(t: Any, mask: np.ndarray, x: Any) -> Any:
    return t.tensor(mask) if mask.dtype == bool else t.tensor(mask, dtype=x.dtype)


def _added(mask: np.ndarray) -> np.ndarray:
    return np.where(mask, -np.inf, np.cos(np.arange(mask.size)).reshape(mask.shape))


def _function(**more: Any) -> Any:
    def build(t: Any) -> Any:
        def f(q: Any, k: Any, v: Any, w: Any, b: Any, o: Any) -> Any:
            forward = t.nn.functional.multi_head_attention_forward
            return forward(q, k, v, 4, 2, w, b, None, None, False, 0.0, o, None, **more)

        return f

    return build


def _dot(**more: Any) -> Any:
    def build(t: Any) -> Any:
        return lambda q, k, v: t.nn.functional.scaled_dot_product_attention(
            q, k, v, **{n: t.tensor(x) if isinstance(x, np.ndarray) else x for n, x in more.items()}
        )

    return build


QKV, BOTH, FAST = ((3, 2, 4), (4, 2, 4), (4, 2, 4)), {"average_attn_weights": False}, {"need_weights": False}
PADDED = {"key_padding_mask": PADDING}
SHARES = ((3, 2, 4), (4, 2, 4), (4, 2, 4), (12, 4), (12,), (4, 4))
CASES = [
    Case("self", _layer(), ((4, 2, 4),), steps=4),
    Case("cross", _layer(call=BOTH), QKV, steps=0),
    Case("without weights", _layer(call=FAST, batch_first=True, bias=False), ((2, 4, 4),), steps=0),
    Case("without batch", _layer(masks={"key_padding_mask": PADDING[0]}), ((3, 4), (4, 4), (4, 4)), steps=0),
    Case("own dimensions", _layer(kdim=3, vdim=5), ((3, 2, 4), (4, 2, 3), (4, 2, 5)), steps=0),
    Case("bool mask", _layer(masks={"attn_mask": LATER}), QKV, steps=0),
    Case("float mask", _layer(masks={"attn_mask": _added(LATER)}, call=FAST), QKV, steps=0),
    Case("masks of heads", _layer(masks={"attn_mask": np.stack([LATER, LATER & False] * 2)}, call=FAST), QKV, steps=0),
    Case("float masks of heads", _layer(masks={"attn_mask": _added(np.stack([LATER] * 4))}, call=BOTH), QKV, steps=0),
    Case("padding", _layer(masks=PADDED), QKV, steps=0),
    Case("float padding", _layer(masks={"key_padding_mask": _added(PADDING)}, call=FAST), QKV, steps=0),
    Case("mask and padding", _layer(masks={"attn_mask": LATER, **PADDED}, call=FAST), QKV, steps=0),
    Case("float mask and padding", _layer(masks={"attn_mask": _added(LATER), "key_padding_mask": _added(PADDING)}),
         QKV, steps=0),
    Case("causal", _layer(masks={"attn_mask": SQUARE}, call={"is_causal": True, **FAST}), ((4, 2, 4),), steps=0),
    Case("causal, weights", _layer(masks={"attn_mask": SQUARE}, call={"is_causal": True}), ((4, 2, 4),), steps=0),
    Case("causal, padding", _layer(masks={"attn_mask": SQUARE, **PADDED}, call={"is_causal": True, **FAST}),
         ((4, 2, 4),), steps=0),
    Case("key and value biases", _layer(add_bias_kv=True, masks={"attn_mask": LATER, **PADDED}), QKV, steps=4),
    Case("zero key", _layer(add_zero_attn=True, masks={"attn_mask": _added(LATER)}, call=FAST), QKV, steps=0),
    Case("both more keys", _layer(add_bias_kv=True, add_zero_attn=True, masks=PADDED, call=FAST), QKV, steps=0),
    Case("function", _function(), SHARES),
    Case("function, own weights", lambda t: lambda q, k, v, w, o: t.nn.functional.multi_head_attention_forward(
        q, k, v, 4, 2, None, None, None, None, False, 0.0, o, None, use_separate_proj_weight=True, q_proj_weight=w,
        k_proj_weight=w * 2, v_proj_weight=w * 3), (*QKV, (4, 4), (4, 4))),
    Case("function, static", lambda t: lambda q, k, v, w, o, s: t.nn.functional.multi_head_attention_forward(
        q, k, v, 4, 2, w, None, None, None, True, 0.0, o, None, static_k=s, static_v=s * 2),
        (*QKV, (12, 4), (4, 4), (4, 4, 2))),
    Case("dot", _dot(), ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 6))),
    Case("dot, grouped", _dot(enable_gqa=True), ((2, 4, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4))),
    Case("dot, grouped and masked", _dot(enable_gqa=True, attn_mask=~np.stack([LATER, LATER & False] * 2)),
         ((2, 4, 3, 4), (2, 2, 4, 4), (2, 2, 4, 4))),
    Case("dot, grouped and causal", _dot(enable_gqa=True, is_causal=True, scale=0.3),
         ((4, 3, 4), (1, 3, 4), (1, 3, 4))),
]  # fmt: skip
