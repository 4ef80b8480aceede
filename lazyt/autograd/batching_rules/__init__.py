"""Batching rules by family; importing them fills the one registry (`registry.py`)."""

from __future__ import annotations

from lazyt.autograd.batching_rules import contraction, elementwise, indexing, library, movement
from lazyt.autograd.batching_rules.registry import BATCHING, OPAQUE_BATCHING, UNBATCHED

__all__ = [
    "BATCHING", "OPAQUE_BATCHING", "UNBATCHED", "contraction", "elementwise", "indexing", "library", "movement",
]  # fmt: skip
