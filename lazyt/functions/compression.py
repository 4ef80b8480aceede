"""`lazyt.memory.compress`: what a backward reads is kept in few bits."""

from __future__ import annotations

import threading
from typing import Self

from lazyt.errors import NotSupportedError
from lazyt.functions.random import Generator, default_generator
from lazyt.interrupts import uninterrupted
from lazyt.ir.compression import BITS, Compression
from lazyt.ops.compression import DRAW
from lazyt.runtime.context import _Context
from lazyt.tracing.current import restore_mode, set_mode
from lazyt.tracing.record import record

__all__ = ["compress"]

# Of bits: an array is kept as it is.
FULL = 64
# level -> bits of an element, bits of what normalizations save; None: nothing is compressed.
LEVELS: dict[str, tuple[int, int] | None] = {"L0": None, "L1": (4, FULL), "L2": (4, 4)}
REFUSED = {
    "L3": "bits that differ among samples and layers are not built yet; bits=2 gives every array 2",
    "L3.1": "bits that differ among samples and layers are not built yet; bits=2 gives every array 2",
    "L4": "packed arrays stay on their device",
    "L5": "packed arrays stay on their device",
    "swap": "arrays stay on their device",
}
# Mixed into the seed of the thread's generator: the numbers of `lazyt.random` are not drawn twice.
_SALT = 0x5851F42D4C957F2D


class _Stream(threading.local):
    """How many blocks this thread has entered since its generator was made."""

    source: Generator | None = None
    counter = 0


_stream = _Stream()


def _next() -> tuple[int, int]:
    """The seed and the counter of a block; `lazyt.random.seed` begins again."""
    source = default_generator()
    if _stream.source is not source:
        _stream.source, _stream.counter = source, 0
    _stream.counter += 1
    return source.seed ^ _SALT, _stream.counter


class compress(_Context):  # noqa: N801 - a context, as `lazyt.no_grad`
    """What is recorded in this block is kept for a backward in few bits, as a `with` block or a decorator.

    As ActNN (Chen et al., 2021), for any program: results are exact, and gradients are unbiased estimates. Arrays of
    real numbers that the backward multiplies cotangents with have `bits` bits (1, 2, 4 or 8; 2 by default) a value,
    and 32 more for each 256 values: they are rounded at random between a minimum and a maximum. Masks (ReLU, dropout)
    have one bit, the places of a max pooling four: these are exact. Inputs and parameters, arrays under 1 KiB and
    other integers stay as they are. What is recorded outside of the block, a loss say, is exact.

    level: "L0" compresses nothing, "L1" gives 4 bits to all but what normalizations save, "L2" 4 bits to all. `bits`
    in place of a level is for all. The random numbers follow `lazyt.random.seed`, and are not those of `lazyt.random`.

    Raises ValueError for other bits or levels, NotSupportedError for ActNN's other levels.

    >>> import lazyt as lt
    >>> x, w = lt.ones((64, 64)), lt.ones((64, 64)).requires_grad_()
    >>> with lt.memory.compress(bits=2):
    ...     y = lt.nn.functional.relu(x @ w)
    >>> y.sum().backward()
    >>> float(w.grad[0, 0])
    64.0
    """

    def __init__(self, bits: int | None = None, level: str | None = None) -> None:
        if bits is not None and level is not None:
            raise ValueError(f"compress: bits={bits!r} or level={level!r}, not both")
        if level in REFUSED:
            raise NotSupportedError(f"not supported: compress(level={level!r}), because {REFUSED[level]}")
        if level is not None and level not in LEVELS:
            raise ValueError(f"compress: the levels are {', '.join(LEVELS)}, got {level!r}")
        if bits is not None and (type(bits) is not int or bits not in BITS):
            raise ValueError(f"compress: bits are one of {', '.join(map(str, BITS))}, got {bits!r}")
        each = (bits or 2, bits or 2) if level is None else LEVELS[level]
        self._bits, self._level = bits, level
        self._settings = None if each is None else Compression(*each)

    def __enter__(self) -> Self:
        self._before = set_mode("compress", self._settings)
        if self._settings is not None:
            record(DRAW, _next())
        return self

    @uninterrupted
    def __exit__(self, *exc: object) -> None:
        restore_mode("compress", self._before)

    def _again(self) -> _Context:
        return type(self)(self._bits, self._level)
