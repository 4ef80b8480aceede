"""What the methods of a `Function` share: its context, and what it saves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lazyt.autograd.custom import Kept, inputs_of
from lazyt.autograd.functional import STOP, tensors_of
from lazyt.autograd.saved_segment import KNOWN
from lazyt.errors import AutogradError
from lazyt.functions.gradients.saving import packers
from lazyt.ir import dtypes
from lazyt.ops.definition import OPS
from lazyt.tracing.inference import is_inference, refuse_saving
from lazyt.tracing.record import advance, begin, is_grad_enabled, record, slot_of
from lazyt.tracing.steps import new_tensor
from lazyt.tracing.tensor_state import Handle
from lazyt.tracing.trace import Step

_FREED = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors "
    "after calling backward."
)


class FunctionCtx:
    """What `forward` and `backward` of one call share: saved tensors, marks, and whatever attributes they set."""

    def __init__(self, name: str, needs_input_grad: tuple[bool, ...]) -> None:
        #: Which arguments of `apply` are tensors that require grad.
        self.needs_input_grad = needs_input_grad
        self._name = name
        self._kept = Kept(())
        self._saved: list[_Saved | None] = []
        self._unpack: Any = None
        self._to_save: tuple[Any, ...] = ()
        self._to_save_forward: tuple[Any, ...] | None = None
        self._saved_forward: list[_Saved | None] | None = None
        self._forward = False  # whether `jvp` is what reads
        self._dirty: tuple[Any, ...] = ()
        self._dirty_saved: list[tuple[int, Any]] = []
        self._plain: tuple[Any, ...] = ()
        self._materialize = True
        self._step: Step | None = None  # where the call stands on the trace of a backward

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors (or None) for `backward`, which reads `saved_tensors`; call it at most once, in `forward`.

        A write in place to one of them is found there. Keep what is no tensor as an attribute.
        """
        self._check_saved("save_for_backward", tensors)
        self._to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Keep tensors (or None) for `jvp`, as its `saved_tensors`; without a call it reads what `backward` does."""
        self._check_saved("save_for_forward", tensors)
        self._to_save_forward = tensors

    def _check_saved(self, name: str, tensors: Sequence[Any]) -> None:
        for x in tensors:
            if x is not None and not isinstance(x, Handle):
                raise TypeError(
                    f"{self._name}: {name} can only save variables, but argument is of type {type(x).__name__}"
                )

    def mark_dirty(self, *tensors: Any) -> None:
        """Say which inputs `forward` wrote in place; it must return them too."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Say which results have no gradient."""
        self._plain = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether `backward` gets zeros (the default) or None for results that nothing depends on."""
        self._materialize = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` kept. AutogradError if it was freed, or written in place since."""
        kept = self._kept.tensors
        if kept is None:
            raise AutogradError(f"{self._name}: {_FREED}")
        i = self._kept.overwritten()
        if i is not None:
            x = kept[i]
            raise AutogradError(
                f"{self._name}: one of the variables needed for gradient computation has been modified by an inplace "
                f"operation: {x.dtype} {list(x.shape)}, which is saved tensor {i} of {self._name}, is at version "
                f"{x._version}; expected version {self._kept.versions[i]} instead. Hint: write out of place, or copy "
                "it before the write"
            )
        saved = self._saved_forward if self._forward and self._saved_forward is not None else self._saved
        return tuple(x if x is None else self._restored(kept, x) for x in saved)

    def _restored(self, kept: list[Handle], saved: _Saved) -> Any:
        slot = None
        if self._step is not None:
            if saved.result is not None:
                slot = self._step.slots[saved.result]
            elif saved.input is not None:
                slot = inputs_of(self._step)[saved.input]
        if self._unpack is None:
            if slot is None or saved.result is None or not is_grad_enabled():
                return kept[saved.place]
            # A result, with this function's gradient. NOTE: of a step of its own, because somebody may hold that value.
            return record(OPS["positive"], (new_tensor(slot),))
        x = self._unpack(saved.packed)
        if not isinstance(x, Handle):
            raise TypeError(f"Output of saved tensor unpack_hook expected to be a tensor but got {type(x).__name__}")
        if slot is None or not is_grad_enabled():
            return x
        # The value that was unpacked, with the gradient of what was packed.
        tr = begin()
        return new_tensor(advance(tr, KNOWN, [slot, slot_of(tr, x)], (), None, None, ()))

    def _keep(self, results: Sequence[Any], inputs: Sequence[Any]) -> None:
        """After `forward`: take what is to be saved, among the results and inputs with a gradient."""
        hooks = packers()
        self._unpack = None if hooks is None else hooks[1]
        tensors: list[Handle] = []
        self._saved = [self._entry(x, tensors, results, inputs) for x in self._to_save]
        if self._to_save_forward is not None:
            self._saved_forward = [self._entry(x, tensors, results, inputs) for x in self._to_save_forward]
        self._kept = Kept(tensors)
        self._to_save, self._to_save_forward = (), None

    def _watch_dirty(self) -> None:
        """Take the present versions of saved inputs that `forward` wrote as those that were saved."""
        for place, x in self._dirty_saved:
            self._kept.watch(place, x)
        self._dirty, self._plain, self._dirty_saved = (), (), []

    def _unfollowed(self, args: Sequence[Any], results: Sequence[Any], inside: Callable[[Handle], bool]) -> str:
        """A tensor that `forward` computed and keeps, whose derivative nothing knows; '' if there is none.

        inside: whether a tensor was computed of the arguments.
        """
        named = [(f"as the attribute {k!r} of ctx", v) for k, v in vars(self).items() if not k.startswith("_")]
        named = [(k, x) for k, v in named for x in tensors_of(v)]
        named = [(k, x) for k, x in named if not any(x is a for a in args)]
        saved = [x for x in self._to_save if x is not None and not any(x is y for y in (*args, *results))]
        named += [("by save_for_backward, and which is neither an argument nor a result", x) for x in saved]
        return next((k for k, x in named if dtypes.kind(x.dtype) in "fc" and inside(x)), "")

    def _entry(
        self, x: Any, tensors: list[Handle], results: Sequence[Any], inputs: Sequence[Any]
    ) -> _Saved | None:  # fmt: skip
        """One of the saved tensors; it joins `tensors`, unless hooks pack it."""
        hooks = packers()
        if x is None:
            return None
        if is_inference(x):
            raise refuse_saving(self._name, f"saved tensor {len(tensors)}")
        saved = _Saved(
            len(tensors),
            next((k for k, r in enumerate(results) if r is x), None),
            next((k for k, r in enumerate(inputs) if r is x), None),
        )
        if hooks is None:
            if any(x is d for d in self._dirty):
                # NOTE: x becomes the result, which leads to what is kept here.
                self._dirty_saved.append((saved.place, x))
                x = record(STOP, (x,))
            tensors.append(x)
            return saved
        version = x._version
        saved.packed = hooks[0](x)
        if x._version != version:
            raise AutogradError(
                f"{self._name}: A saved tensor pack hook is modifying its input in place. Tensors provided as input to "
                "pack hook can not be modified by in-place operations as this can lead to unexpected side-effects."
            )
        return saved


class _Saved:
    """A saved tensor: where it stands among those kept, among the results or the inputs; and what hooks made of it."""

    def __init__(self, place: int, result: int | None, of: int | None) -> None:
        self.place, self.result, self.input = place, result, of
        self.packed: Any = None


__all__ = ["FunctionCtx"]
