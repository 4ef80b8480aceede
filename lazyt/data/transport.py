"""Batches from a worker to the loop: a pickle through the pipe, arrays beside it in shared memory.

A worker puts the arrays of a batch into a segment of its own, and sends the segment's descriptor the first time. The
loop's tensors lie in that segment, without a copy. When the last of them is gone the loop tells the worker, with its
next request, and the worker uses the segment again. Segments have no names (lazyt/runtime/shared_memory.py), so none is
left behind however a process ends.
"""

from __future__ import annotations

import array
import io
import pickle
import socket
import struct
from collections import deque
from typing import Any

import numpy as np

from lazyt.runtime import memory
from lazyt.runtime.shared_memory import Segment
from lazyt.runtime.tensor import Tensor, tensor_of

# Arrays of fewer bytes in all go through the pipe: it holds several such batches, so no worker waits to be read.
INLINE = 16 << 10
ALIGNMENT = 64
# So many batches of a worker lie in its segments, each of which has a descriptor; beyond that the loop copies them.
MOST_LEASES = 32
# Bytes of the pickle, of the arrays or the segment; the segment or -1, 1 where it is new; which it replaces or -1.
_HEADER = struct.Struct("=qqqqq")


class _Pickler(pickle.Pickler):
    """Tensors and NumPy arrays by reference to `arrays`; those need no bytes in the pickle."""

    def __init__(self, f: io.BytesIO) -> None:
        super().__init__(f, 5, buffer_callback=self._buffer)
        self.arrays: list[np.ndarray[Any, Any]] = []

    def _buffer(self, buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.readonly:
            return True  # what is made of it would be writable
        self.arrays.append(np.frombuffer(view, np.uint8))
        return False

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is not Tensor:
            return NotImplemented
        a = np.asarray(obj.detach()._array("DataLoader"), order="C")
        flat = a.reshape(-1).view(np.uint8)
        return _tensor, (a.dtype, a.shape, pickle.PickleBuffer(_writable(flat)), obj.requires_grad)


class _Unflagged:
    """What NumPy makes an array of, of the same memory without the read-only flag."""

    def __init__(self, a: np.ndarray[Any, Any]) -> None:
        self.owner = a
        self.__array_interface__ = {**a.__array_interface__, "data": (a.__array_interface__["data"][0], False)}


def _writable(a: np.ndarray[Any, Any]) -> Any:
    """An array that pickle sends beside its text, and nobody writes: pickle goes by the flag."""
    return np.asarray(_Unflagged(a))


def _tensor(dtype: Any, shape: tuple[int, ...], raw: Any, requires_grad: bool) -> Tensor:
    a = np.ndarray(shape, dtype, raw)
    out = tensor_of(memory.wrap_array(a))
    return out.requires_grad_() if requires_grad else out


def _places(arrays: list[np.ndarray[Any, Any]]) -> tuple[list[int], int]:
    at, end = [], 0
    for a in arrays:
        at.append(end)
        end += -(-a.nbytes // ALIGNMENT) * ALIGNMENT
    return at, end


class Sender:
    """A worker's side."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.segments: dict[int, Segment] = {}
        self.free: list[int] = []
        self.made = 0

    def release(self, numbers: list[int]) -> None:
        """The loop has let go of these segments."""
        self.free += [n for n in numbers if n in self.segments]

    def send(self, message: Any) -> None:
        """Raises what pickling raises, with nothing sent."""
        f = io.BytesIO()
        pickler = _Pickler(f)
        pickler.dump(message)
        arrays = pickler.arrays
        places, size = _places(arrays)
        body = f.getvalue()
        if size < INLINE:
            sizes = array.array("q", [a.nbytes for a in arrays]).tobytes()
            parts = [struct.pack("=q", len(arrays)), sizes, *(a.tobytes() for a in arrays)]
            self.socket.sendall(b"".join((_HEADER.pack(len(body), size, -1, 0, -1), body, *parts)))
            return
        number, new, dropped = self._segment(size)
        segment = self.segments[number]
        whole = segment.array(np.uint8, (segment.nbytes,))
        for a, at in zip(arrays, places, strict=True):
            whole[at : at + a.nbytes] = a
        table = array.array("q", [x for a, at in zip(arrays, places, strict=True) for x in (at, a.nbytes)]).tobytes()
        head = _HEADER.pack(len(body), segment.nbytes, number, int(new), dropped)
        rest = b"".join((body, struct.pack("=q", len(arrays)), table))
        if new:
            socket.send_fds(self.socket, [head], [segment.fd])
            self.socket.sendall(rest)
        else:
            self.socket.sendall(head + rest)

    def _segment(self, size: int) -> tuple[int, bool, int]:
        """A segment of at least so many bytes that nobody reads, whether it is new, and which it replaces."""
        best = min((n for n in self.free if self.segments[n].nbytes >= size), key=self._size, default=-1)
        if best >= 0:
            self.free.remove(best)
            return best, False, -1
        dropped = -1
        if self.free:  # too small
            dropped = self.free.pop()
            del self.segments[dropped]
        self.made += 1
        self.segments[self.made] = Segment(size)
        return self.made, True, dropped

    def _size(self, number: int) -> int:
        return self.segments[number].nbytes


class _Lease:
    """What all arrays of a batch refer to; when it goes, the segment is free again."""

    __slots__ = ("__array_interface__", "number", "released", "segment")

    def __init__(self, segment: Segment, number: int, released: deque[int]) -> None:
        self.segment, self.number, self.released = segment, number, released
        whole = segment.array(np.uint8, (segment.nbytes,))
        self.__array_interface__ = whole.__array_interface__

    def __del__(self) -> None:
        self.released.append(self.number)


class Receiver:
    """The loop's side."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.segments: dict[int, Segment] = {}
        self.released: deque[int] = deque()
        self.leases = 0

    def take_released(self) -> list[int]:
        """The segments that nothing refers to any more, since this was asked last."""
        found = []
        while self.released:
            found.append(self.released.popleft())
        self.leases -= len(found)
        return found

    def receive(self) -> Any:
        """One message. Raises EOFError when the worker has ended."""
        head, descriptors = self._head()
        n_body, size, number, new, dropped = _HEADER.unpack(head)
        body = read_exactly(self.socket, n_body)
        (n_arrays,) = struct.unpack("=q", read_exactly(self.socket, 8))
        if number < 0:
            sizes = array.array("q", bytes(read_exactly(self.socket, 8 * n_arrays)))
            return pickle.loads(body, buffers=[read_exactly(self.socket, n) for n in sizes])
        table = array.array("q", bytes(read_exactly(self.socket, 16 * n_arrays)))
        if new:
            self.segments[number] = Segment(size, descriptors[0])
        self.segments.pop(dropped, None)
        whole = np.asarray(_Lease(self.segments[number], number, self.released))
        self.leases += 1
        if self.leases - len(self.released) > MOST_LEASES:
            whole = whole.copy()
        return pickle.loads(body, buffers=[whole[at : at + n] for at, n in zip(table[::2], table[1::2], strict=True)])

    def _head(self) -> tuple[bytes, list[int]]:
        data, fds, _, _ = socket.recv_fds(self.socket, _HEADER.size, 1)
        if not data:
            raise EOFError
        return data + bytes(read_exactly(self.socket, _HEADER.size - len(data))), fds


def write_request(connection: socket.socket, request: tuple[str, int, Any, list[int]]) -> None:
    """Ask a worker for something."""
    body = pickle.dumps(request, 5)
    connection.sendall(struct.pack("=q", len(body)) + body)


def read_request(connection: socket.socket) -> tuple[str, int, Any, list[int]] | None:
    """What a worker is asked for; None when the loop has closed the pipe."""
    try:
        (n,) = struct.unpack("=q", read_exactly(connection, 8))
        found: tuple[str, int, Any, list[int]] = pickle.loads(read_exactly(connection, n))
        return found
    except (EOFError, ConnectionResetError):
        return None


def read_exactly(connection: socket.socket, n: int) -> bytearray:
    """So many bytes; EOFError where there are no more."""
    out = bytearray(n)
    view = memoryview(out)
    while len(view):
        got = connection.recv_into(view)
        if not got:
            raise EOFError
        view = view[got:]
    return out
