"""Derivatives that users register for an operation: a custom step, whose rule is theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lazyt.autograd.custom import Kept, custom, inputs_of
from lazyt.autograd.custom_rules import Pull, spread
from lazyt.autograd.functional import flatten, unflatten, vjp
from lazyt.autograd.vjp_step import zeros_of
from lazyt.errors import AutogradError, ShapeError
from lazyt.ir import dtypes
from lazyt.ir.records import dataclass
from lazyt.ops.definition import OPS
from lazyt.tracing.current import restore_grad_mode, set_grad_mode
from lazyt.tracing.inplace import requires_grad
from lazyt.tracing.record import begin, is_grad_enabled, record, slot_of
from lazyt.tracing.steps import new_tensor
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from lazyt.tracing.program import Slot
    from lazyt.tracing.trace import Step, Trace

OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class Derivative:
    """What is registered: `vjp(args, output, cotangent)`, `jvp(args, output, tangents)`, or both."""

    vjp: Callable[..., Any] | None = None
    jvp: Callable[..., Any] | None = None
    # The positions of the arguments that the rules read, and whether they read the output.
    reads: frozenset[int] | None = None  # None: all
    reads_output: bool = True


class _Rule(Pull):
    """The rule of one call."""

    def __init__(self, kept: Kept, name: str, derivative: Derivative, call: _Call) -> None:
        super().__init__(kept, name, lambda kept, given: ())
        self.derivative, self.made = derivative, call

    def pull(self, tr: Trace, step: Step, cts: Sequence[Handle | None], create: bool) -> list[tuple[Slot, Handle]]:
        made, rule = self.made, self.derivative
        args, output = made.read(self.kept_tensors(), step, create)
        given = [ct if ct is not None else zeros_of(s) for s, ct in zip(step.slots, cts, strict=True)]
        if rule.vjp is not None:
            found = self._cotangents(rule.vjp(args, output, made.outputs(given)))
        else:
            zeros = [zeros_of(x) for x in inputs_of(step)]
            # The rule is linear in the tangents: its transpose is the reverse derivative, at any point.
            _, back = vjp(lambda *some: self._tangents(args, output, step, some), *zeros)
            found = list(back(tuple(given)))
        return [(x, ct) for x, ct in zip(inputs_of(step), found, strict=True) if ct is not None]

    def push(self, step: Step, tangents: Sequence[Handle]) -> Sequence[Handle] | None:
        if self.derivative.jvp is None:
            return None
        args, output = self.made.read(self.kept_tensors(), step, True)
        return self._tangents(args, output, step, tangents)

    def _cotangents(self, found: Any) -> list[Any]:
        """One for each input that is differentiated by."""
        made, n = self.made, len(self.made.trees)
        found = tuple(found) if isinstance(found, tuple | list) else (found,)
        if len(found) != n:
            raise AutogradError(f"{self.name}: its vjp must give {n} cotangents, one an argument, got {len(found)}")
        cts: list[Any] = [None] * len(made.like)
        for i, (ct, tree) in enumerate(zip(found, made.trees, strict=True)):
            spread(tree, ct, cts, f"{self.name}: its vjp gave for argument {i}")
        return [self._fitting(cts[i], made.like[i], "vjp gave a cotangent", "an argument") for i in made.places]

    def _tangents(self, args: Any, output: Any, step: Step, some: Sequence[Any]) -> tuple[Handle, ...]:
        """The tangents of floating results; of inputs that are not differentiated by they are None."""
        made = self.made
        given: list[Any] = [None] * len(made.like)
        for i, t in zip(made.places, some, strict=True):
            given[i] = t
        assert self.derivative.jvp is not None, "asked before"
        found = self.derivative.jvp(args, output, tuple(unflatten(t, given) for t in made.trees))
        each = tuple(found) if isinstance(found, tuple | list) else (found,)
        if len(each) != len(made.floating):
            raise AutogradError(f"{self.name}: its jvp must give {len(made.floating)} tangents, got {len(each)}")
        moving = [t for t, floats in zip(each, made.floating, strict=True) if floats]
        return tuple(
            zeros_of(slot)
            if t is None
            else self._fitting(t, (slot.shape, slot.dtype), "jvp gave a tangent", "a result")
            for t, slot in zip(moving, step.slots, strict=True)
        )

    def _fitting(self, x: Any, like: tuple[Any, Any], what: str, of: str) -> Any:
        if x is None:
            return None
        if not isinstance(x, Handle):
            raise AutogradError(f"{self.name}: its {what} that is a {type(x).__name__!r}; a tensor or None is required")
        t: Any = x
        if t.shape != like[0]:
            raise ShapeError(f"{self.name}: its {what} of shape {t.shape} for {of} of shape {like[0]}")
        return t if t.dtype == like[1] else t.astype(like[1])


class _Call:
    """One call of a differentiable operation: its arguments with places for tensors, and what it gave."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.leaves: list[Handle] = []
        self.trees = [flatten(v, self.leaves) for v in values]
        self.places = [i for i, x in enumerate(self.leaves) if requires_grad(x)]
        self.like = [(x.shape, x.dtype) for x in self.leaves]
        self.floating: list[bool] = []
        self.is_tuple = False
        # Which leaves, and then which results, are kept.
        self.kept_leaves: list[int] = []
        self.kept_outputs: list[int] = []

    def keep(self, derivative: Derivative, outs: Sequence[Handle]) -> Kept:
        """What the rules read."""
        reads = derivative.reads
        self.kept_leaves = []
        for i, tree in enumerate(self.trees):
            if reads is None or i in reads:
                at: list[Any] = []
                _numbers(tree, at)
                self.kept_leaves += at
        self.kept_outputs = [*range(len(outs))] if derivative.reads_output else []
        return Kept([*(self.leaves[i] for i in self.kept_leaves), *(outs[k] for k in self.kept_outputs)])

    def read(self, kept: Sequence[Handle], step: Step, create: bool) -> tuple[tuple[Any, ...], Any]:
        """The arguments and the output, None for what is not kept."""
        leaves: list[Any] = [None] * len(self.like)
        for i, x in zip(self.kept_leaves, kept, strict=False):
            leaves[i] = x
        outs: list[Any] = [None] * len(self.floating)
        moving = iter(step.slots)
        slots = [next(moving) if floats else None for floats in self.floating]
        for k, x in zip(self.kept_outputs, kept[len(self.kept_leaves) :], strict=True):
            slot = slots[k]
            # NOTE: with this operation's own derivative, where that is asked for again.
            # NOTE: a step of its own, because rules may keep it, and nobody tells another handle of a slot its value.
            outs[k] = x if slot is None or not create else record(OPS["positive"], (new_tensor(slot),))
        args = tuple(unflatten(t, leaves) for t in self.trees)
        return args, tuple(outs) if self.is_tuple else outs[0]

    def outputs(self, moving: Sequence[Any]) -> Any:
        """What belongs to floating results, in the nesting of the output; None for the others."""
        given = iter(moving)
        found = tuple(next(given) if floats else None for floats in self.floating)
        return found if self.is_tuple else found[0]


def _numbers(tree: Any, at: list[Any]) -> None:
    if hasattr(tree, "n"):
        at.append(tree.n)
    elif isinstance(tree, list | tuple):
        for t in tree:
            _numbers(t, at)


def asks_for_gradients(values: Sequence[Any]) -> bool:
    """Whether gradients are recorded, and one of these arguments asks for one."""
    if not is_grad_enabled():
        return False
    leaves: list[Handle] = []
    flatten(list(values), leaves)
    return any(requires_grad(x) for x in leaves)


def differentiated(
    name: str, values: Sequence[Any], compute: Callable[[], Any], derivative: Derivative
) -> Any:  # fmt: skip
    """What `compute()` gives for `values`, with this derivative."""
    call = _Call(values)
    asked = [call.leaves[i] for i in call.places]
    tr = begin()
    inputs = [slot_of(tr, x) for x in asked]
    number = tr.number
    before = set_grad_mode(False)
    try:
        out = compute()
    finally:
        restore_grad_mode(before)
    call.is_tuple = isinstance(out, tuple)
    outs: list[Any] = list(out) if call.is_tuple else [out]
    call.floating = [dtypes.kind(x.dtype) in "fc" for x in outs]
    moving = [x for x, floats in zip(outs, call.floating, strict=True) if floats]
    if not moving:
        return out
    if tr.number != number:  # the kernel has synced
        inputs = [slot_of(begin(), x) for x in asked]
    made = iter(custom(moving, inputs, _Rule(call.keep(derivative, outs), name, derivative, call)))
    found = tuple(next(made) if floats else x for x, floats in zip(outs, call.floating, strict=True))
    return found if call.is_tuple else found[0]


__all__ = ["OUTPUT", "Derivative", "asks_for_gradients", "differentiated"]
