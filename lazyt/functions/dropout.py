"""Random zeros: of elements, of whole channels, and those that keep mean and variance.

`inplace=True` writes the result to the input, a tensor, and returns that.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import TYPE_CHECKING, Any

from lazyt.errors import DTypeError, ShapeError
from lazyt.functions.activations import out_of, read_for
from lazyt.functions.arguments import record, tensor
from lazyt.functions.creation import ones
from lazyt.functions.loss_arguments import floating
from lazyt.functions.random import default_generator
from lazyt.ops.nn import DROPOUT

if TYPE_CHECKING:
    from lazyt.functions.random import Generator
    from lazyt.runtime.tensor import Tensor

__all__ = ["alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"]

# What selu tends to for very negative numbers.
_FLOOR = -1.7580993408473766


def rate_of(name: str, p: float) -> tuple[float, float]:
    """The probability of a zero, and the factor of what is kept."""
    if not isinstance(p, Real):
        raise DTypeError(f"{name}: a probability in [0, 1] is required, got {p!r}")
    if not 0 <= p <= 1:
        raise ShapeError(f"{name}: a probability in [0, 1] is required, got {p}")
    return float(p), 0.0 if p == 1 else 1 / (1 - float(p))


def dropout(
    x: Any, p: float = 0.5, training: bool = True, inplace: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """In training, x with each element zeroed with probability p and the rest divided by 1 - p; else, or if p is 0, x.

    Raises ShapeError for a p outside [0, 1]. As `torch.nn.functional.dropout`.

    >>> import lazyt as lt
    >>> lt.nn.functional.dropout(lt.asarray([1.0, 2.0]), 1.0).tolist()
    [0.0, 0.0]
    """
    rate = rate_of("dropout", p)
    if not training or p == 0:
        return tensor(x)
    return out_of(x, record(DROPOUT, (x, *rate, *(generator or default_generator()).step())), inplace)


def _channels(name: str, x: Tensor, lone: int | None) -> tuple[int, ...]:
    """The shape of one number a channel; an input of `lone` dimensions has no axis of samples."""
    if x.ndim < 2:
        raise ShapeError(f"{name}: an input of at least 2 dimensions is required, got {x.shape}")
    lead = 1 if x.ndim == lone else 2
    return (*x.shape[:lead], *(1,) * (x.ndim - lead))


def _by_channel(
    name: str, x: Any, p: float, training: bool, spatial: int, inplace: bool, generator: Generator | None
) -> Tensor:
    rate = rate_of(name, p)
    t = floating(name, x)
    if t.ndim not in (spatial + 1, spatial + 2) and (spatial, t.ndim) != (2, 2):
        raise ShapeError(f"{name}: an input of {spatial + 1} or {spatial + 2} dimensions is required, got {t.shape}")
    if not training or p == 0:
        return t
    kept = ones(_channels(name, t, spatial + 1), dtype=t.dtype, device=t.device)
    zeroed = read_for(t, inplace) * record(DROPOUT, (kept, *rate, *(generator or default_generator()).step()))
    return out_of(x, zeroed, inplace)


def dropout1d(
    x: Any, p: float = 0.5, training: bool = True, inplace: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """`dropout` of whole channels of (N, C, L) or (C, L).

    Raises ShapeError for a p outside [0, 1] and for other shapes, DTypeError unless floating. As
    `torch.nn.functional.dropout1d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.dropout1d(lt.ones((2, 3, 4)), 1.0).sum().item()
    0.0
    """
    return _by_channel("dropout1d", x, p, training, 1, inplace, generator)


def dropout2d(
    x: Any, p: float = 0.5, training: bool = True, inplace: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """`dropout` of whole channels of (N, C, H, W) or (C, H, W), and of (N, C), where PyTorch warns.

    Raises ShapeError for a p outside [0, 1] and for other shapes, DTypeError unless floating. As
    `torch.nn.functional.dropout2d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.dropout2d(lt.ones((2, 3, 4, 4)), 1.0).sum().item()
    0.0
    """
    return _by_channel("dropout2d", x, p, training, 2, inplace, generator)


def dropout3d(
    x: Any, p: float = 0.5, training: bool = True, inplace: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """`dropout` of whole channels of (N, C, D, H, W) or (C, D, H, W).

    Raises ShapeError for a p outside [0, 1] and for other shapes, DTypeError unless floating. As
    `torch.nn.functional.dropout3d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.dropout3d(lt.ones((2, 3, 4, 4, 4)), 1.0).sum().item()
    0.0
    """
    return _by_channel("dropout3d", x, p, training, 3, inplace, generator)


def _alpha(
    name: str, x: Any, p: float, training: bool, channels: bool, inplace: bool, generator: Generator | None
) -> Tensor:
    rate, _ = rate_of(name, p)
    t = floating(name, x)
    shape = _channels(name, t, None) if channels else t.shape
    if not training or p == 0:
        return t
    if p == 1:
        return out_of(x, t * 0.0, inplace)
    # 1 where an element is kept, 0 where it becomes the floor; then an affine function restores mean and variance.
    kept = record(
        DROPOUT, (ones(shape, dtype=t.dtype, device=t.device), rate, 1.0, *(generator or default_generator()).step())
    )
    scale = 1 / math.sqrt((_FLOOR**2 * p + 1) * (1 - p))
    y = read_for(t, inplace) * (kept * scale) + ((kept - 1) * (-_FLOOR * scale) - scale * _FLOOR * p)
    return out_of(x, y, inplace)


def alpha_dropout(
    x: Any, p: float = 0.5, training: bool = False, inplace: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """Dropout for selu: elements become its negative limit, and mean 0 and variance 1 are kept.

    Raises ShapeError for a p outside [0, 1], DTypeError unless floating. As `torch.nn.functional.alpha_dropout`.
    Klambauer et al. (2017).

    >>> import lazyt as lt
    >>> lt.nn.functional.alpha_dropout(lt.ones(2), 1.0, training=True).tolist()
    [0.0, 0.0]
    """
    return _alpha("alpha_dropout", x, p, training, False, inplace, generator)


def feature_alpha_dropout(
    x: Any, p: float = 0.5, training: bool = False, inplace: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """`alpha_dropout` of whole channels of (N, C, ...).

    Raises ShapeError for a p outside [0, 1] and for fewer than 2 dimensions, DTypeError unless floating. As
    `torch.nn.functional.feature_alpha_dropout`.

    >>> import lazyt as lt
    >>> lt.nn.functional.feature_alpha_dropout(lt.ones((1, 2, 3)), 0.5).shape
    (1, 2, 3)
    """
    return _alpha("feature_alpha_dropout", x, p, training, True, inplace, generator)
