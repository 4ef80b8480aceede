"""Casts between float32 and the halves, which kernels and products make where they read or write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ir import dtypes

if TYPE_CHECKING:
    from lazyt.ir.graph import Node


def widens(n: Node) -> bool:
    """Whether n is a half as float32: where it must be stored, the half is."""
    return n.op == "cast" and n.dtype == dtypes.float32 and n.operands[0].dtype in dtypes.HALVES


def rounds(n: Node) -> bool:
    """Whether n is a float32 as a half."""
    return n.op == "cast" and n.dtype in dtypes.HALVES and n.operands[0].dtype == dtypes.float32
