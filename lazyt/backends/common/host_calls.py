"""Launches that NumPy computes on the host: library calls, products and scatters without code in the backend.

A ufunc writes its results in place; other results of NumPy are copied, unless the backend takes over their memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.backends.common.data_errors import line_of, named
from lazyt.config import general as switches
from lazyt.errors import recorded_at
from lazyt.ir import dtypes, graph as g
from lazyt.ir.graph_interpreter import PRIMITIVES, Environment
from lazyt.ir.library_calls import FUNCTIONS
from lazyt.ir.passes.schedule import LibraryCall, MatmulCall, ScatterCall
from lazyt.ir.symbolic import Dim

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lazyt.backends.common.binding import ScheduleBinding
    from lazyt.ir.graph import Node

    # Of the bases of a run, its results, its temporaries and its inputs.
    Run = Callable[[list[int], list[Any], Any, Sequence[Any]], None]

# What the names of elementary functions of complex values begin with.
COMPLEX = "complex_"


class HostCall(ABC):
    """A call of NumPy's on arrays that a backend makes of the plan's buffers."""

    def __init__(self, bound: ScheduleBinding, call: LibraryCall | MatmulCall | ScatterCall) -> None:
        self.bound = bound
        self.call = call
        self.places: dict[Node, tuple[tuple[int, ...], int, int]] = {}
        # The function that a run calls, once it is known, and its arguments that are not values.
        self.how: Run | None = None
        self.function: Callable[..., Any] | None = None
        self.statics: tuple[Any, ...] | None = None

    def _shape(self, n: Node) -> tuple[int, ...]:
        return tuple(self.bound.value(d) for d in n.shape)

    def _place(self, n: Node) -> tuple[tuple[int, ...], int, int]:
        """The shape of a value, and the base and byte offset of its buffer; found once."""
        place = self.places.get(n)
        if place is None:
            base = n
            while base.op == "reshape":
                base = base.operands[0]
            place = self.places[n] = (self._shape(n), *self.bound._base(base))
        return place

    @abstractmethod
    def _view(
        self, n: Node, outs: Sequence[Any], arena: Any, inputs: Sequence[Any], writable: bool
    ) -> np.ndarray[Any, Any]:
        """A value as an array; writing to a writable one changes the value."""

    def _adopt(self, n: Node, results: list[Any], bases: list[int], outs: list[Any]) -> bool:
        """Take over the memory of NumPy's last result as that of a result of the plan; False: it must be copied."""
        return False

    def _own(self, fn: str, statics: tuple[Any, ...]) -> Run | None:
        """The backend's own way to compute a function on the host, if it has one."""
        return None

    def _elementwise(
        self, call: Callable[[list[Any], tuple[Any, ...]], Any], operands: list[Any], results: tuple[Any, ...]
    ) -> None:
        """Have `call` write results element by element."""
        with np.errstate(all="ignore"):
            call(operands, results)

    def run(self, bases: list[int], outs: list[Any], arena: Any, inputs: Sequence[Any]) -> None:
        how = self.how
        if how is None:
            how = self.how = self._chosen()
        how(bases, outs, arena, inputs)

    def _chosen(self) -> Run:
        """The function that performs the call; it stays the same, as only addresses change between runs."""
        c = self.call
        if isinstance(c, MatmulCall):
            return self._product
        if isinstance(c, ScatterCall):
            return self._scatter
        n = c.node
        assert isinstance(n.attrs, g.Opaque)
        fn = n.attrs.fn
        statics = self.statics = evaluated(n.attrs.statics, self.bound)
        if (own := self._own(fn, statics)) is not None:
            return own
        first = c.results[0]
        if (ufunc := _ufunc(fn, statics)) is not None and None not in c.results:
            return partial(self._by_element, lambda xs, to: ufunc(*xs, out=to))
        self.function = function = FUNCTIONS[fn]
        if fn.startswith(COMPLEX) and not statics and first is not None:
            return partial(self._by_element, lambda xs, to: np.copyto(to[0], function(*xs)))
        return self._library

    def _of_library(self) -> tuple[LibraryCall, tuple[Any, ...]]:
        """The call as one of a library, which it was found to be, and its arguments that are no values."""
        c = self.call
        assert isinstance(c, LibraryCall), "chosen"
        assert self.statics is not None, "chosen"
        return c, self.statics

    def _product(self, bases: list[int], outs: list[Any], arena: Any, inputs: Sequence[Any]) -> None:
        c, b = self.call, self.bound
        assert isinstance(c, MatmulCall), "chosen"
        views = []
        for x, (base, strides, offset) in zip(c.node.operands, c.operands, strict=True):
            flat = self._view(base, outs, arena, inputs, False).reshape(-1)
            size = base.dtype.itemsize
            shape = [b.value(d) for d in x.shape]
            start = flat[b.value(offset) :] if flat.size else flat
            view = np.lib.stride_tricks.as_strided(start, shape, [b.value(s) * size for s in strides])
            # A half may be read from the float32 that it was cast from; a product of halves gives float32.
            views.append(view.astype(x.dtype, copy=False).astype(c.node.dtype, copy=False))
        self._multiply(views[0], views[1], self._view(c.node, outs, arena, inputs, True))

    def _multiply(self, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], out: np.ndarray[Any, Any]) -> None:
        np.matmul(a, b, out=out)

    def _scatter(self, bases: list[int], outs: list[Any], arena: Any, inputs: Sequence[Any]) -> None:
        c = self.call
        assert isinstance(c, ScatterCall), "chosen"
        n = c.node
        out = self._view(n, outs, arena, inputs, True)
        at, v = (self._view(x, outs, arena, inputs, False) for x in (c.at, c.v))
        if c.fill is not None:
            out[...] = c.fill.attrs.value  # type: ignore[union-attr]
        else:
            assert c.x is not None, "either one"
            out[...] = self._view(c.x, outs, arena, inputs, False)
        updates = np.broadcast_to(v, [self.bound.value(d) for d in n.operands[1].shape])
        out[...] = PRIMITIVES["scatter"](n, [out, updates, at], Environment((), (), None))

    def _by_element(
        self, call: Callable[[list[Any], tuple[Any, ...]], Any], bases: list[int], outs: list[Any], arena: Any,
        inputs: Sequence[Any],
    ) -> None:  # fmt: skip
        c, _ = self._of_library()
        into = tuple(self._view(r, outs, arena, inputs, True) for r in c.results if r is not None)
        self._elementwise(call, [self._view(x, outs, arena, inputs, False) for x in c.operands], into)

    def _library(self, bases: list[int], outs: list[Any], arena: Any, inputs: Sequence[Any]) -> None:
        c, statics = self._of_library()
        n, function = c.node, self.function
        assert isinstance(n.attrs, g.Opaque)
        assert function is not None, "chosen"
        try:
            got = function(*[self._view(x, outs, arena, inputs, False) for x in c.operands], *statics)
        except BaseException as e:
            recorded_at(e, *line_of(n))
            if not isinstance(e, Exception):
                raise
            if type(e) is not np.linalg.LinAlgError:  # what a call of NumPy deferred has to say stays as it is
                name = getattr(n.site, "name", n.attrs.fn)
                e.add_note(f"{name}, recorded at {n.site}; found at the sync")
                raise
            named(e, n)
            raise
        results = list(got) if isinstance(got, tuple) else [got]
        del got
        for r in reversed(c.results):
            if r is not None and not self._adopt(r, results, bases, outs):
                self._view(r, outs, arena, inputs, True)[...] = results[-1]
            results.pop()


def _ufunc(fn: str, statics: tuple[Any, ...]) -> np.ufunc | None:
    """The ufunc of a recorded NumPy call, if its results have NumPy's own dtypes."""
    if fn != "call" or not switches["adopt"] or any(dtypes.of(d).foreign for _, d in statics[1]):
        return None
    found: np.ufunc | None = statics[0].ufunc
    return found


def extents_in(static: Any) -> Iterator[Dim]:
    """The symbolic extents among static arguments (the length of a transform)."""
    if isinstance(static, Dim):
        yield static
    elif isinstance(static, tuple):
        for s in static:
            yield from extents_in(s)


def evaluated(static: Any, bound: ScheduleBinding) -> Any:
    """Static arguments with their extents evaluated."""
    if isinstance(static, tuple):
        return tuple(evaluated(s, bound) for s in static)
    return bound.value(static) if isinstance(static, Dim) else static
