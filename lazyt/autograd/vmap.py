"""`vmap` over the recorded program: one lane is recorded, and one step stands for what all lanes compute.

The function is called on `LANE` values, which have the shape of one lane and no value. The expansion of a `VMAP` step
writes what its primitives are for all lanes at once (`batching.py`); what was recorded for one lane is dead code.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lazyt import on_demand
from lazyt.autograd.custom import Kept, Rule
from lazyt.autograd.jvp import several, stopped
from lazyt.autograd.saved_segment import input_numbers
from lazyt.autograd.vjp_step import special_step
from lazyt.errors import AutogradError, NotSupportedError
from lazyt.ops import effects, kernel_calls, numpy_calls
from lazyt.tracing.commit import undisturbed
from lazyt.tracing.known_calls import steps_since, written_over
from lazyt.tracing.program import INPUT, Slot
from lazyt.tracing.record import begin, slot_of
from lazyt.tracing.steps import new_tensor
from lazyt.tracing.tensor_state import Handle, Storage
from lazyt.tracing.trace import Step, Trace

if TYPE_CHECKING:
    from lazyt.autograd import batching
    from lazyt.autograd.rules import formula
    from lazyt.ir.graph import Node
    from lazyt.tracing.lower import Lowered
else:
    batching = on_demand.module("lazyt.autograd.batching")
    formula = on_demand.module("lazyt.autograd.rules.formula")

ref = weakref.ref


class Lane:
    """The kind of step whose value is one lane of its operand, whichever. statics: (the axis of the lanes,)."""

    name = "lane"
    saves: tuple[int, ...] = ()
    differentiable = True
    fallible = False

    def expand(self, low: Lowered, s: Step) -> tuple[Node, ...]:
        """A node for the other steps to be written on; what `VMAP` wants of them is written again."""
        x = low.nodes[s.operands[0]]
        return (low.track(formula.zeros(low.builder, without(x.shape, s.statics[0]), x.dtype), s, 0),)

    def again(self, tr: Trace, s: Step, new: dict[Slot, Slot]) -> Step:
        """The same step on another trace, where `new` has its values."""
        return lane_step(tr, new[s.operands[0]], s.statics[0])

    def role(self, s: Step, lanes: frozenset[Step]) -> frozenset[Step]:
        """The lanes that its value is of, given those of its operand."""
        return lanes | {s}


class Vmap:
    """The kind of step that gives what all lanes compute. statics: number of outputs, their axes of lanes, those of
    the inputs, whether random numbers are each lane's own; operands: the outputs of one lane, its inputs, and what the
    inputs are lanes of."""

    name = "vmap"
    saves: tuple[int, ...] = ()
    differentiable = True
    fallible = False

    def expand(self, low: Lowered, s: Step) -> tuple[Node, ...]:
        """Write the graph of all lanes."""
        b = low.builder
        n, out_axes, in_axes, differ = s.statics
        nodes = [low.nodes[x] for x in s.operands]
        outputs, rest = nodes[:n], nodes[n:]
        inputs, values = rest[: len(in_axes)], rest[len(in_axes) :]
        first = [b.permute(x, (a, *(i for i in range(x.ndim) if i != a))) for x, a in zip(values, in_axes, strict=True)]
        size = first[0].shape[0]
        for x in first[1:]:
            size = b.same(size, x.shape[0])
        found = []
        for y, whole, axis in zip(
            outputs, batching.batch(b, outputs, inputs, first, size, differ), out_axes, strict=True
        ):
            x = b.expand_to(y, (size, *y.shape)) if whole is None else whole
            found.append(b.permute(x, (*range(1, axis + 1), 0, *range(axis + 1, x.ndim))))
        return stopped(b, s, found)

    def again(self, tr: Trace, s: Step, new: dict[Slot, Slot]) -> Step:
        """The same step on another trace, where `new` has its values."""
        n, out_axes, in_axes, differ = s.statics
        k, operands = len(in_axes), [new[x] for x in s.operands]
        groups = operands[:n], operands[n : n + k], operands[n + k :]
        return _vmap_step(tr, *groups, out_axes, in_axes, differ, [x.requires_grad for x in s.slots])

    def opened_by(self, s: Step) -> list[Step]:
        """The steps of its lanes."""
        n, k = s.statics[0], len(s.statics[2])
        return [x.step for x in s.operands[n : n + k]]

    def role(self, s: Step, lanes: frozenset[Step]) -> frozenset[Step]:
        """The lanes that its values are of, given those of its operands: all but its own."""
        return lanes.difference(self.opened_by(s))


LANE, VMAP = Lane(), Vmap()


def without(shape: Sequence[Any], axis: int) -> tuple[Any, ...]:
    """A shape less one axis."""
    return (*shape[:axis], *shape[axis + 1 :])


def lane_step(tr: Trace, slot: Slot, axis: int) -> Step:
    """Take the step of one lane of a value."""
    s = special_step(tr, LANE, (slot,), (axis,), (), lambda: (slot,))
    s.shape = without(slot.shape, axis)
    s.requires_grad = s.mode.grad and slot.requires_grad
    return s


def _vmap_step(
    tr: Trace, outputs: Sequence[Slot], inputs: Sequence[Slot], values: Sequence[Slot], out_axes: tuple[int, ...],
    in_axes: tuple[int, ...], differ: bool, grads: Sequence[bool],
) -> Step:  # fmt: skip
    def make() -> Sequence[Slot]:
        for x in _dependent(tr, inputs[0].step, inputs):
            _check(x)
        return outputs

    operands = (*outputs, *inputs, *values)
    s = special_step(tr, VMAP, operands, (len(outputs), out_axes, in_axes, differ), (), make)
    size = values[0].shape[in_axes[0]]
    for slot, y, axis, grad in zip(s.slots, outputs, out_axes, grads, strict=True):
        slot.shape = (*y.shape[:axis], size, *y.shape[axis:])
        slot.requires_grad = grad
    return s


def _check(s: Step) -> None:
    lower = getattr(s.op, "lower", None)
    for module, name in ((numpy_calls, "call"), (effects, "effect")):
        if lower is not None and lower is module.lower:
            raise batching.refuse(name, s.site)
    if kernel_calls.is_kernel_call(s.op):
        s.statics[0].check_batching(s.site)


def _dependent(tr: Trace, first: Step, inputs: Sequence[Slot]) -> set[Step]:
    """The steps since `first` whose values differ between lanes."""
    found = {x.step for x in inputs}
    for s in steps_since(tr, first.parent) or ():  # type: ignore[arg-type]
        if any(isinstance(x, Slot) and x.step in found for x in s.operands):
            found.add(s)
    return found


class Recorded:
    """The function of a vmap while it is recorded: the lanes that it gets, and then what all lanes compute."""

    def __init__(self, values: Sequence[Handle], axes: Sequence[int]) -> None:
        self.tr = begin()
        self.values = list(values)
        self.axes = tuple(axes)
        self.steps: list[Step] = []

    def lanes(self) -> list[Handle]:
        """One lane of each value."""
        return _lanes(self.tr, self)

    def outputs(self, handles: Sequence[Handle], differ: bool, axes: Sequence[int]) -> list[Handle]:
        """What `handles`, which one lane computes, are in all lanes."""
        return _outputs(self.tr, self, [slot_of(self.tr, h) for h in handles], differ, tuple(axes))

    def differs(self, handles: Sequence[Handle]) -> list[bool]:
        """Which of these differ between lanes."""
        found = _dependent(self.tr, self.steps[0], self.steps)
        return [slot_of(self.tr, h).step in found for h in handles]

    def check_escapes(self, returned: Sequence[Handle]) -> None:
        """AutogradError if a value of one lane is held by others than the function's result.

        A tensor from outside that such a value was written to has its old value again.
        """
        self._close_rules()
        if not self._escaped(returned):
            return
        found = _dependent(self.tr, self.steps[0], self.steps)
        self._drop_effects(found)
        for s in found:
            _check(s)
        gc.collect()  # what only a cycle holds
        escaped = self._escaped(returned)
        if escaped:
            tried = [(self._put_back(h), slot) for h, slot in escaped]
            raise _refusal(*max(tried, key=lambda x: x[0]))

    def restore(self) -> None:
        """After an error: tensors from outside have the values that they had."""
        self._drop_effects(_dependent(self.tr, self.steps[0], self.steps))
        for h, _ in self._escaped(()):
            self._put_back(h)

    def _close_rules(self) -> None:
        """Rules and hooks of Python's have done their work inside: from outside they would get all lanes at once."""
        tr = self.tr
        if not (tr.customs or tr.slot_hooks):
            return
        found = _dependent(tr, self.steps[0], self.steps)
        for step in [x for x in tr.customs if x in found]:
            tr.customs[step] = _Closed(step)
        for slot in [x for x in tr.slot_hooks if x.step in found]:
            tr.slot_hooks[slot] = [_refused(slot, "a hook")]

    def _drop_effects(self, found: set[Step]) -> None:
        """Do not call what would be called with the values of a lane."""
        for device, token in [*self.tr.effects.items()]:
            slot: Any = token._slot
            while isinstance(slot, Slot) and slot.step in found:
                slot = slot.step.operands[-1]
            if slot is token._slot:
                continue
            if isinstance(slot, Slot) and effects.is_effect(slot.step.op):
                h = self.tr.effects[device] = new_tensor(slot)
                self.tr.refs[slot.step.index] = ref(h)
            else:
                del self.tr.effects[device]

    def _escaped(self, returned: Sequence[Handle]) -> list[tuple[Any, Slot]]:
        tr, first = self.tr, self.steps[0]
        own = {id(h) for h in returned} | {id(h._storage) for h in returned}
        alive = [h for i, h in tr.alive(first.index) if i >= first.index and id(h) not in own]
        alive = [h for h in alive if h._slot is not None and h._slot.step.owner is tr]
        if not alive:
            return []
        found = _dependent(tr, first, self.steps)
        return [(h, h._slot) for h in alive if h._slot.step in found]

    def _put_back(self, h: Any) -> bool:
        """Whether h was there before, and was written: then it has its old value."""
        slot, tr = written_over(h._slot, self.steps[0].index), self.tr
        if slot is None:
            return False
        if type(h) is Storage:
            h.invalidate(None)
        if slot.step.op is INPUT:
            h._buffer = tr.inputs[input_numbers(tr.pos.steps())[slot.step]]
        h._slot = slot
        tr.refs[slot.step.index] = ref(h)
        return True


class _Closed(Rule):
    """What stands for the rule of a custom function when the vmap that it was called in is done."""

    def __init__(self, step: Step) -> None:
        super().__init__(Kept(()))
        self.refuse = _refused(step, "a custom function")

    def check(self) -> None:
        self.refuse(())

    def pull(self, tr: Trace, step: Step, cts: Sequence[Handle | None], create: bool) -> list[tuple[Slot, Handle]]:
        self.refuse(cts)
        raise AssertionError("it is refused")


def _refused(slot: Slot, what: str) -> Callable[[Any], Any]:
    def rule(_: Any) -> Any:
        raise NotSupportedError(
            f"not supported: a derivative from outside a vmap through {what} inside it (recorded at {slot.step.site}), "
            "because its Python function is for one lane; differentiate inside: vmap(grad(f)) for grad of vmap(f)"
        )

    return rule


def _refusal(written: bool, slot: Slot) -> AutogradError:
    what = f"{slot.dtype} {tuple(slot.shape)}, recorded at {slot.step.site}"
    if written:
        return AutogradError(
            f"vmap: a tensor made outside the function is written with a value of one lane ({what}), which has another "
            "value in each; return it instead"
        )
    return AutogradError(f"vmap: a value of one lane ({what}) outlives the function; return it instead")


@undisturbed
def _lanes(tr: Trace, r: Recorded) -> list[Handle]:
    handles = []
    slots = [slot_of(tr, x) for x in r.values]
    for slot, axis in zip(slots, r.axes, strict=True):
        s = lane_step(tr, slot, axis)
        h = new_tensor(s)
        tr.refs[s.index] = ref(h)
        r.steps.append(s)
        handles.append(h)
    return handles


@undisturbed
def _outputs(tr: Trace, r: Recorded, slots: Sequence[Slot], differ: bool, axes: tuple[int, ...]) -> list[Handle]:
    values = [s.operands[0] for s in r.steps]
    grads = [tr.mode.grad and x.requires_grad for x in slots]
    return several(tr, _vmap_step(tr, slots, r.steps, values, axes, r.axes, differ, grads))
