"""Whole programs that PyTorch and lazyt run from one text, and the files of what PyTorch computed.

Each module here has PROGRAMS: a name and a function of (library, dtype) that returns arrays by name. `write` keeps what
PyTorch computes in float64 in `tests/golden/`; `read` gives it to the tests, which run without PyTorch.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import golden_files
from tests.support.golden_files import array

Program = Callable[[Any, str], dict[str, Any]]


def areas() -> list[str]:
    """The modules of this package: each has a golden file of its name."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__))


def programs(area: str) -> dict[str, Program]:
    found: dict[str, Program] = importlib.import_module(f"{__name__}.{area}").PROGRAMS
    return found


def write(area: str, lib: Any) -> Path:
    """Run the programs of an area by PyTorch in float64, and keep what they compute: two arrays a program."""
    kept = {}
    for name, program in programs(area).items():
        found = {key: array(value) for key, value in program(lib, "float64").items()}
        numbers = {key: x for key, x in found.items() if x.dtype.kind in "fiub"}
        index = [[key, list(x.shape), str(x.dtype)] for key, x in numbers.items()]
        texts = {key: str(x) for key, x in found.items() if key not in numbers}
        kept[f"{name}|values"] = np.concatenate([x.astype(np.float64).ravel() for x in numbers.values()])
        kept[f"{name}|index"] = np.asarray(json.dumps([index, texts]))
    return golden_files.save(area, kept)


def read(area: str, name: str) -> dict[str, np.ndarray]:
    """What PyTorch computed for a program."""
    file = golden_files.load(area)
    if f"{name}|index" not in file:
        raise KeyError(f"{area}.npz has no program {name!r}: run python -m tools.torch_golden {area}")
    index, texts = json.loads(str(file[f"{name}|index"]))
    sizes = [int(np.prod(shape)) for _, shape, _ in index]
    parts = np.split(file[f"{name}|values"], np.cumsum(sizes)[:-1])
    found = {k: x.reshape(shape).astype(dtype) for x, (k, shape, dtype) in zip(parts, index, strict=True)}
    return found | {k: np.asarray(v) for k, v in texts.items()}


def compare(got: dict[str, Any], want: dict[str, np.ndarray], limit: float) -> None:
    """The same names, the same shapes, and values within `limit` of the largest one."""
    assert got.keys() == want.keys(), sorted(got.keys() ^ want.keys())
    for key, b in want.items():
        a = array(got[key])
        assert a.shape == b.shape, f"{key}: {a.shape} for {b.shape}"
        size = float(np.max(np.abs(b), initial=0, where=np.isfinite(b)))
        np.testing.assert_allclose(a, b, rtol=limit, atol=limit * max(size, 1), err_msg=key)
