"""The convolutions that `benchmarks.convolutions` measures: sixty shapes of known networks, and NumPy's answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """A layer on `n` square images of `channels` x `size` x `size`."""

    n: int
    channels: int
    out: int
    size: int
    kernel: int
    stride: int = 1
    padding: int = -1  # -1: half of the kernel
    groups: int = 1
    dilation: int = 1
    transposed: bool = False

    @property
    def pad(self) -> int:
        return self.kernel // 2 * self.dilation if self.padding < 0 else self.padding

    @property
    def name(self) -> str:
        text = f"{self.n}x{self.channels}x{self.size} -> {self.out} k{self.kernel}"
        text += f" s{self.stride}" * (self.stride > 1) + f" g{self.groups}" * (self.groups > 1)
        return text + f" d{self.dilation}" * (self.dilation > 1) + " transposed" * self.transposed

    @property
    def filters(self) -> tuple[int, ...]:
        """The shape of the filters, as PyTorch has them."""
        n, out = (self.channels, self.out) if self.transposed else (self.out, self.channels)
        return (n, out // self.groups, self.kernel, self.kernel)

    @property
    def result(self) -> tuple[int, ...]:
        reach = self.dilation * (self.kernel - 1)
        if self.transposed:
            size = (self.size - 1) * self.stride + reach + 1 - 2 * self.pad
        else:
            size = (self.size + 2 * self.pad - reach - 1) // self.stride + 1
        return (self.n, self.out, size, size)

    def quick(self) -> Case:
        """The same layer with few channels on few small images."""
        groups = self.groups if self.groups == 1 else 4 if self.groups == self.channels else 2
        channels, out = (min(x, 4) for x in (self.channels, self.out))
        return dataclasses.replace(
            self, n=min(self.n, 2), channels=channels, out=out, size=min(self.size, max(7, self.kernel)), groups=groups
        )


def _depthwise(n: int, channels: int, size: int, kernel: int, stride: int = 1) -> Case:
    return Case(n, channels, channels, size, kernel, stride, groups=channels)


def _transposed(n: int, channels: int, out: int, size: int, kernel: int, stride: int, padding: int) -> Case:
    return Case(n, channels, out, size, kernel, stride, padding, transposed=True)


CASES: tuple[Case, ...] = (
    # 3 x 3, of small images and of 224 x 224 at each stage, many images and one
    Case(32, 64, 64, 32, 3), Case(32, 128, 128, 16, 3), Case(32, 128, 128, 8, 3), Case(32, 256, 256, 8, 3),
    Case(32, 256, 256, 4, 3), Case(32, 512, 512, 4, 3), Case(8, 64, 64, 56, 3), Case(8, 128, 128, 28, 3),
    Case(8, 256, 256, 14, 3), Case(8, 512, 512, 7, 3), Case(1, 64, 64, 56, 3), Case(1, 256, 256, 14, 3),
    Case(1, 512, 512, 7, 3), Case(32, 3, 32, 32, 3), Case(32, 3, 64, 32, 3), Case(64, 1, 16, 28, 3),
    Case(64, 16, 32, 14, 3), Case(64, 32, 64, 7, 3), Case(8, 32, 32, 64, 3), Case(8, 128, 64, 32, 3),
    # the same, of stride 2
    Case(32, 32, 64, 32, 3, 2), Case(32, 64, 128, 16, 3, 2), Case(32, 128, 256, 16, 3, 2), Case(32, 256, 512, 8, 3, 2),
    Case(8, 64, 128, 56, 3, 2), Case(8, 3, 32, 224, 3, 2),
    # larger kernels; patches
    Case(8, 3, 64, 224, 7, 2), Case(8, 3, 64, 112, 7, 2), Case(1, 3, 64, 224, 7, 2), Case(16, 64, 64, 16, 5),
    Case(16, 32, 64, 32, 5, 2), Case(4, 3, 384, 224, 16, 16, 0), Case(64, 32, 64, 16, 4, 2, 1),
    # 1 x 1
    Case(32, 64, 64, 32, 1), Case(32, 256, 64, 16, 1), Case(32, 64, 256, 16, 1), Case(32, 512, 128, 8, 1),
    Case(8, 256, 512, 14, 1), Case(32, 64, 128, 32, 1, 2), Case(32, 256, 512, 8, 1, 2), Case(1, 256, 1024, 14, 1),
    # dilated; in groups
    Case(8, 64, 64, 32, 3, dilation=2), Case(8, 64, 64, 32, 3, dilation=4), Case(16, 64, 128, 16, 3, groups=4),
    Case(32, 128, 128, 16, 3, groups=32), Case(32, 256, 256, 16, 3, 2, groups=32),
    # depthwise
    _depthwise(16, 64, 32, 3), _depthwise(64, 32, 32, 3), _depthwise(64, 64, 32, 3, 2), _depthwise(64, 256, 8, 3),
    _depthwise(8, 96, 112, 3, 2), _depthwise(8, 144, 56, 3), _depthwise(32, 192, 14, 5), _depthwise(8, 96, 28, 7),
    # transposed
    _transposed(64, 64, 128, 1, 4, 1, 0), _transposed(64, 128, 64, 4, 4, 2, 1), _transposed(64, 32, 3, 16, 4, 2, 1),
    _transposed(32, 64, 32, 16, 3, 2, 1), _transposed(8, 128, 64, 16, 2, 2, 0), _transposed(4, 64, 64, 32, 3, 1, 1),
)  # fmt: skip


# --- NumPy, in the precision of the operands: one place of the kernel after another


def _places(case: Case, size: int) -> Iterator[tuple[int, int, Any]]:
    """For each place of the kernel the pixels of the padded images that it meets, for `size` results a side."""
    for i in range(case.kernel):
        for j in range(case.kernel):
            at = (slice(k * case.dilation, k * case.dilation + case.stride * size, case.stride) for k in (i, j))
            yield i, j, (..., *at)


def _grouped(x: Array, groups: int) -> Array:
    """(N, C, H, W) -> (groups, N, C / groups, H, W)"""
    return x.reshape(len(x), groups, -1, *x.shape[2:]).swapaxes(0, 1)


def _forward(case: Case, x: Array, w: Array) -> Array:
    x, w = _grouped(_padded(case, x), case.groups), w.reshape(case.groups, -1, *w.shape[1:])
    size = ((x.shape[-1] - case.dilation * (case.kernel - 1) - 1) // case.stride) + 1
    y: Any = 0.0
    for i, j, at in _places(case, size):
        pixels = x[at][..., :size, :size]
        y = y + w[:, None, :, :, i, j] @ pixels.reshape(*pixels.shape[:3], -1)
    return y.swapaxes(0, 1).reshape(x.shape[1], -1, size, size)  # type: ignore[no-any-return]


def _padded(case: Case, x: Array) -> Array:
    return np.pad(x, ((0, 0), (0, 0), (case.pad, case.pad), (case.pad, case.pad)))


def _backward(case: Case, g: Array, x_shape: tuple[int, ...], w: Array) -> Array:
    """The gradient to the images."""
    found = np.zeros((*x_shape[:2], *(n + 2 * case.pad for n in x_shape[2:])), g.dtype)
    parts, size = _grouped(found, case.groups), g.shape[-1]  # a view
    g, w = _grouped(g, case.groups), w.reshape(case.groups, -1, *w.shape[1:])
    flat = g.reshape(*g.shape[:3], -1)
    for i, j, at in _places(case, size):
        parts[at] += (w[:, None, :, :, i, j].swapaxes(-1, -2) @ flat).reshape(parts[at].shape)
    return found[:, :, case.pad : case.pad + x_shape[2], case.pad : case.pad + x_shape[3]]


def _filters(case: Case, g: Array, x: Array, w: Array) -> Array:
    """The gradient to the filters."""
    x, found = _grouped(_padded(case, x), case.groups), np.empty_like(w)
    size, g = g.shape[-1], _grouped(g, case.groups)
    parts = found.reshape(case.groups, -1, *w.shape[1:])
    for i, j, at in _places(case, size):
        pixels = x[at].reshape(*x.shape[:3], -1)
        parts[..., i, j] = (g.reshape(*g.shape[:3], -1) @ pixels.swapaxes(-1, -2)).sum(1)
    return found


def reference(case: Case, x: Array, w: Array, g: Array) -> tuple[Array, Array, Array]:
    """The result, and the gradients to images and filters from the result's `g`."""
    if case.transposed:  # the same three functions with images and results exchanged
        return _backward(case, x, case.result, w), _forward(case, g, w), _filters(case, x, g, w)
    return _forward(case, x, w), _backward(case, g, x.shape, w), _filters(case, g, x, w)
