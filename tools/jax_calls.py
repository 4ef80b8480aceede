"""Write what JAX gives for each call of tests/docs/jax_calls.txt: tests/golden/jax_calls.json, which tests read.

PYTHON -m tools.jax_calls          # with JAX in this environment
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

TESTS = Path(__file__).parents[1] / "tests"
CALLS, GOLDEN = TESTS / "docs" / "jax_calls.txt", TESTS / "golden" / "jax_calls.json"
# Functions that the calls use on their arguments, and dtypes.
HELPERS = "argsort ones_like sort stack transpose float16 float32 int8 int32"


def calls() -> Iterator[tuple[str, str, str]]:
    """JAX's name, JAX's call and lazyt's: the last is '' where the call is the same, and the name where it is not."""
    for line in CALLS.read_text().splitlines():
        if line.startswith("#"):
            continue
        theirs, arrow, here = line.partition(" => ")
        if arrow:
            yield "", theirs, here
            continue
        head, _, arguments = line.partition(" | ")
        space, _, names = head.partition(": ")
        for name in names.split():
            for a in arguments.split(" ; "):
                yield f"jax.{space}.{name}", f"jax.{space}.{name}{a}", ""


def seven_times(custom_vjp: Callable[..., Any]) -> Any:
    """A cube whose derivative is said to be seven times its argument."""
    cube = custom_vjp(lambda x: x**3)
    cube.defvjp(lambda x: (x**3, x), lambda x, g: (7 * x * g,))
    return cube


def eight_times(custom_jvp: Callable[..., Any]) -> Any:
    """A cube whose derivative is said to be eight times its argument."""
    cube = custom_jvp(lambda x: x**3)
    cube.defjvp(lambda primals, tangents: (primals[0] ** 3, 8 * primals[0] * tangents[0]))
    return cube


def names_of(module: Any) -> dict[str, Any]:
    """What the calls read, with arrays made by `jax.numpy` or by lazyt."""
    draw = np.random.default_rng(0)
    x, y, v, t, a = (draw.normal(size=s).astype("float32") for s in ((4, 5), (4, 5), 6, (2, 3, 4), (3, 3)))
    w = x.copy()
    w[0, 1], w[2, 3] = np.nan, np.inf
    arrays = {
        "x": x, "y": y, "v": v, "t": t, "a": a, "w": w, "s": a @ a.T + np.eye(3, dtype="float32"),
        "q": np.abs(y) + 1, "r": np.tanh(y), "b": x > 0.1, "z": (x[:, 0] + 1j * y[:, 0]).astype("complex64"),
        "h": np.array([0.1, 0.4, 0.9], "float32"), "n": np.array([3, 1, 4, 1, 5, 9], "int32"),
        "i": np.array([-3, 2, -1, 4, -7, 1], "int32"), "k": np.array([2, 0, 1], "int32"),
        "u": np.array([3, 200], "uint8"),
    }  # fmt: skip
    made: dict[str, Any] = {name: module.asarray(value) for name, value in arrays.items()}
    made |= {name: getattr(module, name) for name in HELPERS.split()}
    made |= {"numpy": np, "f": lambda v: (v**2).sum(), "g": lambda v: v**3}
    return made | {"seven_times": seven_times, "eight_times": eight_times}


def plain(found: Any) -> Any:
    """A result as numbers, strings and lists, with the kind of dtype and the shape of each array."""
    if isinstance(found, bool | int | str) or found is None:
        return found
    if isinstance(found, tuple | list):
        return [plain(x) for x in found]
    if not isinstance(found, float | complex) and not hasattr(found, "shape"):
        return str(np.dtype(found))
    a = np.asarray(found.numpy() if hasattr(found, "numpy") else found)
    if a.dtype == object:
        return str(np.dtype(found))
    values = np.stack([a.real, a.imag], -1) if a.dtype.kind == "c" else a
    text = [f"{e:.6g}" for e in values.ravel().tolist()]
    return {"kind": a.dtype.kind, "shape": list(a.shape), "values": " ".join(text)}


def main() -> None:
    """Ask JAX."""
    import jax
    import jax.numpy

    names = {**names_of(jax.numpy), "jax": jax}
    made = {call: plain(eval(call, dict(names))) for _, call, _ in calls()}
    GOLDEN.write_text(json.dumps(made, indent=0) + "\n")


if __name__ == "__main__":
    main()
