"""Weights of a norm of their own, of spectral norm 1, and orthogonal ones. As `torch.nn.utils.parametrizations`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import AxisError, LazytError, ShapeError
from lazyt.functions.distances import normalize
from lazyt.functions.linalg import vector_norm
from lazyt.functions.manipulation import moveaxis, reshape
from lazyt.functions.products import matmul, vecdot
from lazyt.functions.random import standard_normal
from lazyt.nn.init import drawn_on
from lazyt.nn.module import Module
from lazyt.nn.utils.orthogonal import orthogonal
from lazyt.nn.utils.parametrize import register_parametrization
from lazyt.optim.parameters import write
from lazyt.tracing.current import restore_grad_mode, set_grad_mode

if TYPE_CHECKING:
    from lazyt.runtime.tensor import Tensor

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def __dir__() -> list[str]:
    return sorted(__all__)


def norm_except(x: Any, dim: int | None) -> Tensor:
    """The 2-norm over all axes but one (-1 or None: over all), with axes of extent 1."""
    if dim is None or dim == -1:
        return vector_norm(x, axis=tuple(range(len(x.shape))), keepdims=dim is not None)
    if not 0 <= dim < len(x.shape):
        raise AxisError(f"weight_norm: dim {dim} is out of range for a weight of shape {x.shape}")
    return vector_norm(x, axis=tuple(i for i in range(len(x.shape)) if i != dim), keepdims=True)


class WeightNorm(Module):
    """g * v / |v|, the norm being over all axes but `dim`."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, weight_g: Any, weight_v: Any) -> Any:
        return weight_v * (weight_g / norm_except(weight_v, self.dim))

    def right_inverse(self, weight: Any) -> Any:
        """The norm, and the weight itself as the direction."""
        return norm_except(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Train a weight as its norm along `dim` (`original0`) and its direction (`original1`).

    Raises LazytError if there is no such tensor. As `torch.nn.utils.parametrizations.weight_norm`. Salimans, Kingma
    (2016).

    >>> import lazyt as lt
    >>> layer = lt.nn.utils.parametrizations.weight_norm(lt.nn.Linear(3, 2))
    >>> [name for name, _ in layer.named_parameters()][1:]
    ['parametrizations.weight.original0', 'parametrizations.weight.original1']
    """
    return register_parametrization(module, name, WeightNorm(dim), unsafe=True)


def as_matrix(weight: Any, dim: int) -> Tensor:
    """The weight with `dim` as its rows and all other axes as its columns."""
    w = moveaxis(weight, dim, 0) if dim else weight
    return reshape(w, (w.shape[0], -1))


def power_iterated(matrix: Any, u: Any, v: Any, n: int, eps: float) -> tuple[Tensor, Tensor]:
    """The left and right singular vectors of the greatest singular value, nearer by n iterations."""
    for _ in range(n):
        u = normalize(matmul(matrix, v), dim=0, eps=eps)
        v = normalize(matmul(matrix.mT, u), dim=0, eps=eps)
    return u, v


class SpectralNorm(Module):
    """The weight over its greatest singular value, which each forward in training approximates better."""

    def __init__(self, weight: Any, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        rank = len(weight.shape)
        if not -rank <= dim < rank:
            raise AxisError(f"spectral_norm: dim {dim} is out of range for a weight of shape {weight.shape}")
        self.dim, self.eps, self.n_power_iterations = dim % rank, eps, n_power_iterations
        if rank > 1:
            if n_power_iterations <= 0:
                raise LazytError(f"spectral_norm: at least 1 power iteration is required, got {n_power_iterations}")
            before = set_grad_mode(False)
            try:
                w = as_matrix(weight.detach(), self.dim)
                with drawn_on(weight):
                    u, v = (normalize(standard_normal((n,), dtype=w.dtype), dim=0, eps=eps) for n in w.shape)
                u, v = power_iterated(w, u, v, 15, eps)
            finally:
                restore_grad_mode(before)
            self.register_buffer("_u", u)
            self.register_buffer("_v", v)

    def forward(self, weight: Any) -> Any:
        if len(weight.shape) == 1:
            return normalize(weight, dim=0, eps=self.eps)
        w = as_matrix(weight, self.dim)
        if self.training:
            before = set_grad_mode(False)
            try:
                u, v = power_iterated(w.detach(), self._u, self._v, self.n_power_iterations, self.eps)
                write(self._u, u)
                write(self._v, v)
            finally:
                restore_grad_mode(before)
        else:
            u, v = self._u.clone(), self._v.clone()
        return weight / vecdot(u, matmul(w, v))

    def right_inverse(self, value: Any) -> Any:
        """The value itself: its norm is not known to be 1."""
        return value


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide a weight by its greatest singular value, as a matrix with `dim` as its rows (transposed convolutions: 1).

    Each forward in training makes `n_power_iterations`. Raises LazytError if there is no such tensor. As
    `torch.nn.utils.parametrizations.spectral_norm`. Miyato et al. (2018).

    >>> import lazyt as lt
    >>> layer = lt.nn.utils.parametrizations.spectral_norm(lt.nn.Linear(3, 2))
    >>> abs(lt.linalg.svdvals(layer.weight)[0].item() - 1) < 0.05
    True
    """
    weight = getattr(module, name, None)
    if weight is None or not hasattr(weight, "shape") or not len(weight.shape):
        raise ShapeError(f"spectral_norm: a tensor {name!r} of {type(module).__name__} is required, got {weight!r}")
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    return register_parametrization(module, name, SpectralNorm(weight, n_power_iterations, dim, eps))
