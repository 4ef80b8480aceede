"""`Function`: an operation of the user's with a forward and a backward, as `torch.autograd.Function`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

from lazyt.autograd.custom import Kept, Rule, as_function_view, custom, inputs_of
from lazyt.autograd.vjp_step import zeros_of
from lazyt.errors import AutogradError, NotSupportedError, ShapeError
from lazyt.functions.creation import zeros
from lazyt.functions.gradients.function_context import FunctionCtx
from lazyt.ir import dtypes
from lazyt.tracing.current import restore_grad_mode, set_grad_mode
from lazyt.tracing.inplace import assign, check_legal, is_leaf, requires_grad
from lazyt.tracing.program import Slot
from lazyt.tracing.record import begin, is_grad_enabled, slot_of
from lazyt.tracing.tensor_state import Handle
from lazyt.tracing.trace import Step, Trace

F = TypeVar("F", bound=Callable[..., Any])


class _Call(Rule):
    """One call of a Function."""

    def __init__(self, function: type[Function], ctx: FunctionCtx, places: Sequence[int], like: Sequence[Any]) -> None:
        super().__init__(ctx._kept)
        self.function, self.ctx, self.places, self.like = function, ctx, places, like
        # Which result of `forward` each of the step's is, and how many there are.
        self.numbers: list[int] = []
        self.shapes: list[tuple[Any, Any]] = []
        # The tensor that `forward` keeps and whose derivative is not known, if there is one (see FunctionCtx).
        self.unfollowed = ""
        # The shape and dtype of each argument of `apply` that is a floating tensor.
        self.arguments: list[tuple[Any, Any] | None] = []

    def pull(self, tr: Trace, step: Step, cts: Sequence[Handle | None], create: bool) -> list[tuple[Slot, Handle]]:
        ctx, name = self.ctx, self.ctx._name
        given: list[Any] = [None] * len(self.shapes)
        for k, (n, slot) in enumerate(zip(self.numbers, step.slots, strict=True)):
            ct = cts[k]
            given[n] = zeros_of(slot) if ct is None and ctx._materialize else ct
        if ctx._materialize:
            given = [self._zeros(n) if ct is None else ct for n, ct in enumerate(given)]
        ctx._step = step
        try:
            found = self.function.backward(ctx, *given)
        finally:
            ctx._step = None
        found = tuple(found) if isinstance(found, tuple | list) else (found,)
        wanted = len(ctx.needs_input_grad)
        if len(found) > wanted and all(x is None for x in found[wanted:]):
            found = found[:wanted]
        if len(found) != wanted:
            raise AutogradError(
                f"function {name}Backward returned an incorrect number of gradients (expected {wanted}, got "
                f"{len(found)})"
            )
        inputs = inputs_of(step)
        pairs = [
            (x, self._checked(i, found[i], shape, dtype))
            for i, x, (shape, dtype) in zip(self.places, inputs, self.like, strict=True)
            if found[i] is not None
        ]
        if not (create and self.unfollowed and pairs):
            return pairs
        asked = [*inputs, *(slot_of(tr, ct) for ct in cts if ct is not None)]
        refusal = NotSupportedError(
            f"not supported: differentiating twice through {name}, because of a tensor that its forward computes and "
            f"keeps {self.unfollowed}: how it depends on the arguments is not known in backward; return it as a result "
            "too and give it to ctx.save_for_backward, or compute it again in backward"
        )
        made = custom([ct for _, ct in pairs], [x for x in asked if x.requires_grad], _Twice(refusal))
        return [*zip([x for x, _ in pairs], made, strict=True)]

    def push(self, step: Step, tangents: Sequence[Handle]) -> Sequence[Handle] | None:
        ctx, name = self.ctx, self.ctx._name
        if self.function.jvp is Function.jvp:
            return None
        given: list[Any] = [None] * len(self.arguments)
        if ctx._materialize:
            given = [None if x is None else zeros(x[0], dtype=x[1]) for x in self.arguments]
        for i, t in zip(self.places, tangents, strict=True):
            given[i] = t
        ctx._step, ctx._forward = step, True
        try:
            made = self.function.jvp(ctx, *given)
        finally:
            ctx._step, ctx._forward = None, False
        found = made if isinstance(made, tuple | list) else (made,)
        if len(found) != len(self.shapes):
            raise AutogradError(
                f"function {name}: jvp returned an incorrect number of tangents (expected {len(self.shapes)}, got "
                f"{len(found)})"
            )
        return [self._tangent(found[n], slot) for n, slot in zip(self.numbers, step.slots, strict=True)]

    def _tangent(self, t: Any, slot: Slot) -> Handle:
        name = self.ctx._name
        if t is None:
            return zeros_of(slot)
        if not isinstance(t, Handle):
            raise TypeError(f"function {name}: jvp gave a {type(t).__name__!r}, a tensor or None is required")
        if t.shape != slot.shape:
            raise ShapeError(
                f"function {name}: jvp gave a tangent of shape {t.shape} for a result of shape {slot.shape}"
            )
        found: Handle = t if t.dtype == slot.dtype else t.astype(slot.dtype)
        return found

    def _zeros(self, n: int) -> Any:
        shape, dtype = self.shapes[n]
        return None if dtype is None else zeros(shape, dtype=dtype)

    def _checked(self, i: int, ct: Any, shape: tuple[int, ...], dtype: Any) -> Handle:
        name = self.ctx._name
        if not isinstance(ct, Handle):
            raise TypeError(
                f"function {name}Backward: expected a tensor or None as gradient {i}, got {type(ct).__name__!r}"
            )
        if ct.shape != shape:
            if not _expands(shape, ct.shape):
                raise ShapeError(
                    f"Function {name}Backward returned an invalid gradient at index {i} - got {list(ct.shape)} but "
                    f"expected shape compatible with {list(shape)}"
                )
            extra = len(ct.shape) - len(shape)
            ones = tuple(extra + k for k, d in enumerate(shape) if d == 1 and ct.shape[extra + k] != 1)
            ct = ct.sum(axis=(*range(extra), *ones), keepdims=True).reshape(shape)
        if ct.dtype != dtype:
            ct = ct.astype(dtype)
        found: Handle = ct
        return found


def _depends(tr: Trace, x: Handle, start: int, inputs: Sequence[Slot]) -> bool:
    """Whether x was computed behind step `start` of these values."""
    todo, seen = [slot_of(tr, x)], set(inputs)
    if todo[0].step.index <= start:
        return False
    while todo:
        slot = todo.pop()
        for y in slot.step.operands:
            if y in inputs:
                return True
            if isinstance(y, Slot) and y.step.index > start and y not in seen:
                seen.add(y)
                todo.append(y)
    return False


def _expands(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether `shape` is broadcast to `to`."""
    if len(shape) > len(to):
        return False
    tail = to[len(to) - len(shape) :]
    return all(d in (1, e) for d, e in zip(shape, tail, strict=True))


class Function:
    """An operation with a derivative of the user's; as `torch.autograd.Function`.

    Subclass it with static methods `forward(ctx, *args)` and `backward(ctx, *gradients)`, or with `forward(*args)` and
    `setup_context(ctx, inputs, output)`, and call `apply`. `forward` runs when it is called, without gradients: written
    in lazyt's operations it records them, and nothing runs. A body in NumPy stays deferred through `lt.pure_callback`;
    `.numpy()` in it is a sync. `backward` runs when a backward is recorded, with one gradient a result, and gives one
    an argument, or None. It can be differentiated again if it is written in lazyt's operations. `jvp(ctx, *tangents)`,
    where there is one, is the forward derivative: `lt.jvp`, `jacfwd` and `hessian` use it.

    `forward` gives a tensor or a tuple of them; what is no tensor, or not floating, has no gradient. Gradients have the
    shapes of the arguments, or shapes that they broadcast to, which are summed. Raises AutogradError, TypeError or
    ShapeError, as PyTorch does, for gradients that do not fit.

    >>> import lazyt as lt
    >>> class Cube(lt.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x * x
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         (x,) = ctx.saved_tensors
    ...         return grad * 3 * x * x
    >>> x = lt.tensor([2.0], requires_grad=True)
    >>> Cube.apply(x).sum().backward()
    >>> x.grad.tolist()
    [12.0]
    """

    def __init__(self) -> None:
        raise TypeError(
            f"{type(self).__name__} should not be instantiated. Methods on autograd functions are all static, so you "
            "should invoke them on the class itself: call apply"
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the results; of `ctx` and the arguments, or of the arguments alone beside `setup_context`."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Any, ...], output: Any) -> None:
        """Save what `backward` needs, where `forward` has no `ctx`."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: FunctionCtx, *grad_outputs: Any) -> Any:
        """The gradients of the arguments, of those of the results."""
        raise NotImplementedError(
            "You must implement the backward function to use your custom autograd.Function with backward mode AD."
        )

    vjp = backward

    @staticmethod
    def jvp(ctx: FunctionCtx, *grad_inputs: Any) -> Any:
        """The tangents of the results, of those of the arguments (None for what is no floating tensor)."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Call the function, recorded as one that has this gradient."""
        return _apply(cls, args, kwargs)


def _apply(cls: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name = cls.__name__
    asked = tuple(isinstance(x, Handle) and requires_grad(x) for x in args)
    ctx = FunctionCtx(name, asked)
    records = is_grad_enabled() and any(asked)
    places = [i for i, a in enumerate(asked) if a]
    tr = begin()
    inputs = [slot_of(tr, args[i]) for i in places] if records else []
    leaves = [is_leaf(args[i]) for i in places]
    number, start = tr.number, tr.pos.index
    before = set_grad_mode(False)
    try:
        if cls.setup_context is Function.setup_context:
            out = cls.forward(ctx, *args, **kwargs)
        else:
            out = cls.forward(*args, **kwargs)
            cls.setup_context(ctx, args, out)
    finally:
        restore_grad_mode(before)
    outs = list(out) if isinstance(out, tuple) else [out]
    if records:
        outs = _recorded(cls, ctx, args, outs, places, inputs if begin().number == number else None, leaves, start)
    return type(out)(outs) if type(out) is tuple else tuple(outs) if isinstance(out, tuple) else outs[0]


def _recorded(
    cls: type[Function], ctx: FunctionCtx, args: Sequence[Any], outs: list[Any], places: Sequence[int],
    inputs: list[Slot] | None, leaves: Sequence[bool], start: int,
) -> list[Any]:  # fmt: skip
    """The results with the gradient of the function, which began behind step `start` if it has not synced."""
    dirty = {id(x) for x in ctx._dirty}
    plain = {id(x) for x in ctx._plain}
    for x in ctx._dirty:
        if not any(x is a for a in args) or not any(x is o for o in outs):
            raise AutogradError(
                f"{ctx._name}: a tensor that was modified inplace (mark_dirty) must be an input, and returned as-is in "
                "the function's output"
            )
        i = next(i for i, a in enumerate(args) if a is x)
        if i in places and leaves[places.index(i)]:
            raise AutogradError(
                f"{ctx._name}: a leaf Variable that requires grad is being used in an in-place operation"
            )
        if x._view is not None:
            check_legal(begin(), ctx._name, x, True)
    moves = [
        k for k, o in enumerate(outs) if isinstance(o, Handle) and dtypes.kind(o.dtype) in "fc" and id(o) not in plain
    ]
    like = [(args[i].shape, args[i].dtype) for i in places]
    results = [outs[k] for k in moves]
    synced = inputs is None
    unfollowed = ctx._unfollowed(args, results, lambda x: synced or _depends(begin(), x, start, inputs or ()))
    ctx._keep(results, [args[i] for i in places])
    if inputs is None:  # `forward` has synced
        inputs = [slot_of(begin(), args[i]) for i in places]
    rule = _Call(cls, ctx, places, like)
    rule.unfollowed = unfollowed
    rule.numbers = moves
    rule.shapes = [(o.shape, o.dtype) if isinstance(o, Handle) else ((), None) for o in outs]
    rule.arguments = [
        (x.shape, x.dtype) if isinstance(x, Handle) and dtypes.kind(x.dtype) in "fc" else None for x in args
    ]
    made = custom(results, inputs, rule) if results else []
    found = [o.detach() if id(o) in plain and any(o is a for a in args) else o for o in outs]
    for k, h in zip(moves, made, strict=True):
        raw = outs[k]
        if id(raw) in dirty:
            assign(raw, h, ctx._name)
            found[k] = raw
        elif raw._view is not None or any(raw is a for a in args):
            found[k] = as_function_view(h, ctx._name, k)
        else:
            found[k] = h
    ctx._watch_dirty()
    return found


class _Twice(Rule):
    """The gradients of a backward that can be differentiated once only."""

    def __init__(self, refusal: Exception) -> None:
        super().__init__(Kept(()))
        self.refusal = refusal

    def pull(self, tr: Trace, step: Step, cts: Sequence[Handle | None], create: bool) -> list[tuple[Slot, Handle]]:
        raise self.refusal.with_traceback(None)


def once_differentiable(backward: F) -> F:
    """A decorator of `Function.backward`: its gradients cannot be differentiated again, and saying so is an error.

    Its body need not be differentiable then. As `torch.autograd.function.once_differentiable`.

    >>> import lazyt as lt
    >>> class Sign(lt.autograd.Function):
    ...     forward = staticmethod(lambda ctx, x: lt.sign(x))
    ...     backward = staticmethod(lt.autograd.once_differentiable(lambda ctx, grad: grad))
    >>> x = lt.tensor([-2.0], requires_grad=True)
    >>> Sign.apply(x).sum().backward()
    >>> x.grad.tolist()
    [1.0]
    """

    @wraps(backward)
    def once(ctx: FunctionCtx, *grads: Any) -> Any:
        before = set_grad_mode(False)
        try:
            found = backward(ctx, *grads)
        finally:
            restore_grad_mode(before)
        asked = [g for g in grads if isinstance(g, Handle) and requires_grad(g)]
        if not is_grad_enabled() or not asked:
            return found
        outs = list(found) if isinstance(found, tuple) else [found]
        tr = begin()
        refusal = AutogradError("trying to differentiate twice a function that was marked with @once_differentiable")
        made = iter(custom([x for x in outs if x is not None], [slot_of(tr, g) for g in asked], _Twice(refusal)))
        outs = [None if x is None else next(made) for x in outs]
        return tuple(outs) if isinstance(found, tuple) else outs[0]

    return once  # type: ignore[return-value]


__all__ = ["Function", "FunctionCtx", "once_differentiable"]
