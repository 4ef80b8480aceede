"""Maps that write every other element, and those between them at the next index of another axis: both at once.

    y[i, 2 * j] = a[i, j]; y[i, 2 * j + 1] = b[i, j]    -->    y[i] = a0 b0 a1 b1 ...

The gradient of pooling by 2 x 2 windows is such: lanes run along the windows, and an axis of two across each. A store
of every other element takes a mask, and each line of the cache twice; neighbours are whole registers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.lane_by_lane import has_masks
from lazyt.ir import kernel as k
from lazyt.ir.passes.kernelize import AccessArg, KernelCall

if TYPE_CHECKING:
    from lazyt.ir.symbolic import Dim

# A body of more values is not written twice.
LONG = 160


def interleave(call: KernelCall) -> None:
    """Compute both indices of an axis of two together, where all stores of a map lie so; else change nothing."""
    kernel = call.kernel
    if (
        kernel.rows
        or len(kernel.stages) != 1
        or kernel.has_check
        or len(kernel.values) > LONG
        or call.product is not None
    ):
        return
    axis = _between(call)
    if axis is not None:
        _Both(call, axis).run()


def _between(call: KernelCall) -> int | None:
    """The axis of two along which each store has the elements between those along the vector axis."""
    kernel, last = call.kernel, call.kernel.vector_axis
    stores = [t.access for t in kernel.stages[0].stores]
    for axis in range(kernel.outer - 1):
        if not _is(call.extents[axis], 2):
            continue
        steps = [(call.accesses[i].strides[axis], call.accesses[i].strides[last]) for i in stores]
        masks = all(has_masks(kernel.accesses[i].dtype) for i in stores)
        if masks and all(_is(between, 1) and _is(along, 2) for between, along in steps):
            return axis
    return None


def _is(size: int | Dim, value: int) -> bool:
    return isinstance(size, int) and size == value


class _Both:
    """Writes the kernel anew without an axis: each value that moves along it is there twice."""

    def __init__(self, call: KernelCall, axis: int) -> None:
        self.call, self.axis = call, axis
        self.moves = k.moving_axes(call.kernel)
        self.values: list[k.Value] = []
        self.accesses: list[k.Access] = []
        self.arguments: list[AccessArg] = []
        self.affines: list[k.Affine] = []
        self.coefficients: list[tuple[tuple[int | Dim, ...], int | Dim]] = []
        self.made: dict[tuple[str, int, int], int] = {}  # (kind, number, index) -> the new number

    def run(self) -> None:
        call, kernel = self.call, self.call.kernel
        for v in range(len(kernel.values)):
            for index in (0, 1):
                self._value(v, index)
        stores: list[k.Store] = []
        for t in kernel.stages[0].stores:
            first = self._access(t.access, 0)
            second = self._access(t.access, 1, beside=first)
            stores += [k.Store(first, self._value(t.value, 0)), k.Store(second, self._value(t.value, 1))]
        call.kernel = replace(
            kernel, outer=kernel.outer - 1, accesses=tuple(self.accesses), affines=tuple(self.affines),
            values=tuple(self.values), stages=(replace(kernel.stages[0], stores=tuple(stores)),),
        )  # fmt: skip
        call.extents = self._without(call.extents)
        call.accesses, call.affines = self.arguments, self.coefficients
        call.strategies += ("elements that lie side by side are stored together",)

    def _without(self, own: tuple[int | Dim, ...]) -> tuple[int | Dim, ...]:
        return (*own[: self.axis], *own[self.axis + 1 :])

    def _classes(self, classes: str) -> str:
        return classes[: self.axis] + classes[self.axis + 1 :]

    def _value(self, v: int, index: int) -> int:
        """The value at an index of the axis; one number for both, where it is the same."""
        index = index if self.axis in self.moves[v] else 0
        key = ("value", v, index)
        if key not in self.made:
            old = self.call.kernel.values[v]
            new = k.with_operands(old, {o: self._value(o, index) for o in k.operands_of(old)})
            if isinstance(new, k.Load | k.Gather):
                new = replace(new, access=self._access(new.access, index))
            elif isinstance(new, k.Index):
                new = replace(new, affine=self._affine(new.affine, index))
            self.made[key] = len(self.values)
            self.values.append(new)
        return self.made[key]

    def _access(self, number: int, index: int, beside: int | None = None) -> int:
        own, argument = self.call.kernel.accesses[number], self.call.accesses[number]
        step = argument.strides[self.axis]
        key = ("access", number, index if own.classes[self.axis] != "0" else 0)
        if key not in self.made:
            self.made[key] = len(self.accesses)
            # NOTE: along the vector axis the stores are of stride 2, whatever names that.
            last = self.call.kernel.vector_axis
            classes = own.classes[:last] + "2" + own.classes[last + 1 :] if own.writes else own.classes
            self.accesses.append(replace(own, classes=self._classes(classes), beside=beside))
            offset = argument.offset + step * key[2]
            self.arguments.append(replace(argument, offset=offset, strides=self._without(argument.strides)))
        return self.made[key]

    def _affine(self, number: int, index: int) -> int:
        own, (steps, offset) = self.call.kernel.affines[number], self.call.affines[number]
        key = ("affine", number, index if own.classes[self.axis] != "0" else 0)
        if key not in self.made:
            self.made[key] = len(self.affines)
            self.affines.append(k.Affine(self._classes(own.classes)))
            self.coefficients.append((self._without(steps), offset + steps[self.axis] * key[2]))
        return self.made[key]
