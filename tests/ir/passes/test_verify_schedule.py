"""Every rule of a valid schedule refuses one that breaks it, and every schedule that lazyt makes obeys them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lazyt.errors import LazytInternalError
from lazyt.ir.builder import Builder
from lazyt.ir.graph import Node
from lazyt.ir.passes import fuse
from lazyt.ir.passes.kernelize import AccessArg, KernelCall
from lazyt.ir.passes.pipeline import compile_graph
from lazyt.ir.passes.program import Options
from lazyt.ir.passes.regions import Region, united
from lazyt.ir.passes.schedule import Schedule
from lazyt.ir.passes.verify_schedule import verify_schedule
from lazyt.ir.symbolic import Scope, product

F = np.dtype("f4")
Outputs = Callable[[Builder, list[Node]], list[Node]]


class Made:
    """A schedule over inputs of shapes whose extents are symbols of their own, valid as it is made."""

    def __init__(self, outputs: Outputs, *shapes: tuple[int, ...], **options: Any) -> None:
        self.scope = Scope()
        b = Builder(self.scope)
        numbers = iter(range(99))
        inputs = [
            b.input(i, tuple(self.scope.symbol(next(numbers), d) for d in shape), F) for i, shape in enumerate(shapes)
        ]
        found = compile_graph(outputs(b, inputs), self.scope, Options(verify=True, **options)).schedule
        assert found is not None
        self.schedule: Schedule = found

    @property
    def kernels(self) -> list[KernelCall]:
        return self.schedule.kernels

    def check(self) -> list[Node]:
        return verify_schedule(self.schedule, self.scope)


def _joined(b: Builder, xs: list[Node]) -> list[Node]:
    c = b.concat([b.elementwise("exp", x) for x in xs], 0)
    return [b.reduce("sum", b.mul(c, c), (0, 1))]


def _softmax(b: Builder, xs: list[Node]) -> list[Node]:
    (x,) = xs
    e = b.elementwise("exp", b.sub(x, b.expand_to(b.reshape(b.reduce("max", x, (1,)), (x.shape[0], 1)), x.shape)))
    return [b.elementwise("div", e, b.expand_to(b.reshape(b.reduce("sum", e, (1,)), (x.shape[0], 1)), x.shape))]


def _updated(b: Builder, xs: list[Node]) -> list[Node]:
    x, v = xs
    return [b.reduce("sum", b.elementwise("exp", b.update(b.elementwise("exp", x), v, (1, 2), (1, 1))), (0,))]


def _product(b: Builder, xs: list[Node]) -> list[Node]:
    return [b.elementwise("tanh", b.matmul(xs[0], b.elementwise("exp", xs[1])))]


def _chain(b: Builder, xs: list[Node]) -> list[Node]:
    """Two reductions, the second of what the first gives: two launches at least."""
    y = b.reduce("sum", xs[0], (0,))
    return [b.reduce("sum", b.mul(y, y), (0,))]


def _two(b: Builder, xs: list[Node]) -> list[Node]:
    return [b.elementwise("exp", xs[0]), b.reduce("sum", xs[0], (0,))]


JOINED = (_joined, (5, 7), (3, 7), (1, 7))


def _shorten(m: Made) -> None:
    c = m.kernels[0]
    c.extents = (*c.extents[:-1], c.extents[-1] + -1)


def _drop(m: Made) -> None:
    m.schedule.regions[0].pop()


def _last_first(m: Made) -> None:
    m.schedule.regions.insert(0, m.schedule.regions.pop())


def _together(m: Made) -> None:
    *rest, last, end = m.schedule.regions
    m.schedule.regions = [*rest, [*last, *end]]


def _parts_twice(m: Made) -> None:
    (first,) = m.schedule.regions[0]
    m.schedule.regions[0] = [first, first]


def _no_stores(m: Made) -> None:
    c = m.kernels[0]
    c.kernel = replace(c.kernel, stages=tuple(replace(s, stores=()) for s in c.kernel.stages))


def _moved(writes: bool, by: int = 1) -> Callable[[Made], None]:
    def move(m: Made) -> None:
        c = m.kernels[-1]
        at = next(i for i, a in enumerate(c.kernel.accesses) if a.writes is writes)
        a = c.accesses[at]
        c.accesses[at] = AccessArg(a.buffer, a.offset + by, a.strides, a.itemsize)

    return move


def _spread(m: Made) -> None:
    c = m.kernels[0]
    at = next(i for i, a in enumerate(c.kernel.accesses) if a.writes)
    a = c.accesses[at]
    c.accesses[at] = AccessArg(a.buffer, a.offset, tuple(0 for _ in a.strides), a.itemsize)


def _short_life(m: Made) -> None:
    m.schedule.lives = {n: (first, first) for n, (first, _) in m.schedule.lives.items()}


def _copy_last(m: Made) -> None:
    m.schedule.regions[0], m.schedule.regions[1] = m.schedule.regions[1], m.schedule.regions[0]


INVALID: dict[str, tuple[tuple[Any, ...], Callable[[Made], None], str]] = {
    "a kernel's domain is shortened": (JOINED, _shorten, "of its .* bytes these are written before"),
    "a part of a concatenation is missing": (JOINED, _drop, "of its .* bytes these are written before"),
    "a launch is reordered": (JOINED, _last_first, "it is read, but nothing writes it before"),
    "a reader runs beside its writer": (JOINED, _together, "of its .* bytes these are written before"),
    "a part is written by two launches": (JOINED, _parts_twice, "launches beside each other write the same"),
    "a store is dropped": ((_chain, (5, 7)), _no_stores, "nothing writes it before"),
    "the totals of a reduction are not stored": ((_softmax, (5, 70)), _no_stores, "it is returned, but nothing writes"),
    "a result is not written": ((_two, (5, 7)), _drop, "it is returned, but nothing writes"),
    "a read is outside": ((_chain, (5, 7)), _moved(False), "elements 1 to 7 are outside of it"),
    "a write is outside": ((_two, (5, 7)), _moved(True), "elements 1 to 7 are outside of it"),
    "a write before it": ((_two, (5, 7)), _moved(True, -1), "elements -1 to 5 are outside of it"),
    "an element is written twice": ((_chain, (5, 7)), _spread, "elements are written twice by one launch"),
    "memory is given away too soon": ((_chain, (5, 7)), _short_life, "its memory is another's by then"),
    "a copy follows the update over it": (
        (_updated, (5, 7), (2, 3)), _copy_last, "written over before anything reads it|nothing writes it before",
    ),
    "a product is read before it is computed": (
        (_product, (5, 6), (6, 7)), _last_first, "nothing writes it before",
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", INVALID)
def test_each_rule_refuses_a_schedule_that_breaks_it(why: str) -> None:
    (outputs, *shapes), plant, message = INVALID[why]
    made = Made(outputs, *shapes, off=frozenset({"epilogues"}))
    assert made.check() == [], "it is proved before the fault is planted"
    assert verify_schedule(made.schedule, None) == [], "it is so at these sizes"
    plant(made)
    for scope in (made.scope, None):
        with pytest.raises(LazytInternalError, match=f"invalid schedule: .*{message}"):
            verify_schedule(made.schedule, scope)


def test_an_update_of_all_elements_may_stand_over_a_copy() -> None:
    made = Made(lambda b, xs: [b.update(xs[0], b.elementwise("exp", xs[1]), (0,), (1,))], (5,), (5,))
    assert len(made.kernels) == 2
    verify_schedule(made.schedule, None)


def test_axes_that_have_one_stride_where_one_of_them_has_one_element() -> None:
    """A column beside a part of no columns: nothing is written twice."""
    made = Made(lambda b, xs: [b.concat([b.elementwise("exp", x) for x in xs], 1)], (1, 0), (1, 1))
    verify_schedule(made.schedule, None)


def test_a_stage_reads_back_what_the_same_point_stored() -> None:
    made = Made(_softmax, (5, 700))
    (c,) = made.kernels
    back = [i for i, a in enumerate(c.accesses) if a.buffer in c.writes and not c.kernel.accesses[i].writes]
    assert back, "the exponential is kept in the memory of the result"
    a = c.accesses[back[0]]
    c.accesses[back[0]] = AccessArg(a.buffer, a.offset, tuple(reversed(a.strides)), a.itemsize)
    with pytest.raises(LazytInternalError, match="reads of it what it did not store at this point before"):
        made.check()


def test_a_later_stage_stores_what_is_read_back() -> None:
    made = Made(_softmax, (5, 700))
    (c,) = made.kernels
    stages = [replace(s, stores=() if i < 2 else s.stores) for i, s in enumerate(c.kernel.stages)]
    c.kernel = replace(c.kernel, stages=tuple(stages))
    with pytest.raises(LazytInternalError, match="what it did not store at this point before"):
        made.check()


def test_the_division_that_computed_a_part_of_a_stored_reduction_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, a reduction took the axes of a kernel that reads its first slice, whoever read the rest."""
    whole = fuse._Fuser._axes_over
    monkeypatch.setattr(fuse._Fuser, "_axes_over", lambda self, n, p, whole_=False, **_: whole(self, n, p, False))

    def gradient(b: Builder, xs: list[Node]) -> list[Node]:
        y, x = xs
        total = b.reduce("sum", b.add(y, y), (0,))
        return [
            b.slice(total, (0,), x.shape, (1,)),
            b.slice(total, x.shape, (total.shape[0] - x.shape[0],), (1,)),
        ]

    with pytest.raises(
        LazytInternalError, match=r"pass order: invalid schedule: .* these are written before: 0 \+ 1\*i<"
    ):
        Made(gradient, (4, 6), (3,))


def test_a_proof_needs_no_sizes() -> None:
    """A concatenation is whole for all extents. With other numbers of one symbol it is so by chance."""
    made = Made(*JOINED)
    assert made.check() == []
    scope = Scope()
    n, half = scope.symbol(0, 6), scope.symbol(1, 3)
    whole, two = (
        Region.all_of(scope, n),
        [Region.of(scope, 0, (1,), (half,), 1), Region.of(scope, half, (1,), (half,), 1)],
    )
    (found,) = united(scope, [r for r in two if r is not None], [1])
    assert found != whole
    assert found.at_hints() == whole.at_hints()
    scope.unify(n, 2 * half)
    assert found.is_first(scope, n)


@pytest.mark.parametrize("seed", range(40))
def test_boxes_that_divide_an_array_are_united(seed: int) -> None:
    """In whatever order, however often they are cut; a missing or a smaller one leaves a gap."""
    rng = np.random.default_rng(seed)
    scope = Scope()
    shape = tuple(scope.symbol(i, int(rng.integers(2, 9))) for i in range(3))
    boxes: list[list[tuple[Any, Any]]] = [[(0, d) for d in shape]]
    for at in range(int(rng.integers(1, 8))):
        box = boxes.pop(int(rng.integers(len(boxes))))
        axis = int(rng.integers(3))
        begin, extent = box[axis]
        cut = scope.symbol(3 + at, 1)
        parts = ((begin, cut), (begin + cut, extent - cut))
        boxes += [[part if i == axis else own for i, own in enumerate(box)] for part in parts]
    strides = (shape[1] * shape[2], shape[2], 1)
    rng.shuffle(boxes)

    def regions(of: list[list[tuple[Any, Any]]]) -> list[Region]:
        found = [
            Region.of(
                scope, sum(b * s for (b, _), s in zip(box, strides, strict=True)), strides, [e for _, e in box], 4
            )
            for box in of
        ]
        assert None not in found
        return found  # type: ignore[return-value]

    steps = [4 * s for s in strides]
    (whole,) = united(scope, regions(boxes), steps)
    assert whole.is_first(scope, 4 * product(shape))
    gone = int(rng.integers(len(boxes)))
    assert not any(
        r.is_first(scope, 4 * product(shape)) for r in united(scope, regions(boxes[:gone] + boxes[gone + 1 :]), steps)
    )


def test_a_program_of_many_parts_is_proved_or_decided_by_its_sizes() -> None:
    """Forty parts of different extents: their offsets are named sums, of which the sizes of this trace decide."""

    def many(b: Builder, xs: list[Node]) -> list[Node]:
        return [b.concat([b.elementwise("exp", x) for x in xs], 0)]

    made = Made(many, *[(i % 5 + 1,) for i in range(60)])
    assert len(made.check()) <= 1
    made.schedule.regions[0].pop()
    with pytest.raises(LazytInternalError, match=r"of its .* bytes these are written before"):
        made.check()
