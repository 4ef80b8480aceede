"""Write what PyTorch does under autocast: the functions that it casts for, and the dtypes it gives on the CPU.

`tests/golden/autocast_kernels.json` and `tests/golden/autocast_dtypes.json`; run with PyTorch.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

from tests.support.autocast_cases import CASES

GOLDEN = Path(__file__).parent.parent / "tests" / "golden"


def main() -> None:
    """Evaluate every case in PyTorch, on float32 and on bfloat16 activations."""
    import torch

    warnings.simplefilter("ignore")
    found: dict[str, list[str]] = {}
    for text, _ in CASES:
        row = []
        for dtype in (torch.float32, torch.bfloat16):

            def make(*shape: int, dtype: Any = dtype) -> Any:
                return torch.rand(shape, dtype=torch.float32).to(dtype)

            space = {
                "t": torch, "F": torch.nn.functional, "nn": torch.nn, "a": make,
                "f": lambda *shape: torch.rand(shape), "n": lambda *shape: torch.zeros(shape, dtype=torch.int64),
                "spd": lambda k, make=make: make(k, k) + (torch.eye(k) * 4).to(make(1).dtype),
            }  # fmt: skip
            try:
                with torch.autocast("cpu"):
                    value = eval(text, space)
                row.append(str(value.dtype).removeprefix("torch."))
            except (RuntimeError, ValueError, IndexError, TypeError) as error:
                print(f"{text} [{dtype}]: {error}", file=sys.stderr)
                row.append("error")
        found[text] = row
    (GOLDEN / "autocast_dtypes.json").write_text(json.dumps(found, indent=1) + "\n")
    registered = torch._C._dispatch_get_registrations_for_dispatch_key
    kernels = {
        device: sorted(name.removeprefix("aten::") for name in registered(key))
        for device, key in (("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA"))
    }
    (GOLDEN / "autocast_kernels.json").write_text(json.dumps(kernels, indent=1) + "\n")


if __name__ == "__main__":
    main()
