"""`checkpoint`, `checkpoint_sequential`: what a function computes is computed again in the backward, and not kept.

The forward pass and what the backward computes again are parts of one program. They would be found to be equal, and
computed once, so the second pass reads its arguments through a call that waits for the cotangent (`after`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from lazyt.autograd.custom import Kept, Rule, custom
from lazyt.autograd.functional import STOP, flatten, unflatten
from lazyt.errors import AutogradError, NotSupportedError, ShapeError
from lazyt.functions.random import get_state, set_state
from lazyt.ops.definition import OpDef
from lazyt.tracing.current import restore_grad_mode, restore_mode, set_grad_mode, set_mode
from lazyt.tracing.inplace import requires_grad
from lazyt.tracing.program import Slot
from lazyt.tracing.record import is_grad_enabled, record, slot_of
from lazyt.tracing.refusals import check_function
from lazyt.tracing.tensor_state import Handle
from lazyt.tracing.trace import Step, Trace, local

__all__ = ["checkpoint", "checkpoint_sequential"]


def __dir__() -> list[str]:
    return sorted(__all__)


def _lower_after(b: Any, token: Any, *xs: Any) -> Any:
    out = b.opaque("after", [token, *xs], (), [(x.shape, x.dtype) for x in xs])
    return out if len(out) > 1 else out[0]


AFTER = OpDef("after", _lower_after)


class _Again(Rule):
    """Calls the function again, and pulls the cotangents back through that."""

    def __init__(
        self, function: Callable[..., Any], tree: Any, kwargs: Any, kept: Kept, random: Any, shapes: Sequence[Any]
    ) -> None:
        super().__init__(kept)
        self.function, self.tree, self.kwargs = function, tree, kwargs
        self.random, self.shapes = random, shapes
        self.region, self.rounded = local.trace.mode.autocast, local.trace.mode.rounded

    def pull(self, tr: Trace, step: Step, cts: Sequence[Handle | None], create: bool) -> list[tuple[Slot, Handle]]:
        kept = self.kept.tensors
        if kept is None:
            raise AutogradError(
                "checkpoint: Trying to backward through the graph a second time: the arguments were freed. Specify "
                "retain_graph=True if you need to backward through the graph a second time"
            )
        i = self.kept.overwritten()
        if i is not None:
            raise AutogradError(
                "checkpoint: one of the variables needed for gradient computation has been modified by an inplace "
                f"operation: {kept[i].dtype} {list(kept[i].shape)}, which is tensor {i} of its arguments, is at "
                f"version {kept[i]._version}; expected version {self.kept.versions[i]} instead"
            )
        # NOTE: no gradient goes to it: what the second pass waits for is none of its arguments.
        token = record(STOP, (next(ct for ct in cts if ct is not None),))
        now = get_state()
        before, region = set_grad_mode(True), set_mode("autocast", self.region)
        rounded = set_mode("rounded", self.rounded)
        try:
            if self.random is not None:
                set_state(self.random)
            fresh = record(AFTER, (token, *kept)) if kept else ()
            args, kwargs = unflatten((self.tree, self.kwargs), fresh if len(kept) > 1 else (fresh,))
            outs: list[Handle] = []
            flatten(self.function(*args, **kwargs), outs)
        finally:
            restore_mode("rounded", rounded)
            restore_mode("autocast", region)
            restore_grad_mode(before)
            set_state(now)
        found = [(x.shape, x.dtype) for x in outs if requires_grad(x)]
        if found != self.shapes:
            raise ShapeError(
                "checkpoint: the function gave other results when it was called again: "
                f"{found}, the first time {self.shapes}; it must do the same each time"
            )
        moves = [x for x in outs if requires_grad(x)]
        return [(slot_of(tr, x), ct) for x, ct in zip(moves, cts, strict=True) if ct is not None]


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    determinism_check: str = "default",
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, whose intermediate values are computed again by a backward and not kept for it.

    As `torch.utils.checkpoint.checkpoint`: the function is called again when a backward is recorded, with the same
    random numbers (unless `preserve_rng_state` is False; generators other than the default one go on) and in the same
    autocast region. Forward pass,
    second pass and backward are one program and one plan, and the second pass runs when the cotangent of the results is
    there. Tensors in nested tuples, lists and dicts of the arguments and results count, and parameters that the
    function refers to. What depends on the arguments is computed again; what depends on parameters alone is kept. The
    peak shows in `lt.explain` and in `lt.memory.peak`. `use_reentrant` and `determinism_check` are accepted: shapes and
    dtypes are always compared.

    Raises ShapeError if the function gives other results the second time, AutogradError for an argument that was
    written in place since.

    >>> import lazyt as lt
    >>> from lazyt.utils.checkpoint import checkpoint
    >>> x = lt.tensor([1.0, 2.0], requires_grad=True)
    >>> checkpoint(lambda v: lt.exp(v * 0) * v * v, x).sum().backward()
    >>> x.grad.tolist()
    [2.0, 4.0]
    """
    check_function("checkpoint", function)
    for name in ("context_fn", "debug", "early_stop"):
        if name in kwargs:
            raise NotSupportedError(
                f"not supported: checkpoint(..., {name}=), because what the second pass does is part of the program; "
                "open a context inside of the function"
            )
    if not is_grad_enabled():
        return function(*args, **kwargs)
    leaves: list[Handle] = []
    tree, named = flatten((args, kwargs), leaves)
    random = get_state() if preserve_rng_state else None
    out = function(*args, **kwargs)
    outs: list[Handle] = []
    shape = flatten(out, outs)
    moves = [x for x in outs if requires_grad(x)]
    if not moves:
        return out
    rule = _Again(function, tree, named, Kept(leaves), random, [(x.shape, x.dtype) for x in moves])
    made = iter(custom(moves, [], rule))
    return unflatten(shape, [next(made) if requires_grad(x) else x for x in outs])


def checkpoint_sequential(
    functions: Any,
    segments: int,
    input: Any,  # noqa: A002 - PyTorch's name
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
) -> Any:
    """A chain of functions (a list, or `nn.Sequential`) in `segments` parts, all but the last of them checkpointed.

    As `torch.utils.checkpoint.checkpoint_sequential`. Raises ValueError for more segments than functions, or none.

    >>> import lazyt as lt
    >>> from lazyt.utils.checkpoint import checkpoint_sequential
    >>> x = lt.tensor([1.0, 2.0], requires_grad=True)
    >>> checkpoint_sequential([lt.exp, lt.log, lt.square, lt.sum], 2, x).backward()
    >>> [round(g, 3) for g in x.grad.tolist()]
    [2.0, 4.0]
    """
    chain = list(functions.children()) if hasattr(functions, "children") else list(functions)
    if not 1 <= segments <= len(chain):
        raise ValueError(f"checkpoint_sequential: {segments} segments of {len(chain)} functions")
    size = len(chain) // segments
    starts = [*range(0, size * segments, size), len(chain)]
    x = input
    for start, stop in pairwise(starts):
        part = _Chain(chain[start:stop])
        if stop == len(chain):
            x = part(x)
        else:
            x = checkpoint(part, x, use_reentrant=use_reentrant, preserve_rng_state=preserve_rng_state)
    return x


class _Chain:
    """Functions one after the other."""

    def __init__(self, functions: Sequence[Callable[[Any], Any]]) -> None:
        self.functions = functions

    def __call__(self, x: Any) -> Any:
        for f in self.functions:
            x = f(x)
        return x
