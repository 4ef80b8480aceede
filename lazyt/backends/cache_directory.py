"""Where things are kept from one process to the next."""

from __future__ import annotations

import os


def cache_directory() -> str | None:
    """`LAZYT_CACHE_DIR` (empty: none), else `$XDG_CACHE_HOME/lazyt`, else `~/.cache/lazyt`."""
    chosen = os.environ.get("LAZYT_CACHE_DIR")
    if chosen is not None:
        return chosen or None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    # Without a home directory `expanduser` leaves the tilde in.
    return None if base.startswith("~") else os.path.join(base, "lazyt")
