"""Programs of a batch of any size, by lazyt and by NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import lazyt as lt

RNG = np.random.default_rng(0)


Pair = tuple[lt.Tensor, Any]


CASES: dict[str, Callable[[int], Pair]] = {}


def case(f: Callable[[int], Pair]) -> Callable[[int], Pair]:
    CASES[f.__name__] = f
    return f


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


W = normal(6, 4)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True, initial=-np.inf))
    return e / e.sum(-1, keepdims=True)


@case
def elementwise(b: int) -> Pair:
    x, c = normal(b, 6), normal(6)
    return lt.tanh(lt.asarray(x)) * 2 + lt.asarray(c), np.tanh(x) * 2 + c


@case
def softmax_rows(b: int) -> Pair:
    x = normal(b, 6)
    return lt.softmax(lt.asarray(x), axis=-1), softmax(x)


@case
def normalised_rows(b: int) -> Pair:
    x = normal(b, 6)
    want = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    return lt.layer_norm(lt.asarray(x), (6,)), want


@case
def columns(b: int) -> Pair:
    x = normal(b, 6)
    return (lt.relu(lt.asarray(x) @ lt.asarray(W)) * 2).sum(axis=0), (np.maximum(x @ W, 0) * 2).sum(0)


@case
def cross_entropy(b: int) -> Pair:
    b = max(b, 1)
    x, y = normal(b, 6), RNG.integers(0, 6, b)
    return lt.cross_entropy(lt.asarray(x), lt.asarray(y)), -np.log(softmax(x)[np.arange(b), y]).mean()


@case
def merged_axes(b: int) -> Pair:
    x = normal(b, 3, 6)
    return (lt.asarray(x).reshape(-1, 6) @ lt.asarray(W)).reshape(b, 3, 4), x @ W


@case
def split_axes(b: int) -> Pair:
    x = normal(b * 6)
    return lt.asarray(x).reshape(b, 2, 3).sum(axis=1), x.reshape(b, 2, 3).sum(1)


@case
def split_and_merged(b: int) -> Pair:
    x = normal(b * 6)
    return (lt.asarray(x).reshape(b, 6).T * 2).reshape(6 * b), (x.reshape(b, 6).T * 2).reshape(-1)


@case
def attention_heads(b: int) -> Pair:
    x = normal(b, 5, 8)
    y = lt.asarray(x).reshape(b, 5, 2, 4).transpose(0, 2, 1, 3)
    n = x.reshape(b, 5, 2, 4).transpose(0, 2, 1, 3)
    got = lt.softmax(y @ y.transpose(0, 1, 3, 2), axis=-1) @ y
    return got.transpose(0, 2, 1, 3).reshape(b, 5, 8), (softmax(n @ n.swapaxes(2, 3)) @ n).transpose(
        0, 2, 1, 3
    ).reshape(b, 5, 8)


@case
def swapped_and_merged(b: int) -> Pair:
    x = normal(b, 3, 4)
    return (lt.asarray(x).swapaxes(0, 1) * 2).reshape(3 * b, 4) + 1, (x.swapaxes(0, 1) * 2).reshape(-1, 4) + 1


@case
def concatenated(b: int) -> Pair:
    x, y = normal(b, 3), normal(b + 1, 3)
    return lt.concat([lt.asarray(x), lt.asarray(y) * 2, lt.asarray(x)]) + 1, np.concatenate([x, y * 2, x]) + 1


@case
def stacked(b: int) -> Pair:
    x = normal(b, 3)
    y = lt.asarray(x)
    return lt.stack([y, y * 2], axis=1).reshape(b, 6), np.stack([x, x * 2], 1).reshape(b, 6)


@case
def sliced(b: int) -> Pair:
    x = normal(2 * b + 2, 3)
    y = lt.asarray(x)
    return y[: b + 1] * y[b + 1 :] - y[::2] + y[::-1][: b + 1], x[: b + 1] * x[b + 1 :] - x[::2] + x[::-1][: b + 1]


@case
def padded(b: int) -> Pair:
    x = normal(b, 3)
    return lt.pad(lt.asarray(x), ((1, 2), (0, 1))) + 1, np.pad(x, ((1, 2), (0, 1))) + 1


@case
def flipped_and_rolled(b: int) -> Pair:
    x = normal(b, 3)
    return lt.flip(lt.asarray(x), axis=0) + lt.roll(lt.asarray(x), 1, axis=0), x[::-1] + np.roll(x, 1, 0)


@case
def repeated_and_tiled(b: int) -> Pair:
    x = normal(b, 3)
    return lt.repeat(lt.asarray(x), 2, axis=0) + lt.tile(lt.asarray(x), (2, 1)), np.repeat(x, 2, 0) + np.tile(x, (2, 1))


@case
def written(b: int) -> Pair:
    x = normal(b + 2, 6)
    y, z = lt.asarray(x) + 0, x.copy()
    for a in (y, z):
        a[1:-1] += 5
        a[:, 2] *= 3
        a[::-1, 4] = a[:, 5]
        a[a > 1] = 0
    return y, z


@case
def made(b: int) -> Pair:
    return lt.arange(b) * 2.0 + lt.ones((b,)) + lt.eye(b).sum(axis=0), np.arange(b) * 2.0 + 2


@case
def causal(b: int) -> Pair:
    x = normal(b, b)
    mask = lt.tril(lt.ones((b, b), dtype="bool"))
    return lt.where(mask, lt.asarray(x), -9.0), np.where(np.tri(b, dtype=bool), x, -9)


@case
def scanned(b: int) -> Pair:
    x = normal(b, 3)
    return lt.cumsum(lt.asarray(x), axis=0) + 1, np.cumsum(x, 0) + 1


@case
def gathered(b: int) -> Pair:
    i = RNG.integers(-6, 6, (b, 3))
    return lt.asarray(W)[lt.asarray(i)].sum(axis=1), W[i].sum(1)


@case
def one_hot(b: int) -> Pair:
    i = RNG.integers(0, 6, b)
    return lt.one_hot(lt.asarray(i), 6) * 1.0, np.eye(6)[i]


@case
def split_in_two(b: int) -> Pair:
    x = normal(2 * b, 6)
    p, q = lt.split(lt.asarray(x), 2)
    return p * q, x[:b] * x[b:]


@case
def convolved(b: int) -> Pair:
    x = normal(b, 1, 8, 8)
    y = np.lib.stride_tricks.sliding_window_view(x[:, 0], (3, 3), axis=(1, 2)).sum((-1, -2))
    got = lt.relu(lt.conv2d(lt.asarray(x), lt.ones((2, 1, 3, 3))))
    return got.reshape(b, 72), np.maximum(np.stack([y, y], 1), 0).reshape(b, 72)


@case
def pooled(b: int) -> Pair:
    x = normal(b, 2, 8, 8)
    return lt.max_pool2d(lt.asarray(x), 2).reshape(b, 32), x.reshape(b, 2, 4, 2, 4, 2).max((3, 5)).reshape(b, 32)


@case
def contracted(b: int) -> Pair:
    x = normal(b, 5, 6)
    return lt.einsum("btc,cd->bd", lt.asarray(x), lt.asarray(W)), np.einsum("btc,cd->bd", x, W)
