"""Files of what PyTorch computed: written where PyTorch is, read by the tests without it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def array(x: Any) -> np.ndarray:
    """The value of a tensor of either library, copied: buffers are written."""
    return np.array(x.detach() if hasattr(x, "detach") else x)


def save(area: str, arrays: dict[str, np.ndarray]) -> Path:
    path = GOLDEN / f"{area}.npz"
    path.parent.mkdir(exist_ok=True)
    np.savez_compressed(path, **arrays)
    return path


@cache
def load(area: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / f"{area}.npz") as file:
        return {k: file[k] for k in file.files}
