"""Write the `.pt` files that the tests read: `PYTHON_WITH_TORCH -m tools.torch_pt_files` (lazyt is not needed).

Each file has a `.npz` beside it with the values, by the keys that lead to them.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch

GOLDEN = Path(__file__).parent.parent / "tests" / "golden" / "pt"


def trees() -> dict[str, Any]:
    """What is saved, by the file's name."""
    g = torch.Generator().manual_seed(0)
    x = torch.rand(3, 4, generator=g)
    base = torch.arange(24.0).reshape(2, 3, 4)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model(torch.rand(5, 3, generator=g)).sum().backward()
    optimizer.step()
    names = ("float64", "float16", "bfloat16", "complex64", "complex128", "int64", "int32", "int16", "int8", "uint8",
             "uint16", "bool")  # fmt: skip
    return {
        "dtypes": {n: torch.tensor([0, 1, 3]).to(getattr(torch, n)) for n in names},
        "views": {"t": base.transpose(0, 2), "row": base[1, 2], "step": base[:, ::2, 1:],
                  "expanded": x[:1].expand(3, 4), "scalar": base[1, 1, 1], "empty": torch.zeros(0, 3),
                  "conj": torch.tensor([1 + 2j]).conj()},
        "checkpoint": {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "name": "a.b",
                       "best": 0.5, "done": False, "none": None, "raw": b"\x00\xff", "shape": torch.Size([2, 3]),
                       "list": [1, (x, "t")], "dtype": torch.float32, "device": torch.device("cpu"), "big": 10**30},
        "parameters": OrderedDict(w=torch.nn.Parameter(x), tied=[x, x]),
    }  # fmt: skip


def flat(tree: Any, name: str = "") -> dict[str, np.ndarray[Any, Any]]:
    """The tensors of a tree by the keys that lead to them; bfloat16 as float32."""
    if isinstance(tree, torch.Tensor):
        t = tree.detach().resolve_conj()
        return {name: (t.float() if t.dtype == torch.bfloat16 else t).numpy()}
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list | tuple) else ()
    return {k: v for key, x in parts for k, v in flat(x, f"{name}/{key}" if name else str(key)).items()}


def main() -> None:
    """Write all of them."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for name, tree in trees().items():
        torch.save(tree, GOLDEN / f"{name}.pt")
        np.savez(GOLDEN / f"{name}.npz", **flat(tree))
        if name in ("dtypes", "views"):
            torch.save(tree, GOLDEN / f"legacy_{name}.pt", _use_new_zipfile_serialization=False)
    torch.save({"w": torch.ones(2)}, GOLDEN / "legacy.pt", _use_new_zipfile_serialization=False)
    torch.save(torch.nn.Linear(2, 2), GOLDEN / "module.pt")


if __name__ == "__main__":
    main()
