"""softmax and its kin under PyTorch's names and arguments, for `lazyt.nn.functional`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.functions import random, statistics
from lazyt.functions.arguments import tensor
from lazyt.functions.arithmetic import maximum
from lazyt.functions.creation import zeros_like
from lazyt.functions.data_types import finfo
from lazyt.functions.elementwise import log
from lazyt.functions.indexing import put_along_axis
from lazyt.functions.loss_arguments import floating
from lazyt.functions.manipulation import astype
from lazyt.functions.reductions import argmax
from lazyt.tracing.autocast import autocasts

if TYPE_CHECKING:
    from lazyt.runtime.tensor import Tensor

__all__ = ["gumbel_softmax", "log_softmax", "softmax", "softmin"]


@autocasts("softmax")
def softmax(x: Any, /, dim: Any = -1, *, dtype: Any = None, axis: Any = None) -> Tensor:
    """exp(x) / sum(exp(x)) over `dim` (or `axis`), by default the last, without overflow; x is cast to `dtype` before.

    Raises AxisError for a bad axis, DTypeError for complex values. As `torch.nn.functional.softmax`.

    >>> import lazyt as lt
    >>> lt.nn.functional.softmax(lt.asarray([[0.0, 0.0]]), dim=1).tolist()
    [[0.5, 0.5]]
    """
    return statistics.softmax(x if dtype is None else astype(x, dtype), axis=dim if axis is None else axis)


@autocasts("log_softmax")
def log_softmax(x: Any, /, dim: Any = -1, *, dtype: Any = None, axis: Any = None) -> Tensor:
    """log(softmax(x)) over `dim` (or `axis`), by default the last, exact where softmax is tiny.

    Raises AxisError for a bad axis, DTypeError for complex values. As `torch.nn.functional.log_softmax`.

    >>> import lazyt as lt
    >>> lt.nn.functional.log_softmax(lt.asarray([0.0, 200.0]), dim=0).tolist()
    [-200.0, 0.0]
    """
    return statistics.log_softmax(x if dtype is None else astype(x, dtype), axis=dim if axis is None else axis)


def softmin(x: Any, /, dim: int | None = -1, *, dtype: Any = None) -> Tensor:
    """softmax(-x). Raises AxisError for a bad axis. As `torch.nn.functional.softmin`.

    >>> import lazyt as lt
    >>> lt.nn.functional.softmin(lt.asarray([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """
    t = tensor(x) if dtype is None else astype(x, dtype)
    return softmax(-t, dim)


def gumbel_softmax(
    logits: Any,
    tau: float = 1.0,
    hard: bool = False,
    eps: float = 1e-10,
    dim: int = -1,
    *,
    generator: random.Generator | None = None,
) -> Tensor:
    """A sample of the Gumbel-softmax distribution: softmax((logits + noise) / tau).

    With `hard`, one-hot vectors whose gradient is that of the soft ones. `eps` has no effect. Raises DTypeError unless
    floating. As `torch.nn.functional.gumbel_softmax`. Jang et al. (2017), Maddison et al. (2017).

    >>> import lazyt as lt
    >>> lt.nn.functional.gumbel_softmax(lt.asarray([[0.0, 0.0, 1000.0]]), hard=True).tolist()
    [[0.0, 0.0, 1.0]]
    """
    t = floating("gumbel_softmax", logits)
    # -log of a number in (0, 1] is exponential; -log of that is Gumbel. -log(1) is 0, which becomes half a step of u.
    half = float(finfo(t.dtype).eps) / 4
    u = 1 - random.uniform(0.0, 1.0, t.shape, dtype=t.dtype, generator=generator).to(device=t.device)
    soft = softmax((t - log(maximum(-log(u), half))) / tau, dim)
    if not hard:
        return soft
    found = argmax(soft, axis=dim, keepdims=True)
    one = put_along_axis(zeros_like(soft), found, 1.0, axis=dim)
    return (one - soft.detach()) + soft
