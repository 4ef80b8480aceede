"""Windows of images as columns, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.functions.arguments import record
from lazyt.functions.windows import Size, each
from lazyt.ops import folding as ops

if TYPE_CHECKING:
    from lazyt.runtime.tensor import Tensor

__all__ = ["fold", "unfold"]


def _windows(name: str, kernel: Any, dilation: Any, padding: Any, stride: Any) -> tuple[tuple[int, ...], ...]:
    return (
        each(name, "kernel_size", kernel, 2, 1),
        each(name, "dilation", dilation, 2, 1),
        each(name, "padding", padding, 2, 0),
        each(name, "stride", stride, 2, 1),
    )


def unfold(x: Any, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1) -> Tensor:
    """Every window of (N, C, H, W) as a column: (N, C * kernel, L), or all without N.

    Raises ShapeError if no window fits. As `torch.nn.functional.unfold`.

    >>> import lazyt as lt
    >>> lt.nn.functional.unfold(lt.asarray([[[1.0, 2.0, 3.0]]]), (1, 2)).tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    return record(ops.UNFOLD, (x,), _windows("unfold", kernel_size, dilation, padding, stride))


def fold(
    x: Any, output_size: Size, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1
) -> Tensor:
    """The image (N, C, H, W) of `output_size` that columns (N, C * kernel, L) add up to, or all without N.

    What `unfold` would have read from one place is added. Raises ShapeError for columns that are not of that image. As
    `torch.nn.functional.fold`.

    >>> import lazyt as lt
    >>> lt.nn.functional.fold(lt.asarray([[1.0, 2.0], [2.0, 3.0]]), (1, 3), (1, 2)).tolist()
    [[[1.0, 4.0, 3.0]]]
    """
    extents = each("fold", "output_size", output_size, 2, 1)
    return record(ops.FOLD, (x,), (extents, *_windows("fold", kernel_size, dilation, padding, stride)))
