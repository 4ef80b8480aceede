"""Convolutions of float32 copies of bfloat16, as ones of bfloat16 that give float32: where a backend wants them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from lazyt.ir import dtypes, graph as g
from lazyt.ir.builder import Builder
from lazyt.ir.graph_interpreter import interpret
from lazyt.ir.passes.canonicalize import canonicalize
from lazyt.ir.passes.verify import verify
from lazyt.ir.prims import CONVOLUTIONS
from lazyt.ir.target import Target

PLAIN = g.Convolution((3, 3), (1, 1), (1, 1), 1, (0, 0))
STRIDED = g.Convolution((3, 3), (1, 1), (2, 2), 1, (0, 0))
IMAGE, FILTERS, RESULT = (2, 3, 7, 6), (5, 3, 3, 3), (2, 5, 5, 4)
STEPPED = (2, 5, 3, 2)


def _single(b: Builder, i: int, shape: tuple[int, ...], dtype: Any = dtypes.bfloat16) -> Any:
    return b.cast(b.input(i, shape, dtype), dtypes.float32)


def _framed(b: Builder) -> Any:
    """The zeros around an image are attributes, whatever lies between them and the cast."""
    x = b.pad(_single(b, 0, IMAGE), (0, 0, 1, 1), (2, 3, 9, 8), b.constant(0, dtypes.float32))
    return b.convolve(x, _single(b, 1, FILTERS), PLAIN)


def _part(b: Builder) -> Any:
    """Of places that are read alone, the image is read in part."""
    y = b.convolve(_single(b, 0, IMAGE), _single(b, 1, FILTERS), PLAIN)
    return b.slice(y, (0, 0, 1, 1), (2, 5, 2, 2), (1, 1, 1, 1))


def _turned(b: Builder) -> Any:
    """A gradient by the image."""
    w = b.flip(b.permute(_single(b, 1, FILTERS), (1, 0, 2, 3)), (2, 3))
    y = b.pad(_single(b, 0, RESULT), (0, 0, 2, 2), (2, 5, 9, 8), b.constant(0, dtypes.float32))
    return b.convolve(y, w, PLAIN)


def _by_image(b: Builder) -> Any:
    y = b.convolve_image(_single(b, 0, STEPPED), _single(b, 1, FILTERS), STRIDED, IMAGE)
    return b.slice(y, (0, 0, 1, 1), (2, 3, 5, 4), (1, 1, 1, 1))


def _by_filter(b: Builder) -> Any:
    return b.convolve_filter(_single(b, 0, IMAGE), _single(b, 1, RESULT), PLAIN, FILTERS)


PROGRAMS = (_framed, _part, _turned, _by_image, _by_filter)


def _rewritten(program: Callable[[Builder], Any], wanted: bool) -> tuple[g.Graph, g.Graph, list[np.ndarray]]:
    b = Builder(None)
    out = program(b)
    before = g.Graph(g.reachable([out]), [out])
    after = canonicalize(before, None, Target(convolutions=True, half_convolutions=lambda b, n: wanted))
    verify(after)
    rng = np.random.default_rng(0)
    shapes = {n.attrs.index: n.shape for n in before.nodes if isinstance(n.attrs, g.Input)}
    leaves = [rng.standard_normal(shapes[i]).astype("f4").astype(ml_dtypes.bfloat16) for i in range(2)]
    return before, after, leaves


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_halves_are_read_themselves(program: Callable[[Builder], Any]) -> None:
    before, after, leaves = _rewritten(program, True)
    (n,) = [n for n in after.nodes if n.op in CONVOLUTIONS]
    assert n.dtype == dtypes.float32
    assert {x.dtype for x in n.operands} == {dtypes.bfloat16}
    found, expected = (interpret(graph.nodes, graph.outputs, leaves, [])[0] for graph in (after, before))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("program", PROGRAMS)
def test_copies_are_where_they_are_not_wanted(program: Callable[[Builder], Any]) -> None:
    _, after, _ = _rewritten(program, False)
    (n,) = [n for n in after.nodes if n.op in CONVOLUTIONS]
    assert {x.dtype for x in n.operands} == {dtypes.float32}


@pytest.mark.parametrize("others", [(dtypes.float16, dtypes.float16), (dtypes.bfloat16, dtypes.float16)])
def test_other_halves_stay_copies(others: tuple[Any, Any]) -> None:
    b = Builder(None)
    out = b.convolve(_single(b, 0, IMAGE, others[0]), _single(b, 1, FILTERS, others[1]), PLAIN)
    after = canonicalize(g.Graph(b.nodes, [out]), None, Target(convolutions=True, half_convolutions=lambda b, n: True))
    (n,) = [n for n in after.nodes if n.op == "convolve"]
    assert {x.dtype for x in n.operands} == {dtypes.float32}
