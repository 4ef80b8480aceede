"""`save` and `load`: named tensors in a safetensors file when that library is there, else in NumPy's `.npz`.

Nothing is pickled: a file from a stranger can hold arrays and nothing else.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import numpy as np

from lazyt.errors import DTypeError, NotSupportedError
from lazyt.handle import Handle
from lazyt.ir import dtypes
from lazyt.tensor import Tensor, tensor

_SEPARATOR = "."
_BFLOAT16 = "__bfloat16__"


def _flatten(tree: Any, prefix: str, out: dict[str, Any]) -> None:
    if isinstance(tree, Handle):
        out[prefix] = tree
    elif isinstance(tree, dict):
        for k, v in tree.items():
            if not isinstance(k, str | int) or (_SEPARATOR in str(k) and not isinstance(v, Handle)):
                raise DTypeError(f"save: keys are strings or ints (nested ones without '.'), not {k!r}")
            _flatten(v, f"{prefix}{_SEPARATOR}{k}" if prefix else str(k), out)
    elif isinstance(tree, int | float | bool):
        out[prefix] = tensor(tree, dtype=dtypes.float64 if isinstance(tree, float) else None)
    else:
        raise DTypeError(f"save: tensors, Python numbers and dicts of them are saved, not {type(tree).__name__!r}")


def save(tree: Any, path: str | os.PathLike[str]) -> None:
    """Write a tensor, or a dict of tensors (a `state_dict()`), to `path`; syncs what is pending.

    `.safetensors` files need the safetensors package; any other name is written as an uncompressed `.npz`. The file
    is replaced atomically. Raises DTypeError for anything that is not tensors, numbers and dicts of them.

    >>> import lazyt as lt, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "w.npz")
    >>> lt.save({"w": lt.ones(2)}, path)
    >>> lt.load(path)["w"].tolist()
    [1.0, 1.0]
    """
    found: dict[str, Any] = {}
    _flatten(tree, "", found)
    arrays = {name: x._array("save") for name, x in found.items()}
    path = os.fspath(path)
    partial = f"{path}.partial.{os.getpid()}"
    try:
        if path.endswith(".safetensors"):
            _library().save_file({k: np.ascontiguousarray(v) for k, v in arrays.items()}, partial)
        else:
            with open(partial, "wb") as f:
                np.savez(f, **{_encode(k, v): _plain(v) for k, v in arrays.items()})  # type: ignore[arg-type]
        os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.remove(partial)


def load(path: str | os.PathLike[str]) -> Any:
    """What `save` wrote: a tensor, or a flat dict of tensors by dotted names. Raises OSError for a missing file."""
    path = os.fspath(path)
    if path.endswith(".safetensors"):
        out: dict[str, Tensor] = {k: tensor(v) for k, v in _library().load_file(path).items()}
    else:
        with np.load(path, allow_pickle=False) as f:
            out = {_decode(k): tensor(_restore(k, f[k])) for k in f.files}
    return out[""] if set(out) == {""} else out


def _library() -> Any:
    if importlib.util.find_spec("safetensors") is None:
        raise NotSupportedError(
            "not supported: .safetensors files, because the package is missing: pip install safetensors"
        )
    import safetensors.numpy  # an optional dependency, loaded when a file of its kind is named

    return safetensors.numpy


# NumPy's format knows no bfloat16: its bits travel as uint16 under a marked name. An empty name is the lone tensor.
def _encode(name: str, a: np.ndarray[Any, Any]) -> str:
    return (_BFLOAT16 if a.dtype == dtypes.bfloat16 else "") + "/" + name


def _plain(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return a.view(np.uint16) if a.dtype == dtypes.bfloat16 else a


def _decode(key: str) -> str:
    return key.partition("/")[2]


def _restore(key: str, a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return a.view(dtypes.bfloat16) if key.startswith(_BFLOAT16) else a


__all__ = ["load", "save"]
