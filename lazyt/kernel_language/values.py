"""What the variables of a kernel hold: numbers, positions, arrays over the indices, truths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.ir.records import dataclass

if TYPE_CHECKING:
    import ast

    import numpy as np

    from lazyt.ir.builder import Weak
    from lazyt.ir.graph import Node
    from lazyt.ir.symbolic import Dim

NUMBERS = (bool, int, float, complex)


class Axis:
    """An index of the kernel or of a loop: start, start + step, ..., at a place among the leading axes of values.

    Positions are linear in its number: 0, 1, ..., extent - 1.
    """

    __slots__ = ("extent", "name", "place", "start", "step")

    def __init__(self, name: str, place: int, extent: int | Dim, start: int | Dim = 0, step: int = 1) -> None:
        self.name = name
        self.place = place
        self.extent = extent
        self.start = start
        self.step = step

    def position(self) -> Affine:
        """The value of the variable."""
        return Affine(((self, self.step),), self.start)


@dataclass(frozen=True, slots=True)
class Affine:
    """A whole number that is linear in indices: sum(coefficient * axis) + offset; no coefficient is 0."""

    terms: tuple[tuple[Axis, int], ...]
    offset: int | Dim

    def plus(self, other: Affine | int) -> Affine:
        """The sum."""
        if isinstance(other, int):
            return Affine(self.terms, self.offset + other)
        found: dict[Axis, int] = dict(self.terms)
        for axis, c in other.terms:
            found[axis] = found.get(axis, 0) + c
        terms = tuple((a, c) for a, c in found.items() if c)
        return Affine(terms, self.offset + other.offset)

    def times(self, k: int) -> Affine:
        """The product with a number."""
        return Affine(tuple((a, c * k) for a, c in self.terms) if k else (), self.offset * k)


class Array:
    """A node whose first `frame` axes are those of indices (1 where the value does not depend on one); rows follow.

    `weak` is the Python type of what follows the dtype of arrays that it meets; `scalar` the argument of the program
    that it is, where it is one. `magnitude` bounds the absolute value of a whole number that follows from indices;
    None: it follows from data.
    """

    __slots__ = ("frame", "magnitude", "node", "scalar", "weak")

    def __init__(
        self,
        node: Node,
        frame: int,
        weak: type | None = None,
        scalar: Weak | None = None,
        magnitude: int | None = None,
    ) -> None:
        self.node = node
        self.frame = frame
        self.weak = weak
        self.scalar = scalar
        self.magnitude = magnitude

    @property
    def rows(self) -> int:
        """How many axes the value has at an index."""
        return self.node.ndim - self.frame

    @property
    def dtype(self) -> np.dtype[Any]:
        """The node's."""
        return self.node.dtype

    def is_free(self) -> bool:
        """Whether it is the same at every index."""
        return all(isinstance(d, int) and d == 1 for d in self.node.shape[: self.frame])


class Truth(Array):
    """A boolean array, and what holds where it is true or false: each fact is an affine number that is at least 0."""

    __slots__ = ("false", "true")

    def __init__(self, node: Node, frame: int, true: tuple[Affine, ...] = (), false: tuple[Affine, ...] = ()) -> None:
        super().__init__(node, frame)
        self.true = true
        self.false = false


@dataclass(frozen=True, slots=True)
class Unset:
    """A variable that has no value on every way to here, and why."""

    why: str


class Carried:
    """A variable that a loop adds to: what is added is collected and reduced behind the loop."""

    __slots__ = ("before", "name", "parts")

    def __init__(self, name: str, before: Any) -> None:
        self.name = name
        self.before = before
        self.parts: list[tuple[str, Array, ast.AST]] = []


class ReadInLoop(Exception):  # no error: the loop is unrolled then
    """A variable that a loop sets is read there, so the loop is no reduction."""

    def __init__(self, name: str, node: ast.AST) -> None:
        super().__init__(name)
        self.name = name
        self.node = node
