"""Maps with a last axis shorter than a register: lanes run along another axis, and the bits stay."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.common import transposed_access
from lazyt.backends.cpu.codegen import short_axes
from lazyt.backends.cpu.engine import host_features
from lazyt.backends.cpu.flags import switches
from lazyt.ir.symbolic import hint
from tests.support.plans import forget

pytestmark = pytest.mark.usefixtures("planned")


def _program(x: np.ndarray) -> lt.Tensor:
    """Maps that cannot be walked as one axis: windows, a value a channel, a flip, a padded result."""
    t = lt.asarray(x)
    y = lt.nn.functional.max_pool2d(lt.maximum(t + lt.arange(x.shape[1], dtype=lt.float32)[:, None, None], 0), 2)
    return lt.pad(lt.tanh(y)[:, :, ::-1] * 3, ((0, 0), (0, 0), (1, 1), (0, 1)))


def _axes() -> list[list[int]]:
    plan = lt.last_sync().plan
    return [[hint(e) for e in c.extents] for c in plan.schedule.kernels]


@pytest.mark.parametrize("channels", [2, 17, 40])
@pytest.mark.parametrize("width", [4, 6, 8, 13])
def test_bits_are_those_of_lanes_along_the_last_axis(
    width: int, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(width).standard_normal((3, channels, 8, width)).astype(np.float32)
    found = _program(x).numpy()
    turned = any(axes[-1] == channels for axes in _axes())
    assert turned == (
        "avx512f" in host_features() and channels >= short_axes.LANES and width // 2 + 1 < short_axes.NARROW
    )
    forget()
    monkeypatch.setitem(switches, "widen", False)
    np.testing.assert_array_equal(found, _program(x).numpy())
    assert not any(axes[-1] == channels for axes in _axes())


@pytest.mark.skipif("avx512f" not in host_features(), reason="lanes are turned where the machine can scatter")
def test_a_plan_for_a_narrow_axis_is_not_used_for_a_wide_one() -> None:
    rng = np.random.default_rng(0)

    def plans(width: int) -> int:
        x = rng.standard_normal((2, 20, 8, width)).astype(np.float32)
        _program(x).numpy()
        return lt.last_sync().plans

    assert [plans(w) for w in (6, 4, 8, 30, 200, 6)] == [1, 0, 1, 0, 0, 0]


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5])
def test_pixels_of_few_channels(channels: int) -> None:
    """More of them than a cache has room for: turned as long as memory is gone through a few times."""
    rng = np.random.default_rng(channels)
    x = rng.standard_normal((2, 40, 50, channels)).astype(np.float32)
    t, planes = lt.asarray(x), lt.asarray(np.ascontiguousarray(x.transpose(0, 3, 1, 2)))
    found = lt.permute_dims(planes, (0, 2, 3, 1)).clone()
    turned = "lanes along axis 1" in str(lt.explain())
    assert turned == ("avx512f" in host_features() and channels <= short_axes.TIMES)
    np.testing.assert_array_equal(found.numpy(), x)
    np.testing.assert_array_equal(lt.permute_dims(t, (0, 3, 1, 2)).clone().numpy(), planes.numpy())
    points = t.reshape(-1, channels)
    np.testing.assert_array_equal((points - points[0]).numpy(), (x - x[0, 0, 0]).reshape(-1, channels))
    # Strided reads of a few columns; of more, tiles.
    y = lt.permute_dims(t, (0, 3, 1, 2)) + 1
    ways = str(lt.explain())
    np.testing.assert_array_equal(y.numpy(), planes.numpy() + 1)
    assert ("reads across memory in tiles" in ways) == (channels >= short_axes.NARROW)


def test_a_plan_with_tiles_is_not_used_for_a_few_columns() -> None:
    x = np.random.default_rng(0).standard_normal((2000, 10)).astype(np.float32)
    for columns in (10, 2, 7, 1, 10):
        part = np.ascontiguousarray(x[:, :columns])
        y = lt.asarray(part).T + 1
        tiled = "reads across memory in tiles" in str(lt.explain())
        np.testing.assert_array_equal(y.numpy(), part.T + 1)
        assert tiled == (columns >= short_axes.NARROW), columns


@pytest.mark.parametrize("columns", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i1"])
def test_rows_of_a_few_elements(dtype: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reductions of them read strided lanes, not tiles; the bits are the same."""
    x = (np.random.default_rng(0).standard_normal((1003, columns)) * 50).astype(dtype)

    def found() -> list[np.ndarray]:
        forget()
        t = lt.asarray(x)
        return [v.numpy() for v in (t.sum(axis=1), t.max(axis=1), lt.argmin(t, axis=1), (t * t[::-1]).mean(axis=1))]

    results = found()
    np.testing.assert_array_equal(results[1], x.max(axis=1))
    np.testing.assert_array_equal(results[2], x.argmin(axis=1))
    monkeypatch.setattr(transposed_access, "NARROW", 0)
    for strided, tiled in zip(results, found(), strict=True):
        np.testing.assert_array_equal(strided, tiled)


COLUMNS = {
    "a vector each": lambda a, b: (a @ b[..., None])[..., 0],
    "sums": lambda a, b: lt.sum(a * b[..., None], axis=2) + 1,
    "extremes": lambda a, b: lt.max(a * b[:, :, None], axis=-1, keepdims=True) - a,
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("shape", [(40, 2, 3, 2), (3, 19, 4, 4), (17, 1, 3, 3), (5, 2, 3, 3), (30, 2, 6, 5)])
def test_columns_of_few_results(shape: tuple[int, ...], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    n, m, rows, terms = shape
    a = lt.asarray(rng.standard_normal((n, m, rows, terms)).astype("f4"))
    b = lt.asarray(rng.standard_normal((n, m, terms)).astype("f4"))
    if name == "sums":
        b = lt.asarray(rng.standard_normal((n, m, rows)).astype("f4"))
    found = COLUMNS[name](a, b).numpy()
    turned = _turned()
    if name == "a vector each":
        assert turned == (n * m >= short_axes.LANES and rows < short_axes.NARROW)
    forget()
    monkeypatch.setitem(switches, "widen", False)
    np.testing.assert_array_equal(found, COLUMNS[name](a, b).numpy())
    assert not _turned()


def _turned() -> bool:
    return any("the last is short" in s for c in lt.last_sync().plan.schedule.kernels for s in c.strategies)


def test_a_plan_for_few_results_is_not_used_for_many() -> None:
    def plans(rows: int) -> int:
        rng = np.random.default_rng(rows)
        a, b = rng.standard_normal((20, rows, 3)), rng.standard_normal((20, 3))
        found = (lt.asarray(a) @ lt.asarray(b)[..., None])[..., 0]
        np.testing.assert_allclose(found.numpy(), np.einsum("nij,nj->ni", a, b))
        return lt.last_sync().plans

    assert [plans(n) for n in (3, 2, 30, 200, 4)] == [1, 0, 1, 0, 0]
