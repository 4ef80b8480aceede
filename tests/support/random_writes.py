"""Random programs of arrays that are updated, written in part, exchanged and held, beside NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import lazyt as lt


def write_at_random(seed: int, fresh: Callable[[float], Any]) -> None:
    """Compare such a program over three values of `fresh`, which makes (128, 64) float32."""
    rng = np.random.default_rng(seed)
    names, half = "abc", np.float32(0.5)
    mine: dict[str, Any] = {n: fresh(i + 1.0) for i, n in enumerate(names)}
    numpys: dict[str, Any] = {n: np.full((128, 64), i + 1.0, np.float32) for i, n in enumerate(names)}
    held: list[tuple[Any, Any]] = []
    for _ in range(60):
        x, y = rng.choice(list(names), 2)
        i = int(rng.integers(0, 60))
        match int(rng.integers(0, 8)):
            case 0:
                mine[x] += mine[y] * 0.5
                numpys[x] += numpys[y] * half
            case 1:
                mine[x] = mine[y] * 0.5 + mine[x]
                numpys[x] = numpys[y] * half + numpys[x]
            case 2:
                mine[x][:, i] = mine[y][:, 0]
                numpys[x][:, i] = numpys[y][:, 0]
            case 3:
                mine[x][i : i + 3] *= 0.5
                numpys[x][i : i + 3] *= half
            case 4:
                held.append((mine[x].numpy(), numpys[x].copy()))
            case 5:
                held.append((mine[x] * 1.0, numpys[x].copy()))
            case 6:
                mine[x] = mine[y]
                numpys[x] = numpys[y]
            case _:
                del held[: len(held) // 2]
                lt.sync()
        if rng.random() < 0.3:
            lt.sync()
    for name in names:
        np.testing.assert_array_equal(mine[name].numpy(), numpys[name])
    for got, want in held:
        np.testing.assert_array_equal(got if isinstance(got, np.ndarray) else got.numpy(), want)
