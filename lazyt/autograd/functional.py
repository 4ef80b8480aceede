"""`grad`, `value_and_grad`, `vjp`: derivatives of Python functions of tensors. They record, and run nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from operator import is_
from typing import Any

import numpy as np

from lazyt.autograd import engine
from lazyt.autograd.jvp import close, others_lead_to
from lazyt.autograd.reachability import reach_of
from lazyt.autograd.saved_segment import Passed
from lazyt.autograd.transfers import pull_across
from lazyt.autograd.vjp_step import BY_OTHERS, zeros_of
from lazyt.errors import AutogradError, DTypeError
from lazyt.ir import dtypes
from lazyt.ops.definition import OpDef
from lazyt.tracing.commit import undisturbed
from lazyt.tracing.current import restore_grad_mode, set_grad_mode
from lazyt.tracing.inplace import requires_grad
from lazyt.tracing.program import Slot
from lazyt.tracing.record import begin, record, slot_of
from lazyt.tracing.refusals import check_function
from lazyt.tracing.steps import hooks
from lazyt.tracing.tensor_state import Gradient, Handle
from lazyt.tracing.trace import Trace, local
from lazyt.tracing.tracebacks import api_boundary


def flatten(tree: Any, leaves: list[Handle]) -> Any:
    """Collect the tensors of nested tuples, lists and dicts, in order; returns the tree with their numbers."""
    if isinstance(tree, Handle):
        leaves.append(tree)
        return _At(len(leaves) - 1)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(flatten(t, leaves) for t in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(flatten(t, leaves) for t in tree)
    if isinstance(tree, dict):
        return mapping_like(tree, [flatten(v, leaves) for v in tree.values()])
    return tree


def mapping_like(tree: dict[Any, Any], values: Sequence[Any]) -> dict[Any, Any]:
    """A dict of the same class and keys with other values: an OrderedDict and a defaultdict stay what they are."""
    found = dict(zip(tree, values, strict=True))
    if type(tree) is dict:
        return found
    made = copy.copy(tree)
    made.update(found)
    return made


class _At:
    __slots__ = ("n",)

    def __init__(self, n: int) -> None:
        self.n = n


def at_leaf(n: int) -> Any:
    """What stands for tensor n in a tree."""
    return _At(n)


def is_at_leaf(tree: Any) -> bool:
    """Whether a tree is the number of a tensor."""
    return isinstance(tree, _At)


def tensors_of(tree: Any) -> list[Any]:
    """The tensors of a tree, in order."""
    leaves: list[Handle] = []
    flatten(tree, leaves)
    return leaves


def unflatten(tree: Any, leaves: Sequence[Any]) -> Any:
    """The tree with its numbers replaced by `leaves`."""
    if isinstance(tree, _At):
        return leaves[tree.n]
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(unflatten(t, leaves) for t in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(unflatten(t, leaves) for t in tree)
    if isinstance(tree, dict):
        return mapping_like(tree, [unflatten(v, leaves) for v in tree.values()])
    return tree


# What a step's `pulled` is of, where no `backward()` recorded it.
FOR_FUNCTION = object()
STOP = OpDef("detach", lambda b, x: b.stop(x), differentiable=False)


def _pull_back(
    outputs: Sequence[Handle], cotangents: Sequence[Handle], inputs: Sequence[Handle], records: Sequence[Gradient]
) -> tuple[list[Handle], bool]:
    """Cotangents of tracked `inputs`, whose records say what they were when they were tracked; differentiable again.

    And whether outputs and cotangents lead to nothing else: then cotangents of inputs have no graph.
    """
    tr = begin()
    return _pulled_back(tr, tr.busy, outputs, cotangents, inputs, records)


@undisturbed
def _pulled_back(
    tr: Trace, busy: bool, outputs: Sequence[Handle], cotangents: Sequence[Handle], inputs: Sequence[Handle],
    records: Sequence[Gradient],
) -> tuple[list[Handle], bool]:  # fmt: skip
    others: list[Gradient] = []
    outs = [slot_of(tr, o) for o in outputs]
    cts = [slot_of(tr, c) for c in cotangents]
    passed = Passed()

    def is_wanted(m: Gradient) -> bool:
        wanted = m.crossing is not None or m in records
        if not wanted and not m.closed:
            others.append(m)
        return wanted

    totals = engine.pull(outs, cts, reach_of(outs), passed, is_wanted, BY_OTHERS, True, keeps=False)
    tr.busy = busy  # NOTE: a transfer is a sync, which ends this trace
    pull_across(totals, passed, lambda x, ct, by: engine.pull_behind(x, ct, by, is_wanted, BY_OTHERS, True))
    crossed = any(m.crossing is not None for m in totals)
    if (passed or crossed) and not others:
        # Across a sync a graph is kept as if somebody might ask for gradients by other values: there are none.
        totals = {m: record(STOP, (h,)) for m, h in totals.items()}
    elif (tr.customs or tr.slot_hooks) and not others:
        # Rules and hooks compute with the inputs as they are tracked, by which nobody else differentiates.
        totals = {m: h if others_lead_to(tr, [h], records) else record(STOP, (h,)) for m, h in totals.items()}
    alone = not others and not any(requires_grad(c) for c in cotangents)
    if alone:
        _remember(tr, outs, cotangents, totals, records)
        totals = {m: record(STOP, (h,)) if requires_grad(h) else h for m, h in totals.items()}
    made = [totals[m] if m in totals else zeros_of(slot_of(begin(), x)) for x, m in zip(inputs, records, strict=True)]
    return made, alone


def _remember(
    tr: Trace, outs: Sequence[Slot], cotangents: Sequence[Handle], totals: Mapping[Gradient, Handle],
    records: Sequence[Gradient],
) -> None:  # fmt: skip
    """Keep what this pull-back is of at its step, if nothing else can be differentiated by: see `_pulled_again`."""
    s, order = tr.pos, list(totals)
    if s.op is not engine.BACKWARD or tr.more or cotangents or len(outs) != 1 or len(order) != len(records):
        return
    reach = reach_of(outs)
    if reach.synced or len(reach.leaves) != len(records) or s.requires_grad:
        return
    leaves = [leaf.step.index for leaf in reach.leaves]
    places = {r(): i for i in leaves if (r := tr.metas.get(i)) is not None}
    if [h._slot for h in totals.values()] == [*s.slots] and all(m in totals and m in places for m in records):
        s.pulled = outs[0], FOR_FUNCTION, [places[m] for m in records], [order.index(m) for m in records]


def _pulled_again(tr: Trace, output: Handle, records: Sequence[Gradient]) -> list[Handle] | None:
    """What `_pull_back` came to at this step the last time: cotangents of the same leaves, that nobody else has.

    None, and nothing done, where it may be another.
    """
    s = tr.pos.next
    memo = s.pulled
    if memo is None or memo[1] is not FOR_FUNCTION or memo[0] is not output._slot or tr.more:
        return None
    _, _, leaves, order = memo
    if len(leaves) != len(records):
        return None
    metas = tr.metas
    for i, m in zip(leaves, records):  # noqa: B905 - strict costs, and they are as many
        found = metas.get(i)
        if found is None or found() is not m:
            return None
    made = engine.take_again(tr, s)
    return None if made is None else [made[k] for k in order]


def _ended(values: Sequence[Any], records: Sequence[Gradient]) -> list[Any]:
    """Values without a graph, where it leads to nothing but what these records are of; the others as they are."""
    return [h if not requires_grad(h) or others_lead_to(begin(), [h], records) else record(STOP, (h,)) for h in values]


def lifted(tree: Any) -> Any:
    """The tree with tensors for NumPy's arrays; itself if it has none."""
    if isinstance(tree, np.ndarray):
        return hooks.as_tensor(tree, None, ())
    if isinstance(tree, dict):
        made = [*map(lifted, tree.values())]
        return tree if all(map(is_, made, tree.values())) else mapping_like(tree, made)
    if not isinstance(tree, list | tuple):
        return tree
    made = [*map(lifted, tree)]
    if all(map(is_, made, tree)):
        return tree
    return type(tree)(*made) if hasattr(tree, "_fields") else type(tree)(made)


def value_and_grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives f's value and its gradient by the arguments at `argnums`.

    f must return a scalar tensor (a pair of it and anything else with `has_aux`). Arguments may be tensors or nested
    tuples, lists and dicts of them; gradients have the same structure. The arguments need no `requires_grad`, and what
    is given has no graph but to other tensors that f reads.

    Arguments that are NumPy's arrays, without a tensor among them, are for SciPy and its like: the value is a number,
    gradients are arrays, and both are computed at once. `scipy.optimize.minimize(lt.value_and_grad(f), x0, jac=True)`.

    >>> import lazyt as lt
    >>> v, g = lt.value_and_grad(lambda x: (x * x).sum())(lt.asarray([1.0, 2.0]))
    >>> v.item(), g.tolist()
    (5.0, [2.0, 4.0])
    >>> import numpy as np
    >>> lt.value_and_grad(lambda x: (x * x).sum())(np.asarray([1.0, 2.0]))
    (5.0, array([2., 4.]))
    """
    several, differentiated = _differentiated(f, argnums, has_aux, True)

    @api_boundary
    def inner(*args: Any, **kwargs: Any) -> Any:
        out, result = differentiated(args, kwargs)
        return out, (tuple(result) if several else result[0])

    return inner


def grad(f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives the gradient of f by the arguments at `argnums` (see `value_and_grad`).

    >>> import lazyt as lt
    >>> lt.grad(lt.grad(lambda x: x**3))(lt.asarray(2.0)).item()
    12.0
    """
    several, differentiated = _differentiated(f, argnums, has_aux, False)

    @api_boundary
    def inner(*args: Any, **kwargs: Any) -> Any:
        out, result = differentiated(args, kwargs)
        g = tuple(result) if several else result[0]
        return (g, out[1]) if has_aux else g

    return inner


def _differentiated(
    f: Callable[..., Any], argnums: int | Sequence[int], has_aux: bool, valued: bool
) -> tuple[bool, Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, list[Any]]]]:
    """Whether `argnums` are several; what gives f's value, if it is asked for, and the gradient by each of them."""
    check_function("grad", f)
    several = not isinstance(argnums, int)
    numbers: tuple[int, ...] = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, list[Any]]:
        leaves: list[Handle] = []
        for n in numbers:
            if n >= len(args):
                raise AutogradError(f"grad: argnums {n} is out of range for {len(args)} positional arguments")
        trees = [flatten(args[n], leaves) for n in numbers]
        if is_host := not leaves:
            trees = [flatten(lifted(args[n]), leaves) for n in numbers]
        if not leaves:
            raise AutogradError("grad: the arguments to differentiate by hold no tensor")
        for x in leaves:
            if dtypes.kind(x.dtype) not in "fc":
                raise DTypeError(f"grad: a floating or complex tensor is required, not {x.dtype}")
        before = set_grad_mode(True)
        try:
            tracked = [engine.track(x) for x in leaves]
            records: list[Any] = [x._meta for x in tracked]
            given = list(args)
            for n, t in zip(numbers, trees, strict=True):
                given[n] = unflatten(t, tracked)
            out = f(*given, **kwargs)
            value = out[0] if has_aux else out
            if not isinstance(value, Handle):
                raise AutogradError(f"grad: the function must return a tensor, not {type(value).__name__!r}")
            if value.shape != ():
                raise AutogradError(f"grad: the function must return a scalar, not shape {value.shape}")
            again, alone = _pulled_again(local.trace, value, records), True
            grads: list[Any]
            if again is not None:
                grads = again
            else:
                grads, alone = _pull_back([value], [], tracked, records)
            made: list[Any] = []
            shape = flatten(out, made) if valued or has_aux else None
            if made:
                if alone and valued:
                    made[0] = record(STOP, (made[0],))
                made[1:] = _ended(made[1:], records)
            close(records)
        finally:
            restore_grad_mode(before)
        if is_host:
            if valued:
                made[0] = made[0].item()
            grads = [g.detach().numpy(copy=True) for g in grads]
        return unflatten(shape, made), [unflatten(t, grads) for t in trees]

    return several, call


def vjp(f: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., tuple[Any, ...]]]:
    """f(*primals) and a function from cotangents of its outputs to cotangents of the primals.

    >>> import lazyt as lt
    >>> y, pull = lt.vjp(lambda x: x * x, lt.asarray([1.0, 2.0]))
    >>> pull(lt.ones(2))[0].tolist()
    [2.0, 4.0]
    """
    out, pull, _ = vjp_of(f, primals)
    return out, pull


def vjp_of(f: Callable[..., Any], primals: Sequence[Any]) -> tuple[Any, Callable[..., tuple[Any, ...]], list[Any]]:
    """`vjp`, and the records by which the primals are known, to `close` when no more is pulled back."""
    check_function("vjp", f)
    leaves: list[Handle] = []
    tree = flatten(tuple(primals), leaves)
    before = set_grad_mode(True)
    try:
        tracked = [engine.track(x) for x in leaves]
        records: list[Any] = [x._meta for x in tracked]
        out = f(*unflatten(tree, tracked))
    finally:
        restore_grad_mode(before)
    outs: list[Handle] = []
    shape = flatten(out, outs)
    ended = _ended(outs, records)

    @api_boundary
    def pull(cotangent: Any) -> tuple[Any, ...]:
        cts: list[Handle] = []
        flatten(cotangent, cts)
        if len(cts) != len(outs):
            raise AutogradError(f"vjp: {len(outs)} cotangents are required, one an output, got {len(cts)}")
        return tuple(unflatten(tree, _pull_back(outs, cts, tracked, records)[0]))

    return unflatten(shape, ended), pull, records


__all__ = ["grad", "value_and_grad", "vjp"]
