"""`custom_vjp`, `custom_jvp`: functions of tensors with a derivative that the user writes, under JAX's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from inspect import signature
from typing import Any

from lazyt.autograd import custom as custom_steps
from lazyt.autograd.custom import Kept, Rule, custom, inputs_of
from lazyt.autograd.functional import flatten, unflatten, vjp
from lazyt.autograd.vjp_step import zeros_of
from lazyt.errors import AutogradError, ShapeError
from lazyt.ir import dtypes
from lazyt.ops.definition import OPS
from lazyt.tracing.current import restore_device, restore_grad_mode, set_device, set_grad_mode
from lazyt.tracing.inplace import requires_grad
from lazyt.tracing.program import Slot
from lazyt.tracing.record import begin, is_grad_enabled, record, slot_of
from lazyt.tracing.refusals import check_function
from lazyt.tracing.steps import new_tensor
from lazyt.tracing.tensor_state import Handle
from lazyt.tracing.trace import Step, Trace
from lazyt.tracing.tracebacks import guard_methods


def zeros_as(x: Handle) -> Handle:
    """Zeros of a tensor's shape and dtype, on its device."""
    before = set_device(str(x.device))
    try:
        made: Handle = record(OPS["zeros"], (), (x.dtype,), x.shape)
    finally:
        restore_device(before)
    return made


class Pull(Rule):
    """Cotangents by a function of lists: from one a result to one a differentiable input."""

    def __init__(self, kept: Kept, name: str, call: Callable[[list[Handle], list[Any]], Sequence[Any]]) -> None:
        super().__init__(kept)
        self.name, self.call = name, call

    def kept_tensors(self) -> list[Handle]:
        kept = self.kept.tensors
        if kept is None:
            raise AutogradError(
                f"{self.name}: Trying to backward through the graph a second time: what its forward rule kept was "
                "freed. Specify retain_graph=True if you need to backward through the graph a second time"
            )
        i = self.kept.overwritten()
        if i is not None:
            raise AutogradError(
                f"{self.name}: one of the variables needed for gradient computation has been modified by an inplace "
                f"operation: {kept[i].dtype} {list(kept[i].shape)}, which its forward rule kept, is at version "
                f"{kept[i]._version}; expected version {self.kept.versions[i]} instead"
            )
        return kept

    def pull(self, tr: Trace, step: Step, cts: Sequence[Handle | None], create: bool) -> list[tuple[Slot, Handle]]:
        kept = self.kept_tensors()
        # NOTE: results that nothing depends on have zeros.
        given = [ct if ct is not None else zeros_of(s) for s, ct in zip(step.slots, cts, strict=True)]
        found = self.call(kept, given)
        return [(x, ct) for x, ct in zip(inputs_of(step), found, strict=True) if ct is not None]


class _Rerun(Pull):
    """Cotangents by residuals that the forward rule computed: where they are differentiated again, it computes them
    again of the inputs as they stand there, since nobody else knows how residuals come of inputs.
    """

    def __init__(
        self, kept: Kept, name: str, call: Callable[[list[Handle], list[Any]], Sequence[Any]],
        n_residuals: int, asked: Sequence[bool], residuals: Callable[[list[Handle]], list[Handle]], state: Any,
    ) -> None:  # fmt: skip
        super().__init__(kept, name, call)
        self.n_residuals, self.asked, self.residuals = n_residuals, asked, residuals
        self.state = state  # of the random numbers, before the forward rule ran

    def pull(self, tr: Trace, step: Step, cts: Sequence[Handle | None], create: bool) -> list[tuple[Slot, Handle]]:
        kept = self.kept_tensors()
        # NOTE: results that nothing depends on have zeros.
        given = [ct if ct is not None else zeros_of(s) for s, ct in zip(step.slots, cts, strict=True)]
        residuals = self._again(step, kept[self.n_residuals :]) if create else kept[: self.n_residuals]
        found = self.call(residuals, given)
        return [(x, ct) for x, ct in zip(inputs_of(step), found, strict=True) if ct is not None]

    def _again(self, step: Step, constants: Sequence[Handle]) -> list[Handle]:
        # NOTE: steps of their own, because rules may keep them.
        moving = iter([record(OPS["positive"], (new_tensor(x),)) for x in inputs_of(step)])
        rest = iter(constants)
        get, put = custom_steps.random_state
        now = get()
        put(self.state)
        try:
            return self.residuals([next(moving) if asked else next(rest) for asked in self.asked])
        finally:
            put(now)


class _Push(Pull):
    """A rule for tangents, and its transpose for cotangents: `tangents(kept, some)`, one an input to one a result."""

    def __init__(
        self, kept: Kept, name: str, call: Callable[[list[Handle], list[Any]], Sequence[Any]],
        tangents: Callable[[list[Handle], Sequence[Any]], tuple[Handle, ...]],
    ) -> None:  # fmt: skip
        super().__init__(kept, name, call)
        self.tangents = tangents

    def push(self, step: Step, tangents: Sequence[Handle]) -> Sequence[Handle]:
        kept = self.kept_tensors()
        made = self.tangents(kept, tangents)
        if len(made) != len(step.slots):
            raise AutogradError(
                f"{self.name}: the rule gave {len(made)} tangents for {len(step.slots)} floating results"
            )
        for t, slot in zip(made, step.slots, strict=True):
            if t.shape != slot.shape:
                raise ShapeError(
                    f"{self.name}: the rule gave a tangent of shape {t.shape} for a result of shape {slot.shape}"
                )
        return [t if t.dtype == x.dtype else t.astype(x.dtype) for t, x in zip(made, step.slots, strict=True)]


class _Custom:
    """What both have in common: which arguments are differentiated by, and the call."""

    kind = ""

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: Sequence[int] = ()) -> None:
        check_function(self.kind, fun)
        numbers = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
        self.fun = fun
        self.nondiff_argnums = tuple(sorted(numbers))
        update_wrapper(self, fun)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    @property
    def _name(self) -> str:
        return f"{self.kind} of {getattr(self.fun, '__name__', repr(self.fun))!r}"

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], list[Any]]:
        """The arguments that are not differentiated by, and those that are."""
        if kwargs:
            bound = signature(self.fun).bind(*args, **kwargs)
            bound.apply_defaults()
            if bound.kwargs:
                raise AutogradError(f"{self._name}: not supported: keyword-only arguments {sorted(bound.kwargs)}")
            args = bound.args
        for n in self.nondiff_argnums:
            if not 0 <= n < len(args):
                raise AutogradError(f"{self._name}: nondiff_argnums {n} is out of range for {len(args)} arguments")
        fixed = [args[n] for n in self.nondiff_argnums]
        for n, a in zip(self.nondiff_argnums, fixed, strict=True):
            leaves: list[Handle] = []
            flatten(a, leaves)
            if any(requires_grad(x) for x in leaves):
                raise AutogradError(f"{self._name}: argument {n} of nondiff_argnums requires grad; detach() it")
        return fixed, [a for n, a in enumerate(args) if n not in self.nondiff_argnums]

    def _results(self, out: Any, inputs: list[Slot], rule: Rule) -> Any:
        """The results of the function as results of the custom step."""
        outs: list[Handle] = []
        tree = flatten(out, outs)
        moves = [x for x in outs if dtypes.kind(x.dtype) in "fc"]
        made = iter(custom(moves, inputs, rule)) if moves else iter(())
        return unflatten(tree, [next(made) if dtypes.kind(x.dtype) in "fc" else x for x in outs])


class custom_vjp(_Custom):  # noqa: N801 - a name that other programs rely on
    """A function with a derivative of its own: decorate it, then give `defvjp(fwd, bwd)`. As `jax.custom_vjp`.

    `fwd(*args)` gives (output, residuals); `bwd(residuals, cotangent)` gives one cotangent an argument, or None for
    zeros. Arguments and output may be nested tuples, lists and dicts of tensors; a cotangent has the nesting of what
    it belongs to. Arguments at `nondiff_argnums` come first in `bwd`: `bwd(*nondiff, residuals, cotangent)`. Both rules
    record like any function of tensors, so gradients can be differentiated again: `fwd` runs once more then, if it
    computed residuals. Raises AutogradError for a rule that
    is missing or gives another number of cotangents, ShapeError for one of another shape.

    >>> import lazyt as lt
    >>> @lt.custom_vjp
    ... def clipped(x):
    ...     return x * 1
    >>> clipped.defvjp(lambda x: (x * 1, ()), lambda res, ct: (lt.clip(ct, -1, 1),))
    >>> lt.grad(lambda x: (clipped(x) * 5).sum())(lt.ones(2)).tolist()
    [1.0, 1.0]
    """

    kind = "custom_vjp"

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: Sequence[int] = ()) -> None:
        super().__init__(fun, nondiff_argnums)
        self.rules: tuple[Callable[..., Any], Callable[..., Any]] | None = None

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Set the two rules."""
        self.rules = (fwd, bwd)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.rules is None:
            raise AutogradError(f"{self._name} has no derivative yet; call defvjp(fwd, bwd)")
        fixed, free = self._arguments(args, kwargs)
        leaves: list[Handle] = []
        trees = [flatten(a, leaves) for a in free]
        asked = [x for x in leaves if requires_grad(x)]
        if not is_grad_enabled() or not asked:
            return self.fun(*args, **kwargs)
        fwd, bwd = self.rules
        state = custom_steps.random_state[0]()
        tr = begin()
        inputs = [slot_of(tr, x) for x in asked]
        number = tr.number
        before = set_grad_mode(False)
        try:
            made = fwd(*_with(fixed, self.nondiff_argnums, free))
        finally:
            restore_grad_mode(before)
        if not isinstance(made, tuple) or len(made) != 2:
            raise AutogradError(f"{self._name}: fwd must return (output, residuals), got {type(made).__name__!r}")
        out, residuals = made
        outs: list[Handle] = []
        tree = flatten(out, outs)
        if not outs:
            raise AutogradError(f"{self._name}: fwd must return tensors first, got {type(out).__name__!r}")
        kept: list[Handle] = []
        shape = flatten(residuals, kept)

        def call(kept: list[Handle], given: list[Any]) -> list[Any]:
            cts = iter(given)
            cotangent = unflatten(tree, [next(cts) if dtypes.kind(d) in "fc" else None for d in kinds])
            found = bwd(*fixed, unflatten(shape, kept), cotangent)
            return self._cotangents(found, trees, like, places)

        kinds = [x.dtype for x in outs]
        like = [(x.shape, x.dtype) for x in leaves]
        places = [i for i, x in enumerate(leaves) if requires_grad(x)]
        if tr.number != number:  # the rule has synced
            inputs = [slot_of(begin(), x) for x in asked]
        own = {id(x) for x in leaves}
        if all(id(x) in own or dtypes.kind(x.dtype) not in "fc" for x in kept):
            return self._results(out, inputs, Pull(Kept(kept), self._name, call))

        def residuals_of(values: list[Handle]) -> list[Handle]:
            found: list[Handle] = []
            flatten(fwd(*_with(fixed, self.nondiff_argnums, [unflatten(t, values) for t in trees]))[1], found)
            return found

        constants = [x for i, x in enumerate(leaves) if i not in places]
        which = [i in places for i in range(len(leaves))]
        rule = _Rerun(Kept([*kept, *constants]), self._name, call, len(kept), which, residuals_of, state)
        return self._results(out, inputs, rule)

    def _cotangents(
        self, found: Any, trees: Sequence[Any], like: Sequence[tuple[Any, Any]], places: Sequence[int]
    ) -> list[Any]:
        """One an input that is differentiated by, of what bwd returned."""
        found = tuple(found) if isinstance(found, tuple | list) else (found,)
        if len(found) != len(trees):
            raise AutogradError(f"{self._name}: bwd must return {len(trees)} cotangents, got {len(found)}")
        cts: list[Any] = [None] * len(like)
        for n, (ct, tree) in enumerate(zip(found, trees, strict=True)):
            spread(tree, ct, cts, f"{self._name}: bwd gave for argument {n}")
        for i in places:
            if cts[i] is not None and cts[i].shape != like[i][0]:
                raise ShapeError(
                    f"{self._name}: bwd gave a cotangent of shape {cts[i].shape} for an argument of shape {like[i][0]}"
                )
        return [cts[i] for i in places]


def _with(fixed: Sequence[Any], numbers: Sequence[int], free: Sequence[Any]) -> list[Any]:
    """All arguments in their order."""
    args = list(free)
    for n, a in zip(numbers, fixed, strict=True):
        args.insert(n, a)
    return args


def spread(tree: Any, ct: Any, cts: list[Any], what: str) -> None:
    """Put cotangents where the tensors of an argument are; None stands for zeros of all below."""
    if ct is None:
        return
    places: list[Handle] = []
    if hasattr(tree, "n"):
        if not isinstance(ct, Handle):
            raise AutogradError(f"{what} a {type(ct).__name__!r}, a tensor or None is required")
        cts[tree.n] = ct
    elif isinstance(tree, dict) and isinstance(ct, dict) and tree.keys() == ct.keys():
        for k, t in tree.items():
            spread(t, ct[k], cts, what)
    elif isinstance(tree, tuple | list) and isinstance(ct, tuple | list) and len(tree) == len(ct):
        for t, c in zip(tree, ct, strict=True):
            spread(t, c, cts, what)
    else:
        flatten(ct, places)
        if places:
            raise AutogradError(f"{what} cotangents that are nested in another way than the argument")


class custom_jvp(_Custom):  # noqa: N801 - as above
    """A function with a forward derivative of its own: decorate it, then give `defjvp(jvp)`. As `jax.custom_jvp`.

    `jvp(primals, tangents)` takes two tuples, one entry an argument, and gives (output, tangent of the output). It must
    be linear in the tangents, so `backward()` and `grad` use it too. Arguments at `nondiff_argnums` come first:
    `jvp(*nondiff, primals, tangents)`. `defjvps(*rules)` takes one rule an argument instead, `rule(tangent, output,
    *primals)`, or None where the derivative is zero. Raises AutogradError for a rule that is missing.

    >>> import lazyt as lt
    >>> @lt.custom_jvp
    ... def softplus(x):
    ...     return lt.log(1 + lt.exp(x))
    >>> @softplus.defjvp
    ... def rule(primals, tangents):
    ...     return softplus(*primals), lt.sigmoid(primals[0]) * tangents[0]
    >>> lt.grad(softplus)(lt.asarray(0.0)).item()
    0.5
    """

    kind = "custom_jvp"

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: Sequence[int] = ()) -> None:
        super().__init__(fun, nondiff_argnums)
        self.rule: Callable[..., Any] | None = None

    def defjvp(self, jvp: Callable[..., Any]) -> Callable[..., Any]:
        """Set the rule; may stand as a decorator."""
        self.rule = jvp
        return jvp

    def defjvps(self, *rules: Callable[..., Any] | None) -> None:
        """Set the rule by one an argument: `rule(tangent, output, *primals)`, None for a derivative of zero."""
        if self.nondiff_argnums:
            raise AutogradError(f"{self._name}: defjvps cannot be used with nondiff_argnums; use defjvp")

        def jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
            if len(rules) != len(primals):
                raise AutogradError(f"{self._name}: defjvps got {len(rules)} rules for {len(primals)} arguments")
            out = self(*primals)
            parts = [r(t, out, *primals) for r, t in zip(rules, tangents, strict=True) if r is not None]
            total = parts[0] if parts else zeros_as(out)
            for p in parts[1:]:
                total = total + p
            return out, total

        self.rule = jvp

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.rule is None:
            raise AutogradError(f"{self._name} has no derivative yet; call defjvp(jvp)")
        fixed, free = self._arguments(args, kwargs)
        leaves: list[Handle] = []
        trees = [flatten(a, leaves) for a in free]
        asked = [x for x in leaves if requires_grad(x)]
        if not is_grad_enabled() or not asked:
            return self.fun(*args, **kwargs)
        tr = begin()
        inputs = [slot_of(tr, x) for x in asked]
        number = tr.number
        before = set_grad_mode(False)
        try:
            out = self.fun(*args, **kwargs)
        finally:
            restore_grad_mode(before)
        rule, places = self.rule, [i for i, x in enumerate(leaves) if requires_grad(x)]

        def tangents_of(kept: list[Handle], some: Sequence[Any]) -> tuple[Handle, ...]:
            tangents: list[Any] = [zeros_as(x) if dtypes.kind(x.dtype) in "fc" else None for x in kept]
            for i, t in zip(places, some, strict=True):
                tangents[i] = t
            primals = tuple(unflatten(t, kept) for t in trees)
            made = rule(*fixed, primals, tuple(unflatten(t, tangents) for t in trees))
            if not isinstance(made, tuple) or len(made) != 2:
                raise AutogradError(f"{self._name}: the rule must return (output, tangent)")
            found: list[Handle] = []
            flatten(made[1], found)
            return tuple(x for x in found if dtypes.kind(x.dtype) in "fc")

        def call(kept: list[Handle], given: list[Any]) -> list[Any]:
            # The rule is linear in the tangents: its transpose is its derivative, anywhere.
            _, pull = vjp(lambda *some: tangents_of(kept, some), *(zeros_as(kept[i]) for i in places))
            return list(pull(tuple(given)))

        if tr.number != number:  # the function has synced
            inputs = [slot_of(begin(), x) for x in asked]
        return self._results(out, inputs, _Push(Kept(leaves), self._name, call, tangents_of))


__all__ = ["custom_jvp", "custom_vjp"]


for _class in (custom_jvp, custom_vjp):
    guard_methods(_class)
