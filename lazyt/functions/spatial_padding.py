"""Padding in PyTorch's order: pairs of widths from the last axis on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import DTypeError, ShapeError
from lazyt.functions.arguments import record, tensor
from lazyt.functions.subscript import getitem
from lazyt.ops import joining as ops
from lazyt.ops.axes import integer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.runtime.tensor import Tensor

__all__ = ["pad"]

# PyTorch's modes, and what `lazyt.pad` calls them.
MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def pad(x: Any, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """x with more elements around: `pad` is (before, after) of the last axis, then of the one before it, and so on.

    Modes: 'constant' (`value`, by default 0), 'reflect', 'replicate' and 'circular'. The last three are for one to
    three axes, after one or two that stay. Negative widths remove elements. Raises ShapeError for widths that do not
    fit x. No view, whatever the widths are. As `torch.nn.functional.pad`; `lazyt.pad` has NumPy's order.

    >>> import lazyt as lt
    >>> lt.nn.functional.pad(lt.asarray([[1, 2, 3]]), (1, 2), "reflect").tolist()
    [[2, 1, 2, 3, 2, 1]]
    """
    return padded("pad", tensor(x), pad, mode, value)


def padded(name: str, t: Tensor, widths: Sequence[int], mode: str, value: float | None = None) -> Tensor:
    """`pad` for a function or a layer of this name."""
    if mode not in MODES:
        raise ShapeError(f"{name}: mode {mode!r} is not one of {', '.join(MODES)}")
    if value is not None and mode != "constant":
        raise ShapeError(f"{name}: mode {mode!r} takes no value, got {value!r}")
    if not isinstance(widths, tuple | list):
        raise DTypeError(f"{name}: pad is a sequence of widths, got {widths!r}")
    given = [integer(name, "pad", w) for w in widths]
    if len(given) % 2 or len(given) > 2 * t.ndim:
        raise ShapeError(f"{name}: pad is a pair for each of the last axes of shape {t.shape}, got {tuple(given)}")
    pairs = {t.ndim - 1 - i: (given[2 * i], given[2 * i + 1]) for i in range(len(given) // 2)}
    if mode != "constant" and not (len(pairs) in (1, 2, 3) and t.ndim - len(pairs) in (1, 2)):
        raise ShapeError(
            f"{name}: mode {mode!r} pads one to three axes after one or two others, got {len(pairs)} pairs for shape "
            f"{t.shape}"
        )
    for axis, pair in pairs.items():
        _check(name, t, axis, pair, mode)
    less = {a: (min(p, 0), min(q, 0)) for a, (p, q) in pairs.items() if min(p, q) < 0}
    more = {a: (max(p, 0), max(q, 0)) for a, (p, q) in pairs.items() if max(p, q) > 0}
    # What is taken away is still seen in a mirror, but does not come round again.
    if less and mode == "circular":
        t = _cropped(t, less)
    if more:
        order = tuple(sorted(more))
        t = record(ops.PAD, (t, value or 0), (MODES[mode], order), tuple(w for a in order for w in more[a]))
    if less and mode != "circular":
        t = _cropped(t, less)
    return t if more else t.clone()


def _check(name: str, t: Tensor, axis: int, pair: tuple[int, int], mode: str) -> None:
    n = t.shape[axis]
    if not any(pair):
        return
    if n + sum(pair) < (0 if mode == "constant" else 1) or n + min(*pair, 0) < 0:
        raise ShapeError(f"{name}: widths {pair} leave nothing of axis {axis} of shape {t.shape}")
    most = {"reflect": n - 1, "circular": n + sum(min(w, 0) for w in pair)}.get(mode)
    if most is not None and max(pair) > most:
        raise ShapeError(f"{name}: mode {mode!r} pads axis {axis} of shape {t.shape} by at most {most}, got {pair}")


def _cropped(t: Tensor, less: dict[int, tuple[int, int]]) -> Tensor:
    ends = [less.get(a, (0, 0)) for a in range(t.ndim)]
    return getitem(t, tuple(slice(-p, n + q) for n, (p, q) in zip(t.shape, ends, strict=True)))
