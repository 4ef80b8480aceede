"""Copies between host and device through pinned memory: a source may change, and a target is complete, on return.

array -> piece 1, piece 2, piece 1 ... -> device      a piece is filled when its last copy is done
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from lazyt.backends.cuda.cupy_driver import Driver

    Array = np.ndarray[Any, Any]

# Bytes of a piece: large enough that a copy takes much longer than to start it.
PIECE = 4 << 20
PIECES = 2


class _Piece:
    __slots__ = ("address", "event", "owner")

    def __init__(self, address: int, owner: object) -> None:
        self.address, self.owner = address, owner
        self.event: Any = None


class Staging:
    """The pinned memory of one device's copies, taken at the first of them."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.lock = threading.RLock()
        self.busy = False
        self.pieces: list[_Piece] = []
        self.turn = 0

    def _next(self) -> _Piece:
        """A piece without a copy in progress."""
        if len(self.pieces) < PIECES:
            self.pieces.append(_Piece(*self.driver.pinned(PIECE)))
        self.turn = (self.turn + 1) % len(self.pieces)
        piece = self.pieces[self.turn]
        if piece.event is not None:
            self.driver.wait_event(piece.event)
            piece.event = None
        return piece

    @contextlib.contextmanager
    def _free(self) -> Iterator[Staging]:
        """This one, and where a signal handler interrupts a copy another one, whose copies are done at the end."""
        with self.lock:
            if self.busy:
                other = Staging(self.driver)
                yield other
                for piece in other.pieces:
                    if piece.event is not None:
                        self.driver.wait_event(piece.event)
                return
            self.busy = True
            try:
                yield self
            finally:
                self.busy = False

    def write(self, stream: Any, address: int, array: Array) -> None:
        """Copy a C-contiguous array to the device; it has been read when this returns."""
        start = array.ctypes.data
        with self._free() as free:
            for at in range(0, array.nbytes, PIECE):
                piece, size = free._next(), min(PIECE, array.nbytes - at)
                ctypes.memmove(piece.address, start + at, size)
                self.driver.to_device(stream, address + at, piece.address, size)
                piece.event = self.driver.record(stream)

    def read(self, stream: Any, address: int, array: Array) -> None:
        """Fill a C-contiguous array from the device; waits for what was enqueued on the stream before."""
        start = array.ctypes.data
        under_way: list[tuple[_Piece, int, int]] = []
        with self._free() as free:
            for at in range(0, array.nbytes, PIECE):
                if len(under_way) == PIECES:
                    self._arrived(start, *under_way.pop(0))
                piece, size = free._next(), min(PIECE, array.nbytes - at)
                self.driver.to_host(stream, piece.address, address + at, size)
                piece.event = self.driver.record(stream)
                under_way.append((piece, at, size))
            for one in under_way:
                self._arrived(start, *one)

    def _arrived(self, start: int, piece: _Piece, at: int, size: int) -> None:
        self.driver.wait_event(piece.event)
        piece.event = None
        ctypes.memmove(start + at, piece.address, size)
