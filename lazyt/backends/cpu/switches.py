"""What the code generator and the executor may do; `LAZYT_DEBUG=no-...` turns one off, to find a culprit.

`wide`  maps of 4-byte values run with two registers of lanes side by side, long ones with four
`split` a reduction of few long rows is divided among threads
`donate` results take the memory of leaves that nobody else holds
`together` a reduction of columns takes several rows at a time through registers
`tile`  reads across memory are transposed in registers, some rows at a time
`graphs` a plan's launches on a GPU are one CUDA graph from its second run on
"""

from __future__ import annotations

switches = {"wide": True, "split": True, "tile": True, "together": True, "donate": True, "graphs": True}


def variant() -> str:
    """What distinguishes the code of a kernel that is generated with some of them off; '' for none."""
    return "".join(f"_no_{name}" for name in ("wide", "tile", "together") if not switches[name])
