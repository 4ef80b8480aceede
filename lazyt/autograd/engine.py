"""Reverse mode over the recorded program: `backward` and its kin are steps like any other, and run nothing.

A vector-Jacobian step asks for the cotangents of some of its program's values (`wanted`) given those of others. Its
expansion differentiates the primitives recorded so far, so a derivative is again part of the program.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from lazyt.autograd.reach import Reach, check_reach
from lazyt.autograd.reverse import backward as reverse
from lazyt.autograd.segment import link_synced
from lazyt.autograd.track import TRACK
from lazyt.errors import AutogradError, ShapeError
from lazyt.handle import Gradient, Handle, Holder
from lazyt.inplace import record_inplace
from lazyt.ir.graph import Node
from lazyt.lowering import Lowered
from lazyt.ops.core import OPS, OpDef
from lazyt.record import _follow, _insert, _plain, begin, new_tensor, record_view, run_sync, slot_of
from lazyt.trace import Several, Slot, Step, Trace, user_site

ref = weakref.ref


class VJP:
    """The kind of step that pulls cotangents back. statics: (create_graph, retain_graph, n outputs, cotangents given,
    n links); operands: the outputs, their cotangents if given, the linked pairs (see segment.py), the wanted slots."""

    name = "backward"
    saves: tuple[int, ...] = ()
    differentiable = True
    fallible = False

    def expand(self, low: Lowered, s: Step) -> tuple[Node, ...]:
        """Write the backward graph; parts that nobody reads disappear with dead code."""
        create, _, n, given, links = s.statics
        b = low.builder
        ops = [low.nodes[x] for x in s.operands[: n * 2 if given else n]]
        outputs = ops[:n]
        cotangents = ops[n:] if given else [b.expand_to(b.constant(1, o.dtype), o.shape) for o in outputs]
        rest = s.operands[len(ops) :]
        pairs = [(low.nodes[rest[2 * i]], low.nodes[rest[2 * i + 1]]) for i in range(links)]
        groups = [[low.nodes[v] for v in versions] for versions in s.info]
        known = {o: c for o, c in zip(outputs, cotangents, strict=True)}
        grads = _pull(b, known, pairs, groups)
        return tuple(grads) if create else tuple(b.stop(x) for x in grads)


def _pull(b: Any, known: dict[Node, Node], pairs: Sequence[tuple[Node, Node]], groups: Sequence[list[Node]]) -> list[Node]:
    """Cotangents of each group; across a sync, a leaf of this walk hands its cotangent to the value it stands for."""
    wanted = [*groups, *([leaf] for leaf, _ in pairs)]
    totals, found = reverse(b, list(known), list(known.values()), wanted)
    totals, seen = list(totals), list(found)
    for i, (_, origin) in enumerate(pairs):
        if not seen[len(groups) + i]:
            continue
        more, got = reverse(b, [origin], [totals[len(groups) + i]], wanted)
        for j, (m, ok) in enumerate(zip(more, got, strict=True)):
            if ok:
                totals[j] = b.add(totals[j], m) if seen[j] else m
                seen[j] = True
    return totals[: len(groups)]


BACKWARD = VJP()


def special_step(
    tr: Trace, op: Any, operands: Sequence[Slot], statics: tuple[Any, ...], extra: Any, make: Callable[[], Sequence[Slot]]
) -> Step:
    """The step of a special operation; `make` checks it and gives slots of its results when it is new."""
    plain = (op, tuple(operands), statics, extra)
    key: Any = (*plain, user_site()) if tr.pos.parent is None else plain
    s = _follow(tr, key)
    pos = tr.pos
    if s is None:
        like = make()
        s = Step(pos, op, tuple(operands), statics, key, pos.index + 1)
        s.site, s.mode, s.ext = user_site(), tr.grad, tr.ext
        s.slots = tuple(s if k == 0 else Slot(s, k, None, False) for k in range(len(like)))
        for slot, x in zip(s.slots, like, strict=True):
            slot.dtype, slot.shape = x.dtype, x.shape
        s.info = extra
        names = tuple(tuple((v.step.index, v.k) for v in e) if isinstance(e, tuple) else e for e in extra)
        _insert(tr, s, key, (op, _plain(operands), statics, names))
        s.like = tuple(like)
    else:
        for slot, x in zip(s.slots, s.like, strict=True):
            slot.shape = x.shape
        s.ext = tr.ext
    tr.refs[s.index] = _none
    tr.pos = s
    return s


def _none() -> None:
    return None


def track(x: Handle) -> Handle:
    """A new identity of x that gradients can be asked for."""
    tr = begin()
    slot = slot_of(tr, x)
    s = special_step(tr, TRACK, (slot,), (), (), lambda: (slot,))
    s.requires_grad, s.leaf = True, s
    h = new_tensor(s)
    tr.refs[s.index] = ref(h)
    return h


def vjp_step(
    tr: Trace, outputs: Sequence[Slot], cotangents: Sequence[Slot], groups: Sequence[tuple[Slot, ...]],
    links: Sequence[tuple[Slot, Slot]], create: bool, retain: bool, reach: Callable[[], Reach],
) -> Step:  # fmt: skip
    """Record one pull-back; checked against consumed graphs and overwritten values when it is new."""
    operands = (*outputs, *cotangents, *(x for pair in links for x in pair))
    statics = (create, retain, len(outputs), bool(cotangents), len(links))

    def make() -> Sequence[Slot]:
        check_reach(tr.pos.steps(), reach(), consumed_on(tr))
        return [g[0] for g in groups]

    s = special_step(tr, BACKWARD, operands, statics, tuple(groups), make)
    for slot in s.slots:
        slot.requires_grad = create and _varies(reach(), groups)
    if s.leaves is None:
        s.leaves = () if retain else frozenset(x for x in reach().steps)
    return s


def _varies(reach: Reach, groups: Sequence[tuple[Slot, ...]]) -> bool:
    """Whether gradients by `groups` depend on a value that somebody else may differentiate by."""
    own = {s.leaf for g in groups for s in g if s.step.op is TRACK}
    return bool(reach.synced) or any(leaf not in own for leaf in reach.leaves)


def consumed_on(tr: Trace) -> set[Step]:
    """The steps of this walk whose graph a backward has freed."""
    out: set[Step] = set()
    for s in tr.pos.steps():
        if s.op is BACKWARD and s.leaves:
            out |= s.leaves
    return out


def _reach_of(slot: Slot) -> Reach:
    """What a backward from one value passes through, found once a program."""
    if slot.reach is None:
        slot.reach = Reach([slot])
    found: Reach = slot.reach
    return found


def backward(
    loss: Handle, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
    inputs: Sequence[Handle] | None = None,
) -> None:  # fmt: skip
    """Accumulate d(loss)/d(leaf) into `.grad` of every leaf that requires it (see Tensor.backward)."""
    tr = begin()
    slot = slot_of(tr, loss)
    if not slot.requires_grad:
        raise AutogradError("backward: element 0 of tensors does not require grad and does not have a grad_fn")
    cotangents: list[Slot] = []
    if gradient is not None:
        g = slot_of(tr, gradient)
        if g.shape != slot.shape:
            raise ShapeError(f"backward: gradient has shape {g.shape}, the tensor has {slot.shape}")
        cotangents.append(g)
    elif slot.shape != () and any(d != 1 for d in slot.shape):
        raise AutogradError(
            f"backward: grad can be implicitly created only for scalar outputs, not for shape {slot.shape}; "
            "pass gradient="
        )
    retain = create_graph if retain_graph is None else retain_graph
    reach = _reach_of(slot)
    links, versions = link_synced(tr, reach, retain)
    allowed = None if inputs is None else {id(_meta(h)) for h in inputs}
    wanted = [(m, tuple(group)) for m, group in versions.items() if allowed is None or id(m) in allowed]
    run_backward(tr, slot, cotangents, wanted, links, create_graph, retain, reach)
    if tr.eager:
        run_sync(tr, "eager", user_site())


def _meta(h: Handle) -> Any:
    return h._storage._meta if h._storage is not None else h._meta


def run_backward(
    tr: Trace, slot: Slot, cotangents: list[Slot], wanted: list[tuple[Gradient, tuple[Slot, ...]]],
    links: Sequence[tuple[Slot, Slot]], create: bool, retain: bool, reach: Reach,
) -> None:  # fmt: skip
    """Record the pull-back and put the results where the user reads them."""
    s = vjp_step(tr, [slot], cotangents, [g for _, g in wanted], links, create, retain, lambda: reach)
    handles = []
    for (meta, _), out in zip(wanted, s.slots, strict=False):
        handles.append((meta, new_tensor(out)))
    if len(s.slots) == 1 and handles:
        tr.refs[s.index] = ref(handles[0][1])
    elif handles:
        tr.refs[s.index] = Several(ref(h) for _, h in handles)
    for meta, h in handles:
        for hook in meta.hooks:
            replaced = hook(h)
            if replaced is not None:
                h = replaced
        _accumulate(tr, meta, h)


def _accumulate(tr: Trace, meta: Gradient, h: Handle) -> None:
    """`.grad` is set the first time; after that the same tensor is added to in place."""
    if meta.grad is None:
        meta.grad = h
    else:
        record_inplace(OPS["add"], meta.grad, (h,))


def detach(x: Handle) -> Handle:
    """The same value outside the autograd graph."""
    return record_view(DETACH, x)


DETACH = OpDef("detach", lambda b, x: b.stop(x), write=lambda b, base, value: value, differentiable=False)


def make_leaf(holder: Holder) -> None:
    """Ask for gradients of a value that is still pending: it is a leaf from here on."""
    tr = begin()
    slot = holder._slot
    assert slot is not None
    s = special_step(tr, TRACK, (slot,), (), (), lambda: (slot,))
    s.requires_grad, s.leaf = True, s
    if holder._meta is None:
        holder._meta = Gradient(True)
    tr.metas[s.index] = ref(holder._meta)
    tr.refs[s.index] = ref(holder)
    holder._slot = s


class HookHandle:
    """Takes a hook off again."""

    def __init__(self, hooks: list[Any], hook: Any) -> None:
        self._hooks, self._hook = hooks, hook

    def remove(self) -> None:
        """No longer call the hook."""
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)


def register_hook(x: Handle, hook: Callable[[Any], Any]) -> HookHandle:
    """Call `hook` with the gradient of a leaf when it is recorded."""
    meta = _meta(x)
    if meta is None or not meta.requires_grad:
        raise AutogradError("register_hook: cannot register a hook on a tensor that doesn't require gradient")
    meta.hooks.append(hook)
    return HookHandle(meta.hooks, hook)
