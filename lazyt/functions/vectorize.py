"""`vmap`: a function of one example, for many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from lazyt.autograd.functional import at_leaf, flatten, mapping_like, unflatten
from lazyt.autograd.vmap import Recorded
from lazyt.errors import AutogradError, AxisError, DTypeError, ShapeError
from lazyt.functions.arguments import tensor
from lazyt.functions.creation import zeros
from lazyt.tracing.call_site import user_site
from lazyt.tracing.lanes import RANDOMNESS, InLanes
from lazyt.tracing.refusals import check_function
from lazyt.tracing.steps import run_sync
from lazyt.tracing.tensor_state import Handle
from lazyt.tracing.tracebacks import api_boundary

__all__ = ["vmap"]

NUMBERS = (bool, int, float, complex, np.generic)
# What is mapped: a tensor and the axis of its lanes.
Mapped = list[tuple[Handle, int]]


def vmap(
    f: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0, randomness: str = "error", axis_size: int | None = None
) -> Callable[..., Any]:
    """A function that does for all lanes of its arguments what `f` does for one, in one program.

    `in_axes` says which axis of an argument numbers the lanes: an integer, None for what all lanes share, or a tuple
    of these, one an argument; for arguments that are nested tuples, lists and dicts it may be nested alike. Keyword
    arguments have their lanes first. `out_axes` says the same of the results. Results that all lanes share are
    repeated, or given once where `out_axes` is None. `axis_size` is needed where no argument has lanes.

    `f` is called once, on tensors without the axis of lanes and without values: it may compose, differentiate and nest
    transformations at will, and raises SyncError at the line that reads a value. Random numbers need `randomness`:
    'different' in each lane, or the 'same' in all.

    Raises ShapeError if numbers of lanes differ, AxisError for an axis that is not there, and AutogradError if `f`
    keeps a value of a lane or writes it to a tensor from outside.

    As `jax.vmap`; `torch.func.vmap` calls the axes `in_dims` and `out_dims`.

    >>> import lazyt as lt
    >>> per_sample = lt.vmap(lt.grad(lambda w, x: (w * x).sum() ** 2), in_axes=(None, 0))
    >>> per_sample(lt.ones(2), lt.asarray([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[6.0, 12.0], [42.0, 56.0]]
    """
    check_function("vmap", f)
    if randomness not in RANDOMNESS:
        raise AutogradError(f"vmap: randomness must be one of {', '.join(map(repr, RANDOMNESS))}, not {randomness!r}")

    @wraps(f)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves: Mapped = []
        if not isinstance(in_axes, int | None) and len(in_axes) != len(args):
            raise ShapeError(f"vmap: in_axes has {len(in_axes)} entries for {len(args)} positional arguments")
        call = _with_lanes(args, in_axes, leaves), _with_lanes(kwargs, 0, leaves)
        _check_sizes(leaves, axis_size)
        if not leaves:
            leaves.append((zeros(axis_size), 0))  # type: ignore[arg-type]
        recorded = Recorded([x for x, _ in leaves], [a for _, a in leaves])
        return _all_lanes(recorded, _one_lane(f, recorded, call, randomness), out_axes, randomness)

    return api_boundary(mapped, "vmap")


def _one_lane(f: Callable[..., Any], r: Recorded, call: Any, randomness: str) -> Any:
    """What f gives for one lane; nothing is computed meanwhile."""
    tr = r.tr
    lanes = r.lanes()
    before, eager, own = tr.syncs_forbidden, tr.eager, InLanes(randomness, user_site())
    within = [*before, own]
    try:
        tr.syncs_forbidden, tr.eager = within, False
        args, kwargs = (unflatten(t, lanes) for t in call)
        return _as_tensors(f(*args, **kwargs), "vmap")
    except BaseException:
        r.restore()
        raise
    finally:
        # NOTE: a block of `no_sync` may have ended meanwhile.
        found = tr.syncs_forbidden
        tr.syncs_forbidden, tr.eager = before if found is within else [x for x in found if x is not own], eager


def _all_lanes(r: Recorded, out: Any, out_axes: Any, randomness: str) -> Any:
    handles: list[Handle] = []
    tree = flatten(out, handles)
    del out
    axes: list[int | None] = []
    _each_axis(tree, out_axes, handles, axes)
    lone = [i for i, a in enumerate(axes) if a is None]
    some = [(h, a) for h, a in zip(handles, axes, strict=True) if a is not None]
    try:
        for i, differs in zip(lone, r.differs([handles[i] for i in lone]) if lone else (), strict=True):
            if differs:
                raise AutogradError(
                    f"vmap: out_axes is None for result {i}, of shape {handles[i].shape}, but its lanes differ"
                )
        made = iter(r.outputs([h for h, _ in some], randomness == "different", [a for _, a in some]) if some else ())
    except BaseException:
        r.restore()
        raise
    results = [h if a is None else next(made) for h, a in zip(handles, axes, strict=True)]
    # NOTE: nothing may hold what stands for one lane, a sync would compute that.
    del handles, some
    r.check_escapes(results)
    if r.tr.eager:
        run_sync(r.tr, "eager", user_site())
    return unflatten(tree, results)


def _with_lanes(tree: Any, axes: Any, leaves: Mapped) -> Any:
    """The tree with numbers for its tensors that have lanes, which are collected."""
    if axes is None:
        return tree
    if isinstance(axes, int) and not isinstance(axes, bool):
        return _leaf(tree, axes, leaves)
    if isinstance(tree, dict) and isinstance(axes, dict) and axes.keys() == tree.keys():
        return mapping_like(tree, [_with_lanes(v, axes[k], leaves) for k, v in tree.items()])
    if isinstance(tree, list | tuple) and isinstance(axes, list | tuple) and len(axes) == len(tree):
        found = [_with_lanes(v, a, leaves) for v, a in zip(tree, axes, strict=True)]
        return _rebuilt(tree, found)
    raise ShapeError(f"vmap: in_axes {axes!r} does not fit an argument of type {type(tree).__name__!r}")


def _leaf(x: Any, axis: int, leaves: Mapped) -> Any:
    if isinstance(x, list | tuple):
        return _rebuilt(x, [_leaf(v, axis, leaves) for v in x])
    if isinstance(x, dict):
        return mapping_like(x, [_leaf(v, axis, leaves) for v in x.values()])
    if isinstance(x, NUMBERS):
        raise ShapeError(f"vmap: in_axes is {axis} for the number {x!r}, which has no lanes; in_axes=None shares it")
    if isinstance(x, np.ndarray):
        x = tensor(x)
    if not isinstance(x, Handle):
        return x
    if not -x.ndim <= axis < x.ndim:
        raise AxisError(f"vmap: in_axes {axis} is out of range for an argument of shape {x.shape}")
    leaves.append((x, axis % x.ndim))
    return at_leaf(len(leaves) - 1)


def _rebuilt(tree: Any, found: Sequence[Any]) -> Any:
    return type(tree)(*found) if hasattr(tree, "_fields") else type(tree)(found)


def _check_sizes(leaves: Mapped, axis_size: int | None) -> None:
    sizes = {x.shape[a] for x, a in leaves}
    if not sizes and axis_size is None:
        raise ShapeError("vmap: no argument has lanes, so axis_size is needed")
    if len(sizes) > 1:
        each = ", ".join(f"{x.shape[a]} (axis {a} of {x.shape})" for x, a in leaves)
        raise ShapeError(f"vmap: the numbers of lanes differ: {each}")
    if sizes and axis_size is not None and sizes != {axis_size}:
        raise ShapeError(f"vmap: axis_size is {axis_size}, but the arguments have {sizes.pop()} lanes")


def _as_tensors(tree: Any, name: str) -> Any:
    """The tree with numbers and arrays as tensors; DTypeError for what is none."""
    if isinstance(tree, list | tuple):
        return _rebuilt(tree, [_as_tensors(t, name) for t in tree])
    if isinstance(tree, dict):
        return mapping_like(tree, [_as_tensors(v, name) for v in tree.values()])
    if tree is None or isinstance(tree, Handle):
        return tree
    if isinstance(tree, (np.ndarray, *NUMBERS)):
        return tensor(tree)
    raise DTypeError(f"{name}: the function must return tensors, or nests of them, not {type(tree).__name__!r}")


def _each_axis(tree: Any, out_axes: Any, handles: Sequence[Handle], axes: list[int | None]) -> None:
    """The axis of lanes of each result, in order."""
    nested = isinstance(out_axes, list | tuple | dict)
    if isinstance(tree, dict):
        if nested and not (isinstance(out_axes, dict) and out_axes.keys() == tree.keys()):
            raise ShapeError(f"vmap: out_axes {out_axes!r} does not fit results named {[*tree]}")
        for k, v in tree.items():
            _each_axis(v, out_axes[k] if nested else out_axes, handles, axes)
    elif isinstance(tree, list | tuple):
        if nested and (isinstance(out_axes, dict) or len(out_axes) != len(tree)):
            raise ShapeError(f"vmap: out_axes {out_axes!r} does not fit {len(tree)} results")
        for i, v in enumerate(tree):
            _each_axis(v, out_axes[i] if nested else out_axes, handles, axes)
    elif tree is not None:
        shape = handles[len(axes)].shape
        if nested:
            raise ShapeError(f"vmap: out_axes {out_axes!r} does not fit one result of shape {shape}")
        rank = len(shape) + 1
        if out_axes is not None and not -rank <= out_axes < rank:
            raise AxisError(f"vmap: out_axes {out_axes} is out of range for a result of {rank} axes")
        axes.append(None if out_axes is None else out_axes % rank)
