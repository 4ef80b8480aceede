"""Transformations of functions under the names and arguments of `torch.func`; `lazyt.vmap` and its kin are the same.

>>> import lazyt as lt
>>> lt.func.vmap(lt.func.grad(lambda x: (x * x).sum()))(lt.ones((3, 2))).tolist()
[[2.0, 2.0], [2.0, 2.0], [2.0, 2.0]]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lazyt as lt
from lazyt.errors import LazytError, NotSupportedError
from lazyt.functions.joining import stack
from lazyt.nn.batch_norms import _BatchNorm
from lazyt.nn.module import Module
from lazyt.nn.utils.stateless import functional_call
from lazyt.tracing import tracebacks as _tracebacks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Function = Callable[..., Any]

__all__ = [
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "vjp",
    "vmap",
]


linearize = lt.linearize


def _whole(name: str, chunk_size: int | None) -> None:
    if chunk_size is not None:
        raise NotSupportedError(
            f"{name}: not supported: chunk_size={chunk_size}, because all lanes are one plan; call it on parts of the "
            "input, one after another"
        )


def vmap(
    func: Function, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: int | None = None
) -> Function:
    """`lazyt.vmap` with PyTorch's names of arguments. As `torch.func.vmap`.

    >>> import lazyt as lt
    >>> lt.func.vmap(lt.dot, in_dims=(0, None))(lt.ones((2, 3)), lt.ones(3)).tolist()
    [3.0, 3.0]
    """
    _whole("vmap", chunk_size)
    return lt.vmap(func, in_dims, out_dims, randomness)


def grad(func: Function, argnums: Any = 0, has_aux: bool = False) -> Function:
    """`lazyt.grad`. As `torch.func.grad`.

    >>> import lazyt as lt
    >>> lt.func.grad(lambda x: x * x)(lt.asarray(3.0)).item()
    6.0
    """
    return lt.grad(func, argnums, has_aux)


def grad_and_value(func: Function, argnums: Any = 0, has_aux: bool = False) -> Function:
    """The gradient and then the value, which `lazyt.value_and_grad` has the other way round.

    As `torch.func.grad_and_value`.

    >>> import lazyt as lt
    >>> [x.item() for x in lt.func.grad_and_value(lambda x: x * x)(lt.asarray(3.0))]
    [6.0, 9.0]
    """
    both = lt.value_and_grad(func, argnums, has_aux)

    def call(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        value, gradient = both(*args, **kwargs)
        return gradient, value

    return call


def vjp(func: Function, *primals: Any, has_aux: bool = False) -> Any:
    """The value, and a function from cotangents to the primals' gradients: a tuple of them, of one for one primal.

    With `has_aux` the function gives a pair, whose second part comes third. As `torch.func.vjp`.

    >>> import lazyt as lt
    >>> y, pull = lt.func.vjp(lambda x: x * 2, lt.ones(2))
    >>> [x.tolist() for x in pull(lt.ones(2))]
    [[2.0, 2.0]]
    """
    aux: list[Any] = []

    def value(*args: Any) -> Any:
        out, more = func(*args)
        aux.append(more)
        return out

    out, pull = lt.vjp(value if has_aux else func, *primals)
    return (out, pull, aux[0]) if has_aux else (out, pull)


def jvp(func: Function, primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """`lazyt.jvp`; `strict` has no effect: what does not depend on a primal has a tangent of 0. As `torch.func.jvp`.

    >>> import lazyt as lt
    >>> [x.item() for x in lt.func.jvp(lambda x: x * x, (lt.asarray(3.0),), (lt.asarray(1.0),))]
    [9.0, 6.0]
    """
    return lt.jvp(func, primals, tangents, has_aux)


def jacrev(func: Function, argnums: Any = 0, *, has_aux: bool = False, chunk_size: int | None = None) -> Function:
    """`lazyt.jacrev`. As `torch.func.jacrev`.

    >>> import lazyt as lt
    >>> lt.func.jacrev(lambda x: 3 * x)(lt.ones(2)).tolist()
    [[3.0, 0.0], [0.0, 3.0]]
    """
    _whole("jacrev", chunk_size)
    return lt.jacrev(func, argnums, has_aux)


def jacfwd(func: Function, argnums: Any = 0, has_aux: bool = False, *, randomness: str = "error") -> Function:
    """`lazyt.jacfwd`; `randomness` has no effect: the columns share one run of the function. As `torch.func.jacfwd`.

    >>> import lazyt as lt
    >>> lt.func.jacfwd(lambda x: 3 * x)(lt.ones(2)).tolist()
    [[3.0, 0.0], [0.0, 3.0]]
    """
    return lt.jacfwd(func, argnums, has_aux)


def hessian(func: Function, argnums: Any = 0) -> Function:
    """`lazyt.hessian`. As `torch.func.hessian`.

    >>> import lazyt as lt
    >>> lt.func.hessian(lambda x: (x**3).sum())(lt.ones(2)).tolist()
    [[6.0, 0.0], [0.0, 6.0]]
    """
    return lt.hessian(func, argnums)


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters and buffers of models of one class, stacked: for `vmap` over `functional_call`.

    Raises LazytError unless there are models of one class and mode whose parameters are alike. As
    `torch.func.stack_module_state`.

    >>> import lazyt as lt
    >>> models = [lt.nn.Linear(3, 2) for _ in range(4)]
    >>> parameters, _ = lt.func.stack_module_state(models)
    >>> run = lambda p, x: lt.func.functional_call(models[0], p, (x,))
    >>> lt.func.vmap(run, in_dims=(0, None))(parameters, lt.ones(3)).shape
    (4, 2)
    """
    given = list(models)
    if not given:
        raise LazytError("stack_module_state: at least one model is required, got none")
    kinds = sorted({type(m).__name__ for m in given})
    if len({type(m) for m in given}) > 1 or len({m.training for m in given}) > 1:
        raise LazytError(f"stack_module_state: models of one class and one mode (training) are required, got {kinds}")
    parameters: dict[str, Any] = {}
    buffers: dict[str, Any] = {}
    for made, tables in (
        (parameters, [dict(m.named_parameters()) for m in given]),
        (buffers, [dict(m.named_buffers()) for m in given]),
    ):
        for name in tables[0]:
            parts: list[Any] = [t.get(name) for t in tables]
            asked = {None if x is None else (x.shape, x.dtype, x.requires_grad) for x in parts}
            if len(asked) > 1:
                raise LazytError(f"stack_module_state: {name} is not alike in all models: {sorted(map(str, asked))}")
            made[name] = stack([x.detach() for x in parts if x is not None]).requires_grad_(parts[0].requires_grad)
    return parameters, buffers


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Let the batch norms of a model keep no running statistics, in place: under `vmap` they cannot be written.

    As `torch.func.replace_all_batch_norm_modules_`.

    >>> import lazyt as lt
    >>> lt.func.replace_all_batch_norm_modules_(lt.nn.BatchNorm1d(3)).running_mean is None
    True
    """
    for m in root.modules():
        if isinstance(m, _BatchNorm):
            m.track_running_stats = False
            m.running_mean = m.running_var = m.num_batches_tracked = None
    return root


def __dir__() -> list[str]:
    return sorted(__all__)


_tracebacks.guard_functions(globals(), __all__)
