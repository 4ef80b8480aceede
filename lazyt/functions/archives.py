"""Files that a stranger made: the error that refuses one, the memory it may ask for, and the entries of a zip archive.

NOTE: no size that a file states is allocated before it is compared with the bytes that are there.
"""

from __future__ import annotations

import contextlib
import errno
import io
import pickle
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from lazyt.errors import LazytError, NotSupportedError, StateError

_CHUNK = 1 << 20
_DEFLATED_MOST = 1032  # bytes that one byte of a deflate stream gives at most


class FileError(StateError, pickle.UnpicklingError):
    """A file that is damaged, or that has more in it than `load` reads: an UnpicklingError too, as PyTorch's is."""


class UnsupportedFile(FileError, NotSupportedError):
    """A file of a format that `load` does not read."""


@contextlib.contextmanager
def parsing() -> Iterator[None]:
    """Turn errors of a parser into a FileError, but for those of memory, the disk and the stack.

    NOTE: no tensor is made inside, because errors of that are not the file's.
    """
    try:
        yield
    except (LazytError, MemoryError, RecursionError):
        raise
    except Exception as e:
        # A parser that seeks before the beginning gets EINVAL, or an error without a number.
        if isinstance(e, OSError) and e.errno not in (None, errno.EINVAL):
            raise
        raise FileError(f"it is damaged: {type(e).__name__}: {str(e)[:200]}") from e


class Allowance:
    """Bytes that the content of a file may take: `times` those of the file, or `least` if that is more."""

    def __init__(self, size: int, times: int, what: str, why: str, least: int = 1 << 28) -> None:
        self.left = self.total = max(times * size, least)
        self.message = (
            f"{what} would take more than {self.total} bytes, {times} times those of the file (at least "
            f"{least >> 20} MB): {why}"
        )

    def take(self, nbytes: int) -> None:
        """Subtract from what is left; FileError if it is less."""
        self.left -= nbytes
        if self.left < 0:
            raise FileError(self.message)


class Archive:
    """A zip archive whose entries are stored, or deflated as `numpy.savez_compressed` does."""

    @parsing()
    def __init__(self, f: io.BufferedIOBase) -> None:
        self.size = f.seek(0, io.SEEK_END)
        self._zip = zipfile.ZipFile(f)
        self._entries = {entry.filename: entry for entry in self._zip.infolist()}
        self.names = [*self._entries]

    def is_stored(self, name: str) -> bool:
        """Whether an entry is not compressed; FileError if there is no such entry."""
        return self._entry(name).compress_type == zipfile.ZIP_STORED

    @parsing()
    def read(self, name: str, allowance: Allowance) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The bytes of an entry."""
        entry = self._entry(name)
        n, packed = entry.file_size, entry.compress_size
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or entry.flag_bits & 1:
            raise FileError(f"entry {name!r:.80} is encrypted, or compressed by another method than deflate")
        most = packed * (1 if self.is_stored(name) else _DEFLATED_MOST)
        if packed > self.size or n > most:
            raise FileError(f"it is damaged: entry {name!r:.80} has {n} bytes, and the file has {self.size}")
        allowance.take(n)
        with self._zip.open(entry) as f:
            if self.is_stored(name):
                out = np.frombuffer(f.read(n), np.uint8)
                at = len(out)
            else:
                out, at = np.empty(n, np.uint8), 0
                # NOTE: in chunks, because zipfile joins what it decompresses.
                while piece := f.read(_CHUNK):
                    out[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
                    at += len(piece)
        if at != n:
            raise FileError(f"it is damaged: entry {name!r:.80} has {n} bytes, and ends after {at}")
        return out

    def _entry(self, name: str) -> zipfile.ZipInfo:
        entry = self._entries.get(name)
        if entry is None:
            raise FileError(f"it has no entry {name!r:.80}")
        return entry
