"""Chains of stencils in tiles of rows and launches: equal bits, what ends a chain, and runs whose slices move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu import caches, time_tiles
from lazyt.backends.cpu.flags import switches
from lazyt.backends.cpu.time_tiles import Span, _reach

pytestmark = pytest.mark.usefixtures("planned")


@pytest.fixture(params=[1, 2, 4])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[time_tiles.Chain]]:
    """Caches so small that small arrays are beyond them, and chains even if they save nothing; those written."""
    monkeypatch.setattr(time_tiles, "SAVES", -9)
    monkeypatch.setattr(time_tiles, "ABOUT", 9)
    monkeypatch.setattr(time_tiles, "cache_sizes", lambda: (1 << 15, 1 << 15))
    written: list[time_tiles.Chain] = []
    write = time_tiles.write

    def noted(b: Any, chain: time_tiles.Chain, *rest: Any) -> Any:
        written.append(chain)
        return write(b, chain, *rest)

    monkeypatch.setattr(time_tiles, "write", noted)
    before = lt.get_num_threads()
    lt.set_num_threads(request.param)
    yield written
    lt.set_num_threads(before)


def in_place(u: Any, steps: int = 9) -> Any:
    u = u.copy()
    for _ in range(steps):
        u[1:-1, 1:-1] += 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])
    return u


def nine_points(u: Any) -> Any:
    u = u.copy()
    for _ in range(5):
        u[1:-1, 1:-1] = 0.125 * (u[:-2, :-2] + u[2:, 2:] + u[:-2, 2:] + u[2:, :-2] + 4 * u[1:-1, 1:-1])
    return u


def wave(u: Any) -> Any:
    old, u = u * 0.5, u * 1
    for _ in range(6):
        new = u * 1
        new[1:-1, 1:-1] = 2 * u[1:-1, 1:-1] - old[1:-1, 1:-1] + 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] - 2 * u[1:-1, 1:-1])
        old, u = u, new
    return u - old


def shrinking(u: Any) -> Any:
    for _ in range(6):
        u = 0.5 * (u[:-1] + u[1:]) + u[1:] * 0.25
    return u


def one_sided(u: Any) -> Any:
    u = u.copy()
    for _ in range(7):
        u[2:] = 0.5 * (u[2:] + u[:-2])
    return u


def two_fields(u: Any) -> Any:
    v = u * 0.5
    for _ in range(5):
        a = u.copy()
        a[1:-1] += 0.125 * (u[:-2] + u[2:]) - v[1:-1] * u[1:-1]
        b = v.copy()
        b[1:-1] += 0.25 * (v[:-2] + v[2:]) + u[1:-1]
        u, v = a, b
    return u + v


def rolled(u: Any) -> Any:
    m = np if isinstance(u, np.ndarray) else lt
    for _ in range(4):
        u = 0.25 * (m.roll(u, 1, 0) + m.roll(u, -1, 0) + m.roll(u, 1, 1) + u)
    return u


def with_a_maximum(u: Any) -> Any:
    u = in_place(u, 5)
    return in_place(u - u.max(), 5)


def turned(u: Any) -> Any:
    for _ in range(4):
        u = u[::-1] * 0.5 + u
    return u


PROGRAMS: list[tuple[Callable[[Any], Any], bool | None]] = [
    (in_place, True), (nine_points, True), (wave, True), (shrinking, None), (one_sided, True), (two_fields, True),
    (rolled, None), (with_a_maximum, True), (turned, False),
]  # fmt: skip


@pytest.mark.parametrize(("program", "chained"), PROGRAMS)
def test_bits_are_those_of_numpy(program: Any, chained: bool | None, few: list[time_tiles.Chain]) -> None:
    rng, threads = np.random.default_rng(0), lt.get_num_threads()  # sizes of their own, or a binding would be known
    for shape, dtype in [((400 + threads, 128), "f4"), ((300 + threads, 130), "f8")]:
        x = (rng.integers(-4096, 4096, shape) / 64).astype(dtype)
        np.testing.assert_array_equal(program(lt.asarray(x)).numpy(), program(x), err_msg=f"{shape}")
    assert chained is None or bool(few) == chained


def test_arrays_of_one_and_of_three_axes(few: list[time_tiles.Chain]) -> None:
    def line(u: Any) -> Any:
        u = u.copy()
        for _ in range(6):
            u[1:-1] = 0.25 * u[:-2] + 0.5 * u[1:-1] + 0.25 * u[2:]
        return u

    def cube(u: Any) -> Any:
        u = u.copy()
        for _ in range(3):
            u[1:-1, 1:-1, 1:-1] += 0.125 * (u[:-2, 1:-1, 1:-1] + u[2:, 1:-1, 1:-1] + u[1:-1, :-2, 1:-1])
        return u

    def batch(u: Any) -> Any:
        u = u.copy()
        for _ in range(5):
            u[:, 1:-1] += 0.25 * (u[:, :-2] + u[:, 2:])
        return u

    rng = np.random.default_rng(0)
    for program, shape in [(line, (400_000,)), (cube, (300, 12, 16)), (cube, (40, 3, 9000)), (batch, (30, 40, 24))]:
        few.clear()
        shape = (shape[0] + lt.get_num_threads(), *shape[1:])
        with pytest.MonkeyPatch.context() as patch:
            if program is line:
                patch.setattr(time_tiles, "cache_sizes", lambda: (1 << 20, 1 << 20))
            if shape[-1] == 9000:
                patch.setattr(time_tiles, "cache_sizes", lambda: (1 << 21, 1 << 21))
            x = rng.standard_normal(shape)
            np.testing.assert_array_equal(program(lt.asarray(x)).numpy(), program(x))
            assert few, shape


@pytest.mark.parametrize("few", [2], indirect=True)
def test_slices_that_begin_elsewhere_in_another_run(few: list[time_tiles.Chain]) -> None:
    """The plan is the same, so its tiles are not right any more."""

    def run(u: Any, at: int) -> Any:
        u = u.copy()
        for _ in range(6):
            u[20:180] = 0.5 * (u[20:180] + u[at : at + 160])
        return u

    x = np.random.default_rng(0).standard_normal((200, 256))
    for at in (19, 21, 19, 3, 35, 20, 0, 19):
        np.testing.assert_array_equal(run(lt.asarray(x), at).numpy(), run(x, at), err_msg=str(at))
    assert few


@pytest.mark.parametrize("few", [2], indirect=True)
def test_results_in_the_place_of_inputs(few: list[time_tiles.Chain]) -> None:
    x = np.random.default_rng(0).standard_normal((300, 128))
    u, want = lt.asarray(x.copy()) * 1, x.copy()
    lt.sync()
    for _ in range(5):
        for _ in range(4):
            u[1:-1] += 0.25 * (u[:-2] + u[2:])
            want[1:-1] += 0.25 * (want[:-2] + want[2:])
        lt.sync()
        np.testing.assert_array_equal(u.numpy(), want)
        u += 0  # nobody holds NumPy's view of it any more
        want += 0
    assert few


@pytest.mark.parametrize("few", [2], indirect=True)
def test_extents_that_are_new_each_time(few: list[time_tiles.Chain]) -> None:
    rng = np.random.default_rng(0)
    for n in range(120, 150):
        x = rng.standard_normal((n, 64 + n % 3))
        np.testing.assert_array_equal(in_place(lt.asarray(x), 4).numpy(), in_place(x, 4))


@pytest.mark.parametrize("few", [2], indirect=True)
def test_a_sync_that_fails_changes_nothing(few: list[time_tiles.Chain]) -> None:
    x = np.random.default_rng(0).standard_normal((300, 64))
    u, at = lt.asarray(x.copy()), lt.asarray(np.array([400]))
    v = in_place(u, 4)
    bad = v[at]
    w = in_place(v, 4)
    with pytest.raises(IndexError):
        lt.sync()
    np.testing.assert_array_equal(u.numpy(), x)
    del bad
    np.testing.assert_array_equal(w.numpy(), in_place(in_place(x, 4), 4))


def test_switched_off(few: list[time_tiles.Chain], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(switches, "skew", False)
    x = np.random.default_rng(0).standard_normal((311, 64))
    np.testing.assert_array_equal(in_place(lt.asarray(x), 3).numpy(), in_place(x, 3))
    assert not few


def test_reach_is_that_of_all_rows() -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        xs, ys, count = (int(v) for v in rng.integers(1, 40, 3))
        low, high = (int(v) for v in rng.integers(-50, 50, 2))
        x = Span(0, (0, 1000), low, low + int(rng.integers(1, 60)), xs, True)
        y = Span(0, (0, 1000), high, high + int(rng.integers(1, 60)), ys, False)
        found = _reach(x, y, count)
        assert found
        for i in range(count):
            for j in range(-120, 120):
                if x.low + j * xs < y.high + i * ys and y.low + i * ys < x.high + j * xs:
                    assert i - found[0] <= j <= i + found[1]


def test_sizes_of_caches(tmp_path: Any) -> None:
    for n, (kind, level, size) in enumerate([("Data", 1, "32K"), ("Instruction", 1, "32K"), ("Unified", 2, "1024K")]):
        (tmp_path / f"index{n}").mkdir()
        for name, text in (("type", kind), ("level", level), ("size", size)):
            (tmp_path / f"index{n}" / name).write_text(f"{text}\n")
    (tmp_path / "index3").mkdir()
    assert caches._sizes(tmp_path) == {1: 32 << 10, 2: 1 << 20}
    assert caches._sizes(tmp_path / "none") == {}
    second, last = caches.cache_sizes()
    assert 0 < second <= last
