"""Looking: what is pending, and what a sync did."""

from __future__ import annotations

from typing import Any


def tensor_repr(x: Any) -> str:
    head = f"<lazyt.Tensor shape={x.shape} dtype={x.dtype} device={x.device}"
    if x.is_pending:
        slot = x._slot
        return f"{head} pending: {slot.step.op.name}>" if slot is not None else f"{head} pending>"
    return f"{head} {x._array('repr').tolist() if x.size <= 8 else '...'}>"


def tensor_html(x: Any) -> str:
    return f"<code>{tensor_repr(x)}</code>"
