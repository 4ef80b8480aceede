"""`save` and `load`: tensors in a safetensors file when that library is there, else in NumPy's `.npz`.

Nothing is pickled: a file from a stranger can hold arrays, numbers and texts, and nothing else.
"""

from __future__ import annotations

import importlib.util
import io
import itertools
import json
import os
import tempfile
import zipfile
from typing import IO, Any

import numpy as np

from lazyt.errors import DTypeError, NotSupportedError
from lazyt.functions import torch_files
from lazyt.functions.conversion import tensor
from lazyt.ir import dtypes
from lazyt.runtime.tensor import Tensor
from lazyt.tracing.tensor_state import Handle

_SEPARATOR = "."
_numbers = itertools.count()
_BFLOAT16 = "__bfloat16__"
# Where a file says how its arrays stood in what was saved: a text of JSON, an entry of a .npz or safetensors' metadata.
_TREE = "__lazyt__"
_ZIP = b"PK"
_KEYS = (str, int, float, bool, type(None))


class _Writer:
    """Arrays by name, and the tree that they stood in as JSON: a list of its kind and what is in it."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        self.open: list[Any] = []

    def node(self, x: Any, name: str) -> list[Any]:
        """A part of the tree; its arrays go by the keys that lead to them, and a number where two have one name."""
        if isinstance(x, Handle | np.ndarray | np.generic):
            unique, n = name, 1
            while unique in self.arrays:
                n += 1
                unique = f"{name}~{n}"
            self.arrays[unique] = tensor(x)._array("save") if not isinstance(x, Handle) else x._array("save")
            return ["tensor", unique]
        if isinstance(x, float):
            return ["float", float(x).hex() if np.isfinite(x) else str(float(x))]
        if isinstance(x, complex):
            return ["complex", self.node(x.real, name), self.node(x.imag, name)]
        if x is None or isinstance(x, bool | int | str):
            return ["is", x]
        if isinstance(x, bytes):
            return ["bytes", x.decode("latin1")]
        if not isinstance(x, dict | list | tuple):
            instead = "; save its state_dict()" if hasattr(x, "state_dict") else ""
            raise DTypeError(
                "save: tensors, numbers, strings, bytes, None, and dicts, lists and tuples of them are saved, not "
                f"{type(x).__name__!r} (at {name or 'the top'!r}){instead}"
            )
        if any(x is outer for outer in self.open):
            raise DTypeError(f"save: {type(x).__name__!r} at {name!r} is inside itself")
        self.open.append(x)
        inside = f"{name}{_SEPARATOR}" if name else ""
        if isinstance(x, dict):
            for k in x:
                if type(k) not in _KEYS:
                    raise DTypeError(f"save: keys are strings, numbers or None, not {k!r}")
            out = ["dict", *([k, self.node(v, f"{inside}{k}")] for k, v in x.items())]
        else:
            out = ["list" if isinstance(x, list) else "tuple"]
            out += [self.node(v, f"{inside}{i}") for i, v in enumerate(x)]
        self.open.pop()
        return out


def _read(node: Any, tensors: dict[str, Tensor]) -> Any:
    kind, *rest = node
    if kind == "tensor":
        return tensors[rest[0]]
    if kind == "float":
        return float.fromhex(rest[0])
    if kind == "complex":
        return complex(*(_read(x, tensors) for x in rest))
    if kind == "is":
        return rest[0]
    if kind == "bytes":
        return rest[0].encode("latin1")
    if kind == "dict":
        return {k: _read(v, tensors) for k, v in rest}
    if kind in ("list", "tuple"):
        found = [_read(x, tensors) for x in rest]
        return found if kind == "list" else tuple(found)
    raise DTypeError(f"load: not supported: {kind!r} in a file that a newer lazyt wrote")


def save(tree: Any, path: str | os.PathLike[str] | IO[bytes]) -> None:
    """Write a tensor, or dicts, lists and tuples of tensors (a `state_dict()`), numbers, strings and None; syncs.

    `.safetensors` files need the safetensors package; any other name, and a binary file object, is written as an
    uncompressed `.npz`. A named file is replaced atomically. Raises DTypeError for anything else in the tree.

    >>> import lazyt as lt, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "w.npz")
    >>> lt.save({"w": lt.ones(2), "epochs": [1, 2.5]}, path)
    >>> lt.load(path)
    {'w': <lazyt.Tensor shape=(2,) dtype=float32 device=cpu [1., 1.]>, 'epochs': [1, 2.5]}
    """
    w = _Writer()
    text = json.dumps(w.node(tree, ""))
    if not isinstance(path, str | os.PathLike):
        _write_npz(path, w.arrays, text)
        return
    path = os.fspath(path)
    # NOTE: a number too, for a signal handler, or another thread, may write to the same path meanwhile.
    partial = f"{path}.partial.{os.getpid()}.{next(_numbers)}"
    try:
        if path.endswith(".safetensors"):
            # NOTE: `ascontiguousarray` makes a 0-d array 1-d.
            arrays = {k: np.asarray(v, order="C") for k, v in w.arrays.items()}
            _library().save_file(arrays, partial, metadata={_TREE: text})
        else:
            with open(partial, "wb") as f:
                _write_npz(f, w.arrays, text)
        os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.remove(partial)


def _write_npz(f: IO[bytes], arrays: dict[str, np.ndarray[Any, Any]], text: str) -> None:
    entries = {_encode(k, v): _plain(v) for k, v in arrays.items()}
    try:
        np.savez(f, **{_TREE: np.frombuffer(text.encode(), np.uint8)}, **entries)  # type: ignore[arg-type]
    except Exception as e:
        # NOTE: `zipfile` cannot close what an interrupt left open, and raises an error of its own in its place.
        cause = e.__context__
        while isinstance(cause, Exception):
            cause = cause.__context__
        if cause is not None:
            raise cause from None
        raise


def load(
    path: str | os.PathLike[str] | IO[bytes], map_location: Any = None, *, weights_only: bool | None = True
) -> Any:  # fmt: skip
    """What `save` wrote, from a name or a binary file object; of files that others wrote a flat dict of tensors.

    What a file is, its first bytes say: `.npz`, `.safetensors`, or PyTorch's `.pt`, whose dicts, lists, tuples, numbers
    and tensors are as `torch.save` had them. Nothing in a file is run: one that asks for more than tensors and
    containers raises an error that names it, with `weights_only=False` too. Each tensor has memory of its own.
    `map_location`: a device to move all tensors to. Raises OSError for a missing file, ValueError for a damaged one.
    """
    if isinstance(path, str | os.PathLike):
        with open(path, "rb") as f:
            found = _loaded(f, os.fspath(path))
    else:
        found = _loaded(io.BytesIO(path.read()), "")
    return found if map_location is None else _moved(found, map_location)


def _loaded(f: IO[bytes], path: str) -> Any:
    start = f.read(16)
    f.seek(0)
    if start[:2] == _ZIP:
        with zipfile.ZipFile(f) as z:
            names = z.namelist()
        f.seek(0)
        return torch_files.read_zip(f, names) if torch_files.is_torch_zip(names) else _load_npz(f)
    if torch_files.is_legacy(start):
        raise NotSupportedError(torch_files.LEGACY)
    if start[8:9] != b"{":
        raise torch_files.TorchFileError(
            f"load: {path or 'this file'!r} is neither an .npz, nor a .safetensors, nor a .pt file: it begins with "
            f"{start!r}"
        )
    if path:
        return _load_safetensors(path)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "held.safetensors")
        with open(path, "wb") as held:
            held.write(f.read())
        return _load_safetensors(path)


def _moved(x: Any, device: Any) -> Any:
    if isinstance(x, Tensor):
        return x.to(device=device)
    if isinstance(x, dict):
        for k, v in x.items():
            x[k] = _moved(v, device)
        return x
    if isinstance(x, list | tuple):
        return type(x)(_moved(v, device) for v in x)
    return x


def _load_npz(f: Any) -> Any:
    with np.load(f, allow_pickle=False) as entries:
        text = entries[_TREE].tobytes().decode() if _TREE in entries.files else None
        return _placed(text, {_decode(k): tensor(_restore(k, entries[k])) for k in entries.files if k != _TREE})


def _load_safetensors(path: str) -> Any:
    tensors = {k: tensor(v) for k, v in _library().load_file(path).items()}
    with open(path, "rb") as f:
        # The format: the length of the header in 8 bytes, then a header of JSON.
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
    return _placed(header.get("__metadata__", {}).get(_TREE), tensors)


def _placed(text: str | None, tensors: dict[str, Tensor]) -> Any:
    if text is not None:
        return _read(json.loads(text), tensors)
    return tensors[""] if set(tensors) == {""} else tensors


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
    # A file that another program wrote has names without the prefix.
    return key.partition("/")[2] if key.startswith(("/", f"{_BFLOAT16}/")) else key


def _restore(key: str, a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return a.view(dtypes.bfloat16) if key.startswith(f"{_BFLOAT16}/") else a


__all__ = ["load", "save"]
