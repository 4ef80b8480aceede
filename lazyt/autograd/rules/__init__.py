"""Derivatives by family; importing them fills the one registry (`registry.py`)."""

from __future__ import annotations

from lazyt.autograd.rules import (
    attention,
    contraction,
    elementwise,
    fft,
    library,
    linalg,
    marks,
    movement,
    reduction,
    residuals,
)
from lazyt.autograd.rules.registry import NONDIFFERENTIABLE, OPAQUE_VJP, VJP

__all__ = [
    "NONDIFFERENTIABLE", "OPAQUE_VJP", "VJP", "attention", "contraction", "elementwise", "fft", "library", "linalg",
    "marks", "movement", "reduction", "residuals",
]  # fmt: skip
