"""Channels moved into the image and back, and channels in another order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import ShapeError
from lazyt.functions.arguments import tensor
from lazyt.functions.manipulation import permute_dims, reshape
from lazyt.ops.axes import integer

if TYPE_CHECKING:
    from lazyt.runtime.tensor import Tensor

__all__ = ["channel_shuffle", "native_channel_shuffle", "pixel_shuffle", "pixel_unshuffle"]


def pixel_shuffle(x: Any, upscale_factor: int) -> Tensor:
    """(..., C * r * r, H, W) as (..., C, H * r, W * r), r being the factor.

    Raises ShapeError unless r * r divides the channels. As `torch.nn.functional.pixel_shuffle`.

    >>> import lazyt as lt
    >>> lt.nn.functional.pixel_shuffle(lt.arange(4.0).reshape(4, 1, 1), 2).tolist()
    [[[0.0, 1.0], [2.0, 3.0]]]
    """
    t, r = tensor(x), integer("pixel_shuffle", "upscale_factor", upscale_factor)
    if t.ndim < 3 or r < 1 or t.shape[-3] % (r * r):
        raise ShapeError(f"pixel_shuffle: a factor {r} is for (..., C * {r * r}, H, W), got shape {t.shape}")
    *lead, c, h, w = t.shape
    k = len(lead)
    apart = permute_dims(reshape(t, (*lead, c // (r * r), r, r, h, w)), (*range(k + 1), k + 3, k + 1, k + 4, k + 2))
    return reshape(apart, (*lead, c // (r * r), h * r, w * r))


def pixel_unshuffle(x: Any, downscale_factor: int) -> Tensor:
    """(..., C, H * r, W * r) as (..., C * r * r, H, W), r being the factor.

    Raises ShapeError unless r divides the last two extents. As `torch.nn.functional.pixel_unshuffle`.

    >>> import lazyt as lt
    >>> lt.nn.functional.pixel_unshuffle(lt.arange(4.0).reshape(1, 2, 2), 2).tolist()
    [[[0.0]], [[1.0]], [[2.0]], [[3.0]]]
    """
    t, r = tensor(x), integer("pixel_unshuffle", "downscale_factor", downscale_factor)
    if t.ndim < 3 or r < 1 or t.shape[-1] % r or t.shape[-2] % r:
        raise ShapeError(f"pixel_unshuffle: a factor {r} is for (..., C, H * {r}, W * {r}), got shape {t.shape}")
    *lead, c, h, w = t.shape
    k = len(lead)
    apart = permute_dims(reshape(t, (*lead, c, h // r, r, w // r, r)), (*range(k + 1), k + 2, k + 4, k + 1, k + 3))
    return reshape(apart, (*lead, c * r * r, h // r, w // r))


def channel_shuffle(x: Any, groups: int) -> Tensor:
    """The channels (axis 1) in turn from each of so many groups.

    Raises ShapeError unless the groups divide the channels. As `torch.nn.functional.channel_shuffle`.

    >>> import lazyt as lt
    >>> lt.nn.functional.channel_shuffle(lt.arange(4.0).reshape(1, 4, 1), 2).tolist()
    [[[0.0], [2.0], [1.0], [3.0]]]
    """
    return _channel_shuffle("channel_shuffle", x, groups)


def native_channel_shuffle(x: Any, groups: int) -> Tensor:
    """`channel_shuffle` under another name. As `torch.nn.functional.native_channel_shuffle`.

    >>> import lazyt as lt
    >>> lt.nn.functional.native_channel_shuffle(lt.arange(4.0).reshape(1, 4, 1), 2).tolist()
    [[[0.0], [2.0], [1.0], [3.0]]]
    """
    return _channel_shuffle("native_channel_shuffle", x, groups)


def _channel_shuffle(name: str, x: Any, groups: int) -> Tensor:
    t, n = tensor(x), integer(name, "groups", groups)
    if t.ndim < 3 or n < 1 or t.shape[1] % n:
        raise ShapeError(f"{name}: {n} groups do not divide the channels of (N, C, ...), got shape {t.shape}")
    count, channels, *rest = t.shape
    apart = reshape(t, (count, n, channels // n, *rest))
    return reshape(permute_dims(apart, (0, 2, 1, *range(3, apart.ndim))), t.shape)
