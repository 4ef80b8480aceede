"""What the code generator and the executor may do; `LAZYT_DEBUG=no-...` turns one off, to find a culprit.

`wide`  maps of 4-byte values run with two registers of lanes side by side
`split` a reduction of few long rows is divided among threads
`donate` results take the memory of leaves that nobody else holds

One is off until `LAZYT_DEBUG=autotune` turns it on, because clocks would decide then (tuning.py):

`autotune` how a matrix product is computed is chosen by timing, once a class of sizes
`tile`  reads across memory are transposed in registers, some rows at a time
"""

from __future__ import annotations

switches = {"wide": True, "split": True, "tile": True, "donate": True, "autotune": False}


def variant() -> str:
    """What distinguishes the code of a kernel that is generated with some of them off; '' for none."""
    return "".join(f"_no_{name}" for name in ("wide", "tile") if not switches[name])
