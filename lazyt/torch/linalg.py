"""`torch.linalg`: `lazyt.linalg`, where arguments differ with PyTorch's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple as _NamedTuple

import lazyt as lt
from lazyt import linalg as _linalg
from lazyt.errors import ShapeError as _ShapeError
from lazyt.runtime.tensor import Tensor as _Tensor
from lazyt.torch.keywords import of_module as _of_module, with_numpy_names as _with_numpy_names
from lazyt.torch.scalars import axes_of as _axes_of, tuple_of as _tuple_of
from lazyt.tracing.tracebacks import api_boundary as _api_boundary

if TYPE_CHECKING:
    from collections.abc import Callable

_OWN = ["cross", "diagonal", "matrix_norm", "norm", "qr", "solve", "vecdot", "vector_norm"]
__all__ = list({*_linalg.__all__, *_OWN})


def _of_torch(f: Callable[..., Any]) -> Callable[..., Any]:
    """A public function, which takes arguments by NumPy's names too."""
    return _api_boundary(_with_numpy_names(f))


def _cast(x: Any, dtype: Any) -> Any:
    return x if dtype is None else lt.astype(x, dtype, copy=False)


@_of_torch
def norm(A: Any, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> _Tensor:  # noqa: N803
    """As `lazyt.linalg.norm`: of a vector, or of a matrix where there are two axes and an order."""
    return _linalg.norm(_cast(A, dtype), ord, _axes_of("norm", A, dim), keepdim)


@_of_torch
def vector_norm(x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> _Tensor:
    """As `lazyt.linalg.vector_norm`, along `dim`."""
    axes = _axes_of("vector_norm", x, dim)
    return _linalg.vector_norm(_cast(x, dtype), axis=axes, keepdims=keepdim, ord=ord)


@_of_torch
def matrix_norm(
    A: Any,  # noqa: N803 - PyTorch's name
    ord: Any = "fro",
    dim: Any = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> _Tensor:
    """As `lazyt.linalg.matrix_norm`, of the matrices that two axes are."""
    axes = _tuple_of(dim)
    if not isinstance(axes, tuple) or len(axes) != 2:
        raise _ShapeError(f"matrix_norm: two axes are required, got dim={dim}")
    return _linalg.norm(_cast(A, dtype), ord, axes, keepdim)


@_of_torch
def cross(input: Any, other: Any, *, dim: int = -1) -> _Tensor:
    """As `lazyt.linalg.cross`, along `dim`."""
    return _linalg.cross(input, other, axis=dim)


@_of_torch
def vecdot(x: Any, y: Any, *, dim: int = -1) -> _Tensor:
    """As `lazyt.linalg.vecdot`, along `dim`."""
    return _linalg.vecdot(x, y, axis=dim)


@_of_torch
def diagonal(A: Any, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> _Tensor:  # noqa: N803 - PyTorch's name
    """The diagonals of matrices, as a view."""
    return lt.diagonal(A, offset, dim1, dim2)


@_of_torch
def solve(A: Any, B: Any, *, left: bool = True) -> _Tensor:  # noqa: N803 - PyTorch's names
    """X of A X = B, or of X A = B if `left` is False; a vector for each matrix, or matrices."""
    if B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1]):
        if not left:
            raise _ShapeError(f"solve: with left=False matrices are required, got shape {B.shape}")
        return lt.squeeze(_linalg.solve(A, lt.expand_dims(B, -1)), -1)
    return _linalg.solve(A, B) if left else _linalg.solve(A.mT, B.mT).mT.clone()


class QR(_NamedTuple):
    """The factors of a matrix."""

    Q: _Tensor
    R: _Tensor


@_of_torch
def qr(A: Any, mode: str = "reduced") -> QR:  # noqa: N803 - PyTorch's name
    """As `lazyt.linalg.qr`; by mode 'r' Q has no elements."""
    if mode != "r":
        return QR(*_linalg.qr(A, mode))
    upper: Any = _linalg.qr(A, mode)
    return QR(lt.empty((0,), dtype=A.dtype, device=A.device), upper)


def __getattr__(name: str) -> Any:
    found = globals()[name] = _of_module(getattr(_linalg, name), name, __name__)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
