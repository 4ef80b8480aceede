"""What the code generator and the executor may do; `LAZYT_DEBUG=no-...` turns one off, to find a culprit.

`wide`  maps of 4-byte values run with two registers of lanes side by side, long ones with four
`split` a reduction of few long rows is divided among threads
`donate` results take the memory of leaves that nobody else holds
`pairs` short rows of one array against those of another run with lanes along their outputs
`early` any and all of a row end where they are decided
`together` a reduction of columns takes several rows at a time through registers
`adopt`  results of NumPy's are taken over with their memory, and its ufuncs write where results go
`tile`  reads across memory are transposed in registers, some rows at a time
`alternate` reads and writes of every other element are two of neighbours and a shuffle
`widen` maps with a last axis shorter than a register have lanes along another
`ahead` what a plan has to compile is compiled by several threads at once
`rebind` the binding of a plan that meets ever new extents is written out as a function
`place` worker threads are kept off the CPU of the thread that runs a program
`graphs` a plan's launches on a GPU are one CUDA graph from its second run on

One is off until `LAZYT_DEBUG=autotune` turns it on, because clocks would decide then (tuning.py):
`autotune` how a matrix product is computed is chosen by timing, once a class of sizes

`LAZYT_DEBUG=width-N` (8, 4 or 1) has code as for a processor whose registers hold N float32: AVX2, SSE2 alone, and the
same with maps an element at a time. A sum has 16 lanes by definition: fewer in a register, the same order.
"""

from __future__ import annotations

from lazyt.config import cpu as switches, registers

__all__ = ["WIDTHS", "registers", "switches", "variant", "without_wide"]

# Features of x86 that come with registers of 16 and of 8 float32.
WIDTHS = {
    8: ("avx512", "avx10", "amx", "evex"),
    4: ("avx", "fma", "f16c", "xop", "vaes", "vpclmul", "amx", "evex", "sha512", "sm3", "sm4"),
    1: ("avx", "fma", "f16c", "xop", "vaes", "vpclmul", "amx", "evex", "sha512", "sm3", "sm4"),
}


def variant() -> str:
    """What distinguishes the code of a kernel that is generated with some of them off; '' for none."""
    return "".join(f"_no_{name}" for name in ("wide", "tile", "pairs", "together", "early") if not switches[name]) + (
        "_scalar" if registers["width"] == 1 else ""
    )


def without_wide(cpu: str, flags: str) -> tuple[str, str]:
    """LLVM's name and features of this processor, less what goes beyond the registers asked for."""
    names = WIDTHS.get(registers["width"])
    if names is None:
        return cpu, flags
    kept = [f"-{f[1:]}" if f[1:].startswith(names) else f for f in flags.split(",")]
    # NOTE: the model's name brings features of its own.
    return ("x86-64" if any(f.startswith(("+sse", "-sse")) for f in kept) else cpu), ",".join(kept)
