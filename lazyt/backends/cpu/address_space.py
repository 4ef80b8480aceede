"""Checks for address space before LLVM needs it: LLVM ends the process when an allocation fails.

A reservation is made and released at once. This respects every limit of the system (`RLIMIT_AS`, `RLIMIT_DATA`, strict
overcommit) and costs microseconds, where a compile costs milliseconds.
"""

from __future__ import annotations

import mmap

from lazyt.errors import OutOfMemory

# The library, whose file has 170 MB, and what it sets up.
LLVM = 256 << 20
# An engine, and the code of an object beside its own bytes.
LOADING = 8 << 20
# A thread: its stack, and a heap that its first allocation makes.
THREAD = 48 << 20
# Parsing and compiling took up to 75 times the text (measured on texts of 2 to 200 KB), and 1 MB.
_COMPILING, _TIMES = 8 << 20, 160


def compiling(text: str) -> int:
    """The bytes that compiling this text may take."""
    return _COMPILING + _TIMES * len(text)


def available(nbytes: int) -> bool:
    """Whether the system would give this process so many bytes now."""
    try:
        _reserve(nbytes).close()
    except OSError:
        return False
    return True


def require(nbytes: int, what: str) -> None:
    """OutOfMemory unless the system has so many bytes for `what`."""
    if not available(nbytes):
        raise OutOfMemory(
            f"{what}: the system has no {nbytes >> 20} MB of memory left for it (a limit on address space is "
            "`ulimit -v`); what was pending still is, and can be computed once there is more"
        )


def _reserve(nbytes: int) -> mmap.mmap:
    # NOTE: the default is shared memory, which some limits do not count.
    if hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return mmap.mmap(-1, nbytes)
