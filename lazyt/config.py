"""What `LAZYT_DEBUG` turns off, to find a culprit: the one room that reads it. docs/architecture.md has the table.

`general` the recording, the graph and the plan, on every backend
`cpu`     the code generator and the executor of the CPU; `ahead`, `adopt` and `graphs` are a GPU's too
`cuda`    the emission for GPUs; `wide`, `tile` and `split` turn off what has that name in `cpu` as well
`registers` how many float32 a register is taken to hold, and how many threads there are; 0: as many as there are

`no-NAME` turns one off; those in `ASKED` are off until their name turns them on; `width-N` is one of `WIDTHS`, and
`threads-N` what `set_num_threads(N)` says, from the start.
"""

from __future__ import annotations

import os
import re

from lazyt.errors import SettingError

general = {
    "fuse": True, "tiers": True, "reuse": True, "native": True, "epilogues": True, "gemm": True, "blas": True,
    "attention": True, "cover": True, "turn": True, "vectors": True, "slices": True, "repeat": True, "shapes": True,
    "calls": True, "first": True, "partition": True,
    "interpret": False, "verify": False, "strict": False,
}  # fmt: skip
cpu = {
    "wide": True, "split": True, "tile": True, "widen": True, "pairs": True, "together": True, "donate": True,
    "adopt": True, "ahead": True, "graphs": True, "alternate": True, "early": True, "rebind": True, "place": True,
    "autotune": False,
}  # fmt: skip
cuda = {"wide": True, "keep": True, "tile": True, "native-math": True, "split": True, "many": True, "cudnn": True}
registers = {"width": 0, "threads": 0}

ASKED = ("interpret", "verify", "strict", "autotune")
WIDTHS = (8, 4, 1)
_TABLES = (general, cpu, cuda)
_THREADS = re.compile(r"threads-[1-9]\d*")


def known() -> list[str]:
    """Every word, in order.

    >>> [w for w in known() if w.startswith("no-c")]
    ['no-calls', 'no-cover', 'no-cudnn']
    """
    off = {f"no-{name}" for table in _TABLES for name in table if name not in ASKED}
    return sorted({*off, *ASKED, *(f"width-{n}" for n in WIDTHS), "threads-N"})


def read(text: str) -> None:
    """Turn the words of a comma-separated list. SettingError, and nothing turned, for an unknown one."""
    words = [w for w in map(str.strip, text.split(",")) if w]
    unknown = [w for w in words if (w not in known() or w == "threads-N") and not _THREADS.fullmatch(w)]
    if unknown:
        raise SettingError(f"LAZYT_DEBUG: unknown word {unknown[0]!r}; there are {', '.join(known())}")
    for word in words:
        number, _, n = word.partition("-")
        if number in registers:
            registers[number] = int(n)
        name = word.removeprefix("no-")
        for table in _TABLES:
            if name in table:
                table[name] = word in ASKED


read(os.environ.get("LAZYT_DEBUG", ""))
