"""The shared memory that a process has open."""

from __future__ import annotations

import os


def shared_files() -> int:
    """How many files of this process are shared memory. Other files come and go with what else runs in the process."""
    return sum(os.readlink(f.path).startswith("/memfd:lazyt") for f in os.scandir("/proc/self/fd") if f.is_symlink())
