"""Windows of arrays: values, gradients, and that what is not read is not computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.ir import adjoints
from lazyt.torch.methods import unfold

# Extent, size and step: with and without an overlap, with elements behind the last window, of few blocks and of many.
CASES = [
    (9, 3, 1), (9, 3, 2), (9, 2, 4), (90, 40, 1), (90, 40, 7), (90, 40, 10), (91, 40, 13), (90, 40, 40), (95, 40, 47),
    (40, 40, 3), (90, 70, 1), (99, 67, 1), (301, 140, 2), (70, 70, 1),
]  # fmt: skip


def windows_of(x: np.ndarray, axis: int, size: int, step: int) -> np.ndarray:
    found = np.lib.stride_tricks.sliding_window_view(x, size, axis=axis)
    return found[(slice(None),) * axis + (slice(None, None, step),)]


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(("extent", "size", "step"), CASES)
def test_unfold_and_its_gradient(extent: int, size: int, step: int, axis: int) -> None:
    shape = tuple(extent if i == axis else 2 for i in range(3))
    x = np.arange(np.prod(shape), dtype=np.float64).reshape(shape) % 13
    t = lt.asarray(x)
    t.requires_grad = True
    y = unfold(t, axis, size, step)
    want = windows_of(x, axis, size, step)
    weights = np.cos(np.arange(want.size, dtype=np.float64)).reshape(want.shape)
    (y * weights).sum().backward()
    np.testing.assert_array_equal(y.detach().numpy(), want)
    gradient = np.zeros_like(x)
    np.add.at(gradient, tuple(windows_of(i, axis, size, step) for i in np.indices(shape)), weights)
    np.testing.assert_allclose(t.grad.numpy(), gradient, rtol=1e-12, atol=1e-12)


def test_blocks_are_few_and_many() -> None:
    blocks = [-(-size // step) for _, size, step in CASES if size >= adjoints.LONG]
    assert min(blocks) == 1
    assert max(blocks) > adjoints.MANY_BLOCKS


def test_a_gradient_that_was_planned_for_another_extent() -> None:
    for n in (300, 301, 302, 311, 200):
        t = lt.ones((n,), dtype=lt.float64)
        t.requires_grad = True
        unfold(t, 0, 100, 9).sum().backward()
        want = np.zeros(n)
        np.add.at(want, windows_of(np.arange(n), 0, 100, 9), 1.0)
        np.testing.assert_array_equal(t.grad.numpy(), want)


def test_an_axis_twice_and_windows_of_nothing() -> None:
    x = np.arange(24.0).reshape(4, 6)
    for window, axis in (((2, 3), (1, 1)), ((0, 2), (0, 1)), (0, 1)):
        want = np.lib.stride_tricks.sliding_window_view(x, window, axis=axis)
        np.testing.assert_array_equal(lt.sliding_window_view(lt.asarray(x), window, axis).numpy(), want)


@pytest.mark.parametrize(
    "read",
    [
        lambda x: lt.sliding_window_view(x, 50, 1)[:, ::10],
        lambda x: unfold(x, -1, 50, 10),
        lambda x: lt.sliding_window_view(x, 50, 1)[:, 20:30, ::7],
    ],
)
def test_windows_that_are_not_read_are_not_computed(read: Any) -> None:
    x = lt.asarray(np.arange(2000.0).reshape(4, 500))
    # NOTE: a view that is held keeps its base: here none is.
    y = read(x).mean(axis=-1)
    assert len(y.explain().kernels) == 1


def test_unfold_computes_the_windows_it_returns() -> None:
    y = unfold(lt.asarray(np.arange(2000.0).reshape(4, 500)), -1, 50, 10)
    (kernel,) = y.explain().kernels
    assert f"{y.size:,} elements" in repr(kernel)


def test_what_unfold_refuses() -> None:
    x = lt.ones((4,))
    with pytest.raises(lt.ShapeError, match="unfold: a window of 5 does not fit into an extent of 4"):
        unfold(x, 0, 5, 1)
    for step in (0, -1):
        with pytest.raises(lt.ShapeError, match=f"unfold: a step of at least 1 is required, got {step}"):
            unfold(x, 0, 2, step)
