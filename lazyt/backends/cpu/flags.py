"""The flags of the CPU backend (declared in `lazyt/config.py`), and their effects on its code.

`LAZYT_DEBUG=width-N` (8, 4 or 1) generates code as for a processor whose registers hold N float32: AVX2, SSE2 alone,
and SSE2 with maps an element at a time. A sum has 16 lanes by definition: fewer in a register, the same order.
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
    """The difference in a kernel's code when some flags are off; '' for none."""
    return "".join(
        f"_no_{name}"
        for name in ("wide", "tile", "pairs", "together", "early", "stream", "interior", "peel")
        if not switches[name]
    ) + ("_scalar" if registers["width"] == 1 else "")


def without_wide(cpu: str, flags: str) -> tuple[str, str]:
    """LLVM's name and features of this processor, without features beyond the requested register width."""
    names = WIDTHS.get(registers["width"])
    if names is None:
        return cpu, flags
    kept = [f"-{f[1:]}" if f[1:].startswith(names) else f for f in flags.split(",")]
    # NOTE: the model's name brings features of its own.
    return ("x86-64" if any(f.startswith(("+sse", "-sse")) for f in kept) else cpu), ",".join(kept)
