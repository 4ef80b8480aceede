"""Operands that lie anyhow: views with steps, backwards, transposed, of lines of one element, beside their copies."""

from __future__ import annotations

import random

import numpy as np
import pytest

import lazyt as lt

F = lt.nn.functional
# The shapes of operands, in letters that stand for extents; `W` is as much as a window, of K, and more.
CALLS = {
    "attention": (F.scaled_dot_product_attention, "BHLE BHSE BHSE"),
    "attention of matrices": (F.scaled_dot_product_attention, "BLE BSE BSE"),
    "conv1d": (F.conv1d, "BHW LHK"),
    "conv2d": (F.conv2d, "BHWW LHKK"),
    "conv2d with steps": (lambda x, w: F.conv2d(x, w, stride=2, padding=1), "BHWW LHKK"),
    "matmul": (lt.matmul, "BLE BES"),
    "matmul by one": (lt.matmul, "BLE ES"),
    "matmul of all pairs": (lambda x, y: x[:, None] @ y[None], "BLE HES"),
    "matmul and more": (lambda x, y, z: F.relu(x @ y + z), "LE ES S"),
    "matmul, transposed": (lambda x, y: (x @ y).T * 2, "LE ES"),
    "gram": (lambda x: x @ x.T, "LE"),
    "matrix by vector": (lt.matmul, "LE E"),
    "vector by matrix": (lt.matmul, "E ES"),
    "linear": (F.linear, "BLE SE S"),
    "einsum": (lambda x, y: lt.einsum("bij,bkj->ik", x, y), "BLE BSE"),
    "outer": (lt.outer, "L S"),
    "tensordot": (lambda x, y: lt.tensordot(x, y, axes=([0, 1], [1, 0])), "BLE LBS"),
    "cumsum": (lambda x: lt.cumsum(x, axis=1), "BLE"),
    "sort": (lambda x: lt.sort(x, axis=0), "BL"),
    "softmax": (lambda x: F.softmax(x, -1), "BLE"),
    "std": (lambda x: lt.std(x, axis=0), "BLE"),
    "fft": (lambda x: lt.fft.fft(x, axis=0), "LE"),
    "solve": (lambda x, y: lt.linalg.solve(x @ x.mT + lt.eye(x.shape[0], dtype=x.dtype), y), "LE L"),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), "BHVV"),
    "take": (lambda x: x[lt.asarray([0, -1])], "BLE"),
    "concat": (lambda x, y: lt.concat([x, y], axis=1), "BL BS"),
}


def view(rng: random.Random, values: np.random.Generator, shape: tuple[int, ...], dtype: str):
    """A larger array, the key that takes an array of this shape out of it, and how its axes are then turned."""
    turned = list(range(len(shape)))
    if rng.random() < 0.5:
        rng.shuffle(turned)
    extents, key = [], []
    for axis in turned:
        n, step, first = shape[axis], rng.choice([1, 1, 2, 3, -1]), rng.choice([0, 0, 1])
        extents.append((n - 1) * abs(step) + 1 + first + rng.choice([0, 0, 1]))
        backwards = slice(first + n - 1, first - 1 if first else None, -1)
        key.append(slice(first, first + (n - 1) * step + 1, step) if step > 0 else backwards)
    return values.standard_normal(extents).astype(dtype), tuple(key), tuple(map(turned.index, range(len(shape))))


@pytest.mark.parametrize("name", CALLS)
def test_a_view_is_read_as_its_copy_is(name: str) -> None:
    call, operands = CALLS[name]
    rng, values = random.Random(name), np.random.default_rng(len(name))
    for _ in range(40):
        sizes = {letter: rng.choice([1, 1, 2, 3, 5, 17]) for letter in "BHLSE"}
        sizes |= {"K": rng.choice([1, 2, 3]), "V": rng.choice([2, 5])}
        sizes["W"] = sizes["K"] + rng.choice([0, 1, 6])
        dtype = rng.choice(["float32", "float64"])
        views = [view(rng, values, tuple(sizes[x] for x in shape), dtype) for shape in operands.split()]
        copies = [np.ascontiguousarray(np.transpose(a[key], turned)) for a, key, turned in views]
        want = call(*map(lt.asarray, copies)).numpy()
        for _ in range(2):
            xs = [lt.permute_dims(lt.asarray(a)[key], turned) for a, key, turned in views]
            got = call(*xs).numpy()
            np.testing.assert_allclose(
                got, want, rtol=1e-3, atol=1e-3, err_msg=f"{[(a.shape, *how) for a, *how in views]}"
            )
