"""Write the public names of PyTorch or JAX that the porting pages list: `PYTHON -m tools.names_of_peers torch|jax`."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "tests" / "docs"
SPACES = {
    "torch": (
        "torch", "torch.Tensor", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.nn.utils", "torch.optim",
        "torch.optim.lr_scheduler", "torch.autograd", "torch.autograd.functional", "torch.func", "torch.linalg",
        "torch.fft", "torch.utils.data",
        "torch.distributions", "torch.amp",
    ),
    "jax": (
        "jax", "jax.numpy", "jax.numpy.linalg", "jax.numpy.fft", "jax.nn", "jax.nn.initializers", "jax.random",
        "jax.lax",
    ),
}  # fmt: skip


def found(space: str) -> Any:
    """A module, or the class Tensor."""
    head, _, last = space.rpartition(".")
    return getattr(importlib.import_module(head), last) if last == "Tensor" else importlib.import_module(space)


def names(space: str) -> list[str]:
    """The public functions and classes that stand there."""
    o = found(space)
    listed = getattr(o, "__all__", None) or dir(o)
    library = space.partition(".")[0]
    out = []
    for n in sorted(set(listed)):
        x = getattr(o, n, None)
        if n.startswith("_") or not callable(x) or isinstance(x, types.ModuleType):
            continue
        home = str(getattr(x, "__module__", None) or "")
        if isinstance(x, type) and not home.startswith(library):
            continue  # typing's and the like, imported there
        if space == "torch" and (isinstance(x, type) or n.endswith("_")):
            continue
        out.append(f"{space}.{n}")
    return out


def main() -> None:
    """Write them, a line each."""
    library = sys.argv[1]
    lines = [n for space in SPACES[library] for n in names(space)]
    (FOLDER / f"{library}_names.txt").write_text("\n".join(lines) + "\n")
    print(len(lines), importlib.import_module(library).__version__)


if __name__ == "__main__":
    main()
