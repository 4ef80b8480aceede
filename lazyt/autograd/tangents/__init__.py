"""Forward derivatives by family; importing them fills the one registry (`registry.py`)."""

from __future__ import annotations

from lazyt.autograd.tangents import elementwise, library, linear, reduction
from lazyt.autograd.tangents.registry import JVP, OPAQUE_JVP

__all__ = ["JVP", "OPAQUE_JVP", "elementwise", "library", "linear", "reduction"]
