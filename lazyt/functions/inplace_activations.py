"""Activation functions that write their result to their input, a tensor, and return that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.functions import activations, elementwise, shrinking
from lazyt.functions.activations import out_of

if TYPE_CHECKING:
    from lazyt.runtime.tensor import Tensor

__all__ = ["celu_", "elu_", "hardtanh_", "leaky_relu_", "relu", "relu_", "rrelu_", "selu_", "threshold_"]


def relu(x: Any, /, inplace: bool = False) -> Tensor:
    """max(x, 0); `inplace` writes it to x. Raises DTypeError for a complex dtype. As `torch.nn.functional.relu`.

    >>> import lazyt as lt
    >>> lt.nn.functional.relu(lt.asarray([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    return out_of(x, elementwise.relu(x), inplace)


def celu_(x: Any, /, alpha: float = 1.0) -> Tensor:
    """`celu` in place. Raises AutogradError for a leaf that requires grad. As `torch.nn.functional.celu_`.

    >>> import lazyt as lt
    >>> x = lt.asarray([1.0, 0.0])
    >>> lt.nn.functional.celu_(x) is x, x.tolist()
    (True, [1.0, 0.0])
    """
    return out_of(x, shrinking.celu(x, alpha), True)


def elu_(x: Any, /, alpha: float = 1.0) -> Tensor:
    """`elu` in place. Raises AutogradError for a leaf that requires grad. As `torch.nn.functional.elu_`.

    >>> import lazyt as lt
    >>> x = lt.asarray([1.0, 0.0])
    >>> lt.nn.functional.elu_(x) is x, x.tolist()
    (True, [1.0, 0.0])
    """
    return out_of(x, activations.elu(x, alpha), True)


def hardtanh_(x: Any, /, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """`hardtanh` in place. Raises AutogradError for a leaf that requires grad. As `torch.nn.functional.hardtanh_`.

    >>> import lazyt as lt
    >>> x = lt.asarray([2.0, 0.5])
    >>> lt.nn.functional.hardtanh_(x) is x, x.tolist()
    (True, [1.0, 0.5])
    """
    return out_of(x, activations.hardtanh(x, min_val, max_val), True)


def leaky_relu_(x: Any, /, negative_slope: float = 0.01) -> Tensor:
    """`leaky_relu` in place. Raises AutogradError for a leaf that requires grad. As `torch.nn.functional.leaky_relu_`.

    >>> import lazyt as lt
    >>> x = lt.asarray([2.0, 0.0])
    >>> lt.nn.functional.leaky_relu_(x) is x, x.tolist()
    (True, [2.0, 0.0])
    """
    return out_of(x, activations.leaky_relu(x, negative_slope), True)


def relu_(x: Any, /) -> Tensor:
    """`relu` in place. Raises AutogradError for a leaf that requires grad. As `torch.nn.functional.relu_`.

    >>> import lazyt as lt
    >>> x = lt.asarray([2.0, -1.0])
    >>> lt.nn.functional.relu_(x) is x, x.tolist()
    (True, [2.0, 0.0])
    """
    return out_of(x, elementwise.relu(x), True)


def rrelu_(x: Any, /, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Tensor:
    """`rrelu` in place. Raises AutogradError for a leaf that requires grad. As `torch.nn.functional.rrelu_`.

    >>> import lazyt as lt
    >>> x = lt.asarray([1.0, 0.0])
    >>> lt.nn.functional.rrelu_(x) is x, x.tolist()
    (True, [1.0, 0.0])
    """
    return out_of(x, shrinking.rrelu(x, lower, upper, training), True)


def selu_(x: Any, /) -> Tensor:
    """`selu` in place. Raises AutogradError for a leaf that requires grad. As `torch.nn.functional.selu_`.

    >>> import lazyt as lt
    >>> x = lt.asarray([0.0])
    >>> lt.nn.functional.selu_(x) is x, x.tolist()
    (True, [0.0])
    """
    return out_of(x, activations.selu(x), True)


def threshold_(x: Any, /, threshold: float, value: float) -> Tensor:
    """`threshold` in place. Raises AutogradError for a leaf that requires grad. As `torch.nn.functional.threshold_`.

    >>> import lazyt as lt
    >>> x = lt.asarray([0.5, 2.0])
    >>> lt.nn.functional.threshold_(x, 1.0, 20.0) is x, x.tolist()
    (True, [20.0, 2.0])
    """
    return out_of(x, shrinking.threshold(x, threshold, value), True)
