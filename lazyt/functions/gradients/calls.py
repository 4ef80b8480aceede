"""`lazyt.autograd.grad` and `backward`: PyTorch's functions of tensors that were computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lazyt.autograd.engine import backward_of, gradients
from lazyt.errors import AutogradError, NotSupportedError
from lazyt.functions.creation import zeros
from lazyt.functions.vectorize import vmap
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from lazyt.runtime.tensor import Tensor

    Tensors = Tensor | Sequence[Tensor]


def _listed(name: str, what: str, xs: Any) -> list[Any]:
    found = [xs] if isinstance(xs, Handle) else list(xs)
    for x in found:
        if not isinstance(x, Handle):
            raise TypeError(f"{name}: {what} must be tensors, not {type(x).__name__!r}")
    return found


def _given(name: str, grads: Any, n: int) -> list[Any]:
    if grads is None:
        return [None] * n
    found = [grads] if isinstance(grads, Handle) else list(grads)
    if len(found) != n:
        raise AutogradError(f"{name}: got {n} tensors and {len(found)} gradients")
    return found


def _of_rows(outs: list[Any], ins: list[Any], given: list[Any], retain: bool, create: bool) -> list[Any]:
    """The gradients for each row of what is given, all at once."""
    for y, ct in zip(outs, given, strict=True):
        if ct is None or ct.shape[1:] != y.shape:
            got = "None" if ct is None else f"shape {ct.shape}"
            raise AutogradError(f"grad: is_grads_batched requires rows of shape {y.shape}, got {got}")
    reached: list[int] = []

    def of_one(*cts: Any) -> tuple[Any, ...]:
        found = gradients(outs, ins, list(cts), retain, create)
        reached[:] = [i for i, g in enumerate(found) if g is not None]
        return tuple(found[i] for i in reached)

    pulled = vmap(of_one)(*given)
    out: list[Any] = [None] * len(ins)
    for i, g in zip(reached, pulled, strict=True):
        out[i] = g
    return out


def grad(
    outputs: Tensors,
    inputs: Tensors,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of the sum of `outputs` by `inputs`, leaves or not; `.grad` stays as it is. Records; runs nothing.

    As `torch.autograd.grad`: `grad_outputs` (of the outputs' shapes) is required for outputs of more than one element,
    and the graph is freed unless `retain_graph` or `create_graph`. An input that the outputs do not depend on is an
    AutogradError, None with `allow_unused`, zeros with `materialize_grads`. With `is_grads_batched`, `grad_outputs`
    have one more axis, the first: a gradient a row, all pulled back at once by `lazyt.vmap`. A function of functions is
    `lazyt.grad`.

    >>> import lazyt as lt
    >>> x = lt.tensor([1.0, 2.0], requires_grad=True)
    >>> y = x * x
    >>> gx, gy = lt.autograd.grad((y * y).sum(), [x, y])
    >>> gx.tolist(), gy.tolist()
    ([4.0, 32.0], [2.0, 8.0])
    >>> lt.autograd.grad(x * x, x, lt.eye(2), is_grads_batched=True)[0].tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    outs, ins = _listed("grad", "outputs", outputs), _listed("grad", "inputs", inputs)
    if not only_inputs:
        raise NotSupportedError(
            "grad: not supported: only_inputs=False, because `.grad` is left alone; backward() accumulates there"
        )
    if not outs or not ins:
        raise AutogradError("grad: requires non-empty inputs" if outs else "grad: requires non-empty outputs")
    if allow_unused is False and materialize_grads:
        raise AutogradError("grad: Expected allow_unused to be True or not passed when materialize_grads=True")
    retain = create_graph if retain_graph is None else retain_graph
    given = _given("grad", grad_outputs, len(outs))
    if is_grads_batched:
        found = _of_rows(outs, ins, given, retain, create_graph)
    else:
        found = gradients(outs, ins, given, retain, create_graph)
    for i, (g, x) in enumerate(zip(found, ins, strict=True)):
        if g is not None:
            continue
        if materialize_grads:
            rows = (given[0].shape[0],) if is_grads_batched else ()
            found[i] = zeros(rows + x.shape, dtype=x.dtype, device=x.device)
        elif not allow_unused:
            # NOTE: a sync computes the base, of which a view is derived anew.
            view = " A view that was made before a sync is another value behind it." if x._view is not None else ""
            raise AutogradError(
                f"grad: The differentiated Tensor at index {i} appears to not have been used in the graph. Set "
                f"allow_unused=True if this is the desired behavior.{view}"
            )
    return tuple(found)


def backward(
    tensors: Tensors,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensors | None = None,
) -> None:
    """Accumulate the gradients of the sum of `tensors` into `.grad` of their leaves. As `torch.autograd.backward`.

    `grad_tensors` has one gradient a tensor (None for one of a single element).

    >>> import lazyt as lt
    >>> x = lt.tensor([1.0, 2.0], requires_grad=True)
    >>> lt.autograd.backward([x.sum(), x * x], [None, lt.ones(2)])
    >>> x.grad.tolist()
    [3.0, 5.0]
    """
    outs = _listed("backward", "tensors", tensors)
    if not outs:
        raise AutogradError("backward: requires non-empty tensors")
    ins = None if inputs is None else _listed("backward", "inputs", inputs)
    if ins is not None and not ins:
        raise AutogradError("backward: `inputs` argument to `backward()` cannot be empty.")
    backward_of(outs, _given("backward", grad_tensors, len(outs)), retain_graph, create_graph, ins)


__all__ = ["backward", "grad"]
