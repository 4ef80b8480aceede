"""The flags of the CUDA backend (declared in `lazyt/config.py`), and what follows from them for its code."""

from __future__ import annotations

from lazyt.config import cuda as switches

__all__ = ["switches", "variant"]


def variant() -> str:
    """What distinguishes the code of a kernel that is generated with some of them off; '' for none."""
    return "" if switches["native-math"] else "_shared_math"
