"""Winograd's convolutions F(4 x 4, 3 x 3): their matrices, and what the calls that compute them mean.

A tile of 4 x 4 places of a convolution with a window of 3 x 3 is

    A^T [(G w G^T) * (B^T x B)] A        of 6 x 6 elements of x; summed over the channels between the brackets

Each of the 36 products is a matrix product over tiles, channels and features: a quarter of the multiply-adds of the
window. The derivative by w is  G^T [(A y A^T) * (B^T x B)] G,  summed over the tiles.

Source: Lavin, Gray: Fast Algorithms for Convolutional Neural Networks (2015). The matrices are Cook and Toom's for
other points: of those tried, these round least (`tests/ir/test_winograd.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

# Where polynomials are evaluated; the last point is infinity.
POINTS = (0.0, 0.75, -0.75, 1.5, -1.5)
# The places of a tile along an axis, the window's, and the elements that a tile reads.
PLACES, WINDOW, SIZE = 4, 3, 6
PLANES = SIZE * SIZE
# Features of a panel of filters.
PANEL = 64
# Sums over tiles are added up in so many chunks, whatever the threads are.
CHUNKS = 16

Matrix = tuple[tuple[float, ...], ...]


def _evaluated(n: int) -> Matrix:
    """A polynomial of n coefficients at each point: (6, n)."""
    return (*(tuple(p**i for i in range(n)) for p in POINTS), tuple(float(i == n - 1) for i in range(n)))


def _scales() -> tuple[float, ...]:
    """The product of each point's distances from the others; 1 at infinity."""
    found = []
    for i, p in enumerate(POINTS):
        scale = 1.0
        for q in (*POINTS[:i], *POINTS[i + 1 :]):
            scale *= p - q
        found.append(scale)
    return (*found, 1.0)


def _interpolated() -> Matrix:
    """Of each point the coefficients of the polynomial that is 0 at all others: (6, 6)."""
    found = []
    for i in range(SIZE):
        polynomial = [1.0]
        for p in (*POINTS[:i], *POINTS[i + 1 :]):
            shifted = [0.0, *polynomial]
            polynomial = [a - p * b for a, b in zip(shifted, [*polynomial, 0.0], strict=True)]
        found.append((*polynomial, *(0.0,) * (SIZE - len(polynomial))))
    return tuple(found)


def _transposed(m: Matrix) -> Matrix:
    return tuple(zip(*m, strict=True))


A = _evaluated(PLACES)  # (6, 4)
G: Matrix = tuple(tuple(x / s for x in row) for row, s in zip(_evaluated(WINDOW), _scales(), strict=True))  # (6, 3)
BT = _interpolated()
# What a call applies to both axes of the elements that a tile reads ("slope": those of a derivative by the places),
# and of the sums that a tile has.
READ: dict[str, Matrix] = {"image": BT, "slope": A, "filter": G}
WRITTEN: dict[str, Matrix] = {"image": _transposed(A), "filter": _transposed(G)}


def tiles(x: Array, kind: str, padding: tuple[int, int], counts: tuple[int, int]) -> Array:
    """(N, C, H, W) gives (36, N * tiles, C): tiles between two matrices; there are `counts` of them along each axis."""
    matrix = np.array(READ[kind], x.dtype)
    window = matrix.shape[1]
    wide = tuple((n - 1) * PLACES + window for n in counts)
    framed = np.zeros((*x.shape[:2], *wide), x.dtype)
    (top, left), (height, width) = padding, x.shape[2:]
    framed[:, :, top : top + height, left : left + width] = x
    windows = sliding_window_view(framed, (window, window), axis=(2, 3))[:, :, ::PLACES, ::PLACES]
    found: Array = np.einsum("ai,nctuij,bj->abntuc", matrix, windows, matrix, optimize=True)
    return found.reshape(PLANES, -1, x.shape[1])


def filters(w: Array) -> Array:
    """(O, C, 3, 3) gives (panels, 36, C, 64): panels of features, the last one filled up with zeros."""
    matrix, (features, channels) = np.array(G, w.dtype), w.shape[:2]
    panels = -(-features // PANEL)
    found = np.zeros((PLANES, channels, panels * PANEL), w.dtype)
    planes = np.einsum("ai,ocij,bj->abco", matrix, w, matrix, optimize=True)
    found[:, :, :features] = planes.reshape(PLANES, channels, features)
    return found.reshape(PLANES, channels, panels, PANEL).transpose(2, 0, 1, 3)


def convolve(
    x: Array, panels: Array, padding: tuple[int, int], counts: tuple[int, int], shape: tuple[int, int, int]
) -> Array:
    """(N, C, H, W) with panels of filters gives (N, *shape): features, and places along both axes."""
    n, (down, right), (features, height, width) = len(x), counts, shape
    planes = panels.transpose(1, 2, 0, 3).reshape(PLANES, x.shape[1], -1)
    sums = tiles(x, "image", padding, counts) @ planes[:, :, :features]
    matrix = np.array(WRITTEN["image"], x.dtype)
    apart = sums.reshape(SIZE, SIZE, n, down, right, features)
    found: Array = np.einsum("ia,abntuo,jb->notiuj", matrix, apart, matrix, optimize=True)
    return found.reshape(n, features, down * PLACES, right * PLACES)[:, :, :height, :width]


def filter_sums(x: Array, y: Array, padding: tuple[int, int], counts: tuple[int, int]) -> Array:
    """(N, C, H, W) and (N, O, ..) give (CHUNKS, 36, C, O): the sums over the tiles of each chunk of their rows."""
    n, (down, right) = len(x), counts
    read, slopes = (t.reshape(PLANES, n * down, right, -1) for t in (
        tiles(x, "image", padding, counts), tiles(y, "slope", (0, 0), counts)
    ))  # fmt: skip
    step = -(-n * down // CHUNKS)
    parts = [slice(i * step, (i + 1) * step) for i in range(CHUNKS)]
    return np.stack([np.einsum("ktuc,ktuo->kco", read[:, p], slopes[:, p], optimize=True) for p in parts])


def filter_slope(sums: Array) -> Array:
    """(36, C, O) gives (C, 3, 3, O)."""
    matrix = np.array(WRITTEN["filter"], sums.dtype)
    apart = sums.reshape(SIZE, SIZE, *sums.shape[1:])
    found: Array = np.einsum("ia,abco,jb->cijo", matrix, apart, matrix, optimize=True)
    return found
