"""Anomaly detection: which operation gave the first NaN of a gradient, and the user's line of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from lazyt import on_demand
from lazyt.autograd.engine import watchers
from lazyt.autograd.hooks import record_of
from lazyt.autograd.track import is_synced
from lazyt.errors import AutogradError
from lazyt.interrupts import uninterrupted
from lazyt.ir import dtypes, graph as g
from lazyt.ir.graph import Node
from lazyt.runtime import memory
from lazyt.runtime.decorators import Context
from lazyt.tracing.lower import lower
from lazyt.tracing.program import Slot
from lazyt.tracing.tensor_state import Handle
from lazyt.tracing.trace import Trace, local

if TYPE_CHECKING:
    from lazyt.ir import graph_interpreter
else:
    graph_interpreter = on_demand.module("lazyt.ir.graph_interpreter")

# What has no value of its own.
_MARKS = frozenset(("opaque", "stop", "track", "known", "normalized"))


def _is_nan(a: Any) -> bool:
    return bool(np.isnan(a.astype(dtypes.of(a.dtype).numpy, copy=False)).any())


def _is_finite(a: Any) -> bool:
    return bool(np.isfinite(a.astype(dtypes.of(a.dtype).numpy, copy=False)).all())


def _made_here(tr: Trace, h: Handle) -> Slot | None:
    """Where the program makes a value: where it was made again, if it was synced."""
    slot, meta = h._slot, record_of(h)
    if meta is not None and meta.segment in tr.replayed:
        return tr.replayed[meta.segment].get(meta.slot)
    return slot if slot is not None and slot.step.owner is tr else None


def _says_where(n: Node) -> str:
    site = n.site
    return f"{site.name}, recorded at {site.site}" if isinstance(site, g.Origin) else f"{n.op}, recorded at {site}"


def check(outputs: Sequence[Handle], gradients: list[Handle]) -> None:
    """AutogradError if one of these gradients has a NaN: it names the operation whose gradient was the first.

    Each primitive of the program so far is computed by NumPy, one at a time; nothing of it is synced.
    """
    tr = local.trace
    pos = tr.pos
    low = lower(pos.steps(), tr.ext.values, tr.scalars)
    wanted = [low.nodes[x] for h in gradients if (x := h._slot) is not None and x.step.owner is tr]
    synced = {x for x in pos.steps() if is_synced(x)}
    began = [low.nodes[x] for h in outputs if (x := _made_here(tr, h)) is not None and x not in synced]
    if wanted:
        reached = g.reachable([*wanted, *began])
        nodes = [n for n in reached if n.op not in _MARKS and dtypes.kind(n.dtype) in "fc"]
        inputs = [memory.as_array(x) for x in tr.inputs]
        scalars = tr.scalars[: pos.scalar_start + pos.n_scalars]
        values = graph_interpreter.interpret(
            low.builder.nodes, [*nodes, *wanted], inputs, scalars, (tr.ext.values, scalars)
        )
        if any(_is_nan(a) for a in values[len(nodes) :]):
            # What a sync kept of the forward pass is an input, which stands for the value of an operation.
            stands = {n.operands[1]: n.operands[0] for n in low.builder.nodes if n.op == "known"}
            met = {low.nodes[x] for x in synced}
            raise _refused([(n, a) for n, a in zip(nodes, values, strict=False) if n not in met], stands)
    for h in gradients:
        if h._buffer is not None and _is_nan(memory.as_array(h._buffer)):
            raise AutogradError(
                "backward: a gradient has nan values; what computed it was synced on the way (to another device), so "
                "the operation is not known: enable detect_anomaly where no device is crossed"
            )


def _refused(found: list[tuple[Node, Any]], stands: Mapping[Node, Node]) -> AutogradError:
    """What to say, of all values in their order."""
    pulled = [(n, a) for n, a in found if isinstance(n.site, g.Origin) and n.site.backward]
    first = next((n for n, a in pulled if _is_nan(a)), None)
    forward = [(n, a) for n, a in found if not (isinstance(n.site, g.Origin) and n.site.backward)]
    source = next(((n, a) for n, a in forward if n.op not in ("input", "constant") and not _is_finite(a)), None)
    bad = [(n, a) for n, a in forward if n.op == "input" and not _is_finite(a)]
    given = {n for n, _ in bad if n not in stands}
    source = next(((stands[n], a) for n, a in bad if n in stands), source)
    if source is not None and not given.isdisjoint(g.reachable([source[0]])):
        source = None
    text = "backward: a gradient has nan values."
    if first is not None:
        name = first.site.name
        text = f"backward: Function '{name}Backward' returned nan values in its 0th output: the gradient of "
        text += _says_where(first) + "."
    if source is not None:
        what = "nan" if _is_nan(source[1]) else "inf"
        text += f" The first value that is not finite in the forward pass is {what}, the result of "
        text += _says_where(source[0]) + "."
    elif given:
        text += " A value that the program was given is not finite."
    return AutogradError(text)


class set_detect_anomaly(Context):  # noqa: N801 - a name that other programs rely on
    """Detect anomalies or not, from now on; as a `with` block only there. As `torch.autograd.set_detect_anomaly`.

    >>> import lazyt as lt
    >>> with lt.autograd.set_detect_anomaly(True):
    ...     lt.autograd.is_anomaly_enabled()
    True
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.mode, self.check_nan = bool(mode), bool(check_nan)
        self._before = list(watchers)
        self._set()

    def _set(self) -> None:
        global _enabled
        self._was = _enabled
        _enabled = self.mode
        watchers[:] = [check] if self.mode and self.check_nan else []

    def __enter__(self) -> Self:
        return self

    @uninterrupted
    def __exit__(self, *exc: object) -> None:
        global _enabled
        _enabled = self._was
        watchers[:] = self._before

    def _again(self) -> Context:
        return type(self)(self.mode, self.check_nan)


_enabled = False


class detect_anomaly(Context):  # noqa: N801 - as above
    """In the `with` block, a backward that gives a NaN is an AutogradError that names the operation and its line.

    It also names the first value of the forward pass that is not finite, and where it was recorded: nan or inf. Each
    `backward()` and `autograd.grad` then computes its program by NumPy, one primitive at a time and beside what is
    recorded, so this is slow and for debugging; nothing is synced by it. Without `check_nan` nothing is checked.

    As `torch.autograd.detect_anomaly`; operations always know their lines here.

    >>> import lazyt as lt
    >>> x = lt.tensor([0.0], requires_grad=True)
    >>> with lt.autograd.detect_anomaly():
    ...     (lt.sqrt(x) * 0).sum().backward()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    lazyt.errors.AutogradError: backward: Function 'sqrtBackward' returned nan values in its 0th output: ...
    """

    def __init__(self, check_nan: bool = True) -> None:
        self.check_nan = check_nan

    def __enter__(self) -> Self:
        self._set = set_detect_anomaly(True, self.check_nan)
        return self

    @uninterrupted
    def __exit__(self, *exc: object) -> None:
        self._set.__exit__(*exc)

    def _again(self) -> Context:
        return type(self)(self.check_nan)


def is_anomaly_enabled() -> bool:
    """Whether anomalies are detected now.

    >>> import lazyt as lt
    >>> lt.autograd.is_anomaly_enabled()
    False
    """
    return _enabled


__all__ = ["detect_anomaly", "is_anomaly_enabled", "set_detect_anomaly"]
