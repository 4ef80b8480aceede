"""How pairs of bfloat16 are multiplied here: by AMX, by AVX-512, or as float32."""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache
from typing import TYPE_CHECKING

from lazyt.backends.cpu.engine import host_features
from lazyt.backends.cpu.flags import switches
from lazyt.backends.cpu.library.gemm_amx import LENGTH, ROWS

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node

# Linux grants AMX's registers to a process that asks: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA).
_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18


def dot_products() -> str:
    """By which instructions products of bfloat16 multiply pairs of them here; '' if one by one, as float32."""
    if are_granted():
        return "tiles"
    # NOTE: where there is AMX, the instruction of AVX-512 takes longer than float32's two.
    return "native" if "avx512bf16" in host_features() and "amx-bf16" not in host_features() else ""


def are_rounded(b: Builder, n: Node) -> bool:
    """Whether the operands of a float32 product, rounded to bfloat16, are multiplied in less time.

    NOTE: not with a vector, even where that is known by its extent alone: such a product may be a sum, which rounds
    nothing.
    """
    if dot_products() != "tiles" or not b.at_least(n.shape[-2], ROWS) or not b.at_least(n.shape[-1], 2):
        return False
    return b.at_least(n.operands[0].shape[-1], LENGTH)


def are_granted() -> bool:
    """Whether this process may use AMX's registers, for products of bfloat16."""
    return switches["amx"] and {"amx-tile", "amx-bf16"} <= host_features() and _granted()


@cache
def _granted() -> bool:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST, _TILE_DATA) == 0)
