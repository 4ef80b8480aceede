"""How much memory this process may count on: the machine's, or less in a container or under a limit of the system."""

from __future__ import annotations

import os
from functools import cache

try:
    import resource
except ImportError:  # Windows has none
    resource = None  # type: ignore[assignment]

# Where nothing is known.
UNKNOWN = 4 << 30
# What a container may have, by the two versions of the kernel's interface; one that has no limit says 'max', or more
# than there is.
_CONTAINER = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@cache
def usable_memory() -> int:
    """Bytes, as they were when it was first asked."""
    found = [_physical(), *(n for path in _CONTAINER if (n := _number_in(path)) is not None)]
    if resource is not None:
        found += [n for n, _ in map(resource.getrlimit, (resource.RLIMIT_AS, resource.RLIMIT_DATA)) if n >= 0]
    return min(found)


def _physical() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return UNKNOWN


def _number_in(path: str) -> int | None:
    """The number that a file says, if it says one."""
    try:
        with open(path) as f:
            text = f.read().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
