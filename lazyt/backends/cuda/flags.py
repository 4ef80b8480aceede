"""The flags of the CUDA backend (declared in `lazyt/config.py`), and their effects on its code."""

from __future__ import annotations

from lazyt.config import cuda as switches

__all__ = ["switches", "variant"]


def variant() -> str:
    """The difference in a kernel's code when some flags are off; '' for none."""
    return "" if switches["native-math"] else "_shared_math"
