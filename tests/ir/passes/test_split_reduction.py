"""Reductions of few long rows are divided among threads: places of extreme elements too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu.flags import switches
from lazyt.errors import LazytInternalError
from lazyt.ir.passes.split_reduction import Piece, Scratch, by_stages, split
from lazyt.ir.passes.verify_pieces import verify_pieces
from lazyt.runtime import plan_cache
from tests.support import kernel_builder
from tests.support.plans import forget


@pytest.fixture(autouse=True)
def _threads(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(plan_cache.settings, "tiers", False)
    before = lt.get_num_threads()
    lt.set_num_threads(3)
    forget()
    yield
    forget()
    lt.set_num_threads(before)


def _values(dtype: str, kind: str, n: int) -> np.ndarray:
    rng = np.random.default_rng(n)
    x = rng.standard_normal(n) * 50
    match kind:
        case "equal":
            x[:] = 3
        case "nan":
            x[rng.integers(0, n, 3)] = np.nan
        case "zeros":
            x = np.abs(x) + 1
            x[n // 2], x[n // 2 + 70000] = 0.0, -0.0
        case "last":
            x[-1] = 1e4
    with np.errstate(all="ignore"):
        return x.astype(dtype)


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("kind", ["normal", "equal", "nan", "zeros", "last"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "uint8", "bool"])
def test_places_are_those_of_the_first_extreme_element(
    dtype: str, kind: str, split: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(switches, "split", split)
    for rows, n in ((1, 1 << 18), (1, 300_001), (3, 131_072), (2, 140_000)):
        x = _values(dtype, kind, rows * n).reshape(rows, n)
        t = lt.asarray(x)
        found = [lt.argmax(t, axis=1), lt.argmin(t, axis=1), lt.max(t, axis=1)]
        lt.sync()
        for got, f in zip(found, (np.argmax, np.argmin, np.max), strict=True):
            np.testing.assert_array_equal(got.numpy(), f(x, axis=1))


def test_a_square_is_divided_by_its_rows() -> None:
    x = lt.asarray(_values("float32", "normal", 1_000_000).reshape(1000, 1000))
    found = lt.sum(x), lt.max(x), lt.prod(1 + x * 1e-4)
    lt.sync()
    forget()
    lt.set_num_threads(1)
    assert [float(t) for t in found] == [float(t) for t in (lt.sum(x), lt.max(x), lt.prod(1 + x * 1e-4))]


def _shorter(pieces: list[Piece]) -> list[Piece]:
    """The first piece, over one chunk fewer."""
    first, *rest = pieces
    axis = len(first.extents) - 2
    return [replace(first, extents=tuple(e - (i == axis) for i, e in enumerate(first.extents))), *rest]


def _without_partials(pieces: list[Piece]) -> list[Piece]:
    first, *rest = pieces
    stages = tuple(replace(s, stores=() if not s.loops else s.stores) for s in first.kernel.stages)
    return [replace(first, kernel=replace(first.kernel, stages=stages)), *rest]


def _further(pieces: list[Piece]) -> list[Piece]:
    """The second piece reads its partial results one element on."""
    first, second, *rest = pieces
    operands = tuple(replace(x, shift=x.shift + 1) if isinstance(x.source, Scratch) else x for x in second.operands)
    return [first, replace(second, operands=operands), *rest]


WRONG: dict[str, tuple[Callable[[list[Piece]], list[Piece]], str]] = {
    "a chunk is missing": (_shorter, "partial results these are written before they are read|, the pieces"),
    "a piece is missing": (lambda pieces: pieces[1:], "these are written before they are read: "),
    "the last piece is missing": (lambda pieces: pieces[:-1], "stores 0 .*, the pieces nothing"),
    "pieces are reordered": (lambda pieces: pieces[::-1], "these are written before they are read: "),
    "partial results are not stored": (_without_partials, "these are written before they are read: nothing"),
    "a piece runs beside what it reads": (
        lambda pieces: [replace(p, joins=True) for p in pieces], "these are written before they are read: nothing",
    ),
    "partial results are read further on": (_further, "partial results 1 to .* are read"),
}  # fmt: skip


DIVIDED = {
    "sums of chunks": (kernel_builder.reduction, ("sum",), split),
    "places of chunks": (kernel_builder.reduction, ("argmax",), split),
    "stages of chunks": (kernel_builder.softmax, (), split),
    "stages": (kernel_builder.softmax, (), by_stages),
}


@pytest.mark.parametrize("divided", DIVIDED)
@pytest.mark.parametrize("why", WRONG)
def test_pieces_that_read_what_none_wrote_are_refused(why: str, divided: str) -> None:
    build, name, how = DIVIDED[divided]
    made = build(*name, np.zeros((3, 5000), np.float32), "row", 1)
    kernel, args = made.kernel(), made.arguments()
    strides = [a.strides for a in args.accesses]
    pieces = how(kernel, args.extents, strides, [c for c, _ in args.affines])
    verify_pieces(kernel, args.extents, strides, pieces)
    plant, message = WRONG[why]
    with pytest.raises(LazytInternalError, match=f"invalid pieces: .*({message})"):
        verify_pieces(kernel, args.extents, strides, plant(pieces))
