"""`grad`, `value_and_grad`, `vjp`: derivatives of Python functions of tensors. They record, and run nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lazyt.autograd import engine
from lazyt.errors import AutogradError, DTypeError
from lazyt.handle import Handle
from lazyt.ir import dtypes
from lazyt.record import begin, new_tensor, ref, set_grad_mode, slot_of
from lazyt.trace import Several, Slot


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
        return {k: flatten(v, leaves) for k, v in tree.items()}
    return tree


class _At:
    def __init__(self, n: int) -> None:
        self.n = n


def unflatten(tree: Any, leaves: Sequence[Any]) -> Any:
    """The tree with its numbers replaced by `leaves`."""
    if isinstance(tree, _At):
        return leaves[tree.n]
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(unflatten(t, leaves) for t in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(unflatten(t, leaves) for t in tree)
    if isinstance(tree, dict):
        return {k: unflatten(v, leaves) for k, v in tree.items()}
    return tree


def _pull_back(outputs: Sequence[Handle], cotangents: Sequence[Handle], inputs: Sequence[Handle]) -> list[Handle]:
    """Cotangents of tracked `inputs`; differentiable again."""
    tr = begin()
    outs = [slot_of(tr, o) for o in outputs]
    cts = [slot_of(tr, c) for c in cotangents]
    groups: list[tuple[Slot, ...]] = [(slot_of(tr, x),) for x in inputs]
    s = engine.vjp_step(tr, outs, cts, groups, (), True, True, lambda: engine.Reach(outs))
    handles = [new_tensor(x) for x in s.slots[: len(groups)]]
    tr.refs[s.index] = ref(handles[0]) if len(s.slots) == 1 else Several(ref(h) for h in handles)
    return handles


def value_and_grad(f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives f's value and its gradient by the arguments at `argnums`.

    f must return a scalar tensor (a pair of it and anything else with `has_aux`). Arguments may be tensors or nested
    tuples, lists and dicts of them; gradients have the same structure. The arguments need no `requires_grad`.

    >>> import lazyt as lt
    >>> v, g = lt.value_and_grad(lambda x: (x * x).sum())(lt.asarray([1.0, 2.0]))
    >>> v.item(), g.tolist()
    (5.0, [2.0, 4.0])
    """
    several = not isinstance(argnums, int)
    numbers = tuple(argnums) if several else (argnums,)  # type: ignore[arg-type]

    def inner(*args: Any, **kwargs: Any) -> Any:
        leaves: list[Handle] = []
        for n in numbers:
            if n >= len(args):
                raise AutogradError(f"grad: argnums {n} is out of range for {len(args)} positional arguments")
        trees = [flatten(args[n], leaves) for n in numbers]
        if not leaves:
            raise AutogradError("grad: the arguments to differentiate by hold no tensor")
        for x in leaves:
            if dtypes.kind(x.dtype) not in "fc":  # type: ignore[attr-defined]
                raise DTypeError(f"grad: a floating or complex tensor is required, not {x.dtype}")  # type: ignore[attr-defined]
        before = set_grad_mode(True)
        try:
            tracked = [engine.track(x) for x in leaves]
            call = list(args)
            for n, t in zip(numbers, trees, strict=True):
                call[n] = unflatten(t, tracked)
            out = f(*call, **kwargs)
            value = out[0] if has_aux else out
            if not isinstance(value, Handle):
                raise AutogradError(f"grad: the function must return a tensor, not {type(value).__name__!r}")
            if value.shape != ():  # type: ignore[attr-defined]
                raise AutogradError(f"grad: the function must return a scalar, not shape {value.shape}")  # type: ignore[attr-defined]
            grads = _pull_back([value], [], tracked)
        finally:
            set_grad_mode(before)
        result = [unflatten(t, grads) for t in trees]
        return out, (tuple(result) if several else result[0])

    return inner


def grad(f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives the gradient of f by the arguments at `argnums` (see `value_and_grad`).

    >>> import lazyt as lt
    >>> lt.grad(lt.grad(lambda x: x**3))(lt.asarray(2.0)).item()
    12.0
    """
    both = value_and_grad(f, argnums, has_aux)

    def inner(*args: Any, **kwargs: Any) -> Any:
        out, g = both(*args, **kwargs)
        return (g, out[1]) if has_aux else g

    return inner


def vjp(f: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., tuple[Any, ...]]]:
    """f(*primals) and a function from cotangents of its outputs to cotangents of the primals.

    >>> import lazyt as lt
    >>> y, pull = lt.vjp(lambda x: x * x, lt.asarray([1.0, 2.0]))
    >>> pull(lt.ones(2))[0].tolist()
    [2.0, 4.0]
    """
    leaves: list[Handle] = []
    tree = flatten(tuple(primals), leaves)
    before = set_grad_mode(True)
    try:
        tracked = [engine.track(x) for x in leaves]
        out = f(*unflatten(tree, tracked))
    finally:
        set_grad_mode(before)
    outs: list[Handle] = []
    shape = flatten(out, outs)

    def pull(cotangent: Any) -> tuple[Any, ...]:
        cts: list[Handle] = []
        flatten(cotangent, cts)
        if len(cts) != len(outs):
            raise AutogradError(f"vjp: {len(outs)} cotangents are required, one an output, got {len(cts)}")
        return tuple(unflatten(tree, _pull_back(outs, cts, tracked)))

    return unflatten(shape, outs), pull


__all__ = ["grad", "value_and_grad", "vjp"]
