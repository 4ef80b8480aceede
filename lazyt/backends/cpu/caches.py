"""Sizes of this processor's caches, as the system tells them."""

from __future__ import annotations

import functools
from pathlib import Path

_CPU = Path("/sys/devices/system/cpu/cpu0/cache")
# Where the system does not tell.
SECOND, LAST = 1 << 19, 1 << 23


def _sizes(directory: Path) -> dict[int, int]:
    """Bytes of the caches of data, by level."""
    found: dict[int, int] = {}
    for index in sorted(directory.glob("index*")):
        try:
            kind, level, size = ((index / name).read_text().strip() for name in ("type", "level", "size"))
        except OSError:
            continue
        if kind != "Instruction" and level.isdigit() and size.endswith("K") and size[:-1].isdigit():
            found[int(level)] = int(size[:-1]) << 10
    return found


@functools.cache
def cache_sizes() -> tuple[int, int]:
    """Bytes of a core's second cache, and of the last one, which cores may share."""
    found = _sizes(_CPU)
    second = found.get(2, SECOND)
    return second, max(found.get(max(found, default=0), LAST), second)
