"""An image through a chain of filters: blurred, sharpened, its edges, its contrast; each line as users write it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.core import Inputs, everywhere, workload

BLUR = (1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16)


def _inputs(quick: bool) -> Inputs:
    size = 24 if quick else 1024
    return {"image": np.random.default_rng(9).random((3, size, size), np.float32)}


def _chain(m: Any, image: Any) -> Sequence[Any]:
    """The results lack what the filters' windows do not cover."""
    n = image.shape[-1] - 4
    rows = sum(w * image[:, i : i + n, :] for i, w in enumerate(BLUR))
    blurred = sum(w * rows[:, :, i : i + n] for i, w in enumerate(BLUR))
    sharp = m.clip(1.5 * image[:, 2:-2, 2:-2] - 0.5 * blurred, 0.0, 1.0)
    gray = 0.299 * sharp[0] + 0.587 * sharp[1] + 0.114 * sharp[2]
    dx = (gray[:-2, 2:] + 2 * gray[1:-1, 2:] + gray[2:, 2:]) - (gray[:-2, :-2] + 2 * gray[1:-1, :-2] + gray[2:, :-2])
    dy = (gray[2:, :-2] + 2 * gray[2:, 1:-1] + gray[2:, 2:]) - (gray[:-2, :-2] + 2 * gray[:-2, 1:-1] + gray[:-2, 2:])
    edges = m.sqrt(dx * dx + dy * dy)
    edges = edges / edges.max()
    inner = sharp[:, 1:-1, 1:-1]
    return m.sqrt(inner) * (1.0 - edges), edges


workload(
    name="filter_chain",
    what="an image of 3 x 1024 x 1024: blurred, sharpened, darkened along its edges",
    inputs=_inputs,
    reference=lambda inputs: _chain(np, *inputs.values()),
    builds=everywhere(_chain, "lazyt", "torch", "jax", "numpy"),
    nbytes=lambda inputs: 4 * 7 * inputs["image"].size / 3,
    rtol=1e-4,
    atol=1e-4,
)
