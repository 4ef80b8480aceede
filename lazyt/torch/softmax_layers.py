"""softmax and its kin with PyTorch's default axis: 0 of scalars, vectors and batches of matrices, else 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt import nn
from lazyt.torch import reductions
from lazyt.tracing.call_site import warn
from lazyt.tracing.tracebacks import api_boundary

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.runtime.tensor import Tensor


def _axis(name: str, x: Any, dim: int | None) -> int:
    """The axis that is given, or PyTorch's choice, of which it warns."""
    if dim is not None:
        return dim
    warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
        UserWarning,
    )
    return 0 if x.ndim in (0, 1, 3) else 1


@api_boundary
def softmax(input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """exp(x) / sum(exp(x)) along an axis, of x cast to `dtype` before."""
    return reductions.softmax(input, _axis("softmax", input, dim), dtype)  # type: ignore[no-any-return]


@api_boundary
def log_softmax(input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """log(softmax(x)) along an axis, of x cast to `dtype` before."""
    return reductions.log_softmax(input, _axis("log_softmax", input, dim), dtype)  # type: ignore[no-any-return]


@api_boundary
def softmin(input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """softmax(-x) along an axis, of x cast to `dtype` before."""
    x = input if dtype is None else input.astype(dtype)
    return reductions.softmax(-x, _axis("softmin", input, dim))  # type: ignore[no-any-return]


def _layer(base: Any, function: Callable[..., Tensor]) -> Any:
    """The layer whose axis is chosen at each call, where none is given."""

    def __init__(self: Any, dim: int | None = None) -> None:  # noqa: N807
        base.__init__(self, dim)
        self.dim = dim

    def forward(self: Any, input: Any) -> Tensor:
        return function(input, self.dim)

    doc = f"`functional.{function.__name__}` over `dim`, or PyTorch's choice of an axis."
    fields = {"__init__": __init__, "forward": forward, "__doc__": doc, "__module__": __name__}
    return type(base.__name__, (base,), fields)


Softmax = _layer(nn.Softmax, softmax)
LogSoftmax = _layer(nn.LogSoftmax, log_softmax)
Softmin = _layer(nn.Softmin, softmin)
LAYERS = {layer.__name__: layer for layer in (Softmax, LogSoftmax, Softmin)}
FUNCTIONS = {f.__name__: f for f in (softmax, log_softmax, softmin)}
