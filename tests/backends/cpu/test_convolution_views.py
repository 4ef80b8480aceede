"""Convolutions read parts of images and flipped filters where they lie, and the bits stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.ir.passes.call_operands import FEATURES, dense
from lazyt.ir.passes.schedule import MatmulCall
from lazyt.ir.symbolic import hint
from lazyt.runtime import plan_cache
from tests.support.plans import forget

if TYPE_CHECKING:
    from collections.abc import Callable

    Program = Callable[[lt.Tensor, lt.Tensor], Any]

pytestmark = pytest.mark.usefixtures("planned")
F = lt.nn.functional


def views() -> int:
    """How many operands of the last sync's convolutions are views."""
    calls = [c for c in lt.last_sync().plan.schedule.launches if isinstance(c, MatmulCall) and c.node.op == "convolve"]
    both = [(own, dense(x)) for c in calls for own, x in zip(c.operands, c.node.operands, strict=True)]
    return sum([own[0] is not whole[0] or [*map(hint, own[1])] != [*map(hint, whole[1])] for own, whole in both])


def found(program: Program, x: np.ndarray, w: np.ndarray) -> list[np.ndarray]:
    forget()
    own = [lt.tensor(v, requires_grad=True) for v in (x, w)]
    y = program(*own)
    y.backward(lt.asarray(np.random.default_rng(2).standard_normal(y.shape, np.float32)))
    lt.sync()
    return [y.detach().numpy(), *(v.grad.numpy() for v in own)]


def both(program: Program, x: tuple[int, ...], w: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> int:
    """How many operands are views; the results are those without them, and close to float64's."""
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape, np.float32) for shape in (x, w))
    own = found(program, a, b)
    number = views()
    monkeypatch.setitem(plan_cache.settings, "views", False)
    for p, q in zip(own, found(program, a, b), strict=True):
        np.testing.assert_array_equal(p, q)
    assert not views()
    return number


@pytest.mark.parametrize("channels", [1, 5, FEATURES, 40])
@pytest.mark.parametrize("sizes", [(3,), (3, 3), (1, 3), (3, 1), (1, 1), (5, 2), (2, 3, 2)], ids=str)
def test_flipped_filters(sizes: tuple[int, ...], channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient to an image is a convolution with filters turned round, by features and channels exchanged."""
    conv = (F.conv1d, F.conv2d, F.conv3d)[len(sizes) - 1]
    place = (3, channels, *(7, 9, 6)[: len(sizes)])
    number = both(lambda x, w: conv(x * 2, w), place, (18, channels, *sizes), monkeypatch)
    assert number == (channels >= FEATURES and max(sizes) > 1)


# By size of the window, stride and padding: how many operands are views. Phases that all read the whole image, with the
# zeros around it, read no part of it; and filters of a tap each lie as runs.
PHASES = {(4, 2, 0): 0, (4, 2, 1): 4, (3, 2, 0): 4, (3, 2, 1): 5, (5, 3, 0): 6, (5, 3, 1): 0, (4, 4, 0): 16}


@pytest.mark.parametrize(("size", "stride", "padding"), PHASES, ids=str)
def test_phases_of_a_transposed_convolution(
    size: int, stride: int, padding: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = (stride - size) % stride
    program = lambda x, w: F.conv_transpose2d(x, w, stride=stride, padding=padding, output_padding=more)
    assert both(program, (5, 6, 4, 4), (6, 20, size, size), monkeypatch) == PHASES[size, stride, padding]


def test_a_part_of_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is stored anyhow; a part of a value that is not is computed alone."""
    stored = lambda x, w: F.conv2d(lt.concat([x, x * 2], 3)[:, 1:, 2:9, 3:], w)
    assert both(stored, (2, 4, 10, 5), (3, 3, 3, 3), monkeypatch)
    computed = lambda x, w: F.conv2d(lt.exp(x)[:, 1:, 2:9, 1:], w)
    assert not both(computed, (2, 4, 10, 5), (3, 3, 3, 3), monkeypatch)


def test_new_sizes_make_no_plan() -> None:
    rng = np.random.default_rng(0)
    w = lt.tensor(rng.standard_normal((16, 24, 3, 3), np.float32), requires_grad=True)

    def step(batch: int, size: int) -> np.ndarray:
        x = rng.standard_normal((batch, 24, size, size), np.float32)
        t = lt.tensor(x, requires_grad=True)
        F.conv2d(t * 1.5, w, padding=1).sum().backward()
        want = np.zeros((batch, 24, size + 2, size + 2))
        for i, j in np.ndindex(3, 3):
            want[:, :, i : i + size, j : j + size] += w.detach().numpy()[:, :, i, j].sum(0)[:, None, None] * 1.5
        np.testing.assert_allclose(t.grad.numpy(), want[:, :, 1:-1, 1:-1], rtol=1e-4, atol=1e-4)
        return x

    for batch, size in ((2, 8), (3, 9), (4, 11)):
        step(batch, size)
    with lt.expect(plans=0, compiles=0):
        step(7, 13)
