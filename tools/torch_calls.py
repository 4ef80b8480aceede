"""Write what PyTorch gives for each line of tests/torch/calls.txt: tests/golden/torch_calls.json, which tests read.

python -m tools.torch_calls          # with PyTorch in this environment
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1] / "tests"
# Calls that PyTorch refuses, and lazyt too.
REFUSED = TESTS / "torch" / "refused.txt"
CALLS, GOLDEN = TESTS / "torch" / "calls.txt", TESTS / "golden" / "torch_calls.json"


def names_of(torch: Any) -> dict[str, Any]:
    """What the calls read, made by a module of PyTorch's names."""
    x = [[((7 * i + 3 * j) % 11 - 5) / 4 for j in range(5)] for i in range(4)]
    x[2][3], x[3][0] = 0.0, 0.125
    return {
        "torch": torch,
        "x": torch.tensor(x),
        "y": torch.tensor([[((5 * i + 2 * j) % 7 - 3) / 3 for j in range(5)] for i in range(4)]),
        "z": torch.arange(20).view(10, 2),
        "v": torch.arange(10.0) / 2,
        "c": torch.arange(24.0).reshape(2, 3, 4) / 8,
        "n": torch.tensor([3, -2, 2, 7, 2, 0, -5]),
        "i": torch.tensor([[0, 4, 2], [1, 1, 0], [3, 2, 4], [0, 0, 1]]),
        "j": torch.tensor([[0, 1, 2, 3, 0], [3, 2, 1, 0, 2]]),
        "k": torch.tensor([1, 3]),
        "u": torch.tensor([[1, 2, 250], [0, 3, 1], [5, 0, 90]], dtype=torch.uint8),
        "s": torch.tensor(3.0),
    }


def plain(found: Any) -> Any:
    """A result as numbers, strings and lists, with the dtype and shape of each tensor."""
    if isinstance(found, bool | int | float | str) or found is None:
        return found
    if isinstance(found, tuple | list):
        return [plain(x) for x in found]
    if not hasattr(found, "tolist"):
        return str(found).removeprefix("torch.")
    dtype = str(found.dtype).removeprefix("torch.")
    values = (
        found.to(found.dtype).detach().resolve_conj().tolist() if hasattr(found, "resolve_conj") else found.tolist()
    )
    return {"dtype": dtype, "shape": list(found.shape), "values": _parts(values)}


def _parts(values: Any) -> Any:
    """Numbers, or nested lists of them, with a complex one as its two parts."""
    if isinstance(values, list):
        return [_parts(v) for v in values]
    return [values.real, values.imag] if isinstance(values, complex) else values


def main() -> None:
    """Ask PyTorch."""
    import torch

    made: dict[str, Any] = {}
    for call in CALLS.read_text().splitlines():
        made[call] = plain(eval(call, names_of(torch)))
    GOLDEN.write_text(json.dumps(made, indent=0) + "\n")
    for call in REFUSED.read_text().splitlines():
        try:
            eval(call, names_of(torch))
        except (RuntimeError, ValueError, TypeError, IndexError, AssertionError):
            continue
        raise AssertionError(f"PyTorch takes {call}")


if __name__ == "__main__":
    main()
