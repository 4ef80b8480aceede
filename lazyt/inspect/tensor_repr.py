"""What a tensor shows of itself without computing: `repr(x)`, and its look in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lazyt import on_demand
from lazyt.runtime.host_views import array_of
from lazyt.runtime.tensor import Tensor
from lazyt.tracing.printer import html_table, html_text, site_text

if TYPE_CHECKING:
    from lazyt.inspect import explain, pending
    from lazyt.inspect.explain import Explanation, Nothing, PartsExplanation
    from lazyt.inspect.pending import GraphText
    from lazyt.tracing.tensor_state import Holder
    from lazyt.tracing.trace import Step
else:
    explain = on_demand.module("lazyt.inspect.explain")
    pending = on_demand.module("lazyt.inspect.pending")

# Values up to this length stand on the line of the tensor.
SHORT = 60


def pending_step(x: Tensor) -> Step | None:
    """The step that will give x its value; None when it is there, or when a view has to be derived anew."""
    holder: Holder = x._storage if x._storage is not None else x
    slot = x._slot if x._slot is not None else holder._slot
    return None if slot is None or holder._buffer is not None else slot.step


def _what(x: Tensor) -> str:
    """What is pending: the operation, or the view of one."""
    step = pending_step(x)
    if x._slot is None and x._view is not None:
        return f"{x._view.op.name} of {step.op.name}" if step is not None else str(x._view.op.name)
    return step.op.name if step is not None else "a value"


def values_text(x: Tensor) -> str | None:
    """The values as NumPy prints them (`numpy.printoptions` apply); None when they are pending."""
    a = array_of(x)
    return None if a is None else np.array2string(a, separator=", ")


def tensor_repr(x: Tensor) -> str:
    """One line, and the values when they are there.

    >>> import lazyt as lt
    >>> lt.asarray([[1.0, 2.0], [3.0, 4.0]])
    <lazyt.Tensor shape=(2, 2) dtype=float32 device=cpu
    [[1., 2.],
     [3., 4.]]>
    """
    head = f"<lazyt.Tensor shape={x.shape} dtype={x.dtype} device={x.device}"
    if x.requires_grad:
        head += " requires_grad"
    text = values_text(x)
    if text is None:
        return f"{head} pending: {_what(x)}>"
    return f"{head} {text}>" if "\n" not in text and len(text) <= SHORT else f"{head}\n{text}>"


def tensor_html(x: Tensor) -> str:
    """A table of what is known without computing, and the values when they are there."""
    text = values_text(x)
    row = [str(x.shape), str(x.dtype), str(x.device), "yes" if x.requires_grad else "no"]
    header = ["shape", "dtype", "device", "requires_grad"]
    if text is None:
        step = pending_step(x)
        header.append("pending")
        row.append(_what(x) + (f" at {site_text(step.site)}" if step is not None and step.site is not None else ""))
        return html_table(header, [row])
    return html_table(header, [row]) + html_text(text)


def explain_tensor(self: Tensor, *, fused: bool = True) -> Explanation | PartsExplanation | Nothing:
    """Which kernels would run if this were read now, what each fuses and why: see `lazyt.explain`."""
    return explain.explain(self, fused=fused)


def graph_of_tensor(self: Tensor) -> GraphText:
    """The pending primitives that compute this, as text."""
    return pending.graph(self)


def attach_looks() -> None:
    """Give Tensor what shows it: `repr`, its look in a notebook, `explain()` and `graph()`."""
    methods = {
        "__repr__": tensor_repr, "_repr_html_": tensor_html, "explain": explain_tensor, "graph": graph_of_tensor,
    }  # fmt: skip
    for name, f in methods.items():
        setattr(Tensor, name, f)
