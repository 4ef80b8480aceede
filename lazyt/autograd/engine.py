"""Reverse mode over the recorded program: `backward` and its kin are steps like any other, and run nothing.

A vector-Jacobian step asks for the cotangents of some of its program's values (`wanted`) given those of others. Its
expansion differentiates the primitives recorded so far, so a derivative is again part of the program.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from lazyt.autograd.reverse import backward as reverse
from lazyt.autograd.segment import link_synced
from lazyt.errors import AutogradError, ShapeError
from lazyt.handle import Gradient, Handle
from lazyt.inplace import record_inplace
from lazyt.ir.graph import Node
from lazyt.lowering import Lowered
from lazyt.ops.core import OPS, OpDef
from lazyt.record import ASSIGN, LEAF, MODE, _follow, _insert, _plain, begin, new_tensor, record_view, run_sync, slot_of
from lazyt.trace import Slot, Step, Trace, user_site

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
    outputs, cotangents = list(known), list(known.values())
    met = [leaf for leaf, _ in pairs]
    wanted = [*groups, *([m] for m in met)]
    grads, found = reverse(b, outputs, cotangents, wanted)
    totals, seen = list(grads[: len(groups)]), list(found[: len(groups)])
    for i, (_, origin) in enumerate(pairs):
        if not found[len(groups) + i]:
            continue
        more, got = reverse(b, [origin], [grads[len(groups) + i]], list(groups))
        for j, (m, ok) in enumerate(zip(more, got, strict=True)):
            if ok:
                totals[j] = b.add(totals[j], m) if seen[j] else m
                seen[j] = True
    return totals


BACKWARD = VJP()


class Reach:
    """What a backward from some slots passes through: steps, leaf identities with their versions, synced values."""

    def __init__(self, outputs: Sequence[Slot]) -> None:
        self.steps: list[Step] = []
        self.leaves: dict[Slot, list[Slot]] = {}
        self.synced: list[Slot] = []
        seen: set[Slot] = set()
        todo: list[Slot] = [o for o in outputs if o.requires_grad]
        steps: set[Step] = set()
        while todo:
            slot = todo.pop()
            if slot in seen:
                continue
            seen.add(slot)
            s = slot.step
            if slot.leaf is not None:
                self.leaves.setdefault(slot.leaf, []).append(slot)
                if s.op is LEAF and s.statics[2] == 2:
                    self.synced.append(slot)
                if s.op is not TRACK:
                    continue
            if s not in steps:
                steps.add(s)
                self.steps.append(s)
            todo.extend(x for x in s.operands if isinstance(x, Slot) and x.requires_grad)
        self.synced.sort(key=lambda x: x.step.index)
        for slot in self.synced:
            del self.leaves[slot]
        self.leaves = {k: sorted(v, key=lambda x: x.step.index) for k, v in
                       sorted(self.leaves.items(), key=lambda kv: kv[0].step.index)}


class _Track:
    """Marks a value whose gradient will be asked for (`grad` needs no requires_grad on its inputs)."""

    name = "track"
    saves: tuple[int, ...] = ()
    differentiable = True
    fallible = False

    def expand(self, low: Lowered, s: Step) -> tuple[Node, ...]:
        return (low.track(low.nodes[s.operands[0]], s.index),)


TRACK = _Track()


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
        s.target = like
    else:
        for slot, x in zip(s.slots, s.target, strict=True):
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
        check_reach(tr, reach())
        return [g[0] for g in groups]

    s = special_step(tr, BACKWARD, operands, statics, tuple(groups), make)
    for slot in s.slots:
        slot.requires_grad = create
    if s.leaves is None:
        s.leaves = () if retain else frozenset(x for x in reach().steps)
    return s


def check_reach(tr: Trace, reach: Reach) -> None:
    """PyTorch's two refusals: a graph that was freed, and a saved value that was overwritten in place."""
    superseded: dict[Slot, Step] = {}
    consumed: set[Step] = set()
    for s in tr.pos.steps():
        if s.op is ASSIGN and s.target is not None:
            superseded[s.target] = s
        elif s.op is BACKWARD and s.leaves:
            consumed |= s.leaves
    for s in reach.steps:
        if not s.op.saves:
            continue
        if s in consumed:
            raise AutogradError(
                "backward: Trying to backward through the graph a second time. Saved intermediate values of the graph "
                f"are freed when you call .backward() (here those of {s.op.name}, recorded at {s.site}). Specify "
                "retain_graph=True if you need to backward through the graph a second time"
            )
        for i in s.op.saves:
            saved = s.slots[0] if i < 0 else s.operands[i] if i < len(s.operands) else None
            if isinstance(saved, Slot) and saved in superseded:
                by = superseded[saved]
                raise AutogradError(
                    "backward: one of the variables needed for gradient computation has been modified by an inplace "
                    f"operation: {saved.dtype} {list(saved.shape)}, which is {'the output' if i < 0 else f'operand {i}'} "
                    f"of {s.op.name} recorded at {s.site}, was written at {by.site}; expected the value it had then. "
                    "Hint: write out of place, or clone it before the write"
                )


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
    wanted: list[tuple[Gradient, tuple[Slot, ...]]] = []
    allowed = None if inputs is None else {id(_meta(h)) for h in inputs}
    for leaf, group in versions.items():
        r = tr.metas.get(leaf.step.index)
        meta = r() if r is not None else None
        if meta is not None and (allowed is None or id(meta) in allowed):
            wanted.append((meta, tuple(group)))
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
        tr.refs[s.index] = tuple(ref(h) for _, h in handles)
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
