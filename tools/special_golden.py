"""Write lgamma, digamma, erfinv and polygamma at points of all their ranges to `tests/golden/special_functions.npz`.

usage: python -m tools.special_golden

Each value is two float64 numbers, the nearest one and the rest. Needs mpmath; the tests that read the file do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np

from tests.support import golden_files

mp.mp.dps = 50


def _points() -> np.ndarray:
    """float32 numbers, so that every precision has the same: positive, near the zeros, at the ends of ranges."""
    rng = np.random.default_rng(0)
    edges = [0.5, np.nextafter(np.float32(1), np.float32(0)), 1.0, 2.0, 7.9999995, 8.0, 1e-38, 1e36]
    root = 1.4616321449683623 + rng.normal(size=20) * 1e-5
    near = np.concatenate([1 + rng.normal(size=20) * 1e-5, root, 2 + rng.normal(size=20) * 1e-5])
    inside = np.concatenate([rng.uniform(0, 1, 90), rng.uniform(1, 3, 60), rng.uniform(3, 12, 90)])
    return np.concatenate([inside, near, np.exp(rng.uniform(-80, 80, 60)), edges]).astype(np.float32)


def _negative() -> np.ndarray:
    rng = np.random.default_rng(1)
    return -np.concatenate([rng.uniform(0, 1, 40), rng.uniform(1, 30, 60), np.exp(rng.uniform(-80, 8, 20))]).astype(
        "f4"
    )


def _inside() -> np.ndarray:
    rng = np.random.default_rng(2)
    ends = 1 - np.exp(rng.uniform(-16, 0, 60))
    return np.concatenate([rng.uniform(-1, 1, 150), ends, -ends[:20], np.exp(rng.uniform(-80, 0, 20)), [0.85]]).astype(
        "f4"
    )


def _written(found: dict[str, Any], name: str, f: Callable[[Any], Any], x: np.ndarray) -> None:
    exact = [f(mp.mpf(float(v))) for v in x]
    nearest = np.array([float(v) for v in exact])
    found |= {f"{name}/x": x, f"{name}/y": nearest}
    found[f"{name}/rest"] = np.array([float(v - mp.mpf(n)) for v, n in zip(exact, nearest, strict=True)])


def main() -> None:
    found: dict[str, Any] = {}
    for name, f in (("lgamma", lambda v: mp.re(mp.loggamma(v))), ("digamma", mp.digamma)):
        for sign, x in (("positive", _points()), ("negative", _negative())):
            _written(found, f"{name}/{sign}", f, x[(x != np.floor(x)) | (x > 0)])
    _written(found, "erfinv", mp.erfinv, _inside())
    x = np.concatenate([_points()[:240:3], _negative()[:100:4]])
    for n in (1, 2, 3, 4):
        _written(found, f"polygamma/{n}", lambda v, n=n: mp.polygamma(n, v), x)
    _written(found, "mvlgamma/3", lambda v: 1.5 * mp.log(mp.pi) + sum(mp.loggamma(v - k / mp.mpf(2)) for k in range(3)),
             np.linspace(1.25, 9, 30).astype("f4"))  # fmt: skip
    print(golden_files.save("special_functions", found))


if __name__ == "__main__":
    main()
