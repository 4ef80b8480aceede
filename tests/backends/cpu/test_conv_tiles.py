"""Convolutions of bfloat16 by AMX, and gradients by the filters: on processors that have it, emulated elsewhere."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn
from lazyt.backends.cpu import pair_products
from lazyt.backends.cpu.backend import BACKEND
from lazyt.backends.cpu.library import conv_filter_tiles, conv_tiles
from lazyt.backends.cpu.workspace import WORKSPACE
from lazyt.ir import graph as g
from lazyt.ir.passes.schedule import MatmulCall
from lazyt.ir.symbolic import hint
from lazyt.runtime import plan_cache
from tests.support.amx import here
from tests.support.dots import BFLOAT16, Array, flushed, fused
from tests.support.plans import forget


class Case(NamedTuple):
    images: int
    channels: int
    extents: tuple[int, ...]
    features: int
    size: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1

    @property
    def steps(self) -> dict[str, int]:
        return {"stride": self.stride, "padding": self.padding, "dilation": self.dilation}


# Whole registers; rests of places, channels, features and images; strides, dilations; rows of several registers, the
# last with places of another; a row; several images in a unit, and one; two panels, and half a one.
CASES = [
    Case(2, 32, (8, 16), 32, 3, padding=1),
    Case(3, 40, (5, 7), 33, 3, stride=2, padding=1),
    Case(1, 16, (4, 37), 16, 3, padding=1),
    Case(5, 70, (6, 6), 17, 2, dilation=2, padding=2),
    Case(2, 33, (9, 9), 48, 1, stride=2),
    Case(4, 19, (23,), 20, 5, padding=3),
    Case(33, 16, (3, 2), 65, 2),
    Case(2, 16, (11, 12), 16, 7, stride=3, padding=3),
    Case(1, 33, (3, 7), 40, 7, stride=8, padding=3),
]


@pytest.fixture(autouse=True)
def _planned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in {"tiers": False, "verify": True}.items():
        monkeypatch.setitem(plan_cache.settings, name, value)
    monkeypatch.setattr(conv_tiles, "IMAGES", 0)
    forget()
    yield
    forget()


def draw(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(BFLOAT16)


def operands(case: Case) -> tuple[Array, Array]:
    sizes = (case.size,) * len(case.extents)
    return draw(case.images, case.channels, *case.extents), draw(case.features, case.channels, *sizes, seed=1)


def convolved(x: lt.Tensor, w: lt.Tensor, case: Case) -> lt.Tensor:
    """In float32, of what the halves are."""
    function = nn.functional.conv1d if len(case.extents) == 1 else nn.functional.conv2d
    return function(x.astype("float32"), w.astype("float32"), **case.steps)


def windows(x: Array, case: Case, counts: tuple[int, ...]) -> dict[tuple[int, ...], Array]:
    """What each tap meets: (N, C, *counts)."""
    p = [(0, 0), (0, 0), *[(case.padding, case.padding)] * len(case.extents)]
    x = np.pad(x.astype(np.float32), p)
    return {
        tap: x[(..., *(slice(t * case.dilation, t * case.dilation + (n - 1) * case.stride + 1, case.stride)
                       for t, n in zip(tap, counts, strict=True)))]
        for tap in np.ndindex(*(case.size,) * len(counts))
    }  # fmt: skip


def added(total: Array, pairs: list[tuple[tuple[Array, Array], tuple[Array, Array]]]) -> Array:
    """A step: the first products of all pairs are a sum, and so are the second ones; both are added at once."""
    sums = [np.zeros_like(total), np.zeros_like(total)]
    for pair in pairs:
        sums = [fused(s, a, b) for s, (a, b) in zip(sums, pair, strict=True)]
    return flushed(flushed(total) + flushed(sums[0] + sums[1]))


def meaning(x: Array, w: Array, case: Case, counts: tuple[int, ...]) -> Array:
    """Tap by tap, and 32 channels of each."""
    w = w.astype(np.float32)
    total = np.zeros((len(x), len(w), *counts), np.float32)
    of_place = (None, slice(None), *[None] * len(counts))
    for tap, window in windows(x, case, counts).items():
        for first in range(0, case.channels, 32):
            ends = range(first, min(first + 32, case.channels))
            terms = [(window[:, c, None], w[(slice(None), c, *tap)][of_place]) for c in ends]
            none = (np.zeros((1,) * total.ndim, np.float32),) * 2
            terms += [none] * (len(terms) % 2)
            total = added(total, list(zip(terms[::2], terms[1::2], strict=True)))
    return total


def transposed_meaning(y: Array, w: Array, case: Case, extents: tuple[int, ...]) -> Array:
    """The image of y: phase by phase the taps that it meets, from first to last, and 32 features of each."""
    w, rank = w.astype(np.float32), len(extents)
    y = np.pad(y.astype(np.float32), [(0, 0), (0, 0), *[(case.size, case.size)] * rank])
    result = np.zeros((len(y), w.shape[1], *extents), np.float32)
    of_place = (None, slice(None), *[None] * rank)
    for phase in np.ndindex(*(min(case.stride, e) for e in extents)):
        places = [range(r, e, case.stride) for r, e in zip(phase, extents, strict=True)]
        own = (..., *(slice(r, None, case.stride) for r in phase))
        total = np.ascontiguousarray(result[own])
        taps = [range((r + case.padding) % case.stride, case.size, case.stride) for r in phase]
        for tap in itertools.product(*taps):
            at = [[(n + case.padding - t) // case.stride + case.size for n in ns]
                  for ns, t in zip(places, tap, strict=True)]  # fmt: skip
            window = y[(slice(None), slice(None), *np.ix_(*at))]
            for first in range(0, len(w), 32):
                terms = [(window[:, o, None], w[(o, slice(None), *tap)][of_place])
                         for o in range(first, min(first + 32, len(w)))]  # fmt: skip
                terms += [(np.zeros((1,) * total.ndim, np.float32),) * 2] * (len(terms) % 2)
                total = added(total, list(zip(terms[::2], terms[1::2], strict=True)))
        result[own] = total
    return result


def filter_meaning(x: Array, ct: Array, case: Case) -> Array:
    """Row by row of places, as many registers of pairs of images as are fewest, or of places of a row: (C, taps, O)."""
    ct = ct.astype(np.float32)
    counts = ct.shape[2:]
    met = np.stack(list(windows(x, case, counts).values()), 2).reshape(
        case.images, case.channels, -1, *([1, *counts][-2:])
    )
    ct = ct.reshape(case.images, case.features, *[1, *counts][-2:])
    rows, width = ct.shape[2:]
    pairs = -(-case.images // 2)

    def division(count: int) -> tuple[int, int, int]:
        run = count * width if case.stride == 1 else count
        size = max(p for p in range(1, 17) if run % p == 0)
        return count * width // size, count, size

    _, count, size = min(division(n) for n in range(pairs, pairs + 16))
    fill = [(0, 2 * count - case.images), *[(0, 0)] * 4]
    met, ct = np.pad(met, fill), np.pad(ct, fill[:-1])
    total = np.zeros((case.channels, met.shape[2], case.features), np.float32)
    lines = [[(y, x, i) for x in range(width) for i in range(count)] for y in range(rows)]
    long = max(p for p in range(1, 17) if width % p == 0)
    if case.stride == 1 and long >= 12:
        lines, size = [[(y, x, i) for x in range(width)] for i in range(pairs) for y in range(rows)], long
    for line in lines:
        for first in range(0, len(line), size):
            total = added(total, [
                tuple((met[n, :, :, y, x, None], ct[n, None, None, :, y, x]) for n in (2 * i, 2 * i + 1))
                for y, x, i in line[first : first + size]
            ])  # fmt: skip
    return total


def calls_of(z: lt.Tensor) -> list[MatmulCall]:
    return [c for c in z.explain().plan.schedule.launches if isinstance(c, MatmulCall)]


@pytest.mark.parametrize("stored", ["bfloat16", "float32"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_convolution_is_what_the_registers_do(case: Case, stored: str, way: str) -> None:
    x, w = operands(case)
    u, v = (lt.asarray(a.astype(stored)) for a in (x, w))
    lt.sync()
    z = convolved(u.astype("bfloat16"), v.astype("bfloat16"), case)
    assert [conv_tiles.takes(c.node) for c in calls_of(z)] == [True]
    np.testing.assert_array_equal(z.numpy(), meaning(x, w, case, z.shape[2:]))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_are_what_the_registers_do(case: Case, way: str) -> None:
    """By the image it is a convolution with turned filters, which are read where they lie, or a transposed one."""
    x, w = operands(case)
    u, v = (lt.asarray(a.astype("float32")).requires_grad_() for a in (x, w))
    lt.sync()
    z = convolved(u.astype("bfloat16"), v.astype("bfloat16"), case)
    ct = draw(*z.shape, seed=2)
    z.backward(lt.asarray(ct))
    lt.sync()
    found = np.moveaxis(v.grad.numpy(), 0, -1).reshape(case.channels, -1, case.features)
    np.testing.assert_array_equal(found, filter_meaning(x, ct, case).astype(BFLOAT16))
    if case.stride > 1 and case.dilation == 1:
        np.testing.assert_array_equal(u.grad.numpy(), transposed_meaning(ct, w, case, case.extents).astype(BFLOAT16))
    if case.stride == 1 and case.features >= 16:
        turned = np.flip(np.moveaxis(w, 0, 1), tuple(range(2, w.ndim)))
        reach = case.dilation * (case.size - 1) - case.padding
        back = case._replace(channels=case.features, features=case.channels, padding=reach)
        np.testing.assert_array_equal(u.grad.numpy(), meaning(ct, turned, back, case.extents).astype(BFLOAT16))


@pytest.mark.parametrize("threads", [2, 5, 40])
def test_a_filters_taps_may_be_units_of_their_own(threads: int, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are few channels and features for so many threads."""
    monkeypatch.setattr(conv_filter_tiles, "get_num_threads", lambda: threads)
    case = CASES[0]
    x, w = operands(case)
    u, v = lt.asarray(x), lt.asarray(w.astype("float32")).requires_grad_()
    lt.sync()
    z = convolved(u, v.astype("bfloat16"), case)
    ct = draw(*z.shape, seed=2)
    z.backward(lt.asarray(ct))
    found = np.moveaxis(v.grad.numpy(), 0, -1).reshape(case.channels, -1, case.features)
    np.testing.assert_array_equal(found, filter_meaning(x, ct, case).astype(BFLOAT16))


# Steps that the window divides, or not, or is shorter than; rows of a phase with a place more than another's; an axis.
TRANSPOSED = [
    (Case(2, 32, (4, 5), 32, 4, stride=2, padding=1), 0), (Case(1, 17, (3, 20), 40, 3, stride=2, padding=1), 1),
    (Case(3, 16, (5, 4), 33, 2, stride=3), 2), (Case(2, 35, (9,), 16, 5, stride=2, padding=2), 0),
    (Case(2, 16, (2, 1), 16, 2, stride=2), 0), (Case(9, 16, (1, 1), 70, 4, stride=1), 0),
    (Case(1, 16, (1, 3), 32, 7, stride=8, padding=3), 0),
]  # fmt: skip


@pytest.mark.parametrize(("case", "more"), TRANSPOSED, ids=str)
def test_a_transposed_convolution_is_what_the_registers_do(case: Case, more: int, way: str) -> None:
    sizes, rank = (case.size,) * len(case.extents), len(case.extents)
    x, w = draw(case.images, case.channels, *case.extents), draw(case.channels, case.features, *sizes, seed=1)
    u, v = lt.asarray(x), lt.asarray(w)
    lt.sync()
    function = nn.functional.conv_transpose1d if rank == 1 else nn.functional.conv_transpose2d
    z = function(u.astype("float32"), v.astype("float32"), None, case.stride, case.padding, more)
    if case.extents != (1, 1):  # one place is a product
        assert [conv_tiles.takes(c.node) for c in calls_of(z)] == [True]
        np.testing.assert_array_equal(z.numpy(), transposed_meaning(x, w, case, z.shape[2:]))
    np.testing.assert_allclose(z.numpy(), transposed_meaning(x, w, case, z.shape[2:]), rtol=1e-5, atol=1e-5)


def test_the_interpreter_computes_the_same_graph(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[1]
    x, w = operands(case)
    found = []
    for interpreted in (False, True):
        monkeypatch.setitem(plan_cache.settings, "interpret", interpreted)
        forget()
        u, v, ct = (
            lt.asarray(x),
            lt.asarray(w.astype("float32")).requires_grad_(),
            lt.asarray(draw(3, 33, 3, 4, seed=2)),
        )
        lt.sync()
        z = convolved(u, v.astype("bfloat16"), case)
        z.backward(ct)
        lt.sync()
        found.append((z.detach().numpy(), v.grad.numpy()))
    for a, b, ulp in zip(*found, (2.0**-20, 2.0**-7), strict=True):
        np.testing.assert_allclose(a, b, rtol=ulp, atol=ulp * np.abs(b).max())


def test_a_plan_for_other_batches_and_extents(way: str) -> None:
    """Channels stay; what is copied and divided follows the extents."""
    for n, height, width in ((2, 8, 8), (3, 8, 8), (1, 9, 5), (7, 4, 20), (2, 2, 1)):
        case = Case(n, 20, (height, width), 24, 3, padding=1)
        x, w = operands(case)
        u, v = lt.asarray(x), lt.asarray(w)
        z = convolved(u, v, case)
        np.testing.assert_array_equal(z.numpy(), meaning(x, w, case, (height, width)))


def test_a_part_of_an_image_is_read_where_it_lies(way: str) -> None:
    case = Case(2, 32, (6, 9), 32, 3)
    whole, w = draw(2, 40, 10, 12), draw(32, 32, 3, 3, seed=1)
    u, v = lt.asarray(whole), lt.asarray(w)
    lt.sync()
    z = convolved(u[:, 3:35, 2:8, 1:10], v, case)
    np.testing.assert_array_equal(z.numpy(), meaning(whole[:, 3:35, 2:8, 1:10], w, case, (4, 7)))


@pytest.mark.parametrize("axis", [2, 3])
def test_filters_that_are_turned_along_one_axis(axis: int, way: str) -> None:
    """Of windows with one tap along the other: which way the taps lie is told by the axis that has several."""
    x, w = draw(2, 32, 9, 9), draw(32, 32, *((3, 1) if axis == 2 else (1, 3)), seed=1)
    found = []
    for turns in (lt.flip, lambda v, axis: lt.asarray(np.flip(v.numpy(), axis).copy())):
        u, v = lt.asarray(x).requires_grad_(), lt.asarray(w)
        lt.sync()
        z = nn.functional.conv2d(u, turns(v, axis=axis))
        z.backward(lt.asarray(draw(*z.shape, seed=2)))
        lt.sync()
        found.append((z.detach().numpy().astype("f4"), u.grad.numpy().astype("f4")))
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


# Two calls of one filter, (C, C, k, k): the second must not read panels of the first.
SHARED = {
    "both ways": [("conv2d", 2, 0), ("conv_transpose2d", 2, 0)],
    "two steps": [("conv_transpose2d", 2, 0), ("conv_transpose2d", 3, 0)],
    "two paddings": [("conv_transpose2d", 2, 0), ("conv_transpose2d", 2, 1)],
}


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", SHARED)
def test_filters_that_stay_packed_are_one_calls(name: str, size: int, together: bool, way: str) -> None:
    """In one plan, and in plans of their own."""
    x, w = lt.asarray(draw(1, 96, 6, 6)), lt.asarray(draw(96, 96, size, size, seed=1).astype("float32"))
    lt.sync()

    def run() -> list[Array]:
        out = []
        for function, stride, padding in SHARED[name]:
            out.append(getattr(nn.functional, function)(x, w.astype("bfloat16"), None, stride, padding))
            if not together:
                lt.sync()
        lt.sync()
        return [z.numpy().astype("f4") for z in out]

    first = run()
    for _ in range(3):
        for a, b in zip(run(), first, strict=True):
            np.testing.assert_array_equal(a, b)


class Sizes:
    """What a binding says of sizes: the extents that were recorded."""

    value = staticmethod(hint)


def made(images: int, channels: int, extents: tuple[int, int], features: int, size: int) -> conv_tiles.TileConvolution:
    case = Case(images, channels, extents, features, size, padding=size // 2)
    x = lt.empty((images, channels, *extents), dtype="bfloat16")
    w = lt.empty((features, channels, size, size), dtype="bfloat16")
    (call,) = calls_of(convolved(x, w, case))
    return conv_tiles.TileConvolution(Sizes, call, conv_tiles.choose_tiles(call, hint))


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_a_unit_fits_the_working_memory_of_a_thread(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_products, "dot_products", lambda: "tiles")
    monkeypatch.setattr(conv_tiles, "get_num_threads", lambda: threads)
    for features, width in itertools.product((16, 700, 12000, 40000), (1, 40, 1024)):
        assert 0 < made(2, 16, (3, width), features, 3).workspace <= WORKSPACE


def test_few_places_are_shared_by_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_products, "dot_products", lambda: "tiles")
    monkeypatch.setattr(conv_tiles, "get_num_threads", lambda: 4)
    convolution = made(1, 512, (4, 4), 512, 3)
    assert convolution._units(convolution._unit_places) >= 4


@pytest.mark.parametrize(
    ("images", "width", "stride", "tiles"), [(7, 17, 1, False), (8, 17, 1, True), (1, 28, 1, True), (7, 28, 2, False)]
)
def test_gradients_of_few_images(
    images: int, width: int, stride: int, tiles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As float32 where registers would be nearly empty: neither images nor places of a row fill them."""
    monkeypatch.setattr(conv_tiles, "IMAGES", 8)
    monkeypatch.setattr(pair_products, "dot_products", lambda: "tiles")
    case = Case(images, 16, (3, (width - 1) * stride + 3), 16, 3, stride)
    x, w = operands(case)
    u, v = lt.asarray(x), lt.asarray(w).requires_grad_()
    nn.functional.conv2d(u, v, **case.steps).sum().backward()
    assert [conv_tiles.takes(c.node) for c in calls_of(v.grad) if c.node.op == "convolve_filter"] == [tiles]


def test_the_first_run_has_the_bits_of_later_ones(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where casts and the product are steps of their own: a product of such copies is not run alone."""
    for name, value in {"tiers": True, "verify": False}.items():
        monkeypatch.setitem(plan_cache.settings, name, value)
    x, w = (lt.asarray(a) for a in operands(CASES[0]))
    a, b = lt.asarray(draw(40, 64)), lt.asarray(draw(64, 48, seed=1))
    lt.sync()
    for program in (lambda: convolved(x, w, CASES[0]), lambda: a.astype("float32") @ b.astype("float32")):
        assert len({program().numpy().tobytes() for _ in range(3)}) == 1


def test_what_follows_is_computed_on_parts_of_it(way: str) -> None:
    """Bias, activation and rounding: the result itself is never in memory."""
    case = CASES[0]
    x, w = operands(case)
    u, v, bias = lt.asarray(x), lt.asarray(w), lt.asarray(draw(32, seed=3).astype("float32"))
    lt.sync()
    z = lt.maximum(convolved(u, v, case) + bias[:, None, None], 0).astype("bfloat16")
    (call,) = calls_of(z)
    assert call.epilogue is not None
    assert not call.kept
    exact = np.maximum(meaning(x, w, case, (8, 16)) + bias.numpy()[:, None, None], 0).astype(BFLOAT16)
    np.testing.assert_array_equal(z.numpy().astype("f4"), exact.astype("f4"))


@here
@pytest.mark.parametrize(("channels", "features"), [(48, 80), (32, 17)])
def test_bits_do_not_depend_on_threads(channels: int, features: int) -> None:
    """Nor on whether filters stay packed: the second call has them so. Of few channels threads share the taps."""
    case = Case(4, channels, (17, 19), features, 3, padding=1)
    x, w = (lt.asarray(a) for a in operands(case))
    v = lt.asarray(operands(case)[1].astype("float32")).requires_grad_()
    ct = lt.asarray(draw(4, features, 17, 19, seed=2))
    lt.sync()
    threads, found = lt.get_num_threads(), set()
    try:
        for n in (1, 2, 3, 5):
            lt.set_num_threads(n)
            forget()
            for _ in range(2):
                v.grad = None
                z = convolved(x, w, case)
                convolved(x, v.astype("bfloat16"), case).backward(ct)
                lt.sync()
                found.add(z.numpy().tobytes() + v.grad.numpy().tobytes())
    finally:
        lt.set_num_threads(threads)
    assert len(found) == 1


@pytest.mark.parametrize(
    ("case", "groups"),
    [(Case(2, 15, (8, 8), 32, 3), 1), (Case(2, 32, (8, 8), 15, 3), 1), (Case(2, 64, (8, 8), 64, 3), 2),
     (Case(1, 16, (1, conv_tiles.WIDEST + 1), 16, 1, 1, 1), 1)],
    ids=["channels", "features", "groups", "width"],
)  # fmt: skip
def test_others_are_computed_as_float32(case: Case, groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_products, "dot_products", lambda: "tiles")
    x, w = operands(case)
    u, v = lt.asarray(x), lt.asarray(np.ascontiguousarray(w[:, : case.channels // groups]))
    z = nn.functional.conv2d(u.astype("float32"), v.astype("float32"), groups=groups, **case.steps)
    assert not any(conv_tiles.takes(c.node) for c in calls_of(z) if isinstance(c.node.attrs, g.Convolution))


def test_none_without_the_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a plan that is kept on disk is not for a process that is refused them."""
    keys = []
    for found in ("tiles", ""):
        monkeypatch.setattr(pair_products, "dot_products", lambda found=found: found)
        forget()
        x, w = map(lt.asarray, operands(CASES[0]))
        lt.sync()
        z = convolved(x, w, CASES[0])
        assert [conv_tiles.takes(c.node) for c in calls_of(z)] == [bool(found)]
        keys.append(BACKEND.identity("cpu"))
    assert keys[0] != keys[1]


def test_a_step_of_training_under_autocast(way: str) -> None:
    """Batch norms, a residual and strides: near float32's."""
    lt.random.seed(0)
    stem, deep = nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.Conv2d(32, 48, 3, 2, 1, bias=False)
    more, norms = nn.Conv2d(48, 48, 3, padding=1), [nn.BatchNorm2d(n) for n in (32, 48)]
    parameters = [p for m in (stem, deep, more, *norms) for p in m.parameters()]
    x = lt.asarray(draw(4, 3, 12, 12).astype("float32"))

    def gradients(enabled: bool) -> list[Array]:
        for p in parameters:
            p.grad = None
        with lt.amp.autocast("cpu", dtype=lt.bfloat16, enabled=enabled):
            y = nn.functional.relu(norms[0](stem(x)))
            z = nn.functional.relu(norms[1](deep(y)))
            loss = ((more(z) + z) ** 2).mean()
        loss.backward()
        lt.sync()
        return [np.array(p.grad.numpy()) for p in parameters]

    for half, exact in zip(gradients(True), gradients(False), strict=True):
        assert np.linalg.norm(half - exact) < 0.1 * np.linalg.norm(exact) + 1e-5
